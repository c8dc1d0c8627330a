/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_ACTIVE_H
#define KVR_ACTIVE_H

/**
 * @file
 * Active blocks of every rank: the prompt blocks of requests in flight, shared prefixes counted
 * once per rank, plus output blocks, each with a weight (behaviour specification, 6.1 to 6.3).
 *
 * Data structure: one prefix tree for all ranks, its edges cut into *runs* of up to 64
 * consecutive hashes. Every booking ends at the end of a run (a run is split where one ends or
 * leaves in the middle), so all blocks of a run have the same holders and a run needs one
 * (reference count, weight) per rank, not one per block:
 *
 *     run 7 [h0 .. h63] owners r2 x3, r9 x1 --+-- run 8 [h64 .. h99]  owner r2 x1
 *                                              +-- run 9 [g64 .. g127] owner r9 x1, r2 x1
 *
 * When the booking that caused a cut is gone, both parts have the same holders again; the next
 * booking that walks over them joins them, so a popular prefix does not stay in pieces.
 *
 * Children are found by (run, first hash) in a private open-addressing index, one probe per run.
 * Up to 8 owners stand inside the run's header (two cache lines); beyond that a *wide* record is
 * attached: a bit set of ranks, and counts and weights indexed by rank, so projecting a prompt
 * shared by 512 ranks is 32 masked stores. Membership is of prefixes, not of sets: a block counts
 * only below the same predecessors, even when a client sends hashes that are no chain.
 *
 * Cost: match, book and free are O(runs of the prompt) plus one vector comparison or copy of the
 * hashes themselves: 40 to 150 ns a run that is not in the cache, so the prompt of 62,500 blocks
 * that fills a message of 4 MB takes 60 us to match, as long to book and to free. Each can be done
 * in slices of so many runs (the functions called _some). What is half done is in the object (a
 * match, a booking) or in the booking itself (its end), and is seen by nobody who does not ask in
 * between: the owner finishes it before the next match, booking, fade, or look at the loads. A
 * booking that goes on must be over before another begins or any ends; ends may be mixed.
 * kvr_active_walked() counts the runs that all of them have looked at.
 *
 * When a pool is exhausted the rest of a prompt is booked *privately*: it
 * counts fully and is shared with nobody, so load is never under-counted; a counter tells.
 *
 * Weights are fixed point, KVR_ACTIVE_ONE = 1.0, so sums are exact and leave no residue.
 *
 * One owner thread; nothing allocates after create, nothing takes time or randomness. Pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_stats.h"

#define KVR_ACTIVE_RUN 64u
#define KVR_ACTIVE_ONE (UINT32_C(1) << 31)

struct kvr_active;

struct kvr_active_conf {
	uint32_t max_ranks;  /**< rounded up to a multiple of 64 */
	uint32_t max_runs;   /**< 640 B each */
	uint32_t max_wide;   /**< runs with more than 8 owners; 8 B per rank each */
	uint32_t max_prompt; /**< blocks of the longest prompt; longer tails are private */
	uint64_t seed;	     /**< of the index: clients choose hashes, so it must be secret */
	void *(*alloc)(void *arg, size_t bytes); /**< zeroed, aligned to 64; NULL = libc */
	void (*release)(void *arg, void *p);
	void *arg;
};

/** One booking; fields are private. Zeroed = empty. Owned by the caller, 32 bytes. */
struct kvr_active_booking {
	uint32_t rank;
	uint32_t tail;	    /**< last run + 1; 0 = none */
	uint32_t n_private; /**< prompt blocks outside the tree */
	uint32_t private_weight;
	uint32_t n_output;
	uint32_t output_weight;
	uint32_t n_shared; /**< prompt blocks in the tree */
	uint32_t pad;
};

/** @return NULL with errno EINVAL (a zero size) or ENOMEM. */
struct kvr_active *kvr_active_create(const struct kvr_active_conf *conf);

/** Accepts NULL. */
void kvr_active_destroy(struct kvr_active *a);

/**
 * Find how much of the prompt @p sh (n hashes of 8 bytes, any alignment) each rank holds:
 * depth[r] = leading blocks active on rank r, for r below the rounded max_ranks.
 * Also remembers the path for kvr_active_book(), until the next match, book or free.
 */
void kvr_active_match(struct kvr_active *a, const void *sh, uint32_t n, uint32_t depth[]);

/**
 * Book the prompt given to the last kvr_active_match() (same @p sh and @p n) on @p rank.
 * @return blocks that were not active on the rank before.
 */
