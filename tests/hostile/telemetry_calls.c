/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of operators' queries to a packet lcore does not depend on the number of
 * workers. A page of /kvroute/workers is one call to each lcore with a scheduler.
 */
#include "pair.h"
#include "peers.h"

#include "control/control.h"
#include "control/thread.h"
#include "sched/stop.h"

#define PAGE 32u /* of /kvroute/workers */

static uint32_t count_scheduler_lcores(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rt->n_lcores; i++)
		n += rt->lcore[i]->n_sched != 0;
	return n;
}

static uint64_t count_calls_of_page(uint32_t from, uint32_t page)
{
	const uint64_t before = rt->ctl->n_calls;

	control_bookings(rt, from, page);
	return rt->ctl->n_calls - before;
}

static void join_numbered(uint64_t from, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		CU_ASSERT_TRUE_FATAL(pipeline_hello(from + i, 1, i % 2 ? "a" : "b", 1));
	pipeline_flush();
}

static void a_page_of_workers_is_one_call(void)
{
	pipeline_start(2);
	CU_ASSERT_EQUAL(count_calls_of_page(0, PAGE), 0);
	join_numbered(100, 1);
	CU_ASSERT_EQUAL(count_calls_of_page(0, PAGE), count_scheduler_lcores());
	join_numbered(200, 79);
	CU_ASSERT_EQUAL_FATAL(kvr_registry_count(rt->registry), 80);
	CU_ASSERT_EQUAL(count_calls_of_page(0, PAGE), count_scheduler_lcores());
	CU_ASSERT_EQUAL(count_calls_of_page(64, PAGE), count_scheduler_lcores()); /* the last 16 */
	CU_ASSERT_EQUAL(count_calls_of_page(80, PAGE), 0);
	CU_ASSERT_EQUAL(count_calls_of_page(1000, PAGE), 0);
	pipeline_stop();
}

/* The one call has read every worker. */
static void the_call_covers_every_worker(void)
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
 * The duration of a stop does not depend on the number of request slots. A wait of the
 * control thread for an lcore lasts as long as a busy machine makes it, so waits are counted
 * instead.
 */
static void a_stop_calls_each_pool_once(void)
{
	uint64_t before;

	pipeline_start(2);
	join_numbered(1, 2);
	for (uint64_t id = 1; id <= 100; id++)
		pipeline_route(id, 1000 * id, 10, 0, NULL);
	pipeline_flush();
	CU_ASSERT_TRUE(kvr_flight_size(rt->pool[0].requests) >= 4 * STOP_SLICE);
	before = rt->ctl->n_calls;
	CU_ASSERT_EQUAL(stop_cut_off(rt), 100);
	CU_ASSERT_EQUAL(rt->ctl->n_calls - before, 2);
	pipeline_stop();
}

/* Waiting requests are rejected in slices, one per turn, however many there are. */
static void a_stop_rejects_waiting_requests_in_slices(void)
{
	struct stop_part part = {0};
	uint64_t before;
	uint32_t waiting, refused = 0;

	pipeline_start_with("[pool a]\nid = 5\nrouter_queue_threshold = 0\n" PIPELINE_POOL
			    "[pool b]\nid = 6\n" PIPELINE_POOL);
	join_numbered(2, 2);
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
	for (struct kvr_wire_rejected r; (r = peers_take_rejected(PEER_CLIENT)).code != 0;
	     refused++)
		CU_ASSERT_EQUAL(r.code, KVR_E_SHUTDOWN);
	CU_ASSERT_EQUAL(refused, waiting + 1);
	pipeline_stop();
}

/*
 * The prefill pool is first in the file, and so in the stop: from its first slice on, no request is
 * accepted through the decode pool either.
 */
static void both_pools_of_a_pair_stop_accepting_together(void)
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

/* Without waiting requests: one call, for any number of slots. */
static void a_stop_without_waiting_requests_takes_one_call(void)
{
	struct stop_part part = {0};

	pipeline_start(2);
	join_numbered(1, 2);
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
	CU_TestInfo tests[] = {KVR_CASE(a_page_of_workers_is_one_call),
			       KVR_CASE(the_call_covers_every_worker),
			       KVR_CASE(a_stop_calls_each_pool_once),
			       KVR_CASE(a_stop_rejects_waiting_requests_in_slices),
			       KVR_CASE(both_pools_of_a_pair_stop_accepting_together),
			       KVR_CASE(a_stop_without_waiting_requests_takes_one_call),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("telemetry_calls", tests);
}
