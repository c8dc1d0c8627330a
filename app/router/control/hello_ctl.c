/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames for the control thread: HELLO and GOODBYE of agents, CONNECT of clients. */
#include "control/thread.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kvr_frame.h"
#include "kvr_message.h"
#include "kvr_put.h"
#include "lcore/frame_kind.h"
#include "lcore/out.h"

/* ---- HELLO ---- */

/* Check the HELLO against its pool. */
static enum kvr_code check_hello(struct router *rt, const struct kvr_wire_hello *h,
				 const struct kvr_hints *hints, struct pool **pool)
{
	if (hints->n_pools != 1)
		return KVR_E_HINT;
	*pool = pool_by_name(rt, hints->pools[0].p, hints->pools[0].len);
	if (*pool == NULL)
		return KVR_E_UNKNOWN_POOL;
	if (h->block_size != (*pool)->block_size || h->dp_size > KVR_WORKER_MAX_RANKS ||
	    h->role != (*pool)->role)
		return KVR_E_WORKER_CONFIG;
	return KVR_OK;
}

/* Read the transfer properties of a prefill worker. */
static enum kvr_code read_transfer(const struct kvr_hints *hints, struct kvr_worker_transfer *t)
{
	const struct kvr_str *domain = &hints->kv_transfer.domain;

	*t = (struct kvr_worker_transfer){.port = hints->bootstrap_addr.port,
					  .enforcement = hints->kv_transfer.enforcement,
					  .weight = hints->kv_transfer.weight};
	if (hints->bootstrap_addr.host.len != 0 && hints->bootstrap_addr.port == 0)
		return KVR_E_WORKER_CONFIG;
	snprintf(t->host, sizeof(t->host), "%.*s", (int)hints->bootstrap_addr.host.len,
		 hints->bootstrap_addr.host.p);
	for (uint32_t i = 0; i < hints->n_topology && domain->len != 0; i++) {
		const struct kvr_str *at = &hints->topology[i];

		if (at->len <= domain->len || at->p[domain->len] != '=' ||
		    memcmp(at->p, domain->p, domain->len) != 0)
			continue;
		if (snprintf(t->taint, sizeof(t->taint), KVR_TOPOLOGY_TAINT "%.*s", (int)at->len,
			     at->p) >= (int)sizeof(t->taint))
			return KVR_E_WORKER_CONFIG;
	}
	return KVR_OK;
}

static void read_addr(const struct kvr_hints *hints, struct kvr_worker_addr *a)
{
	*a = (struct kvr_worker_addr){0};
	if ((hints->present & KVR_HAS(KVR_HINT_ENGINE_ADDR)) != 0)
		memcpy(a->engine, hints->engine_addr.p, hints->engine_addr.len);
	if ((hints->present & KVR_HAS(KVR_HINT_BODY_ADDR)) != 0)
		memcpy(a->body, hints->body_addr.p, hints->body_addr.len);
}

/* Digest of all properties of a worker except its frame size; constant within an epoch. */
static uint64_t hello_digest(const struct kvr_wire_hello *h)
{
	struct kvr_wire_hello fixed = *h;
	uint64_t d, v;

	fixed.max_frame = 0;
	d = kvr_mix64(h->hints_len);
	for (size_t i = 0; i < sizeof(fixed); i += sizeof(v)) {
		memcpy(&v, (const uint8_t *)&fixed + i, sizeof(v));
		d = kvr_mix64(d ^ v);
	}
	for (size_t i = 0; i + sizeof(v) <= h->hints_len; i += sizeof(v)) {
		memcpy(&v, (const uint8_t *)(h + 1) + i, sizeof(v));
		d = kvr_mix64(d ^ v);
	}
	return d;
}

/* @return whether @p f may act for @p worker: it has its address, or the worker is silent. */
static bool may_speak(struct router *rt, const struct kvr_worker *worker, const struct ctl_frame *f,
		      struct rejection *why)
{
	const uint64_t silent_ms = worker_silence(rt, worker) / 1000000;

	if (kvr_path_same(&worker->path, f->path) || silent_ms >= rt->conf.opt.suspect_ms)
		return true;
	*why = (struct rejection){.code = KVR_E_WORKER_ALIVE,
				  .detail = {rt->conf.opt.suspect_ms - silent_ms},
				  .text = "this worker is registered from another address"};
	return false;
}

