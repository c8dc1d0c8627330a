/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_RIG_H
#define CLIENT_RIG_H

/**
 * @file
 * A client in a fake world, a record of its callbacks, and frames as a router or an agent sends
 * them.
 */

#include "client_pvt.h"

#include "fake_io.h"

#define SOURCE 0x1122334455667788u
#define HANDLE 0xabcdef01u

static struct fake_io net;
static struct kvr_client *c;
static struct kvr_udp_addr router_at, agent_at;

/** Record of the callbacks; reset by rig_start(). */
static struct {
	int queued, accepted, items, ends, connects, connect_status;
	struct kvr_client_choice choice;
	struct kvr_client_end end;
	char text[64];
	uint32_t last_seq, bytes, last_flags;
	uint64_t cancel_at_item; /* cancel at this number of items */
	bool submit_at_end;
	bool tracked;
	struct kvr_client_tracker tracker;
	char details[64];
	uint64_t next_id;
} saw;

static const uint32_t prompt[] = {1, 2, 3, 4};

static void on_connect(struct kvr_client *cl, int status, void *user)
{
	saw.connects++;
	saw.connect_status = status;
}

static void on_queued(struct kvr_client *cl, uint64_t id, const struct kvr_client_queue *q, void *u)
{
	saw.queued++;
}

static void on_accepted(struct kvr_client *cl, uint64_t id, const struct kvr_client_choice *ch,
			void *u)
{
	saw.accepted++;
	saw.choice = *ch;
}

static void on_item(struct kvr_client *cl, uint64_t id, const struct kvr_client_item *it, void *u)
{
	CU_ASSERT_EQUAL(it->seq,
			(uint32_t)saw.items); /* checks that items arrive in order, each once */
	CU_ASSERT_EQUAL(saw.ends, 0);
	saw.items++;
	saw.bytes += it->len;
	saw.last_seq = it->seq;
	saw.last_flags = it->flags;
	if (saw.cancel_at_item == (uint64_t)saw.items)
		CU_ASSERT_EQUAL(kvr_client_cancel(cl, id), 0);
}

static const struct kvr_client_ops rig_ops;

static void on_end(struct kvr_client *cl, uint64_t id, const struct kvr_client_end *e, void *u)
{
	const struct kvr_client_request next = {.tokens = prompt, .n_tokens = 4, .ops = &rig_ops};

	saw.ends++;
	saw.end = *e;
	saw.tracked = e->tracker != NULL;
	if (saw.tracked) {
		saw.tracker = *e->tracker;
		memcpy(saw.details, e->tracker->prompt_details, e->tracker->prompt_details_len);
	}
	snprintf(saw.text, sizeof(saw.text), "%s", e->text);
	CU_ASSERT_EQUAL(kvr_client_cancel(cl, id), -ENOENT);
	if (saw.submit_at_end) {
		saw.submit_at_end = false;
		CU_ASSERT_EQUAL(kvr_client_submit(cl, &next, &saw.next_id), 0);
	}
}

static const struct kvr_client_ops rig_ops = {
	.on_queued = on_queued, .on_accepted = on_accepted, .on_item = on_item, .on_end = on_end};

static void rig_start_conf(struct kvr_client_conf conf)
{
	memset(&saw, 0, sizeof(saw));
	fake_reset(&net);
	router_at = fake_addr(1, 7650);
	agent_at = fake_addr(9, 4000);
	conf.source = SOURCE;
	conf.on_connect = on_connect;
	if (conf.max_requests == 0)
		conf.max_requests = 64;
	c = kvr_client__create_on(&conf, &router_at, &net.udp);
	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
}

static inline void rig_start(void)
{
	rig_start_conf((struct kvr_client_conf){0});
}

static inline void rig_stop(void)
{
	kvr_client_destroy(c);
	CU_ASSERT(net.closed);
}

/** Advance time in steps of a millisecond, as a caller that observes timeout_ms would. */
static inline void rig_run_ms(uint32_t ms)
{
	for (uint32_t i = 0; i < ms; i++) {
		const int left = kvr_client_timeout_ms(c);

		if (left == 0)
			kvr_client_process(c);
		net.now_us += 1000;
	}
	kvr_client_process(c);
}

