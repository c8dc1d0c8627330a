/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every frame of an agent or a client in every state of a request, alone and in twos: aggregated,
 * with a session, in a pair of pools. Whatever is said when, nobody crashes, and in the end nothing
 * is left: no slot, job, buffer, booking, session room or leg, and the counters add up.
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

static uint64_t id; /* of the request that is looked at */
static uint32_t epoch = 1;

/* ---- who knows what: a hostile peer has guessed every name ---- */

static struct kvr_flight *slot(void)
{
	return kvr_flight_lookup(rt->pool[0].requests, 77, id);
}

static struct kvr_flight *prefill_slot(void)
{
	const struct kvr_flight *s = slot();

	return s != NULL ? request_of(s)->slot[KVR_LEG_PREFILL] : NULL;
}

static uint64_t handle, prefill_handle; /* while there are any */

static void look(void)
{
	struct kvr_flight *r = slot();

	if (r != NULL)
		handle = kvr_flight_handle(rt->pool[0].requests, r);
	r = prefill_slot();
	if (r != NULL)
		prefill_handle = kvr_flight_handle(rt->pool[1].requests, r);
}

/* ---- what is said ---- */

static void empty(uint32_t from, uint8_t kind, uint64_t h)
{
	const struct kvr_wire_ids ids = {77, id, h, pipeline_epoch(h), 0};
	uint8_t buf[64];

	pipeline_send(from, buf, (size_t)kvr_put_empty(buf, sizeof(buf), kind, &ids));
	pipeline_turn();
}

static void response(uint64_t h, uint16_t flags)
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

static void progress(uint64_t h, uint16_t flags)
{
	const struct kvr_wire_ids ids = {77, id, h, pipeline_epoch(h), 0};
	const struct kvr_wire_progress p = {
		.flags = flags, .generated_tokens = 1, .cached_tokens = KVR_NONE32};
	uint8_t buf[128];

	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_progress(buf, sizeof(buf), &ids, &p));
	pipeline_turn();
}

static void dispatch_ack(uint64_t h, uint16_t code)
{
	const struct kvr_wire_dispatch_ack a = {.code = code};
	const struct kvr_wire_ids ids = {77, id, h, pipeline_epoch(h), 0};
	uint8_t buf[128];

	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &a));
	pipeline_turn();
}

static void session(uint8_t kind, uint64_t worker, uint16_t code)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = handle, .epoch = epoch};
	uint8_t buf[128];

	pipeline_send(PEER_AGENT, buf,
		      (size_t)kvr_put_session_status(buf, sizeof(buf), kind, &ids, code));
	pipeline_turn();
}

static uint64_t serving(void)
{
	const struct kvr_flight *r = slot();

	return r != NULL && r->relay.worker != 0 ? r->relay.worker : W1;
}

static void response_ack(uint32_t flags)
{
	const struct kvr_wire_response_ack a = {1, flags};
	const struct kvr_wire_ids ids = {77, id, handle, 1, 0};
	uint8_t buf[128];

	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_response_ack(buf, sizeof(buf), &ids, &a));
	pipeline_turn();
}

static void route(uint8_t action, uint32_t flags)
{
	uint8_t tlv[512];
	struct kvr_hint_buf h = {.p = tlv, .cap = sizeof(tlv)};

	if (action != 0)
		kvr_hint_put_session(&h, action, 60, "s");
	pipeline_route(id, 1000 * id, 4, flags, &h);
}

static uint8_t action; /* of the request's session */

static void release_session(void)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = 5000, .epoch = 1};
	uint8_t buf[512];
	int len = kvr_put_session(buf, sizeof(buf), KVR_SESSION_RELEASE, &ids,
				  (struct kvr_wire_session){.pool = 5}, (struct kvr_str){"s", 1});

	pipeline_send(PEER_CLIENT, buf, (size_t)len);
	pipeline_turn();
}

