/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RELAY_H
#define RELAY_H

/**
 * @file
 * The router's rules for one worker and any number of clients, in short form: accept, send to the
 * only worker, relay both ways, count KV events. No choice, no queue. Frames enter through
 * relay_frame() and leave through emit, so it works on sockets and in simulated networks. Fragments
 * are forwarded as they arrive. It keeps the names of a request and, of one in fragments, the first
 * fragment, which it retransmits until the worker acknowledges. The client retransmits what the
 * worker lacks, and vice versa.
 */

#include "kvr_put.h"
#include "kvr_udp.h"

#include <string.h>

#define RELAY_MAX    8192
#define RELAY_RANKS  4
#define RELAY_HASHES 65536 /* block hashes in tests are below this */

struct relay_req {
	uint64_t source, id;
	struct kvr_udp_addr client;
	uint16_t state; /* enum kvr_wire_state */
	bool ended, cancelled;
	uint8_t first[1440]; /* first of several fragments */
	uint32_t first_len;
	uint64_t again_us;
};

struct relay {
	void (*emit)(void *ctx, const struct kvr_udp_addr *to, const void *frame, uint32_t len);
	void *ctx;
	uint32_t epoch, seq, agent_epoch, block_size;
	bool known; /* the worker registered in this epoch */
	struct kvr_udp_addr agent;
	uint64_t worker;
	struct relay_req req[RELAY_MAX];
	uint32_t n_req;
	/* content of the events */
	uint64_t next_event[RELAY_RANKS], dump_next[RELAY_RANKS];
	uint64_t dump_id[RELAY_RANKS]; /* of the last BEGIN */
	bool dumping[RELAY_RANKS];
	uint8_t held[RELAY_RANKS][RELAY_HASHES];
	uint32_t dispatches, refused, lost_events;
};

static inline void relay_send(struct relay *r, const struct kvr_udp_addr *to, uint8_t kind,
			      struct kvr_wire_ids ids, const void *body, uint32_t len)
{
	uint8_t f[512];

	ids.epoch = r->epoch;
	ids.msg_seq = ++r->seq;
	r->emit(r->ctx, to, f,
		(uint32_t)kvr_put_message(f, sizeof(f), kind, &ids, (struct kvr_slice){body, len},
					  (struct kvr_slice){NULL, 0}));
}

static inline struct kvr_wire_ids relay_ids(const struct kvr_wire_hdr *h, uint64_t handle)
{
	return (struct kvr_wire_ids){.source = h->source, .id = h->id, .handle = handle};
}

static inline void relay_reject(struct relay *r, const struct kvr_udp_addr *to,
				const struct kvr_wire_hdr *h, unsigned int code)
{
	const struct kvr_wire_rejected w = {
		.code = (uint16_t)code, .retryable = kvr_code_retryable(code), .kind = h->kind};

	relay_send(r, to, KVR_REJECTED, relay_ids(h, h->handle), &w, sizeof(w));
}

static inline struct relay_req *relay_find(struct relay *r, const struct kvr_wire_hdr *h)
{
	for (uint32_t i = r->n_req; i-- > 0;)
		if (r->req[i].id == h->id && r->req[i].source == h->source)
			return &r->req[i];
	return NULL;
}

/* Handles contain the epoch, as those of a router would. */
static inline uint64_t relay_handle(const struct relay *r, const struct relay_req *q)
{
	return ((uint64_t)r->epoch << 32) + (uint64_t)(q - r->req) + 1;
}

static inline struct relay_req *relay_by_handle(struct relay *r, const struct kvr_wire_hdr *h)
{
	const uint64_t i = h->handle - ((uint64_t)r->epoch << 32) - 1;

	return i < r->n_req && r->req[i].id == h->id && r->req[i].source == h->source ? &r->req[i]
										      : NULL;
}

static inline void relay_accepted(struct relay *r, const struct relay_req *q,
				  const struct kvr_wire_hdr *h, uint16_t state)
{
	const struct kvr_wire_accepted w = {.worker = r->worker,
					    .state = state,
					    .flags = q->first_len != 0 ? KVR_ACC_F_KEPT : 0,
					    .prefill_dp_rank = KVR_NONE32};

	relay_send(r, &q->client, KVR_ACCEPTED,
		   relay_ids(h, state == KVR_STATE_QUERY ? 0 : relay_handle(r, q)), &w, sizeof(w));
}

