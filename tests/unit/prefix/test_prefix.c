/* SPDX-License-Identifier: BSD-3-Clause */

/* Behaviours of the prefix table one by one; prefix_model tests their random combinations. */

#include "kvr_prefix_test.h"
#include "kvr_test.h"
#include "prefix_pvt.h"

#define LEN 1300u

static struct pt_table p;
static uint64_t sh[LEN], other[LEN];

static void open_sized(uint32_t ranks, uint32_t blocks, uint32_t runs)
{
	p = pt_open((struct kvr_prefix_conf){
		.max_ranks = ranks, .max_blocks = blocks, .max_runs = runs, .seed = 3});
	pt_chain(sh, 0, LEN, 1);
	memcpy(other, sh, sizeof(sh));
	pt_chain(other, 700, LEN, 2); /* shares 700 blocks with sh */
}

static void open_table(void)
{
	open_sized(64, 1 << 14, 4096);
}

/* Clear all ranks: all memory must be returned. */
static void close_empty(void)
{
	struct kvr_prefix_stats s;

	for (uint16_t r = 0; r < 64; r++)
		kvr_prefix_clear_rank(p.t, r);
	pt_quiesce(&p, 1);
	s = pt_stats(&p);
	CU_ASSERT_EQUAL(s.blocks + s.runs + s.entries + s.predicted + s.retired, 0);
	CU_ASSERT_EQUAL(s.used_bytes, 0);
	pt_close(&p);
}

static void store_chain(uint16_t rank, uint32_t tier, const uint64_t *chain, uint32_t from,
			uint32_t to)
{
	kvr_prefix_store(p.t, rank, tier, from ? &chain[from - 1] : NULL, &chain[from], to - from);
}

static void create_rejects_invalid_fields(void)
{
	struct rte_rcu_qsbr *v = pt_alloc(rte_rcu_qsbr_get_memsize(2));
	struct kvr_prefix_conf bad[] = {
		{.qsbr = v},
		{.name = "x"},
		{.name = "", .qsbr = v},
		{.name = "a name that is far too long", .qsbr = v},
		{.name = "x", .qsbr = v, .max_ranks = KVR_PREFIX_MAX_RANKS + 1},
		{.name = "x", .qsbr = v, .max_blocks = 63},
		{.name = "x", .qsbr = v, .isa = 9}};
	struct kvr_prefix_conf good = {.name = "twice", .qsbr = v, .max_blocks = 64};
	struct kvr_prefix *t;

	for (uint32_t i = 0; i < RTE_DIM(bad); i++) {
		errno = 0;
		CU_ASSERT_PTR_NULL(kvr_prefix_create(&bad[i]));
		CU_ASSERT_EQUAL(errno, EINVAL);
	}
	t = kvr_prefix_create(&good);
	CU_ASSERT_PTR_NOT_NULL(t);
	CU_ASSERT_PTR_NULL(kvr_prefix_create(&good));
	CU_ASSERT_EQUAL(errno, EEXIST);
	kvr_prefix_destroy(t);
	kvr_prefix_destroy(NULL);
	free(v);
}

static void empty_query_and_empty_table_score_nothing(void)
{
	open_table();
	CU_ASSERT_EQUAL(pt_score(&p, sh, 0)->max_device, 0);
	CU_ASSERT_EQUAL(pt_score(&p, sh, LEN)->max_device, 0);
	store_chain(63, 0, sh, 0, 4);
	CU_ASSERT_EQUAL(pt_score(&p, sh, 0)->nranks, 0);
	CU_ASSERT_EQUAL(pt_score(&p, sh, LEN)->nranks, 64);
	CU_ASSERT_EQUAL(p.out->max_device, 4);
	kvr_prefix_store(p.t, 1, 0, NULL, sh, 0);
	kvr_prefix_store(p.t, 64, 0, NULL, sh, 4); /* no such rank */
	kvr_prefix_remove(p.t, 64, 0, sh, 4);
	CU_ASSERT_EQUAL(pt_stats(&p).entries, 4);
	close_empty();
}

