/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients that are gone, and frames that were lost with them. The resources of such a
 * request are freed when no client can be waiting for it any more, not only when its booking
 * reaches the age limit.
 */
#include "pair.h"
#include "peers.h"

#define WORKER 9u

static void begin_client_gone(void)
{
	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 1));
	pipeline_flush();
}

static void end_client_gone(void)
{
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static uint64_t read_gone_counter(enum pool_counter c)
{
	return kvr_stats_get(rt->pool[0].count, c);
}

/* An unacknowledged request whose client is silent from now on. */
static uint64_t send_unacked_request(uint64_t id)
{
	uint64_t h;

	peers_route(PEER_CLIENT, id, 0, "x");
	h = peers_take_dispatch();
	CU_ASSERT_NOT_EQUAL_FATAL(h, 0);
	pipeline_flush();
	return h;
}

/* Let @p s seconds pass. Each round checks a part of the slots. */
static void let_seconds_pass(uint32_t s)
{
	for (uint32_t i = 0; i < 5 * s; i++)
		pipeline_advance(200);
}

static void a_lost_dispatch_ends_with_its_client(void)
{
	uint64_t h[3];
	const struct out *o;

	begin_client_gone();
	for (uint32_t i = 0; i < 3; i++)
		h[i] = send_unacked_request(i + 1);
	peers_dispatch_ack(2, h[1], 0); /* its agent will notice that the client is gone */
	for (uint32_t s = 2; s < KVR_WIRE_LINGER_S; s += 2) {
		let_seconds_pass(2);
		peers_empty(PEER_CLIENT, KVR_PROBE, 3, h[2]); /* this client keeps waiting */
		CU_ASSERT_EQUAL(peers_take_accepted(), KVR_STATE_DISPATCHED);
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	}
	CU_ASSERT_EQUAL(read_gone_counter(PC_LIVE), 3);
	let_seconds_pass(5);
	o = pipeline_expect(PEER_AGENT, KVR_ABORT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.id, 1);
	CU_ASSERT_EQUAL(o->hdr.handle, h[0]);
	CU_ASSERT_EQUAL(((const struct kvr_wire_abort *)(&o->hdr + 1))->code, KVR_E_EXPIRED);
	peers_empty(PEER_AGENT, KVR_ABORT_ACK, 1, h[0]);
	CU_ASSERT_EQUAL(read_gone_counter(PC_CLIENT_GONE), 1);
	CU_ASSERT_EQUAL(read_gone_counter(PC_EXPIRED), 1);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 2);
	pipeline_flush();
	peers_empty(PEER_CLIENT, KVR_PROBE, 1,
		    h[0]); /* it was disconnected for longer than it waits */
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, KVR_E_EXPIRED);
	end_client_gone();
}

/* A flood of them leaves nothing behind. */
static void a_flood_leaves_nothing(void)
{
	const uint32_t n = 200;

	begin_client_gone();
	for (uint64_t id = 1; id <= n; id++)
		send_unacked_request(id);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, n);
	let_seconds_pass(KVR_WIRE_LINGER_S + 5);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 0);
	let_seconds_pass(KVR_WIRE_LINGER_S);
	CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
	end_client_gone();
}

/* The worker may have received it, and answers late: until then it counts. */
static void a_late_answer_of_a_slow_worker_counts(void)
{
	uint64_t h;

	begin_client_gone();
	h = send_unacked_request(1);
	let_seconds_pass(KVR_WIRE_LINGER_S - 1);
	peers_item(1, h, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	let_seconds_pass(10);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT_EQUAL(read_gone_counter(PC_CLIENT_GONE), 0);
	CU_ASSERT_EQUAL(read_gone_counter(PC_LIVE), 1);
	end_client_gone();
}

static uint64_t count_premature_acks(void)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < rt->n_lcores; i++)
		sum += kvr_stats_get(rt->lcore[i]->in, IN_PREMATURE_ACK);
	return sum;
}

/*
 * The client acknowledges a last item that the router has not received. If the agent got this
 * acknowledgement, it would not retransmit the item, and the booking would stay.
 */
static void only_what_has_passed_is_acknowledged(void)
{
	uint64_t h;

	begin_client_gone();
	h = send_unacked_request(1);
	peers_dispatch_ack(1, h, 0);
	pipeline_flush();
	peers_fin_ack(1, h);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	CU_ASSERT_EQUAL(count_premature_acks(), 1);
	CU_ASSERT_EQUAL(read_gone_counter(PC_LIVE), 1);
	peers_item(1, h, KVR_RESP_F_FIN); /* so it is retransmitted */
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(read_gone_counter(PC_LIVE), 0);
	peers_fin_ack(1, h);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	CU_ASSERT_EQUAL(count_premature_acks(), 1);
	CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
	end_client_gone();
}

/* Items passed for an earlier request of the slot do not count for this one. */
static void another_request_of_the_slot_starts_clean(void)
{
	uint64_t h[2];

	begin_client_gone();
	h[0] = send_unacked_request(1);
	peers_item(1, h[0], KVR_RESP_F_FIN);
	peers_fin_ack(1, h[0]);
	h[1] = send_unacked_request(2);
	CU_ASSERT_EQUAL_FATAL((uint32_t)h[0], (uint32_t)h[1]);
	pipeline_flush();
	peers_fin_ack(2, h[1]);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	CU_ASSERT_EQUAL(count_premature_acks(), 1);
	end_client_gone();
}

