/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_ACTIVE_H
#define KVR_ACTIVE_H

/**
 * @file
 * Active blocks of every rank: the prompt blocks of requests in flight, with shared prefixes
 * counted once per rank, and output blocks, each with a weight (lib/sched/RULES.md, sections 6.1 to
 * 6.3).
 *
 * Data structure: one prefix tree for all ranks, whose edges are divided into *runs* of up to 64
 * consecutive hashes. Every booking ends at the end of a run: a run is split where a booking ends
 * or diverges inside it. All blocks of a run therefore have the same owners, and a run needs one
 * (reference count, weight) per rank instead of one per block:
 *
 *     run 7 [h0 .. h63] owners r2 x3, r9 x1 --+-- run 8 [h64 .. h99]  owner r2 x1
 *                                              +-- run 9 [g64 .. g127] owner r9 x1, r2 x1
 *
 * When the booking that caused a split is gone, both parts have the same owners again. The next
 * booking that walks over them joins them, so a popular prefix does not stay fragmented.
 *
 * Children are found by (run, first hash) in a private open-addressing index, one probe per run. Up
 * to 8 owners are stored in the header of the run (two cache lines). With more owners the run has a
 * *wide* record: a bit set of ranks, with counts and weights indexed by rank. Projecting a prompt
 * shared by 512 ranks then takes 32 masked stores. Membership is of prefixes, not of sets: a block
 * counts only after the same predecessors, even if a client sends hashes that are not chained.
 *
 * Cost: match, book and free are O(runs of the prompt), plus one vector comparison or copy of the
 * hashes. A run that is not cached takes 40 to 150 ns. The longest prompt, 62,500 blocks in a
 * message of 4 MB, takes 60 us to match, and as long to book and to free. The functions called
 * _some do this in slices of a given number of runs. The state of an unfinished match or booking is
 * in the object; that of an unfinished free is in the booking. The owner completes it before the
 * next match, booking, fade, or read of the loads. A booking in progress must be complete before
 * another begins or any is freed; several frees may be in progress at once. kvr_active_walked()
 * counts the runs visited.
 *
 * If a pool is exhausted, the rest of a prompt is booked *privately*. Private blocks count fully
 * and are not shared, so load is never under-counted; a counter shows them.
 *
 * Weights are fixed-point numbers, KVR_ACTIVE_ONE = 1.0: sums are exact and leave no residue.
 *
 * Thread: one owner. Nothing allocates after creation; nothing reads clocks or random numbers.
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
	uint32_t max_runs;   /**< 640 bytes each */
	uint32_t max_wide;   /**< runs with more than 8 owners; 8 bytes per rank each */
	uint32_t max_prompt; /**< blocks of the longest prompt; further blocks are private */
	uint64_t seed;	     /**< seed of the index; must be secret, as clients choose the hashes */
	void *(*alloc)(void *arg, size_t bytes); /**< zeroed, aligned to 64; NULL: libc */
	void (*release)(void *arg, void *p);
	void *arg;
};

/** One booking; 32 bytes, owned by the caller. Fields are private. All zero: empty. */
struct kvr_active_booking {
	uint32_t rank;
	uint32_t tail;	    /**< last run + 1; 0: none */
	uint32_t n_private; /**< prompt blocks outside the tree */
	uint32_t private_weight;
	uint32_t n_output;
	uint32_t output_weight;
	uint32_t n_shared; /**< prompt blocks in the tree */
	uint32_t pad;
};

/** @return the object, or NULL with errno: EINVAL (a size is 0 or too large), ENOMEM. */
struct kvr_active *kvr_active_create(const struct kvr_active_conf *conf);

/** Accepts NULL. */
void kvr_active_destroy(struct kvr_active *active);

/**
 * Find how many leading blocks of the prompt @p sh (n hashes of 8 bytes, any alignment) are active
 * on each rank: depth[r], for r below the rounded max_ranks. Also keeps the path for
 * kvr_active_book(), until the next match, book or free.
 */
void kvr_active_match(struct kvr_active *active, const void *sh, uint32_t n, uint32_t depth[]);

/**
 * Book the prompt of the last kvr_active_match() (same @p sh and @p n) on @p rank.
 * @return the number of blocks that were not active on the rank before.
 */
uint32_t kvr_active_book(struct kvr_active *active, const void *sh, uint32_t n, uint32_t rank,
			 struct kvr_active_booking *booking);

