/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loop of an executor: carries out the orders of a step in sequence. If the last order is a
 * question, the next step answers it.
 */
#include "kvr_exec.h"

#include <errno.h>
#include <stdlib.h>

/* ---- slots ---- */

int kvr_exec_pool_init(struct kvr_exec_pool *pool, struct kvr_rq_pool *rq, struct kvr_sched *sched,
		       uint32_t n_slots)
{
	pool->rq = rq;
	pool->sched = sched;
	pool->n_slots = n_slots;
	pool->by_slot = calloc(n_slots, sizeof(*pool->by_slot));
	pool->free_slot = calloc(n_slots, sizeof(*pool->free_slot));
	if (pool->by_slot == NULL || pool->free_slot == NULL)
		return -ENOMEM;
	for (pool->n_free = 0; pool->n_free < n_slots; pool->n_free++)
		pool->free_slot[pool->n_free] = n_slots - 1 - pool->n_free;
	return 0;
}

void kvr_exec_pool_fini(struct kvr_exec_pool *pool)
{
	free(pool->by_slot);
	free(pool->free_slot);
	pool->by_slot = NULL;
	pool->free_slot = NULL;
}

void kvr_exec_req_init(struct kvr_exec_req *req, struct kvr_exec_pool *pool, struct kvr_request *r,
		       struct kvr_rq_msg *msg, struct kvr_sched_decision *d)
{
	*req = (struct kvr_exec_req){.r = r,
				     .msg = msg,
				     .d = d,
				     .pool = pool,
				     .slot = {KVR_EXEC_NO_SLOT, KVR_EXEC_NO_SLOT}};
}

/* @return false: all slots are in use. A query needs none. */
static bool take_slot(struct kvr_exec_req *req, uint32_t leg)
{
	struct kvr_exec_pool *pool = kvr_exec_pool_of(req, leg);

	if (req->slot[leg] != KVR_EXEC_NO_SLOT || req->msg->req.query_only)
		return true;
	if (pool->n_free == 0)
		return false;
	req->slot[leg] = pool->free_slot[--pool->n_free];
	pool->by_slot[req->slot[leg]] = req;
	return true;
}

static void release_slot(struct kvr_exec_req *req, uint32_t leg)
{
	struct kvr_exec_pool *pool = kvr_exec_pool_of(req, leg);

	if (req->slot[leg] == KVR_EXEC_NO_SLOT)
		return;
	pool->by_slot[req->slot[leg]] = NULL;
	pool->free_slot[pool->n_free++] = req->slot[leg];
	req->slot[leg] = KVR_EXEC_NO_SLOT;
}

/* ---- orders ---- */

struct kvr_rq_ctx kvr_exec_ctx(struct kvr_exec *x)
{
	return (struct kvr_rq_ctx){&x->ops->rq, x->arg, x->now, &x->rand};
}

static void free_booking(struct kvr_exec *x, struct kvr_exec_req *req,
			 const struct kvr_rq_order *order)
{
	struct kvr_sched *sched = kvr_exec_pool_of(req, order->leg)->sched;

	kvr_sched_outcome(sched, req->slot[order->leg], (enum kvr_sched_outcome)order->n, x->now);
	kvr_sched_finish(sched, req->slot[order->leg], x->now);
	if (order->how == KVR_RQ_UNACKED)
		kvr_sched_unresponsive(sched, req->r->leg[order->leg].worker,
				       kvr_request_unresponsive_ns(req->r->pool), x->now);
}

static void carry_out(struct kvr_exec *x, struct kvr_exec_req *req,
		      const struct kvr_rq_order *order)
{
	switch (order->kind) {
	case KVR_RQO_DECIDE:
	case KVR_RQO_HOLD:
		break; /* questions: answered below */
	case KVR_RQO_KEEP:
		kvr_sched_renew(kvr_exec_pool_of(req, order->leg)->sched, req->slot[order->leg],
				x->now);
		break;
	case KVR_RQO_PREFILL_DONE:
		kvr_sched_prefill_done(kvr_exec_pool_of(req, order->leg)->sched,
				       req->slot[order->leg], x->now);
		break;
	case KVR_RQO_OUTPUT:
		kvr_sched_output(kvr_exec_pool_of(req, order->leg)->sched, req->slot[order->leg],
				 order->n, x->now);
		break;
	case KVR_RQO_OUTCOME:
		kvr_sched_outcome(kvr_exec_pool_of(req, order->leg)->sched, req->slot[order->leg],
				  (enum kvr_sched_outcome)order->n, x->now);
		break;
	case KVR_RQO_FREE:
		free_booking(x, req, order);
		break;
	case KVR_RQO_LEAVE:
		kvr_sched_cancel(kvr_exec_pool_of(req, order->leg)->sched, req->slot[order->leg],
				 x->now);
		break;
	case KVR_RQO_RELEASE:
		release_slot(req, order->leg);
		break;
	default:
		x->ops->order(x->arg, req, order);
	}
}

