/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_TOKENS_H
#define GW_TOKENS_H

/**
 * @file
 * Token ids of text prompts from an engine's /tokenize. One HTTP client per thread with persistent
 * connections, a time limit, and a cache of ids by question (XXH3-128 with a random seed per start;
 * the least recently used entries are evicted). tokenize_conversation.h decides which questions a
 * prompt needs.
 *
 * After three consecutive questions without any answer, questions are answered with "no ids" at
 * once for a second. A rejection counts as an answer, so that a client with invalid prompts cannot
 * block others. The log states when there are no ids, with the reason, at most once a minute.
 */

#include <stddef.h>
#include <stdint.h>

#include "gateway.h"
#include "lru.h"

struct gw_question;

/** @p ids are malloc()ed and belong to the receiver; NULL: none. */
typedef void gw_tokens_fn(void *arg, uint32_t *ids, uint32_t n);

/** @return 0, or -ENOMEM. */
int gw_tokens_start(struct gw_thread *thread);

/** Stop; questions in progress are not answered. */
void gw_tokens_stop(struct gw_thread *thread);

/**
 * Ask. @p text is malloc()ed and taken over. @p key identifies the question in the cache; NULL: not
 * cached.
 * @return NULL if fn was called already; else a handle, valid until fn is called.
 */
struct gw_question *gw_tokens_ask(struct gw_tokens *tokens, char *text, size_t len,
				  const struct gw_lru_key *key, gw_tokens_fn *fn, void *arg);

/** Give up questions that waited for --tokenize-ms. Call in every turn; @p tokens may be NULL.
 * @return milliseconds until the next one expires, at most @p wait. */
int32_t gw_tokens_turn(struct gw_tokens *tokens, int32_t wait);

/** The cache; belongs to the thread. */
struct gw_lru *gw_tokens_cache(struct gw_tokens *tokens);

/** Cancel: fn will not be called. */
void gw_tokens_cancel(struct gw_question *question);

#endif
