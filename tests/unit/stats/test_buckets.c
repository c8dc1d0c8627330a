/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_buckets.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "kvr_test.h"

static const struct kvr_buckets_def ttft = {
	"x_time_to_first_token_seconds", "seconds", "h", 1e9, KVR_BUCKETS_LOG, 0.001, 480, 18};
static const struct kvr_buckets_def isl = {"x_input_sequence_tokens", "tokens", "h",	1,
					   KVR_BUCKETS_LOG,	      50,	128000, 12};
static const struct kvr_buckets_def hit = {"x_kv_hit_rate",    "ratio", "h",  KVR_RATIO_PARTS,
					   KVR_BUCKETS_LINEAR, 0,	0.05, 21};
static const struct kvr_buckets_def few = {"x_few_seconds", "seconds", "h", 1e9,
					   KVR_BUCKETS_EXP, 0.000001,  2,   3};

static struct kvr_buckets init_buckets(const struct kvr_buckets_def *def)
{
	struct kvr_buckets buckets;

	CU_ASSERT_EQUAL_FATAL(kvr_buckets_init(&buckets, def), 0);
	return buckets;
}

/* The bounds of the reference system: step i of n - 1 from a to b, rounded to two digits. */
static void bounds_match_the_reference(void)
{
	static const double is_ttft[] = {0,   0.0022, 0.0047, 0.01, 0.022, 0.047, 0.1, 0.22, 0.47,
					 1.0, 2.2,    4.7,    10,   22,	   47,	  100, 220,  480};
	static const double is_isl[] = {0,    100,  210,   430,	  870,	 1800,
					3600, 7400, 15000, 31000, 63000, 130000};
	struct kvr_buckets buckets = init_buckets(&ttft);

	CU_ASSERT_EQUAL_FATAL(buckets.n, 18);
	for (uint32_t i = 0; i < 18; i++) {
		CU_ASSERT(fabs(buckets.le[i] - is_ttft[i]) < 0.06 * is_ttft[i] + 1e-12);
		CU_ASSERT_EQUAL(buckets.bound[i], (uint64_t)llround(buckets.le[i] * 1e9));
		/* two digits */
		if (i > 0) {
			const double f = pow(10, 1 - floor(log10(buckets.le[i])));

			CU_ASSERT(fabs(buckets.le[i] * f - round(buckets.le[i] * f)) < 1e-9);
		}
	}
	CU_ASSERT_EQUAL(buckets.le[17], 480);
	buckets = init_buckets(&isl);
	CU_ASSERT_EQUAL_FATAL(buckets.n, 12);
	for (uint32_t i = 0; i < 12; i++)
		CU_ASSERT_EQUAL(buckets.bound[i], (uint64_t)is_isl[i]);
	buckets = init_buckets(&hit);
	CU_ASSERT_EQUAL_FATAL(buckets.n, 21);
	for (uint32_t i = 0; i < 21; i++)
		CU_ASSERT_EQUAL(buckets.bound[i], 64 * i);
}

static void bad_definitions_are_rejected(void)
{
	const struct kvr_buckets_def bad[] = {
		{"x", "", "", 1, KVR_BUCKETS_LINEAR, 0, 1, 1},
		{"x", "", "", 1, KVR_BUCKETS_LINEAR, 0, 1, KVR_BUCKETS_MAX + 1},
		{"x", "", "", 0, KVR_BUCKETS_LINEAR, 0, 1, 3},
		{"x", "", "", 1, KVR_BUCKETS_LINEAR, 5, -1, 3},
		{"x", "", "", 1e18, KVR_BUCKETS_LINEAR, 0, 10, 3},
	};
	struct kvr_buckets buckets;

	for (size_t i = 0; i < RTE_DIM(bad); i++)
		CU_ASSERT_EQUAL(kvr_buckets_init(&buckets, &bad[i]), -EINVAL);
	/* equal after rounding: merged */
	CU_ASSERT_EQUAL(
		kvr_buckets_init(&buckets, &(struct kvr_buckets_def){"x", "", "", 1,
								     KVR_BUCKETS_LOG, 1, 1.2, 20}),
		0);
	CU_ASSERT_EQUAL(buckets.n, 4); /* 0, 1.0, 1.1, 1.2 */
}

