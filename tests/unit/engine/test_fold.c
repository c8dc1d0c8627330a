/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Folding. The files of tests/data/engines/KIND-VERSION/fold are streams and the answers to the
 * same requests without a stream, as the engine gave them: the folded stream must equal the answer
 * byte for byte.
 */
#include "kvr_engine_fold.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kvr_sse.h"
#include "kvr_test.h"

#define MAX_FILE (1u << 20)

static const char *data; /* tests/data/engines */

static struct kvr_engine_fold *create_fold(enum kvr_engine_kind kind, enum kvr_engine_api api,
					   bool content_is_text, size_t max_bytes)
{
	struct kvr_engine_fold *fold = kvr_engine_fold_create(
		&(struct kvr_engine_fold_conf){.kind = kind,
					       .api = api,
					       .content_is_text = content_is_text,
					       .max_bytes = max_bytes});

	CU_ASSERT_PTR_NOT_NULL_FATAL(fold);
	return fold;
}

/* Fold events, which end with NULL, and compare the result. */
static void expect_answer(struct kvr_engine_fold *fold, const char *const events[], int64_t rc,
			  uint16_t status, const char *answer)
{
	uint16_t got;
	char *out;
	int64_t n;

	for (; *events != NULL; events++)
		kvr_engine_fold_add(fold, *events, strlen(*events));
	n = kvr_engine_fold_finish(fold, &out, &got);
	if (rc < 0) {
		CU_ASSERT(n == rc && out == NULL);
	} else {
		CU_ASSERT_EQUAL(n, (int64_t)strlen(answer));
		CU_ASSERT(n >= 0 && (size_t)n == strlen(answer) &&
			  memcmp(out, answer, (size_t)n) == 0);
		if (n >= 0 && ((size_t)n != strlen(answer) || memcmp(out, answer, (size_t)n) != 0))
			printf("\n  folded   %.*s\n  expected %s\n", (int)n, out, answer);
		CU_ASSERT_EQUAL(got, status);
	}
	free(out);
	kvr_engine_fold_destroy(fold);
}

/* ---- recorded streams ---- */

static size_t read_file(const char *folder, const char *name, const char *suffix, char *buf)
{
	char path[1024];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s%s", folder, name, suffix);
	f = fopen(path, "r");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	n = fread(buf, 1, MAX_FILE - 1, f);
	fclose(f);
	buf[n] = '\0';
	return n;
}

static void add_event(void *arg, const char *text, uint32_t len, bool cut)
{
	CU_ASSERT(!cut && kvr_engine_fold_add(arg, text, len) == 0);
}

static void check_recording(const char *folder, const char *name, enum kvr_engine_kind kind)
{
	static char events[MAX_FILE], answer[MAX_FILE], memory[MAX_FILE];
	const size_t n = read_file(folder, name, ".events", events);
	const char *const none[] = {NULL};
	struct kvr_engine_fold *fold;
	struct kvr_sse sse;

	printf("\n    %s ", name);
	read_file(folder, name, ".answer", answer);
	answer[strcspn(answer, "\n")] = '\0';
	fold = create_fold(kind,
			   strncmp(name, "chat", 4) == 0	? KVR_ENGINE_CHAT
			   : strncmp(name, "responses", 9) == 0 ? KVR_ENGINE_RESPONSES
								: KVR_ENGINE_COMPLETIONS,
			   strstr(name, "forced") != NULL, MAX_FILE);
	kvr_sse_init(&sse, memory, sizeof(memory));
	kvr_sse_add(&sse, events, n, add_event, fold);
	expect_answer(fold, none, 0, 200, answer);
}

static void fold_recorded_streams(void)
{
	static const struct {
		const char *folder;
		enum kvr_engine_kind kind;
	} sets[] = {{"vllm-0.32.0/fold", KVR_ENGINE_VLLM},
		    {"sglang-0.5.23/fold", KVR_ENGINE_SGLANG}};
	unsigned int n = 0;

	for (unsigned int i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		char folder[512], name[256];
		struct dirent *entry;
		DIR *dir;

		snprintf(folder, sizeof(folder), "%s/%s", data, sets[i].folder);
		dir = opendir(folder);
		CU_ASSERT_PTR_NOT_NULL_FATAL(dir);
		while ((entry = readdir(dir)) != NULL) {
			const char *dot = strstr(entry->d_name, ".events");

			if (dot == NULL)
				continue;
			snprintf(name, sizeof(name), "%.*s", (int)(dot - entry->d_name),
				 entry->d_name);
			check_recording(folder, name, sets[i].kind);
			n++;
		}
		closedir(dir);
	}
	CU_ASSERT(n >= 10);
}

