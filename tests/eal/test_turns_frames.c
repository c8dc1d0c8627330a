/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work in a turn is bounded, whatever the length of messages: frames of messages that are given up,
 * of requests that end together, and of a message that goes out before its ABORT.
 */
#include "turns.h"

#include "ingress/fragment.h"
#include "sched/prompts.h"

#define WORKER 9u
#define OTHER  10u

#define POOL                                                                                       \
	"[pool a]\nid = 5\nblock_size = 4\nmax_ranks = 64\nmax_requests = 4096\nmax_jobs = 1024\n" \
	"max_blocks = 64k\nmax_active_blocks = 65536\n"

static void begin(const char *keys)
{
	begin_with(POOL, keys);
}

static const struct kvr_reasm_stats *reasm(void)
{
	return kvr_reasm_stats(lc()->reasm);
}

/* ---- messages that never become whole ---- */

/* Fragment @p k of a message of @p frames from host @p host. */
static void piece(uint8_t host, uint64_t message, uint32_t frames, uint32_t k)
{
	static uint8_t f[sizeof(struct kvr_wire_hdr) + 512];
	const struct kvr_wire_ids ids = {.source = 666, .id = message};

	pipeline_host = host;
	kvr_hdr_put(f, KVR_ROUTE, &ids, frames * 512, k * 512, 512);
	pipeline_send(5000, f, sizeof(f));
	pipeline_host = 2;
}

/* Four of the largest messages, each but for its last fragment. @return frames held. */
static uint64_t unfinished(void)
{
	const uint32_t frames = rt->sizes.max_frames;

	CU_ASSERT_TRUE_FATAL(frames > 2 * FREE_TURN);
	for (uint32_t i = 0; i < 4 * (frames - 1); i++) {
		piece((uint8_t)(60 + i / (frames - 1)), 1 + i / (frames - 1), frames,
		      i % (frames - 1));
		if (i % 16 == 15)
			turn();
	}
	turn();
	CU_ASSERT_EQUAL_FATAL(reasm()->messages, 4);
	return reasm()->frames;
}

static void largest_messages_overdue_after_a_pause(void)
{
	uint64_t held, before, most = 0;

	begin("");
	held = unfinished();
	pipeline_skip(60000);
	begin_measure();
	for (uint32_t i = 0; i <= held / FREE_TURN + 4; i++) {
		before = reasm()->dropped_frames;
		turn();
		most = RTE_MAX(most, reasm()->dropped_frames - before);
		CU_ASSERT_EQUAL(reasm()->messages, 0); /* none of them is known from now on */
	}
	report("frames of messages given up", most);
	CU_ASSERT_EQUAL(reasm()->frames, 0);
	CU_ASSERT_EQUAL(reasm()->dropped_frames, held);
	CU_ASSERT(most <= FREE_TURN);
	end();
}

/* The table is full, and many others begin to send: each needs a place. */
static void room_for_new_messages_in_a_full_table(void)
{
	uint64_t before, most = 0, n = 0;

	begin("");
	unfinished();
	for (uint32_t i = 0; reasm()->evicted == 0; i++) { /* up to the bound */
		piece((uint8_t)(70 + i / 400), 100 + i / 400, 512, i % 400);
		if (i % 16 == 15)
			turn();
		CU_ASSERT_FATAL(i < 100000);
	}
	begin_measure();
	for (uint32_t t = 0; t < 200; t++) {
		for (uint32_t i = 0; i < 32; i++, n++)
			piece((uint8_t)(100 + n % 100), 10000 + n, 16, (uint32_t)(n % 2));
		before = reasm()->dropped_frames;
		turn();
		most = RTE_MAX(most, reasm()->dropped_frames - before);
	}
	report("frames given up for room", most);
	/* Room is made for all of them, and as they come. */
	CU_ASSERT_EQUAL(kvr_stats_get(lc()->reject, KVR_E_REASSEMBLY_FULL), 0);
	CU_ASSERT(most > 0 && most <= 2 * FREE_TURN);
	end();
}

/* ---- requests that end together ---- */

