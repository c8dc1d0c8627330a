/* SPDX-License-Identifier: BSD-3-Clause */
#include "samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT	  UINT64_C(0x1122334455667788)
#define WORKER	  UINT64_C(0xa1)
#define PREFILLER UINT64_C(0xb1)
#define COOKIE	  UINT64_C(0xc00c1ec00c1ec00c)
#define HANDLE	  UINT64_C(0x0000000500000007)
#define ROUTER_E  0x00c0ffeeu
#define AGENT_E	  0x000a0001u
#define CLIENT_E  0x00c11e01u

struct maker {
	struct sample *out;
	uint32_t n;
};

static struct sample *add_sample(struct maker *m, const char *name, uint8_t kind, uint8_t receiver)
{
	struct sample *s = &m->out[m->n++];

	if (m->n > SAMPLES_MAX)
		abort();
	memset(s, 0, sizeof(*s));
	s->name = name;
	s->kind = kind;
	s->receiver = receiver;
	s->n_frames = 1;
	return s;
}

static void set_length(struct sample *s, int len)
{
	if (len <= 0) {
		fprintf(stderr, "sample %s: %d\n", s->name, len);
		abort();
	}
	s->len[0] = (uint32_t)len;
}

/* Request id 42 as the client, the router and the agent speak about it. */
static struct kvr_wire_ids about_request(uint32_t epoch, uint64_t handle, uint32_t msg_seq)
{
	return (struct kvr_wire_ids){
		.source = CLIENT, .id = 42, .handle = handle, .epoch = epoch, .msg_seq = msg_seq};
}

static struct kvr_wire_ids about_worker(uint32_t epoch, uint64_t id, uint32_t msg_seq)
{
	return (struct kvr_wire_ids){
		.source = WORKER, .id = id, .epoch = epoch, .msg_seq = msg_seq};
}

static void add_fragments(struct sample *s, const struct kvr_wire_ids *ids,
			  struct kvr_request_src *src, uint32_t max_frame)
{
	struct kvr_slice slices[KVR_REQUEST_SLICES];
	const uint32_t len = kvr_request_build(src, slices);
	struct kvr_frag f;
	uint32_t off, part;

	if (len == 0 || kvr_frag_init(&f, s->kind, ids, len, max_frame) != 0 ||
	    f.n_frames > SAMPLE_FRAMES_MAX)
		abort();
	s->n_frames = f.n_frames;
	for (uint32_t i = 0; i < f.n_frames; i++) {
		if (!kvr_frag_next(&f, s->frame[i], &off, &part) ||
		    kvr_slices_copy(slices, KVR_REQUEST_SLICES, off, part,
				    s->frame[i] + sizeof(struct kvr_wire_hdr)) != 0)
			abort();
		s->len[i] = (uint32_t)sizeof(struct kvr_wire_hdr) + part;
	}
}

static void fill_hints(struct kvr_hint_buf *h)
{
	const uint64_t allowed[] = {WORKER, 0xa2}, mm[] = {7, 3};
	const uint32_t ranks[] = {1, 0};

	kvr_hint_put_str(h, KVR_HINT_LORA, "adapter-a");
	kvr_hint_put_str(h, KVR_HINT_NAMESPACE, "tenant-a");
	kvr_hint_put_u64(h, KVR_HINT_BACKEND, WORKER);
	kvr_hint_put_u64(h, KVR_HINT_PREFILL_WORKER, WORKER);
	kvr_hint_put_u64(h, KVR_HINT_DECODE_WORKER, WORKER);
	kvr_hint_put_u32(h, KVR_HINT_DP_RANK, 1);
	kvr_hint_put_u32(h, KVR_HINT_PREFILL_DP_RANK, 1);
	kvr_hint_put_allowed(h, allowed, 2);
	kvr_hint_put_str(h, KVR_HINT_REQUIRED_TAINT, "gpu=h100");
	kvr_hint_put_preferred(h, 0.5, "zone=b");
	kvr_hint_put_f64(h, KVR_HINT_PRIORITY_JUMP, 2.5);
	kvr_hint_put_u32(h, KVR_HINT_STRICT_PRIORITY, 3);
	kvr_hint_put_u32(h, KVR_HINT_PRIORITY, (uint32_t)-1);
	kvr_hint_put_str(h, KVR_HINT_POLICY_CLASS, "batch");
	kvr_hint_put_override(h, KVR_OVERRIDE_ROUTER_TEMPERATURE, 0.25);
	kvr_hint_put_override(h, KVR_OVERRIDE_ASSUME_KV_REUSE, 1.0);
	kvr_hint_put_session(h, KVR_ACTION_OPEN, KVR_NONE32, "chat-1");
	kvr_hint_put_mm(h, 0, mm, 2);
	kvr_hint_put_shared(h, 0, 4);
	kvr_hint_put_shared(h, 6, 8);
	kvr_hint_put_ranks(h, KVR_HINT_FAILED_AT, allowed, ranks, 2);
	kvr_hint_put(h, KVR_HINT_TRACE, "trace", 5, NULL, 0);
	kvr_hint_put(h, KVR_HINT_PAD, NULL, 0, NULL, 0);
}