/* HELLO of the current incarnation. */
static void hello_again(struct router *rt, struct ctl_frame *f, struct kvr_worker *worker,
			const struct kvr_wire_hello *h, struct rejection *why)
{
	if (worker->hello_digest != hello_digest(h)) {
		*why = (struct rejection){
			.code = KVR_E_WORKER_CONFIG,
			.text = "HELLO changed within an epoch; restart with a greater epoch"};
		return;
	}
	worker->last_seen_ns = rt->ctl->live.now_ns;
	if (kvr_path_same(&worker->path, f->path) && worker->path.max_frame == h->max_frame &&
	    kvr_path_same_hop(&worker->path, f->path)) {
		hello_welcome(rt, worker, f->buf); /* the answer was lost */
		return;
	}
	worker->moved = true;
	worker->path = *f->path;
	worker->path.max_frame = h->max_frame;
	worker_moved(rt, worker, f->buf);
	f->buf = NULL;
}

static enum kvr_code new_life(struct kvr_worker *worker, const struct pool *pool,
			      const struct kvr_wire_hello *h)
{
	worker->pool = pool->number;
	worker->dp_start = h->dp_start;
	worker->dp_size = h->dp_size;
	return kvr_worker_create_beat(worker) < 0 ? KVR_E_NO_MEMORY : KVR_OK;
}

/* HELLO of a new incarnation. */
static void hello_new(struct router *rt, struct ctl_frame *f, struct pool *pool,
		      const struct kvr_wire_hello *h, const struct kvr_hints *hints,
		      struct rejection *why)
{
	struct kvr_worker *worker = NULL, *old = kvr_registry_find(rt->registry, f->hdr->source);
	struct kvr_worker_transfer transfer;
	struct hello_room room;

	why->code = read_transfer(hints, &transfer);
	if (why->code != KVR_OK)
		return;
	if (old != NULL)
		kvr_registry_remove(rt->registry, old); /* nothing of it is kept */
	/* Checked here as well: workers that the scheduler would reject occupy no entries. */
	if (hello_room(rt, pool, &room) != 0)
		worker = kvr_registry_add(rt->registry, f->hdr->source, rt->control.now_ns);
	else
		errno = ENOSPC;
	if (worker == NULL)
		why->code = errno == ENOSPC ? KVR_E_WORKER_LIMIT : KVR_E_NO_MEMORY;
	else
		why->code = new_life(worker, pool, h);
	if (why->code != KVR_OK && worker != NULL)
		kvr_registry_del(rt->registry, worker);
	if (old != NULL && (why->code != KVR_OK || old->pool != pool->number)) {
		worker_leave(
			rt, old,
			"replaced by a newer incarnation in another pool, or by one that was rejected");
		old = NULL;
	}
	if (why->code != KVR_OK)
		return;
	worker->epoch = f->hdr->epoch;
	worker->hello_digest = hello_digest(h);
	worker->boot = h->boot;
	worker->path = *f->path;
	worker->path.max_frame = h->max_frame;
	worker->last_seen_ns = rt->ctl->live.now_ns;
	worker->transfer = transfer;
	read_addr(hints, &worker->addr);
	worker->max_num_batched_tokens = h->max_num_batched_tokens;
	worker->total_kv_blocks = h->total_kv_blocks;
	worker->role = h->role;
	worker->flags = h->flags;
	if (old != NULL)
		worker_renew(rt, old, worker, hints, f->buf);
	else
		worker_join(rt, worker, hints, f->buf);
	f->buf = NULL;
}

/* Check the sender before the content, so that other addresses learn nothing about a worker's pool.
 */
static void handle_hello(struct router *rt, struct ctl_frame *f, const struct kvr_wire_hello *h,
			 const struct kvr_hints *hints, struct rejection *why)
{
	const uint32_t epoch = f->hdr->epoch;
	struct kvr_worker *worker = kvr_registry_find(rt->registry, f->hdr->source);
	struct pool *pool = NULL;
	uint32_t last;

	if (worker != NULL && worker->state == KVR_WORKER_JOINING) {
		workers_flush(rt); /* it sent another HELLO in this round */
		worker = kvr_registry_find(rt->registry, f->hdr->source);
	}
	last = worker != NULL ? worker->epoch
			      : kvr_registry_last_epoch(rt->registry, f->hdr->source);
	/* Epochs never return, and another process needs another epoch. */
	if (epoch == 0 || epoch < last ||
	    (epoch == last && (worker == NULL || worker->boot != h->boot))) {
		*why = (struct rejection){.code = KVR_E_STALE_EPOCH, .detail = {last}};
		return;
	}
	if (worker != NULL && !may_speak(rt, worker, f, why))
		return;
	why->code = check_hello(rt, h, hints, &pool);
	if (why->code == KVR_OK && rt->stopping && (worker == NULL || epoch != worker->epoch))
		why->code = KVR_E_SHUTDOWN;
	if (why->code != KVR_OK)
		return;
	if (worker != NULL && epoch == worker->epoch)
		hello_again(rt, f, worker, h, why);
	else
		hello_new(rt, f, pool, h, hints, why);
}

