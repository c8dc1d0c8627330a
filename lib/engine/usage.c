/* SPDX-License-Identifier: BSD-3-Clause */
/* Read counts and errors from an engine's answer. */
#include "kvr_engine_usage.h"

#include <string.h>

#define MAX_TEXT 4096u /* of an engine's message, before it is cut */

enum { M_USAGE, M_CHOICES, M_RESULT, M_TYPE, M_RESPONSE, M_DELTA, M_ERROR, M_OBJECT, M_CODE, M_N };
static const char *const names[M_N] = {"usage", "choices",  "kv_transfer_params",
				       "type",	"response", "delta",
				       "error", "object",   "code"};

/* The count never falls: it may have been reported already. */
static void set_generated(struct kvr_engine_usage *usage, uint64_t n)
{
	if (n > usage->generated && n <= UINT32_MAX)
		usage->generated = (uint32_t)n;
}

static bool is_string(const struct kvr_json_value *v, const char *text)
{
	return v->type == KVR_JSON_STRING && v->len == strlen(text) + 2 &&
	       memcmp(v->p + 1, text, v->len - 2) == 0;
}

/* completion_tokens, in the responses API output_tokens. */
static bool get_completion_tokens(const struct kvr_json_value *v, uint64_t *n)
{
	struct kvr_json_value value;

	return (kvr_json_get(v, "completion_tokens", &value) ||
		kvr_json_get(v, "output_tokens", &value)) &&
	       kvr_json_u64(&value, n) == 0;
}

static void read_cached_tokens(struct kvr_engine_usage *usage, const struct kvr_json_value *v)
{
	struct kvr_json_value value;
	uint64_t n;

	if ((kvr_json_get(v, "prompt_tokens_details.cached_tokens", &value) ||
	     kvr_json_get(v, "input_tokens_details.cached_tokens", &value)) &&
	    kvr_json_u64(&value, &n) == 0 && n <= UINT32_MAX) {
		usage->cached_known = true;
		usage->cached = (uint32_t)n;
	}
}

/* The usage of a whole answer, or of the last chunk. */
static void read_total(struct kvr_engine_usage *usage, const struct kvr_json_value *v)
{
	uint64_t n;

	if (get_completion_tokens(v, &n))
		set_generated(usage, n);
	read_cached_tokens(usage, v);
}

/* ---- errors ---- */

static uint32_t read_status(const struct kvr_json_value *code)
{
	uint64_t n;

	return kvr_json_u64(code, &n) == 0 && n >= 400 && n <= 599 ? (uint32_t)n : 0;
}

static uint32_t find_error(const struct kvr_json_value m[M_N])
{
	const struct kvr_json_value *error = &m[M_ERROR];
	struct kvr_json_value code = {0}, type = {0};
	uint32_t status;

	if (m[M_CHOICES].type == KVR_JSON_ARRAY ||
	    (error->type != KVR_JSON_OBJECT &&
	     (error->type != KVR_JSON_STRING || error->len <= 2) &&
	     !is_string(&m[M_OBJECT], "error") && !is_string(&m[M_TYPE], "error") &&
	     !is_string(&m[M_TYPE], "response.failed")))
		return 0;
	if (error->type == KVR_JSON_OBJECT) {
		kvr_json_get(error, "code", &code);
		kvr_json_get(error, "type", &type);
	} else {
		code = m[M_CODE];
		type = m[M_TYPE];
	}
	status = read_status(&code);
	if (status != 0)
		return status;
	return is_string(&type, "invalid_request_error") || is_string(&type, "BadRequestError")
		       ? 400
		       : 500;
}

uint32_t kvr_engine_error_status(const struct kvr_json_value *root)
{
	struct kvr_json_value m[M_N];

	kvr_json_members(root, names, M_N, m);
	return find_error(m);
}

enum kvr_engine_verdict kvr_engine_judge(uint32_t status, bool retry_after)
{
	if (status < 400)
		return KVR_ENGINE_WELL;
	if (status == 429 || (status == 503 && retry_after))
		return KVR_ENGINE_REFUSED;
	return status >= 500 || status == 401 || status == 403 || status == 404 ? KVR_ENGINE_FAILED
										: KVR_ENGINE_FAULT;
}

/* ---- tokens of a stream ---- */

static bool has_content(const struct kvr_json_value *v)
{
	return (v->type == KVR_JSON_STRING || v->type == KVR_JSON_ARRAY) && v->len > 2;
}

/* Whether a choice contains generated text. */
static bool has_text(const struct kvr_json_value *choice)
{
	static const char *const delta[] = {"content", "reasoning_content", "reasoning",
					    "tool_calls"};
	struct kvr_json_value v, out[4];

	if (kvr_json_get(choice, "text", &v) && has_content(&v))
		return true;
	if (!kvr_json_get(choice, "delta", &v))
		return false;
	kvr_json_members(&v, delta, 4, out);
	return has_content(&out[0]) || has_content(&out[1]) || has_content(&out[2]) ||
	       has_content(&out[3]);
}

static uint32_t count_elements(const struct kvr_json_value *array)
{
	struct kvr_json_iter it = kvr_json_begin(array);
	struct kvr_json_value name, value;
	uint32_t n = 0;

	while (kvr_json_next(&it, &name, &value))
		n++;
	return n;
}

