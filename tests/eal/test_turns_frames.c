/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work per turn is bounded for messages of any length: frames of dropped messages, of requests that
 * end together, and of a message that must be sent before its ABORT.
 */
#include "turns.h"

#include "ingress/fragment.h"
#include "sched/long_prompt.h"

#define WORKER 9u
#define OTHER  10u

#define POOL                                                                                       \
	"[pool a]\nid = 5\nblock_size = 4\nmax_ranks = 64\nmax_requests = 4096\nmax_jobs = 1024\n" \
	"max_blocks = 64k\nmax_active_blocks = 65536\n"

static void begin_frame_turns(const char *keys)
{
	begin_turn_router(POOL, keys);
}

static const struct kvr_reasm_stats *get_reasm(void)
{
	return kvr_reasm_stats(get_lcore()->reasm);
}

/* ---- incomplete messages ---- */

/* Fragment @p k of a message of @p frames fragments from host @p host. */
static void send_piece(uint8_t host, uint64_t message, uint32_t frames, uint32_t k)
{
	static uint8_t f[sizeof(struct kvr_wire_hdr) + 512];
	const struct kvr_wire_ids ids = {.source = 666, .id = message};

	pipeline_host = host;
	kvr_hdr_put(f, KVR_ROUTE, &ids, frames * 512, k * 512, 512);
	pipeline_send(5000, f, sizeof(f));
	pipeline_host = 2;
}

/* Four of the largest messages without their last fragment. @return frames held. */
static uint64_t send_unfinished(void)
{
	const uint32_t frames = rt->sizes.max_frames;

	CU_ASSERT_TRUE_FATAL(frames > 2 * FREE_TURN);
	for (uint32_t i = 0; i < 4 * (frames - 1); i++) {
		send_piece((uint8_t)(60 + i / (frames - 1)), 1 + i / (frames - 1), frames,
			   i % (frames - 1));
		if (i % 16 == 15)
			run_timed_turn();
	}
	run_timed_turn();
	CU_ASSERT_EQUAL_FATAL(get_reasm()->messages, 4);
	return get_reasm()->frames;
}

static void largest_messages_overdue_after_a_pause(void)
{
	uint64_t held, before, most = 0;

	begin_frame_turns("");
	held = send_unfinished();
	pipeline_skip(60000);
	begin_measure();
	for (uint32_t i = 0; i <= held / FREE_TURN + 4; i++) {
		before = get_reasm()->dropped_frames;
		run_timed_turn();
		most = RTE_MAX(most, get_reasm()->dropped_frames - before);
		CU_ASSERT_EQUAL(get_reasm()->messages, 0); /* all are dropped at once */
	}
	report_turns("frames of dropped messages", most);
	CU_ASSERT_EQUAL(get_reasm()->frames, 0);
	CU_ASSERT_EQUAL(get_reasm()->dropped_frames, held);
	CU_ASSERT(most <= FREE_TURN);
	end_turn_router();
}

/* The table is full, and many sources begin a message: each needs a place. */
static void room_for_new_messages_in_a_full_table(void)
{
	uint64_t before, most = 0, n = 0;

	begin_frame_turns("");
	send_unfinished();
	for (uint32_t i = 0; get_reasm()->evicted == 0; i++) { /* up to the bound */
		send_piece((uint8_t)(70 + i / 400), 100 + i / 400, 512, i % 400);
		if (i % 16 == 15)
			run_timed_turn();
		CU_ASSERT_FATAL(i < 100000);
	}
	begin_measure();
	for (uint32_t t = 0; t < 200; t++) {
		for (uint32_t i = 0; i < 32; i++, n++)
			send_piece((uint8_t)(100 + n % 100), 10000 + n, 16, (uint32_t)(n % 2));
		before = get_reasm()->dropped_frames;
		run_timed_turn();
		most = RTE_MAX(most, get_reasm()->dropped_frames - before);
	}
	report_turns("frames of evicted messages", most);
	/* Each of them gets a place as it arrives. */
	CU_ASSERT_EQUAL(kvr_stats_get(get_lcore()->reject, KVR_E_REASSEMBLY_FULL), 0);
	CU_ASSERT(most > 0 && most <= 2 * FREE_TURN);
	end_turn_router();
}

