/* SPDX-License-Identifier: BSD-3-Clause */
#include "ask.h"

#include <errno.h>
#include <string.h>

#include "kvr_test.h"

static struct gw_ask a;
static struct gw_hints h;
static char err[256];

static int read_as(enum gw_path path, const char *text)
{
	memset(&h, 0, sizeof(h));
	err[0] = '\0';
	return gw_ask_read(&a, path, text, strlen(text), &h, err, sizeof(err));
}

static void prompts_have_their_form(void)
{
	static const struct {
		const char *text;
		enum gw_prompt form;
		uint32_t n;
	} rows[] = {
		{"{\"prompt\":\"x\"}", GW_PROMPT_TEXT, 0},
		{"{\"prompt\":[\"x\"]}", GW_PROMPT_TEXT, 0},
		{"{\"prompt\":[\"x\",\"y\"]}", GW_PROMPT_OPAQUE, 0},
		{"{\"prompt\":[1,2,3]}", GW_PROMPT_IDS, 3},
		{"{\"prompt\":[[1,2,3]]}", GW_PROMPT_IDS, 3},
		{"{\"prompt\":[[1],[2]]}", GW_PROMPT_OPAQUE, 0},
		{"{\"prompt\":null}", GW_PROMPT_OPAQUE, 0},
		{"{\"prompt\":\"x\",\"nvext\":{\"token_data\":[5,6]}}", GW_PROMPT_IDS, 2},
	};
	static const char *const bad[] = {"{\"prompt\":[]}",	      "{\"prompt\":7}",
					  "{\"prompt\":[1,\"a\"]}",   "{\"prompt\":[1.5]}",
					  "{\"prompt\":[[]]}",	      "{\"prompt\":[{}]}",
					  "{\"prompt\":[4294967296]}"};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, rows[i].text), 0);
		CU_ASSERT_EQUAL(a.form, rows[i].form);
		CU_ASSERT_EQUAL(a.n_ids, rows[i].n);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, bad[i]), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_EMBEDDINGS, "{\"input\":\"x\"}"), 0);
	CU_ASSERT_EQUAL(a.form, GW_PROMPT_OPAQUE);
}

static void messages_are_rendered_when_they_are_text(void)
{
	CU_ASSERT_EQUAL(read_as(GW_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"),
			0);
	CU_ASSERT_EQUAL(a.form, GW_PROMPT_MESSAGES);
	CU_ASSERT_EQUAL(read_as(GW_CHAT, "{\"messages\":[{\"content\":[{\"type\":\"text\","
					 "\"text\":\"x\"}]}]}"),
			0);
	CU_ASSERT_EQUAL(a.form, GW_PROMPT_MESSAGES);
	CU_ASSERT_EQUAL(
		read_as(GW_CHAT, "{\"messages\":[{\"content\":[{\"type\":\"image_url\"}]}]}"), 0);
	CU_ASSERT_EQUAL(a.form, GW_PROMPT_OPAQUE);
	CU_ASSERT_EQUAL(read_as(GW_CHAT, "{}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_CHAT, "{\"messages\":{}}"), -EINVAL);
}

static void no_json_is_told_with_its_place(void)
{
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"a\":}"), -EBADMSG);
	CU_ASSERT(strstr(err, "byte 5") != NULL);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, ""), -EBADMSG);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "[]"), -EBADMSG);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"stream\":1}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"model\":[]}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"max_tokens\":-1}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"max_tokens\":5,\"max_completion_tokens\":6,"
						"\"stream\":true,\"model\":\"m\"}"),
			0);
	CU_ASSERT(a.max_tokens == 6 && a.stream && strcmp(a.model, "m") == 0);
}

