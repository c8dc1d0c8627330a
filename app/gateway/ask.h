/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_ASK_H
#define GW_ASK_H

/**
 * @file
 * Content of a request body as far as routing needs it: model, prompt, stream, limits. The body
 * stays in place, and an ask points into it. Pure, any thread.
 */

#include "hints.h"

/** Endpoint of the engine. */
enum gw_path {
	GW_COMPLETIONS,
	GW_CHAT,
	GW_RESPONSES,
	GW_EMBEDDINGS,
	GW_ROUTE, /**< a PreprocessedRequest; with ids of several texts it becomes GW_EMBEDDINGS */
	GW_PICK,  /**< any of these: choose a worker only, without side effects */
	GW_LOADS, /**< any of these: potential load of every rank */
	GW_PATHS
};

/** Form of the prompt. */
enum gw_prompt {
	GW_PROMPT_IDS,	    /**< token ids: `ids` */
	GW_PROMPT_TEXT,	    /**< one string: `prompt`; the tokenizer provides ids */
	GW_PROMPT_MESSAGES, /**< a conversation: `messages`; the tokenizer renders it */
	GW_PROMPT_OPAQUE    /**< cannot be tokenized: several prompts, media, input items */
};

struct gw_ask {
	enum gw_path path;
	struct kvr_json_value root, prompt, messages, ids;
	struct kvr_json_value media; /**< mm_routing_info.block_mm_infos, for gw_media_read() */
	enum gw_prompt form;
	char model[256];
	bool stream;
	bool probe;	     /**< _HEALTH_CHECK */
	bool preprocessed;   /**< the engine's body must be created by gw_ask_body() */
	uint32_t n_ids;	     /**< with IDS */
	uint32_t max_tokens; /**< 0: no limit */
	uint32_t isl_guess;  /**< estimated tokens for the load, without ids: bytes / 4, at most
				16,384; for embeddings the number of texts */
};

/** Path of an endpoint at the engine. */
const char *gw_ask_target(enum gw_path path);

/**
 * Parse a body; its routing hints go to @p hints.
 * @param err one line on failure
 * @return 0; -EBADMSG: not a JSON object; -EINVAL: an invalid field.
 */
int gw_ask_read(struct gw_ask *a, enum gw_path path, const char *body, size_t len,
		struct gw_hints *hints, char *err, size_t errlen);

/** Copy the n_ids ids of an ask of form IDS to @p ids. */
void gw_ask_ids(const struct gw_ask *a, uint32_t ids[]);

/**
 * Question for the engine's /tokenize, made of the relevant members of the body, unchanged; form
 * TEXT or MESSAGES. A copy of an ask may have other messages, not longer than those of the body;
 * zeroed: the question without messages.
 * @return malloc()ed text of @p len bytes, or NULL: out of memory.
 */
char *gw_ask_question(const struct gw_ask *a, size_t *len);

/**
 * Body for the engine, made of a PreprocessedRequest: all its members, plus `prompt`, `stream`, and
 * the members of sampling_options and stop_conditions; of a PreprocessedEmbeddingRequest: plus
 * `input`.
 * @return malloc()ed text of @p len bytes, or NULL: out of memory.
 */
char *gw_ask_body(const struct gw_ask *a, size_t *len);

#endif
