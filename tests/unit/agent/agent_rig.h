/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_RIG_H
#define AGENT_RIG_H

/**
 * @file
 * An agent in a fake world, a record of its callbacks, and frames as a router sends them.
 */

#include "agent_pvt.h"

#include "../client/fake_io.h"

#define WORKER	     0x77u
#define SOURCE	     0x1122334455667788u
#define ROUTER_EPOCH 500u
#define HANDLE	     100u

static struct fake_io net;
static struct kvr_agent *a;
static struct kvr_udp_addr router_at, client_at;

static struct {
	int dispatches, aborts, dones, states, dumps;
	struct kvr_agent_request req; /* pointers are invalid after the callback */
	uint32_t first_token, first_hash_low;
	char body[16];
	int refuse;	    /* result of on_dispatch */
	bool answer_inside; /* respond from inside on_dispatch */
	enum kvr_agent_abort why;
	uint16_t code;
	struct kvr_agent_status status;
	uint64_t dump_runs;   /* on_dump lists this number of runs ... */
	uint32_t dump_blocks; /* ... of this number of blocks */
	int opens, closes;
	char session[260];
	uint32_t timeout_s;
	int session_code;    /* result of the session callbacks */
	bool receive_inside; /* a session callback receives frames */
	char leg_host[260], leg_result[16];
	bool leg_result_is; /* rig_result */
} saw;

/** Result behind the body of the next DISPATCH; rig_result_len 0: none. */
static const char *rig_result;
static uint32_t rig_result_len;

static int on_dispatch(struct kvr_agent *ag, const struct kvr_agent_request *r, void *u)
{
	saw.dispatches++;
	saw.req = *r;
	if (r->n_tokens > 0)
		saw.first_token = r->tokens[0];
	if (r->n_hashes > 0)
		saw.first_hash_low = (uint32_t)r->hashes[0];
	if (r->body_len > 0 && r->body_len < sizeof(saw.body))
		memcpy(saw.body, r->body, r->body_len);
	if (r->bootstrap_host != NULL)
		snprintf(saw.leg_host, sizeof(saw.leg_host), "%s", r->bootstrap_host);
	if (r->prefill_result_len > 0 && r->prefill_result_len < sizeof(saw.leg_result))
		memcpy(saw.leg_result, r->prefill_result, r->prefill_result_len);
	saw.leg_result_is =
		r->prefill_result_len == rig_result_len &&
		(rig_result_len == 0 || memcmp(r->prefill_result, rig_result, rig_result_len) == 0);
	if (saw.answer_inside)
		CU_ASSERT_EQUAL(
			kvr_agent_respond(ag, r->handle,
					  &(struct kvr_agent_item){.data = "now", .len = 3}),
			0);
	return saw.refuse;
}

static void on_abort(struct kvr_agent *ag, uint64_t handle, enum kvr_agent_abort why, uint16_t code,
		     void *u)
{
	saw.aborts++;
	saw.why = why;
	saw.code = code;
}

static void on_done(struct kvr_agent *ag, uint64_t handle, void *u)
{
	saw.dones++;
}

static void on_state(struct kvr_agent *ag, const struct kvr_agent_status *s, void *u)
{
	saw.states++;
	saw.status = *s;
}

static int on_dump(struct kvr_agent *ag, uint32_t rank, uint64_t pos, struct kvr_agent_kv *kv,
		   void *u)
{
	static uint64_t hashes[4096];

	saw.dumps += pos == 0;
	if (pos == saw.dump_runs)
		return 0;
	for (uint32_t i = 0; i < saw.dump_blocks; i++)
		hashes[i] = (pos << 32) + i + 1;
	*kv = (struct kvr_agent_kv){.hashes = hashes, .n = saw.dump_blocks};
	return 1;
}

static int session_called(struct kvr_agent *ag, const struct kvr_agent_session *s)
{
	snprintf(saw.session, sizeof(saw.session), "%s", s->id);
	saw.timeout_s = s->timeout_s;
	if (saw.receive_inside)
		kvr_agent_process(ag);
	return saw.session_code;
}

static int on_session_open(struct kvr_agent *ag, const struct kvr_agent_session *s, void *u)
{
	saw.opens++;
	return session_called(ag, s);
}

