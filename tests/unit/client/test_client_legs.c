/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_rig.h"

#include "kvr_rand.h"
#include <rte_common.h>

#define PREFILLER 0xb1u

static uint64_t prefiller = PREFILLER;

static void push_legs(uint64_t id, uint64_t handle, uint16_t state, uint16_t path, uint64_t worker)
{
	const bool legs = path == KVR_WAY_BOOTSTRAP || path == KVR_WAY_SYNC;
	const struct kvr_wire_ids ids = ids_of(id, handle);
	const struct kvr_wire_accepted w = {.worker = worker,
					    .dp_rank = 3,
					    .state = state,
					    .prefill_worker = legs ? prefiller : 0,
					    .prefill_dp_rank = legs ? 2 : KVR_NONE32,
					    .path = path};

	fake_push(&net, router_at, kvr_put_accepted(fake_slot(&net), 1984, &ids, &w));
	kvr_client_process(c);
}

static void the_choice_names_both_workers(void)
{
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	push_legs(id, HANDLE, KVR_STATE_DISPATCHED, KVR_WAY_BOOTSTRAP, 7);
	CU_ASSERT_EQUAL(saw.accepted, 1);
	CU_ASSERT_EQUAL(saw.choice.worker, 7);
	CU_ASSERT_EQUAL(saw.choice.way, KVR_WAY_BOOTSTRAP);
	CU_ASSERT_EQUAL(saw.choice.prefill_worker, PREFILLER);
	CU_ASSERT_EQUAL(saw.choice.prefill_dp_rank, 2);
	push_legs(id, HANDLE, KVR_STATE_RUNNING, KVR_WAY_BOOTSTRAP, 7);
	CU_ASSERT_EQUAL(saw.accepted, 1); /* no change */
	prefiller = PREFILLER + 1;	  /* only the prefill worker changed */
	push_legs(id, HANDLE, KVR_STATE_RUNNING, KVR_WAY_BOOTSTRAP, 7);
	CU_ASSERT_EQUAL(saw.accepted, 2);
	CU_ASSERT_EQUAL(saw.choice.prefill_worker, PREFILLER + 1);
	push_legs(id, HANDLE, KVR_STATE_RUNNING, KVR_WAY_SYNC, 7);
	CU_ASSERT_EQUAL(saw.accepted, 3);
	prefiller = PREFILLER;
	id = rig_submit(KVR_CLIENT_QUERY);
	push_legs(id, 0, KVR_STATE_QUERY, KVR_WAY_BYPASSED, 7);
	CU_ASSERT_EQUAL(saw.choice.way, KVR_WAY_BYPASSED);
	CU_ASSERT_EQUAL(saw.choice.prefill_worker, 0);
	CU_ASSERT_EQUAL(saw.choice.prefill_dp_rank, UINT32_MAX);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_QUERIED);
	rig_stop();
}

/* A prefill of one minute: the router answers each PROBE with QUEUED. Nothing is lost or
 * retransmitted, and the answer follows. */
static void a_long_prefill_does_not_time_out(void)
{
	uint32_t probes = 0;
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	push_legs(id, 0, KVR_STATE_QUEUED, KVR_WAY_SYNC, 0);
	CU_ASSERT_EQUAL(saw.queued, 1);
	fake_skip(&net);
	for (uint32_t s = 0; s < 60; s++) {
		rig_run_ms(1000);
		while (fake_next(&net, KVR_PROBE) != NULL) {
			probes++;
			push_legs(id, 0, KVR_STATE_QUEUED, KVR_WAY_SYNC, 0);
		}
		CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 0);
	}
	CU_ASSERT(probes >= 30 && probes <= 40); /* 0.25, 0.5, 1 s, then 2 s */
	CU_ASSERT(saw.ends == 0 && saw.queued == 1 && saw.accepted == 0);
	push_legs(id, HANDLE, KVR_STATE_DISPATCHED, KVR_WAY_SYNC, 7);
	CU_ASSERT_EQUAL(saw.accepted, 1);
	CU_ASSERT_EQUAL(saw.choice.way, KVR_WAY_SYNC);
	push_item(id, 0, KVR_RESP_F_FIN, "done");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_FINISHED);
	rig_stop();
}

static void an_unresponsive_router_during_prefill_is_given_up(void)
{
	uint64_t id;

	rig_start_conf((struct kvr_client_conf){.silence_ms = 5000});
	id = rig_submit(0);
	push_legs(id, 0, KVR_STATE_QUEUED, KVR_WAY_SYNC, 0);
	rig_run_ms(8000);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_SILENT);
	rig_stop();
}

/* DISPATCHED in answer to a PROBE: without legs only the client can retransmit, with legs the
 * router does. */
static void the_router_retransmits_legs(void)
{
	static const struct {
		uint16_t path;
		unsigned int routes;
	} rows[] = {{KVR_WAY_AGGREGATED, 1},
		    {KVR_WAY_BYPASSED, 1},
		    {KVR_WAY_BOOTSTRAP, 0},
		    {KVR_WAY_SYNC, 0}};

	for (uint32_t i = 0; i < RTE_DIM(rows); i++) {
		uint64_t id;

		rig_start();
		id = rig_submit(0);
		push_legs(id, HANDLE, KVR_STATE_DISPATCHED, rows[i].path, 7);
		rig_run_ms(250);
		CU_ASSERT_EQUAL(fake_count(&net, KVR_PROBE), 1);
		fake_skip(&net);
		push_legs(id, HANDLE, KVR_STATE_DISPATCHED, rows[i].path, 7);
		kvr_client_process(c);
		CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), rows[i].routes);
		rig_stop();
	}
}

