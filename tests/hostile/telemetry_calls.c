/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Row 19: what operators ask for costs a packet lcore the same, however many workers there are. A
 * page of /kvroute/workers is one call to each lcore that has a scheduler.
 */
#include "pair.h"
#include "peers.h"

#include "control/control.h"
#include "control/thread.h"
#include "sched/stop.h"

#define PAGE 32u /* of /kvroute/workers */

static uint32_t scheduler_lcores(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rt->n_lcores; i++)
		n += rt->lcore[i]->n_sched != 0;
	return n;
}

static uint64_t calls_of_a_page(uint32_t from, uint32_t page)
{
	const uint64_t before = rt->ctl->n_calls;

	control_bookings(rt, from, page);
	return rt->ctl->n_calls - before;
}

static void join(uint64_t from, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		CU_ASSERT_TRUE_FATAL(pipeline_hello(from + i, 1, i % 2 ? "a" : "b", 1));
	pipeline_flush();
}

static void a_page_of_workers_is_one_call(void)
{
	pipeline_start(2);
	CU_ASSERT_EQUAL(calls_of_a_page(0, PAGE), 0);
	join(100, 1);
	CU_ASSERT_EQUAL(calls_of_a_page(0, PAGE), scheduler_lcores());
	join(200, 79);
	CU_ASSERT_EQUAL_FATAL(kvr_registry_count(rt->registry), 80);
	CU_ASSERT_EQUAL(calls_of_a_page(0, PAGE), scheduler_lcores());
	CU_ASSERT_EQUAL(calls_of_a_page(64, PAGE), scheduler_lcores()); /* the last 16 */
	CU_ASSERT_EQUAL(calls_of_a_page(80, PAGE), 0);
	CU_ASSERT_EQUAL(calls_of_a_page(1000, PAGE), 0);
	pipeline_stop();
}

/* The one call has looked at every worker. */
static void the_call_asks_for_every_worker(void)
{
	pipeline_start(1);
	for (uint64_t id = 1; id <= 40; id++)
		CU_ASSERT_TRUE_FATAL(pipeline_hello(id, 1, "a", 1));
	for (uint64_t id = 1; id <= 80; id++)
		pipeline_route(id, 1000 * id, 10, 0, NULL);
	pipeline_flush();
	control_bookings(rt, 0, PAGE);
	control_bookings(rt, PAGE, PAGE);
	for (uint32_t i = 0; i < 40; i++)
		CU_ASSERT_EQUAL(kvr_registry_at(rt->registry, i)->bookings, 2);
	pipeline_stop();
}

/*
 * Row 36: how long a stop takes does not follow from the places for requests. A wait of the control
 * thread for an lcore is as long as a busy machine makes it, so they are counted.
 */
static void a_stop_calls_each_pool_once(void)
{
	uint64_t before;

	pipeline_start(2);
	join(1, 2);
	for (uint64_t id = 1; id <= 100; id++)
		pipeline_route(id, 1000 * id, 10, 0, NULL);
	pipeline_flush();
	CU_ASSERT_TRUE(kvr_flight_size(rt->pool[0].requests) >= 4 * STOP_SLICE);
	before = rt->ctl->n_calls;
	CU_ASSERT_EQUAL(stop_cut_off(rt), 100);
	CU_ASSERT_EQUAL(rt->ctl->n_calls - before, 2);
	pipeline_stop();
}

/* What waits is refused in the same way, a slice a turn, whatever there is of it. */
static void a_stop_refuses_what_waits_in_slices(void)
{
	struct stop_part part = {0};
	uint64_t before;
	uint32_t waiting, refused = 0;

	pipeline_start_with("[pool a]\nid = 5\nrouter_queue_threshold = 0\n" PIPELINE_POOL
			    "[pool b]\nid = 6\n" PIPELINE_POOL);
	join(2, 2);
	for (uint64_t id = 1; id <= 101; id++)
		pipeline_route(id, 1000 * id, 10, 0, NULL);
	pipeline_flush();
	waiting = (uint32_t)kvr_sched_counters(rt->pool[0].sched)->waiting_now;
	CU_ASSERT_TRUE_FATAL(waiting > 2 * STOP_SLICE);
	part.pool = &rt->pool[0];
	CU_ASSERT_FALSE(stop_admission(rt->pool[0].sched_lcore, &part));
	CU_ASSERT_TRUE(part.n > 0 && part.n <= STOP_SLICE);
	before = rt->ctl->n_calls;
	CU_ASSERT_EQUAL(stop_close_doors(rt), waiting - part.n);
	CU_ASSERT_EQUAL(rt->ctl->n_calls - before, 2);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->waiting_now, 0);
	pipeline_route(200, 200, 10, 0, NULL);
	pipeline_turn();
	for (struct kvr_wire_rejected r; (r = peers_rejected(PEER_CLIENT)).code != 0; refused++)
		CU_ASSERT_EQUAL(r.code, KVR_E_SHUTDOWN);
	CU_ASSERT_EQUAL(refused, waiting + 1);
	pipeline_stop();
}

/*
 * The prefill pool stands first in the file, and its part of the stop comes first: from its first
 * slice on nobody comes in through the decode pool either, to wait behind that slice.
 */
static void a_pair_closes_together(void)
{
	struct stop_part part = {0};
	uint32_t waiting;
	uint64_t id;

	pair_start_prefill_first("", "router_queue_threshold = 0\n");
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_P, 1, true));
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_D, 1, true));
	for (id = 1; id <= 101; id++)
		pair_route(id, NULL);
	waiting = (uint32_t)kvr_sched_counters(rt->pool[0].sched)->waiting_now;
	CU_ASSERT_TRUE_FATAL(waiting > 2 * STOP_SLICE);
	part.pool = &rt->pool[0];
	CU_ASSERT_FALSE(stop_admission(rt->pool[0].sched_lcore, &part));
	pair_route(id, NULL);
	CU_ASSERT_EQUAL(pair_answer[id].rejected, KVR_E_SHUTDOWN);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->waiting_now, waiting - part.n);
	CU_ASSERT_EQUAL(stop_close_doors(rt), waiting - part.n);
	pipeline_turn();
	pair_finish();
	for (uint64_t i = 1; i <= id; i++)
		CU_ASSERT(pair_answer[i].fin || pair_answer[i].rejected == KVR_E_SHUTDOWN);
	pair_stop();
}

/* Nothing waits: one look, however many slots there are. */
static void nothing_that_waits_is_refused_at_once(void)
{
	struct stop_part part = {0};

	pipeline_start(2);
	join(1, 2);
	for (uint64_t id = 1; id <= 100; id++)
		pipeline_route(id, 1000 * id, 10, 0, NULL);
	pipeline_flush();
	part.pool = &rt->pool[0];
	CU_ASSERT_TRUE(kvr_flight_size(rt->pool[0].requests) > STOP_SLICE);
	CU_ASSERT_TRUE(stop_admission(rt->pool[0].sched_lcore, &part));
	CU_ASSERT_EQUAL(part.n, 0);
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {{"calls", a_page_of_workers_is_one_call},
			       {"bookings", the_call_asks_for_every_worker},
			       {"stop", a_stop_calls_each_pool_once},
			       {"stop waiting", a_stop_refuses_what_waits_in_slices},
			       {"stop pair", a_pair_closes_together},
			       {"stop nothing", nothing_that_waits_is_refused_at_once},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("telemetry_calls", tests);
}