static const uint64_t hashes[2] = {UINT64_C(14643705804678351452), UINT64_C(4945711292740353085)};

static struct kvr_wire_request fixed_part(uint32_t isl, uint32_t flags)
{
	return (struct kvr_wire_request){.pool = 1,
					 .worker = COOKIE,
					 .flags = flags,
					 .isl = isl,
					 .max_tokens = 16,
					 .expected_output_tokens = KVR_NONE32,
					 .client_frame = SAMPLE_FRAME};
}

static void add_routes(struct maker *m)
{
	static uint32_t tokens[1001];
	static uint8_t body[1003], hint_bytes[1024];
	struct kvr_hint_buf h = {.p = hint_bytes, .cap = sizeof(hint_bytes)};
	struct kvr_wire_ids ids = about_request(CLIENT_E, 0, 7);
	struct kvr_request_src src = {.fixed = fixed_part(8, 0),
				      .hashes = hashes,
				      .n_hashes = 2,
				      .body = "hello",
				      .body_len = 5};

	for (uint32_t i = 0; i < 1001; i++)
		tokens[i] = i + 1;
	for (uint32_t i = 0; i < sizeof(body); i++)
		body[i] = (uint8_t)(i * 7);
	fill_hints(&h);
	if (h.err != 0)
		abort();
	add_fragments(add_sample(m, "route-hashes", KVR_ROUTE, KVR_ROLE_BIT_ROUTER), &ids, &src,
		      SAMPLE_FRAME);
	ids.msg_seq = 8;
	src = (struct kvr_request_src){
		.fixed = fixed_part(5, KVR_REQ_F_QUERY), .tokens = tokens, .n_tokens = 5};
	add_fragments(add_sample(m, "route-tokens-query", KVR_ROUTE, KVR_ROLE_BIT_ROUTER), &ids,
		      &src, SAMPLE_FRAME);
	ids.msg_seq = 9;
	src = (struct kvr_request_src){.fixed = fixed_part(1001, KVR_REQ_F_DIRECT),
				       .hashes = hashes,
				       .n_hashes = 2,
				       .tokens = tokens,
				       .n_tokens = 1001,
				       .hints = hint_bytes,
				       .hints_len = h.len,
				       .body = body,
				       .body_len = sizeof(body)};
	add_fragments(add_sample(m, "route-full", KVR_ROUTE, KVR_ROLE_BIT_ROUTER), &ids, &src,
		      SAMPLE_FRAME);
	add_fragments(add_sample(m, "loads-query", KVR_POTENTIAL_LOADS, KVR_ROLE_BIT_ROUTER), &ids,
		      &src, SAMPLE_FRAME);
}