static void queries_of_any_length_and_divergence(void)
{
	open_table();
	store_chain(1, 0, sh, 0, 1000);
	store_chain(2, 0, sh, 0, 30);
	for (uint32_t n = 1; n <= LEN; n += 13) {
		CU_ASSERT_EQUAL(pt_device(&p, sh, n, 1), RTE_MIN(n, 1000u));
		CU_ASSERT_EQUAL(pt_device(&p, sh, n, 2), RTE_MIN(n, 30u));
		CU_ASSERT_EQUAL(pt_device(&p, other, n, 1), RTE_MIN(n, 700u));
	}
	close_empty();
}

static void split_at_every_offset_is_exact(void)
{
	for (uint32_t at = 1; at < 600; at += at < 70 || at > 500 ? 1 : 17) {
		open_table();
		store_chain(1, 0, sh, 0, 600);
		memcpy(other, sh, sizeof(sh));
		pt_chain(other, at, LEN, 7);
		store_chain(2, 0, other, 0, 600);
		CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 1), 600);
		CU_ASSERT_EQUAL(pt_count(p.out, 0, 2), at);
		CU_ASSERT_EQUAL(pt_device(&p, other, LEN, 2), 600);
		CU_ASSERT_EQUAL(pt_count(p.out, 0, 1), at);
		close_empty();
	}
}

static void hole_at_every_offset_heals(void)
{
	for (uint32_t at = 0; at < 600; at += at < 70 || at > 500 ? 1 : 17) {
		open_table();
		for (uint16_t r = 0; r < 12; r++)
			store_chain(r, 0, sh, 0, 600);
		kvr_prefix_remove(p.t, 5, 0, &sh[at], 1);
		CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 5), at);
		CU_ASSERT_EQUAL(pt_count(p.out, 0, 6), 600);
		CU_ASSERT_EQUAL(kvr_prefix_rank_blocks(p.t, 5, 0), 599);
		store_chain(5, 0, sh, at, at + 1);
		CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 5), 600);
		close_empty();
	}
}

static void every_rank_may_hold_another_length(void)
{
	open_sized(1024, 1 << 14, 4096);
	for (uint16_t r = 0; r < 1024; r++)
		store_chain(r, 0, sh, 0, 1 + r);
	pt_score(&p, sh, LEN);
	for (uint32_t r = 0; r < 1024; r++)
		CU_ASSERT_EQUAL(pt_count(p.out, 0, r), 1 + r);
	for (uint16_t r = 0; r < 1024; r++)
		kvr_prefix_remove(p.t, r, 0, sh, 1 + r);
	pt_quiesce(&p, 1);
	CU_ASSERT_EQUAL(pt_stats(&p).used_bytes, 0);
	CU_ASSERT_EQUAL(pt_stats(&p).unknown_removes, 0);
	pt_close(&p);
}

static void orphans_are_counted_and_score_when_the_gap_closes(void)
{
	open_table();
	store_chain(1, 0, sh, 400, 900);
	CU_ASSERT_EQUAL(pt_stats(&p).orphans, 500);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 1), 0);
	store_chain(1, 0, sh, 0, 399);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 1), 399);
	store_chain(1, 0, sh, 399, 400);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 1), 900);
	/* Other content was stored first after the same parent. */
	store_chain(2, 0, other, 690, 900);
	CU_ASSERT_EQUAL(pt_device(&p, other, LEN, 2), 0);
	store_chain(2, 0, other, 0, 690);
	CU_ASSERT_EQUAL(pt_device(&p, other, LEN, 2), 900);
	close_empty();
}

static void duplicates_and_unknown_removes_change_nothing(void)
{
	open_table();
	store_chain(1, 0, sh, 0, 100);
	store_chain(1, 0, sh, 0, 100);
	CU_ASSERT_EQUAL(pt_stats(&p).duplicates, 100);
	CU_ASSERT_EQUAL(pt_stats(&p).stored, 100);
	kvr_prefix_remove(p.t, 1, 0, &other[800], 50);
	kvr_prefix_remove(p.t, 2, 0, sh, 100);
	kvr_prefix_remove(p.t, 1, KVR_TIER_HOST, sh, 100);
	CU_ASSERT_EQUAL(pt_stats(&p).unknown_removes, 250);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 1), 100);
	close_empty();
}

