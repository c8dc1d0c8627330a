/* SPDX-License-Identifier: BSD-3-Clause */
/* Reassembly: order, loss, duplicates, contradictions, bounds, time; and against a model. */
#include "kvr_rand.h"
#include "kvr_reasm.h"
#include "kvr_test.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <sys/resource.h>

#define N_FRAMES 100000u

/* Who owns each frame. Frames are numbers 1.. in disguise. */
enum owner { CALLER, REASM, DELIVERED, DROPPED };
static uint8_t owner[N_FRAMES];
static uint32_t next_frame, dropped;

static void *frame_ref(uint32_t i)
{
	return (void *)(uintptr_t)(i + 1);
}

static uint32_t frame_no(const void *ref)
{
	return (uint32_t)(uintptr_t)ref - 1;
}

static void on_drop(void *arg, void *ref)
{
	const uint32_t i = frame_no(ref);

	CU_ASSERT_EQUAL_FATAL(owner[i], REASM);
	owner[i] = DROPPED;
	dropped++;
	*(uint32_t *)arg += 1;
}

static uint32_t drop_calls;

static struct kvr_reasm *make_reasm(struct kvr_reasm_conf conf)
{
	struct kvr_reasm *r;

	conf.drop = on_drop;
	conf.drop_arg = &drop_calls;
	if (conf.timeout == 0)
		conf.timeout = 1000;
	conf.seed = 99;
	memset(owner, 0, sizeof(owner));
	next_frame = 0;
	dropped = 0;
	drop_calls = 0;
	r = kvr_reasm_create(&conf);
	CU_ASSERT_PTR_NOT_NULL_FATAL(r);
	return r;
}

static const struct kvr_peer peer_a = {{10, 0, 0, 1}}, peer_b = {{10, 0, 0, 2}};

static uint64_t run; /* handle of what add_fragment() adds */

/* One fragment of message `id`; body bytes are stood in for by an address that encodes the offset.
 */
static int add_fragment(struct kvr_reasm *r, const struct kvr_peer *peer, uint64_t id,
			uint32_t msg_len, uint32_t off, uint32_t len, uint64_t now,
			struct kvr_reasm_msg *out)
{
	const struct kvr_wire_ids ids = {.source = 7, .id = id, .handle = run, .msg_seq = 1};
	uint8_t hdr[sizeof(struct kvr_wire_hdr)];
	const uint32_t f = next_frame++;
	int res;

	CU_ASSERT_FATAL(f < N_FRAMES);
	kvr_hdr_put(hdr, KVR_ROUTE, &ids, msg_len, off, (uint16_t)len);
	owner[f] = REASM; /* until we learn otherwise: the drop callback may run inside */
	res = kvr_reasm_add(r, peer, (struct kvr_wire_hdr *)hdr, (void *)(uintptr_t)(off + 0x1000),
			    frame_ref(f), now, out);
	if (res == KVR_REASM_REFUSED)
		res = -(int)out->why;
	if (res < 0 || res == KVR_REASM_DUPLICATE || res == KVR_REASM_DONE) {
		CU_ASSERT_EQUAL(owner[f], REASM);
		owner[f] = CALLER;
	}
	if (res == KVR_REASM_COMPLETE) {
		uint32_t at = 0;

		for (uint32_t i = 0; i < out->n_frags; i++) {
			const struct kvr_reasm_frag *g = &out->frag[i];

			CU_ASSERT_EQUAL_FATAL(owner[frame_no(g->frame)], REASM);
			owner[frame_no(g->frame)] = DELIVERED;
			CU_ASSERT_EQUAL_FATAL(g->off, at);
			CU_ASSERT_EQUAL_FATAL((uintptr_t)g->data, at + 0x1000);
			at += g->len;
		}
		CU_ASSERT_EQUAL(at, msg_len);
		CU_ASSERT_EQUAL(out->len, msg_len);
	}
	return res;
}

static void check_equations(const struct kvr_reasm *r)
{
	const struct kvr_reasm_stats *s = kvr_reasm_stats(r);
	uint32_t held = 0;

	for (uint32_t i = 0; i < next_frame; i++)
		held += owner[i] == REASM;
	CU_ASSERT_EQUAL(s->frames, held);
	CU_ASSERT_EQUAL(s->dropped_frames, dropped);
	CU_ASSERT_EQUAL(s->fragments, s->duplicates + s->refused_fragment + s->refused_full +
					      s->refused_large + s->accepted);
	CU_ASSERT_EQUAL(s->accepted, s->delivered_frames + s->dropped_frames + s->frames);
	CU_ASSERT_EQUAL(s->started,
			s->completed + s->expired + s->evicted + s->flushed + s->messages);
}

