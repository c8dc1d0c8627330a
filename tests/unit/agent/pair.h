/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PAIR_H
#define PAIR_H

/**
 * @file
 * The router's rules for requests with two legs (PROTOCOL.md, section 7.5), in short form: one
 * prefill worker, one decode worker, requests of one frame. It keeps each message, retransmits,
 * acknowledges the prefill leg, relays the decode leg, and starts over once.
 */

#include "kvr_put.h"
#include "lossy_net.h"

#define PAIR_MAX     512
#define PAIR_ABORTS  1024
#define PAIR_WORKERS 100u /* 100 prefill, 101 decode */

struct pair_leg {
	uint64_t handle; /* 0: not sent */
	bool acked;
	uint64_t resend_us;
};

struct pair_req {
	struct kvr_wire_hdr hdr; /* of the ROUTE */
	uint8_t body[1024];
	struct kvr_udp_addr client;
	struct pair_leg prefill, decode;
	bool bootstrap, ended, cancelled;
	unsigned int code; /* ended by the router with this code */
	uint32_t tries;
	uint64_t room;
	uint8_t result[64];
	uint32_t result_len;
};

struct pair_abort {
	struct kvr_wire_ids ids;
	uint16_t code;
	uint32_t tries;
	uint64_t due_us;
};

static struct {
	struct kvr_udp_addr at, agent[2]; /* prefill, decode */
	struct pair_req req[PAIR_MAX];
	struct pair_abort abort[PAIR_ABORTS];
	uint32_t n_req, n_aborts, seq, started_over;
	uint64_t handles;
} pair;

static inline void pair_send(const struct kvr_udp_addr *to, uint8_t kind, uint64_t source,
			     uint64_t id, uint64_t handle, const void *body, uint32_t len)
{
	const struct kvr_wire_ids ids = {
		.source = source, .id = id, .handle = handle, .epoch = 5, .msg_seq = ++pair.seq};
	uint8_t f[512];

	net_send(&pair.at, to, f,
		 (uint32_t)kvr_put_message(f, sizeof(f), kind, &ids, (struct kvr_slice){body, len},
					   (struct kvr_slice){NULL, 0}));
}

static inline void pair_reject(const struct pair_req *q, unsigned int code)
{
	const struct kvr_wire_rejected w = {
		.code = (uint16_t)code, .retryable = kvr_code_retryable(code), .kind = KVR_ROUTE};

	pair_send(&q->client, KVR_REJECTED, q->hdr.source, q->hdr.id, 0, &w, sizeof(w));
}

/* Answer with the state of a request. */
static inline void pair_answer(const struct pair_req *q)
{
	struct kvr_wire_accepted w = {.state = KVR_STATE_QUEUED, .prefill_dp_rank = KVR_NONE32};

	if (q->ended) {
		pair_reject(q, q->code != 0 ? q->code : KVR_E_ENDED);
		return;
	}
	if (q->decode.handle != 0) {
		w = (struct kvr_wire_accepted){
			.worker = PAIR_WORKERS + 1,
			.prefill_worker = PAIR_WORKERS,
			.path = q->bootstrap ? KVR_WAY_BOOTSTRAP : KVR_WAY_SYNC,
			.state = q->decode.acked ? KVR_STATE_RUNNING : KVR_STATE_DISPATCHED};
	}
	pair_send(&q->client, KVR_ACCEPTED, q->hdr.source, q->hdr.id, q->decode.handle, &w,
		  sizeof(w));
}

static inline void pair_leg_send(struct pair_req *q, bool decode)
{
	static const uint16_t ours[] = {KVR_HINT_PREFILL_WORKER};
	struct pair_leg *leg = decode ? &q->decode : &q->prefill;
	uint8_t hints[512], f[2048];
	struct kvr_hint_buf b = {.p = hints, .cap = sizeof(hints)};
	struct kvr_slice s[KVR_REQUEST_SLICES];
	const struct kvr_wire_ids ids = {.source = q->hdr.source,
					 .id = q->hdr.id,
					 .handle = leg->handle,
					 .epoch = 5,
					 .msg_seq = (uint32_t)leg->handle};
	struct kvr_request_src src;
	struct kvr_message r;
	uint32_t len;

	CU_ASSERT_EQUAL_FATAL(kvr_request_parse(q->body, q->hdr.msg_len, KVR_ROUTE, &r), 0);
	CU_ASSERT_EQUAL(kvr_hints_rewrite(r.hints, r.fixed.hints_len, ours, 1, &b), 0);
	kvr_hint_put_u64(&b, KVR_HINT_PREFILL_WORKER, PAIR_WORKERS);
	if (q->bootstrap)
		kvr_hint_put_bootstrap(&b, q->room, 8998, "10.0.0.7");
	else if (decode)
		kvr_hint_put(&b, KVR_HINT_PREFILL_RESULT, q->result, q->result_len, NULL, 0);
	src = (struct kvr_request_src){.fixed = r.fixed,
				       .tokens = r.tokens,
				       .n_tokens = r.fixed.n_tokens,
				       .hints = hints,
				       .hints_len = b.len,
				       .body = r.body,
				       .body_len = r.fixed.body_len};
	src.fixed.flags &= ~KVR_REQ_F_RESEND;
	src.fixed.flags |= decode ? KVR_REQ_F_DECODE_LEG : KVR_REQ_F_PREFILL_LEG;
	src.fixed.phase = decode ? KVR_ROLE_DECODE : KVR_ROLE_PREFILL;
	src.fixed.worker = PAIR_WORKERS + decode;
	memcpy(src.fixed.client_ip, q->client.ip, 16);
	src.fixed.client_port = q->client.port;
	if (!decode) {
		src.fixed.flags &= ~KVR_REQ_F_DIRECT;
		src.fixed.max_tokens = 1;
		src.fixed.client_frame = KVR_WIRE_MAX_FRAME;
	}
	len = kvr_request_build(&src, s);
	kvr_hdr_put(f, KVR_DISPATCH, &ids, len, 0, (uint16_t)len);
	CU_ASSERT_EQUAL_FATAL(
		kvr_slices_copy(s, KVR_REQUEST_SLICES, 0, len, f + sizeof(struct kvr_wire_hdr)), 0);
	net_send(&pair.at, &pair.agent[decode], f, len + (uint32_t)sizeof(struct kvr_wire_hdr));
	leg->resend_us = wire.now_us + 50000;
}

