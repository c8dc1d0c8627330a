/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions in the life of a request; session.h says what happens when. */
#include "session.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "kvr_frame.h"
#include "kvr_put.h"
#include "stages.h"

#define MS UINT64_C(1000000)

/* Time before each repetition, and after the last before giving up: 5 s in all. */
static const uint64_t waits[SESSION_WAITS] = {20 * MS,	40 * MS,   80 * MS,   160 * MS,	 320 * MS,
					      640 * MS, 1000 * MS, 1000 * MS, 1000 * MS, 740 * MS};

/* kvr_session_binding::tag: epoch of the worker:32, what kind of binding:1, its client's path:31.
 */
#define TAG_AFFINITY	 (UINT64_C(1) << 32)
#define TAG_CLIENT_SHIFT 33

/* By its address: a front end that has started anew, or has several sockets, has other ports. */
static uint64_t client_tag(const struct router *rt, const struct kvr_path *client)
{
	struct kvr_path host = *client;

	host.udp_port = 0;
	return (uint64_t)(kvr_path_hash(&host, rt->seed) >> 1) << TAG_CLIENT_SHIFT;
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
	const struct kvr_wire_session body = {.timeout_s = a->timeout_s, .pool = (uint16_t)p->id};
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

/* Tell a worker that a session is over. */
static void close_start(struct lcore *lc, struct pool *p, uint64_t worker, uint32_t epoch,
			const void *id, uint32_t len)
{
	struct sessions *s = p->sessions;
	struct kvr_session_key key = {0};
	struct session_ask *a;

	kvr_session_key(s->table, id, len, &key); /* it was legal once */

	count(s, SC_CLOSES);
	if (TAILQ_EMPTY(&s->free))
		give_up_oldest(s);
	a = TAILQ_FIRST(&s->free);
	TAILQ_REMOVE(&s->free, a, link);
	a->kind = KVR_SESSION_CLOSE;
	a->step = 0;
	a->worker = worker;
	a->epoch = epoch;
	a->timeout_s = 0;
	a->number = (uint64_t)s->next_close++ << 32 | (uint64_t)p->number << 24 |
		    (uint64_t)(a - s->close);
	ask_id(a, id, len);
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

/* Hand a frame's note over; a full ring drops it, and its sender or the ask repeats. */
static void note_put(struct lcore *lc, struct pool *p, const struct note *n, struct rte_mbuf *m)
{
	if (likely(rte_ring_enqueue_elem(p->notes, (void *)(uintptr_t)n, sizeof(*n)) == 0)) {
		in_count(lc, IN_NOTES);
		if (n->ptr != m)
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
		.code = st->code,
		.handle = h->id,
		.ptr = (void *)(uintptr_t)h->source, /* the worker that says so */
		.tokens = h->epoch,		     /* and its life */
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
	const struct note n = {.type = NOTE_SESSION_RELEASE, .ptr = m};
	struct pool *p = pool_by_id(lc->rt, b->pool);

	if (p == NULL || p->sessions == NULL) {
		source_refuse(lc, m, from, p == NULL ? KVR_E_UNKNOWN_POOL : KVR_E_UNKNOWN_SESSION);
		return;
	}
	path_keep(m, from);
	note_put(lc, p, &n, m);
}

/* ---- before the decision ---- */

static bool is_affinity(const struct kvr_session_binding *to)
{
	return (to->tag & TAG_AFFINITY) != 0;
}

static bool worker_lives(const struct lcore *lc, const struct kvr_session_binding *to)
{
	const struct kvr_view_worker *w = kvr_view_find(lc->view, to->worker);

	return w != NULL && w->epoch == (uint32_t)to->tag;
}

/* The binding of a key, when there is one; one that turns out to be over is closed. */
static bool find(struct lcore *lc, struct pool *p, const struct kvr_session_key *key,
		 struct kvr_session_binding *to, struct kvr_session_ref *ref)
{
	switch (kvr_session_resolve(p->sessions->table, key, lc->now_ns, to, ref)) {
	case KVR_SESSION_BOUND:
		return true;
	case KVR_SESSION_EXPIRED:
		count(p->sessions, SC_EXPIRED);
		if (!is_affinity(to))
			close_start(lc, p, to->worker, (uint32_t)to->tag, key->id, key->len);
		return false;
	default:
		return false;
	}
}

/* Whether the client has pinned the request itself, in the way of the pool's phase. */
static bool pinned_by_client(const struct pool *p, const struct kvr_sched_hints *h)
{
	return (h->flags &
		(p->role == KVR_POOL_PREFILL ? KVR_SHINT_PREFILL_ID | KVR_SHINT_BACKEND_ID
					     : KVR_SHINT_DECODE_ID | KVR_SHINT_BACKEND_ID)) != 0;
}

/* The hints that pin in the way of the pool's phase. */
static uint32_t pin_flags(const struct pool *p)
{
	/* In a pair backend_id would name the worker of the other leg as well. */
	return p->role == KVR_POOL_PREFILL  ? KVR_SHINT_PREFILL_ID | KVR_SHINT_PREFILL_DP_RANK
	       : p->role == KVR_POOL_DECODE ? KVR_SHINT_DECODE_ID | KVR_SHINT_DP_RANK
					    : KVR_SHINT_BACKEND_ID | KVR_SHINT_DP_RANK;
}

static void pin(const struct pool *p, struct job_session *js, struct kvr_sched_hints *h,
		const struct kvr_session_binding *to)
{
	const bool keep_rank = !is_affinity(to) && (h->flags & KVR_SHINT_DP_RANK) != 0;

	js->pin = is_affinity(to) ? SESSION_PIN_AFFINITY : SESSION_PIN_EXPLICIT;
	js->flags_before = h->flags;
	h->flags |= pin_flags(p);
	if (p->role == KVR_POOL_PREFILL) {
		h->prefill_id = to->worker;
		h->prefill_dp_rank = to->dp_rank;
	} else {
		h->backend_id = h->decode_id = to->worker; /* pin_flags() says which counts */
		h->dp_rank = keep_rank ? h->dp_rank : to->dp_rank;
	}
}

/* A request of a session that is bound. */
static enum kvr_wire_code enter_bound(struct lcore *lc, struct pool *p, struct job_session *js,
				      struct kvr_sched_hints *h,
				      const struct kvr_session_binding *to,
				      struct kvr_session_ref ref)
{
	if (worker_lives(lc, to)) {
		/* Direct mode wants the client's own word; only an explicit session is one. */
		if (!pinned_by_client(p, h) &&
		    !(is_affinity(to) && p->conf->mode == KVR_MODE_DIRECT))
			pin(p, js, h, to);
		return KVR_OK;
	}
	if (is_affinity(to)) {
		kvr_session_unbind_ref(p->sessions->table, ref);
		count(p->sessions, SC_INVALIDATED);
		return KVR_OK;
	}
	return pinned_by_client(p, h) ? KVR_OK : KVR_E_SESSION_WORKER_GONE;
}

/* A pool without sessions. */
static enum kvr_wire_code enter_off(uint8_t action)
{
	return action == KVR_ACTION_OPEN    ? KVR_E_SESSION_LIMIT
	       : action == KVR_ACTION_CLOSE ? KVR_E_UNKNOWN_SESSION
					    : KVR_OK;
}

/* Whether another request opens the id now. */
static bool being_opened(struct sessions *s, const struct kvr_session_key *key)
{
	const struct job_session *js;

	LIST_FOREACH (js, &s->opening[key->hash & (SESSION_BUCKETS - 1)], opening) {
		s->looked++;
		if (js->key.hash == key->hash && js->key.len == key->len &&
		    memcmp(js->key.id, key->id, key->len) == 0)
			return true;
	}
	return false;
}

/* Room for a binding, and the id for this request alone, until session_job_free(). */
static enum kvr_wire_code open_reserve(struct sessions *s, struct job_session *js)
{
	if (being_opened(s, &js->key)) {
		count(s, SC_OPEN_BUSY);
		return KVR_E_SESSION_OPEN_FAILED;
	}
	js->reserved = kvr_session_reserve(s->table);
	if (!js->reserved) {
		count(s, SC_REFUSED);
		return KVR_E_SESSION_LIMIT;
	}
	LIST_INSERT_HEAD(&s->opening[js->key.hash & (SESSION_BUCKETS - 1)], js, opening);
	return KVR_OK;
}

enum kvr_wire_code session_enter(struct lcore *lc, struct pool *p, struct job_session *js,
				 struct kvr_sched_hints *h, bool query)
{
	struct kvr_session_binding to;
	struct kvr_session_ref ref;
	enum kvr_wire_code code = KVR_OK;

	if (likely(js->key.len == 0))
		return KVR_OK;
	if (p->sessions == NULL)
		return enter_off(js->action);
	if (find(lc, p, &js->key, &to, &ref))
		code = enter_bound(lc, p, js, h, &to, ref);
	else if (js->action == KVR_ACTION_CLOSE)
		code = KVR_E_UNKNOWN_SESSION;
	if (code != KVR_OK || js->action != KVR_ACTION_OPEN || query)
		return code;
	return open_reserve(p->sessions, js);
}

static void unpin(const struct pool *p, struct job_session *js, struct kvr_sched_hints *h)
{
	js->pin = SESSION_PIN_NONE;
	h->flags = (h->flags & ~pin_flags(p)) | (js->flags_before & pin_flags(p));
}

bool session_unpin(struct pool *p, struct job_session *js, struct kvr_sched_hints *h,
		   enum kvr_sched_err err, bool query)
{
	if (js->pin != SESSION_PIN_AFFINITY ||
	    (err != KVR_SCHED_NO_ENDPOINTS && err != KVR_SCHED_PIN_NOT_ALLOWED))
		return false;
	unpin(p, js, h);
	if (!query && kvr_session_unbind(p->sessions->table, &js->key, NULL))
		count(p->sessions, SC_INVALIDATED);
	return true;
}

void session_prefill(const struct pool *p, const struct job_session *js, struct job_session *out,
		     struct kvr_sched_hints *h)
{
	if (out->pin != SESSION_PIN_NONE)
		unpin(p, out, h);
	*out = (struct job_session){.key = {js->key.id, js->key.len, 0}};
	if (js->key.len != 0 && p->sessions != NULL)
		kvr_session_key(p->sessions->table, js->key.id, js->key.len, &out->key);
}

void session_job_free(struct job *j)
{
	if (likely(!j->session.reserved))
		return;
	LIST_REMOVE(&j->session, opening);
	kvr_session_unreserve(j->pool->sessions->table);
	j->session.reserved = false;
}

/* ---- after the decision ---- */

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

static void open_start(struct lcore *lc, struct pool *p, struct kvr_flight *r,
		       const struct job_session *js)
{
	struct session_use *u = &p->sessions->use[r->slot];
	struct session_ask *a = &u->ask;
	bool sent;

	count(p->sessions, SC_OPENS);
	u->part = SESSION_OPENS;
	a->kind = KVR_SESSION_OPEN;
	a->step = 0;
	a->worker = r->relay.worker;
	a->epoch = kvr_view_find(lc->view, a->worker)->epoch; /* found a moment ago */
	a->number = kvr_flight_handle(p->requests, r);
	a->timeout_s = js->timeout_s + KVR_WIRE_SESSION_GRACE_S;
	ask_id(a, js->key.id, js->key.len);
	a->hash = js->key.hash;
	closes_stop(p->sessions, a);
	sent = ask_send(lc, p, a);
	assert(sent); /* its worker was found a moment ago, in this view */
	RTE_SET_USED(sent);
}

/* Unbind now, tell the worker later: it is still needed for this request. */
static void close_later(struct pool *p, struct kvr_flight *r, struct job_session *js)
{
	struct session_use *u = &p->sessions->use[r->slot];
	struct kvr_session_binding to = {.worker = js->closing, .tag = js->closing_epoch};

	if (!js->closes) {
		if (!kvr_session_unbind(p->sessions->table, &js->key, &to))
			return;
		count(p->sessions, SC_UNBOUND);
	}
	js->closes = false; /* by the leg that was stopped: this one takes it over */
	u->part = SESSION_CLOSES_IT;
	u->ask.worker = to.worker;
	u->ask.epoch = (uint32_t)to.tag;
	ask_id(&u->ask, js->key.id, js->key.len);
}

/* With affinity: into the binding when the request went there, to be bound when there is none. */
static void use_affinity(struct lcore *lc, struct pool *p, struct kvr_flight *r,
			 const struct kvr_session_key *key)
{
	struct session_use *u = &p->sessions->use[r->slot];
	struct kvr_session_binding to;

	if (!find(lc, p, key, &to, &u->ref)) {
		u->part = SESSION_BINDS;
		ask_id(&u->ask, key->id, key->len);
	} else if (is_affinity(&to) && to.worker == r->relay.worker && to.dp_rank == r->dp_rank) {
		u->part = SESSION_INSIDE;
		kvr_session_enter(p->sessions->table, u->ref);
	}
}

bool session_routed(struct lcore *lc, struct pool *p, struct kvr_flight *r, struct job_session *js)
{
	if (likely(js->key.len == 0) || p->sessions == NULL)
		return false;
	switch (js->action) {
	case KVR_ACTION_OPEN:
		open_start(lc, p, r, js);
		return true;
	case KVR_ACTION_CLOSE:
		close_later(p, r, js);
		return false;
	default:
		if (p->sessions->affinity_ttl_ns != 0)
			use_affinity(lc, p, r, &js->key);
		return false;
	}
}

void session_dropped(void *pool, uint32_t entry)
{
	struct pool *p = pool;

	kvr_share_give(p->shares.sessions, p->shares.session[entry], 1);
	p->shares.session[entry] = 0;
}

/* Bind to the worker of `r`. @return 0 or -ENOSPC. */
static int bind(struct lcore *lc, struct pool *p, const struct kvr_flight *r,
		const struct kvr_session_key *key, uint64_t ttl_ns, uint64_t kind,
		struct kvr_session_ref *ref)
{
	struct sessions *s = p->sessions;
	const struct kvr_view_worker *w = kvr_view_find(lc->view, r->relay.worker);
	const struct kvr_session_binding to = {r->relay.worker, r->dp_rank,
					       client_tag(lc->rt, &r->relay.client) | kind |
						       (w != NULL ? w->epoch : 0)};
	const uint32_t before = kvr_session_count(s->table);
	struct kvr_session_ref bound;
	uint32_t share;
	int rc;

	/* Opened ones have been asked for when they came. */
	if (kind == TAG_AFFINITY && !share_session_may(p, &r->relay.client, NULL))
		return -ENOSPC;
	share = kvr_share_take(p->shares.sessions, kvr_source_key(&r->relay.client), 1);
	rc = kvr_session_bind(s->table, key, &to, ttl_ns, lc->now_ns, &bound);
	if (rc < 0) {
		kvr_share_give(p->shares.sessions, share, 1);
		return rc;
	}
	p->shares.session[bound.entry] = share;
	if (ref != NULL)
		*ref = bound;
	count(s, kind == TAG_AFFINITY ? SC_AFFINITY_BOUND : SC_BOUND);
	if (kvr_session_count(s->table) == before)
		count(s, SC_REBOUND);
	return 0;
}

void session_success(struct lcore *lc, struct pool *p, struct kvr_flight *r)
{
	struct session_use *u;
	struct kvr_session_key key;

	if (likely(p->sessions == NULL || p->sessions->affinity_ttl_ns == 0))
		return;
	u = &p->sessions->use[r->slot];
	if (u->part != SESSION_BINDS)
		return;
	u->part = SESSION_NO_PART;
	kvr_session_key(p->sessions->table, u->ask.id, u->ask.id_len, &key);
	use_affinity(lc, p, r, &key); /* another request of the session may have been first */
	if (u->part != SESSION_BINDS)
		return;
	if (bind(lc, p, r, &key, p->sessions->affinity_ttl_ns, TAG_AFFINITY, &u->ref) < 0) {
		count(p->sessions, SC_REFUSED);
		u->part = SESSION_NO_PART;
		return;
	}
	u->part = SESSION_INSIDE;
	kvr_session_enter(p->sessions->table, u->ref);
}

/* ---- the end of a request ---- */

/* Tell a worker that a session is over, unless it has been opened there again. */
static void close_unless_bound(struct lcore *lc, struct pool *p, uint64_t worker, uint32_t epoch,
			       const struct kvr_session_key *key)
{
	struct kvr_session_binding to;

	if (!find(lc, p, key, &to, NULL) || is_affinity(&to) || to.worker != worker)
		close_start(lc, p, worker, epoch, key->id, key->len);
}

/* A leg ends that has opened or closed a session. */
static void close_asked(struct lcore *lc, struct pool *p, const struct session_ask *a)
{
	struct kvr_session_key key;

	kvr_session_key(p->sessions->table, a->id, a->id_len, &key);
	close_unless_bound(lc, p, a->worker, a->epoch, &key);
}

void session_close_left(struct lcore *lc, struct pool *p, struct job_session *js)
{
	if (likely(!js->closes))
		return;
	js->closes = false;
	close_unless_bound(lc, p, js->closing, js->closing_epoch, &js->key);
}

void session_ended(struct lcore *lc, struct pool *p, struct kvr_flight *r, enum pool_counter how)
{
	struct session_use *u;
	enum session_part part;
	struct job *j = r->job;

	if (p->sessions == NULL)
		return;
	u = &p->sessions->use[r->slot];
	part = u->part;
	u->part = SESSION_NO_PART;
	switch (part) {
	case SESSION_OPENS: /* by something else than the answer: it may be opened all the same */
		ask_stop(p->sessions, &u->ask);
		count(p->sessions, SC_OPEN_ENDED);
		close_asked(lc, p, &u->ask);
		break;
	case SESSION_CLOSES_IT:
		if (how != PC_STOPPED) {
			close_asked(lc, p, &u->ask);
			break;
		}
		/* Only the prefill leg has failed: the request may go on, in the same session. */
		j->session.closes = true;
		j->session.closing = u->ask.worker;
		j->session.closing_epoch = u->ask.epoch;
		break;
	case SESSION_INSIDE:
		/* A leg that ends because the other one has failed says nothing of its worker. */
		if (how == PC_FINISHED || how == PC_CANCELLED || how == PC_STOPPED)
			kvr_session_leave(p->sessions->table, u->ref, lc->now_ns);
		else if (kvr_session_unbind_ref(p->sessions->table, u->ref))
			count(p->sessions, SC_INVALIDATED);
		break;
	default:
		break;
	}
}

/* ---- answers ---- */

/* Whether the answer comes from the one who was asked, in the same life. */
static bool was_asked(const struct session_ask *a, const struct note *n)
{
	return a->worker == (uintptr_t)n->ptr && a->epoch == n->tokens;
}

/* The open of `r` is over without a session. The ask is not waiting any more. */
static void open_failed(struct lcore *lc, struct pool *p, struct kvr_flight *r,
			enum session_counter how, uint32_t code)
{
	count(p->sessions, how);
	p->sessions->use[r->slot].part = SESSION_NO_PART;
	sched_fail(lc, p, r, KVR_E_SESSION_OPEN_FAILED, code, PC_REFUSED);
}

/* Should this leg be stopped, the next try is a request of the session like any other. */
static void went_open(const struct pool *p, const struct kvr_flight *r, struct job *j)
{
	const struct kvr_session_binding to = {r->relay.worker, r->dp_rank, 0};

	if (r->legs == NULL)
		return; /* its job is not needed again */
	j->session.action = KVR_ACTION_NONE;
	if (!pinned_by_client(p, &j->hints))
		pin(p, &j->session, &j->hints, &to);
}

/*
 * Whether the id, opened now at @p at, was opened elsewhere before: that worker must be told, as
 * nobody will name it there any more.
 */
static bool opened_elsewhere(struct lcore *lc, struct pool *p, const struct kvr_session_key *key,
			     const struct session_ask *at, struct kvr_session_binding *old)
{
	switch (kvr_session_resolve(p->sessions->table, key, lc->now_ns, old, NULL)) {
	case KVR_SESSION_NONE:
		return false;
	case KVR_SESSION_EXPIRED:
		count(p->sessions, SC_EXPIRED);
		break;
	case KVR_SESSION_BOUND:
		break;
	}
	return !is_affinity(old) && (old->worker != at->worker || (uint32_t)old->tag != at->epoch);
}

void session_on_opened(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct kvr_flight *r = kvr_flight_by_handle(p->requests, n->handle);
	struct kvr_session_binding old;
	struct session_use *u;
	struct job *j;
	bool elsewhere;
	int rc;

	if (!sched_may(p, r, KVR_LIFE_OPENED))
		return; /* ended meanwhile: it has been closed; or repeated */
	u = &p->sessions->use[r->slot];
	if (!was_asked(&u->ask, n)) {
		pool_count(p, PC_OUT_OF_TURN, 1); /* not its business */
		return;
	}
	assert(u->part == SESSION_OPENS); /* what holds a request */
	ask_stop(p->sessions, &u->ask);
	if (n->code != 0) {
		open_failed(lc, p, r, SC_OPEN_REFUSED, n->code);
		return;
	}
	u->part = SESSION_NO_PART;
	j = r->job;
	elsewhere = opened_elsewhere(lc, p, &j->session.key, &u->ask, &old);
	session_job_free(j); /* the room that was kept for this */
	rc = bind(lc, p, r, &j->session.key, j->session.timeout_s * 1000 * MS, 0, NULL);
	assert(rc == 0);
	RTE_SET_USED(rc);
	if (elsewhere)
		close_start(lc, p, old.worker, (uint32_t)old.tag, u->ask.id, u->ask.id_len);
	went_open(p, r, j);
	sched_go_on(lc, p, r);
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
	struct rte_mbuf *m = n->ptr;
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_session *b = kvr_frame_body(h);
	struct kvr_wire_session_status st = {.code = KVR_E_UNKNOWN_SESSION};
	struct kvr_session_binding to;
	struct kvr_session_key key;

	kvr_session_key(p->sessions->table, b + 1, b->id_len, &key);
	if (find(lc, p, &key, &to, NULL)) {
		if (to.tag >> TAG_CLIENT_SHIFT !=
		    client_tag(lc->rt, path_kept(m)) >> TAG_CLIENT_SHIFT) {
			pool_count(p, PC_STRANGERS, 1);
			out_reject_frame(lc, m, path_kept(m),
					 &(const struct refusal){.code = KVR_E_NOT_ALLOWED});
			return;
		}
		kvr_session_unbind(p->sessions->table, &key, NULL);
		count(p->sessions, SC_UNBOUND);
		close_start(lc, p, to.worker, (uint32_t)to.tag, key.id, key.len);
		st.code = KVR_OK;
	}
	out_message(lc, path_kept(m), KVR_SESSION_RELEASED, h->source, h->id, 0, &st, sizeof(st));
	rte_pktmbuf_free(m);
}

void session_due(struct lcore *lc, struct pool *p, struct kvr_session_ref ref)
{
	struct kvr_session_ended e;

	if (!kvr_session_confirm(p->sessions->table, ref, lc->now_ns, &e))
		return;
	count(p->sessions, SC_EXPIRED);
	if (!is_affinity(&e.to))
		close_start(lc, p, e.to.worker, (uint32_t)e.to.tag, e.id, e.len);
}

/* ---- time ---- */

/* An open that was not answered. */
static void open_given_up(struct lcore *lc, struct pool *p, struct session_ask *a)
{
	struct kvr_flight *r = kvr_flight_by_handle(p->requests, a->number);

	close_asked(lc, p, a);
	open_failed(lc, p, r, SC_OPEN_UNANSWERED, 0);
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
