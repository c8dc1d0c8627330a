/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The only worker of a pool restarts while requests wait for it. They keep waiting
 * and are dispatched to the new incarnation; those of the old one are lost. On one thread, and with
 * polling threads, where turns pass between any two calls.
 */
#include "pair.h"
#include "peers.h"

#include "control/control.h"
#include "kvr_hints.h"

#define WORKER 9u

static bool join_incarnation(uint32_t epoch, uint32_t ranks, const char *pool)
{
	return pipeline_hello(WORKER, epoch, pool, ranks);
}

static uint32_t count_waiting(void)
{
	return (uint32_t)kvr_sched_counters(rt->pool[1].sched)->waiting_now;
}

/*
 * Pool b has a queue: the first request occupies the only rank, the next two wait for it, one of
 * them pinned. @return the handle of the first.
 */
static uint64_t start_one_and_queue_two(uint32_t ranks)
{
	uint8_t tlv[64];
	struct kvr_hint_buf pin = {.p = tlv, .cap = sizeof(tlv)};
	uint64_t first;

	pipeline_start(2);
	pipeline_pool = 6;
	CU_ASSERT_TRUE_FATAL(join_incarnation(1, ranks, "b"));
	pipeline_advance(1100); /* the time after the router's start, in which workers are expected,
				   is over */
	for (uint32_t i = 0; i < ranks; i++)
		pipeline_route(1 + i, 100 * (1 + i), 20, 0, NULL);
	first = peers_take_dispatch();
	CU_ASSERT_NOT_EQUAL_FATAL(first, 0);
	pipeline_flush();
	pipeline_route(11, 1000, 20, 0, NULL);
	kvr_hint_put_u64(&pin, KVR_HINT_BACKEND, WORKER);
	kvr_hint_put_u32(&pin, KVR_HINT_DP_RANK, 0);
	pipeline_route(12, 2000, 20, 0, &pin);
	CU_ASSERT_EQUAL_FATAL(count_waiting(), 2);
	pipeline_flush();
	return first;
}

static void end_restart(void)
{
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_pool = 5;
	pipeline_stop();
}

static void requests_wait_for_the_next_incarnation(void)
{
	struct kvr_wire_rejected why;
	const struct out *o;
	uint64_t h;

	start_one_and_queue_two(1);
	CU_ASSERT_TRUE_FATAL(join_incarnation(2, 1, "b"));
	o = pipeline_expect(PEER_CLIENT, KVR_REJECTED); /* only the running request */
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.id, 1);
	memcpy(&why, &o->hdr + 1, sizeof(why));
	CU_ASSERT_EQUAL(why.code, KVR_E_WORKER_LOST);
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, 0);
	o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.id, 11);
	CU_ASSERT_EQUAL(pipeline_epoch(o->hdr.handle), 2);
	h = o->hdr.handle;
	peers_item(11, h, KVR_RESP_F_FIN);
	o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.id, 12);
	peers_item(12, o->hdr.handle, KVR_RESP_F_FIN);
	CU_ASSERT_EQUAL(count_waiting(), 0);
	end_restart();
}

/*
 * Nothing of the old incarnation stays: neither the operator's mark nor ranks that no longer exist.
 */
static void the_next_incarnation_starts_clean(void)
{
	start_one_and_queue_two(2);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), 0);
	pipeline_flush();
	CU_ASSERT_TRUE_FATAL(join_incarnation(2, 1, "b"));
	CU_ASSERT_EQUAL(kvr_registry_find(rt->registry, WORKER)->state, KVR_WORKER_SERVING);
	CU_ASSERT_EQUAL(kvr_sched_rank_find(rt->pool[1].sched, WORKER, 1), KVR_SCHED_NO_RANK);
	pipeline_flush();
	pipeline_route(21, 3000, 1, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_EQUAL(peers_take_accepted(), KVR_STATE_QUERY);
	end_restart();
}

/* No worker is there, but it may return: retryable from the first moment on. */
static void expect_both_retryable(void)
{
	for (int i = 0; i < 2; i++) {
		const struct kvr_wire_rejected why = peers_take_rejected(PEER_CLIENT);

		CU_ASSERT_EQUAL(why.code, KVR_E_NO_ENDPOINTS);
		CU_ASSERT_EQUAL(why.retryable, 1);
	}
}

/* A HELLO that does not fit is rejected, and the old incarnation is over: no worker is expected. */
static void an_invalid_hello_ends_the_old_incarnation(void)
{
	struct kvr_wire_rejected why;

	start_one_and_queue_two(1);
	CU_ASSERT_FALSE(join_incarnation(2, 65, "b"));
	why = peers_take_rejected(PEER_AGENT);
	CU_ASSERT_EQUAL(why.code, KVR_E_WORKER_LIMIT);
	CU_ASSERT_EQUAL(why.detail[1], 2 * 64); /* as many workers as both pools have ranks */
	CU_ASSERT_EQUAL(why.detail[3], 64);
	CU_ASSERT_PTR_NULL(kvr_registry_find(rt->registry, WORKER));
	CU_ASSERT_EQUAL(kvr_sched_n_workers(rt->pool[1].sched), 0);
	CU_ASSERT_EQUAL(count_waiting(), 0);
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, KVR_E_WORKER_LOST);
	expect_both_retryable();
	CU_ASSERT_TRUE(join_incarnation(2, 1, "b")); /* a new worker */
	end_restart();
}

