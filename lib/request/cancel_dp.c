/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ends of a request from outside, and retransmissions.
 *
 * When a client leaves, a running main leg is aborted and a waiting prefill leg removed. While a
 * transfer is possible (prefill leg sent or done, decode leg not sent), the decode leg is still
 * decided, sent and then aborted, because only its worker can release the transferred blocks. The
 * exception is a prefill leg that does not end in time: it is aborted too. When the router stops,
 * every leg is aborted at once.
 */
#include "kvr_sim.h"
#include "request_pvt.h"

/* The client has its last answer: end the legs that need no further step. */
static void give_up(const struct step *step, enum kvr_rq_how how)
{
	struct kvr_request *r = step->r;

	r->notified = KVR_RQ_OVER;
	if (leg_in(r, MAIN, AT_WORK)) {
		kvr_rq__main_stop(step, how);
	} else if (leg_in(r, MAIN, AT(QUEUED))) {
		if (has_transfer(r))
			return;
		add_order(step, KVR_RQO_LEAVE, MAIN);
		kvr_rq__main_over(step, KVR_RQ_LEFT);
	} else if (leg_in(r, PREFILL, AT(QUEUED))) {
		add_order(step, KVR_RQO_LEAVE, PREFILL);
		kvr_rq__prefill_over(step, KVR_RQ_LEFT);
		kvr_rq__main_over(step, KVR_RQ_LEFT);
	}
}

void kvr_rq__cancel(const struct step *step)
{
	struct kvr_request *r = step->r;

	if (r->notified != KVR_RQ_OVER) {
		r->end = kvr_rq__why(r, KVR_E_ENDED, 0); /* cancelled by its client */
		if (at_worker(r, PREFILL))		 /* the client waited for this leg */
			add_order(step, KVR_RQO_OUTCOME, PREFILL)->n = KVR_SCHED_GIVEN_UP;
		give_up(step, KVR_RQ_CANCELLED);
	}
	add_order(step, KVR_RQO_CANCELLED, MAIN);
}

/* Abort the prefill leg, as no decode leg will fetch its blocks. */
static void stop_prefill(const struct step *step, const struct kvr_rq_why *why)
{
	struct kvr_leg *l = &step->r->leg[PREFILL];
	struct kvr_rq_order *o;

	if (leg_in(step->r, PREFILL, AT(QUEUED))) {
		add_order(step, KVR_RQO_LEAVE, PREFILL);
		kvr_rq__prefill_over(step, KVR_RQ_LEFT);
	} else if (at_worker(step->r, PREFILL)) {
		l->aborting = true;
		o = add_order(step, KVR_RQO_ABORT, PREFILL);
		o->how = KVR_RQ_CUT;
		o->why = *why;
		kvr_rq__prefill_over(step, KVR_RQ_CUT);
	}
}

void kvr_rq__stop(const struct step *step, enum kvr_code code)
{
	const struct kvr_rq_why why = kvr_rq__why(step->r, code, 0);

	kvr_rq__reject(step, &why);
	stop_prefill(step, &why);
	if (leg_in(step->r, MAIN, AT_WORK)) {
		kvr_rq__main_stop(step, KVR_RQ_CUT);
		return;
	}
	if (leg_in(step->r, MAIN, AT(QUEUED)))
		add_order(step, KVR_RQO_LEAVE, MAIN);
	kvr_rq__main_over(step, KVR_RQ_LEFT);
}

void kvr_rq__lease_over(const struct step *step)
{
	const struct kvr_rq_why why = kvr_rq__why(step->r, KVR_E_EXPIRED, KVR_RQ_SILENT);

	kvr_rq__reject(step, &why);
	kvr_rq__main_over(step, KVR_RQ_EXPIRED);
}

bool kvr_rq__unwanted(const struct step *step)
{
	const struct kvr_rq_why why = kvr_rq__why(step->r, KVR_E_EXPIRED, KVR_RQ_SILENT);
	struct kvr_rq_order *o;

	if (!kvr_request_unwanted(step->r))
		return false;
	KVR_SIM_SOMETIMES(UNWANTED);
	step->r->leg[PREFILL].aborting = true;
	o = add_order(step, KVR_RQO_ABORT, PREFILL);
	o->how = KVR_RQ_EXPIRED;
	o->why = why;
	step->r->reroutes = 0;
	kvr_rq__prefill_failed(step, &why, KVR_RQ_EXPIRED, false);
	return true;
}

bool kvr_rq__late(const struct step *step, bool client_gone)
{
	const struct kvr_request *r = step->r;
	const struct kvr_rq_why why =
		kvr_rq__why(r, KVR_E_EXPIRED, client_gone ? KVR_RQ_SILENT : KVR_RQ_DEADLINE);
	const bool waits = leg_in(r, MAIN, AT(QUEUED)) || leg_in(r, PREFILL, AT(QUEUED));

	if (r->notified == KVR_RQ_OVER || (!waits && !client_gone))
		return false;
	/* A worker that runs the request detects the loss of the client itself. After a release the
	 * worker may not run it any more. */
	if (leg_in(r, MAIN, AT(RUNNING)) && !r->leg[MAIN].released)
		return false;
	kvr_rq__reject(step, &why);
	give_up(step, KVR_RQ_EXPIRED);
	return true;
}

void kvr_rq__repeated(const struct step *step, const struct kvr_rq_event *e)
{
	struct kvr_request *r = step->r;

	KVR_SIM_SOMETIMES(ROUTE_AGAIN);
	if (r->book) /* the client runs the request */
		kvr_rq__keep(step, MAIN);
	if (r->end.code != KVR_OK) {
		add_order(step, KVR_RQO_REJECTED, MAIN)->why = r->end;
		return;
	}
	if ((e->flags & KVR_RQEF_SAME) == 0) {
		add_order(step, KVR_RQO_REJECTED, MAIN)->why =
			kvr_rq__why(r, KVR_E_DUPLICATE_REQUEST, 0);
		return;
	}
	if ((e->flags & KVR_RQEF_RESEND) != 0 && !r->paired && leg_in(r, MAIN, AT(SENT))) {
		if (e->msg != NULL && kvr_rq__reroute_unacked(step, MAIN, e->msg))
			return;
		r->attempt++;
		add_order(step, KVR_RQO_SEND, MAIN);
	}
	/* The client may still need the end of a stream that has ended. */
	add_order(step, KVR_RQO_ACCEPTED, MAIN);
}

void kvr_rq__lingered(const struct step *step, uint32_t leg)
{
	step->r->leg[leg].aborting = false;
	move_leg(step, leg, KVR_RQS_FREE);
	add_order(step, KVR_RQO_RELEASE, leg);
}

void kvr_rq__aborted(const struct step *step, uint32_t leg)
{
	step->r->leg[leg].aborting = false;
	if (leg == PREFILL)
		kvr_rq__lingered(step, leg);
}
