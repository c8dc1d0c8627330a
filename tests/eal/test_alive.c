/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * @rule 6.4: silence about requests, frame by frame. Any report about a request renews its booking,
 * for hours if needed; silence releases the booking and not the request; ALIVE frames renew only
 * requests of their sender.
 */
#include "pipeline.h"

#include "control/control.h"
#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include "sched/request.h"

#include <string.h>

#define WORKER 9u
#define OTHER  10u
#define MANY   200u /* more than the 64 of one frame */
#define SECOND UINT64_C(1000000000)

#define BOTH                                                                                       \
	"[pool a]\nid = 5\n" PIPELINE_POOL "model = m\nrole = decode\n"                            \
	"[pool p]\nid = 6\n" PIPELINE_POOL "model = m\nrole = prefill\n"

static uint64_t read_pool_counter(enum pool_counter c)
{
	return kvr_stats_get(pipeline_get_pool()->count, c);
}

static uint64_t count_bookings(void)
{
	return (uint64_t)kvr_sched_counters(pipeline_get_pool()->sched)->booked_now;
}

static void send_frame(uint32_t from, const uint8_t *buf, int len)
{
	CU_ASSERT_FATAL(len > 0);
	pipeline_send(from, buf, (size_t)len);
	pipeline_turn();
}

static void send_item(uint64_t id, uint64_t handle, uint32_t seq, uint32_t tokens, uint16_t flags)
{
	const struct kvr_wire_ids ids = pipeline_make_ids(id, handle);
	const struct kvr_wire_response r = {.seq = seq,
					    .flags = flags,
					    .generated_tokens = tokens,
					    .cached_tokens = KVR_NONE32};
	uint8_t buf[256];

	send_frame(PEER_AGENT, buf,
		   kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){"item", 4}));
}

static void ack_items(uint64_t id, uint64_t handle, uint32_t next, uint32_t flags)
{
	const struct kvr_wire_ids ids = pipeline_make_ids(id, handle);
	const struct kvr_wire_response_ack a = {next, flags};
	uint8_t buf[128];

	send_frame(PEER_CLIENT, buf, kvr_put_response_ack(buf, sizeof(buf), &ids, &a));
}

static void send_progress(uint32_t from, uint64_t id, uint64_t handle, uint32_t seq,
			  uint32_t tokens, uint16_t flags)
{
	const struct kvr_wire_ids ids = pipeline_make_ids(id, handle);
	const struct kvr_wire_progress w = {.seq = seq,
					    .flags = flags,
					    .generated_tokens = tokens,
					    .cached_tokens = KVR_NONE32};
	uint8_t buf[128];

	send_frame(from, buf, kvr_put_progress(buf, sizeof(buf), &ids, &w));
}

static void send_dispatch_ack(uint64_t id, uint64_t handle)
{
	const struct kvr_wire_ids ids = pipeline_make_ids(id, handle);
	const struct kvr_wire_dispatch_ack a = {.code = 0};
	uint8_t buf[64];

	send_frame(PEER_AGENT, buf, kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &a));
}

static void send_probe(uint64_t id, uint64_t handle)
{
	const struct kvr_wire_ids ids = pipeline_make_ids(id, handle);
	uint8_t buf[64];

	send_frame(PEER_CLIENT, buf, kvr_put_empty(buf, sizeof(buf), KVR_PROBE, &ids));
}

static void send_alive_as(uint32_t from, uint64_t worker, uint32_t epoch, const uint64_t handle[],
			  uint32_t n)
{
	const struct kvr_wire_ids ids = {.source = worker, .epoch = epoch};
	uint8_t buf[1024];

	send_frame(from, buf, kvr_put_alive(buf, sizeof(buf), &ids, handle, n));
}

static void send_alive(uint64_t handle)
{
	send_alive_as(PEER_AGENT, WORKER, 1, &handle, 1);
}

static uint64_t take_dispatch_handle(void)
{
	const struct out *o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);

	return o == NULL ? 0 : o->hdr.handle;
}

static bool take_item(void)
{
	return pipeline_expect(PEER_CLIENT, KVR_RESPONSE) != NULL;
}