/* ---- requests that end together ---- */

/* In one burst: each frees the frames that waited with it. */
static void waiting_messages_cancelled_together(void)
{
	uint32_t before, after, most = 0, waiting;

	begin_frame_turns("router_queue_threshold = 0.5\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 1));
	pipeline_route(++id, 7, 200, 0, NULL); /* occupies its worker */
	pipeline_body_len = 80000;
	for (uint32_t i = 0; i < 64; i++)
		pipeline_route(++id, 7, 200, 0, NULL);
	pipeline_body_len = 4;
	waiting = (uint32_t)kvr_sched_counters(rt->pool[0].sched)->waiting_now;
	CU_ASSERT_EQUAL_FATAL(waiting, 64);
	for (uint64_t i = 2; i <= id; i++) {
		const struct kvr_wire_ids ids = {.source = 77, .id = i, .epoch = 1};
		uint8_t buf[64];

		pipeline_send(PEER_CLIENT, buf,
			      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
	}
	begin_measure();
	pipeline_flush();
	for (uint32_t i = 0; i < 40; i++) {
		before = pipeline_mbufs_used();
		run_timed_turn();
		after = pipeline_mbufs_used();
		most = before > after ? RTE_MAX(most, before - after) : most;
	}
	report_turns("buffers freed", most);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->waiting_now, 0);
	CU_ASSERT(most > 0 && most <= FREE_TURN + 2 * BURST); /* and the messages' own */
	CU_ASSERT_PTR_NULL(get_lcore()->trash);
	end_turn_router();
}

/* ---- a leg that is aborted before it was sent ---- */

static struct kvr_wire_hdr leg; /* header of its first fragment */

/* The decode worker reports all of it as missing. */
static void report_missing(void)
{
	static uint8_t buf[4096];
	static uint64_t words[SENDING_WORDS];
	const struct kvr_wire_ids ids = {
		.source = leg.source, .id = leg.id, .handle = leg.handle, .epoch = 1};
	const uint32_t n = (leg.msg_len + leg.frag_len - 1) / leg.frag_len;
	struct kvr_wire_missing m = {.kind = KVR_DISPATCH,
				     .n_words = (uint16_t)((n + 63) / 64),
				     .msg_seq = leg.msg_seq,
				     .msg_len = leg.msg_len,
				     .unit = leg.frag_len};

	memset(words, 0, sizeof(words));
	for (uint32_t i = 0; i < n; i++)
		words[i / 64] |= UINT64_C(1) << i % 64;
	pipeline_send(PEER_AGENT, buf,
		      (size_t)kvr_put_message(buf, sizeof(buf), KVR_MISSING, &ids,
					      (struct kvr_slice){&m, sizeof(m)},
					      (struct kvr_slice){words, m.n_words * 8u}));
}

static void begin_pair_turns(void)
{
	begin_frame_turns("model = m\nrole = decode\n[pool p]\nid = 6\nmodel = m\nrole = prefill\n"
			  "block_size = 4\nmax_ranks = 64\nmax_requests = 4096\nmax_jobs = 64\n"
			  "max_blocks = 64k\nmax_active_blocks = 65536\n");
	CU_ASSERT_TRUE_FATAL(
		pipeline_hello_as(&(const struct pipeline_worker){.id = OTHER,
								  .epoch = 1,
								  .pool = "p",
								  .ranks = 1,
								  .from = PEER_OTHER,
								  .role = KVR_ROLE_PREFILL,
								  .host = "here",
								  .port = 1}));
	CU_ASSERT_TRUE_FATAL(
		pipeline_hello_as(&(const struct pipeline_worker){.id = WORKER,
								  .epoch = 1,
								  .pool = "a",
								  .ranks = 1,
								  .from = PEER_AGENT,
								  .role = KVR_ROLE_DECODE}));
}

/*
 * A long request whose decode leg is retransmitted, and cancelled at that moment. @return its
 * fragments.
 */
static uint32_t cancel_half_sent(void)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = ++id, .epoch = 1};
	const struct kvr_wire_dispatch_ack ack = {.code = 0};
	struct kvr_wire_ids prefill;
	const struct out *o;
	uint8_t buf[64];

	pipeline_flush();
	pipeline_body_len = 1000000;
	pipeline_route(id, 7, 200, 0, NULL);
	pipeline_body_len = 4;
	o = pipeline_expect(PEER_OTHER, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	prefill =
		(struct kvr_wire_ids){.source = 77, .id = id, .handle = o->hdr.handle, .epoch = 1};
	o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL_FATAL(o->hdr.frag_off, 0);
	leg = o->hdr;
	pipeline_flush();
	pipeline_send(PEER_OTHER, buf,
		      (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &prefill, &ack));
	report_missing();
	run_timed_turn();
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
	return (leg.msg_len + leg.frag_len - 1) / leg.frag_len;
}