/* ---- rules ---- */

static void join_strings_and_arrays_of_choices(void)
{
	const char *const events[] = {
		"{\"id\":\"a\",\"object\":\"text_completion\",\"choices\":[{\"index\":1,\"text\":\"x\\\"\","
		"\"logprobs\":{\"tokens\":[ 1 , 2 ],\"more\":[]},\"finish_reason\":null}]}",
		"{\"id\":\"a\",\"choices\":[{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":"
		"\"stop\"}],\"usage\":{\"completion_tokens\":1}}",
		"{\"id\":\"a\",\"choices\":[{\"index\":1,\"text\":\"\\u20ac\",\"logprobs\":{\"tokens\":[3],"
		"\"more\":[4]},\"finish_reason\":\"length\",\"odd\":{\"b\":[5]}}]}",
		"{\"choices\":[],\"usage\":{\"completion_tokens\":3,\"prompt_tokens_details\":{}}}",
		"[DONE]",
		NULL};

	expect_answer(
		create_fold(KVR_ENGINE_SGLANG, KVR_ENGINE_COMPLETIONS, false, MAX_FILE), events, 0,
		200,
		"{\"id\":\"a\",\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"\","
		"\"logprobs\":null,\"finish_reason\":\"stop\",\"matched_stop\":null},{\"index\":1,"
		"\"text\":\"x\\\"\\u20ac\",\"logprobs\":{\"tokens\":[1 , 2 ,3],\"more\":[4]},"
		"\"finish_reason\":\"length\",\"matched_stop\":null,\"odd\":{\"b\":[5]}}],\"usage\":{"
		"\"completion_tokens\":3,\"prompt_tokens_details\":{},\"reasoning_tokens\":0,"
		"\"completion_tokens_details\":null},\"metadata\":null}");
}

/* Other engines repeat the role, leave out the index of a call, or send members of their own. */
static void merge_deltas_of_other_engines(void)
{
	const char *const events[] = {
		"{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}",
		"{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"own\":\"x\",\"tool_calls\":[{"
		"\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}}]}",
		"{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"own\":\"y\",\"tool_calls\":[{"
		"\"index\":0,\"id\":null,\"function\":{\"name\":null,\"arguments\":\"{}\"}}]},"
		"\"finish_reason\":\"tool_calls\"}]}",
		NULL};

	expect_answer(
		create_fold(KVR_ENGINE_SGLANG, KVR_ENGINE_CHAT, false, MAX_FILE), events, 0, 200,
		"{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"\","
		"\"reasoning_content\":null,\"tool_calls\":[{\"id\":\"c\",\"index\":0,\"type\":"
		"\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}],\"own\":\"xy\"},"
		"\"logprobs\":null,\"finish_reason\":\"tool_calls\",\"matched_stop\":null}],\"metadata\":null}");
}

static void take_the_error_of_a_stream(void)
{
	const char *const vllm[] = {"{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}",
				    "{\"error\":{\"message\":\"x\",\"code\":503}}",
				    "{\"error\":{\"message\":\"y\",\"code\":400}}", "[DONE]", NULL};
	const char *const sglang[] = {
		"{\"error\":{\"object\":\"error\",\"message\":\"x\",\"type\":\"B\",\"code\":400}}",
		"[DONE]", NULL};

	expect_answer(create_fold(KVR_ENGINE_VLLM, KVR_ENGINE_CHAT, false, MAX_FILE), vllm, 0, 503,
		      "{\"error\":{\"message\":\"x\",\"code\":503}}");
	expect_answer(create_fold(KVR_ENGINE_SGLANG, KVR_ENGINE_CHAT, false, MAX_FILE), sglang, 0,
		      400, "{\"object\":\"error\",\"message\":\"x\",\"type\":\"B\",\"code\":400}");
}

