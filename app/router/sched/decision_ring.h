/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_DECISION_RING_H
#define ROUTER_DECISION_RING_H

/**
 * @file
 * Every decision of a pool, for a while: a ring of `decision_ring` lines of 64 bytes, so that a
 * request can be found by its id long after it went. Writer: the scheduler lcore, which overwrites
 * the oldest; any thread reads. A line is words written one by one between two stores of its stamp,
 * so neither side waits. Lines of ids that fall into one bucket are a chain from the newest to
 * older ones: `newest` by bucket, `older` by line, each a number + 1 in 32 bits, 0: none. A link of
 * a line that was overwritten leads into another chain, or up; what it would have led to is gone,
 * too. The buckets are seeded: no client aims at one. Budget: eleven stores a decision, loads of
 * the number that is next and of a bucket, all of which are on their way when the decision begins:
 * waiting for the bucket was 2.5 % of a polling core.
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
	/* stamp: low half of number + 1, above the cost as a float; 0: being written */
	_Atomic uint64_t w[DECISION_WORDS];
} __rte_cache_aligned;

/** One decision, spelled out. */
struct decision_brief {
	uint64_t number; /* of the pool, from 0 */
	uint64_t source, id;
	uint64_t at_ns;
	uint64_t worker; /* refused: of a limit what is there */
	uint32_t dp_rank;
	enum kvr_sched_result result;
	enum kvr_code err;
	uint8_t policy_class;
	bool pinned;
	bool prefill;	/* the prefill leg of a pair */
	uint32_t tries; /* tries before it, at most 15 */
	float cost;
	double overlap, best; /* blocks, to a sixteenth; best: that any eligible rank had */
	uint32_t required;    /* blocks; refused: the limit, or 0 */
	uint32_t waited_us;   /* at most 71 minutes */
};

struct decision_ring {
	uint32_t mask;
	_Atomic uint64_t written; /* decisions ever; release store of the writer */
	struct decision_line *line;
	uint64_t seed;
	_Atomic uint32_t *newest, *older; /* scheduler lcore: w, others: r */
};

/** Who is meant, beside what was decided. */
struct decision_about {
	uint64_t source, id;
	bool prefill;
	uint8_t tries;
};

/** Bytes of a ring of @p n lines with its buckets, rounded up to a power of two. */
uint64_t decision_ring_bytes(uint32_t n);

/** @p n lines, rounded up to a power of two; 0: keep nothing. Touches its memory. @return 0,
 * -ENOMEM. Start. */
int decision_ring_init(struct decision_ring *r, uint32_t n);
void decision_ring_fini(struct decision_ring *r);

/** Bucket of @p id, below the number of lines. Any thread. */
static inline uint32_t decision_ring_bucket(const struct decision_ring *r, uint64_t id)
{
	return (uint32_t)(((id ^ r->seed) * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & r->mask;
}

/** Begin to load what decision_ring_put() of @p id will write: its bucket is a miss, as a rule.
 * Scheduler lcore, as long before it as a decision takes. */
static inline void decision_ring_fetch(const struct decision_ring *r, uint64_t id)
{
	const uint64_t n = atomic_load_explicit(&r->written, memory_order_relaxed);

	if (unlikely(r->line == NULL))
		return;
	rte_prefetch0_write(&r->line[n & r->mask]);
	rte_prefetch0_write(&r->newest[decision_ring_bucket(r, id)]);
	rte_prefetch0_write(&r->older[n & r->mask]);
}

/** Keep one. Scheduler lcore. */
void decision_ring_put(struct decision_ring *r, const struct decision_about *who, uint64_t now_ns,
		       const struct kvr_sched_decision *d);

/** Decisions ever, and lines. Any thread. */
uint64_t decision_ring_written(const struct decision_ring *r);
uint32_t decision_ring_size(const struct decision_ring *r);

/** Line of decision @p number. Any thread. @return 0; -ENOENT not there yet, or overwritten. */
int decision_ring_read(const struct decision_ring *r, uint64_t number, struct decision_brief *out);

/** The newest decision about @p id below @p before (UINT64_MAX: of all), of @p source unless it is
 * NULL. Looks at the lines of one bucket, at most @p steps of them, and takes those it looked at
 * from @p steps. Any thread. @return 0; -ENOENT; -EAGAIN: none among so many. */
int decision_ring_find(const struct decision_ring *r, uint64_t id, const uint64_t *source,
		       uint64_t before, uint32_t *steps, struct decision_brief *out);

#endif
