/* SPDX-License-Identifier: BSD-3-Clause */
#include "errors.h"

#include <string.h>

#include "kvr_json.h"
#include "kvr_test.h"

/* Statuses that monitoring and client libraries depend on. */
static void codes_have_the_statuses_of_the_openai_api(void)
{
	static const struct {
		unsigned int code;
		int status;
	} rows[] = {
		{KVR_E_HINT, 400},
		{KVR_E_INVALID_REQUEST, 400},
		{KVR_E_PROMPT_TOO_LONG, 400},
		{KVR_E_UNKNOWN_POOL, 404},
		{KVR_E_UNKNOWN_SESSION, 404},
		{KVR_E_TOO_LARGE, 413},
		{KVR_E_RATE_LIMITED, 429},
		{KVR_E_SOURCE_LIMIT, 429},
		{KVR_E_QUEUE_REJECTED, 429},
		{KVR_E_SESSION_LIMIT, 429},
		{KVR_E_WORKER_LOST, 502},
		{KVR_E_PREFILL_FAILED, 502},
		{KVR_E_DISPATCH_FAILED, 502},
		{KVR_E_NO_ENDPOINTS, 503},
		{KVR_E_BUSY, 503},
		{KVR_E_SHUTDOWN, 503},
		{KVR_E_ALL_OVERLOADED, 529},
		{KVR_E_PINNED_OVERLOADED, 529},
		{KVR_E_VERSION, 502},
		{9999, 502},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		CU_ASSERT_EQUAL(gw_error_code(rows[i].code, false).status, rows[i].status);
}

static void rejections_of_a_prefill_engine_are_client_errors(void)
{
	static const struct {
		uint64_t detail;
		int status;
	} rows[] = {{400, 400}, {404, 404}, {413, 413}, {0, 502},
		    {408, 502}, {500, 502}, {503, 502}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct kvr_client_end end = {.reason = KVR_CLIENT_REJECTED,
						   .code = KVR_E_PREFILL_FAILED,
						   .retryable = true,
						   .detail = {rows[i].detail}};
		const struct gw_error e = gw_error_refused(&end);

		CU_ASSERT_EQUAL(e.status, rows[i].status);
		CU_ASSERT_EQUAL(e.retry_s, rows[i].status == 502);
	}
}

static void retryable_errors_have_retry_after(void)
{
	CU_ASSERT_EQUAL(gw_error_code(KVR_E_RATE_LIMITED, true).retry_s, 1);
	CU_ASSERT_EQUAL(gw_error_code(KVR_E_NO_ENDPOINTS, false).retry_s, 0);
	CU_ASSERT_EQUAL(gw_error_code(KVR_E_NO_ENDPOINTS, true).retry_s, 1);
	/* The rejection's own value counts, not the table's. */
	CU_ASSERT_EQUAL(gw_error_code(KVR_E_HINT, true).retry_s, 1);
}

static void every_code_and_fault_makes_json(void)
{
	char buf[512], want[64];
	struct kvr_json_value root, v;

	for (unsigned int i = 0; i < KVR_E_MAX; i++) {
		const struct gw_error e = gw_error_code(i, false);
		const size_t n = gw_error_json(&e, "say \"why\"\n", buf, sizeof(buf));

		CU_ASSERT_EQUAL_FATAL(kvr_json_parse(buf, n, &root, NULL), 0);
		CU_ASSERT(kvr_json_get(&root, "error.message", &v));
		CU_ASSERT(kvr_json_equals(&v, "say \"why\"\n"));
		CU_ASSERT(kvr_json_get(&root, "error.code", &v));
		CU_ASSERT(kvr_json_string(&v, want, sizeof(want)) > 0);
	}
	for (unsigned int i = 0; i < GW_FAULTS; i++) {
		const struct gw_error *e = gw_error_fault((enum gw_fault)i);
		const size_t n =
			gw_error_json(e, gw_error_text((enum gw_fault)i), buf, sizeof(buf));

		CU_ASSERT(e->status >= 400 && e->status < 600);
		CU_ASSERT_EQUAL(kvr_json_parse(buf, n, &root, NULL), 0);
	}
}

static void a_message_that_does_not_fit_is_omitted(void)
{
	struct kvr_json_value root, v;
	char buf[256], long_text[1000];
	size_t n;

	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	n = gw_error_json(gw_error_fault(GW_BAD_REQUEST), long_text, buf, sizeof(buf));
	CU_ASSERT_EQUAL_FATAL(kvr_json_parse(buf, n, &root, NULL), 0);
	CU_ASSERT(kvr_json_get(&root, "error.message", &v) && kvr_json_equals(&v, "error"));
	n = gw_error_json(gw_error_fault(GW_BAD_REQUEST), "\xff", buf, sizeof(buf));
	CU_ASSERT_EQUAL(kvr_json_parse(buf, n, &root, NULL), 0);
}

static void every_end_reason_has_a_fault(void)
{
	CU_ASSERT_EQUAL(gw_error_reason(KVR_CLIENT_TIMEOUT), GW_TIMED_OUT);
	CU_ASSERT_EQUAL(gw_error_reason(KVR_CLIENT_LOST), GW_ROUTER_LOST);
	CU_ASSERT_EQUAL(gw_error_reason(KVR_CLIENT_SILENT), GW_NO_ROUTER);
	CU_ASSERT_EQUAL(gw_error_reason(KVR_CLIENT_FAILED), GW_ENGINE_FAILED);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(codes_have_the_statuses_of_the_openai_api),
			       KVR_CASE(rejections_of_a_prefill_engine_are_client_errors),
			       KVR_CASE(retryable_errors_have_retry_after),
			       KVR_CASE(every_code_and_fault_makes_json),
			       KVR_CASE(a_message_that_does_not_fit_is_omitted),
			       KVR_CASE(every_end_reason_has_a_fault),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("gateway errors", tests);
}
