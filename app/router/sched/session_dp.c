/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Session messages to workers with retransmission, and the effect of lib/request's orders on the
 * pool's sessions; session.h.
 */
#include "lcore/out.h"
#include "sched/session.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "kvr_frame.h"
#include "kvr_put.h"
#include "sched/request.h"

#define MS UINT64_C(1000000)

/* Milliseconds before each retransmission, and after the last one before giving up. */
#define WAITS(X) X(20) X(40) X(80) X(160) X(320) X(640) X(1000) X(1000) X(1000) X(740)
#define WAIT(ms) (ms) * MS,
#define PLUS(ms) +(ms)*MS

static const uint64_t waits[SESSION_WAITS] = {WAITS(WAIT)};
_Static_assert(0 WAITS(PLUS) == KVR_RQ_OPEN_NS, "an open is given up in time");

/* By address only: a restarted front end, or one with several sockets, has other ports. */
uint64_t session_client_tag(const struct router *rt, const struct kvr_path *client)
{
	struct kvr_path host = *client;

	host.udp_port = 0;
	return (uint64_t)(kvr_path_hash(&host, rt->client_seed) >> 1) << 33;
}

static void count(struct sessions *s, enum session_counter c)
{
	kvr_stats_add(s->count, c, 1);
}

/* ---- asks ---- */

static void ask_id(struct session_ask *a, const void *id, uint32_t len)
{
	a->id_len = (uint16_t)len;
	memcpy(a->id, id, len);
}

static struct session_asks *ask_list(struct sessions *s, const struct session_ask *a)
{
	return a->kind == KVR_SESSION_OPEN ? &s->open_step[a->step] : &s->close_step[a->step];
}

static enum session_counter ask_gauge(const struct session_ask *a)
{
	return a->kind == KVR_SESSION_OPEN ? SC_OPENING : SC_CLOSING;
}

/* Send and wait. @return false: the worker has left, so the question does not wait. */
static bool ask_send(struct lcore *lc, struct pool *p, struct session_ask *a)
{
	struct sessions *s = p->sessions;
	const struct kvr_view_worker *w = kvr_view_find(lc->view, a->worker);
	const struct kvr_wire_ids ids = {a->worker, a->number, 0, lc->rt->epoch, 0};
	const struct kvr_wire_session body = {.timeout_s = a->timeout_s,
					      .pool = (uint16_t)p->wire_id};
	uint8_t buf[sizeof(struct kvr_wire_hdr) + sizeof(body) + KVR_SESSION_ID_MAX];
	int len;

	if (w == NULL || w->epoch != a->epoch)
		return false; /* and its sessions with it */
	len = kvr_put_session(buf, sizeof(buf), a->kind, &ids, body,
			      (struct kvr_str){a->id, a->id_len});
	assert(len > 0);
	out_frame(lc, &w->path, buf, (size_t)len);
	a->due_ns = lc->now_ns + waits[a->step];
	TAILQ_INSERT_TAIL(ask_list(s, a), a, link);
	kvr_stats_add(s->count, ask_gauge(a), 1);
	return true;
}

static void ask_stop(struct sessions *s, struct session_ask *a)
{
	TAILQ_REMOVE(ask_list(s, a), a, link);
	kvr_stats_sub(s->count, ask_gauge(a), 1);
}

static void close_over(struct sessions *s, struct session_ask *a, enum session_counter how)
{
	a->kind = 0;
	LIST_REMOVE(a, by_id);
	TAILQ_INSERT_HEAD(&s->free, a, link);
	count(s, how);
}

/* Drop the close that waited longest: the first of the last non-empty step. */
static void give_up_oldest(struct sessions *s)
{
	for (uint32_t step = SESSION_WAITS; step-- > 0;) {
		struct session_ask *a = TAILQ_FIRST(&s->close_step[step]);

		if (a == NULL)
			continue;
		ask_stop(s, a);
		close_over(s, a, SC_CLOSE_DROPPED);
		return;
	}
}

