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

static void session_count(struct sessions *sessions, enum session_counter c)
{
	kvr_stats_add(sessions->count, c, 1);
}

/* ---- asks ---- */

static void ask_id(struct session_ask *ask, const void *id, uint32_t len)
{
	ask->id_len = (uint16_t)len;
	memcpy(ask->id, id, len);
}

static struct session_asks *ask_list(struct sessions *sessions, const struct session_ask *ask)
{
	return ask->kind == KVR_SESSION_OPEN ? &sessions->open_step[ask->step]
					     : &sessions->close_step[ask->step];
}

static enum session_counter ask_gauge(const struct session_ask *ask)
{
	return ask->kind == KVR_SESSION_OPEN ? SC_OPENING : SC_CLOSING;
}

/* Send and wait. @return false: the worker has left, so the question does not wait. */
static bool ask_send(struct lcore *lc, struct pool *pool, struct session_ask *ask)
{
	struct sessions *sessions = pool->sessions;
	const struct kvr_view_worker *worker = kvr_view_find(lc->view, ask->worker);
	const struct kvr_wire_ids ids = {ask->worker, ask->number, 0, lc->rt->epoch, 0};
	const struct kvr_wire_session body = {.timeout_s = ask->timeout_s,
					      .pool = (uint16_t)pool->wire_id};
	uint8_t buf[sizeof(struct kvr_wire_hdr) + sizeof(body) + KVR_SESSION_ID_MAX];
	int len;

	if (worker == NULL || worker->epoch != ask->epoch)
		return false; /* and its sessions with it */
	len = kvr_put_session(buf, sizeof(buf), ask->kind, &ids, body,
			      (struct kvr_str){ask->id, ask->id_len});
	assert(len > 0);
	out_frame(lc, &worker->path, buf, (size_t)len);
	ask->due_ns = lc->now_ns + waits[ask->step];
	TAILQ_INSERT_TAIL(ask_list(sessions, ask), ask, link);
	kvr_stats_add(sessions->count, ask_gauge(ask), 1);
	return true;
}

static void ask_stop(struct sessions *sessions, struct session_ask *ask)
{
	TAILQ_REMOVE(ask_list(sessions, ask), ask, link);
	kvr_stats_sub(sessions->count, ask_gauge(ask), 1);
}

static void close_over(struct sessions *sessions, struct session_ask *ask, enum session_counter how)
{
	ask->kind = 0;
	LIST_REMOVE(ask, by_id);
	TAILQ_INSERT_HEAD(&sessions->free, ask, link);
	session_count(sessions, how);
}

/* Drop the close that waited longest: the first of the last non-empty step. */
static void give_up_oldest(struct sessions *sessions)
{
	for (uint32_t step = SESSION_WAITS; step-- > 0;) {
		struct session_ask *ask = TAILQ_FIRST(&sessions->close_step[step]);

		if (ask == NULL)
			continue;
		ask_stop(sessions, ask);
		close_over(sessions, ask, SC_CLOSE_DROPPED);
		return;
	}
}

void session_close(struct lcore *lc, struct pool *pool, const struct kvr_rq_order *order)
{
	struct sessions *sessions = pool->sessions;
	struct kvr_session_key key = {0};
	struct session_ask *ask;

	/* It was valid before. */
	kvr_session_key(sessions->table, order->session.id, order->session.id_len, &key);

	session_count(sessions, SC_CLOSES);
	if (TAILQ_EMPTY(&sessions->free))
		give_up_oldest(sessions);
	ask = TAILQ_FIRST(&sessions->free);
	TAILQ_REMOVE(&sessions->free, ask, link);
	ask->kind = KVR_SESSION_CLOSE;
	ask->step = 0;
	ask->worker = order->session.to.worker;
	ask->epoch = (uint32_t)order->session.to.tag;
	ask->timeout_s = 0;
	ask->number = (uint64_t)sessions->next_close++ << 32 | (uint64_t)pool->number << 24 |
		      (uint64_t)(ask - sessions->close);
	ask_id(ask, order->session.id, order->session.id_len);
	ask->hash = key.hash;
	LIST_INSERT_HEAD(&sessions->closing[key.hash & (SESSION_BUCKETS - 1)], ask, by_id);
	if (!ask_send(lc, pool, ask))
		close_over(sessions, ask, SC_CLOSE_WORKER_GONE);
}

