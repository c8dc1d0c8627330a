/* SPDX-License-Identifier: BSD-3-Clause */
/* Pools, requests, sessions and time of a scenario: the operations of struct kvr_sc_executor. */
#include "explain.h"

#include <rte_common.h>
#include <stdlib.h>
#include <string.h>

/* ---- callbacks of the scheduler ---------------------------------------------------------- */

static struct kvr_sc_req *request_at(const struct kvr_sc_pool *pool, uint32_t slot)
{
	return container_of(ex_pool(pool)->exec.by_slot[slot], struct ex_req, exec)->sc;
}

static uint8_t leg_of(const struct kvr_sc_req *r, const struct kvr_sc_pool *pool)
{
	return kvr_exec_leg_of(&ex_req(r)->exec, &ex_pool(pool)->exec);
}

/* Called from inside lib/sched: the request must not be stepped before that returns. */
static void booking_dropped(void *arg, uint32_t slot, uint32_t rank)
{
	struct kvr_sc_req *r = request_at(arg, slot);

	RTE_SET_USED(rank);
	ex_defer(r, KVR_RQE_LOST, leg_of(r, arg), 0);
}

static void rank_removed(void *arg, uint32_t rank, uint64_t worker, uint32_t dp_rank)
{
	RTE_SET_USED(worker);
	RTE_SET_USED(dp_rank);
	ex_clear(arg, rank);
}

static bool refresh_overlap(void *arg, uint32_t slot, const struct kvr_sched_req *req,
			    struct kvr_sched_overlap *out)
{
	RTE_SET_USED(slot);
	ex_score(arg, req->sh, req->n, out);
	return true;
}

/* ---- pools ------------------------------------------------------------------------------- */

static bool start_pool(struct kvr_sc_pool *pool, struct kvr_sc_problem *p)
{
	const struct kvr_sched_ops ops = {.arg = pool,
					  .refresh = refresh_overlap,
					  .dropped = booking_dropped,
					  .rank_removed = rank_removed};
	const uint32_t n = pool->conf.max_requests;
	struct ex_pool *e = calloc(1, sizeof(*e));

	pool->own = e;
	pool->sched = kvr_sched_create(&pool->conf, &ops, pool->world->now);
	if (e == NULL || pool->sched == NULL)
		return kvr_sc_bad(p, "cannot create the pool");
	e->exec.owner = pool;
	e->stats = kvr_stats_create(&kvr_request_stats, 1);
	pool->terms.cap = pool->conf.max_ranks;
	pool->terms.v = calloc(pool->terms.cap, sizeof(*pool->terms.v));
	if (kvr_exec_pool_init(&e->exec, &pool->rq, pool->sched, n) < 0 || e->stats == NULL ||
	    pool->terms.v == NULL || !ex_create_table(e, kvr_sched_max_ranks(pool->sched)))
		return kvr_sc_bad(p, "no memory for the pool");
	kvr_sched_explain(pool->sched, &pool->terms);
	kvr_request_pool_init(&pool->rq, &pool->conf, NULL, kvr_stats_row(e->stats, 0));
	pool->rq.owner = pool;
	pool->rq.disagg = &e->disagg;
	return true;
}

static uint32_t list_loads(struct kvr_sc_pool *pool, const struct kvr_sc_prompt *prompt,
			   struct kvr_sched_load v[], uint32_t cap,
			   struct kvr_sched_pending *pending)
{
	const struct kvr_sched_req req = {.sh = prompt->sh, .n = prompt->n, .isl = prompt->isl};
	struct kvr_sched_overlap ov;

	ex_score(pool, prompt->sh, prompt->n, &ov);
	kvr_sched_pending(pool->sched, pending);
	return kvr_sched_loads(pool->sched, &req, &ov, pool->world->now, v, cap);
}

/* ---- requests and sessions --------------------------------------------------------------- */

static void apply_event(struct kvr_sc_req *r, struct kvr_rq_event e)
{
	struct kvr_sc_world *w = r->pool->world;

	ex_run_due(w);
	ex_step(r, &e);
	ex_run_due(w);
}

