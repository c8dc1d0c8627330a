/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"

#include <string.h>

#include "frame.h"
#include "kvr_epoch.h"
#include "kvr_put.h"

/*
 * Registration of clients and engines, and heartbeats of engines. HELLO and GOODBYE carry the epoch
 * in `id`, which the answer repeats.
 */

#define GREET_US      100000
#define MAX_GREETINGS 32 /* per tick */

static void send_hello(struct load *l, uint32_t engine)
{
	const struct load_options *o = l->opt;
	const struct load_engine *e = &l->engines[engine];
	const struct kvr_wire_ids ids = load_worker_ids(l, engine, e->epoch);
	const struct kvr_wire_hello body = {.block_size = o->block_size,
					    .dp_size = o->ranks,
					    .total_kv_blocks = o->blocks_per_rank,
					    .max_frame = (uint16_t)l->max_frame,
					    .role = e->role};
	uint8_t room[160];
	struct kvr_hint_buf hints = {.p = room, .cap = sizeof(room)};
	uint32_t cap;
	void *f;

	kvr_hint_put_str(&hints, KVR_HINT_POOL,
			 e->role == KVR_ROLE_PREFILL ? o->prefill_pool : o->pool);
	if (e->bootstrap)
		kvr_hint_put_bootstrap_addr(&hints, load_bootstrap_port(l, engine), o->ip);
	cap = (uint32_t)(sizeof(struct kvr_wire_hdr) + sizeof(body)) + hints.len;
	f = load_link_frame(l->link, load_port_of_engine(l, engine), (uint16_t)cap, NULL);
	if (f != NULL)
		kvr_put_hello(f, cap, &ids, body, &hints);
	kvr_stats_inc(l->row, LOAD_HELLOS);
}

static void send_heartbeat(struct load *l, uint32_t engine)
{
	const struct kvr_wire_ids ids = load_worker_ids(l, engine, 0);
	struct kvr_wire_rank_load load[64]; /* --ranks has this limit */
	const uint32_t n = l->opt->ranks;
	const uint32_t cap = (uint32_t)(sizeof(struct kvr_wire_hdr) +
					sizeof(struct kvr_wire_heartbeat) + n * sizeof(load[0]));
	void *f;

	for (uint32_t i = 0; i < n; i++) {
		const struct load_rank *r = &l->ranks[engine * n + i];

		load[i] = (struct kvr_wire_rank_load){
			.dp_rank = i,
			.active_requests = engine_running(&r->model),
			.kv_used_blocks = r->model.cache != NULL ? engine_cache_used(r->model.cache)
								 : UINT64_MAX,
			.next_event_id = r->log.next_id};
	}
	if (cap > l->max_frame)
		return;
	f = load_link_frame(l->link, load_port_of_engine(l, engine), (uint16_t)cap, NULL);
	if (f != NULL)
		kvr_put_heartbeat(f, cap, &ids, load, n, 0, 0);
}

static void send_goodbye(struct load *l, uint32_t engine)
{
	const struct kvr_wire_ids ids = load_worker_ids(l, engine, l->engines[engine].epoch);

	load_message(l, load_port_of_engine(l, engine), KVR_GOODBYE, &ids, 0, NULL);
}

/* Send GOODBYE in kill mode goodbye; return with a new epoch when it is time. */
static void killed_duty(struct load *l, uint32_t engine)
{
	struct load_engine *e = &l->engines[engine];

	if (l->now >= e->revive_at) {
		e->state = LOAD_W_HELLO;
		e->epoch++;
		e->next_tx = l->now;
		return;
	}
	if (e->state == LOAD_W_DYING)
		send_goodbye(l, engine);
	e->next_tx = RTE_MIN(l->now + GREET_US * l->us, e->revive_at);
}

static void engine_duty(struct load *l, uint32_t engine)
{
	struct load_engine *e = &l->engines[engine];

	switch (e->state) {
	case LOAD_W_HELLO:
		send_hello(l, engine);
		e->next_tx = l->now + GREET_US * l->us;
		break;
	case LOAD_W_SERVING:
		send_heartbeat(l, engine);
		e->next_tx = l->now + e->heartbeat;
		break;
	case LOAD_W_LEAVING:
		send_goodbye(l, engine);
		e->next_tx = l->now + GREET_US * l->us;
		break;
	case LOAD_W_DYING:
	case LOAD_W_DEAD:
		killed_duty(l, engine);
		break;
	default:
		e->next_tx = UINT64_MAX;
		break;
	}
}

