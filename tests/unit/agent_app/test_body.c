/* SPDX-License-Identifier: BSD-3-Clause */
#include "body.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_json.h"
#include "kvr_test.h"

static void check_body(enum agent_engine engine, const struct agent_leg *leg, const char *body,
		       const char *want)
{
	char *out;
	const int64_t n = agent_body_leg(engine, leg, body, strlen(body), &out);

	CU_ASSERT_EQUAL(n, (int64_t)strlen(want));
	CU_ASSERT(n > 0 && memcmp(out, want, (size_t)n) == 0);
	if (n <= 0 || memcmp(out, want, (size_t)n) != 0)
		fprintf(stderr, "\n%.*s\n%s\n", (int)n, out, want);
	free(out);
}

#define KEEPS                                                                                      \
	"\"kv_transfer_params\":{\"do_remote_decode\":true,\"do_remote_prefill\":false,"           \
	"\"remote_engine_id\":null,\"remote_block_ids\":null,\"remote_host\":null,"                \
	"\"remote_port\":null}"

static int64_t check_failure(enum agent_engine engine, const struct agent_leg *leg,
			     const char *body)
{
	char *out;
	const int64_t n = agent_body_leg(engine, leg, body, strlen(body), &out);

	CU_ASSERT_PTR_NULL(out);
	return n;
}

static void a_vllm_prefill_generates_one_token_and_keeps_blocks(void)
{
	static const struct agent_leg leg = {.leg = KVR_ROLE_PREFILL};

	check_body(
		AGENT_VLLM, &leg,
		"{\"prompt\": [1, 2],\"max_tokens\":500, \"stream\" : true,\"stream_options\":{}, \"min_tokens\":3,\"x\":\"\\u00e9\"}",
		"{\"prompt\": [1, 2],\"max_tokens\":1, \"stream\" : false,\"x\":\"\\u00e9\",\"max_completion_tokens\":1,\"ignore_eos\":true," KEEPS
		"}");
}

/* Regardless of the generated token, an engine keeps blocks for another engine only if the length
 * was the end. */
static void a_vllm_prefill_ends_by_its_length(void)
{
	static const struct agent_leg leg = {.leg = KVR_ROLE_PREFILL};

	check_body(
		AGENT_VLLM, &leg,
		"{\"stop\":[\".\"],\"a\":1,\"stop_token_ids\":[2],\"ignore_eos\":false,\"n\":2}",
		"{\"a\":1,\"ignore_eos\":true,\"max_tokens\":1,\"max_completion_tokens\":1,\"stream\":false," KEEPS
		"}");
}

/* The Responses API names the limit differently. */
static void a_prefill_of_the_responses_api_generates_one_token(void)
{
	static const struct agent_leg leg = {.leg = KVR_ROLE_PREFILL, .responses = true};

	check_body(
		AGENT_VLLM, &leg,
		"{\"input\":\"x\",\"max_output_tokens\":500,\"background\":true,\"stream\":true}",
		"{\"input\":\"x\",\"max_output_tokens\":1,\"stream\":false,\"ignore_eos\":true," KEEPS
		"}");
	check_body(
		AGENT_VLLM, &leg, "{\"input\":\"x\"}",
		"{\"input\":\"x\",\"max_output_tokens\":1,\"stream\":false,\"ignore_eos\":true," KEEPS
		"}");
}

static void a_vllm_decode_has_the_result_and_its_own_limit(void)
{
	static const char result[] =
		"{\"do_remote_decode\":true,\"do_remote_prefill\":false,\"remote_block_ids\":[[1,2]],\"new\":{\"a\":[null]}}";
	const struct agent_leg leg = {
		.leg = KVR_ROLE_DECODE, .result = result, .result_len = sizeof(result) - 1};

	check_body(
		AGENT_VLLM, &leg, "{\"max_tokens\":500,\"stream\":true}",
		"{\"max_tokens\":500,\"stream\":true,\"kv_transfer_params\":{\"do_remote_decode\":false,\"do_remote_prefill\":true,\"remote_block_ids\":[[1,2]],\"new\":{\"a\":[null]}}}");
}

static void legs_of_sglang_have_a_bootstrap_room(void)
{
	struct agent_leg leg = {.leg = KVR_ROLE_PREFILL,
				.bootstrap_host = "10.0.0.7",
				.bootstrap_port = 8998,
				.bootstrap_room = INT64_MAX};

	check_body(
		AGENT_SGLANG, &leg, "{\"max_tokens\":500}",
		"{\"max_tokens\":500,\"bootstrap_host\":\"10.0.0.7\",\"bootstrap_port\":8998,\"bootstrap_room\":9223372036854775807}");
	leg.leg = KVR_ROLE_DECODE;
	leg.prefill_ranks = 4;
	leg.bootstrap_room = 10;
	check_body(
		AGENT_SGLANG, &leg, "{}",
		"{\"bootstrap_host\":\"10.0.0.7\",\"bootstrap_port\":8998,\"bootstrap_room\":10,\"disagg_prefill_dp_rank\":2}");
}

static void impossible_legs_are_errors(void)
{
	const struct agent_leg no_result = {.leg = KVR_ROLE_DECODE};
	const struct agent_leg bad_result = {
		.leg = KVR_ROLE_DECODE, .result = "[1]", .result_len = 3};
	const struct agent_leg prefill = {.leg = KVR_ROLE_PREFILL};

	CU_ASSERT_EQUAL(check_failure(AGENT_VLLM, &no_result, "{}"), -EINVAL);
	CU_ASSERT_EQUAL(check_failure(AGENT_VLLM, &bad_result, "{}"), -EPROTO);
	CU_ASSERT_EQUAL(check_failure(AGENT_SGLANG, &prefill, "{}"), -EINVAL);
	CU_ASSERT_EQUAL(check_failure(AGENT_VLLM, &prefill, "[1]"), -EBADMSG);
	CU_ASSERT_EQUAL(check_failure(AGENT_VLLM, &prefill, "{\"a\":"), -EBADMSG);
	CU_ASSERT_EQUAL(check_failure(AGENT_VLLM, &prefill, ""), -EBADMSG);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(a_vllm_prefill_generates_one_token_and_keeps_blocks),
		KVR_CASE(a_vllm_prefill_ends_by_its_length),
		KVR_CASE(a_prefill_of_the_responses_api_generates_one_token),
		KVR_CASE(a_vllm_decode_has_the_result_and_its_own_limit),
		KVR_CASE(legs_of_sglang_have_a_bootstrap_room),
		KVR_CASE(impossible_legs_are_errors),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("body", tests);
}
