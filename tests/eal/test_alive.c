/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Silence of requests, by the frame: what is said of one renews its booking, for hours; silence
 * releases the booking and not the request; reports of live requests believe nobody.
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
#define MANY   200u /* with 64 in a frame */
#define SECOND UINT64_C(1000000000)

#define BOTH                                                                                       \
	"[pool a]\nid = 5\n" PIPELINE_POOL "model = m\nrole = decode\n"                            \
	"[pool p]\nid = 6\n" PIPELINE_POOL "model = m\nrole = prefill\n"

static struct pool *pool(void)
{
	return &rt->pool[0];
}

static uint64_t counter(enum pool_counter c)
{
	return kvr_stats_get(pool()->count, c);
}

static uint64_t booked(void)
{
	return (uint64_t)kvr_sched_counters(pool()->sched)->booked_now;
}

static struct kvr_wire_ids ids_of(uint64_t id, uint64_t handle)
{
	return (struct kvr_wire_ids){
		.source = 77, .id = id, .handle = handle, .epoch = pipeline_life(handle)};
}

static void say(uint32_t from, const uint8_t *buf, int len)
{
	CU_ASSERT_FATAL(len > 0);
	pipeline_send(from, buf, (size_t)len);
	pipeline_turn();
}

static void respond(uint64_t id, uint64_t handle, uint32_t seq, uint32_t tokens, uint16_t flags)
{
	const struct kvr_wire_ids ids = ids_of(id, handle);
	const struct kvr_wire_response r = {.seq = seq,
					    .flags = flags,
					    .generated_tokens = tokens,
					    .cached_tokens = KVR_NONE32};
	uint8_t buf[256];

	say(PEER_AGENT, buf,
	    kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){"item", 4}));
}

static void response_ack(uint64_t id, uint64_t handle, uint32_t next, uint32_t flags)
{
	const struct kvr_wire_ids ids = ids_of(id, handle);
	const struct kvr_wire_response_ack a = {next, flags};
	uint8_t buf[128];

	say(PEER_CLIENT, buf, kvr_put_response_ack(buf, sizeof(buf), &ids, &a));
}

static void progress(uint32_t from, uint64_t id, uint64_t handle, uint32_t seq, uint32_t tokens,
		     uint16_t flags)
{
	const struct kvr_wire_ids ids = ids_of(id, handle);
	const struct kvr_wire_progress w = {.seq = seq,
					    .flags = flags,
					    .generated_tokens = tokens,
					    .cached_tokens = KVR_NONE32};
	uint8_t buf[128];

	say(from, buf, kvr_put_progress(buf, sizeof(buf), &ids, &w));
}

static void dispatch_ack(uint64_t id, uint64_t handle)
{
	const struct kvr_wire_ids ids = ids_of(id, handle);
	const struct kvr_wire_dispatch_ack a = {.code = 0};
	uint8_t buf[64];

	say(PEER_AGENT, buf, kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &a));
}

static void probe(uint64_t id, uint64_t handle)
{
	const struct kvr_wire_ids ids = ids_of(id, handle);
	uint8_t buf[64];

	say(PEER_CLIENT, buf, kvr_put_empty(buf, sizeof(buf), KVR_PROBE, &ids));
}

static void alive_as(uint32_t from, uint64_t worker, uint32_t epoch, const uint64_t handle[],
		     uint32_t n)
{
	const struct kvr_wire_ids ids = {.source = worker, .epoch = epoch};
	uint8_t buf[1024];

	say(from, buf, kvr_put_alive(buf, sizeof(buf), &ids, handle, n));
}

static void alive(uint64_t handle)
{
	alive_as(PEER_AGENT, WORKER, 1, &handle, 1);
}

static uint64_t dispatched(void)
{
	const struct out *o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);

	return o == NULL ? 0 : o->hdr.handle;
}

static bool item_comes(void)
{
	return pipeline_expect(PEER_CLIENT, KVR_RESPONSE) != NULL;
}

static void begin(const char *pools)
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

/* Nothing may be left: counters add up, no booking, no request, no frame. */
static void end(void)
{
	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(booked(), 0);
	CU_ASSERT_EQUAL((uint64_t)kvr_sched_counters(pool()->sched)->released_now, 0);
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT_EQUAL(kvr_flight_count(pool()->requests), kvr_flight_lingering(pool()->requests));
	pipeline_stop();
}

/* A request at its worker, which has acknowledged it. */
static uint64_t begun(uint64_t id, uint32_t flags)
{
	uint64_t h;

	pipeline_flush();
	pipeline_route(id, 1000 * id, 10, flags, NULL);
	h = dispatched();
	CU_ASSERT_NOT_EQUAL_FATAL(h, 0);
	dispatch_ack(id, h);
	pipeline_flush();
	return h;
}

