/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_telemetry.h"

#include <errno.h>
#include <string.h>

#include "kvr_test.h"

static struct kvr_telemetry_args a;

static void parameters_split_at_commas(void)
{
	CU_ASSERT_EQUAL(kvr_telemetry_args(&a, ""), 0);
	CU_ASSERT_EQUAL(a.n, 0);
	CU_ASSERT_EQUAL(kvr_telemetry_args(&a, "  "), 0);
	CU_ASSERT_EQUAL(a.n, 0);
	CU_ASSERT_EQUAL(kvr_telemetry_args(&a, "7"), 0);
	CU_ASSERT_EQUAL(a.n, 1);
	CU_ASSERT_EQUAL(kvr_telemetry_args(&a, " llama 70b , ,force "), 0);
	CU_ASSERT_EQUAL(a.n, 3);
	CU_ASSERT_STRING_EQUAL(kvr_telemetry_arg(&a, 0), "llama 70b");
	CU_ASSERT_PTR_NULL(kvr_telemetry_arg(&a, 1));
	CU_ASSERT_STRING_EQUAL(kvr_telemetry_arg(&a, 2), "force");
	CU_ASSERT_PTR_NULL(kvr_telemetry_arg(&a, 3));
	CU_ASSERT_TRUE(kvr_telemetry_arg_has(&a, 1, "force"));
	CU_ASSERT_FALSE(kvr_telemetry_arg_has(&a, 3, "force"));
	CU_ASSERT_FALSE(kvr_telemetry_arg_has(&a, 0, "forc"));
}

static void too_many_or_too_long_is_rejected(void)
{
	char text[600];

	memset(text, ',', sizeof(text));
	text[15] = '\0';
	CU_ASSERT_EQUAL(kvr_telemetry_args(&a, text), 0); /* 16 empty arguments */
	CU_ASSERT_EQUAL(a.n, 16);
	text[15] = ',';
	text[16] = '\0';
	CU_ASSERT_EQUAL(kvr_telemetry_args(&a, text), -E2BIG);
	memset(text, 'x', sizeof(text));
	text[511] = '\0';
	CU_ASSERT_EQUAL(kvr_telemetry_args(&a, text), 0);
	text[511] = 'x';
	text[512] = '\0';
	CU_ASSERT_EQUAL(kvr_telemetry_args(&a, text), -E2BIG);
}

static void numbers_are_checked(void)
{
	static const struct {
		const char *text;
		int rc;
		uint64_t v;
	} c[] = {
		{"5", 0, 5},	     {"0x10", 0, 16},
		{"100", 0, 100},     {"18446744073709551616", -ERANGE, 0},
		{"101", -ERANGE, 0}, {"4", -ERANGE, 0},
		{"-5", -EINVAL, 0},  {"5x", -EINVAL, 0},
		{"0x", -EINVAL, 0},  {"x", -EINVAL, 0},
		{"", -ENOENT, 0},
	};

	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		uint64_t v = 0;

		CU_ASSERT_EQUAL(kvr_telemetry_args(&a, c[i].text), 0);
		CU_ASSERT_EQUAL(kvr_telemetry_arg_u64(&a, 0, 5, 100, &v), c[i].rc);
		CU_ASSERT_EQUAL(v, c[i].v);
	}
}

static void commands_are_rate_limited(void)
{
	uint64_t last = 0, now = UINT64_C(5000000000), wait = 0, total;

	for (uint32_t i = 0; i < KVR_TELEMETRY_BURST; i++)
		CU_ASSERT_EQUAL(kvr_telemetry_pace(&last, now), 0);
	for (uint32_t i = 1; i <= 3;
	     i++) /* a caller that does not wait for its slot waits longer */
		CU_ASSERT_EQUAL(kvr_telemetry_pace(&last, now), i * KVR_TELEMETRY_EACH_NS);
	now += 3 * KVR_TELEMETRY_EACH_NS;
	/*
	 * Ten callers that repeat as soon as they are served: one command each
	 * KVR_TELEMETRY_EACH_NS.
	 */
	for (total = 0; total < 1000; total++, now += wait)
		wait = kvr_telemetry_pace(&last, now);
	CU_ASSERT_EQUAL(now, UINT64_C(5000000000) + 1003 * KVR_TELEMETRY_EACH_NS);
	now += 2 * KVR_TELEMETRY_BURST *
	       KVR_TELEMETRY_EACH_NS; /* after a pause: one burst again, and no more */
	for (uint32_t i = 0; i < KVR_TELEMETRY_BURST; i++)
		CU_ASSERT_EQUAL(kvr_telemetry_pace(&last, now), 0);
	CU_ASSERT_NOT_EQUAL(kvr_telemetry_pace(&last, now), 0);
	last = 0;
	CU_ASSERT_EQUAL(kvr_telemetry_pace(&last, 0),
			KVR_TELEMETRY_EACH_NS); /* start of the clock */
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(parameters_split_at_commas),
			       KVR_CASE(too_many_or_too_long_is_rejected),
			       KVR_CASE(numbers_are_checked), KVR_CASE(commands_are_rate_limited),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("args", tests);
}