/* Tokens of a choice in one chunk without usage. */
static uint32_t count_tokens(const struct kvr_json_value *choice)
{
	static const char *const paths[] = {"token_ids", "logprobs.content", "logprobs.tokens"};
	struct kvr_json_value v;
	uint32_t n = 0;

	for (unsigned int i = 0; n == 0 && i < sizeof(paths) / sizeof(paths[0]); i++)
		if (kvr_json_get(choice, paths[i], &v) && v.type == KVR_JSON_ARRAY)
			n = count_elements(&v);
	return n > 0 ? n : has_text(choice);
}

static void add_choices(struct kvr_engine_usage *usage)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < KVR_ENGINE_CHOICES; i++)
		sum += usage->choice[i];
	set_generated(usage, sum);
}

/* A chunk: its usage is that of its one choice so far, or in the last chunk that of all. */
static void count_chunk(struct kvr_engine_usage *usage, const struct kvr_json_value *choices,
			const struct kvr_json_value *chunk_usage)
{
	struct kvr_json_iter it = kvr_json_begin(choices);
	struct kvr_json_value name, choice, index, details;
	const bool has_usage = chunk_usage->type == KVR_JSON_OBJECT;
	uint64_t running = 0, i;
	uint32_t n = 0;

	for (; kvr_json_next(&it, &name, &choice); n++) {
		if (!kvr_json_get(&choice, "index", &index) || kvr_json_u64(&index, &i) < 0 ||
		    i >= KVR_ENGINE_CHOICES)
			i = KVR_ENGINE_CHOICES - 1;
		if (has_usage && get_completion_tokens(chunk_usage, &running) &&
		    i < KVR_ENGINE_CHOICES - 1 && running <= UINT32_MAX)
			usage->choice[i] =
				running > usage->choice[i] ? (uint32_t)running : usage->choice[i];
		else
			usage->choice[i] += count_tokens(&choice);
	}
	if (n == 0 && has_usage) {
		read_total(usage, chunk_usage);
		return;
	}
	usage->running |= has_usage;
	usage->running_costs |= has_usage &&
				kvr_json_get(chunk_usage, "completion_tokens_details", &details) &&
				details.type == KVR_JSON_OBJECT;
	read_cached_tokens(usage, chunk_usage);
	add_choices(usage);
}

void kvr_engine_count_event(struct kvr_engine_usage *usage, const char *data, size_t len)
{
	struct kvr_json_value root, total, m[M_N];

	if (len == 6 && memcmp(data, "[DONE]", 6) == 0)
		return;
	usage->events++;
	if (kvr_json_parse(data, len, &root, NULL) < 0) {
		usage->bad_events++;
		return;
	}
	kvr_json_members(&root, names, M_N, m);
	if (usage->error == 0)
		usage->error = find_error(m);
	if (m[M_TYPE].type == KVR_JSON_STRING && has_content(&m[M_DELTA])) /* response.*.delta */
		set_generated(usage, (uint64_t)usage->generated + 1);
	if (kvr_json_get(&m[M_RESPONSE], "usage", &total))
		read_total(usage, &total);
	else
		count_chunk(usage, &m[M_CHOICES], &m[M_USAGE]);
}

/* ---- whole answers ---- */

void kvr_engine_count_answer(struct kvr_engine_usage *usage, const char *data, size_t len,
			     struct kvr_json_value *result)
{
	struct kvr_json_value root, m[M_N];

	if (result != NULL)
		*result = (struct kvr_json_value){0};
	if (kvr_json_parse(data, len, &root, NULL) < 0)
		return;
	kvr_json_members(&root, names, M_N, m);
	usage->error = find_error(m);
	read_total(usage, &m[M_USAGE]);
	if (result != NULL && m[M_RESULT].type == KVR_JSON_OBJECT)
		*result = m[M_RESULT];
}

bool kvr_engine_find_prompt_details(const char *data, size_t len, struct kvr_json_value *details)
{
	struct kvr_json_value root;

	return kvr_json_parse(data, len, &root, NULL) == 0 &&
	       (kvr_json_get(&root, "usage.prompt_tokens_details", details) ||
		kvr_json_get(&root, "usage.input_tokens_details", details)) &&
	       details->type == KVR_JSON_OBJECT;
}

/* The number of bytes, at most @p most of @p n, that end with a whole character. */
static size_t cut_text(const char *p, size_t n, size_t most)
{
	if (n <= most)
		return n;
	while (most > 0 && (p[most] & 0xc0) == 0x80)
		most--;
	return most;
}

size_t kvr_engine_error_text(const char *data, size_t len, char *buf, size_t size)
{
	static const char *const paths[] = {"error.message", "message", "detail"};
	char text[MAX_TEXT], quoted[MAX_TEXT];
	struct kvr_json_value root, v;
	const char *from = text;
	int64_t found = -1;
	size_t n, i = 0;

	if (kvr_json_parse(data, len, &root, NULL) == 0)
		for (unsigned int k = 0; k < sizeof(paths) / sizeof(paths[0]) && found <= 0; k++)
			if (kvr_json_get(&root, paths[k], &v) && v.type == KVR_JSON_STRING)
				found = kvr_json_string(&v, text, sizeof(text));
	n = (size_t)found;
	if (found <= 0) { /* no text, or too long */
		from = data;
		n = len;
	}
	n = cut_text(from, n, size - 1);
	while (i < n && (unsigned char)from[i] >= ' ' && from[i] != 0x7f)
		i++;
	if (from == data && kvr_json_quote(from, i, quoted, sizeof(quoted)) < 0)
		i = 0; /* no text */
	memcpy(buf, from, i);
	buf[i] = '\0';
	return i;
}
