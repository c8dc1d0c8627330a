/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Row 24, workers: the sole worker of a pool begins a new life while requests wait for it. They
 * go on waiting, whoever turns in between, and are sent to the new life; what the old one had is
 * lost. In one thread, and with polling threads, where a turn passes between any two calls.
 */
#include "pair.h"
#include "peers.h"

#include "control/control.h"
#include "kvr_hints.h"

#define WORKER 9u

static bool life(uint32_t epoch, uint32_t ranks, const char *pool)
{
	return pipeline_hello(WORKER, epoch, pool, ranks);
}

static uint32_t waiting(void)
{
	return (uint32_t)kvr_sched_counters(rt->pool[1].sched)->waiting_now;
}

/* Pool b has a queue: the first request keeps the one rank busy, the next two wait for it, one of
 * them pinned. @return the first one's handle. */
static uint64_t one_runs_two_wait(uint32_t ranks)
{
	uint8_t tlv[64];
	struct kvr_hint_buf pin = {.p = tlv, .cap = sizeof(tlv)};
	uint64_t first;

	pipeline_start(2);
	pipeline_pool = 6;
	CU_ASSERT_TRUE_FATAL(life(1, ranks, "b"));
	pipeline_advance(1100); /* the router's start is no reason to expect anybody */
	for (uint32_t i = 0; i < ranks; i++)
		pipeline_route(1 + i, 100 * (1 + i), 20, 0, NULL);
	first = peers_dispatched();
	CU_ASSERT_NOT_EQUAL_FATAL(first, 0);
	pipeline_flush();
	pipeline_route(11, 1000, 20, 0, NULL);
	kvr_hint_put_u64(&pin, KVR_HINT_BACKEND, WORKER);
	kvr_hint_put_u32(&pin, KVR_HINT_DP_RANK, 0);
	pipeline_route(12, 2000, 20, 0, &pin);
	CU_ASSERT_EQUAL_FATAL(waiting(), 2);
	pipeline_flush();
	return first;
}

static void end(void)
{
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_pool = 5;
	pipeline_stop();
}

static void requests_wait_for_the_next_life(void)
{
	struct kvr_wire_rejected why;
	const struct out *o;
	uint64_t h;

	one_runs_two_wait(1);
	CU_ASSERT_TRUE_FATAL(life(2, 1, "b"));
	o = pipeline_expect(PEER_CLIENT, KVR_REJECTED); /* the one that ran, and no other */
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.id, 1);
	memcpy(&why, &o->hdr + 1, sizeof(why));
	CU_ASSERT_EQUAL(why.code, KVR_E_WORKER_LOST);
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, 0);
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
	CU_ASSERT_EQUAL(waiting(), 0);
	end();
}

/* Nothing of the life before stays: neither the operator's mark nor ranks that are not there. */
static void the_next_life_is_what_it_says(void)
{
	one_runs_two_wait(2);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), 0);
	pipeline_flush();
	CU_ASSERT_TRUE_FATAL(life(2, 1, "b"));
	CU_ASSERT_EQUAL(kvr_registry_find(rt->registry, WORKER)->state, KVR_WORKER_SERVING);
	CU_ASSERT_EQUAL(kvr_sched_rank_find(rt->pool[1].sched, WORKER, 1), KVR_SCHED_NO_RANK);
	pipeline_flush();
	pipeline_route(21, 3000, 1, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_EQUAL(peers_accepted(), KVR_STATE_QUERY);
	end();
}

/* Nobody is there, but the worker may come back: worth a retry from the first moment on. */
static void both_may_try_again(void)
{
	for (int i = 0; i < 2; i++) {
		const struct kvr_wire_rejected why = peers_rejected(PEER_CLIENT);

		CU_ASSERT_EQUAL(why.code, KVR_E_NO_ENDPOINTS);
		CU_ASSERT_EQUAL(why.retryable, 1);
	}
}

/* A life that does not fit is refused, and the one before is over: nobody is left to wait for. */
static void a_life_that_does_not_fit_ends_the_one_before(void)
{
	struct kvr_wire_rejected why;

	one_runs_two_wait(1);
	CU_ASSERT_FALSE(life(2, 65, "b"));
	why = peers_rejected(PEER_AGENT);
	CU_ASSERT_EQUAL(why.code, KVR_E_WORKER_LIMIT);
	CU_ASSERT_EQUAL(why.detail[1], 2 * 64); /* as many workers as both pools have ranks */
	CU_ASSERT_EQUAL(why.detail[3], 64);
	CU_ASSERT_PTR_NULL(kvr_registry_find(rt->registry, WORKER));
	CU_ASSERT_EQUAL(kvr_sched_n_workers(rt->pool[1].sched), 0);
	CU_ASSERT_EQUAL(waiting(), 0);
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, KVR_E_WORKER_LOST);
	both_may_try_again();
	CU_ASSERT_TRUE(life(2, 1, "b")); /* it has never lived */
	end();
}