static void add_dispatches(struct maker *m)
{
	static const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 9};
	static uint8_t prefill_hints[64], decode_hints[64];
	struct kvr_hint_buf p = {.p = prefill_hints, .cap = sizeof(prefill_hints)},
			    d = {.p = decode_hints, .cap = sizeof(decode_hints)};
	struct kvr_wire_ids ids = about_request(ROUTER_E, HANDLE, 100);
	struct kvr_request_src src = {.fixed = fixed_part(8, 0),
				      .hashes = hashes,
				      .n_hashes = 2,
				      .body = "hello",
				      .body_len = 5};

	src.fixed.worker = WORKER;
	src.fixed.dp_rank = 1;
	src.fixed.overlap_blocks = 1;
	src.fixed.cached_tokens = 4;
	memcpy(src.fixed.client_ip, mapped, sizeof(mapped));
	src.fixed.client_port = 40000;
	add_fragments(add_sample(m, "dispatch", KVR_DISPATCH, KVR_ROLE_BIT_AGENT), &ids, &src,
		      SAMPLE_FRAME);

	/* The legs of two disaggregated requests: prefill by bootstrap, decode after a result. */
	kvr_hint_put_u64(&p, KVR_HINT_PREFILL_WORKER, PREFILLER);
	kvr_hint_put_bootstrap(&p, 77, 8998, "10.0.0.7");
	src.fixed.pool = 2;
	src.fixed.worker = PREFILLER;
	src.fixed.client_frame = KVR_WIRE_MAX_FRAME; /* the router's */
	src.fixed.flags = KVR_REQ_F_PREFILL_LEG;
	src.fixed.phase = KVR_ROLE_PREFILL;
	src.fixed.max_tokens = 1;
	src.hints = prefill_hints;
	src.hints_len = p.len;
	ids.msg_seq = 101;
	add_fragments(add_sample(m, "dispatch-prefill", KVR_DISPATCH, KVR_ROLE_BIT_AGENT), &ids,
		      &src, SAMPLE_FRAME);

	kvr_hint_put_u64(&d, KVR_HINT_PREFILL_WORKER, PREFILLER);
	kvr_hint_put(&d, KVR_HINT_PREFILL_RESULT, "result", 6, NULL, 0);
	src.fixed.pool = 1;
	src.fixed.worker = WORKER;
	src.fixed.client_frame = SAMPLE_FRAME;
	src.fixed.flags = KVR_REQ_F_DECODE_LEG;
	src.fixed.phase = KVR_ROLE_DECODE;
	src.fixed.max_tokens = 16;
	src.fixed.attempt = 1;
	src.hints = decode_hints;
	src.hints_len = d.len;
	ids.msg_seq = 102;
	add_fragments(add_sample(m, "dispatch-decode", KVR_DISPATCH, KVR_ROLE_BIT_AGENT), &ids,
		      &src, SAMPLE_FRAME);
}

#define PUT(name, kind, receiver, call)                                                            \
	do {                                                                                       \
		struct sample *s = add_sample(m, name, kind, receiver);                            \
		uint8_t *b = s->frame[0];                                                          \
		const size_t cap = SAMPLE_FRAME;                                                   \
                                                                                                   \
		set_length(s, call);                                                               \
	} while (0)

#define C KVR_ROLE_BIT_CLIENT
#define A KVR_ROLE_BIT_AGENT
#define R KVR_ROLE_BIT_ROUTER

static void add_connects(struct maker *m)
{
	uint8_t hint_bytes[128];
	struct kvr_hint_buf h = {.p = hint_bytes, .cap = sizeof(hint_bytes)};
	const struct kvr_wire_ids from_client = {
		.source = CLIENT, .id = 1, .epoch = CLIENT_E, .msg_seq = 1};
	const struct kvr_wire_ids from_router = {
		.source = CLIENT, .id = 1, .epoch = ROUTER_E, .msg_seq = 1};
	const struct kvr_wire_connected limits = {.max_frame = 8952,
						  .max_tokens = KVR_WIRE_MAX_TOKENS,
						  .max_hashes = KVR_WIRE_MAX_HASHES,
						  .max_body = KVR_WIRE_MAX_BODY,
						  .max_message = 1 << 20,
						  .max_frames = 758,
						  .cookie = COOKIE};
	const struct kvr_wire_pool pools[] = {
		{.pool = 1, .flags = KVR_POOL_F_SERVES, .block_size = 16, .ranks = 4},
		{.pool = 2, .block_size = 64, .role = 1}};
	const struct kvr_str names[] = {{"llama-70b", 9}, {"qwen", 4}};

	const uint8_t zeros[68] = {0};

	kvr_hint_put_str(&h, KVR_HINT_POOL, "llama-70b");
	kvr_hint_put(&h, KVR_HINT_PAD, zeros, sizeof(zeros), NULL, 0); /* as long as the answer */
	PUT("connect-all", KVR_CONNECT, R, kvr_put_connect(b, cap, &from_client, 1432, NULL));
	PUT("connect", KVR_CONNECT, R, kvr_put_connect(b, cap, &from_client, 1432, &h));
	PUT("connected", KVR_CONNECTED, C,
	    kvr_put_connected(b, cap, &from_router, limits, pools, names, 2));
}

