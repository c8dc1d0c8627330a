/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The effect of a stop on requests that no worker has yet: in the queue, in late binding,
 * in the middle of a long prompt, in a ring, while their session is opened, behind the other leg.
 * Each gets Shutdown once, and again when its client asks. No request is accepted afterwards,
 * whichever other one ends.
 */
#include "pair.h"
#include "peers.h"
#include "threads.h"

#include "control/thread.h"
#include "kvr_hints.h"

#define WAITING 40u

static uint32_t rejections[65536]; /* number of rejections by id */

/* Count the rejections so far. */
static void take_rejections(void)
{
	const struct out *o;

	while ((o = pipeline_next(PEER_CLIENT)) != NULL) {
		const struct kvr_wire_rejected *r = (const void *)(&o->hdr + 1);

		if (o->hdr.kind != KVR_REJECTED)
			continue;
		CU_ASSERT_EQUAL(r->code, KVR_E_SHUTDOWN);
		CU_ASSERT_EQUAL(r->retryable, 1); /* by another router */
		CU_ASSERT_EQUAL(r->kind, KVR_ROUTE);
		rejections[(uint16_t)o->hdr.id]++;
	}
	pipeline_flush();
}

static void begin_stop_waiting(const char *keys)
{
	char text[512];

	memset(rejections, 0, sizeof(rejections));
	snprintf(text, sizeof(text), "[pool a]\nid = 5\n" PIPELINE_POOL "%s", keys);
	pipeline_start_with(text);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 1));
	pipeline_flush();
}

/* Stop accepting; rejections are sent. @return the number of requests counted. */
static uint32_t stop_accepting(void)
{
	const uint32_t n = stop_close_doors(rt);

	pipeline_turn();
	return n;
}

static uint32_t cut_off_requests(void)
{
	const uint32_t n = stop_cut_off(rt);

	pipeline_turn();
	return n;
}

static uint32_t count_queued(void)
{
	return (uint32_t)kvr_sched_counters(pipeline_get_pool()->sched)->waiting_now;
}

/* Expect that ids from @p from to @p to were rejected once, or @p times. */
static void expect_rejections(uint64_t from, uint64_t to, uint32_t times)
{
	uint32_t wrong = 0;

	take_rejections();
	for (uint64_t id = from; id <= to; id++)
		wrong += rejections[(uint16_t)id] != times;
	CU_ASSERT_EQUAL(wrong, 0);
}

/* Nothing is left except outcomes that clients may ask for again. */
static void end_stop_waiting(void)
{
	CU_ASSERT_EQUAL(count_queued(), 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(pipeline_get_pool()->sched)->booked_now, 0);
	CU_ASSERT_EQUAL(pipeline_get_pool()->live.held, 0);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_advance(KVR_FLIGHT_LINGER_NS / 1000000 + 1);
	for (uint32_t i = 0; i < 100 && kvr_flight_count(pipeline_get_pool()->requests) != 0; i++)
		pipeline_turn();
	CU_ASSERT_EQUAL(kvr_flight_count(pipeline_get_pool()->requests), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(pipeline_get_pool()->jobs), 0);
	pipeline_flush();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	pipeline_stop();
}

/*
 * The first is at the worker, the others wait: expect their rejection and the outcome of the first.
 */
