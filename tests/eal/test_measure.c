/* SPDX-License-Identifier: BSD-3-Clause */
/* What the router measures about requests, and decisions found by id, frame by frame. */
#include "pair.h"
#include "pipeline.h"

#include "control/control.h"
#include "kvr_put.h"
#include "kvr_telemetry.h"
#include "kvr_test.h"
#include "sched/decision_log.h"
#include "sched/request_stats.h"
#include "telemetry/commands.h"

#include <errno.h>
#include <string.h>

#define WORKER 9u
#define MS     UINT64_C(1000000)

static void begin_measure_pool(const char *keys)
{
	char text[512];

	snprintf(text, sizeof(text), "[pool a]\nid = 5\n" PIPELINE_POOL "%s", keys);
	pipeline_start_with(text);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 2));
	pipeline_still = true;
}

static void end_measure_pool(void)
{
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_still = false;
	pipeline_stop();
}

static uint64_t take_ranked_dispatch(uint32_t *rank)
{
	const struct out *o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);

	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	if (rank != NULL)
		*rank = ((const struct kvr_wire_request *)(&o->hdr + 1))->dp_rank;
	return o->hdr.handle;
}

static void send_measured_item(uint64_t id, uint64_t handle, uint32_t seq, uint32_t tokens,
			       uint32_t cached, uint16_t flags)
{
	const struct kvr_wire_ids ids = pipeline_make_ids(id, handle);
	const struct kvr_wire_response r = {
		.seq = seq, .flags = flags, .generated_tokens = tokens, .cached_tokens = cached};
	uint8_t buf[256];

	pipeline_send(
		PEER_AGENT, buf,
		(size_t)kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){"item", 4}));
	pipeline_turn();
}

static struct kvr_bucket_counts read_counts(uint32_t pool, uint32_t class, enum measure m)
{
	struct kvr_bucket_counts c = {0};

	kvr_buckets_read(&rt->pool[pool].measures[class].v[m], &c);
	return c;
}

static void expect_values(uint32_t pool, enum measure m, uint64_t n, uint64_t sum)
{
	const struct kvr_bucket_counts c = read_counts(pool, 0, m);

	CU_ASSERT_EQUAL(kvr_buckets_count(&stats_buckets[m], &c), n);
	CU_ASSERT_EQUAL(c.sum, sum);
	if (c.sum != sum || kvr_buckets_count(&stats_buckets[m], &c) != n)
		fprintf(stderr, "%s: %lu values, sum %lu; expected %lu, %lu\n",
			stats_buckets[m].def->name,
			(unsigned long)kvr_buckets_count(&stats_buckets[m], &c),
			(unsigned long)c.sum, (unsigned long)n, (unsigned long)sum);
}

static uint64_t get_rank_count(uint32_t pool, uint64_t worker, uint32_t dp_rank,
			       enum rank_counter c)
{
	const uint32_t rank = kvr_sched_rank_find(rt->pool[pool].sched, worker, dp_rank);

	return kvr_cell_get(&rt->pool[pool].rank_counts[rank].v[c]);
}

static uint64_t get_pool_counter(uint32_t pool, enum pool_counter c)
{
	uint64_t v[PC_COUNTERS];

	kvr_stats_sum(rt->pool[pool].stats, v);
	return v[c];
}

/*
 * One request: 40 prompt tokens, the first token after 30 ms, four more after another 20 ms, twelve
 * more and the end after another 60 ms.
 */