static void add_answers(struct maker *m)
{
	const struct kvr_wire_ids c = about_request(CLIENT_E, 0, 9),
				  r = about_request(ROUTER_E, 0, 3),
				  rh = about_request(ROUTER_E, HANDLE, 4),
				  ch = about_request(CLIENT_E, HANDLE, 11);
	const struct kvr_wire_accepted running = {.worker = WORKER,
						  .dp_rank = 1,
						  .overlap_blocks = 1,
						  .required_blocks = 2,
						  .cached_tokens = 4,
						  .state = KVR_STATE_RUNNING,
						  .prefill_dp_rank = KVR_NONE32};
	struct kvr_wire_accepted booked = running;
	uint8_t addr[32];
	struct kvr_hint_buf where = {.p = addr, .cap = sizeof(addr)};
	const struct kvr_wire_accepted queued = {.state = KVR_STATE_QUEUED,
						 .queue_len = 3,
						 .pending_tokens = 4096,
						 .prefill_dp_rank = KVR_NONE32};
	const struct kvr_wire_accepted legs = {.worker = WORKER,
					       .dp_rank = 1,
					       .required_blocks = 2,
					       .state = KVR_STATE_DISPATCHED,
					       .prefill_overlap_blocks = 2,
					       .prefill_worker = PREFILLER,
					       .path = KVR_WAY_BOOTSTRAP};
	const struct kvr_fault full = {1000, 1000, "no room to reassemble"};
	const struct kvr_wire_ids ah = about_request(AGENT_E, HANDLE, 19);
	/* Of a message of 6 fragments, numbers 1 and 5 (the last one). */
	struct kvr_wire_missing lacks = {
		.kind = KVR_ROUTE, .n_words = 1, .msg_seq = 9, .msg_len = 6008, .unit = 1200};
	const uint64_t which = 0x22;

	const struct kvr_fault cookie = {.seen = COOKIE};
	const uint8_t short_form[8] = {KVR_E_UNKNOWN_REQUEST, 0, 0, KVR_PROBE};
	const uint64_t room = 0;

	PUT("accepted", KVR_ACCEPTED, C, kvr_put_accepted(b, cap, &rh, &running));
	PUT("accepted-queued", KVR_ACCEPTED, C, kvr_put_accepted(b, cap, &rh, &queued));
	PUT("accepted-legs", KVR_ACCEPTED, C, kvr_put_accepted(b, cap, &rh, &legs));
	kvr_hint_put_str(&where, KVR_HINT_ENGINE_ADDR, "10.0.0.7:8000");
	booked.hints_len = (uint16_t)where.len;
	PUT("accepted-booked", KVR_ACCEPTED, C,
	    kvr_put_message(b, cap, KVR_ACCEPTED, &rh, (struct kvr_slice){&booked, sizeof(booked)},
			    (struct kvr_slice){where.p, where.len}));
	PUT("rejected", KVR_REJECTED, C,
	    kvr_put_rejected(b, cap, &r, KVR_E_REASSEMBLY_FULL, KVR_ROUTE, &full));
	PUT("rejected-bare", KVR_REJECTED, A,
	    kvr_put_rejected(b, cap, &r, KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT, NULL));
	PUT("rejected-cookie", KVR_REJECTED, C,
	    kvr_put_rejected(b, cap, &r, KVR_E_COOKIE, KVR_ROUTE, &cookie));
	PUT("rejected-short", KVR_REJECTED, C,
	    kvr_put_message(b, cap, KVR_REJECTED, &r, (struct kvr_slice){short_form, 8},
			    (struct kvr_slice){NULL, 0}));
	PUT("cancel", KVR_CANCEL, R, kvr_put_empty(b, cap, KVR_CANCEL, &ch));
	PUT("cancelled", KVR_CANCELLED, C, kvr_put_empty(b, cap, KVR_CANCELLED, &rh));
	PUT("probe", KVR_PROBE, R,
	    kvr_put_message(b, cap, KVR_PROBE, &c, (struct kvr_slice){&room, sizeof(room)},
			    (struct kvr_slice){NULL, 0}));
	PUT("probe-empty", KVR_PROBE, R, kvr_put_empty(b, cap, KVR_PROBE, &c));
	PUT("missing", KVR_MISSING, C,
	    kvr_put_message(b, cap, KVR_MISSING, &r, (struct kvr_slice){&lacks, sizeof(lacks)},
			    (struct kvr_slice){&which, sizeof(which)}));
	lacks.kind = KVR_DISPATCH;
	PUT("missing-dispatch", KVR_MISSING, R,
	    kvr_put_message(b, cap, KVR_MISSING, &ah, (struct kvr_slice){&lacks, sizeof(lacks)},
			    (struct kvr_slice){&which, sizeof(which)}));
	lacks.kind = KVR_RESPONSE;
	PUT("missing-item", KVR_MISSING, R,
	    kvr_put_message(b, cap, KVR_MISSING, &ch, (struct kvr_slice){&lacks, sizeof(lacks)},
			    (struct kvr_slice){&which, sizeof(which)}));
}