/* The worker receives the whole leg, then ABORT, and the frames are freed. */
static void rest_of_a_leg_before_its_abort(void)
{
	uint32_t n, sent = 0, most = 0, aborts = 0, used, in_turn;
	const struct out *o;

	begin_pair_turns();
	used = pipeline_mbufs_used();
	n = cancel_half_sent();
	CU_ASSERT_FATAL(n > 500);
	begin_measure();
	for (uint32_t t = 0; t < 200 && aborts == 0; t++, most = RTE_MAX(most, in_turn)) {
		lcore_turn(get_lcore());
		pipeline_collect();
		for (in_turn = 0; (o = pipeline_next(PEER_AGENT)) != NULL;) {
			in_turn += o->hdr.kind == KVR_DISPATCH;
			aborts += o->hdr.kind == KVR_ABORT;
		}
		sent += in_turn;
		pipeline_flush();
		pipeline_skip(1);
	}
	report_turns("frames of a leg", most);
	CU_ASSERT_EQUAL(aborts, 1);
	CU_ASSERT(sent >= n - 64); /* a slice or two were sent before */
	CU_ASSERT(most > 0 && most <= 64);
	for (uint32_t t = 0; t < 8; t++)
		run_timed_turn();
	CU_ASSERT_TRUE(TAILQ_EMPTY(&rt->pool[0].live.sends));
	CU_ASSERT(rte_mempool_in_use_count(rt->pool[0].jobs) == 0);
	CU_ASSERT(pipeline_mbufs_used() - used < 16);
	end_turn_router();
}

/* Or its slot is needed earlier, its worker goes, or the router stops. */
static void a_partly_sent_leg_is_freed(void)
{
	static const uint8_t ends[] = {KVR_GOODBYE, 0, 1, 2};
	uint32_t used;

	for (uint32_t i = 0; i < RTE_DIM(ends); i++) {
		const struct kvr_wire_ids ids = {.source = WORKER, .id = 3, .epoch = 1};
		struct stop_part part = {0};
		uint8_t buf[64];

		begin_pair_turns();
		used = (uint32_t)rte_mempool_in_use_count(rt->pool[0].pairs);
		CU_ASSERT_EQUAL(used, 0);
		cancel_half_sent();
		run_timed_turn();
		CU_ASSERT_FALSE(TAILQ_EMPTY(&rt->pool[0].live.sends));
		if (ends[i] == KVR_GOODBYE)
			pipeline_send(PEER_AGENT, buf,
				      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
		if (ends[i] == 1)
			linger_over(get_lcore(), &rt->pool[0],
				    kvr_flight_oldest(rt->pool[0].requests));
		part.pool = &rt->pool[0];
		while (ends[i] == 2 && !stop_cut(get_lcore(), &part))
			;
		pipeline_turn();
		CU_ASSERT_TRUE(TAILQ_EMPTY(&rt->pool[0].live.sends));
		pipeline_advance(400000); /* the prefill leg reaches its age limit */
		pipeline_advance(KVR_FLIGHT_LINGER_NS / 1000000 + 1);
		pipeline_advance(5000);
		CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[0].pairs), 0);
		CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[0].jobs), 0);
		CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
		end_turn_router();
	}
}

