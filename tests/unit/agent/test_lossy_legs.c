/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Disaggregated requests on a network that loses, repeats and delays: a client, a prefill and a
 * decode agent with their engines, and the router's rules. Virtual time with a seed.
 */
#include "agent_pvt.h"
#include "client_pvt.h"
#include "pair.h"

#include <rte_common.h>

#define JOBS 1024

/* Order for the engines, in the body of a request. */
struct ask {
	uint32_t number, items;
};

/* Work of an engine for one leg. */
struct job {
	struct kvr_agent *agent; /* NULL: ended */
	uint64_t handle, room;
	struct ask ask;
	uint32_t answered;
	bool prefill;
	uint64_t ready_us;
};

struct meeting {
	uint64_t room;
	bool done, failed;
};

struct request {
	uint64_t id;
	struct ask ask;
	uint32_t items, sum;
	int ends;
	struct kvr_client_end end;
};

static struct {
	struct end end[3]; /* client, prefill, decode */
	struct kvr_client *client;
	struct kvr_agent *agent[2];
	struct job job[JOBS];
	struct meeting meeting[JOBS];
	struct request req[PAIR_MAX];
	uint32_t n_jobs, n_meetings, n, ended;
	uint32_t by_reason[8];
	uint32_t faults; /* failed prefills, per 1,000 */
	uint64_t run[4 * PAIR_MAX];
	uint32_t n_runs;
} all;

static struct meeting *meet_prefill(uint64_t room)
{
	for (uint32_t i = 0; i < all.n_meetings; i++)
		if (all.meeting[i].room == room)
			return &all.meeting[i];
	CU_ASSERT_FATAL(all.n_meetings < JOBS);
	all.meeting[all.n_meetings].room = room;
	return &all.meeting[all.n_meetings++];
}

/* No handle runs twice, regardless of copies. */
static void check_once(uint64_t handle)
{
	for (uint32_t i = 0; i < all.n_runs; i++)
		CU_ASSERT_NOT_EQUAL(all.run[i], handle);
	CU_ASSERT_FATAL(all.n_runs < RTE_DIM(all.run));
	all.run[all.n_runs++] = handle;
}

static int on_dispatch(struct kvr_agent *a, const struct kvr_agent_request *q, void *user)
{
	const bool prefill = a == all.agent[0];
	struct job *j = &all.job[all.n_jobs++];

	CU_ASSERT_FATAL(all.n_jobs < JOBS);
	check_once(q->handle);
	CU_ASSERT_EQUAL(q->leg, prefill ? KVR_ROLE_PREFILL : KVR_ROLE_DECODE);
	CU_ASSERT_EQUAL(q->max_tokens, prefill ? 1 : 33);
	CU_ASSERT_EQUAL_FATAL(q->body_len, sizeof(j->ask));
	*j = (struct job){.agent = a, .handle = q->handle, .prefill = prefill};
	j->ready_us = wire.now_us + kvr_rand_below(&wire.rnd, 30000);
	memcpy(&j->ask, q->body, sizeof(j->ask));
	if (q->bootstrap_host != NULL) {
		CU_ASSERT_EQUAL(q->prefill_result_len, 0);
		j->room = q->bootstrap_room;
	} else if (!prefill) { /* prefill result of this request */
		CU_ASSERT_EQUAL_FATAL(q->prefill_result_len, sizeof(j->ask));
		CU_ASSERT_EQUAL(memcmp(q->prefill_result, &j->ask, sizeof(j->ask)), 0);
	}
	if (prefill && kvr_rand_below(&wire.rnd, 2000) < all.faults) {
		if (j->room != 0)
			meet_prefill(j->room)->failed = true;
		j->agent = NULL;
		return 9;
	}
	return 0;
}

static void on_abort(struct kvr_agent *a, uint64_t handle, enum kvr_agent_abort why, uint16_t code,
		     void *user)
{
	for (uint32_t i = 0; i < all.n_jobs; i++)
		if (all.job[i].agent == a && all.job[i].handle == handle)
			all.job[i].agent = NULL;
}

static const struct kvr_agent_ops agent_ops = {.on_dispatch = on_dispatch, .on_abort = on_abort};

static void prefill_work(struct job *j)
{
	struct kvr_agent_item it = {.data = &j->ask,
				    .len = sizeof(j->ask),
				    .flags = KVR_AGENT_LAST,
				    .generated_tokens = 1};
	const bool fails = kvr_rand_below(&wire.rnd, 2000) < all.faults;

	if (fails)
		it.flags |= KVR_AGENT_ERROR;
	if (j->room != 0)
		*(fails ? &meet_prefill(j->room)->failed : &meet_prefill(j->room)->done) = true;
	CU_ASSERT_EQUAL(kvr_agent_respond(j->agent, j->handle, &it), 0);
	j->agent = NULL;
}

