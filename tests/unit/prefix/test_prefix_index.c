/* SPDX-License-Identifier: BSD-3-Clause */

/* The writer's index against a list, with crowded buckets. Links without any DPDK library. */

#include "index_dp.c" /* not part of the public interface */
#include "kvr_rand.h"
#include "kvr_test.h"
#include <string.h>

#define BUCKETS 40u
#define MAX	440u

static struct kvr_bucket mem[BUCKETS + PFX_SPARE] __attribute__((aligned(64)));
static struct pfx_index x;
static uint64_t mix[MAX];
static uint32_t used;

static void open_index(void)
{
	memset(mem, 0, sizeof(mem));
	x = (struct pfx_index){.b = mem, .buckets = BUCKETS, .end = BUCKETS + PFX_SPARE};
	used = 0;
}

static bool there(uint64_t hash, uint32_t value)
{
	return place_of(&x, hash, value) != PFX_NOWHERE;
}

/* Values are 1..used; the last one takes the place of one removed. */
static void all_are_there(void)
{
	for (uint32_t i = 0; i < used; i++)
		CU_ASSERT_FATAL(there(mix[i], i + 1));
	CU_ASSERT_EQUAL(x.used, used);
}

/* One of `homes` places, with any tag. */
static uint64_t random_hash(struct kvr_rand *r, uint32_t homes)
{
	const uint64_t home = kvr_rand_u64(r) % homes * (UINT32_MAX / homes);

	return home << 32 | (kvr_rand_u64(r) & UINT32_MAX);
}

static void random_mix(uint32_t homes)
{
	struct kvr_rand r = {homes};

	open_index();
	for (uint32_t i = 0; i < 200000; i++) {
		uint32_t k = kvr_rand_below(&r, MAX);

		if (k >= used && used < MAX - 20) {
			mix[used] = random_hash(&r, homes);
			CU_ASSERT_EQUAL_FATAL(kvr_prefix__index_add(&x, mix[used], used + 1), 0);
			used++;
		} else if (used > 0) {
			k %= used;
			kvr_prefix__index_del(&x, mix[k], k + 1);
			CU_ASSERT_FATAL(!there(mix[k], k + 1));
			used--;
			if (k != used) {
				kvr_prefix__index_move(&x, mix[used], used + 1, k + 1);
				mix[k] = mix[used];
			}
		}
		if (i % 500 == 0)
			all_are_there();
	}
	all_are_there();
	while (used > 0) {
		used--;
		kvr_prefix__index_del(&x, mix[used], used + 1);
	}
	for (uint32_t i = 0; i < x.end; i++) {
		CU_ASSERT_EQUAL(pfx_index_masks(&mem[i], 0).empty, (1u << KVR_BUCKET) - 1);
		CU_ASSERT_EQUAL(mem[i].over, 0);
	}
}

static void entries_survive_any_order(void)
{
	random_mix(UINT32_MAX);
}

static void entries_survive_crowding(void)
{
	random_mix(7); /* a few homes only: everything is displaced */
}

/* The hash is not in a tag of 0, which marks a free place. */
static void tag_of_zero_is_an_entry(void)
{
	open_index();
	CU_ASSERT_EQUAL(kvr_prefix__index_add(&x, UINT64_C(5) << 32, 1), 0);
	CU_ASSERT(there(UINT64_C(5) << 32, 1));
	CU_ASSERT_EQUAL(x.used, 1);
	kvr_prefix__index_del(&x, UINT64_C(5) << 32, 1);
	CU_ASSERT(!there(UINT64_C(5) << 32, 1));
}

/* The room that a deletion left near the home is used, and who stands behind is still found. */
static void who_stands_behind_stays_found(void)
{
	open_index();
	for (uint32_t i = 1; i <= 3 * KVR_BUCKET; i++)
		CU_ASSERT_EQUAL(kvr_prefix__index_add(&x, i, i), 0);
	CU_ASSERT_EQUAL(mem[0].over, 2 * KVR_BUCKET);
	CU_ASSERT_EQUAL(mem[1].over, KVR_BUCKET);
	for (uint32_t i = 1; i <= 2 * KVR_BUCKET; i++)
		kvr_prefix__index_del(&x, i, i);
	CU_ASSERT_EQUAL(mem[0].over, KVR_BUCKET);
	CU_ASSERT_EQUAL(kvr_prefix__index_add(&x, 77, 77), 0);
	CU_ASSERT_EQUAL(PFX_AT_BUCKET(place_of(&x, 77, 77)), 0);
	for (uint32_t i = 2 * KVR_BUCKET + 1; i <= 3 * KVR_BUCKET; i++) {
		CU_ASSERT(there(i, i));
		kvr_prefix__index_del(&x, i, i);
	}
	CU_ASSERT_EQUAL(mem[0].over, 0);
	CU_ASSERT_EQUAL(mem[1].over, 0);
}

static void equal_tags_are_told_apart_by_value(void)
{
	open_index();
	for (uint32_t i = 1; i <= 50; i++)
		CU_ASSERT_EQUAL(kvr_prefix__index_add(&x, 99, i), 0);
	kvr_prefix__index_del(&x, 99, 25);
	for (uint32_t i = 1; i <= 50; i++)
		CU_ASSERT_EQUAL(there(99, i), i != 25);
	kvr_prefix__index_del(&x, 99, 25);
	CU_ASSERT_EQUAL(x.used, 49);
}

static void full_index_says_so(void)
{
	uint32_t n = 0;

	open_index();
	while (kvr_prefix__index_add(&x, UINT64_MAX, n + 1) == 0)
		n++;
	CU_ASSERT_EQUAL(
		n, PFX_SPARE * KVR_BUCKET); /* the last home and what lies behind, but the end */
	CU_ASSERT(!there(UINT64_MAX, n + 1));
	CU_ASSERT(there(UINT64_MAX, n));
}

int main(void)
{
	CU_TestInfo tests[] = {{"order", entries_survive_any_order},
			       {"crowding", entries_survive_crowding},
			       {"zero", tag_of_zero_is_an_entry},
			       {"behind", who_stands_behind_stays_found},
			       {"tags", equal_tags_are_told_apart_by_value},
			       {"full", full_index_says_so},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("prefix_index", tests);
}
