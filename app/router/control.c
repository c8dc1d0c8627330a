/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control thread: workers come and go, clients learn the pools, time passes. It owns the
 * registry; it changes what packet lcores own only by calling them (call_lcore()) and by publishing
 * views. It sleeps between rounds and never touches a packet of the data path.
 *
 *   HELLO      ranks get dense indices (scheduler lcore), empty index and cursor (event lcore),
 *              then the view is published and only then the worker becomes available
 *   silence    suspect after suspect_ms (out of selection), gone after dead_ms
 *   gone       bookings end with WorkerLost, blocks are forgotten, the view is published
 */
#include "control.h"
#include "router.h"
#include "session.h"
#include "stages.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_log.h>

#include "kvr_ctl.h"
#include "kvr_frame.h"
#include "kvr_message.h"
#include "kvr_put.h"

#define ROUND_NS     1000000 /* 1 ms */
#define TICK_NS	     UINT64_C(10000000)
#define FRAMES_ROUND 256u

/* A frame for control; its body has been checked by kvr_body_check(). */
struct ctl_frame {
	const struct kvr_wire_hdr *hdr;
	const uint8_t *body;
	struct kvr_path path;
	uint32_t len; /* of the frame */
};

/* ---- calling packet lcores ---- */

void call_lcore(struct router *rt, struct lcore *lc, void (*fn)(struct lcore *, void *), void *arg)
{
	struct call c = {.fn = fn, .arg = arg};

	atomic_init(&c.done, 0);
	if (!atomic_load_explicit(&rt->running, memory_order_relaxed)) {
		fn(lc, arg); /* nobody polls: before the start and after the stop */
		return;
	}
	while (rte_ring_sp_enqueue(lc->calls, &c) != 0)
		rte_delay_us_sleep(10);
	/* Pairs with the release store in calls_poll(): the callee's writes are visible. */
	while (atomic_load_explicit(&c.done, memory_order_acquire) == 0)
		rte_delay_us_sleep(10);
}

/* ---- views ---- */

static int publish_view(struct router *rt)
{
	struct kvr_view *v = kvr_view_build(rt->registry), *old;

	if (v == NULL)
		return -ENOMEM;
	old = atomic_load_explicit(&rt->view, memory_order_relaxed);
	/* Pairs with the acquire load at the top of each lcore's loop. */
	atomic_store_explicit(&rt->view, v, memory_order_release);
	if (atomic_load_explicit(&rt->running, memory_order_relaxed))
		rte_rcu_qsbr_synchronize(rt->qsbr, RTE_QSBR_THRID_INVALID);
	kvr_view_free(old);
	rt->control.view = v;
	return 0;
}

/* ---- workers: what happens on the other lcores ---- */

struct worker_call {
	struct pool *pool;
	struct kvr_worker *w;
	const struct kvr_hints *hints; /* of the HELLO */
	bool flag;
	int rc;
	uint32_t value;
};

#define TOPOLOGY_TAINT "dynamo.topology/" /* + "key=value": section 9.4 */

/* The taints a worker says, and one for each place it is in. @return how many. */
static uint32_t worker_taints(const struct kvr_hints *h, struct kvr_sched_str out[],
			      char text[][KVR_WORKER_TEXT + sizeof(TOPOLOGY_TAINT)])
{
	uint32_t n = 0;

	for (; n < h->n_taints; n++)
		out[n] = (struct kvr_sched_str){h->taint[n].p, h->taint[n].len};
	for (uint32_t i = 0; i < h->n_topology; i++) {
		const int len = snprintf(text[i], sizeof(text[i]), TOPOLOGY_TAINT "%.*s",
					 (int)h->topology[i].len, h->topology[i].p);

		out[n++] = (struct kvr_sched_str){text[i], (uint32_t)len};
	}
	return n;
}

