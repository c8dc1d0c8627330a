/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Row 25: a client is cut off while its answer ends, for as long as it is patient: the answer
 * still comes. And requests that are kept for such clients never keep others out.
 */
#include "peers.h"

static void begin(void)
{
	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 1));
	pipeline_flush();
}

static void everybody_outlives_the_client(void)
{
	CU_ASSERT_TRUE(KVR_WIRE_CLIENT_SILENCE_S < KVR_WIRE_ITEMS_KEPT_S);
	CU_ASSERT_TRUE(KVR_WIRE_ITEMS_KEPT_S < KVR_WIRE_LINGER_S);
}

static void an_answer_waits_for_its_client(void)
{
	uint64_t h;

	begin();
	peers_route(PEER_CLIENT, 1, 0, "x");
	h = peers_dispatched();
	peers_item(1, h, KVR_RESP_F_FIN);
	for (uint32_t s = 1; s <= KVR_WIRE_ITEMS_KEPT_S; s++) {
		pipeline_advance(1000);
		pipeline_flush(); /* the client hears none of it */
		peers_item(1, h, KVR_RESP_F_FIN);
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_REJECTED));
	}
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE)); /* now it does */
	peers_empty(PEER_CLIENT, KVR_PROBE, 1, h);
	CU_ASSERT_EQUAL(peers_accepted(), KVR_STATE_RUNNING);
	peers_fin_ack(1, h);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
	pipeline_stop();
}

static void nobody_is_kept_forever(void)
{
	uint64_t h;

	begin();
	peers_route(PEER_CLIENT, 1, 0, "x");
	h = peers_dispatched();
	peers_item(1, h, KVR_RESP_F_FIN);
	pipeline_advance(KVR_WIRE_LINGER_S * 1000 + 1);
	CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
	pipeline_stop();
}

/* Three times as many answers that nobody takes as there are slots: all were accepted. */
static void under_pressure_the_oldest_goes(void)
{
	const uint32_t n = 3 * kvr_flight_size((begin(), rt->pool[0].requests));

	for (uint64_t id = 1; id <= n; id++) {
		uint64_t h;

		peers_route(PEER_CLIENT, id, 0, "x");
		h = peers_dispatched();
		CU_ASSERT_NOT_EQUAL_FATAL(h, 0);
		peers_item(id, h, KVR_RESP_F_FIN);
		pipeline_flush();
	}
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_SLOTS_RECLAIMED),
			n - kvr_flight_size(rt->pool[0].requests));
	peers_empty(PEER_CLIENT, KVR_PROBE, 1, 0);
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, KVR_E_ENDED);
	peers_empty(PEER_CLIENT, KVR_PROBE, n, 0);
	CU_ASSERT_EQUAL(peers_accepted(), KVR_STATE_RUNNING);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

/* Live ones never give way. */
static void live_requests_stay(void)
{
	uint32_t n;

	begin();
	n = kvr_flight_size(rt->pool[0].requests);
	for (uint64_t id = 1; id <= n; id++)
		peers_route(PEER_CLIENT, id, 0, "x");
	pipeline_flush();
	peers_route(PEER_CLIENT, n + 1, 0, "x");
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, KVR_E_NO_MEMORY);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_SLOTS_RECLAIMED), 0);
	pipeline_stop();
}

/* The ABORT of a cancelled request, which its agent has not heard, goes with its slot. The next
 * item tells the agent the same. */
static void an_abort_whose_room_is_needed(void)
{
	uint64_t h, first;
	uint32_t n;

	begin();
	n = kvr_flight_size(rt->pool[0].requests);
	peers_route(PEER_CLIENT, 1, 0, "x");
	first = peers_dispatched();
	peers_dispatch_ack(1, first, 0);
	peers_empty(PEER_CLIENT, KVR_CANCEL, 1, first);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT_FALSE(TAILQ_EMPTY(&rt->pool[0].live.aborts));
	for (uint64_t id = 2; id <= n + 1; id++) {
		peers_route(PEER_CLIENT, id, 0, "x");
		h = peers_dispatched();
		peers_item(id, h, KVR_RESP_F_FIN);
		pipeline_flush();
	}
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_SLOTS_RECLAIMED), 1);
	CU_ASSERT_TRUE(TAILQ_EMPTY(&rt->pool[0].live.aborts));
	pipeline_flush();
	peers_item(1, first, 0);
	CU_ASSERT_EQUAL(peers_rejected(PEER_AGENT).code, KVR_E_UNKNOWN_REQUEST);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"order", everybody_outlives_the_client},
		{"waits", an_answer_waits_for_its_client},
		{"over", nobody_is_kept_forever},
		{"pressure", under_pressure_the_oldest_goes},
		{"live", live_requests_stay},
		{"abort", an_abort_whose_room_is_needed},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("client_disconnected", tests);
}