/*
 * In a full index some entries are outside their home bucket. A store of such a block after another
 * parent finds it, even if its home bucket has a free place again, and a remove deletes it.
 */
static void no_block_is_stored_twice(void)
{
	enum { N = 1800 };
	uint64_t *all = malloc(N * sizeof(*all)), pair[2], gone[2];

	open_sized(64, 2048, 16384);
	pt_chain(all, 0, N, 3);
	for (uint32_t i = 0; i < N; i++)
		kvr_prefix_store(p.t, 1, 0, NULL, &all[i], 1);
	CU_ASSERT_EQUAL(pt_stats(&p).blocks, N);
	for (uint32_t i = 1; i < N; i += 2)
		kvr_prefix_remove(p.t, 1, 0, &all[i], 1);
	for (uint32_t i = 0; i < N; i += 2) {
		pair[0] = gone[1] = i + 1;
		pair[1] = gone[0] = all[i];
		kvr_prefix_store(p.t, 2, 0, NULL, pair, 2);
		CU_ASSERT_EQUAL(pt_stats(&p).blocks, N / 2 + 1);
		kvr_prefix_remove(p.t, 2, 0, gone, 2);
		CU_ASSERT_EQUAL(pt_stats(&p).blocks, N / 2);
		pt_quiesce(&p, 1);
	}
	close_empty();
	free(all);
}

/*
 * A run that ends with its chunk, because another run holds the next block, owns no further chunk.
 */
static void a_run_owns_only_the_chunks_it_fills(void)
{
	uint64_t used[2], run[33];

	for (uint32_t with = 0; with < 2; with++) {
		open_table();
		memcpy(run, sh, sizeof(run));
		run[32] = other[LEN - 1];
		kvr_prefix_store(p.t, 1, 0, NULL, &run[32], 1);
		kvr_prefix_store(p.t, 1, 0, NULL, run, 32 + with);
		pt_quiesce(&p, 1);
		used[with] = pt_stats(&p).used_bytes;
		CU_ASSERT_EQUAL(pt_stats(&p).blocks, 33);
		store_chain(1, 0, sh, 32, 40); /* the run continues */
		CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 1), 40);
		close_empty();
	}
	CU_ASSERT_EQUAL(used[0], used[1]);
}

/* The buckets after the last home hold a limited number of entries; further blocks are dropped. */
static void blocks_beyond_the_end_of_the_index_are_dropped(void)
{
	enum { ROOM = PFX_SPARE * KVR_BUCKET, N = ROOM + 5 };
	uint64_t all[N];
	uint32_t n = 0;

	open_sized(64, 1024, 4096);
	for (uint64_t v = 1; n < N; v++)
		if (pfx_index_home(&p.t->index, pfx_mix(p.t, v)) == p.t->index.buckets - 1)
			all[n++] = v;
	kvr_prefix_store(p.t, 1, 0, NULL, all, N);
	CU_ASSERT_EQUAL(pt_stats(&p).blocks, ROOM);
	CU_ASSERT_EQUAL(pt_stats(&p).dropped, N - ROOM);
	CU_ASSERT_EQUAL(pt_device(&p, all, N, 1), ROOM);
	close_empty();
}

/* Blocks before the start of a run in its first chunk do not belong to the run. */
static void a_removal_stops_at_the_start_of_a_run(void)
{
	uint64_t gone[3] = {0};

	open_table();
	pt_chain(other, 10, LEN, 5);
	store_chain(1, 0, sh, 0, 20);
	store_chain(2, 0, other, 0, 20); /* blocks 10 to 19 of `sh` are now in a new chunk */
	gone[0] = sh[11];
	gone[1] = sh[10]; /* the places before them are 0, like gone[2] */
	kvr_prefix_remove(p.t, 1, 0, gone, 3);
	CU_ASSERT_EQUAL(pt_stats(&p).removed, 2);
	CU_ASSERT_EQUAL(pt_stats(&p).unknown_removes, 1);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 1), 10);
	close_empty();
}