/**
 * Match and book in slices: call repeatedly with the same arguments until the result is true; each
 * call visits at most @p runs runs. A match restarts if another call changed the prompts meanwhile.
 * Once it is complete, kvr_active_match() with the same arguments does nothing until the match is
 * dropped by kvr_active_match_forget(), used by a booking, or invalidated by another booking or
 * free. Call kvr_active_match_forget() before changing the hashes at @p sh.
 */
bool kvr_active_match_some(struct kvr_active *active, const void *sh, uint32_t n, uint32_t depth[],
			   uint32_t runs);
void kvr_active_match_forget(struct kvr_active *active);
bool kvr_active_book_some(struct kvr_active *active, const void *sh, uint32_t n, uint32_t rank,
			  struct kvr_active_booking *booking, uint32_t runs);

/** Book n blocks that cannot be shared (section 1.4, no reuse assumed). */
void kvr_active_book_private(struct kvr_active *active, uint32_t n, uint32_t rank,
			     struct kvr_active_booking *booking);

/** Progress of prefetching the path of a prompt; fields are private. Zero it before use. */
struct kvr_active_ahead {
	uint32_t step;
	uint32_t run;
	uint32_t done;
	uint32_t home;
};

/**
 * Prefetch what matching this prompt will access, one level deeper per call: the prompt and its
 * first index entry, the run found there, the entry of the next run, and so on. Call it before
 * kvr_active_match(), with other work in between. Changes between the calls cost only speed.
 */
void kvr_active_prefetch_match(const struct kvr_active *active, const void *sh, uint32_t n,
			       struct kvr_active_ahead *ahead);

/**
 * Prefetch what kvr_active_free() of a booking will access. Call it some time before, with step 0,
 * then 1, then 2: each step reads what the one before prefetched.
 */
void kvr_active_prefetch(const struct kvr_active *active, const struct kvr_active_booking *booking,
			 int step);

/** End a booking and zero it; an empty booking is a no-op. */
void kvr_active_free(struct kvr_active *active, struct kvr_active_booking *booking);

/** End a booking in slices: call until the result is true. No other call may use @p booking
 * meanwhile. */
bool kvr_active_free_some(struct kvr_active *active, struct kvr_active_booking *booking,
			  uint32_t runs);

/** Total runs visited by matches, bookings and ends. */
uint64_t kvr_active_walked(const struct kvr_active *active);

/** Append n output blocks of weight 1 or, after a fade, of the weight given last. */
void kvr_active_output(struct kvr_active *active, struct kvr_active_booking *booking, uint32_t n);

/**
 * Set the weight of all output blocks, and of the tail of the prompt that no other booking of the
 * rank shares (KVR_ACTIVE_ONE = 1.0). Blocks before that tail keep their weight (6.2).
 */
void kvr_active_fade(struct kvr_active *active, struct kvr_active_booking *booking,
		     uint32_t weight);

/** Active blocks per rank, rounded to the nearest integer, halves up; rounded max_ranks entries. */
const uint32_t *kvr_active_blocks(const struct kvr_active *active);

/** Counters of the load model. */
#define KVR_ACTIVE_COUNTER_LIST(X)                                                                 \
	X(KVR_ACTIVE_C_RUNS, runs, GAUGE, "runs", "runs of active prompts in use")                 \
	X(KVR_ACTIVE_C_WIDE, wide, GAUGE, "records", "records for runs of many ranks in use")      \
	X(KVR_ACTIVE_C_PRIVATE, private_blocks, COUNT, "blocks",                                   \
	  "blocks booked privately because memory was short")                                      \
	X(KVR_ACTIVE_C_SPLITS, splits, COUNT, "runs", "runs that were split")                      \
	X(KVR_ACTIVE_C_JOINS, joins, COUNT, "runs", "runs joined again after a split")
enum kvr_active_counter { KVR_ACTIVE_COUNTER_LIST(KVR_COUNTER_ENUM) KVR_ACTIVE_COUNTERS };
struct kvr_active_stats {
	KVR_ACTIVE_COUNTER_LIST(KVR_COUNTER_FIELD)
};
extern const struct kvr_stats_def kvr_active_stats_def;

/** Copy the counters into @p st. Any thread. */
void kvr_active_stats_get(const struct kvr_active *active, struct kvr_active_stats *st);

/** Check every invariant; slow, for tests. @return NULL, or a description of the error. */
const char *kvr_active_check(const struct kvr_active *active);

#endif