/* Rewrite the headers in place and forward the frame. */
static inline void relay_dispatch(struct relay *r, const struct relay_req *q, uint8_t *frame,
				  uint32_t len)
{
	struct kvr_wire_hdr *h = (void *)frame;
	struct kvr_wire_request *w = (void *)(h + 1);

	h->kind = KVR_DISPATCH;
	h->handle = relay_handle(r, q);
	h->epoch = r->epoch;
	if (h->frag_off == 0) {
		w->worker = r->worker;
		w->dp_rank = 0;
		memcpy(w->client_ip, q->client.ip, 16);
		w->client_port = q->client.port;
	}
	r->emit(r->ctx, &r->agent, frame, len);
}

static inline void relay_route(struct relay *r, const struct kvr_udp_addr *from, uint8_t *frame,
			       uint32_t len)
{
	const struct kvr_wire_hdr *h = (const void *)frame;
	const struct kvr_wire_request *w = (const void *)(h + 1);
	struct relay_req *q = relay_find(r, h);

	if (!r->known) {
		relay_reject(r, from, h, KVR_E_NO_ENDPOINTS);
		return;
	}
	if (q == NULL) {
		if (r->n_req == RELAY_MAX)
			return;
		q = &r->req[r->n_req++];
		*q = (struct relay_req){.source = h->source, .id = h->id, .client = *from};
		q->state = KVR_STATE_DISPATCHED;
		if (h->frag_off == 0 && (w->flags & KVR_REQ_F_QUERY) != 0) {
			relay_accepted(r, q, h, KVR_STATE_QUERY);
			r->n_req--;
			return;
		}
		r->dispatches++;
	}
	if (q->ended) {
		relay_reject(r, from, h, KVR_E_ENDED);
		return;
	}
	if (h->frag_off == 0 && !kvr_frame_whole(h) && len <= sizeof(q->first)) {
		q->first_len = len;
		memcpy(q->first, frame, len);
	}
	if (h->frag_off == 0)
		relay_accepted(r, q, h, q->state);
	if (q->state == KVR_STATE_DISPATCHED)
		relay_dispatch(r, q, frame, len);
}

static inline void relay_cancel(struct relay *r, const struct kvr_udp_addr *from,
				const struct kvr_wire_hdr *h)
{
	struct relay_req *q = relay_find(r, h);
	const struct kvr_wire_abort w = {0};

	relay_send(r, from, KVR_CANCELLED, relay_ids(h, h->handle), NULL, 0);
	if (q == NULL)
		return;
	q->ended = q->cancelled = true;
	relay_send(r, &r->agent, KVR_ABORT, relay_ids(h, relay_handle(r, q)), &w, sizeof(w));
}

static inline void relay_client(struct relay *r, const struct kvr_udp_addr *from, uint8_t *frame,
				uint32_t len)
{
	const struct kvr_wire_hdr *h = (const void *)frame;
	struct relay_req *q;

	if (h->kind == KVR_CONNECT) {
		const struct kvr_wire_connected w = {.max_frame = KVR_WIRE_MAX_FRAME,
						     .max_tokens = KVR_WIRE_MAX_TOKENS,
						     .max_hashes = KVR_WIRE_MAX_HASHES,
						     .max_body = KVR_WIRE_MAX_BODY,
						     .max_message = KVR_WIRE_MAX_MESSAGE,
						     .max_frames = KVR_WIRE_MAX_FRAGMENTS};
		const struct kvr_wire_pool pool = {
			.pool = 0, .block_size = r->block_size, .ranks = 1};
		const struct kvr_str name = {"pool", 4};
		const struct kvr_wire_ids ids = {
			.source = h->source, .id = h->id, .epoch = r->epoch, .msg_seq = ++r->seq};
		uint8_t f[512];

		r->emit(r->ctx, from, f,
			(uint32_t)kvr_put_connected(f, sizeof(f), &ids, w, &pool, &name, 1));
	} else if (h->kind == KVR_ROUTE) {
		relay_route(r, from, frame, len);
	} else if (h->kind == KVR_CANCEL) {
		relay_cancel(r, from, h);
	} else if (h->kind == KVR_PROBE) {
		q = relay_find(r, h);
		if (q != NULL && !q->ended)
			relay_accepted(r, q, h, q->state);
		else
			relay_reject(r, from, h, q != NULL ? KVR_E_ENDED : KVR_E_UNKNOWN_REQUEST);
	} else if (h->kind == KVR_RESPONSE_ACK || h->kind == KVR_MISSING) {
		q = relay_by_handle(r, h);
		if (q != NULL)
			r->emit(r->ctx, &r->agent, frame, len);
	}
}

