/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer that knows the ids of a request, but does not have the address of its ROUTE,
 * changes nothing. A retransmission must be the same message in every byte.
 */
#include "peers.h"

#include "sched/request.h"

static uint64_t count_wrong_addresses(void)
{
	return kvr_stats_get(rt->pool[0].count, PC_WRONG_CLIENT_ADDRESS);
}

static void begin_owner(const char *keys)
{
	char text[512];

	snprintf(text, sizeof(text), "[pool a]\nid = 5\n" PIPELINE_POOL "%s", keys);
	pipeline_start_with(text);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 1));
	pipeline_flush();
}

static void end_owner(void)
{
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static void another_address_ends_nothing(void)
{
	uint64_t h;

	begin_owner("");
	peers_route(PEER_CLIENT, 1, 0, "mine");
	h = peers_take_dispatch();
	CU_ASSERT_NOT_EQUAL_FATAL(h, 0);
	pipeline_flush();
	for (int with = 0; with < 2; with++) {
		peers_empty(PEER_OTHER, KVR_CANCEL, 1, with ? h : 0);
		CU_ASSERT_EQUAL(peers_take_rejected(PEER_OTHER).code, KVR_E_NOT_ALLOWED);
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_OTHER, KVR_CANCELLED));
		peers_empty(PEER_OTHER, KVR_PROBE, 1, with ? h : 0);
		CU_ASSERT_EQUAL(peers_take_rejected(PEER_OTHER).code, KVR_E_NOT_ALLOWED);
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_OTHER, KVR_ACCEPTED));
	}
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT_EQUAL(count_wrong_addresses(), 4);
	peers_empty(PEER_CLIENT, KVR_CANCEL, 1, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	end_owner();
}

static void another_address_does_not_keep_a_request_waiting(void)
{
	begin_owner("router_queue_threshold = 0.5\n");
	pipeline_route(1, 7, 200, 0, NULL);
	peers_route(PEER_CLIENT, 2, 0, "mine");
	CU_ASSERT_EQUAL(
		leg_state(request_of(kvr_flight_lookup(rt->pool[0].requests, 77, 2)), KVR_LEG_MAIN),
		KVR_RQS_QUEUED);
	for (int i = 0; i < 20; i++) { /* each tick checks a sixteenth of the slots */
		pipeline_advance(600);
		peers_empty(PEER_OTHER, KVR_PROBE, 2, 0);
	}
	/* Its client has been silent for longer than client_timeout_ms. */
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_CLIENT_GONE), 1);
	end_owner();
}

static void a_retransmit_is_the_same_message_from_the_same_address(void)
{
	uint64_t h;

	begin_owner("");
	peers_route(PEER_CLIENT, 1, 0, "mine");
	h = peers_take_dispatch();
	pipeline_flush();
	/*
	 * Same length and same hashes, but other bytes for the engine, to be sent to another
	 * address.
	 */
	peers_route(PEER_OTHER, 1, KVR_REQ_F_RESEND, "evil");
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_OTHER).code, KVR_E_NOT_ALLOWED);
	CU_ASSERT_EQUAL(peers_take_dispatch(), 0);
	peers_route(PEER_OTHER, 1, KVR_REQ_F_RESEND, "mine");
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_OTHER).code, KVR_E_NOT_ALLOWED);
	CU_ASSERT_EQUAL(peers_take_dispatch(), 0);
	peers_route(PEER_CLIENT, 1, KVR_REQ_F_RESEND, "evil");
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, KVR_E_DUPLICATE_REQUEST);
	CU_ASSERT_EQUAL(peers_take_dispatch(), 0);
	peers_route(PEER_CLIENT, 1, KVR_REQ_F_RESEND | KVR_REQ_F_DIRECT, "mine");
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, KVR_E_DUPLICATE_REQUEST);
	CU_ASSERT_EQUAL(peers_take_dispatch(), 0);
	peers_route(PEER_CLIENT, 1, KVR_REQ_F_RESEND, "mine");
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, 0);
	CU_ASSERT_EQUAL(peers_take_dispatch(), h);
	end_owner();
}

/* With any fragmentation the message is the same. */
static void a_long_message_has_one_digest(void)
{
	begin_owner("");
	pipeline_body_len = 100000;
	pipeline_route(1, 7, 64, 0, NULL);
	pipeline_flush();
	pipeline_advance(5000); /* until then its ids alone identify it */
	pipeline_route(1, 7, 64, KVR_REQ_F_RESEND, NULL);
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, 0);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_DUPLICATES), 1);
	pipeline_advance(5000);
	pipeline_route(1, 8, 64, KVR_REQ_F_RESEND, NULL); /* of the same length */
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, KVR_E_DUPLICATE_REQUEST);
	pipeline_body_len = 4;
	end_owner();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(another_address_ends_nothing),
		KVR_CASE(another_address_does_not_keep_a_request_waiting),
		KVR_CASE(a_retransmit_is_the_same_message_from_the_same_address),
		KVR_CASE(a_long_message_has_one_digest),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("request_owner", tests);
}
