/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Row 42: the next hop to a worker or a client is replaced (a gateway fails over, a machine or a
 * card is exchanged), its address stays. Only who may speak for it can say so.
 */
#include "peers.h"

#include "sched/request.h"

#define WORKER 9u

static void beat(uint32_t from, uint32_t epoch)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 4, .epoch = epoch};
	uint8_t buf[128];

	pipeline_send(from, buf, (size_t)kvr_put_heartbeat(buf, sizeof(buf), &ids, NULL, 0, 0, 0));
	pipeline_turn();
	pipeline_advance(20); /* control looks every 10 ms */
}

/* Last byte of the MAC that a frame of @p kind to @p to went to; -1: none did. */
static int hop(uint32_t to, uint8_t kind)
{
	const struct out *o = pipeline_expect(to, kind);

	return o != NULL ? o->mac[5] : -1;
}

static bool hello(uint32_t epoch)
{
	return pipeline_hello_as(&(const struct pipeline_worker){
		.id = WORKER, .epoch = epoch, .pool = "a", .ranks = 1, .from = PEER_AGENT});
}

static uint64_t start(void)
{
	uint64_t handle;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(hello(5));
	peers_route(PEER_CLIENT, 1, 0, "body");
	handle = peers_dispatched();
	CU_ASSERT_NOT_EQUAL_FATAL(handle, 0);
	peers_dispatch_ack(1, handle, 0);
	pipeline_flush();
	return handle;
}

