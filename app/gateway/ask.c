/* SPDX-License-Identifier: BSD-3-Clause */
/* Parsing of request bodies for routing, and the bodies for engine and tokenizer made from them. */
#include "ask.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_hash.h"
#include "media.h"

#define ISL_GUESS_MOST 16384u

const char *gw_ask_target(enum gw_path path)
{
	static const char *const targets[GW_PATHS] = {
		[GW_COMPLETIONS] = "/v1/completions", [GW_CHAT] = "/v1/chat/completions",
		[GW_RESPONSES] = "/v1/responses",     [GW_EMBEDDINGS] = "/v1/embeddings",
		[GW_ROUTE] = "/v1/completions",
	};

	return targets[path];
}

static bool is_given(const struct kvr_json_value *v)
{
	return v->type != KVR_JSON_NONE && v->type != KVR_JSON_NULL;
}

static int report_wrong(const char *name, const char *what, char *err, size_t errlen)
{
	snprintf(err, errlen, "%s: %s", name, what);
	return -EINVAL;
}

/* Return true if the content is text only: token ids would not represent images or sound. */
static bool only_text(const struct kvr_json_value *messages)
{
	static const char *const names[] = {"content"};
	struct kvr_json_iter it = kvr_json_begin(messages), parts;
	struct kvr_json_value name, message, content, part, type;

	while (kvr_json_next(&it, &name, &message)) {
		kvr_json_members(&message, names, 1, &content);
		if (content.type != KVR_JSON_ARRAY)
			continue;
		parts = kvr_json_begin(&content);
		while (kvr_json_next(&parts, &name, &part))
			if (!kvr_json_get(&part, "type", &type) || !kvr_json_equals(&type, "text"))
				return false;
	}
	return true;
}

/* Read `prompt` of a completion: a string, ids, or a list of one of these. */
static int read_prompt(struct gw_ask *a, char *err, size_t errlen)
{
	struct kvr_json_iter it;
	struct kvr_json_value name, first, second;
	int64_t n;

	a->form = GW_PROMPT_OPAQUE;
	if (!is_given(&a->prompt))
		return 0; /* for example prompt_embeds: only the engine understands it */
	if (a->prompt.type == KVR_JSON_STRING) {
		a->form = GW_PROMPT_TEXT;
		return 0;
	}
	if (a->prompt.type != KVR_JSON_ARRAY)
		return report_wrong("prompt", "expected a string or an array", err, errlen);
	it = kvr_json_begin(&a->prompt);
	if (!kvr_json_next(&it, &name, &first))
		return report_wrong("prompt", "must not be empty", err, errlen);
	if (first.type == KVR_JSON_NUMBER) {
		a->ids = a->prompt;
	} else if (first.type != KVR_JSON_STRING && first.type != KVR_JSON_ARRAY) {
		return report_wrong("prompt", "expected strings or token ids", err, errlen);
	} else if (kvr_json_next(&it, &name, &second)) {
		return 0; /* several prompts */
	} else if (first.type == KVR_JSON_STRING) {
		a->prompt = first;
		a->form = GW_PROMPT_TEXT;
		return 0;
	} else {
		a->ids = first;
	}
	n = kvr_json_u32s(&a->ids, NULL, 0);
	if (n <= 0 || n > (1 << 20))
		return report_wrong("prompt", "expected 1 to 1048576 token ids", err, errlen);
	a->form = GW_PROMPT_IDS;
	a->n_ids = (uint32_t)n;
	return 0;
}

static int read_messages(struct gw_ask *a, char *err, size_t errlen)
{
	a->form = GW_PROMPT_OPAQUE;
	if (!is_given(&a->messages))
		return report_wrong("messages", "is missing", err, errlen);
	if (a->messages.type != KVR_JSON_ARRAY)
		return report_wrong("messages", "expected an array", err, errlen);
	if (only_text(&a->messages))
		a->form = GW_PROMPT_MESSAGES;
	return 0;
}

/* 16.0 is accepted for 16, as engines accept it. */
static int read_limit(const struct kvr_json_value *v, const char *name, uint32_t *out, char *err,
		      size_t errlen)
{
	double n;

	if (!is_given(v))
		return 0;
	if (kvr_json_f64(v, &n) != 0 || !(n >= 0 && n < UINT32_MAX) || n != (uint32_t)n)
		return report_wrong(name, "expected an integer", err, errlen);
	*out = (uint32_t)n;
	return 0;
}