static void a_request_is_measured_once(void)
{
	struct kvr_bucket_counts itl;
	uint32_t rank;
	uint64_t h;

	begin_measure_pool("");
	pipeline_route(1, 100, 10, 0, NULL);
	h = take_ranked_dispatch(&rank);
	expect_values(0, MEASURE_ISL, 1, 40);
	expect_values(0, MEASURE_HIT, 1, 0);
	expect_values(0, MEASURE_DISPATCH, 1, 0);
	expect_values(0, MEASURE_OVERHEAD, 1, 0);
	expect_values(0, MEASURE_LOST, 0, 0);
	expect_values(0, MEASURE_QUEUE, 0, 0);
	expect_values(0, MEASURE_TTFT, 0, 0);
	pipeline_advance(30);
	send_measured_item(1, h, 0, 0, KVR_NONE32,
			   0); /* an item without a token is no first token */
	expect_values(0, MEASURE_TTFT, 0, 0);
	send_measured_item(1, h, 1, 1, KVR_NONE32, 0);
	expect_values(0, MEASURE_TTFT, 1, 30 * MS);
	send_measured_item(1, h, 1, 1, KVR_NONE32, 0); /* a copy */
	expect_values(0, MEASURE_TTFT, 1, 30 * MS);
	expect_values(0, MEASURE_ITL, 0, 0);
	pipeline_advance(20);
	send_measured_item(1, h, 2, 5, KVR_NONE32, 0);
	expect_values(0, MEASURE_ITL, 4, 20 * MS); /* 5 ms each */
	pipeline_advance(60);
	send_measured_item(1, h, 3, 17, 8, KVR_RESP_F_FIN);
	expect_values(0, MEASURE_ITL, 16, 80 * MS);
	itl = read_counts(0, 0, MEASURE_ITL);
	CU_ASSERT_EQUAL(itl.count[kvr_buckets_find(&stats_buckets[MEASURE_ITL], 5 * MS, 1)], 16);
	expect_values(0, MEASURE_OSL, 1, 17);
	expect_values(0, MEASURE_DECODE, 1, 110 * MS);
	expect_values(0, MEASURE_PREFILL, 0, 0);
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, rank, RC_ROUTED), 1);
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, rank, RC_FINISHED), 1);
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, rank, RC_PROMPT), 40);
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, rank, RC_LAST_TTFT), 30 * MS);
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, rank, RC_LAST_ITL), 5 * MS);
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, rank, RC_LAST_ISL), 40);
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, rank, RC_REPORTED_ACTUAL), 8);
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, rank, RC_BEYOND), 8);
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, 1 - rank, RC_ROUTED), 0);
	CU_ASSERT_EQUAL(get_pool_counter(0, PC_BEYOND_TOKENS), 8);
	end_measure_pool();
}

/*
 * A failed request has no output and no duration of its leg; retransmissions by the client do not
 * count.
 */
static void failures_and_retransmits_count_separately(void)
{
	uint32_t rank;
	uint64_t h;

	begin_measure_pool("");
	pipeline_route(1, 100, 10, 0, NULL);
	h = take_ranked_dispatch(&rank);
	pipeline_route(1, 100, 10, KVR_REQ_F_RESEND, NULL);
	pipeline_flush();
	expect_values(0, MEASURE_ISL, 1, 40);
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, rank, RC_ROUTED), 1);
	send_measured_item(1, h, 0, 0, KVR_NONE32, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
	expect_values(0, MEASURE_OSL, 0, 0);
	expect_values(0, MEASURE_DECODE, 0, 0);
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, rank, RC_FAILED), 1);
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, rank, RC_FINISHED), 0);
	pipeline_route(2, 200, 10, 0, NULL);
	h = take_ranked_dispatch(&rank);
	send_measured_item(2, h, 0, 3, KVR_NONE32, KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED);
	expect_values(0, MEASURE_OSL, 1, 3); /* the output so far counts */
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, rank, RC_CANCELLED), 1);
	pipeline_route(3, 300, 10, KVR_REQ_F_QUERY, NULL);
	expect_values(0, MEASURE_ISL, 2, 80);
	end_measure_pool();
}

/* Two classes; the second request of each waits for 40 ms. */
static void waiting_is_measured_by_class(void)
{
	uint8_t tlv[64];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	struct kvr_wire_ids ids = pipeline_make_ids(1, 0);
	struct kvr_bucket_counts c;
	uint8_t buf[64];

	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL
			    "[class a high]\nprefill_busy_threshold_frac = 0.1\n"
			    "[class a low]\nprefill_busy_threshold_frac = 0.1\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 1));
	pipeline_still = true;
	kvr_hint_put_str(&hints, KVR_HINT_POLICY_CLASS, "low");
	pipeline_route(1, 100, 10, 0, NULL);
	pipeline_route(2, 900, 10, 0, &hints);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->waiting_now, 1);
	pipeline_advance(40);
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->waiting_now, 0);
	c = read_counts(0, 1, MEASURE_QUEUE);
	CU_ASSERT_EQUAL(kvr_buckets_count(&stats_buckets[MEASURE_QUEUE], &c), 1);
	CU_ASSERT_EQUAL(c.sum, 40 * MS);
	c = read_counts(0, 1, MEASURE_DISPATCH); /* the waiting time is not the router's */
	CU_ASSERT_EQUAL(kvr_buckets_count(&stats_buckets[MEASURE_DISPATCH], &c), 0);
	c = read_counts(0, 1, MEASURE_ISL);
	CU_ASSERT_EQUAL(c.sum, 40);
	expect_values(0, MEASURE_QUEUE, 0, 0);
	expect_values(0, MEASURE_DISPATCH, 1, 0);
	end_measure_pool();
}

