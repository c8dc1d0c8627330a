/* SPDX-License-Identifier: BSD-3-Clause */

/* The writer's index against a list, with crowded buckets. Links without any DPDK library. */

#include "index_dp.c" /* not part of the public interface */
#include "kvr_rand.h"
#include "kvr_test.h"
#include <string.h>

#define BUCKETS 40u
#define MAX	340u

static uint64_t mem[(BUCKETS + 64) * PFX_BUCKET] __attribute__((aligned(64)));
static struct pfx_index x;
static uint32_t tag[MAX], used;

static void open_index(void)
{
	memset(mem, 0, sizeof(mem));
	x = (struct pfx_index){.e = mem, .buckets = BUCKETS, .end = (BUCKETS + 64) * PFX_BUCKET};
	used = 0;
}

static bool there(uint32_t t, uint32_t value)
{
	bool full;

	return place_of(&x, t, value, &full) != x.end;
}

/* Values are 1..used; the last one takes the place of one removed. */
static void all_are_there(void)
{
	for (uint32_t i = 0; i < used; i++)
		CU_ASSERT_FATAL(there(tag[i], i + 1));
	CU_ASSERT_EQUAL(x.used, used);
}

static void random_mix(uint32_t spread)
{
	struct kvr_rand r = {spread};

	open_index();
	for (uint32_t i = 0; i < 200000; i++) {
		uint32_t k = kvr_rand_below(&r, MAX);

		if (k >= used && used < MAX - 20) {
			tag[used] = (uint32_t)kvr_rand_u64(&r) % spread * (UINT32_MAX / spread);
			CU_ASSERT_EQUAL_FATAL(kvr_prefix__index_add(&x, tag[used], used + 1), 0);
			used++;
		} else if (used > 0) {
			k %= used;
			kvr_prefix__index_del(&x, tag[k], k + 1);
			CU_ASSERT_FATAL(!there(tag[k], k + 1));
			used--;
			if (k != used) {
				kvr_prefix__index_move(&x, tag[used], used + 1, k + 1);
				tag[k] = tag[used];
			}
		}
		if (i % 500 == 0)
			all_are_there();
	}
	all_are_there();
	while (used > 0) {
		used--;
		kvr_prefix__index_del(&x, tag[used], used + 1);
	}
	for (uint32_t i = 0; i < x.end; i++)
		CU_ASSERT_EQUAL(mem[i], 0);
}

static void entries_survive_any_order(void)
{
	random_mix(UINT32_MAX);
}

static void entries_survive_crowding(void)
{
	random_mix(7); /* a few homes only: everything is displaced */
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
	while (kvr_prefix__index_add(&x, UINT32_MAX, n + 1) == 0)
		n++;
	CU_ASSERT_EQUAL(n, 64 * PFX_BUCKET); /* the last home and what lies behind, but the end */
	CU_ASSERT(!there(UINT32_MAX, n + 1));
	CU_ASSERT(there(UINT32_MAX, n));
}

int main(void)
{
	CU_TestInfo tests[] = {{"order", entries_survive_any_order},
			       {"crowding", entries_survive_crowding},
			       {"tags", equal_tags_are_told_apart_by_value},
			       {"full", full_index_says_so},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("prefix_index", tests);
}
