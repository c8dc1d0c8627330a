/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests of clients as requests of engines. */
#include "kvr_engine_request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_test.h"

#define CHAT	  "POST /v1/chat/completions HTTP/1.1\r\n\r\n"
#define COMPLETE  "POST /v1/completions?a HTTP/1.1\r\n\r\n"
#define RESPONSES "POST /v1/responses HTTP/1.1\r\n\r\n"

static const struct kvr_engine_leg whole;

static int make_plan(enum kvr_engine_kind kind, const struct kvr_engine_leg *leg, const char *head,
		     const char *content, struct kvr_engine_plan *out)
{
	struct kvr_http_head h;
	const struct kvr_engine_request request = {.kind = kind,
						   .head = &h,
						   .content = content,
						   .content_len = strlen(content),
						   .leg = *leg,
						   .running_usage = true};

	CU_ASSERT_EQUAL_FATAL(kvr_http_parse_request(head, strlen(head), &h), 0);
	return kvr_engine_plan_request(&request, out);
}

static struct kvr_engine_plan expect_plan(enum kvr_engine_kind kind,
					  const struct kvr_engine_leg *leg, const char *head,
					  const char *content, enum kvr_engine_form form,
					  const char *want)
{
	struct kvr_engine_plan p;

	CU_ASSERT_EQUAL_FATAL(make_plan(kind, leg, head, content, &p), 0);
	CU_ASSERT_EQUAL(p.form, form);
	CU_ASSERT_EQUAL(p.content_len, strlen(want));
	CU_ASSERT(p.content_len == strlen(want) && memcmp(p.content, want, p.content_len) == 0);
	if (p.content_len != strlen(want) || memcmp(p.content, want, p.content_len) != 0)
		fprintf(stderr, "\n%.*s\n%s\n", (int)p.content_len, p.content, want);
	free(p.content);
	p.content = NULL;
	return p;
}

static void expect_error(enum kvr_engine_kind kind, const struct kvr_engine_leg *leg,
			 const char *content, int rc)
{
	struct kvr_engine_plan p;

	CU_ASSERT_EQUAL(make_plan(kind, leg, CHAT, content, &p), rc);
	CU_ASSERT_PTR_NULL(p.content);
}

/* ---- folding ---- */

#define OPTIONS "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}"

static void stream_requests_without_a_stream(void)
{
	struct kvr_engine_plan p;

	expect_plan(KVR_ENGINE_VLLM, &whole, COMPLETE, "{\"prompt\":[1]}", KVR_ENGINE_FOLD,
		    "{\"prompt\":[1],\"stream\":true," OPTIONS "}");
	expect_plan(KVR_ENGINE_SGLANG, &whole, CHAT, "{\"stream\": false,\"n\":2}", KVR_ENGINE_FOLD,
		    "{\"stream\": true,\"n\":2," OPTIONS "}");
	expect_plan(KVR_ENGINE_VLLM, &whole, RESPONSES, "{\"stream\":null,\"background\":false}",
		    KVR_ENGINE_FOLD, "{\"stream\":true,\"background\":false}");
	p = expect_plan(KVR_ENGINE_VLLM, &whole, CHAT, "{\"tool_choice\":\"required\"}",
			KVR_ENGINE_FOLD,
			"{\"tool_choice\":\"required\",\"stream\":true," OPTIONS "}");
	CU_ASSERT(p.content_is_text && p.api == KVR_ENGINE_CHAT);
	p = expect_plan(KVR_ENGINE_VLLM, &whole, CHAT, "{\"tool_choice\":\"auto\"}",
			KVR_ENGINE_FOLD, "{\"tool_choice\":\"auto\",\"stream\":true," OPTIONS "}");
	CU_ASSERT(!p.content_is_text);
	p = expect_plan(KVR_ENGINE_VLLM, &whole, CHAT, "{\"tool_choice\":{}}", KVR_ENGINE_FOLD,
			"{\"tool_choice\":{},\"stream\":true," OPTIONS "}");
	CU_ASSERT(p.content_is_text);
}

