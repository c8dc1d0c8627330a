/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_TOKENIZE_CONVERSATION_H
#define GW_TOKENIZE_CONVERSATION_H

/**
 * @file
 * Questions to the tokenizer for a prompt: the whole prompt or, for a conversation whose previous
 * turn is known, its new part only (turn_cache.h combines the results and decides when they are
 * trusted). If the partial way fails, the whole question follows, unless --tokenize-ms has passed.
 * One set per thread, on top of its gw_tokens.
 */

#include "ask.h"
#include "tokens.h"

struct gw_conversation;

/** Call after gw_tokens_start(). @return 0, or -ENOMEM. */
int gw_conversations_start(struct gw_thread *thread);

/** Call before gw_tokens_stop(). Questions in progress are not answered. */
void gw_conversations_stop(struct gw_thread *thread);

/**
 * Ask for the ids of a prompt of form TEXT or MESSAGES; @p a is not used after the call.
 * @param source client address, gw_source_name()
 * @return NULL if fn was called already; else a handle, valid until fn is called.
 */
struct gw_conversation *gw_conversation_ask(struct gw_conversations *ts, const struct gw_ask *a,
					    uint64_t source, gw_tokens_fn *fn, void *arg);

/** Cancel: fn will not be called. */
void gw_conversation_cancel(struct gw_conversation *conversation);

#endif