static int on_session_close(struct kvr_agent *ag, const struct kvr_agent_session *s, void *u)
{
	saw.closes++;
	return session_called(ag, s);
}

static const struct kvr_agent_ops rig_ops = {.on_dispatch = on_dispatch,
					     .on_abort = on_abort,
					     .on_done = on_done,
					     .on_state = on_state,
					     .on_dump = on_dump,
					     .on_session_open = on_session_open,
					     .on_session_close = on_session_close};

static struct kvr_wire_ids ids_of(uint64_t source, uint64_t id, uint64_t handle)
{
	static uint32_t seq;

	return (struct kvr_wire_ids){.source = source,
				     .id = id,
				     .handle = handle,
				     .epoch = ROUTER_EPOCH,
				     .msg_seq = ++seq};
}

/** Id of the HELLO that push_welcome() answers; 0: the last one. */
static uint64_t hello_answered;

static inline uint64_t hello_id(void)
{
	return hello_answered != 0 ? hello_answered : a->hello_ids.id;
}

/** Largest frame that push_welcome() accepts. */
static uint16_t welcome_frame = 1432;

static inline void push_welcome(uint32_t epoch, uint16_t flags)
{
	struct kvr_wire_ids ids;
	const struct kvr_wire_welcome w = {
		.flags = flags, .heartbeat_ms = 500, .dead_ms = 2000, .max_frame = welcome_frame};

	kvr_agent_process(a); /* a received frame may cause HELLO */
	ids = ids_of(WORKER, hello_id(), 0);
	ids.epoch = epoch;
	fake_push(&net, router_at, kvr_put_welcome(fake_slot(&net), 1984, &ids, &w));
}

static inline void push_welcome_epoch(uint32_t epoch)
{
	push_welcome(epoch, 0);
}

static inline void push_heartbeat_ack(uint16_t state, uint32_t bookings)
{
	const struct kvr_wire_ids ids = ids_of(WORKER, 0, 0);
	const struct kvr_wire_heartbeat_ack w = {.state = state, .bookings = bookings};

	fake_push(&net, router_at, kvr_put_heartbeat_ack(fake_slot(&net), 1984, &ids, &w));
}

static inline void push_rejected(unsigned int code, uint8_t kind)
{
	const struct kvr_wire_ids ids = ids_of(WORKER, kind == KVR_HELLO ? a->hello_ids.id : 0, 0);

	fake_push(&net, router_at, kvr_put_rejected(fake_slot(&net), 1984, &ids, code, kind, NULL));
}

/** Id of the frame that the next push_kv_ack() answers, and epoch of the router that sends it. */
static uint64_t kv_ack_id;
static uint32_t kv_ack_epoch = ROUTER_EPOCH;

static inline void push_kv_ack(uint64_t next, uint16_t code, uint64_t dump_pos)
{
	struct kvr_wire_ids ids = ids_of(WORKER, kv_ack_id, 0);
	const struct kvr_wire_kv_ack w = {
		.next_event_id = next, .next_dump_pos = dump_pos, .dp_rank = 4, .code = code};

	ids.epoch = kv_ack_epoch;
	fake_push(&net, router_at, kvr_put_kv_ack(fake_slot(&net), 1984, &ids, &w));
}

static const uint32_t tokens[] = {10, 11, 12, 13, 14, 15, 16, 17};

/** Epoch of the router that sends the next push_dispatch(). */
static uint32_t dispatch_epoch = ROUTER_EPOCH;

