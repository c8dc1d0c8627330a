/* SPDX-License-Identifier: BSD-3-Clause */

/* The writer's index against a list, with crowded buckets. Links without a DPDK library. */

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

static bool is_present(uint64_t hash, uint32_t value)
{
	return locate_value(&x, hash, value) != PFX_NOWHERE;
}

/* Values are 1..used; the last value replaces a removed one. */
static void assert_all_present(void)
{
	for (uint32_t i = 0; i < used; i++)
		CU_ASSERT_FATAL(is_present(mix[i], i + 1));
	CU_ASSERT_EQUAL(x.used, used);
}

/* A hash with one of `homes` home buckets and any tag. */
static uint64_t random_hash(struct kvr_rand *r, uint32_t homes)
{
	const uint64_t home = kvr_rand_u64(r) % homes * (UINT32_MAX / homes);

	return home << 32 | (kvr_rand_u64(r) & UINT32_MAX);
}

static void run_random_mix(uint32_t homes)
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
			CU_ASSERT_FATAL(!is_present(mix[k], k + 1));
			used--;
			if (k != used) {
				kvr_prefix__index_move(&x, mix[used], used + 1, k + 1);
				mix[k] = mix[used];
			}
		}
		if (i % 500 == 0)
			assert_all_present();
	}
	assert_all_present();
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
	run_random_mix(UINT32_MAX);
}

static void entries_survive_crowding(void)
{
	run_random_mix(7); /* few home buckets: nearly every entry is displaced */
}

/* A hash whose tag bits are 0: a tag of 0 marks a free place. */
static void a_tag_of_zero_is_an_entry(void)
{
	open_index();
	CU_ASSERT_EQUAL(kvr_prefix__index_add(&x, UINT64_C(5) << 32, 1), 0);
	CU_ASSERT(is_present(UINT64_C(5) << 32, 1));
	CU_ASSERT_EQUAL(x.used, 1);
	kvr_prefix__index_del(&x, UINT64_C(5) << 32, 1);
	CU_ASSERT(!is_present(UINT64_C(5) << 32, 1));
}

/* A place freed near the home bucket is reused, and entries displaced beyond it are still found. */
static void displaced_entries_stay_reachable(void)
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
	CU_ASSERT_EQUAL(PFX_AT_BUCKET(locate_value(&x, 77, 77)), 0);
	for (uint32_t i = 2 * KVR_BUCKET + 1; i <= 3 * KVR_BUCKET; i++) {
		CU_ASSERT(is_present(i, i));
		kvr_prefix__index_del(&x, i, i);
	}
	CU_ASSERT_EQUAL(mem[0].over, 0);
	CU_ASSERT_EQUAL(mem[1].over, 0);
}

static void values_distinguish_equal_tags(void)
{
	open_index();
	for (uint32_t i = 1; i <= 50; i++)
		CU_ASSERT_EQUAL(kvr_prefix__index_add(&x, 99, i), 0);
	kvr_prefix__index_del(&x, 99, 25);
	for (uint32_t i = 1; i <= 50; i++)
		CU_ASSERT_EQUAL(is_present(99, i), i != 25);
	kvr_prefix__index_del(&x, 99, 25);
	CU_ASSERT_EQUAL(x.used, 49);
}

static void a_full_index_returns_an_error(void)
{
	uint32_t n = 0;

	open_index();
	while (kvr_prefix__index_add(&x, UINT64_MAX, n + 1) == 0)
		n++;
	CU_ASSERT_EQUAL(n, PFX_SPARE * KVR_BUCKET); /* the last home bucket and the spare ones,
						       except the very last */
	CU_ASSERT(!is_present(UINT64_MAX, n + 1));
	CU_ASSERT(is_present(UINT64_MAX, n));
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(entries_survive_any_order),
			       KVR_CASE(entries_survive_crowding),
			       KVR_CASE(a_tag_of_zero_is_an_entry),
			       KVR_CASE(displaced_entries_stay_reachable),
			       KVR_CASE(values_distinguish_equal_tags),
			       KVR_CASE(a_full_index_returns_an_error),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("prefix_index", tests);
}