static void both_legs_of_a_pair_are_measured(void)
{
	struct pair_attempt *p, *d;

	pair_start("", "");
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_P, 1, false));
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_D, 1, false));
	pipeline_still = true;
	pair_route(1, NULL);
	pair_take();
	p = pair_leg(1, true);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	pair_ack(p, 0);
	pipeline_advance(50);
	pair_item(p, KVR_RESP_F_FIN, "result");
	pair_take();
	d = pair_leg(1, false);
	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	pair_ack(d, 0);
	pipeline_advance(7);
	d->tokens = 1;
	pair_item(d, 0, "x"); /* the first token */
	pipeline_advance(10);
	pair_item(d, KVR_RESP_F_FIN, "y");
	expect_values(1, MEASURE_PREFILL, 1, 50 * MS);
	expect_values(1, MEASURE_DECODE, 0, 0);
	expect_values(0, MEASURE_DECODE, 1, 17 * MS);
	expect_values(0, MEASURE_TTFT, 1, 57 * MS);
	expect_values(1, MEASURE_TTFT, 0, 0);
	expect_values(0, MEASURE_TRANSFER, 1, 7 * MS);
	expect_values(1, MEASURE_DISPATCH, 1, 0);
	expect_values(0, MEASURE_DISPATCH, 0, 0); /* it waited for the other leg */
	CU_ASSERT_EQUAL(get_rank_count(1, PAIR_P, 0, RC_FINISHED), 1);
	CU_ASSERT_EQUAL(get_rank_count(0, PAIR_D, 0, RC_FINISHED), 1);
	pipeline_still = false;
	pair_finish();
	pair_stop();
}

static void counts_belong_to_the_worker_of_the_rank(void)
{
	const struct kvr_wire_ids bye = {.source = WORKER, .id = 2, .epoch = 1};
	uint32_t rank, dense;
	uint8_t buf[64];

	begin_measure_pool("");
	pipeline_route(1, 100, 10, 0, NULL);
	take_ranked_dispatch(&rank);
	dense = kvr_sched_rank_find(rt->pool[0].sched, WORKER, rank);
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, rank, RC_ROUTED), 1);
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &bye));
	pipeline_turn();
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER + 1, 1, "a", 2));
	CU_ASSERT_EQUAL(kvr_cell_get(&rt->pool[0].rank_counts[dense].v[RC_ROUTED]), 0);
	end_measure_pool();
}

/* ---- predicted and reported overlap ---- */

static void send_events(uint64_t first, uint64_t hash0, uint32_t n, uint8_t type)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 1, .epoch = 1};
	const struct kvr_wire_kv_events head = {.first_event_id = first};
	struct kvr_kv_put put;
	uint64_t hash[64];
	uint8_t buf[1024];
	int len;

	for (uint32_t i = 0; i < n; i++)
		hash[i] = hash0 + i;
	kvr_kv_put_begin(&put, buf, sizeof(buf), &ids, &head);
	CU_ASSERT_EQUAL(kvr_kv_put_event(&put, (enum kvr_wire_kv_type)type, 0, NULL, hash, n), 0);
	len = kvr_kv_put_end(&put);
	CU_ASSERT_FATAL(len > 0);
	pipeline_send(PEER_AGENT, buf, (size_t)len);
	pipeline_turn();
}

static void route_with_report(uint64_t id, uint32_t cached)
{
	uint8_t tlv[64];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};

	kvr_hint_put_u64(&hints, KVR_HINT_BACKEND, WORKER);
	kvr_hint_put_u32(&hints, KVR_HINT_DP_RANK, 0);
	pipeline_route(id, 1000, 10, 0, &hints);
	send_measured_item(id, take_ranked_dispatch(NULL), 0, 1, cached, KVR_RESP_F_FIN);
}

