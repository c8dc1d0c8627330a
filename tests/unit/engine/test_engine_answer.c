/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers of engines on their way to clients. */
#include "kvr_engine_answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_test.h"

#define MAX_BYTES 65536u
#define SSE_HEAD                                                                                   \
	"HTTP/1.1 200 OK\r\nx-id: 7\r\nCache-Control: no-cache\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"
#define JSON_HEAD "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"

static void begin_answer(struct kvr_engine_answer *a, struct kvr_engine_plan plan, const char *head)
{
	struct kvr_http_head h;

	kvr_engine_answer_init(a, &plan, MAX_BYTES);
	CU_ASSERT_EQUAL_FATAL(kvr_http_parse_response(head, strlen(head), &h), 0);
	CU_ASSERT_EQUAL(kvr_engine_answer_head(a, &h), 0);
}

static int add_text(struct kvr_engine_answer *a, const char *content)
{
	return kvr_engine_answer_content(a, content, strlen(content));
}

/* Take what is ready, and compare. */
static void expect_ready(struct kvr_engine_answer *a, const char *want)
{
	const char *data;
	const size_t n = kvr_engine_answer_ready(a, &data);

	CU_ASSERT(n == strlen(want) && memcmp(data, want, n) == 0);
	if (n != strlen(want) || memcmp(data, want, n) != 0)
		fprintf(stderr, "\n%.*s\n%s\n", (int)n, data, want);
	kvr_engine_answer_take(a, n);
}

#define CHUNK(text)                                                                                \
	"data: {\"choices\":[{\"index\":0,\"text\":\"" text "\",\"finish_reason\":null}]}\n\n"
#define ERROR "data: {\"error\":{\"message\":\"x\",\"code\":503}}\n\n"

static const struct kvr_engine_plan relay = {.api = KVR_ENGINE_COMPLETIONS};
static const struct kvr_engine_plan fold = {.api = KVR_ENGINE_COMPLETIONS, .form = KVR_ENGINE_FOLD};

/* ---- relayed ---- */

static void relay_a_stream_byte_for_byte(void)
{
	struct kvr_engine_answer a;

	begin_answer(&a, relay, SSE_HEAD);
	expect_ready(&a, SSE_HEAD);
	CU_ASSERT(!a.begun);
	CU_ASSERT_EQUAL(add_text(&a, ": hello\n\n" CHUNK("a") "data: {\"ch"), 0);
	expect_ready(&a, ": hello\n\n" CHUNK("a") "data: {\"ch");
	CU_ASSERT(a.begun && a.usage.generated == 1);
	CU_ASSERT_EQUAL(kvr_engine_answer_finish(&a), 0);
	expect_ready(&a, "");
	CU_ASSERT_EQUAL(kvr_engine_answer_judge(&a), KVR_ENGINE_WELL);
	kvr_engine_answer_fini(&a);
}

static void hold_a_stream_until_its_first_event(void)
{
	struct kvr_engine_answer a;

	begin_answer(&a, relay, SSE_HEAD);
	CU_ASSERT_EQUAL(add_text(&a, "data: {\"choices\":[]}"), 0);
	expect_ready(&a, "");
	CU_ASSERT_EQUAL(add_text(&a, "\n\n"), 0);
	expect_ready(&a, SSE_HEAD "data: {\"choices\":[]}\n\n");
	kvr_engine_answer_fini(&a);

	begin_answer(&a, relay, SSE_HEAD);
	CU_ASSERT_EQUAL(add_text(&a, ERROR), 0);
	expect_ready(&a, "");
	CU_ASSERT_EQUAL(kvr_engine_answer_finish(&a), 0);
	expect_ready(&a, SSE_HEAD ERROR);
	CU_ASSERT_EQUAL(kvr_engine_answer_judge(&a), KVR_ENGINE_FAILED);
	kvr_engine_answer_fini(&a);
}

/* The engine breaks off: the client gets what was held back, but nothing of a folded answer. */
static void release_what_was_held_when_stopped(void)
{
	struct kvr_engine_answer a;

	begin_answer(&a, relay, SSE_HEAD);
	CU_ASSERT_EQUAL(add_text(&a, ERROR), 0);
	kvr_engine_answer_stop(&a);
	expect_ready(&a, SSE_HEAD ERROR);
	kvr_engine_answer_fini(&a);

	begin_answer(&a, fold, SSE_HEAD);
	CU_ASSERT_EQUAL(add_text(&a, CHUNK("a")), 0);
	kvr_engine_answer_stop(&a);
	expect_ready(&a, "");
	kvr_engine_answer_fini(&a);
}