/* ---- prompts that take longer than a turn ---- */

#define BLOCKS 62500u /* 977 runs: 4 MB of tokens in blocks of 16 */

#define LONG_POOL                                                                                  \
	"[pool a]\nid = 5\nblock_size = 4\nmax_ranks = 64\nmax_requests = 4096\nmax_jobs = 1024\n" \
	"max_blocks = 1M\nmax_active_blocks = 524288\nmax_prompt_blocks = 65536\n"

static uint64_t most_runs;

static void run_step(void)
{
	const uint64_t before = long_prompt_walked(&rt->pool[0]);

	run_timed_turn();
	most_runs = RTE_MAX(most_runs, long_prompt_walked(&rt->pool[0]) - before);
}

static void run_steps(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		run_step();
}

static void begin_long_prompts(const char *keys)
{
	begin_turn_router(LONG_POOL, keys);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 2));
	most_runs = 0;
	begin_measure();
}

static void expect_bounded(const char *what)
{
	report_turns(what, most_runs);
	CU_ASSERT(most_runs > 0 && most_runs <= LONG_PROMPT_MOST);
	most_runs = 0;
	begin_measure();
}

/* ROUTE or POTENTIAL_LOADS of the hashes hash0, hash0 + 1, ... */
static void send_prompt(uint8_t kind, uint64_t hash0, uint32_t n)
{
	static uint64_t hash[BLOCKS];
	const struct kvr_wire_ids ids = {
		.source = 77, .id = ++id, .epoch = 1, .msg_seq = (uint32_t)id};
	struct kvr_request_src src = {.fixed = {.pool = 5,
						.worker = pipeline_cookie,
						.isl = n * 4,
						.max_tokens = KVR_NONE32,
						.expected_output_tokens = KVR_NONE32},
				      .hashes = hash,
				      .n_hashes = n};
	uint8_t frame[KVR_WIRE_DEF_FRAME];
	struct kvr_slice s[KVR_REQUEST_SLICES];
	uint32_t len, off, part, sent = 0;
	struct kvr_frag f;

	for (uint32_t i = 0; i < n; i++)
		hash[i] = hash0 + i;
	len = kvr_request_build(&src, s);
	CU_ASSERT_FATAL(len != 0 && kvr_frag_init(&f, kind, &ids, len, sizeof(frame)) == 0);
	while (kvr_frag_next(&f, frame, &off, &part)) {
		kvr_slices_copy(s, KVR_REQUEST_SLICES, off, part,
				frame + sizeof(struct kvr_wire_hdr));
		pipeline_send(PEER_CLIENT, frame, sizeof(struct kvr_wire_hdr) + part);
		if (++sent % 16 == 0)
			run_step();
	}
}

static void send_cancel(uint64_t request)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = request, .epoch = 1};
	uint8_t buf[64];

	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
}

static const struct kvr_sched_counters *get_sched_counters(void)
{
	return kvr_sched_counters(rt->pool[0].sched);
}

static uint32_t count_active_blocks(void)
{
	uint32_t sum = 0;

	for (uint32_t r = 0; r < 64; r++)
		sum += kvr_active_blocks(kvr_sched_active(rt->pool[0].sched))[r];
	return sum;
}

static void expect_nothing_kept(void)
{
	CU_ASSERT_TRUE(long_prompt_idle(&rt->pool[0]));
	CU_ASSERT_PTR_NULL(rt->pool[0].live.entering);
	CU_ASSERT_EQUAL(count_active_blocks(), 0);
	CU_ASSERT_PTR_NULL(kvr_active_check(kvr_sched_active(rt->pool[0].sched)));
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[0].jobs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hash_bufs), 0);
}