static void shortfalls_have_reasons(void)
{
	uint64_t h;

	begin_measure_pool("");
	send_events(0, 1000, 8, KVR_KV_STORED);
	route_with_report(1, 32); /* 8 of 10 blocks, as predicted */
	CU_ASSERT_EQUAL(get_pool_counter(0, PC_PREDICTED_TOKENS), 32);
	CU_ASSERT_EQUAL(get_pool_counter(0, PC_HIT_TOKENS), 32);
	CU_ASSERT_EQUAL(get_pool_counter(0, PC_ACHIEVABLE_TOKENS), 32);
	CU_ASSERT_EQUAL(get_pool_counter(0, PC_PROMPT_TOKENS), 40);
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, 0, RC_SHORT), 0);
	expect_values(0, MEASURE_HIT, 1, KVR_RATIO_PARTS * 8 / 10);
	route_with_report(2, 12);
	CU_ASSERT_EQUAL(get_pool_counter(0, PC_SHORT_ENGINE), 20);
	route_with_report(3, 0);
	CU_ASSERT_EQUAL(get_pool_counter(0, PC_SHORT_NOTHING), 32);
	/* Blocks disappear between the decision and the answer. */
	pipeline_route(4, 1000, 10, 0, NULL);
	h = take_ranked_dispatch(NULL);
	send_events(1, 1004, 4, KVR_KV_REMOVED);
	send_measured_item(4, h, 0, 1, 16, KVR_RESP_F_FIN);
	CU_ASSERT_EQUAL(get_pool_counter(0, PC_SHORT_EVICTED), 16);
	/* A gap: event 2 is missing. */
	send_events(3, 5000, 1, KVR_KV_STORED);
	CU_ASSERT_EQUAL(kvr_cell_get(&rt->pool[0].event_ranks[0].v[ER_GAPS]), 1);
	CU_ASSERT_EQUAL(kvr_cell_get(&rt->pool[0].event_ranks[0].v[ER_AUTHORITATIVE]), 0);
	route_with_report(5, 8);
	CU_ASSERT_EQUAL(get_pool_counter(0, PC_SHORT_MISSING), 8);
	CU_ASSERT_EQUAL(get_rank_count(0, WORKER, 0, RC_SHORT), 20 + 32 + 16 + 8);
	CU_ASSERT_EQUAL(kvr_cell_get(&rt->pool[0].event_ranks[0].v[ER_STORED]), 8);
	CU_ASSERT_EQUAL(kvr_cell_get(&rt->pool[0].event_ranks[0].v[ER_REMOVED]), 4);
	/* The whole stream of events is retransmitted. */
	send_events(0, 1000, 8, KVR_KV_STORED);
	CU_ASSERT_EQUAL(kvr_cell_get(&rt->pool[0].event_ranks[0].v[ER_REGRESSIONS]), 1);
	end_measure_pool();
}

/*
 * The cached rank is overloaded with other blocks: another rank is chosen, and the lost overlap is
 * counted.
 */
static void lost_overlap_is_counted(void)
{
	struct kvr_bucket_counts lost;

	begin_measure_pool("overlap_score_credit = 0.0\n");
	send_events(0, 1000, 8, KVR_KV_STORED);
	for (uint64_t id = 1; id <= 4; id++)
		pipeline_route(id, 1000, 10, 0, NULL);
	CU_ASSERT(get_pool_counter(0, PC_HIT_TOKENS) <= get_pool_counter(0, PC_ACHIEVABLE_TOKENS));
	CU_ASSERT_EQUAL(get_pool_counter(0, PC_PROMPT_TOKENS), 160);
	lost = read_counts(0, 0, MEASURE_LOST);
	CU_ASSERT(kvr_buckets_count(&stats_buckets[MEASURE_LOST], &lost) > 0);
	CU_ASSERT_EQUAL(kvr_buckets_count(&stats_buckets[MEASURE_LOST], &lost),
			kvr_cell_get(&kvr_sched_counters(rt->pool[0].sched)->non_max_overlap));
	CU_ASSERT_EQUAL(lost.sum * 4, /* tokens of a block */
			LOST_PARTS * (get_pool_counter(0, PC_ACHIEVABLE_TOKENS) -
				      get_pool_counter(0, PC_HIT_TOKENS)));
	end_measure_pool();
}

/* ---- decisions by id ---- */

