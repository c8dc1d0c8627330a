/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The legs of a request: how each gets its worker, fails, ends, and takes the other one with it.
 *
 *   bootstrap  the decode leg is decided when the prefill leg is sent
 *   sync       the decode leg is decided when the prefill leg is done; its result goes along
 *   bypassed   the decode pool does both
 *
 * A prefill leg that fails before the main leg has produced anything takes the main leg with it;
 * the request starts over while it may, else it is refused. A main leg that fails leaves the
 * prefill leg alone, which runs to its end so that its worker frees the blocks. A leg that its
 * worker does not acknowledge goes to another one, while it may, and the other leg with it; when
 * it may not, it waits on.
 */
#include "kvr_sim.h"
#include "request_pvt.h"

/* ---- ends -------------------------------------------------------------------------------- */

/* What the end of a leg says about its rank. A client that stops waiting says something when
 * nothing but that rank kept it waiting; of a booked request it alone knows what it has got. */
static enum kvr_sched_outcome outcome(const struct step *x, uint32_t leg, enum kvr_rq_how how)
{
	const struct kvr_request *r = x->r;
	const bool own = x->e != NULL && x->e->leg == leg;

	switch (how) {
	case KVR_RQ_FINISHED:
		return KVR_SCHED_SERVED;
	case KVR_RQ_ERRORED:
		return own && (x->e->flags & KVR_RQEF_FAILED) != 0 && !r->retried && r->tries == 0
			       ? KVR_SCHED_FAILED
			       : KVR_SCHED_NEUTRAL;
	case KVR_RQ_OVERLOADED:
		return KVR_SCHED_OVERLOADED;
	case KVR_RQ_DECLINED:
		return own && x->e->code == NO_ROOM_NOW ? KVR_SCHED_OVERLOADED : KVR_SCHED_NEUTRAL;
	case KVR_RQ_CANCELLED:
		return !r->book && leg_in(r, PREFILL, AT_OVER) ? KVR_SCHED_GIVEN_UP
							       : KVR_SCHED_NEUTRAL;
	default:
		return KVR_SCHED_NEUTRAL;
	}
}

/* The booking, if there is one, and its part in a session. */
static void unbook(const struct step *x, uint32_t leg, enum kvr_rq_how how)
{
	struct kvr_leg *l = &x->r->leg[leg];

	if (l->booked) {
		struct kvr_rq_order *o = order(x, KVR_RQO_FREE, leg);

		o->how = (uint8_t)how;
		o->n = outcome(x, leg, how);
	}
	l->booked = false;
	if (x->r->session != NULL)
		kvr_rq__session_ended(x, leg, how);
}

static void ended(const struct step *x, uint32_t leg, enum kvr_rq_how how)
{
	place(x, leg, KVR_RQS_ENDED);
	order(x, KVR_RQO_END, leg)->how = (uint8_t)how;
}

static void released(const struct step *x, uint32_t leg, enum kvr_rq_how how)
{
	place(x, leg, KVR_RQS_FREE);
	order(x, KVR_RQO_RELEASE, leg)->how = (uint8_t)how;
}

void kvr_rq__prefill_over(const struct step *x, enum kvr_rq_how how)
{
	if (leg_in(x->r, PREFILL, AT_OVER))
		return;
	unbook(x, PREFILL, how);
	/* Repeats of its last item are acknowledged without a slot; an ABORT needs it. */
	if (x->r->leg[PREFILL].aborting)
		ended(x, PREFILL, how);
	else
		released(x, PREFILL, how);
}

void kvr_rq__main_over(const struct step *x, enum kvr_rq_how how)
{
	struct kvr_request *r = x->r;

	unbook(x, MAIN, how);
	if (r->session != NULL)
		kvr_rq__session_over(x);
	r->notified = KVR_RQ_OVER;
	if (r->book) /* its client has spoken for both */
		kvr_rq__prefill_over(x, how);
	if (r->forgotten)
		released(x, MAIN, how);
	else
		ended(x, MAIN, how);
}

static void abort_main(const struct step *x, const struct kvr_rq_why *why, enum kvr_rq_how how)
{
	struct kvr_rq_order *o = order(x, KVR_RQO_ABORT, MAIN);

	o->how = (uint8_t)how;
	o->why = *why;
}

