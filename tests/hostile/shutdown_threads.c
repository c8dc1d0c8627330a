/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows 6 and 36, for pairs of pools and on several polling threads: requests in every stage, and
 * more that come in at the same moment, while the doors are shut, while the rest is cut off, and
 * while the process stands still. Everybody is told an end, once, and everything is given back.
 */
#include "pair.h"
#include "peers.h"

#include <sched.h>

#include "control/thread.h"
#include "threads.h"

#define STAGED 40u
#define LATE   30u
#define PAUSES 3u
#define PAUSE  12000u /* ms; clients that say nothing for 10 s are gone */
#define BURSTS 24u    /* ROUTEs between two of them; max_jobs is 128 */

static uint64_t last_id;

static void begin(void)
{
	/* Sync and bootstrap: one prefill worker each. */
	pair_start("reroutes = 1\n", "");
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_P, 1, true));
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_Q, 1, false));
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_D, 1, false));
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_E, 1, false));
	last_id = 0;
}

/* Requests as far as this: prefill legs sent, acknowledged, done; decode legs acknowledged, in the
 * middle of their answer. */
static void in_every_stage(void)
{
	for (uint32_t i = 0; i < STAGED; i++) {
		const uint64_t id = ++last_id;
		struct pair_attempt *r;

		pair_route(id, NULL);
		r = pair_leg(id, true);
		if (i % 5 >= 1 && r != NULL)
			pair_ack(r, 0);
		if (i % 5 >= 2 && r != NULL)
			pair_item(r, KVR_RESP_F_FIN, "result");
		r = pair_leg(id, false);
		if (i % 5 >= 3 && r != NULL)
			pair_ack(r, 0);
		if (i % 5 >= 4 && r != NULL)
			pair_item(r, 0, "token");
	}
}

static void come_in(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		peers_route_send(PEER_CLIENT, ++last_id, 0, "body");
}

/* Whether the client knows the end of each. */
static void all_are_told(void)
{
	uint32_t untold = 0;

	pair_take();
	for (uint64_t id = 1; id <= last_id; id++)
		untold += !pair_answer[id].fin && pair_answer[id].rejected == 0;
	CU_ASSERT_EQUAL(untold, 0);
}

static uint32_t told_shutdown(void)
{
	uint32_t n = 0;

	for (uint64_t id = 1; id <= last_id; id++)
		n += pair_answer[id].rejected == KVR_E_SHUTDOWN;
	return n;
}

/* Requests are on their way in, while the doors are shut; what is left of them is cut off while
 * workers answer. */
static void everybody_is_told_at_the_stop(void)
{
	uint32_t ended = 0;

	begin();
	in_every_stage();
	threads_run();
	come_in(LATE);
	stop_close_doors(rt);
	come_in(LATE);
	pipeline_turn();
	pair_take();
	CU_ASSERT(told_shutdown() >= LATE);
	for (uint32_t i = 0; i < pair_attempts && ended < STAGED / 4; i++)
		if (!pair_attempt[i].prefill && pair_attempt[i].acked && !pair_attempt[i].ended) {
			pair_item(&pair_attempt[i], KVR_RESP_F_FIN, "end");
			ended++;
		}
	CU_ASSERT(ended > 0);
	threads_run();
	stop_cut_off(rt);
	pipeline_turn();
	all_are_told();
	for (uint32_t i = 0; i < rt->n_pools; i++)
		CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[i].sched)->booked_now, 0);
	/* Each leg that a worker has is stopped. */
	for (uint32_t i = 0; i < pair_attempts; i++)
		CU_ASSERT(pair_attempt[i].ended || pair_attempt[i].aborted);
	for (uint32_t i = 0; i < pair_attempts; i++)
		if (!pair_attempt[i].ended) {
			pair_abort_ack(&pair_attempt[i]);
			pair_attempt[i].ended = true;
		}
	pair_stop();
}

/* All of the process stands still for 12 s, again and again, in the middle of everything: nobody
 * is taken for dead, and no request ends otherwise than it would have. */
static void a_pause_ends_nothing(void)
{
	uint32_t refused = 0;

	begin();
	in_every_stage();
	for (uint32_t i = 0; i < PAUSES; i++) {
		threads_run();
		come_in(BURSTS);
		if (threads_used() != NULL)
			threads_pass_two_turns();
		else
			pipeline_step();
		pipeline_pause(PAUSE);
		pipeline_turn();
		pair_take();
		CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), 4);
		for (uint32_t k = 0; k < kvr_registry_count(rt->registry); k++)
			CU_ASSERT_EQUAL(kvr_registry_at(rt->registry, k)->state,
					KVR_WORKER_SERVING);
	}
	pair_finish();
	all_are_told();
	for (uint64_t id = 1; id <= last_id; id++) {
		refused += pair_answer[id].rejected != 0;
		pair_fin_ack(id);
	}
	CU_ASSERT_EQUAL(refused, 0);
	pair_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {{"stop", everybody_is_told_at_the_stop},
			       {"pause", a_pause_ends_nothing},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("shutdown_threads", tests);
}
