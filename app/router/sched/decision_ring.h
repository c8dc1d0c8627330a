/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_DECISION_RING_H
#define ROUTER_DECISION_RING_H

/**
 * @file
 * Recent decisions of a pool by request id: a ring of `decision_ring` lines of 64 bytes, so that a
 * request can be found after it ended. Writer: the scheduler lcore, which overwrites the oldest;
 * any thread reads. The words of a line are written one by one between two stores of its stamp, so
 * neither side waits. Lines whose ids share a bucket form a chain from the newest to the oldest:
 * `newest` by bucket, `older` by line, each a number + 1 in 32 bits, 0: none. The link of an
 * overwritten line leads to another chain or to a newer line; its targets are overwritten as well.
 * Buckets are seeded, so a client cannot aim at one. Budget: eleven stores a decision, and loads of
 * the next number and a bucket, which are prefetched when the decision begins: waiting for the
 * bucket was 2.5 % of a polling core.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_prefetch.h>

#include "kvr_sched.h"

#define DECISION_WORDS 8u

struct decision_line {
	/* stamp: low half of number + 1, and the cost as a float above; 0: being written */
	_Atomic uint64_t w[DECISION_WORDS];
} __rte_cache_aligned;

/** A decision, decoded. */
struct decision_brief {
	uint64_t number; /* from 0, within the pool */
	uint64_t source, id;
	uint64_t at_ns;
	uint64_t worker; /* rejected at a limit: the current use */
	uint32_t dp_rank;
	enum kvr_sched_result result;
	enum kvr_code err;
	uint8_t policy_class;
	bool pinned;
	bool prefill;	/* prefill leg of a pair */
	uint32_t tries; /* earlier attempts, at most 15 */
	float cost;
	double overlap,
		best;	   /* in blocks, resolution 1/16; best: the largest of all eligible ranks */
	uint32_t required; /* in blocks; rejected: the limit, or 0 */
	uint32_t waited_us; /* at most 71 minutes */
};

struct decision_ring {
	uint32_t mask;
	_Atomic uint64_t written; /* decisions so far; the writer stores with release */
	struct decision_line *line;
	uint64_t seed;
	_Atomic uint32_t *newest, *older; /* written by the scheduler lcore, read by others */
};

/** The request of a decision. */
struct decision_about {
	uint64_t source, id;
	bool prefill;
	uint8_t tries;
};

/** Bytes of a ring of @p n lines (rounded up to a power of two) with its buckets. */
uint64_t decision_ring_bytes(uint32_t n);

/** Create @p n lines, rounded up to a power of two; 0: none. Touches its memory. @return 0,
 * -ENOMEM. Start. */
int decision_ring_init(struct decision_ring *ring, uint32_t n);
void decision_ring_fini(struct decision_ring *ring);

/** Bucket of @p id, below the number of lines. Any thread. */
static inline uint32_t decision_ring_bucket(const struct decision_ring *ring, uint64_t id)
{
	return (uint32_t)(((id ^ ring->seed) * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & ring->mask;
}

/** Prefetch the bucket that decision_ring_put() of @p id will write. Call it before the decision.
 * Scheduler lcore. */
static inline void decision_ring_fetch(const struct decision_ring *ring, uint64_t id)
{
	const uint64_t n = atomic_load_explicit(&ring->written, memory_order_relaxed);

	if (unlikely(ring->line == NULL))
		return;
	rte_prefetch0_write(&ring->line[n & ring->mask]);
	rte_prefetch0_write(&ring->newest[decision_ring_bucket(ring, id)]);
	rte_prefetch0_write(&ring->older[n & ring->mask]);
}

/** Add a decision. Scheduler lcore. */
void decision_ring_put(struct decision_ring *ring, const struct decision_about *who,
		       uint64_t now_ns, const struct kvr_sched_decision *d);

/** Decisions so far, and number of lines. Any thread. */
uint64_t decision_ring_written(const struct decision_ring *ring);
uint32_t decision_ring_size(const struct decision_ring *ring);

/** Read decision @p number. Any thread. @return 0; -ENOENT: not written yet, or overwritten. */
int decision_ring_read(const struct decision_ring *ring, uint64_t number,
		       struct decision_brief *out);

/** Find the newest decision about @p id older than @p before (UINT64_MAX: of all), of @p source
 * unless NULL. Reads at most @p steps lines of one bucket and subtracts their number from @p steps.
 * Any thread. @return 0; -ENOENT; -EAGAIN: none within the limit. */
int decision_ring_find(const struct decision_ring *ring, uint64_t id, const uint64_t *source,
		       uint64_t before, uint32_t *steps, struct decision_brief *out);

#endif
