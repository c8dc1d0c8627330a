/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The legs of a request: decision, failure, end, and effect on the other leg.
 *
 *   bootstrap  the decode leg is decided when the prefill leg is sent
 *   sync       the decode leg is decided when the prefill leg is done; its result is sent along
 *   bypassed   the decode pool does both
 *
 * A prefill leg that fails before the main leg has produced anything ends the main leg too. The
 * request then starts over while attempts are left, else it is rejected. A main leg that fails does
 * not end the prefill leg, which runs to its end so that its worker frees the blocks. A leg that
 * its worker does not acknowledge is rerouted together with the other leg while attempts are left,
 * else it stays.
 */
#include "kvr_sim.h"
#include "request_pvt.h"

/* ---- ends -------------------------------------------------------------------------------- */

/* Outcome of a leg for the failure ratio of its rank. A cancellation counts only if the request
 * waited for this rank alone. Not for book-only requests: only the client knows their progress. */
static enum kvr_sched_outcome find_outcome(const struct step *step, uint32_t leg,
					   enum kvr_rq_how how)
{
	const struct kvr_request *r = step->r;
	const bool own = step->e != NULL && step->e->leg == leg;

	switch (how) {
	case KVR_RQ_FINISHED:
		return KVR_SCHED_SERVED;
	case KVR_RQ_ERRORED:
		return own && (step->e->flags & KVR_RQEF_FAILED) != 0 && !r->retried &&
				       r->tries == 0
			       ? KVR_SCHED_FAILED
			       : KVR_SCHED_NEUTRAL;
	case KVR_RQ_OVERLOADED:
		return KVR_SCHED_OVERLOADED;
	case KVR_RQ_DECLINED:
		return own && step->e->code == NO_ROOM_NOW ? KVR_SCHED_OVERLOADED
							   : KVR_SCHED_NEUTRAL;
	case KVR_RQ_CANCELLED:
		return !r->book && leg_in(r, PREFILL, AT_OVER) ? KVR_SCHED_GIVEN_UP
							       : KVR_SCHED_NEUTRAL;
	default:
		return KVR_SCHED_NEUTRAL;
	}
}

/* End the booking, if any, and the part of the leg in a session. */
static void end_booking(const struct step *step, uint32_t leg, enum kvr_rq_how how)
{
	struct kvr_leg *l = &step->r->leg[leg];

	if (l->booked) {
		struct kvr_rq_order *o = add_order(step, KVR_RQO_FREE, leg);

		o->how = (uint8_t)how;
		o->n = find_outcome(step, leg, how);
	}
	l->booked = false;
	if (step->r->session != NULL)
		kvr_rq__session_ended(step, leg, how);
}

static void end_leg(const struct step *step, uint32_t leg, enum kvr_rq_how how)
{
	move_leg(step, leg, KVR_RQS_ENDED);
	add_order(step, KVR_RQO_END, leg)->how = (uint8_t)how;
}

static void release_leg(const struct step *step, uint32_t leg, enum kvr_rq_how how)
{
	move_leg(step, leg, KVR_RQS_FREE);
	add_order(step, KVR_RQO_RELEASE, leg)->how = (uint8_t)how;
}

void kvr_rq__prefill_over(const struct step *step, enum kvr_rq_how how)
{
	if (leg_in(step->r, PREFILL, AT_OVER))
		return;
	end_booking(step, PREFILL, how);
	/* Retransmissions of its last item are acknowledged without a slot; an ABORT needs the
	 * slot. */
	if (step->r->leg[PREFILL].aborting)
		end_leg(step, PREFILL, how);
	else
		release_leg(step, PREFILL, how);
}

void kvr_rq__main_over(const struct step *step, enum kvr_rq_how how)
{
	struct kvr_request *r = step->r;

	end_booking(step, MAIN, how);
	if (r->session != NULL)
		kvr_rq__session_over(step);
	r->notified = KVR_RQ_OVER;
	if (r->book) /* the report of the client covers both legs */
		kvr_rq__prefill_over(step, how);
	if (r->forgotten)
		release_leg(step, MAIN, how);
	else
		end_leg(step, MAIN, how);
}