static struct pool *get_decode_pool(void)
{
	return &rt->pool[0];
}

/*
 * Legs that the router retransmits to a worker of a pair that sends heartbeats but acknowledges
 * nothing, in the first attempt of the main leg or, with @p moved, in the next: no client waits for
 * them either.
 */
static void check_unresponsive_decode_leg(bool bootstrap, bool moved)
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
	let_seconds_pass(4);
	pair_take();
	if (bootstrap)
		pair_ack(pair_leg(1, true), 0);
	else if (moved)
		pair_item(pair_leg(1, true), KVR_RESP_F_FIN, "result");
	r = pair_leg(1, false);
	CU_ASSERT_EQUAL(r->worker, moved ? PAIR_E : PAIR_D);
	CU_ASSERT_EQUAL(read_gone_counter(PC_UNACKNOWLEDGED), moved);
	CU_ASSERT_EQUAL(kvr_sched_counters(get_decode_pool()->sched)->booked_now, 1);
	for (uint32_t s = 0; s < KVR_WIRE_LINGER_S - 6; s += 2) {
		let_seconds_pass(2);
		pair_take(); /* drop its retransmissions */
	}
	CU_ASSERT_FALSE(r->aborted);
	for (uint32_t s = 0; s < KVR_WIRE_LINGER_S; s += 2) {
		let_seconds_pass(2);
		pair_take();
	}
	CU_ASSERT_TRUE(r->aborted);
	CU_ASSERT_EQUAL(r->abort_code, KVR_E_EXPIRED);
	CU_ASSERT_EQUAL(pair_answer[1].rejected, KVR_E_EXPIRED);
	CU_ASSERT_EQUAL(read_gone_counter(PC_CLIENT_GONE), 1);
	CU_ASSERT_EQUAL(kvr_sched_counters(get_decode_pool()->sched)->booked_now, 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(get_decode_pool()->pairs), 0);
	CU_ASSERT_EQUAL(get_decode_pool()->live.held, 0);
	for (uint32_t s = 0; s < KVR_WIRE_LINGER_S;
	     s += 2) { /* prefill legs: no client ends them */
		let_seconds_pass(2);
		pair_take();
	}
	pair_stop();
}

static void an_unresponsive_pair_ends_with_its_client(void)
{
	for (uint32_t i = 0; i < 4; i++)
		check_unresponsive_decode_leg((i & 1) != 0, (i & 2) != 0);
}

/* Its client still sends PROBE: the leg is retransmitted further. */
static void an_unresponsive_pair_is_kept_for_its_client(void)
{
	pair_start("dispatch_ms = 0\n", "");
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_P, 1, false) && pair_join(PAIR_D, 1, false));
	pair_route(1, NULL);
	pair_ack(pair_leg(1, true), 0);
	pair_item(pair_leg(1, true), KVR_RESP_F_FIN, "result");
	for (uint32_t s = 0; s < 2 * KVR_WIRE_LINGER_S; s += 2) {
		let_seconds_pass(2);
		pair_client(1, KVR_PROBE);
	}
	CU_ASSERT_FALSE(pair_leg(1, false)->aborted);
	CU_ASSERT(pair_leg(1, false)->copies > KVR_WIRE_LINGER_S);
	CU_ASSERT_EQUAL(read_gone_counter(PC_CLIENT_GONE), 0);
	pair_finish();
	CU_ASSERT_TRUE(pair_answer[1].fin);
	pair_stop();
}

/* A message of several frames: the router keeps and retransmits it. */
static void a_kept_message_ends_with_its_client(void)
{
	const uint32_t was = pipeline_body_len;

	begin_client_gone();
	pipeline_body_len = 4000;
	pipeline_route(1, 100, 10, 0, NULL);
	pipeline_body_len = was;
	CU_ASSERT_NOT_EQUAL(peers_take_dispatch(), 0);
	pipeline_flush();
	for (uint32_t s = 0; s < KVR_WIRE_LINGER_S + 5; s += 2) {
		let_seconds_pass(2);
		if (s < KVR_WIRE_LINGER_S - 4)
			CU_ASSERT_EQUAL(read_gone_counter(PC_LIVE), 1);
	}
	CU_ASSERT_EQUAL(read_gone_counter(PC_CLIENT_GONE), 1);
	CU_ASSERT_EQUAL(rt->pool[0].live.held, 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[0].jobs), 0);
	end_client_gone();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_lost_dispatch_ends_with_its_client),
			       KVR_CASE(a_flood_leaves_nothing),
			       KVR_CASE(a_late_answer_of_a_slow_worker_counts),
			       KVR_CASE(only_what_has_passed_is_acknowledged),
			       KVR_CASE(another_request_of_the_slot_starts_clean),
			       KVR_CASE(an_unresponsive_pair_ends_with_its_client),
			       KVR_CASE(an_unresponsive_pair_is_kept_for_its_client),
			       KVR_CASE(a_kept_message_ends_with_its_client),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("client_gone", tests);
}
