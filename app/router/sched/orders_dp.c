/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Carries out orders of lib/request: calls of lib/sched, frames, slots, statistics. An order that
 * is a question is answered here, and the request continues.
 */
#include "event/event.h"
#include "lcore/agent_path.h"
#include "lcore/out.h"
#include "message/job.h"
#include "sched/decision_log.h"
#include "sched/measure.h"
#include "sched/prompts.h"
#include "sched/quota.h"
#include "sched/request.h"
#include "sched/sched.h"
#include "sched/send.h"
#include "sched/session.h"

#include <assert.h>
#include <string.h>

/* ---- room for slots ---- */

void linger_over(struct lcore *lc, struct pool *p, struct kvr_flight *slot)
{
	if (likely(request_of(slot) != NULL)) {
		slot_event(lc, p, slot, (struct kvr_rq_event){.kind = KVR_RQE_LINGERED});
		return;
	}
	abort_stop(p, slot);
	slot_release(p, slot);
}

static bool linger_oldest(struct lcore *lc, struct pool *p)
{
	struct kvr_flight *slot = kvr_flight_oldest(p->requests);

	if (slot == NULL)
		return false;
	linger_over(lc, p, slot);
	return true;
}

static bool make_room(struct lcore *lc, struct pool *p)
{
	if (likely(kvr_flight_count(p->requests) < kvr_flight_size(p->requests)))
		return true;
	if (!linger_oldest(lc, p))
		return false;
	pool_count(p, PC_SLOTS_RECLAIMED, 1);
	return true;
}

/* Take a slot for a leg that has none. @return false: all are in use. */
static bool slot_need(const struct life *x, uint32_t leg)
{
	return x->r->slot[leg] != NULL || (make_room(x->lc, leg_pool(x, leg)) && slot_take(x, leg));
}

/* ---- questions ---- */

static void decide_leg(const struct life *x, const struct kvr_rq_order *o,
		       struct kvr_sched_decision *d)
{
	const struct job *j = x->r->job;
	struct pool *p = leg_pool(x, o->leg);
	struct kvr_sched_overlap ov;
	uint32_t slot = 0; /* a query uses no slot */

	if (!x->r->rq.query) {
		if (o->leg == PREFILL && x->r->slot[PREFILL] == NULL)
			pool_count(p, PC_ROUTES, 1);
		if (unlikely(!slot_need(x, o->leg))) {
			*d = (struct kvr_sched_decision){.result = KVR_SCHED_ERROR,
							 .err = KVR_E_NO_MEMORY};
			return;
		}
		slot = x->r->slot[o->leg]->slot;
	}
	/* At arrival the overlap is fresh. */
	if (x->r->rq.told == KVR_RQ_NOTHING && x->r->rq.tries == 0)
		sched_overlap(p, o->leg == MAIN ? j->overlap : j->pair->overlap, j->view, &ov);
	else
		sched_refresh(p, slot, o->req, &ov);
	decide(x->lc, p, j, slot, o->req, &ov, d);
}

static struct kvr_rq_event hold(const struct life *x)
{
	struct request *r = x->r;
	enum kvr_code code = slot_need(x, MAIN) ? job_hold(r->job) : KVR_E_NO_MEMORY;

	if (unlikely(code != KVR_OK))
		return (struct kvr_rq_event){.kind = KVR_RQE_NO_ROOM, .code = code};
	if (r->rq.paired) {
		pool_count(x->p, PC_DISAGG, 1);
		x->p->pair.n_prefilling++;
		r->counted = true;
		r->decided = false;
	} else if (leg_state(r, MAIN) == KVR_RQS_QUEUED && r->rq.tries == 0) {
		pool_count(x->p, PC_QUEUED, 1);
		r->counted = true;
	}
	return (struct kvr_rq_event){.kind = KVR_RQE_ROOM};
}

static struct kvr_rq_event renew(const struct life *x)
{
	if (unlikely(!make_room(x->lc, x->p)))
		return (struct kvr_rq_event){.kind = KVR_RQE_NO_ROOM, .code = KVR_E_NO_MEMORY};
	slot_renew(x);
	return (struct kvr_rq_event){.kind = KVR_RQE_ROOM};
}

/* @return false: @p o is no question. */
static bool answer(const struct life *x, const struct kvr_rq_order *o, struct kvr_sched_decision *d,
		   struct kvr_rq_event *e)
{
	switch (o->kind) {
	case KVR_RQO_DECIDE:
		decide_leg(x, o, d);
		*e = (struct kvr_rq_event){
			.kind = (uint8_t)kvr_request_decided(d, false), .leg = o->leg, .d = d};
		return true;
	case KVR_RQO_HOLD:
		*e = hold(x);
		return true;
	case KVR_RQO_RENEW:
		*e = renew(x);
		return true;
	default:
		return false;
	}
}

