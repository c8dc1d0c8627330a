/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every frame of an agent or a client in every state of a request, alone and in pairs: aggregated,
 * with a session, in a pair of pools. No frame may crash the router, and in the end nothing is
 * left: no slot, job, buffer, booking, session place or leg, and the counters balance.
 */
#include "pipeline.h"

#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include "sched/request.h"
#include "sched/session.h"
#include <stdio.h>
#include <string.h>

#define W1 9u
#define W2 10u
#define P1 21u
#define D1 31u

#define LONE "[pool a]\nid = 5\n" PIPELINE_POOL "max_sessions = 8\nrouter_queue_threshold = 0.5\n"
#define PAIR                                                                                       \
	"[pool d]\nid = 5\nmodel = m\nrole = decode\n" PIPELINE_POOL "max_sessions = 8\n"          \
	"[pool p]\nid = 6\nmodel = m\nrole = prefill\n" PIPELINE_POOL                              \
	"max_sessions = 8\nrouter_queue_threshold = 0.5\n"

static uint64_t id; /* of the request under test */
static uint32_t epoch = 1;

/* ---- names: a hostile peer has guessed all of them ---- */

static struct kvr_flight *find_slot(void)
{
	return kvr_flight_lookup(rt->pool[0].requests, 77, id);
}

static struct kvr_flight *find_prefill_slot(void)
{
	const struct kvr_flight *s = find_slot();

	return s != NULL ? request_of(s)->slot[KVR_LEG_PREFILL] : NULL;
}

static uint64_t handle, prefill_handle; /* 0 unless they exist */

static void read_handles(void)
{
	struct kvr_flight *r = find_slot();

	if (r != NULL)
		handle = kvr_flight_handle(rt->pool[0].requests, r);
	r = find_prefill_slot();
	if (r != NULL)
		prefill_handle = kvr_flight_handle(rt->pool[1].requests, r);
}

/* ---- frames ---- */

static void send_empty_to(uint32_t from, uint8_t kind, uint64_t h)
{
	const struct kvr_wire_ids ids = {77, id, h, pipeline_epoch(h), 0};
	uint8_t buf[64];

	pipeline_send(from, buf, (size_t)kvr_put_empty(buf, sizeof(buf), kind, &ids));
	pipeline_turn();
}

static void send_response(uint64_t h, uint16_t flags)
{
	const struct kvr_wire_ids ids = {77, id, h, pipeline_epoch(h), 0};
	const struct kvr_wire_response r = {
		.flags = flags, .generated_tokens = 1, .cached_tokens = KVR_NONE32};
	uint8_t buf[128];

	pipeline_send(
		PEER_AGENT, buf,
		(size_t)kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){"item", 4}));
	pipeline_turn();
}

static void report_progress(uint64_t h, uint16_t flags)
{
	const struct kvr_wire_ids ids = {77, id, h, pipeline_epoch(h), 0};
	const struct kvr_wire_progress p = {
		.flags = flags, .generated_tokens = 1, .cached_tokens = KVR_NONE32};
	uint8_t buf[128];

	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_progress(buf, sizeof(buf), &ids, &p));
	pipeline_turn();
}

static void acknowledge_leg(uint64_t h, uint16_t code)
{
	const struct kvr_wire_dispatch_ack a = {.code = code};
	const struct kvr_wire_ids ids = {77, id, h, pipeline_epoch(h), 0};
	uint8_t buf[128];

	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &a));
	pipeline_turn();
}

static void reply_to_session(uint8_t kind, uint64_t worker, uint16_t code)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = handle, .epoch = epoch};
	uint8_t buf[128];

	pipeline_send(PEER_AGENT, buf,
		      (size_t)kvr_put_session_status(buf, sizeof(buf), kind, &ids, code));
	pipeline_turn();
}

static uint64_t get_serving_worker(void)
{
	const struct kvr_flight *r = find_slot();

	return r != NULL && r->relay.worker != 0 ? r->relay.worker : W1;
}

static void acknowledge_items(uint32_t flags)
{
	const struct kvr_wire_response_ack a = {1, flags};
	const struct kvr_wire_ids ids = {77, id, handle, 1, 0};
	uint8_t buf[128];

	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_response_ack(buf, sizeof(buf), &ids, &a));
	pipeline_turn();
}