static void on_sched_set(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;
	struct kvr_sched_str taint[KVR_HINTS_MAX_TAINTS + KVR_HINTS_MAX_TOPOLOGY];
	char text[KVR_HINTS_MAX_TOPOLOGY][KVR_WORKER_TEXT + sizeof(TOPOLOGY_TAINT)];
	struct kvr_sched_worker sw = {
		.id = c->w->id,
		.dp_start = c->w->dp_start,
		.dp_size = c->w->dp_size,
		.total_kv_blocks = c->w->total_kv_blocks,
		.max_num_batched_tokens = c->w->max_num_batched_tokens,
		.cpu = (c->w->flags & KVR_HELLO_F_CPU) != 0,
		.taints = taint,
	};

	sw.n_taints = worker_taints(c->hints, taint, text);
	c->rc = kvr_sched_worker_set(c->pool->sched, &sw, lc->now_ns);
	if (c->rc < 0)
		return;
	/* Not before every lcore can find it: see join(). */
	kvr_sched_worker_available(c->pool->sched, c->w->id, false, lc->now_ns);
	for (uint32_t i = 0; i < c->w->dp_size; i++)
		c->w->rank[i] = kvr_sched_rank_find(c->pool->sched, c->w->id, c->w->dp_start + i);
}

static void on_sched_gone(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;

	/* First, so that its requests are not offered to a prefill side that nobody is left of. */
	if (c->pool->decode != NULL)
		c->flag = kvr_disagg_workers(&c->pool->disagg, c->value);
	c->rc = kvr_sched_worker_gone(c->pool->sched, c->w->id, lc->now_ns);
}

static void on_sched_available(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;

	c->rc = kvr_sched_worker_available(c->pool->sched, c->w->id, c->flag, lc->now_ns);
}

static void on_sched_drain(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;

	c->rc = kvr_sched_worker_drain(c->pool->sched, c->w->id, c->flag, lc->now_ns);
}

static void on_sched_bookings(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;

	RTE_SET_USED(lc);
	c->value = kvr_sched_worker_bookings(c->pool->sched, c->w->id);
}

static void on_event_reset(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;

	for (uint32_t i = 0; i < c->w->dp_size; i++)
		event_reset_rank(lc, c->pool, c->w->rank[i], c->w->epoch);
}

/* A prefill pool has got a worker. */
static void on_sched_disagg(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;

	RTE_SET_USED(lc);
	c->flag = kvr_disagg_workers(&c->pool->disagg, c->value);
}

static void on_sched_hold(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;

	RTE_SET_USED(lc);
	c->rc = kvr_disagg_hold(&c->pool->disagg, c->flag);
	c->flag = kvr_disagg_active(&c->pool->disagg);
}

static void call_sched(struct router *rt, struct worker_call *c, void (*fn)(struct lcore *, void *))
{
	call_lcore(rt, c->pool->sched_lcore, fn, c);
}

/* ---- workers: their life ---- */

static void set_state(struct router *rt, struct kvr_worker *w, enum kvr_wire_worker_state to)
{
	enum kvr_wire_worker_state from = w->state;

	if (kvr_worker_set_state(w, to, rt->control.now_ns) == 0)
		RTE_LOG(NOTICE, USER1, "kvroute: worker %" PRIu64 " %s -> %s\n", w->id,
			kvr_worker_state_name(from), kvr_worker_state_name(to));
}

static uint32_t pool_workers(const struct router *rt, const struct pool *p)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++)
		n += kvr_registry_at(rt->registry, i)->pool == p->number;
	return n;
}

static void log_prefill(const struct pool *p, bool active)
{
	RTE_LOG(NOTICE, USER1, "kvroute: prefill pool %s %s\n", p->name,
		active ? "active" : "inactive");
}

/* A prefill side takes part from its pool's first worker on: section 9.1. */
static void activate_prefill(struct router *rt, struct pool *p)
{
	struct worker_call c = {.pool = p, .value = pool_workers(rt, p)};

	if (p->decode == NULL)
		return;
	call_sched(rt, &c, on_sched_disagg);
	if (c.flag)
		log_prefill(p, true);
}

static void leave(struct router *rt, struct kvr_worker *w)
{
	struct worker_call c = {.pool = &rt->pool[w->pool], .w = w};

	c.value = pool_workers(rt, c.pool) - 1;
	set_state(rt, w, KVR_WORKER_GONE);
	call_sched(rt, &c, on_sched_gone);
	if (c.flag)
		log_prefill(c.pool, false);
	call_lcore(rt, c.pool->event_lcore, on_event_reset, &c);
	kvr_registry_del(rt->registry, w);
	publish_view(rt);
}

static void welcome(struct router *rt, const struct kvr_worker *w, uint64_t id)
{
	const struct kvr_wire_welcome m = {
		.pool = (uint16_t)rt->pool[w->pool].id,
		.heartbeat_ms = rt->conf.opt.heartbeat_ms,
		.dead_ms = rt->conf.opt.dead_ms,
		.max_frame = rt->max_frame,
	};

	out_message(&rt->control, &w->path, KVR_WELCOME, w->id, id, 0, &m, sizeof(m));
}

