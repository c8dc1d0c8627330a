/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sessions of a scenario: both owners of a pool's table are this thread. A binding by affinity has
 * its tag set; it writes `bound`, `unbound` and `expired`, and its worker is never told anything.
 */
#include "out.h"
#include "request.h"

#include <rte_common.h>
#include <string.h>

#define SEC_NS	 UINT64_C(1000000000)
#define REAP_NS	 (15 * SEC_NS) /* so that none is over for 30 s */
#define AFFINITY UINT64_C(1)

static void line(const char *id, size_t len, const char *event,
		 const struct kvr_session_binding *to)
{
	ex_out_line("session");
	ex_out_strn("session_id", id, len);
	ex_out_str("event", event);
	ex_out_u64("worker", to->worker);
	ex_out_u64("dp_rank", to->dp_rank);
	ex_out_end();
}

static void event(const struct ex_req *r, const char *what, const struct kvr_session_binding *to)
{
	line(r->session, strlen(r->session), what, to);
}

static void expired(const char *id, size_t len, const struct kvr_session_binding *to)
{
	line(id, len, "expired", to);
	if (to->tag != AFFINITY)
		line(id, len, "close_sent", to);
}

/* The pool's table; NULL when it has none. */
static struct kvr_session *table(const struct ex_world *w, struct ex_pool *pool)
{
	if (pool->sessions == NULL && pool->conf.max_sessions != 0)
		pool->sessions = kvr_session_create(pool->conf.max_sessions, 0, w->now);
	return pool->sessions;
}

static struct kvr_session_key key_of(const struct ex_pool *pool, const struct ex_req *r)
{
	struct kvr_session_key key = {0};

	kvr_session_key(pool->sessions, r->session, strlen(r->session), &key); /* was checked */
	return key;
}

/* The binding of the request's session, when there is one. */
static bool find(struct ex_world *w, struct ex_pool *pool, const struct ex_req *r,
		 struct kvr_session_binding *to, struct kvr_session_ref *ref)
{
	const struct kvr_session_key key = key_of(pool, r);

	switch (kvr_session_resolve(pool->sessions, &key, w->now, to, ref)) {
	case KVR_SESSION_BOUND:
		return true;
	case KVR_SESSION_EXPIRED:
		expired(r->session, strlen(r->session), to);
		return false;
	default:
		return false;
	}
}

/* ---- before the decision ----------------------------------------------------------------- */

/* The affinity of a leg is to a rank. */
static void pin_affinity(const struct ex_pool *pool, struct ex_leg *leg,
			 const struct kvr_session_binding *to)
{
	struct kvr_sched_hints *h = &leg->hints;

	if (pool->conf.mode == KVR_MODE_DIRECT)
		return; /* it wants the client's own word */
	leg->sticks = true;
	leg->flags_before = h->flags;
	if (pool->conf.role == KVR_POOL_PREFILL) {
		h->flags |= KVR_SHINT_PREFILL_ID | KVR_SHINT_PREFILL_DP_RANK;
		h->prefill_id = to->worker;
		h->prefill_dp_rank = to->dp_rank;
		return;
	}
	h->flags |= KVR_SHINT_BACKEND_ID | KVR_SHINT_DP_RANK;
	h->backend_id = to->worker;
	h->dp_rank = to->dp_rank;
}

/*
 * A session that was opened names a worker and no rank: that is the hint's, or the only one the
 * worker has.
 */
static void pin_explicit(struct kvr_sched_hints *h, const struct kvr_session_binding *to)
{
	h->flags |= KVR_SHINT_BACKEND_ID;
	h->backend_id = to->worker;
}

bool ex_session_known(struct ex_world *w, const struct ex_req *r, struct ex_problem *p)
{
	struct kvr_session *t;
	struct kvr_session_key key;

	if (r->session == NULL || r->action != EX_SESSION_CLOSE)
		return true;
	t = table(w, r->pool);
	if (t != NULL) {
		key = key_of(r->pool, r);
		if (kvr_session_left(t, &key, w->now) != 0)
			return true;
	}
	return ex_bad(p, "unknown session '%s'", r->session);
}

