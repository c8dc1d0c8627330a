/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions by the frame: what clients and workers see, and that nothing is left behind. */
#include "pipeline.h"

#include "control/control.h"
#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include "sched/session.h"
#include <stdio.h>
#include <string.h>

#define POOL "[pool a]\nid = 5\n" PIPELINE_POOL "router_queue_threshold = none\n"
#define W1   9u
#define W2   10u

static struct pool *pool(void)
{
	return &rt->pool[0];
}

static uint64_t counter(enum session_counter c)
{
	return kvr_stats_get(pool()->sessions->count, c);
}

static uint64_t live(void)
{
	return (uint32_t)kvr_sched_counters(pool()->sched)->booked_now;
}

/* ---- what the peers send ---- */

static struct kvr_wire_ids ids_of(uint64_t id, uint64_t handle)
{
	return (struct kvr_wire_ids){
		.source = 77, .id = id, .handle = handle, .epoch = pipeline_epoch(handle)};
}

static void respond(uint64_t id, uint64_t handle, uint16_t flags)
{
	const struct kvr_wire_ids ids = ids_of(id, handle);
	const struct kvr_wire_response r = {
		.flags = flags, .generated_tokens = 1, .cached_tokens = KVR_NONE32};
	uint8_t buf[256];
	int len = kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){"item", 4});

	pipeline_send(PEER_AGENT, buf, (size_t)len);
	pipeline_turn();
}

/* The last item, and the client has it. */
static void finish(uint64_t id, uint64_t handle, uint16_t flags)
{
	const struct kvr_wire_response_ack a = {1, KVR_RACK_F_FIN};
	const struct kvr_wire_ids ids = ids_of(id, handle);
	uint8_t buf[128];

	respond(id, handle, flags | KVR_RESP_F_FIN);
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_response_ack(buf, sizeof(buf), &ids, &a));
	pipeline_turn();
}

static void dispatch_ack(uint64_t id, uint64_t handle, uint16_t code)
{
	const struct kvr_wire_dispatch_ack a = {.code = code};
	const struct kvr_wire_ids ids = ids_of(id, handle);
	uint8_t buf[128];

	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &a));
	pipeline_turn();
}

static void cancel(uint64_t id)
{
	const struct kvr_wire_ids ids = ids_of(id, 0);
	uint8_t buf[64];

	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
}

static uint32_t life(uint64_t worker)
{
	const struct kvr_worker *w = kvr_registry_find(rt->registry, worker);

	return w != NULL ? w->epoch : 1;
}

static void answer(uint8_t kind, uint64_t worker, uint64_t number, uint16_t code)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = number, .epoch = life(worker)};
	uint8_t buf[128];
	int len = kvr_put_session_status(buf, sizeof(buf), kind, &ids, code);

	CU_ASSERT_FATAL(len > 0);
	pipeline_send(PEER_AGENT, buf, (size_t)len);
	pipeline_turn();
}

static void release(const char *session, uint16_t pool_id)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = 5000, .epoch = 1};
	uint8_t buf[512];
	int len = kvr_put_session(buf, sizeof(buf), KVR_SESSION_RELEASE, &ids,
				  (struct kvr_wire_session){.pool = pool_id},
				  (struct kvr_str){session, (uint32_t)strlen(session)});

	CU_ASSERT_FATAL(len > 0);
	pipeline_send(PEER_CLIENT, buf, (size_t)len);
	pipeline_turn();
}

/* A ROUTE with a session; pin 0: none. */
static void route_pinned(uint64_t id, uint8_t action, const char *session, uint32_t timeout_s,
			 uint64_t pin, uint32_t flags)
{
	uint8_t tlv[512];
	struct kvr_hint_buf h = {.p = tlv, .cap = sizeof(tlv)};

	if (pin != 0) {
		kvr_hint_put_u64(&h, KVR_HINT_BACKEND, pin);
		kvr_hint_put_u32(&h, KVR_HINT_DP_RANK, 0);
	}
	kvr_hint_put_session(&h, action, timeout_s, session);
	pipeline_route(id, 100 * id, 4, flags, &h);
}

static void route(uint64_t id, uint8_t action, const char *session)
{
	route_pinned(id, action, session, KVR_NONE32, 0, 0);
}

/* ---- what the peers get ---- */

/* Handle of the DISPATCH that was sent, and its worker; 0: none. */
static uint64_t dispatched(uint64_t *worker)
{
	const struct out *o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);

	if (o == NULL)
		return 0;
	*worker = ((const struct kvr_wire_request *)(&o->hdr + 1))->worker;
	return o->hdr.handle;
}

static int code_of(uint8_t kind)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, kind);

	/* REJECTED and the answers about sessions begin with the code. */
	return o == NULL ? -1 : ((const struct kvr_wire_rejected *)(&o->hdr + 1))->code;
}

static int rejected(void)
{
	return code_of(KVR_REJECTED);
}

static int accepted_state(void)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);

	return o == NULL ? -1 : ((const struct kvr_wire_accepted *)(&o->hdr + 1))->state;
}

/* A message about `session` to a worker. @return its number, 0 when there is none. */
static uint64_t asked(uint8_t kind, const char *session, uint64_t *worker, uint32_t *timeout_s)
{
	const struct out *o = pipeline_expect(PEER_AGENT, kind);
	const struct kvr_wire_session *b;

	if (o == NULL)
		return 0;
	b = (const void *)(&o->hdr + 1);
	CU_ASSERT_EQUAL(b->id_len, strlen(session));
	CU_ASSERT_EQUAL(memcmp(b + 1, session, b->id_len), 0);
	*worker = o->hdr.source;
	if (timeout_s != NULL)
		*timeout_s = b->timeout_s;
	return o->hdr.id;
}