static void decisions_are_found_by_id(void)
{
	const struct decision_ring *r;
	struct decision_brief b;
	const uint64_t other = 78, ours = 77;
	uint32_t steps = 1000;

	begin_measure_pool("decision_ring = 8\n");
	r = &rt->pool[0].log->all;
	CU_ASSERT_EQUAL(decision_ring_size(r), 8);
	CU_ASSERT_EQUAL(decision_ring_find(r, 1, NULL, UINT64_MAX, &steps, &b), -ENOENT);
	for (uint64_t id = 1; id <= 11; id++)
		pipeline_route(id, 1000 * id, 10, 0, NULL);
	CU_ASSERT_EQUAL(decision_ring_written(r), 11);
	CU_ASSERT_EQUAL(decision_ring_find(r, 3, NULL, UINT64_MAX, &steps, &b),
			-ENOENT); /* evicted */
	CU_ASSERT_EQUAL_FATAL(decision_ring_find(r, 4, NULL, UINT64_MAX, &steps, &b), 0);
	CU_ASSERT_EQUAL(b.number, 3);
	CU_ASSERT_EQUAL(b.source, 77);
	CU_ASSERT_EQUAL(b.worker, WORKER);
	CU_ASSERT_EQUAL(b.result, KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(b.required, 10);
	CU_ASSERT_EQUAL(b.overlap, 0);
	CU_ASSERT_FALSE(b.pinned);
	CU_ASSERT_EQUAL(decision_ring_find(r, 4, &ours, UINT64_MAX, &steps, &b), 0);
	CU_ASSERT_EQUAL(decision_ring_find(r, 4, &other, UINT64_MAX, &steps, &b), -ENOENT);
	CU_ASSERT_EQUAL(decision_ring_find(r, 4, NULL, 3, &steps, &b),
			-ENOENT); /* none before it */
	CU_ASSERT_EQUAL(decision_ring_read(r, 2, &b), -ENOENT);
	CU_ASSERT_EQUAL(decision_ring_read(r, 11, &b), -ENOENT);
	CU_ASSERT_EQUAL(decision_ring_read(r, 10, &b), 0);
	CU_ASSERT_EQUAL(b.id, 11);
	/* A rejection with its code. */
	kvr_sched_worker_drain(rt->pool[0].sched, WORKER, true, 0);
	pipeline_route(12, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL_FATAL(decision_ring_find(r, 12, NULL, UINT64_MAX, &steps, &b), 0);
	CU_ASSERT_EQUAL(b.result, KVR_SCHED_ERROR);
	CU_ASSERT_EQUAL(b.err, KVR_E_NO_ENDPOINTS);
	end_measure_pool();
	begin_measure_pool("decision_ring = 0\n");
	pipeline_route(1, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(decision_ring_find(&rt->pool[0].log->all, 1, NULL, UINT64_MAX, &steps, &b),
			-ENOENT);
	end_measure_pool();
}

static void put_decision(struct decision_ring *r, uint64_t source, uint64_t id)
{
	static const struct kvr_sched_decision d = {.worker = WORKER};

	decision_ring_put(r, &(const struct decision_about){.source = source, .id = id}, 1, &d);
}

/* A reader holds a lock: its cost does not grow with the ring. */
static void an_id_is_found_by_hash(void)
{
	const uint32_t lines = 65536;
	const uint64_t mine = 5;
	struct decision_ring r;
	struct decision_brief b;
	uint32_t steps, most = 0;

	CU_ASSERT_EQUAL_FATAL(decision_ring_init(&r, lines), 0);
	for (uint64_t id = 0; id < 3 * (uint64_t)lines; id++)
		put_decision(&r, 1, id);
	for (uint64_t id = 2 * (uint64_t)lines; id < 3 * (uint64_t)lines; id++) {
		steps = 64;
		CU_ASSERT_EQUAL_FATAL(decision_ring_find(&r, id, NULL, UINT64_MAX, &steps, &b), 0);
		CU_ASSERT_EQUAL(b.number, id);
		most = RTE_MAX(most, 64 - steps);
	}
	CU_ASSERT(most >= 2); /* there are chains */
	for (uint64_t id = 0; id < 2 * (uint64_t)lines; id++) {
		steps = 64;
		CU_ASSERT_EQUAL_FATAL(decision_ring_find(&r, id, NULL, UINT64_MAX, &steps, &b),
				      -ENOENT);
	}
	/* One id for all decisions: the search is bounded and reports that. */
	put_decision(&r, mine, 7);
	for (uint32_t i = 0; i < 1000; i++)
		put_decision(&r, 1, 7);
	steps = 500;
	CU_ASSERT_EQUAL(decision_ring_find(&r, 7, &mine, UINT64_MAX, &steps, &b), -EAGAIN);
	CU_ASSERT_EQUAL(steps, 0);
	steps = 1100;
	CU_ASSERT_EQUAL(decision_ring_find(&r, 7, &mine, UINT64_MAX, &steps, &b), 0);
	CU_ASSERT_EQUAL(b.number, 3 * (uint64_t)lines);
	decision_ring_fini(&r);
}

/* ---- rejections in words ---- */

static const char *take_rejection_text(void)
{
	static char text[256];
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);
	const struct kvr_wire_rejected *w;

	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	w = (const void *)(&o->hdr + 1);
	memcpy(text, w + 1, w->text_len);
	text[w->text_len] = '\0';
	return text;
}

static void rejections_state_numbers(void)
{
	uint8_t mem[64];
	struct kvr_hint_buf h = {.p = mem, .cap = sizeof(mem)};

	begin_measure_pool(
		"router_queue_threshold = 0.1\n[class a bulk]\nprefill_busy_threshold_frac = 0.1\n"
		"request_queue_limit_per_worker = 1\n");
	for (uint64_t id = 1; id <= 4; id++)
		pipeline_route(id, 1000 * id, 10, 0, NULL); /* two at once, two wait */
	pipeline_route(5, 5000, 10, 0, NULL);
	CU_ASSERT_STRING_EQUAL(take_rejection_text(),
			       "policy class bulk: 1 requests waiting, limit 1");
	end_measure_pool();
	begin_measure_pool("");
	kvr_sched_worker_drain(rt->pool[0].sched, WORKER, true, 0);
	pipeline_route(6, 100, 10, 0, NULL);
	CU_ASSERT_STRING_EQUAL(take_rejection_text(),
			       "pool a: no eligible rank; workers 1, ranks 2, open 0");
	end_measure_pool();
	begin_measure_pool("");
	kvr_hint_put_allowed(&h, &(const uint64_t){WORKER}, 1);
	kvr_hint_put_u64(&h, KVR_HINT_BACKEND, WORKER + 1);
	pipeline_route(7, 100, 10, 0, &h);
	CU_ASSERT_STRING_EQUAL(take_rejection_text(),
			       "the pinned worker is not among the allowed ones: worker 10");
	pipeline_route(8, 100, 10, 0, NULL);
	CU_ASSERT_TRUE(pipeline_hello(WORKER, 2, "a", 2));
	CU_ASSERT_STRING_EQUAL(take_rejection_text(),
			       "the worker was lost with the request: worker 9");
	pipeline_route(9, 100, 10, 0, NULL);
	pipeline_route(9, 100, 11, 0, NULL);
	CU_ASSERT_STRING_EQUAL(take_rejection_text(), "another request with this id is live");
	end_measure_pool();
}

static void a_failed_prefill_leg_quotes_its_engine(void)
{
	struct pair_attempt *p;
	struct kvr_wire_rejected why;

	pair_start("reroutes = 0\n", "");
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_P, 1, false));
	CU_ASSERT_TRUE_FATAL(pair_join(PAIR_D, 1, false));
	pair_route(1, NULL);
	pair_take();
	p = pair_leg(1, true);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	pair_ack(p, 0);
	p->status = 507;
	pair_item(p, KVR_RESP_F_FIN | KVR_RESP_F_ERROR, "out of KV blocks\r\nmore");
	CU_ASSERT_EQUAL(pair_answer[1].rejected, KVR_E_PREFILL_FAILED);
	why = pair_answer[1].why;
	CU_ASSERT_EQUAL(why.detail[0], 507);
	CU_ASSERT_STRING_EQUAL(pair_answer[1].words, "the prefill leg failed: worker 21, code 507, "
						     "engine: out of KV blocks");
	pair_finish();
	pair_stop();
}

