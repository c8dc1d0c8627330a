/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_hist.h"

#include "kvr_test.h"
#include <string.h>

static struct kvr_hist h, g;

static void empty_histogram_reports_zero(void)
{
	memset(&h, 0, sizeof(h));
	CU_ASSERT_EQUAL(kvr_hist_quantile(&h, 0.5), 0);
	CU_ASSERT_EQUAL(kvr_hist_mean(&h), 0.0);
}

static void small_values_are_exact(void)
{
	memset(&h, 0, sizeof(h));
	for (uint64_t v = 0; v < 64; v++)
		kvr_hist_add(&h, v);
	CU_ASSERT_EQUAL(kvr_hist_quantile(&h, 0.0), 0);
	CU_ASSERT_EQUAL(kvr_hist_quantile(&h, 0.5), 31);
	CU_ASSERT_EQUAL(kvr_hist_quantile(&h, 1.0), 63);
	CU_ASSERT_DOUBLE_EQUAL(kvr_hist_mean(&h), 31.5, 1e-9);
}

static void every_value_is_known_to_four_percent(void)
{
	for (uint64_t v = 1; v < UINT64_C(1) << 62; v = v * 5 / 3 + 1) {
		uint64_t q;

		memset(&h, 0, sizeof(h));
		kvr_hist_add(&h, v);
		kvr_hist_add(&h, UINT64_MAX >> 1); /* so that max does not clamp the answer */
		q = kvr_hist_quantile(&h, 0.5);
		CU_ASSERT(q >= v - v / 25 && q <= v + v / 25);
	}
}

static void indices_stay_in_range_and_rise(void)
{
	uint32_t last = 0;

	for (uint64_t v = 1; v < UINT64_MAX / 3; v *= 2) {
		CU_ASSERT(kvr_hist_index(v) > last || v == 1);
		last = kvr_hist_index(v);
	}
	CU_ASSERT(kvr_hist_index(UINT64_MAX) == KVR_HIST_BUCKETS - 1);
}

static void merge_equals_adding_everything_to_one(void)
{
	static struct kvr_hist one;

	memset(&h, 0, sizeof(h));
	memset(&g, 0, sizeof(g));
	memset(&one, 0, sizeof(one));
	for (uint64_t v = 0; v < 100000; v += 7) {
		kvr_hist_add(v & 1 ? &h : &g, v * v);
		kvr_hist_add(&one, v * v);
	}
	kvr_hist_merge(&h, &g);
	CU_ASSERT_EQUAL(memcmp(&h, &one, sizeof(h)), 0);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(empty_histogram_reports_zero),
			       KVR_CASE(small_values_are_exact),
			       KVR_CASE(every_value_is_known_to_four_percent),
			       KVR_CASE(indices_stay_in_range_and_rise),
			       KVR_CASE(merge_equals_adding_everything_to_one),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("hist", tests);
}