/* SESSION_CLOSE for `session` has been sent to `worker`; answer it. */
static void close_answered(const char *session, uint64_t worker)
{
	uint64_t to = 0, number = asked(KVR_SESSION_CLOSE, session, &to, NULL);

	CU_ASSERT_NOT_EQUAL(number, 0);
	CU_ASSERT_EQUAL(to, worker);
	answer(KVR_SESSION_CLOSED, worker, number, 0);
	CU_ASSERT_EQUAL(counter(SC_CLOSING), 0);
}

/* ---- whole steps ---- */

static void begin_with(const char *keys)
{
	pipeline_start_with(keys);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(W1, 1, "a", 1));
	CU_ASSERT_TRUE_FATAL(pipeline_hello(W2, 1, "a", 1));
	pipeline_flush();
}

static void begin(void)
{
	begin_with(POOL "max_sessions = 64\n");
}

/* What the clients' host has of the sessions. */
static uint32_t charged(void)
{
	return kvr_quota_held(pool()->live.shares.sessions, UINT64_C(0xffff0a000002));
}

/* Nothing may be left but what is bound. */
static void end(uint32_t bound)
{
	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(live(), 0);
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(pool()->jobs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hint_bufs), 0);
	CU_ASSERT_EQUAL(counter(SC_OPENING), 0);
	CU_ASSERT_EQUAL(counter(SC_CLOSING), 0);
	CU_ASSERT_EQUAL(counter(SC_LIVE), bound);
	for (uint32_t i = 0; i < pool()->n_requests; i++) {
		const struct session_use *u = &pool()->use[i];

		CU_ASSERT_FATAL(!u->s.reserved && u->s.part[0] == 0 && u->ask.kind == 0);
		CU_ASSERT_FATAL(u->share == 0);
	}
	CU_ASSERT_EQUAL(charged(), bound);
	/* What was reserved has been given back: all the room but `bound` is there. */
	for (uint32_t i = bound; i < pool()->sessions->max; i++)
		CU_ASSERT_FATAL(kvr_session_reserve(pool()->sessions->table));
	pipeline_stop();
}

/* Request `id` opens `session` on `pin` (0: any) and finishes. @return its worker. */
static uint64_t open_session(uint64_t id, const char *session, uint32_t timeout_s, uint64_t pin)
{
	uint64_t worker = 0, to, number, h;

	route_pinned(id, KVR_ACTION_OPEN, session, timeout_s, pin, 0);
	number = asked(KVR_SESSION_OPEN, session, &worker, NULL);
	CU_ASSERT_NOT_EQUAL_FATAL(number, 0);
	answer(KVR_SESSION_OPENED, worker, number, 0);
	h = dispatched(&to);
	CU_ASSERT_NOT_EQUAL_FATAL(h, 0);
	CU_ASSERT_EQUAL(to, worker);
	finish(id, h, 0);
	pipeline_flush();
	return worker;
}

/* Request `id` of a session that is bound goes to `worker`. */
static void goes_to(uint64_t id, const char *session, uint64_t worker)
{
	uint64_t to = 0, h;

	route(id, KVR_ACTION_NONE, session);
	h = dispatched(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	CU_ASSERT_EQUAL(to, worker);
	finish(id, h, 0);
	pipeline_flush();
}

static uint64_t other(uint64_t worker)
{
	return worker == W1 ? W2 : W1;
}

static void goodbye(uint64_t worker)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = 1, .epoch = 1};
	uint8_t buf[64];

	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_GOODBYE_ACK));
}

/* ---- open ---- */

static void open_holds_the_request_until_the_worker_answers(void)
{
	uint64_t worker = 0, to = 0, number, h;
	uint32_t timeout_s = 0;

	begin();
	route_pinned(1, KVR_ACTION_OPEN, "chat", 60, 0, 0);
	CU_ASSERT_EQUAL(accepted_state(), KVR_STATE_QUEUED);
	CU_ASSERT_EQUAL(dispatched(&to), 0);
	number = asked(KVR_SESSION_OPEN, "chat", &worker, &timeout_s);
	CU_ASSERT_NOT_EQUAL_FATAL(number, 0);
	CU_ASSERT_EQUAL(timeout_s, 90);
	CU_ASSERT_EQUAL(live(), 1);
	CU_ASSERT_EQUAL(counter(SC_OPENING), 1);
	/* A second answer, one of another worker, one with another number: no effect. */
	answer(KVR_SESSION_OPENED, other(worker), number, 0);
	answer(KVR_SESSION_OPENED, worker, number + 1, 0);
	answer(KVR_SESSION_CLOSED, worker, number, 0);
	CU_ASSERT_EQUAL(dispatched(&to), 0);
	answer(KVR_SESSION_OPENED, worker, number, 0);
	CU_ASSERT_EQUAL(accepted_state(), KVR_STATE_DISPATCHED);
	h = dispatched(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	CU_ASSERT_EQUAL(to, worker);
	answer(KVR_SESSION_OPENED, worker, number, 0);
	answer(KVR_SESSION_OPENED, worker, number, 1);
	CU_ASSERT_EQUAL(dispatched(&to), 0);
	CU_ASSERT_EQUAL(rejected(), -1);
	finish(1, h, 0);
	for (uint64_t id = 2; id < 10; id++)
		goes_to(id, "chat", worker);
	goes_to(20, "chat", worker);
	end(1);
}

static void refused_open_ends_the_request(void)
{
	uint64_t worker = 0, to, number;

	begin();
	route(1, KVR_ACTION_OPEN, "chat");
	number = asked(KVR_SESSION_OPEN, "chat", &worker, NULL);
	answer(KVR_SESSION_OPENED, worker, number, 7);
	CU_ASSERT_EQUAL(rejected(), KVR_E_SESSION_OPEN_FAILED);
	CU_ASSERT_EQUAL(dispatched(&to), 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_CLOSE));
	answer(KVR_SESSION_OPENED, worker, number, 0); /* too late to change one's mind */
	CU_ASSERT_EQUAL(counter(SC_OPEN_REJECTED), 1);
	pipeline_flush();
	route(1, KVR_ACTION_OPEN, "chat"); /* repeated: the answer is */
	CU_ASSERT_EQUAL(rejected(), KVR_E_SESSION_OPEN_FAILED);
	CU_ASSERT_EQUAL(asked(KVR_SESSION_OPEN, "chat", &worker, NULL), 0);
	end(0);
}