/* Unknown blocks in an event do not prevent the removal of the others. */
static void remove_continues_after_unknown_blocks(void)
{
	const uint64_t gone[] = {42, 0, 43, 0};
	uint64_t list[4];

	open_table();
	store_chain(1, 0, sh, 0, 100);
	memcpy(list, gone, sizeof(list));
	list[1] = sh[99];
	list[3] = sh[50];
	kvr_prefix_remove(p.t, 1, 0, list, 4);
	CU_ASSERT_EQUAL(pt_stats(&p).removed, 2);
	CU_ASSERT_EQUAL(pt_stats(&p).unknown_removes, 2);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 1), 50);
	close_empty();
}

static void clear_removes_all_tiers_of_one_rank(void)
{
	open_table();
	for (uint16_t r = 0; r < 20; r++)
		for (uint32_t tier = 0; tier < KVR_TIERS; tier++)
			store_chain(r, tier, sh, tier * 100, tier * 100 + 100);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 7), 100);
	pt_clear(&p, 7);
	pt_score(&p, sh, LEN);
	for (uint32_t tier = 0; tier < KVR_TIERS; tier++) {
		CU_ASSERT_EQUAL(pt_count(p.out, tier, 6), 100);
		CU_ASSERT_EQUAL(pt_count(p.out, tier, 7), 0);
	}
	store_chain(7, 0, sh, 0, 50);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 7), 50);
	close_empty();
}

static void tiers_extend_one_another_in_order(void)
{
	open_table();
	store_chain(1, KVR_TIER_DEVICE, sh, 0, 10);
	store_chain(1, KVR_TIER_HOST, sh, 5, 20);
	store_chain(1, KVR_TIER_DISK, sh, 20, 30);
	store_chain(1, KVR_TIER_EXTERNAL, sh, 25, 40);
	store_chain(2, KVR_TIER_HOST, sh, 0, 15); /* from the root, nothing on the device */
	store_chain(3, KVR_TIER_DISK, sh, 0, 10);
	store_chain(3, KVR_TIER_HOST, sh, 10,
		    20); /* host comes before disk, so it cannot extend disk */
	pt_score(&p, sh, LEN);
	CU_ASSERT_EQUAL(p.out->flags, KVR_OVERLAP_HOST | KVR_OVERLAP_DISK | KVR_OVERLAP_EXTERNAL);
	CU_ASSERT_EQUAL(pt_count(p.out, KVR_TIER_DEVICE, 1), 10);
	CU_ASSERT_EQUAL(pt_count(p.out, KVR_TIER_HOST, 1), 10);
	CU_ASSERT_EQUAL(pt_count(p.out, KVR_TIER_DISK, 1), 10);
	CU_ASSERT_EQUAL(pt_count(p.out, KVR_TIER_EXTERNAL, 1), 10);
	CU_ASSERT_EQUAL(pt_count(p.out, KVR_TIER_HOST, 2), 15);
	CU_ASSERT_EQUAL(pt_count(p.out, KVR_TIER_HOST, 3), 0);
	CU_ASSERT_EQUAL(pt_count(p.out, KVR_TIER_DISK, 3), 10);
	close_empty();
}

static void predictions_end_at_their_ttl(void)
{
	open_table();
	kvr_prefix_predict(p.t, 4, sh, 1000, 5000, 120000);
	kvr_prefix_predict(p.t, 5, sh, 10, 5000, 0);
	kvr_prefix_expire(p.t, 124999);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 4), 1000);
	CU_ASSERT_EQUAL(pt_count(p.out, 0, 5), 0);
	CU_ASSERT(p.out->flags & KVR_OVERLAP_PREDICTED);
	kvr_prefix_expire(p.t, 125100);
	CU_ASSERT(pt_stats(&p).expired > 0);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 4), 0);
	CU_ASSERT_EQUAL(pt_stats(&p).blocks, 0);
	close_empty();
}