/* ---- questions ---- */

static void report_decision(struct kvr_exec *x, struct kvr_exec_req *req,
			    struct kvr_exec_pool *pool)
{
	if (x->ops->decided != NULL)
		x->ops->decided(x->arg, req, pool);
}

static struct kvr_rq_event decide_leg(struct kvr_exec *x, struct kvr_exec_req *req,
				      const struct kvr_rq_order *order)
{
	struct kvr_exec_pool *pool = kvr_exec_pool_of(req, order->leg);
	struct kvr_sched_overlap overlap = {0};

	if (take_slot(req, order->leg)) {
		x->ops->score(x->arg, pool, order->req, &overlap);
		kvr_sched_route(pool->sched, req->msg->req.query_only ? 0 : req->slot[order->leg],
				order->req, &overlap, x->now, req->d);
	} else {
		*req->d = (struct kvr_sched_decision){.result = KVR_SCHED_ERROR,
						      .err = KVR_E_NO_MEMORY};
	}
	report_decision(x, req, pool);
	return (struct kvr_rq_event){.kind = (uint8_t)kvr_request_decided(req->d, false),
				     .leg = order->leg,
				     .d = req->d};
}

/* Carry out the orders of a step, then answer its question and go on with the next step. */
static void carry_orders(struct kvr_exec *x, struct kvr_exec_req *req, struct kvr_rq_orders *out,
			 bool decision)
{
	const struct kvr_rq_ctx ctx = kvr_exec_ctx(x);
	struct kvr_rq_event answer;

	for (;;) {
		const struct kvr_rq_order *last = out->n > 0 ? &out->v[out->n - 1] : NULL;

		if (x->ops->orders != NULL)
			x->ops->orders(x->arg, req, out, decision);
		for (uint32_t i = 0; i < out->n; i++)
			carry_out(x, req, &out->v[i]);
		if (last != NULL && last->kind == KVR_RQO_DECIDE) {
			answer = decide_leg(x, req, last);
			decision = true;
		} else if (last != NULL &&
			   (last->kind == KVR_RQO_HOLD || last->kind == KVR_RQO_RENEW)) {
			answer = (struct kvr_rq_event){.kind = KVR_RQE_ROOM};
		} else {
			break;
		}
		kvr_request_step(&ctx, req->r, &answer, out);
	}
	if (x->ops->stepped != NULL)
		x->ops->stepped(x->arg, req);
}

/* ---- events ---- */

void kvr_exec_arrive(struct kvr_exec *x, struct kvr_exec_req *req, struct kvr_rq_session *session)
{
	const struct kvr_rq_ctx ctx = kvr_exec_ctx(x);
	struct kvr_rq_orders out;

	kvr_request_arrive(&ctx, req->r, req->pool->rq, req->msg, session, &out);
	carry_orders(x, req, &out, true);
}

void kvr_exec_step(struct kvr_exec *x, struct kvr_exec_req *req, const struct kvr_rq_event *e)
{
	const bool decision = e->kind == KVR_RQE_ADMITTED || e->kind == KVR_RQE_NOT_ADMITTED ||
			      e->kind == KVR_RQE_REPEATED;
	const struct kvr_rq_ctx ctx = kvr_exec_ctx(x);
	struct kvr_rq_orders out;

	if (e->kind == KVR_RQE_TAKEN || e->kind == KVR_RQE_ITEM || e->kind == KVR_RQE_FIN)
		kvr_sched_responded(kvr_exec_pool_of(req, e->leg)->sched,
				    req->r->leg[e->leg].worker);
	kvr_request_step(&ctx, req->r, e, &out);
	carry_orders(x, req, &out, decision);
}

void kvr_exec_admit(struct kvr_exec *x, struct kvr_exec_pool *pool)
{
	struct kvr_sched_decision d;

	while (kvr_sched_poll(pool->sched, x->now, &d, 1) == 1) {
		struct kvr_exec_req *req = pool->by_slot[d.slot];

		*req->d = d;
		report_decision(x, req, pool);
		kvr_exec_step(x, req,
			      &(const struct kvr_rq_event){
				      .kind = (uint8_t)kvr_request_decided(req->d, true),
				      .leg = kvr_exec_leg_of(req, pool),
				      .d = req->d});
	}
}
