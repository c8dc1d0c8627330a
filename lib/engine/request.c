/* SPDX-License-Identifier: BSD-3-Clause */
/* All changes of a content are collected, then made in one pass. */
#include "kvr_engine_request.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_json.h"

#define MAX_EDITS 16u

struct edits {
	struct kvr_json_edit edit[MAX_EDITS];
	unsigned int n;
	char *owned[2]; /* values that are freed with the list */
	unsigned int n_owned;
	char host[600], port[8], room[24], rank[24];
};

static void set_member(struct edits *edits, const char *name, const char *value, size_t len)
{
	assert(edits->n < MAX_EDITS);
	edits->edit[edits->n++] = (struct kvr_json_edit){.name = name, .value = value, .len = len};
}

static void set_text(struct edits *edits, const char *name, const char *value)
{
	set_member(edits, name, value, strlen(value));
}

static void delete_member(struct edits *edits, const char *name)
{
	set_member(edits, name, NULL, 0);
}

/* Apply edits to an object. @return length or -errno. */
static int64_t edit_object(const struct kvr_json_value *object, const struct kvr_json_edit edits[],
			   unsigned int n, char **out)
{
	const size_t size = kvr_json_edit_bound(object, edits, n);
	int64_t len;

	*out = malloc(size);
	if (*out == NULL)
		return -ENOMEM;
	len = kvr_json_edit(object, edits, n, *out, size);
	if (len < 0) {
		free(*out);
		*out = NULL;
	}
	return len;
}

/* Set a member to an object with edits of its own. @return 0 or -errno. */
static int set_edited(struct edits *edits, const char *name, const struct kvr_json_value *object,
		      const struct kvr_json_edit inner[], unsigned int n)
{
	char *value;
	const int64_t len = edit_object(object, inner, n, &value);

	if (len < 0)
		return (int)len;
	edits->owned[edits->n_owned++] = value;
	set_member(edits, name, value, (size_t)len);
	return 0;
}

/* ---- legs ---- */

/*
 * One token, at once, whose blocks are kept for another engine. The engine keeps them only if the
 * length ends the request, so nothing else may end it.
 */
static void edit_vllm_prefill(struct edits *edits, enum kvr_engine_api api)
{
	if (api == KVR_ENGINE_RESPONSES) {
		set_text(edits, "max_output_tokens", "1");
		delete_member(edits, "background");
	} else {
		set_text(edits, "max_tokens", "1");
		set_text(edits, "max_completion_tokens", "1");
	}
	set_text(edits, "stream", "false");
	delete_member(edits, "stream_options");
	delete_member(edits, "n");
	delete_member(edits, "stop");
	delete_member(edits, "stop_token_ids");
	set_text(edits, "ignore_eos", "true");
	delete_member(edits, "min_tokens"); /* more than one would be rejected */
	set_text(edits, "kv_transfer_params",
		 "{\"do_remote_decode\":true,\"do_remote_prefill\":false,"
		 "\"remote_engine_id\":null,\"remote_block_ids\":null,"
		 "\"remote_host\":null,\"remote_port\":null}");
}

/* The transfer result as it came, with the direction reversed. */
static int edit_vllm_decode(struct edits *edits, const struct kvr_engine_leg *leg)
{
	static const struct kvr_json_edit reverse[] = {{"do_remote_prefill", "true", 4},
						       {"do_remote_decode", "false", 5}};
	struct kvr_json_value result;

	if (leg->result_len == 0)
		return -EINVAL;
	if (kvr_json_parse(leg->result, leg->result_len, &result, NULL) < 0 ||
	    result.type != KVR_JSON_OBJECT)
		return -EPROTO;
	return set_edited(edits, "kv_transfer_params", &result, reverse, 2);
}

/* Both legs name the meeting point and the room; a decode leg names the prefill rank of the room.
 */
static int edit_sglang(struct edits *edits, const struct kvr_engine_leg *leg)
{
	int64_t n;

	if (leg->bootstrap_host == NULL)
		return -EINVAL;
	n = kvr_json_quote(leg->bootstrap_host, strlen(leg->bootstrap_host), edits->host,
			   sizeof(edits->host));
	if (n < 0)
		return -EINVAL;
	set_member(edits, "bootstrap_host", edits->host, (size_t)n);
	snprintf(edits->port, sizeof(edits->port), "%u", leg->bootstrap_port);
	set_text(edits, "bootstrap_port", edits->port);
	snprintf(edits->room, sizeof(edits->room), "%" PRIu64, leg->bootstrap_room);
	set_text(edits, "bootstrap_room", edits->room);
	if (leg->leg != KVR_ROLE_DECODE || leg->prefill_ranks == 0)
		return 0;
	snprintf(edits->rank, sizeof(edits->rank), "%" PRIu64,
		 leg->bootstrap_room % leg->prefill_ranks);
	set_text(edits, "disagg_prefill_dp_rank", edits->rank);
	return 0;
}