/* A session table takes memory: a pool gets one with the first request that names a session. */
static void start_sessions(struct kvr_sc_pool *pool)
{
	if (pool == NULL || pool->rq.sessions != NULL || pool->conf.max_sessions == 0)
		return;
	kvr_request_pool_init(&pool->rq, &pool->conf,
			      kvr_session_create(pool->conf.max_sessions, 0, pool->world->now),
			      pool->rq.count);
}

/* Reject a message that no router takes, before it becomes a request. */
static bool reject_unfit(struct kvr_sc_req *r)
{
	struct kvr_sched_req req = r->msg.req;
	enum kvr_code code;

	r->msg.hints.policy_class = KVR_SCHED_NO_CLASS; /* lib/request looks the name up */
	req.hints = &r->msg.hints;
	code = kvr_sched_check(r->pool->sched, &req);
	if (code == KVR_OK)
		return false;
	kvr_sc_line_rejected(r, &(const struct kvr_rq_why){.code = (uint16_t)code});
	kvr_sc_req_over(r);
	return true;
}

static void start_request(struct kvr_sc_req *r)
{
	struct kvr_rq_session *s = r->session.id_len != 0 ? &r->session : NULL;
	struct ex_req *e = kvr_sc_alloc(r->line, 1, sizeof(*e));

	e->sc = r;
	kvr_exec_req_init(&e->exec, &ex_pool(r->pool)->exec, &r->r, &r->msg, &r->d);
	r->own = e;
	if (s != NULL) {
		start_sessions(r->pool);
		start_sessions(r->pool->peer);
	}
	kvr_sc_req_enter(r);
	if (reject_unfit(r))
		return;
	if (r->pool->peer != NULL)
		e->exec.pool->prefill = &ex_pool(r->pool->peer)->exec;
	kvr_exec_arrive(ex_exec(r->pool->world), &e->exec, s);
	ex_run_due(r->pool->world);
}

static enum kvr_code release_session(struct kvr_sc_pool *pool, const char *id)
{
	const struct kvr_rq_ctx c = kvr_exec_ctx(ex_exec(pool->world));
	struct kvr_rq_orders out;
	const enum kvr_code code =
		kvr_request_session_release(&c, &pool->rq, id, (uint32_t)strlen(id), 0, &out);

	ex_write_lines(pool->world, NULL, &out, false);
	return code;
}

/* ---- time -------------------------------------------------------------------------------- */

static void expire_sessions(struct kvr_sc_world *w, struct kvr_sc_pool *pool)
{
	const struct kvr_rq_ctx c = kvr_exec_ctx(ex_exec(w));
	struct kvr_session_ref due[16];
	struct kvr_rq_orders out;

	while (kvr_session_behind(pool->rq.sessions, w->now)) {
		uint32_t n = kvr_session_due(pool->rq.sessions, w->now, due, RTE_DIM(due));

		for (uint32_t i = 0; i < n; i++) {
			kvr_request_session_due(&c, &pool->rq, due[i], &out);
			ex_write_lines(w, NULL, &out, false);
		}
	}
}

/* Admit from all queues, then expire sessions. The reactions of workers come after that, and may
 * allow more. */
static void admit_waiting(struct kvr_sc_world *w)
{
	do {
		ex_run_due(w);
		for (uint32_t i = 0; i < w->n_pools; i++)
			kvr_exec_admit(ex_exec(w), &ex_pool(&w->pool[i])->exec);
		for (uint32_t i = 0; i < w->n_pools; i++)
			if (w->pool[i].rq.sessions != NULL)
				expire_sessions(w, &w->pool[i]);
		STAILQ_CONCAT(&ex_run(w)->todo, &ex_run(w)->later);
	} while (!STAILQ_EMPTY(&ex_run(w)->todo));
}

static void release_bookings(struct kvr_sc_pool *pool)
{
	uint32_t slot;

	while (kvr_sched_expire(pool->sched, pool->world->now, &slot, 1) == 1) {
		struct kvr_sc_req *r = request_at(pool, slot);

		kvr_sc_line_expired(r);
		apply_event(r,
			    (struct kvr_rq_event){.kind = KVR_RQE_EXPIRED, .leg = leg_of(r, pool)});
	}
}