/* ---- opens ---- */

/* Drop closes of the session at the worker that is to open it, which would arrive too late. */
static void closes_stop(struct sessions *sessions, const struct session_ask *open)
{
	struct session_ask *ask, *next;

	for (ask = LIST_FIRST(&sessions->closing[open->hash & (SESSION_BUCKETS - 1)]); ask != NULL;
	     ask = next) {
		next = LIST_NEXT(ask, by_id);
		sessions->looked++;
		if (ask->hash != open->hash || ask->worker != open->worker ||
		    ask->id_len != open->id_len || memcmp(ask->id, open->id, ask->id_len) != 0)
			continue;
		ask_stop(sessions, ask);
		close_over(sessions, ask, SC_CLOSE_DROPPED);
	}
}

void session_open(const struct request_step *step)
{
	struct session_use *use = &step->pool->use[step->req->number];
	const struct kvr_leg *l = &step->req->rq.leg[MAIN];
	const struct kvr_session_key *key = &use->s.key[MAIN];
	struct session_ask *ask = &use->ask;
	bool sent;

	session_count(step->pool->sessions, SC_OPENS);
	ask->kind = KVR_SESSION_OPEN;
	ask->step = 0;
	ask->worker = l->worker;
	ask->epoch = l->epoch;
	ask->number = kvr_flight_handle(step->pool->requests, step->req->slot[MAIN]);
	ask->timeout_s = (uint32_t)(use->s.timeout_ns / (1000 * MS)) + KVR_WIRE_SESSION_GRACE_S;
	ask_id(ask, key->id, key->len);
	ask->hash = key->hash;
	closes_stop(step->pool->sessions, ask);
	sent = ask_send(step->lc, step->pool, ask);
	assert(sent); /* this view contains its worker */
	RTE_SET_USED(sent);
}

void session_unopen(const struct request_step *step, const struct kvr_rq_order *order)
{
	struct session_ask *ask = &step->pool->use[step->req->number].ask;

	if (order->how == KVR_RQ_MAYBE_OPEN)
		session_count(step->pool->sessions, SC_OPEN_ENDED);
	if (ask->kind == 0)
		return; /* not waiting any more */
	ask_stop(step->pool->sessions, ask);
	ask->kind = 0;
}

/* ---- session hints of a request ---- */

struct kvr_rq_session *session_of(struct lcore *lc, struct request *req,
				  struct kvr_rq_session *none)
{
	static const uint8_t actions[] = {[KVR_ACTION_NONE] = KVR_RQ_USE,
					  [KVR_ACTION_OPEN] = KVR_RQ_OPEN,
					  [KVR_ACTION_CLOSE] = KVR_RQ_CLOSE};
	const struct pool *pool = req->job->pool;
	const struct job_session *js = &req->job->session;
	struct kvr_rq_session *s = pool->use != NULL ? &pool->use[req->number].s : none;

	s->timeout_ns = js->timeout_s * 1000 * MS;
	s->tag = session_client_tag(lc->rt, &req->job->client);
	s->action = actions[js->action];
	s->id_len = (uint16_t)js->key.len;
	memcpy(s->id, js->key.id, js->key.len);
	return s;
}

void session_dropped(void *pool, uint32_t entry)
{
	struct pool *p = pool;

	kvr_quota_return(p->live.quotas.sessions, p->live.quotas.session[entry], 1);
	p->live.quotas.session[entry] = 0;
}

