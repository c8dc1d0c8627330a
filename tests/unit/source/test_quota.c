/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_quota.h"

#include "kvr_test.h"
#include <errno.h>

#define V4(a) (UINT64_C(0xffff) << 32 | (a))

/* Take units one by one while the quota allows. @return their number. */
static uint32_t take_all_allowed(struct kvr_quota *quota, uint64_t key, uint32_t *free,
				 uint32_t ref[])
{
	uint32_t n = 0;

	while (*free > 0 && kvr_quota_allows(quota, key, 1, *free, NULL)) {
		ref[n++] = kvr_quota_take(quota, key, 1);
		--*free;
	}
	return n;
}

static void one_source_leaves_units_for_others(void)
{
	static uint32_t ref[3][1000];
	struct kvr_quota *quota = kvr_quota_create(900, 900, 2, 7);
	struct kvr_quota_state st;
	struct kvr_quota_top top[2];
	uint32_t free = 900, n[3], at = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(quota);
	n[0] = take_all_allowed(quota, V4(1), &free, ref[0]);
	CU_ASSERT_EQUAL(n[0], 563); /* two thirds of 15/16 */
	CU_ASSERT_FALSE(kvr_quota_allows(quota, V4(1), 1, free, &st));
	CU_ASSERT_EQUAL(st.held, 563);
	CU_ASSERT_EQUAL(st.limit, 562);
	n[1] = take_all_allowed(quota, V4(2), &free, ref[1]);
	CU_ASSERT_EQUAL(n[1], 188); /* two thirds of the rest of 15/16 */
	n[2] = take_all_allowed(quota, V4(3), &free, ref[2]);
	CU_ASSERT_EQUAL(n[2], 62);
	CU_ASSERT_EQUAL(kvr_quota_top(quota, &at, top, 0, 2), 2);
	CU_ASSERT_EQUAL(at, UINT32_MAX);
	CU_ASSERT_EQUAL(top[0].key, V4(1));
	CU_ASSERT_EQUAL(top[1].held, 188);
	/* Units that the first source returns are available to all. */
	for (uint32_t i = 0; i < n[0]; i++, free++)
		kvr_quota_return(quota, ref[0][i], 1);
	CU_ASSERT_EQUAL(kvr_quota_held(quota, V4(1)), 0);
	CU_ASSERT_TRUE(kvr_quota_allows(quota, V4(2), 1, free, NULL));
	kvr_quota_destroy(quota);
}

/*
 * Number of sources that it takes to exhaust the units, if they arrive one after the other and
 * return nothing.
 */
static uint32_t count_sources_to_exhaust(uint32_t n, uint32_t times)
{
	static uint32_t ref[16384];
	struct kvr_quota *quota = kvr_quota_create(n, n, times, 7);
	uint32_t free = n, sources = 0, last = UINT32_MAX;

	CU_ASSERT_PTR_NOT_NULL_FATAL(quota);
	while (free > 0) {
		const uint32_t got = take_all_allowed(quota, V4(sources + 1), &free, ref);

		CU_ASSERT_FATAL(got > 0 && got <= last);
		last = got;
		sources++;
	}
	if (n >= 16)
		CU_ASSERT_EQUAL(last, 1);
	kvr_quota_destroy(quota);
	return sources;
}

static void sources_that_return_nothing_leave_units(void)
{
	CU_ASSERT_EQUAL(count_sources_to_exhaust(1, 2), 1);
	/* Nothing is reserved of so few units. */
	CU_ASSERT_EQUAL(count_sources_to_exhaust(2, 2), 1);
	CU_ASSERT_EQUAL(count_sources_to_exhaust(4, 2), 2);
	CU_ASSERT_EQUAL(count_sources_to_exhaust(16, 2), 4);
	for (uint32_t times = 1; times < 5; times++) {
		CU_ASSERT_TRUE(count_sources_to_exhaust(64, times) >= 4);
		CU_ASSERT_TRUE(count_sources_to_exhaust(256, times) >= 16);
		CU_ASSERT_TRUE(count_sources_to_exhaust(1024, times) >= 64);
		CU_ASSERT_TRUE(count_sources_to_exhaust(16384, times) >= 280);
	}
	CU_ASSERT_EQUAL(count_sources_to_exhaust(16384, 2), 284);
}

