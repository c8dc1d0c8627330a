/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Invalid input, frame by frame: each fault has its own code and counter, books nothing and changes
 * no load.
 */
#include "pipeline.h"

#include "control/control.h"
#include "kvr_put.h"
#include "kvr_test.h"

#include <math.h>
#include <string.h>

#define WORKER	    9u
#define RANKS	    2u
#define MAX_PROMPT  4096u /* blocks, limit of the pool */
#define TOO_LARGE_F 1e300 /* finite as double, infinite as float */

/* One fault of a ROUTE: a hint, or the length of the prompt. */
struct bad {
	const char *what;
	void (*hint)(struct kvr_hint_buf *h, const struct bad *b);
	uint32_t field;
	double value;
	uint32_t blocks; /* of the prompt; GOOD unless the prompt is the fault */
	enum kvr_code code;
};

#define GOOD 10u

static void put_override(struct kvr_hint_buf *h, const struct bad *b)
{
	kvr_hint_put_override(h, b->field, b->value);
}

static void put_preferred(struct kvr_hint_buf *h, const struct bad *b)
{
	kvr_hint_put_preferred(h, b->value, "zone");
}

static void put_jump(struct kvr_hint_buf *h, const struct bad *b)
{
	kvr_hint_put_f64(h, KVR_HINT_PRIORITY_JUMP, b->value);
}

static void put_session_hint(struct kvr_hint_buf *h, const struct bad *b)
{
	kvr_hint_put_session(h, 1, b->field, "s");
}

static void put_pin(struct kvr_hint_buf *h, const struct bad *b)
{
	kvr_hint_put_u64(h, KVR_HINT_BACKEND, (uint64_t)b->value);
	kvr_hint_put_u32(h, KVR_HINT_DP_RANK, b->field);
}

static const struct bad routes[] = {
	{"temperature below 0", put_override, KVR_OVERRIDE_ROUTER_TEMPERATURE, -0.1, GOOD,
	 KVR_E_INVALID_OVERRIDE},
	{"temperature NaN", put_override, KVR_OVERRIDE_ROUTER_TEMPERATURE, NAN, GOOD,
	 KVR_E_INVALID_OVERRIDE},
	{"credit below 0", put_override, KVR_OVERRIDE_OVERLAP_SCORE_CREDIT, -1, GOOD,
	 KVR_E_INVALID_OVERRIDE},
	{"credit NaN", put_override, KVR_OVERRIDE_OVERLAP_SCORE_CREDIT, NAN, GOOD,
	 KVR_E_INVALID_OVERRIDE},
	{"prefill scale below 0", put_override, KVR_OVERRIDE_PREFILL_LOAD_SCALE, -1, GOOD,
	 KVR_E_INVALID_OVERRIDE},
	{"prefill scale infinite", put_override, KVR_OVERRIDE_PREFILL_LOAD_SCALE, INFINITY, GOOD,
	 KVR_E_INVALID_OVERRIDE},
	{"score weight below 0", put_override, KVR_OVERRIDE_OVERLAP_SCORE_WEIGHT, -2, GOOD,
	 KVR_E_INVALID_OVERRIDE},
	{"score weight NaN", put_override, KVR_OVERRIDE_OVERLAP_SCORE_WEIGHT, NAN, GOOD,
	 KVR_E_INVALID_OVERRIDE},
	{"shared multiplier above 1", put_override, KVR_OVERRIDE_SHARED_CACHE_MULTIPLIER, 1.5, GOOD,
	 KVR_E_INVALID_OVERRIDE},
	{"reuse neither 0 nor 1", put_override, KVR_OVERRIDE_ASSUME_KV_REUSE, 2, GOOD,
	 KVR_E_INVALID_OVERRIDE},
	{"override of nothing known", put_override, 99, 0, GOOD, KVR_E_INVALID_OVERRIDE},
	{"preferred weight NaN", put_preferred, 0, NAN, GOOD, KVR_E_INVALID_WEIGHT},
	{"preferred weight infinite", put_preferred, 0, INFINITY, GOOD, KVR_E_INVALID_WEIGHT},
	{"preferred weight -infinite", put_preferred, 0, -INFINITY, GOOD, KVR_E_INVALID_WEIGHT},
	{"priority jump NaN", put_jump, 0, NAN, GOOD, KVR_E_INVALID_WEIGHT},
	{"priority jump infinite", put_jump, 0, INFINITY, GOOD, KVR_E_INVALID_WEIGHT},
	{"session timeout 0", put_session_hint, 0, 0, GOOD, KVR_E_INVALID_SESSION},
	{"rank not of the worker", put_pin, RANKS, WORKER, GOOD, KVR_E_NO_ENDPOINTS},
	{"rank above all limits", put_pin, UINT32_MAX, WORKER, GOOD, KVR_E_NO_ENDPOINTS},
	{"worker above all limits", put_pin, 0, 1e18, GOOD, KVR_E_NO_ENDPOINTS},
	{"no prompt", NULL, 0, 0, 0, KVR_E_EMPTY_PROMPT},
	{"prompt above the limit", NULL, 0, 0, MAX_PROMPT + 1, KVR_E_PROMPT_TOO_LONG},
};

