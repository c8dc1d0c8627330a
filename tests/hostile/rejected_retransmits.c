/* SPDX-License-Identifier: BSD-3-Clause */
/* Row 26: what a client was told of the end of its request it is told again, with the reason. */
#include "peers.h"

static void begin(const char *keys)
{
	char text[512];

	snprintf(text, sizeof(text), "[pool a]\nid = 5\n" PIPELINE_POOL "%s", keys);
	pipeline_start_with(text);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 1));
	pipeline_flush();
}

static uint8_t asked = KVR_ROUTE; /* kind of the question */

static void says(uint16_t code, bool retryable, uint64_t detail0)
{
	struct kvr_wire_rejected r = peers_rejected(PEER_CLIENT);

	CU_ASSERT_EQUAL(r.code, code);
	CU_ASSERT_EQUAL(r.retryable, retryable);
	CU_ASSERT_EQUAL(r.detail[0], detail0);
	CU_ASSERT_EQUAL(r.kind, asked);
}

static void ask_in_both_ways(uint64_t id, uint16_t code, bool retryable, uint64_t detail0)
{
	peers_route(PEER_CLIENT, id, KVR_REQ_F_RESEND, "x");
	says(code, retryable, detail0);
	peers_empty(PEER_CLIENT, KVR_PROBE, id, 0);
	asked = KVR_PROBE;
	says(code, retryable, detail0);
	asked = KVR_ROUTE;
}

static void a_refused_dispatch_stays_refused(void)
{
	begin("");
	peers_route(PEER_CLIENT, 1, 0, "x");
	peers_dispatch_ack(1, peers_dispatched(), 503);
	says(KVR_E_DISPATCH_FAILED, true, 503);
	ask_in_both_ways(1, KVR_E_DISPATCH_FAILED, true, 503);
	/* Its slot has gone. */
	pipeline_advance(KVR_WIRE_LINGER_S * 1000 + 1);
	CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
	ask_in_both_ways(1, KVR_E_DISPATCH_FAILED, true, 503);
	pipeline_stop();
}

static void a_finished_one_has_ended(void)
{
	uint64_t h;

	begin("");
	peers_route(PEER_CLIENT, 1, 0, "x");
	h = peers_dispatched();
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
		{"dispatch", a_refused_dispatch_stays_refused},
		{"finished", a_finished_one_has_ended},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("rejected_retransmits", tests);
}
