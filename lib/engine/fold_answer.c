/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Write the answer from the merged chunks. A layout lists the members that an engine's own answer
 * has at one place, in their order; members that are in no layout follow.
 */
#include "fold_pvt.h"

/* A member of a layout. */
struct place {
	const char *name;
	const char *missing; /* JSON text if the stream has no value; NULL: leave the member out */
};

#define MAX_PLACES 16u

/* clang-format off */
static const struct place vllm_chat[MAX_PLACES] = {
	{"id", NULL}, {"object", NULL}, {"created", NULL}, {"model", NULL}, {"choices", "[]"}, {"service_tier", "null"},
	{"system_fingerprint", "null"}, {"usage", NULL}, {"prompt_logprobs", "null"}, {"prompt_token_ids", "null"},
	{"prompt_text", "null"}, {"kv_transfer_params", "null"}, {"ec_transfer_params", "null"}, {"metrics", "null"}};
static const struct place vllm_completion[MAX_PLACES] = {
	{"id", NULL}, {"object", NULL}, {"created", NULL}, {"model", NULL}, {"choices", "[]"}, {"service_tier", "null"},
	{"system_fingerprint", "null"}, {"usage", NULL}, {"kv_transfer_params", "null"}, {"ec_transfer_params", "null"},
	{"metrics", "null"}};
static const struct place sglang_answer[MAX_PLACES] = {
	{"id", NULL}, {"object", NULL}, {"created", NULL}, {"model", NULL}, {"choices", "[]"}, {"usage", NULL},
	{"metadata", "null"}};

static const struct place vllm_chat_choice[MAX_PLACES] = {
	{"index", NULL}, {"delta", NULL}, {"logprobs", "null"}, {"finish_reason", "\"stop\""}, {"stop_reason", "null"},
	{"token_ids", "null"}, {"routed_experts", "null"}};
static const struct place vllm_completion_choice[MAX_PLACES] = {
	{"index", NULL}, {"text", "\"\""}, {"logprobs", "null"}, {"finish_reason", "null"}, {"stop_reason", "null"},
	{"token_ids", "null"}, {"prompt_logprobs", "null"}, {"prompt_token_ids", "null"}, {"routed_experts", "null"}};
static const struct place sglang_chat_choice[MAX_PLACES] = {
	{"index", NULL}, {"delta", NULL}, {"logprobs", "null"}, {"finish_reason", "null"}, {"matched_stop", "null"}};
static const struct place sglang_completion_choice[MAX_PLACES] = {
	{"index", NULL}, {"text", "\"\""}, {"logprobs", "null"}, {"finish_reason", "null"}, {"matched_stop", "null"}};

static const struct place vllm_message[MAX_PLACES] = {
	{"role", "\"assistant\""}, {"content", "null"}, {"refusal", "null"}, {"annotations", "null"}, {"audio", "null"},
	{"function_call", "null"}, {"tool_calls", NULL}, {"reasoning", "null"}};
static const struct place sglang_message[MAX_PLACES] = {
	{"role", "\"assistant\""}, {"content", "\"\""}, {"reasoning_content", "null"}, {"tool_calls", NULL}};

static const struct place vllm_call[MAX_PLACES] = {{"id", NULL}, {"type", "\"function\""}, {"function", NULL}};
static const struct place sglang_call[MAX_PLACES] = {
	{"id", NULL}, {"index", NULL}, {"type", "\"function\""}, {"function", NULL}};

static const struct place vllm_usage[MAX_PLACES] = {
	{"prompt_tokens", NULL}, {"total_tokens", NULL}, {"completion_tokens", NULL}, {"prompt_tokens_details", "null"},
	{"completion_tokens_details", "null"}};
static const struct place vllm_prompt_details[MAX_PLACES] = {
	{"cached_tokens", "null"}, {"created_cache_tokens", "null"}, {"multimodal_tokens", "null"}};
