/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Row 11: who knows the names of a request but is not where its ROUTE came from changes nothing;
 * and a repetition is the same message, all of it.
 */
#include "peers.h"

#include "sched/request.h"

static uint64_t strangers(void)
{
	return kvr_stats_get(rt->pool[0].count, PC_WRONG_CLIENT_ADDRESS);
}

static void begin(const char *keys)
{
	char text[512];

	snprintf(text, sizeof(text), "[pool a]\nid = 5\n" PIPELINE_POOL "%s", keys);
	pipeline_start_with(text);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 1));
	pipeline_flush();
}

static void end(void)
{
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static void a_stranger_ends_nothing(void)
{
	uint64_t h;

	begin("");
	peers_route(PEER_CLIENT, 1, 0, "mine");
	h = peers_dispatched();
	CU_ASSERT_NOT_EQUAL_FATAL(h, 0);
	pipeline_flush();
	for (int with = 0; with < 2; with++) {
		peers_empty(PEER_OTHER, KVR_CANCEL, 1, with ? h : 0);
		CU_ASSERT_EQUAL(peers_rejected(PEER_OTHER).code, KVR_E_NOT_ALLOWED);
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_OTHER, KVR_CANCELLED));
		peers_empty(PEER_OTHER, KVR_PROBE, 1, with ? h : 0);
		CU_ASSERT_EQUAL(peers_rejected(PEER_OTHER).code, KVR_E_NOT_ALLOWED);
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_OTHER, KVR_ACCEPTED));
	}
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT_EQUAL(strangers(), 4);
	peers_empty(PEER_CLIENT, KVR_CANCEL, 1, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	end();
}

static void a_stranger_does_not_keep_a_request_waiting(void)
{
	begin("router_queue_threshold = 0.5\n");
	pipeline_route(1, 7, 200, 0, NULL);
	peers_route(PEER_CLIENT, 2, 0, "mine");
	CU_ASSERT_EQUAL(
		leg_state(request_of(kvr_flight_lookup(rt->pool[0].requests, 77, 2)), KVR_LEG_MAIN),
		KVR_RQS_QUEUED);
	for (int i = 0; i < 20; i++) { /* each tick looks at a sixteenth of the slots */
		pipeline_advance(600);
		peers_empty(PEER_OTHER, KVR_PROBE, 2, 0);
	}
	/* Its client has been silent for longer than client_timeout_ms. */
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_CLIENT_GONE), 1);
	end();
}

static void a_repetition_is_the_same_message_from_the_same_place(void)
{
	uint64_t h;

	begin("");
	peers_route(PEER_CLIENT, 1, 0, "mine");
	h = peers_dispatched();
	pipeline_flush();
	/* Same length, same hashes: other bytes for the engine, to go to somebody else. */
	peers_route(PEER_OTHER, 1, KVR_REQ_F_RESEND, "evil");
	CU_ASSERT_EQUAL(peers_rejected(PEER_OTHER).code, KVR_E_NOT_ALLOWED);
	CU_ASSERT_EQUAL(peers_dispatched(), 0);
	peers_route(PEER_OTHER, 1, KVR_REQ_F_RESEND, "mine");
	CU_ASSERT_EQUAL(peers_rejected(PEER_OTHER).code, KVR_E_NOT_ALLOWED);
	CU_ASSERT_EQUAL(peers_dispatched(), 0);
	peers_route(PEER_CLIENT, 1, KVR_REQ_F_RESEND, "evil");
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, KVR_E_DUPLICATE_REQUEST);
	CU_ASSERT_EQUAL(peers_dispatched(), 0);
	peers_route(PEER_CLIENT, 1, KVR_REQ_F_RESEND | KVR_REQ_F_DIRECT, "mine");
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, KVR_E_DUPLICATE_REQUEST);
	CU_ASSERT_EQUAL(peers_dispatched(), 0);
	peers_route(PEER_CLIENT, 1, KVR_REQ_F_RESEND, "mine");
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, 0);
	CU_ASSERT_EQUAL(peers_dispatched(), h);
	end();
}

/* However it was cut: its fragments are the same message. */
static void a_long_message_has_one_digest(void)
{
	begin("");
	pipeline_body_len = 100000;
	pipeline_route(1, 7, 64, 0, NULL);
	pipeline_flush();
	pipeline_advance(5000); /* until then its name alone tells that it is here */
	pipeline_route(1, 7, 64, KVR_REQ_F_RESEND, NULL);
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, 0);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_DUPLICATES), 1);
	pipeline_advance(5000);
	pipeline_route(1, 8, 64, KVR_REQ_F_RESEND, NULL); /* of the same length */
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, KVR_E_DUPLICATE_REQUEST);
	pipeline_body_len = 4;
	end();
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"cancel", a_stranger_ends_nothing},
		{"probe", a_stranger_does_not_keep_a_request_waiting},
		{"route", a_repetition_is_the_same_message_from_the_same_place},
		{"fragments", a_long_message_has_one_digest},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("request_owner", tests);
}