static void begin_alive(const char *pools)
{
	if (pools == NULL)
		pipeline_start(1);
	else
		pipeline_start_with(pools);
	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&(const struct pipeline_worker){
		.id = WORKER,
		.epoch = 1,
		.pool = "a",
		.ranks = 2,
		.from = PEER_AGENT,
		.role = pools != NULL && strcmp(pools, BOTH) == 0 ? KVR_ROLE_DECODE
								  : KVR_ROLE_AGGREGATED}));
}

/* Check that nothing is left: counters balance, no booking, no request, no frame. */
static void end_alive(void)
{
	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(count_bookings(), 0);
	CU_ASSERT_EQUAL((uint64_t)kvr_sched_counters(pipeline_get_pool()->sched)->released_now, 0);
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT_EQUAL(kvr_flight_count(pipeline_get_pool()->requests),
			kvr_flight_lingering(pipeline_get_pool()->requests));
	pipeline_stop();
}

/* A request at its worker, which has acknowledged it. */
static uint64_t start_dispatched(uint64_t id, uint32_t flags)
{
	uint64_t h;

	pipeline_flush();
	pipeline_route(id, 1000 * id, 10, flags, NULL);
	h = take_dispatch_handle();
	CU_ASSERT_NOT_EQUAL_FATAL(h, 0);
	send_dispatch_ack(id, h);
	pipeline_flush();
	return h;
}

static void finish_request(uint64_t id, uint64_t h, uint32_t seq, uint32_t tokens)
{
	pipeline_flush();
	send_item(id, h, seq, tokens, KVR_RESP_F_FIN);
	CU_ASSERT_TRUE(take_item());
	ack_items(id, h, seq + 1, KVR_RACK_F_FIN);
}

/* Minutes without a report, in steps of 30 s. */
static void pass_silent_minutes(uint32_t minutes)
{
	for (uint32_t i = 0; i < 2 * minutes; i++)
		pipeline_advance(30000);
}

/* ---- reports that renew ---- */

/*
 * Twenty minutes of prefill, during which the agent only sends ALIVE, then two hours of output with
 * a token every 4 minutes, so that a block takes more than an hour to fill.
 */
static void a_long_answer_is_not_cut_off(void)
{
	uint64_t h;

	begin_alive(NULL);
	h = start_dispatched(1, 0);
	for (uint32_t i = 0; i < 40; i++) {
		pipeline_advance(30000);
		send_alive(h);
	}
	CU_ASSERT_EQUAL(count_bookings(), 1);
	for (uint32_t i = 0; i < 30; i++) {
		pipeline_advance(120000);
		pipeline_advance(120000);
		pipeline_flush();
		send_item(1, h, i, 1 + i, 0);
		CU_ASSERT_TRUE_FATAL(take_item());
		ack_items(1, h, i + 1, 0);
	}
	CU_ASSERT_EQUAL(count_bookings(), 1);
	CU_ASSERT_EQUAL(read_pool_counter(PC_EXPIRED), 0);
	CU_ASSERT_EQUAL(read_pool_counter(PC_ALIVE), 40);
	CU_ASSERT_EQUAL(read_pool_counter(PC_ALIVE_UNKNOWN), 0);
	finish_request(1, h, 30, 31);
	CU_ASSERT_EQUAL(read_pool_counter(PC_FINISHED), 1);
	end_alive();
}

/*
 * The reports of a direct answer renew, whether they contain progress or not; so do those of TRACK,
 * which is relayed.
 */
static void direct_and_tracked_answers_renew(void)
{
	uint64_t direct, tracked;

	begin_alive(NULL);
	direct = start_dispatched(1, KVR_REQ_F_DIRECT);
	tracked = start_dispatched(2, KVR_REQ_F_TRACK);
	for (uint32_t i = 0; i < 30; i++) {
		pipeline_advance(240000);
		send_progress(PEER_AGENT, 1, direct, i, 3, KVR_PROG_F_FIRST);
		send_item(2, tracked, i, 1, 0);
		ack_items(2, tracked, i + 1, 0);
	}
	CU_ASSERT_EQUAL(count_bookings(), 2);
	CU_ASSERT_EQUAL(read_pool_counter(PC_EXPIRED), 0);
	send_progress(PEER_AGENT, 1, direct, 30, 3, KVR_PROG_F_FIRST | KVR_PROG_F_FIN);
	finish_request(2, tracked, 30, 1);
	CU_ASSERT_EQUAL(read_pool_counter(PC_FINISHED), 2);
	end_alive();
}

