/* SPDX-License-Identifier: BSD-3-Clause */
/* Events of a request: one function each, behind the table. */
#include "request_pvt.h"

#include <string.h>

/* ---- arrival ----------------------------------------------------------------------------- */

static void refuse(const struct step *x, enum kvr_code code)
{
	struct kvr_rq_why why = kvr_rq__why(x->r, code, 0);

	/* What its worker has not said may be otherwise in a moment. */
	if (code == KVR_E_SESSION_OPEN_FAILED)
		why.retryable = true;
	kvr_rq__main_failed(x, &why, KVR_RQ_REFUSED);
}

/* Conditional disaggregation: is the decode pool alone better? */
static bool better_alone(const struct step *x)
{
	struct kvr_request *r = x->r;

	if (r->pool->conf->disagg_policy == KVR_DISAGG_ALWAYS ||
	    !kvr_disagg_active(r->pool->prefill->disagg))
		return false;
	kvr_rq__prefill_request(x);
	return x->c->ops->alone(x->c->arg, r, &r->msg->pair->preq, &r->msg->req);
}

/* Whether the request takes both pools. One that does is kept: it may have to be sent again. */
static void choose_way(const struct step *x)
{
	struct kvr_request *r = x->r;
	const struct kvr_rq_pool *prefill = r->pool->prefill;

	if (prefill == NULL)
		return;
	if ((!kvr_disagg_active(prefill->disagg) && !r->pool->conf->enforce_disagg) ||
	    better_alone(x)) {
		r->way = KVR_WAY_BYPASSED;
		count(r->pool, KVR_RQC_BYPASSED);
		order(x, KVR_RQO_PREFILL, PREFILL);
		return;
	}
	r->paired = true;
}

static void arrived(const struct step *x)
{
	struct kvr_request *r = x->r;
	enum kvr_code code;

	place(x, MAIN, KVR_RQS_UNDECIDED);
	if (r->pool->closed) {
		refuse(x, KVR_E_SHUTDOWN);
		return;
	}
	code = r->session != NULL ? kvr_rq__session_enter(x, MAIN) : KVR_OK;
	if (code != KVR_OK) {
		refuse(x, code);
		return;
	}
	if (!r->probe) /* it asks one worker how it is, not two */
		choose_way(x);
	if (r->paired && !kvr_disagg_active(r->pool->prefill->disagg)) {
		refuse(x, KVR_E_NOT_ACTIVATED);
		return;
	}
	if (r->paired && kvr_rq__rank_missing(x)) {
		refuse(x, KVR_E_DP_RANK_REQUIRED);
		return;
	}
	if (r->paired && !r->query)
		count(r->pool, KVR_RQC_PAIRED);
	/* An open waits for its worker's answer, a pair for its other leg. */
	if (!r->query && (r->paired || (r->session != NULL && r->session->reserved)))
		kvr_rq__ask(x, KVR_RQO_HOLD);
	else
		kvr_rq__start(x);
}

enum kvr_rq_verdict kvr_request_arrive(const struct kvr_rq_ctx *c, struct kvr_request *r,
				       struct kvr_rq_pool *pool, struct kvr_rq_msg *msg,
				       struct kvr_rq_session *session, struct kvr_rq_orders *out)
{
	const struct step x = {c, r, out, NULL};

	out->n = 0;
	if (!kvr_request_done(r)) {
		count(r->pool, KVR_RQC_IMPOSSIBLE);
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
	/* Its client has been told where, and is on the way there. */
	r->reroutes = r->book ? 0 : pool->reroutes;
	r->paired = r->held = r->sent = r->forgotten = r->stays = r->answers = false;
	r->leg[MAIN] = r->leg[PREFILL] = (struct kvr_leg){0};
	r->retried = msg->hints.n_failed_at != 0;
	r->attempt = 0;
	r->tries = 0;
	r->room = 0;
	r->msg = msg;
	r->end.code = KVR_OK; /* then nobody reads the rest */
	if (r->session != NULL) {
		session->reserved = session->closes = false;
		memset(session->part, PART_NONE, sizeof(session->part));
		memset(session->pin, PIN_NONE, sizeof(session->pin));
	}
	count(pool, r->probe ? KVR_RQC_PROBES : KVR_RQC_ARRIVED);
	kvr_rq__message(&x);
	arrived(&x);
	settle(&x);
	return KVR_RQ_GO;
}

/* ---- answers ----------------------------------------------------------------------------- */

static void room(const struct step *x)
{
	struct kvr_request *r = x->r;
	const bool hold = r->asks == KVR_RQO_HOLD;

	r->asks = KVR_RQO_NONE;
	r->held = r->held || hold;
	if (leg_in(r, MAIN, AT(QUEUED))) {
		kvr_rq__accept(x, KVR_RQ_WAITS);
	} else if (hold) {
		kvr_rq__start(x);
	} else {
		r->leg[MAIN].aborting = false; /* that is the old slot's now */
		kvr_rq__start_over(x);
	}
}

static void no_room(const struct step *x, enum kvr_code code)
{
	struct kvr_request *r = x->r;

	r->asks = KVR_RQO_NONE;
	if (leg_in(r, MAIN, AT(QUEUED)))
		order(x, KVR_RQO_LEAVE, MAIN);
	refuse(x, code);
}

static void queued(const struct step *x, uint32_t leg)
{
	place(x, leg, KVR_RQS_QUEUED);
	if (!x->r->held)
		kvr_rq__ask(x, KVR_RQO_HOLD);
	else
		kvr_rq__accept(x, KVR_RQ_WAITS);
}

/* Its pool refuses the leg, at once or after it has waited. */
static void refused(const struct step *x, uint32_t leg, const struct kvr_sched_decision *d,
		    enum kvr_rq_how how)
{
	struct kvr_request *r = x->r;
	const struct kvr_disagg *prefill = leg == PREFILL ? r->pool->prefill->disagg : NULL;
	struct kvr_rq_why why = kvr_rq__why_of(r, d);

