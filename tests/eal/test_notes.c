/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ownership of the buffers that a message between lcores refers to, as its row states: the
 * scheduler that handles the message frees exactly these, and so does the end of the program, which
 * drains the rings. One message of each type, of an unknown request, with all parts of its type
 * filled in.
 */
#include "pipeline.h"

#include "kvr_test.h"
#include "lcore/mailbox.h"
#include "lcore/out.h"
#include "sched/sched.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void start_notes(void)
{
	pipeline_start_with("[pool a]\nid = 5\nmax_sessions = 8\n" PIPELINE_POOL);
}

/* A frame of the client, zero after the header, with its path kept. */
static struct rte_mbuf *make_frame(void)
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

/* Two of them, as reassembly returns them. */
static struct frame_list *make_frames(void)
{
	struct frame_list *l = buf_get(rt, rt->frame_lists, sizeof(*l) + 2 * sizeof(l->m[0]));

	CU_ASSERT_PTR_NOT_NULL_FATAL(l);
	*l = (struct frame_list){.n = 2};
	l->m[0] = make_frame();
	l->m[1] = make_frame();
	rt->lcore[0]->moved[0] += l->n;
	return l;
}

/* The job of a ROUTE at the end of ingress. */
static struct job *make_job(uint8_t kind)
{
	struct sched_msg n;

	pipeline_kind = kind;
	rt->lcore[0]->n_sched = 0; /* no thread takes the message */
	pipeline_route(1, 100, 4, KVR_REQ_F_QUERY, NULL);
	rt->lcore[0]->n_sched = 1;
	pipeline_kind = KVR_ROUTE;
	CU_ASSERT_EQUAL_FATAL(mailbox_take(pipeline_get_pool(), &n, 1), 1);
	return n.job;
}

/* A message of the type with everything that its row lists. */
static struct sched_msg fill_note(enum sched_msg_type type)
{
	struct sched_msg n = {.type = (uint8_t)type, .handle = UINT64_C(7) << 32};

	switch (sched_msg_types[type].part) {
	case MSG_PART_JOB:
		n.handle = 0;
		n.job = make_job(type == MSG_ROUTE ? KVR_ROUTE : KVR_POTENTIAL_LOADS);
		break;
	case MSG_PART_FRAME:
		n.m = make_frame();
		break;
	case MSG_PART_FRAMES:
		n.frames = make_frames();
		break;
	case MSG_PART_CODE:
		n.code = 1;
		break;
	case MSG_PART_PROGRESS:
		n.progress.tokens = 1;
		n.progress.cached = KVR_NONE32;
		break;
	case MSG_PART_SESSION:
		n.session.worker = 9;
		break;
	case MSG_PART_MAC:
		n.mac[5] = 9;
		break;
	case MSG_PART_NONE:
		break;
	}
	return n;
}

static void expect_nothing_left(enum sched_msg_type type)
{
	uint32_t left;

	pipeline_flush();
	left = pipeline_mbufs_used() + rte_mempool_in_use_count(pipeline_get_pool()->jobs);
	if (left != 0)
		printf("%s: %u buffers and jobs are left\n", sched_msg_types[type].name, left);
	CU_ASSERT_EQUAL(left, 0);
}

static void a_handled_message_frees_what_it_owns(void)
{
	start_notes();
	for (enum sched_msg_type t = 0; t < MSG_TYPES; t++) {
		const struct sched_msg n = fill_note(t);

		CU_ASSERT_EQUAL_FATAL(mailbox_put(pipeline_get_pool(), &n), 0);
		pipeline_turn();
		expect_nothing_left(t);
	}
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static void a_dropped_message_frees_what_it_owns(void)
{
	start_notes();
	for (enum sched_msg_type t = 0; t < MSG_TYPES; t++) {
		const struct sched_msg n = fill_note(t);

		sched_msg_free(&rt->control, &n);
		expect_nothing_left(t);
	}
	pipeline_stop();
}

/*
 * Both layouts of the queue: messages are taken in the order they were put, no more than fit, and
 * the count equals those present at any position in the memory.
 */
static void messages_keep_their_order(void)
{
	static struct router other_router; /* its control thread drops the rest */

	for (int alone = 0; alone < 2; alone++) {
		struct sched_msg out[8];
		struct pool p = {.number = 77, .rt = &other_router};
		uint64_t put = 0, took = 0;

		CU_ASSERT_EQUAL_FATAL(mailbox_create(&p, 16, alone), 0);
		CU_ASSERT_EQUAL(p.mailbox == NULL, alone);
		for (uint32_t step = 0; step < 2000; step++) {
			const uint32_t in = step * 7 % 11, most = 1 + step * 5 % 8;
			uint32_t got;

			for (uint32_t i = 0; i < in; i++) {
				const struct sched_msg n = {.type = MSG_ABORT_ACK, .handle = put};
				const int rc = mailbox_put(&p, &n);

				CU_ASSERT_EQUAL_FATAL(rc, put - took < 15 ? 0 : -ENOBUFS);
				put += rc == 0;
			}
			CU_ASSERT_EQUAL_FATAL(mailbox_count(&p), put - took);
			got = mailbox_take(&p, out, most);
			CU_ASSERT_EQUAL_FATAL(got, RTE_MIN(put - took, (uint64_t)most));
			for (uint32_t i = 0; i < got; i++)
				CU_ASSERT_EQUAL_FATAL(out[i].handle, took + i);
			took += got;
		}
		CU_ASSERT_TRUE(took > 1000);
		mailbox_destroy(&p);
	}
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_handled_message_frees_what_it_owns),
			       KVR_CASE(a_dropped_message_frees_what_it_owns),
			       KVR_CASE(messages_keep_their_order), CU_TEST_INFO_NULL};

	return kvr_test_run("notes", tests);
}
