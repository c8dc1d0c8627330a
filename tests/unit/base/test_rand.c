/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_rand.h"

#include "kvr_test.h"

static void same_seed_same_numbers(void)
{
	struct kvr_rand a, b;

	kvr_rand_init(&a, 42);
	kvr_rand_init(&b, 42);
	for (int i = 0; i < 100; i++)
		CU_ASSERT_EQUAL(kvr_rand_u64(&a), kvr_rand_u64(&b));
	kvr_rand_init(&b, 43);
	CU_ASSERT_NOT_EQUAL(kvr_rand_u64(&a), kvr_rand_u64(&b));
}

static void matches_published_splitmix64(void)
{
	/* First outputs for seed 1234567 of the reference implementation (Vigna, prng.di.unimi.it).
	 */
	struct kvr_rand r;

	kvr_rand_init(&r, 1234567);
	CU_ASSERT_EQUAL(kvr_rand_u64(&r), UINT64_C(6457827717110365317));
	CU_ASSERT_EQUAL(kvr_rand_u64(&r), UINT64_C(3203168211198807973));
}

static void below_is_uniform_and_in_range(void)
{
	uint32_t seen[7] = {0};
	struct kvr_rand r;

	kvr_rand_init(&r, 1);
	for (int i = 0; i < 70000; i++) {
		uint32_t v = kvr_rand_below(&r, 7);

		CU_ASSERT_FATAL(v < 7);
		seen[v]++;
	}
	for (int i = 0; i < 7; i++)
		CU_ASSERT(seen[i] > 9500 && seen[i] < 10500);
	CU_ASSERT_EQUAL(kvr_rand_below(&r, 1), 0);
}

static void unit_stays_below_one(void)
{
	struct kvr_rand r;
	double sum = 0;

	kvr_rand_init(&r, 9);
	for (int i = 0; i < 100000; i++) {
		double u = kvr_rand_unit(&r);

		CU_ASSERT_FATAL(u >= 0.0 && u < 1.0);
		sum += u;
	}
	CU_ASSERT_DOUBLE_EQUAL(sum / 100000, 0.5, 0.01);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(same_seed_same_numbers),
			       KVR_CASE(matches_published_splitmix64),
			       KVR_CASE(below_is_uniform_and_in_range),
			       KVR_CASE(unit_stays_below_one), CU_TEST_INFO_NULL};

	return kvr_test_run("rand", tests);
}