/* A new prompt, the same again, a query about it, others at the same time, and their ends. */
static void long_prompts_are_booked_in_slices(void)
{
	begin_long_prompts("");
	send_prompt(KVR_ROUTE, 1, BLOCKS);
	run_steps(100);
	expect_bounded("runs of a booking");
	CU_ASSERT_EQUAL(get_sched_counters()->booked_now, 1);
	CU_ASSERT_EQUAL(count_active_blocks(), BLOCKS);
	send_prompt(KVR_POTENTIAL_LOADS, 1, BLOCKS);
	run_steps(100);
	expect_bounded("runs of a query");
	CU_ASSERT_EQUAL(get_counter(PC_LOAD_QUERIES), 1);
	for (uint32_t i = 0; i < 24; i++) {
		send_prompt(KVR_ROUTE, 100000 + i * 4000, 1500);
		run_steps(10);
		send_prompt(KVR_POTENTIAL_LOADS, 100000 + i * 4000, 1500);
		run_steps(10);
	}
	expect_bounded("runs of shorter ones");
	send_prompt(KVR_ROUTE, 1, BLOCKS);
	CU_ASSERT_EQUAL(get_sched_counters()->booked_now, 25);
	CU_ASSERT_EQUAL(get_counter(PC_LOAD_QUERIES), 25);
	for (uint64_t i = 1; i <= id; i++)
		send_cancel(i);
	for (uint32_t i = 0; i < 200; i++) {
		run_step();
		CU_ASSERT(kvr_sched_settled(rt->pool[0].sched) == long_prompt_idle(&rt->pool[0]));
	}
	send_cancel(id);
	run_steps(100);
	expect_bounded("runs of their ends");
	CU_ASSERT_EQUAL(get_sched_counters()->booked_now, 0);
	expect_nothing_kept();
	end_turn_router();
}

/* Admitted when the rank has capacity. */
static void waiting_long_prompts_are_booked_in_slices(void)
{
	begin_long_prompts("router_queue_threshold = 0.01\n");
	send_prompt(KVR_ROUTE, 1, BLOCKS);
	run_steps(100);
	send_prompt(KVR_ROUTE, 200000, BLOCKS);
	run_steps(100);
	send_prompt(KVR_ROUTE, 1, BLOCKS);
	send_prompt(KVR_ROUTE, 1, 8);
	run_steps(100);
	CU_ASSERT_EQUAL_FATAL(get_sched_counters()->waiting_now, 2);
	expect_bounded("runs of waiting prompts");
	send_cancel(1);
	run_steps(100);
	send_cancel(2);
	run_steps(200);
	expect_bounded("runs of an admission");
	CU_ASSERT_EQUAL(get_sched_counters()->waiting_now, 0);
	CU_ASSERT_EQUAL(get_sched_counters()->admitted, 2);
	for (uint64_t i = 1; i <= id; i++)
		send_cancel(i);
	run_steps(100);
	expect_nothing_kept();
	end_turn_router();
}

static uint64_t count_walked(void)
{
	return long_prompt_walked(&rt->pool[0]);
}

/*
 * With late binding, requests count at the rank they wait for. When its worker goes they wait for
 * another one, and some end meanwhile.
 */
static void late_bound_long_prompts_are_booked_in_slices(void)
{
	const struct kvr_wire_ids bye = {.source = WORKER, .id = 3, .epoch = 1};
	uint64_t moves;
	uint8_t buf[64];

	begin_long_prompts("router_mode = ttft\nttft_late_binding = true\n");
	for (uint32_t i = 0; i < 10; i++) {
		send_prompt(KVR_ROUTE, 1 + i * UINT64_C(100000), i % 3 == 0 ? BLOCKS : 2000);
		run_steps(100);
	}
	CU_ASSERT_EQUAL(get_sched_counters()->booked_now, 2); /* the worker has two ranks */
	CU_ASSERT_EQUAL_FATAL(get_sched_counters()->waiting_now, 8);
	CU_ASSERT_EQUAL(count_active_blocks(), 4 * BLOCKS + 6 * 2000);
	expect_bounded("runs of prompts waiting for a rank");
	send_cancel(5);
	send_cancel(7);
	run_steps(100);
	expect_bounded("runs of finished prompts");
	send_cancel(2); /* shorter than the first, so that they wait for its rank */
	run_steps(300);
	expect_bounded("runs of cancelled prompts");
	CU_ASSERT(get_sched_counters()->admitted > 0);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(OTHER, 1, "a", 2));
	moves = kvr_sched_moves(rt->pool[0].sched);
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &bye));
	run_step();
	most_runs = RTE_MAX(most_runs, run_round_beside(count_walked));
	run_steps(500);
	expect_bounded("runs of prompts whose worker leaves");
	CU_ASSERT(kvr_sched_moves(rt->pool[0].sched) > moves);
	CU_ASSERT(get_sched_counters()->waiting_now > 2);
	for (uint64_t i = 1; i <= id; i++)
		send_cancel(i);
	run_steps(500);
	expect_bounded("runs of their ends");
	expect_nothing_kept();
	end_turn_router();
}

