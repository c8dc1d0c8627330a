/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON edits that turn a request into one leg of disaggregated serving, for each kind of engine. */
#include "body.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_json.h"

#define TEXT(n, v)                                                                                 \
	{                                                                                          \
		n, v, sizeof(v) - 1                                                                \
	}
#define GONE(n)                                                                                    \
	{                                                                                          \
		n, NULL, 0                                                                         \
	}

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

/*
 * Generate one token and keep the blocks for another engine. vLLM keeps them only if the length
 * ended the request, so nothing else may end it. The token is discarded.
 */
#define PREFILL_EDITS                                                                              \
	TEXT("stream", "false"), GONE("stream_options"), GONE("n"), GONE("stop"),                  \
		GONE("stop_token_ids"), TEXT("ignore_eos", "true"),                                \
		GONE("min_tokens"), /* more than one is rejected */                                \
		TEXT("kv_transfer_params",                                                         \
		     "{\"do_remote_decode\":true,\"do_remote_prefill\":false,"                     \
		     "\"remote_engine_id\":null,\"remote_block_ids\":null,"                        \
		     "\"remote_host\":null,\"remote_port\":null}")

static int64_t vllm_prefill(const struct kvr_json_value *object, bool responses, char **out)
{
	static const struct kvr_json_edit completion[] = {
		TEXT("max_tokens", "1"), TEXT("max_completion_tokens", "1"), PREFILL_EDITS};
	static const struct kvr_json_edit response[] = {TEXT("max_output_tokens", "1"),
							GONE("background"), PREFILL_EDITS};

	return responses
		       ? edit_object(object, response, sizeof(response) / sizeof(response[0]), out)
		       : edit_object(object, completion, sizeof(completion) / sizeof(completion[0]),
				     out);
}

/* Set the transfer result, with the direction reversed. */
static int64_t vllm_decode(const struct kvr_json_value *object, const struct agent_leg *leg,
			   char **out)
{
	static const struct kvr_json_edit turn[] = {TEXT("do_remote_prefill", "true"),
						    TEXT("do_remote_decode", "false")};
	struct kvr_json_edit edit = {.name = "kv_transfer_params"};
	struct kvr_json_value result;
	char *params;
	int64_t len;

	if (leg->result_len == 0)
		return -EINVAL;
	if (kvr_json_parse(leg->result, leg->result_len, &result, NULL) < 0 ||
	    result.type != KVR_JSON_OBJECT)
		return -EPROTO;
	len = edit_object(&result, turn, 2, &params);
	if (len < 0)
		return len;
	edit.value = params;
	edit.len = (size_t)len;
	len = edit_object(object, &edit, 1, out);
	free(params);
	return len;
}

/* Both legs: set bootstrap address and room, and the rank of the prefill engine. */
static int64_t edit_sglang(const struct kvr_json_value *object, const struct agent_leg *leg,
			   char **out)
{
	char host[600], port[8], room[24], rank[24];
	struct kvr_json_edit edits[4] = {{.name = "bootstrap_host", .value = host},
					 {.name = "bootstrap_port", .value = port},
					 {.name = "bootstrap_room", .value = room},
					 {.name = "disagg_prefill_dp_rank", .value = rank}};
	int64_t n;

	if (leg->bootstrap_host == NULL)
		return -EINVAL;
	n = kvr_json_quote(leg->bootstrap_host, strlen(leg->bootstrap_host), host, sizeof(host));
	if (n < 0)
		return -EINVAL;
	edits[0].len = (size_t)n;
	edits[1].len = (size_t)snprintf(port, sizeof(port), "%u", leg->bootstrap_port);
	edits[2].len = (size_t)snprintf(room, sizeof(room), "%" PRIu64, leg->bootstrap_room);
	if (leg->leg != KVR_ROLE_DECODE || leg->prefill_ranks == 0)
		return edit_object(object, edits, 3, out);
	edits[3].len = (size_t)snprintf(rank, sizeof(rank), "%" PRIu64,
					leg->bootstrap_room % leg->prefill_ranks);
	return edit_object(object, edits, 4, out);
}

int64_t agent_body_leg(enum agent_engine engine, const struct agent_leg *leg, const char *body,
		       size_t len, char **out)
{
	struct kvr_json_value object;

	*out = NULL;
	if (kvr_json_parse(body, len, &object, NULL) < 0 || object.type != KVR_JSON_OBJECT)
		return -EBADMSG;
	if (engine == AGENT_SGLANG)
		return edit_sglang(&object, leg, out);
	return leg->leg == KVR_ROLE_PREFILL ? vllm_prefill(&object, leg->responses, out)
					    : vllm_decode(&object, leg, out);
}
