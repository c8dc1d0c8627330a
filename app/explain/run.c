/* SPDX-License-Identifier: BSD-3-Clause */
/* Pools, requests, sessions and time: what happens in a scenario, and what is due. */
#include "run.h"

#include <rte_common.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the scheduler asks ------------------------------------------------------------- */

/* From inside a call of lib/sched: handed on after it. */
static void dropped(void *arg, uint32_t slot, uint32_t rank)
{
	struct kvr_sc_req *r = ex_pool(arg)->by_slot[slot];

	RTE_SET_USED(rank);
	ex_later(r, KVR_RQE_LOST, ex_leg_of(r, arg), 0);
}

static void rank_removed(void *arg, uint32_t rank, uint64_t worker, uint32_t dp_rank)
{
	RTE_SET_USED(worker);
	RTE_SET_USED(dp_rank);
	ex_clear(arg, rank);
}

static bool refresh(void *arg, uint32_t slot, const struct kvr_sched_req *req,
		    struct kvr_sched_overlap *out)
{
	RTE_SET_USED(slot);
	ex_score(arg, req->sh, req->n, out);
	return true;
}

/* ---- pools and what they hold ------------------------------------------------------------ */

static bool pool_start(struct kvr_sc_pool *pool, struct kvr_sc_problem *p)
{
	const struct kvr_sched_ops ops = {
		.arg = pool, .refresh = refresh, .dropped = dropped, .rank_removed = rank_removed};
	const uint32_t n = pool->conf.max_requests;
	struct ex_pool *e = calloc(1, sizeof(*e));

	pool->own = e;
	pool->sched = kvr_sched_create(&pool->conf, &ops, pool->world->now);
	if (e == NULL || pool->sched == NULL)
		return kvr_sc_bad(p, "cannot create the pool");
	e->by_slot = calloc(n, sizeof(*e->by_slot));
	e->free_slot = calloc(n, sizeof(*e->free_slot));
	e->stats = kvr_stats_create(&kvr_request_stats, 1);
	pool->terms.cap = pool->conf.max_ranks;
	pool->terms.v = calloc(pool->terms.cap, sizeof(*pool->terms.v));
	if (e->by_slot == NULL || e->free_slot == NULL || e->stats == NULL ||
	    pool->terms.v == NULL || !ex_blocks_create(e, kvr_sched_max_ranks(pool->sched)))
		return kvr_sc_bad(p, "no memory for the pool");
	for (e->n_free = 0; e->n_free < n; e->n_free++)
		e->free_slot[e->n_free] = n - 1 - e->n_free;
	kvr_sched_explain(pool->sched, &pool->terms);
	kvr_request_pool_init(&pool->rq, &pool->conf, NULL, kvr_stats_row(e->stats, 0));
	pool->rq.owner = pool;
	pool->rq.disagg = &e->disagg;
	return true;
}

static uint32_t loads(struct kvr_sc_pool *pool, const struct kvr_sc_prompt *prompt,
		      struct kvr_sched_load v[], uint32_t cap, struct kvr_sched_pending *pending)
{
	const struct kvr_sched_req req = {.sh = prompt->sh, .n = prompt->n, .isl = prompt->isl};
	struct kvr_sched_overlap ov;

	ex_score(pool, prompt->sh, prompt->n, &ov);
	kvr_sched_pending(pool->sched, pending);
	return kvr_sched_loads(pool->sched, &req, &ov, pool->world->now, v, cap);
}

/* ---- requests and sessions --------------------------------------------------------------- */

static void event(struct kvr_sc_req *r, struct kvr_rq_event e)
{
	struct kvr_sc_world *w = r->pool->world;

	ex_go_on(w); /* what has happened before */
	ex_step(r, &e);
	ex_go_on(w);
}

/* A table of sessions takes memory: pools have one from the first request that names one. */
static void sessions_start(struct kvr_sc_pool *pool)
{
	if (pool == NULL || pool->rq.sessions != NULL || pool->conf.max_sessions == 0)
		return;
	kvr_request_pool_init(&pool->rq, &pool->conf,
			      kvr_session_create(pool->conf.max_sessions, 0, pool->world->now),
			      pool->rq.count);
}

/* A message that a router does not take: it is no request. */
static bool unfit(struct kvr_sc_req *r)
{
	const enum kvr_code code = kvr_sched_check(r->pool->sched, &r->msg.req);

	if (code == KVR_OK)
		return false;
	kvr_sc_line_rejected(r, &(const struct kvr_rq_why){.code = (uint16_t)code});
	kvr_sc_req_over(r);
	return true;
}

static void arrive(struct kvr_sc_req *r)
{
	const struct kvr_rq_ctx c = ex_ctx(r->pool->world);
	struct kvr_rq_session *s = r->session.id_len != 0 ? &r->session : NULL;
	struct ex_req *e = kvr_sc_alloc(r->line, 1, sizeof(*e));
	struct kvr_rq_orders out;

	e->slot[KVR_LEG_MAIN] = e->slot[KVR_LEG_PREFILL] = EX_NO_SLOT;
	r->own = e;
	if (s != NULL) {
		sessions_start(r->pool);
		sessions_start(r->pool->peer);
	}
	kvr_sc_req_enter(r);
	if (unfit(r))
		return;
	kvr_request_arrive(&c, &r->r, &r->pool->rq, &r->msg, s, &out);
	ex_carry(r, &out, true);
	ex_go_on(r->pool->world);
}

static enum kvr_code release(struct kvr_sc_pool *pool, const char *id)
{
	const struct kvr_rq_ctx c = ex_ctx(pool->world);
	struct kvr_rq_orders out;
	const enum kvr_code code =
		kvr_request_session_release(&c, &pool->rq, id, (uint32_t)strlen(id), 0, &out);