/* End of a test: nothing is lost, nothing is left. */
static void finish_reasm(struct kvr_reasm *r)
{
	check_equations(r);
	kvr_reasm_flush(r);
	check_equations(r);
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->frames, 0);
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->bytes, 0);
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->messages, 0);
	kvr_reasm_destroy(r);
}

static void whole_frame_completes_at_once(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){0});
	struct kvr_reasm_msg m;

	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 88, 0, 88, 0, &m), KVR_REASM_COMPLETE);
	CU_ASSERT_EQUAL(m.n_frags, 1);
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->fragments, 0);
	finish_reasm(r);
}

static void any_order_completes(void)
{
	/* 3 fragments of 1000, 1000, 504 bytes in all six orders */
	static const uint8_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
					     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){0});
	struct kvr_reasm_msg m;

	for (uint32_t o = 0; o < 6; o++)
		for (uint32_t k = 0; k < 3; k++) {
			const uint32_t off = orders[o][k] * 1000u;

			CU_ASSERT_EQUAL(add_fragment(r, &peer_a, o, 2504, off,
						     off == 2000 ? 504 : 1000, 0, &m),
					k == 2 ? KVR_REASM_COMPLETE : KVR_REASM_HELD);
		}
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->completed, 6);
	finish_reasm(r);
}

static void duplicates_stay_with_the_caller(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){0});
	struct kvr_reasm_msg m;

	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 2000, 504, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 2000, 504, 0, &m), KVR_REASM_DUPLICATE);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 0, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 0, 1000, 0, &m), KVR_REASM_DUPLICATE);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 2000, 504, 0, &m), KVR_REASM_DUPLICATE);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 1000, 1000, 0, &m), KVR_REASM_COMPLETE);
	/* late: starts anew and will expire */
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 1000, 1000, 0, &m), KVR_REASM_HELD);
	finish_reasm(r);
}

static void contradictions_are_refused_and_harmless(void)
{
	static const struct {
		uint32_t msg_len, off, len;
	} bad[] = {
		{2512, 1000, 1000}, /* other length of message */
		{2504, 512, 1000},  /* overlap */
		{2504, 1000, 992},  /* other unit */
		{2504, 1008, 1000}, /* off the grid */
		{2504, 992, 1512},  /* last, too long */
		{2504, 1992, 512},  /* last, off the grid */
	};
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){0});
	struct kvr_reasm_msg m;

	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 0, 1000, 0, &m), KVR_REASM_HELD);
	for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_EQUAL(
			add_fragment(r, &peer_a, 1, bad[i].msg_len, bad[i].off, bad[i].len, 0, &m),
			-KVR_E_FRAGMENT);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 1000, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 2000, 504, 0, &m), KVR_REASM_COMPLETE);
	/* the last fragment first, then one whose unit does not divide its place */
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 2, 2504, 2000, 504, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 2, 2504, 0, 992, 0, &m), -KVR_E_FRAGMENT);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 2, 2504, 1992, 512, 0, &m), -KVR_E_FRAGMENT);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 2, 2504, 0, 2000, 0, &m), KVR_REASM_COMPLETE);
	finish_reasm(r);
}

static void every_part_of_the_key_counts(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){0});
	struct kvr_wire_ids ids = {.source = 7, .id = 1, .msg_seq = 1};
	uint8_t hdr[sizeof(struct kvr_wire_hdr)];
	struct kvr_reasm_msg m;

	for (uint32_t i = 0; i < 7; i++) {
		kvr_hdr_put(hdr, i == 1 ? KVR_POTENTIAL_LOADS : KVR_ROUTE, &ids, 2504, 0, 1000);
		if (i == 2)
			((struct kvr_wire_hdr *)hdr)->source++;
		if (i == 3)
			((struct kvr_wire_hdr *)hdr)->id++;
		if (i == 4)
			((struct kvr_wire_hdr *)hdr)->msg_seq++;
		if (i == 6) /* the same item of another run of the request */
			((struct kvr_wire_hdr *)hdr)->handle++;
		owner[next_frame] = REASM;
		CU_ASSERT_EQUAL(kvr_reasm_add(r, i == 5 ? &peer_b : &peer_a,
					      (struct kvr_wire_hdr *)hdr, NULL,
					      frame_ref(next_frame++), 0, &m),
				KVR_REASM_HELD);
	}
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->messages, 7);
	finish_reasm(r);
}