static void route_with_action(uint8_t action, uint32_t flags)
{
	uint8_t tlv[512];
	struct kvr_hint_buf h = {.p = tlv, .cap = sizeof(tlv)};

	if (action != 0)
		kvr_hint_put_session(&h, action, 60, "s");
	pipeline_route(id, 1000 * id, 4, flags, &h);
}

static uint8_t action; /* session action of the request */

static void release_session(void)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = 5000, .epoch = 1};
	uint8_t buf[512];
	int len = kvr_put_session(buf, sizeof(buf), KVR_SESSION_RELEASE, &ids,
				  (struct kvr_wire_session){.pool = 5}, (struct kvr_str){"s", 1});

	pipeline_send(PEER_CLIENT, buf, (size_t)len);
	pipeline_turn();
}

static void send_frame_number(int what)
{
	switch (what) {
	case 0:
		acknowledge_leg(handle, 0);
		break;
	case 1:
		acknowledge_leg(handle, 7);
		break;
	case 2:
		send_response(handle, 0);
		break;
	case 3:
		send_response(handle, KVR_RESP_F_FIN);
		break;
	case 4:
		send_response(handle, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
		break;
	case 5:
		report_progress(handle, KVR_PROG_F_FIRST);
		break;
	case 6:
		report_progress(handle, KVR_PROG_F_FIN);
		break;
	case 7:
		send_empty_to(PEER_AGENT, KVR_ABORT_ACK, handle);
		break;
	case 8:
		reply_to_session(KVR_SESSION_OPENED, get_serving_worker(), 0);
		break;
	case 9:
		reply_to_session(KVR_SESSION_OPENED, get_serving_worker(), 5);
		break;
	case 10:
		reply_to_session(KVR_SESSION_CLOSED, get_serving_worker(), 0);
		break;
	case 11:
		acknowledge_items(KVR_RACK_F_FIN);
		break;
	case 12:
		acknowledge_items(0);
		break;
	case 13:
		send_empty_to(PEER_CLIENT, KVR_CANCEL, handle);
		break;
	case 14:
		send_empty_to(PEER_CLIENT, KVR_CANCEL, 0);
		break;
	case 15:
		send_empty_to(PEER_CLIENT, KVR_PROBE, 0);
		break;
	case 16:
		route_with_action(action, KVR_REQ_F_RESEND);
		break;
	case 17:
		release_session();
		break;
	case 18:
		pipeline_advance(700);
		break; /* retransmissions become due */
	case 19:
		pipeline_advance(5100);
		break; /* opens are given up */
	/* the prefill leg of a pair */
	case 20:
		acknowledge_leg(prefill_handle, 0);
		break;
	case 21:
		acknowledge_leg(prefill_handle, 7);
		break;
	case 22:
		send_response(prefill_handle, 0);
		break;
	case 23:
		send_response(prefill_handle, KVR_RESP_F_FIN);
		break;
	case 24:
		send_response(prefill_handle, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
		break;
	case 25:
		report_progress(prefill_handle, KVR_PROG_F_FIN);
		break;
	case 26:
		send_empty_to(PEER_AGENT, KVR_ABORT_ACK, prefill_handle);
		break;
	}
}
#define SAID_LONE 20
#define SAID_PAIR 27

/* ---- states ---- */

static bool pair;

static void join_serving(uint64_t worker, const char *pool, uint8_t role)
{
	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&(const struct pipeline_worker){.id = worker,
									       .epoch = epoch,
									       .pool = pool,
									       .ranks = 1,
									       .from = PEER_AGENT,
									       .role = role}));
}

static void join_workers(void)
{
	if (pair) {
		join_serving(P1, "p", KVR_ROLE_PREFILL);
		join_serving(D1, "d", KVR_ROLE_DECODE);
	} else {
		join_serving(W1, "a", 0);
		join_serving(W2, "a", 0);
	}
	pipeline_flush();
}

