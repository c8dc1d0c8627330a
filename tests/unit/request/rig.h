/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RIG_H
#define RIG_H

/**
 * @file
 * An executor without a network. Pools are lists of workers that accept all requests or none;
 * sessions use the real table. The rig carries out every order and keeps accounts: an impossible
 * order (a booking freed twice, a message freed twice, a client answered twice) fails at once.
 * Messages are recorded as text.
 */

#include "rig_pools.h"

/* ---- orders ------------------------------------------------------------------------------ */

static void rig_push(struct rig_call *c, struct kvr_rq_event e)
{
	CU_ASSERT_FATAL(c->n_todo < RIG_EVENTS);
	c->todo[c->n_todo++] = e;
}

static const char *rig_where(const struct kvr_request *r)
{
	switch (r->leg[KVR_LEG_MAIN].state) {
	case KVR_RQS_SENT:
		return "DISPATCHED";
	case KVR_RQS_RUNNING:
	case KVR_RQS_ENDED:
		return "RUNNING";
	case KVR_RQS_FREE:
		return "QUERY";
	default:
		return "QUEUED";
	}
}

static void rig_decide(struct rig *g, struct rig_call *c, const struct kvr_rq_order *o)
{
	struct kvr_rq_pool *p = kvr_request_pool(&c->r, o->leg);
	struct kvr_rq_event e = {.leg = o->leg, .d = &c->d};

	CU_ASSERT(!c->booked[o->leg] && !c->queued[o->leg]);
	if (o->leg == KVR_LEG_PREFILL) {
		/* An affinity or an exclusion left no worker: decide again. */
		CU_ASSERT(!c->prefill_slot || c->r.session != NULL || c->pair.soft);
		c->prefill_slot = true;
	}
	CU_ASSERT(c->msg_kept && c->main_slot);
	rig_route(g, p, o->req, false, &c->d);
	if (o->leg == KVR_LEG_PREFILL && g->no_slot)
		c->d = (struct kvr_sched_decision){.result = KVR_SCHED_ERROR,
						   .err = KVR_E_NO_MEMORY};
	c->booked[o->leg] = c->d.result == KVR_SCHED_ROUTED;
	c->released[o->leg] = false;
	c->queued[o->leg] = c->d.result == KVR_SCHED_QUEUED;
	c->at[o->leg] = c->d.worker;
	e.kind = (uint8_t)kvr_request_decided(&c->d, false);
	rig_push(c, e);
}

static void rig_question(struct rig *g, struct rig_call *c, const struct kvr_rq_order *o)
{
	const bool hold = o->kind == KVR_RQO_HOLD, no = hold ? g->no_hold : g->no_renew;
	struct kvr_rq_event e = {.kind = no ? KVR_RQE_NO_ROOM : KVR_RQE_ROOM,
				 .code = KVR_E_NO_MEMORY};

	if (hold) {
		CU_ASSERT(!c->held);
		c->held = !no;
	} else if (!no) {
		c->muted = c->aborting[0] ? c->at[0] : 0;
		c->aborting[0] = false;
		c->tries++;
	}
	rig_push(c, e);
}

static void rig_session_order(struct rig *g, const struct kvr_rq_order *o)
{
	static const char *const how[] = {"BOUND", "UNBOUND", "EXPIRED", "OPEN_FAILED",
					  "INVALIDATED"};

	if (o->kind == KVR_RQO_CLOSE) {
		g->closes++;
		rig_say(g, "%c.CLOSE", (int)o->session.to.worker);
		return;
	}
	g->bound += o->how == KVR_RQ_BOUND;
	g->unbound += o->how == KVR_RQ_UNBOUND || o->how == KVR_RQ_INVALIDATED;
	g->expired += o->how == KVR_RQ_SESSION_OVER;
	rig_say(g, "s.%s", how[o->how]);
}

