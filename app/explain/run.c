/* SPDX-License-Identifier: BSD-3-Clause */
#include "run.h"

#include "lines.h"

#include <rte_common.h>
#include <stdlib.h>
#include <string.h>

/* ---- questions --------------------------------------------------------------------------- */

static bool ask_worker(void *arg, const struct kvr_rq_pool *p, uint64_t id,
		       struct kvr_rq_worker *out)
{
	const struct ex_worker *k = ex_worker_find(arg, id);

	if (k == NULL || &k->pool->rq != p)
		return false;
	*out = k->rq;
	return true;
}

static bool ask_alone(void *arg, const struct kvr_request *r, const struct kvr_sched_req *prefill,
		      const struct kvr_sched_req *decode)
{
	struct ex_world *w = arg;
	struct ex_pool *d = r->pool->owner, *p = d->peer;
	struct kvr_sched_overlap pov, dov;
	const struct kvr_disagg_side ps = {p->sched, prefill, &pov}, ds = {d->sched, decode, &dov};

	ex_index_score(p->index, decode->sh, decode->n, w->now, &pov);
	ex_index_score(d->index, decode->sh, decode->n, w->now, &dov);
	return kvr_disagg_bypass(&d->conf, &ps, &ds, w->now);
}

static struct kvr_rq_ctx ctx(struct ex_world *w)
{
	static const struct kvr_rq_ops ops = {.worker = ask_worker, .alone = ask_alone};

	return (struct kvr_rq_ctx){&ops, w, w->now, &w->rand};
}

/* ---- what happens next ------------------------------------------------------------------- */

static void later(struct ex_world *w, struct ex_req *r, uint8_t kind, uint8_t leg, uint16_t flags)
{
	struct ex_event *next = malloc(sizeof(*next));

	if (next == NULL)
		abort();
	*next = (struct ex_event){.r = r, .e = {.kind = kind, .leg = leg, .flags = flags}};
	STAILQ_INSERT_TAIL(&w->todo, next, link);
}

/* ---- slots ------------------------------------------------------------------------------- */

static struct ex_pool *pool_of(const struct ex_req *r, uint32_t leg)
{
	return leg == KVR_LEG_MAIN ? r->pool : r->pool->peer;
}

static uint8_t leg_of(const struct ex_req *r, const struct ex_pool *pool)
{
	return (uint8_t)(pool == r->pool ? KVR_LEG_MAIN : KVR_LEG_PREFILL);
}

static bool slot_take(struct ex_req *r, uint32_t leg)
{
	struct ex_pool *pool = pool_of(r, leg);

	if (r->slot[leg] != EX_NO_SLOT || r->msg.req.query_only)
		return true; /* a query touches none */
	if (pool->n_free == 0)
		return false;
	r->slot[leg] = pool->free_slot[--pool->n_free];
	pool->by_slot[r->slot[leg]] = r;
	return true;
}

static void slot_release(struct ex_req *r, uint32_t leg)
{
	struct ex_pool *pool = pool_of(r, leg);

	if (r->slot[leg] == EX_NO_SLOT)
		return;
	pool->by_slot[r->slot[leg]] = NULL;
	pool->free_slot[pool->n_free++] = r->slot[leg];
	r->slot[leg] = EX_NO_SLOT;
}

/* ---- orders ------------------------------------------------------------------------------ */

/* @return the answer. */
static struct kvr_rq_event decide(struct ex_world *w, struct ex_req *r,
				  const struct kvr_rq_order *o)
{
	struct ex_pool *pool = pool_of(r, o->leg);
	struct kvr_sched_overlap ov;

	r->decided_by = pool;
	if (slot_take(r, o->leg)) {
		ex_index_score(pool->index, o->req->sh, o->req->n, w->now, &ov);
		kvr_sched_route(pool->sched, r->msg.req.query_only ? 0 : r->slot[o->leg], o->req,
				&ov, w->now, &r->d);
	} else {
		r->d = (struct kvr_sched_decision){.result = KVR_SCHED_ERROR,
						   .err = KVR_E_NO_MEMORY};
	}
	return (struct kvr_rq_event){
		.kind = (uint8_t)kvr_request_decided(&r->d, false), .leg = o->leg, .d = &r->d};
}

/* No event of a request: its prediction can be seen from the next moment on, as in a router, whose
 * tables have another writer than its decisions. `flags` is the rank. */
#define PREDICTED KVR_RQ_EVENTS_N