static void a_new_prediction_renews_the_given_blocks(void)
{
	open_table();
	kvr_prefix_predict(p.t, 4, sh, 1000, 0, 1000);
	kvr_prefix_predict(p.t, 4, sh, 300, 500, 1000);
	kvr_prefix_expire(p.t, 1100);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 4), 300);
	kvr_prefix_predict(p.t, 4, sh, 200, 1100, 100); /* an earlier end shortens nothing */
	kvr_prefix_expire(p.t, 1499);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 4), 300);
	kvr_prefix_expire(p.t, 1600);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 4), 0);
	close_empty();
}

static void distant_ends_survive_rotations_of_the_wheel(void)
{
	open_table();
	kvr_prefix_predict(p.t, 4, sh, 8, 0, 1000000);
	for (uint64_t now = 0; now < 1000000; now += 50)
		CU_ASSERT(kvr_prefix_expire(p.t, now));
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 4), 8);
	CU_ASSERT_EQUAL(pt_stats(&p).expired, 0);
	CU_ASSERT(kvr_prefix_expire(p.t, 1000100));
	CU_ASSERT_EQUAL(pt_stats(&p).expired, 1);
	close_empty();
}

static void overlap_is_the_larger_of_reported_and_predicted(void)
{
	open_table();
	store_chain(1, 0, sh, 0, 20);
	kvr_prefix_predict(p.t, 1, sh, 50, 0, 1000);
	store_chain(2, 0, sh, 0, 80);
	kvr_prefix_predict(p.t, 2, sh, 50, 0, 1000);
	store_chain(3, 0, sh, 50,
		    60); /* not contiguous with reported blocks: no union with the prediction */
	kvr_prefix_predict(p.t, 3, sh, 50, 0, 1000);
	store_chain(3, KVR_TIER_HOST, sh, 50, 55);
	pt_score(&p, sh, LEN);
	CU_ASSERT_EQUAL(pt_count(p.out, 0, 1), 50);
	CU_ASSERT_EQUAL(pt_count(p.out, 0, 2), 80);
	CU_ASSERT_EQUAL(pt_count(p.out, 0, 3), 50);
	CU_ASSERT_EQUAL(pt_count(p.out, KVR_TIER_HOST, 3), 5);
	CU_ASSERT_EQUAL(kvr_overlap_predicted(p.out)[2], 50);
	kvr_prefix_expire(p.t, 1100); /* reported blocks do not expire with the prediction */
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 1), 20);
	CU_ASSERT_EQUAL(pt_count(p.out, 0, 2), 80);
	kvr_prefix_predict(p.t, 1, sh, 50, 2000, 1000);
	kvr_prefix_clear_rank(p.t, 1); /* clearing a rank also removes its predictions */
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 1), 0);
	close_empty();
}

/* A burst of requests with one prefix finds the prediction of its first request. */
static void the_next_query_sees_a_prediction(void)
{
	open_table();
	CU_ASSERT_EQUAL(pt_score(&p, sh, LEN)->max_device, 0);
	kvr_prefix_predict(p.t, 9, sh, LEN, 0, 5000);
	CU_ASSERT_EQUAL(pt_score(&p, sh, LEN)->max_device, LEN);
	CU_ASSERT_EQUAL(pt_count(p.out, 0, 9), LEN);
	close_empty();
}

static void unaligned_queries_and_events_work(void)
{
	static char raw[LEN * 8 + 8];

	open_table();
	for (uint32_t shift = 1; shift < 8; shift += 3) {
		memcpy(raw + shift, sh, sizeof(sh));
		kvr_prefix_store(p.t, (uint16_t)shift, 0, NULL, raw + shift, LEN);
		CU_ASSERT_EQUAL(pt_device(&p, raw + shift, LEN, shift), LEN);
		kvr_prefix_remove(p.t, (uint16_t)shift, 0, raw + shift + 8, 1);
		CU_ASSERT_EQUAL(pt_device(&p, raw + shift, LEN, shift), 1);
	}
	close_empty();
}

