/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sessions of requests, at four points of each leg: enter, decided, succeeded, ended.
 *
 * Explicit sessions. An open is decided and booked, then held until its worker answers. Memory for
 * the binding and the id are reserved before the booking, so only one request opens an id at a
 * time, and every open that a worker accepts ends in the binding or in a CLOSE. A close unbinds at
 * the decision. Its worker gets the CLOSE when the request has ended, however it ended. A close of
 * an unbound id is counted; the request is served, and no CLOSE is sent. Affinity. An id without
 * action is bound where its first request succeeds. Requests inside renew the binding. A failure,
 * or a worker that cannot take the next request, ends it without a message. A binding names the
 * worker, its epoch, and the rank. A pin by the client has precedence and does not use the binding.
 */
#include "request_pvt.h"

#include <string.h>

/* ---- enter ------------------------------------------------------------------------------- */

static struct kvr_hints *hints_of(const struct step *step, uint32_t leg)
{
	return leg == PREFILL ? &step->r->msg->pair->phints : &step->r->msg->hints;
}

/* Hints that pin a leg in its pool. In a pair, backend_worker would name both workers. */
static uint64_t pin_hints(const struct kvr_rq_pool *pool)
{
	switch (pool->conf->role) {
	case KVR_ROLE_PREFILL:
		return KVR_HAS(KVR_HINT_PREFILL_WORKER) | KVR_HAS(KVR_HINT_PREFILL_DP_RANK);
	case KVR_ROLE_DECODE:
		return KVR_HAS(KVR_HINT_DECODE_WORKER) | KVR_HAS(KVR_HINT_DP_RANK);
	default:
		return KVR_HAS(KVR_HINT_BACKEND) | KVR_HAS(KVR_HINT_DP_RANK);
	}
}

static bool pinned_by_client(const struct kvr_rq_pool *pool, const struct kvr_hints *h)
{
	const uint64_t own = pool->conf->role == KVR_ROLE_PREFILL ? KVR_HAS(KVR_HINT_PREFILL_WORKER)
								  : KVR_HAS(KVR_HINT_DECODE_WORKER);

	return (h->present & (own | KVR_HAS(KVR_HINT_BACKEND))) != 0;
}

static void pin_leg(const struct step *step, uint32_t leg, const struct kvr_session_binding *to)
{
	const struct kvr_rq_pool *pool = kvr_request_pool(step->r, leg);
	struct kvr_rq_session *session = step->r->session;
	struct kvr_hints *h = hints_of(step, leg);

	session->pin[leg] = is_affinity(to) ? PIN_AFFINITY : PIN_OPENED;
	session->present_before[leg] = h->present;
	session->rank_before[leg] = h->dp_rank;
	h->present |= pin_hints(pool);
	if (pool->conf->role == KVR_ROLE_PREFILL) {
		h->prefill_worker = to->worker;
		h->prefill_dp_rank = to->dp_rank;
	} else {
		h->backend_worker = h->decode_worker = to->worker; /* pin_hints() selects one */
		h->dp_rank = to->dp_rank;
	}
}

static void unpin_leg(const struct step *step, uint32_t leg)
{
	struct kvr_rq_session *session = step->r->session;
	struct kvr_hints *h = hints_of(step, leg);
	const uint32_t i = leg == PREFILL ? PREFILL : MAIN; /* shows the compiler the range */

	session->pin[i] = PIN_NONE;
	h->present = session->present_before[i];
	h->dp_rank = session->rank_before[i];
}

static void report_invalidated(const struct step *step, const struct kvr_rq_pool *pool,
			       const struct kvr_session_key *key,
			       const struct kvr_session_binding *to)
{
	count_event(pool, KVR_RQC_SESSION_INVALIDATED);
	kvr_rq__about(step, KVR_RQO_SESSION, pool, key, to, KVR_RQ_INVALIDATED);
}

/* Return true if the request has failed at the rank of its binding. */
static bool has_failed_at(const struct kvr_hints *h, const struct kvr_session_binding *to)
{
	for (uint32_t i = 0; i < h->n_failed_at; i++)
		if (h->failed_at[i].worker == to->worker &&
		    (h->failed_at[i].dp_rank == to->dp_rank ||
		     h->failed_at[i].dp_rank == UINT32_MAX))
			return true;
	return false;
}