static void networks_of_one_site_share_a_quota(void)
{
	static uint32_t ref[1000];
	struct kvr_quota *quota = kvr_quota_create(900, 900, 2, 7);
	uint32_t free = 900, n = 0, other;

	CU_ASSERT_PTR_NOT_NULL_FATAL(quota);
	for (uint64_t net = 0; net < 900; net++) {
		const uint64_t key = UINT64_C(0x20010db800070000) + net;

		if (!kvr_quota_allows(quota, key, 1, free, NULL))
			break;
		ref[n++] = kvr_quota_take(quota, key, 1);
		free--;
	}
	CU_ASSERT_EQUAL(n, 563);
	other = take_all_allowed(quota, UINT64_C(0x20010db800080000), &free, &ref[n]);
	CU_ASSERT_EQUAL(other, 188);
	for (uint32_t i = 0; i < n + other; i++)
		kvr_quota_return(quota, ref[i], 1);
	CU_ASSERT_EQUAL(kvr_quota_held(quota, UINT64_C(0x20010db800080000)), 0);
	kvr_quota_destroy(quota);
}

static void every_unit_may_have_its_own_source(void)
{
	static uint32_t ref[256];
	struct kvr_quota *quota = kvr_quota_create(256, 256, 0, 7);

	CU_ASSERT_PTR_NOT_NULL_FATAL(quota);
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 256; i++) {
			const uint64_t key = (UINT64_C(0x2001) << 48) + ((uint64_t)i << 16);

			CU_ASSERT_TRUE(kvr_quota_allows(quota, key, 1, 0, NULL)); /* 0: no limit */
			ref[i] = kvr_quota_take(quota, key, 1);
			CU_ASSERT_EQUAL(kvr_quota_held(quota, key), 1);
		}
		for (uint32_t i = 0; i < 256; i++)
			kvr_quota_return(quota, ref[i], 1);
	}
	kvr_quota_return(quota, 0, 1);
	kvr_quota_destroy(quota);
}

static void several_units_are_taken_and_returned_at_once(void)
{
	struct kvr_quota *quota = kvr_quota_create(100, 100, 1, 7);
	uint32_t a, b;

	CU_ASSERT_PTR_NOT_NULL_FATAL(quota);
	a = kvr_quota_take(quota, V4(9), 40);
	b = kvr_quota_take(quota, V4(9), 5);
	CU_ASSERT_EQUAL(a, b);
	CU_ASSERT_EQUAL(kvr_quota_held(quota, V4(9)), 45);
	CU_ASSERT_TRUE(kvr_quota_allows(quota, V4(9), 1, 55, NULL));
	CU_ASSERT_FALSE(kvr_quota_allows(quota, V4(9), 1, 45, NULL));
	CU_ASSERT_TRUE(kvr_quota_allows(quota, V4(9), 4, 55, NULL)); /* 100 - 6 - 45 */
	CU_ASSERT_FALSE(kvr_quota_allows(quota, V4(9), 5, 55, NULL));
	CU_ASSERT_FALSE(kvr_quota_allows(quota, V4(8), 2, 6, NULL)); /* of the reserved units */
	kvr_quota_return(quota, a, 40);
	CU_ASSERT_EQUAL(kvr_quota_held(quota, V4(9)), 5);
	kvr_quota_return(quota, b, 5);
	CU_ASSERT_EQUAL(kvr_quota_held(quota, V4(9)), 0);
	kvr_quota_destroy(quota);
}

static void sizes_are_checked(void)
{
	CU_ASSERT_PTR_NULL(kvr_quota_create(0, 1, 1, 1));
	CU_ASSERT_EQUAL(errno, EINVAL);
	CU_ASSERT_PTR_NULL(kvr_quota_create(1, 0, 1, 1));
	CU_ASSERT_EQUAL(errno, EINVAL);
	kvr_quota_destroy(NULL);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(one_source_leaves_units_for_others),
			       KVR_CASE(sources_that_return_nothing_leave_units),
			       KVR_CASE(networks_of_one_site_share_a_quota),
			       KVR_CASE(every_unit_may_have_its_own_source),
			       KVR_CASE(several_units_are_taken_and_returned_at_once),
			       KVR_CASE(sizes_are_checked),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("quota", tests);
}