static void say(int what)
{
	switch (what) {
	case 0:
		dispatch_ack(handle, 0);
		break;
	case 1:
		dispatch_ack(handle, 7);
		break;
	case 2:
		response(handle, 0);
		break;
	case 3:
		response(handle, KVR_RESP_F_FIN);
		break;
	case 4:
		response(handle, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
		break;
	case 5:
		progress(handle, KVR_PROG_F_FIRST);
		break;
	case 6:
		progress(handle, KVR_PROG_F_FIN);
		break;
	case 7:
		empty(PEER_AGENT, KVR_ABORT_ACK, handle);
		break;
	case 8:
		session(KVR_SESSION_OPENED, serving(), 0);
		break;
	case 9:
		session(KVR_SESSION_OPENED, serving(), 5);
		break;
	case 10:
		session(KVR_SESSION_CLOSED, serving(), 0);
		break;
	case 11:
		response_ack(KVR_RACK_F_FIN);
		break;
	case 12:
		response_ack(0);
		break;
	case 13:
		empty(PEER_CLIENT, KVR_CANCEL, handle);
		break;
	case 14:
		empty(PEER_CLIENT, KVR_CANCEL, 0);
		break;
	case 15:
		empty(PEER_CLIENT, KVR_PROBE, 0);
		break;
	case 16:
		route(action, KVR_REQ_F_RESEND);
		break;
	case 17:
		release_session();
		break;
	case 18:
		pipeline_advance(700);
		break; /* repetitions become due */
	case 19:
		pipeline_advance(5100);
		break; /* opens are given up */
	/* a pair's prefill leg */
	case 20:
		dispatch_ack(prefill_handle, 0);
		break;
	case 21:
		dispatch_ack(prefill_handle, 7);
		break;
	case 22:
		response(prefill_handle, 0);
		break;
	case 23:
		response(prefill_handle, KVR_RESP_F_FIN);
		break;
	case 24:
		response(prefill_handle, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
		break;
	case 25:
		progress(prefill_handle, KVR_PROG_F_FIN);
		break;
	case 26:
		empty(PEER_AGENT, KVR_ABORT_ACK, prefill_handle);
		break;
	}
}
#define SAID_LONE 20
#define SAID_PAIR 27

/* ---- the states ---- */

static bool pair;

static void hello(uint64_t worker, const char *pool, uint8_t role)
{
	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&(const struct pipeline_worker){.id = worker,
									       .epoch = epoch,
									       .pool = pool,
									       .ranks = 1,
									       .from = PEER_AGENT,
									       .role = role}));
}

static void join(void)
{
	if (pair) {
		hello(P1, "p", KVR_ROLE_PREFILL);
		hello(D1, "d", KVR_ROLE_DECODE);
	} else {
		hello(W1, "a", 0);
		hello(W2, "a", 0);
	}
	pipeline_flush();
}

static void leave(void)
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

static void expect(enum kvr_rq_state state)
{
	look();
	CU_ASSERT_PTR_NOT_NULL_FATAL(slot());
	CU_ASSERT_EQUAL(leg_state(request_of(slot()), KVR_LEG_MAIN), state);
}

static void busy(void)
{
	/* Both workers compute other prompts: what comes next waits. */
	for (uint64_t other = 1; other <= 2; other++)
		pipeline_route(1000000 + 2 * id + other, 77777 * other, 200, 0, NULL);
}

static void to_queued(void)
{
	busy();
	route(0, 0);
	expect(KVR_RQS_QUEUED);
}

static void to_held(void)
{
	route(action = KVR_ACTION_OPEN, 0);
	expect(KVR_RQS_HELD);
}

static void to_sent(void)
{
	route(0, 0);
	expect(KVR_RQS_SENT);
}

static void to_direct(void)
{
	route(0, KVR_REQ_F_DIRECT);
	expect(KVR_RQS_SENT);
}

static void to_running(void)
{
	to_sent();
	dispatch_ack(handle, 0);
	expect(KVR_RQS_RUNNING);
}

static void to_opened(void)
{
	to_held();
	session(KVR_SESSION_OPENED, serving(), 0);
	expect(KVR_RQS_SENT);
}

static void to_ended(void)
{
	to_running();
	response(handle, KVR_RESP_F_FIN);
	expect(KVR_RQS_ENDED);
}

static void to_cancelled(void)
{
	to_running();
	empty(PEER_CLIENT, KVR_CANCEL, 0);
	expect(KVR_RQS_ENDED);
}

static void to_refused(void)
{
	to_sent();
	dispatch_ack(handle, 7);
	expect(KVR_RQS_ENDED);
}

static void to_gone(void)
{
	to_ended();
	response_ack(KVR_RACK_F_FIN);
	CU_ASSERT_PTR_NULL(slot());
}

static void to_prefill_sent(void)
{
	route(0, 0);
	expect(KVR_RQS_UNDECIDED);
	CU_ASSERT_PTR_NOT_NULL(prefill_slot());
}

static void to_prefill_queued(void)
{
	for (uint64_t other = 1; other <= 2; other++)
		pipeline_route(1000000 + 2 * id + other, 77777 * other, 200, 0, NULL);
	route(0, 0);
	expect(KVR_RQS_UNDECIDED);
}