/* In one burst: each frees the frames that waited with it. */
static void waiting_messages_cancelled_together(void)
{
	uint32_t before, after, most = 0, waiting;

	begin("router_queue_threshold = 0.5\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 1));
	pipeline_route(++id, 7, 200, 0, NULL); /* keeps its worker busy */
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
		turn();
		after = pipeline_mbufs_used();
		most = before > after ? RTE_MAX(most, before - after) : most;
	}
	report("buffers freed", most);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->waiting_now, 0);
	CU_ASSERT(most > 0 && most <= FREE_TURN + 2 * BURST); /* and the notes' own */
	CU_ASSERT_PTR_NULL(lc()->trash);
	end();
}

/* ---- a leg that is stopped before it is out ---- */

static struct kvr_wire_hdr leg; /* header of its first fragment */

/* The decode worker lacks all of it. */
static void lacks_all(void)
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

static void begin_pair(void)
{
	begin("model = m\nrole = decode\n[pool p]\nid = 6\nmodel = m\nrole = prefill\n"
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

/* A long request whose decode leg goes out anew, and is cancelled at that moment. @return its
 * fragments. */
static uint32_t cancelled_in_the_middle(void)
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
	lacks_all();
	turn();
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
	return (leg.msg_len + leg.frag_len - 1) / leg.frag_len;
}

/* The worker gets all of it, then ABORT, and the frames are given back. */
static void rest_of_a_leg_before_its_abort(void)
{
	uint32_t n, sent = 0, most = 0, aborts = 0, used, in_turn;
	const struct out *o;

	begin_pair();
	used = pipeline_mbufs_used();
	n = cancelled_in_the_middle();
	CU_ASSERT_FATAL(n > 500);
	begin_measure();
	for (uint32_t t = 0; t < 200 && aborts == 0; t++, most = RTE_MAX(most, in_turn)) {
		lcore_turn(lc());
		pipeline_collect();
		for (in_turn = 0; (o = pipeline_next(PEER_AGENT)) != NULL;) {
			in_turn += o->hdr.kind == KVR_DISPATCH;
			aborts += o->hdr.kind == KVR_ABORT;
		}
		sent += in_turn;
		pipeline_flush();
		pipeline_skip(1);
	}
	report("frames of a leg", most);
	CU_ASSERT_EQUAL(aborts, 1);
	CU_ASSERT(sent >= n - 64); /* a slice or two went before */
	CU_ASSERT(most > 0 && most <= 64);
	for (uint32_t t = 0; t < 8; t++)
		turn();
	CU_ASSERT_TRUE(TAILQ_EMPTY(&rt->pool[0].live.sends));
	CU_ASSERT(rte_mempool_in_use_count(rt->pool[0].jobs) == 0);
	CU_ASSERT(pipeline_mbufs_used() - used < 16);
	end();
}

/* ... or its slot is needed before that, or its worker goes, or the router stops. */
static void nothing_is_kept_of_a_leg_that_is_not_sent_to_its_end(void)
{
	static const uint8_t ends[] = {KVR_GOODBYE, 0, 1, 2};
	uint32_t used;

	for (uint32_t i = 0; i < RTE_DIM(ends); i++) {
		const struct kvr_wire_ids ids = {.source = WORKER, .id = 3, .epoch = 1};
		struct stop_part part = {0};
		uint8_t buf[64];

		begin_pair();
		used = (uint32_t)rte_mempool_in_use_count(rt->pool[0].pairs);
		CU_ASSERT_EQUAL(used, 0);
		cancelled_in_the_middle();
		turn();
		CU_ASSERT_FALSE(TAILQ_EMPTY(&rt->pool[0].live.sends));
		if (ends[i] == KVR_GOODBYE)
			pipeline_send(PEER_AGENT, buf,
				      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
		if (ends[i] == 1)
			linger_over(lc(), &rt->pool[0], kvr_flight_oldest(rt->pool[0].requests));
		part.pool = &rt->pool[0];
		while (ends[i] == 2 && !stop_cut(lc(), &part))
			;
		pipeline_turn();
		CU_ASSERT_TRUE(TAILQ_EMPTY(&rt->pool[0].live.sends));
		pipeline_advance(400000); /* the prefill leg reaches its age */
		pipeline_advance(KVR_FLIGHT_LINGER_NS / 1000000 + 1);
		pipeline_advance(5000);
		CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[0].pairs), 0);
		CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[0].jobs), 0);
		CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
		end();
	}
}