static void abort_main(const struct step *step, const struct kvr_rq_why *why, enum kvr_rq_how how)
{
	struct kvr_rq_order *o = add_order(step, KVR_RQO_ABORT, MAIN);

	o->how = (uint8_t)how;
	o->why = *why;
}

void kvr_rq__main_stop(const struct step *step, enum kvr_rq_how how)
{
	struct kvr_request *r = step->r;
	struct kvr_rq_why why = r->end;

	/* Only the decode worker can release the blocks in transfer. */
	if (leg_in(r, MAIN, AT(HELD)) && has_transfer(r))
		kvr_rq__send(step, MAIN);
	r->leg[MAIN].aborting = at_worker(r, MAIN);
	kvr_rq__main_over(step, how);
	if (how == KVR_RQ_CANCELLED && why.code == KVR_E_ENDED)
		why.code = KVR_OK;
	if (r->leg[MAIN].aborting)
		abort_main(step, &why, how);
}

void kvr_rq__main_failed(const struct step *step, const struct kvr_rq_why *why, enum kvr_rq_how how)
{
	struct kvr_request *r = step->r;

	/* Do not linger: in overload, rejected requests must not use up the slots. */
	r->forgotten = r->notified == KVR_RQ_NOTHING && !r->sent;
	kvr_rq__reject(step, why);
	kvr_rq__main_over(step, how);
}

/* ---- new attempts ------------------------------------------------------------------------ */

static void pair_failed(struct kvr_request *r, const struct kvr_rq_why *why, bool worker)
{
	struct kvr_rq_pair *pair = r->msg->pair;

	pair->failed = why->code;
	pair->failed_detail = why->detail[0];
	if (!worker)
		return;
	pair->exclude = true;
	pair->exclude_worker = r->leg[PREFILL].worker;
	pair->soft = false;
}

/* Start a new attempt with all legs, or reject the request. */
static void restart_legs(const struct step *step, const struct kvr_rq_why *why, bool worker)
{
	struct kvr_request *r = step->r;
	const bool live = leg_in(r, MAIN, AT_WORK);
	const bool stop = at_worker(r, MAIN);

	/* A main leg with output does not depend on the prefill leg any more. */
	if (leg_in(r, MAIN, AT_OVER))
		return;
	if (leg_in(r, MAIN, AT(QUEUED)))
		add_order(step, KVR_RQO_LEAVE, MAIN);
	end_booking(step, MAIN, KVR_RQ_STOPPED);
	if (r->notified == KVR_RQ_OVER || r->reroutes == 0) {
		r->leg[MAIN].aborting = stop;
		if (stop)
			abort_main(step, why, KVR_RQ_STOPPED);
		kvr_rq__main_failed(step, why, live ? KVR_RQ_STOPPED : KVR_RQ_REFUSED);
		return;
	}
	r->reroutes--;
	r->tries++;
	KVR_SIM_SOMETIMES(START_OVER);
	count_event(r->pool, KVR_RQC_RETRIES);
	r->attempt = 0;
	r->answers = false;
	if (r->paired) {
		pair_failed(r, why, worker);
		r->way = KVR_WAY_AGGREGATED;
	}
	move_leg(step, MAIN, KVR_RQS_UNDECIDED);
	if (!live) {
		kvr_rq__start_over(step);
		return;
	}
	/* Items from the old worker must not reach the client: use a new handle. */
	if (stop)
		abort_main(step, why, KVR_RQ_STOPPED);
	r->leg[MAIN].aborting = stop;
	r->notified = KVR_RQ_NOTHING;
	kvr_rq__ask(step, KVR_RQO_RENEW);
}

void kvr_rq__start_over(const struct step *step)
{
	kvr_rq__session_anew(step);
	kvr_rq__start(step);
}

void kvr_rq__prefill_failed(const struct step *step, const struct kvr_rq_why *why,
			    enum kvr_rq_how how, bool worker)
{
	kvr_rq__prefill_over(step, how);
	restart_legs(step, why, worker);
}

/* ---- unresponsive workers ---------------------------------------------------------------- */