/* ---- pairs of pools ---- */

#define THIRD 11u

static void begin_long_prompt_pair(const char *prefill_keys)
{
	char keys[512];

	snprintf(keys, sizeof(keys),
		 "model = m\nrole = decode\n[pool p]\nid = 6\nmodel = m\nrole = prefill\n"
		 "block_size = 4\nmax_ranks = 64\nmax_requests = 4096\nmax_jobs = 64\n"
		 "max_blocks = 1M\nmax_active_blocks = 524288\nmax_prompt_blocks = 65536\n%s",
		 prefill_keys);
	begin_turn_router(LONG_POOL, keys);
	for (uint64_t w = OTHER; w <= THIRD; w++)
		CU_ASSERT_TRUE_FATAL(
			pipeline_hello_as(&(const struct pipeline_worker){.id = w,
									  .epoch = 1,
									  .pool = "p",
									  .ranks = 1,
									  .from = PEER_OTHER,
									  .role = KVR_ROLE_PREFILL,
									  .host = "here",
									  .port = 1}));
	CU_ASSERT_TRUE_FATAL(
		pipeline_hello_as(&(const struct pipeline_worker){.id = WORKER,
								  .epoch = 1,
								  .pool = "a",
								  .ranks = 1,
								  .from = PEER_AGENT,
								  .role = KVR_ROLE_DECODE}));
	most_runs = 0;
	begin_measure();
}

static void expect_bounded_pair(const char *what)
{
	report_turns(what, most_runs);
	CU_ASSERT(most_runs > 0 && most_runs <= LONG_PROMPT_MOST_PAIR);
	most_runs = 0;
	begin_measure();
}

static const struct kvr_sched_counters *get_prefill_counters(void)
{
	return kvr_sched_counters(rt->pool[1].sched);
}

/* The prefill leg of a request. */
static const struct kvr_flight *find_prefill_leg_slot(uint64_t request)
{
	for (uint32_t i = 0; i < kvr_flight_size(rt->pool[1].requests); i++) {
		const struct kvr_flight *slot = kvr_flight_slot(rt->pool[1].requests, i);

		if (slot->state == KVR_FLIGHT_LIVE && slot->relay.id == request)
			return slot;
	}
	CU_FAIL_FATAL("no prefill leg");
	return NULL;
}

static struct kvr_wire_ids make_prefill_ids(uint64_t request)
{
	return (struct kvr_wire_ids){
		.source = 77,
		.id = request,
		.handle = kvr_flight_handle(rt->pool[1].requests, find_prefill_leg_slot(request)),
		.epoch = 1};
}

static void decline_prefill(uint64_t request)
{
	const struct kvr_wire_dispatch_ack no = {.code = 9};
	const struct kvr_wire_ids ids = make_prefill_ids(request);
	uint8_t buf[64];

	pipeline_send(PEER_OTHER, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &no));
}

static void finish_prefill(uint64_t request)
{
	const struct kvr_wire_response r = {.flags = KVR_RESP_F_FIN, .cached_tokens = KVR_NONE32};
	const struct kvr_wire_ids ids = make_prefill_ids(request);
	uint8_t buf[128];

	pipeline_send(
		PEER_OTHER, buf,
		(size_t)kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){"", 0}));
}

static uint64_t count_runs_of_both(void)
{
	return long_prompt_walked(&rt->pool[0]);
}

