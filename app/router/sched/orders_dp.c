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
#include "sched/long_prompt.h"
#include "sched/quota.h"
#include "sched/request.h"
#include "sched/request_stats.h"
#include "sched/sched.h"
#include "sched/send.h"
#include "sched/session.h"

#include <assert.h>
#include <string.h>

/* ---- room for slots ---- */

void linger_over(struct lcore *lc, struct pool *pool, struct kvr_flight *slot)
{
	if (likely(request_of(slot) != NULL)) {
		slot_event(lc, pool, slot, (struct kvr_rq_event){.kind = KVR_RQE_LINGERED});
		return;
	}
	abort_stop(pool, slot);
	slot_release(pool, slot);
}

static bool linger_oldest(struct lcore *lc, struct pool *pool)
{
	struct kvr_flight *slot = kvr_flight_oldest(pool->requests);

	if (slot == NULL)
		return false;
	linger_over(lc, pool, slot);
	return true;
}

static bool make_room(struct lcore *lc, struct pool *pool)
{
	if (likely(kvr_flight_count(pool->requests) < kvr_flight_size(pool->requests)))
		return true;
	if (!linger_oldest(lc, pool))
		return false;
	pool_count(pool, PC_SLOTS_RECLAIMED, 1);
	return true;
}

/* Take a slot for a leg that has none. @return false: all are in use. */
static bool slot_need(const struct request_step *step, uint32_t leg)
{
	return step->req->slot[leg] != NULL ||
	       (make_room(step->lc, leg_pool(step, leg)) && slot_take(step, leg));
}

/* ---- questions ---- */

static void decide_leg(const struct request_step *step, const struct kvr_rq_order *order,
		       struct kvr_sched_decision *d)
{
	const struct job *job = step->req->job;
	struct pool *pool = leg_pool(step, order->leg);
	struct kvr_sched_overlap ov;
	uint32_t slot = 0; /* a query uses no slot */

	if (!step->req->rq.query) {
		if (order->leg == PREFILL && step->req->slot[PREFILL] == NULL)
			pool_count(pool, PC_ROUTES, 1);
		if (unlikely(!slot_need(step, order->leg))) {
			*d = (struct kvr_sched_decision){.result = KVR_SCHED_ERROR,
							 .err = KVR_E_NO_MEMORY};
			return;
		}
		slot = step->req->slot[order->leg]->slot;
	}
	/* At arrival the overlap is fresh. */
	if (step->req->rq.notified == KVR_RQ_NOTHING && step->req->rq.tries == 0)
		sched_overlap(pool, order->leg == MAIN ? job->overlap : job->pair->overlap,
			      job->view, &ov);
	else
		sched_refresh(pool, slot, order->req, &ov);
	decision_make(step->lc, pool, job, slot, order->req, &ov, d);
}

static struct kvr_rq_event may_hold(const struct request_step *step)
{
	struct request *req = step->req;
	enum kvr_code code = slot_need(step, MAIN) ? job_hold(req->job) : KVR_E_NO_MEMORY;

	if (unlikely(code != KVR_OK))
		return (struct kvr_rq_event){.kind = KVR_RQE_NO_ROOM, .code = code};
	if (req->rq.paired) {
		pool_count(step->pool, PC_DISAGG, 1);
		step->pool->pair.n_prefilling++;
		req->counted = true;
		req->decided = false;
	} else if (leg_state(req, MAIN) == KVR_RQS_QUEUED && req->rq.tries == 0) {
		pool_count(step->pool, PC_QUEUED, 1);
		req->counted = true;
	}
	return (struct kvr_rq_event){.kind = KVR_RQE_ROOM};
}

static struct kvr_rq_event may_renew(const struct request_step *step)
{
	if (unlikely(!make_room(step->lc, step->pool)))
		return (struct kvr_rq_event){.kind = KVR_RQE_NO_ROOM, .code = KVR_E_NO_MEMORY};
	slot_renew(step);
	return (struct kvr_rq_event){.kind = KVR_RQE_ROOM};
}

/* @return false: @p order is no question. */
static bool answer_question(const struct request_step *step, const struct kvr_rq_order *order,
			    struct kvr_sched_decision *d, struct kvr_rq_event *ev)
{
	switch (order->kind) {
	case KVR_RQO_DECIDE:
		decide_leg(step, order, d);
		*ev = (struct kvr_rq_event){
			.kind = (uint8_t)kvr_request_decided(d, false), .leg = order->leg, .d = d};
		return true;
	case KVR_RQO_HOLD:
		*ev = may_hold(step);
		return true;
	case KVR_RQO_RENEW:
		*ev = may_renew(step);
		return true;
	default:
		return false;
	}
}

/* ---- ends ---- */