static void rig_carry_one(struct rig *g, struct rig_call *c, const struct kvr_rq_order *o)
{
	const uint32_t leg = o->leg;

	switch ((enum kvr_rq_order_kind)o->kind) {
	case KVR_RQO_DECIDE:
		rig_decide(g, c, o);
		break;
	case KVR_RQO_HOLD:
	case KVR_RQO_RENEW:
		rig_question(g, c, o);
		break;
	case KVR_RQO_SEND:
		CU_ASSERT(c->booked[leg] && (c->msg_kept || c->repeated) && !c->r.book);
		rig_say(g, "%c.DISPATCH", (int)c->r.leg[leg].worker);
		break;
	case KVR_RQO_BOOKED:
		CU_ASSERT(c->booked[leg] && c->r.book);
		rig_say(g, "%c.BOOKED", (int)c->r.leg[leg].worker);
		break;
	case KVR_RQO_ABORT:
		CU_ASSERT(!c->aborting[leg] && !c->r.book);
		c->aborting[leg] = true;
		rig_say(g, "%c.ABORT", (int)c->r.leg[leg].worker);
		break;
	case KVR_RQO_OPEN:
		CU_ASSERT(!c->opening && c->booked[0]);
		c->opening = true;
		g->opens++;
		rig_say(g, "%c.OPEN", (int)c->r.leg[0].worker);
		break;
	case KVR_RQO_UNOPEN:
		CU_ASSERT(c->opening);
		c->opening = false;
		break;
	case KVR_RQO_CLOSE:
	case KVR_RQO_SESSION:
		rig_session_order(g, o);
		break;
	case KVR_RQO_ACCEPTED:
		rig_say(g, "c.%s", rig_where(&c->r));
		break;
	case KVR_RQO_REJECTED:
		c->code = o->why.code;
		c->retryable = o->why.retryable;
		memcpy(c->detail, o->why.detail, sizeof(c->detail));
		c->rejected++;
		rig_say(g, "c.%s", kvr_code_name(o->why.code));
		break;
	case KVR_RQO_CANCELLED:
		c->cancels++;
		rig_say(g, "c.CANCELLED");
		break;
	case KVR_RQO_KEEP:
		CU_ASSERT(c->booked[leg] && !c->released[leg]);
		c->kept[leg]++;
		break;
	case KVR_RQO_PREFILL_DONE:
	case KVR_RQO_OUTPUT:
		CU_ASSERT(c->booked[leg]);
		break;
	case KVR_RQO_FREE:
		CU_ASSERT(c->booked[leg]);
		c->booked[leg] = false;
		c->outcome[leg] = o->n;
		break;
	case KVR_RQO_OUTCOME:
		CU_ASSERT(c->booked[leg]);
		c->outcome[leg] = o->n;
		break;
	case KVR_RQO_LEAVE:
		CU_ASSERT(c->queued[leg]);
		c->queued[leg] = false;
		break;
	case KVR_RQO_PREDICT:
		CU_ASSERT(c->booked[leg]);
		g->predicts++;
		break;
	case KVR_RQO_PREFILL:
		break;
	case KVR_RQO_END:
		CU_ASSERT(!c->booked[leg] && !c->queued[leg]);
		CU_ASSERT(leg == 0 ? !c->main_ended : !c->prefill_ended);
		*(leg == 0 ? &c->main_ended : &c->prefill_ended) = true;
		break;
	case KVR_RQO_RELEASE:
		CU_ASSERT(!c->booked[leg] && !c->queued[leg]);
		CU_ASSERT(leg == 0 ? c->main_slot : c->prefill_slot);
		*(leg == 0 ? &c->main_slot : &c->prefill_slot) = false;
		c->prefill_ended = leg == 0 && c->prefill_ended;
		c->aborting[leg] = false;
		break;
	case KVR_RQO_MESSAGE_OVER:
		CU_ASSERT(c->msg_kept);
		c->msg_kept = c->held = false;
		break;
	case KVR_RQO_DONE:
		CU_ASSERT(c->live && !c->msg_kept && !c->main_slot && !c->prefill_slot);
		CU_ASSERT(!c->opening && !c->session.reserved);
		CU_ASSERT(kvr_request_done(&c->r));
		c->live = false;
		break;
	case KVR_RQO_NONE:
	case KVR_RQ_ORDERS_N:
		CU_FAIL("no order");
	}
}

