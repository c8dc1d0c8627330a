/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of answers frame by frame: which items fit a client, and which path they take. */
#include "pipeline.h"

#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include <string.h>

#define WORKER 9u

/* An item whose frame, header included, is @p frame bytes long. */
static void send_sized_item(uint64_t id, uint64_t handle, uint32_t seq, uint32_t frame,
			    uint16_t flags)
{
	static const uint8_t data[KVR_WIRE_MAX_FRAME];
	const struct kvr_wire_ids ids = pipeline_make_ids(id, handle);
	const struct kvr_wire_response r = {.seq = seq,
					    .flags = flags,
					    .generated_tokens = seq + 1,
					    .cached_tokens = KVR_NONE32};
	const uint32_t len = frame - (uint32_t)(sizeof(struct kvr_wire_hdr) + sizeof(r));
	uint8_t buf[KVR_WIRE_MAX_FRAME];

	CU_ASSERT_EQUAL_FATAL(
		kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){data, len}),
		(int)frame);
	pipeline_send(PEER_AGENT, buf, frame);
	pipeline_turn();
}

static void acknowledge_end(uint64_t id, uint64_t handle, uint32_t next)
{
	const struct kvr_wire_ids ids = pipeline_make_ids(id, handle);
	const struct kvr_wire_response_ack a = {next, KVR_RACK_F_FIN};
	uint8_t buf[64];

	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_response_ack(buf, sizeof(buf), &ids, &a));
	pipeline_turn();
}

static uint64_t sum_in_count(enum in_counter c)
{
	uint64_t v[KVR_STATS_MAX];

	kvr_stats_sum(rt->in_stats, v);
	return v[c];
}

/* The DISPATCH of the only request: its handle and its fixed part. */
static uint64_t take_only_dispatch(struct kvr_wire_request *q)
{
	const struct out *o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);

	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	memcpy(q, &o->hdr + 1, sizeof(*q));
	return o->hdr.handle;
}

static void begin_streams(void)
{
	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 2));
}

static void end_streams(void)
{
	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 0);
	pipeline_stop();
}

/* Row 21: client_frame 0 means 1432, for the agent and the router. */
static void client_frame_0_means_1432(void)
{
	struct kvr_wire_request q;
	uint64_t h;

	begin_streams();
	pipeline_client_frame = 0;
	pipeline_route(1, 100, 10, 0, NULL);
	h = take_only_dispatch(&q);
	CU_ASSERT_EQUAL(q.client_frame, KVR_WIRE_DEF_FRAME);
	send_sized_item(1, h, 0, KVR_WIRE_DEF_FRAME, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	send_sized_item(1, h, 1, KVR_WIRE_DEF_FRAME + 8, 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	send_sized_item(1, h, 1, 88, KVR_RESP_F_FIN);
	acknowledge_end(1, h, 2);
	end_streams();
}

/* The same for LOADS, which the router fragments itself. */
static void loads_are_fragmented_for_the_client(void)
{
	const struct out *o;
	uint32_t frames = 0;

	begin_streams();
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER + 1, 1, "a", 60));
	pipeline_client_frame = 0;
	pipeline_kind = KVR_POTENTIAL_LOADS;
	pipeline_route(1, 100, 10, 0, NULL);
	pipeline_kind = KVR_ROUTE;
	while ((o = pipeline_expect(PEER_CLIENT, KVR_LOADS)) != NULL) {
		CU_ASSERT(o->len <= KVR_WIRE_DEF_FRAME);
		frames++;
	}
	CU_ASSERT_EQUAL(frames, 2);
	end_streams();
}