/* Enter a bound session with a request that its client has not pinned. */
static enum kvr_code enter_bound(const struct step *step, uint32_t leg,
				 const struct kvr_session_binding *to, struct kvr_session_ref ref)
{
	const struct kvr_rq_pool *pool = kvr_request_pool(step->r, leg);
	struct kvr_rq_worker w;

	if (step->c->ops->worker(step->c->arg, pool, to->worker, &w) &&
	    w.epoch == (uint32_t)to->tag) {
		/* Direct mode requires a pin by the client; only an opened session counts as one.
		 */
		if (!is_affinity(to) || (!kvr_pool_mode(pool->conf->mode)->needs_pin &&
					 !has_failed_at(&step->r->msg->hints, to)))
			pin_leg(step, leg, to);
		return KVR_OK;
	}
	if (!is_affinity(to))
		return KVR_E_SESSION_WORKER_GONE;
	kvr_session_unbind_ref(pool->sessions, ref);
	report_invalidated(step, pool, &step->r->session->key[leg], to);
	return KVR_OK;
}

/* Return true if another request is opening the id. */
static bool being_opened(struct kvr_rq_pool *pool, const struct kvr_session_key *key)
{
	const struct kvr_rq_session *session;

	LIST_FOREACH (session, &pool->opening[key->hash & (KVR_RQ_BUCKETS - 1)], opening) {
		const struct kvr_session_key *k = &session->key[MAIN];

		pool->looked++;
		if (k->hash == key->hash && k->len == key->len &&
		    memcmp(k->id, key->id, key->len) == 0)
			return true;
	}
	return false;
}

static enum kvr_code reserve_open(const struct step *step)
{
	struct kvr_rq_session *session = step->r->session;
	struct kvr_rq_pool *pool = step->r->pool;
	enum kvr_code code = KVR_OK;

	if (session->reserved)
		return KVR_OK;
	if (being_opened(pool, &session->key[MAIN])) {
		count_event(pool, KVR_RQC_SESSION_BUSY);
		return KVR_E_SESSION_OPEN_FAILED;
	}
	if (step->c->ops->session_may != NULL)
		code = step->c->ops->session_may(step->c->arg, step->r, pool);
	if (code == KVR_OK && !kvr_session_reserve(pool->sessions))
		code = KVR_E_SESSION_LIMIT;
	if (code != KVR_OK) {
		count_event(pool, KVR_RQC_SESSION_REFUSED);
		return code;
	}
	session->reserved = true;
	LIST_INSERT_HEAD(&pool->opening[session->key[MAIN].hash & (KVR_RQ_BUCKETS - 1)], session,
			 opening);
	return KVR_OK;
}

static void cancel_reservation(const struct step *step)
{
	struct kvr_rq_session *session = step->r->session;

	if (!session->reserved)
		return;
	session->reserved = false;
	LIST_REMOVE(session, opening);
	kvr_session_unreserve(step->r->pool->sessions);
}

/* The pool of the main leg has no sessions: drop the session unless the prefill pool has some. */
static enum kvr_code enter_off(const struct step *step)
{
	const struct kvr_rq_pool *pool = step->r->pool;
	const uint8_t action = step->r->session->action;

	if (action == KVR_RQ_OPEN)
		return KVR_E_SESSION_LIMIT;
	if (pool->prefill == NULL || pool->prefill->sessions == NULL) {
		if (action == KVR_RQ_CLOSE && !step->r->query)
			count_event(pool, KVR_RQC_SESSION_CLOSE_UNBOUND);
		step->r->session = NULL;
	}
	return KVR_OK;
}

enum kvr_code kvr_rq__session_enter(const struct step *step, uint32_t leg)
{
	struct kvr_rq_session *session = step->r->session;
	struct kvr_rq_pool *pool;
	struct kvr_session_binding to;
	struct kvr_session_ref ref;
	enum kvr_code code = KVR_OK;