static void take_the_response_that_ends_a_stream(void)
{
	const char *const failed[] = {
		"{\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\"}}",
		"{\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"x\"}}}",
		NULL};
	const char *const error[] = {
		"{\"type\":\"error\",\"message\":\"x\",\"code\":\"server_error\"}", NULL};
	const char *const cut[] = {"{\"type\":\"response.created\",\"response\":{}}", NULL};

	expect_answer(create_fold(KVR_ENGINE_VLLM, KVR_ENGINE_RESPONSES, false, MAX_FILE), failed,
		      0, 200, "{\"status\":\"failed\",\"error\":{\"code\":\"x\"}}");
	expect_answer(create_fold(KVR_ENGINE_VLLM, KVR_ENGINE_RESPONSES, false, MAX_FILE), error, 0,
		      500, "{\"type\":\"error\",\"message\":\"x\",\"code\":\"server_error\"}");
	expect_answer(create_fold(KVR_ENGINE_VLLM, KVR_ENGINE_RESPONSES, false, MAX_FILE), cut,
		      -EPIPE, 0, NULL);
}

static void refuse_streams_that_make_no_answer(void)
{
	static const char open[] =
		"{\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":null}]}";
	const char *const none[] = {"[DONE]", NULL}, *const cut[] = {open, NULL};
	const char *const bad[] = {open, "{\"choices\":[", "[DONE]", NULL};
	const char *const form[] = {"{\"choices\":[7]}", "[DONE]", NULL};
	const char *const list[] = {"[1]", "[DONE]", NULL};
	const char *const long_one[] = {open, open, "[DONE]", NULL};

	expect_answer(create_fold(KVR_ENGINE_VLLM, KVR_ENGINE_COMPLETIONS, false, MAX_FILE), none,
		      -ENODATA, 0, NULL);
	expect_answer(create_fold(KVR_ENGINE_VLLM, KVR_ENGINE_COMPLETIONS, false, MAX_FILE), cut,
		      -EPIPE, 0, NULL);
	expect_answer(create_fold(KVR_ENGINE_VLLM, KVR_ENGINE_COMPLETIONS, false, MAX_FILE), bad,
		      -EBADMSG, 0, NULL);
	expect_answer(create_fold(KVR_ENGINE_VLLM, KVR_ENGINE_CHAT, false, MAX_FILE), form,
		      -EBADMSG, 0, NULL);
	expect_answer(create_fold(KVR_ENGINE_VLLM, KVR_ENGINE_CHAT, false, MAX_FILE), list,
		      -EBADMSG, 0, NULL);
	expect_answer(create_fold(KVR_ENGINE_VLLM, KVR_ENGINE_CHAT, false, 20), long_one, -EMSGSIZE,
		      0, NULL);
}

static void bound_choices_and_members(void)
{
	struct kvr_engine_fold *fold =
		create_fold(KVR_ENGINE_VLLM, KVR_ENGINE_CHAT, false, MAX_FILE);
	char text[64];
	int rc = 0;

	for (unsigned int i = 0; i < 2000 && rc == 0; i++) {
		snprintf(text, sizeof(text), "{\"choices\":[{\"index\":%u,\"text\":\"\"}]}", i);
		rc = kvr_engine_fold_add(fold, text, strlen(text));
	}
	CU_ASSERT_EQUAL(rc, -E2BIG);
	kvr_engine_fold_destroy(fold);
}

int main(int argc, char **argv)
{
	CU_TestInfo tests[] = {
		KVR_CASE(fold_recorded_streams),
		KVR_CASE(join_strings_and_arrays_of_choices),
		KVR_CASE(merge_deltas_of_other_engines),
		KVR_CASE(take_the_error_of_a_stream),
		KVR_CASE(take_the_response_that_ends_a_stream),
		KVR_CASE(refuse_streams_that_make_no_answer),
		KVR_CASE(bound_choices_and_members),
		CU_TEST_INFO_NULL,
	};

	if (argc != 2)
		return 2;
	data = argv[1];
	return kvr_test_run("fold", tests);
}
