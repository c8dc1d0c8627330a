/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages about sessions: what workers are asked until they answer; session.h. */
#include "ingress/ingress.h"
#include "ingress/job.h"
#include "ingress/source.h"
#include "lcore/out.h"
#include "sched/session.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "kvr_frame.h"
#include "kvr_put.h"
#include "sched/request.h"

#define MS UINT64_C(1000000)

/* Time before each repetition, and after the last before giving up: 5 s in all. */
static const uint64_t waits[SESSION_WAITS] = {20 * MS,	40 * MS,   80 * MS,   160 * MS,	 320 * MS,
					      640 * MS, 1000 * MS, 1000 * MS, 1000 * MS, 740 * MS};

/* By its address: a front end that has started anew, or has several sockets, has other ports. */
uint64_t session_client_tag(const struct router *rt, const struct kvr_path *client)
{
	struct kvr_path host = *client;

	host.udp_port = 0;
	return (uint64_t)(kvr_path_hash(&host, rt->seed) >> 1) << 33;
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

/* Send it and wait. @return false: the worker has left; the ask is not waiting. */
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
		return false; /* and the session with it */
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

/* The close that has waited longest: the first of the last step that has any. */
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

	/* It was legal once. */
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
		close_over(s, a, SC_CLOSE_GONE);
}

/* ---- ingress lcores ---- */

void session_hint(struct job *j, const struct kvr_hints *h)
{
	j->session = (struct job_session){.action = h->session_action,
					  .timeout_s = h->session_timeout_s};
	j->session.key = (struct kvr_session_key){h->session.p, h->session.len, 0};
	if (h->session.len != 0 && j->pool->sessions != NULL)
		kvr_session_key(j->pool->sessions->table, h->session.p, h->session.len,
				&j->session.key);
}

/* Hand the note of frame @p m over; a full ring drops it, and its sender or the ask repeats. */
static void note_put(struct lcore *lc, struct pool *p, const struct note *n, struct rte_mbuf *m)
{
	if (likely(rte_ring_enqueue_elem(p->notes, (void *)(uintptr_t)n, sizeof(*n)) == 0)) {
		in_count(lc, IN_NOTES);
		if (note_types[n->type].part != NOTE_PART_FRAME)
			rte_pktmbuf_free(m);
		return;
	}
	in_count(lc, IN_IGNORED);
	in_count(lc, IN_RING_FULL);
	rte_pktmbuf_free(m);
}

void session_from_agent(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_session_status *st = kvr_frame_body(h);
	const struct kvr_view_worker *w = kvr_view_find(lc->view, h->source);
	struct pool *p = pool_of_handle(lc->rt, h->id);
	const struct note n = {
		.type = h->kind == KVR_SESSION_OPENED ? NOTE_SESSION_OPENED : NOTE_SESSION_CLOSED,
		.handle = h->id,
		.session = {.worker = h->source, .epoch = h->epoch, .code = st->code},
	};

	if (w == NULL || !kvr_path_same(from, &w->path)) {
		source_refuse(lc, m, from, KVR_E_NOT_ALLOWED);
	} else if (w->epoch != h->epoch) {
		source_refuse(lc, m, from, KVR_E_STALE_EPOCH);
	} else if (p == NULL || p->sessions == NULL) {
		in_count(lc, IN_IGNORED);
		in_count(lc, IN_LATE);
		rte_pktmbuf_free(m);
	} else {
		note_put(lc, p, &n, m);
	}
}

void session_from_client(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_session *b = kvr_frame_body(h);
	const struct note n = {.type = NOTE_SESSION_RELEASE, .m = m};
	struct pool *p = pool_by_id(lc->rt, b->pool);

	if (p == NULL || p->sessions == NULL) {
		source_refuse(lc, m, from, p == NULL ? KVR_E_UNKNOWN_POOL : KVR_E_UNKNOWN_SESSION);
		return;
	}
	path_keep(m, from);
	note_put(lc, p, &n, m);
}

/* ---- opens ---- */

/* Closes of the session at the worker that is to open it come too late now. */
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
	assert(sent); /* its worker was found a moment ago, in this view */
	RTE_SET_USED(sent);
}

void session_unopen(const struct life *x, const struct kvr_rq_order *o)
{
	struct session_ask *a = &x->p->use[x->r->number].ask;

	if (o->how == KVR_RQ_MAYBE_OPEN)
		count(x->p->sessions, SC_OPEN_ENDED);
	if (a->kind == 0)
		return; /* it is not waiting any more */
	ask_stop(x->p->sessions, a);
	a->kind = 0;
}

/* ---- what is said of a request ---- */

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

	kvr_share_give(p->live.shares.sessions, p->live.shares.session[entry], 1);
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
			       kvr_share_take(p->live.shares.sessions, kvr_source_key(client), 1));
		break;
	case KVR_RQ_UNBOUND:
		count(s, SC_UNBOUND);
		break;
	case KVR_RQ_INVALIDATED:
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
	struct kvr_share *shares = x->p->live.shares.sessions;
	struct session_use *u;

	if (x->p->sessions == NULL)
		return;
	u = &x->p->use[x->r->number];
	if (u->s.reserved == (u->share != 0))
		return;
	if (u->s.reserved) {
		u->share = kvr_share_take(shares, kvr_source_key(request_client(x->r)), 1);
	} else {
		kvr_share_give(shares, u->share, 1);
		u->share = 0;
	}
}

