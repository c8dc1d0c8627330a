/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Row 36: what a stop does to requests that no worker has yet: in the queue, by late binding, in
 * the middle of a long prompt, in a ring, while their session is opened, behind the other leg. Each
 * is told Shutdown, once, and again when it asks; nobody is let in after that, whoever ends.
 */
#include "pair.h"
#include "peers.h"
#include "threads.h"

#include "control/thread.h"
#include "kvr_hints.h"

#define WAITING 40u

static uint32_t told[65536]; /* how often, by id */

/* What clients have been told so far. */
static void take(void)
{
	const struct out *o;

	while ((o = pipeline_next(PEER_CLIENT)) != NULL) {
		const struct kvr_wire_rejected *r = (const void *)(&o->hdr + 1);

		if (o->hdr.kind != KVR_REJECTED)
			continue;
		CU_ASSERT_EQUAL(r->code, KVR_E_SHUTDOWN);
		CU_ASSERT_EQUAL(r->retryable, 1); /* elsewhere */
		CU_ASSERT_EQUAL(r->kind, KVR_ROUTE);
		told[(uint16_t)o->hdr.id]++;
	}
	pipeline_flush();
}

static void begin(const char *keys)
{
	char text[512];

	memset(told, 0, sizeof(told));
	snprintf(text, sizeof(text), "[pool a]\nid = 5\n" PIPELINE_POOL "%s", keys);
	pipeline_start_with(text);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 1));
	pipeline_flush();
}

static const struct pool *pool(void)
{
	return &rt->pool[0];
}

/* What it has said is out. @return what it counts. */
static uint32_t close_doors(void)
{
	const uint32_t n = stop_close_doors(rt);

	pipeline_turn();
	return n;
}

static uint32_t cut_off(void)
{
	const uint32_t n = stop_cut_off(rt);

	pipeline_turn();
	return n;
}

static uint32_t waiting(void)
{
	return (uint32_t)kvr_sched_counters(pool()->sched)->waiting_now;
}

/* Ids from @p from to @p to have been told once, or so often as they are expected to. */
static void all_told(uint64_t from, uint64_t to, uint32_t times)
{
	uint32_t wrong = 0;

	take();
	for (uint64_t id = from; id <= to; id++)
		wrong += told[(uint16_t)id] != times;
	CU_ASSERT_EQUAL(wrong, 0);
}

/* Nothing is left but what has been told and may be asked for. */
static void end(void)
{
	CU_ASSERT_EQUAL(waiting(), 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(pool()->sched)->booked_now, 0);
	CU_ASSERT_EQUAL(pool()->live.held, 0);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_advance(KVR_FLIGHT_LINGER_NS / 1000000 + 1);
	for (uint32_t i = 0; i < 100 && kvr_flight_count(pool()->requests) != 0; i++)
		pipeline_turn();
	CU_ASSERT_EQUAL(kvr_flight_count(pool()->requests), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(pool()->jobs), 0);
	pipeline_flush();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	pipeline_stop();
}

/* The first has the worker, the others wait. What they are told, and what becomes of the first. */
static void the_queue_is_told(const char *keys)
{
	uint64_t h;

	begin(keys);
	for (uint64_t id = 1; id <= 1 + WAITING; id++)
		pipeline_route(id, 1000 * id, 20, 0, NULL);
	h = peers_dispatched();
	CU_ASSERT_NOT_EQUAL_FATAL(h, 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	CU_ASSERT_EQUAL_FATAL(waiting(), WAITING);
	pipeline_flush();
	CU_ASSERT_EQUAL(close_doors(), WAITING);
	all_told(2, 1 + WAITING, 1);
	/* Asked again, by either frame. */
	for (uint64_t id = 2; id <= 1 + WAITING; id++)
		peers_route_send(PEER_CLIENT, id, KVR_REQ_F_RESEND, "body");
	pipeline_turn();
	all_told(2, 1 + WAITING, 2);
	CU_ASSERT_EQUAL(told[1], 0);
	/* The worker is free again, and nobody comes to it any more. */
	peers_dispatch_ack(1, h, 0);
	peers_item(1, h, KVR_RESP_F_FIN);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	pipeline_advance(15000); /* longer than late binding holds anybody */
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	CU_ASSERT_EQUAL(kvr_stats_get(pool()->count, PC_ADMITTED), 0);
	CU_ASSERT_EQUAL(kvr_stats_get(pool()->count, PC_ADMISSION_REJECTED), WAITING);
	CU_ASSERT_EQUAL(cut_off(), 0);
	end();
}

static void whoever_waits_is_told(void)
{
	the_queue_is_told("router_queue_threshold = 0\n");
	the_queue_is_told("router_mode = ttft\nttft_late_binding = on\nttft_late_tokens = 4\n");
}

/* They come in while the doors are shut. */
static void whoever_comes_in_is_told(void)
{
	const uint64_t last = 60;
	uint32_t dispatched = 0, known = 0;
	const struct out *o;

	begin("router_queue_threshold = 0\n");
	for (uint32_t burst = 0; burst < 3; burst++) {
		pipeline_together = true;
		for (uint64_t id = 1 + burst * 20; id <= (burst + 1) * 20; id++)
			pipeline_route(id, 1000 * id, 150, 0, NULL);
		pipeline_together = false;
		if (burst == 0 && threads_used() == NULL)
			pipeline_step(); /* some are in, one in the middle of its prompt */
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
		known += told[(uint16_t)o->hdr.id]++ == 0;
	}
	pipeline_flush();
	/* One has the worker; if nobody had come before the doors shut, none. */
	CU_ASSERT(dispatched <= 1);
	CU_ASSERT_EQUAL(known + dispatched, last);
	CU_ASSERT_EQUAL(waiting(), 0);
	CU_ASSERT_EQUAL(cut_off(), dispatched);
	take();
	all_told(1, last, 1);
	end();
}

/* Its worker is asked to open a session, and has not answered. */
static void whoever_opens_a_session_is_told(void)
{
	uint8_t tlv[128];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};

	begin("");
	kvr_hint_put_session(&hints, KVR_ACTION_OPEN, KVR_NONE32, "s");
	pipeline_route(1, 1000, 20, 0, &hints);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_OPEN));
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	close_doors();
	all_told(1, 1, 0); /* it has a worker: it gets stop_ms */
	CU_ASSERT_EQUAL(cut_off(), 1);
	all_told(1, 1, 1);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	end();
}

