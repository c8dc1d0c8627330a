/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work per turn is bounded: a pool of 65,536 requests, thousands of which end, wait, are aborted or
 * are checked for the same reason at the same time. For frames see test_turns_frames.c.
 */
#include "turns.h"

#define WORKER 9u
#define OTHER  10u
#define MANY   4096u
#define MS     UINT64_C(1000000)

/* ---- the pool ---- */

#define POOL                                                                                       \
	"[pool a]\nid = 5\nblock_size = 4\nmax_ranks = 512\nmax_requests = 65536\n"                \
	"max_blocks = 64k\nmax_active_blocks = 1048576\n"

static void begin_turns(const char *keys)
{
	begin_turn_router(POOL, keys);
}

/* Receive @p n requests. */
static void receive_routes(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		peers_route_send(PEER_CLIENT, ++id, 0, "body");
		if (i % 16 == 15)
			run_timed_turn();
	}
	run_timed_turn();
	run_timed_turn();
	begin_measure();
}

static uint64_t count_checked(void)
{
	static uint64_t all;
	static uint32_t last;
	const uint32_t n = kvr_flight_size(rt->pool[0].requests), at = rt->pool[0].live.sweep;

	all += (at + n - last) % n;
	last = at;
	return all;
}

/* One waits, so that all slots are checked every 160 ms. */
static void checked_slots_per_turn(void)
{
	uint64_t most;

	begin_turns("max_jobs = 4096\nrouter_queue_threshold = 0.5\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 64));
	receive_routes(20000);
	CU_ASSERT(kvr_sched_counters(rt->pool[0].sched)->waiting_now > 0);
	pipeline_skip(10);
	most = run_round_beside(count_checked);
	report_turns("checked slots", most);
	CU_ASSERT(most <= 128);
	end_turn_router();
}

static uint64_t count_lost(void)
{
	return get_counter(PC_LOST);
}

static void send_leave(uint64_t worker)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = 3, .epoch = 1};
	uint8_t buf[64];

	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
	run_timed_turn();
	begin_measure();
}

static void bookings_of_a_worker_that_leaves(void)
{
	uint64_t most;

	begin_turns("max_jobs = 4096\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 64));
	receive_routes(MANY);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, MANY);
	send_leave(WORKER);
	most = run_round_beside(count_lost);
	report_turns("bookings lost", most);
	CU_ASSERT_EQUAL(get_counter(PC_LOST), MANY);
	CU_ASSERT(most <= ENDS_TURN);
	end_turn_router();
}

static uint64_t count_rejected(void)
{
	return get_counter(PC_ADMISSION_REJECTED);
}

static void let_many_wait(void)
{
	begin_turns("max_jobs = 4096\nrouter_queue_threshold = 0.5\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 1));
	receive_routes(3000);
	CU_ASSERT(kvr_sched_counters(rt->pool[0].sched)->waiting_now > 2000);
}

static void waiting_requests_without_a_worker(void)
{
	uint64_t most;

	let_many_wait();
	send_leave(WORKER);
	most = run_round_beside(count_rejected);
	report_turns("rejected waiting requests", most);
	CU_ASSERT(most <= 8);
	end_turn_router();
}

/* ABORTs that are due. */
static uint32_t aborts_due(void)
{
	const struct kvr_flight *f;
	uint32_t n = 0;

	TAILQ_FOREACH (f, &rt->pool[0].live.aborts, abort_link)
		n += f->abort_ns <= rt->ns_offset;
	return n;
}

static void cancel_requests(void)
{
	for (uint64_t i = 1; i <= id; i++) {
		const struct kvr_wire_ids ids = {.source = 77, .id = i, .epoch = 1};
		uint8_t buf[64];
		int len = kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids);

		pipeline_send(PEER_CLIENT, buf, (size_t)len);
		if (i % 16 == 0)
			run_timed_turn();
	}
	run_timed_turn();
}