/* ---- ends ---- */

static void freed(const struct life *x, const struct kvr_rq_order *o)
{
	static const uint8_t as[] = {
		[KVR_RQ_FINISHED] = PC_FINISHED,
		[KVR_RQ_ERRORED] = PC_ERRORED,
		[KVR_RQ_OVERLOADED] = PC_OVERLOADED,
		[KVR_RQ_CANCELLED] = PC_CANCELLED,
		[KVR_RQ_STOPPED] = PC_STOPPED,
		[KVR_RQ_DECLINED] = PC_WORKER_REJECTED,
		[KVR_RQ_LOST] = PC_LOST,
		[KVR_RQ_EXPIRED] = PC_EXPIRED,
		[KVR_RQ_REFUSED] = PC_WORKER_REJECTED,
		[KVR_RQ_UNHEARD] = PC_UNACKNOWLEDGED,
		[KVR_RQ_CUT] = PC_CANCELLED,
		/* A booked prefill leg whose main leg waited. */
		[KVR_RQ_LEFT] = PC_CANCELLED,
		[KVR_RQ_NOT_ADMITTED] = PC_WORKER_REJECTED,
	};
	_Static_assert(RTE_DIM(as) == KVR_RQ_CUT + 1, "one counter per outcome");
	struct pool *p = leg_pool(x, o->leg);

	kvr_sched_outcome(p->sched, x->r->slot[o->leg]->slot, (enum kvr_sched_outcome)o->n,
			  x->lc->now_ns);
	/* A released booking was counted at its release. */
	if (likely(kvr_sched_finish(p->sched, x->r->slot[o->leg]->slot, x->lc->now_ns)))
		request_count(p, x->r, (enum pool_counter)as[o->how], 1);
	if (unlikely(o->how == KVR_RQ_UNHEARD))
		kvr_sched_silent(p->sched, x->r->rq.leg[o->leg].worker,
				 kvr_request_silent_ns(x->r->rq.pool), x->lc->now_ns);
	measure_freed(x, o->leg, o->how);
}

static void left(const struct life *x, const struct kvr_rq_order *o)
{
	struct pool *p = leg_pool(x, o->leg);

	kvr_sched_cancel(p->sched, x->r->slot[o->leg]->slot, x->lc->now_ns);
	pool_count(p, PC_QUEUE_ABANDONED, x->r->counted);
}

/* ---- to workers ---- */

static void send(const struct life *x, uint32_t leg)
{
	struct request *r = x->r;
	struct kvr_flight *slot = r->slot[leg];
	struct pool *p = leg_pool(x, leg);
	struct dispatch_fields f;

	slot_bind(x, leg);
	measure_sent(x, leg);
	kvr_flight_publish(slot); /* from now on the worker may send messages about it */
	if (unlikely(r->rq.paired)) {
		send_start(x->lc, p, slot);
		return;
	}
	slot->attempt = (uint16_t)r->rq.attempt;
	if (unlikely(r->job->frames != NULL)) {
		send_start(x->lc, p, slot);
		return;
	}
	prompts_keep(p, r->job); /* the frame that leaves contains its hashes */
	leg_fields(p, slot, &f);
	out_dispatch(x->lc, r->job, agent_path(x->lc, &slot->relay), &f);
	request_count(p, r, PC_DISPATCHES, 1);
}

/* No frame goes to the worker. Messages of the client find the booking by its handle. */
static void booked(const struct life *x, uint32_t leg)
{
	slot_bind(x, leg);
	kvr_flight_publish(x->r->slot[leg]);
	pool_count(leg_pool(x, leg), PC_CLIENT_BOOKINGS, 1);
	if (leg == MAIN)
		pool_count(x->p, PC_CLIENT_BOOKINGS_LIVE, 1); /* until slot_end() */
}

static void stop(const struct life *x, const struct kvr_rq_order *o)
{
	struct kvr_flight *slot = x->r->slot[o->leg];
	struct pool *p = leg_pool(x, o->leg);

	/* A decode worker that only releases resources prepared for it needs the complete message.
	 * At the stop there is no time for that. */
	if (x->r->rq.paired && o->leg == MAIN && o->how != KVR_RQ_STOPPED && o->how != KVR_RQ_CUT &&
	    send_then_abort(slot, o->why.code))
		return;
	send_stop_leg(p, slot);
	abort_start(x->lc, p, slot, o->why.code);
}

void message_over(const struct life *x)
{
	struct job *j = x->r->job;

	if (j == NULL)
		return; /* freed with its last frame */
	if (j->sent && leg_state(x->r, MAIN) == KVR_RQS_SENT)
		return; /* kept for retransmission, send_settle() */
	if (unlikely(send_keeps(x->r)))
		return;
	send_stop(x->r);
	x->r->job = NULL;
	job_free(x->lc, j);
}

