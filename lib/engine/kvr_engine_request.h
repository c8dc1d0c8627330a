/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_ENGINE_REQUEST_H
#define KVR_ENGINE_REQUEST_H

/**
 * @file
 * The request of a client becomes one of an engine: the members that a leg of a disaggregated
 * request needs, and those that make the engine report its tokens. All other bytes of the content
 * stay as they are.
 *
 * A request without "stream": true for completions, chat completions or responses is sent as a
 * streamed one, and its answer is folded (KVR_ENGINE_FOLD), so that the first token and the tokens
 * so far are known. Not folded, because the answer would differ: a request that sets one of
 * stream_options, echo, best_of, use_beam_search, prompt_logprobs, kv_transfer_params,
 * ec_transfer_params, background, return_hidden_states, return_meta_info or
 * return_prompt_token_ids, of SGLang also return_token_ids; one whose `stream` is not a boolean;
 * one with the field Endpoint-Load-Metrics-Format; and a prefill leg.
 *
 * A streamed request for completions or chat completions asks for usage, and its answer loses what
 * the client did not ask for (KVR_ENGINE_STRIP).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_engine.h"
#include "kvr_http.h"
#include "kvr_types.h"

/** Leg of a disaggregated request. Zeroed: the whole request. */
struct kvr_engine_leg {
	enum kvr_role leg;
	const char *bootstrap_host; /**< SGLang: meeting point of the engines; NULL: none */
	uint16_t bootstrap_port;
	uint64_t bootstrap_room;
	uint32_t prefill_ranks; /**< decode: ranks of a prefill worker; 0 unknown */
	const char *result;	/**< vLLM, decode: transfer result of the prefill engine */
	size_t result_len;
};

struct kvr_engine_request {
	enum kvr_engine_kind kind;
	const struct kvr_http_head *head;
	const char *content;
	size_t content_len;
	struct kvr_engine_leg leg;
	bool running_usage; /**< request the tokens so far in each chunk, not only the total */
};

/** A request of the engine, and what to do with its answer. */
struct kvr_engine_plan {
	enum kvr_engine_kind kind;
	enum kvr_engine_api api;
	enum kvr_engine_form form;
	bool prefill;	      /**< a prefill leg: the answer is read, not passed on */
	bool content_is_text; /**< see kvr_engine_fold.h */
	bool drop_total;      /**< STRIP: the chunk with the total */
	bool drop_running;    /**< STRIP: `usage` of other chunks */
	char *content;	      /**< the caller frees it */
	size_t content_len;
};

/** API of a request target, which may have a query. */
enum kvr_engine_api kvr_engine_find_api(struct kvr_http_span target);

/**
 * Plan a request. Content that is no JSON object is copied if the leg needs no change: the engine
 * rejects it.
 * @return 0; -EBADMSG no JSON object; -EPROTO the transfer result is none; -EINVAL an engine of
 * this kind cannot take this leg (no meeting point, or no result); -ENOTSUP a pair of vLLM engines
 * cannot run the request (logprobs of the prompt, n or best_of above 1); -ENOMEM. @p plan->content
 * is NULL on errors.
 */
int kvr_engine_plan_request(const struct kvr_engine_request *request, struct kvr_engine_plan *plan);

/** What the head of a request depends on besides the client's head. */
struct kvr_engine_head {
	const char *url;	 /**< of the engine, "http://HOST[:PORT][/PATH]" */
	const uint32_t *rank;	 /**< X-Data-Parallel-Rank; NULL: none */
	const char *traceparent; /**< replaces the client's; NULL: the client's stays */
	size_t content_len;
	bool uncompressed; /**< the answer must be readable: leave out Accept-Encoding */
};

/**
 * Write the head of the engine's request: the path of the URL before the target, its host, and the
 * fields of the client, without a rank of its own.
 * @param out the caller frees it.
 * @return length of the head; -ENOMEM.
 */
int64_t kvr_engine_write_head(const struct kvr_http_head *client,
			      const struct kvr_engine_head *head, char **out);

#endif