static void aborts_due_after_a_pause(void)
{
	uint32_t due, left, most = 0;

	begin_turns("max_jobs = 4096\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 64));
	receive_routes(MANY);
	cancel_requests();
	pipeline_skip(2000);
	CU_ASSERT_EQUAL_FATAL(aborts_due(), MANY);
	begin_measure();
	for (due = MANY; due > 0; due = left) {
		run_timed_turn();
		left = aborts_due();
		most = RTE_MAX(most, due - left);
		CU_ASSERT_FATAL(left < due);
	}
	report_turns("ABORTs", most);
	CU_ASSERT(most <= 32);
	end_turn_router();
}

/* ---- retransmissions ---- */

/*
 * The router retransmits legs of a pair: none is acknowledged, and all are due. With @p keys they
 * may go to another worker, which takes two decisions each in addition.
 */
static void legs_due(const char *keys, uint64_t bound)
{
	char all_keys[512];

	const struct pipeline_worker w = {.id = OTHER,
					  .epoch = 1,
					  .pool = "p",
					  .ranks = 8,
					  .from = PEER_OTHER,
					  .role = KVR_ROLE_PREFILL};
	uint64_t before, n, most = 0, all;
	uint32_t turns = 0;

	snprintf(all_keys, sizeof(all_keys),
		 "max_jobs = 1100\nmodel = m\nrole = decode\n%s[pool p]\nid = 6\nmodel = m\n"
		 "role = prefill\n"
		 "block_size = 4\nmax_ranks = 64\nmax_requests = 4096\nmax_jobs = 64\n"
		 "max_blocks = 64k\nmax_active_blocks = 65536\n%s",
		 keys, keys);
	begin_turns(all_keys);
	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&w));
	CU_ASSERT_TRUE_FATAL(
		pipeline_hello_as(&(const struct pipeline_worker){.id = WORKER,
								  .epoch = 1,
								  .pool = "a",
								  .ranks = 8,
								  .from = PEER_AGENT,
								  .role = KVR_ROLE_DECODE}));
	receive_routes(1024);
	all = kvr_stats_get(rt->pool[1].count, PC_DISPATCHES);
	CU_ASSERT_EQUAL_FATAL(kvr_sched_counters(rt->pool[1].sched)->booked_now, 1024);
	pipeline_skip(2000);
	begin_measure();
	for (before = all; before < all + 1024 && turns < 1024; before += n, turns++) {
		run_timed_turn();
		n = kvr_stats_get(rt->pool[1].count, PC_DISPATCHES) - before;
		most = RTE_MAX(most, n);
	}
	report_turns("retransmitted legs", most);
	CU_ASSERT(turns < 1024);
	CU_ASSERT(most > 0 && most <= bound);
	end_turn_router();
}

static void legs_due_after_a_pause(void)
{
	legs_due("dispatch_ms = 0\n", 32);
	legs_due("", 32 + 2 * 4);
}

/* ---- queries about all ranks ---- */

#define QUESTIONS 32u

/* POTENTIAL_LOADS of a prompt of 128 blocks. */
static void ask_loads(void)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = ++id, .msg_seq = (uint32_t)id};
	uint64_t hash[128];
	struct kvr_request_src src = {.fixed = {.pool = 5,
						.isl = 512,
						.max_tokens = KVR_NONE32,
						.expected_output_tokens = KVR_NONE32},
				      .hashes = hash,
				      .n_hashes = RTE_DIM(hash)};
	uint8_t frame[KVR_WIRE_DEF_FRAME];
	struct kvr_slice s[KVR_REQUEST_SLICES];
	struct kvr_frag f;
	uint32_t len, off, part;

	for (uint32_t i = 0; i < RTE_DIM(hash); i++)
		hash[i] = id * 1000 + i;
	len = kvr_request_build(&src, s);
	CU_ASSERT_FATAL(kvr_frag_init(&f, KVR_POTENTIAL_LOADS, &ids, len, sizeof(frame)) == 0);
	CU_ASSERT_FATAL(kvr_frag_next(&f, frame, &off, &part));
	kvr_slices_copy(s, KVR_REQUEST_SLICES, off, part, frame + sizeof(struct kvr_wire_hdr));
	pipeline_send(PEER_CLIENT, frame, sizeof(struct kvr_wire_hdr) + part);
}

static void loads_of_all_ranks(void)
{
	uint64_t before, most = 0;

	begin_turns("max_jobs = 4096\n");
	for (uint32_t i = 0; i < 8; i++)
		CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER + i, 1, "a", 64));
	for (uint32_t i = 0; i < QUESTIONS; i++)
		ask_loads();
	begin_measure();
	for (uint32_t turns = 0; turns <= QUESTIONS; turns++) {
		before = get_counter(PC_LOAD_QUERIES);
		run_timed_turn();
		most = RTE_MAX(most, get_counter(PC_LOAD_QUERIES) - before);
	}
	report_turns("queries about 512 ranks", most);
	CU_ASSERT_EQUAL(get_counter(PC_LOAD_QUERIES), QUESTIONS);
	CU_ASSERT(most <= 2); /* 1,024 ranks */
	end_turn_router();
}

/* ---- time ---- */

static uint64_t get_handle(uint64_t request)
{
	struct kvr_flight_table *t = rt->pool[0].requests;

	return kvr_flight_handle(t, kvr_flight_lookup(t, 77, request));
}