static struct pool *pool_by_name(struct router *rt, const struct kvr_str *name)
{
	for (uint32_t i = 0; i < rt->n_pools; i++)
		if (strlen(rt->pool[i].name) == name->len &&
		    memcmp(rt->pool[i].name, name->p, name->len) == 0)
			return &rt->pool[i];
	return NULL;
}

/* Whether the HELLO fits the pool. */
static enum kvr_wire_code check_hello(struct router *rt, const struct kvr_wire_hello *h,
				      const struct kvr_hints *hints, struct pool **pool)
{
	if (hints->n_pools != 1)
		return KVR_E_HINT;
	*pool = pool_by_name(rt, &hints->pool[0]);
	if (*pool == NULL)
		return KVR_E_UNKNOWN_POOL;
	if (h->block_size != (*pool)->block_size || h->dp_size == 0 ||
	    h->dp_size > KVR_WORKER_MAX_RANKS || h->dp_start > UINT32_MAX - h->dp_size ||
	    h->role != (*pool)->role ||
	    h->max_frame < KVR_WIRE_MIN_FRAME + sizeof(struct kvr_wire_request))
		return KVR_E_WORKER_CONFIG;
	return KVR_OK;
}

/* Where the blocks of a prefill worker can go, and how they are fetched. */
static enum kvr_wire_code read_transfer(const struct kvr_hints *h, struct kvr_worker_transfer *t)
{
	const struct kvr_str *domain = &h->kv_transfer_domain;

	*t = (struct kvr_worker_transfer){.port = h->bootstrap_port,
					  .enforcement = h->kv_transfer_enforcement,
					  .weight = h->kv_transfer_weight};
	if (h->bootstrap_host.len != 0 && h->bootstrap_port == 0)
		return KVR_E_WORKER_CONFIG;
	snprintf(t->host, sizeof(t->host), "%.*s", (int)h->bootstrap_host.len, h->bootstrap_host.p);
	for (uint32_t i = 0; i < h->n_topology && domain->len != 0; i++) {
		const struct kvr_str *at = &h->topology[i];

		if (at->len <= domain->len || at->p[domain->len] != '=' ||
		    memcmp(at->p, domain->p, domain->len) != 0)
			continue;
		if (snprintf(t->taint, sizeof(t->taint), TOPOLOGY_TAINT "%.*s", (int)at->len,
			     at->p) >= (int)sizeof(t->taint))
			return KVR_E_WORKER_CONFIG;
	}
	return KVR_OK;
}

static enum kvr_wire_code join(struct router *rt, struct kvr_worker *w, struct pool *p,
			       const struct kvr_wire_hello *h, const struct kvr_hints *hints)
{
	struct worker_call c = {.pool = p, .w = w, .hints = hints};

	w->pool = p->number;
	w->dp_start = h->dp_start;
	w->dp_size = h->dp_size;
	w->max_num_batched_tokens = h->max_num_batched_tokens;
	w->total_kv_blocks = h->total_kv_blocks;
	w->role = h->role;
	w->flags = h->flags;
	call_sched(rt, &c, on_sched_set);
	if (c.rc < 0) {
		kvr_registry_del(rt->registry, w);
		return c.rc == -ENOSPC ? KVR_E_WORKER_LIMIT : KVR_E_WORKER_CONFIG;
	}
	call_lcore(rt, p->event_lcore, on_event_reset, &c);
	set_state(rt, w, KVR_WORKER_SERVING);
	if (publish_view(rt) < 0) {
		leave(rt, w);
		return KVR_E_NO_MEMORY;
	}
	c.flag = true;
	call_sched(rt, &c, on_sched_available);
	activate_prefill(rt, p);
	return KVR_OK;
}

