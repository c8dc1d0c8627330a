/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The next hop to a worker or a client changes (a gateway fails over, a machine or card is
 * replaced) while its address stays. Only frames of that peer change it.
 */
#include "peers.h"

#include "sched/request.h"

#define WORKER 9u

static void send_worker_heartbeat(uint32_t from, uint32_t epoch)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 4, .epoch = epoch};
	uint8_t buf[128];

	pipeline_send(from, buf, (size_t)kvr_put_heartbeat(buf, sizeof(buf), &ids, NULL, 0, 0, 0));
	pipeline_turn();
	pipeline_advance(20); /* control checks every 10 ms */
}

/* Last byte of the destination MAC of a frame of @p kind to @p to; -1: no frame. */
static int take_hop(uint32_t to, uint8_t kind)
{
	const struct out *o = pipeline_expect(to, kind);

	return o != NULL ? o->mac[5] : -1;
}

static bool join_epoch(uint32_t epoch)
{
	return pipeline_hello_as(&(const struct pipeline_worker){
		.id = WORKER, .epoch = epoch, .pool = "a", .ranks = 1, .from = PEER_AGENT});
}

static uint64_t start_next_hop(void)
{
	uint64_t handle;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(join_epoch(5));
	peers_route(PEER_CLIENT, 1, 0, "body");
	handle = peers_take_dispatch();
	CU_ASSERT_NOT_EQUAL_FATAL(handle, 0);
	peers_dispatch_ack(1, handle, 0);
	pipeline_flush();
	return handle;
}

