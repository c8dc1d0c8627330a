/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_TOKENS_H
#define GW_TOKENS_H

/**
 * @file
 * Token ids of prompts that are text, from an engine's /tokenize: one HTTP client a thread, with
 * connections kept alive, a time limit, and a cache of whole questions (XXH3-128 of the question,
 * seeded at random at start; the least recently used go first). A conversation's next turn is
 * another question: what a chat template makes of it cannot be put together from the turns before.
 *
 * When three questions in a row were not answered at all, nobody waits for a second: the answer is
 * "no ids" at once. An answer that says no is one: no client can stop the others' questions by
 * asking badly.
 */

#include <stddef.h>
#include <stdint.h>

#include "gateway.h"

struct gw_question;

/** @p ids are malloc()ed and the receiver's from now on; NULL: there are none. */
typedef void gw_tokens_fn(void *arg, uint32_t *ids, uint32_t n);

/** @return 0, or -ENOMEM. */
int gw_tokens_start(struct gw_thread *t);

/** Questions that are under way get no answer any more. */
void gw_tokens_stop(struct gw_thread *t);

/**
 * Ask. @p text is malloc()ed and ours from now on.
 * @return NULL when fn has been called already; else a handle, good until fn is called.
 */
struct gw_question *gw_tokens_ask(struct gw_tokens *k, char *text, size_t len, gw_tokens_fn *fn,
				  void *arg);

/** fn will not be called. */
void gw_tokens_cancel(struct gw_question *q);

#endif
