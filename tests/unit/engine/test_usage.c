/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_engine_usage.h"

#include <stdio.h>
#include <string.h>

#include "kvr_test.h"

static void count_event(struct kvr_engine_usage *u, const char *text)
{
	kvr_engine_count_event(u, text, strlen(text));
}

static void count_events_with_text_as_tokens(void)
{
	struct kvr_engine_usage u = {0};

	count_event(&u, "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}");
	CU_ASSERT_EQUAL(u.generated, 0);
	count_event(&u, "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}");
	count_event(&u, "{\"choices\":[{\"text\":\"b\"}]}");
	count_event(&u,
		    "{\"choices\":[{\"delta\":{\"reasoning_content\":\"c\",\"content\":null}}]}");
	count_event(&u, "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}");
	count_event(&u, "{\"type\":\"response.output_text.delta\",\"delta\":\"d\"}");
	CU_ASSERT_EQUAL(u.generated, 5);
	count_event(&u, "{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}");
	count_event(&u, "[DONE]");
	CU_ASSERT(u.generated == 5 && u.bad_events == 0 && !u.cached_known);
}

static void take_the_usage_of_the_engine(void)
{
	struct kvr_engine_usage u = {0};

	count_event(&u, "{\"choices\":[{\"text\":\"two tokens\"}]}");
	count_event(&u, "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,"
			"\"prompt_tokens_details\":{\"cached_tokens\":8}}}");
	CU_ASSERT(u.generated == 2 && u.cached_known && u.cached == 8);
	count_event(&u, "{\"choices\":[],\"usage\":{\"completion_tokens\":1}}");
	CU_ASSERT_EQUAL(u.generated, 2);
	count_event(&u,
		    "{\"type\":\"response.completed\",\"response\":{\"usage\":{\"output_tokens\":7,"
		    "\"input_tokens_details\":{\"cached_tokens\":16}}}}");
	CU_ASSERT(u.generated == 7 && u.cached == 16);
}

static uint32_t find_error(const char *text, bool whole)
{
	struct kvr_engine_usage u = {0};

	if (whole)
		kvr_engine_count_answer(&u, text, strlen(text), NULL);
	else
		count_event(&u, text);
	return u.error;
}

/* The forms that engines have for an error in an event or in a content. */
static void find_errors_in_answers(void)
{
	static const struct {
		const char *text;
		uint32_t status;
	} rows[] = {
		{"{\"error\":{\"message\":\"x\",\"type\":\"InternalServerError\",\"code\":500}}",
		 500},
		{"{\"error\":{\"message\":\"x\",\"code\":429}}", 429},
		{"{\"error\":{\"message\":\"too long\",\"type\":\"BadRequestError\",\"code\":400}}",
		 400},
		{"{\"error\":{\"message\":\"x\",\"type\":\"invalid_request_error\",\"code\":null}}",
		 400},
		{"{\"error\":{\"message\":\"x\",\"code\":\"server_error\"}}", 500},
		{"{\"error\":{\"message\":\"x\",\"code\":7}}", 500},
		{"{\"error\":\"out of memory\"}", 500},
		{"{\"object\":\"error\",\"message\":\"x\",\"type\":\"y\",\"code\":404}", 404},
		{"{\"object\":\"error\",\"message\":\"x\"}", 500},
		{"{\"type\":\"error\",\"code\":\"server_error\",\"message\":\"x\"}", 500},
		{"{\"type\":\"response.failed\",\"response\":{\"status\":\"failed\"}}", 500},
		/* no errors */
		{"{\"choices\":[{\"text\":\"a\"}],\"error\":null}", 0},
		{"{\"choices\":[],\"error\":{\"message\":\"x\"}}", 0},
		{"{\"object\":\"response\",\"status\":\"completed\",\"error\":null}", 0},
		{"{\"error\":\"\"}", 0},
		{"{\"error\":0}", 0},
		{"{\"object\":\"text_completion\"}", 0},
		{"[1]", 0},
		{"nonsense", 0},
	};

	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CU_ASSERT_EQUAL(find_error(rows[i].text, true), rows[i].status);
		CU_ASSERT_EQUAL(find_error(rows[i].text, false), rows[i].status);
	}
}

static void keep_the_first_error_of_a_stream(void)
{
	struct kvr_engine_usage u = {0};

	count_event(&u, "[DONE]");
	CU_ASSERT_EQUAL(u.events, 0);
	count_event(&u, "{\"choices\":[{\"text\":\"a\"}]}");
	count_event(&u, "{\"error\":{\"code\":503}}");
	count_event(&u, "{\"error\":{\"code\":400}}");
	CU_ASSERT(u.events == 3 && u.error == 503 && u.generated == 1);
}

