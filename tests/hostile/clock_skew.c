/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The clock of the ingress lcore is ahead of the scheduler's; a waiting request is not old
 * because of that.
 */
#include "peers.h"

#include "sched/request.h"

static void a_clock_ahead_does_not_count_as_silence(void)
{
	struct request *r;

	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL "router_queue_threshold = 0.5\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 1));
	pipeline_route(1, 7, 200, 0, NULL);
	peers_route(PEER_CLIENT, 2, 0, "waits");
	r = request_of(kvr_flight_lookup(rt->pool[0].requests, 77, 2));
	CU_ASSERT_EQUAL_FATAL(leg_state(r, KVR_LEG_MAIN), KVR_RQS_QUEUED);
	/* as written by a clock that is 1 ms ahead */
	r->client_seen_ns = rt->lcore[0]->quiet.now_ns + 1000000;
	rt->last_tick_ns = 0;
	for (uint32_t i = 0; i < 20; i++) { /* each tick checks a sixteenth of the slots */
		r->client_seen_ns = rt->lcore[0]->quiet.now_ns + 1000000;
		pipeline_turn();
	}
	CU_ASSERT_EQUAL(leg_state(r, KVR_LEG_MAIN), KVR_RQS_QUEUED);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_CLIENT_GONE), 0);
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_clock_ahead_does_not_count_as_silence),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("clock_skew", tests);
}