/* Values around every bound go into the bucket that a linear search finds. */
static void a_value_goes_into_the_first_matching_bucket(void)
{
	const struct kvr_buckets_def *defs[] = {&ttft, &isl, &hit, &few};

	for (size_t d = 0; d < RTE_DIM(defs); d++) {
		const struct kvr_buckets buckets = init_buckets(defs[d]);

		for (uint32_t i = 0; i < buckets.n; i++)
			for (int off = -1; off <= 1; off++) {
				const uint64_t v =
					buckets.bound[i] +
					(uint64_t)(off < 0 && buckets.bound[i] == 0 ? 0 : off);
				uint32_t want = 0;

				while (want < buckets.n && buckets.bound[want] < v)
					want++;
				CU_ASSERT_EQUAL(kvr_buckets_find(&buckets, v, 1), want);
				CU_ASSERT_EQUAL(kvr_buckets_at(&buckets, v), want);
				CU_ASSERT_EQUAL(kvr_buckets_find(&buckets, 7 * v, 7), want);
			}
		for (uint32_t bits = 0; bits < 64; bits++)
			for (int off = -1; off <= 1; off++) {
				const uint64_t v = (UINT64_C(1) << bits) + (uint64_t)off;

				CU_ASSERT_EQUAL(kvr_buckets_at(&buckets, v),
						kvr_buckets_find(&buckets, v, 1));
			}
		CU_ASSERT_EQUAL(kvr_buckets_at(&buckets, UINT64_MAX), buckets.n);
		CU_ASSERT_EQUAL(kvr_buckets_find(&buckets, UINT64_MAX, 1), buckets.n);
		CU_ASSERT_EQUAL(kvr_buckets_find(&buckets, 0, 1), buckets.bound[0] == 0 ? 0 : 0);
	}
}

static void a_mean_counts_once_per_value(void)
{
	const struct kvr_buckets buckets = init_buckets(&few); /* 1, 2, 4 us */
	struct kvr_bucket_cells cells = {0};
	struct kvr_bucket_counts counts = {0};

	kvr_buckets_add_mean(&buckets, &cells, 6000, 3); /* 2 us each: into <= 2 us */
	kvr_buckets_add_mean(&buckets, &cells, 6001, 3); /* more than 2 us each */
	kvr_buckets_add(&buckets, &cells, 1000);
	kvr_buckets_add(&buckets, &cells, 5000);
	kvr_buckets_read(&cells, &counts);
	CU_ASSERT_EQUAL(counts.sum, 18001);
	CU_ASSERT_EQUAL(counts.count[0], 1);
	CU_ASSERT_EQUAL(counts.count[1], 3);
	CU_ASSERT_EQUAL(counts.count[2], 3);
	CU_ASSERT_EQUAL(counts.count[3], 1);
	CU_ASSERT_EQUAL(kvr_buckets_count(&buckets, &counts), 8);
	kvr_buckets_read(&cells, &counts); /* adds */
	CU_ASSERT_EQUAL(kvr_buckets_count(&buckets, &counts), 16);
	CU_ASSERT_EQUAL(counts.sum, 36002);
}