static void relay_what_cannot_be_folded(void)
{
	static const char *const contents[] = {
		"{\"echo\":true}",
		"{\"best_of\":2}",
		"{\"use_beam_search\":true}",
		"{\"prompt_logprobs\":0}",
		"{\"kv_transfer_params\":{}}",
		"{\"ec_transfer_params\":{}}",
		"{\"background\":true}",
		"{\"return_hidden_states\":true}",
		"{\"return_meta_info\":true}",
		"{\"return_prompt_token_ids\":true}",
		"{\"stream_options\":{\"include_usage\":true}}", /* the engine rejects it */
		"{\"stream\":\"false\"}",
		"{\"stream\":0}",
		"[1]",
		"no JSON",
	};

	for (unsigned int i = 0; i < sizeof(contents) / sizeof(contents[0]); i++)
		expect_plan(KVR_ENGINE_VLLM, &whole, CHAT, contents[i], KVR_ENGINE_RELAY,
			    contents[i]);
	expect_plan(KVR_ENGINE_SGLANG, &whole, CHAT, "{\"return_token_ids\":true}",
		    KVR_ENGINE_RELAY, "{\"return_token_ids\":true}");
	expect_plan(
		KVR_ENGINE_VLLM, &whole,
		"POST /v1/chat/completions HTTP/1.1\r\nEndpoint-Load-Metrics-Format: JSON\r\n\r\n",
		"{}", KVR_ENGINE_RELAY, "{}");
	expect_plan(KVR_ENGINE_VLLM, &whole, "POST /v1/completionsx HTTP/1.1\r\n\r\n", "{}",
		    KVR_ENGINE_RELAY, "{}");
	expect_plan(KVR_ENGINE_VLLM, &whole, "POST /v1/embeddings HTTP/1.1\r\n\r\n", "{}",
		    KVR_ENGINE_RELAY, "{}");
	expect_plan(KVR_ENGINE_VLLM, &whole, "GET /v1/completions HTTP/1.1\r\n\r\n", "",
		    KVR_ENGINE_RELAY, "");
}

/* ---- streams ---- */

static void request_usage_of_streams(void)
{
	struct kvr_engine_plan p;

	p = expect_plan(KVR_ENGINE_VLLM, &whole, CHAT, "{\"stream\":true}", KVR_ENGINE_STRIP,
			"{\"stream\":true," OPTIONS "}");
	CU_ASSERT(p.drop_total && p.drop_running);
	p = expect_plan(KVR_ENGINE_VLLM, &whole, COMPLETE,
			"{\"stream_options\":{\"include_usage\": true,\"a\":1},\"stream\":true}",
			KVR_ENGINE_STRIP,
			"{\"stream_options\":{\"include_usage\": true,\"a\":1,"
			"\"continuous_usage_stats\":true},\"stream\":true}");
	CU_ASSERT(!p.drop_total && p.drop_running);
	/* vLLM gives no running usage without the total, SGLang does. */
	p = expect_plan(KVR_ENGINE_VLLM, &whole, CHAT,
			"{\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":true}}",
			KVR_ENGINE_STRIP,
			"{\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":true,"
			"\"include_usage\":true}}");
	CU_ASSERT(p.drop_total && p.drop_running);
	p = expect_plan(KVR_ENGINE_SGLANG, &whole, CHAT,
			"{\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":true}}",
			KVR_ENGINE_STRIP,
			"{\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":true,"
			"\"include_usage\":true}}");
	CU_ASSERT(p.drop_total && !p.drop_running);
	expect_plan(KVR_ENGINE_VLLM, &whole, CHAT, "{\"stream\":true," OPTIONS "}",
		    KVR_ENGINE_RELAY, "{\"stream\":true," OPTIONS "}");
	expect_plan(KVR_ENGINE_VLLM, &whole, RESPONSES, "{\"stream\":true}", KVR_ENGINE_RELAY,
		    "{\"stream\":true}");
	expect_plan(KVR_ENGINE_VLLM, &whole, CHAT, "{\"stream\":true,\"stream_options\":7}",
		    KVR_ENGINE_RELAY, "{\"stream\":true,\"stream_options\":7}");
}

static void request_only_totals_if_running_usage_is_off(void)
{
	static const char content[] = "{}", streamed[] = "{\"stream\":true}";
	static const char total[] = "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}";
	struct kvr_engine_request request = {.content = content, .content_len = 2};
	struct kvr_engine_plan p;
	struct kvr_http_head h;

	CU_ASSERT_EQUAL(kvr_http_parse_request(CHAT, strlen(CHAT), &h), 0);
	request.head = &h;
	CU_ASSERT_EQUAL(kvr_engine_plan_request(&request, &p), 0);
	CU_ASSERT(p.form == KVR_ENGINE_FOLD && p.content_len == strlen(total) &&
		  memcmp(p.content, total, p.content_len) == 0);
	free(p.content);
	request.content = streamed;
	request.content_len = strlen(streamed);
	CU_ASSERT_EQUAL(kvr_engine_plan_request(&request, &p), 0);
	CU_ASSERT(p.form == KVR_ENGINE_STRIP && p.content_len == strlen(total) &&
		  memcmp(p.content, total, p.content_len) == 0);
	free(p.content);
	request.content = total;
	request.content_len = strlen(total);
	CU_ASSERT_EQUAL(kvr_engine_plan_request(&request, &p), 0);
	CU_ASSERT_EQUAL(p.form, KVR_ENGINE_RELAY);
	free(p.content);
}