void kvr_rq__main_stop(const struct step *x, enum kvr_rq_how how)
{
	struct kvr_request *r = x->r;
	struct kvr_rq_why why = r->end;

	/* What is on its way to its worker only that worker can release. */
	if (leg_in(r, MAIN, AT(HELD)) && transfers(r))
		kvr_rq__send(x, MAIN);
	r->leg[MAIN].aborting = at_worker(r, MAIN);
	kvr_rq__main_over(x, how);
	if (how == KVR_RQ_CANCELLED && why.code == KVR_E_ENDED)
		why.code = KVR_OK;
	if (r->leg[MAIN].aborting)
		abort_main(x, &why, how);
}

void kvr_rq__main_failed(const struct step *x, const struct kvr_rq_why *why, enum kvr_rq_how how)
{
	struct kvr_request *r = x->r;

	/* As if it had never come: in overload, refusals must not use up the slots. */
	r->forgotten = r->notified == KVR_RQ_NOTHING && !r->sent;
	kvr_rq__reject(x, why);
	kvr_rq__main_over(x, how);
}

/* ---- another try ------------------------------------------------------------------------- */

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

/* Nothing is left for it to go on with: all legs anew, or never. */
static void again(const struct step *x, const struct kvr_rq_why *why, bool worker)
{
	struct kvr_request *r = x->r;
	const bool live = leg_in(r, MAIN, AT_WORK);
	const bool stop = at_worker(r, MAIN);

	/* What has produced anything has no prefill leg any more that could fail. */
	if (leg_in(r, MAIN, AT_OVER))
		return;
	if (leg_in(r, MAIN, AT(QUEUED)))
		order(x, KVR_RQO_LEAVE, MAIN);
	unbook(x, MAIN, KVR_RQ_STOPPED);
	if (r->notified == KVR_RQ_OVER || r->reroutes == 0) {
		r->leg[MAIN].aborting = stop;
		if (stop)
			abort_main(x, why, KVR_RQ_STOPPED);
		kvr_rq__main_failed(x, why, live ? KVR_RQ_STOPPED : KVR_RQ_REFUSED);
		return;
	}
	r->reroutes--;
	r->tries++;
	KVR_SIM_SOMETIMES(START_OVER);
	count(r->pool, KVR_RQC_RETRIES);
	r->attempt = 0;
	r->answers = false;
	if (r->paired) {
		pair_failed(r, why, worker);
		r->way = KVR_WAY_AGGREGATED;
	}
	place(x, MAIN, KVR_RQS_UNDECIDED);
	if (!live) {
		kvr_rq__start_over(x);
		return;
	}
	/* What its worker says until it stops is not for the client: another handle. */
	if (stop)
		abort_main(x, why, KVR_RQ_STOPPED);
	r->leg[MAIN].aborting = stop;
	r->notified = KVR_RQ_NOTHING;
	kvr_rq__ask(x, KVR_RQO_RENEW);
}

void kvr_rq__start_over(const struct step *x)
{
	kvr_rq__session_anew(x);
	kvr_rq__start(x);
}

void kvr_rq__prefill_failed(const struct step *x, const struct kvr_rq_why *why, enum kvr_rq_how how,
			    bool worker)
{
	kvr_rq__prefill_over(x, how);
	again(x, why, worker);
}

/* ---- a worker that does not answer ------------------------------------------------------- */

/* A result is of no use when the worker that holds the blocks has gone. */
static bool result_lost(const struct kvr_rq_ctx *c, const struct kvr_request *r)
{
	const struct kvr_leg *l = &r->leg[PREFILL];
	struct kvr_rq_worker w;

	return r->way == KVR_WAY_SYNC &&
	       (!c->ops->worker(c->arg, r->pool->prefill, l->worker, &w) || w.epoch != l->epoch);
}

/* When a worker should have shown that it works on a leg. UINT64_MAX: there is no limit. */
static uint64_t answer_due(const struct kvr_request *r, uint32_t leg)
{
	const uint64_t limit = r->pool->dispatch_ns;

	return limit != 0 ? r->sent_ns[leg] + limit : UINT64_MAX;
}

/* An engine that has fetched the blocks shows it by an item. Without one it waits for blocks that
 * were lost. */
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
	/* Items that a worker sends to the client directly cannot be taken back, and are not seen
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

/* The worker of a prefill leg is told once, if it is there: its slot is needed. */
static void leave_prefill(const struct step *x, const struct kvr_rq_why *why, enum kvr_rq_how how)
{
	struct kvr_rq_order *o;

	if (!at_worker(x->r, PREFILL))
		return;
	o = order(x, KVR_RQO_ABORT, PREFILL);
	o->how = (uint8_t)how;
	o->why = *why;
	kvr_rq__prefill_over(x, how);
}