/* A fragment of `handle`, of a message of three. */
static int add_run(struct kvr_reasm *r, uint64_t handle, uint32_t number, struct kvr_reasm_msg *m)
{
	int res;

	run = handle;
	res = add_fragment(r, &peer_a, 1, 2504, number * 1000, number < 2 ? 1000 : 504, 0, m);
	run = 0;
	return res;
}

/* The same item of two runs of a request, their fragments mixed: each has its own. */
static void runs_of_a_request_are_not_mixed(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){.remember = 16});
	struct kvr_reasm_msg m;

	for (uint32_t k = 0; k < 2; k++) {
		CU_ASSERT_EQUAL(add_run(r, 100, k, &m), KVR_REASM_HELD);     /* frames 0, 2 */
		CU_ASSERT_EQUAL(add_run(r, 200, 2 - k, &m), KVR_REASM_HELD); /* 1, 3 */
	}
	CU_ASSERT_EQUAL(add_run(r, 200, 2, &m), KVR_REASM_DUPLICATE); /* 4 */
	CU_ASSERT_EQUAL(add_run(r, 200, 0, &m), KVR_REASM_COMPLETE);
	CU_ASSERT_EQUAL(frame_no(m.frag[0].frame), 5);
	CU_ASSERT_EQUAL(frame_no(m.frag[1].frame), 3);
	CU_ASSERT_EQUAL(frame_no(m.frag[2].frame), 1);
	/* What is late of it is known; the other goes on. */
	CU_ASSERT_EQUAL(add_run(r, 200, 1, &m), KVR_REASM_DONE); /* 6 */
	CU_ASSERT_EQUAL(add_run(r, 100, 2, &m), KVR_REASM_COMPLETE);
	CU_ASSERT_EQUAL(frame_no(m.frag[0].frame), 0);
	CU_ASSERT_EQUAL(frame_no(m.frag[1].frame), 2);
	CU_ASSERT_EQUAL(frame_no(m.frag[2].frame), 7);
	CU_ASSERT_EQUAL(add_run(r, 100, 0, &m), KVR_REASM_DONE);
	finish_reasm(r);
}

/* Handles cost who invents them nothing: they share what their source has. */
static void a_flood_of_handles_is_one_sources(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){.peer_max_messages = 4});
	struct kvr_reasm_msg m;

	CU_ASSERT_EQUAL(add_run(r, 1, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_b, 1, 2504, 0, 1000, 0, &m), KVR_REASM_HELD);
	for (uint64_t handle = 2; handle < 1000; handle++)
		CU_ASSERT_EQUAL(add_run(r, handle, 0, &m),
				handle <= 4 ? KVR_REASM_HELD : -KVR_E_REASSEMBLY_FULL);
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->messages, 5);
	CU_ASSERT_EQUAL(add_run(r, 1, 1, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_run(r, 1, 2, &m), KVR_REASM_COMPLETE);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_b, 1, 2504, 1000, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_b, 1, 2504, 2000, 504, 0, &m), KVR_REASM_COMPLETE);
	finish_reasm(r);
}

static void messages_expire_when_nothing_new_comes(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){.timeout = 100});
	struct kvr_reasm_msg m;

	add_fragment(r, &peer_a, 1, 2504, 0, 1000, 0, &m);
	add_fragment(r, &peer_a, 2, 2504, 0, 1000, 50, &m);
	add_fragment(r, &peer_a, 1, 2504, 1000, 1000, 90, &m);
	add_fragment(r, &peer_a, 2, 2504, 0, 1000, 140, &m); /* a copy does not prolong */
	CU_ASSERT_EQUAL(kvr_reasm_expire(r, 149, 10), 0);
	CU_ASSERT_EQUAL(kvr_reasm_expire(r, 190, 10), 2);
	CU_ASSERT_EQUAL(drop_calls, 3);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 2000, 504, 191, &m),
			KVR_REASM_HELD); /* anew */
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 3, 2504, 2000, 504, 191, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(kvr_reasm_expire(r, 1000, 1), 1); /* no more than asked */
	CU_ASSERT_EQUAL(kvr_reasm_expire(r, 1000, 1), 1);
	CU_ASSERT_EQUAL(kvr_reasm_expire(r, 1000, 1), 0);
	finish_reasm(r);
}

