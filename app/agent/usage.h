/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_USAGE_H
#define AGENT_USAGE_H

/**
 * @file
 * Data in an engine's answer: tokens generated, prompt tokens found cached, errors, and the
 * transfer result of a prefill. Pure over the caller's memory.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_json.h"

struct agent_usage {
	uint32_t generated; /**< the engine's count, otherwise events with text */
	bool cached_known;
	uint32_t cached;
	uint32_t bad_events; /**< events of a stream that are not JSON */
	uint32_t events;     /**< events of a stream, except [DONE] */
	uint32_t error;	     /**< status of an error in an event or the content; 0: none */
};

/** Judgement of the engine by its answer. */
enum agent_verdict {
	AGENT_WELL,
	AGENT_FAULT,   /**< an error caused by the request */
	AGENT_FAILED,  /**< the engine failed */
	AGENT_REFUSED, /**< the engine lacks capacity */
};

/** Judge by the status of an answer, or of the error in it. @param retry_after the answer has that
 * field. */
enum agent_verdict agent_judge(uint32_t status, bool retry_after);

/** Process the data of one event of a stream. */
void agent_usage_event(struct agent_usage *u, const char *data, size_t len);

/**
 * Process a whole answer.
 * @param result set to its kv_transfer_params if that is an object, else zeroed; may be NULL.
 */
void agent_usage_whole(struct agent_usage *u, const char *data, size_t len,
		       struct kvr_json_value *result);

/** Get `prompt_tokens_details` (in the Responses API `input_tokens_details`) of a whole answer's
 * usage, unchanged. @return false: there are none. */
bool agent_prompt_details(const char *data, size_t len, struct kvr_json_value *details);

/**
 * Get the engine's message from the content of an answer with a status of 400 or more: `message` of
 * its `error`, or its `message` or `detail`, if that is a string below 4 KiB; otherwise the content
 * itself if it is UTF-8. Ends before the first control character.
 * @param buf receives at most @p size - 1 bytes, whole characters, and a terminator; @p size is
 * 1..512.
 * @return number of bytes.
 */
size_t agent_error_text(const char *data, size_t len, char *buf, size_t size);

#endif
