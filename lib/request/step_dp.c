/* SPDX-License-Identifier: BSD-3-Clause */
/* Handlers of the events of a request, called after the check against the table. */
#include "request_pvt.h"

#include <string.h>

/* ---- arrival ----------------------------------------------------------------------------- */

static void refuse_request(const struct step *step, enum kvr_code code)
{
	struct kvr_rq_why why = kvr_rq__why(step->r, code, 0);

	/* Not decided by the worker: a retry may succeed. */
	if (code == KVR_E_SESSION_OPEN_FAILED)
		why.retryable = true;
	kvr_rq__main_failed(step, &why, KVR_RQ_REFUSED);
}

/* Conditional disaggregation: return true if the decode pool alone is faster. */
static bool better_alone(const struct step *step)
{
	struct kvr_request *r = step->r;

	if (r->pool->conf->disagg_policy == KVR_DISAGG_ALWAYS ||
	    !kvr_disagg_active(r->pool->prefill->disagg))
		return false;
	kvr_rq__prefill_request(step);
	return step->c->ops->alone(step->c->arg, r, &r->msg->pair->preq, &r->msg->req);
}

/* Decide whether the request uses both pools. The message of a pair is kept for retransmission. */
static void choose_way(const struct step *step)
{
	struct kvr_request *r = step->r;
	const struct kvr_rq_pool *prefill = r->pool->prefill;

	if (prefill == NULL)
		return;
	if ((!kvr_disagg_active(prefill->disagg) && !r->pool->conf->enforce_disagg) ||
	    better_alone(step)) {
		r->way = KVR_WAY_BYPASSED;
		count_event(r->pool, KVR_RQC_BYPASSED);
		add_order(step, KVR_RQO_PREFILL, PREFILL);
		return;
	}
	r->paired = true;
}

static void handle_arrival(const struct step *step)
{
	struct kvr_request *r = step->r;
	enum kvr_code code;

	move_leg(step, MAIN, KVR_RQS_UNDECIDED);
	if (r->pool->closed) {
		refuse_request(step, KVR_E_SHUTDOWN);
		return;
	}
	code = r->session != NULL ? kvr_rq__session_enter(step, MAIN) : KVR_OK;
	if (code != KVR_OK) {
		refuse_request(step, code);
		return;
	}
	if (!r->probe) /* a probe checks one worker */
		choose_way(step);
	if (r->paired && !kvr_disagg_active(r->pool->prefill->disagg)) {
		refuse_request(step, KVR_E_NOT_ACTIVATED);
		return;
	}
	if (r->paired && kvr_rq__rank_missing(step)) {
		refuse_request(step, KVR_E_DP_RANK_REQUIRED);
		return;
	}
	if (r->paired && !r->query)
		count_event(r->pool, KVR_RQC_PAIRED);
	/* An open waits for its worker's answer, a pair for its other leg. */
	if (!r->query && (r->paired || (r->session != NULL && r->session->reserved)))
		kvr_rq__ask(step, KVR_RQO_HOLD);
	else
		kvr_rq__start(step);
}

enum kvr_rq_verdict kvr_request_arrive(const struct kvr_rq_ctx *c, struct kvr_request *r,
				       struct kvr_rq_pool *pool, struct kvr_rq_msg *msg,
				       struct kvr_rq_session *session, struct kvr_rq_orders *out)
{
	const struct step step = {c, r, out, NULL};