/* Lost on the way: repeated after 20, 60, 140 ms and so on, given up after 5 s. */
static void silent_worker_is_asked_again_for_five_seconds(void)
{
	static const uint32_t at_ms[] = {0, 20, 60, 140, 300, 620, 1260, 2260, 3260, 4260, 5000};
	uint64_t worker = 0, to = 0, number, again;
	uint32_t sent = 1;

	begin();
	route(1, KVR_ACTION_OPEN, "chat");
	number = asked(KVR_SESSION_OPEN, "chat", &worker, NULL);
	for (uint32_t i = 1; i < RTE_DIM(at_ms); i++) {
		pipeline_advance(at_ms[i] - at_ms[i - 1]);
		CU_ASSERT(i > 5 || live() == 1);
		for (; (again = asked(KVR_SESSION_OPEN, "chat", &to, NULL)) != 0; sent++)
			CU_ASSERT_EQUAL(again, number);
	}
	CU_ASSERT_EQUAL(sent, SESSION_WAITS);
	CU_ASSERT_EQUAL(rejected(), KVR_E_SESSION_OPEN_FAILED);
	CU_ASSERT_EQUAL(counter(SC_OPEN_UNANSWERED), 1);
	close_answered("chat", worker); /* it may have opened it all the same */
	end(0);
}

static void answer_to_a_repetition_counts(void)
{
	uint64_t worker = 0, to, number, h;

	begin();
	route(1, KVR_ACTION_OPEN, "chat");
	CU_ASSERT_NOT_EQUAL(asked(KVR_SESSION_OPEN, "chat", &worker, NULL), 0);
	pipeline_advance(25);
	number = asked(KVR_SESSION_OPEN, "chat", &worker, NULL);
	answer(KVR_SESSION_OPENED, worker, number, 0);
	h = dispatched(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	pipeline_flush();
	pipeline_advance(3000);
	CU_ASSERT_EQUAL(asked(KVR_SESSION_OPEN, "chat", &worker, NULL), 0);
	finish(1, h, 0);
	end(1);
}

static void repeated_route_opens_once(void)
{
	uint64_t worker = 0, to = 0, number, h;

	begin();
	route(1, KVR_ACTION_OPEN, "chat");
	number = asked(KVR_SESSION_OPEN, "chat", &worker, NULL);
	accepted_state();
	route_pinned(1, KVR_ACTION_OPEN, "chat", KVR_NONE32, 0, KVR_REQ_F_RESEND);
	CU_ASSERT_EQUAL(accepted_state(), KVR_STATE_QUEUED);
	CU_ASSERT_EQUAL(dispatched(&to), 0);
	CU_ASSERT_EQUAL(counter(SC_OPENS), 1);
	answer(KVR_SESSION_OPENED, worker, number, 0);
	h = dispatched(&to);
	finish(1, h, 0);
	end(1);
}

static void cancel_while_opening_closes_what_may_be_open(void)
{
	uint64_t worker = 0, to, number;

	begin();
	route(1, KVR_ACTION_OPEN, "chat");
	number = asked(KVR_SESSION_OPEN, "chat", &worker, NULL);
	cancel(1);
	CU_ASSERT_EQUAL(live(), 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	close_answered("chat", worker);
	answer(KVR_SESSION_OPENED, worker, number, 0);
	CU_ASSERT_EQUAL(dispatched(&to), 0);
	CU_ASSERT_EQUAL(counter(SC_OPEN_ENDED), 1);
	end(0);
}

/* A second open that fails does not close what is bound to the same worker. */
static void failed_reopen_keeps_the_binding(void)
{
	uint64_t worker, to = 0;

	begin();
	worker = open_session(1, "chat", KVR_NONE32, 0);
	route(2, KVR_ACTION_OPEN, "chat");
	CU_ASSERT_NOT_EQUAL(asked(KVR_SESSION_OPEN, "chat", &to, NULL), 0);
	CU_ASSERT_EQUAL(to, worker);
	cancel(2);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_CLOSE));
	goes_to(3, "chat", worker);
	route_pinned(5, KVR_ACTION_OPEN, "chat", KVR_NONE32, other(worker), 0);
	CU_ASSERT_NOT_EQUAL(asked(KVR_SESSION_OPEN, "chat", &to, NULL), 0);
	cancel(5); /* at the other one it is not wanted */
	close_answered("chat", other(worker));
	CU_ASSERT_EQUAL(open_session(4, "chat", KVR_NONE32, 0), worker);
	CU_ASSERT_EQUAL(counter(SC_REBOUND), 1);
	end(1);
}