/* Another try, but not there. */
static void shun(const struct step *x, uint32_t leg)
{
	struct kvr_rq_msg *m = x->r->msg;

	if (leg == MAIN) {
		m->hints.present |= KVR_HAS_EXCLUDE;
		m->hints.exclude_worker = x->r->leg[MAIN].worker;
	} else {
		m->pair->exclude = m->pair->soft = true;
		m->pair->exclude_worker = x->r->leg[PREFILL].worker;
	}
}

bool kvr_rq__readmit(const struct step *x, uint32_t leg)
{
	struct kvr_rq_msg *m = x->r->msg;

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
	if (has_legs(x->r))
		kvr_rq__decode_hints(x);
	return true;
}

bool kvr_rq__reroute_unacked(const struct step *x, uint32_t leg, struct kvr_rq_msg *copy)
{
	struct kvr_request *r = x->r;
	/* Its worker has nothing to fetch any more, and may be well. */
	const bool in_vain = leg == MAIN && r->paired && result_lost(x->c, r);
	const struct kvr_rq_why why =
		kvr_rq__why(r, KVR_E_WORKER_LOST, r->leg[in_vain ? PREFILL : leg].worker);

	if (!kvr_request_unacked(x->c, r, leg))
		return false;
	if (leg_in(r, leg, AT(RUNNING))) {
		KVR_SIM_SOMETIMES(WAITS_IN_VAIN);
		if (r->msg == NULL)
			r->reroutes = 0;
		again(x, &why, false);
		return true;
	}
	if (copy == NULL && r->msg == NULL)
		return false;
	if (copy != NULL) {
		r->msg = copy;
		kvr_rq__message(x);
	}
	if (copy != NULL && kvr_rq__pinned(r, leg)) {
		r->msg = NULL;
		return false;
	}
	leave_prefill(x, &why, leg == PREFILL ? KVR_RQ_UNACKED : KVR_RQ_STOPPED);
	if (!in_vain) {
		count(r->pool, KVR_RQC_UNACKNOWLEDGED);
		if (leg == MAIN) {
			unbook(x, MAIN, KVR_RQ_UNACKED);
			kvr_rq__session_move(x); /* its pin is taken from the hints */
		}
		shun(x, leg);
	}
	again(x, &why, false);
	return true;
}

/* ---- decisions --------------------------------------------------------------------------- */

/* To its worker, or to the client who runs it. */
static void go(const struct step *x, uint32_t leg)
{
	if (leg == MAIN && x->r->msg != NULL)
		x->r->stays = kvr_rq__pinned(x->r, MAIN);
	kvr_rq__send(x, leg);
	if (x->r->book && x->r->session != NULL)
		kvr_rq__session_succeeded(x, leg);
}

static void bypass(const struct step *x)
{
	x->r->way = KVR_WAY_BYPASSED;
	count(x->r->pool, KVR_RQC_BYPASSED);
	order(x, KVR_RQO_PREFILL, PREFILL);
	kvr_rq__decide(x, MAIN);
}

void kvr_rq__start(const struct step *x)
{
	struct kvr_request *r = x->r;
	const struct kvr_rq_pool *p = r->pool->prefill;
	struct kvr_rq_why why;

	if (!r->paired) {
		kvr_rq__decide(x, MAIN);
	} else if (kvr_disagg_active(p->disagg)) {
		kvr_rq__prefill_request(x);
		kvr_rq__session_enter(x, PREFILL); /* affinity alone, which refuses nobody */
		kvr_rq__decide(x, PREFILL);
	} else if (!r->pool->conf->enforce_disagg) {
		bypass(x);
	} else {
		why = kvr_rq__why(r, KVR_E_NOT_ACTIVATED, 0);
		/* Nobody is left for another try: what counts is why the first one failed (8.5). */
		if (r->msg->pair->failed != KVR_OK)
			why = kvr_rq__why(r, (enum kvr_code)r->msg->pair->failed,
					  r->msg->pair->failed_detail);
		r->reroutes = 0;
		again(x, &why, false);
	}
}