	out->n = 0;
	if (!kvr_request_done(r)) {
		count_event(r->pool, KVR_RQC_IMPOSSIBLE);
		return KVR_RQ_NEVER;
	}
	r->pool = pool;
	r->probe = msg->req.probe;
	r->session = r->probe ? NULL : session;
	r->notified = KVR_RQ_NOTHING;
	r->way = KVR_WAY_AGGREGATED;
	r->asks = KVR_RQO_NONE;
	r->query = msg->req.query_only;
	r->book = msg->book;
	r->direct = msg->direct;
	r->quiet = msg->quiet;
	/* With book, the client has contacted the worker already. */
	r->reroutes = r->book ? 0 : pool->reroutes;
	r->paired = r->held = r->sent = r->forgotten = r->stays = r->answers = false;
	r->leg[MAIN] = r->leg[PREFILL] = (struct kvr_leg){0};
	r->retried = msg->hints.n_failed_at != 0;
	r->attempt = 0;
	r->tries = 0;
	r->room = 0;
	r->msg = msg;
	r->end.code = KVR_OK; /* the other fields are not read */
	if (r->session != NULL) {
		session->reserved = session->closes = false;
		memset(session->part, PART_NONE, sizeof(session->part));
		memset(session->pin, PIN_NONE, sizeof(session->pin));
	}
	count_event(pool, r->probe ? KVR_RQC_PROBES : KVR_RQC_ARRIVED);
	kvr_rq__message(&step);
	handle_arrival(&step);
	settle_request(&step);
	return KVR_RQ_GO;
}

/* ---- answers ----------------------------------------------------------------------------- */

static void handle_room(const struct step *step)
{
	struct kvr_request *r = step->r;
	const bool hold = r->asks == KVR_RQO_HOLD;

	r->asks = KVR_RQO_NONE;
	r->held = r->held || hold;
	if (leg_in(r, MAIN, AT(QUEUED))) {
		kvr_rq__accept(step, KVR_RQ_WAITS);
	} else if (hold) {
		kvr_rq__start(step);
	} else {
		r->leg[MAIN].aborting = false; /* belongs to the old slot now */
		kvr_rq__start_over(step);
	}
}

static void handle_no_room(const struct step *step, enum kvr_code code)
{
	struct kvr_request *r = step->r;

	r->asks = KVR_RQO_NONE;
	if (leg_in(r, MAIN, AT(QUEUED)))
		add_order(step, KVR_RQO_LEAVE, MAIN);
	refuse_request(step, code);
}

static void handle_queued(const struct step *step, uint32_t leg)
{
	move_leg(step, leg, KVR_RQS_QUEUED);
	if (!step->r->held)
		kvr_rq__ask(step, KVR_RQO_HOLD);
	else
		kvr_rq__accept(step, KVR_RQ_WAITS);
}

/* The pool rejects the leg, at once or from its queue. */
static void handle_refusal(const struct step *step, uint32_t leg,
			   const struct kvr_sched_decision *d, enum kvr_rq_how how)
{
	struct kvr_request *r = step->r;
	const struct kvr_disagg *prefill = leg == PREFILL ? r->pool->prefill->disagg : NULL;
	struct kvr_rq_why why = kvr_rq__why_of(r, d);

	if (how == KVR_RQ_REFUSED && kvr_rq__session_unpin(step, leg, d->err)) {
		kvr_rq__decide(step, leg);
		return;
	}
	/* No other worker is eligible or has capacity: permit the excluded one. */
	if ((d->err == KVR_E_NO_ENDPOINTS || d->err == KVR_E_ALL_OVERLOADED) &&
	    kvr_rq__readmit(step, leg)) {
		kvr_rq__decide(step, leg);
		return;
	}
	if (leg == MAIN) {
		kvr_rq__main_failed(step, &why, how);
		return;
	}
	if (how == KVR_RQ_NOT_ADMITTED && d->err == KVR_E_NO_ENDPOINTS &&
	    !kvr_disagg_active(prefill)) {
		/* Not a failed attempt: the prefill pool became inactive meanwhile. */
		why = kvr_rq__why(r, KVR_E_NOT_ACTIVATED, 0);
		r->reroutes++;
	} else {
		/* No further attempt after a rejection by the pool. Report the failure of the first
		 * attempt if no worker was left for this one (8.5). */
		if (r->msg->pair->failed != KVR_OK && d->err == KVR_E_NO_ENDPOINTS)
			why = kvr_rq__why(r, (enum kvr_code)r->msg->pair->failed,
					  r->msg->pair->failed_detail);
		r->reroutes = 0;
	}
	kvr_rq__prefill_failed(step, &why, how, false);
}