static void an_item_above_client_frame_is_rejected(void)
{
	const struct kvr_wire_rejected *w;
	struct kvr_wire_request q;
	const struct out *o;
	uint64_t h;

	begin_streams();
	pipeline_client_frame = 600;
	pipeline_route(1, 100, 10, 0, NULL);
	h = take_only_dispatch(&q);
	CU_ASSERT_EQUAL(q.client_frame, 600);
	send_sized_item(1, h, 0, 600, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	/*
	 * Not even for the last item: the client would not receive it, and the booking must not
	 * end.
	 */
	send_sized_item(1, h, 1, 608, KVR_RESP_F_FIN);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	o = pipeline_expect(PEER_AGENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.source, 77);
	CU_ASSERT_EQUAL(o->hdr.id, 1);
	CU_ASSERT_EQUAL(o->hdr.handle, h); /* it names the attempt */
	w = (const void *)(&o->hdr + 1);
	CU_ASSERT_EQUAL(w->code, KVR_E_TOO_LARGE);
	CU_ASSERT_EQUAL(w->kind, KVR_RESPONSE);
	CU_ASSERT_EQUAL(w->detail[0], 608);
	CU_ASSERT_EQUAL(w->detail[1], 600);
	CU_ASSERT_EQUAL(w->detail[2], 1);
	CU_ASSERT_EQUAL(sum_in_count(IN_REJECTED), 1);
	CU_ASSERT_EQUAL(sum_in_count(IN_REFRAGMENTED) + sum_in_count(IN_UNSENDABLE), 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 1);
	send_sized_item(1, h, 1, 80, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	acknowledge_end(1, h, 2);
	end_streams();
}

/* ---- items of several frames ---- */

#define UNIT 1384u

/* Fragment @p k of an item with @p len bytes of data, cut for frames of @p frame bytes. */
static void send_item_fragment(const struct kvr_wire_ids *ids, uint32_t seq, uint32_t len,
			       uint16_t flags, uint32_t frame, uint32_t k)
{
	static uint8_t body[sizeof(struct kvr_wire_response) + KVR_WIRE_MAX_ITEM + 4096];
	struct kvr_wire_response *w = (void *)body;
	uint8_t buf[KVR_WIRE_MAX_FRAME];
	struct kvr_frag f;
	uint32_t off, n;

	*w = (struct kvr_wire_response){.seq = seq,
					.flags = flags,
					.generated_tokens = seq + 1,
					.data_len = len,
					.cached_tokens = KVR_NONE32};
	CU_ASSERT_EQUAL_FATAL(kvr_frag_init(&f, KVR_RESPONSE, ids,
					    (uint32_t)sizeof(*w) + ((len + 7u) & ~7u), frame),
			      0);
	kvr_frag_seek(&f, k);
	CU_ASSERT_TRUE_FATAL(kvr_frag_next(&f, buf, &off, &n));
	memcpy(buf + 48, body + off, n);
	pipeline_send(PEER_AGENT, buf, 48 + n);
	pipeline_turn();
}

static void send_missing(uint32_t from, const struct kvr_wire_ids *ids, uint32_t msg_len)
{
	const struct kvr_wire_missing w = {.kind = KVR_RESPONSE,
					   .n_words = 1,
					   .msg_seq = ids->msg_seq,
					   .msg_len = msg_len,
					   .unit = UNIT};
	const uint64_t word = 2;
	uint8_t buf[128];

	pipeline_send(from, buf,
		      (size_t)kvr_put_message(buf, sizeof(buf), KVR_MISSING, ids,
					      (struct kvr_slice){&w, sizeof(w)},
					      (struct kvr_slice){&word, sizeof(word)}));
	pipeline_turn();
}

static void fragments_and_requests_for_missing_ones_pass(void)
{
	struct kvr_wire_request q;
	struct kvr_wire_ids ids;
	const struct out *o;

	begin_streams();
	pipeline_client_frame = 0;
	pipeline_route(1, 100, 10, 0, NULL);
	ids = pipeline_make_ids(1, take_only_dispatch(&q));
	ids.msg_seq = 5;
	send_item_fragment(&ids, 0, 4000, KVR_RESP_F_FIN, 1432, 2); /* the last one first */
	o = pipeline_expect(PEER_CLIENT, KVR_RESPONSE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.frag_off, 2 * UNIT);
	CU_ASSERT_EQUAL(o->hdr.msg_len, 4032);
	/*
	 * The kind of item is still unknown: the booking stands, and nothing may be acknowledged.
	 */
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 1);
	acknowledge_end(1, ids.handle, 1);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	send_item_fragment(&ids, 0, 4000, KVR_RESP_F_FIN, 1432, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 0);
	send_missing(PEER_AGENT, &ids, 4032); /* an agent may not send it */
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_MISSING));
	send_missing(PEER_CLIENT, &ids, 4032);
	o = pipeline_expect(PEER_AGENT, KVR_MISSING);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.handle, ids.handle);
	send_item_fragment(&ids, 0, 4000, KVR_RESP_F_FIN, 1432, 1);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	acknowledge_end(1, ids.handle, 1);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	end_streams();
}

