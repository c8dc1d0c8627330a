/* SPDX-License-Identifier: BSD-3-Clause */
#include "ask.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_test.h"
#include "media.h"

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

static void a_salt_has_the_name_of_the_engine(void)
{
	static const struct {
		const char *text, *ns;
	} rows[] = {
		{"{\"cache_salt\":\"a\"}", "a"},
		{"{\"cache_salt\":\"dynamo-cache-salt:a\"}", "a"},
		{"{\"cache_salt\":\"dynamo-cache-salt:dynamo-cache-salt:a\"}",
		 "dynamo-cache-salt:a"},
		{"{\"cache_salt\":\"dynamo-cache-salt:\"}", "dynamo-cache-salt:"},
		{"{\"cache_salt\":\"dynamo-cache-salt\"}", "dynamo-cache-salt"},
		{"{\"nvext\":{\"cache_namespace\":\"dynamo-cache-salt:a\"}}",
		 "dynamo-cache-salt:a"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CU_ASSERT_EQUAL(read_as(GW_EMBEDDINGS, rows[i].text), 0);
		CU_ASSERT_STRING_EQUAL(h.cache_namespace, rows[i].ns);
	}
}

static void text_messages_are_rendered(void)
{
	CU_ASSERT_EQUAL(read_as(GW_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"),
			0);
	CU_ASSERT_EQUAL(a.form, GW_PROMPT_MESSAGES);
	CU_ASSERT_EQUAL(
		read_as(GW_CHAT,
			"{\"messages\":[{\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}]}"),
		0);
	CU_ASSERT_EQUAL(a.form, GW_PROMPT_MESSAGES);
	CU_ASSERT_EQUAL(
		read_as(GW_CHAT, "{\"messages\":[{\"content\":[{\"type\":\"image_url\"}]}]}"), 0);
	CU_ASSERT_EQUAL(a.form, GW_PROMPT_OPAQUE);
	CU_ASSERT_EQUAL(read_as(GW_CHAT, "{}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_CHAT, "{\"messages\":{}}"), -EINVAL);
}

static void invalid_json_is_reported_with_its_place(void)
{
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"a\":}"), -EBADMSG);
	CU_ASSERT(strstr(err, "byte 5") != NULL);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, ""), -EBADMSG);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "[]"), -EBADMSG);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"stream\":1}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"model\":[]}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"max_tokens\":-1}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"max_tokens\":1.5}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"max_tokens\":4294967295}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"max_tokens\":1e999}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"max_tokens\":4294967294}"), 0);
	CU_ASSERT_EQUAL(a.max_tokens, 4294967294u);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"max_tokens\":1.6e1}"), 0);
	CU_ASSERT_EQUAL(a.max_tokens, 16);
	CU_ASSERT_EQUAL(
		read_as(GW_COMPLETIONS,
			"{\"max_tokens\":5,\"max_completion_tokens\":6,\"stream\":true,\"model\":\"m\"}"),
		0);
	CU_ASSERT(a.max_tokens == 6 && a.stream && strcmp(a.model, "m") == 0);
}