static void judge_statuses(void)
{
	static const struct {
		uint32_t status;
		bool retry_after;
		enum kvr_engine_verdict verdict;
	} rows[] = {
		{0, false, KVR_ENGINE_WELL},	  {200, false, KVR_ENGINE_WELL},
		{304, true, KVR_ENGINE_WELL},	  {400, false, KVR_ENGINE_FAULT},
		{401, false, KVR_ENGINE_FAILED},  {403, false, KVR_ENGINE_FAILED},
		{404, false, KVR_ENGINE_FAILED},  {408, false, KVR_ENGINE_FAULT},
		{413, true, KVR_ENGINE_FAULT},	  {422, false, KVR_ENGINE_FAULT},
		{429, false, KVR_ENGINE_REFUSED}, {500, true, KVR_ENGINE_FAILED},
		{502, false, KVR_ENGINE_FAILED},  {503, false, KVR_ENGINE_FAILED},
		{503, true, KVR_ENGINE_REFUSED},  {504, false, KVR_ENGINE_FAILED},
		{529, false, KVR_ENGINE_FAILED},
	};

	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		CU_ASSERT_EQUAL(kvr_engine_judge(rows[i].status, rows[i].retry_after),
				rows[i].verdict);
}

static void ignore_invalid_events(void)
{
	struct kvr_engine_usage u = {0};

	count_event(&u, "{\"choices\":[");
	count_event(&u, "nonsense");
	count_event(&u, "");
	CU_ASSERT_EQUAL(u.bad_events, 3);
	count_event(&u, "7");
	count_event(&u, "{\"choices\":{\"a\":1},\"usage\":[1],\"delta\":3,\"response\":\"x\"}");
	count_event(&u, "{\"usage\":{\"completion_tokens\":\"9\",\"prompt_tokens_details\":null}}");
	count_event(&u, "{\"usage\":{\"completion_tokens\":99999999999}}");
	count_event(&u, "{\"usage\":{\"completion_tokens\":-1,\"prompt_tokens_details\":{"
			"\"cached_tokens\":1e3}}}");
	CU_ASSERT(u.generated == 0 && !u.cached_known && u.bad_events == 3);
}

static void read_usage_and_transfer_result_of_an_answer(void)
{
	static const char text[] =
		"{\"choices\":[{\"text\":\"a\"}],\"usage\":{\"completion_tokens\":1,"
		"\"prompt_tokens_details\":{\"cached_tokens\":32}},"
		"\"kv_transfer_params\":{\"a\": 1}}";
	struct kvr_json_value result;
	struct kvr_engine_usage u = {0};

	kvr_engine_count_answer(&u, text, sizeof(text) - 1, &result);
	CU_ASSERT(u.generated == 1 && u.cached_known && u.cached == 32);
	CU_ASSERT(result.len == 8 && memcmp(result.p, "{\"a\": 1}", 8) == 0);
	kvr_engine_count_answer(&u, "{\"kv_transfer_params\":null}", 27, &result);
	CU_ASSERT_EQUAL(result.len, 0);
	kvr_engine_count_answer(&u, text, 20, &result);
	CU_ASSERT_EQUAL(result.len, 0);
}

static void expect_text(const char *content, const char *words)
{
	char buf[24];

	CU_ASSERT_EQUAL(kvr_engine_error_text(content, strlen(content), buf, sizeof(buf)),
			strlen(words));
	CU_ASSERT_STRING_EQUAL(buf, words);
}

static void find_the_text_of_an_error(void)
{
	expect_text("{\"error\":{\"message\":\"no blocks\",\"code\":500}}", "no blocks");
	expect_text("{\"object\":\"error\",\"message\":\"too\\nlong\"}", "too");
	expect_text("{\"detail\":\"not here\"}", "not here");
	expect_text("{\"detail\":[{\"loc\":1}]}", "{\"detail\":[{\"loc\":1}]}");
	expect_text("out of memory\r\nmore", "out of memory");
	expect_text("", "");
	expect_text("{\"error\":{\"message\":\"longer than this buffer.\"}}",
		    "longer than this buffer");
	expect_text("{\"message\":\"1234567890123456789012\\u20ac\"}", "1234567890123456789012");
	expect_text("12\xff"
		    "34",
		    "");
	expect_text("\x1f\x8b\x08", "");
	expect_text("1234567890123456789012\xe2\x82\xac", "1234567890123456789012");
}

/* A character that just fits is there whole. */
static void keep_characters_whole(void)
{
	expect_text("12345678901234567890\xe2\x82\xac", "12345678901234567890\xe2\x82\xac");
	expect_text("12345678901234567890\xe2\x82\xacmore", "12345678901234567890\xe2\x82\xac");
	expect_text("1234567890123456789012\xc3\xa9", "1234567890123456789012");
}