	if (session == NULL)
		return KVR_OK;
	pool = kvr_request_pool(step->r, leg);
	if (pool->sessions == NULL)
		return leg == MAIN ? enter_off(step) : KVR_OK;
	kvr_session_key(pool->sessions, session->id, session->id_len, &session->key[leg]);
	if (!pinned_by_client(pool, hints_of(step, leg)) &&
	    kvr_rq__find(step, pool, &session->key[leg], &to, &ref))
		code = enter_bound(step, leg, &to, ref);
	if (code != KVR_OK || leg != MAIN || session->action != KVR_RQ_OPEN || step->r->query)
		return code;
	return reserve_open(step);
}

bool kvr_rq__session_unpin(const struct step *step, uint32_t leg, enum kvr_code err)
{
	struct kvr_rq_session *session = step->r->session;
	const struct kvr_rq_pool *pool;
	struct kvr_session_binding to;

	if (session == NULL || session->pin[leg] != PIN_AFFINITY ||
	    (err != KVR_E_NO_ENDPOINTS && err != KVR_E_PINNED_NOT_ALLOWED))
		return false;
	pool = kvr_request_pool(step->r, leg);
	unpin_leg(step, leg);
	if (leg == MAIN && has_legs(step->r))
		kvr_rq__decode_hints(step);
	if (!step->r->query && kvr_session_unbind(pool->sessions, &session->key[leg], &to))
		report_invalidated(step, pool, &session->key[leg], &to);
	return true;
}

void kvr_rq__session_anew(const struct step *step)
{
	struct kvr_rq_session *session = step->r->session;

	if (session == NULL)
		return;
	session->pin[PREFILL] = PIN_NONE; /* its hints are built again */
	/* The previous attempt may have bound the session. */
	if (session->action == KVR_RQ_USE && session->pin[MAIN] == PIN_NONE)
		kvr_rq__session_enter(step, MAIN);
}

bool kvr_rq__pinned(const struct kvr_request *r, uint32_t leg)
{
	const struct kvr_rq_session *session = r->session;

	if (session != NULL && session->pin[leg] != PIN_NONE)
		return session->pin[leg] == PIN_OPENED;
	return pinned_by_client(kvr_request_pool(r, leg),
				leg == PREFILL ? &r->msg->pair->phints : &r->msg->hints);
}

void kvr_rq__session_move(const struct step *step)
{
	if (step->r->session != NULL && step->r->session->pin[MAIN] == PIN_AFFINITY)
		unpin_leg(step, MAIN);
}

/* ---- decided ----------------------------------------------------------------------------- */

/* Unbind now; CLOSE follows at the end of the request, which still uses the session. */
static void close_later(const struct step *step)
{
	struct kvr_rq_session *session = step->r->session;
	const struct kvr_rq_pool *pool = step->r->pool;

	session->action = KVR_RQ_CLOSED;
	if (!kvr_session_unbind(pool->sessions, &session->key[MAIN], &session->closing)) {
		count_event(pool, KVR_RQC_SESSION_CLOSE_UNBOUND);
		return;
	}
	count_event(pool, KVR_RQC_SESSION_UNBOUND);
	kvr_rq__about(step, KVR_RQO_SESSION, pool, &session->key[MAIN], &session->closing,
		      KVR_RQ_UNBOUND);
	session->closes = !is_affinity(&session->closing);
}

/* Enter the affinity if the leg goes to its rank; if there is none, bind it after success. */
static void use_affinity(const struct step *step, uint32_t leg)
{
	struct kvr_rq_session *session = step->r->session;
	const struct kvr_rq_pool *pool = kvr_request_pool(step->r, leg);
	const struct kvr_leg *l = &step->r->leg[leg];
	struct kvr_session_binding to;

	if (!kvr_rq__find(step, pool, &session->key[leg], &to, &session->ref[leg])) {
		session->part[leg] = PART_BINDS;
	} else if (is_affinity(&to) && to.worker == l->worker && to.dp_rank == l->dp_rank) {
		session->part[leg] = PART_INSIDE;
		kvr_session_enter(pool->sessions, session->ref[leg]);
	}
}