static void a_question_has_the_members_of_the_template(void)
{
	size_t len;
	char *q;

	CU_ASSERT_EQUAL(
		read_as(GW_CHAT,
			"{\"model\":\"m\",\"temperature\":1,\"messages\":[ {} ],\"tools\":[1],\"chat_template_kwargs\":{\"t\":false}}"),
		0);
	q = gw_ask_question(&a, &len);
	CU_ASSERT_EQUAL(
		len,
		strlen("{\"model\":\"m\",\"messages\":[ {} ],\"tools\":[1],\"chat_template_kwargs\":{\"t\":false}}"));
	CU_ASSERT_EQUAL(
		strncmp(q,
			"{\"model\":\"m\",\"messages\":[ {} ],\"tools\":[1],\"chat_template_kwargs\":{\"t\":false}}",
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
	static const char want[] =
		"{\"token_ids\":[1,2],\"model\":\"m\",\"odd\":{},\"stop_conditions\":{\"max_tokens\":4,\"stop\":null},\"sampling_options\":{\"temperature\":0.5},\"stream\":true,\"prompt\":[1,2],\"temperature\":0.5,\"max_tokens\":4}";
	struct kvr_json_value root;
	size_t len;
	char *c;

	CU_ASSERT_EQUAL(
		read_as(GW_ROUTE,
			"{\"token_ids\":[1,2],\"model\":\"m\",\"odd\":{},\"stop_conditions\":{\"max_tokens\":4,\"stop\":null},\"sampling_options\":{\"temperature\":0.5}}"),
		0);
	CU_ASSERT(a.form == GW_PROMPT_IDS && a.n_ids == 2 && a.max_tokens == 4 && a.stream);
	c = gw_ask_body(&a, &len);
	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
	CU_ASSERT_EQUAL(kvr_json_parse(c, len, &root, NULL), 0);
	CU_ASSERT(len == strlen(want) && memcmp(c, want, len) == 0);
	free(c);
}

/* Only fields that are moved to the top level are interpreted; the engine handles the others. */
static void every_field_of_a_preprocessed_request_is_kept(void)
{
	static const char *const fields[] = {
		"\"model\":\"m\"",
		"\"token_ids\":[1,2]",
		"\"prompt_embeds\":\"AAAA\"",
		"\"multi_modal_data\":{\"image_url\":[{\"Url\":\"data:,\"}]}",
		"\"mm_routing_info\":{\"routing_token_ids\":[7,8],\"block_mm_infos\":[null]}",
		"\"stop_conditions\":{\"max_tokens\":4,\"min_tokens\":1,\"stop\":[\"x\"],\"stop_token_ids_hidden\":[3],\"ignore_eos\":false}",
		"\"sampling_options\":{\"n\":1,\"seed\":-3}",
		"\"output_options\":{\"logprobs\":2,\"skip_special_tokens\":false}",
		"\"eos_token_ids\":[2,5]",
		"\"mdc_sum\":\"abc\"",
		"\"annotations\":[\"request_id:x\"]",
		"\"routing\":{\"dp_rank\":1,\"expected_output_tokens\":9,\"lora_name\":\"l\"}",
		"\"router_config_override\":{\"overlap_score_weight\":2.0}",
		"\"prefill_result\":{\"disaggregated_params\":{\"a\":1},\"prompt_tokens_details\":{\"cached_tokens\":3}}",
		"\"migration_link\":{\"trace_id\":\"t\",\"span_id\":\"s\"}",
		"\"bootstrap_info\":{\"bootstrap_host\":\"h\",\"bootstrap_port\":8998,\"bootstrap_room\":18446744073709551615}",
		"\"extra_args\":{\"x\":[1.0e2]}",
		"\"router\":{\"ttft_target\":1.5,\"itl_target\":null}",
		"\"agent_context\":{\"session\":1}",
		"\"mm_processor_kwargs\":{\"fps\":2}",
		"\"request_timestamp_ms\":1700000000000.25",
		"\"_HEALTH_CHECK\":false",
		"\"unknown_member\":{\"nul\":\"\\u0000\",\"half\":\"\\ud800\"}",
	};
	struct kvr_json_value root, at;
	char text[4096] = "{", *c;
	size_t n = 1, len;

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i > 0 ? "," : "",
				      fields[i]);
	snprintf(text + n, sizeof(text) - n, "}");
	CU_ASSERT_EQUAL_FATAL(read_as(GW_ROUTE, text), 0);
	CU_ASSERT(a.n_ids == 2 && a.max_tokens == 4 && !a.probe && strcmp(a.model, "m") == 0);
	CU_ASSERT(h.dp_rank == 1 && h.expected_output_tokens == 9 && strcmp(h.lora, "l") == 0);
	CU_ASSERT(h.overrides == 1u << 1 && h.override_value[1] == 2.0);
	c = gw_ask_body(&a, &len);
	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
	CU_ASSERT_EQUAL_FATAL(kvr_json_parse(c, len, &root, NULL), 0);
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		CU_ASSERT_PTR_NOT_NULL(memmem(c, len, fields[i], strlen(fields[i])));
	CU_ASSERT(kvr_json_get(&root, "prompt", &at) && at.len == 5 &&
		  memcmp(at.p, "[1,2]", 5) == 0);
	CU_ASSERT(kvr_json_get(&root, "min_tokens", &at) && kvr_json_get(&root, "seed", &at));
	free(c);
}

static void names_with_nul_are_errors(void)
{
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"model\":\"m\\u0000x\"}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"cache_salt\":\"a\\u0000\"}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"model\":\"\\ud800\"}"), -EINVAL);
	/* Unknown members are forwarded. */
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"prompt\":\"\\u0000\\ud800\",\"user\":1e999}"),
			0);
	/* The last of several is used, in any spelling. */
	CU_ASSERT_EQUAL(read_as(GW_COMPLETIONS, "{\"model\":\"a\",\"mod\\u0065l\":\"b\"}"), 0);
	CU_ASSERT_STRING_EQUAL(a.model, "b");
}