/* ---- result in the last item ---- */

static void the_last_item_reports_the_result(void)
{
	const struct kvr_wire_response *w;
	struct kvr_wire_tracker k;
	const struct out *o;
	uint32_t rank, flags;
	uint64_t h;

	begin_measure_pool("");
	pipeline_route(1, 100, 10, KVR_REQ_F_TRACK | KVR_REQ_F_DIRECT, NULL);
	o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	h = o->hdr.handle;
	rank = ((const struct kvr_wire_request *)(&o->hdr + 1))->dp_rank;
	flags = ((const struct kvr_wire_request *)(&o->hdr + 1))->flags;
	CU_ASSERT_EQUAL(flags & (KVR_REQ_F_TRACK | KVR_REQ_F_DIRECT), KVR_REQ_F_TRACK);
	CU_ASSERT_EQUAL(((const struct kvr_wire_request *)(&o->hdr + 1))->client_frame,
			KVR_WIRE_DEF_FRAME - KVR_WIRE_TRACKER_ROOM);
	pipeline_skip(30);
	send_measured_item(1, h, 0, 1, KVR_NONE32, 0);
	pipeline_skip(20);
	for (int i = 0; i < 2; i++) { /* a retransmission carries the same */
		send_measured_item(1, h, 1, 5, 8, KVR_RESP_F_FIN);
		o = pipeline_expect(PEER_CLIENT, KVR_RESPONSE);
		while (o != NULL && ((const struct kvr_wire_response *)(&o->hdr + 1))->seq == 0)
			o = pipeline_expect(PEER_CLIENT, KVR_RESPONSE);
		CU_ASSERT_PTR_NOT_NULL_FATAL(o);
		w = (const void *)(&o->hdr + 1);
		CU_ASSERT_EQUAL(w->hints_len, KVR_WIRE_TRACKER_ROOM);
		CU_ASSERT_EQUAL(o->len, sizeof(o->hdr) + sizeof(*w) + 8 + w->hints_len);
		CU_ASSERT_EQUAL(
			kvr_body_check(KVR_RESPONSE, w, o->hdr.msg_len, &(struct kvr_fault){0}),
			KVR_OK);
		memcpy(&k, (const uint8_t *)(w + 1) + 8 + sizeof(struct kvr_wire_tlv), sizeof(k));
		CU_ASSERT(k.worker == WORKER && k.dp_rank == rank && k.prefill_worker == 0);
		CU_ASSERT(k.required_blocks == 10 && k.overlap_blocks == 0 && k.isl == 40);
		CU_ASSERT(k.osl == 5 && k.queue_us == 0 && k.ttft_us == 30000);
		CU_ASSERT(k.itl_us == 5000 && k.prefill_us == KVR_NONE32);
		pipeline_skip(10);
	}
	/* Without TRACK nothing is added. */
	pipeline_route(2, 100, 10, 0, NULL);
	h = take_ranked_dispatch(NULL);
	send_measured_item(2, h, 0, 1, KVR_NONE32, KVR_RESP_F_FIN);
	o = pipeline_expect(PEER_CLIENT, KVR_RESPONSE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(((const struct kvr_wire_response *)(&o->hdr + 1))->hints_len, 0);
	end_measure_pool();
}

/* ---- changed values at run time ---- */

static void thresholds_change_while_requests_wait(void)
{
	struct kvr_pool_conf c;
	char err[100];

	begin_measure_pool("router_queue_threshold = 0.1\n");
	pipeline_route(1, 100, 10, 0, NULL);
	pipeline_route(2, 800, 10, 0, NULL);
	pipeline_route(3, 900, 10, 0, NULL);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->waiting_now, 1);
	CU_ASSERT_TRUE(kvr_sched_tunable("router_queue_threshold"));
	CU_ASSERT_FALSE(kvr_sched_tunable("max_ranks"));
	CU_ASSERT_FALSE(kvr_sched_tunable(""));
	c = *kvr_sched_conf(rt->pool[0].sched);
	CU_ASSERT_EQUAL(kvr_pool_conf_set(&c, "router_queue_threshold", "none", err, sizeof(err)),
			0);
	c.max_ranks = 7; /* cannot change */
	kvr_sched_tune(rt->pool[0].sched, &c);
	CU_ASSERT_EQUAL(kvr_sched_conf(rt->pool[0].sched)->max_ranks, 64);
	pipeline_turn();
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->waiting_now, 0);
	/* The overload detector starts to watch, too. */
	CU_ASSERT_EQUAL(
		kvr_pool_conf_set(&c, "active_prefill_tokens_threshold", "1", err, sizeof(err)), 0);
	kvr_sched_tune(rt->pool[0].sched, &c);
	for (uint64_t id = 4; id < 24; id++) /* each rank is judged when it gets a request */
		pipeline_route(id, 1000 * id, 10, 0, NULL);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_REJECTED));
	end_measure_pool();
}

