/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The owner's half of the executor: questions about workers, output lines of orders, and the events
 * that follow from an order because workers and clients of a scenario react at once.
 */
#include "explain.h"

#include <rte_common.h>
#include <stdlib.h>

/* Not an event of a request: a prediction is visible after the events before it, as in a router,
 * whose tables have another writer than its decisions. `flags` is the rank. */
#define PREDICTED KVR_RQ_EVENTS_N

/* ---- callbacks --------------------------------------------------------------------------- */

static bool find_worker(void *arg, const struct kvr_rq_pool *p, uint64_t id,
			struct kvr_rq_worker *out)
{
	const struct kvr_sc_worker *k = kvr_sc_worker_find(arg, id);

	if (k == NULL || &k->pool->rq != p)
		return false;
	*out = k->rq;
	return true;
}

static bool decode_alone(void *arg, const struct kvr_request *r,
			 const struct kvr_sched_req *prefill, const struct kvr_sched_req *decode)
{
	struct kvr_sc_world *w = arg;
	struct kvr_sc_pool *d = r->pool->owner, *p = d->peer;
	struct kvr_sched_overlap pov, dov;
	const struct kvr_disagg_side ps = {p->sched, prefill, &pov}, ds = {d->sched, decode, &dov};

	ex_score(p, decode->sh, decode->n, &pov);
	ex_score(d, decode->sh, decode->n, &dov);
	return kvr_disagg_bypass(&d->conf, &ps, &ds, w->now);
}

static void score_pool(void *arg, struct kvr_exec_pool *pool, const struct kvr_sched_req *req,
		       struct kvr_sched_overlap *ov)
{
	RTE_SET_USED(arg);
	ex_score(pool->owner, req->sh, req->n, ov);
}

static struct kvr_sc_req *sc_req(struct kvr_exec_req *req)
{
	return container_of(req, struct ex_req, exec)->sc;
}

static void note_decision(void *arg, struct kvr_exec_req *req, struct kvr_exec_pool *pool)
{
	RTE_SET_USED(arg);
	sc_req(req)->decided_by = pool->owner;
}

/* ---- lines ------------------------------------------------------------------------------- */

/* A worker that has left, or returned with another epoch, gets no CLOSE. */
static bool same_incarnation(const struct kvr_sc_world *w, const struct kvr_session_binding *at)
{
	const struct kvr_sc_worker *k = kvr_sc_worker_find(w, at->worker);

	return k != NULL && k->rq.epoch == (uint32_t)at->tag;
}

void ex_write_lines(struct kvr_sc_world *w, struct kvr_sc_req *r, const struct kvr_rq_orders *out,
		    bool decision)
{
	for (uint32_t i = 0; i < out->n; i++) {
		const struct kvr_rq_order *o = &out->v[i];

		if (o->kind == KVR_RQO_PREFILL)
			kvr_sc_line_prefill(r);
		else if (o->kind == KVR_RQO_ACCEPTED)
			kvr_sc_line_accepted(r);
		else if (o->kind == KVR_RQO_REJECTED && decision)
			kvr_sc_line_rejected(r, &o->why);
	}
	for (uint32_t i = 0; i < out->n; i++) {
		const struct kvr_rq_order *o = &out->v[i];

		if (o->kind == KVR_RQO_OPEN || o->kind == KVR_RQO_SESSION ||
		    (o->kind == KVR_RQO_CLOSE && same_incarnation(w, &o->session.to)))
			kvr_sc_line_session(w, r, o);
	}
}

static void write_orders(void *arg, struct kvr_exec_req *req, const struct kvr_rq_orders *out,
			 bool decision)
{
	ex_write_lines(arg, sc_req(req), out, decision);
}

/* ---- orders ------------------------------------------------------------------------------ */

/* A leg has ended. Its slot is released at once. A running prefill leg ends with the request, as
 * its worker has nothing else to do. */
static void end_leg(struct kvr_sc_req *r, uint8_t leg)
{
	const uint8_t prefill = r->r.leg[KVR_LEG_PREFILL].state;

	if (leg == KVR_LEG_MAIN && (prefill == KVR_RQS_SENT || prefill == KVR_RQS_RUNNING))
		ex_defer_later(r, KVR_RQE_FIN, KVR_LEG_PREFILL,
			       r->failed ? KVR_RQEF_ERROR : KVR_RQEF_RESULT);
	ex_defer(r, KVR_RQE_LINGERED, leg, 0);
}