/* Those of a pair, behind one prefill leg. */
static void whoever_waits_with_a_leg_is_told(void)
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
		CU_ASSERT_EQUAL(close_doors(), WAITING - 1);
		pair_take();
		for (uint64_t id = 2; id <= WAITING; id++)
			n += pair_answer[id].rejected == KVR_E_SHUTDOWN &&
			     pair_answer[id].why.retryable;
		CU_ASSERT_EQUAL(n, WAITING - 1);
		CU_ASSERT_EQUAL(pair_answer[1].rejected, 0);
		pair_finish();
		CU_ASSERT_TRUE(pair_answer[1].fin);
		pair_fin_ack(1);
		CU_ASSERT_EQUAL(cut_off(), 0);
		CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[1].count, PC_ADMITTED), 0);
		pair_stop();
	}
}

/* It was sent, its worker is silent, and it waits for another one when the doors are shut already:
 * it has the time of those that workers have, and then the word of those that are cut off. */
static void whoever_moves_meanwhile_is_told(void)
{
	const struct pipeline_worker w = {
		.id = 10, .epoch = 1, .ranks = 1, .pool = "a", .from = PEER_OTHER};

	begin("router_queue_threshold = 0\ndispatch_ms = 40\n");
	pipeline_route(1, 100, 10, 0, NULL);
	CU_ASSERT_NOT_EQUAL(peers_dispatched(), 0);
	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&w));
	pipeline_route(2, 200, 10, 0, NULL);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_OTHER, KVR_DISPATCH));
	CU_ASSERT_EQUAL(close_doors(), 0);
	pipeline_advance(40);
	pipeline_route(1, 100, 10, KVR_REQ_F_RESEND, NULL);
	CU_ASSERT_EQUAL(waiting(), 1);
	all_told(1, 2, 0);
	CU_ASSERT_EQUAL(cut_off(), 2);
	all_told(1, 2, 1);
	end();
}

/* CONNECT of a client, and the HELLO of a worker that is not there yet; one that is may repeat its
 * own. */
static void no_newcomers(void)
{
	const struct pipeline_worker w = {
		.id = 10, .epoch = 1, .ranks = 1, .pool = "a", .from = PEER_OTHER};
	const struct kvr_wire_ids ids = {.source = 77, .id = 5, .epoch = 1};
	struct kvr_hint_buf none = {0};
	struct kvr_wire_rejected r;
	uint8_t buf[256];

	begin("");
	stop_close_doors(rt);
	CU_ASSERT_FALSE(pipeline_hello_as(&w));
	r = peers_rejected(PEER_OTHER);
	CU_ASSERT_EQUAL(r.code, KVR_E_SHUTDOWN);
	CU_ASSERT_EQUAL(r.kind, KVR_HELLO);
	CU_ASSERT_EQUAL(r.retryable, 1);
	CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), 1);
	pipeline_send(PEER_CLIENT, buf,
		      (size_t)kvr_put_connect(buf, sizeof(buf), &ids, 1432, &none));
	pipeline_turn();
	r = peers_rejected(PEER_CLIENT);
	CU_ASSERT_EQUAL(r.code, KVR_E_SHUTDOWN);
	CU_ASSERT_EQUAL(r.kind, KVR_CONNECT);
	CU_ASSERT_TRUE(pipeline_hello(9, 1, "a", 1));
	pipeline_flush();
	end();
}

int main(void)
{
	CU_TestInfo tests[] = {{"queue", whoever_waits_is_told},
			       {"coming in", whoever_comes_in_is_told},
			       {"session", whoever_opens_a_session_is_told},
			       {"pair", whoever_waits_with_a_leg_is_told},
			       {"newcomers", no_newcomers},
			       {"moves", whoever_moves_meanwhile_is_told},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("shutdown_waiting", tests);
}
