/* SPDX-License-Identifier: BSD-3-Clause */
/* KV events of simulated engines: dumps of several frames, and the router's answers. */
#include "rig.h"

#define RANK   0u
#define ROUTER 500u
#define REPEAT                                                                                     \
	(21 * 1000 * 1000ull) /* cycles: more than 20 ms, after which frames are repeated          \
			       */

/* Fill the cache of a rank and ask for a dump: its frames are in sent[]. */
static uint32_t dump_frames(void)
{
	uint64_t hashes[256];
	uint32_t n = 0;

	for (uint64_t i = 0; i < RTE_DIM(hashes); i++)
		hashes[i] = 1000 + i;
	engine_cache_store(load.ranks[RANK].model.cache, hashes, RTE_DIM(hashes), load.removed);
	load.engines[P_BOOTSTRAP].router = ROUTER;
	load_kv_restart(&load, RANK);
	load_kv_flush(&load);
	while (find_sent(KVR_KV_EVENTS, n) != NULL)
		n++;
	CU_ASSERT_FATAL(n >= 2);
	return n;
}

static const struct kvr_wire_kv_events *frame_events(uint32_t n)
{
	return kvr_frame_body(find_sent(KVR_KV_EVENTS, n));
}

static uint64_t id_of_dump(void)
{
	return find_sent(KVR_KV_EVENTS, 0)->id;
}

static void deliver_answer(uint64_t id, uint32_t epoch, uint16_t code, uint64_t next, uint64_t pos)
{
	struct {
		struct kvr_wire_hdr h;
		struct kvr_wire_kv_ack a;
	} f = {.h = {.kind = KVR_KV_ACK, .id = id, .epoch = epoch},
	       .a = {.next_event_id = next, .next_dump_pos = pos, .code = code}};

	f.h.source = load.engines[P_BOOTSTRAP].worker;
	load_kv_ack(&load, &f.h);
}

static void frames_of_a_dump_have_one_id(void)
{
	uint32_t n, blocks = 0;
	uint64_t id;

	BEGIN(PAIR);
	n = dump_frames();
	id = id_of_dump();
	CU_ASSERT(id > UINT64_C(1) << 63);
	for (uint32_t i = 0; i < n; i++) {
		const struct kvr_wire_hdr *h = find_sent(KVR_KV_EVENTS, i);
		const struct kvr_wire_kv_events *e = kvr_frame_body(h);
		struct kvr_kv_iter it = kvr_kv_events_begin(e);
		struct kvr_kv_event ev;

		CU_ASSERT_EQUAL(h->id, id);
		CU_ASSERT_EQUAL(e->first_event_id, i);
		CU_ASSERT_EQUAL(e->flags, KVR_KV_F_DUMP | (i == 0 ? KVR_KV_F_DUMP_BEGIN : 0) |
						  (i == n - 1 ? KVR_KV_F_DUMP_END : 0));
		while (kvr_kv_events_next(&it, &ev))
			blocks += ev.n_blocks;
	}
	CU_ASSERT_EQUAL(blocks, 256);
	deliver_answer(id, ROUTER, KVR_KV_OK, 0, n);
	CU_ASSERT_EQUAL(load.dump.rank, LOAD_UNPINNED);
	n_sent = 0;
	load_kv_restart(&load, RANK); /* another dump has another id */
	load_kv_flush(&load);
	CU_ASSERT(id_of_dump() > id);
	end_test();
}

/* PROTOCOL.md section 10: a dump ends when its end is acknowledged by this incarnation of the
 * router. */