/* The state that must not change, and the rejections so far. */
struct state {
	uint32_t booked, waiting, slots;
	struct kvr_sched_rank_info rank[RANKS];
	uint64_t rejected[KVR_STATS_MAX];
};

static void read_state(struct state *s)
{
	const struct pool *p = &rt->pool[0];
	const uint32_t *order;

	memset(s, 0, sizeof(*s));
	s->booked = (uint32_t)kvr_sched_counters(p->sched)->booked_now;
	s->waiting = (uint32_t)kvr_sched_counters(p->sched)->waiting_now;
	s->slots = kvr_flight_count(p->requests);
	CU_ASSERT_EQUAL_FATAL(kvr_sched_rank_order(p->sched, &order), RANKS);
	for (uint32_t i = 0; i < RANKS; i++)
		CU_ASSERT_EQUAL(kvr_sched_rank_get(p->sched, order[i], &s->rank[i]), 0);
	kvr_stats_sum(rt->reject_stats, s->rejected);
}

/* Exactly one more rejection with @p code, and no other change. */
static void expect_rejected(const char *what, uint32_t to, enum kvr_code code, struct state *before)
{
	const struct out *o = pipeline_expect(to, KVR_REJECTED);
	struct state now;

	if (o == NULL || ((const struct kvr_wire_rejected *)(&o->hdr + 1))->code != code)
		printf("%s: no REJECTED %s\n", what, kvr_code_name(code));
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(((const struct kvr_wire_rejected *)(&o->hdr + 1))->code, code);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	read_state(&now);
	before->rejected[code]++;
	CU_ASSERT_EQUAL(memcmp(before, &now, sizeof(now)), 0);
	*before = now;
}

static uint64_t begin_bad_input(void)
{
	const struct out *o;

	pipeline_start_with("[pool a]\nid = 5\nmax_prompt_blocks = 4096\n" PIPELINE_POOL);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", RANKS));
	pipeline_route(1, 100, GOOD, 0, NULL);
	o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	pipeline_flush();
	return o->hdr.handle;
}

static void end_bad_input(void)
{
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[0].jobs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hint_bufs), 0);
	pipeline_stop();
}

static void invalid_requests_are_rejected_and_change_nothing(void)
{
	struct state before;

	CU_ASSERT_NOT_EQUAL(begin_bad_input(), 0);
	read_state(&before);
	CU_ASSERT_EQUAL(before.booked, 1);
	for (uint32_t i = 0; i < RTE_DIM(routes); i++) {
		const struct bad *b = &routes[i];
		uint8_t tlv[128];
		struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};

		if (b->hint != NULL)
			b->hint(&hints, b);
		CU_ASSERT_EQUAL_FATAL(hints.err, 0);
		pipeline_route(100 + i, 5000, b->blocks, 0, &hints);
		expect_rejected(b->what, PEER_CLIENT, b->code, &before);
		pipeline_flush();
	}
	end_bad_input();
}

/* Unusual but valid: a weight that repels, one above any float, a negative jump. */
static void unusual_requests_are_accepted(void)
{
	const struct bad odd[] = {{"repels", put_preferred, 0, -3, GOOD, KVR_OK},
				  {"large", put_preferred, 0, TOO_LARGE_F, GOOD, KVR_OK},
				  {"lowered", put_jump, 0, -5, GOOD, KVR_OK}};

	begin_bad_input();
	for (uint32_t i = 0; i < RTE_DIM(odd); i++) {
		uint8_t tlv[128];
		struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};

		odd[i].hint(&hints, &odd[i]);
		pipeline_route(2 + i, 5000, GOOD, 0, &hints);
		CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	}
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 1 + RTE_DIM(odd));
	end_bad_input();
}

static void invalid_workers_are_rejected_and_change_nothing(void)
{
	const struct {
		struct pipeline_worker w;
		enum kvr_code code;
	} bad[] = {
		{{.id = 10, .epoch = 1, .pool = "unknown", .ranks = 1}, KVR_E_UNKNOWN_POOL},
		{{.id = 10, .epoch = 0, .pool = "a", .ranks = 1}, KVR_E_STALE_EPOCH},
		{{.id = 10, .epoch = 1, .pool = "a", .ranks = 65}, KVR_E_WORKER_LIMIT},
		{{.id = 10, .epoch = 1, .pool = "a", .ranks = 64}, KVR_E_WORKER_LIMIT},
		{{.id = 10, .epoch = 1, .pool = "a", .ranks = 0}, KVR_E_INVALID_REQUEST},
	};
	struct state before;

	begin_bad_input();
	read_state(&before);
	for (uint32_t i = 0; i < RTE_DIM(bad); i++) {
		struct pipeline_worker w = bad[i].w;

		w.from = PEER_OTHER;
		CU_ASSERT_FALSE(pipeline_hello_as(&w));
		expect_rejected("worker", PEER_OTHER, bad[i].code, &before);
		CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), 1);
	}
	end_bad_input();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(invalid_requests_are_rejected_and_change_nothing),
			       KVR_CASE(unusual_requests_are_accepted),
			       KVR_CASE(invalid_workers_are_rejected_and_change_nothing),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("bad_input", tests);
}