/* @rule 11.3: with BOOK the client runs the request, so its reports renew the booking. */
static void a_client_renews_its_booking(void)
{
	static const uint8_t zeros[264]; /* the longest answer that can follow */
	const uint32_t body = pipeline_body_len;
	uint8_t bytes[512];
	struct kvr_hint_buf pad = {.p = bytes, .cap = sizeof(bytes)};
	const struct out *o;
	uint64_t h;

	begin_alive(NULL);
	kvr_hint_put(&pad, KVR_HINT_PAD, zeros, sizeof(zeros), NULL, 0);
	pipeline_body_len = 0;
	pipeline_route(1, 100, 10, KVR_REQ_F_BOOK, &pad);
	pipeline_body_len = body;
	o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	h = o->hdr.handle;
	for (uint32_t i = 0; i < 100; i++) { /* a quarter of an hour with PROBE only */
		pipeline_advance(9000);
		send_probe(1, h);
	}
	for (uint32_t i = 0; i < 100;
	     i++) { /* another one with PROGRESS that reports nothing new */
		pipeline_advance(9000);
		send_progress(PEER_CLIENT, 1, h, i, 7, KVR_PROG_F_FIRST);
	}
	CU_ASSERT_EQUAL(count_bookings(), 1);
	CU_ASSERT_EQUAL(read_pool_counter(PC_EXPIRED), 0);
	send_progress(PEER_CLIENT, 1, h, 100, 9, KVR_PROG_F_FIRST | KVR_PROG_F_FIN);
	end_alive();
}

/* Each leg is reported by its own agent. */
static void both_legs_of_a_pair_are_renewed(void)
{
	const struct pipeline_worker w = {.id = OTHER,
					  .epoch = 1,
					  .pool = "p",
					  .ranks = 1,
					  .from = PEER_OTHER,
					  .role = KVR_ROLE_PREFILL,
					  .host = "10.0.0.9",
					  .port = 8998};
	const struct out *o;
	uint64_t prefill, decode;

	begin_alive(BOTH);
	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&w));
	pipeline_route(1, 100, 10, 0, NULL);
	o = pipeline_expect(PEER_OTHER, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	prefill = o->hdr.handle;
	pipeline_flush();
	pipeline_advance(50); /* both are repeated */
	decode = take_dispatch_handle();
	CU_ASSERT_NOT_EQUAL_FATAL(decode, 0);
	for (uint32_t i = 0; i < 40; i++) {
		send_alive_as(PEER_OTHER, OTHER, 1, &prefill, 1); /* acknowledges, too */
		send_alive(decode);
		pipeline_advance(30000);
	}
	CU_ASSERT_EQUAL(count_bookings(), 1);
	CU_ASSERT_EQUAL((uint64_t)kvr_sched_counters(rt->pool[1].sched)->booked_now, 1);
	send_item(1, decode, 0, 1, 0);
	CU_ASSERT_EQUAL((uint64_t)kvr_sched_counters(rt->pool[1].sched)->booked_now, 0);
	/* The prefill leg has ended; its agent may not know yet. */
	send_alive_as(PEER_OTHER, OTHER, 1, &prefill, 1);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[1].count, PC_ALIVE_UNKNOWN), 1);
	finish_request(1, decode, 1, 2);
	CU_ASSERT_EQUAL(read_pool_counter(PC_EXPIRED), 0);
	end_alive();
}

/* ---- silence ---- */