static void finish(uint64_t id, uint64_t h, uint32_t seq, uint32_t tokens)
{
	pipeline_flush();
	respond(id, h, seq, tokens, KVR_RESP_F_FIN);
	CU_ASSERT_TRUE(item_comes());
	response_ack(id, h, seq + 1, KVR_RACK_F_FIN);
}

/* Minutes in which nothing is said, in steps of 30 s. */
static void silence(uint32_t minutes)
{
	for (uint32_t i = 0; i < 2 * minutes; i++)
		pipeline_advance(30000);
}

/* ---- what renews ---- */

/* Twenty minutes of prefill, of which the agent only says that it goes on; then two hours of
 * answer, a token every 4 minutes, so that no block is full for more than an hour. */
static void a_long_answer_is_not_cut_off(void)
{
	uint64_t h;

	begin(NULL);
	h = begun(1, 0);
	for (uint32_t i = 0; i < 40; i++) {
		pipeline_advance(30000);
		alive(h);
	}
	CU_ASSERT_EQUAL(booked(), 1);
	for (uint32_t i = 0; i < 30; i++) {
		pipeline_advance(120000);
		pipeline_advance(120000);
		pipeline_flush();
		respond(1, h, i, 1 + i, 0);
		CU_ASSERT_TRUE_FATAL(item_comes());
		response_ack(1, h, i + 1, 0);
	}
	CU_ASSERT_EQUAL(booked(), 1);
	CU_ASSERT_EQUAL(counter(PC_EXPIRED), 0);
	CU_ASSERT_EQUAL(counter(PC_ALIVE), 40);
	CU_ASSERT_EQUAL(counter(PC_ALIVE_UNKNOWN), 0);
	finish(1, h, 30, 31);
	CU_ASSERT_EQUAL(counter(PC_FINISHED), 1);
	end();
}

/* The reports of a direct answer, whether they tell of anything or not; TRACK, which is relayed. */
static void direct_and_tracked_answers(void)
{
	uint64_t direct, tracked;

	begin(NULL);
	direct = begun(1, KVR_REQ_F_DIRECT);
	tracked = begun(2, KVR_REQ_F_TRACK);
	for (uint32_t i = 0; i < 30; i++) {
		pipeline_advance(240000);
		progress(PEER_AGENT, 1, direct, i, 3, KVR_PROG_F_FIRST);
		respond(2, tracked, i, 1, 0);
		response_ack(2, tracked, i + 1, 0);
	}
	CU_ASSERT_EQUAL(booked(), 2);
	CU_ASSERT_EQUAL(counter(PC_EXPIRED), 0);
	progress(PEER_AGENT, 1, direct, 30, 3, KVR_PROG_F_FIRST | KVR_PROG_F_FIN);
	finish(2, tracked, 30, 1);
	CU_ASSERT_EQUAL(counter(PC_FINISHED), 2);
	end();
}

/* BOOK: its client stands for the worker. */
static void a_booking_of_a_client(void)
{
	static const uint8_t zeros[264]; /* as long as its answer may become */
	const uint32_t body = pipeline_body_len;
	uint8_t bytes[512];
	struct kvr_hint_buf pad = {.p = bytes, .cap = sizeof(bytes)};
	const struct out *o;
	uint64_t h;

	begin(NULL);
	kvr_hint_put(&pad, KVR_HINT_PAD, zeros, sizeof(zeros), NULL, 0);
	pipeline_body_len = 0;
	pipeline_route(1, 100, 10, KVR_REQ_F_BOOK, &pad);
	pipeline_body_len = body;
	o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	h = o->hdr.handle;
	for (uint32_t i = 0; i < 100; i++) { /* a quarter of an hour of PROBE alone */
		pipeline_advance(9000);
		probe(1, h);
	}
	for (uint32_t i = 0; i < 100; i++) { /* another one of PROGRESS, which says nothing new */
		pipeline_advance(9000);
		progress(PEER_CLIENT, 1, h, i, 7, KVR_PROG_F_FIRST);
	}
	CU_ASSERT_EQUAL(booked(), 1);
	CU_ASSERT_EQUAL(counter(PC_EXPIRED), 0);
	progress(PEER_CLIENT, 1, h, 100, 9, KVR_PROG_F_FIRST | KVR_PROG_F_FIN);
	end();
}