static void worker_that_leaves_while_opening_fails_the_request(void)
{
	uint64_t worker = 0;

	begin();
	route(1, KVR_ACTION_OPEN, "chat");
	CU_ASSERT_NOT_EQUAL(asked(KVR_SESSION_OPEN, "chat", &worker, NULL), 0);
	goodbye(worker);
	CU_ASSERT_EQUAL(rejected(), KVR_E_WORKER_LOST);
	CU_ASSERT_EQUAL(live(), 0);
	pipeline_advance(25); /* the close finds nobody */
	CU_ASSERT_EQUAL(counter(SC_CLOSE_WORKER_GONE), 1);
	end(0);
}

static void stop_while_opening_frees_the_message(void)
{
	uint64_t worker = 0;

	begin();
	route(1, KVR_ACTION_OPEN, "chat");
	CU_ASSERT_NOT_EQUAL(asked(KVR_SESSION_OPEN, "chat", &worker, NULL), 0);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop(); /* the router is killed: memory tools see what it forgets */
}

/* ---- close ---- */

/* The agent of a session that is over must not lose its turn: served, counted, no worker is told.
 */
static void closes_nothing(uint64_t id, const char *session)
{
	const uint64_t before = kvr_stats_get(pool()->live.rq.count, KVR_RQC_SESSION_CLOSE_UNBOUND);
	uint64_t to = 0, h;

	route(id, KVR_ACTION_CLOSE, session);
	h = dispatched(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	finish(id, h, 0);
	CU_ASSERT_EQUAL(asked(KVR_SESSION_CLOSE, session, &to, NULL), 0);
	CU_ASSERT_EQUAL(kvr_stats_get(pool()->live.rq.count, KVR_RQC_SESSION_CLOSE_UNBOUND),
			before + 1);
}

static void close_is_told_when_the_request_ends(uint16_t flags, bool cancelled)
{
	uint64_t worker, to = 0, h;

	begin();
	worker = open_session(1, "chat", KVR_NONE32, 0);
	route(2, KVR_ACTION_CLOSE, "chat");
	h = dispatched(&to);
	CU_ASSERT_EQUAL(to, worker); /* still its session */
	CU_ASSERT_EQUAL(counter(SC_LIVE), 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_CLOSE));
	if (cancelled) {
		cancel(2);
		close_answered("chat", worker);
		finish(2, h, KVR_RESP_F_CANCELLED);
	} else {
		finish(2, h, flags);
		close_answered("chat", worker);
	}
	CU_ASSERT_EQUAL(counter(SC_CLOSED), 1);
	closes_nothing(3, "chat");
	end(0);
}

static void close_follows_the_end(void)
{
	close_is_told_when_the_request_ends(0, false);
	close_is_told_when_the_request_ends(KVR_RESP_F_ERROR, false);
	close_is_told_when_the_request_ends(0, true);
}

static void close_follows_a_refused_dispatch(void)
{
	uint64_t worker, to = 0, h;

	begin();
	worker = open_session(1, "chat", KVR_NONE32, 0);
	route(2, KVR_ACTION_CLOSE, "chat");
	h = dispatched(&to);
	dispatch_ack(2, h, 3);
	CU_ASSERT_EQUAL(rejected(), KVR_E_DISPATCH_FAILED);
	close_answered("chat", worker);
	end(0);
}

static void close_to_a_lost_worker_is_counted(void)
{
	uint64_t worker, to = 0;

	begin();
	worker = open_session(1, "chat", KVR_NONE32, 0);
	route(2, KVR_ACTION_CLOSE, "chat");
	CU_ASSERT_NOT_EQUAL(dispatched(&to), 0);
	goodbye(worker);
	CU_ASSERT_EQUAL(rejected(), KVR_E_WORKER_LOST);
	pipeline_advance(25);
	CU_ASSERT_EQUAL(counter(SC_CLOSE_WORKER_GONE), 1);
	end(0);
}

static void close_is_repeated_and_given_up(void)
{
	uint64_t to = 0, h;
	uint32_t sent = 0;

	begin();
	open_session(1, "chat", KVR_NONE32, 0);
	route(2, KVR_ACTION_CLOSE, "chat");
	h = dispatched(&to);
	finish(2, h, 0);
	for (uint32_t ms = 0; ms <= 6000; ms += 20) {
		sent += asked(KVR_SESSION_CLOSE, "chat", &to, NULL) != 0;
		pipeline_advance(20);
	}
	CU_ASSERT_EQUAL(sent, 10);
	CU_ASSERT_EQUAL(counter(SC_CLOSE_UNANSWERED), 1);
	end(0);
}

static void close_of_an_unknown_session_is_served(void)
{
	begin();
	closes_nothing(1, "nobody");
	end(0);
}