/* A client that sends PROBE is served to the end, even if its worker was silent meanwhile. */
static void silence_releases_the_booking_not_the_request(void)
{
	uint64_t h, since;

	begin_alive(NULL);
	since = now_ns(rt);
	h = start_dispatched(1, 0);
	while (count_bookings() == 1 && now_ns(rt) - since < 390 * SECOND) {
		pipeline_advance(10000);
		send_probe(1, h);
	}
	CU_ASSERT_EQUAL(count_bookings(), 0);
	CU_ASSERT(now_ns(rt) - since > 300 * SECOND);
	CU_ASSERT_EQUAL(read_pool_counter(PC_EXPIRED), 1);
	CU_ASSERT_EQUAL(read_pool_counter(PC_RELEASED), 1);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	for (uint32_t i = 0; i < 60; i++) {
		pipeline_advance(10000);
		send_probe(1, h);
	}
	send_alive(h);
	CU_ASSERT_EQUAL(count_bookings(), 0); /* it is not booked again */
	pipeline_flush();
	send_item(1, h, 0, 1, 0);
	CU_ASSERT_TRUE(take_item());
	ack_items(1, h, 1, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	/* The client receives items without sending anything. */
	for (uint32_t i = 1; i < 20; i++) {
		pipeline_advance(15000);
		pipeline_flush();
		send_item(1, h, i, 1 + i, 0);
		CU_ASSERT_TRUE_FATAL(take_item());
	}
	finish_request(1, h, 20, 21);
	CU_ASSERT_EQUAL(read_pool_counter(PC_FINISHED),
			0); /* bookings are counted and have ended once */
	CU_ASSERT_EQUAL(read_pool_counter(PC_LOST), 0);
	end_alive();
}

static void a_released_request_can_be_cancelled(void)
{
	uint64_t h;

	begin_alive(NULL);
	h = start_dispatched(1, 0);
	for (uint32_t i = 0; i < 39; i++) {
		pipeline_advance(10000);
		send_probe(1, h);
	}
	CU_ASSERT_EQUAL(read_pool_counter(PC_RELEASED), 1);
	pipeline_flush();
	{
		const struct kvr_wire_ids ids = pipeline_make_ids(1, h);
		uint8_t buf[64];

		send_frame(PEER_CLIENT, buf, kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
		CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
		send_frame(PEER_AGENT, buf, kvr_put_empty(buf, sizeof(buf), KVR_ABORT_ACK, &ids));
	}
	CU_ASSERT_EQUAL(read_pool_counter(PC_CANCELLED), 0);
	end_alive();
}

/* The loss of its worker is reported. */
static void a_released_request_ends_with_its_worker(void)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 3, .epoch = 1};
	const struct out *o;
	uint8_t buf[64];
	uint64_t h;

	begin_alive(NULL);
	h = start_dispatched(1, 0);
	start_dispatched(2, 0);
	for (uint32_t i = 0; i < 39; i++) {
		pipeline_advance(10000);
		send_probe(1, h);
		send_alive(h);
	}
	send_probe(1, h);
	CU_ASSERT_EQUAL(read_pool_counter(PC_RELEASED), 1);
	CU_ASSERT_EQUAL(count_bookings(), 1);
	pipeline_flush();
	send_frame(PEER_AGENT, buf, kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
	o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(read_pool_counter(PC_LOST), 1); /* counts bookings */
	end_alive();
}

/* Without reports of either side the request ends. */
static void silence_of_both_sides_ends_the_request(void)
{
	const struct out *o;

	begin_alive(NULL);
	start_dispatched(1, 0);
	pass_silent_minutes(7);
	o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(((const struct kvr_wire_rejected *)(&o->hdr + 1))->code, KVR_E_EXPIRED);
	CU_ASSERT_EQUAL(((const struct kvr_wire_rejected *)(&o->hdr + 1))->detail[0],
			KVR_RQ_SILENT);
	pass_silent_minutes(1);
	end_alive();
}

static void zero_disables_the_limit(void)
{
	uint64_t h;

	begin_alive("[pool a]\nid = 5\n" PIPELINE_POOL "active_request_expiry_secs = 0\n");
	h = start_dispatched(1, 0);
	pass_silent_minutes(120);
	CU_ASSERT_EQUAL(count_bookings(), 1);
	finish_request(1, h, 0, 1);
	CU_ASSERT_EQUAL(read_pool_counter(PC_FINISHED), 1);
	end_alive();
}

/* ---- reports of many requests, and of requests of others ---- */

static void one_frame_reports_many_requests(void)
{
	uint64_t h[MANY];

	begin_alive(NULL);
	for (uint32_t i = 0; i < MANY; i++)
		h[i] = start_dispatched(1 + i, 0);
	for (uint32_t t = 0; t < 13; t++) {
		pipeline_advance(30000);
		for (uint32_t i = 0; i < MANY; i += KVR_WIRE_ALIVE_MOST)
			send_alive_as(PEER_AGENT, WORKER, 1, &h[i],
				      RTE_MIN(MANY - i, KVR_WIRE_ALIVE_MOST));
	}
	CU_ASSERT_EQUAL(count_bookings(), MANY);
	CU_ASSERT_EQUAL(read_pool_counter(PC_ALIVE), 13 * MANY);
	CU_ASSERT_EQUAL(read_pool_counter(PC_ALIVE_UNKNOWN), 0);
	CU_ASSERT_EQUAL(read_pool_counter(PC_LATE_FRAMES), 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_REJECTED));
	for (uint32_t i = 0; i < MANY; i++)
		finish_request(1 + i, h[i], 0, 1);
	end_alive();
}

