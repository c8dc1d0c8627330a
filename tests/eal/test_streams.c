/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of answers by the frame: what fits a client, and which way items go. */
#include "pipeline.h"

#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include <string.h>

#define WORKER 9u

static struct kvr_wire_ids ids_of(uint64_t id, uint64_t handle)
{
	return (struct kvr_wire_ids){.source = 77, .id = id, .handle = handle, .epoch = 1};
}

/* An item whose frame, header included, is @p frame bytes long. */
static void item(uint64_t id, uint64_t handle, uint32_t seq, uint32_t frame, uint16_t flags)
{
	static const uint8_t data[KVR_WIRE_MAX_FRAME];
	const struct kvr_wire_ids ids = ids_of(id, handle);
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

static void fin_ack(uint64_t id, uint64_t handle, uint32_t next)
{
	const struct kvr_wire_ids ids = ids_of(id, handle);
	const struct kvr_wire_response_ack a = {next, KVR_RACK_F_FIN};
	uint8_t buf[64];

	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_response_ack(buf, sizeof(buf), &ids, &a));
	pipeline_turn();
}

static uint64_t count(enum in_counter c)
{
	uint64_t v[KVR_STATS_MAX];

	kvr_stats_snapshot(rt->in_stats, v);
	return v[c];
}

/* The DISPATCH of the only request; the handle, and its fixed part. */
static uint64_t dispatched(struct kvr_wire_request *q)
{
	const struct out *o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);

	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	memcpy(q, &o->hdr + 1, sizeof(*q));
	return o->hdr.handle;
}

static void begin(void)
{
	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 2));
}

static void end(void)
{
	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 0);
	pipeline_stop();
}

/* Row 21: no number means 1432, to the agent and to the router. */
static void no_client_frame_means_1432(void)
{
	struct kvr_wire_request q;
	uint64_t h;

	begin();
	pipeline_client_frame = 0;
	pipeline_route(1, 100, 10, 0, NULL);
	h = dispatched(&q);
	CU_ASSERT_EQUAL(q.client_frame, KVR_WIRE_DEF_FRAME);
	item(1, h, 0, KVR_WIRE_DEF_FRAME, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	item(1, h, 1, KVR_WIRE_DEF_FRAME + 8, 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	item(1, h, 1, 88, KVR_RESP_F_FIN);
	fin_ack(1, h, 2);
	end();
}

/* The same for what the router itself cuts: LOADS. */
static void loads_are_cut_for_the_client(void)
{
	const struct out *o;
	uint32_t frames = 0;

	begin();
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
	end();
}

static void an_item_above_client_frame_is_answered(void)
{
	const struct kvr_wire_rejected *w;
	struct kvr_wire_request q;
	const struct out *o;
	uint64_t h;

	begin();
	pipeline_client_frame = 600;
	pipeline_route(1, 100, 10, 0, NULL);
	h = dispatched(&q);
	CU_ASSERT_EQUAL(q.client_frame, 600);
	item(1, h, 0, 600, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	/* Not even the end: the client would not hear it, and the booking must not go. */
	item(1, h, 1, 608, KVR_RESP_F_FIN);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	o = pipeline_expect(PEER_AGENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.source, 77);
	CU_ASSERT_EQUAL(o->hdr.id, 1);
	CU_ASSERT_EQUAL(o->hdr.handle, h); /* which run it is about */
	w = (const void *)(&o->hdr + 1);
	CU_ASSERT_EQUAL(w->code, KVR_E_TOO_LARGE);
	CU_ASSERT_EQUAL(w->kind, KVR_RESPONSE);
	CU_ASSERT_EQUAL(w->detail[0], 608);
	CU_ASSERT_EQUAL(w->detail[1], 600);
	CU_ASSERT_EQUAL(w->detail[2], 1);
	CU_ASSERT_EQUAL(count(IN_REJECTED), 1);
	CU_ASSERT_EQUAL(count(IN_SPLIT) + count(IN_UNSENDABLE), 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 1);
	item(1, h, 1, 80, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	fin_ack(1, h, 2);
	end();
}

/* An agent that is reached over IPv4 cannot send to a client that came over IPv6. */
static void direct_across_address_families_is_relayed(void)
{
	struct kvr_wire_request q;
	uint64_t h;

	begin();
	pipeline_route(1, 100, 10, KVR_REQ_F_DIRECT, NULL);
	dispatched(&q);
	CU_ASSERT_EQUAL(q.flags, KVR_REQ_F_DIRECT | KVR_REQ_F_UNPROVEN);
	pipeline_ipv6 = true;
	pipeline_route(2, 200, 10, KVR_REQ_F_DIRECT, NULL);
	h = dispatched(&q);
	CU_ASSERT_EQUAL(q.flags, KVR_REQ_F_UNPROVEN);
	CU_ASSERT_EQUAL(q.client_ip[0], 0xfd);
	pipeline_ipv6 = false;
	item(2, h, 0, 88, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"client_frame 0", no_client_frame_means_1432},
		{"loads", loads_are_cut_for_the_client},
		{"item too large", an_item_above_client_frame_is_answered},
		{"direct across families", direct_across_address_families_is_relayed},
		CU_TEST_INFO_NULL};

	return kvr_test_run("streams", tests);
}