void control_hello(struct router *rt, struct ctl_frame *f, struct rejection *why)
{
	const struct kvr_wire_hello *h = (const void *)f->body;
	struct kvr_hint_lists lists;
	struct kvr_hints hints;
	const enum kvr_code rc = kvr_hints_parse(f->body + sizeof(*h), h->hints_len,
						 KVR_HINTS_HELLO, &hints, &lists);

	if (rc != 0)
		why->code = rc;
	else
		handle_hello(rt, f, h, &hints, why);
}

/* ---- GOODBYE, CONNECT ---- */

/* Answered for unknown workers as well, because the first answer may have been lost. */
void control_goodbye(struct router *rt, struct ctl_frame *f, struct rejection *why)
{
	struct kvr_worker *worker = kvr_registry_find(rt->registry, f->hdr->source);

	if (worker != NULL && !kvr_path_same(&worker->path, f->path)) {
		why->code = KVR_E_NOT_ALLOWED;
		return;
	}
	if (worker != NULL && worker->state == KVR_WORKER_JOINING) {
		workers_flush(rt);
		worker = kvr_registry_find(rt->registry, f->hdr->source);
	}
	if (worker != NULL && worker->epoch == f->hdr->epoch)
		worker_leave(rt, worker, "GOODBYE");
	out_message(&rt->control, f->path, KVR_GOODBYE_ACK, f->hdr->source, f->hdr->id, 0, NULL, 0);
}

static bool pool_wanted(const struct pool *pool, const struct kvr_hints *hints)
{
	for (uint32_t i = 0; i < hints->n_pools; i++)
		if (pool_named(pool, hints->pools[i].p, hints->pools[i].len))
			return true;
	return hints->n_pools == 0;
}

static uint32_t ranks_of(struct router *rt, uint32_t pool)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++) {
		const struct kvr_worker *worker = kvr_registry_at(rt->registry, i);

		n += worker->pool == pool ? worker->dp_size : 0;
	}
	return n;
}

/* Rule can_serve_requests; clients do not use prefill pools. */
static bool pool_serves(struct router *rt, uint32_t pool)
{
	const struct pool *p = &rt->pool[pool];
	bool taken = false;

	for (uint32_t i = 0; i < kvr_registry_count(rt->registry) && !taken; i++) {
		const struct kvr_worker *worker = kvr_registry_at(rt->registry, i);

		taken = worker->pool == pool && worker->state == KVR_WORKER_SERVING;
	}
	return taken && p->role != KVR_ROLE_PREFILL &&
	       (p->prefill == NULL || !p->conf->enforce_disagg ||
		kvr_disagg_active(&p->prefill->pair.disagg));
}

/* The answer must fit the client and the path, and may not be longer than the question, because the
 * address is not validated. */
static size_t client_limit(struct router *rt, const struct kvr_wire_connect *c,
			   const struct kvr_path *path, uint32_t question)
{
	size_t limit = out_limit(&rt->control, path);
	const uint32_t room = out_answer_limit(rt, path, question);

	if (c->max_frame != 0)
		limit = RTE_MIN(limit, c->max_frame);
	return room != 0 ? RTE_MIN(limit, room) : limit;
}

void control_connect(struct router *rt, struct ctl_frame *f, struct rejection *why)
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
	struct kvr_hint_lists lists;
	struct kvr_hints hints;
	uint32_t n = 0;
	int len;

	why->code = kvr_hints_parse(f->body + sizeof(*c), c->hints_len, KVR_HINTS_CONNECT, &hints,
				    &lists);
	if (why->code == KVR_OK && rt->stopping)
		why->code = KVR_E_SHUTDOWN;
	if (why->code != KVR_OK)
		return;
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		if (!pool_wanted(&rt->pool[i], &hints))
			continue;
		names[n] = (struct kvr_str){rt->pool[i].name, (uint32_t)strlen(rt->pool[i].name)};
		pools[n++] = (struct kvr_wire_pool){
			.pool = (uint16_t)rt->pool[i].wire_id,
			.role = rt->pool[i].role,
			.flags = (rt->pool[i].eagle ? KVR_POOL_F_EAGLE : 0) |
				 (pool_serves(rt, i) ? KVR_POOL_F_SERVES : 0),
			.block_size = rt->pool[i].block_size,
			.ranks = ranks_of(rt, i),
		};
	}
	if (rules_of_port(rt, f->path->port)->cookie)
		limits.cookie = kvr_cookie(&rt->cookie_key, f->path, rt->control.now_ns);
	len = kvr_put_connected(buf, client_limit(rt, c, f->path, f->len), &ids, limits, pools,
				names, n);
	if (len < 0)
		why->code = KVR_E_LENGTH; /* shorter than the shortest answer */
	else
		out_frame(&rt->control, f->path, buf, (size_t)len);
}
