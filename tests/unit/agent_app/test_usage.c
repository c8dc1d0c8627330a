/* SPDX-License-Identifier: BSD-3-Clause */
#include "usage.h"

#include <string.h>

#include "kvr_test.h"

static void read_event(struct agent_usage *u, const char *text)
{
	agent_usage_event(u, text, strlen(text));
}

static void events_with_text_are_tokens(void)
{
	struct agent_usage u = {0};

	read_event(&u, "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}");
	CU_ASSERT_EQUAL(u.generated, 0);
	read_event(&u, "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}");
	read_event(&u, "{\"choices\":[{\"text\":\"b\"}]}");
	read_event(&u,
		   "{\"choices\":[{\"delta\":{\"reasoning_content\":\"c\",\"content\":null}}]}");
	read_event(&u, "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}");
	read_event(&u, "{\"type\":\"response.output_text.delta\",\"delta\":\"d\"}");
	CU_ASSERT_EQUAL(u.generated, 5);
	read_event(&u, "{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}");
	read_event(&u, "[DONE]");
	CU_ASSERT(u.generated == 5 && u.bad_events == 0 && !u.cached_known);
}

static void the_larger_count_of_the_engine_is_used(void)
{
	struct agent_usage u = {0};

	read_event(&u, "{\"choices\":[{\"text\":\"two tokens\"}]}");
	read_event(
		&u,
		"{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":8}}}");
	CU_ASSERT(u.generated == 2 && u.cached_known && u.cached == 8);
	read_event(&u, "{\"choices\":[],\"usage\":{\"completion_tokens\":1}}");
	CU_ASSERT_EQUAL(u.generated, 2);
	read_event(
		&u,
		"{\"type\":\"response.completed\",\"response\":{\"usage\":{\"output_tokens\":7,\"input_tokens_details\":{\"cached_tokens\":16}}}}");
	CU_ASSERT(u.generated == 7 && u.cached == 16);
}

static uint32_t error_in(const char *text, bool whole)
{
	struct agent_usage u = {0};

	if (whole)
		agent_usage_whole(&u, text, strlen(text), NULL);
	else
		read_event(&u, text);
	return u.error;
}

/* Forms of an error in an event or in content. */
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
		/* not errors */
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

	read_event(&u, "[DONE]");
	CU_ASSERT_EQUAL(u.events, 0);
	read_event(&u, "{\"choices\":[{\"text\":\"a\"}]}");
	read_event(&u, "{\"error\":{\"code\":503}}");
	read_event(&u, "{\"error\":{\"code\":400}}");
	CU_ASSERT(u.events == 3 && u.error == 503 && u.generated == 1);
}

static void the_status_decides_the_judgement(void)
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

static void garbage_is_counted_and_ignored(void)
{
	struct agent_usage u = {0};

	read_event(&u, "{\"choices\":[");
	read_event(&u, "nonsense");
	read_event(&u, "");
	CU_ASSERT_EQUAL(u.bad_events, 3);
	read_event(&u, "7");
	read_event(&u, "{\"choices\":{\"a\":1},\"usage\":[1],\"delta\":3,\"response\":\"x\"}");
	read_event(&u, "{\"usage\":{\"completion_tokens\":\"9\",\"prompt_tokens_details\":null}}");
	read_event(&u, "{\"usage\":{\"completion_tokens\":99999999999}}");
	read_event(
		&u,
		"{\"usage\":{\"completion_tokens\":-1,\"prompt_tokens_details\":{\"cached_tokens\":1e3}}}");
	CU_ASSERT(u.generated == 0 && !u.cached_known && u.bad_events == 3);
}

static void a_whole_answer_has_usage_and_a_transfer_result(void)
{
	static const char text[] =
		"{\"choices\":[{\"text\":\"a\"}],\"usage\":{\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":32}},\"kv_transfer_params\":{\"a\": 1}}";
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

static void check_error_text(const char *content, const char *words)
{
	char buf[24];

	CU_ASSERT_EQUAL(agent_error_text(content, strlen(content), buf, sizeof(buf)),
			strlen(words));
	CU_ASSERT_STRING_EQUAL(buf, words);
}

static void the_message_of_a_failure_is_found(void)
{
	check_error_text("{\"error\":{\"message\":\"no blocks\",\"code\":500}}", "no blocks");
	check_error_text("{\"object\":\"error\",\"message\":\"too\\nlong\"}", "too");
	check_error_text("{\"detail\":\"not here\"}", "not here");
	check_error_text("{\"detail\":[{\"loc\":1}]}", "{\"detail\":[{\"loc\":1}]}");
	check_error_text("out of memory\r\nmore", "out of memory");
	check_error_text("", "");
	check_error_text("{\"error\":{\"message\":\"longer than the buffer xx\"}}",
			 "longer than the buffer ");
	check_error_text("{\"message\":\"1234567890123456789012\\u20ac\"}",
			 "1234567890123456789012");
	check_error_text("12\xff"
			 "34",
			 "");
	check_error_text("\x1f\x8b\x08", "");
	check_error_text("1234567890123456789012\xe2\x82\xac", "1234567890123456789012");
}

/* A character that just fits is complete. */
static void characters_are_not_split(void)
{
	check_error_text("12345678901234567890\xe2\x82\xac", "12345678901234567890\xe2\x82\xac");
	check_error_text("12345678901234567890\xe2\x82\xacmore",
			 "12345678901234567890\xe2\x82\xac");
	check_error_text("1234567890123456789012\xc3\xa9", "1234567890123456789012");
}

static void prompt_details_have_two_names(void)
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
		KVR_CASE(events_with_text_are_tokens),
		KVR_CASE(the_larger_count_of_the_engine_is_used),
		KVR_CASE(errors_are_found_in_answers),
		KVR_CASE(the_first_error_of_a_stream_counts),
		KVR_CASE(the_status_decides_the_judgement),
		KVR_CASE(garbage_is_counted_and_ignored),
		KVR_CASE(a_whole_answer_has_usage_and_a_transfer_result),
		KVR_CASE(the_message_of_a_failure_is_found),
		KVR_CASE(characters_are_not_split),
		KVR_CASE(prompt_details_have_two_names),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("usage", tests);
}