uint32_t kvr_active_book(struct kvr_active *a, const void *sh, uint32_t n, uint32_t rank,
			 struct kvr_active_booking *b);

/**
 * The same two in slices: call with the same arguments until the answer is true, over at most @p
 * runs runs each time. A match is begun anew when another call has changed the prompts in between;
 * once it is whole, kvr_active_match() of the same arguments does nothing, until it is forgotten,
 * used, or anything is booked or freed. Who changes what stands at @p sh forgets it first.
 */
bool kvr_active_match_some(struct kvr_active *a, const void *sh, uint32_t n, uint32_t depth[],
			   uint32_t runs);
void kvr_active_match_forget(struct kvr_active *a);
bool kvr_active_book_some(struct kvr_active *a, const void *sh, uint32_t n, uint32_t rank,
			  struct kvr_active_booking *b, uint32_t runs);

/** Book n blocks that nobody can share (section 1.4, no reuse assumed). */
void kvr_active_book_private(struct kvr_active *a, uint32_t n, uint32_t rank,
			     struct kvr_active_booking *b);

/** How far the path of a prompt is fetched ahead; fields are private. Zero it first. */
struct kvr_active_ahead {
	uint32_t step;
	uint32_t run;
	uint32_t done;
	uint32_t home;
};

/**
 * Fetch what matching this prompt will touch, one level deeper each time: the prompt and its first
 * index entry, the run found there, the entry of the next, and so on. Call it some work apart and
 * before kvr_active_match(). What the calls see may change between them; that costs speed only.
 */
void kvr_active_prefetch_match(const struct kvr_active *a, const void *sh, uint32_t n,
			       struct kvr_active_ahead *ahead);

/**
 * Fetch what ending a booking will touch, some calls ahead of kvr_active_free(): step 0, then
 * steps 1 and 2, each of which reads what the one before fetched.
 */
void kvr_active_prefetch(const struct kvr_active *a, const struct kvr_active_booking *b, int step);

/** End a booking and zero it; an empty one is a no-op. */
void kvr_active_free(struct kvr_active *a, struct kvr_active_booking *b);

/** The same in slices, until the answer is true; nothing else touches @p b meanwhile. */
bool kvr_active_free_some(struct kvr_active *a, struct kvr_active_booking *b, uint32_t runs);

/** Runs looked at by matches, bookings and ends since the beginning. */
uint64_t kvr_active_walked(const struct kvr_active *a);

/** Append n output blocks of weight 1 (or, once faded, of the weight last given). */
void kvr_active_output(struct kvr_active *a, struct kvr_active_booking *b, uint32_t n);

/**
 * Give all output blocks, and the tail of the prompt that no other booking of the rank shares,
 * the weight @p weight (KVR_ACTIVE_ONE = 1.0); blocks before keep theirs (6.2).
 */
void kvr_active_fade(struct kvr_active *a, struct kvr_active_booking *b, uint32_t weight);

/** Active blocks per rank, rounded to nearest, halves up; rounded max_ranks entries. */
const uint32_t *kvr_active_blocks(const struct kvr_active *a);

/** What the load model counts. */
#define KVR_ACTIVE_COUNTER_LIST(X)                                                                 \
	X(KVR_ACTIVE_C_RUNS, runs, GAUGE, "runs", "runs of active prompts in use")                 \
	X(KVR_ACTIVE_C_WIDE, wide, GAUGE, "records", "records for runs of many ranks in use")      \
	X(KVR_ACTIVE_C_PRIVATE, private_blocks, COUNT, "blocks",                                   \
	  "blocks booked privately for want of memory")                                            \
	X(KVR_ACTIVE_C_SPLITS, splits, COUNT, "runs", "runs that were split")                      \
	X(KVR_ACTIVE_C_JOINS, joins, COUNT, "runs", "splits healed")
enum kvr_active_counter { KVR_ACTIVE_COUNTER_LIST(KVR_COUNTER_ENUM) KVR_ACTIVE_COUNTERS };
struct kvr_active_stats {
	KVR_ACTIVE_COUNTER_LIST(KVR_COUNTER_FIELD)
};
extern const struct kvr_stats_def kvr_active_stats_def;

/** Copy them into @p st. Any thread. */
void kvr_active_stats_get(const struct kvr_active *a, struct kvr_active_stats *st);

/** Check every invariant; for tests, slow. @return NULL, or what is wrong. */
const char *kvr_active_check(const struct kvr_active *a);

#endif