static void a_dump_ends_when_its_end_is_acknowledged(void)
{
	uint32_t n;
	uint64_t id;

	BEGIN(PAIR);
	n = dump_frames();
	id = id_of_dump();
	deliver_answer(id, ROUTER, KVR_KV_BUSY, 0, 0); /* its first frame was deferred */
	deliver_answer(id, ROUTER, KVR_KV_OK, 0, 0); /* so the second one cannot be accepted yet */
	deliver_answer(id - 1, ROUTER, KVR_KV_OK, 0, n);
	deliver_answer(0, ROUTER, KVR_KV_DUMP_WANTED, 0, 0);
	deliver_answer(id, ROUTER - 1, KVR_KV_OK, 0, n);
	CU_ASSERT_EQUAL(load.dump.rank, RANK);
	CU_ASSERT_EQUAL(load.dump.acked, 0);
	n_sent = 0;
	load.now += REPEAT;
	load_kv_flush(&load);
	CU_ASSERT_PTR_NOT_NULL_FATAL(find_sent(KVR_KV_EVENTS, n - 1));
	CU_ASSERT_EQUAL(id_of_dump(), id);
	CU_ASSERT_EQUAL(counter_value(LOAD_KV_DUMPS), 1);
	deliver_answer(id, ROUTER, KVR_KV_OK, 0, 1); /* from the second one on */
	n_sent = 0;
	load.now += REPEAT;
	load_kv_flush(&load);
	CU_ASSERT_EQUAL(frame_events(0)->first_event_id, 1);
	deliver_answer(id, ROUTER, KVR_KV_OK, 0, n);
	CU_ASSERT_EQUAL(load.dump.rank, LOAD_UNPINNED);
	deliver_answer(id, ROUTER, KVR_KV_DUMP_WANTED, 0, 0); /* late: the dump has ended */
	CU_ASSERT_FALSE(load.ranks[RANK].log.dump_wanted);
	deliver_answer(0, ROUTER, KVR_KV_DUMP_WANTED, 0, 0);
	CU_ASSERT_TRUE(load.ranks[RANK].log.dump_wanted);
	end_test();
}

/* A late frame of another dump has started that dump again: the router reports this to every
 * repetition. */
static void a_dump_restarts_when_the_router_lost_its_position(void)
{
	uint64_t id;

	BEGIN(PAIR);
	dump_frames();
	id = id_of_dump();
	load.now += 10 * REPEAT;
	deliver_answer(id, ROUTER, KVR_KV_OK, 0, 1);
	deliver_answer(id, ROUTER, KVR_KV_OK, 0, 0); /* late: the dump goes on */
	for (uint32_t i = 0; i < 5; i++) {
		CU_ASSERT_EQUAL(load.dump.acked, 1);
		n_sent = 0;
		load.now += REPEAT;
		load_kv_flush(&load);
		deliver_answer(id, ROUTER, KVR_KV_BUSY, 0, 0); /* its queue is full */
		CU_ASSERT_EQUAL(load.dump.acked, 1);
		deliver_answer(id, ROUTER, KVR_KV_DUMP_WANTED, 0, 0);
	}
	CU_ASSERT_EQUAL(load.dump.acked, 0);
	n_sent = 0;
	load_kv_flush(&load);
	CU_ASSERT_PTR_NOT_NULL_FATAL(find_sent(KVR_KV_EVENTS, 0));
	CU_ASSERT_EQUAL(frame_events(0)->first_event_id, 0);
	CU_ASSERT_EQUAL(id_of_dump(), id);
	end_test();
}

/* The new incarnation does not have what the old one had. */
static void answers_of_an_earlier_router_epoch_are_ignored(void)
{
	uint64_t hash = 7;

	BEGIN(PAIR);
	load.engines[P_BOOTSTRAP].router = ROUTER;
	load_kv_add(&load, RANK, KVR_KV_STORED, NULL, &hash, 1);
	load.ranks[RANK].log.sent_id = load.ranks[RANK].log.next_id;
	deliver_answer(0, ROUTER - 1, KVR_KV_OK, 1, 0);
	CU_ASSERT_EQUAL(load.ranks[RANK].log.acked_id, 0);
	deliver_answer(0, ROUTER, KVR_KV_OK, 1, 0);
	CU_ASSERT_EQUAL(load.ranks[RANK].log.acked_id, 1);
	end_test();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(frames_of_a_dump_have_one_id),
		KVR_CASE(a_dump_ends_when_its_end_is_acknowledged),
		KVR_CASE(a_dump_restarts_when_the_router_lost_its_position),
		KVR_CASE(answers_of_an_earlier_router_epoch_are_ignored),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("load kvlog", tests);
}
