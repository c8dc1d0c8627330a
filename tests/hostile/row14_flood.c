/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * One worker stores garbage until the table is full, and goes on: the other's blocks stay. And what
 * a frame costs at the bound, whatever shape the content has (row 15).
 */

#include "kv.h"
#include "kvr_test.h"

#define GOOD	1u
#define BAD	2u
#define GARBAGE 140000u
#define PROMPT	200u

static uint64_t good[PROMPT];
static uint64_t next_id, dearest;

static uint32_t rank_of(uint64_t worker)
{
	return kvr_registry_find(rt->registry, worker)->rank[0];
}

static void start(uint64_t kv_blocks)
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
	kvr_prefix_store(rt->pool[0].prefix, (uint16_t)rank_of(GOOD), KVR_PREFIX_DEVICE, NULL, good,
			 PROMPT);
	next_id = dearest = 0;
	pipeline_flush();
}

/* Frames of `events` events with n blocks each; with `chain` all are one prompt. */
static void flood(uint32_t events, uint32_t n, bool chain)
{
	uint64_t sh[160], parent = 0;
	struct kv_frame f;

	for (uint32_t done = 0; done < GARBAGE;) {
		uint64_t before = kvr_prefix_work(rt->pool[0].prefix);

		kv_begin(&f, next_id);
		for (uint32_t i = 0; i < events; i++, done += n) {
			for (uint32_t k = 0; k < n; k++)
				sh[k] = kvr_mix64(done + k) | 1;
			kv_add(&f, KVR_KV_STORED, chain && done > 0 ? &parent : NULL, sh, n);
			parent = sh[n - 1];
		}
		next_id += events;
		kv_send(&f, BAD, 1);
		pipeline_turn();
		CU_ASSERT_EQUAL(kv_acked().next_event_id, next_id);
		dearest = RTE_MAX(dearest, kvr_prefix_work(rt->pool[0].prefix) - before);
	}
}

static void check_others(void)
{
	CU_ASSERT_EQUAL(kv_overlap(rank_of(GOOD), good, PROMPT), PROMPT);
	CU_ASSERT(pipeline_balanced());
	pipeline_stop();
}

static void flood_takes_nothing_from_others(void)
{
	const struct {
		uint32_t events, n;
		bool chain;
		uint32_t dearest; /* units of 16 ns */
	} shape[] = {
		{1, 140, false, 1000},	 /* prompts */
		{1, 140, true, 1000},	 /* one prompt without end */
		{50, 1, false, 50 * 60}, /* prompts of one block */
		{20, 5, true, 20 * 60},
	};

	for (uint32_t i = 0; i < RTE_DIM(shape); i++) {
		start(1u << 30);
		flood(shape[i].events, shape[i].n, shape[i].chain);
		CU_ASSERT(kv_table().blocks > 60000 || shape[i].n == 1); /* a run each: 2,048 */
		CU_ASSERT(kv_table().evicted_runs + kv_table().dropped > 0);
		CU_ASSERT(dearest <= shape[i].dearest);
		check_others();
	}
}

/* A rank holds no more than its worker has, some slack besides; its own oldest went. */
static void a_rank_is_bounded_by_what_its_worker_has(void)
{
	uint64_t sh[140];
	uint32_t rank;

	start(4000);
	flood(1, 140, false);
	rank = rank_of(BAD);
	CU_ASSERT(kvr_prefix_rank_blocks(rt->pool[0].prefix, (uint16_t)rank, KVR_PREFIX_DEVICE) <=
		  4000 + 4000 / 4 + 64);
	CU_ASSERT(kvr_prefix_rank_blocks(rt->pool[0].prefix, (uint16_t)rank, KVR_PREFIX_DEVICE) >
		  4000);
	for (uint32_t k = 0; k < 140; k++)
		sh[k] = kvr_mix64(GARBAGE - 140 + k) | 1;
	CU_ASSERT_EQUAL(kv_overlap(rank, sh, 140), 140);
	for (uint32_t k = 0; k < 140; k++)
		sh[k] = kvr_mix64(k) | 1;
	CU_ASSERT_EQUAL(kv_overlap(rank, sh, 140), 0);
	check_others();
}

/* The blocks of two ranks are the same: one gives them up, the other keeps them. */
static void shared_blocks_stay_with_the_other(void)
{
	start(1u << 30);
	kvr_prefix_store(rt->pool[0].prefix, (uint16_t)rank_of(BAD), KVR_PREFIX_DEVICE, NULL, good,
			 PROMPT);
	flood(1, 140, false);
	check_others();
	start(1u << 30);
	kvr_prefix_clear_rank(rt->pool[0].prefix, (uint16_t)rank_of(GOOD));
	kvr_prefix_store(rt->pool[0].prefix, (uint16_t)rank_of(BAD), KVR_PREFIX_DEVICE, NULL, good,
			 PROMPT); /* now they are charged to the bad one */
	kvr_prefix_store(rt->pool[0].prefix, (uint16_t)rank_of(GOOD), KVR_PREFIX_DEVICE, NULL, good,
			 PROMPT);
	flood(1, 140, false);
	CU_ASSERT_EQUAL(kv_overlap(rank_of(BAD), good, PROMPT), 0);
	check_others();
}

int main(void)
{
	CU_TestInfo tests[] = {{"others", flood_takes_nothing_from_others},
			       {"bound", a_rank_is_bounded_by_what_its_worker_has},
			       {"shared", shared_blocks_stay_with_the_other},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("row14_flood", tests);
}