static inline void pair_start_leg(struct pair_req *q, bool decode)
{
	*(decode ? &q->decode : &q->prefill) = (struct pair_leg){.handle = ++pair.handles};
	pair_leg_send(q, decode);
	if (decode && !q->cancelled)
		pair_answer(q);
}

static inline void pair_start(struct pair_req *q)
{
	q->tries++;
	q->room = kvr_rand_u64(&wire.rnd) >> 1;
	q->decode = (struct pair_leg){0};
	pair_start_leg(q, false);
	if (q->bootstrap)
		pair_start_leg(q, true);
}

static inline void pair_abort(const struct pair_req *q, uint16_t code)
{
	CU_ASSERT_FATAL(pair.n_aborts < PAIR_ABORTS);
	pair.abort[pair.n_aborts++] = (struct pair_abort){
		.ids = {.source = q->hdr.source, .id = q->hdr.id, .handle = q->decode.handle},
		.code = code,
		.tries = 5,
		.due_us = wire.now_us};
}

static inline void pair_prefill_failed(struct pair_req *q)
{
	if (q->decode.handle != 0)
		pair_abort(q, KVR_E_PREFILL_FAILED);
	if (q->tries < 2 && !q->ended) {
		pair.started_over++;
		pair_start(q);
	} else if (!q->ended) {
		q->ended = true;
		q->code = KVR_E_PREFILL_FAILED;
		pair_reject(q, q->code);
	}
}

/* An item created by the router. */
static inline void pair_own(const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_response *w = (const void *)(h + 1);
	const struct kvr_wire_response_ack ack = {
		.next_seq = w->seq + 1, .flags = w->flags & KVR_RESP_F_FIN ? KVR_RACK_F_FIN : 0};

	pair_send(from, KVR_RESPONSE_ACK, h->source, h->id, h->handle, &ack, sizeof(ack));
}

static inline void pair_prefill_item(struct pair_req *q, const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_response *w = (const void *)(h + 1);

	if ((w->flags & KVR_RESP_F_FIN) == 0)
		return;
	q->prefill.handle = 0; /* ended */
	if ((w->flags & (KVR_RESP_F_ERROR | KVR_RESP_F_CANCELLED)) != 0) {
		pair_prefill_failed(q);
		return;
	}
	if (q->bootstrap)
		return;
	CU_ASSERT_FATAL(w->data_len > 0 && w->data_len <= sizeof(q->result));
	q->result_len = w->data_len;
	memcpy(q->result, w + 1, w->data_len);
	pair_start_leg(q, true);
	if (q->cancelled)
		pair_abort(q, 0); /* only the worker can release the blocks */
}

static inline struct pair_req *pair_find(const struct kvr_wire_hdr *h)
{
	for (uint32_t i = 0; i < pair.n_req; i++)
		if (pair.req[i].hdr.id == h->id && pair.req[i].hdr.source == h->source)
			return &pair.req[i];
	return NULL;
}