void session_close(struct lcore *lc, struct pool *p, const struct kvr_rq_order *o)
{
	struct sessions *s = p->sessions;
	struct kvr_session_key key = {0};
	struct session_ask *a;

	/* It was valid before. */
	kvr_session_key(s->table, o->session.id, o->session.id_len, &key);

	count(s, SC_CLOSES);
	if (TAILQ_EMPTY(&s->free))
		give_up_oldest(s);
	a = TAILQ_FIRST(&s->free);
	TAILQ_REMOVE(&s->free, a, link);
	a->kind = KVR_SESSION_CLOSE;
	a->step = 0;
	a->worker = o->session.to.worker;
	a->epoch = (uint32_t)o->session.to.tag;
	a->timeout_s = 0;
	a->number = (uint64_t)s->next_close++ << 32 | (uint64_t)p->number << 24 |
		    (uint64_t)(a - s->close);
	ask_id(a, o->session.id, o->session.id_len);
	a->hash = key.hash;
	LIST_INSERT_HEAD(&s->closing[key.hash & (SESSION_BUCKETS - 1)], a, by_id);
	if (!ask_send(lc, p, a))
		close_over(s, a, SC_CLOSE_WORKER_GONE);
}

/* ---- opens ---- */

/* Drop closes of the session at the worker that is to open it, which would arrive too late. */
static void closes_stop(struct sessions *s, const struct session_ask *open)
{
	struct session_ask *a, *next;

	for (a = LIST_FIRST(&s->closing[open->hash & (SESSION_BUCKETS - 1)]); a != NULL; a = next) {
		next = LIST_NEXT(a, by_id);
		s->looked++;
		if (a->hash != open->hash || a->worker != open->worker ||
		    a->id_len != open->id_len || memcmp(a->id, open->id, a->id_len) != 0)
			continue;
		ask_stop(s, a);
		close_over(s, a, SC_CLOSE_DROPPED);
	}
}

void session_open(const struct life *x)
{
	struct session_use *u = &x->p->use[x->r->number];
	const struct kvr_leg *l = &x->r->rq.leg[MAIN];
	const struct kvr_session_key *key = &u->s.key[MAIN];
	struct session_ask *a = &u->ask;
	bool sent;

	count(x->p->sessions, SC_OPENS);
	a->kind = KVR_SESSION_OPEN;
	a->step = 0;
	a->worker = l->worker;
	a->epoch = l->epoch;
	a->number = kvr_flight_handle(x->p->requests, x->r->slot[MAIN]);
	a->timeout_s = (uint32_t)(u->s.timeout_ns / (1000 * MS)) + KVR_WIRE_SESSION_GRACE_S;
	ask_id(a, key->id, key->len);
	a->hash = key->hash;
	closes_stop(x->p->sessions, a);
	sent = ask_send(x->lc, x->p, a);
	assert(sent); /* this view contains its worker */
	RTE_SET_USED(sent);
}

void session_unopen(const struct life *x, const struct kvr_rq_order *o)
{
	struct session_ask *a = &x->p->use[x->r->number].ask;

	if (o->how == KVR_RQ_MAYBE_OPEN)
		count(x->p->sessions, SC_OPEN_ENDED);
	if (a->kind == 0)
		return; /* not waiting any more */
	ask_stop(x->p->sessions, a);
	a->kind = 0;
}

/* ---- session hints of a request ---- */

struct kvr_rq_session *session_of(struct lcore *lc, struct request *r, struct kvr_rq_session *none)
{
	static const uint8_t actions[] = {[KVR_ACTION_NONE] = KVR_RQ_USE,
					  [KVR_ACTION_OPEN] = KVR_RQ_OPEN,
					  [KVR_ACTION_CLOSE] = KVR_RQ_CLOSE};
	const struct pool *p = r->job->pool;
	const struct job_session *js = &r->job->session;
	struct kvr_rq_session *s = p->use != NULL ? &p->use[r->number].s : none;

	s->timeout_ns = js->timeout_s * 1000 * MS;
	s->tag = session_client_tag(lc->rt, &r->job->client);
	s->action = actions[js->action];
	s->id_len = (uint16_t)js->key.len;
	memcpy(s->id, js->key.id, js->key.len);
	return s;
}

