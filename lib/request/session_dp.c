/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sessions in the life of a request, at four points of each leg: enter, decided, succeeded, ended.
 *
 * Explicit: an open is decided and booked, then held until its worker answers. Room for the
 * binding is kept before anything is booked, and with it the id: one request opens it at a time.
 * So every open that a worker has taken ends in the binding or in a CLOSE. A close unbinds with
 * the decision; its worker is told when the request has ended, whatever ended it. Nothing bound:
 * the request is served, the close is counted, and nobody is told.
 * Affinity: an id without action is bound where its first request has succeeded. Requests inside
 * keep it; a failure, or a worker that cannot take the next request, ends it. Nobody is told.
 * A binding of either kind names worker, its life, and rank; a pin of the client's own wins over
 * it, and does not use it.
 */
#include "request_pvt.h"

#include <string.h>

/* ---- enter ------------------------------------------------------------------------------- */

static struct kvr_hints *hints_of(const struct step *x, uint32_t leg)
{
	return leg == PREFILL ? &x->r->msg->pair->phints : &x->r->msg->hints;
}

/* Hints that pin a leg in the way of its pool. In a pair backend_worker would name both workers. */
static uint64_t pin_hints(const struct kvr_rq_pool *p)
{
	switch (p->conf->role) {
	case KVR_ROLE_PREFILL:
		return KVR_HAS(KVR_HINT_PREFILL_WORKER) | KVR_HAS(KVR_HINT_PREFILL_DP_RANK);
	case KVR_ROLE_DECODE:
		return KVR_HAS(KVR_HINT_DECODE_WORKER) | KVR_HAS(KVR_HINT_DP_RANK);
	default:
		return KVR_HAS(KVR_HINT_BACKEND) | KVR_HAS(KVR_HINT_DP_RANK);
	}
}

static bool pinned_by_client(const struct kvr_rq_pool *p, const struct kvr_hints *h)
{
	const uint64_t own = p->conf->role == KVR_ROLE_PREFILL ? KVR_HAS(KVR_HINT_PREFILL_WORKER)
							       : KVR_HAS(KVR_HINT_DECODE_WORKER);

	return (h->present & (own | KVR_HAS(KVR_HINT_BACKEND))) != 0;
}

static void pin(const struct step *x, uint32_t leg, const struct kvr_session_binding *to)
{
	const struct kvr_rq_pool *p = kvr_request_pool(x->r, leg);
	struct kvr_rq_session *s = x->r->session;
	struct kvr_hints *h = hints_of(x, leg);

	s->pin[leg] = is_affinity(to) ? PIN_AFFINITY : PIN_OPENED;
	s->present_before[leg] = h->present;
	s->rank_before[leg] = h->dp_rank;
	h->present |= pin_hints(p);
	if (p->conf->role == KVR_ROLE_PREFILL) {
		h->prefill_worker = to->worker;
		h->prefill_dp_rank = to->dp_rank;
	} else {
		h->backend_worker = h->decode_worker =
			to->worker; /* pin_hints() says which counts */
		h->dp_rank = to->dp_rank;
	}
}

static void unpin(const struct step *x, uint32_t leg)
{
	struct kvr_rq_session *s = x->r->session;
	struct kvr_hints *h = hints_of(x, leg);
	const uint32_t i = leg == PREFILL ? PREFILL : MAIN; /* of two, as the compiler must know */

	s->pin[i] = PIN_NONE;
	h->present = s->present_before[i];
	h->dp_rank = s->rank_before[i];
}

static void invalidated(const struct step *x, const struct kvr_rq_pool *p,
			const struct kvr_session_key *key, const struct kvr_session_binding *to)
{
	count(p, KVR_RQC_SESSION_INVALIDATED);
	kvr_rq__about(x, KVR_RQO_SESSION, p, key, to, KVR_RQ_INVALIDATED);
}

/* Whether the request has failed where its session is bound. */
static bool has_failed_at(const struct kvr_hints *h, const struct kvr_session_binding *to)
{
	for (uint32_t i = 0; i < h->n_failed_at; i++)
		if (h->failed_at[i].worker == to->worker &&
		    (h->failed_at[i].dp_rank == to->dp_rank ||
		     h->failed_at[i].dp_rank == UINT32_MAX))
			return true;
	return false;
}