static void stop_next_hop(void)
{
	pipeline_mac = 2;
	pipeline_flush();
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

/* The next hop of a new request. */
static int route_and_take_hop(uint64_t id)
{
	int mac;

	pipeline_flush();
	peers_route(PEER_CLIENT, id, 0, "body");
	mac = take_hop(PEER_AGENT, KVR_DISPATCH);
	return mac;
}

static void a_worker_is_followed(void)
{
	const uint64_t handle = start_next_hop();

	peers_item(1, handle, 0);
	pipeline_mac = 5;
	send_worker_heartbeat(PEER_AGENT, 5);
	CU_ASSERT_EQUAL(take_hop(PEER_AGENT, KVR_HEARTBEAT_ACK), 5);
	CU_ASSERT_EQUAL(route_and_take_hop(2), 5);
	/* A running request: its acknowledgements and its end. */
	peers_fin_ack(1, handle); /* not of the last item: ignored */
	CU_ASSERT_EQUAL(take_hop(PEER_AGENT, KVR_RESPONSE_ACK), -1);
	peers_item(1, handle, KVR_RESP_F_FIN);
	peers_fin_ack(1, handle);
	CU_ASSERT_EQUAL(take_hop(PEER_AGENT, KVR_RESPONSE_ACK), 5);
	/* And back. */
	pipeline_mac = 2;
	send_worker_heartbeat(PEER_AGENT, 5);
	CU_ASSERT_EQUAL(route_and_take_hop(3), 2);
	stop_next_hop();
}

static void a_worker_is_followed_over_ipv6(void)
{
	pipeline_ipv6 = true;
	a_worker_is_followed();
	pipeline_ipv6 = false;
}

static void an_abort_follows_its_worker(void)
{
	const uint64_t handle = start_next_hop();

	pipeline_mac = 5;
	send_worker_heartbeat(PEER_AGENT, 5);
	pipeline_flush();
	peers_empty(PEER_CLIENT, KVR_CANCEL, 1, handle);
	CU_ASSERT_EQUAL(take_hop(PEER_AGENT, KVR_ABORT), 5);
	stop_next_hop();
}

/* HELLO of the same incarnation: its requests follow. */
static void a_hello_moves_a_worker(void)
{
	const uint64_t handle = start_next_hop();

	pipeline_mac = 5;
	CU_ASSERT_TRUE(join_epoch(5));
	peers_empty(PEER_CLIENT, KVR_CANCEL, 1, handle);
	CU_ASSERT_EQUAL(take_hop(PEER_AGENT, KVR_ABORT), 5);
	CU_ASSERT_EQUAL(route_and_take_hop(2), 5);
	stop_next_hop();
}

static void frames_of_others_do_not_move_a_worker(void)
{
	start_next_hop();
	pipeline_mac = 7;
	send_worker_heartbeat(PEER_AGENT, 4); /* another epoch */
	send_worker_heartbeat(PEER_AGENT, 6);
	send_worker_heartbeat(PEER_OTHER, 5); /* another port */
	pipeline_host = 3;		      /* another address */
	send_worker_heartbeat(PEER_AGENT, 5);
	pipeline_host = 2;
	CU_ASSERT_EQUAL(route_and_take_hop(2), 2);
	/* Frames of another program at the right address: a client beside the agent. */
	peers_empty(PEER_AGENT, KVR_PROBE, 99, 0);
	pipeline_advance(20);
	CU_ASSERT_EQUAL(route_and_take_hop(3), 2);
	stop_next_hop();
}

/* Thousands of changes cost one view per tick; here each turn of 32 frames is a tick. */
static void a_forger_causes_one_view_per_tick(void)
{
	uint64_t before;

	start_next_hop();
	before = rt->lcore[0]->view->number;
	for (uint32_t i = 0; i < 2000; i++) {
		const struct kvr_wire_ids ids = {.source = WORKER, .id = 4, .epoch = 5};
		uint8_t buf[128];

		pipeline_mac = (uint8_t)(10 + i % 7);
		pipeline_send(PEER_AGENT, buf,
			      (size_t)kvr_put_heartbeat(buf, sizeof(buf), &ids, NULL, 0, 0, 0));
	}
	pipeline_turn();
	pipeline_advance(10);
	pipeline_flush();
	CU_ASSERT_TRUE(rt->lcore[0]->view->number > before);
	CU_ASSERT_TRUE(rt->lcore[0]->view->number - before <= 100);
	/* The last frame of the worker decides. */
	pipeline_mac = 2;
	send_worker_heartbeat(PEER_AGENT, 5);
	CU_ASSERT_EQUAL(route_and_take_hop(2), 2);
	stop_next_hop();
}

/* ---- clients ---- */

static void send_item_and_take_hop(uint64_t handle, int mac)
{
	pipeline_mac = 2; /* the agent's */
	pipeline_flush();
	peers_item(1, handle, 0);
	CU_ASSERT_EQUAL(take_hop(PEER_CLIENT, KVR_RESPONSE), mac);
}

static void check_client_is_followed(uint8_t kind)
{
	const uint64_t handle = start_next_hop();

	send_item_and_take_hop(handle, 2);
	pipeline_mac = 6;
	if (kind == KVR_ROUTE)
		peers_route(PEER_CLIENT, 1, KVR_REQ_F_RESEND, "body");
	else if (kind == KVR_RESPONSE_ACK)
		peers_fin_ack(1, handle);
	else
		peers_empty(PEER_CLIENT, kind, 1, handle);
	pipeline_turn();
	send_item_and_take_hop(handle, 6);
	/* And back, without a handle. */
	peers_empty(PEER_CLIENT, KVR_PROBE, 1, 0);
	CU_ASSERT_EQUAL(take_hop(PEER_CLIENT, KVR_ACCEPTED), 2);
	send_item_and_take_hop(handle, 2);
	stop_next_hop();
}

static void a_client_is_followed(void)
{
	check_client_is_followed(KVR_PROBE);
	check_client_is_followed(KVR_ROUTE);
	check_client_is_followed(KVR_RESPONSE_ACK);
}

static void the_outcome_follows_a_client(void)
{
	start_next_hop();
	pipeline_mac = 6;
	peers_empty(PEER_CLIENT, KVR_PROBE, 1, 0);
	pipeline_mac = 2;
	pipeline_flush();
	{
		const struct kvr_wire_ids ids = {.source = WORKER, .id = 3, .epoch = 5};
		uint8_t buf[64];

		pipeline_send(PEER_AGENT, buf,
			      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
		pipeline_turn();
	}
	CU_ASSERT_EQUAL(take_hop(PEER_CLIENT, KVR_REJECTED), 6); /* WorkerLost */
	stop_next_hop();
}

/* A request in the queue, without a worker. */
static void a_waiting_client_is_followed(void)
{
	pipeline_start_with("[pool a]\nid = 5\nrouter_queue_threshold = 0\n" PIPELINE_POOL);
	CU_ASSERT_TRUE_FATAL(join_epoch(5));
	peers_route(PEER_CLIENT, 1, 0, "body");
	CU_ASSERT_NOT_EQUAL_FATAL(peers_take_dispatch(), 0);
	peers_route(PEER_CLIENT, 2, 0, "body");
	CU_ASSERT_EQUAL_FATAL(peers_take_dispatch(), 0);
	pipeline_mac = 6;
	peers_empty(PEER_CLIENT, KVR_PROBE, 2, 0);
	pipeline_mac = 2;
	pipeline_flush();
	peers_empty(PEER_CLIENT, KVR_CANCEL, 1, 0);
	{
		const struct out *o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);

		CU_ASSERT_PTR_NOT_NULL_FATAL(o);
		CU_ASSERT_EQUAL(o->hdr.id, 2);
		CU_ASSERT_EQUAL(o->mac[5], 6);
	}
	stop_next_hop();
}

static void frames_of_others_do_not_move_a_client(void)
{
	const uint64_t handle = start_next_hop();

	pipeline_mac = 7;
	peers_empty(PEER_OTHER, KVR_PROBE, 1, 0);
	peers_route(PEER_OTHER, 1, KVR_REQ_F_RESEND, "body");
	pipeline_host = 3;
	peers_empty(PEER_CLIENT, KVR_PROBE, 1, handle);
	peers_fin_ack(1, handle);
	pipeline_host = 2;
	peers_fin_ack(2, handle); /* another request */
	send_item_and_take_hop(handle, 2);
	stop_next_hop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_worker_is_followed),
			       KVR_CASE(a_worker_is_followed_over_ipv6),
			       KVR_CASE(an_abort_follows_its_worker),
			       KVR_CASE(a_hello_moves_a_worker),
			       KVR_CASE(frames_of_others_do_not_move_a_worker),
			       KVR_CASE(a_forger_causes_one_view_per_tick),
			       KVR_CASE(a_client_is_followed),
			       KVR_CASE(the_outcome_follows_a_client),
			       KVR_CASE(a_waiting_client_is_followed),
			       KVR_CASE(frames_of_others_do_not_move_a_client),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("next_hop", tests);
}