void session_dropped(void *pool, uint32_t entry)
{
	struct pool *p = pool;

	kvr_quota_return(p->live.shares.sessions, p->live.shares.session[entry], 1);
	p->live.shares.session[entry] = 0;
}

static void charge_binding(struct pool *p, const struct kvr_rq_order *o, uint32_t share)
{
	struct sessions *s = p->sessions;

	p->live.shares.session[o->session.ref.entry] = share;
	count(s, (o->session.to.tag & KVR_RQ_TAG_AFFINITY) != 0 ? SC_AFFINITY_BOUND : SC_BOUND);
	if (o->n != 0)
		count(s, SC_REBOUND);
}

void session_said(struct pool *p, const struct kvr_path *client, const struct kvr_rq_order *o)
{
	struct sessions *s = p->sessions;

	switch ((enum kvr_rq_session_how)o->how) {
	case KVR_RQ_BOUND:
		charge_binding(p, o,
			       kvr_quota_take(p->live.shares.sessions, kvr_source_key(client), 1));
		break;
	case KVR_RQ_UNBOUND:
		count(s, SC_UNBOUND);
		break;
	case KVR_RQ_INVALIDATED:
		KVR_SIM_SOMETIMES(SESSION_LOST);
		count(s, SC_INVALIDATED);
		break;
	case KVR_RQ_SESSION_OVER:
		count(s, SC_EXPIRED);
		break;
	default:
		break;
	}
}

void session_bound(const struct life *x, const struct kvr_rq_order *o)
{
	struct session_use *u = &x->p->use[x->r->number];

	charge_binding(x->p, o, u->share);
	u->share = 0;
}

void session_charge(const struct life *x)
{
	struct kvr_quota *shares = x->p->live.shares.sessions;
	struct session_use *u;

	if (x->p->sessions == NULL)
		return;
	u = &x->p->use[x->r->number];
	if (u->s.reserved == (u->share != 0))
		return;
	if (u->s.reserved) {
		u->share = kvr_quota_take(shares, kvr_source_key(request_client(x->r)), 1);
	} else {
		kvr_quota_return(shares, u->share, 1);
		u->share = 0;
	}
}

/* ---- answers ---- */

bool session_was_asked(const struct session_ask *a, const struct note *n)
{
	return a->worker == n->session.worker && a->epoch == n->session.epoch;
}

void session_on_closed(struct lcore *lc, struct pool *p, const struct note *n)
{
	const uint32_t i = (uint32_t)n->handle & (KVR_FLIGHT_MAX_SLOTS - 1);
	struct session_ask *a = &p->sessions->close[i % SESSION_CLOSES];

	RTE_SET_USED(lc);
	if (i >= SESSION_CLOSES || a->kind == 0 || a->number != n->handle ||
	    !session_was_asked(a, n)) {
		pool_count(p, PC_LATE_FRAMES, 1); /* repeated, or from another worker */
		return;
	}
	ask_stop(p->sessions, a);
	close_over(p->sessions, a, SC_CLOSED);
}

/* ---- time ---- */

bool session_repeat(struct lcore *lc, struct pool *p, struct session_asks *list, uint64_t *given_up)
{
	struct sessions *s = p->sessions;
	struct session_ask *a = TAILQ_FIRST(list);
	bool gone = false;

	*given_up = 0;
	if (a == NULL || a->due_ns > lc->now_ns)
		return false;
	ask_stop(s, a);
	if (a->step + 1u < SESSION_WAITS) {
		a->step++;
		if (ask_send(lc, p, a))
			return true;
		gone = true;
	}
	if (a->kind == KVR_SESSION_OPEN) {
		a->kind = 0;
		count(s, SC_OPEN_UNANSWERED);
		*given_up = a->number;
	} else {
		close_over(s, a, gone ? SC_CLOSE_WORKER_GONE : SC_CLOSE_UNANSWERED);
	}
	return true;
}