/* An item of three frames. */
static void cut_item(struct sample *s, const struct kvr_wire_ids *ids)
{
	struct {
		struct kvr_wire_response w;
		uint8_t data[1504];
	} body = {.w = {.seq = 2,
			.flags = KVR_RESP_F_FIN,
			.generated_tokens = 4,
			.data_len = 1500,
			.cached_tokens = KVR_NONE32}};
	struct kvr_frag f;
	uint32_t off, part;

	for (uint32_t i = 0; i < body.w.data_len; i++)
		body.data[i] = (uint8_t)('a' + i % 26);
	if (kvr_frag_init(&f, s->kind, ids, sizeof(body), KVR_WIRE_LEAST_MAX_FRAME) != 0)
		abort();
	s->n_frames = f.n_frames;
	for (uint32_t i = 0; kvr_frag_next(&f, s->frame[i], &off, &part); i++) {
		memcpy(s->frame[i] + sizeof(struct kvr_wire_hdr), (uint8_t *)&body + off, part);
		s->len[i] = (uint32_t)sizeof(struct kvr_wire_hdr) + part;
	}
}

static void add_streams(struct maker *m)
{
	const uint32_t tokens[3] = {101, 102, 103};
	const struct kvr_slice data = {tokens, sizeof(tokens)};
	const struct kvr_wire_ids a = about_request(AGENT_E, HANDLE, 20),
				  c = about_request(CLIENT_E, HANDLE, 12),
				  r = about_request(ROUTER_E, HANDLE, 5);
	const struct kvr_wire_response first = {
		.flags = KVR_RESP_F_TOKENS, .generated_tokens = 3, .cached_tokens = 4};
	const struct kvr_wire_response last = {.seq = 1,
					       .flags = KVR_RESP_F_FIN,
					       .generated_tokens = 3,
					       .cached_tokens = KVR_NONE32};
	const struct kvr_wire_dispatch_ack taken = {0}, refused = {.code = 7};
	const struct kvr_wire_response_ack ack = {.next_seq = 2, .flags = KVR_RACK_F_FIN};
	const struct kvr_wire_progress prog = {
		.seq = 1, .flags = KVR_PROG_F_FIRST, .generated_tokens = 1, .cached_tokens = 4};
	const struct kvr_wire_progress_ack prog_ack = {.next_seq = 2};
	const struct kvr_wire_abort abort_body = {.code = KVR_E_EXPIRED};

	PUT("dispatch-ack", KVR_DISPATCH_ACK, R, kvr_put_dispatch_ack(b, cap, &a, &taken));
	PUT("dispatch-refused", KVR_DISPATCH_ACK, R, kvr_put_dispatch_ack(b, cap, &a, &refused));
	PUT("response-tokens", KVR_RESPONSE, C, kvr_put_response(b, cap, &a, first, data));
	PUT("response-fin", KVR_RESPONSE, R,
	    kvr_put_response(b, cap, &a, last, (struct kvr_slice){"bye", 3}));
	cut_item(add_sample(m, "response-long", KVR_RESPONSE, KVR_ROLE_BIT_CLIENT), &a);
	PUT("response-ack", KVR_RESPONSE_ACK, R, kvr_put_response_ack(b, cap, &c, &ack));
	PUT("progress", KVR_PROGRESS, R, kvr_put_progress(b, cap, &a, &prog));
	PUT("progress-ack", KVR_PROGRESS_ACK, A, kvr_put_progress_ack(b, cap, &r, &prog_ack));
	PUT("abort", KVR_ABORT, A, kvr_put_abort(b, cap, &r, &abort_body));
	PUT("abort-ack", KVR_ABORT_ACK, R, kvr_put_empty(b, cap, KVR_ABORT_ACK, &a));
}