/* Each leg is reported by its own agent. */
static void both_legs_of_a_pair(void)
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

	begin(BOTH);
	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&w));
	pipeline_route(1, 100, 10, 0, NULL);
	o = pipeline_expect(PEER_OTHER, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	prefill = o->hdr.handle;
	pipeline_flush();
	pipeline_advance(50); /* both are repeated */
	decode = dispatched();
	CU_ASSERT_NOT_EQUAL_FATAL(decode, 0);
	for (uint32_t i = 0; i < 40; i++) {
		alive_as(PEER_OTHER, OTHER, 1, &prefill, 1); /* an acknowledgement, too */
		alive(decode);
		pipeline_advance(30000);
	}
	CU_ASSERT_EQUAL(booked(), 1);
	CU_ASSERT_EQUAL((uint64_t)kvr_sched_counters(rt->pool[1].sched)->booked_now, 1);
	respond(1, decode, 0, 1, 0);
	CU_ASSERT_EQUAL((uint64_t)kvr_sched_counters(rt->pool[1].sched)->booked_now, 0);
	/* The prefill leg is over: its agent may not have heard. */
	alive_as(PEER_OTHER, OTHER, 1, &prefill, 1);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[1].count, PC_ALIVE_UNKNOWN), 1);
	finish(1, decode, 1, 2);
	CU_ASSERT_EQUAL(counter(PC_EXPIRED), 0);
	end();
}

/* ---- silence ---- */

/* A client that asks is served to the end, whatever its worker did meanwhile. */
static void silence_takes_the_load_and_not_the_request(void)
{
	uint64_t h, since;

	begin(NULL);
	since = now_ns(rt);
	h = begun(1, 0);
	while (booked() == 1 && now_ns(rt) - since < 390 * SECOND) {
		pipeline_advance(10000);
		probe(1, h);
	}
	CU_ASSERT_EQUAL(booked(), 0);
	CU_ASSERT(now_ns(rt) - since > 300 * SECOND);
	CU_ASSERT_EQUAL(counter(PC_EXPIRED), 1);
	CU_ASSERT_EQUAL(counter(PC_RELEASED), 1);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	for (uint32_t i = 0; i < 60; i++) {
		pipeline_advance(10000);
		probe(1, h);
	}
	alive(h);
	CU_ASSERT_EQUAL(booked(), 0); /* it is not booked again */
	pipeline_flush();
	respond(1, h, 0, 1, 0);
	CU_ASSERT_TRUE(item_comes());
	response_ack(1, h, 1, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	/* Its client hears items, and asks nothing. */
	for (uint32_t i = 1; i < 20; i++) {
		pipeline_advance(15000);
		pipeline_flush();
		respond(1, h, i, 1 + i, 0);
		CU_ASSERT_TRUE_FATAL(item_comes());
	}
	finish(1, h, 20, 21);
	CU_ASSERT_EQUAL(counter(PC_FINISHED), 0); /* bookings are counted, and ended once */
	CU_ASSERT_EQUAL(counter(PC_LOST), 0);
	end();
}

static void a_released_request_can_be_cancelled(void)
{
	uint64_t h;

	begin(NULL);
	h = begun(1, 0);
	for (uint32_t i = 0; i < 39; i++) {
		pipeline_advance(10000);
		probe(1, h);
	}
	CU_ASSERT_EQUAL(counter(PC_RELEASED), 1);
	pipeline_flush();
	{
		const struct kvr_wire_ids ids = ids_of(1, h);
		uint8_t buf[64];

		say(PEER_CLIENT, buf, kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
		CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
		say(PEER_AGENT, buf, kvr_put_empty(buf, sizeof(buf), KVR_ABORT_ACK, &ids));
	}
	CU_ASSERT_EQUAL(counter(PC_CANCELLED), 0);
	end();
}

/* Its worker's loss is told. */
static void a_released_request_ends_with_its_worker(void)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 3, .epoch = 1};
	const struct out *o;
	uint8_t buf[64];
	uint64_t h;

	begin(NULL);
	h = begun(1, 0);
	begun(2, 0);
	for (uint32_t i = 0; i < 39; i++) {
		pipeline_advance(10000);
		probe(1, h);
		alive(h);
	}
	probe(1, h);
	CU_ASSERT_EQUAL(counter(PC_RELEASED), 1);
	CU_ASSERT_EQUAL(booked(), 1);
	pipeline_flush();
	say(PEER_AGENT, buf, kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
	o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(counter(PC_LOST), 1); /* of bookings */
	end();
}

/* Neither side speaks of it: it does not stay for ever. */
static void without_a_word_of_anybody_it_ends(void)
{
	const struct out *o;

	begin(NULL);
	begun(1, 0);
	silence(7);
	o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(((const struct kvr_wire_rejected *)(&o->hdr + 1))->code, KVR_E_EXPIRED);
	CU_ASSERT_EQUAL(((const struct kvr_wire_rejected *)(&o->hdr + 1))->detail[0],
			KVR_RQ_SILENT);
	silence(1);
	end();
}

static void zero_disables_the_limit(void)
{
	uint64_t h;

	begin("[pool a]\nid = 5\n" PIPELINE_POOL "active_request_expiry_secs = 0\n");
	h = begun(1, 0);
	silence(120);
	CU_ASSERT_EQUAL(booked(), 1);
	finish(1, h, 0, 1);
	CU_ASSERT_EQUAL(counter(PC_FINISHED), 1);
	end();
}

/* ---- reports of many, and of what is not theirs ---- */

static void many_in_a_frame(void)
{
	uint64_t h[MANY];

	begin(NULL);
	for (uint32_t i = 0; i < MANY; i++)
		h[i] = begun(1 + i, 0);
	for (uint32_t t = 0; t < 13; t++) {
		pipeline_advance(30000);
		for (uint32_t i = 0; i < MANY; i += KVR_WIRE_ALIVE_MOST)
			alive_as(PEER_AGENT, WORKER, 1, &h[i],
				 RTE_MIN(MANY - i, KVR_WIRE_ALIVE_MOST));
	}
	CU_ASSERT_EQUAL(booked(), MANY);
	CU_ASSERT_EQUAL(counter(PC_ALIVE), 13 * MANY);
	CU_ASSERT_EQUAL(counter(PC_ALIVE_UNKNOWN), 0);
	CU_ASSERT_EQUAL(counter(PC_LATE_FRAMES), 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_REJECTED));
	for (uint32_t i = 0; i < MANY; i++)
		finish(1 + i, h[i], 0, 1);
	end();
}