	if (how == KVR_RQ_REFUSED && kvr_rq__session_unpin(x, leg, d->err)) {
		kvr_rq__decide(x, leg);
		return;
	}
	/* Nobody else, or nobody else with room: the one that was passed over. So it is when those
	 * for whom it has waited are gone. */
	if ((d->err == KVR_E_NO_ENDPOINTS || d->err == KVR_E_ALL_OVERLOADED) &&
	    kvr_rq__readmit(x, leg)) {
		kvr_rq__decide(x, leg);
		return;
	}
	if (leg == MAIN) {
		kvr_rq__main_failed(x, &why, how);
		return;
	}
	if (how == KVR_RQ_NOT_ADMITTED && d->err == KVR_E_NO_ENDPOINTS &&
	    !kvr_disagg_active(prefill)) {
		/* Not a failed try: the prefill side has gone meanwhile. */
		why = kvr_rq__why(r, KVR_E_NOT_ACTIVATED, 0);
		r->reroutes++;
	} else {
		/* A pool that says no is not asked again. Nobody left for another try: what
		 * counts is why the first one failed (8.5). */
		if (r->msg->pair->failed != KVR_OK && d->err == KVR_E_NO_ENDPOINTS)
			why = kvr_rq__why(r, (enum kvr_code)r->msg->pair->failed,
					  r->msg->pair->failed_detail);
		r->reroutes = 0;
	}
	kvr_rq__prefill_failed(x, &why, how, false);
}

/* ---- workers ----------------------------------------------------------------------------- */

/* An acknowledgement or a report: no progress. */
static void taken(const struct step *x, uint32_t leg)
{
	kvr_rq__keep(x, leg);
	if (leg_in(x->r, leg, AT(RUNNING)))
		return;
	place(x, leg, KVR_RQS_RUNNING);
	if (leg == MAIN && x->r->quiet)
		kvr_rq__accept(x, KVR_RQ_SERVED);
	if (x->r->session != NULL)
		kvr_rq__session_succeeded(x, leg);
}

static void fails(const struct step *x, uint32_t leg, const struct kvr_rq_why *why,
		  enum kvr_rq_how how)
{
	if (leg == MAIN)
		kvr_rq__main_failed(x, why, how);
	else
		kvr_rq__prefill_failed(x, why, how, how != KVR_RQ_LOST);
}

static void declined(const struct step *x, uint32_t leg, uint32_t code)
{
	const struct kvr_rq_why why = kvr_rq__why_at(
		x->r, leg, leg == MAIN ? KVR_E_DISPATCH_FAILED : KVR_E_PREFILL_FAILED, code);

	fails(x, leg, &why, KVR_RQ_DECLINED);
}

static void lost(const struct step *x, uint32_t leg)
{
	const struct kvr_rq_why why = kvr_rq__why(x->r, KVR_E_WORKER_LOST, x->r->leg[leg].worker);

	x->r->leg[leg].booked = false;
	fails(x, leg, &why, KVR_RQ_LOST);
}

/* Its computation ended, of which the scheduler learns how fast ranks are; so does the booking. */
static void prefilled(const struct step *x)
{
	if (x->r->leg[PREFILL].booked)
		order(x, KVR_RQO_PREFILL_DONE, PREFILL);
	kvr_rq__prefill_over(x, KVR_RQ_FINISHED);
}

static void item(const struct step *x, const struct kvr_rq_event *e)
{
	struct kvr_request *r = x->r;

	place(x, e->leg, KVR_RQS_RUNNING);
	if (r->session != NULL && (e->flags & NOT_WELL) == 0)
		kvr_rq__session_succeeded(x, e->leg);
	/* FIN ends the booking; PREFILL_DONE and OUTPUT below renew it. */
	if (e->kind == KVR_RQE_ITEM &&
	    (e->leg == PREFILL || r->probe || (e->tokens == 0 && (e->flags & KVR_RQEF_FIRST) == 0)))
		kvr_rq__keep(x, e->leg);
	if (e->leg == PREFILL)
		return;
	r->answers = true;
	if (e->tokens != 0 || (e->flags & KVR_RQEF_FIRST) != 0) {
		/* It may show what the prefill worker has done before that one's own word comes. */
		if (r->session != NULL && (e->flags & NOT_WELL) == 0)
			kvr_rq__session_succeeded(x, PREFILL);
		prefilled(x);
	}
	if (x->r->probe)
		return;
	if ((e->flags & KVR_RQEF_FIRST) != 0)
		order(x, KVR_RQO_PREFILL_DONE, MAIN);
	if (e->tokens != 0)
		order(x, KVR_RQO_OUTPUT, MAIN)->n = e->tokens;
}

static void fin(const struct step *x, const struct kvr_rq_event *e)
{
	struct kvr_request *r = x->r;
	struct kvr_rq_why why;
	const enum kvr_rq_how how = (e->flags & KVR_RQEF_REFUSED) != 0	   ? KVR_RQ_OVERLOADED
				    : (e->flags & NOT_WELL) != 0	   ? KVR_RQ_ERRORED
				    : (e->flags & KVR_RQEF_CANCELLED) != 0 ? KVR_RQ_CANCELLED
									   : KVR_RQ_FINISHED;

	item(x, e);
	if (e->leg == MAIN) {
		kvr_rq__main_over(x, how);
		return;
	}
	/* An end without a result is no end: nothing to decode. */
	if (how != KVR_RQ_FINISHED ||
	    (r->way == KVR_WAY_SYNC && (e->flags & KVR_RQEF_RESULT) == 0)) {
		why = kvr_rq__why_at(r, PREFILL, KVR_E_PREFILL_FAILED, e->code);
		kvr_rq__prefill_failed(x, &why, how == KVR_RQ_OVERLOADED ? how : KVR_RQ_ERRORED,
				       true);
		return;
	}
	prefilled(x);
	/* Also when the client is gone: its worker must release what was transferred. */
	if (leg_in(r, MAIN, AT(UNDECIDED)))
		kvr_rq__decide(x, MAIN);
}

static void not_opened(const struct step *x, uint32_t code, bool unanswered)
{
	const struct kvr_rq_why why = kvr_rq__why(x->r, KVR_E_SESSION_OPEN_FAILED, code);

	kvr_rq__session_not_opened(x, unanswered);
	kvr_rq__main_failed(x, &why, KVR_RQ_DECLINED);
}

/* ---- the step ---------------------------------------------------------------------------- */

/* What concerns the whole request, or its session. @return false: nothing is left to do. */
static bool happened_beside(const struct step *x, const struct kvr_rq_event *e)
{
	switch ((enum kvr_rq_event_kind)e->kind) {
	case KVR_RQE_OPENED:
		kvr_rq__session_opened(x);
		kvr_rq__main_go_on(x);
		return true;
	case KVR_RQE_NOT_OPENED:
		not_opened(x, e->code, false);
		return true;
	case KVR_RQE_UNANSWERED:
		not_opened(x, 0, true);
		return true;
	case KVR_RQE_ROOM:
		room(x);
		return true;
	case KVR_RQE_NO_ROOM:
		no_room(x, (enum kvr_code)e->code);
		return true;
	case KVR_RQE_CANCEL:
		kvr_rq__cancel(x);
		return true;
	case KVR_RQE_REPEATED:
		kvr_rq__repeated(x, e);
		return true;
	case KVR_RQE_PROBED:
		kvr_rq__repeated(x, &(const struct kvr_rq_event){.flags = KVR_RQEF_SAME});
		return true;
	case KVR_RQE_STOP:
		kvr_rq__stop(x, e->code != KVR_OK ? (enum kvr_code)e->code : KVR_E_SHUTDOWN);
		return true;
	case KVR_RQE_DEADLINE:
		return kvr_rq__late(x, false);
	case KVR_RQE_CLIENT_GONE:
		return kvr_rq__late(x, true);
	case KVR_RQE_LEASE_OVER:
		kvr_rq__lease_over(x);
		return true;
	default: /* ARRIVED: see verdict() */
		return false;
	}
}

/* What pools and workers say of a leg, and its last moments; the rest is rarer. @return false:
 * nothing is left to do. */
static bool happened(const struct step *x, const struct kvr_rq_event *e)
{
	const uint32_t leg = e->leg;

	switch ((enum kvr_rq_event_kind)e->kind) {
	case KVR_RQE_ADMITTED:
		place(x, leg, KVR_RQS_DECIDING);
		/* fall through */
	case KVR_RQE_ROUTED:
		if (leg == MAIN)
			kvr_rq__main_routed(x, e->d);
		else
			kvr_rq__prefill_routed(x, e->d);
		return true;
	case KVR_RQE_QUEUED:
		queued(x, leg);
		return true;
	case KVR_RQE_NOT_ADMITTED:
		place(x, leg, KVR_RQS_DECIDING);
		refused(x, leg, e->d, KVR_RQ_NOT_ADMITTED);
		return true;
	case KVR_RQE_REFUSED:
		refused(x, leg, e->d, KVR_RQ_REFUSED);
		return true;
	case KVR_RQE_LOST:
		lost(x, leg);
		return true;
	case KVR_RQE_EXPIRED:
		x->r->leg[leg].released = true;
		return true;
	case KVR_RQE_TAKEN:
		taken(x, leg);
		return true;
	case KVR_RQE_DECLINED:
		declined(x, leg, e->code);
		return true;
	case KVR_RQE_ITEM:
		item(x, e);
		return true;
	case KVR_RQE_FIN:
		fin(x, e);
		return true;
	case KVR_RQE_ABORTED:
		kvr_rq__aborted(x, leg);
		return true;
	case KVR_RQE_UNWANTED:
		return kvr_rq__unwanted(x);
	case KVR_RQE_UNACKED:
		return kvr_rq__reroute_unacked(x, leg, NULL);
	case KVR_RQE_FIN_ACKED:
	case KVR_RQE_LINGERED:
		kvr_rq__lingered(x, leg);
		return true;
	default:
		return happened_beside(x, e);
	}
}

#define E(name) (1u << KVR_RQE_##name)
#define DECIDED (E(ROUTED) | E(QUEUED) | E(REFUSED))
#define ROOMS	(E(ROOM) | E(NO_ROOM))

/* Events that name a leg; the others are about the request, whose place is its main leg's. */
#define OF_LEG                                                                                     \
	(DECIDED | E(LINGERED) | E(ADMITTED) | E(NOT_ADMITTED) | E(LOST) | E(EXPIRED) | E(TAKEN) | \
	 E(DECLINED) | E(ITEM) | E(FIN) | E(ABORTED) | E(UNACKED) | E(UNWANTED))

/* What may be, beyond the table: a question is answered first, an answer needs its question. */
static enum kvr_rq_verdict verdict(const struct kvr_request *r, const struct kvr_rq_event *e)
{
	const uint32_t now = r->asks == KVR_RQO_NONE	 ? ~(DECIDED | ROOMS | E(ARRIVED))
			     : r->asks == KVR_RQO_DECIDE ? DECIDED
							 : ROOMS;