/* Read nvext.token_data or token_ids, which accompany a text. */
static int read_ids(struct gw_ask *a, const struct kvr_json_value *v, const char *name, char *err,
		    size_t errlen)
{
	const int64_t n = is_given(v) ? kvr_json_u32s(v, NULL, 0) : 0;

	if (n < 0 || n > (1 << 20))
		return report_wrong(name, "expected at most 1048576 token ids", err, errlen);
	if (n > 0) {
		a->form = GW_PROMPT_IDS;
		a->ids = *v;
		a->n_ids = (uint32_t)n;
	}
	return 0;
}

static int read_model(struct gw_ask *a, const struct kvr_json_value *v, char *err, size_t errlen)
{
	if (is_given(v) && gw_hints_text(v, a->model, sizeof(a->model)) < 0)
		return report_wrong("model", "expected a string of at most 255 bytes without NUL",
				    err, errlen);
	return 0;
}

/* The path does not determine the format of the body. */
static bool only_asked(const struct gw_ask *a)
{
	return a->path == GW_PICK || a->path == GW_LOADS;
}

static bool is_preprocessed(const struct gw_ask *a)
{
	struct kvr_json_value v;

	return only_asked(a) && kvr_json_get(&a->root, "token_ids", &v);
}

/* The body is forwarded unchanged: the engine knows this salt, and its events name blocks without
 * the tag. A namespace given as a hint is the name itself. */
static int read_salt(struct gw_hints *hints, const struct kvr_json_value *v, char *err,
		     size_t errlen)
{
	const size_t tag = sizeof(KVR_HASH_SALT_TAG) - 1;

	if (gw_hints_text(v, hints->cache_namespace, sizeof(hints->cache_namespace)) < 0)
		return report_wrong("cache_salt", "expected at most 255 bytes of text without NUL",
				    err, errlen);
	if (strncmp(hints->cache_namespace, KVR_HASH_SALT_TAG, tag) == 0 &&
	    hints->cache_namespace[tag] != '\0')
		memmove(hints->cache_namespace, hints->cache_namespace + tag,
			strlen(hints->cache_namespace + tag) + 1);
	hints->any = true;
	return 0;
}

static int read_openai(struct gw_ask *a, struct gw_hints *hints, char *err, size_t errlen)
{
	enum { MODEL, STREAM, MAX, MAX_NEW, MAX_OUT, PROMPT, MESSAGES, NVEXT, SALT, N };
	static const char *const names[N] = {"model",
					     "stream",
					     "max_tokens",
					     "max_completion_tokens",
					     "max_output_tokens",
					     "prompt",
					     "messages",
					     "nvext",
					     "cache_salt"};
	struct kvr_json_value v[N], ids;
	int rc;

	kvr_json_members(&a->root, names, N, v);
	a->prompt = v[PROMPT];
	a->messages = v[MESSAGES];
	a->form = GW_PROMPT_OPAQUE;
	if (is_given(&v[STREAM]) && kvr_json_bool(&v[STREAM], &a->stream) != 0)
		return report_wrong("stream", "expected true or false", err, errlen);
	rc = read_model(a, &v[MODEL], err, errlen);
	if (rc == 0)
		rc = read_limit(&v[MAX], "max_tokens", &a->max_tokens, err, errlen);
	if (rc == 0)
		rc = read_limit(&v[MAX_NEW], "max_completion_tokens", &a->max_tokens, err, errlen);
	if (rc == 0)
		rc = read_limit(&v[MAX_OUT], "max_output_tokens", &a->max_tokens, err, errlen);
	if (rc == 0 && (a->path == GW_COMPLETIONS || (only_asked(a) && is_given(&a->prompt))))
		rc = read_prompt(a, err, errlen);
	if (rc == 0 && (a->path == GW_CHAT || (only_asked(a) && is_given(&a->messages))))
		rc = read_messages(a, err, errlen);
	if (rc == 0 && is_given(&v[NVEXT]))
		rc = gw_hints_object(hints, &v[NVEXT], err, errlen);
	if (rc == 0 && v[NVEXT].type == KVR_JSON_OBJECT &&
	    kvr_json_get(&v[NVEXT], "token_data", &ids))
		rc = read_ids(a, &ids, "nvext.token_data", err, errlen);
	if (rc == 0 && is_given(&v[SALT]))
		rc = read_salt(hints, &v[SALT], err, errlen);
	return rc;
}

