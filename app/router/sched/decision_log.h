/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_DECISION_LOG_H
#define ROUTER_DECISION_LOG_H

/**
 * @file
 * The decision log of a pool: one decision in `decision_sample` and every failed one, with what
 * selection knew of the best ranks. A ring written by the scheduler lcore and read by the
 * telemetry thread, each entry under a sequence lock, so neither waits for the other; the writer
 * overwrites the oldest.
 *
 * Costs a decrement and two comparisons a decision, and a line of the ring of all decisions in
 * brief (decision_ring.h); a sampled one takes a few microseconds, as does a failed one, whose
 * terms (the load that each rank would carry) are gathered at most once a millisecond.
 */

#include <stdatomic.h>

#include <rte_seqcount.h>

#include "kvr_sched.h"
#include "sched/decision_ring.h"

struct job;
struct lcore;
struct pool;
struct request;

#define DECISIONS_KEPT 64u
#define DECISION_TERMS 16u

#define DECISION_UNAVAILABLE 1u
#define DECISION_DRAINING    2u
#define DECISION_OVERLOADED  4u

struct decision {
	uint64_t number; /* from 0, of the pool */
	uint64_t at_ns;
	uint64_t source;
	uint64_t id;
	struct kvr_sched_decision d;
	bool class_unknown;  /* its client named a class that the pool has not: the first counted */
	uint32_t n_eligible; /* ranks that had terms; failed: all ranks, or 0 when left out */
	uint32_t n_terms;
	uint32_t flags[DECISION_TERMS];		    /* DECISION_*, by term */
	struct kvr_sched_term term[DECISION_TERMS]; /* by cost; of a failed one by load */
};

struct decision_entry {
	rte_seqcount_t seq;
	struct decision v;
};

/** Owned by the scheduler lcore; telemetry reads the last three. */
struct decision_log {
	/* scheduler lcore */
	uint64_t left;	   /* decisions until one is sampled; 1 = the next */
	uint64_t terms_ns; /* when the terms of a failed one may be gathered again */
	struct kvr_sched_terms terms;
	struct kvr_sched_load *load;
	struct decision_ring all; /* of all decisions, in brief */
	/* scheduler lcore writes, telemetry reads */
	_Atomic uint64_t every;
	_Atomic uint64_t written;
	struct decision_entry ring[DECISIONS_KEPT];
};

/** @p every 0 keeps failed decisions only; @p ring: of all in brief. NULL when there is no memory.
 */
struct decision_log *decision_log_create(uint32_t max_ranks, uint64_t every, uint32_t ring);

/** Accepts NULL. */
void decision_log_destroy(struct decision_log *log);

/* ---- scheduler lcore ---- */

/** Sample one decision in @p every from now on. Also at start. */
void decision_log_sample(struct decision_log *log, uint64_t every);

/** kvr_sched_route() for @p j, and the log is told. */
enum kvr_sched_result decide(struct lcore *lc, struct pool *p, const struct job *j, uint32_t slot,
			     const struct kvr_sched_req *req, const struct kvr_sched_overlap *ov,
			     struct kvr_sched_decision *d);

/** kvr_sched_poll(), and the log is told. Before the slots of @p d are touched. */
uint32_t decide_waiting(struct lcore *lc, struct pool *p, struct kvr_sched_decision d[],
			uint32_t n);

/** Argument of decision_sample(), which call_lcore() runs: sample one in `every` from now on. */
struct decision_sample {
	struct pool *pool;
	uint64_t every;
};

void decision_sample(struct lcore *lc, void *arg);

/* ---- any thread ---- */

uint64_t decision_every(const struct decision_log *log);

/** Decisions ever kept; numbers below it that are not older than DECISIONS_KEPT can be read. */
uint64_t decision_written(const struct decision_log *log);

/** @return 0, or -ENOENT: not written yet, or overwritten. */
int decision_read(const struct decision_log *log, uint64_t number, struct decision *out);

#endif