static void the_longest_prompt_is_scored_completely(void)
{
	const uint32_t n = KVR_PREFIX_MAX_QUERY;
	uint64_t *big = pt_alloc((n + 100) * 8ull);

	open_sized(64, 1 << 17, 4096);
	pt_chain(big, 0, n + 100, 5);
	kvr_prefix_store(p.t, 1, 0, NULL, big, n + 100);
	kvr_prefix_store(p.t, 2, 0, NULL, big, 65000);
	CU_ASSERT_EQUAL(pt_device(&p, big, n + 100, 1), n);
	CU_ASSERT_EQUAL(pt_count(p.out, 0, 2), 65000);
	kvr_prefix_remove(p.t, 2, 0, &big[40000], 1);
	CU_ASSERT_EQUAL(pt_device(&p, big, n, 2), 40000);
	close_empty();
	free(big);
}

/* Different content has different hashes; LoRA and cache namespaces are part of the content. */
static void namespaces_are_separate(void)
{
	open_table();
	pt_chain(other, 0, LEN, 99);
	store_chain(1, 0, sh, 0, 64);
	store_chain(1, 0, other, 0, 32);
	CU_ASSERT_EQUAL(pt_device(&p, sh, LEN, 1), 64);
	CU_ASSERT_EQUAL(pt_device(&p, other, LEN, 1), 32);
	kvr_prefix_remove(p.t, 1, 0, sh, 64);
	CU_ASSERT_EQUAL(pt_device(&p, other, LEN, 1), 32);
	close_empty();
}

static void the_bound_evicts_least_recently_matched_runs(void)
{
	struct kvr_prefix_stats s;
	uint64_t chain[64];

	open_sized(64, 6400, 400);
	for (uint32_t i = 0; i < 90; i++) {
		pt_chain(chain, 0, 64, 1000 + i);
		kvr_prefix_store(p.t, (uint16_t)(i % 64), 0, NULL, chain, 64);
	}
	CU_ASSERT_EQUAL(pt_stats(&p).evicted_runs, 0);
	for (uint64_t now = 1; now < 6000; now += 500)
		kvr_prefix_maintain(p.t, now);
	for (uint32_t i = 0; i < 90; i += 3) { /* every third is matched */
		pt_chain(chain, 0, 64, 1000 + i);
		CU_ASSERT_EQUAL(pt_device(&p, chain, 64, i % 64), 64);
	}
	for (uint32_t i = 90; i < 140; i++) {
		pt_chain(chain, 0, 64, 1000 + i);
		kvr_prefix_store(p.t, (uint16_t)(i % 64), 0, NULL, chain, 64);
		CU_ASSERT(pt_stats(&p).blocks <= 6400);
		pt_quiesce(&p, 6000);
	}
	for (uint32_t i = 0; i < 140; i++) {
		pt_chain(chain, 0, 64, 1000 + i);
		if (i % 3 == 0 || i >= 90)
			CU_ASSERT_EQUAL(pt_device(&p, chain, 64, i % 64), 64);
	}
	s = pt_stats(&p);
	CU_ASSERT(s.evicted_runs >= 40 && s.evicted_runs <= 60);
	CU_ASSERT_EQUAL(s.evicted_entries, s.evicted_runs * 64);
	CU_ASSERT_EQUAL(s.entries, s.stored - s.removed - s.evicted_entries);
	CU_ASSERT_EQUAL(s.dropped, 0);
	close_empty();
}

