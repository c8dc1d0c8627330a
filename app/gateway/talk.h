/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_TALK_H
#define GW_TALK_H

/**
 * @file
 * Which questions the tokenizer is asked for a prompt: the whole one, or of a conversation whose
 * turn before is known its new part alone (turns.h says how that is put together, and when it is
 * believed). When the short way fails, the whole question follows, unless --tokenize-ms is over by
 * then. One set a thread, over its gw_tokens.
 */

#include "ask.h"
#include "tokens.h"

struct gw_talk;

/** After gw_tokens_start(). @return 0, or -ENOMEM. */
int gw_talks_start(struct gw_thread *t);

/** Before gw_tokens_stop(). What is under way gets no answer any more. */
void gw_talks_stop(struct gw_thread *t);

/**
 * Ask for the ids of a prompt of form TEXT or MESSAGES; @p a is not used after the call.
 * @param source whose it is, gw_source_name()
 * @return NULL when fn has been called already; else a handle, good until fn is called.
 */
struct gw_talk *gw_talk_ask(struct gw_talks *ts, const struct gw_ask *a, uint64_t source,
			    gw_tokens_fn *fn, void *arg);

/** fn will not be called. */
void gw_talk_cancel(struct gw_talk *k);

#endif