static void what_is_missing_is_named_once_for_each_burst(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){.timeout = 1000, .quiet = 5});
	struct kvr_reasm_lack l;
	struct kvr_reasm_msg m;

	CU_ASSERT_EQUAL(kvr_reasm_quiet_at(r), UINT64_MAX);
	/* 131 fragments of 512 bytes; 0, 1, 66 and the last one come. */
	for (uint32_t i = 0; i < 131; i += i == 0 ? 1 : i == 1 ? 65 : 64)
		add_fragment(r, &peer_a, 1, 131 * 512, i * 512, 512, 0, &m);
	CU_ASSERT_EQUAL(kvr_reasm_quiet_at(r), 5);
	CU_ASSERT_FALSE(kvr_reasm_lacking(r, 4, &l));
	CU_ASSERT_TRUE_FATAL(kvr_reasm_lacking(r, 5, &l));
	CU_ASSERT_EQUAL(owner[frame_no(l.frame)], REASM);
	CU_ASSERT_EQUAL(l.missing.kind, KVR_ROUTE);
	CU_ASSERT_EQUAL(l.missing.msg_len, 131 * 512);
	CU_ASSERT_EQUAL(l.missing.unit, 512);
	CU_ASSERT_EQUAL(l.missing.first, 0);
	CU_ASSERT_EQUAL(l.missing.n_words, 3);
	CU_ASSERT_EQUAL(l.len, 24 + 3 * 8);
	CU_ASSERT_EQUAL(l.word[0], ~UINT64_C(3));
	CU_ASSERT_EQUAL(l.word[1], ~UINT64_C(4));
	CU_ASSERT_EQUAL(l.word[2], 3); /* number 130 is there, 131 does not exist */
	CU_ASSERT_FALSE(kvr_reasm_lacking(r, 500, &l)); /* no frame since */
	CU_ASSERT_EQUAL(kvr_reasm_quiet_at(r), UINT64_MAX);
	/* A copy of the first one makes it send again; words without a missing fragment are left
	 * out. */
	for (uint32_t i = 2; i < 128; i++)
		add_fragment(r, &peer_a, 1, 131 * 512, i * 512, 512, 500, &m);
	CU_ASSERT_TRUE(kvr_reasm_lacking(r, 505, &l));
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 131 * 512, 0, 512, 600, &m),
			KVR_REASM_DUPLICATE);
	CU_ASSERT_TRUE_FATAL(kvr_reasm_lacking(r, 605, &l));
	CU_ASSERT_EQUAL(l.missing.first, 128);
	CU_ASSERT_EQUAL(l.missing.n_words, 1);
	CU_ASSERT_EQUAL(l.word[0], 3);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 131 * 512, 129 * 512, 512, 606, &m),
			KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 131 * 512, 128 * 512, 512, 606, &m),
			KVR_REASM_COMPLETE);
	CU_ASSERT_FALSE(kvr_reasm_lacking(r, 700, &l));
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->asked, 3);
	finish_reasm(r);
}

/* Nothing that comes makes a longer question than itself; what does not fit is asked for later. */
static void a_question_is_not_longer_than_what_came(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){.timeout = 100000, .quiet = 5});
	const uint32_t len = KVR_WIRE_MAX_FRAGMENTS * 512;
	uint32_t came = 560;
	struct kvr_reasm_lack l;
	struct kvr_reasm_msg m;

	/* The last fragment alone, however short, asks nothing. */
	add_fragment(r, &peer_a, 1, len + 8, len, 8, 0, &m);
	CU_ASSERT_FALSE(kvr_reasm_lacking(r, 10, &l));
	CU_ASSERT_EQUAL(kvr_reasm_expire(r, 100000, 1), 1);
	add_fragment(r, &peer_a, 2, len, 0, 512, 0, &m);
	CU_ASSERT_TRUE_FATAL(kvr_reasm_lacking(r, 10, &l));
	CU_ASSERT(48 + l.len <= came && l.len > 400);
	for (uint32_t i = 1; i < 4; i++)
		add_fragment(r, &peer_a, 2, len, i * 512, 512, 20, &m);
	CU_ASSERT_TRUE_FATAL(kvr_reasm_lacking(r, 30, &l));
	CU_ASSERT(48 + l.len <= KVR_WIRE_DEF_FRAME && l.missing.n_words == KVR_REASM_LACK_WORDS);
	finish_reasm(r);
}

static void completed_messages_are_remembered(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){.timeout = 100, .remember = 64});
	struct kvr_reasm_msg m;

	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 1512, 0, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 1512, 1000, 512, 50, &m), KVR_REASM_COMPLETE);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 1512, 0, 1000, 149, &m), KVR_REASM_DONE);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_b, 1, 1512, 0, 1000, 149, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 1512, 0, 1000, 150, &m),
			KVR_REASM_HELD); /* forgotten */
	finish_reasm(r);
}