/* ---- answers ---- */

/* Whether the answer comes from the one who was asked, in the same life. */
static bool was_asked(const struct session_ask *a, const struct note *n)
{
	return a->worker == n->session.worker && a->epoch == n->session.epoch;
}

void session_on_opened(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct kvr_flight *slot = kvr_flight_by_handle(p->requests, n->handle);
	struct request *r = slot != NULL ? request_of(slot) : NULL;
	const struct kvr_rq_event e = {.kind = n->session.code == 0 ? KVR_RQE_OPENED
								    : KVR_RQE_NOT_OPENED,
				       .code = n->session.code};

	if (r != NULL && leg_of(slot) == MAIN && leg_state(r, MAIN) == KVR_RQS_HELD &&
	    !was_asked(&p->use[r->number].ask, n)) {
		pool_count(p, PC_OUT_OF_TURN, 1); /* not its business */
		return;
	}
	/* Late: ended meanwhile, and it has been closed; or repeated. */
	if (slot_event(lc, p, slot, e) && n->session.code != 0)
		count(p->sessions, SC_OPEN_REFUSED);
}

void session_on_closed(struct lcore *lc, struct pool *p, const struct note *n)
{
	const uint32_t i = (uint32_t)n->handle & (KVR_FLIGHT_MAX_SLOTS - 1);
	struct session_ask *a = &p->sessions->close[i % SESSION_CLOSES];

	RTE_SET_USED(lc);
	if (i >= SESSION_CLOSES || a->kind == 0 || a->number != n->handle || !was_asked(a, n)) {
		pool_count(p, PC_LATE, 1); /* repeated, or not its business */
		return;
	}
	ask_stop(p->sessions, a);
	close_over(p->sessions, a, SC_CLOSED);
}

void session_on_release(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct rte_mbuf *m = n->m;
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_session *b = kvr_frame_body(h);
	const struct kvr_rq_ctx c = life_ctx(lc, p);
	struct kvr_rq_orders out;
	const struct kvr_wire_session_status st = {.code = (uint16_t)kvr_request_session_release(
							   &c, &p->live.rq, b + 1, b->id_len,
							   session_client_tag(lc->rt, path_kept(m)),
							   &out)};

	orders_beside(lc, p, &out);
	if (st.code == KVR_E_NOT_ALLOWED) {
		pool_count(p, PC_STRANGERS, 1);
		out_reject_frame(lc, m, path_kept(m),
				 &(const struct refusal){.code = KVR_E_NOT_ALLOWED});
		return;
	}
	out_message(lc, path_kept(m), KVR_SESSION_RELEASED, h->source, h->id, 0, &st, sizeof(st));
	rte_pktmbuf_free(m);
}

void session_due(struct lcore *lc, struct pool *p, struct kvr_session_ref ref)
{
	const struct kvr_rq_ctx c = life_ctx(lc, p);
	struct kvr_rq_orders out;

	kvr_request_session_due(&c, &p->live.rq, ref, &out);
	orders_beside(lc, p, &out);
}

/* ---- time ---- */

/* An open that was not answered. */
static void open_given_up(struct lcore *lc, struct pool *p, struct session_ask *a)
{
	struct kvr_flight *slot = kvr_flight_by_handle(p->requests, a->number);

	a->kind = 0;
	count(p->sessions, SC_OPEN_UNANSWERED);
	slot_event(lc, p, slot, (struct kvr_rq_event){.kind = KVR_RQE_UNANSWERED});
}

/* The first of a list, when its wait is over: once more, or give up. */
static bool repeat_first(struct lcore *lc, struct pool *p, struct session_asks *list)
{
	struct sessions *s = p->sessions;
	struct session_ask *a = TAILQ_FIRST(list);
	bool gone = false;

	if (a == NULL || a->due_ns > lc->now_ns)
		return false;
	ask_stop(s, a);
	if (a->step + 1u < SESSION_WAITS) {
		a->step++;
		if (ask_send(lc, p, a))
			return true;
		gone = true;
	}
	if (a->kind == KVR_SESSION_OPEN)
		open_given_up(lc, p, a);
	else
		close_over(s, a, gone ? SC_CLOSE_GONE : SC_CLOSE_UNANSWERED);
	return true;
}

void session_timers(struct lcore *lc, struct pool *p)
{
	struct sessions *s = p->sessions;
	uint32_t room = BURST;

	if (s == NULL)
		return;
	if (kvr_stats_get(s->count, SC_OPENING) + kvr_stats_get(s->count, SC_CLOSING) != 0)
		for (uint32_t i = 0; i < SESSION_WAITS; i++) {
			while (room > 0 && repeat_first(lc, p, &s->open_step[i]))
				room--;
			while (room > 0 && repeat_first(lc, p, &s->close_step[i]))
				room--;
		}
}