/* ---- the executor's own books ---- */

static void ended(const struct life *x, const struct kvr_rq_order *o)
{
	if (o->leg == MAIN)
		tally_decided(x, PC_LEG_ABANDONED);
	if (o->kind == KVR_RQO_END)
		slot_linger(x, o->leg);
	else
		slot_drop(x, o->leg);
}

static void way_known(const struct life *x)
{
	if (x->r->rq.way == KVR_WAY_BYPASSED)
		pool_count(x->p, PC_BYPASSED, !x->r->rq.query);
	else
		leg_prefill_known(x);
}

static void about_session(const struct life *x, const struct kvr_rq_order *o)
{
	struct pool *p = leg_pool(x, o->leg);

	switch (o->kind) {
	case KVR_RQO_OPEN:
		slot_bind(x, MAIN);
		session_open(x);
		break;
	case KVR_RQO_UNOPEN:
		session_unopen(x, o);
		break;
	case KVR_RQO_CLOSE:
		session_close(x->lc, p, o);
		break;
	default:
		if (o->how == KVR_RQ_BOUND && (o->session.to.tag & KVR_RQ_TAG_AFFINITY) == 0)
			session_bound(x, o);
		else
			session_said(p, request_client(x->r), o);
	}
}

void orders_beside(struct lcore *lc, struct pool *p, const struct kvr_rq_orders *out)
{
	for (uint32_t i = 0; i < out->n; i++)
		if (out->v[i].kind == KVR_RQO_CLOSE)
			session_close(lc, p, &out->v[i]);
		else
			session_said(p, NULL, &out->v[i]); /* no order of a request here */
}

/* ---- all of them ---- */

static void to_scheduler(const struct life *x, const struct kvr_rq_order *o)
{
	struct pool *p = leg_pool(x, o->leg);
	const uint32_t slot = x->r->slot[o->leg]->slot;

	if (o->kind == KVR_RQO_KEEP) {
		kvr_sched_renew(p->sched, slot, x->lc->now_ns);
		return;
	}
	if (o->kind == KVR_RQO_PREFILL_DONE)
		kvr_sched_prefill_done(p->sched, slot, x->lc->now_ns);
	else if (o->kind == KVR_RQO_OUTCOME)
		kvr_sched_outcome(p->sched, slot, (enum kvr_sched_outcome)o->n, x->lc->now_ns);
	else
		kvr_sched_output(p->sched, slot, o->n, x->lc->now_ns);
	if (o->leg == MAIN && o->kind != KVR_RQO_OUTCOME)
		measure_output(x, o->kind == KVR_RQO_OUTPUT ? o->n : 0);
}

static void to_client(const struct life *x, const struct kvr_rq_order *o)
{
	if (o->kind == KVR_RQO_ACCEPTED) {
		if (x->r->rq.query)
			tally_once(x, PC_QUERIES);
		answer_accepted(x);
	} else if (o->kind == KVR_RQO_REJECTED) {
		tally_once(x, PC_REJECTED);
		answer_rejected(x, &o->why);
	} else {
		answer_cancelled(x);
	}
}

static void carry_out(const struct life *x, const struct kvr_rq_order *o)
{
	switch ((enum kvr_rq_order_kind)o->kind) {
	case KVR_RQO_SEND:
		send(x, o->leg);
		break;
	case KVR_RQO_BOOKED:
		booked(x, o->leg);
		break;
	case KVR_RQO_ABORT:
		stop(x, o);
		break;
	case KVR_RQO_OPEN:
	case KVR_RQO_UNOPEN:
	case KVR_RQO_CLOSE:
	case KVR_RQO_SESSION:
		about_session(x, o);
		break;
	case KVR_RQO_ACCEPTED:
	case KVR_RQO_REJECTED:
	case KVR_RQO_CANCELLED:
		to_client(x, o);
		break;
	case KVR_RQO_KEEP:
	case KVR_RQO_PREFILL_DONE:
	case KVR_RQO_OUTPUT:
	case KVR_RQO_OUTCOME:
		to_scheduler(x, o);
		break;
	case KVR_RQO_FREE:
		freed(x, o);
		break;
	case KVR_RQO_LEAVE:
		left(x, o);
		break;
	case KVR_RQO_PREDICT:
		predict(x->lc, leg_pool(x, o->leg), x->r->job, x->r->rq.leg[o->leg].rank,
			x->r->rq.leg[o->leg].worker);
		break;
	case KVR_RQO_PREFILL:
		way_known(x);
		break;
	case KVR_RQO_END:
	case KVR_RQO_RELEASE:
		ended(x, o);
		break;
	case KVR_RQO_MESSAGE_OVER:
		message_over(x);
		break;
	default: /* questions; DONE comes last */
		break;
	}
}