/** Submit the small prompt with the rig's callbacks, and send it. */
static inline uint64_t rig_submit(uint32_t flags)
{
	const struct kvr_client_request q = {
		.tokens = prompt, .n_tokens = 4, .flags = flags, .ops = &rig_ops};
	uint64_t id;

	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(c, &q, &id), 0);
	kvr_client_process(c);
	return id;
}

static inline struct kvr_wire_ids ids_of(uint64_t id, uint64_t handle)
{
	static uint32_t seq;

	return (struct kvr_wire_ids){
		.source = SOURCE, .id = id, .handle = handle, .epoch = 77, .msg_seq = ++seq};
}

static inline void push_accepted(uint64_t id, uint64_t handle, uint16_t state, uint64_t worker)
{
	const struct kvr_wire_ids ids = ids_of(id, handle);
	const struct kvr_wire_accepted w = {.worker = worker,
					    .dp_rank = 3,
					    .overlap_blocks = 5,
					    .required_blocks = 8,
					    .cached_tokens = 80,
					    .state = state,
					    .queue_len = 2,
					    .pending_tokens = 100,
					    .prefill_dp_rank = KVR_NONE32};

	fake_push(&net, router_at, kvr_put_accepted(fake_slot(&net), 1984, &ids, &w));
}

/** Let the router accept and dispatch request @p id; skips the frames sent so far. */
static inline void rig_accepted(uint64_t id)
{
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 1);
	kvr_client_process(c);
	fake_skip(&net);
}

/** rig_submit() and accept as running. */
static inline uint64_t rig_running(uint32_t flags)
{
	const uint64_t id = rig_submit(flags);

	rig_accepted(id);
	return id;
}

static inline void push_rejected(uint64_t id, unsigned int code, uint8_t kind, const char *text)
{
	const struct client_req *r = kvr_client__find(c, id);
	const struct kvr_wire_ids ids = ids_of(id, kind == KVR_PROBE && r != NULL ? r->handle : 0);
	const struct kvr_fault f = {.seen = 7, .allowed = 5, .text = text};

	fake_push(&net, router_at, kvr_put_rejected(fake_slot(&net), 1984, &ids, code, kind, &f));
}

static inline void push_empty(uint64_t id, uint8_t kind)
{
	const struct kvr_wire_ids ids = ids_of(id, 0);

	fake_push(&net, router_at, kvr_put_empty(fake_slot(&net), 1984, kind, &ids));
}

static inline void push_item_from(struct kvr_udp_addr from, uint64_t id, uint64_t handle,
				  uint32_t seq, uint16_t flags, const char *data)
{
	const struct kvr_wire_ids ids = ids_of(id, handle);
	const struct kvr_wire_response w = {.seq = seq,
					    .flags = flags,
					    .generated_tokens = seq + 1,
					    .cached_tokens = KVR_NONE32};

	fake_push(&net, from,
		  kvr_put_response(fake_slot(&net), 1984, &ids, w,
				   (struct kvr_slice){data, (uint32_t)strlen(data)}));
}

static inline void push_item(uint64_t id, uint32_t seq, uint16_t flags, const char *data)
{
	push_item_from(router_at, id, HANDLE, seq, flags, data);
}

static inline void push_connected(uint64_t id, uint32_t epoch)
{
	const struct kvr_wire_ids ids = {.source = SOURCE, .id = id, .epoch = epoch, .msg_seq = 1};
	const struct kvr_wire_connected w = {.max_frame = 1432,
					     .max_tokens = 100000,
					     .max_hashes = 1000,
					     .max_body = 5000,
					     .max_message = 1000000,
					     .max_frames = 1000};
	const struct kvr_wire_pool pool[] = {{.pool = 0, .block_size = 16, .ranks = 4},
					     {.pool = 7, .block_size = 64, .ranks = 2}};
	const struct kvr_str name[] = {{"llama", 5}, {"qwen", 4}};

	fake_push(&net, router_at,
		  kvr_put_connected(fake_slot(&net), 1984, &ids, w, pool, name, 2));
}

/** Last acknowledgement sent by the client, or NULL. */
static inline const struct kvr_wire_response_ack *next_ack(void)
{
	const struct kvr_wire_hdr *h = fake_next(&net, KVR_RESPONSE_ACK);

	return h != NULL ? kvr_frame_body(h) : NULL;
}

#endif