static void check_queue_is_rejected(const char *keys)
{
	uint64_t h;

	begin_stop_waiting(keys);
	for (uint64_t id = 1; id <= 1 + WAITING; id++)
		pipeline_route(id, 1000 * id, 20, 0, NULL);
	h = peers_take_dispatch();
	CU_ASSERT_NOT_EQUAL_FATAL(h, 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	CU_ASSERT_EQUAL_FATAL(count_queued(), WAITING);
	pipeline_flush();
	CU_ASSERT_EQUAL(stop_accepting(), WAITING);
	expect_rejections(2, 1 + WAITING, 1);
	/* Clients ask again, by either frame. */
	for (uint64_t id = 2; id <= 1 + WAITING; id++)
		peers_route_send(PEER_CLIENT, id, KVR_REQ_F_RESEND, "body");
	pipeline_turn();
	expect_rejections(2, 1 + WAITING, 2);
	CU_ASSERT_EQUAL(rejections[1], 0);
	/* The worker is free again and gets no further request. */
	peers_dispatch_ack(1, h, 0);
	peers_item(1, h, KVR_RESP_F_FIN);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	pipeline_advance(15000); /* longer than late binding holds any request */
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	CU_ASSERT_EQUAL(kvr_stats_get(pipeline_get_pool()->count, PC_ADMITTED), 0);
	CU_ASSERT_EQUAL(kvr_stats_get(pipeline_get_pool()->count, PC_ADMISSION_REJECTED), WAITING);
	CU_ASSERT_EQUAL(cut_off_requests(), 0);
	end_stop_waiting();
}

static void waiting_requests_are_rejected(void)
{
	check_queue_is_rejected("router_queue_threshold = 0\n");
	check_queue_is_rejected(
		"router_mode = ttft\nttft_late_binding = on\nttft_late_tokens = 4\n");
}

/* Requests arrive while the router stops accepting. */
static void arriving_requests_are_rejected(void)
{
	const uint64_t last = 60;
	uint32_t dispatched = 0, known = 0;
	const struct out *o;

	begin_stop_waiting("router_queue_threshold = 0\n");
	for (uint32_t burst = 0; burst < 3; burst++) {
		pipeline_together = true;
		for (uint64_t id = 1 + burst * 20; id <= (burst + 1) * 20; id++)
			pipeline_route(id, 1000 * id, 150, 0, NULL);
		pipeline_together = false;
		if (burst == 0 && threads_used() == NULL)
			pipeline_step(); /* some were accepted, one is in the middle of its prompt
					  */
		if (burst == 0)
			threads_run();
		if (burst == 1)
			stop_close_doors(rt);
	}
	pipeline_turn();
	while ((o = pipeline_next(0)) != NULL) {
		const struct kvr_wire_rejected *r = (const void *)(&o->hdr + 1);

		if (o->hdr.kind == KVR_DISPATCH)
			dispatched++;
		if (o->hdr.kind != KVR_REJECTED)
			continue;
		CU_ASSERT_EQUAL(r->code, KVR_E_SHUTDOWN);
		known += rejections[(uint16_t)o->hdr.id]++ == 0;
	}
	pipeline_flush();
	/* One is at the worker; if all arrived after the stop began, none. */
	CU_ASSERT(dispatched <= 1);
	CU_ASSERT_EQUAL(known + dispatched, last);
	CU_ASSERT_EQUAL(count_queued(), 0);
	CU_ASSERT_EQUAL(cut_off_requests(), dispatched);
	take_rejections();
	expect_rejections(1, last, 1);
	end_stop_waiting();
}

/* Its worker has to open a session, and has not answered. */
static void requests_opening_a_session_are_rejected(void)
{
	uint8_t tlv[128];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};

	begin_stop_waiting("");
	kvr_hint_put_session(&hints, KVR_ACTION_OPEN, KVR_NONE32, "s");
	pipeline_route(1, 1000, 20, 0, &hints);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_OPEN));
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	stop_accepting();
	expect_rejections(1, 1, 0); /* it has a worker: it gets stop_ms */
	CU_ASSERT_EQUAL(cut_off_requests(), 1);
	expect_rejections(1, 1, 1);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	end_stop_waiting();
}