static void predictions_are_evicted_before_reported_blocks(void)
{
	uint64_t chain[64];

	open_sized(64, 6400, 400);
	for (uint32_t i = 0; i < 95; i++) {
		pt_chain(chain, 0, 64, 1000 + i);
		if (i < 50)
			kvr_prefix_store(p.t, 1, 0, NULL, chain, 64);
		else
			kvr_prefix_predict(p.t, 1, chain, 64, i, 1000);
	}
	for (uint32_t i = 95; i < 135; i++) {
		pt_chain(chain, 0, 64, 1000 + i);
		kvr_prefix_store(p.t, 1, 0, NULL, chain, 64);
		pt_quiesce(&p, 0);
	}
	CU_ASSERT(pt_stats(&p).evicted_predicted >= 35);
	CU_ASSERT_EQUAL(pt_stats(&p).evicted_runs, 0);
	for (uint32_t i = 0; i < 135; i++) {
		pt_chain(chain, 0, 64, 1000 + i);
		if (i < 50 || i >= 95)
			CU_ASSERT_EQUAL(pt_device(&p, chain, 64, 1), 64);
	}
	pt_chain(chain, 0, 64, 1000 + 94); /* the prediction that ends last is evicted last */
	CU_ASSERT_EQUAL(pt_device(&p, chain, 64, 1), 64);
	close_empty();
}

/*
 * A reader that reports no quiescent state holds memory back: blocks are dropped and counted,
 * scores stay correct.
 */
static void a_stuck_reader_does_not_block_the_writer(void)
{
	uint64_t chain[64];

	open_sized(64, 640, 64);
	for (uint32_t i = 0; i < 2000; i++) {
		pt_chain(chain, 0, 64, i);
		kvr_prefix_store(p.t, 1, 0, NULL, chain, 64);
		kvr_prefix_remove(p.t, 1, 0, chain, 32);
	}
	CU_ASSERT(pt_stats(&p).dropped > 0);
	CU_ASSERT(pt_stats(&p).blocks <= 640);
	pt_quiesce(&p, 0);
	pt_chain(chain, 0, 64, 5000);
	kvr_prefix_store(p.t, 1, 0, NULL, chain, 64);
	CU_ASSERT_EQUAL(pt_device(&p, chain, 64, 1), 64);
	close_empty();
}

static struct pt_table copy;
static uint32_t pieces, give_up;

static bool restore_piece(void *ctx, const struct kvr_prefix_piece *d)
{
	pieces++;
	kvr_prefix_store(copy.t, d->rank, d->tier, d->has_parent ? &d->parent : NULL, d->sh, d->n);
	if (ctx != NULL && pieces < 500) { /* change the table during the dump */
		kvr_prefix_remove(p.t, 30, 0, &other[700 + pieces], 1);
		kvr_prefix_maintain(p.t, 0);
	}
	return pieces != give_up;
}

static void dump_rebuilds_the_table(void)
{
	for (uint32_t changing = 0; changing < 2; changing++) {
		open_table();
		for (uint16_t r = 0; r < 30; r++)
			for (uint32_t tier = 0; tier < KVR_TIERS; tier++)
				store_chain(r, tier, r % 2 ? sh : other, tier * 200,
					    tier * 200 + 10 * r + 1);
		store_chain(30, 0, other, 0, LEN);
		copy = pt_open((struct kvr_prefix_conf){
			.max_ranks = 64, .max_blocks = 1 << 14, .max_runs = 4096});
		pieces = give_up = 0;
		CU_ASSERT_EQUAL(kvr_prefix_dump(p.t, 0, restore_piece, NULL, changing ? &p : NULL),
				0);
		CU_ASSERT(pieces > 120);
		for (uint32_t c = 0; c < 2; c++) {
			pt_score(&p, c ? other : sh, LEN);
			pt_score(&copy, c ? other : sh, LEN);
			for (uint32_t r = 0; r < 30; r++)
				for (uint32_t k = 0; k < KVR_TIERS; k++)
					CU_ASSERT_EQUAL(pt_count(p.out, k, r),
							pt_count(copy.out, k, r));
		}
		if (!changing)
			CU_ASSERT_EQUAL(pt_stats(&copy).entries, pt_stats(&p).entries);
		give_up = ++pieces + 1;
		CU_ASSERT_EQUAL(kvr_prefix_dump(p.t, 0, restore_piece, NULL, NULL), -ECANCELED);
		pt_close(&copy);
		close_empty();
	}
}

