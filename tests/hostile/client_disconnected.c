/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client is disconnected while its answer ends, within its time limit: it still gets the
 * answer. Requests kept for such clients never keep others out.
 */
#include "peers.h"

static void begin_disconnected(void)
{
	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 1));
	pipeline_flush();
}

static void keep_peers_alive(void)
{
	CU_ASSERT_TRUE(KVR_WIRE_CLIENT_SILENCE_S < KVR_WIRE_ITEMS_KEPT_S);
	CU_ASSERT_TRUE(KVR_WIRE_ITEMS_KEPT_S < KVR_WIRE_LINGER_S);
}

static void an_answer_is_kept_for_its_client(void)
{
	uint64_t h;

	begin_disconnected();
	peers_route(PEER_CLIENT, 1, 0, "x");
	h = peers_take_dispatch();
	peers_item(1, h, KVR_RESP_F_FIN);
	for (uint32_t s = 1; s <= KVR_WIRE_ITEMS_KEPT_S; s++) {
		pipeline_advance(1000);
		pipeline_flush(); /* the client receives none of it */
		peers_item(1, h, KVR_RESP_F_FIN);
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_REJECTED));
	}
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE)); /* now it does */
	peers_empty(PEER_CLIENT, KVR_PROBE, 1, h);
	CU_ASSERT_EQUAL(peers_take_accepted(), KVR_STATE_RUNNING);
	peers_fin_ack(1, h);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
	pipeline_stop();
}

static void ended_requests_are_freed_after_a_time(void)
{
	uint64_t h;

	begin_disconnected();
	peers_route(PEER_CLIENT, 1, 0, "x");
	h = peers_take_dispatch();
	peers_item(1, h, KVR_RESP_F_FIN);
	pipeline_advance(KVR_WIRE_LINGER_S * 1000 + 1);
	CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
	pipeline_stop();
}

/* Three times as many unacknowledged answers as there are slots: all requests were accepted. */
static void the_oldest_ended_request_is_evicted(void)
{
	const uint32_t n = 3 * kvr_flight_size((begin_disconnected(), rt->pool[0].requests));

	for (uint64_t id = 1; id <= n; id++) {
		uint64_t h;

		peers_route(PEER_CLIENT, id, 0, "x");
		h = peers_take_dispatch();
		CU_ASSERT_NOT_EQUAL_FATAL(h, 0);
		peers_item(id, h, KVR_RESP_F_FIN);
		pipeline_flush();
	}
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_SLOTS_RECLAIMED),
			n - kvr_flight_size(rt->pool[0].requests));
	peers_empty(PEER_CLIENT, KVR_PROBE, 1, 0);
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, KVR_E_ENDED);
	peers_empty(PEER_CLIENT, KVR_PROBE, n, 0);
	CU_ASSERT_EQUAL(peers_take_accepted(), KVR_STATE_RUNNING);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

/* Live requests are never evicted. */
static void live_requests_are_not_evicted(void)
{
	uint32_t n;

	begin_disconnected();
	n = kvr_flight_size(rt->pool[0].requests);
	for (uint64_t id = 1; id <= n; id++)
		peers_route(PEER_CLIENT, id, 0, "x");
	pipeline_flush();
	peers_route(PEER_CLIENT, n + 1, 0, "x");
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, KVR_E_NO_MEMORY);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_SLOTS_RECLAIMED), 0);
	pipeline_stop();
}

/*
 * The ABORT of a cancelled request, which its agent has not received, is lost with its slot. The
 * next item makes the router repeat it.
 */
static void an_evicted_abort_is_repeated_for_the_next_item(void)
{
	uint64_t h, first;
	uint32_t n;

	begin_disconnected();
	n = kvr_flight_size(rt->pool[0].requests);
	peers_route(PEER_CLIENT, 1, 0, "x");
	first = peers_take_dispatch();
	peers_dispatch_ack(1, first, 0);
	peers_empty(PEER_CLIENT, KVR_CANCEL, 1, first);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT_FALSE(TAILQ_EMPTY(&rt->pool[0].live.aborts));
	for (uint64_t id = 2; id <= n + 1; id++) {
		peers_route(PEER_CLIENT, id, 0, "x");
		h = peers_take_dispatch();
		peers_item(id, h, KVR_RESP_F_FIN);
		pipeline_flush();
	}
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_SLOTS_RECLAIMED), 1);
	CU_ASSERT_TRUE(TAILQ_EMPTY(&rt->pool[0].live.aborts));
	pipeline_flush();
	peers_item(1, first, 0);
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_AGENT).code, KVR_E_UNKNOWN_REQUEST);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(keep_peers_alive),
		KVR_CASE(an_answer_is_kept_for_its_client),
		KVR_CASE(ended_requests_are_freed_after_a_time),
		KVR_CASE(the_oldest_ended_request_is_evicted),
		KVR_CASE(live_requests_are_not_evicted),
		KVR_CASE(an_evicted_abort_is_repeated_for_the_next_item),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("client_disconnected", tests);
}