/* A request of a session that is bound, and which its client has not pinned. */
static enum kvr_code enter_bound(const struct step *x, uint32_t leg,
				 const struct kvr_session_binding *to, struct kvr_session_ref ref)
{
	const struct kvr_rq_pool *p = kvr_request_pool(x->r, leg);
	struct kvr_rq_worker w;

	if (x->c->ops->worker(x->c->arg, p, to->worker, &w) && w.epoch == (uint32_t)to->tag) {
		/* Direct mode wants the client's own word; only an opened session is one. */
		if (!is_affinity(to) || (!kvr_pool_mode(p->conf->mode)->needs_pin &&
					 !has_failed_at(&x->r->msg->hints, to)))
			pin(x, leg, to);
		return KVR_OK;
	}
	if (!is_affinity(to))
		return KVR_E_SESSION_WORKER_GONE;
	kvr_session_unbind_ref(p->sessions, ref);
	invalidated(x, p, &x->r->session->key[leg], to);
	return KVR_OK;
}

/* Whether another request opens the id now. */
static bool being_opened(struct kvr_rq_pool *p, const struct kvr_session_key *key)
{
	const struct kvr_rq_session *s;

	LIST_FOREACH (s, &p->opening[key->hash & (KVR_RQ_BUCKETS - 1)], opening) {
		const struct kvr_session_key *k = &s->key[MAIN];

		p->looked++;
		if (k->hash == key->hash && k->len == key->len &&
		    memcmp(k->id, key->id, key->len) == 0)
			return true;
	}
	return false;
}

static enum kvr_code reserve(const struct step *x)
{
	struct kvr_rq_session *s = x->r->session;
	struct kvr_rq_pool *p = x->r->pool;
	enum kvr_code code = KVR_OK;

	if (s->reserved)
		return KVR_OK;
	if (being_opened(p, &s->key[MAIN])) {
		count(p, KVR_RQC_SESSION_BUSY);
		return KVR_E_SESSION_OPEN_FAILED;
	}
	if (x->c->ops->session_may != NULL)
		code = x->c->ops->session_may(x->c->arg, x->r, p);
	if (code == KVR_OK && !kvr_session_reserve(p->sessions))
		code = KVR_E_SESSION_LIMIT;
	if (code != KVR_OK) {
		count(p, KVR_RQC_SESSION_REFUSED);
		return code;
	}
	s->reserved = true;
	LIST_INSERT_HEAD(&p->opening[s->key[MAIN].hash & (KVR_RQ_BUCKETS - 1)], s, opening);
	return KVR_OK;
}

static void unreserve(const struct step *x)
{
	struct kvr_rq_session *s = x->r->session;

	if (!s->reserved)
		return;
	s->reserved = false;
	LIST_REMOVE(s, opening);
	kvr_session_unreserve(x->r->pool->sessions);
}

/* The pool of the main leg has no sessions; a request that can have none forgets the one it names.
 */
static enum kvr_code enter_off(const struct step *x)
{
	const struct kvr_rq_pool *p = x->r->pool;
	const uint8_t action = x->r->session->action;

	if (action == KVR_RQ_OPEN)
		return KVR_E_SESSION_LIMIT;
	if (p->prefill == NULL || p->prefill->sessions == NULL) {
		if (action == KVR_RQ_CLOSE && !x->r->query)
			count(p, KVR_RQC_SESSION_CLOSE_UNBOUND);
		x->r->session = NULL;
	}
	return KVR_OK;
}

enum kvr_code kvr_rq__session_enter(const struct step *x, uint32_t leg)
{
	struct kvr_rq_session *s = x->r->session;
	struct kvr_rq_pool *p;
	struct kvr_session_binding to;
	struct kvr_session_ref ref;
	enum kvr_code code = KVR_OK;