static void rig_carry(struct rig *g, struct rig_call *c, const struct kvr_rq_orders *out)
{
	for (uint32_t i = 0; i < out->n; i++) {
		const uint8_t k = out->v[i].kind;

		if (k == KVR_RQO_DECIDE || k == KVR_RQO_HOLD || k == KVR_RQO_RENEW)
			CU_ASSERT_EQUAL(i, out->n - 1); /* a question is the last */
		rig_carry_one(g, c, &out->v[i]);
	}
}

/* ---- events ------------------------------------------------------------------------------ */

/** One event and all answers that it leads to. */
static enum kvr_rq_verdict rig_event(struct rig *g, struct rig_call *c, struct kvr_rq_event e)
{
	struct kvr_rq_orders out;
	enum kvr_rq_verdict v;

	c->repeated = e.kind == KVR_RQE_REPEATED;
	if (c->repeated && (e.flags & KVR_RQEF_RESEND) != 0 && !c->r.paired && !c->msg_kept) {
		c->msg_kept = true; /* it has come with it */
		e.msg = &c->msg;
	}
	v = kvr_request_step(&g->ctx, &c->r, &e, &out);
	if (e.msg != NULL && c->r.msg == NULL)
		c->msg_kept = false;
	rig_carry(g, c, &out);
	while (c->n_todo > 0) {
		struct kvr_rq_event next = c->todo[0];

		memmove(c->todo, c->todo + 1, --c->n_todo * sizeof(next));
		CU_ASSERT_EQUAL(kvr_request_step(&g->ctx, &c->r, &next, &out), KVR_RQ_GO);
		rig_carry(g, c, &out);
	}
	return v;
}

#define RIG(g, c, k, ...) rig_event(g, c, (struct kvr_rq_event){.kind = KVR_RQE_##k, __VA_ARGS__})

/** A request for @p p; c->msg.hints and c->session may have been set before. */
static void rig_arrive(struct rig *g, struct rig_call *c, struct kvr_rq_pool *p)
{
	struct kvr_rq_orders out;

	c->live = c->msg_kept = c->main_slot = true;
	c->main_ended = c->prefill_ended = c->held = false;
	c->rejected = c->cancels = c->tries = 0;
	c->code = 0;
	c->muted = 0;
	c->msg.pair = p->prefill != NULL ? &c->pair : NULL;
	c->msg.req.isl = 16;
	c->msg.req.phase = p == &g->d ? KVR_ROLE_DECODE : KVR_ROLE_AGGREGATED;
	c->msg.hints.required = c->required;
	c->msg.hints.preferred = c->preferred;
	c->pair.required = c->required;
	c->pair.preferred = c->preferred;
	CU_ASSERT_EQUAL(kvr_request_arrive(&g->ctx, &c->r, p, &c->msg,
					   c->session.id_len != 0 ? &c->session : NULL, &out),
			KVR_RQ_GO);
	rig_carry(g, c, &out);
	while (c->n_todo > 0) {
		struct kvr_rq_event next = c->todo[0];

		memmove(c->todo, c->todo + 1, --c->n_todo * sizeof(next));
		CU_ASSERT_EQUAL(kvr_request_step(&g->ctx, &c->r, &next, &out), KVR_RQ_GO);
		rig_carry(g, c, &out);
	}
}

/** A fresh call. */
static inline struct rig_call *rig_new(struct rig *g)
{
	for (uint32_t i = 0; i < RIG_CALLS; i++)
		if (!g->call[i].live) {
			memset(&g->call[i], 0, sizeof(g->call[i]));
			return &g->call[i];
		}
	return NULL;
}

/** Name a session in the next arrival. */
static inline void rig_session(struct rig_call *c, const char *id, enum kvr_rq_action action)
{
	c->session.id_len = (uint16_t)strlen(id);
	memcpy(c->session.id, id, c->session.id_len);
	c->session.action = (uint8_t)action;
	c->session.timeout_ns = 10000 * MS;
}

