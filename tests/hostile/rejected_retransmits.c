/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client that asks again about its ended request gets the same outcome, with the reason.
 */
#include "peers.h"

static void begin_retransmits(const char *keys)
{
	char text[512];

	snprintf(text, sizeof(text), "[pool a]\nid = 5\n" PIPELINE_POOL "%s", keys);
	pipeline_start_with(text);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 1));
	pipeline_flush();
}

static uint8_t asked = KVR_ROUTE; /* kind of the question */

static void expect_rejected_with(uint16_t code, bool retryable, uint64_t detail0)
{
	struct kvr_wire_rejected r = peers_take_rejected(PEER_CLIENT);

	CU_ASSERT_EQUAL(r.code, code);
	CU_ASSERT_EQUAL(r.retryable, retryable);
	CU_ASSERT_EQUAL(r.detail[0], detail0);
	CU_ASSERT_EQUAL(r.kind, asked);
}

static void ask_in_both_ways(uint64_t id, uint16_t code, bool retryable, uint64_t detail0)
{
	peers_route(PEER_CLIENT, id, KVR_REQ_F_RESEND, "x");
	expect_rejected_with(code, retryable, detail0);
	peers_empty(PEER_CLIENT, KVR_PROBE, id, 0);
	asked = KVR_PROBE;
	expect_rejected_with(code, retryable, detail0);
	asked = KVR_ROUTE;
}

static void a_rejected_dispatch_stays_rejected(void)
{
	begin_retransmits("");
	peers_route(PEER_CLIENT, 1, 0, "x");
	peers_dispatch_ack(1, peers_take_dispatch(), 503);
	expect_rejected_with(KVR_E_DISPATCH_FAILED, true, 503);
	ask_in_both_ways(1, KVR_E_DISPATCH_FAILED, true, 503);
	/* Its slot has been freed. */
	pipeline_advance(KVR_WIRE_LINGER_S * 1000 + 1);
	CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
	ask_in_both_ways(1, KVR_E_DISPATCH_FAILED, true, 503);
	pipeline_stop();
}

static void a_finished_request_stays_ended(void)
{
	uint64_t h;

	begin_retransmits("");
	peers_route(PEER_CLIENT, 1, 0, "x");
	h = peers_take_dispatch();
	peers_item(1, h, KVR_RESP_F_FIN);
	peers_fin_ack(1, h);
	pipeline_flush();
	ask_in_both_ways(1, KVR_E_ENDED, false, 0);
	peers_route(PEER_CLIENT, 2, 0, "x");
	peers_empty(PEER_CLIENT, KVR_CANCEL, 2, 0);
	pipeline_flush();
	ask_in_both_ways(2, KVR_E_ENDED, false, 0);
	pipeline_advance(KVR_WIRE_LINGER_S * 1000 + 1);
	ask_in_both_ways(2, KVR_E_ENDED, false, 0);
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(a_rejected_dispatch_stays_rejected),
		KVR_CASE(a_finished_request_stays_ended),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("rejected_retransmits", tests);
}