/* The request whose session open has waited longest for its answer, or NULL. */
static struct kvr_sc_req *find_opening(const struct kvr_sc_world *w)
{
	struct kvr_sc_req *r, *first = NULL;

	TAILQ_FOREACH (r, &w->live, link)
		if (ex_req(r)->open_due != 0 &&
		    (first == NULL || ex_req(r)->open_due < ex_req(first)->open_due))
			first = r;
	return first;
}

/* Return the time to reroute a leg of a pair in @p state. Other requests wait for a retransmission
 * of their client. UINT64_MAX: never, or no other worker took it. */
static uint64_t reroute_due(const struct kvr_sc_req *r, uint32_t leg, enum kvr_rq_state state)
{
	const struct kvr_rq_ctx ctx = kvr_exec_ctx(ex_exec(r->pool->world));

	if (!r->r.paired || r->r.leg[leg].state != state ||
	    r->r.sent_ns[leg] + 1 == ex_req(r)->stays[leg])
		return UINT64_MAX;
	return kvr_request_reroute_due(&ctx, &r->r, leg);
}

/* Return the leg in @p state to reroute first, or NULL. */
static struct kvr_sc_req *find_reroute(const struct kvr_sc_world *w, enum kvr_rq_state state,
				       uint32_t *leg, uint64_t *due)
{
	struct kvr_sc_req *r, *first = NULL;

	*due = UINT64_MAX;
	TAILQ_FOREACH (r, &w->live, link)
		for (uint32_t i = KVR_LEG_MAIN; i <= KVR_LEG_PREFILL; i++)
			if (reroute_due(r, i, state) < *due) {
				*due = reroute_due(r, i, state);
				*leg = i;
				first = r;
			}
	return first;
}

/* Reroute the first leg in @p state that is due. @return false: there is none. */
static bool reroute_leg(struct kvr_sc_world *w, enum kvr_rq_state state)
{
	struct kvr_sc_req *r;
	uint32_t leg;
	uint64_t due;

	r = find_reroute(w, state, &leg, &due);
	if (r == NULL || due > w->now)
		return false;
	ex_req(r)->stays[leg] = r->r.sent_ns[leg] + 1;
	apply_event(r, (struct kvr_rq_event){.kind = KVR_RQE_UNACKED, .leg = (uint8_t)leg});
	return true;
}

static void settle_world(struct kvr_sc_world *w)
{
	struct kvr_sc_req *r;

	/* A decode leg whose blocks were lost starts over after all other effects of the line. */
	do
		admit_waiting(w);
	while (reroute_leg(w, KVR_RQS_RUNNING));
	ex_report_drained(w);
	while ((r = TAILQ_FIRST(&w->dead)) != NULL) {
		TAILQ_REMOVE(&w->dead, r, link);
		kvr_sc_line_free(r->line);
	}
}

static void expire_due(struct kvr_sc_world *w)
{
	struct kvr_sc_req *r;

	for (uint32_t i = 0; i < w->n_pools; i++)
		release_bookings(&w->pool[i]);
	while ((r = find_opening(w)) != NULL && ex_req(r)->open_due <= w->now)
		apply_event(r, (struct kvr_rq_event){.kind = KVR_RQE_UNANSWERED});
	while (reroute_leg(w, KVR_RQS_SENT))
		;
}

static uint64_t next_timer(const struct kvr_sc_world *w)
{
	const struct kvr_sc_req *r = find_opening(w);
	uint64_t t = r != NULL ? ex_req(r)->open_due : UINT64_MAX, due;
	uint32_t leg;

	find_reroute(w, KVR_RQS_SENT, &leg, &due);
	t = RTE_MIN(t, due);
	find_reroute(w, KVR_RQS_RUNNING, &leg, &due);
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
	.pool = start_pool,
	.worker = ex_worker,
	.joined = ex_joined,
	.gone = ex_gone,
	.drain = ex_drain,
	.load = ex_load,
	.blocks = ex_blocks,
	.clear = ex_clear,
	.score = ex_score,
	.loads = list_loads,
	.arrive = start_request,
	.event = apply_event,
	.release = release_session,
	.poll = settle_world,
	.expire = expire_due,
	.timer = next_timer,
};