/* Each code path, with bitmaps, lists, partial owners and tiers. */
static void compare_code_paths(uint16_t ranks)
{
	struct kvr_overlap *first = pt_alloc(kvr_overlap_size(KVR_PREFIX_MAX_RANKS));

	for (int isa = KVR_PREFIX_ISA_SCALAR; isa <= KVR_PREFIX_ISA_AVX512; isa++) {
		p = pt_open((struct kvr_prefix_conf){.max_ranks = ranks,
						     .max_blocks = 1 << 14,
						     .isa = (enum kvr_prefix_isa)isa});
		if (p.t == NULL) {
			CU_ASSERT_EQUAL(errno, ENOTSUP);
			pt_close(&p);
			continue;
		}
		for (uint16_t r = 0; r < ranks; r++)
			store_chain(r, r % 7 ? 0 : 1, sh, 0, 500 + r % 5 * 100);
		store_chain((uint16_t)(ranks - 1), 2, sh, 0, LEN);
		pt_score(&p, sh, 1201);
		if (isa == KVR_PREFIX_ISA_SCALAR)
			memcpy(first, p.out, kvr_overlap_size(ranks));
		CU_ASSERT_EQUAL(memcmp(first, p.out, kvr_overlap_size(ranks)), 0);
		CU_ASSERT_EQUAL(pt_count(p.out, 0, 4), 900);
		CU_ASSERT_EQUAL(pt_count(p.out, 0, ranks - 1u),
				pt_count(p.out, 0, (ranks - 1u) % 5));
		pt_close(&p);
	}
	free(first);
}

static void code_paths_agree(void)
{
	compare_code_paths(333);
	compare_code_paths(KVR_PREFIX_MAX_RANKS);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(create_rejects_invalid_fields),
			       KVR_CASE(empty_query_and_empty_table_score_nothing),
			       KVR_CASE(queries_of_any_length_and_divergence),
			       KVR_CASE(split_at_every_offset_is_exact),
			       KVR_CASE(hole_at_every_offset_heals),
			       KVR_CASE(every_rank_may_hold_another_length),
			       KVR_CASE(orphans_are_counted_and_score_when_the_gap_closes),
			       KVR_CASE(duplicates_and_unknown_removes_change_nothing),
			       KVR_CASE(no_block_is_stored_twice),
			       KVR_CASE(a_run_owns_only_the_chunks_it_fills),
			       KVR_CASE(blocks_beyond_the_end_of_the_index_are_dropped),
			       KVR_CASE(a_removal_stops_at_the_start_of_a_run),
			       KVR_CASE(remove_continues_after_unknown_blocks),
			       KVR_CASE(clear_removes_all_tiers_of_one_rank),
			       KVR_CASE(tiers_extend_one_another_in_order),
			       KVR_CASE(predictions_end_at_their_ttl),
			       KVR_CASE(a_new_prediction_renews_the_given_blocks),
			       KVR_CASE(distant_ends_survive_rotations_of_the_wheel),
			       KVR_CASE(overlap_is_the_larger_of_reported_and_predicted),
			       KVR_CASE(the_next_query_sees_a_prediction),
			       KVR_CASE(unaligned_queries_and_events_work),
			       KVR_CASE(the_longest_prompt_is_scored_completely),
			       KVR_CASE(namespaces_are_separate),
			       KVR_CASE(the_bound_evicts_least_recently_matched_runs),
			       KVR_CASE(predictions_are_evicted_before_reported_blocks),
			       KVR_CASE(a_stuck_reader_does_not_block_the_writer),
			       KVR_CASE(dump_rebuilds_the_table),
			       KVR_CASE(code_paths_agree),
			       CU_TEST_INFO_NULL};

	pt_eal();
	return kvr_test_run("prefix", tests);
}
