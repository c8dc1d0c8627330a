/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_TOKENS_H
#define GW_TOKENS_H

/**
 * @file
 * Token ids of prompts that are text, from an engine's /tokenize: one HTTP client a thread, with
 * connections kept alive, a time limit, and a cache of ids by a question's name (XXH3-128, seeded
 * at random at start; the least recently used go first). talk.h says which questions a prompt
 * needs.
 *
 * When three questions in a row were not answered at all, nobody waits for a second: the answer is
 * "no ids" at once. An answer that says no is one: no client can stop the others' questions by
 * asking badly. The log says when there are no ids, with the reason, once a minute at most.
 */

#include <stddef.h>
#include <stdint.h>

#include "gateway.h"
#include "lru.h"

struct gw_question;

/** @p ids are malloc()ed and the receiver's from now on; NULL: there are none. */
typedef void gw_tokens_fn(void *arg, uint32_t *ids, uint32_t n);

/** @return 0, or -ENOMEM. */
int gw_tokens_start(struct gw_thread *t);

/** Questions that are under way get no answer any more. */
void gw_tokens_stop(struct gw_thread *t);

/**
 * Ask. @p text is malloc()ed and ours from now on. @p key is what the cache knows the question by;
 * NULL: it is neither looked for there nor kept.
 * @return NULL when fn has been called already; else a handle, good until fn is called.
 */
struct gw_question *gw_tokens_ask(struct gw_tokens *k, char *text, size_t len,
				  const struct gw_lru_key *key, gw_tokens_fn *fn, void *arg);

/** Give up those that have waited for --tokenize-ms. To be called in every turn; @p k may be NULL.
 * @return milliseconds until the next one is due, at most @p wait. */
int32_t gw_tokens_turn(struct gw_tokens *k, int32_t wait);

/** Where answers are kept; the thread's own. */
struct gw_lru *gw_tokens_cache(struct gw_tokens *k);

/** fn will not be called. */
void gw_tokens_cancel(struct gw_question *q);

#endif