static void a_question_has_what_the_template_needs(void)
{
	size_t len;
	char *q;

	CU_ASSERT_EQUAL(read_as(GW_CHAT, "{\"model\":\"m\",\"temperature\":1,\"messages\":[ {} ],"
					 "\"tools\":[1],\"chat_template_kwargs\":{\"t\":false}}"),
			0);
	q = gw_ask_question(&a, &len);
	CU_ASSERT_EQUAL(len, strlen("{\"model\":\"m\",\"messages\":[ {} ],\"tools\":[1],"
				    "\"chat_template_kwargs\":{\"t\":false}}"));
	CU_ASSERT_EQUAL(strncmp(q,
				"{\"model\":\"m\",\"messages\":[ {} ],\"tools\":[1],"
				"\"chat_template_kwargs\":{\"t\":false}}",
				len),
			0);
	free(q);
	CU_ASSERT_EQUAL(
		read_as(GW_COMPLETIONS, "{\"prompt\":[\"p\"],\"add_special_tokens\":false}"), 0);
	q = gw_ask_question(&a, &len);
	CU_ASSERT(len == 41 &&
		  strncmp(q, "{\"prompt\":\"p\",\"add_special_tokens\":false}", len) == 0);
	free(q);
}

static void a_preprocessed_request_becomes_a_completion(void)
{
	static const char want[] = "{\"token_ids\":[1,2],\"model\":\"m\",\"odd\":{},"
				   "\"stop_conditions\":{\"max_tokens\":4,\"stop\":null},"
				   "\"sampling_options\":{\"temperature\":0.5},\"stream\":true,"
				   "\"prompt\":[1,2],\"temperature\":0.5,\"max_tokens\":4}";
	struct kvr_json_value root;
	size_t len;
	char *c;

	CU_ASSERT_EQUAL(read_as(GW_ROUTE, "{\"token_ids\":[1,2],\"model\":\"m\",\"odd\":{},"
					  "\"stop_conditions\":{\"max_tokens\":4,\"stop\":null},"
					  "\"sampling_options\":{\"temperature\":0.5}}"),
			0);
	CU_ASSERT(a.form == GW_PROMPT_IDS && a.n_ids == 2 && a.max_tokens == 4 && a.stream);
	c = gw_ask_completion(&a, &len);
	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
	CU_ASSERT_EQUAL(kvr_json_parse(c, len, &root, NULL), 0);
	CU_ASSERT(len == strlen(want) && memcmp(c, want, len) == 0);
	free(c);
}

static void the_default_request_and_a_probe_are_taken(void)
{
	CU_ASSERT_EQUAL(read_as(GW_ROUTE, "{\"model\":\"\",\"token_ids\":[],\"routing\":null,"
					  "\"annotations\":[],\"mm_routing_info\":null}"),
			0);
	CU_ASSERT_EQUAL(a.form, GW_PROMPT_OPAQUE);
	CU_ASSERT_EQUAL(read_as(GW_ROUTE, "{\"token_ids\":[1],\"_HEALTH_CHECK\":true}"), 0);
	CU_ASSERT(a.probe && a.form == GW_PROMPT_OPAQUE);
	CU_ASSERT_EQUAL(read_as(GW_ROUTE, "{\"token_ids\":[1],\"mm_routing_info\":"
					  "{\"routing_token_ids\":[7,8,9]}}"),
			0);
	CU_ASSERT_EQUAL(a.n_ids, 3);
	CU_ASSERT_EQUAL(read_as(GW_ROUTE, "{\"token_ids\":\"x\"}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_ROUTE, "{\"routing\":{\"dp_rank\":\"x\"}}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_ROUTE, "{\"router_config_override\":[]}"), -EINVAL);
	CU_ASSERT_EQUAL(
		read_as(GW_ROUTE, "{\"routing\":{\"session_control\":{\"session_id\":\"s\"}}}"), 0);
	CU_ASSERT_STRING_EQUAL(h.session, "s");
}

int main(void)
{
	CU_TestInfo tests[] = {{"prompts", prompts_have_their_form},
			       {"messages", messages_are_rendered_when_they_are_text},
			       {"no json", no_json_is_told_with_its_place},
			       {"question", a_question_has_what_the_template_needs},
			       {"preprocessed", a_preprocessed_request_becomes_a_completion},
			       {"default", the_default_request_and_a_probe_are_taken},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("gateway ask", tests);
}