static bool is_set(const struct kvr_json_value *v)
{
	bool on;

	return v->type > KVR_JSON_NULL && (kvr_json_bool(v, &on) < 0 || on);
}

static bool is_above_one(const struct kvr_json_value *v)
{
	uint64_t n;

	return kvr_json_u64(v, &n) == 0 && n > 1;
}

/*
 * Whether a pair of vLLM engines can run the request. Logprobs of the prompt end the engine core of
 * a decode engine, because it has not computed the prompt; several sequences would fetch, and free,
 * the same blocks.
 */
static bool is_fit_for_pair(const struct kvr_json_value *object)
{
	static const char *const names[] = {"prompt_logprobs", "echo", "logprobs", "n", "best_of"};
	struct kvr_json_value m[5];

	kvr_json_members(object, names, 5, m);
	return !is_set(&m[0]) && !(is_set(&m[1]) && is_set(&m[2])) && !is_above_one(&m[3]) &&
	       !is_above_one(&m[4]);
}

static int edit_leg(struct edits *edits, const struct kvr_engine_request *request,
		    enum kvr_engine_api api, const struct kvr_json_value *object)
{
	if (request->kind == KVR_ENGINE_SGLANG)
		return edit_sglang(edits, &request->leg);
	if (!is_fit_for_pair(object))
		return -ENOTSUP;
	if (request->leg.leg == KVR_ROLE_DECODE)
		return edit_vllm_decode(edits, &request->leg);
	edit_vllm_prefill(edits, api);
	return 0;
}

/* ---- form of the answer ---- */

enum { M_STREAM, M_OPTIONS, M_CHOICE, M_TOKEN_IDS, M_DIFFERS };
static const char *const members[] = {
	[M_STREAM] = "stream",
	[M_OPTIONS] = "stream_options",
	[M_CHOICE] = "tool_choice",
	[M_TOKEN_IDS] = "return_token_ids",
	/* A streamed answer lacks something of the whole one, or does not exist: */
	[M_DIFFERS] = "echo",
	"best_of",
	"use_beam_search",
	"prompt_logprobs",
	"kv_transfer_params",
	"ec_transfer_params",
	"background",
	"return_hidden_states",
	"return_meta_info",
	"return_prompt_token_ids",
};
#define M_N (sizeof(members) / sizeof(members[0]))

static bool is_true(const struct kvr_json_value *object, const char *name)
{
	struct kvr_json_value v;
	bool on;

	return kvr_json_get(object, name, &v) && kvr_json_bool(&v, &on) == 0 && on;
}

static bool is_foldable(const struct kvr_engine_request *request,
			const struct kvr_json_value m[M_N])
{
	for (unsigned int i = M_DIFFERS; i < M_N; i++)
		if (is_set(&m[i]))
			return false;
	return !is_set(&m[M_OPTIONS]) &&
	       (request->kind == KVR_ENGINE_VLLM || !is_set(&m[M_TOKEN_IDS])) &&
	       kvr_http_find(request->head, "endpoint-load-metrics-format") == NULL;
}

/* Whether the request makes the engine call a tool; vLLM answers with "" as content then. */
static bool forces_tool(const struct kvr_json_value *choice)
{
	return choice->type == KVR_JSON_OBJECT || kvr_json_equals(choice, "required");
}

static int plan_fold(const struct kvr_engine_request *request, const struct kvr_json_value m[M_N],
		     struct kvr_engine_plan *plan, struct edits *edits)
{
	if (!is_foldable(request, m))
		return 0;
	plan->form = KVR_ENGINE_FOLD;
	plan->content_is_text = forces_tool(&m[M_CHOICE]);
	set_text(edits, "stream", "true");
	if (plan->api != KVR_ENGINE_RESPONSES)
		set_text(edits, "stream_options",
			 request->running_usage
				 ? "{\"include_usage\":true,\"continuous_usage_stats\":true}"
				 : "{\"include_usage\":true}");
	return 0;
}