static void carry_out(void *arg, struct kvr_exec_req *req, const struct kvr_rq_order *o)
{
	struct kvr_sc_world *w = arg;
	struct kvr_sc_req *r = sc_req(req);

	switch (o->kind) {
	case KVR_RQO_RENEW:
		r->routed = r->queued = false;
		break;
	case KVR_RQO_OPEN:
		ex_req(r)->open_due = w->now + KVR_RQ_OPEN_NS;
		break;
	case KVR_RQO_UNOPEN:
		ex_req(r)->open_due = 0;
		break;
	case KVR_RQO_SEND:
		if (!kvr_sc_worker_find(w, r->r.leg[o->leg].worker)->mute)
			ex_defer_later(r, KVR_RQE_TAKEN, o->leg, 0);
		break;
	case KVR_RQO_END:
		end_leg(r, o->leg);
		break;
	case KVR_RQO_PREDICT:
		ex_defer(r, PREDICTED, o->leg, (uint16_t)r->r.leg[o->leg].rank);
		break;
	case KVR_RQO_DONE:
		kvr_sc_req_over(r);
		break;
	default:
		break;
	}
}

/* The id is free after the last message to the client, although legs may still be active. */
static void free_id(void *arg, struct kvr_exec_req *req)
{
	RTE_SET_USED(arg);
	if (req->r->notified == KVR_RQ_OVER)
		kvr_sc_req_leave(sc_req(req));
}

const struct kvr_exec_ops ex_ops = {
	.rq = {.worker = find_worker, .alone = decode_alone},
	.score = score_pool,
	.decided = note_decision,
	.orders = write_orders,
	.order = carry_out,
	.stepped = free_id,
};

struct kvr_exec *ex_exec(struct kvr_sc_world *w)
{
	struct kvr_exec *exec = &ex_run(w)->exec;

	exec->now = w->now;
	return exec;
}

/* ---- events ------------------------------------------------------------------------------ */

void ex_step(struct kvr_sc_req *r, const struct kvr_rq_event *e)
{
	struct kvr_rq_event is = *e;

	if (e->kind == KVR_RQE_REPEATED && r->r.msg == NULL)
		is.msg = &r->msg; /* the message was freed and has arrived again */
	kvr_exec_step(ex_exec(r->pool->world), &ex_req(r)->exec, &is);
}

static struct ex_event *make_event(struct kvr_sc_req *r, uint8_t kind, uint8_t leg, uint16_t flags)
{
	struct ex_event *next = malloc(sizeof(*next));

	if (next == NULL)
		abort();
	*next = (struct ex_event){.r = r, .e = {.kind = kind, .leg = leg, .flags = flags}};
	return next;
}

void ex_defer(struct kvr_sc_req *r, uint8_t kind, uint8_t leg, uint16_t flags)
{
	struct ex_event *next = make_event(r, kind, leg, flags);

	STAILQ_INSERT_TAIL(&ex_run(r->pool->world)->todo, next, link);
}

void ex_defer_later(struct kvr_sc_req *r, uint8_t kind, uint8_t leg, uint16_t flags)
{
	struct ex_event *next = make_event(r, kind, leg, flags);

	STAILQ_INSERT_TAIL(&ex_run(r->pool->world)->later, next, link);
}

static void predict_blocks(const struct kvr_sc_req *r, const struct kvr_rq_event *e)
{
	const struct kvr_exec_pool *pool = kvr_exec_pool_of(&ex_req(r)->exec, e->leg);

	ex_predict(pool->owner, e->flags, r->msg.req.sh, r->msg.req.n);
}

void ex_run_due(struct kvr_sc_world *w)
{
	while (!STAILQ_EMPTY(&ex_run(w)->todo)) {
		struct ex_event *next = STAILQ_FIRST(&ex_run(w)->todo);

		STAILQ_REMOVE_HEAD(&ex_run(w)->todo, link);
		if (next->e.kind == PREDICTED)
			predict_blocks(next->r, &next->e);
		else
			ex_step(next->r, &next->e);
		free(next);
	}
}
