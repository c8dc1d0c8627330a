/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_ENGINE_USAGE_H
#define KVR_ENGINE_USAGE_H

/**
 * @file
 * What an engine's answer reports about itself: tokens generated, prompt tokens found cached, the
 * transfer result of a prefill, and errors. Pure functions over the caller's memory.
 *
 * Tokens of a stream are counted from the first of these that an event has: `usage`, the length of
 * `token_ids`, the number of logprobs; else an event with text counts as one. In a chunk with one
 * choice, `usage` is the running count of that choice (continuous_usage_stats); in one without
 * choices it is the total.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_json.h"

/** Choices whose tokens are counted apart; those above share the last count. */
#define KVR_ENGINE_CHOICES 16u

struct kvr_engine_usage {
	uint32_t generated; /**< tokens of all choices so far; never falls */
	bool cached_known;
	uint32_t cached;     /**< prompt tokens found cached */
	uint32_t bad_events; /**< of a stream, that were no JSON */
	uint32_t events;     /**< of a stream, without [DONE] */
	uint32_t error;	     /**< status of the error that an event or the answer is; 0: none */
	bool running;	     /**< chunks contain running usage */
	/** A chunk's running usage details reasoning tokens. vLLM counts these again for each
	 * chunk, in time that grows with the answer: do not request it from this engine. */
	bool running_costs;
	uint32_t choice[KVR_ENGINE_CHOICES]; /**< tokens of each */
};

/** What an answer means for the rank that gave it. */
enum kvr_engine_verdict {
	KVR_ENGINE_WELL,
	KVR_ENGINE_FAULT,   /**< an error that the request caused */
	KVR_ENGINE_FAILED,  /**< the engine failed the request */
	KVR_ENGINE_REFUSED, /**< the engine has no capacity */
};

/** Verdict by the status of an answer, or of the error in it. @param retry_after the answer has
 * that field. */
enum kvr_engine_verdict kvr_engine_judge(uint32_t status, bool retry_after);

/**
 * Status of the error that the object @p root is: {"error": {...}}, {"error": "text"}, {"object":
 * "error"}, or an event of the type "error" or "response.failed". @return 400..599; 0: no error.
 */
uint32_t kvr_engine_error_status(const struct kvr_json_value *root);

/** Count the data of one event of a stream. */
void kvr_engine_count_event(struct kvr_engine_usage *usage, const char *data, size_t len);

/**
 * Count a whole answer.
 * @param result its kv_transfer_params if that is an object, else zeroed; may be NULL.
 */
void kvr_engine_count_answer(struct kvr_engine_usage *usage, const char *data, size_t len,
			     struct kvr_json_value *result);

/** Find the `prompt_tokens_details` of a whole answer's usage (in the responses API
 * `input_tokens_details`). @return false: none. */
bool kvr_engine_find_prompt_details(const char *data, size_t len, struct kvr_json_value *details);

/**
 * Text of an engine's error: the `message` of its `error`, or its `message` or `detail` if that is
 * a string below 4 KiB; else the answer itself if it is UTF-8. It ends before the first control
 * character.
 * @param buf receives at most @p size - 1 bytes, whole characters, and a terminator; @p size is
 * 1..512.
 * @return number of bytes.
 */
size_t kvr_engine_error_text(const char *data, size_t len, char *buf, size_t size);

#endif
