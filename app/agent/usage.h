/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_USAGE_H
#define AGENT_USAGE_H

/**
 * @file
 * What an engine's answer says of itself: tokens generated, prompt tokens found cached, and the
 * transfer result of a prefill. Pure over the caller's memory.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_json.h"

struct agent_usage {
	uint32_t generated; /**< the engine's count, else events with text */
	bool cached_known;
	uint32_t cached;
	uint32_t bad_events; /**< of a stream, that were no JSON */
	uint32_t events;     /**< of a stream, but for [DONE] */
	uint32_t error; /**< status of the error that an event or the content is; 0: it is none */
};

/** What an answer says about its engine. */
enum agent_verdict {
	AGENT_WELL,
	AGENT_FAULT,   /**< an error, of the request's own */
	AGENT_FAILED,  /**< the engine has failed it */
	AGENT_REFUSED, /**< the engine has no room */
};

/** By the status of an answer, or of the error in it. @param retry_after the answer has that field.
 */
enum agent_verdict agent_judge(uint32_t status, bool retry_after);

/** The data of one event of a stream. */
void agent_usage_event(struct agent_usage *u, const char *data, size_t len);

/**
 * A whole answer.
 * @param result its kv_transfer_params when it is an object, else zeroed; may be NULL.
 */
void agent_usage_whole(struct agent_usage *u, const char *data, size_t len,
		       struct kvr_json_value *result);

/** The `prompt_tokens_details` of a whole answer's usage (of the newer API `input_tokens_details`),
 * as the engine has written it; false: there is none. */
bool agent_prompt_details(const char *data, size_t len, struct kvr_json_value *details);

/**
 * What an engine says of its failure in the content of an answer with a status of 400 and more: the
 * `message` of its `error`, or its `message` or `detail`, when that is a string below 4 KiB; else
 * the content itself when it is UTF-8. It ends before the first control character.
 * @param buf takes at most @p size - 1 bytes, whole characters, and a zero byte; @p size is 1..512.
 * @return bytes.
 */
size_t agent_error_text(const char *data, size_t len, char *buf, size_t size);

#endif