/* Return true if the prefill worker that holds the blocks of a result was lost. */
static bool result_lost(const struct kvr_rq_ctx *c, const struct kvr_request *r)
{
	const struct kvr_leg *l = &r->leg[PREFILL];
	struct kvr_rq_worker w;

	return r->way == KVR_WAY_SYNC &&
	       (!c->ops->worker(c->arg, r->pool->prefill, l->worker, &w) || w.epoch != l->epoch);
}

/* Latest time for an acknowledgement of a leg. UINT64_MAX: no limit. */
static uint64_t answer_due(const struct kvr_request *r, uint32_t leg)
{
	const uint64_t limit = r->pool->dispatch_ns;

	return limit != 0 ? r->sent_ns[leg] + limit : UINT64_MAX;
}

/* Return true if the decode worker waits for lost blocks: an engine that has fetched its blocks
 * sends an item. */
static bool lacks_blocks(const struct kvr_rq_ctx *c, const struct kvr_request *r)
{
	return r->paired && !r->book && !r->answers && leg_in(r, MAIN, AT(RUNNING)) &&
	       result_lost(c, r);
}

uint64_t kvr_request_reroute_due(const struct kvr_rq_ctx *c, const struct kvr_request *r,
				 uint32_t leg)
{
	if (leg == MAIN && lacks_blocks(c, r))
		return answer_due(r, MAIN);
	/* Items that a worker sends to the client directly cannot be withdrawn, and are not visible
	 * here. */
	if (!leg_in(r, leg, AT(SENT)) || r->reroutes == 0 || r->notified == KVR_RQ_OVER ||
	    r->book || r->probe || (r->direct && at_worker(r, MAIN)))
		return UINT64_MAX;
	if (leg == MAIN && r->paired && result_lost(c, r))
		return c->now;
	if (r->msg != NULL ? kvr_rq__pinned(r, leg) : leg == MAIN && r->stays)
		return UINT64_MAX;
	return answer_due(r, leg);
}

/* Send ABORT of the prefill leg once, without retransmission: its slot is needed. */
static void leave_prefill(const struct step *step, const struct kvr_rq_why *why,
			  enum kvr_rq_how how)
{
	struct kvr_rq_order *o;

	if (!at_worker(step->r, PREFILL))
		return;
	o = add_order(step, KVR_RQO_ABORT, PREFILL);
	o->how = (uint8_t)how;
	o->why = *why;
	kvr_rq__prefill_over(step, how);
}

/* Exclude the worker of @p leg from the new attempt. */
static void avoid_worker(const struct step *step, uint32_t leg)
{
	struct kvr_rq_msg *m = step->r->msg;

	if (leg == MAIN) {
		m->hints.present |= KVR_HAS_EXCLUDE;
		m->hints.exclude_worker = step->r->leg[MAIN].worker;
	} else {
		m->pair->exclude = m->pair->soft = true;
		m->pair->exclude_worker = step->r->leg[PREFILL].worker;
	}
}

bool kvr_rq__readmit(const struct step *step, uint32_t leg)
{
	struct kvr_rq_msg *m = step->r->msg;

	if (leg == PREFILL) {
		if (!m->pair->exclude || !m->pair->soft)
			return false;
		m->pair->exclude = false;
		m->pair->phints.present &= ~KVR_HAS_EXCLUDE;
		return true;
	}
	if ((m->hints.present & KVR_HAS_EXCLUDE) == 0)
		return false;
	m->hints.present &= ~KVR_HAS_EXCLUDE;
	if (has_legs(step->r))
		kvr_rq__decode_hints(step);
	return true;
}