void load_registration_duty(struct load *l)
{
	uint32_t n = 0;

	if (l->now < l->next_duty)
		return;
	l->next_duty = l->now + LOAD_DUTY_US * l->us;
	for (uint32_t i = 0; i < l->n_clients && n < MAX_GREETINGS; i++) {
		struct load_client *c = &l->clients[i];

		if (c->connected || c->next_tx > l->now)
			continue;
		load_client_connect(l, i);
		c->next_tx = l->now + GREET_US * l->us;
		n++;
	}
	for (uint32_t i = 0; i < l->n_engines && n < MAX_GREETINGS; i++) {
		if (l->engines[i].next_tx > l->now)
			continue;
		engine_duty(l, i);
		n++;
	}
	load_alive_duty(l);
}

bool load_registration_ready(const struct load *l)
{
	for (uint32_t i = 0; i < l->n_clients; i++)
		if (!l->clients[i].connected)
			return false;
	for (uint32_t i = 0; i < l->n_engines; i++)
		if (l->engines[i].state != LOAD_W_SERVING)
			return false;
	return true;
}

static void on_connected(struct load *l, const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_connected *c = kvr_frame_body(h);

	for (uint32_t i = 0; i < l->n_clients; i++)
		if (l->clients[i].source == h->source)
			l->clients[i] = (struct load_client){.source = h->source,
							     .next_tx = l->clients[i].next_tx,
							     .msg_seq = l->clients[i].msg_seq,
							     .cookie = c->cookie,
							     .connected = true};
	if (c->max_frame >= KVR_WIRE_LEAST_MAX_FRAME && c->max_frame < l->max_frame)
		l->max_frame = c->max_frame;
}

static void on_welcome(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine)
{
	const struct kvr_wire_welcome *w = kvr_frame_body(h);
	struct load_engine *e = &l->engines[engine];

	if (e->state != LOAD_W_HELLO || h->id != e->epoch)
		return; /* the answer to a repetition, or to an earlier epoch */
	e->state = LOAD_W_SERVING;
	e->router = h->epoch;
	e->unwelcomed = false;
	e->heartbeat = w->heartbeat_ms * 1000ull * l->us;
	e->next_tx = l->now;
	if (e->role != KVR_ROLE_PREFILL)
		l->pool = w->pool; /* ROUTE names the decode pool */
	for (uint32_t i = 0; i < l->opt->ranks; i++)
		load_kv_restart(l, engine * l->opt->ranks + i);
}

/* Every copy of GOODBYE is answered: late answers may arrive after the worker's return. */
static void on_goodbye_ack(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine)
{
	struct load_engine *e = &l->engines[engine];

	if (h->id != e->epoch)
		return;
	if (e->state == LOAD_W_DYING)
		e->state = LOAD_W_DEAD;
	else if (e->state == LOAD_W_LEAVING)
		e->state = LOAD_W_GONE;
}

/* HELLO is rejected: the router has known this epoch, of an earlier run of this program. */
static void hello_refused(struct load *l, struct load_engine *e, const struct kvr_wire_rejected *r)
{
	const uint32_t epoch = kvr_epoch_above(e->epoch, r->detail[0]);

	if (r->code != KVR_E_STALE_EPOCH || e->epoch > r->detail[0] || epoch == 0)
		return;
	e->epoch = epoch;
	e->next_tx = l->now;
}

/* The router does not know the worker, or rejects it: register again with a new epoch. */
static void on_refused(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine)
{
	const struct kvr_wire_rejected *r = kvr_frame_body(h);
	struct load_engine *e = &l->engines[engine];

	kvr_stats_inc(l->row, LOAD_WORKER_REFUSED);
	if (r->code < KVR_E_MAX)
		l->m->worker_code[r->code]++;
	if (e->state == LOAD_W_HELLO)
		hello_refused(l, e, r);
	if (e->state != LOAD_W_SERVING ||
	    (r->code != KVR_E_UNKNOWN_WORKER && r->code != KVR_E_STALE_EPOCH))
		return;
	if (l->sessions != NULL)
		load_session_killed(l, engine); /* sessions end with the incarnation */
	e->state = LOAD_W_HELLO;
	e->epoch++;
	e->next_tx = l->now;
}

void load_registration_frame(struct load *l, const struct kvr_wire_hdr *h)
{
	const uint64_t engine = h->source - l->opt->worker_base;

	if (h->kind == KVR_CONNECTED) {
		on_connected(l, h);
		return;
	}
	if (engine >= l->n_engines) {
		kvr_stats_inc(l->row, LOAD_STALE);
		return;
	}
	switch (h->kind) {
	case KVR_WELCOME:
		on_welcome(l, h, (uint32_t)engine);
		break;
	case KVR_REJECTED:
		on_refused(l, h, (uint32_t)engine);
		break;
	case KVR_GOODBYE_ACK:
		on_goodbye_ack(l, h, (uint32_t)engine);
		break;
	default: /* HEARTBEAT_ACK */
		break;
	}
}
