/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Events of one block at the end of a run: which of them are plain enough for the short way, and
 * that both ways leave the same table. prefix_model mixes them with everything else.
 */

#include "kvr_prefix_test.h"
#include "kvr_test.h"
#include "one_pvt.h"

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

static struct kvr_prefix_event more(uint16_t rank, uint32_t at)
{
	return (struct kvr_prefix_event){.op = KVR_PREFIX_STORE,
					 .has_parent = at > 0,
					 .rank = rank,
					 .n = 1,
					 .parent = at > 0 ? sh[at - 1] : 0,
					 .sh = &sh[at]};
}

static struct kvr_prefix_event less(uint16_t rank, uint32_t at)
{
	return (struct kvr_prefix_event){
		.op = KVR_PREFIX_REMOVE, .rank = rank, .n = 1, .sh = &sh[at]};
}

/* Is it plain? Then it has been applied. */
static bool plain(struct kvr_prefix_event e)
{
	struct pfx_chain c;

	pfx_fetch_index(p.t, &e, &c);
	return e.op == KVR_PREFIX_STORE ? kvr_prefix__one_more(p.t, &e, &c)
					: kvr_prefix__one_less(p.t, &e, &c);
}

static void store(uint16_t rank, uint32_t from, uint32_t n)
{
	kvr_prefix_store(p.t, rank, KVR_TIER_DEVICE, from > 0 ? &sh[from - 1] : NULL, &sh[from], n);
}

/* From `from` on to the end of a run, across its chunks, and back. */
static void ends_of_runs_are_plain(void)
{
	struct kvr_prefix_stats s;

	open_table();
	store(3, 0, 10);
	for (uint32_t i = 10; i < 512; i++) {
		CU_ASSERT(plain(more(3, i)));
		CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 3), i + 1);
		CU_ASSERT_EQUAL(pt_stats(&p).blocks, i + 1);
	}
	s = pt_stats(&p);
	CU_ASSERT_EQUAL(s.runs, 1);
	CU_ASSERT_EQUAL(s.stored, 512);
	CU_ASSERT_EQUAL(s.entries, 512);
	CU_ASSERT_EQUAL(p.t->rank[3].blocks, 512);
	CU_ASSERT_FALSE(plain(more(3, 512))); /* the next run */
	for (uint32_t i = 512; i-- > 1;) {
		CU_ASSERT(plain(less(3, i)));
		CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 3), i);
		CU_ASSERT_EQUAL(pt_stats(&p).blocks, i);
	}
	CU_ASSERT_FALSE(plain(less(3, 0))); /* the run goes */
	s = pt_stats(&p);
	CU_ASSERT_EQUAL(s.removed, 511);
	CU_ASSERT_EQUAL(s.entries, 1);
	CU_ASSERT_EQUAL(p.t->rank[3].blocks, 1);
	CU_ASSERT_EQUAL(p.t->rank_blocks[3][KVR_TIER_DEVICE], 1);
	close_empty();
}

/* A reader may hold the length of before: no new content under it until it has passed. */
static void a_shortened_run_waits_before_it_grows(void)
{
	open_table();
	store(3, 0, 10);
	CU_ASSERT(plain(less(3, 9)));
	CU_ASSERT_FALSE(plain(more(3, 9)));
	pt_quiesce(&p, 1);
	CU_ASSERT(plain(more(3, 9)));
	close_empty();
}

/* Nothing changes where it is not plain: counts are as before. */
static void refused(struct kvr_prefix_event e)
{
	const struct kvr_prefix_stats before = pt_stats(&p);
	const uint32_t used = p.t->index.used;
	struct kvr_prefix_stats after;

	CU_ASSERT_FALSE(plain(e));
	after = pt_stats(&p);
	CU_ASSERT_EQUAL(memcmp(&before, &after, sizeof(before)), 0);
	CU_ASSERT_EQUAL(p.t->index.used, used);
}

static void what_is_not_plain_changes_nothing(void)
{
	struct kvr_prefix_event e;

	open_table();
	store(3, 0, 10);
	refused(more(3, 9));  /* is there */
	refused(more(3, 11)); /* nobody's parent */
	refused(more(4, 10)); /* not by who has the end */
	refused(less(4, 9));
	refused(less(3, 8)); /* not the end */
	refused(less(3, 20));
	e = more(3, 10);
	e.tier = KVR_TIER_HOST;
	refused(e);
	e = more(3, 10);
	e.has_parent = false;
	refused(e);
	e = less(3, 9);
	e.tier = KVR_TIER_HOST;
	refused(e);
	store(5, 0, 6); /* has a part */
	refused(more(5, 6));
	refused(less(5, 5));
	kvr_prefix_limit(p.t, 3, 100);
	refused(more(3, 10));
	kvr_prefix_limit(p.t, 3, 0);
	store(7, 0, 10);
	store(7, 10, 5); /* one has more: a run behind the run, or the run is longer */
	refused(more(3, 10));
	close_empty();
}

/* The last block goes when nobody has it any more, in no tier and by no prediction. */
static void others_keep_the_last_block(void)
{
	open_table();
	store(3, 0, 10);
	store(4, 0, 10);
	CU_ASSERT(plain(less(3, 9)));
	CU_ASSERT_EQUAL(pt_stats(&p).blocks, 10);
	kvr_prefix_store(p.t, 5, KVR_TIER_HOST, NULL, sh, 10);
	CU_ASSERT(plain(less(4, 9)));
	CU_ASSERT_EQUAL(pt_stats(&p).blocks, 10);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 3), 9);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 4), 9);
	kvr_prefix_remove(p.t, 5, KVR_TIER_HOST, &sh[9], 1);
	CU_ASSERT_EQUAL(pt_stats(&p).blocks, 9);
	CU_ASSERT(plain(less(3, 8)));
	CU_ASSERT(plain(less(4, 8)));
	CU_ASSERT_EQUAL(pt_count(pt_score(&p, sh, LEN), KVR_TIER_HOST, 5), 9);
	CU_ASSERT_EQUAL(pt_stats(&p).blocks, 9);
	close_empty();
}

/* Many own it: the bits of a big block stand for its length. */
static void runs_with_a_bitmap_are_not_plain(void)
{
	open_table();
	for (uint16_t r = 0; r < 12; r++)
		store(r, 0, 10);
	refused(more(3, 10));
	refused(less(3, 9));
	close_empty();
}

static void a_full_table_makes_room_the_general_way(void)
{
	open_table();
	store(3, 0, 10);
	for (uint64_t b = 100; pt_stats(&p).blocks < p.t->max_blocks; b++) {
		uint64_t c[512];

		pt_chain(c, 0, 512, b);
		kvr_prefix_store(p.t, 9, KVR_TIER_DEVICE, NULL, c,
				 RTE_MIN(512u, p.t->max_blocks - (uint32_t)pt_stats(&p).blocks));
	}
	refused(more(3, 10));
	close_empty();
}

int main(void)
{
	CU_TestInfo tests[] = {{"ends", ends_of_runs_are_plain},
			       {"grace", a_shortened_run_waits_before_it_grows},
			       {"refused", what_is_not_plain_changes_nothing},
			       {"others", others_keep_the_last_block},
			       {"bitmap", runs_with_a_bitmap_are_not_plain},
			       {"full", a_full_table_makes_room_the_general_way},
			       CU_TEST_INFO_NULL};

	pt_eal();
	return kvr_test_run("prefix_one", tests);
}