/* The prefill failed after the decode worker accepted its leg: the request waits, moves to another
 * handle, and its stream is accepted from there. */
static void a_request_that_starts_over_keeps_its_stream(void)
{
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	push_legs(id, HANDLE, KVR_STATE_RUNNING, KVR_WAY_BOOTSTRAP, 7);
	push_legs(id, 0, KVR_STATE_QUEUED, KVR_WAY_AGGREGATED, 0);
	CU_ASSERT_EQUAL(saw.queued, 1);
	push_legs(id, HANDLE + 1, KVR_STATE_DISPATCHED, KVR_WAY_BOOTSTRAP, 8);
	CU_ASSERT_EQUAL(saw.accepted, 2);
	CU_ASSERT_EQUAL(saw.choice.worker, 8);
	/* Again, this time immediately. */
	push_legs(id, HANDLE + 1, KVR_STATE_RUNNING, KVR_WAY_BOOTSTRAP, 8);
	push_legs(id, HANDLE + 2, KVR_STATE_DISPATCHED, KVR_WAY_BOOTSTRAP, 9);
	CU_ASSERT_EQUAL(saw.accepted, 3);
	CU_ASSERT_EQUAL(saw.choice.worker, 9);
	push_item_from(router_at, id, HANDLE + 2, 0, 0, "a");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 1);
	push_legs(id, HANDLE + 3, KVR_STATE_DISPATCHED, KVR_WAY_BOOTSTRAP, 6); /* too late */
	push_item_from(router_at, id, HANDLE + 2, 1, KVR_RESP_F_FIN, "b");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.accepted, 3);
	CU_ASSERT_EQUAL(saw.items, 2);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_FINISHED);
	rig_stop();
}

/* With DIRECT the router cannot suppress the end of an attempt that it stopped. */
static void the_end_of_a_previous_attempt_is_not_the_end(void)
{
	uint64_t id;

	rig_start();
	id = rig_submit(KVR_CLIENT_DIRECT);
	push_legs(id, HANDLE, KVR_STATE_RUNNING, KVR_WAY_BOOTSTRAP, 7);
	push_legs(id, HANDLE + 1, KVR_STATE_DISPATCHED, KVR_WAY_BOOTSTRAP, 8);
	push_item_from(agent_at, id, HANDLE, 0, KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED, "");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 0);
	push_item_from(agent_at, id, HANDLE + 1, 0, KVR_RESP_F_FIN, "a");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 1);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_FINISHED);
	rig_stop();
}

static void a_failed_prefill_may_be_retried(void)
{
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	push_legs(id, 0, KVR_STATE_QUEUED, KVR_WAY_SYNC, 0);
	push_rejected(id, KVR_E_PREFILL_FAILED, KVR_ROUTE, "no");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_REJECTED);
	CU_ASSERT(saw.end.retryable);
	CU_ASSERT_STRING_EQUAL(kvr_code_name(saw.end.code), "PrefillFailed");
	rig_stop();
}

/* Messages of the router about one request, in any order, lost, repeated or late, lead to exactly
 * one end. */
static void losses_and_copies_lead_to_one_end(void)
{
	static const uint16_t states[] = {KVR_STATE_QUEUED, KVR_STATE_DISPATCHED,
					  KVR_STATE_RUNNING};
	struct kvr_rand rnd;

	kvr_rand_init(&rnd, 17);
	for (uint32_t round = 0; round < 300; round++) {
		uint64_t id, handle = HANDLE;

		rig_start();
		id = rig_submit(0);
		for (uint32_t i = 0; i < 30; i++) {
			if (kvr_rand_below(&rnd, 8) == 0)
				handle++;
			push_legs(id, handle - kvr_rand_below(&rnd, 2),
				  states[kvr_rand_below(&rnd, 3)],
				  (uint16_t)kvr_rand_below(&rnd, 4), 1 + kvr_rand_below(&rnd, 3));
			rig_run_ms(kvr_rand_below(&rnd, 400));
		}
		CU_ASSERT_EQUAL_FATAL(saw.ends, 0);
		for (uint32_t seq = 3; seq-- > 0;) /* the last one first, each twice */
			for (int copy = 0; copy < 2; copy++)
				push_item_from(router_at, id, handle, seq,
					       seq == 2 ? KVR_RESP_F_FIN : 0, "x");
		kvr_client_process(c);
		CU_ASSERT_EQUAL(saw.items, 3);
		CU_ASSERT_EQUAL(saw.ends, 1);
		rig_stop();
	}
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(the_choice_names_both_workers),
		KVR_CASE(a_long_prefill_does_not_time_out),
		KVR_CASE(an_unresponsive_router_during_prefill_is_given_up),
		KVR_CASE(the_router_retransmits_legs),
		KVR_CASE(a_request_that_starts_over_keeps_its_stream),
		KVR_CASE(the_end_of_a_previous_attempt_is_not_the_end),
		KVR_CASE(a_failed_prefill_may_be_retried),
		KVR_CASE(losses_and_copies_lead_to_one_end),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("client_legs", tests);
}