bool kvr_rq__reroute_unacked(const struct step *step, uint32_t leg, struct kvr_rq_msg *copy)
{
	struct kvr_request *r = step->r;
	/* The decode worker is not at fault if its blocks were lost. */
	const bool blocks_lost = leg == MAIN && r->paired && result_lost(step->c, r);
	const struct kvr_rq_why why =
		kvr_rq__why(r, KVR_E_WORKER_LOST, r->leg[blocks_lost ? PREFILL : leg].worker);

	if (!kvr_request_unacked(step->c, r, leg))
		return false;
	if (leg_in(r, leg, AT(RUNNING))) {
		KVR_SIM_SOMETIMES(WAITS_IN_VAIN);
		if (r->msg == NULL)
			r->reroutes = 0;
		restart_legs(step, &why, false);
		return true;
	}
	if (copy == NULL && r->msg == NULL)
		return false;
	if (copy != NULL) {
		r->msg = copy;
		kvr_rq__message(step);
	}
	if (copy != NULL && kvr_rq__pinned(r, leg)) {
		r->msg = NULL;
		return false;
	}
	leave_prefill(step, &why, leg == PREFILL ? KVR_RQ_UNACKED : KVR_RQ_STOPPED);
	if (!blocks_lost) {
		count_event(r->pool, KVR_RQC_UNACKNOWLEDGED);
		if (leg == MAIN) {
			end_booking(step, MAIN, KVR_RQ_UNACKED);
			kvr_rq__session_move(step); /* removes its pin from the hints */
		}
		avoid_worker(step, leg);
	}
	restart_legs(step, &why, false);
	return true;
}

/* ---- decisions --------------------------------------------------------------------------- */

/* Send a leg to its worker; with book, report the booking to the client. */
static void dispatch_leg(const struct step *step, uint32_t leg)
{
	if (leg == MAIN && step->r->msg != NULL)
		step->r->stays = kvr_rq__pinned(step->r, MAIN);
	kvr_rq__send(step, leg);
	if (step->r->book && step->r->session != NULL)
		kvr_rq__session_succeeded(step, leg);
}

static void bypass_prefill(const struct step *step)
{
	step->r->way = KVR_WAY_BYPASSED;
	count_event(step->r->pool, KVR_RQC_BYPASSED);
	add_order(step, KVR_RQO_PREFILL, PREFILL);
	kvr_rq__decide(step, MAIN);
}

void kvr_rq__start(const struct step *step)
{
	struct kvr_request *r = step->r;
	const struct kvr_rq_pool *p = r->pool->prefill;
	struct kvr_rq_why why;

	if (!r->paired) {
		kvr_rq__decide(step, MAIN);
	} else if (kvr_disagg_active(p->disagg)) {
		kvr_rq__prefill_request(step);
		kvr_rq__session_enter(step, PREFILL); /* affinity only, which never rejects */
		kvr_rq__decide(step, PREFILL);
	} else if (!r->pool->conf->enforce_disagg) {
		bypass_prefill(step);
	} else {
		why = kvr_rq__why(r, KVR_E_NOT_ACTIVATED, 0);
		/* No worker for a new attempt: report the failure of the first one (8.5). */
		if (r->msg->pair->failed != KVR_OK)
			why = kvr_rq__why(r, (enum kvr_code)r->msg->pair->failed,
					  r->msg->pair->failed_detail);
		r->reroutes = 0;
		restart_legs(step, &why, false);
	}
}

void kvr_rq__prefill_routed(const struct step *step, const struct kvr_sched_decision *d)
{
	struct kvr_request *r = step->r;
	struct kvr_rq_worker w;
	struct kvr_rq_why why;

	if (!kvr_rq__booked(step, PREFILL, d, &w)) {
		why = kvr_rq__why(r, KVR_E_WORKER_LOST, d->worker);
		kvr_rq__prefill_failed(step, &why, KVR_RQ_LOST, false);
		return;
	}
	r->way = w.bootstrap ? KVR_WAY_BOOTSTRAP : KVR_WAY_SYNC;
	if (w.bootstrap)
		r->room = kvr_disagg_room(step->c->rand, d->dp_rank % w.dp_size, w.dp_size);
	add_order(step, KVR_RQO_PREFILL, PREFILL);
	if (w.transfer == 2 && w.taint[0] == '\0') {
		/* The permitted decode workers are unknown: fail closed. */
		r->reroutes = 0;
		why = kvr_rq__why(r, KVR_E_NO_ENDPOINTS, 0);
		kvr_rq__prefill_failed(step, &why, KVR_RQ_REFUSED, false);
		return;
	}
	kvr_rq__decode_request(step, &w);
	if (r->query) {
		release_leg(step, PREFILL, KVR_RQ_FINISHED);
		kvr_rq__decide(step, MAIN);
		return;
	}
	if (r->pool->prefill->predict)
		add_order(step, KVR_RQO_PREDICT, PREFILL);
	kvr_rq__session_decided(step, PREFILL);
	dispatch_leg(step, PREFILL);
	if (r->way == KVR_WAY_BOOTSTRAP || r->book)
		kvr_rq__decide(step, MAIN);
	else
		kvr_rq__accept(step, KVR_RQ_WAITS);
}