/* Keys of a class: only the second class changes, its limit and its threshold; its heap stays. */
static void keys_of_classes_change(void)
{
	uint8_t tlv[64];
	struct kvr_hint_buf low = {.p = tlv, .cap = sizeof(tlv)};
	const struct kvr_sched_counters *n;
	struct kvr_pool_conf c;

	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL
			    "[class a high]\nprefill_busy_threshold_frac = 0.1\n"
			    "[class a low]\nprefill_busy_threshold_frac = 0.1\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 1));
	pipeline_still = true;
	n = kvr_sched_counters(rt->pool[0].sched);
	kvr_hint_put_str(&low, KVR_HINT_POLICY_CLASS, "low");
	pipeline_route(1, 100, 10, 0, NULL);
	pipeline_route(2, 800, 10, 0, NULL);
	pipeline_route(3, 900, 10, 0, &low);
	CU_ASSERT_EQUAL(n->waiting_now, 2);
	CU_ASSERT_TRUE(kvr_sched_class_tunable("request_queue_limit_per_worker"));
	CU_ASSERT_FALSE(kvr_sched_class_tunable("queue_policy"));
	CU_ASSERT_FALSE(kvr_sched_class_tunable("router_temperature"));
	c = *kvr_sched_conf(rt->pool[0].sched);
	c.classes[1].max_requests = 1;
	c.classes[1].queue_policy = KVR_QUEUE_WSPT;
	kvr_sched_tune(rt->pool[0].sched, &c);
	CU_ASSERT_EQUAL(kvr_sched_conf(rt->pool[0].sched)->classes[1].queue_policy, KVR_QUEUE_FCFS);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_REJECTED));
	pipeline_route(4, 1100, 10, 0, &low); /* one waits: the limit is reached */
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_REJECTED));
	pipeline_route(5, 1200, 10, 0, NULL); /* the other class has no limit */
	CU_ASSERT_EQUAL(n->waiting_now, 3);
	/* No rank is busy for `low` any more; `high` waits as before. */
	c.classes[1].busy_threshold_frac = NAN;
	kvr_sched_tune(rt->pool[0].sched, &c);
	pipeline_turn();
	CU_ASSERT_EQUAL(n->waiting_now, 2);
	end_measure_pool();
}

