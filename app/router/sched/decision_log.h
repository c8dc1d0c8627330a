/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_DECISION_LOG_H
#define ROUTER_DECISION_LOG_H

/**
 * @file
 * The decision log of a pool: one decision in `decision_sample` and every failed one, with the
 * terms of the best ranks. A ring written by the scheduler lcore and read by the telemetry thread.
 * Each entry has a sequence lock, so neither waits for the other; the oldest entry is overwritten.
 *
 * Cost: a decrement and two comparisons a decision, and a line in the ring of all decisions
 * (decision_ring.h). A sampled decision takes a few microseconds, as does a failed one, whose terms
 * (the load that each rank would carry) are gathered at most once a millisecond.
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
	uint64_t number; /* from 0, within the pool */
	uint64_t at_ns;
	uint64_t source;
	uint64_t id;
	struct kvr_sched_decision d;
	bool class_unknown;  /* the client named an unknown class; the first class applied */
	uint32_t n_eligible; /* ranks with terms; failed: all ranks, or 0 if not gathered */
	uint32_t n_terms;
	uint32_t flags[DECISION_TERMS];		    /* DECISION_*, by term */
	struct kvr_sched_term term[DECISION_TERMS]; /* by cost; for a failed decision by load */
};

struct decision_entry {
	rte_seqcount_t seq;
	struct decision v;
};

/** Written by the scheduler lcore; telemetry reads the last three fields. */
struct decision_log {
	/* scheduler lcore */
	uint64_t left;	   /* decisions until the next sample; 1: the next one */
	uint64_t terms_ns; /* earliest time to gather the terms of a failed decision */
	struct kvr_sched_terms terms;
	struct kvr_sched_load *load;
	struct decision_ring all; /* all decisions in brief */
	/* written by the scheduler lcore, read by telemetry */
	_Atomic uint64_t every;
	_Atomic uint64_t written;
	struct decision_entry ring[DECISIONS_KEPT];
};

/** Create. @p every 0: only failed decisions; @p ring: lines of the ring of all decisions. NULL: no
 * memory. */
struct decision_log *decision_log_create(uint32_t max_ranks, uint64_t every, uint32_t ring);

/** Accepts NULL. */
void decision_log_destroy(struct decision_log *log);

/* ---- scheduler lcore ---- */

/** Sample one decision in @p every from now on. Also at start. */
void decision_log_sample(struct decision_log *log, uint64_t every);

/** kvr_sched_route() for @pool j, with an entry in the log. */
enum kvr_sched_result decision_make(struct lcore *lc, struct pool *pool, const struct job *job,
				    uint32_t slot, const struct kvr_sched_req *req,
				    const struct kvr_sched_overlap *ov,
				    struct kvr_sched_decision *d);

/** kvr_sched_poll(), with entries in the log. Call before the slots of @pool d are changed. */
uint32_t decision_poll(struct lcore *lc, struct pool *pool, struct kvr_sched_decision d[],
		       uint32_t n);

/** Argument of decision_sample() for call_lcore(): sample one decision in `every`. */
struct decision_sample {
	struct pool *pool;
	uint64_t every;
};

void decision_sample(struct lcore *lc, void *arg);

/* ---- any thread ---- */

uint64_t decision_every(const struct decision_log *log);

/** Number of decisions kept so far. The newest DECISIONS_KEPT numbers below it can be read. */
uint64_t decision_written(const struct decision_log *log);

/** @return 0, or -ENOENT: not written yet, or overwritten. */
int decision_read(const struct decision_log *log, uint64_t number, struct decision *out);

#endif