/* A request with a generic pin of its own does not use the session. */
enum ex_session_entry ex_session_enter(struct ex_world *w, struct ex_req *r)
{
	struct kvr_sched_hints *h = &r->main.hints;
	struct kvr_session_binding to;
	struct kvr_session *t;

	if (r->session == NULL)
		return EX_SESSION_FINE;
	t = table(w, r->pool);
	if ((h->flags & KVR_SHINT_BACKEND_ID) == 0 && t != NULL && find(w, r->pool, r, &to, NULL)) {
		if (to.tag != AFFINITY && (h->flags & KVR_SHINT_DECODE_ID) == 0 &&
		    ex_worker_find(w, to.worker) == NULL)
			return EX_SESSION_GONE;
		if (to.tag != AFFINITY)
			pin_explicit(h, &to);
		else if ((h->flags & KVR_SHINT_DECODE_ID) == 0)
			pin_affinity(r->pool, &r->main, &to);
	}
	if (r->action != EX_SESSION_OPEN || r->main.req.query_only)
		return EX_SESSION_FINE;
	r->reserved = t != NULL && kvr_session_reserve(t);
	return r->reserved ? EX_SESSION_FINE : EX_SESSION_FULL;
}

void ex_session_enter_prefill(struct ex_world *w, struct ex_req *r)
{
	struct ex_pool *pool = r->pool->peer;
	struct kvr_session_binding to;

	/* The rank that the decode pool's affinity has put there is none of this pool's. */
	if (r->main.sticks && (r->main.flags_before & KVR_SHINT_DP_RANK) == 0)
		r->prefill.hints.flags &= ~KVR_SHINT_DP_RANK;
	if (r->session == NULL || (r->prefill.hints.flags & KVR_SHINT_PREFILL_ID) != 0)
		return;
	if (table(w, pool) != NULL && find(w, pool, r, &to, NULL))
		pin_affinity(pool, &r->prefill, &to);
}

bool ex_session_unpin(struct ex_world *w, struct ex_req *r, struct ex_pool *pool,
		      struct ex_leg *leg, enum kvr_sched_err err)
{
	struct kvr_session_binding to;
	struct kvr_session_ref ref;

	if (!leg->sticks || (err != KVR_SCHED_NO_ENDPOINTS && err != KVR_SCHED_PIN_NOT_ALLOWED))
		return false;
	leg->sticks = false;
	leg->hints.flags = leg->flags_before;
	if (!leg->req.query_only && find(w, pool, r, &to, &ref)) {
		kvr_session_unbind_ref(pool->sessions, ref);
		event(r, "unbound", &to);
	}
	return true;
}

/* ---- after the decision ------------------------------------------------------------------ */

/* Into the affinity when the leg went there; a new one when there is no binding. */
static void stick(struct ex_world *w, struct ex_req *r, struct ex_pool *pool, struct ex_leg *leg,
		  const struct kvr_sched_decision *d)
{
	const struct kvr_session_binding here = {d->worker, d->dp_rank, AFFINITY};
	const uint64_t ttl = pool->conf.affinity_ttl_s * SEC_NS;
	struct kvr_session_key key;
	struct kvr_session_binding to;

	if (pool->conf.affinity_ttl_s == KVR_POOL_NONE || table(w, pool) == NULL)
		return;
	key = key_of(pool, r);
	if (find(w, pool, r, &to, &leg->ref)) {
		leg->inside =
			to.tag == AFFINITY && to.worker == d->worker && to.dp_rank == d->dp_rank;
	} else if (kvr_session_bind(pool->sessions, &key, &here, ttl, w->now, &leg->ref) == 0) {
		leg->inside = true;
		event(r, "bound", &here);
	}
	leg->at = here;
	if (leg->inside)
		kvr_session_enter(pool->sessions, leg->ref);
}