void kvr_rq__prefill_routed(const struct step *x, const struct kvr_sched_decision *d)
{
	struct kvr_request *r = x->r;
	struct kvr_rq_worker w;
	struct kvr_rq_why why;

	if (!kvr_rq__booked(x, PREFILL, d, &w)) {
		why = kvr_rq__why(r, KVR_E_WORKER_LOST, d->worker);
		kvr_rq__prefill_failed(x, &why, KVR_RQ_LOST, false);
		return;
	}
	r->way = w.bootstrap ? KVR_WAY_BOOTSTRAP : KVR_WAY_SYNC;
	if (w.bootstrap)
		r->room = kvr_disagg_room(x->c->rand, d->dp_rank % w.dp_size, w.dp_size);
	order(x, KVR_RQO_PREFILL, PREFILL);
	if (w.transfer == 2 && w.taint[0] == '\0') {
		/* Nobody can say where its blocks may go: fail closed. */
		r->reroutes = 0;
		why = kvr_rq__why(r, KVR_E_NO_ENDPOINTS, 0);
		kvr_rq__prefill_failed(x, &why, KVR_RQ_REFUSED, false);
		return;
	}
	kvr_rq__decode_request(x, &w);
	if (r->query) {
		released(x, PREFILL, KVR_RQ_FINISHED);
		kvr_rq__decide(x, MAIN);
		return;
	}
	if (r->pool->prefill->predict)
		order(x, KVR_RQO_PREDICT, PREFILL);
	kvr_rq__session_decided(x, PREFILL);
	go(x, PREFILL);
	if (r->way == KVR_WAY_BOOTSTRAP || r->book)
		kvr_rq__decide(x, MAIN);
	else
		kvr_rq__accept(x, KVR_RQ_WAITS);
}

void kvr_rq__main_routed(const struct step *x, const struct kvr_sched_decision *d)
{
	struct kvr_request *r = x->r;
	struct kvr_rq_worker w;
	struct kvr_rq_why why;

	if (!kvr_rq__booked(x, MAIN, d, &w)) {
		why = kvr_rq__why(r, KVR_E_WORKER_LOST, d->worker);
		kvr_rq__main_failed(x, &why, KVR_RQ_LOST);
	} else if (r->query) {
		kvr_rq__accept(x, KVR_RQ_SERVED);
		r->forgotten = true;
		kvr_rq__main_over(x, KVR_RQ_FINISHED);
	} else if (result_lost(x->c, r)) {
		why = kvr_rq__why(r, KVR_E_WORKER_LOST, r->leg[PREFILL].worker);
		again(x, &why, false);
	} else if (r->notified == KVR_RQ_OVER) {
		/* Its client is gone: it only goes to its worker to be stopped there. */
		kvr_rq__send(x, MAIN);
		kvr_rq__main_stop(x, KVR_RQ_CANCELLED);
	} else if (r->session != NULL && kvr_rq__session_decided(x, MAIN)) {
		place(x, MAIN, KVR_RQS_HELD);
		order(x, KVR_RQO_ACCEPTED, MAIN);
		r->notified = KVR_RQ_WAITS;
	} else {
		kvr_rq__main_go_on(x);
	}
}

void kvr_rq__main_go_on(const struct step *x)
{
	if (x->r->pool->predict && !x->r->probe)
		order(x, KVR_RQO_PREDICT, MAIN);
	go(x, MAIN);
	/* Its worker's first word may be an item. Who was told something hears how it goes on, and
	 * of two legs, or of another worker, everybody does. */
	if (!x->r->quiet || x->r->paired || x->r->tries > 0 || x->r->notified != KVR_RQ_NOTHING)
		kvr_rq__accept(x, KVR_RQ_SERVED);
}

/* ---- what is not needed any more --------------------------------------------------------- */

/* Whether a leg may still have to be decided or sent. */
static bool needs_message(const struct kvr_request *r)
{
	if (leg_in(r, MAIN, AT(UNDECIDED) | AT(DECIDING) | AT(QUEUED) | AT(HELD)))
		return true;
	/* Legs are sent again by the executor until their workers have them; of one leg the client
	 * sends the message again. What was to be fetched may go with its worker. */
	return r->paired && !r->book &&
	       (leg_in(r, MAIN, AT(SENT)) || leg_in(r, PREFILL, AT(SENT)) ||
		(leg_in(r, PREFILL, AT(RUNNING)) && !leg_in(r, MAIN, AT_OVER)) ||
		(leg_in(r, MAIN, AT(RUNNING)) && r->way == KVR_WAY_SYNC && !r->answers &&
		 !r->direct && r->reroutes != 0 && r->pool->dispatch_ns != 0));
}

void kvr_rq__settle(const struct step *x)
{
	struct kvr_request *r = x->r;

	if (r->msg != NULL && !needs_message(r)) {
		order(x, KVR_RQO_MESSAGE_OVER, MAIN);
		r->msg = NULL;
		r->held = false;
	}
	if (!kvr_request_done(r))
		return;
	if (!r->probe)
		count(r->pool, r->forgotten ? KVR_RQC_FORGOTTEN : KVR_RQC_DONE);
	order(x, KVR_RQO_DONE, MAIN);
}
