/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Fingerprints of heads against a list: a present one is always reported, and few absent ones are.
 */

#include "fingerprint_pvt.h"
#include "kvr_rand.h"
#include "kvr_test.h"

#define MAX 60u /* four times the places of a set */

static struct pfx_fingerprints set;
static uint64_t hashes[MAX];
static uint32_t n;

static void add_hash(uint64_t mix)
{
	hashes[n++] = mix;
	pfx_fingerprints_update(&set, mix, true);
}

static void remove_hash(uint32_t i)
{
	pfx_fingerprints_update(&set, hashes[i], false);
	hashes[i] = hashes[--n];
}

static void assert_all_reported(void)
{
	for (uint32_t i = 0; i < n; i++)
		CU_ASSERT_FATAL(pfx_fingerprints_match(&set, hashes[i]));
}

/* Number of 255 different fingerprints that the set reports as present. */
static uint32_t count_reported(void)
{
	uint32_t k = 0;

	for (uint64_t mix = 1; mix < 256; mix++)
		k += pfx_fingerprints_match(&set, mix);
	return k;
}

static void run_random_mix(uint32_t most, uint64_t fingerprints)
{
	struct kvr_rand r = {most + fingerprints};

	for (uint32_t i = 0; i < 100000; i++) {
		if (n < most && kvr_rand_below(&r, 2) == 0)
			add_hash(kvr_rand_u64(&r) % fingerprints);
		else if (n > 0)
			remove_hash(kvr_rand_below(&r, n));
		assert_all_reported();
		if (n == 0)
			CU_ASSERT_EQUAL_FATAL(count_reported(), 0);
	}
	while (n > 0)
		remove_hash(n - 1);
	CU_ASSERT_EQUAL(set.w[0], 0);
	CU_ASSERT_EQUAL(set.w[1], 0);
}

static void present_hashes_are_reported(void)
{
	run_random_mix(15, 1u << 20);
}

static void a_set_may_overflow(void)
{
	run_random_mix(MAX, 1u << 20);
}

static void equal_fingerprints_are_counted(void)
{
	run_random_mix(MAX, 3);
}

static void a_set_reports_only_its_fingerprints(void)
{
	for (uint32_t i = 1; i <= 15; i++) {
		add_hash(i * 17);
		CU_ASSERT_EQUAL(count_reported(), i);
	}
	add_hash(3);
	CU_ASSERT_EQUAL(count_reported(), 255); /* the set has no place for it */
	remove_hash(15);
	CU_ASSERT_EQUAL(count_reported(), 15);
	while (n > 0)
		remove_hash(0);
	CU_ASSERT_EQUAL(count_reported(), 0);
	/* A fingerprint of 0 marks a free place. */
	add_hash(UINT64_C(0x100));
	CU_ASSERT(pfx_fingerprints_match(&set, UINT64_C(0x100)));
	CU_ASSERT_EQUAL(count_reported(), 1);
	remove_hash(0);
	CU_ASSERT_EQUAL(count_reported(), 0);
}

static void a_saturated_count_stays(void)
{
	for (uint32_t i = 0; i < 300; i++)
		pfx_fingerprints_update(&set, i, true);
	for (uint32_t i = 0; i < 300; i++)
		pfx_fingerprints_update(&set, i, false);
	CU_ASSERT_EQUAL(count_reported(), 255);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(present_hashes_are_reported),
			       KVR_CASE(a_set_may_overflow),
			       KVR_CASE(equal_fingerprints_are_counted),
			       KVR_CASE(a_set_reports_only_its_fingerprints),
			       KVR_CASE(a_saturated_count_stays),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("prefix_fingerprint", tests);
}