static void carry_freed(const struct request_step *step, const struct kvr_rq_order *order)
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
		[KVR_RQ_UNACKED] = PC_UNACKNOWLEDGED,
		[KVR_RQ_CUT] = PC_CANCELLED,
		/* A booked prefill leg whose main leg waited. */
		[KVR_RQ_LEFT] = PC_CANCELLED,
		[KVR_RQ_NOT_ADMITTED] = PC_WORKER_REJECTED,
	};
	_Static_assert(RTE_DIM(as) == KVR_RQ_CUT + 1, "one counter per outcome");
	struct pool *pool = leg_pool(step, order->leg);

	kvr_sched_outcome(pool->sched, step->req->slot[order->leg]->slot,
			  (enum kvr_sched_outcome)order->n, step->lc->now_ns);
	/* A released booking was counted at its release. */
	if (likely(kvr_sched_finish(pool->sched, step->req->slot[order->leg]->slot,
				    step->lc->now_ns)))
		request_count(pool, step->req, (enum pool_counter)as[order->how], 1);
	if (unlikely(order->how == KVR_RQ_UNACKED))
		kvr_sched_unresponsive(pool->sched, step->req->rq.leg[order->leg].worker,
				       kvr_request_unresponsive_ns(step->req->rq.pool),
				       step->lc->now_ns);
	stats_freed(step, order->leg, order->how);
}

static void carry_left(const struct request_step *step, const struct kvr_rq_order *order)
{
	struct pool *pool = leg_pool(step, order->leg);

	kvr_sched_cancel(pool->sched, step->req->slot[order->leg]->slot, step->lc->now_ns);
	pool_count(pool, PC_QUEUE_ABANDONED, step->req->counted);
}

/* ---- to workers ---- */

static void carry_send(const struct request_step *step, uint32_t leg)
{
	struct request *req = step->req;
	struct kvr_flight *slot = req->slot[leg];
	struct pool *pool = leg_pool(step, leg);
	struct dispatch_fields f;

	slot_bind(step, leg);
	stats_sent(step, leg);
	kvr_flight_publish(slot); /* from now on the worker may send messages about it */
	if (unlikely(req->rq.paired)) {
		send_start(step->lc, pool, slot);
		return;
	}
	slot->attempt = (uint16_t)req->rq.attempt;
	if (unlikely(req->job->frames != NULL)) {
		send_start(step->lc, pool, slot);
		return;
	}
	long_prompt_keep(pool, req->job); /* the frame that leaves contains its hashes */
	leg_fields(pool, slot, &f);
	out_dispatch(step->lc, req->job, agent_path(step->lc, &slot->relay), &f);
	request_count(pool, req, PC_DISPATCHES, 1);
}

/* No frame goes to the worker. Messages of the client find the booking by its handle. */
static void carry_booked(const struct request_step *step, uint32_t leg)
{
	slot_bind(step, leg);
	kvr_flight_publish(step->req->slot[leg]);
	pool_count(leg_pool(step, leg), PC_CLIENT_BOOKINGS, 1);
	if (leg == MAIN)
		pool_count(step->pool, PC_CLIENT_BOOKINGS_LIVE, 1); /* until slot_end() */
}

static void carry_stop(const struct request_step *step, const struct kvr_rq_order *order)
{
	struct kvr_flight *slot = step->req->slot[order->leg];
	struct pool *pool = leg_pool(step, order->leg);

	/* A decode worker that only releases resources prepared for it needs the complete message.
	 * At the stop there is no time for that. */
	if (step->req->rq.paired && order->leg == MAIN && order->how != KVR_RQ_STOPPED &&
	    order->how != KVR_RQ_CUT && send_then_abort(slot, order->why.code))
		return;
	send_stop_leg(pool, slot);
	abort_start(step->lc, pool, slot, order->why.code);
}

void message_over(const struct request_step *step)
{
	struct job *job = step->req->job;

	if (job == NULL)
		return; /* freed with its last frame */
	if (job->sent && leg_state(step->req, MAIN) == KVR_RQS_SENT)
		return; /* kept for retransmission, send_settle() */
	if (unlikely(send_keeps(step->req)))
		return;
	send_stop(step->req);
	step->req->job = NULL;
	job_free(step->lc, job);
}

/* ---- the executor's own books ---- */

static void carry_ended(const struct request_step *step, const struct kvr_rq_order *order)
{
	if (order->leg == MAIN)
		outcome_decided(step, PC_LEG_ABANDONED);
	if (order->kind == KVR_RQO_END)
		slot_linger(step, order->leg);
	else
		slot_drop(step, order->leg);
}

static void way_known(const struct request_step *step)
{
	if (step->req->rq.way == KVR_WAY_BYPASSED)
		pool_count(step->pool, PC_BYPASSED, !step->req->rq.query);
	else
		leg_prefill_known(step);
}