static void a_worker_that_leaves_is_waited_for_by_nobody(void)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 3, .epoch = 1};
	struct kvr_wire_rejected why;
	uint8_t buf[64];

	one_runs_two_wait(1);
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(waiting(), 0);
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, KVR_E_WORKER_LOST);
	both_may_try_again();
	/* Whoever asks again is told the same, long after nobody is expected any more. */
	pipeline_advance(5000);
	peers_empty(PEER_CLIENT, KVR_PROBE, 11, 0);
	why = peers_rejected(PEER_CLIENT);
	CU_ASSERT_EQUAL(why.code, KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(why.retryable, 1);
	end();
}

static void a_worker_may_begin_anew_in_another_pool(void)
{
	one_runs_two_wait(1);
	CU_ASSERT_TRUE_FATAL(life(2, 1, "a"));
	CU_ASSERT_EQUAL(kvr_sched_n_workers(rt->pool[1].sched), 0);
	CU_ASSERT_EQUAL(kvr_sched_n_workers(rt->pool[0].sched), 1);
	CU_ASSERT_EQUAL(waiting(), 0);
	pipeline_pool = 5;
	pipeline_flush();
	pipeline_route(31, 4000, 1, 0, NULL);
	CU_ASSERT_NOT_EQUAL(peers_dispatched(), 0);
	end();
}

/* An operator who drains a worker may resume it, or its next life comes: worth a retry, as long as
 * it finishes what it has and when it has nothing any more. */
static void a_worker_that_drains_may_come_back(void)
{
	struct kvr_wire_rejected why;
	uint64_t h;

	pipeline_start(2);
	pipeline_pool = 6;
	CU_ASSERT_TRUE_FATAL(life(1, 1, "b"));
	pipeline_advance(1100);
	peers_route(PEER_CLIENT, 1, 0, "x");
	h = peers_dispatched();
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), 0);
	for (uint64_t id = 2; id <= 3; id++) {
		const struct kvr_worker *w = kvr_registry_find(rt->registry, WORKER);

		pipeline_advance(20);
		CU_ASSERT_EQUAL(w->state, id == 2 ? KVR_WORKER_DRAINING : KVR_WORKER_DRAINED);
		pipeline_flush();
		peers_route(PEER_CLIENT, id, 0, "x");
		why = peers_rejected(PEER_CLIENT);
		CU_ASSERT_EQUAL(why.code, KVR_E_NO_ENDPOINTS);
		CU_ASSERT_EQUAL(why.retryable, 1);
		peers_item(1, h, KVR_RESP_F_FIN);
		peers_fin_ack(1, h);
	}
	end();
}

/* @return whether the request, which only @p worker may prefill, is worth another try. */
static bool retryable(uint64_t id, uint64_t worker)
{
	uint8_t tlv[64];
	struct kvr_hint_buf pin = {.p = tlv, .cap = sizeof(tlv)};

	kvr_hint_put_u64(&pin, KVR_HINT_PREFILL_WORKER, worker);
	kvr_hint_put_u32(&pin, KVR_HINT_PREFILL_DP_RANK, 0);
	pair_route(id, &pin);
	CU_ASSERT_EQUAL(pair_answer[id].rejected, KVR_E_NO_ENDPOINTS);
	return pair_answer[id].why.retryable != 0;
}

/* Who is expected in the prefill pool counts for its requests, which come in through the other. */
static void a_prefill_worker_may_come_back(void)
{
	pair_start("", "");
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_P, 1, true));
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_Q, 1, true));
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_D, 1, true));
	pipeline_advance(1100);
	CU_ASSERT_FALSE(retryable(1, 99)); /* nobody is expected anywhere */
	pair_leave(PAIR_P);
	CU_ASSERT_FALSE(rt->pool[0].control.expected);
	CU_ASSERT_TRUE(retryable(2, PAIR_P));
	pipeline_advance(1100);
	CU_ASSERT_FALSE(retryable(3, PAIR_P));
	pair_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {{"wait", requests_wait_for_the_next_life},
			       {"life", the_next_life_is_what_it_says},
			       {"misfit", a_life_that_does_not_fit_ends_the_one_before},
			       {"leave", a_worker_that_leaves_is_waited_for_by_nobody},
			       {"pool", a_worker_may_begin_anew_in_another_pool},
			       {"drain", a_worker_that_drains_may_come_back},
			       {"prefill", a_prefill_worker_may_come_back},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("router_restart", tests);
}