/* vLLM reports running usage only with the total, SGLang also without. */
static int plan_strip(const struct kvr_engine_request *request, const struct kvr_json_value m[M_N],
		      struct kvr_engine_plan *plan, struct edits *edits)
{
	static const struct kvr_json_edit more[] = {{"include_usage", "true", 4},
						    {"continuous_usage_stats", "true", 4}};
	const bool vllm = request->kind == KVR_ENGINE_VLLM;
	const bool total = is_true(&m[M_OPTIONS], "include_usage");
	const bool running = is_true(&m[M_OPTIONS], "continuous_usage_stats") && (total || !vllm);
	struct kvr_json_value options = m[M_OPTIONS];

	if (plan->api == KVR_ENGINE_RESPONSES || (total && (running || !request->running_usage)) ||
	    (options.type > KVR_JSON_NULL && options.type != KVR_JSON_OBJECT))
		return 0;
	plan->form = KVR_ENGINE_STRIP;
	plan->drop_total = !total;
	plan->drop_running = !running;
	if (options.type != KVR_JSON_OBJECT)
		options = (struct kvr_json_value){.p = "{}", .len = 2, .type = KVR_JSON_OBJECT};
	return set_edited(edits, "stream_options", &options, more, request->running_usage ? 2 : 1);
}

static int plan_form(const struct kvr_engine_request *request, const struct kvr_json_value *object,
		     struct kvr_engine_plan *plan, struct edits *edits)
{
	struct kvr_json_value m[M_N];
	bool stream = false;

	if (plan->api == KVR_ENGINE_OTHER || plan->prefill ||
	    !kvr_http_equals(request->head->method, "POST"))
		return 0;
	kvr_json_members(object, members, M_N, m);
	if (m[M_STREAM].type > KVR_JSON_NULL && kvr_json_bool(&m[M_STREAM], &stream) < 0)
		return 0;
	return stream ? plan_strip(request, m, plan, edits) : plan_fold(request, m, plan, edits);
}

/* ---- outside ---- */

enum kvr_engine_api kvr_engine_find_api(struct kvr_http_span target)
{
	static const char *const paths[] = {[KVR_ENGINE_COMPLETIONS] = "/v1/completions",
					    [KVR_ENGINE_CHAT] = "/v1/chat/completions",
					    [KVR_ENGINE_RESPONSES] = "/v1/responses"};

	for (unsigned int i = KVR_ENGINE_COMPLETIONS; i < sizeof(paths) / sizeof(paths[0]); i++) {
		const size_t n = strlen(paths[i]);

		if (target.len >= n && memcmp(target.p, paths[i], n) == 0 &&
		    (target.len == n || target.p[n] == '?' || target.p[n] == '#'))
			return (enum kvr_engine_api)i;
	}
	return KVR_ENGINE_OTHER;
}

static int copy_content(const struct kvr_engine_request *request, struct kvr_engine_plan *plan)
{
	plan->content = malloc(request->content_len + 1);
	if (plan->content == NULL)
		return -ENOMEM;
	memcpy(plan->content, request->content, request->content_len);
	plan->content_len = request->content_len;
	return 0;
}

int kvr_engine_plan_request(const struct kvr_engine_request *request, struct kvr_engine_plan *plan)
{
	const bool leg = request->leg.leg != KVR_ROLE_AGGREGATED;
	struct edits edits = {.n = 0};
	struct kvr_json_value object = {0};
	int64_t len;
	int rc;

	*plan = (struct kvr_engine_plan){.kind = request->kind,
					 .api = kvr_engine_find_api(request->head->target),
					 .prefill = request->leg.leg == KVR_ROLE_PREFILL};
	if (!leg && plan->api == KVR_ENGINE_OTHER)
		return copy_content(request, plan);
	if (kvr_json_parse(request->content, request->content_len, &object, NULL) < 0 ||
	    object.type != KVR_JSON_OBJECT)
		return leg ? -EBADMSG : copy_content(request, plan);
	rc = leg ? edit_leg(&edits, request, plan->api, &object) : 0;
	if (rc == 0)
		rc = plan_form(request, &object, plan, &edits);
	if (rc == 0 && edits.n == 0)
		return copy_content(request, plan);
	if (rc == 0) {
		len = edit_object(&object, edits.edit, edits.n, &plan->content);
		rc = len < 0 ? (int)len : 0;
		plan->content_len = len < 0 ? 0 : (size_t)len;
	}
	while (edits.n_owned > 0)
		free(edits.owned[--edits.n_owned]);
	return rc;
}