/* ---- prompts that take longer than a turn ---- */

#define BLOCKS 62500u /* 977 runs: 4 MB of tokens in blocks of 16 */

#define LONG_POOL                                                                                  \
	"[pool a]\nid = 5\nblock_size = 4\nmax_ranks = 64\nmax_requests = 4096\nmax_jobs = 1024\n" \
	"max_blocks = 1M\nmax_active_blocks = 524288\nmax_prompt_blocks = 65536\n"

static uint64_t most_runs;

static void step(void)
{
	const uint64_t before = prompts_walked(&rt->pool[0]);

	turn();
	most_runs = RTE_MAX(most_runs, prompts_walked(&rt->pool[0]) - before);
}

static void steps(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		step();
}

static void begin_long(const char *keys)
{
	begin_with(LONG_POOL, keys);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 2));
	most_runs = 0;
	begin_measure();
}

static void ok(const char *what)
{
	report(what, most_runs);
	CU_ASSERT(most_runs > 0 && most_runs <= PROMPTS_MOST);
	most_runs = 0;
	begin_measure();
}

/* ROUTE or POTENTIAL_LOADS of the hashes hash0, hash0 + 1, ... */
static void prompt(uint8_t kind, uint64_t hash0, uint32_t n)
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
			step();
	}
}

static void cancel(uint64_t request)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = request, .epoch = 1};
	uint8_t buf[64];

	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
}

static const struct kvr_sched_counters *sched(void)
{
	return kvr_sched_counters(rt->pool[0].sched);
}

static uint32_t active_blocks(void)
{
	uint32_t sum = 0;

	for (uint32_t r = 0; r < 64; r++)
		sum += kvr_active_blocks(kvr_sched_active(rt->pool[0].sched))[r];
	return sum;
}

static void nothing_is_kept(void)
{
	CU_ASSERT_TRUE(prompts_idle(&rt->pool[0]));
	CU_ASSERT_PTR_NULL(rt->pool[0].live.entering);
	CU_ASSERT_EQUAL(active_blocks(), 0);
	CU_ASSERT_PTR_NULL(kvr_active_check(kvr_sched_active(rt->pool[0].sched)));
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[0].jobs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hash_bufs), 0);
}

/* One that nobody has, the same again, a question about it, others beside it, and their ends. */
static void long_prompts(void)
{
	begin_long("");
	prompt(KVR_ROUTE, 1, BLOCKS);
	steps(100);
	ok("runs of a booking");
	CU_ASSERT_EQUAL(sched()->booked_now, 1);
	CU_ASSERT_EQUAL(active_blocks(), BLOCKS);
	prompt(KVR_POTENTIAL_LOADS, 1, BLOCKS);
	steps(100);
	ok("runs of a question");
	CU_ASSERT_EQUAL(counter(PC_LOAD_QUERIES), 1);
	for (uint32_t i = 0; i < 24; i++) {
		prompt(KVR_ROUTE, 100000 + i * 4000, 1500);
		steps(10);
		prompt(KVR_POTENTIAL_LOADS, 100000 + i * 4000, 1500);
		steps(10);
	}
	ok("runs of shorter ones");
	prompt(KVR_ROUTE, 1, BLOCKS);
	CU_ASSERT_EQUAL(sched()->booked_now, 25);
	CU_ASSERT_EQUAL(counter(PC_LOAD_QUERIES), 25);
	for (uint64_t i = 1; i <= id; i++)
		cancel(i);
	for (uint32_t i = 0; i < 200; i++) {
		step();
		CU_ASSERT(kvr_sched_settled(rt->pool[0].sched) == prompts_idle(&rt->pool[0]));
	}
	cancel(id);
	steps(100);
	ok("runs of their ends");
	CU_ASSERT_EQUAL(sched()->booked_now, 0);
	nothing_is_kept();
	end();
}