static void find_prompt_details_of_both_apis(void)
{
	static const char *const answers[] = {
		"{\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":3}}}",
		"{\"usage\":{\"input_tokens_details\":{\"cached_tokens\":3}}}"};
	struct kvr_json_value v;

	for (unsigned int i = 0; i < 2; i++) {
		CU_ASSERT(kvr_engine_find_prompt_details(answers[i], strlen(answers[i]), &v));
		CU_ASSERT(v.len == 19 && memcmp(v.p, "{\"cached_tokens\":3}", 19) == 0);
	}
	CU_ASSERT(!kvr_engine_find_prompt_details("{\"usage\":{\"input_tokens_details\":3}}", 38,
						  &v));
}

/* Speculative decoding and --stream-interval put several tokens into one event. */
static void count_token_ids_and_logprobs(void)
{
	struct kvr_engine_usage u = {0};

	count_event(&u, "{\"choices\":[{\"index\":0,\"text\":\"a b c\",\"token_ids\":[7,8,9],"
			"\"logprobs\":null}]}");
	CU_ASSERT_EQUAL(u.generated, 3);
	count_event(&u, "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"d e\"},\"logprobs\":{"
			"\"content\":[{\"token\":\"d\"},{\"token\":\" e\"}]}}]}");
	CU_ASSERT_EQUAL(u.generated, 5);
	count_event(&u,
		    "{\"choices\":[{\"index\":0,\"text\":\"f\",\"logprobs\":{\"tokens\":[\"f\"],"
		    "\"token_logprobs\":[-1]}}]}");
	CU_ASSERT_EQUAL(u.generated, 6);
	count_event(&u, "{\"choices\":[{\"index\":1,\"delta\":{},\"token_ids\":[1,2]}]}");
	CU_ASSERT(u.generated == 8 && !u.running);
}

/* vLLM and SGLang report the tokens of the choice that a chunk belongs to, and the sum at the end.
 */
static void count_running_usage_of_each_choice(void)
{
	struct kvr_engine_usage u = {0};

	count_event(&u,
		    "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"}}],\"usage\":{"
		    "\"prompt_tokens\":9,\"completion_tokens\":0}}");
	CU_ASSERT(u.generated == 0 && u.running);
	count_event(&u, "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a b c\"}}],\"usage\":{"
			"\"completion_tokens\":3}}");
	count_event(&u, "{\"choices\":[{\"index\":1,\"delta\":{\"content\":\"d\"}}],\"usage\":{"
			"\"completion_tokens\":2}}");
	CU_ASSERT_EQUAL(u.generated, 5);
	count_event(&u,
		    "{\"choices\":[{\"index\":0,\"delta\":{}}],\"usage\":{\"completion_tokens\":4,"
		    "\"completion_tokens_details\":null}}");
	CU_ASSERT(u.generated == 6 && !u.running_costs);
	count_event(&u, "{\"choices\":[],\"usage\":{\"completion_tokens\":6,"
			"\"completion_tokens_details\":{\"reasoning_tokens\":1}}}");
	CU_ASSERT(u.generated == 6 && !u.running_costs);
	count_event(&u,
		    "{\"choices\":[{\"index\":0,\"delta\":{}}],\"usage\":{\"completion_tokens\":4,"
		    "\"completion_tokens_details\":{\"reasoning_tokens\":0}}}");
	CU_ASSERT(u.running_costs);
}

static void count_choices_above_the_limit(void)
{
	struct kvr_engine_usage u = {0};
	char text[128];

	for (unsigned int i = 0; i < 4 * KVR_ENGINE_CHOICES; i++) {
		snprintf(
			text, sizeof(text),
			"{\"choices\":[{\"index\":%u,\"text\":\"a\"}],\"usage\":{\"completion_tokens\":1}}",
			i);
		count_event(&u, text);
	}
	CU_ASSERT_EQUAL(u.generated, 4 * KVR_ENGINE_CHOICES);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(count_events_with_text_as_tokens),
		KVR_CASE(count_token_ids_and_logprobs),
		KVR_CASE(count_running_usage_of_each_choice),
		KVR_CASE(count_choices_above_the_limit),
		KVR_CASE(take_the_usage_of_the_engine),
		KVR_CASE(find_errors_in_answers),
		KVR_CASE(keep_the_first_error_of_a_stream),
		KVR_CASE(judge_statuses),
		KVR_CASE(ignore_invalid_events),
		KVR_CASE(read_usage_and_transfer_result_of_an_answer),
		KVR_CASE(find_the_text_of_an_error),
		KVR_CASE(keep_characters_whole),
		KVR_CASE(find_prompt_details_of_both_apis),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("usage", tests);
}