static void count_a_whole_answer_at_its_end(void)
{
	static const char text[] = "{\"usage\":{\"completion_tokens\":5}}";
	struct kvr_engine_answer a;

	begin_answer(&a, relay, JSON_HEAD);
	CU_ASSERT_EQUAL(add_text(&a, text), 0);
	expect_ready(&a, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
			 "{\"usage\":{\"completion_tokens\":5}}");
	CU_ASSERT_EQUAL(a.usage.generated, 0);
	CU_ASSERT_EQUAL(kvr_engine_answer_finish(&a), 0);
	CU_ASSERT_EQUAL(a.usage.generated, 5);
	kvr_engine_answer_fini(&a);
}

static void judge_an_empty_stream_as_failed(void)
{
	struct kvr_engine_answer a;

	begin_answer(&a, relay, SSE_HEAD);
	CU_ASSERT_EQUAL(add_text(&a, "data: [DONE]\n\n"), 0);
	CU_ASSERT_EQUAL(kvr_engine_answer_finish(&a), 0);
	CU_ASSERT_EQUAL(kvr_engine_answer_judge(&a), KVR_ENGINE_FAILED);
	kvr_engine_answer_fini(&a);
}

static void keep_a_prefill_answer_from_the_client(void)
{
	static char large[1u << 20];
	struct kvr_engine_answer a;
	int rc = 0;

	begin_answer(&a, (struct kvr_engine_plan){.prefill = true}, JSON_HEAD);
	CU_ASSERT_EQUAL(add_text(&a, "{\"message\":\"x\"}"), 0);
	expect_ready(&a, "");
	memset(large, ' ', sizeof(large) - 1);
	for (unsigned int i = 0; i < 5 && rc == 0; i++)
		rc = kvr_engine_answer_content(&a, large, sizeof(large) - 1);
	CU_ASSERT(rc == -EOVERFLOW && a.too_long && kvr_engine_answer_admits(&a));
	kvr_engine_answer_fini(&a);
}

/* ---- stripped ---- */

/* Feed a stream in pieces of @p piece bytes; the result must not depend on them. */
static void expect_stripped(struct kvr_engine_plan plan, const char *stream, const char *want)
{
	for (size_t piece = 1; piece <= strlen(stream); piece++) {
		struct kvr_engine_answer a;
		struct kvr_engine_buffer all = {0};
		const char *data;
		size_t n;

		begin_answer(&a, plan, SSE_HEAD);
		kvr_engine_answer_take(&a, kvr_engine_answer_ready(&a, &data));
		all.p = malloc(strlen(stream) + 64);
		for (size_t at = 0; at < strlen(stream); at += piece) {
			const size_t left = strlen(stream) - at;

			kvr_engine_answer_content(&a, stream + at, left < piece ? left : piece);
			n = kvr_engine_answer_ready(&a, &data);
			memcpy(all.p + all.len, data, n);
			all.len += n;
			kvr_engine_answer_take(&a, n);
		}
		CU_ASSERT_EQUAL(kvr_engine_answer_finish(&a), 0);
		n = kvr_engine_answer_ready(&a, &data);
		memcpy(all.p + all.len, data, n);
		all.len += n;
		CU_ASSERT(all.len == strlen(want) && memcmp(all.p, want, all.len) == 0);
		if (piece == 1 && (all.len != strlen(want) || memcmp(all.p, want, all.len) != 0))
			fprintf(stderr, "\n%.*s\n%s\n", (int)all.len, all.p, want);
		CU_ASSERT_EQUAL(a.usage.generated, 3);
		free(all.p);
		kvr_engine_answer_fini(&a);
	}
}

#define USAGE(n) "\"usage\":{\"completion_tokens\":" n "}"

