/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_TURNS_H
#define GW_TURNS_H

/**
 * @file
 * Token ids of a conversation's next turn, put together from those of the turn before and of its
 * new part. Nothing is known of the chat template; what it does is read off its own answers:
 *
 * - T: ids of messages 1..k, whose last is a user's, known from the turn before;
 * - B: ids of message k alone; S: ids of messages k..n. The rest of the question is the same.
 *
 * What B and S have in common at their head is the template's opening (tools, a default system
 * text) and message k; what is left of B is the generation prompt, or nothing where an answer of
 * the assistant begins like it. T must end as B does. Then T without that end, and S behind the
 * common head, are the ids of messages 1..n, unless the template treats a message by its place in
 * the whole conversation. Whether it does is tried, not supposed: a model's first turns, and then
 * one in GW_TURNS_EVERY, are asked whole too. One that comes out wrong has the model's turns of its
 * source asked whole for a while: what a client writes can make it wrong, and that is nobody
 * else's. When several sources have found so, the template it is, and all turns are.
 *
 * Pure; one thread an object. Times are ms of any one clock.
 */

#include "ask.h"
#include "lru.h"

#define GW_TURNS_FIRST	 4u	    /* turns that must have come out right */
#define GW_TURNS_EVERY	 64u	    /* of those behind them, one is compared */
#define GW_TURNS_OFF_MS	 600000u    /* after one that was wrong */
#define GW_TURNS_VAIN_MS 10000u	    /* after one whose parts got no ids */
#define GW_TURNS_MODELS	 16u	    /* remembered; the least recently used go first */
#define GW_TURNS_SOURCES 8u	    /* off at once: the model is, for everybody */
#define GW_TURNS_MOST	 (1u << 20) /* ids */

/** How a turn is to be asked. */
enum gw_turns_way { GW_TURNS_WHOLE, GW_TURNS_SHORT, GW_TURNS_BOTH };

/** What came of one that was not asked whole alone. */
enum gw_turns_found {
	GW_TURNS_IS_RIGHT, /**< both ways came out the same */
	GW_TURNS_IS_WRONG, /**< they did not, or the parts do not go together */
	GW_TURNS_IS_VAIN   /**< a part got no ids: refused, or not answered */
};

/** Zeroed: nothing is known of any model. */
struct gw_turns {
	struct gw_turns_model {
		struct gw_lru_key model;
		uint32_t right; /**< turns compared, and the same */
		uint32_t asked; /**< turns since it was last wrong */
		struct gw_turns_off {
			uint64_t source;
			uint64_t until; /**< ms; past: free */
			bool wrong;	/**< not only in vain */
		} off[GW_TURNS_SOURCES];
		uint64_t used; /**< tick of the last use; 0: free */
	} models[GW_TURNS_MODELS];
	uint64_t tick;
};

/** Where a question may be cut; the pointers lie in the ask's body. */
struct gw_turns_cut {
	struct gw_lru_key whole;  /**< name of messages 1..n */
	struct gw_lru_key before; /**< name of messages 1..k, when from is not NULL */
	const char *from;	  /**< message k; NULL: the question must be asked whole */
	size_t one, part;	  /**< bytes of message k, and of messages k..n */
};

/**
 * Name the question of @p a, which is of form MESSAGES, and find the longest beginning of it that
 * ends with a user's message and whose ids @p l has. None is said when the whole question is known,
 * when the cut would not make what is asked shorter, when the request brings a template of its own,
 * or goes on with its last message.
 * @param others the question without its messages, @p len bytes
 */
void gw_turns_cut(const struct gw_ask *a, const struct gw_lru *l, const char *others, size_t len,
		  struct gw_turns_cut *out);

/**
 * Put a turn's ids together, from T, B and S of the text above, each of its number of ids.
 * @return malloc()ed ids, @p n of them, GW_TURNS_MOST at most; NULL: T does not end as B does,
 * there would be more, or out of memory.
 */
uint32_t *gw_turns_join(const uint32_t *t, uint32_t n_t, const uint32_t *b, uint32_t n_b,
			const uint32_t *s, uint32_t n_s, uint32_t *n);

/** How the next turn of a model is to be asked. @param source whose it is, gw_source_name() */
enum gw_turns_way gw_turns_way(struct gw_turns *ts, const struct gw_lru_key *model, uint64_t source,
			       uint64_t now_ms);

/** What came of a turn. */
void gw_turns_found(struct gw_turns *ts, const struct gw_lru_key *model, uint64_t source,
		    enum gw_turns_found what, uint64_t now_ms);

#endif