static void charge_binding(struct pool *pool, const struct kvr_rq_order *order, uint32_t share)
{
	struct sessions *sessions = pool->sessions;

	pool->live.quotas.session[order->session.ref.entry] = share;
	session_count(sessions, (order->session.to.tag & KVR_RQ_TAG_AFFINITY) != 0
					? SC_AFFINITY_BOUND
					: SC_BOUND);
	if (order->n != 0)
		session_count(sessions, SC_REBOUND);
}

void session_order(struct pool *pool, const struct kvr_path *client,
		   const struct kvr_rq_order *order)
{
	struct sessions *sessions = pool->sessions;

	switch ((enum kvr_rq_session_how)order->how) {
	case KVR_RQ_BOUND:
		charge_binding(
			pool, order,
			kvr_quota_take(pool->live.quotas.sessions, kvr_source_key(client), 1));
		break;
	case KVR_RQ_UNBOUND:
		session_count(sessions, SC_UNBOUND);
		break;
	case KVR_RQ_INVALIDATED:
		KVR_SIM_SOMETIMES(SESSION_LOST);
		session_count(sessions, SC_INVALIDATED);
		break;
	case KVR_RQ_SESSION_OVER:
		session_count(sessions, SC_EXPIRED);
		break;
	default:
		break;
	}
}

void session_bound(const struct request_step *step, const struct kvr_rq_order *order)
{
	struct session_use *use = &step->pool->use[step->req->number];

	charge_binding(step->pool, order, use->quota_ref);
	use->quota_ref = 0;
}

void session_charge(const struct request_step *step)
{
	struct kvr_quota *quota = step->pool->live.quotas.sessions;
	struct session_use *use;

	if (step->pool->sessions == NULL)
		return;
	use = &step->pool->use[step->req->number];
	if (use->s.reserved == (use->quota_ref != 0))
		return;
	if (use->s.reserved) {
		use->quota_ref =
			kvr_quota_take(quota, kvr_source_key(request_client(step->req)), 1);
	} else {
		kvr_quota_return(quota, use->quota_ref, 1);
		use->quota_ref = 0;
	}
}

/* ---- answers ---- */

bool session_ask_matches(const struct session_ask *ask, const struct sched_msg *msg)
{
	return ask->worker == msg->session.worker && ask->epoch == msg->session.epoch;
}

void session_handle_closed(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	const uint32_t i = (uint32_t)msg->handle & (KVR_FLIGHT_MAX_SLOTS - 1);
	struct session_ask *ask = &pool->sessions->close[i % SESSION_CLOSES];

	RTE_SET_USED(lc);
	if (i >= SESSION_CLOSES || ask->kind == 0 || ask->number != msg->handle ||
	    !session_ask_matches(ask, msg)) {
		pool_count(pool, PC_LATE_FRAMES, 1); /* repeated, or from another worker */
		return;
	}
	ask_stop(pool->sessions, ask);
	close_over(pool->sessions, ask, SC_CLOSED);
}

/* ---- time ---- */

bool session_repeat(struct lcore *lc, struct pool *pool, struct session_asks *list,
		    uint64_t *given_up)
{
	struct sessions *sessions = pool->sessions;
	struct session_ask *ask = TAILQ_FIRST(list);
	bool gone = false;

	*given_up = 0;
	if (ask == NULL || ask->due_ns > lc->now_ns)
		return false;
	ask_stop(sessions, ask);
	if (ask->step + 1u < SESSION_WAITS) {
		ask->step++;
		if (ask_send(lc, pool, ask))
			return true;
		gone = true;
	}
	if (ask->kind == KVR_SESSION_OPEN) {
		ask->kind = 0;
		session_count(sessions, SC_OPEN_UNANSWERED);
		*given_up = ask->number;
	} else {
		close_over(sessions, ask, gone ? SC_CLOSE_WORKER_GONE : SC_CLOSE_UNANSWERED);
	}
	return true;
}