/* ---- workers ----------------------------------------------------------------------------- */

/* An acknowledgement or a report, without progress. */
static void handle_taken(const struct step *step, uint32_t leg)
{
	kvr_rq__keep(step, leg);
	if (leg_in(step->r, leg, AT(RUNNING)))
		return;
	move_leg(step, leg, KVR_RQS_RUNNING);
	if (leg == MAIN && step->r->quiet)
		kvr_rq__accept(step, KVR_RQ_SERVED);
	if (step->r->session != NULL)
		kvr_rq__session_succeeded(step, leg);
}

static void fail_leg(const struct step *step, uint32_t leg, const struct kvr_rq_why *why,
		     enum kvr_rq_how how)
{
	if (leg == MAIN)
		kvr_rq__main_failed(step, why, how);
	else
		kvr_rq__prefill_failed(step, why, how, how != KVR_RQ_LOST);
}

static void handle_declined(const struct step *step, uint32_t leg, uint32_t code)
{
	const struct kvr_rq_why why = kvr_rq__why_at(
		step->r, leg, leg == MAIN ? KVR_E_DISPATCH_FAILED : KVR_E_PREFILL_FAILED, code);

	fail_leg(step, leg, &why, KVR_RQ_DECLINED);
}

static void handle_lost(const struct step *step, uint32_t leg)
{
	const struct kvr_rq_why why =
		kvr_rq__why(step->r, KVR_E_WORKER_LOST, step->r->leg[leg].worker);

	step->r->leg[leg].booked = false;
	fail_leg(step, leg, &why, KVR_RQ_LOST);
}

/* The prefill computation ended: report it to the scheduler, which learns speeds, and end the
 * booking. */
static void end_prefill(const struct step *step)
{
	if (step->r->leg[PREFILL].booked)
		add_order(step, KVR_RQO_PREFILL_DONE, PREFILL);
	kvr_rq__prefill_over(step, KVR_RQ_FINISHED);
}

static void handle_item(const struct step *step, const struct kvr_rq_event *e)
{
	struct kvr_request *r = step->r;

	move_leg(step, e->leg, KVR_RQS_RUNNING);
	if (r->session != NULL && (e->flags & NOT_WELL) == 0)
		kvr_rq__session_succeeded(step, e->leg);
	/* FIN ends the booking; PREFILL_DONE and OUTPUT below renew it. */
	if (e->kind == KVR_RQE_ITEM &&
	    (e->leg == PREFILL || r->probe || (e->tokens == 0 && (e->flags & KVR_RQEF_FIRST) == 0)))
		kvr_rq__keep(step, e->leg);
	if (e->leg == PREFILL)
		return;
	r->answers = true;
	if (e->tokens != 0 || (e->flags & KVR_RQEF_FIRST) != 0) {
		/* Proves success of the prefill leg, perhaps before the prefill worker reports it.
		 */
		if (r->session != NULL && (e->flags & NOT_WELL) == 0)
			kvr_rq__session_succeeded(step, PREFILL);
		end_prefill(step);
	}
	if (step->r->probe)
		return;
	if ((e->flags & KVR_RQEF_FIRST) != 0)
		add_order(step, KVR_RQO_PREFILL_DONE, MAIN);
	if (e->tokens != 0)
		add_order(step, KVR_RQO_OUTPUT, MAIN)->n = e->tokens;
}

static void handle_fin(const struct step *step, const struct kvr_rq_event *e)
{
	struct kvr_request *r = step->r;
	struct kvr_rq_why why;
	const enum kvr_rq_how how = (e->flags & KVR_RQEF_REFUSED) != 0	   ? KVR_RQ_OVERLOADED
				    : (e->flags & NOT_WELL) != 0	   ? KVR_RQ_ERRORED
				    : (e->flags & KVR_RQEF_CANCELLED) != 0 ? KVR_RQ_CANCELLED
									   : KVR_RQ_FINISHED;

	handle_item(step, e);
	if (e->leg == MAIN) {
		kvr_rq__main_over(step, how);
		return;
	}
	/* Without a result there is nothing to decode. */
	if (how != KVR_RQ_FINISHED ||
	    (r->way == KVR_WAY_SYNC && (e->flags & KVR_RQEF_RESULT) == 0)) {
		why = kvr_rq__why_at(r, PREFILL, KVR_E_PREFILL_FAILED, e->code);
		kvr_rq__prefill_failed(step, &why, how == KVR_RQ_OVERLOADED ? how : KVR_RQ_ERRORED,
				       true);
		return;
	}
	end_prefill(step);
	/* Even without a client: the decode worker must release the blocks. */
	if (leg_in(r, MAIN, AT(UNDECIDED)))
		kvr_rq__decide(step, MAIN);
}