static enum kvr_wire_code hello(struct router *rt, const struct ctl_frame *f,
				const struct kvr_wire_hello *h, const struct kvr_hints *hints)
{
	struct kvr_worker *w = kvr_registry_find(rt->registry, f->hdr->source);
	struct pool *p = NULL;
	struct kvr_worker_transfer transfer;
	uint32_t before = 0;
	enum kvr_wire_code code = check_hello(rt, h, hints, &p);

	if (code == KVR_OK)
		code = read_transfer(hints, &transfer);
	if (code != KVR_OK)
		return code;
	if (w != NULL && w->epoch == f->hdr->epoch && w->pool == p->number &&
	    w->dp_start == h->dp_start && w->dp_size == h->dp_size) {
		/* Said again; the answer was lost, or the agent has a new socket. */
		w->last_seen_ns = rt->control.now_ns;
		if (!kvr_path_same(&w->path, &f->path) || w->path.max_frame != h->max_frame) {
			w->path = f->path;
			w->path.max_frame = h->max_frame;
			publish_view(rt);
		}
		welcome(rt, w, f->hdr->id);
		return KVR_OK;
	}
	if (w != NULL && f->hdr->epoch == w->last_epoch)
		return KVR_E_STALE_EPOCH; /* a late copy from the life before this one */
	if (w != NULL) {
		before = w->epoch;
		leave(rt, w); /* a new life: nothing of the old one stays */
	}
	w = kvr_registry_add(rt->registry, f->hdr->source, rt->control.now_ns);
	if (w == NULL)
		return errno == ENOSPC ? KVR_E_WORKER_LIMIT : KVR_E_NO_MEMORY;
	w->epoch = f->hdr->epoch;
	w->last_epoch = before;
	w->path = f->path;
	w->path.max_frame = h->max_frame;
	w->transfer = transfer;
	code = join(rt, w, p, h, hints);
	if (code == KVR_OK)
		welcome(rt, w, f->hdr->id);
	return code;
}

/* ---- frames for control ---- */

static enum kvr_wire_code on_hello(struct router *rt, const struct ctl_frame *f)
{
	const struct kvr_wire_hello *h = (const void *)f->body;
	struct kvr_hints hints;
	int code;

	if (f->hdr->epoch == 0)
		return KVR_E_STALE_EPOCH;
	code = kvr_hints_parse(f->body + sizeof(*h), h->hints_len, KVR_HINTS_HELLO, &hints);
	return code != 0 ? (enum kvr_wire_code)code : hello(rt, f, h, &hints);
}

struct load_call {
	struct pool *pool;
	const struct kvr_worker *w;
	const struct kvr_wire_rank_load *load;
	uint32_t n;
};

static void on_sched_load(struct lcore *lc, void *arg)
{
	struct load_call *c = arg;

	for (uint32_t i = 0; i < c->n; i++)
		if (c->load[i].kv_used_blocks != UINT64_MAX)
			kvr_sched_load_report(c->pool->sched, c->w->id, c->load[i].dp_rank,
					      c->load[i].kv_used_blocks, lc->now_ns);
}

static void on_event_load(struct lcore *lc, void *arg)
{
	struct load_call *c = arg;

	for (uint32_t i = 0; i < c->n; i++)
		event_heartbeat(lc, c->pool, c->w, &c->load[i]);
}

static enum kvr_wire_code on_heartbeat(struct router *rt, const struct ctl_frame *f)
{
	const struct kvr_wire_heartbeat *h = (const void *)f->body;
	struct kvr_worker *w = kvr_registry_find(rt->registry, f->hdr->source);
	struct kvr_wire_heartbeat_ack ack = {0};
	struct worker_call c;

	if (w == NULL)
		return KVR_E_UNKNOWN_WORKER;
	if (w->epoch != f->hdr->epoch)
		return KVR_E_STALE_EPOCH;
	w->last_seen_ns = rt->control.now_ns;
	c = (struct worker_call){.pool = &rt->pool[w->pool], .w = w, .flag = true};
	if (w->state == KVR_WORKER_SUSPECT) {
		set_state(rt, w, KVR_WORKER_SERVING);
		call_sched(rt, &c, on_sched_available);
	}
	if (h->n_ranks != 0) {
		struct load_call lc = {c.pool, w, (const void *)(f->body + sizeof(*h)), h->n_ranks};

		call_lcore(rt, c.pool->sched_lcore, on_sched_load, &lc);
		call_lcore(rt, c.pool->event_lcore, on_event_load, &lc);
	}
	ack.state = (uint16_t)w->state;
	ack.bookings = w->bookings;
	out_message(&rt->control, &f->path, KVR_HEARTBEAT_ACK, w->id, f->hdr->id, 0, &ack,
		    sizeof(ack));
	return KVR_OK;
}

static enum kvr_wire_code on_goodbye(struct router *rt, const struct ctl_frame *f)
{
	struct kvr_worker *w = kvr_registry_find(rt->registry, f->hdr->source);

