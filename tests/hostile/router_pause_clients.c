/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Row 6, for clients and sessions: while the router stands still nobody can be heard, so its pause
 * is no client's silence, and no session grows old in it.
 */
#include "peers.h"

#include "control/thread.h"
#include "sched/request.h"
#include "sched/session.h"
#include "threads.h"

#define WORKER	9u
#define PAUSE	15000u /* ms; clients that say nothing for 10 s are gone */
#define TTL_S	5u
#define SILENCE 20000u /* ms: of clients, the longest */

static uint64_t counter(enum pool_counter c)
{
	return kvr_stats_get(rt->pool[0].count, c);
}

static uint64_t sessions(void)
{
	return kvr_stats_get(rt->pool[0].sessions->count, SC_LIVE);
}

static int state(uint64_t id)
{
	const struct kvr_flight *slot = kvr_flight_lookup(rt->pool[0].requests, 77, id);

	return slot == NULL || request_of(slot) == NULL ? -1
							: (int)leg_state(request_of(slot), MAIN);
}

/* The router runs. */
static void passes(uint32_t ms)
{
	for (uint32_t at = 0; at < ms; at += 100)
		pipeline_advance(100);
}

/* One request has been sent to its worker, which says nothing, and one waits. */
static void begin(void)
{
	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL
			    "router_queue_threshold = 0.5\nmax_sessions = 16\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 1));
	pipeline_route(1, 7, 100, 0, NULL);
	peers_route(PEER_CLIENT, 2, 0, "waits");
	CU_ASSERT_EQUAL_FATAL(state(1), KVR_RQS_SENT);
	CU_ASSERT_EQUAL_FATAL(state(2), KVR_RQS_QUEUED);
	pipeline_flush();
}

static void nobody_is_gone(void)
{
	CU_ASSERT_EQUAL(counter(PC_CLIENT_GONE), 0);
	CU_ASSERT_EQUAL(state(1), KVR_RQS_SENT);
	CU_ASSERT_EQUAL(state(2), KVR_RQS_QUEUED);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_REJECTED));
}

static void a_pause_is_no_silence_of_clients(void)
{
	begin();
	for (uint32_t i = 0; i < 4; i++) {
		pipeline_pause(PAUSE);
		pipeline_turn();
		passes(400); /* all slots are looked at */
		nobody_is_gone();
	}
	/* And they can still be silent. */
	passes(SILENCE);
	CU_ASSERT_EQUAL(counter(PC_CLIENT_GONE), 2);
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, KVR_E_EXPIRED);
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, KVR_E_EXPIRED);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

/* Control runs, and so does the scheduler's tick; what clients say is not read. */
static void nor_is_a_stall_of_ingress(void)
{
	if (threads_used() != NULL)
		return;
	begin();
	for (uint32_t i = 0; i < PAUSE / 10; i++) {
		rt->ns_offset += UINT64_C(10000000);
		control_round(rt);
	}
	passes(400);
	nobody_is_gone();
	pipeline_stop();
}

/* The scheduler's lcore alone stood still: what came for it is in its ring. */
static void nor_is_a_stall_of_the_scheduler(void)
{
	begin();
	rt->ctl->live.now_ns += PAUSE * UINT64_C(1000000);
	rt->ctl->live.real_ns += PAUSE * UINT64_C(1000000);
	rt->ns_offset += PAUSE * UINT64_C(1000000);
	kvr_registry_at(rt->registry, 0)->last_seen_ns = rt->ctl->live.now_ns;
	pipeline_turn();
	passes(400);
	nobody_is_gone();
	pipeline_stop();
}

/* A request that runs has its time by the clock that stands still with the router. */
static void bookings_do_not_grow_old_in_a_pause(void)
{
	const struct kvr_wire_dispatch_ack ack = {.code = 0};
	struct kvr_wire_ids ids = {.source = 77, .id = 1, .epoch = 1};
	uint8_t buf[64];

	begin();
	peers_empty(PEER_CLIENT, KVR_CANCEL, 2, 0);
	ids.handle = kvr_flight_handle(rt->pool[0].requests,
				       kvr_flight_lookup(rt->pool[0].requests, 77, 1));
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &ack));
	pipeline_turn();
	for (uint32_t i = 0; i < 3; i++) {
		pipeline_pause(400000); /* a booking has 300 s */
		pipeline_turn();
		passes(400);
		CU_ASSERT_EQUAL(counter(PC_EXPIRED), 0);
		CU_ASSERT_EQUAL(state(1), KVR_RQS_RUNNING);
	}
	pipeline_advance(290000);
	CU_ASSERT_EQUAL(counter(PC_EXPIRED), 0);
	for (uint32_t i = 0; i < 30 && counter(PC_EXPIRED) == 0; i++) /* looked for every 60 s */
		pipeline_advance(10000);
	CU_ASSERT_EQUAL(counter(PC_EXPIRED), 1);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static void open_session(void)
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
	handle = peers_dispatched();
	peers_item(1, handle, KVR_RESP_F_FIN);
	peers_fin_ack(1, handle);
}

static void sessions_do_not_grow_old_in_a_pause(void)
{
	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL "max_sessions = 16\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 1));
	open_session();
	CU_ASSERT_EQUAL(sessions(), 1);
	for (uint32_t i = 0; i < 4; i++) {
		pipeline_pause(PAUSE);
		pipeline_turn();
		passes(400);
		CU_ASSERT_EQUAL(sessions(), 1);
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_CLOSE));
	}
	passes(TTL_S * 1000);
	CU_ASSERT_EQUAL(sessions(), 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_CLOSE));
	passes(6000);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {{"pause", a_pause_is_no_silence_of_clients},
			       {"ingress", nor_is_a_stall_of_ingress},
			       {"scheduler", nor_is_a_stall_of_the_scheduler},
			       {"bookings", bookings_do_not_grow_old_in_a_pause},
			       {"sessions", sessions_do_not_grow_old_in_a_pause},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("router_pause_clients", tests);
}