static void predict(struct ex_world *w, const struct ex_req *r, uint32_t leg, uint32_t rank)
{
	const struct ex_pool *pool = pool_of(r, leg);
	const struct kvr_pool_conf *c = &pool->conf;

	ex_index_predict(pool->index, rank, r->msg.req.sh, r->msg.req.n, w->now,
			 c->use_kv_events ? c->predicted_ttl_s : c->ttl_s);
}

/* A leg is over. The booking of a prefill leg ends with its request: here its worker has nothing
 * else to do. */
static void ended(struct ex_world *w, struct ex_req *r, uint8_t leg)
{
	const uint8_t prefill = r->r.leg[KVR_LEG_PREFILL].state;

	if (leg == KVR_LEG_MAIN && (prefill == KVR_RQS_SENT || prefill == KVR_RQS_RUNNING))
		later(w, r, KVR_RQE_FIN, KVR_LEG_PREFILL,
		      r->failed ? KVR_RQEF_ERROR : KVR_RQEF_RESULT);
	later(w, r, KVR_RQE_LINGERED, leg, 0);
}

/* Calls of lib/sched, books, and what workers and clients do of themselves. */
static void carry_out(struct ex_world *w, struct ex_req *r, const struct kvr_rq_order *o)
{
	struct kvr_sched *s = pool_of(r, o->leg)->sched;
	const uint32_t slot = r->slot[o->leg];

	switch (o->kind) {
	case KVR_RQO_PREFILL_DONE:
		kvr_sched_prefill_done(s, slot, w->now);
		break;
	case KVR_RQO_OUTPUT:
		kvr_sched_output(s, slot, o->n, w->now);
		break;
	case KVR_RQO_FREE:
		kvr_sched_finish(s, slot, w->now);
		break;
	case KVR_RQO_LEAVE:
		kvr_sched_cancel(s, slot, w->now);
		break;
	case KVR_RQO_OPEN:
		r->open_due = w->now + KVR_RQ_OPEN_NS;
		break;
	case KVR_RQO_UNOPEN:
		r->open_due = 0;
		break;
	case KVR_RQO_SEND:
		later(w, r, KVR_RQE_TAKEN, o->leg, 0);
		break;
	case KVR_RQO_END:
		ended(w, r, o->leg);
		break;
	case KVR_RQO_PREDICT:
		later(w, r, PREDICTED, o->leg, (uint16_t)r->r.leg[o->leg].rank);
		break;
	case KVR_RQO_RELEASE:
		slot_release(r, o->leg);
		break;
	case KVR_RQO_DONE:
		ex_req_over(w, r);
		break;
	default:
		break;
	}
}

/* Carry the orders of a step out, and answer its question. */
static void carry(struct ex_world *w, struct ex_req *r, struct kvr_rq_orders *out, bool decision)
{
	const struct kvr_rq_ctx c = ctx(w);
	struct kvr_rq_event answer;

	for (;;) {
		const struct kvr_rq_order *last = &out->v[out->n - 1];

		ex_lines(w, r, out, decision);
		for (uint32_t i = 0; i < out->n; i++)
			carry_out(w, r, &out->v[i]);
		if (out->n == 0)
			break;
		if (last->kind == KVR_RQO_DECIDE) {
			answer = decide(w, r, last);
			decision = true;
		} else if (last->kind == KVR_RQO_HOLD || last->kind == KVR_RQO_RENEW) {
			answer = (struct kvr_rq_event){.kind = KVR_RQE_ROOM};
			if (last->kind == KVR_RQO_RENEW)
				r->routed = r->queued = false;
		} else {
			break;
		}
		kvr_request_step(&c, &r->r, &answer, out);
	}
	/* Told its last word, its name is free, whatever its legs have left to do. */
	if (r->r.told == KVR_RQ_OVER)
		ex_req_leave(w, r);
}

static void step(struct ex_world *w, struct ex_req *r, const struct kvr_rq_event *e)
{
	const bool decision = e->kind == KVR_RQE_ADMITTED || e->kind == KVR_RQE_NOT_ADMITTED ||
			      e->kind == KVR_RQE_REPEATED;
	const struct kvr_rq_ctx c = ctx(w);
	struct kvr_rq_orders out;

	kvr_request_step(&c, &r->r, e, &out);
	carry(w, r, &out, decision);
}

static void go_on(struct ex_world *w)
{
	while (!STAILQ_EMPTY(&w->todo)) {
		struct ex_event *next = STAILQ_FIRST(&w->todo);

		STAILQ_REMOVE_HEAD(&w->todo, link);
		if (next->e.kind == PREDICTED)
			predict(w, next->r, next->e.leg, next->e.flags);
		else
			step(w, next->r, &next->e);
		free(next);
	}
}

