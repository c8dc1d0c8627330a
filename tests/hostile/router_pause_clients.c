/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * While the router is paused it receives no frames, so the pause
 * does not count as silence of clients, and no session expires in it.
 */
#include "peers.h"

#include "control/thread.h"
#include "sched/request.h"
#include "sched/session.h"
#include "threads.h"

#define WORKER	9u
#define PAUSE	15000u /* ms; clients are removed after 10 s of silence */
#define TTL_S	5u
#define SILENCE 20000u /* ms, limit for clients */

static uint64_t read_paused_counter(enum pool_counter c)
{
	return kvr_stats_get(rt->pool[0].count, c);
}

static uint64_t count_live_sessions(void)
{
	return kvr_stats_get(rt->pool[0].sessions->count, SC_LIVE);
}

static int get_state(uint64_t id)
{
	const struct kvr_flight *slot = kvr_flight_lookup(rt->pool[0].requests, 77, id);

	return slot == NULL || request_of(slot) == NULL ? -1
							: (int)leg_state(request_of(slot), MAIN);
}

/* The router runs. */
static void pass_ms_running(uint32_t ms)
{
	for (uint32_t at = 0; at < ms; at += 100)
		pipeline_advance(100);
}

/* One request was dispatched to its worker, which is silent, and one waits. */
static void begin_pause(void)
{
	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL
			    "router_queue_threshold = 0.5\nmax_sessions = 16\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 1));
	pipeline_route(1, 7, 100, 0, NULL);
	peers_route(PEER_CLIENT, 2, 0, "waits");
	CU_ASSERT_EQUAL_FATAL(get_state(1), KVR_RQS_SENT);
	CU_ASSERT_EQUAL_FATAL(get_state(2), KVR_RQS_QUEUED);
	pipeline_flush();
}

static void expect_no_client_gone(void)
{
	CU_ASSERT_EQUAL(read_paused_counter(PC_CLIENT_GONE), 0);
	CU_ASSERT_EQUAL(get_state(1), KVR_RQS_SENT);
	CU_ASSERT_EQUAL(get_state(2), KVR_RQS_QUEUED);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_REJECTED));
}

static void a_pause_is_not_silence_of_clients(void)
{
	begin_pause();
	for (uint32_t i = 0; i < 4; i++) {
		pipeline_pause(PAUSE);
		pipeline_turn();
		pass_ms_running(400); /* all slots are checked */
		expect_no_client_gone();
	}
	/* Real silence still counts. */
	pass_ms_running(SILENCE);
	CU_ASSERT_EQUAL(read_paused_counter(PC_CLIENT_GONE), 2);
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, KVR_E_EXPIRED);
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, KVR_E_EXPIRED);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

/* Control and the scheduler's ticks run, but frames of clients are not read. */
static void a_stall_of_ingress_is_not_silence(void)
{
	if (threads_used() != NULL)
		return;
	begin_pause();
	for (uint32_t i = 0; i < PAUSE / 10; i++) {
		rt->ns_offset += UINT64_C(10000000);
		control_round(rt);
	}
	pass_ms_running(400);
	expect_no_client_gone();
	pipeline_stop();
}

/* Only the scheduler's lcore paused: its frames are in its ring. */
static void a_stall_of_the_scheduler_is_not_silence(void)
{
	begin_pause();
	rt->ctl->live.now_ns += PAUSE * UINT64_C(1000000);
	rt->ctl->live.real_ns += PAUSE * UINT64_C(1000000);
	rt->ns_offset += PAUSE * UINT64_C(1000000);
	kvr_registry_at(rt->registry, 0)->last_seen_ns = rt->ctl->live.now_ns;
	pipeline_turn();
	pass_ms_running(400);
	expect_no_client_gone();
	pipeline_stop();
}

/* The age of a running request counts on the clock that stops with the router. */
static void bookings_do_not_age_in_a_pause(void)
{
	const struct kvr_wire_dispatch_ack ack = {.code = 0};
	struct kvr_wire_ids ids = {.source = 77, .id = 1, .epoch = 1};
	uint8_t buf[64];

	begin_pause();
	peers_empty(PEER_CLIENT, KVR_CANCEL, 2, 0);
	ids.handle = kvr_flight_handle(rt->pool[0].requests,
				       kvr_flight_lookup(rt->pool[0].requests, 77, 1));
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &ack));
	pipeline_turn();
	for (uint32_t i = 0; i < 3; i++) {
		pipeline_pause(400000); /* a booking has 300 s */
		pipeline_turn();
		pass_ms_running(400);
		CU_ASSERT_EQUAL(read_paused_counter(PC_EXPIRED), 0);
		CU_ASSERT_EQUAL(get_state(1), KVR_RQS_RUNNING);
	}
	pipeline_advance(290000);
	CU_ASSERT_EQUAL(read_paused_counter(PC_EXPIRED), 0);
	for (uint32_t i = 0; i < 30 && read_paused_counter(PC_EXPIRED) == 0;
	     i++) /* checked every 60 s */
		pipeline_advance(10000);
	CU_ASSERT_EQUAL(read_paused_counter(PC_EXPIRED), 1);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static void open_paused_session(void)
{
	uint8_t tlv[64], buf[128];
	struct kvr_hint_buf h = {.p = tlv, .cap = sizeof(tlv)};
	struct kvr_wire_ids ids = {.source = WORKER, .epoch = 1};
	const struct out *o;
	uint64_t handle;

	kvr_hint_put_session(&h, KVR_ACTION_OPEN, TTL_S, "chat");
	pipeline_route(1, 100, 4, 0, &h);
	o = pipeline_expect(PEER_AGENT, KVR_SESSION_OPEN);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	ids.id = o->hdr.id;
	pipeline_send(
		PEER_AGENT, buf,
		(size_t)kvr_put_session_status(buf, sizeof(buf), KVR_SESSION_OPENED, &ids, 0));
	pipeline_turn();
	handle = peers_take_dispatch();
	peers_item(1, handle, KVR_RESP_F_FIN);
	peers_fin_ack(1, handle);
}

static void sessions_do_not_age_in_a_pause(void)
{
	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL "max_sessions = 16\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 1));
	open_paused_session();
	CU_ASSERT_EQUAL(count_live_sessions(), 1);
	for (uint32_t i = 0; i < 4; i++) {
		pipeline_pause(PAUSE);
		pipeline_turn();
		pass_ms_running(400);
		CU_ASSERT_EQUAL(count_live_sessions(), 1);
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_CLOSE));
	}
	pass_ms_running(TTL_S * 1000);
	CU_ASSERT_EQUAL(count_live_sessions(), 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_CLOSE));
	pass_ms_running(6000);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_pause_is_not_silence_of_clients),
			       KVR_CASE(a_stall_of_ingress_is_not_silence),
			       KVR_CASE(a_stall_of_the_scheduler_is_not_silence),
			       KVR_CASE(bookings_do_not_age_in_a_pause),
			       KVR_CASE(sessions_do_not_age_in_a_pause),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("router_pause_clients", tests);
}