static struct kvr_peer first_byte(const struct kvr_peer *p)
{
	return (struct kvr_peer){{p->b[0]}};
}

/* Senders of one source share its bounds and are still distinguished. */
static void senders_of_one_source_share(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){
		.max_frames = 100, .peer_max_frames = 3, .share = first_byte});
	const struct kvr_peer other = {{11}};
	struct kvr_reasm_msg m;

	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 0, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_b, 1, 2504, 0, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_b, 1, 2504, 1000, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_b, 1, 2504, 2000, 504, 0, &m),
			-KVR_E_REASSEMBLY_FULL);
	CU_ASSERT_EQUAL(add_fragment(r, &other, 1, 2504, 0, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->evicted, 0);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 1000, 1000, 0, &m),
			KVR_REASM_HELD); /* b's goes */
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->evicted, 1);
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->frames, 3);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_b, 1, 2504, 0, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 2000, 504, 0, &m), KVR_REASM_COMPLETE);
	finish_reasm(r);
}

/*
 * A sender has begun more messages than it may hold, repeats the missing fragments of all of them,
 * and time stands still: they are still completed, the oldest first.
 */
static void a_source_at_its_bound_gets_on(void)
{
	enum { MESSAGES = 12, FRAGMENTS = 4 };
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){
		.max_frames = 100, .peer_max_frames = MESSAGES, .remember = 16});
	bool whole[MESSAGES] = {false};
	uint32_t n = 0, rounds = 0;
	struct kvr_reasm_msg m;

	for (; n < MESSAGES && rounds < 2 * MESSAGES; rounds++)
		for (uint32_t f = 0; f < FRAGMENTS; f++)
			for (uint32_t k = 0; k < MESSAGES; k++) {
				const int rc =
					whole[k] ? 0
						 : add_fragment(r, &peer_a, k, FRAGMENTS * 1000,
								f * 1000, 1000, 0, &m);

				CU_ASSERT(rc >= 0 || rc == -KVR_E_REASSEMBLY_FULL);
				whole[k] = whole[k] || rc == KVR_REASM_COMPLETE;
				n += rc == KVR_REASM_COMPLETE;
				CU_ASSERT_FATAL(kvr_reasm_stats(r)->frames <= MESSAGES);
			}
	CU_ASSERT_EQUAL(n, MESSAGES);
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->messages, 0);
	finish_reasm(r);
}

static void messages_of_too_many_fragments_are_refused_at_once(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){.msg_max_frames = 4});
	struct kvr_reasm_msg m;

	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 4008, 0, 1000, 0, &m), -KVR_E_TOO_LARGE);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 4008, 2000, 1000, 0, &m), -KVR_E_TOO_LARGE);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 36000, 35000, 1000, 0, &m), -KVR_E_TOO_LARGE);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 4000, 0, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->refused_large, 3);
	finish_reasm(r);
}

static void the_oldest_go_when_memory_is_short(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){0});
	struct kvr_reasm_msg m;

	add_fragment(r, &peer_a, 1, 2504, 0, 1000, 0, &m);
	add_fragment(r, &peer_a, 2, 2504, 0, 1000, 0, &m);
	add_fragment(r, &peer_a, 1, 2504, 1000, 1000, 0, &m);
	CU_ASSERT_EQUAL(kvr_reasm_evict(r, 1), 1);
	CU_ASSERT_EQUAL(drop_calls, 2);
	CU_ASSERT_EQUAL(kvr_reasm_evict(r, 5), 1);
	CU_ASSERT_EQUAL(kvr_reasm_evict(r, 5), 0);
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->evicted, 2);
	finish_reasm(r);
}

static void a_peer_cannot_exceed_its_share(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){
		.max_frames = 100, .peer_max_frames = 3, .peer_max_messages = 2});
	struct kvr_reasm_msg m;

	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 0, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 2, 2504, 0, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 3, 2504, 0, 1000, 0, &m), -KVR_E_REASSEMBLY_FULL);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_b, 3, 2504, 0, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 1000, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 2, 2504, 1000, 1000, 0, &m),
			-KVR_E_REASSEMBLY_FULL);
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->evicted, 0);
	finish_reasm(r);

	r = make_reasm((struct kvr_reasm_conf){.peer_max_bytes = 2504});
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2512, 0, 1000, 0, &m), -KVR_E_REASSEMBLY_FULL);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 2504, 0, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 2, 2504, 0, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 2, 2504, 1000, 1000, 0, &m),
			-KVR_E_REASSEMBLY_FULL);
	finish_reasm(r);
}

