/* SPDX-License-Identifier: BSD-3-Clause */
#include "body.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_json.h"
#include "kvr_test.h"

static void expect(enum agent_engine engine, const struct agent_leg *leg, const char *body,
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

static int64_t fails(enum agent_engine engine, const struct agent_leg *leg, const char *body)
{
	char *out;
	const int64_t n = agent_body_leg(engine, leg, body, strlen(body), &out);

	CU_ASSERT_PTR_NULL(out);
	return n;
}

static void a_prefill_of_vllm_makes_one_token_and_keeps_the_blocks(void)
{
	static const struct agent_leg leg = {.leg = KVR_ROLE_PREFILL};

	expect(AGENT_VLLM, &leg,
	       "{\"prompt\": [1, 2],\"max_tokens\":500, \"stream\" : true,\"stream_options\":{}, "
	       "\"min_tokens\":3,\"x\":\"\\u00e9\"}",
	       "{\"prompt\": [1, 2],\"max_tokens\":1, \"stream\" : false,\"x\":\"\\u00e9\","
	       "\"max_completion_tokens\":1,\"ignore_eos\":true," KEEPS "}");
}

/* Whatever the one token is: an engine keeps blocks only for another one when the length was the
 * end. */
static void a_prefill_of_vllm_ends_by_its_length(void)
{
	static const struct agent_leg leg = {.leg = KVR_ROLE_PREFILL};

	expect(AGENT_VLLM, &leg,
	       "{\"stop\":[\".\"],\"a\":1,\"stop_token_ids\":[2],\"ignore_eos\":false,\"n\":2}",
	       "{\"a\":1,\"ignore_eos\":true,\"max_tokens\":1,\"max_completion_tokens\":1,"
	       "\"stream\":false," KEEPS "}");
}

/* The limit has another name there. */
static void a_prefill_of_a_response_makes_one_token(void)
{
	static const struct agent_leg leg = {.leg = KVR_ROLE_PREFILL, .responses = true};

	expect(AGENT_VLLM, &leg,
	       "{\"input\":\"x\",\"max_output_tokens\":500,\"background\":true,\"stream\":true}",
	       "{\"input\":\"x\",\"max_output_tokens\":1,\"stream\":false,\"ignore_eos\":"
	       "true," KEEPS "}");
	expect(AGENT_VLLM, &leg, "{\"input\":\"x\"}",
	       "{\"input\":\"x\",\"max_output_tokens\":1,\"stream\":false,\"ignore_eos\":"
	       "true," KEEPS "}");
}

static void a_decode_of_vllm_gets_the_result_and_its_own_limit(void)
{
	static const char result[] = "{\"do_remote_decode\":true,\"do_remote_prefill\":false,"
				     "\"remote_block_ids\":[[1,2]],\"new\":{\"a\":[null]}}";
	const struct agent_leg leg = {
		.leg = KVR_ROLE_DECODE, .result = result, .result_len = sizeof(result) - 1};

	expect(AGENT_VLLM, &leg, "{\"max_tokens\":500,\"stream\":true}",
	       "{\"max_tokens\":500,\"stream\":true,\"kv_transfer_params\":{"
	       "\"do_remote_decode\":false,\"do_remote_prefill\":true,"
	       "\"remote_block_ids\":[[1,2]],\"new\":{\"a\":[null]}}}");
}

static void legs_of_sglang_meet(void)
{
	struct agent_leg leg = {.leg = KVR_ROLE_PREFILL,
				.bootstrap_host = "10.0.0.7",
				.bootstrap_port = 8998,
				.bootstrap_room = INT64_MAX};

	expect(AGENT_SGLANG, &leg, "{\"max_tokens\":500}",
	       "{\"max_tokens\":500,\"bootstrap_host\":\"10.0.0.7\",\"bootstrap_port\":8998,"
	       "\"bootstrap_room\":9223372036854775807}");
	leg.leg = KVR_ROLE_DECODE;
	leg.prefill_ranks = 4;
	leg.bootstrap_room = 10;
	expect(AGENT_SGLANG, &leg, "{}",
	       "{\"bootstrap_host\":\"10.0.0.7\",\"bootstrap_port\":8998,\"bootstrap_room\":10,"
	       "\"disagg_prefill_dp_rank\":2}");
}

static void what_cannot_be_a_leg_is_refused(void)
{
	const struct agent_leg no_result = {.leg = KVR_ROLE_DECODE};
	const struct agent_leg bad_result = {
		.leg = KVR_ROLE_DECODE, .result = "[1]", .result_len = 3};
	const struct agent_leg prefill = {.leg = KVR_ROLE_PREFILL};

	CU_ASSERT_EQUAL(fails(AGENT_VLLM, &no_result, "{}"), -EINVAL);
	CU_ASSERT_EQUAL(fails(AGENT_VLLM, &bad_result, "{}"), -EPROTO);
	CU_ASSERT_EQUAL(fails(AGENT_SGLANG, &prefill, "{}"), -EINVAL);
	CU_ASSERT_EQUAL(fails(AGENT_VLLM, &prefill, "[1]"), -EBADMSG);
	CU_ASSERT_EQUAL(fails(AGENT_VLLM, &prefill, "{\"a\":"), -EBADMSG);
	CU_ASSERT_EQUAL(fails(AGENT_VLLM, &prefill, ""), -EBADMSG);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"a prefill of vLLM makes one token and keeps the blocks",
		 a_prefill_of_vllm_makes_one_token_and_keeps_the_blocks},
		{"a prefill of vLLM ends by its length", a_prefill_of_vllm_ends_by_its_length},
		{"a prefill of a response makes one token",
		 a_prefill_of_a_response_makes_one_token},
		{"a decode of vLLM gets the result and its own limit",
		 a_decode_of_vllm_gets_the_result_and_its_own_limit},
		{"legs of SGLang meet", legs_of_sglang_meet},
		{"what cannot be a leg is refused", what_cannot_be_a_leg_is_refused},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("body", tests);
}
