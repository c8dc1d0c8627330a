/* SPDX-License-Identifier: BSD-3-Clause */
/* The table against a model, a plain array of the blocks held, under random events. */
#include "kvr_kvmap.h"

#include "kvmap_pvt.h"

#include <stdlib.h>
#include <string.h>

#include "kvr_hash.h"
#include "kvr_rand.h"
#include "kvr_test.h"

#define BLOCK  2u
#define CHAINS 16u
#define LEN    64u

/* Blocks that the router would hold, by chain, block and tier, with their sequence hashes. */
static uint64_t sh[CHAINS][LEN];
static bool router[CHAINS][LEN][KVR_TIERS];
static unsigned int engine[CHAINS][LEN][KVR_TIERS]; /* copies */

static bool *find_cell(uint64_t name, enum kvr_tier tier)
{
	for (unsigned int c = 0; c < CHAINS; c++)
		for (unsigned int k = 0; k < LEN; k++)
			if (sh[c][k] == name)
				return &router[c][k][tier];
	CU_FAIL_FATAL("unknown name");
	return NULL;
}

static void on_stored(void *user, enum kvr_tier tier, const uint64_t *parent, const uint64_t s[],
		      uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		*find_cell(s[i], tier) = true;
}

static void on_removed(void *user, enum kvr_tier tier, const uint64_t s[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		*find_cell(s[i], tier) = false;
}

static void on_cleared(void *user)
{
	memset(router, 0, sizeof(router));
}

static const struct kvr_kvmap_out out = {on_stored, on_removed, on_cleared, NULL};

static uint32_t make_token(unsigned int chain, unsigned int i)
{
	return chain * 1000 + i;
}

/* Names given by the engine. Only a few bits differ, which is hard for the index. 0 as a parent
 * means none, unless it is a known name. */
static uint64_t make_name(unsigned int chain, unsigned int block)
{
	return ((uint64_t)chain << 40) + block + 1;
}

static void name_all(void)
{
	for (unsigned int c = 0; c < CHAINS; c++) {
		const struct kvr_hash_params p = {.seed = KVR_HASH_SEED, .block_size = BLOCK};
		uint32_t t[LEN * BLOCK];

		for (unsigned int i = 0; i < LEN * BLOCK; i++)
			t[i] = make_token(c, i);
		CU_ASSERT_EQUAL(kvr_hash_tokens(&p, t, LEN * BLOCK, NULL, sh[c], LEN), LEN);
	}
}

static void store_blocks(struct kvr_kvmap *m, unsigned int c, unsigned int from, unsigned int n)
{
	uint64_t hashes[LEN];
	uint32_t tokens[LEN * BLOCK];
	struct kvr_kvev ev = {.type = KVR_KVEV_STORED,
			      .hashes = hashes,
			      .n_hashes = n,
			      .tokens = tokens,
			      .n_tokens = n * BLOCK,
			      .block_size = BLOCK,
			      .has_parent = from > 0,
			      .parent = from > 0 ? make_name(c, from - 1) : 0,
			      .strange_block = UINT32_MAX};

	for (unsigned int i = 0; i < n; i++)
		hashes[i] = make_name(c, from + i);
	for (unsigned int i = 0; i < n * BLOCK; i++)
		tokens[i] = make_token(c, from * BLOCK + i);
	CU_ASSERT_EQUAL(kvr_kvmap_apply(m, &ev), 0);
	if (from > 0) { /* an engine stores no block behind an unknown one */
		bool known = false;

		for (unsigned int t = 0; t < KVR_TIERS; t++)
			known |= engine[c][from - 1][t];
		if (!known)
			return;
	}
	for (unsigned int i = 0; i < n; i++)
		engine[c][from + i][0]++;
}

static void move_block(struct kvr_kvmap *m, unsigned int c, unsigned int k)
{
	const uint64_t h = make_name(c, k);
	const struct kvr_kvev ev = {.type = KVR_KVEV_STORED,
				    .hashes = &h,
				    .n_hashes = 1,
				    .tier = KVR_TIER_HOST,
				    .strange_block = UINT32_MAX};

	CU_ASSERT_EQUAL(kvr_kvmap_apply(m, &ev), 0);
	if (engine[c][k][0] > 0 || engine[c][k][1] > 0)
		engine[c][k][1]++;
}

static void drop_blocks(struct kvr_kvmap *m, unsigned int c, unsigned int from, unsigned int n,
			enum kvr_tier tier)
{
	uint64_t hashes[LEN];
	const struct kvr_kvev ev = {
		.type = KVR_KVEV_REMOVED, .hashes = hashes, .n_hashes = n, .tier = tier};

	for (unsigned int i = 0; i < n; i++) {
		hashes[i] = make_name(c, from + i);
		engine[c][from + i][tier] -= engine[c][from + i][tier] > 0;
	}
	CU_ASSERT_EQUAL(kvr_kvmap_apply(m, &ev), 0);
}

static void take_step(struct kvr_kvmap *m, struct kvr_rand *r)
{
	const unsigned int c = (unsigned int)(kvr_rand_u64(r) % CHAINS);
	const unsigned int from = (unsigned int)(kvr_rand_u64(r) % LEN);
	const unsigned int n = 1 + (unsigned int)(kvr_rand_u64(r) % (LEN - from));

	switch (kvr_rand_u64(r) % 8) {
	case 0:
	case 1:
	case 2:
		store_blocks(m, c, from, n);
		break;
	case 3:
		store_blocks(m, c, 0, n);
		break;
	case 4:
		move_block(m, c, from);
		break;
	case 5:
		drop_blocks(m, c, from, n < 8 ? n : 8, KVR_TIER_HOST);
		break;
	default:
		drop_blocks(m, c, from, n < 24 ? n : 24, KVR_TIER_DEVICE);
	}
}

static bool is_same(void)
{
	for (unsigned int c = 0; c < CHAINS; c++)
		for (unsigned int k = 0; k < LEN; k++)
			for (unsigned int t = 0; t < KVR_TIERS; t++)
				if (router[c][k][t] != (engine[c][k][t] > 0))
					return false;
	return true;
}

static void a_table_with_room_mirrors_the_engine(void)
{
	struct kvr_kvmap *m = kvr_kvmap_create(BLOCK, CHAINS * LEN, 7, &out);
	struct kvr_rand r;

	name_all();
	kvr_rand_init(&r, 11);
	memset(router, 0, sizeof(router));
	memset(engine, 0, sizeof(engine));
	for (unsigned int i = 0; i < 20000; i++) {
		take_step(m, &r);
		if (i % 5000 == 4999) {
			kvr_kvmap_clear(m);
			memset(engine, 0, sizeof(engine));
		}
		if (i % 97 == 0)
			CU_ASSERT(is_same());
	}
	CU_ASSERT(is_same());
	kvr_kvmap_destroy(m);
}

/* Compare the dump with the reported changes; no block may be listed twice. */
static void compare_dump(struct kvr_kvmap *m)
{
	static bool told[CHAINS][LEN][KVR_TIERS];
	struct kvr_kvmap_run run;
	uint64_t pos = 0;

	memcpy(told, router, sizeof(told));
	memset(router, 0, sizeof(router));
	while (kvr_kvmap_next(m, &pos, &run))
		for (uint32_t i = 0; i < run.n; i++) {
			CU_ASSERT(!*find_cell(run.sh[i], run.tier));
			*find_cell(run.sh[i], run.tier) = true;
		}
	CU_ASSERT_EQUAL(memcmp(told, router, sizeof(told)), 0);
}

static void a_full_table_holds_no_block_that_the_engine_lacks(void)
{
	struct kvr_kvmap *m = kvr_kvmap_create(BLOCK, 100, 7, &out);
	unsigned int held, most = 0;
	struct kvr_rand r;

	name_all();
	kvr_rand_init(&r, 12);
	memset(router, 0, sizeof(router));
	memset(engine, 0, sizeof(engine));
	for (unsigned int i = 0; i < 5000; i++) {
		take_step(m, &r);
		held = 0;
		for (unsigned int c = 0; c < CHAINS; c++) {
			for (unsigned int k = 0; k < LEN; k++) {
				held += router[c][k][0] || router[c][k][1];
				for (unsigned int t = 0; t < KVR_TIERS; t++)
					if (router[c][k][t])
						CU_ASSERT(engine[c][k][t] > 0);
			}
		}
		CU_ASSERT(held <= 100);
		most = held > most ? held : most;
		if (i % 50 == 0)
			compare_dump(m);
	}
	CU_ASSERT_EQUAL(most, 100);
	kvr_kvmap_destroy(m);
}

static void the_oldest_block_is_evicted_first(void)
{
	struct kvr_kvmap *m = kvr_kvmap_create(BLOCK, LEN, 7, &out);

	name_all();
	memset(router, 0, sizeof(router));
	memset(engine, 0, sizeof(engine));
	for (unsigned int c = 0; c < CHAINS; c++) {
		store_blocks(m, c, 0, LEN / 2);
		for (unsigned int k = 0; k < CHAINS; k++)
			CU_ASSERT_EQUAL(router[k][0][0], k <= c && c - k < 2);
	}
	kvr_kvmap_destroy(m);
}

/* Store one block as a chain of its own. */
static void put_first(struct kvr_kvmap *m, uint64_t hash, unsigned int chain)
{
	const uint32_t tokens[BLOCK] = {make_token(chain, 0), make_token(chain, 1)};
	const struct kvr_kvev ev = {.type = KVR_KVEV_STORED,
				    .hashes = &hash,
				    .n_hashes = 1,
				    .tokens = tokens,
				    .n_tokens = BLOCK,
				    .block_size = BLOCK,
				    .strange_block = UINT32_MAX};

	CU_ASSERT_EQUAL(kvr_kvmap_apply(m, &ev), 0);
}

static void remove_name(struct kvr_kvmap *m, uint64_t hash)
{
	const struct kvr_kvev ev = {.type = KVR_KVEV_REMOVED, .hashes = &hash, .n_hashes = 1};

	CU_ASSERT_EQUAL(kvr_kvmap_apply(m, &ev), 0);
}

static void ignore_stored(void *user, enum kvr_tier tier, const uint64_t *parent,
			  const uint64_t s[], uint32_t n)
{
}

static void ignore_removed(void *user, enum kvr_tier tier, const uint64_t s[], uint32_t n)
{
}

/* A quarter of the ring is free when the table is full. A search for the oldest entry that began at
 * the next entry would pass over all of it each time. */
static void the_search_for_the_oldest_resumes(void)
{
	const struct kvr_kvmap_out silent = {ignore_stored, ignore_removed, on_cleared, NULL};
	struct kvr_kvmap *m = kvr_kvmap_create(BLOCK, 8192, 7, &silent);
	uint32_t trap;

	for (uint32_t i = 0; i < 20000; i++)
		put_first(m, i + 1, i % CHAINS);
	CU_ASSERT_FATAL(m->gap > 1000);
	trap = (m->next + 5) %
	       m->ring; /* shares the name of the newest block; a search from `next` evicts it */
	m->entries[trap] = (struct kvmap_entry){.name = 20000};
	m->tiers[trap] = 1u << KVR_TIER_DEVICE;
	put_first(m, 20001, 0);
	m->tiers[trap] = 0;
	remove_name(m, 20000);
	CU_ASSERT_EQUAL(kvr_cell_get(&kvr_kvmap_stats_get(m)->absent), 0);
	for (uint32_t i = 20001; i < 40000; i++) {
		put_first(m, i + 1, i % CHAINS);
		if (i % 3 == 0)
			remove_name(m, i - 5000);
		CU_ASSERT(m->gap <= m->ring);
		for (uint32_t k = m->gap; i % 1000 == 0 && k > 0; k--)
			CU_ASSERT_EQUAL(m->tiers[(m->next + k - 1) % m->ring], 0);
	}
	kvr_kvmap_destroy(m);
}

/* Number of removals reported. */
static unsigned int n_removed;

static void count_removed(void *user, enum kvr_tier tier, const uint64_t s[], uint32_t n)
{
	n_removed += n;
	on_removed(user, tier, s, n);
}

/* More names than one group, each of them twice: the second occurrence finds nothing. */
static void a_repeated_name_is_removed_once(void)
{
	const struct kvr_kvmap_out counted = {on_stored, count_removed, on_cleared, NULL};
	struct kvr_kvmap *m = kvr_kvmap_create(BLOCK, CHAINS * LEN, 7, &counted);
	uint64_t hashes[8 * LEN];
	const struct kvr_kvev ev = {
		.type = KVR_KVEV_REMOVED, .hashes = hashes, .n_hashes = 8 * LEN};

	name_all();
	memset(router, 0, sizeof(router));
	memset(engine, 0, sizeof(engine));
	for (unsigned int c = 0; c < 5; c++)
		store_blocks(m, c, 0, LEN);
	for (unsigned int i = 0; i < 4 * LEN; i++)
		hashes[2 * i] = hashes[(2 * i + 7) % (8 * LEN)] = make_name(i / LEN, i % LEN);
	n_removed = 0;
	CU_ASSERT_EQUAL(kvr_kvmap_apply(m, &ev), 0);
	CU_ASSERT_EQUAL(n_removed, 4 * LEN);
	CU_ASSERT_EQUAL(kvr_cell_get(&kvr_kvmap_stats_get(m)->removed), 4 * LEN);
	CU_ASSERT_EQUAL(kvr_cell_get(&kvr_kvmap_stats_get(m)->absent), 4 * LEN);
	CU_ASSERT_EQUAL(kvr_cell_get(&kvr_kvmap_stats_get(m)->held), LEN);
	memset(engine, 0, sizeof(engine));
	for (unsigned int k = 0; k < LEN; k++)
		engine[4][k][0] = 1;
	CU_ASSERT(is_same());
	kvr_kvmap_destroy(m);
}

static void any_number_of_copies_is_counted(void)
{
	struct kvr_kvmap *m = kvr_kvmap_create(BLOCK, LEN, 7, &out);

	name_all();
	memset(router, 0, sizeof(router));
	memset(engine, 0, sizeof(engine));
	for (unsigned int i = 0; i < 70000; i++) /* more than a 16-bit count */
		store_blocks(m, 0, 0, 1);
	for (unsigned int i = 0; i < 70000; i++) {
		CU_ASSERT(is_same());
		drop_blocks(m, 0, 0, 1, KVR_TIER_DEVICE);
	}
	CU_ASSERT(!router[0][0][0] && is_same());
	CU_ASSERT_EQUAL(kvr_cell_get(&kvr_kvmap_stats_get(m)->held), 0);
	kvr_kvmap_destroy(m);
}

static void a_full_count_does_not_wrap(void)
{
	struct kvr_kvmap *m = kvr_kvmap_create(BLOCK, LEN, 7, &out);

	name_all();
	memset(router, 0, sizeof(router));
	store_blocks(m, 0, 0, 1);
	store_blocks(m, 0, 0, 1);
	m->copies[0][KVR_TIER_DEVICE] = UINT32_MAX; /* of the first entry */
	store_blocks(m, 0, 0, 1);
	CU_ASSERT_EQUAL(m->copies[0][KVR_TIER_DEVICE], UINT32_MAX);
	drop_blocks(m, 0, 0, 1, KVR_TIER_DEVICE);
	CU_ASSERT(router[0][0][0]);
	kvr_kvmap_destroy(m);
}

#define ALIASES 8u

/* Copies under each name of the first block of each chain. */
static unsigned int named[CHAINS][ALIASES][KVR_TIERS];

static void strict_stored(void *user, enum kvr_tier tier, const uint64_t *parent,
			  const uint64_t s[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		CU_ASSERT(!*find_cell(s[i], tier));
	on_stored(user, tier, parent, s, n);
}

static void strict_removed(void *user, enum kvr_tier tier, const uint64_t s[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		CU_ASSERT(*find_cell(s[i], tier));
	on_removed(user, tier, s, n);
}

/* A random step: store, move to the host, or removal of one name, or removal of all names of a
 * block. */
static void take_step_of_names(struct kvr_kvmap *m, struct kvr_rand *r)
{
	const unsigned int c = (unsigned int)(kvr_rand_u64(r) % CHAINS);
	const unsigned int a = (unsigned int)(kvr_rand_u64(r) % ALIASES);
	const enum kvr_tier tier = (enum kvr_tier)(kvr_rand_u64(r) % 2);
	const unsigned int what = (unsigned int)(kvr_rand_u64(r) % 8);
	const uint32_t tokens[BLOCK] = {make_token(c, 0), make_token(c, 1)};
	const unsigned int first = what == 7 ? 0 : a, last = what == 7 ? ALIASES - 1 : a;
	uint64_t hashes[ALIASES];
	struct kvr_kvev ev = {.type = what < 4 ? KVR_KVEV_STORED : KVR_KVEV_REMOVED,
			      .hashes = hashes,
			      .n_hashes = last - first + 1,
			      .tokens = tokens,
			      .n_tokens = tier == KVR_TIER_DEVICE ? BLOCK : 0,
			      .block_size = BLOCK,
			      .tier = tier,
			      .lookahead = true,
			      .strange_block = UINT32_MAX};

	for (unsigned int i = first; i <= last; i++) {
		unsigned int *copies = &named[c][i][tier];

		hashes[i - first] = make_name(c, i);
		if (what >= 4)
			*copies -= *copies > 0;
		else if (tier == KVR_TIER_DEVICE || named[c][i][0] + named[c][i][1] > 0)
			++*copies;
	}
	CU_ASSERT_EQUAL(kvr_kvmap_apply(m, &ev), 0);
}

static bool has_name(unsigned int c, unsigned int tier)
{
	for (unsigned int a = 0; a < ALIASES; a++)
		if (named[c][a][tier] > 0)
			return true;
	return false;
}

static void a_block_leaves_a_tier_with_its_last_name(void)
{
	const struct kvr_kvmap_out strict = {strict_stored, strict_removed, on_cleared, NULL};

	for (unsigned int room = 20; room <= 320; room += 300) { /* with evictions, and without */
		struct kvr_kvmap *m = kvr_kvmap_create(BLOCK, room, 7, &strict);
		struct kvr_rand r;

		name_all();
		kvr_rand_init(&r, 13);
		memset(router, 0, sizeof(router));
		memset(named, 0, sizeof(named));
		for (unsigned int i = 0; i < 20000; i++) {
			take_step_of_names(m, &r);
			for (unsigned int c = 0; c < CHAINS; c++)
				for (unsigned int t = 0; t < 2; t++)
					CU_ASSERT(room > CHAINS * ALIASES
							  ? router[c][0][t] == has_name(c, t)
							  : router[c][0][t] <= has_name(c, t));
			if (i % 50 == 0)
				compare_dump(m);
			if (i == 10000) {
				kvr_kvmap_clear(m);
				memset(named, 0, sizeof(named));
			}
		}
		CU_ASSERT(kvr_cell_get(&kvr_kvmap_stats_get(m)->aliases) > 0);
		kvr_kvmap_destroy(m);
	}
}

#define NAMES 8192u

/* Find two names with equal keys. @return false: none among the first NAMES. */
static bool same_key(const struct kvr_kvmap *m, uint64_t *one, uint64_t *other)
{
	const struct kvmap_view v = kvmap_view(m);
	static uint64_t key[NAMES];

	for (uint64_t i = 0; i < NAMES; i++) {
		key[i] = kvmap_key(&v, i);
		for (uint64_t k = 0; k < i; k++) {
			if (key[k] != key[i])
				continue;
			*one = k;
			*other = i;
			return true;
		}
	}
	return false;
}

static void two_names_with_one_key_stay_apart(void)
{
	for (unsigned int goes = 0; goes < 2; goes++) {
		struct kvr_kvmap *m = kvr_kvmap_create(BLOCK, 100, 7, &out);
		uint64_t names[2];
		struct kvr_kvev ev = {
			.type = KVR_KVEV_REMOVED, .hashes = &names[goes], .n_hashes = 1};

		name_all();
		memset(router, 0, sizeof(router));
		CU_ASSERT_FATAL(same_key(m, &names[0], &names[1]));
		put_first(m, names[0], 0);
		put_first(m, names[1], 1);
		CU_ASSERT(router[0][0][0] && router[1][0][0]);
		CU_ASSERT_EQUAL(kvr_kvmap_apply(m, &ev), 0);
		CU_ASSERT(!router[goes][0][0] && router[!goes][0][0]);
		put_first(m, names[goes], goes);
		ev.hashes = names;
		ev.n_hashes = 2;
		CU_ASSERT_EQUAL(kvr_kvmap_apply(m, &ev), 0);
		CU_ASSERT(!router[0][0][0] && !router[1][0][0]);
		CU_ASSERT_EQUAL(kvr_cell_get(&kvr_kvmap_stats_get(m)->held), 0);
		CU_ASSERT_EQUAL(kvr_cell_get(&kvr_kvmap_stats_get(m)->absent), 0);
		kvr_kvmap_destroy(m);
	}
}

static void the_block_size_is_learned(void)
{
	struct kvr_kvmap *m = kvr_kvmap_create(2 * BLOCK, LEN, 7, &out);
	const uint32_t tokens[BLOCK] = {make_token(0, 0), make_token(0, 1)};
	const uint64_t hash = make_name(0, 0);
	struct kvr_kvev ev = {.type = KVR_KVEV_STORED,
			      .hashes = &hash,
			      .n_hashes = 1,
			      .tokens = tokens,
			      .n_tokens = BLOCK,
			      .block_size = BLOCK,
			      .strange_block = UINT32_MAX};

	name_all();
	memset(engine, 0, sizeof(engine));
	memset(router, 0, sizeof(router));
	CU_ASSERT_EQUAL(kvr_kvmap_block_size(m), 0);
	ev.tier = KVR_TIER_HOST;
	CU_ASSERT_EQUAL(kvr_kvmap_apply(m, &ev), 0);
	CU_ASSERT_EQUAL(kvr_kvmap_block_size(m), 0);
	store_blocks(m, 0, 0, 2);
	CU_ASSERT_EQUAL(kvr_kvmap_block_size(m), BLOCK);
	CU_ASSERT(!kvr_kvmap_eagle(m));
	CU_ASSERT(!router[0][0][0]);
	kvr_kvmap_destroy(m);
}

/* A group number may have another kind in the engine that follows. */
static void learned_values_belong_to_one_engine(void)
{
	struct kvr_kvmap *m = kvr_kvmap_create(BLOCK, LEN, 7, &out);
	const uint32_t tokens[BLOCK] = {make_token(0, 0), make_token(0, 1)};
	const uint64_t hash = make_name(0, 0);
	struct kvr_kvev ev = {.type = KVR_KVEV_STORED,
			      .hashes = &hash,
			      .n_hashes = 1,
			      .tokens = tokens,
			      .n_tokens = BLOCK,
			      .block_size = BLOCK,
			      .has_group = true,
			      .group = 1,
			      .other_group = true,
			      .strange_block = UINT32_MAX};

	name_all();
	memset(router, 0, sizeof(router));
	CU_ASSERT_EQUAL(kvr_kvmap_apply(m, &ev), 0);
	store_blocks(m, 1, 0, 2);
	kvr_kvmap_clear(m);
	CU_ASSERT_EQUAL(kvr_kvmap_block_size(m), BLOCK); /* still the same engine */
	kvr_kvmap_forget(m);
	CU_ASSERT_EQUAL(kvr_kvmap_block_size(m), 0);
	ev.other_group = false;
	CU_ASSERT_EQUAL(kvr_kvmap_apply(m, &ev), 0);
	CU_ASSERT(router[0][0][0]);
	ev.type = KVR_KVEV_REMOVED;
	CU_ASSERT_EQUAL(kvr_kvmap_apply(m, &ev), 0);
	CU_ASSERT(!router[0][0][0]);
	kvr_kvmap_destroy(m);
}

static void token_pairs_are_learned_with_the_block_size(void)
{
	struct kvr_kvmap *m = kvr_kvmap_create(BLOCK, LEN, 7, &out);
	const uint64_t name = 1;
	const uint32_t tokens[BLOCK + 1] = {3, 4, 5};
	const struct kvr_kvev ev = {.type = KVR_KVEV_STORED,
				    .hashes = &name,
				    .n_hashes = 1,
				    .tokens = tokens,
				    .n_tokens = BLOCK + 1,
				    .block_size = BLOCK,
				    .eagle = true};

	CU_ASSERT(!kvr_kvmap_eagle(m));
	CU_ASSERT_EQUAL(kvr_kvmap_apply(m, &ev), 0);
	CU_ASSERT_EQUAL(kvr_kvmap_block_size(m), BLOCK);
	CU_ASSERT(kvr_kvmap_eagle(m));
	kvr_kvmap_destroy(m);
}

static void sizes_are_checked(void)
{
	CU_ASSERT_PTR_NULL(kvr_kvmap_create(0, 1, 1, &out));
	CU_ASSERT_PTR_NULL(kvr_kvmap_create(1, 0, 1, &out));
	CU_ASSERT_PTR_NULL(kvr_kvmap_create(1, (1u << 30) + 1, 1, &out));
	kvr_kvmap_destroy(NULL);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(a_table_with_room_mirrors_the_engine),
		KVR_CASE(a_full_table_holds_no_block_that_the_engine_lacks),
		KVR_CASE(the_oldest_block_is_evicted_first),
		KVR_CASE(the_search_for_the_oldest_resumes),
		KVR_CASE(a_repeated_name_is_removed_once),
		KVR_CASE(any_number_of_copies_is_counted),
		KVR_CASE(a_full_count_does_not_wrap),
		KVR_CASE(a_block_leaves_a_tier_with_its_last_name),
		KVR_CASE(two_names_with_one_key_stay_apart),
		KVR_CASE(the_block_size_is_learned),
		KVR_CASE(learned_values_belong_to_one_engine),
		KVR_CASE(token_pairs_are_learned_with_the_block_size),
		KVR_CASE(sizes_are_checked),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("kvmap", tests);
}