static void decode_work(struct job *j)
{
	const uint32_t value = j->ask.number * 100 + j->answered;
	const struct kvr_agent_item it = {.data = &value,
					  .len = sizeof(value),
					  .flags = j->answered + 1 == j->ask.items ? KVR_AGENT_LAST
										   : 0,
					  .generated_tokens = j->answered + 1};

	if (j->room != 0 && !meet_prefill(j->room)->done)
		return; /* the blocks are not available, and may never be */
	CU_ASSERT_EQUAL(kvr_agent_respond(j->agent, j->handle, &it), 0);
	if (++j->answered == j->ask.items)
		j->agent = NULL;
}

static void run_engines(void)
{
	for (uint32_t i = 0; i < all.n_jobs; i++) {
		struct job *j = &all.job[i];

		if (j->agent == NULL || j->ready_us > wire.now_us)
			continue;
		if (j->prefill)
			prefill_work(j);
		else
			decode_work(j);
	}
}

static void on_item(struct kvr_client *c, uint64_t id, const struct kvr_client_item *it, void *user)
{
	struct request *r = user;
	uint32_t value;

	if (it->flags & KVR_CLIENT_ITEM_ERROR)
		return;
	CU_ASSERT_EQUAL_FATAL(it->len, sizeof(value));
	memcpy(&value, it->data, sizeof(value));
	CU_ASSERT_EQUAL(value, r->ask.number * 100 + r->items);
	r->items++;
}

static void on_end(struct kvr_client *c, uint64_t id, const struct kvr_client_end *e, void *user)
{
	struct request *r = user;

	r->ends++;
	r->end = *e;
	all.ended++;
	all.by_reason[e->reason]++;
	if (e->reason == KVR_CLIENT_FINISHED)
		CU_ASSERT_EQUAL(r->items, r->ask.items);
}

static const struct kvr_client_ops client_ops = {.on_item = on_item, .on_end = on_end};

static void submit_request(uint32_t flags)
{
	static const uint32_t tokens[20] = {1, 2, 3};
	struct kvr_client_hints *hints = kvr_client_hints_create();
	struct request *r = &all.req[all.n];
	const struct kvr_client_request q = {.tokens = tokens,
					     .n_tokens = 20,
					     .max_tokens = 33,
					     .flags = flags,
					     .body = &r->ask,
					     .body_len = sizeof(r->ask),
					     .hints = hints,
					     .ops = &client_ops,
					     .user = r};

	r->ask = (struct ask){.number = all.n++, .items = 1 + kvr_rand_below(&wire.rnd, 30)};
	kvr_client_hint_lora(hints, "adapter");
	kvr_client_hint_prefill_worker(hints, PAIR_WORKERS); /* the router sends its own reason */
	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(all.client, &q, &r->id), 0);
	kvr_client_hints_destroy(hints);
}

static void run_turn(void)
{
	wire.now_us += 250;
	pair_turn();
	for (int i = 0; i < 2; i++)
		kvr_agent_process(all.agent[i]);
	run_engines();
	for (int i = 0; i < 2; i++)
		kvr_agent_process(all.agent[i]);
	kvr_client_process(all.client);
}

static void run_ms(uint32_t ms)
{
	for (uint32_t i = 0; i < 4 * ms; i++)
		run_turn();
}

static void start_ends(uint64_t seed, uint32_t loss, uint32_t dup, uint32_t delay_us,
		       uint32_t faults)
{
	static const struct kvr_client_conf cc = {.max_requests = PAIR_MAX, .silence_ms = 60000};

	memset(&all, 0, sizeof(all));
	memset(&pair, 0, sizeof(pair));
	net_start(seed, loss, dup, delay_us);
	all.faults = faults;
	pair.at = net_addr(1, 7650);
	for (uint8_t i = 0; i < 3; i++) {
		all.end[i].at = net_addr((uint8_t)(2 + i), 1000);
		all.end[i].udp = (struct kvr_udp){&end_io, &all.end[i]};
	}
	all.client = kvr_client__create_on(&cc, &pair.at, &all.end[0].udp);
	for (int i = 0; i < 2; i++) {
		const struct kvr_agent_conf ac = {.worker = PAIR_WORKERS + i,
						  .pool = "pool",
						  .role = i == 0 ? KVR_ROLE_PREFILL
								 : KVR_ROLE_DECODE,
						  .block_size = 16,
						  .epoch = 3,
						  .ops = &agent_ops};

		pair.agent[i] = all.end[1 + i].at;
		all.agent[i] = kvr_agent__create_on(&ac, &pair.at, &all.end[1 + i].udp);
		CU_ASSERT_PTR_NOT_NULL_FATAL(all.agent[i]);
	}
	CU_ASSERT_PTR_NOT_NULL_FATAL(all.client);
	for (uint32_t i = 0;
	     i < 40000 && kvr_agent_state_now(all.agent[0]) + kvr_agent_state_now(all.agent[1]) !=
				  2 * KVR_AGENT_SERVING;
	     i++)
		run_turn();
}