/* ---- legs ---- */

#define KEEPS                                                                                      \
	"\"kv_transfer_params\":{\"do_remote_decode\":true,\"do_remote_prefill\":false,"           \
	"\"remote_engine_id\":null,\"remote_block_ids\":null,\"remote_host\":null,"                \
	"\"remote_port\":null}"

static void limit_a_prefill_of_vllm_to_one_token(void)
{
	static const struct kvr_engine_leg leg = {.leg = KVR_ROLE_PREFILL};
	const struct kvr_engine_plan p = expect_plan(
		KVR_ENGINE_VLLM, &leg, CHAT,
		"{\"prompt\": [1, 2],\"max_tokens\":500, \"stream\" : true,\"stream_options\":{}, "
		"\"min_tokens\":3,\"x\":\"\\u00e9\"}",
		KVR_ENGINE_RELAY,
		"{\"prompt\": [1, 2],\"max_tokens\":1, \"stream\" : false,\"x\":\"\\u00e9\","
		"\"max_completion_tokens\":1,\"ignore_eos\":true," KEEPS "}");

	CU_ASSERT(p.prefill);
	/* vLLM keeps the blocks only if the length ends the request. */
	expect_plan(
		KVR_ENGINE_VLLM, &leg, CHAT,
		"{\"stop\":[\".\"],\"a\":1,\"stop_token_ids\":[2],\"ignore_eos\":false,\"n\":1}",
		KVR_ENGINE_RELAY,
		"{\"a\":1,\"ignore_eos\":true,\"max_tokens\":1,\"max_completion_tokens\":1,"
		"\"stream\":false," KEEPS "}");
	/* The responses API has another name for the limit. */
	expect_plan(
		KVR_ENGINE_VLLM, &leg, RESPONSES,
		"{\"input\":\"x\",\"max_output_tokens\":500,\"background\":true,\"stream\":true}",
		KVR_ENGINE_RELAY,
		"{\"input\":\"x\",\"max_output_tokens\":1,\"stream\":false,\"ignore_eos\":"
		"true," KEEPS "}");
}

/* The members of the leg and those for usage are set in one pass. */
static void give_a_decode_of_vllm_the_result(void)
{
	static const char result[] = "{\"do_remote_decode\":true,\"do_remote_prefill\":false,"
				     "\"remote_block_ids\":[[1,2]],\"new\":{\"a\":[null]}}";
	const struct kvr_engine_leg leg = {
		.leg = KVR_ROLE_DECODE, .result = result, .result_len = sizeof(result) - 1};

	expect_plan(KVR_ENGINE_VLLM, &leg, CHAT, "{\"max_tokens\":500,\"stream\":true}",
		    KVR_ENGINE_STRIP,
		    "{\"max_tokens\":500,\"stream\":true,\"kv_transfer_params\":{"
		    "\"do_remote_decode\":false,\"do_remote_prefill\":true,"
		    "\"remote_block_ids\":[[1,2]],\"new\":{\"a\":[null]}}," OPTIONS "}");
	expect_plan(KVR_ENGINE_VLLM, &leg, CHAT, "{\"max_tokens\":500}", KVR_ENGINE_FOLD,
		    "{\"max_tokens\":500,\"kv_transfer_params\":{"
		    "\"do_remote_decode\":false,\"do_remote_prefill\":true,"
		    "\"remote_block_ids\":[[1,2]],\"new\":{\"a\":[null]}},\"stream\":true," OPTIONS
		    "}");
}

static void name_the_meeting_point_of_sglang(void)
{
	struct kvr_engine_leg leg = {.leg = KVR_ROLE_PREFILL,
				     .bootstrap_host = "10.0.0.7",
				     .bootstrap_port = 8998,
				     .bootstrap_room = INT64_MAX};

	expect_plan(KVR_ENGINE_SGLANG, &leg, CHAT, "{\"max_tokens\":500}", KVR_ENGINE_RELAY,
		    "{\"max_tokens\":500,\"bootstrap_host\":\"10.0.0.7\",\"bootstrap_port\":8998,"
		    "\"bootstrap_room\":9223372036854775807}");
	leg.leg = KVR_ROLE_DECODE;
	leg.prefill_ranks = 4;
	leg.bootstrap_room = 10;
	expect_plan(
		KVR_ENGINE_SGLANG, &leg, CHAT, "{}", KVR_ENGINE_FOLD,
		"{\"bootstrap_host\":\"10.0.0.7\",\"bootstrap_port\":8998,\"bootstrap_room\":10,"
		"\"disagg_prefill_dp_rank\":2,\"stream\":true," OPTIONS "}");
}