	if (s == NULL)
		return KVR_OK;
	p = kvr_request_pool(x->r, leg);
	if (p->sessions == NULL)
		return leg == MAIN ? enter_off(x) : KVR_OK;
	kvr_session_key(p->sessions, s->id, s->id_len, &s->key[leg]);
	if (!pinned_by_client(p, hints_of(x, leg)) && kvr_rq__find(x, p, &s->key[leg], &to, &ref))
		code = enter_bound(x, leg, &to, ref);
	if (code != KVR_OK || leg != MAIN || s->action != KVR_RQ_OPEN || x->r->query)
		return code;
	return reserve(x);
}

bool kvr_rq__session_unpin(const struct step *x, uint32_t leg, enum kvr_code err)
{
	struct kvr_rq_session *s = x->r->session;
	const struct kvr_rq_pool *p;
	struct kvr_session_binding to;

	if (s == NULL || s->pin[leg] != PIN_AFFINITY ||
	    (err != KVR_E_NO_ENDPOINTS && err != KVR_E_PINNED_NOT_ALLOWED))
		return false;
	p = kvr_request_pool(x->r, leg);
	unpin(x, leg);
	if (leg == MAIN && has_legs(x->r))
		kvr_rq__decode_hints(x);
	if (!x->r->query && kvr_session_unbind(p->sessions, &s->key[leg], &to))
		invalidated(x, p, &s->key[leg], &to);
	return true;
}

void kvr_rq__session_anew(const struct step *x)
{
	struct kvr_rq_session *s = x->r->session;

	if (s == NULL)
		return;
	s->pin[PREFILL] = PIN_NONE; /* its hints are made anew */
	/* The try before may have bound the session. */
	if (s->action == KVR_RQ_USE && s->pin[MAIN] == PIN_NONE)
		kvr_rq__session_enter(x, MAIN);
}

bool kvr_rq__pinned(const struct kvr_request *r, uint32_t leg)
{
	const struct kvr_rq_session *s = r->session;

	if (s != NULL && s->pin[leg] != PIN_NONE)
		return s->pin[leg] == PIN_OPENED;
	return pinned_by_client(kvr_request_pool(r, leg),
				leg == PREFILL ? &r->msg->pair->phints : &r->msg->hints);
}

void kvr_rq__session_move(const struct step *x)
{
	if (x->r->session != NULL && x->r->session->pin[MAIN] == PIN_AFFINITY)
		unpin(x, MAIN);
}

/* ---- decided ----------------------------------------------------------------------------- */

/* Unbind now, tell the worker later: it is still needed for this request. */
static void close_later(const struct step *x)
{
	struct kvr_rq_session *s = x->r->session;
	const struct kvr_rq_pool *p = x->r->pool;

	s->action = KVR_RQ_CLOSED;
	if (!kvr_session_unbind(p->sessions, &s->key[MAIN], &s->closing)) {
		count(p, KVR_RQC_SESSION_CLOSE_UNBOUND);
		return;
	}
	count(p, KVR_RQC_SESSION_UNBOUND);
	kvr_rq__about(x, KVR_RQO_SESSION, p, &s->key[MAIN], &s->closing, KVR_RQ_UNBOUND);
	s->closes = !is_affinity(&s->closing);
}

/* Into the affinity when the leg went there, to be bound when there is none. */
static void use_affinity(const struct step *x, uint32_t leg)
{
	struct kvr_rq_session *s = x->r->session;
	const struct kvr_rq_pool *p = kvr_request_pool(x->r, leg);
	const struct kvr_leg *l = &x->r->leg[leg];
	struct kvr_session_binding to;

	if (!kvr_rq__find(x, p, &s->key[leg], &to, &s->ref[leg])) {
		s->part[leg] = PART_BINDS;
	} else if (is_affinity(&to) && to.worker == l->worker && to.dp_rank == l->dp_rank) {
		s->part[leg] = PART_INSIDE;
		kvr_session_enter(p->sessions, s->ref[leg]);
	}
}