static void ratios_are_exact_without_a_division(void)
{
	CU_ASSERT_EQUAL(kvr_ratio_parts(0, 0), 0);
	CU_ASSERT_EQUAL(kvr_ratio_parts(5, 0), 0);
	CU_ASSERT_EQUAL(kvr_ratio_parts(0, 5), 0);
	CU_ASSERT_EQUAL(kvr_ratio_parts(1, UINT32_MAX), 1);
	CU_ASSERT_EQUAL(kvr_ratio_parts(UINT32_MAX, UINT32_MAX), KVR_RATIO_PARTS);
	CU_ASSERT_EQUAL(kvr_ratio_parts(UINT32_MAX, 1), 2 * KVR_RATIO_PARTS - 1);
	for (uint32_t den = 1; den < 300; den++)
		for (uint32_t num = 1; num <= 2 * den - 1; num++) {
			const uint32_t want =
				(uint32_t)(((uint64_t)num * KVR_RATIO_PARTS + den - 1) / den);

			if (kvr_ratio_parts(num, den) != RTE_MIN(want, 2 * KVR_RATIO_PARTS - 1))
				CU_FAIL_FATAL("wrong ratio");
		}
}

static void quantiles_are_bounds(void)
{
	const struct kvr_buckets buckets = init_buckets(&few);
	struct kvr_bucket_counts counts = {0};

	CU_ASSERT(isnan(kvr_buckets_quantile(&buckets, &counts, 0.5)));
	counts.count[0] = 50;
	counts.count[1] = 40;
	counts.count[2] = 9;
	counts.count[3] = 1;
	CU_ASSERT_EQUAL(kvr_buckets_quantile(&buckets, &counts, 0), buckets.le[0]);
	CU_ASSERT_EQUAL(kvr_buckets_quantile(&buckets, &counts, 0.5), buckets.le[0]);
	CU_ASSERT_EQUAL(kvr_buckets_quantile(&buckets, &counts, 0.51), buckets.le[1]);
	CU_ASSERT_EQUAL(kvr_buckets_quantile(&buckets, &counts, 0.99), buckets.le[2]);
	CU_ASSERT(isinf(kvr_buckets_quantile(&buckets, &counts, 1)));
}

static void the_text_is_prometheus(void)
{
	const struct kvr_buckets buckets = init_buckets(&few), h = init_buckets(&hit);
	struct kvr_bucket_counts counts[2] = {{.sum = 1500, .count = {1, 0, 2, 1}}, {0}};
	const char *labels[] = {"pool=\"a\"", "pool=\"b\""};
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	kvr_buckets_write(&buckets, counts, labels, 2, f);
	kvr_buckets_write(&buckets, counts, NULL, 1, f);
	fclose(f);
	CU_ASSERT_PTR_NOT_NULL_FATAL(strstr(
		text, "# HELP x_few_seconds h\n# TYPE x_few_seconds histogram\n"
		      "x_few_seconds_bucket{pool=\"a\",le=\"1e-06\"} 1\n"
		      "x_few_seconds_bucket{pool=\"a\",le=\"2e-06\"} 1\n"
		      "x_few_seconds_bucket{pool=\"a\",le=\"4e-06\"} 3\n"
		      "x_few_seconds_bucket{pool=\"a\",le=\"+Inf\"} 4\n"
		      "x_few_seconds_count{pool=\"a\"} 4\nx_few_seconds_sum{pool=\"a\"} 1.5e-06\n"
		      "x_few_seconds_bucket{pool=\"b\",le=\"1e-06\"} 0\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "x_few_seconds_bucket{le=\"+Inf\"} 4\n"
					    "x_few_seconds_count 4\nx_few_seconds_sum 1.5e-06\n"));
	free(text);
	f = open_memstream(&text, &len);
	kvr_buckets_write(&h, &counts[1], NULL, 1, f);
	fclose(f);
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "{le=\"0.0\"} 0\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "{le=\"0.15\"} 0\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "{le=\"1.0\"} 0\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "x_kv_hit_rate_sum 0.0\n"));
	free(text);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(bounds_match_the_reference),
		KVR_CASE(bad_definitions_are_rejected),
		KVR_CASE(a_value_goes_into_the_first_matching_bucket),
		KVR_CASE(a_mean_counts_once_per_value),
		KVR_CASE(ratios_are_exact_without_a_division),
		KVR_CASE(quantiles_are_bounds),
		KVR_CASE(the_text_is_prometheus),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("buckets", tests);
}