/* Whether the question at the end of a step can be answered in this turn. Otherwise it waits in
 * pool_live::asking, and the events of other requests wait with it. There is room for one question:
 * a second one is answered at once. */
static bool may_ask(const struct life *x, const struct kvr_rq_order *o)
{
	const bool taken = x->p->live.asking.r != NULL;

	assert(!taken || o->kind != KVR_RQO_DECIDE);
	if (o->kind != KVR_RQO_DECIDE ||
	    prompts_ready(leg_pool(x, o->leg), x->r->job, taken ? UINT32_MAX : PROMPTS_SLICE))
		return true;
	x->p->live.asking.r = x->r;
	x->p->live.asking.req = o->req;
	x->p->live.asking.leg = o->leg;
	return false;
}

/* Carry out the orders of a step and answer its question. */
static void carry(const struct life *x, const struct kvr_rq_ctx *c, struct kvr_rq_orders *out)
{
	struct kvr_sched_decision d;
	struct kvr_rq_event e;
	bool done = false;

	while (out->n > 0) {
		for (uint32_t i = 0; i < out->n; i++)
			carry_out(x, &out->v[i]);
		if (unlikely(x->r->times.anew))
			measure_again(x->r);
		if (unlikely(x->r->rq.session != NULL))
			session_charge(x);
		done = out->v[out->n - 1].kind == KVR_RQO_DONE;
		if (unlikely(!may_ask(x, &out->v[out->n - 1])))
			return;
		if (!answer(x, &out->v[out->n - 1], &d, &e))
			break;
		kvr_request_step(c, &x->r->rq, &e, out);
		if (e.d != NULL)
			tally_decision(x, &e, out);
		tally_try(x);
	}
	if (done)
		request_put(x->p, x->r);
	else if (x->r->job != NULL)
		send_settle(x->r);
}

enum kvr_rq_verdict life_event(const struct life *x, const struct kvr_rq_event *e)
{
	const struct kvr_rq_ctx c = life_ctx(x->lc, x->p);
	struct kvr_rq_orders out;
	const enum kvr_rq_verdict v = kvr_request_step(&c, &x->r->rq, e, &out);

	if (unlikely(e->kind == KVR_RQE_NOT_ADMITTED))
		tally_not_admitted(x, e, &out);
	tally_try(x);
	carry(x, &c, &out);
	return v;
}

void life_arrive(const struct life *x, struct kvr_rq_session *session)
{
	const struct kvr_rq_ctx c = life_ctx(x->lc, x->p);
	struct kvr_rq_orders out;

	kvr_request_arrive(&c, &x->r->rq, &x->p->live.rq, &x->r->job->msg, session, &out);
	carry(x, &c, &out);
}

bool orders_go_on(struct lcore *lc, struct pool *p, uint32_t runs)
{
	struct pool *main = p->decode != NULL ? p->decode : p;
	struct request *r = main->live.asking.r;
	const struct life x = {lc, main, r, {KVR_ROUTE, NULL}};
	struct kvr_rq_orders out;

	if (likely(r == NULL))
		return true;
	if (!prompts_ready(leg_pool(&x, main->live.asking.leg), r->job, runs))
		return false;
	out.n = 1;
	out.v[0] = (struct kvr_rq_order){.kind = KVR_RQO_DECIDE,
					 .leg = (uint8_t)main->live.asking.leg,
					 .req = main->live.asking.req};
	main->live.asking.r = NULL;
	{
		const struct kvr_rq_ctx c = life_ctx(lc, main);

		carry(&x, &c, &out);
	}
	prompts_handled(main);
	return main->live.asking.r == NULL;
}

bool slot_event(struct lcore *lc, struct pool *heard, struct kvr_flight *slot,
		struct kvr_rq_event e)
{
	struct request *r = slot != NULL ? request_of(slot) : NULL;
	enum kvr_rq_verdict v = KVR_RQ_LATE;

	if (likely(r != NULL)) {
		const struct life x = {lc, request_pool(r), r, {KVR_ROUTE, NULL}};
		struct kvr_flight *main = r->slot[MAIN];
		bool held = false;

		e.leg = (uint8_t)leg_of(slot);
		/* Items that went to the client exclude another attempt. */
		if (unlikely((e.leg == PREFILL || e.kind == KVR_RQE_UNHEARD) && main != NULL)) {
			held = slot_hold(r, &e);
			if (!held && kvr_flight_answered(main))
				e.flags |= KVR_RQEF_ANSWERED;
		}
		v = life_event(&x, &e);
		if (unlikely(held && r->slot[MAIN] == main))
			kvr_flight_pass_items(main);
	}
	if (likely(v == KVR_RQ_GO))
		return true;
	pool_count(heard, v == KVR_RQ_LATE ? PC_LATE_FRAMES : PC_UNEXPECTED_STATE, 1);
	return false;
}