/* Read token_ids of a PreprocessedEmbeddingRequest: ids of several texts. */
static bool is_embedding(const struct kvr_json_value *ids)
{
	struct kvr_json_iter it = kvr_json_begin(ids);
	struct kvr_json_value name, first;

	return ids->type == KVR_JSON_ARRAY && kvr_json_next(&it, &name, &first) &&
	       first.type == KVR_JSON_ARRAY;
}

static int read_embedding(struct gw_ask *a, char *err, size_t errlen)
{
	struct kvr_json_iter it = kvr_json_begin(&a->prompt);
	struct kvr_json_value name, text;
	uint32_t sum = 0;

	while (kvr_json_next(&it, &name, &text)) {
		const int64_t n = kvr_json_u32s(&text, NULL, 0);

		if (n < 0 || sum + n > (1 << 20))
			return report_wrong("token_ids",
					    "expected lists of token ids, at most 1048576 in total",
					    err, errlen);
		sum += (uint32_t)n;
	}
	a->isl_guess = sum > 0 ? sum : 1;
	if (a->path == GW_ROUTE)
		a->path = GW_EMBEDDINGS;
	a->stream = false;
	return 0;
}

/* The prompt for routing: with images, mm_routing_info has it, with their hashes. */
static int read_routed(struct gw_ask *a, const struct kvr_json_value *mm, char *err, size_t errlen)
{
	static const char *const names[] = {"routing_token_ids", "block_mm_infos"};
	struct kvr_json_value v[2];
	int rc = read_ids(a, &a->prompt, "token_ids", err, errlen);

	kvr_json_members(mm, names, 2, v);
	if (rc != 0 || !is_given(&v[0]))
		return rc;
	rc = read_ids(a, &v[0], "mm_routing_info.routing_token_ids", err, errlen);
	if (rc != 0 || a->ids.p != v[0].p)
		return rc;
	a->media = v[1];
	rc = gw_media_read(&a->media, NULL, err, errlen);
	return rc < 0 ? rc : 0;
}

static int read_preprocessed(struct gw_ask *a, struct gw_hints *hints, char *err, size_t errlen)
{
	enum { MODEL, IDS, MM, STOP, NOTES, ROUTING, OVERRIDE, PROBE, N };
	static const char *const names[N] = {
		"model",       "token_ids", "mm_routing_info",	      "stop_conditions",
		"annotations", "routing",   "router_config_override", "_HEALTH_CHECK"};
	struct kvr_json_value v[N], part;
	int rc;

	kvr_json_members(&a->root, names, N, v);
	a->stream = true;
	a->preprocessed = true;
	a->form = GW_PROMPT_OPAQUE;
	if (is_given(&v[PROBE]) && kvr_json_bool(&v[PROBE], &a->probe) != 0)
		return report_wrong("_HEALTH_CHECK", "expected true or false", err, errlen);
	a->prompt = v[IDS];
	rc = read_model(a, &v[MODEL], err, errlen);
	if (rc == 0)
		rc = is_embedding(&v[IDS]) ? read_embedding(a, err, errlen)
					   : read_routed(a, &v[MM], err, errlen);
	if (rc == 0 && kvr_json_get(&v[STOP], "max_tokens", &part))
		rc = read_limit(&part, "stop_conditions.max_tokens", &a->max_tokens, err, errlen);
	if (rc == 0)
		rc = gw_hints_annotations(hints, &v[NOTES], err, errlen);
	if (rc == 0)
		rc = gw_hints_object(hints, &v[ROUTING], err, errlen);
	if (rc == 0 && gw_hints_override(hints, &v[OVERRIDE], err, errlen) != 0)
		rc = report_wrong("router_config_override", "wrong type or out of range", err,
				  errlen);
	if (rc == 0 && a->probe)
		a->form = GW_PROMPT_OPAQUE; /* leaves no trace in the index */
	return rc;
}

int gw_ask_read(struct gw_ask *a, enum gw_path path, const char *body, size_t len,
		struct gw_hints *hints, char *err, size_t errlen)
{
	size_t at = 0;
	int rc;

	*a = (struct gw_ask){.path = path};
	rc = kvr_json_parse(body, len, &a->root, &at);
	if (rc != 0) {
		snprintf(err, errlen, "the body is not JSON: invalid at byte %zu%s", at,
			 rc == -E2BIG ? " (nested too deeply)" : "");
		return -EBADMSG;
	}
	if (a->root.type != KVR_JSON_OBJECT) {
		snprintf(err, errlen, "the body is not a JSON object");
		return -EBADMSG;
	}
	/* Images and sound are many bytes but few tokens. */
	a->isl_guess = len / 4 < ISL_GUESS_MOST ? (uint32_t)(len / 4 + 1) : ISL_GUESS_MOST;
	return path == GW_ROUTE || is_preprocessed(a) ? read_preprocessed(a, hints, err, errlen)
						      : read_openai(a, hints, err, errlen);
}

