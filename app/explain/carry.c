/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps of requests: orders as calls of lib/sched and lines, and what follows of itself. */
#include "run.h"

#include <rte_common.h>
#include <stdlib.h>

/* ---- questions --------------------------------------------------------------------------- */

static bool ask_worker(void *arg, const struct kvr_rq_pool *p, uint64_t id,
		       struct kvr_rq_worker *out)
{
	const struct kvr_sc_worker *k = kvr_sc_worker_find(arg, id);

	if (k == NULL || &k->pool->rq != p)
		return false;
	*out = k->rq;
	return true;
}

static bool ask_alone(void *arg, const struct kvr_request *r, const struct kvr_sched_req *prefill,
		      const struct kvr_sched_req *decode)
{
	struct kvr_sc_world *w = arg;
	struct kvr_sc_pool *d = r->pool->owner, *p = d->peer;
	struct kvr_sched_overlap pov, dov;
	const struct kvr_disagg_side ps = {p->sched, prefill, &pov}, ds = {d->sched, decode, &dov};

	ex_score(p, decode->sh, decode->n, &pov);
	ex_score(d, decode->sh, decode->n, &dov);
	return kvr_disagg_bypass(&d->conf, &ps, &ds, w->now);
}

struct kvr_rq_ctx ex_ctx(struct kvr_sc_world *w)
{
	static const struct kvr_rq_ops ops = {.worker = ask_worker, .alone = ask_alone};

	return (struct kvr_rq_ctx){&ops, w, w->now, &ex_run(w)->rand};
}

/* ---- what happens next ------------------------------------------------------------------- */

void ex_later(struct kvr_sc_req *r, uint8_t kind, uint8_t leg, uint16_t flags)
{
	struct ex_event *next = malloc(sizeof(*next));

	if (next == NULL)
		abort();
	*next = (struct ex_event){.r = r, .e = {.kind = kind, .leg = leg, .flags = flags}};
	STAILQ_INSERT_TAIL(&ex_run(r->pool->world)->todo, next, link);
}

/* ---- slots ------------------------------------------------------------------------------- */

static struct kvr_sc_pool *pool_of(const struct kvr_sc_req *r, uint32_t leg)
{
	return leg == KVR_LEG_MAIN ? r->pool : r->pool->peer;
}

uint8_t ex_leg_of(const struct kvr_sc_req *r, const struct kvr_sc_pool *pool)
{
	return (uint8_t)(pool == r->pool ? KVR_LEG_MAIN : KVR_LEG_PREFILL);
}

static bool slot_take(struct kvr_sc_req *r, uint32_t leg)
{
	struct ex_pool *p = ex_pool(pool_of(r, leg));
	uint32_t *slot = &ex_req(r)->slot[leg];

	if (*slot != EX_NO_SLOT || r->msg.req.query_only)
		return true; /* a query touches none */
	if (p->n_free == 0)
		return false;
	*slot = p->free_slot[--p->n_free];
	p->by_slot[*slot] = r;
	return true;
}

static void slot_release(struct kvr_sc_req *r, uint32_t leg)
{
	struct ex_pool *p = ex_pool(pool_of(r, leg));
	uint32_t *slot = &ex_req(r)->slot[leg];

	if (*slot == EX_NO_SLOT)
		return;
	p->by_slot[*slot] = NULL;
	p->free_slot[p->n_free++] = *slot;
	*slot = EX_NO_SLOT;
}

/* ---- lines ------------------------------------------------------------------------------- */

/* Nobody is told who is not there any more, or begins anew. */
static bool lives(const struct kvr_sc_world *w, const struct kvr_session_binding *at)
{
	const struct kvr_sc_worker *k = kvr_sc_worker_find(w, at->worker);

	return k != NULL && k->rq.epoch == (uint32_t)at->tag;
}

void ex_lines(struct kvr_sc_world *w, struct kvr_sc_req *r, const struct kvr_rq_orders *out,
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
		    (o->kind == KVR_RQO_CLOSE && lives(w, &o->session.to)))
			kvr_sc_line_session(w, r, o);
	}
}

/* ---- orders ------------------------------------------------------------------------------ */

/* @return the answer. */
static struct kvr_rq_event decide(struct kvr_sc_req *r, const struct kvr_rq_order *o)
{
	struct kvr_sc_pool *pool = pool_of(r, o->leg);
	const uint64_t now = pool->world->now;
	struct kvr_sched_overlap ov;

	r->decided_by = pool;
	if (slot_take(r, o->leg)) {
		ex_score(pool, o->req->sh, o->req->n, &ov);
		kvr_sched_route(pool->sched, r->msg.req.query_only ? 0 : ex_req(r)->slot[o->leg],
				o->req, &ov, now, &r->d);
	} else {
		r->d = (struct kvr_sched_decision){.result = KVR_SCHED_ERROR,
						   .err = KVR_E_NO_MEMORY};
	}
	return (struct kvr_rq_event){
		.kind = (uint8_t)kvr_request_decided(&r->d, false), .leg = o->leg, .d = &r->d};
}

/* No event of a request: its prediction can be seen from the next moment on, as in a router, whose
 * tables have another writer than its decisions. `flags` is the rank. */
#define PREDICTED KVR_RQ_EVENTS_N

/* A leg is over. The booking of a prefill leg ends with its request: here its worker has nothing
 * else to do. */