static void to_decode_sent(void)
{
	to_prefill_sent();
	response(prefill_handle, KVR_RESP_F_FIN);
	expect(KVR_RQS_SENT);
}

static void to_decode_running(void)
{
	to_decode_sent();
	response(handle, 0);
	expect(KVR_RQS_RUNNING);
}

static void to_decode_held(void)
{
	route(action = KVR_ACTION_OPEN, 0);
	look();
	response(prefill_handle, KVR_RESP_F_FIN);
	expect(KVR_RQS_HELD);
}

static void to_prefill_cancelled(void)
{
	to_prefill_sent();
	empty(PEER_CLIENT, KVR_CANCEL, 0);
	expect(KVR_RQS_UNDECIDED); /* its prefill goes on */
}

static void to_started_over(void)
{
	to_prefill_sent();
	dispatch_ack(prefill_handle, 7);
	look();
}

/* ---- the end ---- */

/* How many sessions could be opened now. */
static uint32_t room(struct sessions *s)
{
	uint32_t n = 0;

	while (kvr_session_reserve(s->table))
		n++;
	for (uint32_t i = 0; i < n; i++)
		kvr_session_unreserve(s->table);
	return n;
}

static void pool_at_rest(const struct pool *p)
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
	/* All of its room is there again. */
	CU_ASSERT_EQUAL(room(p->sessions), p->sessions->max);
}

static bool at_rest(void)
{
	const unsigned int before = CU_get_number_of_failures();

	release_session();
	leave();
	for (uint32_t ms = 0; ms < KVR_FLIGHT_LINGER_NS / 1000000 + 6000; ms += 2000)
		pipeline_advance(2000);
	for (uint32_t i = 0; i < rt->n_pools; i++)
		pool_at_rest(&rt->pool[i]);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_flush();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	return CU_get_number_of_failures() == before;
}

/* ---- all of it ---- */

struct state {
	const char *name;
	void (*to)(void);
};

static void each(const char *pools, const struct state *s, uint32_t n, int said)
{
	pipeline_start_with(pools);
	pair = rt->n_pools > 1;
	for (uint32_t i = 0; i < n; i++)
		for (int a = 0; a < said; a++)
			for (int b = -1; b < said; b++) {
				id++;
				action = 0;
				handle = prefill_handle = 0;
				join();
				s[i].to();
				say(a);
				look();
				if (b >= 0)
					say(b);
				if (!at_rest()) {
					fprintf(stderr, "state %s, then %d, then %d\n", s[i].name,
						a, b);
					b = a = said;
				}
			}
	pipeline_stop();
}

static void one_pool(void)
{
	static const struct state states[] = {
		{"queued", to_queued},	 {"sent", to_sent},   {"direct", to_direct},
		{"running", to_running}, {"ended", to_ended}, {"cancelled", to_cancelled},
		{"refused", to_refused}, {"gone", to_gone},   {"held", to_held},
		{"opened", to_opened},
	};

	each(LONE, states, RTE_DIM(states), SAID_LONE);
}

static void pair_of_pools(void)
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

	each(PAIR, states, RTE_DIM(states), SAID_PAIR);
}

/* What the table does not allow is counted, and changes nothing. */
static void out_of_turn_is_counted(void)
{
	pipeline_start_with(LONE);
	pair = false;
	id++;
	join();
	to_held();
	response(handle, 0); /* its worker has not been sent it: nobody's item */
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_REJECTED));
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	expect(KVR_RQS_HELD);
	session(KVR_SESSION_OPENED, serving(), 0);
	expect(KVR_RQS_SENT);
	empty(PEER_AGENT, KVR_ABORT_ACK, handle); /* nobody has asked */
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_UNEXPECTED_STATE), 1);
	response_ack(KVR_RACK_F_FIN); /* of no end: it stays on the lcore that has got it */
	CU_ASSERT_EQUAL(kvr_stats_get(rt->lcore[0]->in, IN_PREMATURE_ACK), 1);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_UNEXPECTED_STATE), 1);
	dispatch_ack(handle, 0);
	dispatch_ack(handle, 0); /* a copy: it has it still */
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_LATE_FRAMES), 0);
	session(KVR_SESSION_OPENED, serving(), 0);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_LATE_FRAMES), 1);
	dispatch_ack(handle, 7); /* it has been taken */
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_UNEXPECTED_STATE), 2);
	expect(KVR_RQS_RUNNING);
	CU_ASSERT_TRUE(at_rest());
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(one_pool),
		KVR_CASE(pair_of_pools),
		KVR_CASE(out_of_turn_is_counted),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("states", tests);
}