static void handle_not_opened(const struct step *step, uint32_t code, bool unanswered)
{
	const struct kvr_rq_why why = kvr_rq__why(step->r, KVR_E_SESSION_OPEN_FAILED, code);

	kvr_rq__session_not_opened(step, unanswered);
	kvr_rq__main_failed(step, &why, KVR_RQ_DECLINED);
}

/* ---- the step ---------------------------------------------------------------------------- */

/* Handle events of the whole request or its session. @return false: not applicable, counted as
 * late. */
static bool handle_request_event(const struct step *step, const struct kvr_rq_event *e)
{
	switch ((enum kvr_rq_event_kind)e->kind) {
	case KVR_RQE_OPENED:
		kvr_rq__session_opened(step);
		kvr_rq__main_go_on(step);
		return true;
	case KVR_RQE_NOT_OPENED:
		handle_not_opened(step, e->code, false);
		return true;
	case KVR_RQE_UNANSWERED:
		handle_not_opened(step, 0, true);
		return true;
	case KVR_RQE_ROOM:
		handle_room(step);
		return true;
	case KVR_RQE_NO_ROOM:
		handle_no_room(step, (enum kvr_code)e->code);
		return true;
	case KVR_RQE_CANCEL:
		kvr_rq__cancel(step);
		return true;
	case KVR_RQE_REPEATED:
		kvr_rq__repeated(step, e);
		return true;
	case KVR_RQE_PROBED:
		kvr_rq__repeated(step, &(const struct kvr_rq_event){.flags = KVR_RQEF_SAME});
		return true;
	case KVR_RQE_STOP:
		kvr_rq__stop(step, e->code != KVR_OK ? (enum kvr_code)e->code : KVR_E_SHUTDOWN);
		return true;
	case KVR_RQE_DEADLINE:
		return kvr_rq__late(step, false);
	case KVR_RQE_CLIENT_GONE:
		return kvr_rq__late(step, true);
	case KVR_RQE_LEASE_OVER:
		kvr_rq__lease_over(step);
		return true;
	default: /* ARRIVED: see check_event() */
		return false;
	}
}

/* Handle events of a leg, which are the frequent ones. @return false: not applicable, counted as
 * late. */
static bool handle_leg_event(const struct step *step, const struct kvr_rq_event *e)
{
	const uint32_t leg = e->leg;

	switch ((enum kvr_rq_event_kind)e->kind) {
	case KVR_RQE_ADMITTED:
		move_leg(step, leg, KVR_RQS_DECIDING);
		/* fall through */
	case KVR_RQE_ROUTED:
		if (leg == MAIN)
			kvr_rq__main_routed(step, e->d);
		else
			kvr_rq__prefill_routed(step, e->d);
		return true;
	case KVR_RQE_QUEUED:
		handle_queued(step, leg);
		return true;
	case KVR_RQE_NOT_ADMITTED:
		move_leg(step, leg, KVR_RQS_DECIDING);
		handle_refusal(step, leg, e->d, KVR_RQ_NOT_ADMITTED);
		return true;
	case KVR_RQE_REFUSED:
		handle_refusal(step, leg, e->d, KVR_RQ_REFUSED);
		return true;
	case KVR_RQE_LOST:
		handle_lost(step, leg);
		return true;
	case KVR_RQE_EXPIRED:
		step->r->leg[leg].released = true;
		return true;
	case KVR_RQE_TAKEN:
		handle_taken(step, leg);
		return true;
	case KVR_RQE_DECLINED:
		handle_declined(step, leg, e->code);
		return true;
	case KVR_RQE_ITEM:
		handle_item(step, e);
		return true;
	case KVR_RQE_FIN:
		handle_fin(step, e);
		return true;
	case KVR_RQE_ABORTED:
		kvr_rq__aborted(step, leg);
		return true;
	case KVR_RQE_UNWANTED:
		return kvr_rq__unwanted(step);
	case KVR_RQE_UNACKED:
		return kvr_rq__reroute_unacked(step, leg, NULL);
	case KVR_RQE_FIN_ACKED:
	case KVR_RQE_LINGERED:
		kvr_rq__lingered(step, leg);
		return true;
	default:
		return handle_request_event(step, e);
	}
}

