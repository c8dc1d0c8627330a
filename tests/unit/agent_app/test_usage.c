/* SPDX-License-Identifier: BSD-3-Clause */
#include "usage.h"

#include <string.h>

#include "kvr_test.h"

static void event(struct agent_usage *u, const char *text)
{
	agent_usage_event(u, text, strlen(text));
}

static void events_with_text_are_tokens(void)
{
	struct agent_usage u = {0};

	event(&u, "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}");
	CU_ASSERT_EQUAL(u.generated, 0);
	event(&u, "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}");
	event(&u, "{\"choices\":[{\"text\":\"b\"}]}");
	event(&u, "{\"choices\":[{\"delta\":{\"reasoning_content\":\"c\",\"content\":null}}]}");
	event(&u, "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}");
	event(&u, "{\"type\":\"response.output_text.delta\",\"delta\":\"d\"}");
	CU_ASSERT_EQUAL(u.generated, 5);
	event(&u, "{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}");
	event(&u, "[DONE]");
	CU_ASSERT(u.generated == 5 && u.bad_events == 0 && !u.cached_known);
}

static void the_engines_count_is_believed_when_it_is_more(void)
{
	struct agent_usage u = {0};

	event(&u, "{\"choices\":[{\"text\":\"two tokens\"}]}");
	event(&u, "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,"
		  "\"prompt_tokens_details\":{\"cached_tokens\":8}}}");
	CU_ASSERT(u.generated == 2 && u.cached_known && u.cached == 8);
	event(&u, "{\"choices\":[],\"usage\":{\"completion_tokens\":1}}");
	CU_ASSERT_EQUAL(u.generated, 2);
	event(&u, "{\"type\":\"response.completed\",\"response\":{\"usage\":{\"output_tokens\":7,"
		  "\"input_tokens_details\":{\"cached_tokens\":16}}}}");
	CU_ASSERT(u.generated == 7 && u.cached == 16);
}

static uint32_t error_in(const char *text, bool whole)
{
	struct agent_usage u = {0};

	if (whole)
		agent_usage_whole(&u, text, strlen(text), NULL);
	else
		event(&u, text);
	return u.error;
}

/* The forms that engines have for an error in an event or in a content. */
static void errors_are_found_in_answers(void)
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
		CU_ASSERT_EQUAL(error_in(rows[i].text, true), rows[i].status);
		CU_ASSERT_EQUAL(error_in(rows[i].text, false), rows[i].status);
	}
}

static void the_first_error_of_a_stream_counts(void)
{
	struct agent_usage u = {0};

	event(&u, "[DONE]");
	CU_ASSERT_EQUAL(u.events, 0);
	event(&u, "{\"choices\":[{\"text\":\"a\"}]}");
	event(&u, "{\"error\":{\"code\":503}}");
	event(&u, "{\"error\":{\"code\":400}}");
	CU_ASSERT(u.events == 3 && u.error == 503 && u.generated == 1);
}

static void statuses_are_judged(void)
{
	static const struct {
		uint32_t status;
		bool retry_after;
		enum agent_verdict verdict;
	} rows[] = {
		{0, false, AGENT_WELL},	    {200, false, AGENT_WELL},	 {304, true, AGENT_WELL},
		{400, false, AGENT_FAULT},  {401, false, AGENT_FAILED},	 {403, false, AGENT_FAILED},
		{404, false, AGENT_FAILED}, {408, false, AGENT_FAULT},	 {413, true, AGENT_FAULT},
		{422, false, AGENT_FAULT},  {429, false, AGENT_REFUSED}, {500, true, AGENT_FAILED},
		{502, false, AGENT_FAILED}, {503, false, AGENT_FAILED},	 {503, true, AGENT_REFUSED},
		{504, false, AGENT_FAILED}, {529, false, AGENT_FAILED},
	};

	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		CU_ASSERT_EQUAL(agent_judge(rows[i].status, rows[i].retry_after), rows[i].verdict);
}

static void garbage_is_counted_and_believed_by_nobody(void)
{
	struct agent_usage u = {0};

	event(&u, "{\"choices\":[");
	event(&u, "nonsense");
	event(&u, "");
	CU_ASSERT_EQUAL(u.bad_events, 3);
	event(&u, "7");
	event(&u, "{\"choices\":{\"a\":1},\"usage\":[1],\"delta\":3,\"response\":\"x\"}");
	event(&u, "{\"usage\":{\"completion_tokens\":\"9\",\"prompt_tokens_details\":null}}");
	event(&u, "{\"usage\":{\"completion_tokens\":99999999999}}");
	event(&u, "{\"usage\":{\"completion_tokens\":-1,\"prompt_tokens_details\":{"
		  "\"cached_tokens\":1e3}}}");
	CU_ASSERT(u.generated == 0 && !u.cached_known && u.bad_events == 3);
}

