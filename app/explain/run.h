/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_RUN_H
#define EX_RUN_H

/**
 * @file
 * The executor of lib/request in virtual time: orders become calls of lib/sched and lines. Workers
 * and clients are part of the scenario and do at once what they should: a worker acknowledges what
 * it is sent, a client its last item. Here is no rule of routing. tests/conform/ has another
 * executor, which says the same in frames to the stages of the router.
 *
 *   blocks  <-  carry  <-  worker, run  <-  main
 */

#include "kvr_scenario.h"

/** What is kept of each pool; its `own`. */
struct ex_pool {
	struct kvr_prefix *table;
	struct rte_rcu_qsbr *qsbr;
	struct kvr_overlap *overlap; /* of the last score */
	struct kvr_sc_req **by_slot;
	uint32_t *free_slot;
	uint32_t n_free;
	struct kvr_disagg disagg; /* prefill pools: whether the side is active */
	struct kvr_stats *stats;
};

#define EX_NO_SLOT UINT32_MAX

/** What is kept of each request; its `own`, in the memory of its line. */
struct ex_req {
	uint32_t slot[2];  /* by leg, or EX_NO_SLOT */
	uint64_t open_due; /* its open is unanswered then; 0: none waits */
	uint64_t stays[2]; /* by leg: sent_ns + 1 of one that goes nowhere else */
};

/** What will be said of a request next. */
struct ex_event {
	STAILQ_ENTRY(ex_event) link;
	struct kvr_sc_req *r;
	struct kvr_rq_event e;
};

/** The world's `own`. */
struct ex_run {
	STAILQ_HEAD(, ex_event) todo;
	struct kvr_rand rand; /* bootstrap rooms */
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

/* ---- blocks.c; the rest as in struct kvr_sc_executor ------------------------------------- */

/** Start the EAL the tables need, quietly. Once per process. */
bool ex_blocks_start(void);

/** The table of a pool. */
bool ex_blocks_create(struct ex_pool *e, uint32_t max_ranks);

void ex_blocks(struct kvr_sc_pool *pool, uint32_t rank, enum kvr_prefix_op op, enum kvr_tier tier,
	       const uint64_t *parent, const uint64_t *sh, uint32_t n);
void ex_clear(struct kvr_sc_pool *pool, uint32_t rank);
void ex_score(struct kvr_sc_pool *pool, const uint64_t *sh, uint32_t n,
	      struct kvr_sched_overlap *ov);

/** The rank will hold a prompt, as far as anybody knows, from now on. */
void ex_predict(struct kvr_sc_pool *pool, uint32_t rank, const uint64_t *sh, uint32_t n);

/* ---- carry.c ----------------------------------------------------------------------------- */

/** What the step functions are called with now. */
struct kvr_rq_ctx ex_ctx(struct kvr_sc_world *w);

uint8_t ex_leg_of(const struct kvr_sc_req *r, const struct kvr_sc_pool *pool);

/** Lines about orders: those about decisions, then those about sessions. A refusal has one when a
 * decision says it; what ends with its worker, its time or its session has none. */
void ex_lines(struct kvr_sc_world *w, struct kvr_sc_req *r, const struct kvr_rq_orders *out,
	      bool decision);

/** Carry the orders of a step out, and answer its questions. */
void ex_carry(struct kvr_sc_req *r, struct kvr_rq_orders *out, bool decision);

/** @p e has happened to @p r: one step, without what follows of itself. */
void ex_step(struct kvr_sc_req *r, const struct kvr_rq_event *e);

/** The same after all else that has happened: it waits for ex_go_on(). */
void ex_later(struct kvr_sc_req *r, uint8_t kind, uint8_t leg, uint16_t flags);
void ex_go_on(struct kvr_sc_world *w);

/* ---- worker.c: as struct kvr_sc_executor ------------------------------------------------- */

int ex_worker(struct kvr_sc_pool *pool, const struct kvr_sched_worker *c, const json_t *obj);
void ex_joined(struct kvr_sc_worker *k);
void ex_gone(struct kvr_sc_worker *k);
void ex_drain(struct kvr_sc_worker *k, bool draining);
void ex_load(struct kvr_sc_worker *k, uint32_t dp_rank, uint64_t used_blocks);

/** Draining workers without bookings become drained. */
void ex_drained(struct kvr_sc_world *w);

#endif