static void requests_do_not_wait_for_a_worker_that_left(void)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 3, .epoch = 1};
	struct kvr_wire_rejected why;
	uint8_t buf[64];

	start_one_and_queue_two(1);
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(count_waiting(), 0);
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, KVR_E_WORKER_LOST);
	expect_both_retryable();
	/* A retransmitted request gets the same answer, long after any worker is expected. */
	pipeline_advance(5000);
	peers_empty(PEER_CLIENT, KVR_PROBE, 11, 0);
	why = peers_take_rejected(PEER_CLIENT);
	CU_ASSERT_EQUAL(why.code, KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(why.retryable, 1);
	end_restart();
}

static void a_worker_may_restart_in_another_pool(void)
{
	start_one_and_queue_two(1);
	CU_ASSERT_TRUE_FATAL(join_incarnation(2, 1, "a"));
	CU_ASSERT_EQUAL(kvr_sched_n_workers(rt->pool[1].sched), 0);
	CU_ASSERT_EQUAL(kvr_sched_n_workers(rt->pool[0].sched), 1);
	CU_ASSERT_EQUAL(count_waiting(), 0);
	pipeline_pool = 5;
	pipeline_flush();
	pipeline_route(31, 4000, 1, 0, NULL);
	CU_ASSERT_NOT_EQUAL(peers_take_dispatch(), 0);
	end_restart();
}

/*
 * An operator may resume a draining worker, or it may restart: retryable while it finishes its
 * requests and after it has none.
 */
static void a_draining_worker_may_return(void)
{
	struct kvr_wire_rejected why;
	uint64_t h;

	pipeline_start(2);
	pipeline_pool = 6;
	CU_ASSERT_TRUE_FATAL(join_incarnation(1, 1, "b"));
	pipeline_advance(1100);
	peers_route(PEER_CLIENT, 1, 0, "x");
	h = peers_take_dispatch();
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), 0);
	for (uint64_t id = 2; id <= 3; id++) {
		const struct kvr_worker *w = kvr_registry_find(rt->registry, WORKER);

		pipeline_advance(20);
		CU_ASSERT_EQUAL(w->state, id == 2 ? KVR_WORKER_DRAINING : KVR_WORKER_DRAINED);
		pipeline_flush();
		peers_route(PEER_CLIENT, id, 0, "x");
		why = peers_take_rejected(PEER_CLIENT);
		CU_ASSERT_EQUAL(why.code, KVR_E_NO_ENDPOINTS);
		CU_ASSERT_EQUAL(why.retryable, 1);
		peers_item(1, h, KVR_RESP_F_FIN);
		peers_fin_ack(1, h);
	}
	end_restart();
}

/* @return whether the rejection of a request that only @p worker may prefill is retryable. */
static bool is_retryable(uint64_t id, uint64_t worker)
{
	uint8_t tlv[64];
	struct kvr_hint_buf pin = {.p = tlv, .cap = sizeof(tlv)};

	kvr_hint_put_u64(&pin, KVR_HINT_PREFILL_WORKER, worker);
	kvr_hint_put_u32(&pin, KVR_HINT_PREFILL_DP_RANK, 0);
	pair_route(id, &pin);
	CU_ASSERT_EQUAL(pair_answer[id].rejected, KVR_E_NO_ENDPOINTS);
	return pair_answer[id].why.retryable != 0;
}

/*
 * A worker expected in the prefill pool counts for requests, which arrive through the decode pool.
 */
static void a_prefill_worker_may_return(void)
{
	pair_start("", "");
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_P, 1, true));
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_Q, 1, true));
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_D, 1, true));
	pipeline_advance(1100);
	CU_ASSERT_FALSE(is_retryable(1, 99)); /* no worker is expected in either pool */
	pair_leave(PAIR_P);
	CU_ASSERT_FALSE(rt->pool[0].control.expected);
	CU_ASSERT_TRUE(is_retryable(2, PAIR_P));
	pipeline_advance(1100);
	CU_ASSERT_FALSE(is_retryable(3, PAIR_P));
	pair_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(requests_wait_for_the_next_incarnation),
			       KVR_CASE(the_next_incarnation_starts_clean),
			       KVR_CASE(an_invalid_hello_ends_the_old_incarnation),
			       KVR_CASE(requests_do_not_wait_for_a_worker_that_left),
			       KVR_CASE(a_worker_may_restart_in_another_pool),
			       KVR_CASE(a_draining_worker_may_return),
			       KVR_CASE(a_prefill_worker_may_return),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("router_restart", tests);
}