	if (w != NULL && w->epoch == f->hdr->epoch)
		leave(rt, w);
	out_message(&rt->control, &f->path, KVR_GOODBYE_ACK, f->hdr->source, f->hdr->id, 0, NULL,
		    0);
	return KVR_OK;
}

static bool pool_wanted(const struct pool *p, const struct kvr_hints *hints)
{
	for (uint32_t i = 0; i < hints->n_pools; i++)
		if (strlen(p->name) == hints->pool[i].len &&
		    memcmp(p->name, hints->pool[i].p, hints->pool[i].len) == 0)
			return true;
	return hints->n_pools == 0;
}

static uint32_t ranks_of(struct router *rt, uint32_t pool)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++) {
		const struct kvr_worker *w = kvr_registry_at(rt->registry, i);

		n += w->pool == pool ? w->dp_size : 0;
	}
	return n;
}

/* The answer must fit what the client takes, what the path carries, and may not be longer than the
 * question: whoever asks has not proven his address yet. */
static size_t client_limit(struct router *rt, const struct kvr_wire_connect *c,
			   const struct kvr_path *path, uint32_t question)
{
	size_t limit = out_limit(&rt->control, path);
	const uint32_t room = source_room(rt, path, question);

	if (c->max_frame != 0)
		limit = RTE_MIN(limit, c->max_frame);
	return room != 0 ? RTE_MIN(limit, room) : limit;
}

static enum kvr_wire_code on_connect(struct router *rt, const struct ctl_frame *f)
{
	const struct kvr_wire_connect *c = (const void *)f->body;
	uint8_t buf[KVR_WIRE_MAX_FRAME];
	struct kvr_wire_pool pools[KVR_ROUTER_MAX_POOLS];
	struct kvr_str names[KVR_ROUTER_MAX_POOLS];
	const struct kvr_wire_ids ids = {f->hdr->source, f->hdr->id, 0, rt->epoch, 0};
	struct kvr_wire_connected limits = {
		.max_frame = rt->max_frame,
		.max_tokens = KVR_WIRE_MAX_TOKENS,
		.max_hashes = KVR_WIRE_MAX_HASHES,
		.max_body = KVR_WIRE_MAX_BODY,
		.max_message = KVR_WIRE_MAX_MESSAGE,
		.max_frames = KVR_WIRE_MAX_FRAGMENTS,
	};
	struct kvr_hints hints;
	uint32_t n = 0;
	int rc = kvr_hints_parse(f->body + sizeof(*c), c->hints_len, KVR_HINTS_CONNECT, &hints);

	if (rc != 0)
		return (enum kvr_wire_code)rc;
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		if (!pool_wanted(&rt->pool[i], &hints))
			continue;
		names[n] = (struct kvr_str){rt->pool[i].name, (uint32_t)strlen(rt->pool[i].name)};
		pools[n++] = (struct kvr_wire_pool){
			.pool = (uint16_t)rt->pool[i].id,
			.role = rt->pool[i].role,
			.block_size = rt->pool[i].block_size,
			.ranks = ranks_of(rt, i),
		};
	}
	if (rt->rules[f->path.port].cookie)
		limits.cookie = kvr_cookie(&rt->cookie_key, &f->path, rt->control.now_ns);
	rc = kvr_put_connected(buf, client_limit(rt, c, &f->path, f->len), &ids, limits, pools,
			       names, n);
	if (rc < 0)
		return KVR_E_LENGTH; /* shorter than the least answer */
	out_frame(&rt->control, &f->path, buf, (size_t)rc);
	return KVR_OK;
}

static void control_frame(struct router *rt, struct rte_mbuf *m)
{
	struct ctl_frame f = {.hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *),
			      .path = *path_kept(m),
			      .len = m->pkt_len};
	enum kvr_wire_code code;

	f.body = kvr_frame_body(f.hdr);
	code = (enum kvr_wire_code)kvr_body_check(f.hdr->kind, f.body, f.hdr->msg_len, NULL);
	if (code == KVR_OK)
		switch (f.hdr->kind) {
		case KVR_HELLO:
			code = on_hello(rt, &f);
			break;
		case KVR_HEARTBEAT:
			code = on_heartbeat(rt, &f);
			break;
		case KVR_GOODBYE:
			code = on_goodbye(rt, &f);
			break;
		case KVR_CONNECT:
			code = on_connect(rt, &f);
			break;
		}
	if (code != KVR_OK)
		out_reject(&rt->control, &f.path, f.hdr->kind, f.hdr->source, f.hdr->id,
			   &(const struct refusal){.code = code,
						   .room = source_room(rt, &f.path, f.len)});
	rte_pktmbuf_free(m);
}

