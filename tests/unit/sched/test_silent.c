/* SPDX-License-Identifier: BSD-3-Clause */
/* Workers that report but do not acknowledge: the choice without them, and when they are probed.
 */
#include "kvr_sched.h"
#include "kvr_test.h"

#include <string.h>

#define SEC UINT64_C(1000000000)

static struct kvr_sched *s;
static uint32_t slot;
static const struct kvr_sched_req asked = {.isl = 50}; /* waiting requests are looked up again */

static void begin_sched(int mode, double threshold)
{
	const struct kvr_sched_ops ops = {0};
	struct kvr_pool_conf conf;

	kvr_pool_conf_defaults(&conf);
	strcpy(conf.name, "t");
	conf.mode = mode;
	conf.block_size = 10;
	conf.max_ranks = 128;
	conf.max_requests = 64;
	conf.max_active_blocks = 1 << 10;
	conf.max_prompt_blocks = 100;
	conf.queue_threshold = threshold;
	s = kvr_sched_create(&conf, &ops, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	for (uint64_t id = 1; id <= 3; id++) {
		const struct kvr_sched_worker w = {
			.id = id, .dp_size = 2, .max_num_batched_tokens = 100};

		CU_ASSERT_EQUAL_FATAL(kvr_sched_worker_set(s, &w, 0), 0);
	}
	slot = 0;
}

/* Worker of the next request; 0: it waits, or is refused. */
static uint64_t next_admitted(uint64_t now)
{
	struct kvr_sched_decision d;

	return kvr_sched_route(s, slot++, &asked, NULL, now, &d) == KVR_SCHED_ROUTED ? d.worker : 0;
}

/* Two requests on each rank of the others: the first worker is idle, and the best choice. */
static void others_work(void)
{
	for (uint32_t i = 0; i < 8; i++)
		CU_ASSERT_NOT_EQUAL(next_admitted(0), 1);
}

static void others_are_chosen_in_every_mode(void)
{
	for (int mode = 0; kvr_pool_mode_names[mode] != NULL; mode++) {
		uint32_t at_first = 0;

		if (kvr_pool_mode(mode)->needs_pin)
			continue;
		begin_sched(mode, 1e9);
		kvr_sched_unresponsive(s, 1, 10 * SEC, 0);
		CU_ASSERT_EQUAL(kvr_sched_n_unresponsive(s), 1);
		for (uint32_t i = 0; i < 24; i++)
			at_first += next_admitted(SEC) == 1;
		CU_ASSERT_EQUAL(at_first, 0);
		kvr_sched_responded(s, 1);
		CU_ASSERT_EQUAL(kvr_sched_n_unresponsive(s), 0);
		for (uint32_t i = 0; i < 24; i++)
			at_first += next_admitted(SEC) == 1;
		CU_ASSERT(at_first > 0);
		kvr_sched_destroy(s);
	}
}

static void one_request_shows_whether_it_hears(void)
{
	begin_sched(KVR_MODE_KV, 1e9);
	kvr_sched_unresponsive(s, 1, 10 * SEC, 0);
	others_work();
	CU_ASSERT_NOT_EQUAL(next_admitted(10 * SEC - 1), 1);
	CU_ASSERT_EQUAL(next_admitted(10 * SEC), 1);
	CU_ASSERT_NOT_EQUAL(next_admitted(10 * SEC), 1);
	CU_ASSERT_NOT_EQUAL(next_admitted(20 * SEC - 1), 1);
	CU_ASSERT_EQUAL(next_admitted(20 * SEC), 1); /* its other rank */
	CU_ASSERT_NOT_EQUAL(next_admitted(20 * SEC), 1);
	/* Two of them: each has its own time. */
	kvr_sched_unresponsive(s, 2, 3 * SEC, 20 * SEC);
	CU_ASSERT_EQUAL(kvr_sched_n_unresponsive(s), 2);
	CU_ASSERT_EQUAL(next_admitted(23 * SEC - 1), 3);
	CU_ASSERT_EQUAL(next_admitted(23 * SEC - 1), 3);
	CU_ASSERT_EQUAL(next_admitted(23 * SEC - 1), 3);
	CU_ASSERT_EQUAL(next_admitted(23 * SEC), 2);
	CU_ASSERT_EQUAL(next_admitted(23 * SEC), 3);
	kvr_sched_destroy(s);
}

static void unresponsive_worker_is_chosen_if_no_other_exists(void)
{
	begin_sched(KVR_MODE_KV, 1e9);
	for (uint64_t id = 1; id <= 3; id++)
		kvr_sched_unresponsive(s, id, 10 * SEC, 0);
	CU_ASSERT_NOT_EQUAL(next_admitted(0), 0);
	kvr_sched_worker_available(s, 2, false, 0);
	kvr_sched_worker_drain(s, 3, true, 0);
	CU_ASSERT_EQUAL(next_admitted(0), 1);
	kvr_sched_destroy(s);
	/* A pin is kept. */
	begin_sched(KVR_MODE_KV, 1e9);
	kvr_sched_unresponsive(s, 1, 10 * SEC, 0);
	{
		const struct kvr_hints h = {.present = KVR_HAS(KVR_HINT_BACKEND) |
						       KVR_HAS(KVR_HINT_DP_RANK),
					    .backend_worker = 1,
					    .policy_class = KVR_SCHED_NO_CLASS};
		const struct kvr_sched_req req = {.isl = 50, .hints = &h};
		struct kvr_sched_decision d;

		CU_ASSERT_EQUAL(kvr_sched_route(s, 0, &req, NULL, 0, &d), KVR_SCHED_ROUTED);
		CU_ASSERT_EQUAL(d.worker, 1);
	}
	kvr_sched_destroy(s);
}

/* Idle, it is no reason to go past a queue, nor for those who wait to be let in. */
static void it_counts_as_busy(void)
{
	struct kvr_sched_decision d;
	uint32_t n;

	begin_sched(KVR_MODE_KV, 0.5);
	kvr_sched_unresponsive(s, 1, 10 * SEC, 0);
	for (n = 0; next_admitted(0) != 0; n++)
		;
	CU_ASSERT_EQUAL(n, 8); /* two on each of four ranks */
	CU_ASSERT_EQUAL(next_admitted(0), 0);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 10 * SEC - 1, &d, 1), 0);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 10 * SEC, &d, 1), 1);
	CU_ASSERT_EQUAL(d.worker, 1);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 10 * SEC, &d, 1), 0);
	kvr_sched_responded(s, 1);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 10 * SEC, &d, 1), 1);
	CU_ASSERT_EQUAL(d.worker, 1);
	kvr_sched_destroy(s);
}

