/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Events of one block at the end of a run: which of them take the fast path, and that both paths
 * leave the same table. prefix_model mixes them with all other operations.
 */

#include "kvr_prefix_test.h"
#include "kvr_test.h"
#include "single_block_pvt.h"

#define LEN 700u

static struct pt_table p;
static uint64_t sh[LEN];

static void open_table(void)
{
	p = pt_open((struct kvr_prefix_conf){
		.max_ranks = 64, .max_blocks = 1 << 12, .max_runs = 64, .seed = 3});
	pt_chain(sh, 0, LEN, 1);
}

static void close_empty(void)
{
	for (uint16_t r = 0; r < 64; r++)
		kvr_prefix_clear_rank(p.t, r);
	pt_quiesce(&p, 1);
	CU_ASSERT_EQUAL(pt_stats(&p).used_bytes, 0);
	CU_ASSERT_EQUAL(p.t->index.used, 0);
	pt_close(&p);
}

static struct kvr_prefix_event append_event(uint16_t rank, uint32_t at)
{
	return (struct kvr_prefix_event){.op = KVR_PREFIX_STORE,
					 .has_parent = at > 0,
					 .rank = rank,
					 .n = 1,
					 .parent = at > 0 ? sh[at - 1] : 0,
					 .sh = &sh[at]};
}

static struct kvr_prefix_event remove_event(uint16_t rank, uint32_t at)
{
	return (struct kvr_prefix_event){
		.op = KVR_PREFIX_REMOVE, .rank = rank, .n = 1, .sh = &sh[at]};
}

/* Apply the event by the fast path. @return false if it needs the general path. */
static bool apply_fast(struct kvr_prefix_event e)
{
	struct pfx_chain c;

	pfx_fetch_index(p.t, &e, &c);
	return e.op == KVR_PREFIX_STORE ? kvr_prefix__append_block(p.t, &e, &c)
					: kvr_prefix__remove_last(p.t, &e, &c);
}

static void store_blocks(uint16_t rank, uint32_t from, uint32_t n)
{
	kvr_prefix_store(p.t, rank, KVR_TIER_DEVICE, from > 0 ? &sh[from - 1] : NULL, &sh[from], n);
}

/* To the end of a run, across its chunks, and back. */
static void ends_of_runs_take_the_fast_path(void)
{
	struct kvr_prefix_stats s;

	open_table();
	store_blocks(3, 0, 10);
	for (uint32_t i = 10; i < 512; i++) {
		CU_ASSERT(apply_fast(append_event(3, i)));
		CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 3), i + 1);
		CU_ASSERT_EQUAL(pt_stats(&p).blocks, i + 1);
	}
	s = pt_stats(&p);
	CU_ASSERT_EQUAL(s.runs, 1);
	CU_ASSERT_EQUAL(s.stored, 512);
	CU_ASSERT_EQUAL(s.entries, 512);
	CU_ASSERT_EQUAL(p.t->rank[3].blocks, 512);
	CU_ASSERT_FALSE(apply_fast(append_event(3, 512))); /* needs a new run */
	for (uint32_t i = 512; i-- > 1;) {
		CU_ASSERT(apply_fast(remove_event(3, i)));
		CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 3), i);
		CU_ASSERT_EQUAL(pt_stats(&p).blocks, i);
	}
	CU_ASSERT_FALSE(apply_fast(remove_event(3, 0))); /* removes the run */
	s = pt_stats(&p);
	CU_ASSERT_EQUAL(s.removed, 511);
	CU_ASSERT_EQUAL(s.entries, 1);
	CU_ASSERT_EQUAL(p.t->rank[3].blocks, 1);
	CU_ASSERT_EQUAL(p.t->rank_blocks[3][KVR_TIER_DEVICE], 1);
	close_empty();
}

/* A reader may hold the old length: no new content below it until that reader has passed. */
static void a_shortened_run_waits_before_it_grows(void)
{
	open_table();
	store_blocks(3, 0, 10);
	CU_ASSERT(apply_fast(remove_event(3, 9)));
	CU_ASSERT_FALSE(apply_fast(append_event(3, 9)));
	pt_quiesce(&p, 1);
	CU_ASSERT(apply_fast(append_event(3, 9)));
	close_empty();
}

