/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers to HELLO: WELCOME, or a rejection with field, value and requirement of the pool, for the
 * engine's operator (REJECTED) and the router's (log).
 */
#include "config/config.h"
#include "control/log.h"
#include "control/thread.h"
#include "lcore/out.h"

#include <stdio.h>
#include <string.h>

#include "kvr_message.h"

static void unknown_pool(const struct router *rt, const struct kvr_hints *hints, char *text,
			 size_t len)
{
	size_t n = (size_t)snprintf(text, len, "pool: got \"%.*s\", this router has",
				    (int)hints->pools[0].len, hints->pools[0].p);

	for (uint32_t i = 0; i < rt->n_pools && n < len; i++)
		n += (size_t)snprintf(text + n, len - n, "%s %s", i != 0 ? "," : "",
				      rt->pool[i].name);
}

/* Faults in transfer properties that read_transfer() found. */
static void wrong_transfer(const struct kvr_hints *hints, struct rejection *why, char *text,
			   size_t len)
{
	if (hints->bootstrap_addr.host.len != 0 && hints->bootstrap_addr.port == 0) {
		why->detail[1] = 1;
		snprintf(text, len, "bootstrap: got host \"%.*s\" with port 0, allowed: 1 to 65535",
			 (int)hints->bootstrap_addr.host.len, hints->bootstrap_addr.host.p);
		return;
	}
	for (uint32_t i = 0; i < hints->n_topology; i++)
		why->detail[0] = RTE_MAX(why->detail[0], hints->topology[i].len);
	why->detail[1] = KVR_WORKER_TEXT - sizeof(KVR_TOPOLOGY_TAINT);
	snprintf(text, len, "topology: got an entry of %" PRIu64 " bytes, allowed: %" PRIu64,
		 why->detail[0], why->detail[1]);
}

/* Find the first field that does not fit the pool; details: value and requirement. */
static void wrong_field(const struct pool *pool, const struct kvr_wire_hello *h,
			const struct kvr_hints *hints, struct rejection *why, char *text,
			size_t len)
{
	if (h->block_size != pool->block_size) {
		why->detail[0] = h->block_size;
		why->detail[1] = pool->block_size;
		snprintf(text, len, "block_size: got %u, pool %s has %u", h->block_size, pool->name,
			 pool->block_size);
	} else if (h->role != pool->role) {
		why->detail[0] = h->role;
		why->detail[1] = pool->role;
		snprintf(text, len, "role: got %s, pool %s is %s", kvr_role_name(h->role),
			 pool->name, kvr_role_name(pool->role));
	} else if (h->dp_size > KVR_WORKER_MAX_RANKS) {
		why->detail[0] = h->dp_size;
		why->detail[1] = KVR_WORKER_MAX_RANKS;
		snprintf(text, len, "dp_size: got %u, allowed: 1 to %u ranks", h->dp_size,
			 KVR_WORKER_MAX_RANKS);
	} else {
		wrong_transfer(hints, why, text, len);
	}
}

uint32_t hello_room(const struct router *rt, const struct pool *pool, struct hello_room *room)
{
	room->most_workers =
		pool->conf->max_workers != 0 ? pool->conf->max_workers : pool->conf->max_ranks;
	room->workers = room->ranks = 0;
	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++) {
		const struct kvr_worker *worker = kvr_registry_at(rt->registry, i);

		if (worker->pool != pool->number)
			continue;
		room->workers++;
		room->ranks += worker->dp_size;
	}
	return room->workers < room->most_workers ? room->most_workers - room->workers : 0;
}

/* Describe the limit: of the router, of the pool, or of its ranks. */
static void no_room(const struct router *rt, const struct pool *pool, struct rejection *why,
		    char *text, size_t len)
{
	const uint32_t all = kvr_registry_count(rt->registry);
	const uint32_t most = kvr_router_conf_workers(&rt->conf);
	struct hello_room room;

	hello_room(rt, pool, &room);
	why->detail[0] = all;
	why->detail[1] = most;
	why->detail[2] = room.workers;
	why->detail[3] = room.most_workers;
	snprintf(
		text, len,
		"limit reached: [router] max_workers %u, registered %u; pool %s: max_workers %u, registered %u, max_ranks %u, registered %u",
		most, all, pool->name, room.most_workers, room.workers, pool->conf->max_ranks,
		room.ranks);
}