static void stop(void)
{
	pipeline_mac = 2;
	pipeline_flush();
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

/* Where a new request goes. */
static int dispatched_to(uint64_t id)
{
	int mac;

	pipeline_flush();
	peers_route(PEER_CLIENT, id, 0, "body");
	mac = hop(PEER_AGENT, KVR_DISPATCH);
	return mac;
}

static void a_worker_is_followed(void)
{
	const uint64_t handle = start();

	peers_item(1, handle, 0);
	pipeline_mac = 5;
	beat(PEER_AGENT, 5);
	CU_ASSERT_EQUAL(hop(PEER_AGENT, KVR_HEARTBEAT_ACK), 5);
	CU_ASSERT_EQUAL(dispatched_to(2), 5);
	/* A request that ran already: its acknowledgements, and its end. */
	peers_fin_ack(1, handle); /* not of the last item: ignored */
	CU_ASSERT_EQUAL(hop(PEER_AGENT, KVR_RESPONSE_ACK), -1);
	peers_item(1, handle, KVR_RESP_F_FIN);
	peers_fin_ack(1, handle);
	CU_ASSERT_EQUAL(hop(PEER_AGENT, KVR_RESPONSE_ACK), 5);
	/* And back. */
	pipeline_mac = 2;
	beat(PEER_AGENT, 5);
	CU_ASSERT_EQUAL(dispatched_to(3), 2);
	stop();
}

static void a_worker_is_followed_over_ipv6(void)
{
	pipeline_ipv6 = true;
	a_worker_is_followed();
	pipeline_ipv6 = false;
}

static void an_abort_follows_its_worker(void)
{
	const uint64_t handle = start();

	pipeline_mac = 5;
	beat(PEER_AGENT, 5);
	pipeline_flush();
	peers_empty(PEER_CLIENT, KVR_CANCEL, 1, handle);
	CU_ASSERT_EQUAL(hop(PEER_AGENT, KVR_ABORT), 5);
	stop();
}

/* HELLO of the same life: its requests come along. */
static void a_hello_says_so_too(void)
{
	const uint64_t handle = start();

	pipeline_mac = 5;
	CU_ASSERT_TRUE(hello(5));
	peers_empty(PEER_CLIENT, KVR_CANCEL, 1, handle);
	CU_ASSERT_EQUAL(hop(PEER_AGENT, KVR_ABORT), 5);
	CU_ASSERT_EQUAL(dispatched_to(2), 5);
	stop();
}

static void others_do_not_move_a_worker(void)
{
	start();
	pipeline_mac = 7;
	beat(PEER_AGENT, 4); /* another life */
	beat(PEER_AGENT, 6);
	beat(PEER_OTHER, 5); /* another port */
	pipeline_host = 3;   /* another address */
	beat(PEER_AGENT, 5);
	pipeline_host = 2;
	CU_ASSERT_EQUAL(dispatched_to(2), 2);
	/* Somebody else's frames, from the right address: a client beside the agent. */
	peers_empty(PEER_AGENT, KVR_PROBE, 99, 0);
	pipeline_advance(20);
	CU_ASSERT_EQUAL(dispatched_to(3), 2);
	stop();
}

/* Thousands of changes cost a view in a tick, which is every turn of 32 frames here. */
static void a_liar_makes_one_view_in_a_tick(void)
{
	uint64_t before;

	start();
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
	/* The worker says the last word. */
	pipeline_mac = 2;
	beat(PEER_AGENT, 5);
	CU_ASSERT_EQUAL(dispatched_to(2), 2);
	stop();
}

/* ---- clients ---- */

static void item_goes_to(uint64_t handle, int mac)
{
	pipeline_mac = 2; /* the agent's */
	pipeline_flush();
	peers_item(1, handle, 0);
	CU_ASSERT_EQUAL(hop(PEER_CLIENT, KVR_RESPONSE), mac);
}

static void a_client_is_followed_by(uint8_t kind)
{
	const uint64_t handle = start();

	item_goes_to(handle, 2);
	pipeline_mac = 6;
	if (kind == KVR_ROUTE)
		peers_route(PEER_CLIENT, 1, KVR_REQ_F_RESEND, "body");
	else if (kind == KVR_RESPONSE_ACK)
		peers_fin_ack(1, handle);
	else
		peers_empty(PEER_CLIENT, kind, 1, handle);
	pipeline_turn();
	item_goes_to(handle, 6);
	/* And back, without a handle. */
	peers_empty(PEER_CLIENT, KVR_PROBE, 1, 0);
	CU_ASSERT_EQUAL(hop(PEER_CLIENT, KVR_ACCEPTED), 2);
	item_goes_to(handle, 2);
	stop();
}

static void a_client_is_followed(void)
{
	a_client_is_followed_by(KVR_PROBE);
	a_client_is_followed_by(KVR_ROUTE);
	a_client_is_followed_by(KVR_RESPONSE_ACK);
}

static void the_last_word_follows_a_client(void)
{
	start();
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
	CU_ASSERT_EQUAL(hop(PEER_CLIENT, KVR_REJECTED), 6); /* WorkerLost */
	stop();
}

/* A request that waits in the queue, and has no worker. */
static void a_waiting_client_is_followed(void)
{
	pipeline_start_with("[pool a]\nid = 5\nrouter_queue_threshold = 0\n" PIPELINE_POOL);
	CU_ASSERT_TRUE_FATAL(hello(5));
	peers_route(PEER_CLIENT, 1, 0, "body");
	CU_ASSERT_NOT_EQUAL_FATAL(peers_dispatched(), 0);
	peers_route(PEER_CLIENT, 2, 0, "body");
	CU_ASSERT_EQUAL_FATAL(peers_dispatched(), 0);
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
	stop();
}

static void others_do_not_move_a_client(void)
{
	const uint64_t handle = start();

	pipeline_mac = 7;
	peers_empty(PEER_OTHER, KVR_PROBE, 1, 0);
	peers_route(PEER_OTHER, 1, KVR_REQ_F_RESEND, "body");
	pipeline_host = 3;
	peers_empty(PEER_CLIENT, KVR_PROBE, 1, handle);
	peers_fin_ack(1, handle);
	pipeline_host = 2;
	peers_fin_ack(2, handle); /* another request */
	item_goes_to(handle, 2);
	stop();
}

int main(void)
{
	CU_TestInfo tests[] = {{"worker", a_worker_is_followed},
			       {"worker, IPv6", a_worker_is_followed_over_ipv6},
			       {"abort", an_abort_follows_its_worker},
			       {"hello", a_hello_says_so_too},
			       {"not the worker", others_do_not_move_a_worker},
			       {"liar", a_liar_makes_one_view_in_a_tick},
			       {"client", a_client_is_followed},
			       {"last word", the_last_word_follows_a_client},
			       {"waiting", a_waiting_client_is_followed},
			       {"not the client", others_do_not_move_a_client},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("next_hop", tests);
}