/** A leg that waits gets its turn in its pool, or loses it. @return false: it does not wait. */
static inline bool rig_turn(struct rig *g, struct rig_call *c, uint32_t leg)
{
	const struct kvr_sched_req *q = leg == KVR_LEG_PREFILL ? &c->pair.preq
					: c->r.way == KVR_WAY_BOOTSTRAP || c->r.way == KVR_WAY_SYNC
						? &c->pair.dreq
						: &c->msg.req;

	if (!c->live || !c->queued[leg])
		return false;
	rig_route(g, kvr_request_pool(&c->r, leg), q, true, &c->d);
	c->queued[leg] = false;
	c->booked[leg] = c->d.result == KVR_SCHED_ROUTED;
	c->released[leg] = false;
	c->at[leg] = c->d.worker;
	rig_event(g, c,
		  (struct kvr_rq_event){.kind = (uint8_t)kvr_request_decided(&c->d, true),
					.leg = (uint8_t)leg,
					.d = &c->d});
	return true;
}

/** The pool releases the booking of a leg, if it has one. */
static inline void rig_release(struct rig *g, struct rig_call *c, uint32_t leg)
{
	if (!c->live || !c->booked[leg] || c->released[leg])
		return;
	c->released[leg] = true;
	CU_ASSERT_EQUAL(RIG(g, c, EXPIRED, .leg = (uint8_t)leg), KVR_RQ_GO);
}

/** Remove a worker and its bookings; reject requests that wait for no worker. */
static inline void rig_leave(struct rig *g, uint64_t id)
{
	struct rig_worker *w = rig_worker(g, id);

	if (w == NULL)
		return;
	w->here = false;
	rig_count(g);
	for (uint32_t i = 0; i < RIG_CALLS; i++)
		for (uint32_t leg = 0; leg < 2; leg++) {
			struct rig_call *c = &g->call[i];

			if (!c->live || !c->booked[leg] || c->at[leg] != id)
				continue;
			c->booked[leg] = false;
			RIG(g, c, LOST, .leg = (uint8_t)leg);
		}
}

static inline struct rig_worker *rig_join(struct rig *g, uint64_t id, struct kvr_rq_pool *p,
					  bool bootstrap)
{
	static uint32_t epoch;
	struct rig_worker *w = rig_worker(g, id);

	if (w != NULL) { /* a new incarnation */
		rig_leave(g, id);
	} else {
		for (w = g->w; w->here; w++)
			;
	}
	*w = (struct rig_worker){.id = id,
				 .pool = p,
				 .here = true,
				 .epoch = ++epoch,
				 .dp_size = 1,
				 .bootstrap = bootstrap,
				 .taint = ""};
	rig_count(g);
	return w;
}

static inline uint64_t rig_counter(struct rig *g, const struct kvr_rq_pool *p,
				   enum kvr_request_counter c)
{
	(void)g;
	return kvr_stats_get(p->count, c);
}

static inline void rig_pool(struct rig *g, struct kvr_rq_pool *p, struct kvr_pool_conf *conf,
			    int role, uint32_t row, uint32_t sessions)
{
	kvr_pool_conf_defaults(conf);
	conf->role = role;
	conf->max_sessions = sessions;
	kvr_request_pool_init(p, conf, sessions != 0 ? kvr_session_create(sessions, 1, 0) : NULL,
			      kvr_stats_row(g->stats, row));
}

/** Pools a (aggregated), d and p (a pair), without workers. */
static inline void rig_start(struct rig *g, uint32_t sessions, uint64_t affinity_s)
{
	static const struct kvr_rq_ops ops = {rig_ask_worker, rig_ask_alone, rig_ask_session};

	memset(g, 0, sizeof(*g));
	g->stats = kvr_stats_create(&kvr_request_stats, 3);
	rig_pool(g, &g->a, &g->aconf, KVR_ROLE_AGGREGATED, 0, sessions);
	rig_pool(g, &g->d, &g->dconf, KVR_ROLE_DECODE, 1, sessions);
	rig_pool(g, &g->p, &g->pconf, KVR_ROLE_PREFILL, 2, sessions);
	g->a.affinity_ns = g->d.affinity_ns = g->p.affinity_ns = affinity_s * 1000 * MS;
	g->d.prefill = &g->p;
	g->p.disagg = &g->disagg;
	g->a.reroutes = g->d.reroutes = 1;
	g->a.dispatch_ns = g->d.dispatch_ns = 500 * MS;
	kvr_rand_init(&g->rand, 1);
	g->ctx = (struct kvr_rq_ctx){&ops, g, 1000 * MS, &g->rand};
}