static void add_workers(struct maker *m)
{
	uint8_t hint_bytes[256];
	struct kvr_hint_buf h = {.p = hint_bytes, .cap = sizeof(hint_bytes)};
	const struct kvr_wire_ids a = about_worker(AGENT_E, 1, 1), r = about_worker(ROUTER_E, 1, 1);
	const struct kvr_wire_hello hello = {.block_size = 16,
					     .dp_size = 2,
					     .max_num_batched_tokens = 8192,
					     .total_kv_blocks = 100000,
					     .max_frame = 1432};
	const struct kvr_wire_welcome welcome = {
		.pool = 1, .heartbeat_ms = 100, .dead_ms = 1000, .max_frame = 8952};
	const struct kvr_wire_rank_load ranks[] = {{.dp_rank = 0,
						    .active_requests = 5,
						    .kv_used_blocks = 1234,
						    .next_event_id = 99,
						    .events_unread = 3,
						    .event_block_size = 16,
						    .event_form = KVR_FORM_PAIRS,
						    .canaries_missed = 7},
						   {.dp_rank = 1, .kv_used_blocks = UINT64_MAX}};
	const struct kvr_wire_heartbeat_ack state = {.state = KVR_WORKER_SERVING, .bookings = 5};
	const uint64_t live[] = {0x0000000701000005, 0x0000000301000009};

	kvr_hint_put_str(&h, KVR_HINT_POOL, "llama-70b");
	kvr_hint_put_str(&h, KVR_HINT_TAINT, "gpu=h100");
	kvr_hint_put_str(&h, KVR_HINT_TOPOLOGY, "zone=b");
	kvr_hint_put_kv_transfer(&h, 1, 0.5, "rack-1");
	kvr_hint_put_bootstrap_addr(&h, 8998, "10.0.0.7");
	PUT("hello", KVR_HELLO, R, kvr_put_hello(b, cap, &a, hello, &h));
	PUT("welcome", KVR_WELCOME, A, kvr_put_welcome(b, cap, &r, &welcome));
	PUT("heartbeat", KVR_HEARTBEAT, R, kvr_put_heartbeat(b, cap, &a, ranks, 2, 0, 0));
	PUT("heartbeat-ack", KVR_HEARTBEAT_ACK, A, kvr_put_heartbeat_ack(b, cap, &r, &state));
	PUT("alive", KVR_ALIVE, R, kvr_put_alive(b, cap, &a, live, 2));
	PUT("goodbye", KVR_GOODBYE, R, kvr_put_empty(b, cap, KVR_GOODBYE, &a));
	PUT("goodbye-ack", KVR_GOODBYE_ACK, A, kvr_put_empty(b, cap, KVR_GOODBYE_ACK, &r));
}

static int live_events(uint8_t *b, size_t cap, const struct kvr_wire_ids *ids)
{
	const struct kvr_wire_kv_events head = {.first_event_id = 10, .dp_rank = 1};
	struct kvr_kv_put k;

	if (kvr_kv_put_begin(&k, b, cap, ids, &head) != 0 ||
	    kvr_kv_put_event(&k, KVR_KV_STORED, 0, NULL, hashes, 2) != 0 ||
	    kvr_kv_put_event(&k, KVR_KV_STORED, 1, &hashes[0], &hashes[1], 1) != 0 ||
	    kvr_kv_put_event(&k, KVR_KV_REMOVED, 0, NULL, &hashes[1], 1) != 0 ||
	    kvr_kv_put_event(&k, KVR_KV_CLEARED, 0, NULL, NULL, 0) != 0)
		return -1;
	return kvr_kv_put_end(&k);
}