void kvr_rq__main_routed(const struct step *step, const struct kvr_sched_decision *d)
{
	struct kvr_request *r = step->r;
	struct kvr_rq_worker w;
	struct kvr_rq_why why;

	if (!kvr_rq__booked(step, MAIN, d, &w)) {
		why = kvr_rq__why(r, KVR_E_WORKER_LOST, d->worker);
		kvr_rq__main_failed(step, &why, KVR_RQ_LOST);
	} else if (r->query) {
		kvr_rq__accept(step, KVR_RQ_SERVED);
		r->forgotten = true;
		kvr_rq__main_over(step, KVR_RQ_FINISHED);
	} else if (result_lost(step->c, r)) {
		why = kvr_rq__why(r, KVR_E_WORKER_LOST, r->leg[PREFILL].worker);
		restart_legs(step, &why, false);
	} else if (r->notified == KVR_RQ_OVER) {
		/* The client has left: send and abort, so that the worker releases the blocks. */
		kvr_rq__send(step, MAIN);
		kvr_rq__main_stop(step, KVR_RQ_CANCELLED);
	} else if (r->session != NULL && kvr_rq__session_decided(step, MAIN)) {
		move_leg(step, MAIN, KVR_RQS_HELD);
		add_order(step, KVR_RQO_ACCEPTED, MAIN);
		r->notified = KVR_RQ_WAITS;
	} else {
		kvr_rq__main_go_on(step);
	}
}

void kvr_rq__main_go_on(const struct step *step)
{
	if (step->r->pool->predict && !step->r->probe)
		add_order(step, KVR_RQO_PREDICT, MAIN);
	dispatch_leg(step, MAIN);
	/* A quiet client infers acceptance from the first item. Report it explicitly to a client
	 * that had an earlier report, and for pairs and new attempts. */
	if (!step->r->quiet || step->r->paired || step->r->tries > 0 ||
	    step->r->notified != KVR_RQ_NOTHING)
		kvr_rq__accept(step, KVR_RQ_SERVED);
}

/* ---- freeing ----------------------------------------------------------------------------- */

/* Return true if a leg may still have to be decided or sent. */
static bool needs_message(const struct kvr_request *r)
{
	if (leg_in(r, MAIN, AT(UNDECIDED) | AT(DECIDING) | AT(QUEUED) | AT(HELD)))
		return true;
	/* The executor retransmits the legs of a pair until they are acknowledged; the client
	 * retransmits the message of a single leg. Blocks may be lost with the prefill worker. */
	return r->paired && !r->book &&
	       (leg_in(r, MAIN, AT(SENT)) || leg_in(r, PREFILL, AT(SENT)) ||
		(leg_in(r, PREFILL, AT(RUNNING)) && !leg_in(r, MAIN, AT_OVER)) ||
		(leg_in(r, MAIN, AT(RUNNING)) && r->way == KVR_WAY_SYNC && !r->answers &&
		 !r->direct && r->reroutes != 0 && r->pool->dispatch_ns != 0));
}

void kvr_rq__settle(const struct step *step)
{
	struct kvr_request *r = step->r;

	if (r->msg != NULL && !needs_message(r)) {
		add_order(step, KVR_RQO_MESSAGE_OVER, MAIN);
		r->msg = NULL;
		r->held = false;
	}
	if (!kvr_request_done(r))
		return;
	if (!r->probe)
		count_event(r->pool, r->forgotten ? KVR_RQC_FORGOTTEN : KVR_RQC_DONE);
	add_order(step, KVR_RQO_DONE, MAIN);
}