static void about_session(const struct request_step *step, const struct kvr_rq_order *order)
{
	struct pool *pool = leg_pool(step, order->leg);

	switch (order->kind) {
	case KVR_RQO_OPEN:
		slot_bind(step, MAIN);
		session_open(step);
		break;
	case KVR_RQO_UNOPEN:
		session_unopen(step, order);
		break;
	case KVR_RQO_CLOSE:
		session_close(step->lc, pool, order);
		break;
	default:
		if (order->how == KVR_RQ_BOUND &&
		    (order->session.to.tag & KVR_RQ_TAG_AFFINITY) == 0)
			session_bound(step, order);
		else
			session_order(pool, request_client(step->req), order);
	}
}

void orders_beside(struct lcore *lc, struct pool *pool, const struct kvr_rq_orders *out)
{
	for (uint32_t i = 0; i < out->n; i++)
		if (out->v[i].kind == KVR_RQO_CLOSE)
			session_close(lc, pool, &out->v[i]);
		else
			session_order(pool, NULL, &out->v[i]); /* no order of a request here */
}

/* ---- all of them ---- */

static void to_scheduler(const struct request_step *step, const struct kvr_rq_order *order)
{
	struct pool *pool = leg_pool(step, order->leg);
	const uint32_t slot = step->req->slot[order->leg]->slot;

	if (order->kind == KVR_RQO_KEEP) {
		kvr_sched_renew(pool->sched, slot, step->lc->now_ns);
		return;
	}
	if (order->kind == KVR_RQO_PREFILL_DONE)
		kvr_sched_prefill_done(pool->sched, slot, step->lc->now_ns);
	else if (order->kind == KVR_RQO_OUTCOME)
		kvr_sched_outcome(pool->sched, slot, (enum kvr_sched_outcome)order->n,
				  step->lc->now_ns);
	else
		kvr_sched_output(pool->sched, slot, order->n, step->lc->now_ns);
	if (order->leg == MAIN && order->kind != KVR_RQO_OUTCOME)
		stats_output(step, order->kind == KVR_RQO_OUTPUT ? order->n : 0);
}

static void to_client(const struct request_step *step, const struct kvr_rq_order *order)
{
	if (order->kind == KVR_RQO_ACCEPTED) {
		if (step->req->rq.query)
			outcome_once(step, PC_QUERIES);
		answer_accepted(step);
	} else if (order->kind == KVR_RQO_REJECTED) {
		outcome_once(step, PC_REJECTED);
		answer_rejected(step, &order->why);
	} else {
		answer_cancelled(step);
	}
}

static void carry_out(const struct request_step *step, const struct kvr_rq_order *order)
{
	switch ((enum kvr_rq_order_kind)order->kind) {
	case KVR_RQO_SEND:
		carry_send(step, order->leg);
		break;
	case KVR_RQO_BOOKED:
		carry_booked(step, order->leg);
		break;
	case KVR_RQO_ABORT:
		carry_stop(step, order);
		break;
	case KVR_RQO_OPEN:
	case KVR_RQO_UNOPEN:
	case KVR_RQO_CLOSE:
	case KVR_RQO_SESSION:
		about_session(step, order);
		break;
	case KVR_RQO_ACCEPTED:
	case KVR_RQO_REJECTED:
	case KVR_RQO_CANCELLED:
		to_client(step, order);
		break;
	case KVR_RQO_KEEP:
	case KVR_RQO_PREFILL_DONE:
	case KVR_RQO_OUTPUT:
	case KVR_RQO_OUTCOME:
		to_scheduler(step, order);
		break;
	case KVR_RQO_FREE:
		carry_freed(step, order);
		break;
	case KVR_RQO_LEAVE:
		carry_left(step, order);
		break;
	case KVR_RQO_PREDICT:
		event_predict(step->lc, leg_pool(step, order->leg), step->req->job,
			      step->req->rq.leg[order->leg].rank,
			      step->req->rq.leg[order->leg].worker);
		break;
	case KVR_RQO_PREFILL:
		way_known(step);
		break;
	case KVR_RQO_END:
	case KVR_RQO_RELEASE:
		carry_ended(step, order);
		break;
	case KVR_RQO_MESSAGE_OVER:
		message_over(step);
		break;
	default: /* questions; DONE comes last */
		break;
	}
}

/* Whether the question at the end of a step can be answered in this turn. Otherwise it waits in
 * pool_live::asking, and the events of other requests wait with it. There is room for one question:
 * a second one is answered at once. */