void ex_session_routed(struct ex_world *w, struct ex_req *r, struct ex_pool *pool,
		       struct ex_leg *leg, const struct kvr_sched_decision *d)
{
	struct kvr_session_binding bound;
	struct kvr_session_key key;

	if (r->session == NULL)
		return;
	if (pool == r->pool)
		r->to = (struct kvr_session_binding){d->worker, d->dp_rank, 0};
	if (pool != r->pool || r->action == EX_SESSION_USE) {
		stick(w, r, pool, leg, d);
		return;
	}
	if (r->action == EX_SESSION_OPEN) {
		r->opening = true;
		event(r, "open_sent", &r->to);
		return;
	}
	if (table(w, pool) == NULL)
		return;
	key = key_of(pool, r);
	if (kvr_session_unbind(pool->sessions, &key, &bound)) {
		event(r, "unbound", &bound);
		r->to = bound; /* the one that holds the session, wherever the request went */
		r->closing = true;
	}
}

void ex_session_leg_over(struct ex_world *w, struct ex_pool *pool, struct ex_leg *leg)
{
	if (!leg->inside)
		return;
	leg->inside = false;
	if (!leg->failed)
		kvr_session_leave(pool->sessions, leg->ref, w->now);
	else if (kvr_session_unbind_ref(pool->sessions, leg->ref))
		event(pool->by_slot[leg->slot], "unbound", &leg->at);
}

void ex_session_finish(const struct ex_req *r)
{
	if (r->closing)
		event(r, "close_sent", &r->to);
}

bool ex_op_session_ack(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	static const struct ex_field fields[] = {{"op", EX_STR, 0},
						 {"id", EX_STR, EX_REQUIRED},
						 {"status", EX_STR, EX_NULL},
						 {NULL}};
	struct kvr_session_key key;
	struct ex_req *r;
	int known;

	if (!ex_check(obj, fields, p))
		return false;
	known = ex_req_find(w, obj, &r, p);
	if (known != 1)
		return known == 0;
	if (!r->opening)
		return ex_bad(p, "request '%s' opens no session", r->id);
	r->opening = false;
	kvr_session_unreserve(r->pool->sessions);
	r->reserved = false;
	if (strcmp(ex_str_or(obj, "status", "ok"), "ok") == 0) {
		key = key_of(r->pool, r);
		kvr_session_bind(r->pool->sessions, &key, &r->to, r->timeout_s * SEC_NS, w->now,
				 NULL); /* there is room: it was reserved */
		event(r, "bound", &r->to);
		return true;
	}
	event(r, "open_failed", &r->to);
	ex_req_end(w, r, false);
	return true;
}

/* ---- time -------------------------------------------------------------------------------- */

uint64_t ex_session_timer(const struct ex_world *w)
{
	for (uint32_t i = 0; i < w->n_pools; i++)
		if (w->pool[i].sessions != NULL && kvr_session_count(w->pool[i].sessions) != 0)
			return (w->now / REAP_NS + 1) * REAP_NS;
	return UINT64_MAX;
}

static void expire(struct ex_world *w, struct kvr_session *s)
{
	struct kvr_session_ref due[16];
	struct kvr_session_ended e;

	do {
		uint32_t n = kvr_session_due(s, w->now, due, RTE_DIM(due));

		for (uint32_t i = 0; i < n; i++)
			if (kvr_session_confirm(s, due[i], w->now, &e))
				expired(e.id, e.len, &e.to);
	} while (kvr_session_behind(s, w->now));
}

void ex_session_expire(struct ex_world *w)
{
	if (w->now % REAP_NS != 0)
		return;
	for (uint32_t i = 0; i < w->n_pools; i++)
		if (w->pool[i].sessions != NULL)
			expire(w, w->pool[i].sessions);
}