/* Requests of a pair, behind one prefill leg. */
static void requests_waiting_with_a_leg_are_rejected(void)
{
	for (uint32_t bootstrap = 0; bootstrap < 2; bootstrap++) {
		uint32_t n = 0;

		pair_start("", "router_queue_threshold = 0\n");
		CU_ASSERT_TRUE_FATAL(pair_join(PAIR_P, 1, bootstrap == 1) &&
				     pair_join(PAIR_D, 1, false));
		for (uint64_t id = 1; id <= WAITING; id++)
			pair_route(id, NULL);
		CU_ASSERT_EQUAL_FATAL(kvr_sched_counters(rt->pool[1].sched)->waiting_now,
				      WAITING - 1);
		CU_ASSERT_EQUAL(stop_accepting(), WAITING - 1);
		pair_take();
		for (uint64_t id = 2; id <= WAITING; id++)
			n += pair_answer[id].rejected == KVR_E_SHUTDOWN &&
			     pair_answer[id].why.retryable;
		CU_ASSERT_EQUAL(n, WAITING - 1);
		CU_ASSERT_EQUAL(pair_answer[1].rejected, 0);
		pair_finish();
		CU_ASSERT_TRUE(pair_answer[1].fin);
		pair_fin_ack(1);
		CU_ASSERT_EQUAL(cut_off_requests(), 0);
		CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[1].count, PC_ADMITTED), 0);
		pair_stop();
	}
}

/*
 * The request was sent to a silent worker and waits for another one when the router has stopped
 * accepting: it gets stop_ms like requests at workers, and then the outcome of those that are cut
 * off.
 */
static void moving_requests_are_cut_off(void)
{
	const struct pipeline_worker w = {
		.id = 10, .epoch = 1, .ranks = 1, .pool = "a", .from = PEER_OTHER};

	begin_stop_waiting("router_queue_threshold = 0\ndispatch_ms = 40\n");
	pipeline_route(1, 100, 10, 0, NULL);
	CU_ASSERT_NOT_EQUAL(peers_take_dispatch(), 0);
	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&w));
	pipeline_route(2, 200, 10, 0, NULL);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_OTHER, KVR_DISPATCH));
	CU_ASSERT_EQUAL(stop_accepting(), 0);
	pipeline_advance(40);
	pipeline_route(1, 100, 10, KVR_REQ_F_RESEND, NULL);
	CU_ASSERT_EQUAL(count_queued(), 1);
	expect_rejections(1, 2, 0);
	CU_ASSERT_EQUAL(cut_off_requests(), 2);
	expect_rejections(1, 2, 1);
	end_stop_waiting();
}

/*
 * CONNECT of a client, and HELLO of a worker that has not joined yet; a worker that has may repeat
 * its HELLO.
 */
static void no_peer_is_accepted(void)
{
	const struct pipeline_worker w = {
		.id = 10, .epoch = 1, .ranks = 1, .pool = "a", .from = PEER_OTHER};
	const struct kvr_wire_ids ids = {.source = 77, .id = 5, .epoch = 1};
	struct kvr_hint_buf none = {0};
	struct kvr_wire_rejected r;
	uint8_t buf[256];

	begin_stop_waiting("");
	stop_close_doors(rt);
	CU_ASSERT_FALSE(pipeline_hello_as(&w));
	r = peers_take_rejected(PEER_OTHER);
	CU_ASSERT_EQUAL(r.code, KVR_E_SHUTDOWN);
	CU_ASSERT_EQUAL(r.kind, KVR_HELLO);
	CU_ASSERT_EQUAL(r.retryable, 1);
	CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), 1);
	pipeline_send(PEER_CLIENT, buf,
		      (size_t)kvr_put_connect(buf, sizeof(buf), &ids, 1432, &none));
	pipeline_turn();
	r = peers_take_rejected(PEER_CLIENT);
	CU_ASSERT_EQUAL(r.code, KVR_E_SHUTDOWN);
	CU_ASSERT_EQUAL(r.kind, KVR_CONNECT);
	CU_ASSERT_TRUE(pipeline_hello(9, 1, "a", 1));
	pipeline_flush();
	end_stop_waiting();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(waiting_requests_are_rejected),
			       KVR_CASE(arriving_requests_are_rejected),
			       KVR_CASE(requests_opening_a_session_are_rejected),
			       KVR_CASE(requests_waiting_with_a_leg_are_rejected),
			       KVR_CASE(no_peer_is_accepted),
			       KVR_CASE(moving_requests_are_cut_off),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("shutdown_waiting", tests);
}
