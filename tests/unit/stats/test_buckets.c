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

static struct kvr_buckets of(const struct kvr_buckets_def *d)
{
	struct kvr_buckets b;

	CU_ASSERT_EQUAL_FATAL(kvr_buckets_init(&b, d), 0);
	return b;
}

/* The values of the reference system's own rule: i of n - 1 steps from a to b, two digits. */
static void bounds_are_those_of_the_reference(void)
{
	static const double is_ttft[] = {0,   0.0022, 0.0047, 0.01, 0.022, 0.047, 0.1, 0.22, 0.47,
					 1.0, 2.2,    4.7,    10,   22,	   47,	  100, 220,  480};
	static const double is_isl[] = {0,    100,  210,   430,	  870,	 1800,
					3600, 7400, 15000, 31000, 63000, 130000};
	struct kvr_buckets b = of(&ttft);

	CU_ASSERT_EQUAL_FATAL(b.n, 18);
	for (uint32_t i = 0; i < 18; i++) {
		CU_ASSERT(fabs(b.le[i] - is_ttft[i]) < 0.06 * is_ttft[i] + 1e-12);
		CU_ASSERT_EQUAL(b.bound[i], (uint64_t)llround(b.le[i] * 1e9));
		/* two digits */
		if (i > 0) {
			const double f = pow(10, 1 - floor(log10(b.le[i])));

			CU_ASSERT(fabs(b.le[i] * f - round(b.le[i] * f)) < 1e-9);
		}
	}
	CU_ASSERT_EQUAL(b.le[17], 480);
	b = of(&isl);
	CU_ASSERT_EQUAL_FATAL(b.n, 12);
	for (uint32_t i = 0; i < 12; i++)
		CU_ASSERT_EQUAL(b.bound[i], (uint64_t)is_isl[i]);
	b = of(&hit);
	CU_ASSERT_EQUAL_FATAL(b.n, 21);
	for (uint32_t i = 0; i < 21; i++)
		CU_ASSERT_EQUAL(b.bound[i], 64 * i);
}

static void bad_definitions_are_refused(void)
{
	const struct kvr_buckets_def bad[] = {
		{"x", "", "", 1, KVR_BUCKETS_LINEAR, 0, 1, 1},
		{"x", "", "", 1, KVR_BUCKETS_LINEAR, 0, 1, KVR_BUCKETS_MAX + 1},
		{"x", "", "", 0, KVR_BUCKETS_LINEAR, 0, 1, 3},
		{"x", "", "", 1, KVR_BUCKETS_LINEAR, 5, -1, 3},
		{"x", "", "", 1e18, KVR_BUCKETS_LINEAR, 0, 10, 3},
	};
	struct kvr_buckets b;

	for (size_t i = 0; i < RTE_DIM(bad); i++)
		CU_ASSERT_EQUAL(kvr_buckets_init(&b, &bad[i]), -EINVAL);
	/* rounded to the same: once */
	CU_ASSERT_EQUAL(
		kvr_buckets_init(
			&b, &(struct kvr_buckets_def){"x", "", "", 1, KVR_BUCKETS_LOG, 1, 1.2, 20}),
		0);
	CU_ASSERT_EQUAL(b.n, 4); /* 0, 1.0, 1.1, 1.2 */
}

/* Every value around every bound goes where a walk over the bounds says. */
static void a_value_goes_into_the_first_bucket_that_holds_it(void)
{
	const struct kvr_buckets_def *defs[] = {&ttft, &isl, &hit, &few};

	for (size_t d = 0; d < RTE_DIM(defs); d++) {
		const struct kvr_buckets b = of(defs[d]);

		for (uint32_t i = 0; i < b.n; i++)
			for (int off = -1; off <= 1; off++) {
				const uint64_t v = b.bound[i] +
						   (uint64_t)(off < 0 && b.bound[i] == 0 ? 0 : off);
				uint32_t want = 0;

				while (want < b.n && b.bound[want] < v)
					want++;
				CU_ASSERT_EQUAL(kvr_buckets_find(&b, v, 1), want);
				CU_ASSERT_EQUAL(kvr_buckets_at(&b, v), want);
				CU_ASSERT_EQUAL(kvr_buckets_find(&b, 7 * v, 7), want);
			}
		for (uint32_t bits = 0; bits < 64; bits++)
			for (int off = -1; off <= 1; off++) {
				const uint64_t v = (UINT64_C(1) << bits) + (uint64_t)off;

				CU_ASSERT_EQUAL(kvr_buckets_at(&b, v), kvr_buckets_find(&b, v, 1));
			}
		CU_ASSERT_EQUAL(kvr_buckets_at(&b, UINT64_MAX), b.n);
		CU_ASSERT_EQUAL(kvr_buckets_find(&b, UINT64_MAX, 1), b.n);
		CU_ASSERT_EQUAL(kvr_buckets_find(&b, 0, 1), b.bound[0] == 0 ? 0 : 0);
	}
}