static inline void push_dispatch_hints(uint64_t id, uint64_t handle, uint32_t flags,
				       const struct kvr_hint_buf *hints)
{
	const uint64_t hashes[] = {99, 98};
	struct kvr_wire_ids ids = ids_of(SOURCE, id, handle);
	struct kvr_request_src src = {.hashes = hashes,
				      .n_hashes = 2,
				      .tokens = tokens,
				      .n_tokens = 8,
				      .hints = hints->p,
				      .hints_len = hints->len,
				      .body = "do it",
				      .body_len = 5,
				      .result = rig_result,
				      .result_len = rig_result_len};
	struct kvr_slice s[KVR_REQUEST_SLICES];
	struct kvr_frag f;
	uint32_t len, off, n;

	ids.epoch = dispatch_epoch;
	src.fixed = (struct kvr_wire_request){
		.flags = flags,
		.isl = 8,
		.max_tokens = 5,
		.worker = WORKER,
		.dp_rank = 5,
		.overlap_blocks = 1,
		.client_port = client_at.port,
		.client_frame = flags & KVR_REQ_F_PREFILL_LEG ? KVR_WIRE_MAX_FRAME : 1432};
	memcpy(src.fixed.client_ip, client_at.ip, 16);
	len = kvr_request_build(&src, s);
	CU_ASSERT_EQUAL_FATAL(kvr_frag_init(&f, KVR_DISPATCH, &ids, len, 1432), 0);
	while (kvr_frag_next(&f, fake_slot(&net), &off, &n)) {
		kvr_slices_copy(s, KVR_REQUEST_SLICES, off, n, fake_slot(&net) + 48);
		fake_push(&net, router_at, (int)(48 + n));
	}
}

static inline void push_dispatch(uint64_t id, uint64_t handle, uint32_t flags)
{
	push_dispatch_hints(id, handle, flags, &(struct kvr_hint_buf){0});
}

static inline void push_response_ack(struct kvr_udp_addr from, uint64_t id, uint64_t handle,
				     uint32_t next, uint32_t flags)
{
	const struct kvr_wire_ids ids = ids_of(SOURCE, id, handle);
	const struct kvr_wire_response_ack w = {.next_seq = next, .flags = flags};

	fake_push(&net, from, kvr_put_response_ack(fake_slot(&net), 1984, &ids, &w));
}

static inline void push_abort(uint64_t id, uint64_t handle, uint16_t code)
{
	const struct kvr_wire_ids ids = ids_of(SOURCE, id, handle);
	const struct kvr_wire_abort w = {.code = code};

	fake_push(&net, router_at, kvr_put_abort(fake_slot(&net), 1984, &ids, &w));
}

static inline void rig_run_ms(uint32_t ms)
{
	for (uint32_t i = 0; i < ms; i++) {
		if (kvr_agent_timeout_ms(a) == 0)
			kvr_agent_process(a);
		net.now_us += 1000;
	}
	kvr_agent_process(a);
}

static inline void rig_start_conf(struct kvr_agent_conf conf)
{
	memset(&saw, 0, sizeof(saw));
	kv_ack_id = 0;
	fake_reset(&net);
	router_at = fake_addr(1, 7650);
	client_at = fake_addr(8, 3333);
	conf.worker = WORKER;
	conf.pool = "llama";
	conf.block_size = 4;
	conf.dp_start = 4;
	conf.dp_size = 2;
	conf.epoch = 9;
	conf.ops = &rig_ops;
	a = kvr_agent__create_on(&conf, &router_at, &net.udp);
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
}

/** An agent that received WELCOME; heartbeats every 500 ms. */
static inline void rig_welcomed(struct kvr_agent_conf conf)
{
	rig_start_conf(conf);
	kvr_agent_process(a);
	push_welcome_epoch(ROUTER_EPOCH);
	kvr_agent_process(a);
	fake_skip(&net);
}

/** The same, with request 1 dispatched, with @p flags and the handle HANDLE. */
static inline void rig_dispatched(struct kvr_agent_conf conf, uint32_t flags)
{
	rig_welcomed(conf);
	push_dispatch(1, HANDLE, flags);
	kvr_agent_process(a);
}

static inline void rig_stop(void)
{
	kvr_agent_destroy(a);
	CU_ASSERT(net.closed);
}

static inline int respond_to_request(uint64_t handle, const char *data, uint32_t flags,
				     uint32_t generated)
{
	const struct kvr_agent_item it = {.data = data,
					  .len = (uint32_t)strlen(data),
					  .flags = flags,
					  .generated_tokens = generated};
	const int rc = kvr_agent_respond(a, handle, &it);

	return rc;
}

/** Return true if the data of an item are this text. */
static inline bool rig_has_text(const struct kvr_wire_response *w, const char *words)
{
	return w != NULL && w->data_len == strlen(words) && memcmp(w + 1, words, w->data_len) == 0;
}

#endif
