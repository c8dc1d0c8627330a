/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Writes act_between a reader's access to one run and the next, step by step on one thread: the
 * reader calls back, and the callback is the writer.
 */

#include "kvr_prefix_test.h"
#include "kvr_test.h"
#include "prefix_pvt.h"

#define LEN 1500u

static struct pt_table p;
static uint64_t sh[LEN];
static uint32_t calls, act_at;
static void (*act)(void);

static void act_between(void)
{
	if (calls++ == act_at)
		act();
}

/* Score with `f` run before the owners of run number `at` are read. */
static const struct kvr_overlap *score_with(void (*f)(void), uint32_t at)
{
	calls = 0;
	act_at = at;
	act = f;
	kvr_prefix__test_between_runs = act_between;
	pt_score(&p, sh, LEN);
	kvr_prefix__test_between_runs = NULL;
	return p.out;
}

static void open_table(void)
{
	p = pt_open((struct kvr_prefix_conf){.max_ranks = 64, .max_blocks = 8192});
	pt_chain(sh, 0, LEN, 3);
	kvr_prefix_store(p.t, 2, 0, NULL, sh, LEN); /* keeps all blocks known */
}

static void remove_front_store_back(void)
{
	kvr_prefix_remove(p.t, 1, 0, &sh[10], 1);
	kvr_prefix_store(p.t, 1, 0, &sh[1399], &sh[1400], 1);
}

/* Blocks 10 and 1400 are never held together: 1500 would be a count that was never valid. */
static void loss_in_front_and_gain_behind_do_not_add_up(void)
{
	for (uint32_t at = 0; at < 4; at++) { /* runs end at 512, 1024, 1401, 1500 */
		uint32_t v;

		open_table();
		kvr_prefix_store(p.t, 1, 0, NULL, sh, LEN);
		kvr_prefix_remove(p.t, 1, 0, &sh[1400], 1);
		v = pt_count(score_with(remove_front_store_back, at), 0, 1);
		CU_ASSERT(calls > at);
		CU_ASSERT(v <= 1400);
		CU_ASSERT_EQUAL(pt_count(p.out, 0, 2),
				LEN); /* a rank that lost nothing is not reduced */
		CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 1), 10);
		pt_close(&p);
	}
}

static void remove_and_store_elsewhere(void)
{
	kvr_prefix_remove(p.t, 1, KVR_TIER_HOST, &sh[600], 1);
	kvr_prefix_store(p.t, 1, KVR_TIER_DISK, &sh[599], &sh[600], 900);
}

static void tiers_of_a_shrinking_rank_are_reduced(void)
{
	for (uint32_t at = 0; at < 4; at++) {
		const struct kvr_overlap *o;
		uint32_t all;

		open_table();
		kvr_prefix_store(p.t, 1, 0, NULL, sh, 300);
		kvr_prefix_store(p.t, 1, KVR_TIER_HOST, &sh[299], &sh[300], 310);
		kvr_prefix_store(p.t, 1, KVR_TIER_DISK, NULL, &sh[1490], 1);
		o = score_with(remove_and_store_elsewhere, at);
		all = pt_count(o, 0, 1) + pt_count(o, KVR_TIER_HOST, 1) +
		      pt_count(o, KVR_TIER_DISK, 1);
		CU_ASSERT(all <= 610 || all == LEN); /* before or after, nothing in act_between */
		pt_close(&p);
	}
}

static void split_run(void)
{
	uint64_t other[64];

	memcpy(other, sh, 40 * 8);
	pt_chain(other, 40, 64, 9);
	kvr_prefix_store(p.t, 5, 0, &other[39], &other[40], 24);
}

static void a_split_under_a_reader_changes_nothing(void)
{
	for (uint32_t at = 0; at < 3; at++) {
		open_table();
		CU_ASSERT_EQUAL(pt_count(score_with(split_run, at), 0, 2), LEN);
		CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 2), LEN);
		pt_close(&p);
	}
}

static void replace_content(void)
{
	uint64_t other[64];

	kvr_prefix_remove(p.t, 2, 0, &sh[20], LEN - 20);
	memcpy(other, sh, 20 * 8);
	pt_chain(other, 20, 64, 4);
	kvr_prefix_store(p.t, 1, 0, &other[19], &other[20], 44);
}

/* The run may not be filled with other content while a reader has compared the old. */
static void new_content_is_not_counted_for_old(void)
{
	open_table();
	kvr_prefix_remove(p.t, 2, 0, &sh[512], LEN - 512);
	kvr_prefix_store(p.t, 1, 0, NULL, sh, 20);
	CU_ASSERT(pt_count(score_with(replace_content, 0), 0, 2) <= 512);
	CU_ASSERT_EQUAL(pt_count(p.out, 0, 1), 20);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 2), 20);
	pt_close(&p);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(loss_in_front_and_gain_behind_do_not_add_up),
			       KVR_CASE(tiers_of_a_shrinking_rank_are_reduced),
			       KVR_CASE(a_split_under_a_reader_changes_nothing),
			       KVR_CASE(new_content_is_not_counted_for_old), CU_TEST_INFO_NULL};

	pt_eal();
	return kvr_test_run("prefix_window", tests);
}
