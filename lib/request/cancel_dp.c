/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ends a request from outside, and what is said again.
 *
 * A client that goes stops a main leg that runs and a prefill leg that waits. With a transfer under
 * way (prefill leg sent or done, decode leg not sent yet) the decode leg is still decided, sent
 * and then stopped, because only its worker can release what was transferred. That is so while a
 * prefill leg may be expected to end; one that does not is stopped as well. When the router ends
 * there is no time for that: every leg is stopped where it is.
 */
#include "kvr_sim.h"
#include "request_pvt.h"

/* The client has been told its last: what is not under way stops. */
static void give_up(const struct step *x, enum kvr_rq_how how)
{
	struct kvr_request *r = x->r;

	r->notified = KVR_RQ_OVER;
	if (leg_in(r, MAIN, AT_WORK)) {
		kvr_rq__main_stop(x, how);
	} else if (leg_in(r, MAIN, AT(QUEUED))) {
		if (transfers(r))
			return;
		order(x, KVR_RQO_LEAVE, MAIN);
		kvr_rq__main_over(x, KVR_RQ_LEFT);
	} else if (leg_in(r, PREFILL, AT(QUEUED))) {
		order(x, KVR_RQO_LEAVE, PREFILL);
		kvr_rq__prefill_over(x, KVR_RQ_LEFT);
		kvr_rq__main_over(x, KVR_RQ_LEFT);
	}
}

void kvr_rq__cancel(const struct step *x)
{
	struct kvr_request *r = x->r;

	if (r->notified != KVR_RQ_OVER) {
		r->end = kvr_rq__why(r, KVR_E_ENDED, 0); /* by its client's wish */
		if (at_worker(r, PREFILL)) /* it was that leg that kept its client waiting */
			order(x, KVR_RQO_OUTCOME, PREFILL)->n = KVR_SCHED_GIVEN_UP;
		give_up(x, KVR_RQ_CANCELLED);
	}
	order(x, KVR_RQO_CANCELLED, MAIN);
}

/* Nobody will send the decode leg that could release what a prefill leg has got ready. */
static void stop_prefill(const struct step *x, const struct kvr_rq_why *why)
{
	struct kvr_leg *l = &x->r->leg[PREFILL];
	struct kvr_rq_order *o;

	if (leg_in(x->r, PREFILL, AT(QUEUED))) {
		order(x, KVR_RQO_LEAVE, PREFILL);
		kvr_rq__prefill_over(x, KVR_RQ_LEFT);
	} else if (at_worker(x->r, PREFILL)) {
		l->aborting = true;
		o = order(x, KVR_RQO_ABORT, PREFILL);
		o->how = KVR_RQ_CUT;
		o->why = *why;
		kvr_rq__prefill_over(x, KVR_RQ_CUT);
	}
}

void kvr_rq__stop(const struct step *x, enum kvr_code code)
{
	const struct kvr_rq_why why = kvr_rq__why(x->r, code, 0);

	kvr_rq__reject(x, &why);
	stop_prefill(x, &why);
	if (leg_in(x->r, MAIN, AT_WORK)) {
		kvr_rq__main_stop(x, KVR_RQ_CUT);
		return;
	}
	if (leg_in(x->r, MAIN, AT(QUEUED)))
		order(x, KVR_RQO_LEAVE, MAIN);
	kvr_rq__main_over(x, KVR_RQ_LEFT);
}

void kvr_rq__lease_over(const struct step *x)
{
	const struct kvr_rq_why why = kvr_rq__why(x->r, KVR_E_EXPIRED, KVR_RQ_SILENT);

	kvr_rq__reject(x, &why);
	kvr_rq__main_over(x, KVR_RQ_EXPIRED);
}

bool kvr_rq__unwanted(const struct step *x)
{
	const struct kvr_rq_why why = kvr_rq__why(x->r, KVR_E_EXPIRED, KVR_RQ_SILENT);
	struct kvr_rq_order *o;

	if (!kvr_request_unwanted(x->r))
		return false;
	KVR_SIM_SOMETIMES(UNWANTED);
	x->r->leg[PREFILL].aborting = true;
	o = order(x, KVR_RQO_ABORT, PREFILL);
	o->how = KVR_RQ_EXPIRED;
	o->why = why;
	x->r->reroutes = 0;
	kvr_rq__prefill_failed(x, &why, KVR_RQ_EXPIRED, false);
	return true;
}

bool kvr_rq__late(const struct step *x, bool client_gone)
{
	const struct kvr_request *r = x->r;
	const struct kvr_rq_why why =
		kvr_rq__why(r, KVR_E_EXPIRED, client_gone ? KVR_RQ_SILENT : KVR_RQ_DEADLINE);
	const bool waits = leg_in(r, MAIN, AT(QUEUED)) || leg_in(r, PREFILL, AT(QUEUED));

	if (r->notified == KVR_RQ_OVER || (!waits && !client_gone))
		return false;
	/* A worker that runs the request finds out that the client has gone. A worker that has been
	 * silent for long may not run it any more. */
	if (leg_in(r, MAIN, AT(RUNNING)) && !r->leg[MAIN].released)
		return false;
	kvr_rq__reject(x, &why);
	give_up(x, KVR_RQ_EXPIRED);
	return true;
}

void kvr_rq__repeated(const struct step *x, const struct kvr_rq_event *e)
{
	struct kvr_request *r = x->r;

	KVR_SIM_SOMETIMES(ROUTE_AGAIN);
	if (r->book) /* the client runs the request */
		kvr_rq__keep(x, MAIN);
	if (r->end.code != KVR_OK) {
		order(x, KVR_RQO_REJECTED, MAIN)->why = r->end;
		return;
	}
	if ((e->flags & KVR_RQEF_SAME) == 0) {
		order(x, KVR_RQO_REJECTED, MAIN)->why = kvr_rq__why(r, KVR_E_DUPLICATE_REQUEST, 0);
		return;
	}
	if ((e->flags & KVR_RQEF_RESEND) != 0 && !r->paired && leg_in(r, MAIN, AT(SENT))) {
		if (e->msg != NULL && kvr_rq__reroute_unacked(x, MAIN, e->msg))
			return;
		r->attempt++;
		order(x, KVR_RQO_SEND, MAIN);
	}
	/* One whose stream has ended is still served to a client that has not got the end. */
	order(x, KVR_RQO_ACCEPTED, MAIN);
}

void kvr_rq__lingered(const struct step *x, uint32_t leg)
{
	x->r->leg[leg].aborting = false;
	place(x, leg, KVR_RQS_FREE);
	order(x, KVR_RQO_RELEASE, leg);
}

void kvr_rq__aborted(const struct step *x, uint32_t leg)
{
	x->r->leg[leg].aborting = false;
	if (leg == PREFILL)
		kvr_rq__lingered(x, leg);
}