/*
 * Both legs are decided at the arrival of a request, after a rejection, and after the loss of a
 * worker.
 */
static void retried_long_prompts_are_booked_in_slices(void)
{
	struct kvr_wire_ids bye = {.id = 3, .epoch = 1};
	uint8_t buf[64];

	begin_long_prompt_pair("");
	send_prompt(KVR_ROUTE, 1, BLOCKS);
	run_steps(200);
	expect_bounded_pair("runs of both legs");
	CU_ASSERT(get_sched_counters()->booked_now == 1 && get_prefill_counters()->booked_now == 1);
	decline_prefill(1);
	run_steps(200);
	expect_bounded_pair("runs of a further attempt");
	CU_ASSERT_EQUAL(get_counter(PC_RETRIES), 1);
	CU_ASSERT(get_sched_counters()->booked_now == 1 && get_prefill_counters()->booked_now == 1);
	send_cancel(1);
	finish_prefill(1);
	run_steps(300);
	CU_ASSERT(get_sched_counters()->booked_now == 0 && get_prefill_counters()->booked_now == 0);
	send_prompt(KVR_ROUTE, 1, BLOCKS);
	run_steps(200);
	most_runs = 0;
	bye.source = find_prefill_leg_slot(2)->relay.worker;
	pipeline_send(PEER_OTHER, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &bye));
	run_step();
	for (uint32_t i = 0; i < 40 && kvr_stats_get(rt->pool[1].count, PC_LOST) == 0; i++) {
		pipeline_skip(10);
		most_runs = RTE_MAX(most_runs, run_round_beside(count_runs_of_both));
	}
	run_steps(200);
	expect_bounded_pair("runs of a lost leg");
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[1].count, PC_LOST), 1);
	CU_ASSERT_EQUAL(get_counter(PC_RETRIES), 2);
	send_cancel(2);
	finish_prefill(2);
	run_steps(300);
	expect_bounded_pair("runs of their ends");
	CU_ASSERT(get_sched_counters()->booked_now == 0 && get_prefill_counters()->booked_now == 0);
	pipeline_advance(KVR_FLIGHT_LINGER_NS / 1000000 + 1);
	pipeline_advance(5000);
	expect_nothing_kept();
	end_turn_router();
}

/* The decode leg is decided when the prefill leg is admitted. */
static void long_prompts_waiting_for_prefill_are_booked_in_slices(void)
{
	begin_long_prompt_pair("router_queue_threshold = 0.01\n");
	for (uint32_t i = 0; i < 3; i++) {
		send_prompt(KVR_ROUTE, 1 + (i % 2) * 100000, BLOCKS);
		run_steps(200);
	}
	CU_ASSERT_EQUAL_FATAL(get_prefill_counters()->waiting_now, 1);
	CU_ASSERT_EQUAL(get_sched_counters()->booked_now, 2);
	expect_bounded_pair("runs of waiting prompts");
	finish_prefill(1);
	finish_prefill(2);
	run_steps(300);
	expect_bounded_pair("runs of an admission of both legs");
	CU_ASSERT(get_prefill_counters()->waiting_now == 0 &&
		  get_prefill_counters()->admitted == 1);
	CU_ASSERT_EQUAL(get_sched_counters()->booked_now, 3);
	finish_prefill(3);
	for (uint64_t i = 1; i <= id; i++)
		send_cancel(i);
	run_steps(300);
	pipeline_advance(KVR_FLIGHT_LINGER_NS / 1000000 + 1);
	pipeline_advance(5000);
	expect_nothing_kept();
	end_turn_router();
}

/* ---- predicted blocks ---- */

#define TURN_UNITS (512u + 2 * 512 + 8) /* and the last run */