static inline void relay_events(struct relay *r, const struct kvr_udp_addr *from,
				const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_kv_events *w = (const void *)(h + 1);
	struct kvr_wire_kv_ack ack = {.dp_rank = w->dp_rank};
	const uint32_t k = w->dp_rank % RELAY_RANKS;
	struct kvr_kv_iter it = kvr_kv_events_begin(w);
	struct kvr_kv_event e;
	uint64_t id = w->first_event_id;
	bool apply;

	if (!r->known || h->epoch != r->agent_epoch) {
		ack.code = KVR_KV_HELLO;
	} else if (w->flags & KVR_KV_F_DUMP) {
		/* Frames of one dump share an id, so late frames of another dump are ignored. */
		if ((w->flags & KVR_KV_F_DUMP_BEGIN) && h->id > r->dump_id[k]) {
			r->dump_id[k] = h->id;
			memset(r->held[k], 0, sizeof(r->held[k]));
			r->dumping[k] = true;
			r->dump_next[k] = 0;
		}
		apply = r->dumping[k] && h->id == r->dump_id[k] && id == r->dump_next[k];
		while (apply && kvr_kv_events_next(&it, &e))
			for (uint32_t i = 0; i < e.n_blocks; i++) {
				uint64_t hash;

				memcpy(&hash, e.hashes + 8 * i, 8);
				r->held[k][hash % RELAY_HASHES] = 1;
			}
		r->dump_next[k] += apply;
		if (h->id == r->dump_id[k])
			ack.next_dump_pos = r->dump_next[k];
		else
			ack.code = KVR_KV_GAP; /* BEGIN was not received: all frames are missing */
		if (apply && (w->flags & KVR_KV_F_DUMP_END)) {
			r->next_event[k] = w->resume_event_id;
			r->dumping[k] = false;
		}
	} else if (r->dumping[k]) {
		ack.next_dump_pos = r->dump_next[k];
	} else if (id > r->next_event[k]) {
		ack.code = r->next_event[k] == 0 ? KVR_KV_DUMP_WANTED : KVR_KV_GAP;
	} else {
		for (; kvr_kv_events_next(&it, &e); id++) {
			if (id != r->next_event[k])
				continue;
			r->next_event[k]++;
			r->dump_next[k] = 0;
			for (uint32_t i = 0; i < e.n_blocks; i++) {
				uint64_t hash;

				memcpy(&hash, e.hashes + 8 * i, 8);
				r->held[k][hash % RELAY_HASHES] = e.type == KVR_KV_STORED;
			}
			if (e.type == KVR_KV_CLEARED)
				memset(r->held[k], 0, sizeof(r->held[k]));
		}
	}
	ack.next_event_id = r->next_event[k];
	relay_send(r, from, KVR_KV_ACK, relay_ids(h, 0), &ack, sizeof(ack));
}

static inline void relay_hello(struct relay *r, const struct kvr_udp_addr *from,
			       const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_hello *hello = (const void *)(h + 1);
	const struct kvr_wire_welcome w = {
		.heartbeat_ms = 50, .dead_ms = 3000, .max_frame = KVR_WIRE_MAX_FRAME};

	r->known = true;
	r->agent = *from;
	r->worker = h->source;
	r->agent_epoch = h->epoch;
	r->block_size = hello->block_size;
	relay_send(r, from, KVR_WELCOME, relay_ids(h, 0), &w, sizeof(w));
}

/* About a registered worker. */
static inline void relay_from_worker(struct relay *r, const struct kvr_udp_addr *from,
				     const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_heartbeat_ack w = {.state = KVR_WORKER_SERVING};

	if (h->kind == KVR_HEARTBEAT && !r->known)
		relay_reject(r, from, h, KVR_E_UNKNOWN_WORKER);
	else if (h->kind == KVR_HEARTBEAT)
		relay_send(r, from, KVR_HEARTBEAT_ACK, relay_ids(h, 0), &w, sizeof(w));
	else if (h->kind == KVR_GOODBYE)
		relay_send(r, from, KVR_GOODBYE_ACK, relay_ids(h, 0), NULL, 0);
}