/* Admitted when there is room. */
static void long_prompts_that_wait(void)
{
	begin_long("router_queue_threshold = 0.01\n");
	prompt(KVR_ROUTE, 1, BLOCKS);
	steps(100);
	prompt(KVR_ROUTE, 200000, BLOCKS);
	steps(100);
	prompt(KVR_ROUTE, 1, BLOCKS);
	prompt(KVR_ROUTE, 1, 8);
	steps(100);
	CU_ASSERT_EQUAL_FATAL(sched()->waiting_now, 2);
	ok("runs of what waits");
	cancel(1);
	steps(100);
	cancel(2);
	steps(200);
	ok("runs of an admission");
	CU_ASSERT_EQUAL(sched()->waiting_now, 0);
	CU_ASSERT_EQUAL(sched()->admitted, 2);
	for (uint64_t i = 1; i <= id; i++)
		cancel(i);
	steps(100);
	nothing_is_kept();
	end();
}

static uint64_t walked(void)
{
	return prompts_walked(&rt->pool[0]);
}

/* With late binding they count at the rank they wait for, and when its worker goes they wait for
 * another one; some end while they wait. */
static void long_prompts_that_are_bound_late(void)
{
	const struct kvr_wire_ids bye = {.source = WORKER, .id = 3, .epoch = 1};
	uint64_t moves;
	uint8_t buf[64];

	begin_long("router_mode = ttft\nttft_late_binding = true\n");
	for (uint32_t i = 0; i < 10; i++) {
		prompt(KVR_ROUTE, 1 + i * UINT64_C(100000), i % 3 == 0 ? BLOCKS : 2000);
		steps(100);
	}
	CU_ASSERT_EQUAL(sched()->booked_now, 2); /* the worker has two ranks */
	CU_ASSERT_EQUAL_FATAL(sched()->waiting_now, 8);
	CU_ASSERT_EQUAL(active_blocks(), 4 * BLOCKS + 6 * 2000);
	ok("runs of who waits for a rank");
	cancel(5);
	cancel(7);
	steps(100);
	ok("runs of who leaves");
	cancel(2); /* shorter than the first, so that they wait for its rank */
	steps(300);
	ok("runs of who goes");
	CU_ASSERT(sched()->admitted > 0);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(OTHER, 1, "a", 2));
	moves = kvr_sched_moves(rt->pool[0].sched);
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &bye));
	step();
	most_runs = RTE_MAX(most_runs, round_beside(walked));
	steps(500);
	ok("runs of who waits for a worker that leaves");
	CU_ASSERT(kvr_sched_moves(rt->pool[0].sched) > moves);
	CU_ASSERT(sched()->waiting_now > 2);
	for (uint64_t i = 1; i <= id; i++)
		cancel(i);
	steps(500);
	ok("runs of their ends");
	nothing_is_kept();
	end();
}

/* ---- of both pools of a pair ---- */

#define THIRD 11u

static void begin_long_pair(const char *prefill_keys)
{
	char keys[512];

	snprintf(keys, sizeof(keys),
		 "model = m\nrole = decode\n[pool p]\nid = 6\nmodel = m\nrole = prefill\n"
		 "block_size = 4\nmax_ranks = 64\nmax_requests = 4096\nmax_jobs = 64\n"
		 "max_blocks = 1M\nmax_active_blocks = 524288\nmax_prompt_blocks = 65536\n%s",
		 prefill_keys);
	begin_with(LONG_POOL, keys);
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

static void ok_pair(const char *what)
{
	report(what, most_runs);
	CU_ASSERT(most_runs > 0 && most_runs <= PROMPTS_MOST_PAIR);
	most_runs = 0;
	begin_measure();
}

static const struct kvr_sched_counters *prefill(void)
{
	return kvr_sched_counters(rt->pool[1].sched);
}

/* Of the prefill leg of a request. */
static const struct kvr_flight *prefill_slot(uint64_t request)
{
	for (uint32_t i = 0; i < kvr_flight_size(rt->pool[1].requests); i++) {
		const struct kvr_flight *slot = kvr_flight_slot(rt->pool[1].requests, i);

		if (slot->state == KVR_FLIGHT_LIVE && slot->relay.id == request)
			return slot;
	}
	CU_FAIL_FATAL("no prefill leg");
	return NULL;
}

static struct kvr_wire_ids prefill_leg(uint64_t request)
{
	return (struct kvr_wire_ids){
		.source = 77,
		.id = request,
		.handle = kvr_flight_handle(rt->pool[1].requests, prefill_slot(request)),
		.epoch = 1};
}

static void declines(uint64_t request)
{
	const struct kvr_wire_dispatch_ack no = {.code = 9};
	const struct kvr_wire_ids ids = prefill_leg(request);
	uint8_t buf[64];

	pipeline_send(PEER_OTHER, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &no));
}