static const struct place sglang_usage[MAX_PLACES] = {
	{"prompt_tokens", NULL}, {"total_tokens", NULL}, {"completion_tokens", NULL}, {"prompt_tokens_details", "null"},
	{"reasoning_tokens", "0"}, {"completion_tokens_details", "null"}};
/* clang-format on */

struct writer {
	const struct kvr_engine_fold *fold;
	struct kvr_engine_buffer *out;
	bool vllm;
	bool null_content; /* of the message that is being written */
	bool full;	   /* no memory */
};

static void put_bytes(struct writer *w, const char *p, size_t len)
{
	if (!w->full && !kvr_engine__append_bytes(w->out, p, len))
		w->full = true;
}

static void put_text(struct writer *w, const char *text)
{
	put_bytes(w, text, strlen(text));
}

/* The name of the next member of an object that begins at @p start of the output. */
static void put_name(struct writer *w, size_t start, const char *name, size_t len)
{
	put_text(w, w->out->len > start + 1 ? ",\"" : "\"");
	put_bytes(w, name, len);
	put_text(w, "\":");
}

static void put_value(struct writer *w, const struct fold_node *node);

static void put_members(struct writer *w, const struct fold_node *object)
{
	const size_t start = w->out->len;

	put_text(w, "{");
	for (const struct fold_node *m = object->child; m != NULL; m = m->next) {
		put_name(w, start, m->name.p, m->name.len);
		put_value(w, m);
	}
	put_text(w, "}");
}

static void put_value(struct writer *w, const struct fold_node *node)
{
	const bool string = node->shape == FOLD_STRING, array = node->shape == FOLD_ARRAY;

	switch (node->shape) {
	case FOLD_NULL:
		put_text(w, "null");
		break;
	case FOLD_OBJECT:
		put_members(w, node);
		break;
	case FOLD_INDEXED:
		put_text(w, "[");
		for (const struct fold_node *e = node->child; e != NULL; e = e->next) {
			put_members(w, e);
			put_text(w, e->next != NULL ? "," : "");
		}
		put_text(w, "]");
		break;
	case FOLD_RAW:
	case FOLD_STRING:
	case FOLD_ARRAY:
		put_text(w, string ? "\"" : array ? "[" : "");
		put_bytes(w, node->text.p, node->text.len);
		put_text(w, string ? "\"" : array ? "]" : "");
		break;
	}
}

static bool is_placed(const struct place *layout, const struct fold_node *node)
{
	for (; layout->name != NULL; layout++)
		if (node->name.len == strlen(layout->name) &&
		    memcmp(node->name.p, layout->name, node->name.len) == 0)
			return true;
	return false;
}

typedef void put_member_fn(struct writer *w, const char *name, const struct fold_node *node);

/* Write an object by its layout. @p put writes the value of a member that the stream has. */
static void put_object(struct writer *w, const struct fold_node *object, const struct place *layout,
		       const char *dropped, put_member_fn *put)
{
	const size_t start = w->out->len;
	const struct fold_node *node;

	put_text(w, "{");
	for (const struct place *at = layout; at->name != NULL; at++) {
		const bool delta = strcmp(at->name, "delta") == 0;
		const char *name = delta ? "message" : at->name;

		node = kvr_engine__find_child(object, at->name, strlen(at->name));
		if (node == NULL || node->shape == FOLD_NULL) {
			if (at->missing == NULL)
				continue;
			put_name(w, start, name, strlen(name));
			put_text(w, at->missing);
			continue;
		}
		if (strcmp(at->name, "tool_calls") == 0 && node->child == NULL)
			continue;
		put_name(w, start, name, strlen(name));
		put(w, at->name, node);
	}
	for (node = object->child; node != NULL; node = node->next) {
		if (is_placed(layout, node) ||
		    (dropped != NULL && node->name.len == strlen(dropped) &&
		     memcmp(node->name.p, dropped, node->name.len) == 0))
			continue;
		put_name(w, start, node->name.p, node->name.len);
		put_value(w, node);
	}
	put_text(w, "}");
}

