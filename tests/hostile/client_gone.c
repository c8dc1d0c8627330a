/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Row 41: clients that are gone, and frames that were lost for good with them. What such a request
 * holds comes back when no client can be waiting for it any more, not when its booking is as old as
 * it may get.
 */
#include "pair.h"
#include "peers.h"

#define WORKER 9u

static void begin(void)
{
	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 1));
	pipeline_flush();
}

static void end(void)
{
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static uint64_t counted(enum pool_counter c)
{
	return kvr_stats_get(rt->pool[0].count, c);
}

/* One that nobody has acknowledged, with a client that is silent from now on. */
static uint64_t sent(uint64_t id)
{
	uint64_t h;

	peers_route(PEER_CLIENT, id, 0, "x");
	h = peers_dispatched();
	CU_ASSERT_NOT_EQUAL_FATAL(h, 0);
	pipeline_flush();
	return h;
}

/* Time passes, @p s seconds of it; the slots are looked at in rounds. */
static void wait_s(uint32_t s)
{
	for (uint32_t i = 0; i < 5 * s; i++)
		pipeline_advance(200);
}

static void a_lost_dispatch_ends_with_its_client(void)
{
	uint64_t h[3];
	const struct out *o;

	begin();
	for (uint32_t i = 0; i < 3; i++)
		h[i] = sent(i + 1);
	peers_dispatch_ack(2, h[1], 0); /* its agent will find out that its client is gone */
	for (uint32_t s = 2; s < KVR_WIRE_LINGER_S; s += 2) {
		wait_s(2);
		peers_empty(PEER_CLIENT, KVR_PROBE, 3, h[2]); /* this one waits on */
		CU_ASSERT_EQUAL(peers_accepted(), KVR_STATE_DISPATCHED);
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	}
	CU_ASSERT_EQUAL(counted(PC_LIVE), 3);
	wait_s(5);
	o = pipeline_expect(PEER_AGENT, KVR_ABORT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.id, 1);
	CU_ASSERT_EQUAL(o->hdr.handle, h[0]);
	CU_ASSERT_EQUAL(((const struct kvr_wire_abort *)(&o->hdr + 1))->code, KVR_E_EXPIRED);
	peers_empty(PEER_AGENT, KVR_ABORT_ACK, 1, h[0]);
	CU_ASSERT_EQUAL(counted(PC_CLIENT_GONE), 1);
	CU_ASSERT_EQUAL(counted(PC_EXPIRED), 1);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 2);
	pipeline_flush();
	peers_empty(PEER_CLIENT, KVR_PROBE, 1, h[0]); /* it was cut off for longer than it waits */
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, KVR_E_EXPIRED);
	end();
}

/* A flood of them leaves nothing behind. */
static void a_flood_leaves_nothing(void)
{
	const uint32_t n = 200;

	begin();
	for (uint64_t id = 1; id <= n; id++)
		sent(id);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, n);
	wait_s(KVR_WIRE_LINGER_S + 5);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 0);
	wait_s(KVR_WIRE_LINGER_S);
	CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
	end();
}

/* The worker may have got it all the same, and answers at last: until then it counts. */
static void a_slow_worker_is_heard(void)
{
	uint64_t h;

	begin();
	h = sent(1);
	wait_s(KVR_WIRE_LINGER_S - 1);
	peers_item(1, h, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	wait_s(10);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT_EQUAL(counted(PC_CLIENT_GONE), 0);
	CU_ASSERT_EQUAL(counted(PC_LIVE), 1);
	end();
}

static uint64_t early(void)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < rt->n_lcores; i++)
		sum += kvr_stats_get(rt->lcore[i]->in, IN_PREMATURE_ACK);
	return sum;
}

/* The last item has not come here, and its client says that it has it: an agent that heard this
 * would not repeat the item, and the booking would stay. */
static void only_what_has_passed_is_acknowledged(void)
{
	uint64_t h;

	begin();
	h = sent(1);
	peers_dispatch_ack(1, h, 0);
	pipeline_flush();
	peers_fin_ack(1, h);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	CU_ASSERT_EQUAL(early(), 1);
	CU_ASSERT_EQUAL(counted(PC_LIVE), 1);
	peers_item(1, h, KVR_RESP_F_FIN); /* so it comes again */
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(counted(PC_LIVE), 0);
	peers_fin_ack(1, h);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	CU_ASSERT_EQUAL(early(), 1);
	CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
	end();
}

/* What has passed for an earlier request of the slot says nothing about this one. */
static void another_request_of_the_slot_begins_anew(void)
{
	uint64_t h[2];

	begin();
	h[0] = sent(1);
	peers_item(1, h[0], KVR_RESP_F_FIN);
	peers_fin_ack(1, h[0]);
	h[1] = sent(2);
	CU_ASSERT_EQUAL_FATAL((uint32_t)h[0], (uint32_t)h[1]);
	pipeline_flush();
	peers_fin_ack(2, h[1]);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	CU_ASSERT_EQUAL(early(), 1);
	end();
}

static struct pool *decode_pool(void)
{
	return &rt->pool[0];
}

/* What the router repeats by itself, to a worker of a pair that reports and acknowledges nothing,
 * in the main leg's first try or, @p moved, in the one after it: nobody waits for that either. */
