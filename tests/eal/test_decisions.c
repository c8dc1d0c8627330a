/* SPDX-License-Identifier: BSD-3-Clause */
/* The decision log and the load report for adapters, by frames and through telemetry commands. */
#include "pipeline.h"

#include "control/control.h"
#include "kvr_put.h"
#include "kvr_telemetry.h"
#include "kvr_test.h"
#include "loop/loop.h"
#include "sched/decision_log.h"
#include "sched/sched.h"
#include "telemetry/decisions.h"

#include <errno.h>
#include <rte_telemetry.h>
#include <stdio.h>
#include <string.h>

#define WORKER 9u

static struct decision got;

static void begin_decisions(const char *keys, uint32_t ranks)
{
	char text[512];

	snprintf(text, sizeof(text), "[pool a]\nid = 5\n" PIPELINE_POOL "%s", keys);
	pipeline_start_with(text);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", ranks));
}

/* The latest decision kept. */
static const struct decision *read_newest_decision(void)
{
	uint64_t n = decision_written(pipeline_get_pool()->log);

	CU_ASSERT_NOT_EQUAL_FATAL(n, 0);
	CU_ASSERT_EQUAL_FATAL(decision_read(pipeline_get_pool()->log, n - 1, &got), 0);
	return &got;
}

static void route_pinned(uint64_t id, uint64_t worker)
{
	uint8_t tlv[64];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};

	kvr_hint_put_u64(&hints, KVR_HINT_BACKEND, worker);
	kvr_hint_put_u32(&hints, KVR_HINT_DP_RANK, 0);
	pipeline_route(id, 100, 10, 0, &hints);
}

static void sampled_decisions_keep_the_best_terms(void)
{
	const struct decision *v;

	begin_decisions("decision_sample = 1\n", 40);
	pipeline_route(1, 100, 10, 0, NULL);
	v = read_newest_decision();
	CU_ASSERT_EQUAL(v->number, 0);
	CU_ASSERT_EQUAL(v->source, 77);
	CU_ASSERT_EQUAL(v->id, 1);
	CU_ASSERT_EQUAL(v->d.result, KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(v->n_eligible, 40);
	CU_ASSERT_EQUAL(v->n_terms, DECISION_TERMS);
	/* Another 38 requests load all ranks but one, which then is the best. */
	for (uint64_t id = 2; id <= 39; id++)
		pipeline_route(id, 1000 * id, 10, 0, NULL);
	pipeline_route(40, 500000, 10, 0, NULL);
	v = read_newest_decision();
	CU_ASSERT_EQUAL(v->id, 40);
	CU_ASSERT_EQUAL(v->term[0].rank, v->d.rank);
	CU_ASSERT_EQUAL(v->term[0].cost, v->d.cost);
	CU_ASSERT_EQUAL(v->term[0].active_requests, 0);
	CU_ASSERT_EQUAL(v->term[1].active_requests, 1);
	CU_ASSERT_EQUAL(v->term[1].decode_blocks, 20);
	for (uint32_t i = 1; i < v->n_terms; i++)
		CU_ASSERT(v->term[i - 1].cost <= v->term[i].cost);
	CU_ASSERT_EQUAL(v->flags[0], 0);
	pipeline_stop();
}

/* With a temperature any rank may be chosen; it is among the recorded terms in any case. */
static void the_chosen_rank_is_always_recorded(void)
{
	begin_decisions("decision_sample = 1\nrouter_temperature = 10\n", 64);
	for (uint64_t id = 1; id <= 100; id++) {
		const struct decision *v;
		uint32_t found = 0;

		pipeline_route(id, 1000 * id, (uint32_t)(1 + id % 30), 0, NULL);
		v = read_newest_decision();
		for (uint32_t i = 0; i < v->n_terms; i++)
			found += v->term[i].rank == v->d.rank;
		CU_ASSERT_EQUAL(found, 1);
		CU_ASSERT_EQUAL(v->n_terms, DECISION_TERMS);
	}
	pipeline_stop();
}

static void decision_sample_keeps_one_in_n(void)
{
	struct decision_sample s;

	begin_decisions("decision_sample = 4\n", 2);
	for (uint64_t id = 1; id <= 12; id++)
		pipeline_route(id, 1000 * id, 10, 0, NULL);
	CU_ASSERT_EQUAL(decision_written(pipeline_get_pool()->log), 3);
	CU_ASSERT_EQUAL(read_newest_decision()->id, 9);
	s = (struct decision_sample){.pool = pipeline_get_pool(), .every = 0};
	decision_sample(rt->lcore[0], &s);
	for (uint64_t id = 13; id <= 40; id++)
		pipeline_route(id, 1000 * id, 10, 0, NULL);
	CU_ASSERT_EQUAL(decision_written(pipeline_get_pool()->log), 3);
	s.every = 2;
	decision_sample(rt->lcore[0], &s);
	pipeline_route(41, 41000, 10, 0, NULL);
	CU_ASSERT_EQUAL(read_newest_decision()->id, 41);
	CU_ASSERT_EQUAL(decision_every(pipeline_get_pool()->log), 2);
	pipeline_stop();
}

/* @rule 7.6: the record has the class that applied and the class that the request named. */
static void the_policy_class_is_kept(void)
{
	static const struct {
		const char *named;
		uint32_t is;
		bool unknown;
	} v[] = {{NULL, 0, false}, {"low", 1, false}, {"gold", 0, true}};

	begin_decisions("decision_sample = 1\n[class a high]\n[class a low]\n", 2);
	for (uint32_t i = 0; i < RTE_DIM(v); i++) {
		uint8_t tlv[64];
		struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};

		if (v[i].named != NULL)
			kvr_hint_put_str(&hints, KVR_HINT_POLICY_CLASS, v[i].named);
		pipeline_route(i + 1, 1000 * i, 10, 0, &hints);
		CU_ASSERT_EQUAL(read_newest_decision()->id, i + 1);
		CU_ASSERT_EQUAL(read_newest_decision()->d.policy_class, v[i].is);
		CU_ASSERT_EQUAL(read_newest_decision()->class_unknown, v[i].unknown);
	}
	pipeline_stop();
}