static void ended(struct kvr_sc_req *r, uint8_t leg)
{
	const uint8_t prefill = r->r.leg[KVR_LEG_PREFILL].state;

	if (leg == KVR_LEG_MAIN && (prefill == KVR_RQS_SENT || prefill == KVR_RQS_RUNNING))
		ex_later(r, KVR_RQE_FIN, KVR_LEG_PREFILL,
			 r->failed ? KVR_RQEF_ERROR : KVR_RQEF_RESULT);
	ex_later(r, KVR_RQE_LINGERED, leg, 0);
}

/* Calls of lib/sched, books, and what workers and clients do of themselves. */
static void carry_out(struct kvr_sc_req *r, const struct kvr_rq_order *o)
{
	struct kvr_sched *s = pool_of(r, o->leg)->sched;
	const uint32_t slot = ex_req(r)->slot[o->leg];
	const uint64_t now = r->pool->world->now;

	switch (o->kind) {
	case KVR_RQO_KEEP:
		kvr_sched_renew(s, slot, now);
		break;
	case KVR_RQO_PREFILL_DONE:
		kvr_sched_prefill_done(s, slot, now);
		break;
	case KVR_RQO_OUTPUT:
		kvr_sched_output(s, slot, o->n, now);
		break;
	case KVR_RQO_FREE:
		kvr_sched_finish(s, slot, now);
		if (o->how == KVR_RQ_UNHEARD)
			kvr_sched_silent(s, r->r.leg[o->leg].worker,
					 kvr_request_silent_ns(r->r.pool), now);
		break;
	case KVR_RQO_LEAVE:
		kvr_sched_cancel(s, slot, now);
		break;
	case KVR_RQO_OPEN:
		ex_req(r)->open_due = now + KVR_RQ_OPEN_NS;
		break;
	case KVR_RQO_UNOPEN:
		ex_req(r)->open_due = 0;
		break;
	case KVR_RQO_SEND:
		if (!kvr_sc_worker_find(r->pool->world, r->r.leg[o->leg].worker)->mute)
			ex_later(r, KVR_RQE_TAKEN, o->leg, 0);
		break;
	case KVR_RQO_END:
		ended(r, o->leg);
		break;
	case KVR_RQO_PREDICT:
		ex_later(r, PREDICTED, o->leg, (uint16_t)r->r.leg[o->leg].rank);
		break;
	case KVR_RQO_RELEASE:
		slot_release(r, o->leg);
		break;
	case KVR_RQO_DONE:
		kvr_sc_req_over(r);
		break;
	default:
		break;
	}
}

void ex_carry(struct kvr_sc_req *r, struct kvr_rq_orders *out, bool decision)
{
	struct kvr_sc_world *w = r->pool->world;
	const struct kvr_rq_ctx c = ex_ctx(w);
	struct kvr_rq_event answer;

	for (;;) {
		const struct kvr_rq_order *last = &out->v[out->n - 1];

		ex_lines(w, r, out, decision);
		for (uint32_t i = 0; i < out->n; i++)
			carry_out(r, &out->v[i]);
		if (out->n == 0)
			break;
		if (last->kind == KVR_RQO_DECIDE) {
			answer = decide(r, last);
			decision = true;
		} else if (last->kind == KVR_RQO_HOLD || last->kind == KVR_RQO_RENEW) {
			answer = (struct kvr_rq_event){.kind = KVR_RQE_ROOM};
			if (last->kind == KVR_RQO_RENEW)
				r->routed = r->queued = false;
		} else {
			break;
		}
		kvr_request_step(&c, &r->r, &answer, out);
	}
	/* Told its last word, its name is free, whatever its legs have left to do. */
	if (r->r.told == KVR_RQ_OVER)
		kvr_sc_req_leave(r);
}

void ex_step(struct kvr_sc_req *r, const struct kvr_rq_event *e)
{
	const bool decision = e->kind == KVR_RQE_ADMITTED || e->kind == KVR_RQE_NOT_ADMITTED ||
			      e->kind == KVR_RQE_REPEATED;
	const struct kvr_rq_ctx c = ex_ctx(r->pool->world);
	struct kvr_rq_event is = *e;
	struct kvr_rq_orders out;

	if (e->kind == KVR_RQE_TAKEN || e->kind == KVR_RQE_ITEM || e->kind == KVR_RQE_FIN)
		kvr_sched_heard(pool_of(r, e->leg)->sched, r->r.leg[e->leg].worker);
	if (e->kind == KVR_RQE_REPEATED && r->r.msg == NULL)
		is.msg = &r->msg; /* it has come again */
	kvr_request_step(&c, &r->r, &is, &out);
	ex_carry(r, &out, decision);
}

static void predict(const struct kvr_sc_req *r, const struct kvr_rq_event *e)
{
	ex_predict(pool_of(r, e->leg), e->flags, r->msg.req.sh, r->msg.req.n);
}

void ex_go_on(struct kvr_sc_world *w)
{
	while (!STAILQ_EMPTY(&ex_run(w)->todo)) {
		struct ex_event *next = STAILQ_FIRST(&ex_run(w)->todo);

		STAILQ_REMOVE_HEAD(&ex_run(w)->todo, link);
		if (next->e.kind == PREDICTED)
			predict(next->r, &next->e);
		else
			ex_step(next->r, &next->e);
		free(next);
	}
}