bool kvr_rq__session_decided(const struct step *step, uint32_t leg)
{
	struct kvr_rq_session *session = step->r->session;
	const struct kvr_rq_pool *pool;

	if (session == NULL)
		return false;
	pool = kvr_request_pool(step->r, leg);
	if (pool->sessions == NULL) {
		if (leg == MAIN && session->action == KVR_RQ_CLOSE)
			count_event(pool, KVR_RQC_SESSION_CLOSE_UNBOUND);
		return false;
	}
	if (leg == MAIN && session->action == KVR_RQ_OPEN) {
		count_event(pool, KVR_RQC_SESSION_OPENS);
		session->part[MAIN] = PART_OPENS;
		step->r->sent = true;
		add_order(step, KVR_RQO_OPEN, MAIN);
		return true;
	}
	if (leg == MAIN && session->action == KVR_RQ_CLOSE)
		close_later(step);
	else if (pool->affinity_ns != 0 && session->action != KVR_RQ_CLOSED)
		use_affinity(step, leg);
	return false;
}

static struct kvr_session_binding make_binding(const struct step *step, uint32_t leg, uint64_t kind)
{
	const struct kvr_leg *l = &step->r->leg[leg];
	const uint64_t caller = step->r->session->tag >> TAG_CALLER_SHIFT << TAG_CALLER_SHIFT;

	return (struct kvr_session_binding){l->worker, l->dp_rank, caller | kind | l->epoch};
}

/* @return 0 or -ENOSPC. */
static int bind_session(const struct step *step, uint32_t leg, uint64_t kind, uint64_t ttl_ns)
{
	struct kvr_rq_session *session = step->r->session;
	const struct kvr_rq_pool *pool = kvr_request_pool(step->r, leg);
	const struct kvr_session_binding to = make_binding(step, leg, kind);
	const uint32_t before = kvr_session_count(pool->sessions);
	const int rc = kvr_session_bind(pool->sessions, &session->key[leg], &to, ttl_ns,
					step->c->now, &session->ref[leg]);
	struct kvr_rq_order *o;

	if (rc < 0)
		return rc;
	count_event(pool, KVR_RQC_SESSION_BOUND);
	o = kvr_rq__about(step, KVR_RQO_SESSION, pool, &session->key[leg], &to, KVR_RQ_BOUND);
	o->session.ref = session->ref[leg];
	o->n = kvr_session_count(pool->sessions) == before;
	return 0;
}

/* ---- succeeded --------------------------------------------------------------------------- */

void kvr_rq__session_succeeded(const struct step *step, uint32_t leg)
{
	struct kvr_rq_session *session = step->r->session;
	const struct kvr_rq_pool *pool;

	if (session == NULL || session->part[leg] != PART_BINDS)
		return;
	pool = kvr_request_pool(step->r, leg);
	session->part[leg] = PART_NONE;
	use_affinity(step, leg); /* another request may have bound the session meanwhile */
	if (session->part[leg] != PART_BINDS)
		return;
	session->part[leg] = PART_NONE;
	if ((step->c->ops->session_may != NULL &&
	     step->c->ops->session_may(step->c->arg, step->r, pool) != KVR_OK) ||
	    bind_session(step, leg, TAG_AFFINITY, pool->affinity_ns) < 0) {
		count_event(pool, KVR_RQC_SESSION_REFUSED);
		return;
	}
	session->part[leg] = PART_INSIDE;
	kvr_session_enter(pool->sessions, session->ref[leg]);
}

/* Return true if the id, now opened at the worker of the main leg, was open at another worker,
 * which needs a CLOSE. */
static bool opened_elsewhere(const struct step *step, struct kvr_session_binding *old)
{
	const struct kvr_rq_pool *pool = step->r->pool;
	const struct kvr_leg *l = &step->r->leg[MAIN];

	switch (kvr_session_resolve(pool->sessions, &step->r->session->key[MAIN], step->c->now, old,
				    NULL)) {
	case KVR_SESSION_NONE:
		return false;
	case KVR_SESSION_EXPIRED:
		count_event(pool, KVR_RQC_SESSION_EXPIRED);
		kvr_rq__about(step, KVR_RQO_SESSION, pool, &step->r->session->key[MAIN], old,
			      KVR_RQ_SESSION_OVER);
		break;
	case KVR_SESSION_BOUND:
		break;
	}
	return !is_affinity(old) && (old->worker != l->worker || (uint32_t)old->tag != l->epoch);
}

