/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who owns what a note points at, as its row says: the scheduler that handles it gives back exactly
 * that, and so does the end of the program, which drops what it finds in the rings. One note of
 * each type, about nobody, all of a type's part filled in.
 */
#include "pipeline.h"

#include "kvr_test.h"
#include "lcore/notes.h"
#include "lcore/out.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct pool *pool(void)
{
	return &rt->pool[0];
}

static void start(void)
{
	pipeline_start_with("[pool a]\nid = 5\nmax_sessions = 8\n" PIPELINE_POOL);
}

/* A frame of the client, all zero behind the header, with its path kept. */
static struct rte_mbuf *some_frame(void)
{
	const struct kvr_path path = {
		.family = 4, .ip = {[10] = 0xff, 0xff, 10, 0, 0, 2}, .udp_port = PEER_CLIENT};
	struct rte_mbuf *m = rte_pktmbuf_alloc(kvr_port_pool(rt->port[0]));
	struct kvr_wire_hdr *h;

	CU_ASSERT_PTR_NOT_NULL_FATAL(m);
	h = (void *)rte_pktmbuf_append(m, 256);
	memset(h, 0, 256);
	h->kind = KVR_PROBE;
	h->source = 77;
	path_keep(m, &path);
	return m;
}

/* Two of them, as they come from reassembly. */
static struct frame_list *some_frames(void)
{
	struct frame_list *l = buf_get(rt, rt->frame_lists, sizeof(*l) + 2 * sizeof(l->m[0]));

	CU_ASSERT_PTR_NOT_NULL_FATAL(l);
	*l = (struct frame_list){.n = 2};
	l->m[0] = some_frame();
	l->m[1] = some_frame();
	rt->lcore[0]->moved[0] += l->n;
	return l;
}

/* What a ROUTE has become when ingress is done with it. */
static struct job *some_job(uint8_t kind)
{
	struct note n;

	pipeline_kind = kind;
	rt->lcore[0]->n_sched = 0; /* nobody takes the note */
	pipeline_route(1, 100, 4, KVR_REQ_F_QUERY, NULL);
	rt->lcore[0]->n_sched = 1;
	pipeline_kind = KVR_ROUTE;
	CU_ASSERT_EQUAL_FATAL(notes_take(pool(), &n, 1), 1);
	return n.job;
}

/* A note of the type with everything that its row says. */
static struct note filled(enum note_type type)
{
	struct note n = {.type = (uint8_t)type, .handle = UINT64_C(7) << 32};

	switch (note_types[type].part) {
	case NOTE_PART_JOB:
		n.handle = 0;
		n.job = some_job(type == NOTE_ROUTE ? KVR_ROUTE : KVR_POTENTIAL_LOADS);
		break;
	case NOTE_PART_FRAME:
		n.m = some_frame();
		break;
	case NOTE_PART_FRAMES:
		n.frames = some_frames();
		break;
	case NOTE_PART_CODE:
		n.code = 1;
		break;
	case NOTE_PART_PROGRESS:
		n.progress.tokens = 1;
		n.progress.cached = KVR_NONE32;
		break;
	case NOTE_PART_SESSION:
		n.session.worker = 9;
		break;
	case NOTE_PART_MAC:
		n.mac[5] = 9;
		break;
	case NOTE_PART_NONE:
		break;
	}
	return n;
}

static void nothing_left(enum note_type type)
{
	uint32_t left;

	pipeline_flush();
	left = pipeline_mbufs_used() + rte_mempool_in_use_count(pool()->jobs);
	if (left != 0)
		printf("%s: %u buffers and jobs are left\n", note_types[type].name, left);
	CU_ASSERT_EQUAL(left, 0);
}

static void who_handles_a_note_gives_back_what_it_owns(void)
{
	start();
	for (enum note_type t = 0; t < NOTE_TYPES; t++) {
		const struct note n = filled(t);

		CU_ASSERT_EQUAL_FATAL(notes_put(pool(), &n), 0);
		pipeline_turn();
		nothing_left(t);
	}
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static void a_note_that_is_dropped_gives_back_what_it_owns(void)
{
	start();
	for (enum note_type t = 0; t < NOTE_TYPES; t++) {
		const struct note n = filled(t);

		note_drop(&rt->control, &n);
		nothing_left(t);
	}
	pipeline_stop();
}

/* Both ways notes can lie: what was put is taken in its order, no more than there is room for, and
 * what is counted is what is there, wherever in the memory it has got to. */
static void notes_keep_their_order(void)
{
	static struct router nobody; /* whose control drops what is left */

	for (int alone = 0; alone < 2; alone++) {
		struct note out[8];
		struct pool p = {.number = 77, .rt = &nobody};
		uint64_t put = 0, took = 0;

		CU_ASSERT_EQUAL_FATAL(notes_create(&p, 16, alone), 0);
		CU_ASSERT_EQUAL(p.notes == NULL, alone);
		for (uint32_t step = 0; step < 2000; step++) {
			const uint32_t in = step * 7 % 11, most = 1 + step * 5 % 8;
			uint32_t got;

			for (uint32_t i = 0; i < in; i++) {
				const struct note n = {.type = NOTE_ABORT_ACK, .handle = put};
				const int rc = notes_put(&p, &n);

				CU_ASSERT_EQUAL_FATAL(rc, put - took < 15 ? 0 : -ENOBUFS);
				put += rc == 0;
			}
			CU_ASSERT_EQUAL_FATAL(notes_count(&p), put - took);
			got = notes_take(&p, out, most);
			CU_ASSERT_EQUAL_FATAL(got, RTE_MIN(put - took, (uint64_t)most));
			for (uint32_t i = 0; i < got; i++)
				CU_ASSERT_EQUAL_FATAL(out[i].handle, took + i);
			took += got;
		}
		CU_ASSERT_TRUE(took > 1000);
		notes_destroy(&p);
	}
}

int main(void)
{
	CU_TestInfo tests[] = {{"handled", who_handles_a_note_gives_back_what_it_owns},
			       {"dropped", a_note_that_is_dropped_gives_back_what_it_owns},
			       {"order", notes_keep_their_order},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("notes", tests);
}