static void a_flood_of_first_fragments_evicts_the_oldest(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){.max_messages = 8});
	struct kvr_reasm_msg m;

	for (uint32_t i = 0; i < 100; i++) {
		const struct kvr_peer forged = {{(uint8_t)i, 1}};

		CU_ASSERT_EQUAL(add_fragment(r, &forged, i, 2504, 0, 1000, i, &m), KVR_REASM_HELD);
	}
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->evicted, 92);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 1504, 0, 1000, 200, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 1504, 1000, 504, 200, &m), KVR_REASM_COMPLETE);
	finish_reasm(r);
}

static void total_frames_and_bytes_hold(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){.max_frames = 4});
	struct kvr_reasm_msg m;

	for (uint32_t i = 0; i < 4; i++)
		add_fragment(r, &peer_a, 1, 8000, i * 1000, 1000, 0, &m);
	/* alone it cannot make room for itself, another one evicts it */
	CU_ASSERT_EQUAL(add_fragment(r, &peer_a, 1, 8000, 4000, 1000, 0, &m),
			-KVR_E_REASSEMBLY_FULL);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_b, 1, 2504, 0, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->evicted, 1);
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->frames, 1);
	finish_reasm(r);

	r = make_reasm((struct kvr_reasm_conf){.max_bytes = 10000});
	for (uint32_t i = 0; i < 20; i++) {
		const struct kvr_peer p = {{(uint8_t)i}};

		CU_ASSERT_EQUAL(add_fragment(r, &p, i, 2504, 0, 1000, 0, &m), KVR_REASM_HELD);
	}
	CU_ASSERT(kvr_reasm_stats(r)->bytes <= 10000);
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->evicted, 10);
	finish_reasm(r);
}

static void sparse_fragments_are_bounded_too(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){.max_frames = 1024,
								 .max_messages = 4,
								 .peer_max_messages = 1,
								 .peer_max_frames = 512});
	const uint32_t unit = 512, total = unit * 11000;
	struct kvr_reasm_msg m;
	uint32_t refused = 0;

	/* every fragment on a page of its own: 172 pages; 70 exist, 35 of them for one peer */
	for (uint32_t i = 0; i < 172; i++)
		refused += add_fragment(r, &peer_a, 1, total, i * 64 * unit, unit, 0, &m) ==
			   -KVR_E_REASSEMBLY_FULL;
	CU_ASSERT_EQUAL(refused, 172 - 34);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_b, 2, 1504, 0, 1000, 0, &m), KVR_REASM_HELD);
	CU_ASSERT_EQUAL(add_fragment(r, &peer_b, 2, 1504, 1000, 504, 0, &m), KVR_REASM_COMPLETE);
	CU_ASSERT_EQUAL(kvr_reasm_stats(r)->evicted, 0); /* there was room for others */
	finish_reasm(r);
}

/* The largest message in the smallest common frames, in a random order. */
static void largest_message_completes_in_random_order(void)
{
	static uint32_t order[KVR_WIRE_MAX_FRAGMENTS];
	const uint32_t len = (uint32_t)KVR_WIRE_MAX_MESSAGE, unit = KVR_WIRE_DEF_FRAME - 48;
	const uint32_t n = (len + unit - 1) / unit;
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){0});
	struct kvr_reasm_msg m;
	struct kvr_rand rnd;

	kvr_rand_init(&rnd, 3);
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t k = kvr_rand_below(&rnd, i + 1);

		order[i] = order[k];
		order[k] = i;
	}
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t off = order[i] * unit;

		CU_ASSERT_EQUAL_FATAL(add_fragment(r, &peer_a, 1, len, off,
						   len - off < unit ? len - off : unit, 0, &m),
				      i + 1 == n ? KVR_REASM_COMPLETE : KVR_REASM_HELD);
	}
	CU_ASSERT_EQUAL(m.n_frags, n);
	CU_ASSERT_EQUAL(n, 4215);
	finish_reasm(r);
}

/* The model: fragments of a message in an array, judged by the words of PROTOCOL.md. */
#define MODEL_MESSAGES 24u
struct model {
	uint32_t msg_len, n;
	struct {
		uint32_t off, len;
	} frag[64];
};