static void predictions_of_long_prompts_are_added_in_slices(void)
{
	struct kvr_prefix_stats st;
	struct kvr_prefix *t;
	uint64_t before, most = 0;
	uint32_t bufs = 0, turns = 0;

	begin_long_prompts("use_kv_events = false\n");
	t = rt->pool[0].prefix;
	for (uint32_t i = 0; i < 2; i++) { /* new, then known */
		send_prompt(KVR_ROUTE, 1, BLOCKS);
		for (uint32_t k = 0; k < 2000; k++) {
			before = kvr_prefix_work(t);
			run_timed_turn();
			most = RTE_MAX(most, kvr_prefix_work(t) - before);
			bufs = RTE_MAX(bufs, rte_mempool_in_use_count(rt->hash_bufs));
			turns += event_is_open(&rt->pool[0].event);
		}
		CU_ASSERT_EQUAL(get_counter(PC_PREDICTIONS), i + 1);
	}
	report_turns("units of a prediction", most);
	CU_ASSERT(most > 0 && most <= TURN_UNITS);
	CU_ASSERT_EQUAL(bufs, 1); /* the scheduler has copied none of them */
	CU_ASSERT(turns > 100);
	kvr_prefix_stats_get(t, &st);
	CU_ASSERT_EQUAL(st.blocks, BLOCKS);
	send_cancel(1);
	send_cancel(2);
	run_steps(200);
	expect_nothing_kept();
	send_prompt(KVR_ROUTE, 1, BLOCKS); /* in the middle the router stops and its worker goes */
	for (uint32_t k = 0; k < 2000 && !event_is_open(&rt->pool[0].event); k++)
		run_timed_turn();
	CU_ASSERT_TRUE(event_is_open(&rt->pool[0].event));
	end_turn_router();
}

static uint64_t count_lost_bookings(void)
{
	return get_counter(PC_LOST);
}

/* During a booking, which keeps its message, the client or the worker goes, or the router stops. */
static void requests_that_end_during_their_booking_leave_nothing(void)
{
	const struct kvr_wire_ids bye = {.source = WORKER, .id = 3, .epoch = 1};
	uint8_t buf[64];

	for (uint32_t how = 0; how < 3; how++) {
		begin_long_prompts("");
		send_prompt(KVR_ROUTE, 1, BLOCKS);
		for (uint32_t i = 0; i < 200 && get_sched_counters()->booked_now == 0; i++)
			run_step();
		CU_ASSERT_EQUAL_FATAL(get_sched_counters()->booked_now, 1);
		CU_ASSERT_FALSE(kvr_sched_settled(rt->pool[0].sched));
		/* The message is sent without its hashes. */
		CU_ASSERT_TRUE(kvr_sched_enters(rt->pool[0].sched, rt->pool[0].live.entering->sh));
		if (how == 0)
			send_cancel(1);
		if (how == 1)
			pipeline_send(PEER_AGENT, buf,
				      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &bye));
		if (how == 2) {
			CU_ASSERT_TRUE(pipeline_balanced());
			pipeline_stop();
			continue;
		}
		run_step();
		while (how == 1 && get_sched_counters()->booked_now != 0) {
			pipeline_skip(10);
			run_round_beside(count_lost_bookings);
		}
		run_steps(100);
		expect_bounded("runs");
		CU_ASSERT_EQUAL(get_sched_counters()->booked_now, 0);
		pipeline_advance(KVR_FLIGHT_LINGER_NS / 1000000 + 1);
		pipeline_advance(5000);
		expect_nothing_kept();
		end_turn_router();
	}
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(largest_messages_overdue_after_a_pause),
			       KVR_CASE(room_for_new_messages_in_a_full_table),
			       KVR_CASE(waiting_messages_cancelled_together),
			       KVR_CASE(rest_of_a_leg_before_its_abort),
			       KVR_CASE(a_partly_sent_leg_is_freed),
			       KVR_CASE(long_prompts_are_booked_in_slices),
			       KVR_CASE(waiting_long_prompts_are_booked_in_slices),
			       KVR_CASE(late_bound_long_prompts_are_booked_in_slices),
			       KVR_CASE(retried_long_prompts_are_booked_in_slices),
			       KVR_CASE(long_prompts_waiting_for_prefill_are_booked_in_slices),
			       KVR_CASE(predictions_of_long_prompts_are_added_in_slices),
			       KVR_CASE(requests_that_end_during_their_booking_leave_nothing),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("turns_frames", tests);
}