static void failed_decisions_are_all_kept_and_the_ring_is_bounded(void)
{
	const struct decision *v;

	begin_decisions("decision_sample = 0\n", 2);
	pipeline_route(1, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(decision_written(pipeline_get_pool()->log), 0);
	CU_ASSERT_EQUAL(kvr_sched_worker_drain(pipeline_get_pool()->sched, WORKER, true, 0), 0);
	pipeline_route(2, 100, 10, 0, NULL);
	v = read_newest_decision();
	CU_ASSERT_EQUAL(v->id, 2);
	CU_ASSERT_EQUAL(v->d.result, KVR_SCHED_ERROR);
	CU_ASSERT_EQUAL(v->d.err, KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(v->n_eligible, 2); /* load of the ranks, and why they do not serve */
	CU_ASSERT_EQUAL(v->n_terms, 2);
	CU_ASSERT_EQUAL(v->flags[0], DECISION_DRAINING);
	CU_ASSERT_EQUAL(v->term[0].active_requests + v->term[1].active_requests, 1);
	kvr_sched_worker_drain(pipeline_get_pool()->sched, WORKER, false, 0);
	for (uint64_t id = 3; id < 3 + 2 * DECISIONS_KEPT; id++)
		route_pinned(id, 12345);
	CU_ASSERT_EQUAL(decision_written(pipeline_get_pool()->log), 1 + 2 * DECISIONS_KEPT);
	CU_ASSERT_EQUAL(read_newest_decision()->id, 2 + 2 * DECISIONS_KEPT);
	CU_ASSERT_EQUAL(decision_read(pipeline_get_pool()->log, DECISIONS_KEPT, &got), -ENOENT);
	CU_ASSERT_EQUAL(decision_read(pipeline_get_pool()->log, DECISIONS_KEPT + 1, &got), 0);
	CU_ASSERT_EQUAL(decision_read(pipeline_get_pool()->log, 1 + 2 * DECISIONS_KEPT, &got),
			-ENOENT);
	pipeline_stop();
}

static void an_admission_is_a_decision(void)
{
	const struct decision *v;
	struct kvr_wire_ids ids = {.source = 77, .id = 1, .epoch = 1};
	uint8_t buf[64];
	uint64_t n;
	int len;

	begin_decisions("decision_sample = 1\nrouter_queue_threshold = 0.1\n", 1);
	pipeline_route(1, 100, 10, 0, NULL); /* 40 tokens of 64: busy */
	n = decision_written(pipeline_get_pool()->log);
	CU_ASSERT_EQUAL(n, 1);
	pipeline_route(2, 900, 10, 0, NULL);
	CU_ASSERT_EQUAL(kvr_sched_counters(pipeline_get_pool()->sched)->waiting_now, 1);
	CU_ASSERT_EQUAL(decision_written(pipeline_get_pool()->log), 1); /* waits: no decision yet */
	len = kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids);
	pipeline_send(PEER_CLIENT, buf, (size_t)len);
	pipeline_turn();
	CU_ASSERT_EQUAL(kvr_sched_counters(pipeline_get_pool()->sched)->waiting_now, 0);
	v = read_newest_decision();
	CU_ASSERT_EQUAL(v->number, 1);
	CU_ASSERT_EQUAL(v->id, 2);
	CU_ASSERT_EQUAL(v->d.result, KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(v->n_terms, 1);
	pipeline_stop();
}

/* ---- commands ---- */

/* LeakSanitizer, if linked: only a telemetry socket frees nested containers of an answer. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

static void run_command(const char *path, const char *params)
{
	struct rte_tel_data *d = rte_tel_data_alloc();

	if (__lsan_disable != NULL)
		__lsan_disable();
	CU_ASSERT_EQUAL(kvr_telemetry_call(path, params, d), 0);
	if (__lsan_enable != NULL)
		__lsan_enable();
	rte_tel_data_free(d);
}

static void commands_answer_any_arguments(void)
{
	static const char *const path[] = {"/kvroute/decisions", "/kvroute/sample",
					   "/kvroute/adapters"};
	static const char *const params[] = {"",    "a",     "a,0",  "a,1",
					     "b",   "a,999", "a,-1", "a,18446744073709551615",
					     "a,x", "a,0,0"};
	uint8_t tlv[300];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	char name[256];

	begin_decisions("decision_sample = 1\n", 40);
	CU_ASSERT_EQUAL_FATAL(decisions_start(rt), 0);
	memset(name, 'l', 255);
	memcpy(name + 126, "\xc3\xa4", 2); /* a character across the end of the first part */
	name[255] = '\0';
	kvr_hint_put_str(&hints, KVR_HINT_LORA, name);
	pipeline_route(1, 100, 10, 0, &hints);
	CU_ASSERT_EQUAL(kvr_sched_lora_active(pipeline_get_pool()->sched, name, 255), 1);
	route_pinned(2, 12345);
	for (uint32_t i = 0; i < RTE_DIM(path); i++)
		for (uint32_t k = 0; k < RTE_DIM(params); k++)
			run_command(path[i], params[k]);
	run_command("/kvroute/sample", "a,7");
	CU_ASSERT_EQUAL(decision_every(pipeline_get_pool()->log), 7);
	decisions_stop();
	pipeline_stop();
}

/*
 * Overlap with a rank's cache counts from the view on in which the rank appears; a rank that has
 * gone is not looked up.
 */
static void a_rank_begins_with_a_view(void)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 2, .epoch = 2};
	uint8_t buf[64];

	begin_decisions("", 1);
	CU_ASSERT_EQUAL(pipeline_get_pool()->begun[0], pipeline_get_pool()->live.begun);
	CU_ASSERT(pipeline_get_pool()->live.begun > 0 &&
		  pipeline_get_pool()->live.begun <= rt->lcore[0]->view->number);
	CU_ASSERT_TRUE(pipeline_hello(WORKER, 2, "a", 1)); /* a new incarnation */
	CU_ASSERT(pipeline_get_pool()->live.begun > 0 &&
		  pipeline_get_pool()->live.begun <= rt->lcore[0]->view->number);
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(pipeline_get_pool()->begun[0], 0);
	CU_ASSERT_EQUAL(pipeline_get_pool()->live.begun, 0);
	pipeline_stop();
}