/* A worker reports at the interval of its WELCOME: no shorter silence counts against it. */
static void times_are_not_below_those_of_welcome(void)
{
	struct kvr_router_options next;
	char err[240] = "";

	begin_measure_pool("");
	next = rt->conf.opt;
	CU_ASSERT_EQUAL(control_check_times(rt, &next, err, sizeof(err)), 0);
	next.suspect_ms = rt->conf.opt.heartbeat_ms + 1;
	CU_ASSERT_EQUAL(control_check_times(rt, &next, err, sizeof(err)), 0);
	next.heartbeat_ms = 1; /* for workers that join from now on */
	next.suspect_ms = rt->conf.opt.heartbeat_ms;
	CU_ASSERT_EQUAL(control_check_times(rt, &next, err, sizeof(err)), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(err, "reports every "));
	rt->conf.opt.heartbeat_ms = 1;
	CU_ASSERT_TRUE(pipeline_hello(WORKER, 2, "a", 1)); /* it has joined again */
	CU_ASSERT_EQUAL(control_check_times(rt, &next, err, sizeof(err)), 0);
	end_measure_pool();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(a_request_is_measured_once),
		KVR_CASE(failures_and_retransmits_count_separately),
		KVR_CASE(waiting_is_measured_by_class),
		KVR_CASE(both_legs_of_a_pair_are_measured),
		KVR_CASE(counts_belong_to_the_worker_of_the_rank),
		KVR_CASE(shortfalls_have_reasons),
		KVR_CASE(lost_overlap_is_counted),
		KVR_CASE(decisions_are_found_by_id),
		KVR_CASE(an_id_is_found_by_hash),
		KVR_CASE(the_last_item_reports_the_result),
		KVR_CASE(rejections_state_numbers),
		KVR_CASE(a_failed_prefill_leg_quotes_its_engine),
		KVR_CASE(thresholds_change_while_requests_wait),
		KVR_CASE(keys_of_classes_change),
		KVR_CASE(times_are_not_below_those_of_welcome),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("measure", tests);
}
