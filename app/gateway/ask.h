/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_ASK_H
#define GW_ASK_H

/**
 * @file
 * What a request's body says, as far as a router must know: model, prompt, stream, limits. The body
 * stays where it is: an ask points into it. Pure, any thread.
 */

#include "hints.h"

/** An endpoint that leads to an engine. */
enum gw_path {
	GW_COMPLETIONS,
	GW_CHAT,
	GW_RESPONSES,
	GW_EMBEDDINGS,
	GW_ROUTE, /**< a PreprocessedRequest; of several texts' ids it becomes GW_EMBEDDINGS */
	GW_PICK,  /**< any of these: only where it would go, and its load counted */
	GW_LOADS, /**< any of these: what every rank would have to do */
	GW_PATHS
};

/** In which form the prompt is given. */
enum gw_prompt {
	GW_PROMPT_IDS,	    /**< token ids: `ids` */
	GW_PROMPT_TEXT,	    /**< one string: `prompt`; the tokenizer knows its ids */
	GW_PROMPT_MESSAGES, /**< a conversation: `messages`; the tokenizer renders it */
	GW_PROMPT_OPAQUE /**< nothing we may turn into ids: several prompts, media, input items */
};

struct gw_ask {
	enum gw_path path;
	struct kvr_json_value root, prompt, messages, ids;
	struct kvr_json_value
		media; /**< mm_routing_info.block_mm_infos: gw_media_read() takes it */
	enum gw_prompt form;
	char model[256];
	bool stream;
	bool probe;	     /**< _HEALTH_CHECK */
	bool preprocessed;   /**< the engine's body is to be made: gw_ask_body() */
	uint32_t n_ids;	     /**< when IDS */
	uint32_t max_tokens; /**< 0: not limited */
	uint32_t isl_guess;  /**< tokens, for the load alone, when there are no ids: bytes / 4,
			      * 16,384 at most; of texts to embed their number */
};

/** Path of an endpoint at the engine. */
const char *gw_ask_target(enum gw_path path);

/**
 * Read a body; hints that it carries go into @p hints.
 * @param err one line when it fails
 * @return 0; -EBADMSG no JSON object; -EINVAL a field is wrong.
 */
int gw_ask_read(struct gw_ask *a, enum gw_path path, const char *body, size_t len,
		struct gw_hints *hints, char *err, size_t errlen);

/** The ids of an ask of form IDS into @p ids, n_ids of them. */
void gw_ask_ids(const struct gw_ask *a, uint32_t ids[]);

/**
 * The question for the engine's /tokenize, made of the members of the body that have to do with
 * it, as they stand there; form TEXT or MESSAGES. A copy of an ask may have other messages than the
 * body, no longer than its; zeroed: the question without any.
 * @return malloc()ed text of @p len bytes, or NULL: out of memory.
 */
char *gw_ask_question(const struct gw_ask *a, size_t *len);

/**
 * The body for the engine, made of a PreprocessedRequest: all its members as they are, and beside
 * them `prompt`, `stream`, and the members of sampling_options and stop_conditions; of a
 * PreprocessedEmbeddingRequest, `input`.
 * @return malloc()ed text of @p len bytes, or NULL: out of memory.
 */
char *gw_ask_body(const struct gw_ask *a, size_t *len);

#endif