static void remove_workers(void)
{
	static const uint64_t worker[] = {W1, W2, P1, D1};

	for (uint32_t i = 0; i < RTE_DIM(worker); i++) {
		const struct kvr_wire_ids ids = {.source = worker[i], .id = 9, .epoch = epoch};
		uint8_t buf[64];

		pipeline_send(PEER_AGENT, buf,
			      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
	}
	pipeline_turn();
	epoch++;
}

static void expect_state(enum kvr_rq_state state)
{
	read_handles();
	CU_ASSERT_PTR_NOT_NULL_FATAL(find_slot());
	CU_ASSERT_EQUAL(leg_state(request_of(find_slot()), KVR_LEG_MAIN), state);
}

static void occupy_workers(void)
{
	/* Both workers compute other prompts: the next request waits. */
	for (uint64_t other = 1; other <= 2; other++)
		pipeline_route(1000000 + 2 * id + other, 77777 * other, 200, 0, NULL);
}

static void to_queued(void)
{
	occupy_workers();
	route_with_action(0, 0);
	expect_state(KVR_RQS_QUEUED);
}

static void to_held(void)
{
	route_with_action(action = KVR_ACTION_OPEN, 0);
	expect_state(KVR_RQS_HELD);
}

static void to_sent(void)
{
	route_with_action(0, 0);
	expect_state(KVR_RQS_SENT);
}

static void to_direct(void)
{
	route_with_action(0, KVR_REQ_F_DIRECT);
	expect_state(KVR_RQS_SENT);
}

static void to_running(void)
{
	to_sent();
	acknowledge_leg(handle, 0);
	expect_state(KVR_RQS_RUNNING);
}

static void to_opened(void)
{
	to_held();
	reply_to_session(KVR_SESSION_OPENED, get_serving_worker(), 0);
	expect_state(KVR_RQS_SENT);
}

static void to_ended(void)
{
	to_running();
	send_response(handle, KVR_RESP_F_FIN);
	expect_state(KVR_RQS_ENDED);
}

static void to_cancelled(void)
{
	to_running();
	send_empty_to(PEER_CLIENT, KVR_CANCEL, 0);
	expect_state(KVR_RQS_ENDED);
}

static void to_refused(void)
{
	to_sent();
	acknowledge_leg(handle, 7);
	expect_state(KVR_RQS_ENDED);
}

static void to_gone(void)
{
	to_ended();
	acknowledge_items(KVR_RACK_F_FIN);
	CU_ASSERT_PTR_NULL(find_slot());
}

static void to_prefill_sent(void)
{
	route_with_action(0, 0);
	expect_state(KVR_RQS_UNDECIDED);
	CU_ASSERT_PTR_NOT_NULL(find_prefill_slot());
}

static void to_prefill_queued(void)
{
	for (uint64_t other = 1; other <= 2; other++)
		pipeline_route(1000000 + 2 * id + other, 77777 * other, 200, 0, NULL);
	route_with_action(0, 0);
	expect_state(KVR_RQS_UNDECIDED);
}

static void to_decode_sent(void)
{
	to_prefill_sent();
	send_response(prefill_handle, KVR_RESP_F_FIN);
	expect_state(KVR_RQS_SENT);
}

static void to_decode_running(void)
{
	to_decode_sent();
	send_response(handle, 0);
	expect_state(KVR_RQS_RUNNING);
}

static void to_decode_held(void)
{
	route_with_action(action = KVR_ACTION_OPEN, 0);
	read_handles();
	send_response(prefill_handle, KVR_RESP_F_FIN);
	expect_state(KVR_RQS_HELD);
}

static void to_prefill_cancelled(void)
{
	to_prefill_sent();
	send_empty_to(PEER_CLIENT, KVR_CANCEL, 0);
	expect_state(KVR_RQS_UNDECIDED); /* its prefill goes on */
}

static void to_started_over(void)
{
	to_prefill_sent();
	acknowledge_leg(prefill_handle, 7);
	read_handles();
}

/* ---- end ---- */

/* Number of sessions that could be opened now. */
static uint32_t count_session_places(struct sessions *s)
{
	uint32_t n = 0;

	while (kvr_session_reserve(s->table))
		n++;
	for (uint32_t i = 0; i < n; i++)
		kvr_session_unreserve(s->table);
	return n;
}

static void expect_pool_at_rest(const struct pool *p)
{
	CU_ASSERT_EQUAL(kvr_sched_counters(p->sched)->booked_now, 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(p->sched)->waiting_now, 0);
	CU_ASSERT_EQUAL(kvr_flight_count(p->requests), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(p->jobs), 0);
	CU_ASSERT_EQUAL(p->live.held, 0);
	CU_ASSERT_TRUE(TAILQ_EMPTY(&p->live.aborts));
	if (p->pairs != NULL) {
		CU_ASSERT_EQUAL(rte_mempool_in_use_count(p->pairs), 0);
		CU_ASSERT_EQUAL(p->pair.n_prefilling, 0);
	}
	if (p->sessions == NULL)
		return;
	CU_ASSERT_EQUAL(kvr_session_count(p->sessions->table), 0);
	CU_ASSERT_EQUAL(kvr_stats_get(p->sessions->count, SC_OPENING), 0);
	CU_ASSERT_EQUAL(kvr_stats_get(p->sessions->count, SC_CLOSING), 0);
	/* All of its places are free again. */
	CU_ASSERT_EQUAL(count_session_places(p->sessions), p->sessions->max);
}

static bool expect_at_rest(void)
{
	const unsigned int before = CU_get_number_of_failures();

	release_session();
	remove_workers();
	for (uint32_t ms = 0; ms < KVR_FLIGHT_LINGER_NS / 1000000 + 6000; ms += 2000)
		pipeline_advance(2000);
	for (uint32_t i = 0; i < rt->n_pools; i++)
		expect_pool_at_rest(&rt->pool[i]);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_flush();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	return CU_get_number_of_failures() == before;
}

/* ---- all combinations ---- */

struct state {
	const char *name;
	void (*to)(void);
};

static void check_each(const char *pools, const struct state *s, uint32_t n, int frames)
{
	pipeline_start_with(pools);
	pair = rt->n_pools > 1;
	for (uint32_t i = 0; i < n; i++)
		for (int a = 0; a < frames; a++)
			for (int b = -1; b < frames; b++) {
				id++;
				action = 0;
				handle = prefill_handle = 0;
				join_workers();
				s[i].to();
				send_frame_number(a);
				read_handles();
				if (b >= 0)
					send_frame_number(b);
				if (!expect_at_rest()) {
					fprintf(stderr, "state %s, then %d, then %d\n", s[i].name,
						a, b);
					b = a = frames;
				}
			}
	pipeline_stop();
}

static void every_frame_in_every_state_of_a_pool(void)
{
	static const struct state states[] = {
		{"queued", to_queued},	 {"sent", to_sent},   {"direct", to_direct},
		{"running", to_running}, {"ended", to_ended}, {"cancelled", to_cancelled},
		{"refused", to_refused}, {"gone", to_gone},   {"held", to_held},
		{"opened", to_opened},
	};

	check_each(LONE, states, RTE_DIM(states), SAID_LONE);
}

static void every_frame_in_every_state_of_a_pair(void)
{
	static const struct state states[] = {
		{"prefill sent", to_prefill_sent},
		{"prefill queued", to_prefill_queued},
		{"decode sent", to_decode_sent},
		{"decode running", to_decode_running},
		{"decode held", to_decode_held},
		{"cancelled during prefill", to_prefill_cancelled},
		{"started over", to_started_over},
	};

	check_each(PAIR, states, RTE_DIM(states), SAID_PAIR);
}

/* An unexpected frame is counted and changes nothing. */
static void unexpected_frames_are_counted(void)
{
	pipeline_start_with(LONE);
	pair = false;
	id++;
	join_workers();
	to_held();
	send_response(handle,
		      0); /* the worker was not dispatched it: the item belongs to no request */
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_REJECTED));
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	expect_state(KVR_RQS_HELD);
	reply_to_session(KVR_SESSION_OPENED, get_serving_worker(), 0);
	expect_state(KVR_RQS_SENT);
	send_empty_to(PEER_AGENT, KVR_ABORT_ACK, handle); /* no ABORT was sent */
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_UNEXPECTED_STATE), 1);
	acknowledge_items(KVR_RACK_F_FIN); /* without a last item: it stays on its ingress lcore */
	CU_ASSERT_EQUAL(kvr_stats_get(rt->lcore[0]->in, IN_PREMATURE_ACK), 1);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_UNEXPECTED_STATE), 1);
	acknowledge_leg(handle, 0);
	acknowledge_leg(handle, 0); /* a copy */
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_LATE_FRAMES), 0);
	reply_to_session(KVR_SESSION_OPENED, get_serving_worker(), 0);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_LATE_FRAMES), 1);
	acknowledge_leg(handle, 7); /* was acknowledged before */
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_UNEXPECTED_STATE), 2);
	expect_state(KVR_RQS_RUNNING);
	CU_ASSERT_TRUE(expect_at_rest());
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(every_frame_in_every_state_of_a_pool),
		KVR_CASE(every_frame_in_every_state_of_a_pair),
		KVR_CASE(unexpected_frames_are_counted),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("states", tests);
}
