/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * One worker stores garbage beyond the size of the table: the blocks of the other worker stay. The
 * cost of a turn is bounded for any content: a frame with many events is applied over several
 * turns, in order, and acknowledged once.
 */

#include "kv.h"
#include "kvr_test.h"

#define GOOD	 1u
#define BAD	 2u
#define GARBAGE	 140000u
#define PROMPT	 200u
#define TURN_MAX 900u /* units of 16 to 50 ns: 512, and the last slice */

static uint64_t good[PROMPT];
static uint64_t next_id, longest_turn; /* units of the longest turn */

static uint32_t get_flood_rank(uint64_t worker)
{
	return kvr_registry_find(rt->registry, worker)->rank[0];
}

static void start_flood(uint64_t kv_blocks)
{
	pipeline_start(1); /* 65,536 blocks */
	for (uint64_t w = GOOD; w <= BAD; w++)
		CU_ASSERT_FATAL(pipeline_hello_as(
			&(const struct pipeline_worker){.id = w,
							.epoch = 1,
							.pool = "a",
							.ranks = 1,
							.from = PEER_AGENT,
							.kv_blocks = w == BAD ? kv_blocks : 1000}));
	kv_chain(good, PROMPT, 77);
	kvr_prefix_store(rt->pool[0].prefix, (uint16_t)get_flood_rank(GOOD), KVR_TIER_DEVICE, NULL,
			 good, PROMPT);
	next_id = longest_turn = 0;
	pipeline_flush();
}

/* Frames of `events` events with n blocks each; with `chain` all are one prompt. */
static void flood_events(uint32_t events, uint32_t n, bool chain)
{
	uint64_t sh[160], parent = 0;
	struct kv_frame f;

	for (uint32_t done = 0; done < GARBAGE;) {
		struct kvr_wire_kv_ack a;

		kv_begin(&f, next_id);
		for (uint32_t i = 0; i < events; i++, done += n) {
			for (uint32_t k = 0; k < n; k++)
				sh[k] = kvr_mix64(done + k) | 1;
			kv_add(&f, KVR_KV_STORED, chain && done > 0 ? &parent : NULL, sh, n);
			parent = sh[n - 1];
		}
		next_id += events;
		kv_send(&f, BAD, 1);
		do {
			uint64_t before = kvr_prefix_work(rt->pool[0].prefix);

			pipeline_step();
			before = kvr_prefix_work(rt->pool[0].prefix) - before;
			longest_turn = RTE_MAX(longest_turn, before);
			a = kv_acked();
		} while (a.code == UINT16_MAX);
		CU_ASSERT_EQUAL(a.code, KVR_KV_OK);
		CU_ASSERT_EQUAL(a.next_event_id,
				next_id); /* one acknowledgement for the whole frame */
		pipeline_flush();
	}
}

static void expect_others_intact(void)
{
	CU_ASSERT_EQUAL(kv_overlap(get_flood_rank(GOOD), good, PROMPT), PROMPT);
	CU_ASSERT(pipeline_balanced());
	pipeline_stop();
}

static void a_flood_evicts_only_its_own_blocks(void)
{
	const struct {
		uint32_t events, n;
		bool chain;
	} shape[] = {
		{1, 140, false}, /* prompts */
		{1, 140, true},	 /* one endless prompt */
		{50, 1,
		 false}, /* prompts of one block: 2,700 units per frame, over several turns */
		{20, 5, true},
	};

	for (uint32_t i = 0; i < RTE_DIM(shape); i++) {
		start_flood(1u << 30);
		flood_events(shape[i].events, shape[i].n, shape[i].chain);
		CU_ASSERT(kv_table().blocks > 60000 || shape[i].n == 1); /* one run each: 2,048 */
		CU_ASSERT(kv_table().evicted_runs + kv_table().dropped > 0);
		CU_ASSERT(longest_turn <= TURN_MAX);
		expect_others_intact();
	}
}

/* A rank holds no more than its worker has, plus some slack; its own oldest blocks are evicted. */
static void a_rank_is_bounded_by_the_cache_of_its_worker(void)
{
	uint64_t sh[140];
	uint32_t rank;

	start_flood(4000);
	flood_events(1, 140, false);
	rank = get_flood_rank(BAD);
	CU_ASSERT(kvr_prefix_rank_blocks(rt->pool[0].prefix, (uint16_t)rank, KVR_TIER_DEVICE) <=
		  4000 + 4000 / 4 + 64);
	CU_ASSERT(kvr_prefix_rank_blocks(rt->pool[0].prefix, (uint16_t)rank, KVR_TIER_DEVICE) >
		  4000);
	for (uint32_t k = 0; k < 140; k++)
		sh[k] = kvr_mix64(GARBAGE - 140 + k) | 1;
	CU_ASSERT_EQUAL(kv_overlap(rank, sh, 140), 140);
	for (uint32_t k = 0; k < 140; k++)
		sh[k] = kvr_mix64(k) | 1;
	CU_ASSERT_EQUAL(kv_overlap(rank, sh, 140), 0);
	expect_others_intact();
}

/* Two ranks hold the same blocks: one drops them, the other keeps them. */
static void shared_blocks_stay_with_the_other_rank(void)
{
	start_flood(1u << 30);
	kvr_prefix_store(rt->pool[0].prefix, (uint16_t)get_flood_rank(BAD), KVR_TIER_DEVICE, NULL,
			 good, PROMPT);
	flood_events(1, 140, false);
	expect_others_intact();
	start_flood(1u << 30);
	kvr_prefix_clear_rank(rt->pool[0].prefix, (uint16_t)get_flood_rank(GOOD));
	kvr_prefix_store(rt->pool[0].prefix, (uint16_t)get_flood_rank(BAD), KVR_TIER_DEVICE, NULL,
			 good, PROMPT); /* now they are charged to the flooding worker */
	kvr_prefix_store(rt->pool[0].prefix, (uint16_t)get_flood_rank(GOOD), KVR_TIER_DEVICE, NULL,
			 good, PROMPT);
	flood_events(1, 140, false);
	CU_ASSERT_EQUAL(kv_overlap(get_flood_rank(BAD), good, PROMPT), 0);
	expect_others_intact();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_flood_evicts_only_its_own_blocks),
			       KVR_CASE(a_rank_is_bounded_by_the_cache_of_its_worker),
			       KVR_CASE(shared_blocks_stay_with_the_other_rank), CU_TEST_INFO_NULL};

	return kvr_test_run("event_flood", tests);
}
