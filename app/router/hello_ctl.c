/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames for the control thread: agents that come and go, clients that learn the pools. */
#include "control_pvt.h"
#include "stages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kvr_frame.h"
#include "kvr_message.h"
#include "kvr_put.h"

/* A frame for control; its body has been checked by kvr_body_check(). */
struct ctl_frame {
	const struct kvr_wire_hdr *hdr;
	const uint8_t *body;
	struct kvr_path path;
	uint32_t len; /* of the frame */
};

/* ---- HELLO ---- */

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
		worker_leave(rt, w); /* a new life: nothing of the old one stays */
	}
	w = kvr_registry_add(rt->registry, f->hdr->source, rt->control.now_ns);
	if (w == NULL)
		return errno == ENOSPC ? KVR_E_WORKER_LIMIT : KVR_E_NO_MEMORY;
	w->epoch = f->hdr->epoch;
	w->last_epoch = before;
	w->path = f->path;
	w->path.max_frame = h->max_frame;
	w->transfer = transfer;
	w->pool = p->number;
	w->dp_start = h->dp_start;
	w->dp_size = h->dp_size;
	w->max_num_batched_tokens = h->max_num_batched_tokens;
	w->total_kv_blocks = h->total_kv_blocks;
	w->role = h->role;
	w->flags = h->flags;
	code = worker_join(rt, w, hints);
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
	struct pool *p;

	if (w == NULL)
		return KVR_E_UNKNOWN_WORKER;
	if (w->epoch != f->hdr->epoch)
		return KVR_E_STALE_EPOCH;
	worker_heard(rt, w);
	p = &rt->pool[w->pool];
	if (h->n_ranks != 0) {
		struct load_call lc = {p, w, (const void *)(f->body + sizeof(*h)), h->n_ranks};

		call_lcore(rt, p->sched_lcore, on_sched_load, &lc);
		call_lcore(rt, p->event_lcore, on_event_load, &lc);
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
		worker_leave(rt, w);
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
		.max_message = rt->sizes.max_message,
		.max_frames = rt->sizes.max_frames,
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

void control_frame(struct router *rt, struct rte_mbuf *m)
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