/* A frame renews only requests of its sender. */
static void only_the_worker_of_a_request_renews_it(void)
{
	uint64_t h, odd[6];

	begin_alive(NULL);
	h = start_dispatched(1, 0); /* at the only worker */
	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&(const struct pipeline_worker){
		.id = OTHER, .epoch = 3, .pool = "a", .ranks = 1, .from = PEER_OTHER}));
	pipeline_flush();
	odd[0] = h ^ UINT64_C(1) << 33;	 /* of an earlier request in the slot */
	odd[1] = h + 1;			 /* a free slot */
	odd[2] = h | UINT64_C(0xffffff); /* no slot */
	odd[3] = h ^ 0x55000000;	 /* in another pool */
	odd[4] = 0;
	odd[5] = UINT64_MAX;
	for (uint32_t i = 0; i < 13; i++) {
		pipeline_advance(30000);
		send_probe(1, h);
		send_alive_as(PEER_OTHER, OTHER, 3, &h, 1);   /* another worker */
		send_alive_as(PEER_OTHER, WORKER, 1, &h, 1);  /* another address */
		send_alive_as(PEER_AGENT, WORKER, 2, &h, 1);  /* another epoch */
		send_alive_as(PEER_AGENT, 12345, 1, &h, 1);   /* unknown worker */
		send_alive_as(PEER_CLIENT, WORKER, 1, &h, 1); /* its client */
		send_alive_as(PEER_AGENT, WORKER, 1, odd, 6);
	}
	CU_ASSERT_EQUAL(read_pool_counter(PC_RELEASED), 1);
	CU_ASSERT_EQUAL(read_pool_counter(PC_ALIVE), 13 * 7);
	CU_ASSERT_EQUAL(read_pool_counter(PC_ALIVE_UNKNOWN), 13 * 7);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->lcore[0]->in, IN_UNKNOWN_REQUEST), 13 * 4);
	finish_request(1, h, 0, 1);
	end_alive();
}

/* No ALIVE frame is answered, even if it is wrong. */
static void invalid_reports_get_no_answer(void)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .epoch = 1};
	const uint64_t one[2] = {1, 2};
	uint8_t buf[1024];
	int len;

	begin_alive(NULL);
	pipeline_flush();
	len = kvr_put_alive(buf, sizeof(buf), &ids, one, 2);
	buf[48] = 3; /* more than the frame contains */
	send_frame(PEER_AGENT, buf, len);
	buf[48] = 1;
	send_frame(PEER_AGENT, buf, len);
	buf[48] = 2;
	buf[52] = 1; /* reserved field */
	send_frame(PEER_AGENT, buf, len);
	send_frame(PEER_AGENT, buf, 48); /* truncated */
	CU_ASSERT_EQUAL(read_pool_counter(PC_ALIVE), 0);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->lcore[0]->in, IN_REJECTED), 4);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_REJECTED));
	end_alive();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_long_answer_is_not_cut_off),
			       KVR_CASE(direct_and_tracked_answers_renew),
			       KVR_CASE(a_client_renews_its_booking),
			       KVR_CASE(both_legs_of_a_pair_are_renewed),
			       KVR_CASE(silence_releases_the_booking_not_the_request),
			       KVR_CASE(a_released_request_can_be_cancelled),
			       KVR_CASE(a_released_request_ends_with_its_worker),
			       KVR_CASE(silence_of_both_sides_ends_the_request),
			       KVR_CASE(zero_disables_the_limit),
			       KVR_CASE(one_frame_reports_many_requests),
			       KVR_CASE(only_the_worker_of_a_request_renews_it),
			       KVR_CASE(invalid_reports_get_no_answer),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("alive", tests);
}