static bool model_agrees(const struct model *m, uint32_t off, uint32_t len)
{
	uint32_t unit = 0;

	/* the one size of those that are not the last */
	for (uint32_t i = 0; i <= m->n; i++) {
		const uint32_t o = i < m->n ? m->frag[i].off : off;
		const uint32_t l = i < m->n ? m->frag[i].len : len;

		if (o + l == m->msg_len)
			continue;
		if (unit != 0 && unit != l)
			return false;
		unit = l;
	}
	for (uint32_t i = 0; i <= m->n; i++) {
		const uint32_t o = i < m->n ? m->frag[i].off : off;
		const uint32_t l = i < m->n ? m->frag[i].len : len;

		if (unit != 0 && (o % unit != 0 || l > unit))
			return false;
		if (i < m->n && off < o + l && o < off + len)
			return false; /* overlap: only two last ones can, here */
	}
	return true;
}

static int model_add(struct model *m, uint32_t msg_len, uint32_t off, uint32_t len)
{
	uint32_t have = len;

	if (m->n == 0)
		m->msg_len = msg_len;
	if (m->msg_len != msg_len)
		return -KVR_E_FRAGMENT;
	for (uint32_t i = 0; i < m->n; i++) {
		if (m->frag[i].off == off && m->frag[i].len == len)
			return KVR_REASM_DUPLICATE;
		have += m->frag[i].len;
	}
	if (!model_agrees(m, off, len))
		return -KVR_E_FRAGMENT;
	m->frag[m->n].off = off;
	m->frag[m->n++].len = len;
	if (have != msg_len)
		return KVR_REASM_HELD;
	m->n = 0;
	return KVR_REASM_COMPLETE;
}

static void random_traffic_agrees_with_the_model(void)
{
	static struct model model[MODEL_MESSAGES];
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){0});
	struct kvr_reasm_msg m;
	struct kvr_rand rnd;
	uint32_t seen[4] = {0};

	memset(model, 0, sizeof(model));
	kvr_rand_init(&rnd, 11);
	for (uint32_t step = 0; step < N_FRAMES; step++) {
		const uint32_t id = kvr_rand_below(&rnd, MODEL_MESSAGES);
		/* mostly the message's own cut, sometimes another: 512 or 520, length 3 or 4 units
		 */
		const uint32_t odd = kvr_rand_below(&rnd, 16);
		const uint32_t unit = odd == 0 ? 520 : odd == 1 ? 1040 : 512 + 8 * (id % 3);
		const uint32_t n = 2 + id % 12;
		const uint32_t msg_len =
			(512 + 8 * (id % 3)) * n - 8 * (id % 5) + (odd == 2 ? 8 : 0);
		const uint32_t place = kvr_rand_below(&rnd, n);
		const uint32_t off = place * unit;
		uint32_t len;
		int want;

		if (off >= msg_len)
			continue;
		len = msg_len - off < unit ? msg_len - off : unit;
		if (len == msg_len)
			continue;
		want = model_add(&model[id], msg_len, off, len);
		CU_ASSERT_EQUAL_FATAL(add_fragment(r, &peer_a, id, msg_len, off, len, 0, &m), want);
		seen[want < 0 ? 3 : want]++;
	}
	for (uint32_t i = 0; i < 4; i++)
		CU_ASSERT(seen[i] > 1000);
	finish_reasm(r);
}

static void random_traffic_under_tight_bounds_loses_no_frame(void)
{
	struct kvr_reasm *r = make_reasm((struct kvr_reasm_conf){.max_messages = 11,
								 .max_frames = 26,
								 .max_bytes = 30000,
								 .peer_max_messages = 4,
								 .peer_max_frames = 10,
								 .timeout = 60});
	const struct kvr_reasm_stats *s = kvr_reasm_stats(r);
	struct kvr_reasm_msg m;
	struct kvr_rand rnd;

	kvr_rand_init(&rnd, 12);
	for (uint32_t step = 0; step < N_FRAMES; step++) {
		const struct kvr_peer p = {{(uint8_t)kvr_rand_below(&rnd, 3)}};
		const uint32_t id = kvr_rand_below(&rnd, 4);
		const uint32_t unit = 512 + 512 * (id & 1), n = 2 + 3 * id;
		const uint32_t off = kvr_rand_below(&rnd, n) * unit;

		add_fragment(r, &p, id, unit * n, off, unit, step, &m);
		CU_ASSERT_FATAL(s->frames <= 26 && s->bytes <= 30000 && s->messages <= 11);
		if (step % 8 == 0)
			kvr_reasm_expire(r, step, 2);
		if (step % 10000 == 0)
			check_equations(r);
	}
	CU_ASSERT(s->completed > 1000);
	CU_ASSERT(s->evicted > 100);
	CU_ASSERT(s->refused_full > 100);
	CU_ASSERT(s->expired > 10);
	finish_reasm(r);
}