/* So many that their answers are late: the oldest are given up, the newest are told. */
static void too_many_closes_give_up_the_oldest(void)
{
	char id[16];

	begin();
	open_session(1, "first", KVR_NONE32, W1);
	release("first", 5);
	pipeline_flush();
	for (uint32_t i = 0; i < SESSION_CLOSES; i++) {
		struct sessions *s = pool()->sessions;
		const struct kvr_session_binding to = {W1, 0, 1};
		struct kvr_session_key k;

		/* Bound by hand, and over at once: the way there is not what is looked at. */
		snprintf(id, sizeof(id), "s%u", i);
		kvr_session_key(s->table, id, strlen(id), &k);
		CU_ASSERT_EQUAL(kvr_session_bind(s->table, &k, &to, 1, 0, NULL), 0);
		kvr_stats_add(s->count, SC_BOUND, 1);
		kvr_stats_add(s->count, SC_OPENS, 1);
		release(id, 5);
		pipeline_flush();
	}
	CU_ASSERT_EQUAL(counter(SC_CLOSES), SESSION_CLOSES + 1);
	CU_ASSERT_EQUAL(counter(SC_CLOSING) + counter(SC_CLOSE_DROPPED) +
				counter(SC_CLOSE_UNANSWERED),
			SESSION_CLOSES + 1);
	CU_ASSERT(counter(SC_CLOSE_DROPPED) + counter(SC_CLOSE_UNANSWERED) >= 1);
	CU_ASSERT_TRUE(pipeline_balanced());
	goodbye(W1);
	while (counter(SC_CLOSING) != 0) {
		pipeline_advance(100);
		pipeline_flush();
	}
	end(0);
}

/* A close that was lost must not close what has been opened since at the same worker. */
static void close_of_before_spares_what_is_opened_again(void)
{
	uint64_t to = 0, h;

	begin();
	open_session(1, "chat", KVR_NONE32, W1);
	route(2, KVR_ACTION_CLOSE, "chat");
	h = dispatched(&to);
	finish(2, h, 0);
	CU_ASSERT_NOT_EQUAL(asked(KVR_SESSION_CLOSE, "chat", &to, NULL), 0); /* lost */
	CU_ASSERT_EQUAL(open_session(3, "chat", KVR_NONE32, W1), W1);
	CU_ASSERT_EQUAL(counter(SC_CLOSE_DROPPED), 1);
	pipeline_advance(3000);
	CU_ASSERT_EQUAL(asked(KVR_SESSION_CLOSE, "chat", &to, NULL), 0);
	/* The same while the request that closes still runs. */
	route(4, KVR_ACTION_CLOSE, "chat");
	h = dispatched(&to);
	CU_ASSERT_EQUAL(open_session(5, "chat", KVR_NONE32, W1), W1);
	finish(4, h, 0);
	CU_ASSERT_EQUAL(asked(KVR_SESSION_CLOSE, "chat", &to, NULL), 0);
	goes_to(6, "chat", W1);
	/* Opened at another worker, it is closed at the first. */
	route(7, KVR_ACTION_CLOSE, "chat");
	h = dispatched(&to);
	CU_ASSERT_EQUAL(open_session(8, "chat", KVR_NONE32, W2), W2);
	finish(7, h, 0);
	close_answered("chat", W1);
	end(1);
}

/* ---- release ---- */

static void release_unbinds_and_tells_the_worker(void)
{
	uint64_t worker;

	begin();
	worker = open_session(1, "chat", KVR_NONE32, 0);
	release("other", 5);
	CU_ASSERT_EQUAL(code_of(KVR_SESSION_RELEASED), KVR_E_UNKNOWN_SESSION);
	release("chat", 99);
	CU_ASSERT_EQUAL(rejected(), KVR_E_UNKNOWN_POOL);
	CU_ASSERT_EQUAL(counter(SC_LIVE), 1);
	release("chat", 5);
	CU_ASSERT_EQUAL(code_of(KVR_SESSION_RELEASED), 0);
	close_answered("chat", worker);
	release("chat", 5);
	CU_ASSERT_EQUAL(code_of(KVR_SESSION_RELEASED), KVR_E_UNKNOWN_SESSION);
	CU_ASSERT_EQUAL(counter(SC_UNBOUND), 1);
	end(0);
}

/* ---- time ---- */

static void session_slides_and_expires_with_a_close(void)
{
	uint64_t worker;

	begin();
	worker = open_session(1, "chat", 100, 0);
	for (uint64_t id = 2; id < 6; id++) {
		pipeline_advance(80000);
		goes_to(id, "chat", worker);
	}
	CU_ASSERT_EQUAL(counter(SC_LIVE), 1);
	pipeline_advance(90000);
	CU_ASSERT_EQUAL(counter(SC_LIVE), 1);
	pipeline_advance(10300);
	CU_ASSERT_EQUAL(counter(SC_LIVE), 0);
	CU_ASSERT_EQUAL(counter(SC_EXPIRED), 1);
	close_answered("chat", worker);
	end(0);
}

/* Its time is over and the wheel has not come by: the next use finds out. */
static void use_after_the_time_is_no_session(void)
{
	uint64_t worker, to = 0, h;

	begin();
	worker = open_session(1, "chat", 10, 0);
	pipeline_skip(10000);
	route(2, KVR_ACTION_CLOSE, "chat");
	h = dispatched(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	finish(2, h, 0);
	close_answered("chat", worker);
	route(3, KVR_ACTION_NONE, "chat");
	h = dispatched(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	finish(3, h, 0);
	end(0);
}

/* ---- pins and limits ---- */

static void explicit_pin_wins(void)
{
	uint64_t to = 0, h;

	begin();
	open_session(1, "chat", KVR_NONE32, W1);
	route_pinned(2, KVR_ACTION_NONE, "chat", KVR_NONE32, W2, 0);
	h = dispatched(&to);
	CU_ASSERT_EQUAL(to, W2);
	finish(2, h, 0);
	goes_to(3, "chat", W1);
	end(1);
}

static void query_uses_the_binding_and_changes_nothing(void)
{
	const struct out *o;

	begin();
	open_session(1, "chat", KVR_NONE32, W2);
	route_pinned(2, KVR_ACTION_NONE, "chat", KVR_NONE32, 0, KVR_REQ_F_QUERY);
	o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(((const struct kvr_wire_accepted *)(&o->hdr + 1))->worker, W2);
	route_pinned(3, KVR_ACTION_OPEN, "new", KVR_NONE32, 0, KVR_REQ_F_QUERY);
	CU_ASSERT_EQUAL(accepted_state(), KVR_STATE_QUERY);
	route_pinned(4, KVR_ACTION_CLOSE, "chat", KVR_NONE32, 0, KVR_REQ_F_QUERY);
	CU_ASSERT_EQUAL(accepted_state(), KVR_STATE_QUERY);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_OPEN));
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_CLOSE));
	end(1);
}