void ex_run_event(struct ex_world *w, struct ex_req *r, struct kvr_rq_event e)
{
	go_on(w); /* what has happened before */
	step(w, r, &e);
	go_on(w);
}

/* A table of sessions takes memory: pools have one from the first request that names one. */
static void sessions_start(struct ex_world *w, struct ex_pool *pool)
{
	if (pool == NULL || pool->rq.sessions != NULL || pool->conf.max_sessions == 0)
		return;
	kvr_request_pool_init(&pool->rq, &pool->conf,
			      kvr_session_create(pool->conf.max_sessions, 0, w->now),
			      pool->rq.count);
}

/* A message that a router does not take: it is no request. */
static bool unfit(struct ex_world *w, struct ex_req *r)
{
	const enum kvr_code code = kvr_sched_check(r->pool->sched, &r->msg.req);

	if (code != KVR_E_EMPTY_PROMPT && code != KVR_E_PROMPT_TOO_LONG &&
	    code != KVR_E_INVALID_OVERRIDE && code != KVR_E_INVALID_WEIGHT)
		return false;
	ex_line_rejected(r, &(const struct kvr_rq_why){.code = (uint16_t)code});
	ex_req_over(w, r);
	return true;
}

void ex_run_arrive(struct ex_world *w, struct ex_req *r)
{
	const struct kvr_rq_ctx c = ctx(w);
	struct kvr_rq_session *s = r->session.id_len != 0 ? &r->session : NULL;
	struct kvr_rq_orders out;

	if (s != NULL) {
		sessions_start(w, r->pool);
		sessions_start(w, r->pool->peer);
	}
	ex_req_enter(w, r);
	if (unfit(w, r))
		return;
	kvr_request_arrive(&c, &r->r, &r->pool->rq, &r->msg, s, &out);
	carry(w, r, &out, true);
	go_on(w);
}

/* ---- what the scheduler asks ------------------------------------------------------------- */

static struct ex_world *the_world; /* there is one */

/* From inside a call of lib/sched: handed on after it. */
static void dropped(void *arg, uint32_t slot, uint32_t rank)
{
	struct ex_pool *pool = arg;
	struct ex_req *r = pool->by_slot[slot];

	RTE_SET_USED(rank);
	later(the_world, r, KVR_RQE_LOST, leg_of(r, pool), 0);
}

static void rank_removed(void *arg, uint32_t rank, uint64_t worker, uint32_t dp_rank)
{
	RTE_SET_USED(worker);
	RTE_SET_USED(dp_rank);
	ex_index_clear(((struct ex_pool *)arg)->index, rank);
}

static bool refresh(void *arg, uint32_t slot, const struct kvr_sched_req *req,
		    struct kvr_sched_overlap *out)
{
	RTE_SET_USED(slot);
	ex_index_score(((struct ex_pool *)arg)->index, req->sh, req->n, the_world->now, out);
	return true;
}

bool ex_run_pool(struct ex_world *w, struct ex_pool *pool, struct ex_problem *p)
{
	const struct kvr_sched_ops ops = {
		.arg = pool, .refresh = refresh, .dropped = dropped, .rank_removed = rank_removed};
	const uint32_t n = pool->conf.max_requests;

	the_world = w;
	pool->sched = kvr_sched_create(&pool->conf, &ops, w->now);
	if (pool->sched == NULL)
		return ex_bad(p, "cannot create the pool");
	pool->index = ex_index_create(kvr_sched_max_ranks(pool->sched));
	pool->by_slot = calloc(n, sizeof(*pool->by_slot));
	pool->free_slot = calloc(n, sizeof(*pool->free_slot));
	pool->terms.cap = pool->conf.max_ranks;
	pool->terms.v = calloc(pool->terms.cap, sizeof(*pool->terms.v));
	pool->stats = kvr_stats_create(&kvr_request_stats, 1);
	if (pool->index == NULL || pool->by_slot == NULL || pool->free_slot == NULL ||
	    pool->terms.v == NULL || pool->stats == NULL)
		return ex_bad(p, "no memory for the pool");
	for (pool->n_free = 0; pool->n_free < n; pool->n_free++)
		pool->free_slot[pool->n_free] = n - 1 - pool->n_free;
	kvr_sched_explain(pool->sched, &pool->terms);
	kvr_request_pool_init(&pool->rq, &pool->conf, NULL, kvr_stats_row(pool->stats, 0));
	pool->rq.owner = pool;
	pool->rq.disagg = &pool->disagg;
	pool->rq.reroutes = 1; /* as the router when nobody says otherwise */
	return true;
}