/*
 * Too much data, a frame that is too long, a header with wrong sizes: rejected once, at the first
 * fragment.
 */
static void fragments_above_the_bounds_are_rejected_once(void)
{
	const struct kvr_wire_rejected *w;
	struct kvr_wire_request q;
	struct kvr_wire_ids ids;
	const struct out *o;

	begin_streams();
	pipeline_client_frame = 0;
	pipeline_route(1, 100, 10, 0, NULL);
	ids = pipeline_make_ids(1, take_only_dispatch(&q));
	for (uint32_t k = 0; k < 3; k++)
		send_item_fragment(&ids, 0, KVR_WIRE_MAX_ITEM + 600, 0, 1432, k);
	o = pipeline_expect(PEER_AGENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	w = (const void *)(&o->hdr + 1);
	CU_ASSERT_EQUAL(w->code, KVR_E_TOO_LARGE);
	CU_ASSERT_EQUAL(w->detail[0], 32 + KVR_WIRE_MAX_ITEM + 600);
	CU_ASSERT_EQUAL(w->detail[1], KVR_WIRE_ITEM_MOST);
	CU_ASSERT_EQUAL(w->detail[2], 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_REJECTED));
	ids.msg_seq++;
	for (uint32_t k = 0; k < 3; k++)
		send_item_fragment(&ids, 0, 5000, 0, 1440, k);
	o = pipeline_expect(PEER_AGENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	w = (const void *)(&o->hdr + 1);
	CU_ASSERT_EQUAL(w->code, KVR_E_TOO_LARGE);
	CU_ASSERT_EQUAL(w->detail[0], 1440);
	CU_ASSERT_EQUAL(w->detail[1], 1432);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_REJECTED));
	ids.msg_seq++;
	send_item_fragment(&ids, 0, 5000, KVR_RESP_F_ERROR, 1432, 0); /* without FIN */
	o = pipeline_expect(PEER_AGENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	w = (const void *)(&o->hdr + 1);
	CU_ASSERT_EQUAL(w->code, KVR_E_FLAGS);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(sum_in_count(IN_REJECTED), 7);
	send_sized_item(1, ids.handle, 0, 88, KVR_RESP_F_FIN);
	acknowledge_end(1, ids.handle, 1);
	end_streams();
}

/*
 * From another address, of another epoch, after the end: no item passes, and only the first one is
 * answered.
 */
static void only_fragments_of_the_serving_agent_pass(void)
{
	struct kvr_wire_request q;
	struct kvr_wire_ids ids, other;
	const struct out *o;

	begin_streams();
	pipeline_client_frame = 0;
	pipeline_route(1, 100, 10, 0, NULL);
	ids = pipeline_make_ids(1, take_only_dispatch(&q));
	other = ids;
	other.epoch = 2;
	send_item_fragment(&other, 0, 5000, 0, 1432, 1);
	other = ids;
	other.id = 7;
	send_item_fragment(&other, 0, 5000, 0, 1432, 1);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	send_item_fragment(&ids, 0, 5000, KVR_RESP_F_FIN, 1432, 0);
	for (uint32_t k = 1; k < 4; k++)
		send_item_fragment(&ids, 0, 5000, KVR_RESP_F_FIN, 1432, k);
	acknowledge_end(1, ids.handle, 1);
	pipeline_flush();
	pipeline_skip((KVR_WIRE_LINGER_S + 1) * 1000);
	send_item_fragment(&ids, 0, 5000, KVR_RESP_F_FIN, 1432, 1);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_REJECTED));
	send_item_fragment(&ids, 0, 5000, KVR_RESP_F_FIN, 1432, 0);
	o = pipeline_expect(PEER_AGENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(((const struct kvr_wire_rejected *)(&o->hdr + 1))->code,
			KVR_E_UNKNOWN_REQUEST);
	end_streams();
}