static bool may_ask(const struct request_step *step, const struct kvr_rq_order *order)
{
	const bool taken = step->pool->live.asking.r != NULL;

	assert(!taken || order->kind != KVR_RQO_DECIDE);
	if (order->kind != KVR_RQO_DECIDE ||
	    long_prompt_ready(leg_pool(step, order->leg), step->req->job,
			      taken ? UINT32_MAX : LONG_PROMPT_SLICE))
		return true;
	step->pool->live.asking.r = step->req;
	step->pool->live.asking.req = order->req;
	step->pool->live.asking.leg = order->leg;
	return false;
}

/* Carry out the orders of a step and answer its question. */
static void carry_orders(const struct request_step *step, const struct kvr_rq_ctx *c,
			 struct kvr_rq_orders *out)
{
	struct kvr_sched_decision d;
	struct kvr_rq_event ev;
	bool done = false;

	while (out->n > 0) {
		for (uint32_t i = 0; i < out->n; i++)
			carry_out(step, &out->v[i]);
		if (unlikely(step->req->times.anew))
			stats_attempt(step->req);
		if (unlikely(step->req->rq.session != NULL))
			session_charge(step);
		done = out->v[out->n - 1].kind == KVR_RQO_DONE;
		if (unlikely(!may_ask(step, &out->v[out->n - 1])))
			return;
		if (!answer_question(step, &out->v[out->n - 1], &d, &ev))
			break;
		kvr_request_step(c, &step->req->rq, &ev, out);
		if (ev.d != NULL)
			outcome_of_decision(step, &ev, out);
		outcome_attempt(step);
	}
	if (done)
		request_put(step->pool, step->req);
	else if (step->req->job != NULL)
		send_settle(step->req);
}

enum kvr_rq_verdict step_event(const struct request_step *step, const struct kvr_rq_event *ev)
{
	const struct kvr_rq_ctx c = request_ctx(step->lc, step->pool);
	struct kvr_rq_orders out;
	const enum kvr_rq_verdict v = kvr_request_step(&c, &step->req->rq, ev, &out);

	if (unlikely(ev->kind == KVR_RQE_NOT_ADMITTED))
		outcome_not_admitted(step, ev, &out);
	outcome_attempt(step);
	carry_orders(step, &c, &out);
	return v;
}

void step_arrive(const struct request_step *step, struct kvr_rq_session *session)
{
	const struct kvr_rq_ctx c = request_ctx(step->lc, step->pool);
	struct kvr_rq_orders out;

	kvr_request_arrive(&c, &step->req->rq, &step->pool->live.rq, &step->req->job->msg, session,
			   &out);
	carry_orders(step, &c, &out);
}

bool orders_go_on(struct lcore *lc, struct pool *pool, uint32_t runs)
{
	struct pool *main = pool->decode != NULL ? pool->decode : pool;
	struct request *req = main->live.asking.r;
	const struct request_step step = {lc, main, req, {KVR_ROUTE, NULL}};
	struct kvr_rq_orders out;

	if (likely(req == NULL))
		return true;
	if (!long_prompt_ready(leg_pool(&step, main->live.asking.leg), req->job, runs))
		return false;
	out.n = 1;
	out.v[0] = (struct kvr_rq_order){.kind = KVR_RQO_DECIDE,
					 .leg = (uint8_t)main->live.asking.leg,
					 .req = main->live.asking.req};
	main->live.asking.r = NULL;
	{
		const struct kvr_rq_ctx c = request_ctx(lc, main);

		carry_orders(&step, &c, &out);
	}
	long_prompt_handled(main);
	return main->live.asking.r == NULL;
}

bool slot_event(struct lcore *lc, struct pool *heard, struct kvr_flight *slot,
		struct kvr_rq_event ev)
{
	struct request *req = slot != NULL ? request_of(slot) : NULL;
	enum kvr_rq_verdict v = KVR_RQ_LATE;

	if (likely(req != NULL)) {
		const struct request_step step = {lc, request_pool(req), req, {KVR_ROUTE, NULL}};
		struct kvr_flight *main = req->slot[MAIN];
		bool held = false;

		ev.leg = (uint8_t)leg_of(slot);
		/* Items that went to the client exclude another attempt. */
		if (unlikely((ev.leg == PREFILL || ev.kind == KVR_RQE_UNACKED) && main != NULL)) {
			held = slot_hold(req, &ev);
			if (!held && kvr_flight_answered(main))
				ev.flags |= KVR_RQEF_ANSWERED;
		}
		v = step_event(&step, &ev);
		if (unlikely(held && req->slot[MAIN] == main))
			kvr_flight_pass_items(main);
	}
	if (likely(v == KVR_RQ_GO))
		return true;
	pool_count(heard, v == KVR_RQ_LATE ? PC_LATE_FRAMES : PC_UNEXPECTED_STATE, 1);
	return false;
}