static void remove_usage_that_the_client_did_not_request(void)
{
	static const char stream[] =
		": keep-alive\n\n"
		"data: {\"choices\":[{\"index\":0,\"text\":\"a b\"}]," USAGE(
			"2") "}\n\n"
			     "event: x\ndata: 7\n\n"
			     "data: {\"choices\":[{\"index\":0,\"text\":\"c\"}]," USAGE(
				     "3") "}\r\n\r\n"
					  "data: {\"choices\":[]," USAGE(
						  "3") "}\n\ndata: [DONE]\n\n";
	struct kvr_engine_plan plan = {
		.form = KVR_ENGINE_STRIP, .drop_total = true, .drop_running = true};

	expect_stripped(plan, stream,
			": keep-alive\n\n"
			"data: {\"choices\":[{\"index\":0,\"text\":\"a b\"}]}\n\n"
			"event: x\ndata: 7\n\n"
			"data: {\"choices\":[{\"index\":0,\"text\":\"c\"}]}\n\n"
			"data: [DONE]\n\n");
	plan.kind = KVR_ENGINE_SGLANG;
	plan.drop_total = false;
	expect_stripped(plan, stream,
			": keep-alive\n\n"
			"data: {\"choices\":[{\"index\":0,\"text\":\"a b\"}],\"usage\":null}\n\n"
			"event: x\ndata: 7\n\n"
			"data: {\"choices\":[{\"index\":0,\"text\":\"c\"}],\"usage\":null}\n\n"
			"data: {\"choices\":[]," USAGE("3") "}\n\ndata: [DONE]\n\n");
	plan.drop_total = true;
	plan.drop_running = false;
	expect_stripped(plan, stream,
			": keep-alive\n\n"
			"data: {\"choices\":[{\"index\":0,\"text\":\"a b\"}]," USAGE(
				"2") "}\n\n"
				     "event: x\ndata: 7\n\n"
				     "data: {\"choices\":[{\"index\":0,\"text\":\"c\"}]," USAGE(
					     "3") "}\r\n\r\n"
						  "data: [DONE]\n\n");
}

static void relay_an_event_that_is_too_long_to_strip(void)
{
	static char large[1u << 20];
	const struct kvr_engine_plan plan = {.form = KVR_ENGINE_STRIP, .drop_total = true};
	struct kvr_engine_answer a;
	const char *data;

	begin_answer(&a, plan, SSE_HEAD);
	CU_ASSERT_EQUAL(add_text(&a, "data: "), 0);
	memset(large, 'x', sizeof(large) - 1);
	CU_ASSERT_EQUAL(kvr_engine_answer_content(&a, large, sizeof(large)), 0);
	CU_ASSERT_EQUAL(a.form, KVR_ENGINE_RELAY);
	CU_ASSERT_EQUAL(add_text(&a, "\n\n" CHUNK("a")), 0);
	CU_ASSERT_EQUAL(kvr_engine_answer_ready(&a, &data),
			strlen(SSE_HEAD) + 6 + sizeof(large) + 2 + strlen(CHUNK("a")));
	kvr_engine_answer_fini(&a);
}

/* ---- folded ---- */

#define LAST                                                                                       \
	"data: {\"choices\":[{\"index\":0,\"text\":\"b\",\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"

static void give_a_folded_answer_at_the_end(void)
{
	struct kvr_engine_answer a;

	begin_answer(&a, fold, SSE_HEAD);
	expect_ready(&a, "");
	CU_ASSERT_EQUAL(add_text(&a, CHUNK("a")), 0);
	expect_ready(&a, "");
	CU_ASSERT(a.usage.generated == 1 && a.stream && kvr_engine_answer_admits(&a));
	CU_ASSERT_EQUAL(add_text(&a, LAST), 0);
	expect_ready(&a, "");
	CU_ASSERT_EQUAL(kvr_engine_answer_finish(&a), 0);
	expect_ready(
		&a,
		"HTTP/1.1 200 OK\r\nx-id: 7\r\ncontent-type: application/json\r\n\r\n"
		"{\"choices\":[{\"index\":0,\"text\":\"ab\",\"logprobs\":null,\"finish_reason\":\"stop\","
		"\"stop_reason\":null,\"token_ids\":null,\"prompt_logprobs\":null,\"prompt_token_ids\":null,"
		"\"routed_experts\":null}],\"service_tier\":null,\"system_fingerprint\":null,"
		"\"kv_transfer_params\":null,\"ec_transfer_params\":null,\"metrics\":null}");
	CU_ASSERT(a.begun && kvr_engine_answer_judge(&a) == KVR_ENGINE_WELL);
	kvr_engine_answer_fini(&a);
}