static inline void pair_from_agent(const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
				   const uint8_t *frame, uint32_t len)
{
	const bool decode = kvr_udp_addr_equal(from, &pair.agent[1]);
	struct pair_req *q = pair_find(h);
	struct pair_leg *leg = q == NULL ? NULL : decode ? &q->decode : &q->prefill;
	const bool current = leg != NULL && leg->handle == h->handle;

	if (h->kind == KVR_ABORT_ACK) {
		for (uint32_t i = 0; i < pair.n_aborts; i++)
			if (pair.abort[i].ids.handle == h->handle)
				pair.abort[i].tries = 0;
		return;
	}
	if (current)
		leg->acked = true;
	if (h->kind == KVR_DISPATCH_ACK) {
		if (current && !decode && ((const struct kvr_wire_dispatch_ack *)(h + 1))->code) {
			leg->handle = 0;
			pair_prefill_failed(q);
		}
	} else if (h->kind == KVR_RESPONSE) {
		if (!decode || !current)
			pair_own(from, h); /* also of an attempt that was abandoned */
		if (current && decode) {
			q->ended |= (((const struct kvr_wire_response *)(h + 1))->flags &
				     KVR_RESP_F_FIN) != 0;
			net_send(&pair.at, &q->client, frame, len);
		} else if (current) {
			pair_prefill_item(q, h);
		}
	} else if (h->kind == KVR_PROGRESS) {
		const struct kvr_wire_progress *w = (const void *)(h + 1);
		const struct kvr_wire_progress_ack ack = {.next_seq = w->seq + 1};

		if (current && (w->flags & KVR_PROG_F_FIN) != 0)
			q->ended = true;
		pair_send(from, KVR_PROGRESS_ACK, h->source, h->id, h->handle, &ack, sizeof(ack));
	}
}

static inline void pair_route(const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h)
{
	struct pair_req *q = pair_find(h);

	if (q == NULL) {
		CU_ASSERT_FATAL(pair.n_req < PAIR_MAX && h->msg_len <= sizeof(q->body));
		q = &pair.req[pair.n_req++];
		*q = (struct pair_req){.hdr = *h, .client = *from};
		memcpy(q->body, h + 1, h->msg_len);
		((struct kvr_wire_request *)q->body)->flags &= ~KVR_REQ_F_RESEND;
		q->bootstrap = pair.n_req % 2 != 0;
		pair_start(q);
	}
	pair_answer(q);
}

static inline void pair_cancel(const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h)
{
	struct pair_req *q = pair_find(h);

	pair_send(from, KVR_CANCELLED, h->source, h->id, h->handle, NULL, 0);
	if (q == NULL || q->ended)
		return;
	q->ended = q->cancelled = true;
	if (q->decode.handle != 0)
		pair_abort(q, 0);
}

static inline void pair_frame(const struct kvr_udp_addr *from, const uint8_t *frame, uint32_t len)
{
	static const struct kvr_wire_welcome welcome = {
		.heartbeat_ms = 50, .dead_ms = 3000, .max_frame = KVR_WIRE_MAX_FRAME};
	static const struct kvr_wire_heartbeat_ack state = {.state = KVR_WORKER_SERVING};
	const struct kvr_wire_hdr *h = (const void *)frame;
	struct pair_req *q;

	CU_ASSERT_EQUAL_FATAL(kvr_frame_check(frame, len, KVR_ROLE_BIT_ROUTER), 0);
	CU_ASSERT_EQUAL_FATAL(kvr_body_check(h->kind, h + 1, h->msg_len, NULL), 0);
	switch (h->kind) {
	case KVR_HELLO:
		pair_send(from, KVR_WELCOME, h->source, h->id, 0, &welcome, sizeof(welcome));
		break;
	case KVR_HEARTBEAT:
		pair_send(from, KVR_HEARTBEAT_ACK, h->source, h->id, 0, &state, sizeof(state));
		break;
	case KVR_ROUTE:
		pair_route(from, h);
		break;
	case KVR_PROBE:
		q = pair_find(h);
		if (q != NULL)
			pair_answer(q);
		break;
	case KVR_CANCEL:
		pair_cancel(from, h);
		break;
	case KVR_RESPONSE_ACK:
		net_send(&pair.at, &pair.agent[1], frame, len);
		break;
	default:
		pair_from_agent(from, h, frame, len);
	}
}

/* Retransmit messages. */
static inline void pair_timers(void)
{
	for (uint32_t i = 0; i < pair.n_req; i++) {
		struct pair_req *q = &pair.req[i];

		for (int decode = 0; decode < 2; decode++) {
			struct pair_leg *leg = decode ? &q->decode : &q->prefill;

			if (leg->handle != 0 && !leg->acked && leg->resend_us <= wire.now_us &&
			    !(decode && q->ended))
				pair_leg_send(q, decode);
		}
	}
	for (uint32_t i = 0; i < pair.n_aborts; i++) {
		struct pair_abort *a = &pair.abort[i];
		const struct kvr_wire_abort w = {.code = a->code};

		if (a->tries == 0 || a->due_us > wire.now_us)
			continue;
		a->tries--;
		a->due_us = wire.now_us + 500000;
		pair_send(&pair.agent[1], KVR_ABORT, a->ids.source, a->ids.id, a->ids.handle, &w,
			  sizeof(w));
	}
}

static inline void pair_turn(void)
{
	struct flight f;

	while (net_receive(&pair.at, &f)) {
		pair_frame(&f.from, f.data, f.len);
		free(f.data);
	}
	pair_timers();
}

#endif