static void prefills(uint64_t request)
{
	const struct kvr_wire_response r = {.flags = KVR_RESP_F_FIN, .cached_tokens = KVR_NONE32};
	const struct kvr_wire_ids ids = prefill_leg(request);
	uint8_t buf[128];

	pipeline_send(
		PEER_OTHER, buf,
		(size_t)kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){"", 0}));
}

static uint64_t runs_of_both(void)
{
	return prompts_walked(&rt->pool[0]);
}

/* Both legs are decided at its arrival, when a worker says no, and when one goes. */
static void long_prompts_that_start_over(void)
{
	struct kvr_wire_ids bye = {.id = 3, .epoch = 1};
	uint8_t buf[64];

	begin_long_pair("");
	prompt(KVR_ROUTE, 1, BLOCKS);
	steps(200);
	ok_pair("runs of both legs");
	CU_ASSERT(sched()->booked_now == 1 && prefill()->booked_now == 1);
	declines(1);
	steps(200);
	ok_pair("runs of another try");
	CU_ASSERT_EQUAL(counter(PC_RETRIES), 1);
	CU_ASSERT(sched()->booked_now == 1 && prefill()->booked_now == 1);
	cancel(1);
	prefills(1);
	steps(300);
	CU_ASSERT(sched()->booked_now == 0 && prefill()->booked_now == 0);
	prompt(KVR_ROUTE, 1, BLOCKS);
	steps(200);
	most_runs = 0;
	bye.source = prefill_slot(2)->relay.worker;
	pipeline_send(PEER_OTHER, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &bye));
	step();
	for (uint32_t i = 0; i < 40 && kvr_stats_get(rt->pool[1].count, PC_LOST) == 0; i++) {
		pipeline_skip(10);
		most_runs = RTE_MAX(most_runs, round_beside(runs_of_both));
	}
	steps(200);
	ok_pair("runs of a lost leg's");
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[1].count, PC_LOST), 1);
	CU_ASSERT_EQUAL(counter(PC_RETRIES), 2);
	cancel(2);
	prefills(2);
	steps(300);
	ok_pair("runs of their ends");
	CU_ASSERT(sched()->booked_now == 0 && prefill()->booked_now == 0);
	pipeline_advance(KVR_FLIGHT_LINGER_NS / 1000000 + 1);
	pipeline_advance(5000);
	nothing_is_kept();
	end();
}

/* The decode leg is decided when the prefill leg is admitted. */
static void long_prompts_that_wait_for_prefill(void)
{
	begin_long_pair("router_queue_threshold = 0.01\n");
	for (uint32_t i = 0; i < 3; i++) {
		prompt(KVR_ROUTE, 1 + (i % 2) * 100000, BLOCKS);
		steps(200);
	}
	CU_ASSERT_EQUAL_FATAL(prefill()->waiting_now, 1);
	CU_ASSERT_EQUAL(sched()->booked_now, 2);
	ok_pair("runs of what waits");
	prefills(1);
	prefills(2);
	steps(300);
	ok_pair("runs of an admission of both legs");
	CU_ASSERT(prefill()->waiting_now == 0 && prefill()->admitted == 1);
	CU_ASSERT_EQUAL(sched()->booked_now, 3);
	prefills(3);
	for (uint64_t i = 1; i <= id; i++)
		cancel(i);
	steps(300);
	pipeline_advance(KVR_FLIGHT_LINGER_NS / 1000000 + 1);
	pipeline_advance(5000);
	nothing_is_kept();
	end();
}

/* ---- entered as predicted blocks ---- */

#define TURN_UNITS (512u + 2 * 512 + 8) /* and the last run */