static void put_array(struct writer *w, const struct fold_node *array, const struct place *layout,
		      const char *dropped, put_member_fn *put)
{
	put_text(w, "[");
	for (const struct fold_node *element = array->child; element != NULL;
	     element = element->next) {
		put_object(w, element, layout, dropped, put);
		if (element->next != NULL)
			put_text(w, ",");
	}
	put_text(w, "]");
}

static void put_plain_member(struct writer *w, const char *name, const struct fold_node *node)
{
	(void)name;
	put_value(w, node);
}

static bool has_value(const struct fold_node *parent, const char *name)
{
	const struct fold_node *node = kvr_engine__find_child(parent, name, strlen(name));

	return node != NULL && (node->child != NULL || node->text.len > 0);
}

static void put_message_member(struct writer *w, const char *name, const struct fold_node *node)
{
	const bool empty = node->shape == FOLD_STRING && node->text.len == 0;

	if (strcmp(name, "tool_calls") == 0 && node->shape == FOLD_INDEXED)
		put_array(w, node, w->vllm ? vllm_call : sglang_call, w->vllm ? "index" : NULL,
			  put_plain_member);
	else if (empty && ((w->null_content && strcmp(name, "content") == 0) ||
			   strncmp(name, "reasoning", 9) == 0))
		put_text(w, "null");
	else
		put_value(w, node);
}

/* The first chunk of a stream has an empty content. In an answer of vLLM that is null beside
 * reasoning or tool calls, unless the request forced a tool. */
static void put_message(struct writer *w, const struct fold_node *delta)
{
	const bool text = w->fold->conf.content_is_text;
	struct place layout[MAX_PLACES];

	memcpy(layout, w->vllm ? vllm_message : sglang_message, sizeof(layout));
	if (w->vllm && text)
		layout[1].missing = "\"\"";
	w->null_content = w->vllm && !text &&
			  (has_value(delta, "tool_calls") || has_value(delta, "reasoning") ||
			   has_value(delta, "reasoning_content"));
	put_object(w, delta, layout, NULL, put_message_member);
}

static void put_choice_member(struct writer *w, const char *name, const struct fold_node *node)
{
	if (strcmp(name, "delta") == 0 && node->shape == FOLD_OBJECT)
		put_message(w, node);
	else
		put_value(w, node);
}

/* The usage of a stream lacks what is null, unlike that of an answer. */
static void put_usage_member(struct writer *w, const char *name, const struct fold_node *node)
{
	if (w->vllm && strcmp(name, "prompt_tokens_details") == 0 && node->shape == FOLD_OBJECT)
		put_object(w, node, vllm_prompt_details, NULL, put_plain_member);
	else
		put_value(w, node);
}

static void put_answer_member(struct writer *w, const char *name, const struct fold_node *node)
{
	const bool chat = w->fold->conf.api == KVR_ENGINE_CHAT;

	if (strcmp(name, "choices") == 0 && node->shape == FOLD_INDEXED)
		put_array(w, node,
			  w->vllm ? (chat ? vllm_chat_choice : vllm_completion_choice)
				  : (chat ? sglang_chat_choice : sglang_completion_choice),
			  NULL, put_choice_member);
	else if (strcmp(name, "object") == 0)
		put_text(w, chat ? "\"chat.completion\"" : "\"text_completion\"");
	else if (strcmp(name, "usage") == 0 && node->shape == FOLD_OBJECT)
		put_object(w, node, w->vllm ? vllm_usage : sglang_usage, NULL, put_usage_member);
	else
		put_value(w, node);
}

bool kvr_engine__write_answer(const struct kvr_engine_fold *fold, struct kvr_engine_buffer *out)
{
	struct writer w = {.fold = fold, .out = out, .vllm = fold->conf.kind == KVR_ENGINE_VLLM};
	const bool chat = fold->conf.api == KVR_ENGINE_CHAT;

	put_object(&w, &fold->root,
		   !w.vllm ? sglang_answer
		   : chat  ? vllm_chat
			   : vllm_completion,
		   NULL, put_answer_member);
	return !w.full;
}