#define E(name) (1u << KVR_RQE_##name)
#define DECIDED (E(ROUTED) | E(QUEUED) | E(REFUSED))
#define ROOMS	(E(ROOM) | E(NO_ROOM))

/* Events that name a leg. Others concern the request, whose state is that of its main leg. */
#define OF_LEG                                                                                     \
	(DECIDED | E(LINGERED) | E(ADMITTED) | E(NOT_ADMITTED) | E(LOST) | E(EXPIRED) | E(TAKEN) | \
	 E(DECLINED) | E(ITEM) | E(FIN) | E(ABORTED) | E(UNACKED) | E(UNWANTED))

/* Check beyond the table: a pending question permits only its answers, an answer needs its
 * question. */
static enum kvr_rq_verdict check_event(const struct kvr_request *r, const struct kvr_rq_event *e)
{
	const uint32_t now = r->asks == KVR_RQO_NONE	 ? ~(DECIDED | ROOMS | E(ARRIVED))
			     : r->asks == KVR_RQO_DECIDE ? DECIDED
							 : ROOMS;

	if (e->kind >= KVR_RQ_EVENTS_N || (now >> e->kind & 1) == 0 || e->leg > PREFILL ||
	    (e->leg == PREFILL && (OF_LEG >> e->kind & 1) == 0) ||
	    (e->kind == KVR_RQE_LEASE_OVER && !r->book) ||
	    (e->kind == KVR_RQE_UNWANTED && e->leg == MAIN))
		return KVR_RQ_NEVER;
	return look_up_verdict(r->leg[e->leg].state, e->kind);
}

enum kvr_rq_verdict kvr_request_step(const struct kvr_rq_ctx *c, struct kvr_request *r,
				     const struct kvr_rq_event *e, struct kvr_rq_orders *out)
{
	const struct step step = {c, r, out, e};
	const enum kvr_rq_verdict v = check_event(r, e);

	out->n = 0;
	if (v != KVR_RQ_GO) {
		if (r->pool != NULL)
			count_event(r->pool, v == KVR_RQ_LATE ? KVR_RQC_LATE : KVR_RQC_IMPOSSIBLE);
		return v;
	}
	if ((e->flags & (KVR_RQEF_ANSWERED | KVR_RQEF_LAST)) != 0)
		r->reroutes = 0; /* items at the client cannot be withdrawn */
	if (r->asks == KVR_RQO_DECIDE)
		r->asks = KVR_RQO_NONE;
	if (!handle_leg_event(&step, e)) {
		count_event(r->pool, KVR_RQC_LATE);
		return KVR_RQ_LATE;
	}
	settle_request(&step);
	return KVR_RQ_GO;
}

enum kvr_rq_event_kind kvr_request_decided(const struct kvr_sched_decision *d, bool waited)
{
	switch (d->result) {
	case KVR_SCHED_ROUTED:
	case KVR_SCHED_QUERY:
		return waited ? KVR_RQE_ADMITTED : KVR_RQE_ROUTED;
	case KVR_SCHED_QUEUED:
		return KVR_RQE_QUEUED;
	default:
		return waited ? KVR_RQE_NOT_ADMITTED : KVR_RQE_REFUSED;
	}
}