/* An agent reached over IPv4 cannot send to a client that came over IPv6. */
static void direct_across_address_families_is_relayed(void)
{
	struct kvr_wire_request q;
	uint64_t h;

	begin_streams();
	pipeline_route(1, 100, 10, KVR_REQ_F_DIRECT, NULL);
	take_only_dispatch(&q);
	CU_ASSERT_EQUAL(q.flags, KVR_REQ_F_DIRECT | KVR_REQ_F_UNPROVEN);
	pipeline_ipv6 = true;
	pipeline_route(2, 200, 10, KVR_REQ_F_DIRECT, NULL);
	h = take_only_dispatch(&q);
	CU_ASSERT_EQUAL(q.flags, KVR_REQ_F_UNPROVEN);
	CU_ASSERT_EQUAL(q.client_ip[0], 0xfd);
	pipeline_ipv6 = false;
	send_sized_item(2, h, 0, 88, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static void acknowledge_request(uint64_t id, uint64_t handle)
{
	const struct kvr_wire_dispatch_ack yes = {0};
	const struct kvr_wire_ids ids = pipeline_make_ids(id, handle);
	uint8_t buf[64];

	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &yes));
	pipeline_turn();
}

/* QUIET: a single frame reports that a worker has the request, ACCEPTED or an item. */
static void a_quiet_request_is_not_announced(void)
{
	static const uint8_t token[KVR_WIRE_TOKEN] = {1};
	uint8_t tlv[512];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	struct kvr_wire_request q;
	const struct out *o;
	uint64_t h;

	begin_streams();
	pipeline_client_frame = 0;
	pipeline_route(1, 100, 10, KVR_REQ_F_QUIET, NULL);
	h = take_only_dispatch(&q);
	send_sized_item(1, h, 0, 88, KVR_RESP_F_FIN);
	o = pipeline_next(PEER_CLIENT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.kind, KVR_RESPONSE);
	CU_ASSERT_PTR_NULL(pipeline_next(PEER_CLIENT));
	acknowledge_end(1, h, 1);
	pipeline_route(2, 100, 10, KVR_REQ_F_QUIET, NULL);
	h = take_only_dispatch(&q);
	CU_ASSERT_PTR_NULL(pipeline_next(PEER_CLIENT));
	acknowledge_request(2, h);
	o = pipeline_next(PEER_CLIENT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.kind, KVR_ACCEPTED);
	CU_ASSERT_EQUAL(((const struct kvr_wire_accepted *)(&o->hdr + 1))->state,
			KVR_STATE_RUNNING);
	send_sized_item(2, h, 0, 88, KVR_RESP_F_FIN);
	acknowledge_end(2, h, 1);
	pipeline_flush();
	/* ACCEPTED carries information that these clients need. */
	pipeline_route(3, 100, 10, KVR_REQ_F_QUIET | KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_ACCEPTED));
	pipeline_route(4, 100, 10, KVR_REQ_F_QUIET | KVR_REQ_F_DIRECT, NULL);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_ACCEPTED));
	/* The client must know where the body goes before the worker has acknowledged anything. */
	pipeline_flush();
	kvr_hint_put_body(&hints, 100000, token);
	while (hints.len < 264)
		kvr_hint_put_str(&hints, KVR_HINT_PAD, "1234");
	pipeline_body_len = 0;
	pipeline_route(5, 100, 10, KVR_REQ_F_QUIET | KVR_REQ_F_AWAY, &hints);
	pipeline_body_len = 4;
	o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(((const struct kvr_wire_accepted *)(&o->hdr + 1))->state,
			KVR_STATE_DISPATCHED);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(client_frame_0_means_1432),
			       KVR_CASE(loads_are_fragmented_for_the_client),
			       KVR_CASE(an_item_above_client_frame_is_rejected),
			       KVR_CASE(fragments_and_requests_for_missing_ones_pass),
			       KVR_CASE(fragments_above_the_bounds_are_rejected_once),
			       KVR_CASE(only_fragments_of_the_serving_agent_pass),
			       KVR_CASE(a_quiet_request_is_not_announced),
			       KVR_CASE(direct_across_address_families_is_relayed),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("streams", tests);
}