	ex_lines(pool->world, NULL, &out, false);
	return code;
}

/* ---- time -------------------------------------------------------------------------------- */

static void admitted(struct kvr_sc_pool *pool, const struct kvr_sched_decision *d)
{
	struct kvr_sc_req *r = ex_pool(pool)->by_slot[d->slot];

	r->d = *d;
	r->decided_by = pool;
	ex_step(r, &(const struct kvr_rq_event){.kind = (uint8_t)kvr_request_decided(d, true),
						.leg = ex_leg_of(r, pool),
						.d = &r->d});
}

static void sessions_expire(struct kvr_sc_world *w, struct kvr_sc_pool *pool)
{
	const struct kvr_rq_ctx c = ex_ctx(w);
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
static void admissions(struct kvr_sc_world *w)
{
	struct kvr_sched_decision d;

	do {
		ex_go_on(w);
		for (uint32_t i = 0; i < w->n_pools; i++)
			while (kvr_sched_poll(w->pool[i].sched, w->now, &d, 1) == 1)
				admitted(&w->pool[i], &d);
		for (uint32_t i = 0; i < w->n_pools; i++)
			if (w->pool[i].rq.sessions != NULL)
				sessions_expire(w, &w->pool[i]);
	} while (!STAILQ_EMPTY(&ex_run(w)->todo));
}

static void poll(struct kvr_sc_world *w)
{
	struct kvr_sc_req *r;

	admissions(w);
	ex_drained(w);
	while ((r = TAILQ_FIRST(&w->dead)) != NULL) {
		TAILQ_REMOVE(&w->dead, r, link);
		kvr_sc_line_free(r->line);
	}
}

static void bookings_release(struct kvr_sc_pool *pool)
{
	uint32_t slot;

	while (kvr_sched_expire(pool->sched, pool->world->now, &slot, 1) == 1) {
		struct kvr_sc_req *r = ex_pool(pool)->by_slot[slot];

		kvr_sc_line_expired(r);
		event(r, (struct kvr_rq_event){.kind = KVR_RQE_EXPIRED, .leg = ex_leg_of(r, pool)});
	}
}

/* The request whose open has waited longest for its answer, or NULL. */
static struct kvr_sc_req *opening(const struct kvr_sc_world *w)
{
	struct kvr_sc_req *r, *first = NULL;

	TAILQ_FOREACH (r, &w->live, link)
		if (ex_req(r)->open_due != 0 &&
		    (first == NULL || ex_req(r)->open_due < ex_req(first)->open_due))
			first = r;
	return first;
}

/* When a leg of a pair goes to another worker: the router repeats those itself. UINT64_MAX: never,
 * or it was tried in vain. */
static uint64_t unheard_due(const struct kvr_sc_req *r, uint32_t leg)
{
	struct kvr_rq_ctx late = ex_ctx(r->pool->world);

	late.now = UINT64_MAX;
	if (!r->r.paired || r->r.sent_ns[leg] + 1 == ex_req(r)->stays[leg] ||
	    !kvr_request_unheard(&late, &r->r, leg))
		return UINT64_MAX;
	return r->r.sent_ns[leg] + r->pool->rq.dispatch_ns;
}

/* The next leg that is due, or NULL. */
static struct kvr_sc_req *unheard(const struct kvr_sc_world *w, uint32_t *leg, uint64_t *due)
{
	struct kvr_sc_req *r, *first = NULL;

	*due = UINT64_MAX;
	TAILQ_FOREACH (r, &w->live, link)
		for (uint32_t i = KVR_LEG_MAIN; i <= KVR_LEG_PREFILL; i++)
			if (unheard_due(r, i) < *due) {
				*due = unheard_due(r, i);
				*leg = i;
				first = r;
			}
	return first;
}

static void expire(struct kvr_sc_world *w)
{
	struct kvr_sc_req *r;
	uint32_t leg;
	uint64_t due;

	for (uint32_t i = 0; i < w->n_pools; i++)
		bookings_release(&w->pool[i]);
	while ((r = opening(w)) != NULL && ex_req(r)->open_due <= w->now)
		event(r, (struct kvr_rq_event){.kind = KVR_RQE_UNANSWERED});
	while ((r = unheard(w, &leg, &due)) != NULL && due <= w->now) {
		ex_req(r)->stays[leg] = r->r.sent_ns[leg] + 1;
		event(r, (struct kvr_rq_event){.kind = KVR_RQE_UNHEARD, .leg = (uint8_t)leg});
	}
}

static uint64_t timer(const struct kvr_sc_world *w)
{
	const struct kvr_sc_req *r = opening(w);
	uint64_t t = r != NULL ? ex_req(r)->open_due : UINT64_MAX, due;
	uint32_t leg;

	unheard(w, &leg, &due);
	t = RTE_MIN(t, due);

	for (uint32_t i = 0; i < w->n_pools; i++) {
		const struct kvr_sc_pool *p = &w->pool[i];

		t = RTE_MIN(t, kvr_sched_next_timer(p->sched));
		if (p->rq.sessions != NULL && kvr_session_count(p->rq.sessions) != 0)
			t = RTE_MIN(t, (w->now / KVR_SC_LOOK_NS + 1) * KVR_SC_LOOK_NS);
	}
	return t;
}

const struct kvr_sc_executor ex_executor = {
	.pool = pool_start,
	.worker = ex_worker,
	.joined = ex_joined,
	.gone = ex_gone,
	.drain = ex_drain,
	.load = ex_load,
	.blocks = ex_blocks,
	.clear = ex_clear,
	.score = ex_score,
	.loads = loads,
	.arrive = arrive,
	.event = event,
	.release = release,
	.poll = poll,
	.expire = expire,
	.timer = timer,
};
