/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EXPLAIN_H
#define EXPLAIN_H

/**
 * @file
 * kvroute-explain: a scenario on the executor of lib/exec, in virtual time. Orders become lines of
 * output. Workers and clients are part of the scenario and react at once: a worker acknowledges
 * what it receives, a client its last item. No rule of routing is here. tests/conform/ has another
 * executor, which plays the same scenarios as frames through the stages of the router.
 *
 *   table  <-  orders  <-  worker, run  <-  main
 *
 * One thread.
 */

#include "kvr_exec.h"
#include "kvr_scenario.h"

/** `own` of a pool. */
struct ex_pool {
	struct kvr_exec_pool exec; /* owner: the pool of the scenario */
	struct kvr_prefix *table;
	struct rte_rcu_qsbr *qsbr;
	struct kvr_overlap *overlap; /* of the last score */
	struct kvr_disagg disagg;    /* prefill pools: whether the side is active */
	struct kvr_stats *stats;
};

/** `own` of a request, in the memory of its line. */
struct ex_req {
	struct kvr_exec_req exec;
	struct kvr_sc_req *sc;
	uint64_t open_due; /* time at which its session open is unanswered; 0: no open */
	uint64_t stays[2]; /* by leg: sent_ns + 1 of a leg that no other worker took */
};

/** A queued event that follows from an earlier one. */
struct ex_event {
	STAILQ_ENTRY(ex_event) link;
	struct kvr_sc_req *r;
	struct kvr_rq_event e;
};

/** `own` of the world. */
struct ex_run {
	STAILQ_HEAD(ex_events, ex_event) todo;
	struct ex_events later; /* todo after the queues have been examined */
	struct kvr_exec exec;
};

extern const struct kvr_sc_executor ex_executor;

static inline struct ex_pool *ex_pool(const struct kvr_sc_pool *pool)
{
	return pool->own;
}

static inline struct ex_req *ex_req(const struct kvr_sc_req *r)
{
	return r->own;
}

static inline struct ex_run *ex_run(const struct kvr_sc_world *w)
{
	return w->own;
}

/* ---- table.c; the rest as in struct kvr_sc_executor -------------------------------------- */

/** Start the EAL that the tables need, without output. Once per process. */
bool ex_start_eal(void);

/** Create the prefix table of a pool. @return false: no memory. */
bool ex_create_table(struct ex_pool *pool, uint32_t max_ranks);

void ex_blocks(struct kvr_sc_pool *pool, uint32_t rank, enum kvr_prefix_op op, enum kvr_tier tier,
	       const uint64_t *parent, const uint64_t *sh, uint32_t n);
void ex_clear(struct kvr_sc_pool *pool, uint32_t rank);
void ex_score(struct kvr_sc_pool *pool, const uint64_t *sh, uint32_t n,
	      struct kvr_sched_overlap *ov);

/** Predict that the rank will hold a prompt. */
void ex_predict(struct kvr_sc_pool *pool, uint32_t rank, const uint64_t *sh, uint32_t n);

/* ---- orders.c ---------------------------------------------------------------------------- */

extern const struct kvr_exec_ops ex_ops;

/** Return the executor, set to the time of the world. */
struct kvr_exec *ex_exec(struct kvr_sc_world *w);

/** Write the lines of orders: those about decisions, then those about sessions. A rejection has a
 * line when a decision caused it (@p decision); an end by a worker, a deadline or a session has
 * none. @p r may be NULL. */
void ex_write_lines(struct kvr_sc_world *w, struct kvr_sc_req *r, const struct kvr_rq_orders *out,
		    bool decision);

/** Apply event @p e to @p r: one step, without the events that follow from it. */
void ex_step(struct kvr_sc_req *r, const struct kvr_rq_event *e);

/** Append an event behind all that are due; ex_run_due() steps them. */
void ex_defer(struct kvr_sc_req *r, uint8_t kind, uint8_t leg, uint16_t flags);
/** The same, after the queues have been examined. */
void ex_defer_later(struct kvr_sc_req *r, uint8_t kind, uint8_t leg, uint16_t flags);
void ex_run_due(struct kvr_sc_world *w);

/* ---- worker.c: as in struct kvr_sc_executor ---------------------------------------------- */

int ex_worker(struct kvr_sc_pool *pool, const struct kvr_sched_worker *c, const json_t *obj);
void ex_joined(struct kvr_sc_worker *k);
void ex_gone(struct kvr_sc_worker *k);
void ex_drain(struct kvr_sc_worker *k, bool draining);
void ex_load(struct kvr_sc_worker *k, uint32_t dp_rank, uint64_t used_blocks);

/** Report draining workers without bookings as drained. */
void ex_report_drained(struct kvr_sc_world *w);

#endif