static int put_dump(uint8_t *b, size_t cap, const struct kvr_wire_ids *ids)
{
	const struct kvr_wire_kv_events head = {.resume_event_id = 14,
						.flags = KVR_KV_F_DUMP | KVR_KV_F_DUMP_BEGIN |
							 KVR_KV_F_DUMP_END};
	struct kvr_kv_put k;

	if (kvr_kv_put_begin(&k, b, cap, ids, &head) != 0 ||
	    kvr_kv_put_event(&k, KVR_KV_STORED, 0, NULL, hashes, 2) != 0)
		return -1;
	return kvr_kv_put_end(&k);
}

static void add_events(struct maker *m)
{
	const struct kvr_wire_ids a = about_worker(AGENT_E, 2, 2), r = about_worker(ROUTER_E, 2, 2);
	const struct kvr_wire_kv_ack ack = {.next_event_id = 14, .dp_rank = 1};
	const struct kvr_wire_kv_ack wanted = {.dp_rank = 0, .code = KVR_KV_DUMP_WANTED};

	PUT("kv-events", KVR_KV_EVENTS, R, live_events(b, cap, &a));
	PUT("kv-dump", KVR_KV_EVENTS, R, put_dump(b, cap, &a));
	PUT("kv-ack", KVR_KV_ACK, A, kvr_put_kv_ack(b, cap, &r, &ack));
	PUT("kv-ack-dump-wanted", KVR_KV_ACK, A, kvr_put_kv_ack(b, cap, &r, &wanted));
}

static void add_sessions(struct maker *m)
{
	const struct kvr_wire_ids a = about_worker(AGENT_E, 3, 3), r = about_worker(ROUTER_E, 3, 3),
				  c = about_request(CLIENT_E, 0, 13),
				  rc = about_request(ROUTER_E, 0, 13);
	const struct kvr_wire_session begin = {.timeout_s = 330, .pool = 1}, end = {.pool = 1};
	const struct kvr_str id = {"chat-1", 6};

	PUT("session-open", KVR_SESSION_OPEN, A,
	    kvr_put_session(b, cap, KVR_SESSION_OPEN, &r, begin, id));
	PUT("session-opened", KVR_SESSION_OPENED, R,
	    kvr_put_session_status(b, cap, KVR_SESSION_OPENED, &a, 0));
	PUT("session-close", KVR_SESSION_CLOSE, A,
	    kvr_put_session(b, cap, KVR_SESSION_CLOSE, &r, end, id));
	PUT("session-closed", KVR_SESSION_CLOSED, R,
	    kvr_put_session_status(b, cap, KVR_SESSION_CLOSED, &a, 0));
	PUT("session-release", KVR_SESSION_RELEASE, R,
	    kvr_put_session(b, cap, KVR_SESSION_RELEASE, &c, end, id));
	PUT("session-released", KVR_SESSION_RELEASED, C,
	    kvr_put_session_status(b, cap, KVR_SESSION_RELEASED, &rc, KVR_E_UNKNOWN_SESSION));
}

static void add_loads(struct maker *m)
{
	const struct kvr_wire_ids rc = about_request(ROUTER_E, 0, 13);
	const struct kvr_wire_loads answer = {.n_ranks = 1, .queue_len = 2, .pending_tokens = 100};
	const struct kvr_wire_rank_potential rank = {.worker = WORKER,
						     .dp_rank = 1,
						     .active_requests = 2,
						     .prefill_tokens = 16,
						     .decode_blocks = 4,
						     .overlap_blocks = 3,
						     .cached_tokens = 12};

	PUT("loads", KVR_LOADS, C,
	    kvr_put_message(b, cap, KVR_LOADS, &rc, (struct kvr_slice){&answer, sizeof(answer)},
			    (struct kvr_slice){&rank, sizeof(rank)}));
}

uint32_t samples_make(struct sample *out)
{
	struct maker m = {out, 0};

	add_connects(&m);
	add_routes(&m);
	add_dispatches(&m);
	add_answers(&m);
	add_streams(&m);
	add_workers(&m);
	add_events(&m);
	add_sessions(&m);
	add_loads(&m);
	return m.n;
}

const struct sample *samples_find(const struct sample *s, uint32_t n, const char *name)
{
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(s[i].name, name) == 0)
			return &s[i];
	fprintf(stderr, "no sample %s\n", name);
	abort();
}