enum kvr_code ex_run_release(struct ex_world *w, struct ex_pool *pool, const char *id)
{
	const struct kvr_rq_ctx c = ctx(w);
	struct kvr_rq_orders out;
	const enum kvr_code code =
		kvr_request_session_release(&c, &pool->rq, id, (uint32_t)strlen(id), 0, &out);

	ex_lines(w, NULL, &out, false);
	return code;
}

/* ---- time -------------------------------------------------------------------------------- */

static void admitted(struct ex_world *w, struct ex_pool *pool, const struct kvr_sched_decision *d)
{
	struct ex_req *r = pool->by_slot[d->slot];

	r->d = *d;
	r->decided_by = pool;
	step(w, r,
	     &(const struct kvr_rq_event){.kind = (uint8_t)kvr_request_decided(d, true),
					  .leg = leg_of(r, pool),
					  .d = &r->d});
}

static void sessions_expire(struct ex_world *w, struct ex_pool *pool)
{
	const struct kvr_rq_ctx c = ctx(w);
	struct kvr_session_ref due[16];
	struct kvr_rq_orders out;

	while (kvr_session_behind(pool->rq.sessions, w->now)) {
		uint32_t n = kvr_session_due(pool->rq.sessions, w->now, due, RTE_DIM(due));

		for (uint32_t i = 0; i < n; i++) {
			kvr_request_session_due(&c, &pool->rq, due[i], &out);
			ex_lines(w, NULL, &out, false);
		}
	}
}

/* All that can be admitted at once, in the order of the queues, then sessions that are over; what
 * workers say to it comes after that. */
static void admissions(struct ex_world *w)
{
	struct kvr_sched_decision d;

	do {
		go_on(w);
		for (uint32_t i = 0; i < w->n_pools; i++)
			while (kvr_sched_poll(w->pool[i].sched, w->now, &d, 1) == 1)
				admitted(w, &w->pool[i], &d);
		for (uint32_t i = 0; i < w->n_pools; i++)
			if (w->pool[i].rq.sessions != NULL)
				sessions_expire(w, &w->pool[i]);
	} while (!STAILQ_EMPTY(&w->todo));
}

/* Draining workers without bookings become drained. */
static void drained(struct ex_world *w)
{
	struct ex_worker *k;

	LIST_FOREACH (k, &w->workers, link)
		if (k->state == KVR_WORKER_DRAINING &&
		    kvr_sched_worker_bookings(k->pool->sched, k->id) == 0)
			ex_state_change(k, KVR_WORKER_DRAINED);
}

void ex_run_poll(struct ex_world *w)
{
	struct ex_req *r;

	admissions(w);
	drained(w);
	while ((r = TAILQ_FIRST(&w->dead)) != NULL) {
		TAILQ_REMOVE(&w->dead, r, link);
		ex_line_free(r->line);
	}
}

static void bookings_expire(struct ex_world *w, struct ex_pool *pool)
{
	uint32_t slot;

	while (kvr_sched_expire(pool->sched, w->now, &slot, 1) == 1) {
		struct ex_req *r = pool->by_slot[slot];

		ex_line_expired(r);
		r->failed = true;
		ex_run_event(
			w, r,
			(struct kvr_rq_event){.kind = KVR_RQE_EXPIRED, .leg = leg_of(r, pool)});
	}
}

/* The request whose open has waited longest for its answer, or NULL. */
static struct ex_req *opening(const struct ex_world *w)
{
	struct ex_req *r, *first = NULL;

	TAILQ_FOREACH (r, &w->live, link)
		if (r->open_due != 0 && (first == NULL || r->open_due < first->open_due))
			first = r;
	return first;
}

void ex_run_expire(struct ex_world *w)
{
	struct ex_req *r;

	for (uint32_t i = 0; i < w->n_pools; i++)
		bookings_expire(w, &w->pool[i]);
	while ((r = opening(w)) != NULL && r->open_due <= w->now)
		ex_run_event(w, r, (struct kvr_rq_event){.kind = KVR_RQE_UNANSWERED});
}

uint64_t ex_run_timer(const struct ex_world *w)
{
	const struct ex_req *r = opening(w);
	uint64_t t = r != NULL ? r->open_due : UINT64_MAX;

	for (uint32_t i = 0; i < w->n_pools; i++) {
		const struct ex_pool *p = &w->pool[i];

		t = RTE_MIN(t, kvr_sched_next_timer(p->sched));
		if (p->rq.sessions != NULL && kvr_session_count(p->rq.sessions) != 0)
			t = RTE_MIN(t, (w->now / EX_LOOK_NS + 1) * EX_LOOK_NS);
	}
	return t;
}
