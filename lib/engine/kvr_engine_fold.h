/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_ENGINE_FOLD_H
#define KVR_ENGINE_FOLD_H

/**
 * @file
 * Folding: the events of a streamed answer become the one JSON answer that the engine would have
 * given without a stream.
 *
 * Of completions and chat completions, the choices are merged by their `index` and the tool calls
 * of a choice by theirs. Strings of a `delta`, and the `text` of a completion, are joined, but
 * `role`, `id`, `type` and `name` are taken once. Arrays of a choice are joined, which covers
 * logprobs and token ids. Of all other members the last value that is not null counts. Members that
 * this library does not know are kept by the same rules. The order of members, and those that are
 * null when an engine has nothing to report, follow vLLM 0.32 and SGLang 0.5.23. Of the responses
 * API the answer is the `response` of the event that ends the stream.
 *
 * The strings of the answer are joined as they are escaped, and numbers are copied, so that their
 * values do not change.
 *
 * What a stream lacks is null in the folded answer: `metadata` of SGLang, `kv_transfer_params` and
 * `routed_experts` of vLLM. Two values of vLLM are those
 * of its streams: the finish reason of tool calls that were cut at the length is "length", not
 * "tool_calls"; the `status` of a reasoning item of a response is "completed", not null.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_engine.h"

struct kvr_engine_fold;

struct kvr_engine_fold_conf {
	enum kvr_engine_kind kind;
	enum kvr_engine_api api; /**< not KVR_ENGINE_OTHER */
	/** Chat of vLLM with a forced tool choice: an empty `content` is "", not null. */
	bool content_is_text;
	size_t max_bytes; /**< of an answer in memory, required */
};

/** @return NULL with errno ENOMEM or EINVAL. */
struct kvr_engine_fold *kvr_engine_fold_create(const struct kvr_engine_fold_conf *conf);

/** NULL is allowed. */
void kvr_engine_fold_destroy(struct kvr_engine_fold *fold);

/**
 * Add the data of one event of the stream, "[DONE]" included. Events after an error are ignored.
 * @return 0; -EBADMSG the event is no JSON object, or its choices have another form; -E2BIG more
 * members or choices than this library keeps; -EMSGSIZE more than max_bytes; -ENOMEM. After an
 * error no answer can be made.
 */
int kvr_engine_fold_add(struct kvr_engine_fold *fold, const char *data, size_t len);

/**
 * Make the answer after the last event of a stream that has ended in order.
 * @param out the JSON text, which the caller frees.
 * @param status status of the answer: 200, or that of the error which the stream contains.
 * @return its length; -ENODATA the stream has no event; -EPIPE it ends before its answer does;
 * -ENOMEM; or the error of kvr_engine_fold_add().
 */
int64_t kvr_engine_fold_finish(struct kvr_engine_fold *fold, char **out, uint16_t *status);

#endif