bool kvr_rq__session_decided(const struct step *x, uint32_t leg)
{
	struct kvr_rq_session *s = x->r->session;
	const struct kvr_rq_pool *p;

	if (s == NULL)
		return false;
	p = kvr_request_pool(x->r, leg);
	if (p->sessions == NULL) {
		if (leg == MAIN && s->action == KVR_RQ_CLOSE)
			count(p, KVR_RQC_SESSION_CLOSE_UNBOUND);
		return false;
	}
	if (leg == MAIN && s->action == KVR_RQ_OPEN) {
		count(p, KVR_RQC_SESSION_OPENS);
		s->part[MAIN] = PART_OPENS;
		x->r->sent = true;
		order(x, KVR_RQO_OPEN, MAIN);
		return true;
	}
	if (leg == MAIN && s->action == KVR_RQ_CLOSE)
		close_later(x);
	else if (p->affinity_ns != 0 && s->action != KVR_RQ_CLOSED)
		use_affinity(x, leg);
	return false;
}

static struct kvr_session_binding here(const struct step *x, uint32_t leg, uint64_t kind)
{
	const struct kvr_leg *l = &x->r->leg[leg];
	const uint64_t caller = x->r->session->tag >> TAG_CALLER_SHIFT << TAG_CALLER_SHIFT;

	return (struct kvr_session_binding){l->worker, l->dp_rank, caller | kind | l->epoch};
}

/* @return 0 or -errno: no room. */
static int bind(const struct step *x, uint32_t leg, uint64_t kind, uint64_t ttl_ns)
{
	struct kvr_rq_session *s = x->r->session;
	const struct kvr_rq_pool *p = kvr_request_pool(x->r, leg);
	const struct kvr_session_binding to = here(x, leg, kind);
	const uint32_t before = kvr_session_count(p->sessions);
	const int rc =
		kvr_session_bind(p->sessions, &s->key[leg], &to, ttl_ns, x->c->now, &s->ref[leg]);
	struct kvr_rq_order *o;

	if (rc < 0)
		return rc;
	count(p, KVR_RQC_SESSION_BOUND);
	o = kvr_rq__about(x, KVR_RQO_SESSION, p, &s->key[leg], &to, KVR_RQ_BOUND);
	o->session.ref = s->ref[leg];
	o->n = kvr_session_count(p->sessions) == before;
	return 0;
}

/* ---- succeeded --------------------------------------------------------------------------- */

void kvr_rq__session_succeeded(const struct step *x, uint32_t leg)
{
	struct kvr_rq_session *s = x->r->session;
	const struct kvr_rq_pool *p;

	if (s == NULL || s->part[leg] != PART_BINDS)
		return;
	p = kvr_request_pool(x->r, leg);
	s->part[leg] = PART_NONE;
	use_affinity(x, leg); /* another request of the session may have been first */
	if (s->part[leg] != PART_BINDS)
		return;
	s->part[leg] = PART_NONE;
	if ((x->c->ops->session_may != NULL &&
	     x->c->ops->session_may(x->c->arg, x->r, p) != KVR_OK) ||
	    bind(x, leg, TAG_AFFINITY, p->affinity_ns) < 0) {
		count(p, KVR_RQC_SESSION_REFUSED);
		return;
	}
	s->part[leg] = PART_INSIDE;
	kvr_session_enter(p->sessions, s->ref[leg]);
}

/* Whether the id, opened now at the main leg's worker, was opened elsewhere before: that worker
 * must be told, as nobody will name it there any more. */
static bool opened_elsewhere(const struct step *x, struct kvr_session_binding *old)
{
	const struct kvr_rq_pool *p = x->r->pool;
	const struct kvr_leg *l = &x->r->leg[MAIN];

	switch (kvr_session_resolve(p->sessions, &x->r->session->key[MAIN], x->c->now, old, NULL)) {
	case KVR_SESSION_NONE:
		return false;
	case KVR_SESSION_EXPIRED:
		count(p, KVR_RQC_SESSION_EXPIRED);
		kvr_rq__about(x, KVR_RQO_SESSION, p, &x->r->session->key[MAIN], old,
			      KVR_RQ_SESSION_OVER);
		break;
	case KVR_SESSION_BOUND:
		break;
	}
	return !is_affinity(old) && (old->worker != l->worker || (uint32_t)old->tag != l->epoch);
}