static void another_life_hears(void)
{
	struct kvr_sched_rank_info info;
	const struct kvr_sched_worker w = {.id = 1, .dp_size = 2};

	begin_sched(KVR_MODE_KV, 1e9);
	kvr_sched_unresponsive(s, 1, 10 * SEC, 0);
	kvr_sched_unresponsive(s, 77, 10 * SEC, 0); /* unknown */
	others_work();
	CU_ASSERT_EQUAL(kvr_sched_n_unresponsive(s), 1);
	CU_ASSERT_EQUAL(kvr_sched_rank_get(s, kvr_sched_rank_find(s, 1, 1), &info), 0);
	CU_ASSERT_TRUE(info.silent);
	CU_ASSERT_EQUAL(kvr_sched_worker_renew(s, 1, 0), 0);
	CU_ASSERT_EQUAL(kvr_sched_n_unresponsive(s), 0);
	kvr_sched_worker_available(s, 1, true, 0);
	CU_ASSERT_EQUAL(next_admitted(0), 1);
	kvr_sched_unresponsive(s, 1, 10 * SEC, 0);
	CU_ASSERT_NOT_EQUAL(next_admitted(0), 1);
	CU_ASSERT_EQUAL(kvr_sched_worker_gone(s, 1, 0), 0);
	CU_ASSERT_EQUAL(kvr_sched_n_unresponsive(s), 0);
	CU_ASSERT_EQUAL(kvr_sched_worker_set(s, &w, 0), 0);
	CU_ASSERT_EQUAL(kvr_sched_rank_get(s, kvr_sched_rank_find(s, 1, 0), &info), 0);
	CU_ASSERT_FALSE(info.silent);
	CU_ASSERT_EQUAL(next_admitted(0), 1);
	kvr_sched_destroy(s);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(others_are_chosen_in_every_mode),
			       KVR_CASE(one_request_shows_whether_it_hears),
			       KVR_CASE(unresponsive_worker_is_chosen_if_no_other_exists),
			       KVR_CASE(it_counts_as_busy),
			       KVR_CASE(another_life_hears),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("silent", tests);
}
