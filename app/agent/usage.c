/* SPDX-License-Identifier: BSD-3-Clause */
/* Usage, errors and messages in the JSON of engine answers. */
#include "usage.h"

#include <string.h>

#define WORDS_MOST 4096u /* bytes of an engine's message */

enum { M_USAGE, M_CHOICES, M_RESULT, M_TYPE, M_RESPONSE, M_DELTA, M_ERROR, M_OBJECT, M_CODE, M_N };
static const char *const names[M_N] = {"usage", "choices",  "kv_transfer_params",
				       "type",	"response", "delta",
				       "error", "object",   "code"};

/* Only grows, because reported tokens cannot be revoked. */
static void set_generated(struct agent_usage *u, uint64_t n)
{
	if (n > u->generated && n <= UINT32_MAX)
		u->generated = (uint32_t)n;
}

/* {"completion_tokens": n, "prompt_tokens_details": {"cached_tokens": n}}, or output_tokens and
 * input_tokens_details in the Responses API. */
static void read_usage(struct agent_usage *u, const struct kvr_json_value *v)
{
	struct kvr_json_value n;
	uint64_t k;

	if ((kvr_json_get(v, "completion_tokens", &n) || kvr_json_get(v, "output_tokens", &n)) &&
	    kvr_json_u64(&n, &k) == 0)
		set_generated(u, k);
	if ((kvr_json_get(v, "prompt_tokens_details.cached_tokens", &n) ||
	     kvr_json_get(v, "input_tokens_details.cached_tokens", &n)) &&
	    kvr_json_u64(&n, &k) == 0 && k <= UINT32_MAX) {
		u->cached_known = true;
		u->cached = (uint32_t)k;
	}
}

static bool is_string(const struct kvr_json_value *v, const char *text)
{
	return v->type == KVR_JSON_STRING && v->len == strlen(text) + 2 &&
	       memcmp(v->p + 1, text, v->len - 2) == 0;
}

static uint32_t status_of(const struct kvr_json_value *code)
{
	uint64_t n;

	return kvr_json_u64(code, &n) == 0 && n >= 400 && n <= 599 ? (uint32_t)n : 0;
}

/* Forms of an error: {"error": {...}}, {"error": "text"}, {"object": "error"}, and in the Responses
 * API an event of type "error" or "response.failed". @return its status; 0: not an error. */
static uint32_t error_of(const struct kvr_json_value m[M_N])
{
	const struct kvr_json_value *e = &m[M_ERROR];
	struct kvr_json_value code = {0}, type = {0};
	uint32_t status;

	if (m[M_CHOICES].type == KVR_JSON_ARRAY ||
	    (e->type != KVR_JSON_OBJECT && (e->type != KVR_JSON_STRING || e->len <= 2) &&
	     !is_string(&m[M_OBJECT], "error") && !is_string(&m[M_TYPE], "error") &&
	     !is_string(&m[M_TYPE], "response.failed")))
		return 0;
	if (e->type == KVR_JSON_OBJECT) {
		kvr_json_get(e, "code", &code);
		kvr_json_get(e, "type", &type);
	} else {
		code = m[M_CODE];
		type = m[M_TYPE];
	}
	status = status_of(&code);
	if (status != 0)
		return status;
	return is_string(&type, "invalid_request_error") || is_string(&type, "BadRequestError")
		       ? 400
		       : 500;
}

enum agent_verdict agent_judge(uint32_t status, bool retry_after)
{
	if (status < 400)
		return AGENT_WELL;
	if (status == 429 || (status == 503 && retry_after))
		return AGENT_REFUSED;
	return status >= 500 || status == 401 || status == 403 || status == 404 ? AGENT_FAILED
										: AGENT_FAULT;
}

static bool has_text(const struct kvr_json_value *v)
{
	return (v->type == KVR_JSON_STRING && v->len > 2) ||
	       (v->type == KVR_JSON_ARRAY && v->len > 2);
}

/* Return true if a choice has generated output. */
static bool has_output(const struct kvr_json_value *choice)
{
	static const char *const delta[] = {"content", "reasoning_content", "reasoning",
					    "tool_calls"};
	struct kvr_json_value v, out[4];

	if (kvr_json_get(choice, "text", &v) && has_text(&v))
		return true;
	if (!kvr_json_get(choice, "delta", &v))
		return false;
	kvr_json_members(&v, delta, 4, out);
	return has_text(&out[0]) || has_text(&out[1]) || has_text(&out[2]) || has_text(&out[3]);
}

void agent_usage_event(struct agent_usage *u, const char *data, size_t len)
{
	struct kvr_json_value root, name, choice, m[M_N];
	struct kvr_json_iter it;
	bool text = false;

	if (len == 6 && memcmp(data, "[DONE]", 6) == 0)
		return;
	u->events++;
	if (kvr_json_parse(data, len, &root, NULL) < 0) {
		u->bad_events++;
		return;
	}
	kvr_json_members(&root, names, M_N, m);
	if (u->error == 0)
		u->error = error_of(m);
	it = kvr_json_begin(&m[M_CHOICES]);
	while (!text && kvr_json_next(&it, &name, &choice))
		text = has_output(&choice);
	text |= m[M_TYPE].type == KVR_JSON_STRING && has_text(&m[M_DELTA]); /* response.*.delta */
	if (text)
		set_generated(u, (uint64_t)u->generated + 1);
	if (m[M_USAGE].type == KVR_JSON_OBJECT)
		read_usage(u, &m[M_USAGE]);
	else if (kvr_json_get(&m[M_RESPONSE], "usage", &choice))
		read_usage(u, &choice);
}

void agent_usage_whole(struct agent_usage *u, const char *data, size_t len,
		       struct kvr_json_value *result)
{
	struct kvr_json_value root, m[M_N];

	if (result != NULL)
		*result = (struct kvr_json_value){0};
	if (kvr_json_parse(data, len, &root, NULL) < 0)
		return;
	kvr_json_members(&root, names, M_N, m);
	u->error = error_of(m);
	read_usage(u, &m[M_USAGE]);
	if (result != NULL && m[M_RESULT].type == KVR_JSON_OBJECT)
		*result = m[M_RESULT];
}

bool agent_prompt_details(const char *data, size_t len, struct kvr_json_value *details)
{
	struct kvr_json_value root;

	return kvr_json_parse(data, len, &root, NULL) == 0 &&
	       (kvr_json_get(&root, "usage.prompt_tokens_details", details) ||
		kvr_json_get(&root, "usage.input_tokens_details", details)) &&
	       details->type == KVR_JSON_OBJECT;
}

/* Length of the prefix of @p n bytes that fits @p most without splitting a character. */
static size_t whole_characters(const char *p, size_t n, size_t most)
{
	if (n <= most)
		return n;
	while (most > 0 && (p[most] & 0xc0) == 0x80)
		most--;
	return most;
}

size_t agent_error_text(const char *data, size_t len, char *buf, size_t size)
{
	static const char *const paths[] = {"error.message", "message", "detail"};
	char text[WORDS_MOST], quoted[WORDS_MOST];
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
	n = whole_characters(from, n, size - 1);
	while (i < n && (unsigned char)from[i] >= ' ' && from[i] != 0x7f)
		i++;
	if (from == data && kvr_json_quote(from, i, quoted, sizeof(quoted)) < 0)
		i = 0; /* not valid text */
	memcpy(buf, from, i);
	buf[i] = '\0';
	return i;
}