/* The event needs the general path, and the fast path leaves all counts unchanged. */
static void assert_general(struct kvr_prefix_event e)
{
	const struct kvr_prefix_stats before = pt_stats(&p);
	const uint32_t used = p.t->index.used;
	struct kvr_prefix_stats after;

	CU_ASSERT_FALSE(apply_fast(e));
	after = pt_stats(&p);
	CU_ASSERT_EQUAL(memcmp(&before, &after, sizeof(before)), 0);
	CU_ASSERT_EQUAL(p.t->index.used, used);
}

static void the_fast_path_rejects_without_a_change(void)
{
	struct kvr_prefix_event e;

	open_table();
	store_blocks(3, 0, 10);
	assert_general(append_event(3, 9));  /* block exists */
	assert_general(append_event(3, 11)); /* unknown parent */
	assert_general(append_event(4, 10)); /* rank does not own the last block */
	assert_general(remove_event(4, 9));
	assert_general(remove_event(3, 8)); /* not the last block */
	assert_general(remove_event(3, 20));
	e = append_event(3, 10);
	e.tier = KVR_TIER_HOST;
	assert_general(e);
	e = append_event(3, 10);
	e.has_parent = false;
	assert_general(e);
	e = remove_event(3, 9);
	e.tier = KVR_TIER_HOST;
	assert_general(e);
	store_blocks(5, 0, 6); /* owns a part */
	assert_general(append_event(5, 6));
	assert_general(remove_event(5, 5));
	kvr_prefix_limit(p.t, 3, 100);
	assert_general(append_event(3, 10));
	kvr_prefix_limit(p.t, 3, 0);
	store_blocks(7, 0, 10);
	store_blocks(7, 10,
		     5); /* another rank has more blocks: the run has a child, or is longer */
	assert_general(append_event(3, 10));
	close_empty();
}

/* The last block is removed only when no rank holds it, in any tier or by prediction. */
static void other_owners_keep_the_last_block(void)
{
	open_table();
	store_blocks(3, 0, 10);
	store_blocks(4, 0, 10);
	CU_ASSERT(apply_fast(remove_event(3, 9)));
	CU_ASSERT_EQUAL(pt_stats(&p).blocks, 10);
	kvr_prefix_store(p.t, 5, KVR_TIER_HOST, NULL, sh, 10);
	CU_ASSERT(apply_fast(remove_event(4, 9)));
	CU_ASSERT_EQUAL(pt_stats(&p).blocks, 10);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 3), 9);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 4), 9);
	kvr_prefix_remove(p.t, 5, KVR_TIER_HOST, &sh[9], 1);
	CU_ASSERT_EQUAL(pt_stats(&p).blocks, 9);
	CU_ASSERT(apply_fast(remove_event(3, 8)));
	CU_ASSERT(apply_fast(remove_event(4, 8)));
	CU_ASSERT_EQUAL(pt_count(pt_score(&p, sh, LEN), KVR_TIER_HOST, 5), 9);
	CU_ASSERT_EQUAL(pt_stats(&p).blocks, 9);
	close_empty();
}

/* With many owners the bits of a big block refer to the length of the run. */
static void runs_with_a_bitmap_take_the_general_path(void)
{
	open_table();
	for (uint16_t r = 0; r < 12; r++)
		store_blocks(r, 0, 10);
	assert_general(append_event(3, 10));
	assert_general(remove_event(3, 9));
	close_empty();
}

static void a_full_table_evicts_by_the_general_path(void)
{
	open_table();
	store_blocks(3, 0, 10);
	for (uint64_t b = 100; pt_stats(&p).blocks < p.t->max_blocks; b++) {
		uint64_t c[512];

		pt_chain(c, 0, 512, b);
		kvr_prefix_store(p.t, 9, KVR_TIER_DEVICE, NULL, c,
				 RTE_MIN(512u, p.t->max_blocks - (uint32_t)pt_stats(&p).blocks));
	}
	assert_general(append_event(3, 10));
	close_empty();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(ends_of_runs_take_the_fast_path),
			       KVR_CASE(a_shortened_run_waits_before_it_grows),
			       KVR_CASE(the_fast_path_rejects_without_a_change),
			       KVR_CASE(other_owners_keep_the_last_block),
			       KVR_CASE(runs_with_a_bitmap_take_the_general_path),
			       KVR_CASE(a_full_table_evicts_by_the_general_path),
			       CU_TEST_INFO_NULL};

	pt_eal();
	return kvr_test_run("prefix_single_block", tests);
}