static void the_default_request_and_a_probe_are_accepted(void)
{
	CU_ASSERT_EQUAL(
		read_as(GW_ROUTE,
			"{\"model\":\"\",\"token_ids\":[],\"routing\":null,\"annotations\":[],\"mm_routing_info\":null}"),
		0);
	CU_ASSERT_EQUAL(a.form, GW_PROMPT_OPAQUE);
	CU_ASSERT_EQUAL(read_as(GW_ROUTE, "{\"token_ids\":[1],\"_HEALTH_CHECK\":true}"), 0);
	CU_ASSERT(a.probe && a.form == GW_PROMPT_OPAQUE);
	CU_ASSERT_EQUAL(
		read_as(GW_ROUTE,
			"{\"token_ids\":[1],\"mm_routing_info\":{\"routing_token_ids\":[7,8,9]}}"),
		0);
	CU_ASSERT_EQUAL(a.n_ids, 3);
	CU_ASSERT_EQUAL(read_as(GW_ROUTE, "{\"token_ids\":\"x\"}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_ROUTE, "{\"routing\":{\"dp_rank\":\"x\"}}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_ROUTE, "{\"router_config_override\":[]}"), -EINVAL);
	CU_ASSERT_EQUAL(
		read_as(GW_ROUTE, "{\"routing\":{\"session_control\":{\"session_id\":\"s\"}}}"), 0);
	CU_ASSERT_STRING_EQUAL(h.session, "s");
}

static void ids_of_several_texts_become_embeddings(void)
{
	static const char want[] =
		"{\"token_ids\":[[1,2],[],[3]],\"model\":\"m\",\"encoding_format\":\"float\",\"input\":[[1,2],[],[3]]}";
	size_t len;
	char *c;

	CU_ASSERT_EQUAL(
		read_as(GW_ROUTE,
			"{\"token_ids\":[[1,2],[],[3]],\"model\":\"m\",\"encoding_format\":\"float\"}"),
		0);
	CU_ASSERT(a.path == GW_EMBEDDINGS && a.form == GW_PROMPT_OPAQUE && !a.stream);
	CU_ASSERT(a.preprocessed && a.isl_guess == 3);
	c = gw_ask_body(&a, &len);
	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
	CU_ASSERT(len == strlen(want) && memcmp(c, want, len) == 0);
	free(c);
	CU_ASSERT_EQUAL(read_as(GW_LOADS, "{\"token_ids\":[[1]]}"), 0);
	CU_ASSERT_EQUAL(a.path, GW_LOADS);
	CU_ASSERT_EQUAL(read_as(GW_ROUTE, "{\"token_ids\":[[1],2]}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_ROUTE, "{\"token_ids\":[[1],[-2]]}"), -EINVAL);
	CU_ASSERT_EQUAL(read_as(GW_ROUTE, "{\"token_ids\":[1,[2]]}"), -EINVAL);
}

#define INFOS(x)                                                                                   \
	"{\"token_ids\":[1],\"mm_routing_info\":{\"routing_token_ids\":[7,8],"                     \
	"\"block_mm_infos\":" x "}}"

static void images_are_part_of_their_blocks(void)
{
	static const char *const wrong[] = {INFOS("{}"),
					    INFOS("[1]"),
					    INFOS("[{\"mm_objects\":{}}]"),
					    INFOS("[{\"mm_objects\":[{}]}]"),
					    INFOS("[{\"mm_objects\":[{\"mm_hash\":-1}]}]"),
					    INFOS("[{\"mm_objects\":[{\"mm_hash\":\"1\"}]}]")};
	struct kvr_client_mm *mm;

	CU_ASSERT_EQUAL(
		read_as(GW_ROUTE,
			INFOS("[null,{\"mm_objects\":[{\"mm_hash\":18446744073709551615,\"offsets\":[[0,1]]},{\"mm_hash\":2}]},{},{\"mm_objects\":[]},{\"mm_objects\":[{\"mm_hash\":3}]}]")),
		0);
	CU_ASSERT_EQUAL(gw_media_read(&a.media, &mm, err, sizeof(err)), 2);
	CU_ASSERT(mm[0].block == 1 && mm[0].n == 2 && mm[0].hashes[0] == UINT64_MAX);
	CU_ASSERT(mm[0].hashes[1] == 2);
	CU_ASSERT(mm[1].block == 4 && mm[1].n == 1 && mm[1].hashes[0] == 3);
	free(mm);
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CU_ASSERT_EQUAL(read_as(GW_ROUTE, wrong[i]), -EINVAL);
	/* Without ids it has no effect. */
	CU_ASSERT_EQUAL(
		read_as(GW_ROUTE,
			"{\"token_ids\":[1],\"mm_routing_info\":{\"routing_token_ids\":[],\"block_mm_infos\":[7]}}"),
		0);
	CU_ASSERT_EQUAL(gw_media_read(&a.media, &mm, err, sizeof(err)), 0);
	CU_ASSERT_PTR_NULL(mm);
	CU_ASSERT_EQUAL(a.n_ids, 1);
}

static void a_block_has_at_most_64_images(void)
{
	char body[4096] =
		"{\"token_ids\":[1],\"mm_routing_info\":{\"routing_token_ids\":[7],\"block_mm_infos\":[{\"mm_objects\":[{\"mm_hash\":1}";

	for (int i = 1; i < 64; i++)
		strcat(body, ",{\"mm_hash\":1}");
	strcat(body, "]}]}}");
	CU_ASSERT_EQUAL(read_as(GW_ROUTE, body), 0);
	body[strlen(body) - 5] = '\0';
	strcat(body, ",{\"mm_hash\":1}]}]}}");
	CU_ASSERT_EQUAL(read_as(GW_ROUTE, body), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(err, "block 0"));
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(prompts_have_their_form),
			       KVR_CASE(a_salt_has_the_name_of_the_engine),
			       KVR_CASE(text_messages_are_rendered),
			       KVR_CASE(invalid_json_is_reported_with_its_place),
			       KVR_CASE(a_question_has_the_members_of_the_template),
			       KVR_CASE(a_preprocessed_request_becomes_a_completion),
			       KVR_CASE(every_field_of_a_preprocessed_request_is_kept),
			       KVR_CASE(names_with_nul_are_errors),
			       KVR_CASE(the_default_request_and_a_probe_are_accepted),
			       KVR_CASE(ids_of_several_texts_become_embeddings),
			       KVR_CASE(images_are_part_of_their_blocks),
			       KVR_CASE(a_block_has_at_most_64_images),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("gateway ask", tests);
}