static void a_whole_answer_has_usage_and_a_transfer_result(void)
{
	static const char text[] =
		"{\"choices\":[{\"text\":\"a\"}],\"usage\":{\"completion_tokens\":1,"
		"\"prompt_tokens_details\":{\"cached_tokens\":32}},"
		"\"kv_transfer_params\":{\"a\": 1}}";
	struct kvr_json_value result;
	struct agent_usage u = {0};

	agent_usage_whole(&u, text, sizeof(text) - 1, &result);
	CU_ASSERT(u.generated == 1 && u.cached_known && u.cached == 32);
	CU_ASSERT(result.len == 8 && memcmp(result.p, "{\"a\": 1}", 8) == 0);
	agent_usage_whole(&u, "{\"kv_transfer_params\":null}", 27, &result);
	CU_ASSERT_EQUAL(result.len, 0);
	agent_usage_whole(&u, text, 20, &result);
	CU_ASSERT_EQUAL(result.len, 0);
}

static void said(const char *content, const char *words)
{
	char buf[24];

	CU_ASSERT_EQUAL(agent_error_text(content, strlen(content), buf, sizeof(buf)),
			strlen(words));
	CU_ASSERT_STRING_EQUAL(buf, words);
}

static void what_an_engine_says_of_its_failure_is_found(void)
{
	said("{\"error\":{\"message\":\"no blocks\",\"code\":500}}", "no blocks");
	said("{\"object\":\"error\",\"message\":\"too\\nlong\"}", "too");
	said("{\"detail\":\"not here\"}", "not here");
	said("{\"detail\":[{\"loc\":1}]}", "{\"detail\":[{\"loc\":1}]}");
	said("out of memory\r\nmore", "out of memory");
	said("", "");
	said("{\"error\":{\"message\":\"longer than anybody wants\"}}", "longer than anybody wan");
	said("{\"message\":\"1234567890123456789012\\u20ac\"}", "1234567890123456789012");
	said("12\xff"
	     "34",
	     "");
	said("\x1f\x8b\x08", "");
	said("1234567890123456789012\xe2\x82\xac", "1234567890123456789012");
}

/* A character that just fits is there whole. */
static void characters_are_not_cut(void)
{
	said("12345678901234567890\xe2\x82\xac", "12345678901234567890\xe2\x82\xac");
	said("12345678901234567890\xe2\x82\xacmore", "12345678901234567890\xe2\x82\xac");
	said("1234567890123456789012\xc3\xa9", "1234567890123456789012");
}

static void details_of_the_prompt_have_two_names(void)
{
	static const char *const answers[] = {
		"{\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":3}}}",
		"{\"usage\":{\"input_tokens_details\":{\"cached_tokens\":3}}}"};
	struct kvr_json_value v;

	for (unsigned int i = 0; i < 2; i++) {
		CU_ASSERT(agent_prompt_details(answers[i], strlen(answers[i]), &v));
		CU_ASSERT(v.len == 19 && memcmp(v.p, "{\"cached_tokens\":3}", 19) == 0);
	}
	CU_ASSERT(!agent_prompt_details("{\"usage\":{\"input_tokens_details\":3}}", 38, &v));
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"events with text are tokens", events_with_text_are_tokens},
		{"the engine's count is believed when it is more",
		 the_engines_count_is_believed_when_it_is_more},
		{"errors are found in answers", errors_are_found_in_answers},
		{"the first error of a stream counts", the_first_error_of_a_stream_counts},
		{"statuses are judged", statuses_are_judged},
		{"garbage is counted, and believed by nobody",
		 garbage_is_counted_and_believed_by_nobody},
		{"a whole answer has usage and a transfer result",
		 a_whole_answer_has_usage_and_a_transfer_result},
		{"what an engine says of its failure is found",
		 what_an_engine_says_of_its_failure_is_found},
		{"characters are not cut", characters_are_not_cut},
		{"details of the prompt have two names", details_of_the_prompt_have_two_names},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("usage", tests);
}
