/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_TURN_CACHE_H
#define GW_TURN_CACHE_H

/**
 * @file
 * Token ids of a conversation's next turn, combined from those of the previous turn and of the new
 * part. The chat template is unknown; its effect is derived from its own results:
 *
 * - T: ids of messages 1..k, whose last is a user's, known from the previous turn;
 * - B: ids of message k alone; S: ids of messages k..n. Otherwise the questions are equal.
 *
 * The common head of B and S is the template's opening (tools, a default system text) and message
 * k. The rest of B is the generation prompt, or nothing if an answer of the assistant begins like
 * it. T must end as B does. Then T without that end, followed by S after the common head, are the
 * ids of messages 1..n, unless the template depends on the position of a message in the
 * conversation. This is tested: the first turns of a model, and then one in GW_TURNS_EVERY, are
 * also asked as a whole. After a difference, the turns of the model from that source are asked as a
 * whole for a while, because the difference may be caused by the client's text, which must not
 * affect other clients. If several sources find differences, the template is the cause, and all
 * turns of the model are asked as a whole.
 *
 * Pure; one thread per object. Times are in ms of any one clock.
 */

#include "ask.h"
#include "lru.h"

#define GW_TURNS_FIRST	 4u	    /* correct turns required first */
#define GW_TURNS_EVERY	 64u	    /* afterwards one in this number is compared */
#define GW_TURNS_OFF_MS	 600000u    /* pause after a difference */
#define GW_TURNS_VAIN_MS 10000u	    /* pause after a part without ids */
#define GW_TURNS_MODELS	 16u	    /* entries; the least recently used are evicted */
#define GW_TURNS_SOURCES 8u	    /* sources that are off before the model is off for all */
#define GW_TURNS_MOST	 (1u << 20) /* ids */

/** How to ask for a turn. */
enum gw_turns_way { GW_TURNS_WHOLE, GW_TURNS_SHORT, GW_TURNS_BOTH };

/** Result of a turn that was not only asked as a whole. */
enum gw_turns_found {
	GW_TURNS_IS_RIGHT, /**< equal results */
	GW_TURNS_IS_WRONG, /**< results differ, or the parts do not fit */
	GW_TURNS_IS_VAIN   /**< a part got no ids: rejected, or not answered */
};

/** Zeroed: no model is known. */
struct gw_turns {
	struct gw_turns_model {
		struct gw_lru_key model;
		uint32_t right; /**< turns compared with equal results */
		uint32_t asked; /**< turns since the last difference */
		struct gw_turns_off {
			uint64_t source;
			uint64_t until; /**< ms; in the past: unused */
			bool wrong;	/**< at least one part got ids */
		} off[GW_TURNS_SOURCES];
		uint64_t used; /**< tick of the last use; 0: free */
	} models[GW_TURNS_MODELS];
	uint64_t tick;
};

/** Where a question may be split; pointers lie in the ask's body. */
struct gw_turns_cut {
	struct gw_lru_key whole;  /**< key of messages 1..n */
	struct gw_lru_key before; /**< key of messages 1..k, if from is not NULL */
	const char *from;	  /**< message k; NULL: ask the question as a whole */
	size_t one, part;	  /**< bytes of message k, and of messages k..n */
};

/**
 * Compute the key of question @p a of form MESSAGES, and find its longest beginning that ends with
 * a user's message and whose ids lru has. There is none if the whole question is known, if
 * splitting would not make it shorter, if the request has its own template, or if it continues its
 * last message.
 * @param others the question without its messages, @p len bytes
 */
void gw_turns_cut(const struct gw_ask *a, const struct gw_lru *lru, const char *others, size_t len,
		  struct gw_turns_cut *out);

/**
 * Combine the ids of a turn from T, B and S of the text above, each with its number of ids.
 * @return malloc()ed ids, @p n of them, at most GW_TURNS_MOST; NULL: T does not end as B does,
 * there would be more, or out of memory.
 */
uint32_t *gw_turns_join(const uint32_t *t, uint32_t n_t, const uint32_t *b, uint32_t n_b,
			const uint32_t *s, uint32_t n_s, uint32_t *n);

/** How to ask for the next turn of a model. @param source client address, gw_source_name() */
enum gw_turns_way gw_turns_way(struct gw_turns *turns, const struct gw_lru_key *model,
			       uint64_t source, uint64_t now_ms);

/** Record the result of a turn. */
void gw_turns_found(struct gw_turns *turns, const struct gw_lru_key *model, uint64_t source,
		    enum gw_turns_found what, uint64_t now_ms);

#endif