	if (e->kind >= KVR_RQ_EVENTS_N || (now >> e->kind & 1) == 0 || e->leg > PREFILL ||
	    (e->leg == PREFILL && (OF_LEG >> e->kind & 1) == 0) ||
	    (e->kind == KVR_RQE_LEASE_OVER && !r->book) ||
	    (e->kind == KVR_RQE_UNWANTED && e->leg == MAIN))
		return KVR_RQ_NEVER;
	return may(r->leg[e->leg].state, e->kind);
}

enum kvr_rq_verdict kvr_request_step(const struct kvr_rq_ctx *c, struct kvr_request *r,
				     const struct kvr_rq_event *e, struct kvr_rq_orders *out)
{
	const struct step x = {c, r, out, e};
	const enum kvr_rq_verdict v = verdict(r, e);

	out->n = 0;
	if (v != KVR_RQ_GO) {
		if (r->pool != NULL)
			count(r->pool, v == KVR_RQ_LATE ? KVR_RQC_LATE : KVR_RQC_IMPOSSIBLE);
		return v;
	}
	if ((e->flags & (KVR_RQEF_ANSWERED | KVR_RQEF_LAST)) != 0)
		r->reroutes = 0; /* what has gone to the client cannot be taken back */
	if (r->asks == KVR_RQO_DECIDE)
		r->asks = KVR_RQO_NONE;
	if (!happened(&x, e)) {
		count(r->pool, KVR_RQC_LATE);
		return KVR_RQ_LATE;
	}
	settle(&x);
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