static void finish_requests(uint32_t limit_ms)
{
	for (uint32_t i = 0; i < limit_ms && all.ended < all.n; i++)
		run_ms(1);
	CU_ASSERT_EQUAL(all.ended, all.n);
	run_ms(25000); /* all retransmissions are answered or given up */
	for (uint32_t i = 0; i < all.n; i++)
		CU_ASSERT_EQUAL(all.req[i].ends, 1);
	CU_ASSERT_EQUAL(kvr_client_in_flight(all.client), 0);
	for (int i = 0; i < 2; i++)
		CU_ASSERT_EQUAL(kvr_agent_running(all.agent[i]), 0);
}

static void stop_ends(void)
{
	kvr_client_destroy(all.client);
	kvr_agent_destroy(all.agent[0]);
	kvr_agent_destroy(all.agent[1]);
	net_stop();
}

static void both_legs_are_served_once_despite_losses(void)
{
	static const struct {
		uint32_t loss, dup, delay_us;
	} rows[] = {{0, 0, 0}, {50, 30, 2000}, {150, 100, 10000}, {300, 100, 30000}};

	for (uint32_t k = 0; k < RTE_DIM(rows); k++) {
		start_ends(k + 1, rows[k].loss, rows[k].dup, rows[k].delay_us, 0);
		for (uint32_t i = 0; i < 150; i++) {
			submit_request(i % 3 == 0 ? KVR_CLIENT_DIRECT : 0);
			run_ms(2);
		}
		finish_requests(120000);
		CU_ASSERT_EQUAL(all.by_reason[KVR_CLIENT_FINISHED], 150);
		CU_ASSERT_EQUAL(all.n_runs, 300); /* each leg once */
		stop_ends();
	}
}

/* One prefill in five fails: the second attempt serves most requests, and no answer mixes two
 * attempts. */
static void failed_prefills_are_retried(void)
{
	uint32_t refused = 0; /* 4 % per seed, possibly none */

	for (uint64_t seed = 1; seed <= 4; seed++) {
		start_ends(seed, 100, 50, 5000, 200);
		for (uint32_t i = 0; i < 150; i++) {
			submit_request(i % 3 == 0 ? KVR_CLIENT_DIRECT : 0);
			run_ms(2);
		}
		finish_requests(120000);
		CU_ASSERT_EQUAL(all.by_reason[KVR_CLIENT_FINISHED] +
					all.by_reason[KVR_CLIENT_REJECTED],
				150);
		CU_ASSERT(all.by_reason[KVR_CLIENT_FINISHED] > 120);
		refused += all.by_reason[KVR_CLIENT_REJECTED];
		CU_ASSERT(pair.started_over > 10);
		for (uint32_t i = 0; i < all.n; i++)
			if (all.req[i].end.reason == KVR_CLIENT_REJECTED)
				CU_ASSERT_EQUAL(all.req[i].end.code, KVR_E_PREFILL_FAILED);
		stop_ends();
	}
	CU_ASSERT(refused > 0);
}

static void cancelled_requests_leave_nothing_running(void)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		start_ends(seed, 100, 50, 5000, 100);
		for (uint32_t i = 0; i < 150; i++) {
			submit_request(i % 3 == 0 ? KVR_CLIENT_DIRECT : 0);
			run_ms(2);
			if (i >= 10 && i % 2 == 0) /* in any phase, or ended */
				kvr_client_cancel(all.client,
						  all.req[i - kvr_rand_below(&wire.rnd, 11)].id);
		}
		finish_requests(120000);
		CU_ASSERT(all.by_reason[KVR_CLIENT_CANCELLED] > 20);
		CU_ASSERT(all.by_reason[KVR_CLIENT_FINISHED] > 50);
		CU_ASSERT_EQUAL(all.by_reason[KVR_CLIENT_LOST], 0);
		stop_ends();
	}
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(both_legs_are_served_once_despite_losses),
		KVR_CASE(failed_prefills_are_retried),
		KVR_CASE(cancelled_requests_leave_nothing_running),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("lossy_legs", tests);
}
