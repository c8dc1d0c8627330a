/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_rand.h"
#include "kvr_test.h"
#include "policy.h"
#include "timers.h"

static void timers_come_in_order_and_not_early(void)
{
	struct load_timers t;
	struct load_timer x;
	struct kvr_rand r;
	uint64_t last = 0, bad = 0, n = 0;

	kvr_rand_init(&r, 3);
	CU_ASSERT_EQUAL_FATAL(load_timers_init(&t, 1000), 0);
	for (uint32_t i = 0; i < 1000; i++)
		CU_ASSERT_TRUE(load_timers_add(
			&t, (struct load_timer){kvr_rand_below(&r, 5000), i, i + 1}));
	CU_ASSERT_FALSE(load_timers_add(&t, (struct load_timer){1, 0, 0}));
	for (uint64_t now = 0; now < 5000; now += 50) {
		while (load_timers_pop(&t, now, &x)) {
			bad += x.at < last || x.at > now || x.gen != x.slot + 1;
			last = x.at;
			n++;
		}
		CU_ASSERT_TRUE(t.n == 0 || t.heap[0].at > now);
	}
	bad += n + t.n != 1000;
	CU_ASSERT_EQUAL(bad, 0);
	load_timers_fini(&t);
}

static void round_robin_visits_all_in_turn(void)
{
	struct load_policy p = {.kind = LOAD_ROUND_ROBIN};
	const uint32_t load[3] = {9, 0, 0};
	uint32_t seen[3] = {0};

	for (int i = 0; i < 30; i++)
		seen[load_policy_pick(&p, load, 3)]++;
	CU_ASSERT(seen[0] == 10 && seen[1] == 10 && seen[2] == 10);
	CU_ASSERT_EQUAL(load_policy_pick(&p, load, 1), 0);
}

static void least_loaded_takes_the_minimum_and_splits_ties(void)
{
	struct load_policy p = {.kind = LOAD_LEAST_LOADED};
	const uint32_t load[5] = {4, 1, 3, 1, 1};
	uint32_t seen[5] = {0};

	kvr_rand_init(&p.rand, 1);
	for (int i = 0; i < 3000; i++)
		seen[load_policy_pick(&p, load, 5)]++;
	CU_ASSERT_EQUAL(seen[0] + seen[2], 0);
	CU_ASSERT(seen[1] > 900 && seen[3] > 900 && seen[4] > 900);
}

static void random_covers_all_and_kv_pins_nothing(void)
{
	struct load_policy p = {.kind = LOAD_RANDOM};
	const uint32_t load[4] = {0};
	uint32_t seen[4] = {0};

	kvr_rand_init(&p.rand, 1);
	for (int i = 0; i < 4000; i++)
		seen[load_policy_pick(&p, load, 4)]++;
	for (int i = 0; i < 4; i++)
		CU_ASSERT(seen[i] > 850 && seen[i] < 1150);
	p.kind = LOAD_KV;
	CU_ASSERT_EQUAL(load_policy_pick(&p, load, 4), LOAD_UNPINNED);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(timers_come_in_order_and_not_early),
			       KVR_CASE(round_robin_visits_all_in_turn),
			       KVR_CASE(least_loaded_takes_the_minimum_and_splits_ties),
			       KVR_CASE(random_covers_all_and_kv_pins_nothing), CU_TEST_INFO_NULL};

	return kvr_test_run("load tools", tests);
}
