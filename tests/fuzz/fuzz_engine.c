/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: an engine's stream, after one byte that selects kind and API. It is counted and
 * folded; an answer must be JSON. The same text as a request is planned for a leg; an edited
 * content must be a JSON object.
 */
#include "fuzz.h"

#include "kvr_engine_answer.h"
#include "kvr_json.h"
#include "kvr_sse.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BYTES 65536u

#define REQUIRE(x)                                                                                 \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

struct stream {
	struct kvr_engine_fold *fold;
	struct kvr_engine_usage usage;
};

static void add_event(void *arg, const char *data, uint32_t len, bool cut)
{
	struct stream *stream = arg;
	const uint32_t before = stream->usage.generated;

	(void)cut;
	kvr_engine_count_event(&stream->usage, data, len);
	REQUIRE(stream->usage.generated >= before);
	kvr_engine_fold_add(stream->fold, data, len);
}

static void fold_stream(uint8_t select, const char *text, size_t len)
{
	struct stream stream = {.fold = kvr_engine_fold_create(&(struct kvr_engine_fold_conf){
					.kind = (enum kvr_engine_kind)(select & 1),
					.api = (enum kvr_engine_api)(1 + (select >> 1) % 3),
					.content_is_text = (select & 8) != 0,
					.max_bytes = MAX_BYTES})};
	struct kvr_json_value root;
	struct kvr_sse sse;
	char memory[4096], *out;
	uint16_t status;
	int64_t n;

	REQUIRE(stream.fold != NULL);
	kvr_sse_init(&sse, memory, sizeof(memory));
	kvr_sse_add(&sse, text, len, add_event, &stream);
	n = kvr_engine_fold_finish(stream.fold, &out, &status);
	REQUIRE((n > 0) == (out != NULL) && status >= 200 && status <= 599);
	if (n > 0)
		REQUIRE(kvr_json_parse(out, (size_t)n, &root, NULL) == 0 &&
			root.type == KVR_JSON_OBJECT);
	free(out);
	kvr_engine_fold_destroy(stream.fold);
}

/* Pass the stream through an answer. @return all bytes that come out, to be freed. */
static char *pass_answer(const struct kvr_engine_plan *plan, const char *text, size_t len,
			 size_t first, size_t *out_len, struct kvr_engine_usage *usage)
{
	static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
	struct kvr_engine_answer answer;
	struct kvr_http_head h;
	const char *data;
	char *out;
	int rc;

	REQUIRE(kvr_http_parse_response(head, sizeof(head) - 1, &h) == 0);
	kvr_engine_answer_init(&answer, plan, MAX_BYTES);
	REQUIRE(kvr_engine_answer_head(&answer, &h) == 0);
	REQUIRE(kvr_engine_answer_content(&answer, text, first) == 0);
	REQUIRE(kvr_engine_answer_content(&answer, text + first, len - first) == 0);
	rc = kvr_engine_answer_finish(&answer);
	*out_len = kvr_engine_answer_ready(&answer, &data);
	REQUIRE(rc == 0 || (plan->form == KVR_ENGINE_FOLD && *out_len == 0));
	out = malloc(*out_len + 1);
	REQUIRE(out != NULL);
	if (*out_len > 0)
		memcpy(out, data, *out_len);
	*usage = answer.usage;
	kvr_engine_answer_fini(&answer);
	return out;
}

static void split_answer(uint8_t select, const char *text, size_t len)
{
	for (int form = KVR_ENGINE_RELAY; form <= KVR_ENGINE_FOLD; form++) {
		const struct kvr_engine_plan plan = {
			.kind = (enum kvr_engine_kind)(select & 1),
			.api = (enum kvr_engine_api)(1 + (select >> 1) % 3),
			.form = (enum kvr_engine_form)form,
			.drop_total = (select & 16) == 0,
			.drop_running = (select & 32) == 0};
		struct kvr_engine_usage one, two;
		size_t n, m;
		char *whole = pass_answer(&plan, text, len, 0, &n, &one);
		char *split = pass_answer(&plan, text, len, len * select / 256, &m, &two);

		REQUIRE(n == m && memcmp(whole, split, n) == 0);
		REQUIRE(one.generated == two.generated && one.events == two.events);
		free(whole);
		free(split);
	}
}

static void plan_request(uint8_t select, const char *text, size_t len)
{
	static const char *const heads[] = {"POST /v1/completions HTTP/1.1\r\n\r\n",
					    "POST /v1/chat/completions?x HTTP/1.1\r\n\r\n",
					    "POST /v1/responses HTTP/1.1\r\n\r\n",
					    "POST /tokenize HTTP/1.1\r\n\r\n"};
	const char *head_text = heads[(select >> 1) & 3];
	struct kvr_http_head head;
	struct kvr_engine_plan plan;
	struct kvr_engine_request request = {
		.kind = (enum kvr_engine_kind)(select & 1),
		.head = &head,
		.content = text,
		.content_len = len,
		.leg = {.leg = (enum kvr_role)((select >> 3) % 3),
			.bootstrap_host = (select & 32) != 0 ? "h" : NULL,
			.result = text,
			.result_len = len},
		.running_usage = (select & 64) != 0};
	struct kvr_json_value root;
	char *head_out;
	int64_t n;

	REQUIRE(kvr_http_parse_request(head_text, strlen(head_text), &head) == 0);
	if (kvr_engine_plan_request(&request, &plan) < 0) {
		REQUIRE(plan.content == NULL);
		return;
	}
	REQUIRE(plan.content != NULL);
	if (plan.form != KVR_ENGINE_RELAY || request.leg.leg != KVR_ROLE_AGGREGATED)
		REQUIRE(kvr_json_parse(plan.content, plan.content_len, &root, NULL) == 0 &&
			root.type == KVR_JSON_OBJECT);
	n = kvr_engine_write_head(
		&head,
		&(struct kvr_engine_head){.url = "http://e:1/p", .content_len = plan.content_len},
		&head_out);
	REQUIRE(n > 0 && kvr_http_parse_request(head_out, (size_t)n, &head) < 0); /* Host */
	free(head_out);
	free(plan.content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	fold_stream(data[0], (const char *)data + 1, size - 1);
	split_answer(data[0], (const char *)data + 1, size - 1);
	plan_request(data[0], (const char *)data + 1, size - 1);
	return 0;
}