static void a_mute_decode_leg_ends_with_its_client(bool bootstrap, bool moved)
{
	const struct pair_attempt *r;

	pair_start(moved ? "dispatch_ms = 2000\n" : "reroutes = 0\n", "");
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_P, 1, bootstrap) && pair_join(PAIR_D, 1, false));
	pair_route(1, NULL);
	pair_ack(pair_leg(1, true), 0);
	if (!bootstrap)
		pair_item(pair_leg(1, true), KVR_RESP_F_FIN, "result");
	CU_ASSERT_EQUAL_FATAL(pair_leg(1, false)->worker, PAIR_D);
	if (moved)
		CU_ASSERT_TRUE_FATAL(pair_join(PAIR_E, 1, false));
	wait_s(4);
	pair_take();
	if (bootstrap)
		pair_ack(pair_leg(1, true), 0);
	else if (moved)
		pair_item(pair_leg(1, true), KVR_RESP_F_FIN, "result");
	r = pair_leg(1, false);
	CU_ASSERT_EQUAL(r->worker, moved ? PAIR_E : PAIR_D);
	CU_ASSERT_EQUAL(counted(PC_UNACKNOWLEDGED), moved);
	CU_ASSERT_EQUAL(kvr_sched_counters(decode_pool()->sched)->booked_now, 1);
	for (uint32_t s = 0; s < KVR_WIRE_LINGER_S - 6; s += 2) {
		wait_s(2);
		pair_take(); /* its repetitions */
	}
	CU_ASSERT_FALSE(r->aborted);
	for (uint32_t s = 0; s < KVR_WIRE_LINGER_S; s += 2) {
		wait_s(2);
		pair_take();
	}
	CU_ASSERT_TRUE(r->aborted);
	CU_ASSERT_EQUAL(r->abort_code, KVR_E_EXPIRED);
	CU_ASSERT_EQUAL(pair_answer[1].rejected, KVR_E_EXPIRED);
	CU_ASSERT_EQUAL(counted(PC_CLIENT_GONE), 1);
	CU_ASSERT_EQUAL(kvr_sched_counters(decode_pool()->sched)->booked_now, 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(decode_pool()->pairs), 0);
	CU_ASSERT_EQUAL(decode_pool()->live.held, 0);
	for (uint32_t s = 0; s < KVR_WIRE_LINGER_S; s += 2) { /* prefill legs: nobody ends them */
		wait_s(2);
		pair_take();
	}
	pair_stop();
}

static void nobody_waits_for_a_mute_pair(void)
{
	for (uint32_t i = 0; i < 4; i++)
		a_mute_decode_leg_ends_with_its_client((i & 1) != 0, (i & 2) != 0);
}

/* Its client still asks: then the leg is repeated on. */
static void a_mute_pair_is_waited_for(void)
{
	pair_start("dispatch_ms = 0\n", "");
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_P, 1, false) && pair_join(PAIR_D, 1, false));
	pair_route(1, NULL);
	pair_ack(pair_leg(1, true), 0);
	pair_item(pair_leg(1, true), KVR_RESP_F_FIN, "result");
	for (uint32_t s = 0; s < 2 * KVR_WIRE_LINGER_S; s += 2) {
		wait_s(2);
		pair_client(1, KVR_PROBE);
	}
	CU_ASSERT_FALSE(pair_leg(1, false)->aborted);
	CU_ASSERT(pair_leg(1, false)->copies > KVR_WIRE_LINGER_S);
	CU_ASSERT_EQUAL(counted(PC_CLIENT_GONE), 0);
	pair_finish();
	CU_ASSERT_TRUE(pair_answer[1].fin);
	pair_stop();
}

/* The message that its client has sent in several frames: the router repeats it, and keeps it. */
static void a_kept_message_ends_with_its_client(void)
{
	const uint32_t was = pipeline_body_len;

	begin();
	pipeline_body_len = 4000;
	pipeline_route(1, 100, 10, 0, NULL);
	pipeline_body_len = was;
	CU_ASSERT_NOT_EQUAL(peers_dispatched(), 0);
	pipeline_flush();
	for (uint32_t s = 0; s < KVR_WIRE_LINGER_S + 5; s += 2) {
		wait_s(2);
		if (s < KVR_WIRE_LINGER_S - 4)
			CU_ASSERT_EQUAL(counted(PC_LIVE), 1);
	}
	CU_ASSERT_EQUAL(counted(PC_CLIENT_GONE), 1);
	CU_ASSERT_EQUAL(rt->pool[0].live.held, 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[0].jobs), 0);
	end();
}

int main(void)
{
	CU_TestInfo tests[] = {{"dispatch lost", a_lost_dispatch_ends_with_its_client},
			       {"flood", a_flood_leaves_nothing},
			       {"slow", a_slow_worker_is_heard},
			       {"item lost", only_what_has_passed_is_acknowledged},
			       {"slot", another_request_of_the_slot_begins_anew},
			       {"mute pair", nobody_waits_for_a_mute_pair},
			       {"mute pair, waited for", a_mute_pair_is_waited_for},
			       {"kept", a_kept_message_ends_with_its_client},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("client_gone", tests);
}