static void means_count_as_often_as_they_are_of(void)
{
	const struct kvr_buckets b = of(&few); /* 1, 2, 4 us */
	struct kvr_bucket_cells c = {0};
	struct kvr_bucket_counts v = {0};

	kvr_buckets_add_mean(&b, &c, 6000, 3); /* 2 us each: into <= 2 us */
	kvr_buckets_add_mean(&b, &c, 6001, 3); /* more */
	kvr_buckets_add(&b, &c, 1000);
	kvr_buckets_add(&b, &c, 5000);
	kvr_buckets_read(&c, &v);
	CU_ASSERT_EQUAL(v.sum, 18001);
	CU_ASSERT_EQUAL(v.count[0], 1);
	CU_ASSERT_EQUAL(v.count[1], 3);
	CU_ASSERT_EQUAL(v.count[2], 3);
	CU_ASSERT_EQUAL(v.count[3], 1);
	CU_ASSERT_EQUAL(kvr_buckets_count(&b, &v), 8);
	kvr_buckets_read(&c, &v); /* adds */
	CU_ASSERT_EQUAL(kvr_buckets_count(&b, &v), 16);
	CU_ASSERT_EQUAL(v.sum, 36002);
}

static void ratios_are_divided_without_a_division(void)
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
	const struct kvr_buckets b = of(&few);
	struct kvr_bucket_counts v = {0};

	CU_ASSERT(isnan(kvr_buckets_quantile(&b, &v, 0.5)));
	v.count[0] = 50;
	v.count[1] = 40;
	v.count[2] = 9;
	v.count[3] = 1;
	CU_ASSERT_EQUAL(kvr_buckets_quantile(&b, &v, 0), b.le[0]);
	CU_ASSERT_EQUAL(kvr_buckets_quantile(&b, &v, 0.5), b.le[0]);
	CU_ASSERT_EQUAL(kvr_buckets_quantile(&b, &v, 0.51), b.le[1]);
	CU_ASSERT_EQUAL(kvr_buckets_quantile(&b, &v, 0.99), b.le[2]);
	CU_ASSERT(isinf(kvr_buckets_quantile(&b, &v, 1)));
}

static void text_is_openmetrics(void)
{
	const struct kvr_buckets b = of(&few), h = of(&hit);
	struct kvr_bucket_counts v[2] = {{.sum = 1500, .count = {1, 0, 2, 1}}, {0}};
	const char *labels[] = {"pool=\"a\"", "pool=\"b\""};
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	kvr_buckets_openmetrics(&b, v, labels, 2, f);
	kvr_buckets_openmetrics(&b, v, NULL, 1, f);
	fclose(f);
	CU_ASSERT_PTR_NOT_NULL_FATAL(strstr(
		text, "# TYPE x_few_seconds histogram\n# UNIT x_few_seconds seconds\n"
		      "# HELP x_few_seconds h\n"
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
	kvr_buckets_openmetrics(&h, &v[1], NULL, 1, f);
	fclose(f);
	CU_ASSERT_PTR_NULL(strstr(text, "# UNIT")); /* its name does not end in its unit */
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "{le=\"0.0\"} 0\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "{le=\"0.15\"} 0\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "{le=\"1.0\"} 0\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "x_kv_hit_rate_sum 0.0\n"));
	free(text);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"bounds", bounds_are_those_of_the_reference},
		{"bad", bad_definitions_are_refused},
		{"find", a_value_goes_into_the_first_bucket_that_holds_it},
		{"means", means_count_as_often_as_they_are_of},
		{"ratios", ratios_are_divided_without_a_division},
		{"quantiles", quantiles_are_bounds},
		{"text", text_is_openmetrics},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("buckets", tests);
}