static void refuse_legs_that_an_engine_cannot_take(void)
{
	const struct kvr_engine_leg no_result = {.leg = KVR_ROLE_DECODE};
	const struct kvr_engine_leg bad_result = {
		.leg = KVR_ROLE_DECODE, .result = "[1]", .result_len = 3};
	const struct kvr_engine_leg prefill = {.leg = KVR_ROLE_PREFILL};
	const struct kvr_engine_leg with_result = {
		.leg = KVR_ROLE_DECODE, .result = "{}", .result_len = 2};

	expect_error(KVR_ENGINE_VLLM, &no_result, "{}", -EINVAL);
	expect_error(KVR_ENGINE_VLLM, &bad_result, "{}", -EPROTO);
	expect_error(KVR_ENGINE_SGLANG, &prefill, "{}", -EINVAL);
	expect_error(KVR_ENGINE_VLLM, &prefill, "{\"prompt_logprobs\":0}", -ENOTSUP);
	expect_error(KVR_ENGINE_VLLM, &prefill, "{\"echo\":true,\"logprobs\":0}", -ENOTSUP);
	expect_error(KVR_ENGINE_VLLM, &prefill, "{\"n\":2}", -ENOTSUP);
	expect_error(KVR_ENGINE_VLLM, &with_result, "{\"best_of\":2,\"n\":1}", -ENOTSUP);
	expect_error(KVR_ENGINE_VLLM, &prefill, "[1]", -EBADMSG);
	expect_error(KVR_ENGINE_VLLM, &prefill, "{\"a\":", -EBADMSG);
	expect_error(KVR_ENGINE_VLLM, &prefill, "", -EBADMSG);
}

/* ---- head ---- */

static void expect_head(const char *client, const struct kvr_engine_head *head, const char *want)
{
	struct kvr_http_head h;
	char *out;
	int64_t n;

	CU_ASSERT_EQUAL_FATAL(kvr_http_parse_request(client, strlen(client), &h), 0);
	n = kvr_engine_write_head(&h, head, &out);
	CU_ASSERT(n == (int64_t)strlen(want) && memcmp(out, want, (size_t)n) == 0);
	free(out);
}

static void write_the_head_of_the_engine(void)
{
	const uint32_t rank = 3;

	expect_head(
		"POST /v1/x?a#b HTTP/1.1\r\na:1\r\nX-Data-Parallel-Rank: 9\r\nTraceParent:old\r\n\r\n",
		&(struct kvr_engine_head){.url = "http://h:1/p",
					  .rank = &rank,
					  .traceparent = "a longer value than the old one",
					  .content_len = 7},
		"POST /p/v1/x?a HTTP/1.1\r\nHost: h:1\r\na: 1\r\ntraceparent: a longer value than "
		"the old one\r\nX-data-parallel-rank: 3\r\nContent-Length: 7\r\n\r\n");
	expect_head("GET /m HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n",
		    &(struct kvr_engine_head){.url = "http://h"},
		    "GET /m HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n");
	expect_head("GET /m HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n",
		    &(struct kvr_engine_head){.url = "http://h", .uncompressed = true},
		    "GET /m HTTP/1.1\r\nHost: h\r\n\r\n");
	expect_head("GET /m HTTP/1.1\r\ntraceparent: t\r\n\r\n",
		    &(struct kvr_engine_head){.url = "http://[::1]:80"},
		    "GET /m HTTP/1.1\r\nHost: [::1]:80\r\ntraceparent: t\r\n\r\n");
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(stream_requests_without_a_stream),
		KVR_CASE(relay_what_cannot_be_folded),
		KVR_CASE(request_usage_of_streams),
		KVR_CASE(request_only_totals_if_running_usage_is_off),
		KVR_CASE(limit_a_prefill_of_vllm_to_one_token),
		KVR_CASE(give_a_decode_of_vllm_the_result),
		KVR_CASE(name_the_meeting_point_of_sglang),
		KVR_CASE(refuse_legs_that_an_engine_cannot_take),
		KVR_CASE(write_the_head_of_the_engine),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("request", tests);
}