static void bad_configurations_are_refused(void)
{
	struct kvr_reasm_conf c = {.timeout = 1, .drop = on_drop};

	CU_ASSERT(kvr_reasm_footprint(&c) > 0);
	c.timeout = 0;
	CU_ASSERT_PTR_NULL(kvr_reasm_create(&c));
	CU_ASSERT_EQUAL(errno, EINVAL);
	c.timeout = 1;
	c.drop = NULL;
	CU_ASSERT_PTR_NULL(kvr_reasm_create(&c));
	c.drop = on_drop;
	c.max_frames = 10;
	c.peer_max_frames = 11;
	CU_ASSERT_PTR_NULL(kvr_reasm_create(&c));
	CU_ASSERT_EQUAL(kvr_reasm_footprint(&c), 0);
	kvr_reasm_destroy(NULL);
}

/* ---- memory ---- */

static long count_faults(void)
{
	struct rusage u;

#ifdef __has_feature /* defined by clang */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
	return 0; /* the sanitizers touch memory of their own */
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return 0;
#endif
	getrusage(RUSAGE_THREAD, &u);
	return u.ru_minflt;
}

/* Half-finished messages up to the bound, many whole ones, and the longest there is. */
static void add_storm(struct kvr_reasm *r, uint64_t first, uint32_t whole, uint32_t half,
		      uint32_t parts)
{
	struct kvr_reasm_msg out;

	for (uint64_t id = first; id < first + whole; id++) {
		add_fragment(r, &peer_a, id, 2000, 0, 1000, 1, &out);
		add_fragment(r, &peer_a, id, 2000, 1000, 1000, 1, &out);
	}
	for (uint32_t i = 0; i < parts; i++)
		add_fragment(r, &peer_b, first, parts * 1000, i * 1000, 1000, 1, &out);
	for (uint64_t id = first + whole; id < first + whole + half; id++)
		add_fragment(r, &peer_b, id, 2000, 0, 1000, 1, &out);
}

static void memory_is_touched_at_create(void)
{
	const struct kvr_reasm_conf conf = {.max_messages = 4096,
					    .max_frames = 32768,
					    .peer_max_messages = 4096,
					    .peer_max_frames = 32768,
					    .remember = 16384,
					    .resident = true};
	struct kvr_reasm *r;
	long before;

	mallopt(M_PERTURB, 0); /* MALLOC_PERTURB_ would touch all of it */
	r = make_reasm(conf);
	add_storm(r, 1, 2, 1, 100); /* this thread's stack and code */
	before = count_faults();
	add_storm(r, 1000, 20000, 4000, 4000);
	CU_ASSERT_EQUAL(count_faults() - before, 0);
	kvr_reasm_destroy(r);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(memory_is_touched_at_create),
		KVR_CASE(whole_frame_completes_at_once),
		KVR_CASE(any_order_completes),
		KVR_CASE(duplicates_stay_with_the_caller),
		KVR_CASE(contradictions_are_refused_and_harmless),
		KVR_CASE(every_part_of_the_key_counts),
		KVR_CASE(runs_of_a_request_are_not_mixed),
		KVR_CASE(a_flood_of_handles_is_one_sources),
		KVR_CASE(messages_expire_when_nothing_new_comes),
		KVR_CASE(what_is_missing_is_named_once_for_each_burst),
		KVR_CASE(a_question_is_not_longer_than_what_came),
		KVR_CASE(completed_messages_are_remembered),
		KVR_CASE(senders_of_one_source_share),
		KVR_CASE(a_source_at_its_bound_gets_on),
		KVR_CASE(messages_of_too_many_fragments_are_refused_at_once),
		KVR_CASE(the_oldest_go_when_memory_is_short),
		KVR_CASE(a_peer_cannot_exceed_its_share),
		KVR_CASE(a_flood_of_first_fragments_evicts_the_oldest),
		KVR_CASE(total_frames_and_bytes_hold),
		KVR_CASE(sparse_fragments_are_bounded_too),
		KVR_CASE(largest_message_completes_in_random_order),
		KVR_CASE(random_traffic_agrees_with_the_model),
		KVR_CASE(random_traffic_under_tight_bounds_loses_no_frame),
		KVR_CASE(bad_configurations_are_refused),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("reasm", tests);
}