static inline void relay_agent(struct relay *r, const struct kvr_udp_addr *from, uint8_t *frame,
			       uint32_t len)
{
	const struct kvr_wire_hdr *h = (const void *)frame;
	struct relay_req *q = relay_by_handle(r, h);

	if (q == NULL) {
		if (h->kind == KVR_RESPONSE || h->kind == KVR_PROGRESS)
			relay_reject(r, from, h, KVR_E_UNKNOWN_REQUEST);
		return;
	}
	if (h->kind != KVR_MISSING)
		q->state = KVR_STATE_RUNNING;
	if (h->kind == KVR_DISPATCH_ACK) {
		const struct kvr_wire_dispatch_ack *w = (const void *)(h + 1);

		if (w->code != 0 && !q->ended) {
			struct kvr_wire_hdr about = *h;

			about.kind = KVR_ROUTE;
			about.handle = 0;
			q->ended = true;
			r->refused++;
			relay_reject(r, &q->client, &about, KVR_E_DISPATCH_FAILED);
		}
	} else if (h->kind == KVR_MISSING) {
		/* It keeps nothing: the client has the fragments that the worker lacks. */
		((struct kvr_wire_missing *)(h + 1))->kind = KVR_ROUTE;
		r->emit(r->ctx, &q->client, frame, len);
	} else if (h->kind == KVR_RESPONSE) {
		const struct kvr_wire_response *w = (const void *)(h + 1);

		q->ended = q->ended || (h->frag_off == 0 && (w->flags & KVR_RESP_F_FIN) != 0);
		r->emit(r->ctx, &q->client, frame, len);
	} else if (h->kind == KVR_PROGRESS) {
		const struct kvr_wire_progress *w = (const void *)(h + 1);
		const struct kvr_wire_progress_ack ack = {.next_seq = w->seq + 1};

		if (w->flags & KVR_PROG_F_FIN) {
			q->ended = true;
			relay_send(r, from, KVR_PROGRESS_ACK, relay_ids(h, h->handle), &ack,
				   sizeof(ack));
		}
	}
}

/** Handle one frame sent to the router, which may be modified. */
static inline void relay_frame(struct relay *r, const struct kvr_udp_addr *from, uint8_t *frame,
			       uint32_t len)
{
	const struct kvr_wire_hdr *h = (const void *)frame;

	if (kvr_frame_check(frame, len, KVR_ROLE_BIT_ROUTER) != 0 ||
	    (kvr_frame_whole(h) && kvr_body_check(h->kind, h + 1, h->msg_len, NULL) != 0)) {
		r->refused++;
		return;
	}
	if (h->kind == KVR_MISSING &&
	    ((const struct kvr_wire_missing *)(h + 1))->kind == KVR_RESPONSE) {
		relay_client(r, from, frame, len);
		return;
	}
	switch (h->kind) {
	case KVR_HELLO:
		relay_hello(r, from, h);
		break;
	case KVR_HEARTBEAT:
	case KVR_GOODBYE:
		relay_from_worker(r, from, h);
		break;
	case KVR_KV_EVENTS:
		relay_events(r, from, h);
		break;
	case KVR_DISPATCH_ACK:
	case KVR_MISSING:
	case KVR_RESPONSE:
	case KVR_PROGRESS:
		relay_agent(r, from, frame, len);
		break;
	default:
		relay_client(r, from, frame, len);
	}
}

/** Retransmit unacknowledged messages every 20 ms. */
static inline void relay_timers(struct relay *r, uint64_t now_us)
{
	for (uint32_t i = 0; i < r->n_req; i++) {
		struct relay_req *q = &r->req[i];
		uint8_t copy[sizeof(q->first)];

		if (q->first_len == 0 || q->ended || q->state != KVR_STATE_DISPATCHED ||
		    now_us < q->again_us)
			continue;
		q->again_us = now_us + 20000;
		memcpy(copy, q->first, q->first_len);
		relay_dispatch(r, q, copy, q->first_len);
	}
}

/** The router stops, and another one starts at its address. */
static inline void relay_restart(struct relay *r)
{
	r->epoch++;
	r->known = false;
	r->n_req = 0;
	memset(r->next_event, 0, sizeof(r->next_event));
	memset(r->dump_next, 0, sizeof(r->dump_next));
	memset(r->dumping, 0, sizeof(r->dumping));
	memset(r->dump_id, 0, sizeof(r->dump_id));
	memset(r->held, 0, sizeof(r->held));
}

#endif
