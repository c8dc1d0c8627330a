/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows 6 and 36, for pairs of pools and on several polling threads: requests in every stage, and
 * more that arrive during the first phase of the stop, during the cut-off, and while the process is
 * paused. Each client gets one outcome, and everything is freed.
 */
#include "pair.h"
#include "peers.h"

#include <sched.h>

#include "control/thread.h"
#include "threads.h"

#define STAGED 40u
#define LATE   30u
#define PAUSES 3u
#define PAUSE  12000u /* ms; clients are removed after 10 s of silence */
#define BURSTS 24u    /* ROUTEs between two pauses; max_jobs is 128 */

static uint64_t last_id;

static void begin_stop_threads(void)
{
	/* Sync and bootstrap: one prefill worker each. */
	pair_start("reroutes = 1\n", "");
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_P, 1, true));
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_Q, 1, false));
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_D, 1, false));
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_E, 1, false));
	last_id = 0;
}

/*
 * Bring requests to these stages: prefill legs sent, acknowledged, finished; decode legs
 * acknowledged, in the middle of their answer.
 */
static void start_in_every_stage(void)
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

static void send_more_requests(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		peers_route_send(PEER_CLIENT, ++last_id, 0, "body");
}

/* Return true if the client has the outcome of each. */
static void all_have_outcomes(void)
{
	uint32_t untold = 0;

	pair_take();
	for (uint64_t id = 1; id <= last_id; id++)
		untold += !pair_answer[id].fin && pair_answer[id].rejected == 0;
	CU_ASSERT_EQUAL(untold, 0);
}

static uint32_t count_shutdown_outcomes(void)
{
	uint32_t n = 0;

	for (uint64_t id = 1; id <= last_id; id++)
		n += pair_answer[id].rejected == KVR_E_SHUTDOWN;
	return n;
}

/* Requests arrive while the router stops accepting; the rest is cut off while workers answer. */
static void every_client_is_notified_of_the_stop(void)
{
	uint32_t ended = 0;

	begin_stop_threads();
	start_in_every_stage();
	threads_run();
	send_more_requests(LATE);
	stop_close_doors(rt);
	send_more_requests(LATE);
	pipeline_turn();
	pair_take();
	CU_ASSERT(count_shutdown_outcomes() >= LATE);
	for (uint32_t i = 0; i < pair_attempts && ended < STAGED / 4; i++)
		if (!pair_attempt[i].prefill && pair_attempt[i].acked && !pair_attempt[i].ended) {
			pair_item(&pair_attempt[i], KVR_RESP_F_FIN, "end");
			ended++;
		}
	CU_ASSERT(ended > 0);
	threads_run();
	stop_cut_off(rt);
	pipeline_turn();
	all_have_outcomes();
	for (uint32_t i = 0; i < rt->n_pools; i++)
		CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[i].sched)->booked_now, 0);
	/* Each leg at a worker is aborted. */
	for (uint32_t i = 0; i < pair_attempts; i++)
		CU_ASSERT(pair_attempt[i].ended || pair_attempt[i].aborted);
	for (uint32_t i = 0; i < pair_attempts; i++)
		if (!pair_attempt[i].ended) {
			pair_abort_ack(&pair_attempt[i]);
			pair_attempt[i].ended = true;
		}
	pair_stop();
}

/*
 * The process pauses for 12 s, several times, in the middle of everything: no peer is lost, and no
 * request gets another outcome because of it.
 */
static void a_pause_ends_no_request(void)
{
	uint32_t refused = 0;

	begin_stop_threads();
	start_in_every_stage();
	for (uint32_t i = 0; i < PAUSES; i++) {
		threads_run();
		send_more_requests(BURSTS);
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
	all_have_outcomes();
	for (uint64_t id = 1; id <= last_id; id++) {
		refused += pair_answer[id].rejected != 0;
		pair_fin_ack(id);
	}
	CU_ASSERT_EQUAL(refused, 0);
	pair_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(every_client_is_notified_of_the_stop),
			       KVR_CASE(a_pause_ends_no_request), CU_TEST_INFO_NULL};

	return kvr_test_run("shutdown_threads", tests);
}