/* Describe the fault if code and details do not suffice. @return false: no text. */
static bool in_words(struct router *rt, const struct kvr_wire_hdr *hdr, struct rejection *why,
		     char *text, size_t len)
{
	const struct kvr_wire_hello *h = kvr_frame_body(hdr);
	const struct pool *pool = NULL;
	struct kvr_hint_lists lists;
	struct kvr_hints hints;

	if (why->code == KVR_E_STALE_EPOCH) {
		snprintf(text, len,
			 "epoch: got %u, needed: greater than %" PRIu64
			 ", that of the last incarnation",
			 hdr->epoch, why->detail[0]);
		return true;
	}
	if ((why->code != KVR_E_WORKER_CONFIG && why->code != KVR_E_UNKNOWN_POOL &&
	     why->code != KVR_E_WORKER_LIMIT) ||
	    kvr_hints_parse((const uint8_t *)(h + 1), h->hints_len, KVR_HINTS_HELLO, &hints,
			    &lists) != 0 ||
	    hints.n_pools != 1)
		return false;
	for (uint32_t i = 0; i < rt->n_pools; i++)
		if (strlen(rt->pool[i].name) == hints.pools[0].len &&
		    memcmp(rt->pool[i].name, hints.pools[0].p, hints.pools[0].len) == 0)
			pool = &rt->pool[i];
	if (pool == NULL)
		unknown_pool(rt, &hints, text, len);
	else if (why->code == KVR_E_WORKER_CONFIG)
		wrong_field(pool, h, &hints, why, text, len);
	else
		no_room(rt, pool, why, text, len);
	return true;
}

/* The entry of a worker, or the oldest one. */
static struct hello_rejected *refused_entry(struct control *ctl, uint64_t worker)
{
	struct hello_rejected *oldest = &ctl->refused[0];

	for (uint32_t i = 0; i < REFUSED_KEPT; i++) {
		struct hello_rejected *entry = &ctl->refused[i];

		if (entry->worker == worker)
			return entry;
		if (entry->at_ns < oldest->at_ns)
			oldest = entry;
	}
	return oldest;
}

/* Keep the rejection for telemetry. */
static void keep_rejection(struct router *rt, const struct ctl_buf *b, const struct rejection *why)
{
	const struct kvr_wire_hdr *hdr = (const void *)b->frame;
	struct hello_rejected *entry = refused_entry(rt->ctl, hdr->source);

	if (entry->worker != hdr->source)
		entry->times = 0;
	entry->worker = hdr->source;
	entry->at_ns = rt->control.now_ns;
	entry->times++;
	entry->code = why->code;
	kvr_path_text(&b->path, entry->address, sizeof(entry->address));
	snprintf(entry->text, sizeof(entry->text), "%s", why->text != NULL ? why->text : "");
	for (char *p = entry->text; *p != '\0'; p++) /* the text may quote untrusted bytes */
		*p = *p >= ' ' && *p <= '~' ? *p : '?';
}

/* Complete and log the rejection of a checked HELLO. @p text is memory for its words. */
static void hello_complete_rejection(struct router *rt, const struct ctl_buf *b,
				     struct rejection *why, char *text, size_t len)
{
	const struct kvr_wire_hdr *hdr = (const void *)b->frame;
	const uint64_t id = hdr->source;
	char where[KVR_PATH_TEXT];

	if (why->text == NULL && in_words(rt, hdr, why, text, len))
		why->text = text;
	log_worker(id,
		   KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .worker = &id,
				 .addr = kvr_path_text(&b->path, where, sizeof(where)),
				 .reason = kvr_code_name(why->code)),
		   "worker %" PRIu64 " rejected%s%s", id, why->text != NULL ? ": " : "",
		   why->text != NULL ? why->text : "");
}

void hello_welcome(struct router *rt, struct kvr_worker *worker, const struct ctl_buf *b)
{
	const struct kvr_wire_hdr *hdr = (const void *)b->frame;
	const struct kvr_wire_welcome m = {
		.pool = (uint16_t)rt->pool[worker->pool].wire_id,
		.flags = worker->warm ? KVR_WELCOME_F_WARM : 0,
		.heartbeat_ms = rt->conf.opt.heartbeat_ms,
		.dead_ms = rt->conf.opt.dead_ms,
		.max_frame = rt->max_frame,
	};
	struct hello_rejected *entry = refused_entry(rt->ctl, worker->id);

	if (entry->worker == worker->id)
		*entry = (struct hello_rejected){0}; /* the worker is accepted now */
	worker->welcome_beat_ms = m.heartbeat_ms;
	out_message(&rt->control, &b->path, KVR_WELCOME, worker->id, hdr->id, 0, &m, sizeof(m));
}

void hello_reject(struct router *rt, const struct ctl_buf *b, const struct rejection *why)
{
	const struct kvr_wire_hdr *hdr = (const void *)b->frame;
	struct rejection rejection = *why;
	char text[256];

	if (hdr->kind == KVR_HELLO) {
		hello_complete_rejection(rt, b, &rejection, text, sizeof(text));
		keep_rejection(rt, b, &rejection);
	}
	rejection.room = out_answer_limit(rt, &b->path, b->len);
	out_reject(&rt->control, &b->path, hdr->kind, hdr->source, hdr->id, &rejection);
}