static void predictions_of_long_prompts(void)
{
	struct kvr_prefix_stats st;
	struct kvr_prefix *t;
	uint64_t before, most = 0;
	uint32_t bufs = 0, turns = 0;

	begin_long("use_kv_events = false\n");
	t = rt->pool[0].prefix;
	for (uint32_t i = 0; i < 2; i++) { /* new, and known */
		prompt(KVR_ROUTE, 1, BLOCKS);
		for (uint32_t k = 0; k < 2000; k++) {
			before = kvr_prefix_work(t);
			turn();
			most = RTE_MAX(most, kvr_prefix_work(t) - before);
			bufs = RTE_MAX(bufs, rte_mempool_in_use_count(rt->hash_bufs));
			turns += event_open(&rt->pool[0].event);
		}
		CU_ASSERT_EQUAL(counter(PC_PREDICTIONS), i + 1);
	}
	report("units of a prediction", most);
	CU_ASSERT(most > 0 && most <= TURN_UNITS);
	CU_ASSERT_EQUAL(bufs, 1); /* the scheduler has copied none of them */
	CU_ASSERT(turns > 100);
	kvr_prefix_stats_get(t, &st);
	CU_ASSERT_EQUAL(st.blocks, BLOCKS);
	cancel(1);
	cancel(2);
	steps(200);
	nothing_is_kept();
	prompt(KVR_ROUTE, 1, BLOCKS); /* the router ends, its worker goes, in the middle */
	for (uint32_t k = 0; k < 2000 && !event_open(&rt->pool[0].event); k++)
		turn();
	CU_ASSERT_TRUE(event_open(&rt->pool[0].event));
	end();
}

static uint64_t lost_bookings(void)
{
	return counter(PC_LOST);
}

/* A booking goes on, and its message is kept for it; then its client or its worker goes, or the
 * router stops. */
static void ends_in_the_middle_of_a_booking(void)
{
	const struct kvr_wire_ids bye = {.source = WORKER, .id = 3, .epoch = 1};
	uint8_t buf[64];

	for (uint32_t how = 0; how < 3; how++) {
		begin_long("");
		prompt(KVR_ROUTE, 1, BLOCKS);
		for (uint32_t i = 0; i < 200 && sched()->booked_now == 0; i++)
			step();
		CU_ASSERT_EQUAL_FATAL(sched()->booked_now, 1);
		CU_ASSERT_FALSE(kvr_sched_settled(rt->pool[0].sched));
		/* The message goes out, without its hashes. */
		CU_ASSERT_TRUE(kvr_sched_enters(rt->pool[0].sched, rt->pool[0].live.entering->sh));
		if (how == 0)
			cancel(1);
		if (how == 1)
			pipeline_send(PEER_AGENT, buf,
				      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &bye));
		if (how == 2) {
			CU_ASSERT_TRUE(pipeline_balanced());
			pipeline_stop();
			continue;
		}
		step();
		while (how == 1 && sched()->booked_now != 0) {
			pipeline_skip(10);
			round_beside(lost_bookings);
		}
		steps(100);
		ok("runs");
		CU_ASSERT_EQUAL(sched()->booked_now, 0);
		pipeline_advance(KVR_FLIGHT_LINGER_NS / 1000000 + 1);
		pipeline_advance(5000);
		nothing_is_kept();
		end();
	}
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(largest_messages_overdue_after_a_pause),
			       KVR_CASE(room_for_new_messages_in_a_full_table),
			       KVR_CASE(waiting_messages_cancelled_together),
			       KVR_CASE(rest_of_a_leg_before_its_abort),
			       KVR_CASE(nothing_is_kept_of_a_leg_that_is_not_sent_to_its_end),
			       KVR_CASE(long_prompts),
			       KVR_CASE(long_prompts_that_wait),
			       KVR_CASE(long_prompts_that_are_bound_late),
			       KVR_CASE(long_prompts_that_start_over),
			       KVR_CASE(long_prompts_that_wait_for_prefill),
			       KVR_CASE(predictions_of_long_prompts),
			       KVR_CASE(ends_in_the_middle_of_a_booking),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("turns_frames", tests);
}