/* An error in the stream gives the answer its status. */
static void give_a_folded_error_its_status(void)
{
	struct kvr_engine_answer a;

	begin_answer(&a, fold, SSE_HEAD);
	CU_ASSERT_EQUAL(add_text(&a, CHUNK("a") ERROR "data: [DONE]\n\n"), 0);
	CU_ASSERT_EQUAL(kvr_engine_answer_finish(&a), 0);
	CU_ASSERT_EQUAL(a.status, 503);
	expect_ready(
		&a,
		"HTTP/1.1 503 Service Unavailable\r\nx-id: 7\r\ncontent-type: application/json\r\n\r\n"
		"{\"error\":{\"message\":\"x\",\"code\":503}}");
	CU_ASSERT_EQUAL(kvr_engine_answer_judge(&a), KVR_ENGINE_FAILED);
	kvr_engine_answer_fini(&a);
}

/* The engine rejects a request, or has no streams: its answer stays as it is. */
static void relay_an_answer_that_is_no_stream(void)
{
	static const char head[] =
		"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\r\n";
	struct kvr_engine_answer a;
	char text[32];

	begin_answer(&a, fold, head);
	CU_ASSERT_EQUAL(add_text(&a, "{\"message\":\"too long\"}"), 0);
	expect_ready(&a, "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\r\n"
			 "{\"message\":\"too long\"}");
	CU_ASSERT_EQUAL(kvr_engine_answer_finish(&a), 0);
	CU_ASSERT_EQUAL(kvr_engine_answer_judge(&a), KVR_ENGINE_FAULT);
	CU_ASSERT(kvr_engine_answer_error(&a, text, sizeof(text)) == 8 &&
		  strcmp(text, "too long") == 0);
	kvr_engine_answer_fini(&a);
}

static void report_streams_that_cannot_be_folded(void)
{
	static char large[MAX_BYTES + 16];
	struct kvr_engine_answer a;

	begin_answer(&a, fold, SSE_HEAD);
	CU_ASSERT_EQUAL(add_text(&a, CHUNK("a")), 0);
	CU_ASSERT_EQUAL(kvr_engine_answer_finish(&a), -EPIPE);
	expect_ready(&a, "");
	kvr_engine_answer_fini(&a);

	begin_answer(&a, fold, SSE_HEAD);
	CU_ASSERT_EQUAL(add_text(&a, "data: {\"choices\"\n\n" LAST), 0);
	CU_ASSERT_EQUAL(kvr_engine_answer_finish(&a), -EBADMSG);
	CU_ASSERT_EQUAL(a.usage.bad_events, 1);
	kvr_engine_answer_fini(&a);

	begin_answer(&a, fold, SSE_HEAD);
	CU_ASSERT_EQUAL(kvr_engine_answer_finish(&a), -ENODATA);
	kvr_engine_answer_fini(&a);

	begin_answer(&a, fold, SSE_HEAD); /* an event above the bound */
	memset(large, 'x', sizeof(large) - 1);
	memcpy(large, "data: \"", 7);
	memcpy(large + sizeof(large) - 4, "\"\n\n", 4);
	CU_ASSERT_EQUAL(add_text(&a, large), 0);
	CU_ASSERT_EQUAL(add_text(&a, LAST), 0);
	CU_ASSERT(kvr_engine_answer_finish(&a) < 0 && a.usage.bad_events == 1);
	kvr_engine_answer_fini(&a);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(relay_a_stream_byte_for_byte),
		KVR_CASE(hold_a_stream_until_its_first_event),
		KVR_CASE(release_what_was_held_when_stopped),
		KVR_CASE(count_a_whole_answer_at_its_end),
		KVR_CASE(judge_an_empty_stream_as_failed),
		KVR_CASE(keep_a_prefill_answer_from_the_client),
		KVR_CASE(remove_usage_that_the_client_did_not_request),
		KVR_CASE(relay_an_event_that_is_too_long_to_strip),
		KVR_CASE(give_a_folded_answer_at_the_end),
		KVR_CASE(give_a_folded_error_its_status),
		KVR_CASE(relay_an_answer_that_is_no_stream),
		KVR_CASE(report_streams_that_cannot_be_folded),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("answer", tests);
}
