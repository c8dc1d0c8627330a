/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_EXEC_H
#define KVR_EXEC_H

/**
 * @file
 * An executor of lib/request in virtual time, without frames: kvroute-explain and the cluster model
 * of kvroute-sim --scale run requests through it. It carries out the orders that concern the
 * scheduler and the slots, answers the questions of a step, and hands all other orders to its
 * owner. The owner has the clock, the workers and the prefix tables.
 *
 * Memory. The owner's, except for the slots of a pool. One thread writes everything. Nothing locks
 * or reads a clock; kvr_exec_pool_init() allocates.
 */

#include "kvr_rand.h"
#include "kvr_request.h"
#include "kvr_sched.h"

#include <stdbool.h>
#include <stdint.h>

#define KVR_EXEC_NO_SLOT UINT32_MAX

struct kvr_exec;
struct kvr_exec_req;

/** A pool of requests and its slots of the scheduler. */
struct kvr_exec_pool {
	struct kvr_rq_pool *rq;
	struct kvr_sched *sched;
	struct kvr_exec_pool
		*prefill; /**< decode half of a pair: the prefill half. Owner sets it */
	struct kvr_exec_req **by_slot; /**< NULL: the slot is free */
	uint32_t *free_slot;	       /**< stack */
	uint32_t n_slots, n_free;
	void *owner;
};

/** An active request. The owner fills it with kvr_exec_req_init(). */
struct kvr_exec_req {
	struct kvr_request *r;
	struct kvr_rq_msg *msg;
	struct kvr_sched_decision *d; /**< last decision of any leg */
	struct kvr_exec_pool *pool;   /**< of the main leg */
	uint32_t slot[2];	      /**< by leg, or KVR_EXEC_NO_SLOT */
};

struct kvr_exec_ops {
	struct kvr_rq_ops rq; /**< callbacks of the step functions */

	/** Overlap of a prompt with the ranks of @p pool now. The arrays stay valid until the next
	 * call. */
	void (*score)(void *arg, struct kvr_exec_pool *pool, const struct kvr_sched_req *req,
		      struct kvr_sched_overlap *overlap);

	/** @p pool decided a leg; the decision is in @p req->d. NULL: not reported. */
	void (*decided)(void *arg, struct kvr_exec_req *req, struct kvr_exec_pool *pool);

	/** All orders of a step, before they are carried out. @p decision: the step answered a
	 * decision, or is an arrival. NULL: not reported. */
	void (*orders)(void *arg, struct kvr_exec_req *req, const struct kvr_rq_orders *out,
		       bool decision);

	/** An order that the executor does not carry out itself: any except DECIDE, HOLD,
	 * KEEP, PREFILL_DONE, OUTPUT, FREE, LEAVE and RELEASE. It must not step @p req. */
	void (*order)(void *arg, struct kvr_exec_req *req, const struct kvr_rq_order *order);

	/** All orders of an event and of the questions it caused are carried out. NULL: not
	 * reported. */
	void (*stepped)(void *arg, struct kvr_exec_req *req);
};

struct kvr_exec {
	const struct kvr_exec_ops *ops;
	void *arg;	      /**< first argument of all ops */
	uint64_t now;	      /**< ns, monotonic. Owner sets it */
	struct kvr_rand rand; /**< for bootstrap rooms */
};

/** Initialize @p pool, which is zeroed except for `owner`. @p n_slots: maximum of requests of @p
 * sched.
 * @return 0 or -ENOMEM; call kvr_exec_pool_fini() after either. */
int kvr_exec_pool_init(struct kvr_exec_pool *pool, struct kvr_rq_pool *rq, struct kvr_sched *sched,
		       uint32_t n_slots);
void kvr_exec_pool_fini(struct kvr_exec_pool *pool);

/** Initialize a request without slots. The memory of @p r, @p msg and @p d stays until the request
 * is done. */
void kvr_exec_req_init(struct kvr_exec_req *req, struct kvr_exec_pool *pool, struct kvr_request *r,
		       struct kvr_rq_msg *msg, struct kvr_sched_decision *d);

/** Return the context for step functions of lib/request at the current time. */
struct kvr_rq_ctx kvr_exec_ctx(struct kvr_exec *x);

/** Return the pool of a leg, or the leg that a pool serves. */
static inline struct kvr_exec_pool *kvr_exec_pool_of(const struct kvr_exec_req *req, uint32_t leg)
{
	return leg == KVR_LEG_MAIN ? req->pool : req->pool->prefill;
}

static inline uint8_t kvr_exec_leg_of(const struct kvr_exec_req *req,
				      const struct kvr_exec_pool *pool)
{
	return (uint8_t)(pool == req->pool ? KVR_LEG_MAIN : KVR_LEG_PREFILL);
}

/** Start a new request. @p session as in kvr_request_arrive(). */
void kvr_exec_arrive(struct kvr_exec *x, struct kvr_exec_req *req, struct kvr_rq_session *session);

/** Apply event @p e to @p req, including the steps that answer its questions. */
void kvr_exec_step(struct kvr_exec *x, struct kvr_exec_req *req, const struct kvr_rq_event *e);

/** Admit the admissible requests of the queue of @p pool, one after the other. */
void kvr_exec_admit(struct kvr_exec *x, struct kvr_exec_pool *pool);

#endif