/* ---- time ---- */

static void check_silence(struct router *rt, struct kvr_worker *w)
{
	const uint64_t silent_ms = (rt->control.now_ns - w->last_seen_ns) / 1000000;
	struct worker_call c = {.pool = &rt->pool[w->pool], .w = w};

	if (silent_ms >= rt->conf.opt.dead_ms) {
		leave(rt, w);
	} else if (silent_ms >= rt->conf.opt.suspect_ms && w->state == KVR_WORKER_SERVING) {
		set_state(rt, w, KVR_WORKER_SUSPECT);
		call_sched(rt, &c, on_sched_available);
	}
}

static void check_drained(struct router *rt, struct kvr_worker *w)
{
	struct worker_call c = {.pool = &rt->pool[w->pool], .w = w};

	call_sched(rt, &c, on_sched_bookings);
	w->bookings = c.value;
	if (w->state == KVR_WORKER_DRAINING && w->bookings == 0)
		set_state(rt, w, KVR_WORKER_DRAINED);
}

static void tick(struct router *rt)
{
	/* leave() removes the worker from the registry: walk from the end. */
	for (uint32_t i = kvr_registry_count(rt->registry); i-- > 0;) {
		struct kvr_worker *w = kvr_registry_at(rt->registry, i);

		if (w->state == KVR_WORKER_DRAINING)
			check_drained(rt, w);
		check_silence(rt, w);
	}
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		const struct note n = {.type = NOTE_TICK};

		/* A full ring only delays expiry to the next tick. */
		rte_ring_enqueue_elem(rt->pool[i].notes, (void *)(uintptr_t)&n, sizeof(n));
	}
}

int control_drain(struct router *rt, uint64_t id, bool draining)
{
	struct kvr_worker *w = kvr_registry_find(rt->registry, id);
	struct worker_call c;

	if (w == NULL)
		return -ENOENT;
	if (!kvr_worker_may(w->state, draining ? KVR_WORKER_DRAINING : KVR_WORKER_SERVING))
		return w->state == (draining ? KVR_WORKER_DRAINING : KVR_WORKER_SERVING) ? -EALREADY
											 : -EPERM;
	c = (struct worker_call){.pool = &rt->pool[w->pool], .w = w, .flag = draining};
	call_sched(rt, &c, on_sched_drain);
	set_state(rt, w, draining ? KVR_WORKER_DRAINING : KVR_WORKER_SERVING);
	return 0;
}

int control_deactivate(struct router *rt, const char *name, bool off)
{
	struct worker_call c = {.flag = off};

	for (uint32_t i = 0; i < rt->n_pools; i++)
		if (strcmp(rt->pool[i].name, name) == 0)
			c.pool = &rt->pool[i];
	if (c.pool == NULL)
		return -ENOENT;
	if (c.pool->decode == NULL)
		return -EINVAL;
	call_sched(rt, &c, on_sched_hold);
	if (c.rc != 0)
		log_prefill(c.pool, c.flag);
	return c.flag;
}

void control_bookings(struct router *rt)
{
	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++)
		check_drained(rt, kvr_registry_at(rt->registry, i));
}

void control_round(struct router *rt)
{
	struct rte_mbuf *m[FRAMES_ROUND];
	unsigned int n;

	kvr_ctl_lock();
	rt->control.now_ns = now_ns(rt);
	n = rte_ring_sc_dequeue_burst(rt->control_ring, (void **)m, FRAMES_ROUND, NULL);
	for (unsigned int i = 0; i < n; i++)
		control_frame(rt, m[i]);
	if (rt->control.now_ns - rt->last_tick_ns >= TICK_NS) {
		rt->last_tick_ns = rt->control.now_ns;
		tick(rt);
	}
	session_round(rt);
	kvr_ctl_unlock();
}

void control_run(struct router *rt)
{
	const struct timespec pause = {.tv_nsec = ROUND_NS};

	while (!atomic_load_explicit(&rt->quit, memory_order_relaxed)) {
		control_round(rt);
		nanosleep(&pause, NULL);
	}
}