void kvr_rq__session_opened(const struct step *step)
{
	struct kvr_rq_session *session = step->r->session;
	struct kvr_session_binding old, to = make_binding(step, MAIN, 0);
	const bool elsewhere = opened_elsewhere(step, &old);
	int rc;

	add_order(step, KVR_RQO_UNOPEN, MAIN)->how = KVR_RQ_BOUND;
	session->part[MAIN] = PART_NONE;
	cancel_reservation(step); /* bind_session() takes this memory */
	rc = bind_session(step, MAIN, 0, session->timeout_ns);
	assert(rc == 0);
	(void)rc;
	if (elsewhere)
		kvr_rq__tell_close(step, step->r->pool, &session->key[MAIN], &old, KVR_RQ_MOVED);
	/* A new attempt is an ordinary request of the session. */
	session->action = KVR_RQ_USE;
	if (!pinned_by_client(step->r->pool, &step->r->msg->hints))
		pin_leg(step, MAIN, &to);
}

/* ---- ended ------------------------------------------------------------------------------- */

/* Send CLOSE to a worker unless the session was opened there again. */
static void close_unless_bound(const struct step *step, const struct kvr_session_binding *at,
			       enum kvr_rq_session_how how)
{
	const struct kvr_rq_pool *pool = step->r->pool;
	const struct kvr_session_key *key = &step->r->session->key[MAIN];
	struct kvr_session_binding to;

	if (!kvr_rq__find(step, pool, key, &to, NULL) || is_affinity(&to) ||
	    to.worker != at->worker)
		kvr_rq__tell_close(step, pool, key, at, how);
}

void kvr_rq__session_not_opened(const struct step *step, bool unanswered)
{
	struct kvr_rq_session *session = step->r->session;
	const struct kvr_session_binding at = make_binding(step, MAIN, 0);

	count_event(step->r->pool, KVR_RQC_SESSION_OPEN_FAILED);
	add_order(step, KVR_RQO_UNOPEN, MAIN)->how = KVR_RQ_OPEN_FAILED;
	session->part[MAIN] = PART_NONE;
	kvr_rq__about(step, KVR_RQO_SESSION, step->r->pool, &session->key[MAIN], &at,
		      KVR_RQ_OPEN_FAILED);
	if (unanswered)
		close_unless_bound(step, &at, KVR_RQ_MAYBE_OPEN);
}

void kvr_rq__session_ended(const struct step *step, uint32_t leg, enum kvr_rq_how how)
{
	struct kvr_rq_session *session = step->r->session;
	const struct kvr_rq_pool *pool;
	struct kvr_session_binding at;
	enum part part;

	if (session == NULL || session->part[leg] == PART_NONE)
		return;
	pool = kvr_request_pool(step->r, leg);
	at = make_binding(step, leg, session->part[leg] == PART_INSIDE ? TAG_AFFINITY : 0);
	part = (enum part)session->part[leg];
	session->part[leg] = PART_NONE;
	if (part == PART_OPENS) { /* ended before the answer: the session may be open */
		add_order(step, KVR_RQO_UNOPEN, MAIN)->how = KVR_RQ_MAYBE_OPEN;
		count_event(pool, KVR_RQC_SESSION_OPEN_ENDED);
		close_unless_bound(step, &at, KVR_RQ_MAYBE_OPEN);
	} else if (part == PART_INSIDE) {
		/* The end of a leg due to the other leg does not count against its worker. */
		if (how == KVR_RQ_FINISHED || how == KVR_RQ_CANCELLED || how == KVR_RQ_STOPPED ||
		    how == KVR_RQ_CUT || how == KVR_RQ_OVERLOADED)
			kvr_session_leave(pool->sessions, session->ref[leg], step->c->now);
		else if (kvr_session_unbind_ref(pool->sessions, session->ref[leg]))
			report_invalidated(step, pool, &session->key[leg], &at);
	}
}

void kvr_rq__session_over(const struct step *step)
{
	struct kvr_rq_session *session = step->r->session;

	if (session == NULL)
		return;
	cancel_reservation(step);
	if (!session->closes)
		return;
	session->closes = false;
	close_unless_bound(step, &session->closing, KVR_RQ_CLOSED_BY_CLIENT);
}