void kvr_rq__session_opened(const struct step *x)
{
	struct kvr_rq_session *s = x->r->session;
	struct kvr_session_binding old, to = here(x, MAIN, 0);
	const bool elsewhere = opened_elsewhere(x, &old);
	int rc;

	order(x, KVR_RQO_UNOPEN, MAIN)->how = KVR_RQ_BOUND;
	s->part[MAIN] = PART_NONE;
	unreserve(x); /* the room that was kept for this */
	rc = bind(x, MAIN, 0, s->timeout_ns);
	assert(rc == 0);
	(void)rc;
	if (elsewhere)
		kvr_rq__tell_close(x, x->r->pool, &s->key[MAIN], &old, KVR_RQ_MOVED);
	/* Another try would be a request of the session like any other. */
	s->action = KVR_RQ_USE;
	if (!pinned_by_client(x->r->pool, &x->r->msg->hints))
		pin(x, MAIN, &to);
}

/* ---- ended ------------------------------------------------------------------------------- */

/* Tell a worker that a session is over, unless it has been opened there again. */
static void close_unless_bound(const struct step *x, const struct kvr_session_binding *at,
			       enum kvr_rq_session_how how)
{
	const struct kvr_rq_pool *p = x->r->pool;
	const struct kvr_session_key *key = &x->r->session->key[MAIN];
	struct kvr_session_binding to;

	if (!kvr_rq__find(x, p, key, &to, NULL) || is_affinity(&to) || to.worker != at->worker)
		kvr_rq__tell_close(x, p, key, at, how);
}

void kvr_rq__session_not_opened(const struct step *x, bool unanswered)
{
	struct kvr_rq_session *s = x->r->session;
	const struct kvr_session_binding at = here(x, MAIN, 0);

	count(x->r->pool, KVR_RQC_SESSION_OPEN_FAILED);
	order(x, KVR_RQO_UNOPEN, MAIN)->how = KVR_RQ_OPEN_FAILED;
	s->part[MAIN] = PART_NONE;
	kvr_rq__about(x, KVR_RQO_SESSION, x->r->pool, &s->key[MAIN], &at, KVR_RQ_OPEN_FAILED);
	if (unanswered)
		close_unless_bound(x, &at, KVR_RQ_MAYBE_OPEN);
}

void kvr_rq__session_ended(const struct step *x, uint32_t leg, enum kvr_rq_how how)
{
	struct kvr_rq_session *s = x->r->session;
	const struct kvr_rq_pool *p;
	struct kvr_session_binding at;
	enum part part;

	if (s == NULL || s->part[leg] == PART_NONE)
		return;
	p = kvr_request_pool(x->r, leg);
	at = here(x, leg, s->part[leg] == PART_INSIDE ? TAG_AFFINITY : 0);
	part = (enum part)s->part[leg];
	s->part[leg] = PART_NONE;
	if (part == PART_OPENS) { /* by something else than the answer: it may be open */
		order(x, KVR_RQO_UNOPEN, MAIN)->how = KVR_RQ_MAYBE_OPEN;
		count(p, KVR_RQC_SESSION_OPEN_ENDED);
		close_unless_bound(x, &at, KVR_RQ_MAYBE_OPEN);
	} else if (part == PART_INSIDE) {
		/* A leg that ends because the other one has failed says nothing of its worker. */
		if (how == KVR_RQ_FINISHED || how == KVR_RQ_CANCELLED || how == KVR_RQ_STOPPED ||
		    how == KVR_RQ_CUT || how == KVR_RQ_OVERLOADED)
			kvr_session_leave(p->sessions, s->ref[leg], x->c->now);
		else if (kvr_session_unbind_ref(p->sessions, s->ref[leg]))
			invalidated(x, p, &s->key[leg], &at);
	}
}

void kvr_rq__session_over(const struct step *x)
{
	struct kvr_rq_session *s = x->r->session;

	if (s == NULL)
		return;
	unreserve(x);
	if (!s->closes)
		return;
	s->closes = false;
	close_unless_bound(x, &s->closing, KVR_RQ_CLOSED_BY_CLIENT);
}