/* Room is kept when the open begins: the third is refused before anything is booked. */
static void limit_counts_what_is_being_opened(void)
{
	uint64_t worker = 0, to = 0, number, h;

	begin_with(POOL "max_sessions = 2\n");
	open_session(1, "a", KVR_NONE32, 0);
	route(2, KVR_ACTION_OPEN, "b");
	number = asked(KVR_SESSION_OPEN, "b", &worker, NULL);
	pipeline_flush();
	route(3, KVR_ACTION_OPEN, "c");
	CU_ASSERT_EQUAL(rejected(), KVR_E_SESSION_LIMIT);
	CU_ASSERT_EQUAL(live(), 1);
	CU_ASSERT_EQUAL(kvr_stats_get(pool()->live.rq.count, KVR_RQC_SESSION_REFUSED), 1);
	answer(KVR_SESSION_OPENED, worker, number, 0);
	h = dispatched(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	finish(2, h, 0);
	release("a", 5);
	to = 0;
	number = asked(KVR_SESSION_CLOSE, "a", &to, NULL);
	answer(KVR_SESSION_CLOSED, to, number, 0);
	open_session(4, "c", KVR_NONE32, 0);
	end(2);
}

static void refused_requests_give_their_room_back(void)
{
	begin_with(POOL "max_sessions = 1\n");
	for (uint64_t id = 1; id < 4; id++) {
		route_pinned(id, KVR_ACTION_OPEN, "a", KVR_NONE32, 12345, 0);
		CU_ASSERT_EQUAL(rejected(), KVR_E_NO_ENDPOINTS);
	}
	open_session(5, "a", KVR_NONE32, 0);
	end(1);
}

static void sessions_can_be_off(void)
{
	uint64_t to = 0, h;

	pipeline_start_with(POOL "max_sessions = 0\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(W1, 1, "a", 1));
	pipeline_flush();
	route(1, KVR_ACTION_OPEN, "a");
	CU_ASSERT_EQUAL(rejected(), KVR_E_SESSION_LIMIT);
	closes_nothing(2, "a");
	route(3, KVR_ACTION_NONE, "a");
	h = dispatched(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	finish(3, h, 0);
	release("a", 5);
	CU_ASSERT_EQUAL(rejected(), KVR_E_UNKNOWN_SESSION);
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(live(), 0);
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	pipeline_stop();
}

static void bad_hints_are_refused(void)
{
	char id[KVR_HINT_MAX_SESSION + 2];
	uint64_t n = 0;

	begin();
	route(++n, 3, "chat");
	CU_ASSERT_EQUAL(rejected(), KVR_E_INVALID_SESSION);
	route_pinned(++n, KVR_ACTION_OPEN, "chat", 0, 0, 0);
	CU_ASSERT_EQUAL(rejected(), KVR_E_INVALID_SESSION);
	route_pinned(++n, KVR_ACTION_OPEN, "chat", 31536001, 0, 0);
	CU_ASSERT_EQUAL(rejected(), KVR_E_INVALID_SESSION);
	route(++n, KVR_ACTION_OPEN, "");
	CU_ASSERT_EQUAL(rejected(), KVR_E_INVALID_SESSION);
	memset(id, 'x', sizeof(id));
	id[KVR_HINT_MAX_SESSION + 1] = '\0';
	route(++n, KVR_ACTION_OPEN, id);
	CU_ASSERT_EQUAL(rejected(), KVR_E_INVALID_SESSION);
	id[KVR_HINT_MAX_SESSION] = '\0';
	open_session(++n, id, 31536000, 0);
	end(1);
}

static void strangers_cannot_answer(void)
{
	const struct kvr_wire_ids from = {.source = W1, .id = 1, .epoch = 1};
	uint64_t worker = 0, to, number;
	struct kvr_wire_ids ids = from;
	uint8_t buf[128];
	int len;

	begin();
	route(1, KVR_ACTION_OPEN, "chat");
	number = asked(KVR_SESSION_OPEN, "chat", &worker, NULL);
	ids.source = worker;
	ids.id = number;
	len = kvr_put_session_status(buf, sizeof(buf), KVR_SESSION_OPENED, &ids, 0);
	pipeline_send(PEER_OTHER, buf, (size_t)len);
	pipeline_turn();
	CU_ASSERT_EQUAL(dispatched(&to), 0);
	CU_ASSERT_EQUAL(counter(SC_OPENING), 1);
	cancel(1);
	close_answered("chat", worker);
	end(0);
}

/* ---- workers that leave with bindings ---- */

static void session_of_a_lost_worker_says_so(void)
{
	uint64_t worker, to = 0, h;

	begin();
	worker = open_session(1, "chat", 10, 0);
	goodbye(worker);
	route(2, KVR_ACTION_NONE, "chat");
	CU_ASSERT_EQUAL(rejected(), KVR_E_SESSION_WORKER_GONE);
	route_pinned(3, KVR_ACTION_NONE, "chat", KVR_NONE32, other(worker), 0);
	h = dispatched(&to);
	CU_ASSERT_EQUAL(to, other(worker));
	finish(3, h, 0);
	pipeline_flush();
	/* A new life of the worker knows nothing of the session. */
	CU_ASSERT_TRUE(pipeline_hello(worker, 2, "a", 1));
	route(4, KVR_ACTION_NONE, "chat");
	CU_ASSERT_EQUAL(rejected(), KVR_E_SESSION_WORKER_GONE);
	release("chat", 5);
	CU_ASSERT_EQUAL(code_of(KVR_SESSION_RELEASED), 0);
	CU_ASSERT_EQUAL(asked(KVR_SESSION_CLOSE, "chat", NULL, NULL), 0); /* nor of its end */
	CU_ASSERT_EQUAL(counter(SC_CLOSE_WORKER_GONE), 1);
	end(0);
}

/* ---- affinity ---- */

#define AFFINITY POOL "max_sessions = 2\nsession_affinity_ttl_secs = 100\n"

/* Send request `id` of `session`. @return its handle, and where it went. */
static uint64_t use(uint64_t id, const char *session, uint64_t *to)
{
	uint64_t h;

	*to = 0;
	route(id, KVR_ACTION_NONE, session);
	h = dispatched(to);
	CU_ASSERT_NOT_EQUAL_FATAL(h, 0);
	pipeline_flush();
	return h;
}

static void affinity_binds_with_the_first_success(void)
{
	uint64_t first, to, h1, h2;

	begin_with(AFFINITY);
	h1 = use(1, "chat", &first);
	CU_ASSERT_EQUAL(counter(SC_LIVE), 0);
	dispatch_ack(1, h1, 0);
	CU_ASSERT_EQUAL(counter(SC_AFFINITY_BOUND), 1);
	for (uint64_t id = 2; id < 8; id++) {
		h2 = use(id, "chat", &to);
		CU_ASSERT_EQUAL(to, first);
		finish(id, h2, 0);
	}
	finish(1, h1, 0);
	CU_ASSERT_EQUAL(counter(SC_AFFINITY_BOUND), 1);
	h2 = use(20, "item", &to); /* bound by its first item */
	respond(20, h2, 0);
	CU_ASSERT_EQUAL(counter(SC_AFFINITY_BOUND), 2);
	finish(20, h2, 0);
	h2 = use(21, "third", &to); /* no room: served without */
	dispatch_ack(21, h2, 0);
	finish(21, h2, 0);
	CU_ASSERT_EQUAL(kvr_stats_get(pool()->live.rq.count, KVR_RQC_SESSION_REFUSED), 1);
	end(2);
}

static void affinity_lasts_while_requests_run_and_then_expires(void)
{
	uint64_t first, h;

	begin_with(AFFINITY);
	h = use(1, "chat", &first);
	dispatch_ack(1, h, 0);
	for (int i = 0; i < 5; i++)
		pipeline_advance(50000);
	CU_ASSERT_EQUAL(counter(SC_LIVE), 1);
	finish(1, h, 0);
	pipeline_advance(90000); /* the idle time starts with the end */
	CU_ASSERT_EQUAL(counter(SC_LIVE), 1);
	pipeline_advance(10300);
	CU_ASSERT_EQUAL(counter(SC_LIVE), 0);
	CU_ASSERT_EQUAL(counter(SC_EXPIRED), 1);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_CLOSE)); /* was never opened */
	end(0);
}

static void cancel_keeps_an_affinity_and_failure_ends_it(void)
{
	uint64_t first, to, h;

	begin_with(AFFINITY);
	h = use(1, "chat", &first);
	dispatch_ack(1, h, 0);
	cancel(1);
	finish(1, h, KVR_RESP_F_CANCELLED);
	CU_ASSERT_EQUAL(counter(SC_LIVE), 1);
	h = use(2, "chat", &to);
	CU_ASSERT_EQUAL(to, first);
	finish(2, h, KVR_RESP_F_ERROR);
	CU_ASSERT_EQUAL(counter(SC_LIVE), 0);
	CU_ASSERT_EQUAL(counter(SC_INVALIDATED), 1);
	h = use(3, "chat", &to); /* a first request that fails binds nothing */
	dispatch_ack(3, h, 9);
	CU_ASSERT_EQUAL(counter(SC_LIVE), 0);
	h = use(4, "chat", &to);
	finish(4, h, KVR_RESP_F_ERROR);
	CU_ASSERT_EQUAL(counter(SC_LIVE), 0);
	end(0);
}

static void affinity_to_a_worker_that_is_not_there_is_routed_anew(void)
{
	uint64_t first, to, h;

	begin_with(AFFINITY);
	h = use(1, "chat", &first);
	finish(1, h, 0);
	CU_ASSERT_EQUAL(counter(SC_LIVE), 1);
	CU_ASSERT_EQUAL(control_drain(rt, first, true), 0);
	pipeline_flush();
	h = use(2, "chat", &to);
	CU_ASSERT_EQUAL(to, other(first));
	CU_ASSERT_EQUAL(counter(SC_INVALIDATED), 1);
	finish(2, h, 0); /* bound to the other one now */
	CU_ASSERT_EQUAL(counter(SC_LIVE), 1);
	CU_ASSERT_EQUAL(control_drain(rt, first, false), 0);
	goodbye(other(first));
	pipeline_flush();
	h = use(3, "chat", &to);
	CU_ASSERT_EQUAL(to, first);
	CU_ASSERT_EQUAL(counter(SC_INVALIDATED), 2);
	finish(3, h, 0);
	CU_ASSERT_TRUE(pipeline_hello(first, 2, "a", 1)); /* a new life of the worker */
	h = use(4, "chat", &to);
	CU_ASSERT_EQUAL(counter(SC_INVALIDATED), 3);
	finish(4, h, 0);
	end(1);
}

static void affinity_of_a_lost_worker_ends_with_its_requests(void)
{
	uint64_t first, to, h;

	begin_with(AFFINITY);
	h = use(1, "chat", &first);
	dispatch_ack(1, h, 0);
	goodbye(first);
	CU_ASSERT_EQUAL(rejected(), KVR_E_WORKER_LOST);
	CU_ASSERT_EQUAL(counter(SC_LIVE), 0);
	h = use(2, "chat", &to);
	CU_ASSERT_EQUAL(to, other(first));
	finish(2, h, 0);
	end(1);
}

static void first_of_two_binds(void)
{
	uint64_t w1, w2, to, h1, h2, h3;

	begin_with(AFFINITY);
	h1 = use(1, "chat", &w1);
	h2 = use(2, "chat", &w2); /* not bound yet: the load says where */
	CU_ASSERT_NOT_EQUAL(w1, w2);
	dispatch_ack(2, h2, 0);
	dispatch_ack(1, h1, 0);
	CU_ASSERT_EQUAL(counter(SC_AFFINITY_BOUND), 1);
	finish(1, h1, KVR_RESP_F_ERROR); /* not in the binding: does not end it */
	h3 = use(3, "chat", &to);
	CU_ASSERT_EQUAL(to, w2);
	finish(2, h2, 0);
	finish(3, h3, 0);
	end(1);
}

static void affinity_can_be_released_and_opened(void)
{
	uint64_t first, to = 0, h, number;

	begin_with(AFFINITY);
	h = use(1, "chat", &first);
	finish(1, h, 0);
	release("chat", 5);
	CU_ASSERT_EQUAL(code_of(KVR_SESSION_RELEASED), 0);
	CU_ASSERT_EQUAL(counter(SC_CLOSING), 0); /* no worker knows of it */
	h = use(2, "chat", &first);
	dispatch_ack(2, h, 0);
	route(3, KVR_ACTION_OPEN, "chat"); /* explicit from now on, where it is */
	number = asked(KVR_SESSION_OPEN, "chat", &to, NULL);
	CU_ASSERT_EQUAL(to, first);
	answer(KVR_SESSION_OPENED, to, number, 0);
	finish(2, h, KVR_RESP_F_ERROR); /* the affinity it was in is over */
	CU_ASSERT_EQUAL(counter(SC_LIVE), 1);
	finish(3, dispatched(&to), 0);
	CU_ASSERT_EQUAL(counter(SC_REBOUND), 1);
	end(1);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(open_holds_the_request_until_the_worker_answers),
			       KVR_CASE(refused_open_ends_the_request),
			       KVR_CASE(silent_worker_is_asked_again_for_five_seconds),
			       KVR_CASE(answer_to_a_repetition_counts),
			       KVR_CASE(repeated_route_opens_once),
			       KVR_CASE(cancel_while_opening_closes_what_may_be_open),
			       KVR_CASE(failed_reopen_keeps_the_binding),
			       KVR_CASE(worker_that_leaves_while_opening_fails_the_request),
			       KVR_CASE(stop_while_opening_frees_the_message),
			       KVR_CASE(close_follows_the_end),
			       KVR_CASE(close_follows_a_refused_dispatch),
			       KVR_CASE(close_to_a_lost_worker_is_counted),
			       KVR_CASE(close_is_repeated_and_given_up),
			       KVR_CASE(close_of_an_unknown_session_is_served),
			       KVR_CASE(close_of_before_spares_what_is_opened_again),
			       KVR_CASE(too_many_closes_give_up_the_oldest),
			       KVR_CASE(release_unbinds_and_tells_the_worker),
			       KVR_CASE(session_slides_and_expires_with_a_close),
			       KVR_CASE(use_after_the_time_is_no_session),
			       KVR_CASE(explicit_pin_wins),
			       KVR_CASE(query_uses_the_binding_and_changes_nothing),
			       KVR_CASE(limit_counts_what_is_being_opened),
			       KVR_CASE(refused_requests_give_their_room_back),
			       KVR_CASE(sessions_can_be_off),
			       KVR_CASE(bad_hints_are_refused),
			       KVR_CASE(strangers_cannot_answer),
			       KVR_CASE(session_of_a_lost_worker_says_so),
			       KVR_CASE(affinity_binds_with_the_first_success),
			       KVR_CASE(affinity_lasts_while_requests_run_and_then_expires),
			       KVR_CASE(cancel_keeps_an_affinity_and_failure_ends_it),
			       KVR_CASE(affinity_to_a_worker_that_is_not_there_is_routed_anew),
			       KVR_CASE(affinity_of_a_lost_worker_ends_with_its_requests),
			       KVR_CASE(first_of_two_binds),
			       KVR_CASE(affinity_can_be_released_and_opened),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("session", tests);
}