/* What a frame names that is not its sender's renews nothing. */
static void a_stranger_renews_nothing(void)
{
	uint64_t h, odd[6];

	begin(NULL);
	h = begun(1, 0); /* at the only worker */
	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&(const struct pipeline_worker){
		.id = OTHER, .epoch = 3, .pool = "a", .ranks = 1, .from = PEER_OTHER}));
	pipeline_flush();
	odd[0] = h ^ UINT64_C(1) << 33;	 /* of an earlier request of its slot */
	odd[1] = h + 1;			 /* a slot that is free */
	odd[2] = h | UINT64_C(0xffffff); /* no slot */
	odd[3] = h ^ 0x55000000;	 /* another pool's */
	odd[4] = 0;
	odd[5] = UINT64_MAX;
	for (uint32_t i = 0; i < 13; i++) {
		pipeline_advance(30000);
		probe(1, h);
		alive_as(PEER_OTHER, OTHER, 3, &h, 1);	 /* another worker */
		alive_as(PEER_OTHER, WORKER, 1, &h, 1);	 /* from elsewhere */
		alive_as(PEER_AGENT, WORKER, 2, &h, 1);	 /* another life */
		alive_as(PEER_AGENT, 12345, 1, &h, 1);	 /* nobody */
		alive_as(PEER_CLIENT, WORKER, 1, &h, 1); /* its client */
		alive_as(PEER_AGENT, WORKER, 1, odd, 6);
	}
	CU_ASSERT_EQUAL(counter(PC_RELEASED), 1);
	CU_ASSERT_EQUAL(counter(PC_ALIVE), 13 * 7);
	CU_ASSERT_EQUAL(counter(PC_ALIVE_UNKNOWN), 13 * 7);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->lcore[0]->in, IN_UNKNOWN_REQUEST), 13 * 4);
	finish(1, h, 0, 1);
	end();
}

/* No frame of this kind is answered, whatever is wrong with it. */
static void a_broken_report_is_refused_silently(void)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .epoch = 1};
	const uint64_t one[2] = {1, 2};
	uint8_t buf[1024];
	int len;

	begin(NULL);
	pipeline_flush();
	len = kvr_put_alive(buf, sizeof(buf), &ids, one, 2);
	buf[48] = 3; /* more than there are */
	say(PEER_AGENT, buf, len);
	buf[48] = 1;
	say(PEER_AGENT, buf, len);
	buf[48] = 2;
	buf[52] = 1; /* reserved */
	say(PEER_AGENT, buf, len);
	say(PEER_AGENT, buf, 48); /* cut */
	CU_ASSERT_EQUAL(counter(PC_ALIVE), 0);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->lcore[0]->in, IN_REJECTED), 4);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_REJECTED));
	end();
}

int main(void)
{
	CU_TestInfo tests[] = {{"long", a_long_answer_is_not_cut_off},
			       {"direct", direct_and_tracked_answers},
			       {"book", a_booking_of_a_client},
			       {"pair", both_legs_of_a_pair},
			       {"silence", silence_takes_the_load_and_not_the_request},
			       {"cancel", a_released_request_can_be_cancelled},
			       {"worker", a_released_request_ends_with_its_worker},
			       {"nobody", without_a_word_of_anybody_it_ends},
			       {"zero", zero_disables_the_limit},
			       {"many", many_in_a_frame},
			       {"stranger", a_stranger_renews_nothing},
			       {"broken", a_broken_report_is_refused_silently},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("alive", tests);
}