void gw_ask_ids(const struct gw_ask *a, uint32_t ids[])
{
	kvr_json_u32s(&a->ids, ids, a->n_ids);
}

/* Append a member to an object; the buffer was sized beforehand. */
struct text {
	char *p;
	size_t len;
};

static void add_member(struct text *t, const char *name, const struct kvr_json_value *v)
{
	if (!is_given(v))
		return;
	t->p[t->len] = t->len == 0 ? '{' : ',';
	t->p[t->len + 1] = '"';
	t->len += 2;
	memcpy(t->p + t->len, name, strlen(name));
	t->len += strlen(name);
	memcpy(t->p + t->len, "\":", 2);
	t->len += 2;
	memcpy(t->p + t->len, v->p, v->len);
	t->len += v->len;
}

char *gw_ask_question(const struct gw_ask *a, size_t *len)
{
	static const char *const names[] = {"model",
					    "messages",
					    "tools",
					    "add_generation_prompt",
					    "continue_final_message",
					    "add_special_tokens",
					    "chat_template",
					    "chat_template_kwargs",
					    "reasoning_effort",
					    "documents",
					    "mm_processor_kwargs"};
	enum { N = sizeof(names) / sizeof(names[0]) };
	struct kvr_json_value v[N];
	struct text t = {malloc(a->root.len + 1024), 0};

	if (t.p == NULL)
		return NULL;
	kvr_json_members(&a->root, names, N, v);
	v[1] = a->messages;
	add_member(&t, names[0], &v[0]);
	if (a->form == GW_PROMPT_TEXT) {
		add_member(&t, "prompt", &a->prompt);
		add_member(&t, "add_special_tokens", &v[5]);
	} else {
		for (unsigned int i = 1; i < N; i++)
			add_member(&t, names[i], &v[i]);
	}
	if (t.len == 0)
		t.p[t.len++] = '{';
	t.p[t.len++] = '}';
	*len = t.len;
	return t.p;
}

/* Edits that move non-null members of a nested object to the top level. */
static unsigned int lift_members(const struct kvr_json_value *object, const char *const names[],
				 unsigned int n, struct kvr_json_edit edits[])
{
	struct kvr_json_value v[KVR_JSON_MAX_NAMES];
	unsigned int k = 0;

	kvr_json_members(object, names, n, v);
	for (unsigned int i = 0; i < n; i++)
		if (is_given(&v[i]))
			edits[k++] = (struct kvr_json_edit){names[i], v[i].p, v[i].len};
	return k;
}

char *gw_ask_body(const struct gw_ask *a, size_t *len)
{
	static const char *const sampling[] = {"n",
					       "best_of",
					       "presence_penalty",
					       "frequency_penalty",
					       "repetition_penalty",
					       "top_p",
					       "top_k",
					       "min_p",
					       "temperature",
					       "seed"};
	static const char *const stop[] = {"max_tokens", "min_tokens", "stop", "stop_token_ids",
					   "ignore_eos"};
	struct kvr_json_edit edits[KVR_JSON_MAX_NAMES];
	struct kvr_json_value part;
	unsigned int n = 0;
	size_t bound;
	int64_t made;
	char *out;

	if (a->path == GW_EMBEDDINGS) {
		edits[n++] = (struct kvr_json_edit){"input", a->prompt.p, a->prompt.len};
	} else {
		edits[n++] = (struct kvr_json_edit){"stream", "true", 4};
		edits[n++] = is_given(&a->prompt)
				     ? (struct kvr_json_edit){"prompt", a->prompt.p, a->prompt.len}
				     : (struct kvr_json_edit){"prompt", "[]", 2};
		if (kvr_json_get(&a->root, "sampling_options", &part))
			n += lift_members(&part, sampling, 10, edits + n);
		if (kvr_json_get(&a->root, "stop_conditions", &part))
			n += lift_members(&part, stop, 5, edits + n);
	}
	bound = kvr_json_edit_bound(&a->root, edits, n);
	out = malloc(bound);
	made = out != NULL ? kvr_json_edit(&a->root, edits, n, out, bound) : -ENOMEM;
	if (made < 0) {
		free(out);
		return NULL;
	}
	*len = (size_t)made;
	return out;
}