static uint64_t count_released(void)
{
	return get_counter(PC_RELEASED);
}

static void bookings_released_together(void)
{
	uint64_t most = 0;

	begin_turns("max_jobs = 4096\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 64));
	receive_routes(MANY);
	for (uint64_t i = 1; i <= id;
	     i++) { /* acknowledged by their worker: no client needs to renew */
		const uint64_t h = get_handle(i);
		const struct kvr_wire_dispatch_ack a = {.code = 0};
		const struct kvr_wire_ids ids = {.source = 77, .id = i, .handle = h, .epoch = 1};
		uint8_t buf[64];

		pipeline_send(PEER_AGENT, buf,
			      (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &a));
		if (i % 16 == 0)
			run_timed_turn();
	}
	run_timed_turn();
	pipeline_skip(400000);
	begin_measure();
	while (count_released() < MANY) {
		const uint64_t before = count_released();

		most = RTE_MAX(most, run_round_beside(count_released));
		CU_ASSERT_FATAL(count_released() > before);
	}
	report_turns("bookings released", most);
	CU_ASSERT(most <= ENDS_TURN);
	end_turn_router();
}

/* All requests of a large worker are reported at once, together with those of others. */
static void reports_of_live_requests(void)
{
	uint64_t handle[KVR_WIRE_ALIVE_MOST], before, most = 0;
	const struct kvr_wire_ids ids = {.source = WORKER, .epoch = 1};
	uint8_t buf[KVR_WIRE_DEF_FRAME];

	begin_turns("max_jobs = 4096\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 64));
	receive_routes(MANY);
	for (uint64_t i = 0; i < MANY; i += KVR_WIRE_ALIVE_MOST) {
		for (uint32_t k = 0; k < KVR_WIRE_ALIVE_MOST; k++)
			handle[k] = get_handle(1 + (i * 97 + k * 61) % MANY);
		pipeline_send(
			PEER_AGENT, buf,
			(size_t)kvr_put_alive(buf, sizeof(buf), &ids, handle, KVR_WIRE_ALIVE_MOST));
	}
	begin_measure();
	for (uint32_t turns = 0; turns < 2 * MANY / KVR_WIRE_ALIVE_MOST; turns++) {
		before = get_counter(PC_ALIVE);
		run_timed_turn();
		most = RTE_MAX(most, get_counter(PC_ALIVE) - before);
	}
	report_turns("requests reported", most);
	CU_ASSERT_EQUAL(get_counter(PC_ALIVE), MANY);
	CU_ASSERT_EQUAL(get_counter(PC_ALIVE_UNKNOWN), 0);
	CU_ASSERT(most <= 2 * KVR_WIRE_ALIVE_MOST);
	end_turn_router();
}

static uint64_t count_client_gone(void)
{
	return get_counter(PC_CLIENT_GONE);
}

static void clients_that_go_together(void)
{
	uint64_t most = 0;

	let_many_wait();
	pipeline_skip(30000);
	begin_measure();
	for (uint32_t i = 0; i < 1000 && count_client_gone() < 3000; i++) {
		pipeline_skip(10);
		most = RTE_MAX(most, run_round_beside(count_client_gone));
	}
	report_turns("clients gone", most);
	CU_ASSERT_EQUAL(count_client_gone(), 3000);
	CU_ASSERT(most <= ENDS_TURN);
	end_turn_router();
}

static uint64_t count_cut_off(void)
{
	return get_counter(PC_CANCELLED);
}

/* Like call_start(), but one turn of the lcore at a time. */
static void all_at_the_stop(void)
{
	struct stop_part part = {0};
	uint64_t most = 0, n;

	begin_turns("max_jobs = 4096\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 64));
	receive_routes(MANY);
	part.pool = &rt->pool[0];
	for (bool over = false; !over;) {
		n = count_cut_off();
		over = stop_cut(get_lcore(), &part);
		most = RTE_MAX(most, count_cut_off() - n);
		run_timed_turn();
	}
	report_turns("cut off", most);
	CU_ASSERT_EQUAL(part.n, MANY);
	CU_ASSERT(most <= 8);
	end_turn_router();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(checked_slots_per_turn),
			       KVR_CASE(bookings_of_a_worker_that_leaves),
			       KVR_CASE(waiting_requests_without_a_worker),
			       KVR_CASE(aborts_due_after_a_pause),
			       KVR_CASE(legs_due_after_a_pause),
			       KVR_CASE(loads_of_all_ranks),
			       KVR_CASE(bookings_released_together),
			       KVR_CASE(reports_of_live_requests),
			       KVR_CASE(clients_that_go_together),
			       KVR_CASE(all_at_the_stop),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("turns", tests);
}