/*
 * Control waits between the moment in which a worker has its ranks and the moment in which all
 * lcores have the view with that worker. A query in between gets no overlap for them.
 */
static uint32_t asked, counted;

static void ask_while_control_waits(struct router *r)
{
	static _Alignas(64) uint8_t memory[4096];
	struct kvr_overlap *o = (void *)memory;
	struct kvr_sched_overlap out;
	struct kvr_sched_rank_info rank;
	struct lcore *lc = r->lcore[0];

	if (kvr_sched_rank_get(pipeline_get_pool()->sched, 0, &rank) == 0 && !rank.available) {
		CU_ASSERT_FATAL(kvr_overlap_size(pipeline_get_pool()->max_ranks) <= sizeof(memory));
		memset(memory, 0, sizeof(memory));
		o->nranks = o->stride = kvr_overlap_stride(pipeline_get_pool()->max_ranks);
		o->max_device = o->count[0] = 5;
		sched_overlap(pipeline_get_pool(), o, lc->view->number, &out);
		asked++;
		counted += o->count[0];
	}
	lcore_turn(lc);
	rte_rcu_qsbr_quiescent(r->qsbr, lc->qsbr_id);
}

static void a_rank_outside_the_view_has_no_overlap(void)
{
	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL);
	asked = counted = 0;
	rte_rcu_qsbr_thread_register(rt->qsbr, rt->lcore[0]->qsbr_id);
	rte_rcu_qsbr_thread_online(rt->qsbr, rt->lcore[0]->qsbr_id);
	rt->wait = ask_while_control_waits;
	atomic_store_explicit(&rt->running, 1, memory_order_relaxed);
	CU_ASSERT_TRUE(pipeline_hello(WORKER, 1, "a", 1));
	CU_ASSERT_TRUE(
		pipeline_hello(WORKER, 2, "a", 1)); /* in the rank of the incarnation before */
	atomic_store_explicit(&rt->running, 0, memory_order_relaxed);
	rt->wait = NULL;
	rte_rcu_qsbr_thread_offline(rt->qsbr, rt->lcore[0]->qsbr_id);
	rte_rcu_qsbr_thread_unregister(rt->qsbr, rt->lcore[0]->qsbr_id);
	CU_ASSERT(asked >= 2);
	CU_ASSERT_EQUAL(counted, 0);
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(sampled_decisions_keep_the_best_terms),
		KVR_CASE(the_chosen_rank_is_always_recorded),
		KVR_CASE(the_policy_class_is_kept),
		KVR_CASE(decision_sample_keeps_one_in_n),
		KVR_CASE(failed_decisions_are_all_kept_and_the_ring_is_bounded),
		KVR_CASE(an_admission_is_a_decision),
		KVR_CASE(commands_answer_any_arguments),
		KVR_CASE(a_rank_begins_with_a_view),
		KVR_CASE(a_rank_outside_the_view_has_no_overlap),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("decisions", tests);
}