/* No request is inside a binding, no room is kept: all of it can be had again. */
static inline void rig_sessions_free(struct rig *g, const struct kvr_rq_pool *p)
{
	struct kvr_session_ref due[8];
	struct kvr_rq_orders out;
	uint32_t n;

	if (p->sessions == NULL)
		return;
	g->ctx.now += 4000000 * MS;
	do {
		n = kvr_session_due(p->sessions, g->ctx.now, due, 8);
		for (uint32_t i = 0; i < n; i++)
			kvr_request_session_due(&g->ctx, (void *)(uintptr_t)p, due[i], &out);
	} while (n != 0 || kvr_session_behind(p->sessions, g->ctx.now));
	CU_ASSERT_EQUAL(kvr_session_count(p->sessions), 0);
	for (uint32_t i = 0; i < p->conf->max_sessions; i++)
		CU_ASSERT_TRUE(kvr_session_reserve(p->sessions));
}

/** Nothing may be left: no slot, booking, message, reservation. */
static inline void rig_stop(struct rig *g)
{
	struct kvr_rq_pool *const pools[] = {&g->a, &g->d, &g->p};

	for (uint32_t i = 0; i < RIG_CALLS; i++)
		CU_ASSERT(!g->call[i].live);
	for (uint32_t i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(kvr_stats_get(pools[i]->count, KVR_RQC_ARRIVED),
				kvr_stats_get(pools[i]->count, KVR_RQC_FORGOTTEN) +
					kvr_stats_get(pools[i]->count, KVR_RQC_DONE));
		for (uint32_t b = 0; b < KVR_RQ_BUCKETS; b++)
			CU_ASSERT_FATAL(LIST_EMPTY(&pools[i]->opening[b]));
		rig_sessions_free(g, pools[i]);
		kvr_session_destroy(pools[i]->sessions);
	}
	kvr_stats_destroy(g->stats);
}

/* ---- programs without faults ------------------------------------------------------------- */

/** What the workers and the client have left to do of one request. @return whether any. */
static inline bool rig_go_on(struct rig *g, struct rig_call *c)
{
	const struct kvr_leg *m = &c->r.leg[KVR_LEG_MAIN], *p = &c->r.leg[KVR_LEG_PREFILL];

	if (c->aborting[0] || c->muted != 0) {
		if (c->aborting[0]) {
			RIG(g, c, ABORTED);
			c->aborting[0] = false;
			RIG(g, c, FIN, .flags = KVR_RQEF_CANCELLED);
			rig_say(g, "c.FIN-CANCELLED");
		}
		c->muted = 0;
		return true;
	}
	if (c->aborting[1]) {
		RIG(g, c, ABORTED, .leg = KVR_LEG_PREFILL);
		return true;
	}
	if (rig_turn(g, c, KVR_LEG_PREFILL) || rig_turn(g, c, KVR_LEG_MAIN))
		return true;
	if (p->state == KVR_RQS_SENT || p->state == KVR_RQS_RUNNING) {
		RIG(g, c, FIN, .leg = KVR_LEG_PREFILL, .flags = KVR_RQEF_RESULT);
	} else if (m->state == KVR_RQS_HELD) {
		RIG(g, c, OPENED);
	} else if (m->state == KVR_RQS_SENT || m->state == KVR_RQS_RUNNING) {
		RIG(g, c, FIN, .flags = KVR_RQEF_FIRST, .tokens = 4);
		rig_say(g, "c.FIN");
	} else {
		return false;
	}
	return true;
}

static inline void rig_finish(struct rig *g)
{
	bool any;

	g->full_a = g->full_d = g->full_p = false;
	g->refuse = KVR_OK;
	do {
		any = false;
		for (uint32_t i = 0; i < RIG_CALLS; i++)
			if (g->call[i].live)
				any |= rig_go_on(g, &g->call[i]);
	} while (any);
	for (uint32_t i = 0; i < RIG_CALLS; i++)
		if (g->call[i].live)
			RIG(g, &g->call[i], FIN_ACKED);
}

#endif
