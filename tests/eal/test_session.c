/* SPDX-License-Identifier: BSD-3-Clause */
/* @rule 10: sessions frame by frame. What clients and workers receive, and that nothing remains. */
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

static uint64_t read_session_counter(enum session_counter c)
{
	return kvr_stats_get(pipeline_get_pool()->sessions->count, c);
}

static uint64_t count_live_requests(void)
{
	return (uint32_t)kvr_sched_counters(pipeline_get_pool()->sched)->booked_now;
}

/* ---- frames from the peers ---- */

static void send_session_item(uint64_t id, uint64_t handle, uint16_t flags)
{
	const struct kvr_wire_ids ids = pipeline_make_ids(id, handle);
	const struct kvr_wire_response r = {
		.flags = flags, .generated_tokens = 1, .cached_tokens = KVR_NONE32};
	uint8_t buf[256];
	int len = kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){"item", 4});

	pipeline_send(PEER_AGENT, buf, (size_t)len);
	pipeline_turn();
}

/* The last item, acknowledged by the client. */
static void finish_session_request(uint64_t id, uint64_t handle, uint16_t flags)
{
	const struct kvr_wire_response_ack a = {1, KVR_RACK_F_FIN};
	const struct kvr_wire_ids ids = pipeline_make_ids(id, handle);
	uint8_t buf[128];

	send_session_item(id, handle, flags | KVR_RESP_F_FIN);
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_response_ack(buf, sizeof(buf), &ids, &a));
	pipeline_turn();
}

static void acknowledge_dispatch(uint64_t id, uint64_t handle, uint16_t code)
{
	const struct kvr_wire_dispatch_ack a = {.code = code};
	const struct kvr_wire_ids ids = pipeline_make_ids(id, handle);
	uint8_t buf[128];

	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &a));
	pipeline_turn();
}

static void cancel_request(uint64_t id)
{
	const struct kvr_wire_ids ids = pipeline_make_ids(id, 0);
	uint8_t buf[64];

	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
}

static uint32_t get_worker_epoch(uint64_t worker)
{
	const struct kvr_worker *w = kvr_registry_find(rt->registry, worker);

	return w != NULL ? w->epoch : 1;
}

static void send_session_reply(uint8_t kind, uint64_t worker, uint64_t number, uint16_t code)
{
	const struct kvr_wire_ids ids = {
		.source = worker, .id = number, .epoch = get_worker_epoch(worker)};
	uint8_t buf[128];
	int len = kvr_put_session_status(buf, sizeof(buf), kind, &ids, code);

	CU_ASSERT_FATAL(len > 0);
	pipeline_send(PEER_AGENT, buf, (size_t)len);
	pipeline_turn();
}

static void release_session_in(const char *session, uint16_t pool_id)
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
static void route_in_pinned_session(uint64_t id, uint8_t action, const char *session,
				    uint32_t timeout_s, uint64_t pin, uint32_t flags)
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

static void route_in_session(uint64_t id, uint8_t action, const char *session)
{
	route_in_pinned_session(id, action, session, KVR_NONE32, 0, 0);
}

/* ---- frames to the peers ---- */

/* Handle of the DISPATCH and its worker; 0: none. */
static uint64_t take_session_dispatch(uint64_t *worker)
{
	const struct out *o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);

	if (o == NULL)
		return 0;
	*worker = ((const struct kvr_wire_request *)(&o->hdr + 1))->worker;
	return o->hdr.handle;
}

static int take_code(uint8_t kind)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, kind);

	/* REJECTED and the replies about sessions begin with the code. */
	return o == NULL ? -1 : ((const struct kvr_wire_rejected *)(&o->hdr + 1))->code;
}

static int take_reject_code(void)
{
	return take_code(KVR_REJECTED);
}

static int take_accepted_state(void)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);

	return o == NULL ? -1 : ((const struct kvr_wire_accepted *)(&o->hdr + 1))->state;
}

/* A message about `session` to a worker. @return its number; 0: none. */
static uint64_t take_session_message(uint8_t kind, const char *session, uint64_t *worker,
				     uint32_t *timeout_s)
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

/* Expect SESSION_CLOSE of `session` at `worker`, and answer it. */
static void answer_close(const char *session, uint64_t worker)
{
	uint64_t to = 0, number = take_session_message(KVR_SESSION_CLOSE, session, &to, NULL);

	CU_ASSERT_NOT_EQUAL(number, 0);
	CU_ASSERT_EQUAL(to, worker);
	send_session_reply(KVR_SESSION_CLOSED, worker, number, 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_CLOSING), 0);
}

/* ---- complete steps ---- */

static void begin_session_pool(const char *keys)
{
	pipeline_start_with(keys);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(W1, 1, "a", 1));
	CU_ASSERT_TRUE_FATAL(pipeline_hello(W2, 1, "a", 1));
	pipeline_flush();
}

static void begin_sessions(void)
{
	begin_session_pool(POOL "max_sessions = 64\n");
}

/* Sessions charged to the clients' host. */
static uint32_t count_charged(void)
{
	return kvr_quota_held(pipeline_get_pool()->live.quotas.sessions, UINT64_C(0xffff0a000002));
}

/* Check that only the `bound` bindings are left. */
static void end_sessions(uint32_t bound)
{
	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(count_live_requests(), 0);
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(pipeline_get_pool()->jobs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hint_bufs), 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_OPENING), 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_CLOSING), 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), bound);
	for (uint32_t i = 0; i < pipeline_get_pool()->n_requests; i++) {
		const struct session_use *u = &pipeline_get_pool()->use[i];

		CU_ASSERT_FATAL(!u->s.reserved && u->s.part[0] == 0 && u->ask.kind == 0);
		CU_ASSERT_FATAL(u->quota_ref == 0);
	}
	CU_ASSERT_EQUAL(count_charged(), bound);
	/* Reservations were returned: all places but `bound` are free. */
	for (uint32_t i = bound; i < pipeline_get_pool()->sessions->max; i++)
		CU_ASSERT_FATAL(kvr_session_reserve(pipeline_get_pool()->sessions->table));
	pipeline_stop();
}

/* Request `id` opens `session` on `pin` (0: any) and finishes. @return its worker. */
static uint64_t open_session(uint64_t id, const char *session, uint32_t timeout_s, uint64_t pin)
{
	uint64_t worker = 0, to, number, h;

	route_in_pinned_session(id, KVR_ACTION_OPEN, session, timeout_s, pin, 0);
	number = take_session_message(KVR_SESSION_OPEN, session, &worker, NULL);
	CU_ASSERT_NOT_EQUAL_FATAL(number, 0);
	send_session_reply(KVR_SESSION_OPENED, worker, number, 0);
	h = take_session_dispatch(&to);
	CU_ASSERT_NOT_EQUAL_FATAL(h, 0);
	CU_ASSERT_EQUAL(to, worker);
	finish_session_request(id, h, 0);
	pipeline_flush();
	return worker;
}

/* Request `id` of a bound session goes to `worker`. */
static void expect_worker_of(uint64_t id, const char *session, uint64_t worker)
{
	uint64_t to = 0, h;

	route_in_session(id, KVR_ACTION_NONE, session);
	h = take_session_dispatch(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	CU_ASSERT_EQUAL(to, worker);
	finish_session_request(id, h, 0);
	pipeline_flush();
}

static uint64_t get_other_worker(uint64_t worker)
{
	return worker == W1 ? W2 : W1;
}

static void send_goodbye(uint64_t worker)
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

	begin_sessions();
	route_in_pinned_session(1, KVR_ACTION_OPEN, "chat", 60, 0, 0);
	CU_ASSERT_EQUAL(take_accepted_state(), KVR_STATE_QUEUED);
	CU_ASSERT_EQUAL(take_session_dispatch(&to), 0);
	number = take_session_message(KVR_SESSION_OPEN, "chat", &worker, &timeout_s);
	CU_ASSERT_NOT_EQUAL_FATAL(number, 0);
	CU_ASSERT_EQUAL(timeout_s, 90);
	CU_ASSERT_EQUAL(count_live_requests(), 1);
	CU_ASSERT_EQUAL(read_session_counter(SC_OPENING), 1);
	/* A second answer, one of another worker and one with another number have no effect. */
	send_session_reply(KVR_SESSION_OPENED, get_other_worker(worker), number, 0);
	send_session_reply(KVR_SESSION_OPENED, worker, number + 1, 0);
	send_session_reply(KVR_SESSION_CLOSED, worker, number, 0);
	CU_ASSERT_EQUAL(take_session_dispatch(&to), 0);
	send_session_reply(KVR_SESSION_OPENED, worker, number, 0);
	CU_ASSERT_EQUAL(take_accepted_state(), KVR_STATE_DISPATCHED);
	h = take_session_dispatch(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	CU_ASSERT_EQUAL(to, worker);
	send_session_reply(KVR_SESSION_OPENED, worker, number, 0);
	send_session_reply(KVR_SESSION_OPENED, worker, number, 1);
	CU_ASSERT_EQUAL(take_session_dispatch(&to), 0);
	CU_ASSERT_EQUAL(take_reject_code(), -1);
	finish_session_request(1, h, 0);
	for (uint64_t id = 2; id < 10; id++)
		expect_worker_of(id, "chat", worker);
	expect_worker_of(20, "chat", worker);
	end_sessions(1);
}

static void a_rejected_open_ends_the_request(void)
{
	uint64_t worker = 0, to, number;

	begin_sessions();
	route_in_session(1, KVR_ACTION_OPEN, "chat");
	number = take_session_message(KVR_SESSION_OPEN, "chat", &worker, NULL);
	send_session_reply(KVR_SESSION_OPENED, worker, number, 7);
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_SESSION_OPEN_FAILED);
	CU_ASSERT_EQUAL(take_session_dispatch(&to), 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_CLOSE));
	send_session_reply(KVR_SESSION_OPENED, worker, number, 0); /* too late */
	CU_ASSERT_EQUAL(read_session_counter(SC_OPEN_REJECTED), 1);
	pipeline_flush();
	route_in_session(1, KVR_ACTION_OPEN, "chat"); /* retransmitted: the reply is, too */
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_SESSION_OPEN_FAILED);
	CU_ASSERT_EQUAL(take_session_message(KVR_SESSION_OPEN, "chat", &worker, NULL), 0);
	end_sessions(0);
}

/* Lost on the way: retransmitted after 20, 60, 140 ms and so on, given up after 5 s. */
static void an_open_is_retransmitted_for_five_seconds(void)
{
	static const uint32_t at_ms[] = {0, 20, 60, 140, 300, 620, 1260, 2260, 3260, 4260, 5000};
	uint64_t worker = 0, to = 0, number, again;
	uint32_t sent = 1;

	begin_sessions();
	route_in_session(1, KVR_ACTION_OPEN, "chat");
	number = take_session_message(KVR_SESSION_OPEN, "chat", &worker, NULL);
	for (uint32_t i = 1; i < RTE_DIM(at_ms); i++) {
		pipeline_advance(at_ms[i] - at_ms[i - 1]);
		CU_ASSERT(i > 5 || count_live_requests() == 1);
		for (; (again = take_session_message(KVR_SESSION_OPEN, "chat", &to, NULL)) != 0;
		     sent++)
			CU_ASSERT_EQUAL(again, number);
	}
	CU_ASSERT_EQUAL(sent, SESSION_WAITS);
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_SESSION_OPEN_FAILED);
	CU_ASSERT_EQUAL(read_session_counter(SC_OPEN_UNANSWERED), 1);
	answer_close("chat", worker); /* the worker may have opened it */
	end_sessions(0);
}

static void a_reply_to_a_retransmit_counts(void)
{
	uint64_t worker = 0, to, number, h;

	begin_sessions();
	route_in_session(1, KVR_ACTION_OPEN, "chat");
	CU_ASSERT_NOT_EQUAL(take_session_message(KVR_SESSION_OPEN, "chat", &worker, NULL), 0);
	pipeline_advance(25);
	number = take_session_message(KVR_SESSION_OPEN, "chat", &worker, NULL);
	send_session_reply(KVR_SESSION_OPENED, worker, number, 0);
	h = take_session_dispatch(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	pipeline_flush();
	pipeline_advance(3000);
	CU_ASSERT_EQUAL(take_session_message(KVR_SESSION_OPEN, "chat", &worker, NULL), 0);
	finish_session_request(1, h, 0);
	end_sessions(1);
}

static void a_retransmitted_route_opens_once(void)
{
	uint64_t worker = 0, to = 0, number, h;

	begin_sessions();
	route_in_session(1, KVR_ACTION_OPEN, "chat");
	number = take_session_message(KVR_SESSION_OPEN, "chat", &worker, NULL);
	take_accepted_state();
	route_in_pinned_session(1, KVR_ACTION_OPEN, "chat", KVR_NONE32, 0, KVR_REQ_F_RESEND);
	CU_ASSERT_EQUAL(take_accepted_state(), KVR_STATE_QUEUED);
	CU_ASSERT_EQUAL(take_session_dispatch(&to), 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_OPENS), 1);
	send_session_reply(KVR_SESSION_OPENED, worker, number, 0);
	h = take_session_dispatch(&to);
	finish_session_request(1, h, 0);
	end_sessions(1);
}

static void cancel_while_opening_sends_a_close(void)
{
	uint64_t worker = 0, to, number;

	begin_sessions();
	route_in_session(1, KVR_ACTION_OPEN, "chat");
	number = take_session_message(KVR_SESSION_OPEN, "chat", &worker, NULL);
	cancel_request(1);
	CU_ASSERT_EQUAL(count_live_requests(), 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	answer_close("chat", worker);
	send_session_reply(KVR_SESSION_OPENED, worker, number, 0);
	CU_ASSERT_EQUAL(take_session_dispatch(&to), 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_OPEN_ENDED), 1);
	end_sessions(0);
}

/* A second open that fails does not close a session bound to the same worker. */
static void a_failed_reopen_keeps_the_binding(void)
{
	uint64_t worker, to = 0;

	begin_sessions();
	worker = open_session(1, "chat", KVR_NONE32, 0);
	route_in_session(2, KVR_ACTION_OPEN, "chat");
	CU_ASSERT_NOT_EQUAL(take_session_message(KVR_SESSION_OPEN, "chat", &to, NULL), 0);
	CU_ASSERT_EQUAL(to, worker);
	cancel_request(2);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_CLOSE));
	expect_worker_of(3, "chat", worker);
	route_in_pinned_session(5, KVR_ACTION_OPEN, "chat", KVR_NONE32, get_other_worker(worker),
				0);
	CU_ASSERT_NOT_EQUAL(take_session_message(KVR_SESSION_OPEN, "chat", &to, NULL), 0);
	cancel_request(5); /* the session at the other worker is closed */
	answer_close("chat", get_other_worker(worker));
	CU_ASSERT_EQUAL(open_session(4, "chat", KVR_NONE32, 0), worker);
	CU_ASSERT_EQUAL(read_session_counter(SC_REBOUND), 1);
	end_sessions(1);
}

static void loss_of_the_worker_while_opening_fails_the_request(void)
{
	uint64_t worker = 0;

	begin_sessions();
	route_in_session(1, KVR_ACTION_OPEN, "chat");
	CU_ASSERT_NOT_EQUAL(take_session_message(KVR_SESSION_OPEN, "chat", &worker, NULL), 0);
	send_goodbye(worker);
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_WORKER_LOST);
	CU_ASSERT_EQUAL(count_live_requests(), 0);
	pipeline_advance(25); /* the close reaches no worker */
	CU_ASSERT_EQUAL(read_session_counter(SC_CLOSE_WORKER_GONE), 1);
	end_sessions(0);
}

static void stop_while_opening_frees_the_message(void)
{
	uint64_t worker = 0;

	begin_sessions();
	route_in_session(1, KVR_ACTION_OPEN, "chat");
	CU_ASSERT_NOT_EQUAL(take_session_message(KVR_SESSION_OPEN, "chat", &worker, NULL), 0);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop(); /* the router stops at once: memory checkers find leaks */
}

/* ---- close ---- */

/*
 * The agent of an ended session keeps its turn: the request is served and counted, and no worker
 * gets a close.
 */
static void close_unknown_session(uint64_t id, const char *session)
{
	const uint64_t before =
		kvr_stats_get(pipeline_get_pool()->live.rq.count, KVR_RQC_SESSION_CLOSE_UNBOUND);
	uint64_t to = 0, h;

	route_in_session(id, KVR_ACTION_CLOSE, session);
	h = take_session_dispatch(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	finish_session_request(id, h, 0);
	CU_ASSERT_EQUAL(take_session_message(KVR_SESSION_CLOSE, session, &to, NULL), 0);
	CU_ASSERT_EQUAL(
		kvr_stats_get(pipeline_get_pool()->live.rq.count, KVR_RQC_SESSION_CLOSE_UNBOUND),
		before + 1);
}

static void close_is_sent_when_the_request_ends(uint16_t flags, bool cancelled)
{
	uint64_t worker, to = 0, h;

	begin_sessions();
	worker = open_session(1, "chat", KVR_NONE32, 0);
	route_in_session(2, KVR_ACTION_CLOSE, "chat");
	h = take_session_dispatch(&to);
	CU_ASSERT_EQUAL(to, worker); /* still bound */
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_CLOSE));
	if (cancelled) {
		cancel_request(2);
		answer_close("chat", worker);
		finish_session_request(2, h, KVR_RESP_F_CANCELLED);
	} else {
		finish_session_request(2, h, flags);
		answer_close("chat", worker);
	}
	CU_ASSERT_EQUAL(read_session_counter(SC_CLOSED), 1);
	close_unknown_session(3, "chat");
	end_sessions(0);
}

static void close_follows_the_end(void)
{
	close_is_sent_when_the_request_ends(0, false);
	close_is_sent_when_the_request_ends(KVR_RESP_F_ERROR, false);
	close_is_sent_when_the_request_ends(0, true);
}

static void close_follows_a_rejected_dispatch(void)
{
	uint64_t worker, to = 0, h;

	begin_sessions();
	worker = open_session(1, "chat", KVR_NONE32, 0);
	route_in_session(2, KVR_ACTION_CLOSE, "chat");
	h = take_session_dispatch(&to);
	acknowledge_dispatch(2, h, 3);
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_DISPATCH_FAILED);
	answer_close("chat", worker);
	end_sessions(0);
}

static void close_to_a_lost_worker_is_counted(void)
{
	uint64_t worker, to = 0;

	begin_sessions();
	worker = open_session(1, "chat", KVR_NONE32, 0);
	route_in_session(2, KVR_ACTION_CLOSE, "chat");
	CU_ASSERT_NOT_EQUAL(take_session_dispatch(&to), 0);
	send_goodbye(worker);
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_WORKER_LOST);
	pipeline_advance(25);
	CU_ASSERT_EQUAL(read_session_counter(SC_CLOSE_WORKER_GONE), 1);
	end_sessions(0);
}

static void close_is_retransmitted_and_given_up(void)
{
	uint64_t to = 0, h;
	uint32_t sent = 0;

	begin_sessions();
	open_session(1, "chat", KVR_NONE32, 0);
	route_in_session(2, KVR_ACTION_CLOSE, "chat");
	h = take_session_dispatch(&to);
	finish_session_request(2, h, 0);
	for (uint32_t ms = 0; ms <= 6000; ms += 20) {
		sent += take_session_message(KVR_SESSION_CLOSE, "chat", &to, NULL) != 0;
		pipeline_advance(20);
	}
	CU_ASSERT_EQUAL(sent, 10);
	CU_ASSERT_EQUAL(read_session_counter(SC_CLOSE_UNANSWERED), 1);
	end_sessions(0);
}

static void close_of_an_unknown_session_is_served(void)
{
	begin_sessions();
	close_unknown_session(1, "unknown");
	end_sessions(0);
}

/* Too many closes without an answer: the oldest are given up, the newest are sent. */
static void too_many_closes_give_up_the_oldest(void)
{
	char id[16];

	begin_sessions();
	open_session(1, "first", KVR_NONE32, W1);
	release_session_in("first", 5);
	pipeline_flush();
	for (uint32_t i = 0; i < SESSION_CLOSES; i++) {
		struct sessions *s = pipeline_get_pool()->sessions;
		const struct kvr_session_binding to = {W1, 0, 1};
		struct kvr_session_key k;

		/*
		 * Bindings made directly, and closed at once; how they arise is tested elsewhere.
		 */
		snprintf(id, sizeof(id), "s%u", i);
		kvr_session_key(s->table, id, strlen(id), &k);
		CU_ASSERT_EQUAL(kvr_session_bind(s->table, &k, &to, 1, 0, NULL), 0);
		kvr_stats_add(s->count, SC_BOUND, 1);
		kvr_stats_add(s->count, SC_OPENS, 1);
		release_session_in(id, 5);
		pipeline_flush();
	}
	CU_ASSERT_EQUAL(read_session_counter(SC_CLOSES), SESSION_CLOSES + 1);
	CU_ASSERT_EQUAL(read_session_counter(SC_CLOSING) + read_session_counter(SC_CLOSE_DROPPED) +
				read_session_counter(SC_CLOSE_UNANSWERED),
			SESSION_CLOSES + 1);
	CU_ASSERT(read_session_counter(SC_CLOSE_DROPPED) +
			  read_session_counter(SC_CLOSE_UNANSWERED) >=
		  1);
	CU_ASSERT_TRUE(pipeline_balanced());
	send_goodbye(W1);
	while (read_session_counter(SC_CLOSING) != 0) {
		pipeline_advance(100);
		pipeline_flush();
	}
	end_sessions(0);
}

/* A lost close must not close a session that was opened again at the same worker. */
static void a_late_close_spares_a_reopened_session(void)
{
	uint64_t to = 0, h;

	begin_sessions();
	open_session(1, "chat", KVR_NONE32, W1);
	route_in_session(2, KVR_ACTION_CLOSE, "chat");
	h = take_session_dispatch(&to);
	finish_session_request(2, h, 0);
	CU_ASSERT_NOT_EQUAL(take_session_message(KVR_SESSION_CLOSE, "chat", &to, NULL),
			    0); /* lost */
	CU_ASSERT_EQUAL(open_session(3, "chat", KVR_NONE32, W1), W1);
	CU_ASSERT_EQUAL(read_session_counter(SC_CLOSE_DROPPED), 1);
	pipeline_advance(3000);
	CU_ASSERT_EQUAL(take_session_message(KVR_SESSION_CLOSE, "chat", &to, NULL), 0);
	/* The same while the closing request still runs. */
	route_in_session(4, KVR_ACTION_CLOSE, "chat");
	h = take_session_dispatch(&to);
	CU_ASSERT_EQUAL(open_session(5, "chat", KVR_NONE32, W1), W1);
	finish_session_request(4, h, 0);
	CU_ASSERT_EQUAL(take_session_message(KVR_SESSION_CLOSE, "chat", &to, NULL), 0);
	expect_worker_of(6, "chat", W1);
	/* Opened at another worker, it is closed at the first. */
	route_in_session(7, KVR_ACTION_CLOSE, "chat");
	h = take_session_dispatch(&to);
	CU_ASSERT_EQUAL(open_session(8, "chat", KVR_NONE32, W2), W2);
	finish_session_request(7, h, 0);
	answer_close("chat", W1);
	end_sessions(1);
}

/* ---- release ---- */

static void release_unbinds_and_sends_a_close(void)
{
	uint64_t worker;

	begin_sessions();
	worker = open_session(1, "chat", KVR_NONE32, 0);
	release_session_in("other", 5);
	CU_ASSERT_EQUAL(take_code(KVR_SESSION_RELEASED), KVR_E_UNKNOWN_SESSION);
	release_session_in("chat", 99);
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_UNKNOWN_POOL);
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 1);
	release_session_in("chat", 5);
	CU_ASSERT_EQUAL(take_code(KVR_SESSION_RELEASED), 0);
	answer_close("chat", worker);
	release_session_in("chat", 5);
	CU_ASSERT_EQUAL(take_code(KVR_SESSION_RELEASED), KVR_E_UNKNOWN_SESSION);
	CU_ASSERT_EQUAL(read_session_counter(SC_UNBOUND), 1);
	end_sessions(0);
}

/* ---- time ---- */

static void a_session_is_renewed_and_expires_with_a_close(void)
{
	uint64_t worker;

	begin_sessions();
	worker = open_session(1, "chat", 100, 0);
	for (uint64_t id = 2; id < 6; id++) {
		pipeline_advance(80000);
		expect_worker_of(id, "chat", worker);
	}
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 1);
	pipeline_advance(90000);
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 1);
	pipeline_advance(10300);
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_EXPIRED), 1);
	answer_close("chat", worker);
	end_sessions(0);
}

/* It has expired, but the timer wheel has not run: the next use notices. */
static void use_after_expiry_finds_no_session(void)
{
	uint64_t worker, to = 0, h;

	begin_sessions();
	worker = open_session(1, "chat", 10, 0);
	pipeline_skip(10000);
	route_in_session(2, KVR_ACTION_CLOSE, "chat");
	h = take_session_dispatch(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	finish_session_request(2, h, 0);
	answer_close("chat", worker);
	route_in_session(3, KVR_ACTION_NONE, "chat");
	h = take_session_dispatch(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	finish_session_request(3, h, 0);
	end_sessions(0);
}

/* ---- pins and limits ---- */

static void an_explicit_pin_has_precedence(void)
{
	uint64_t to = 0, h;

	begin_sessions();
	open_session(1, "chat", KVR_NONE32, W1);
	route_in_pinned_session(2, KVR_ACTION_NONE, "chat", KVR_NONE32, W2, 0);
	h = take_session_dispatch(&to);
	CU_ASSERT_EQUAL(to, W2);
	finish_session_request(2, h, 0);
	expect_worker_of(3, "chat", W1);
	end_sessions(1);
}

static void query_uses_the_binding_and_changes_nothing(void)
{
	const struct out *o;

	begin_sessions();
	open_session(1, "chat", KVR_NONE32, W2);
	route_in_pinned_session(2, KVR_ACTION_NONE, "chat", KVR_NONE32, 0, KVR_REQ_F_QUERY);
	o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(((const struct kvr_wire_accepted *)(&o->hdr + 1))->worker, W2);
	route_in_pinned_session(3, KVR_ACTION_OPEN, "new", KVR_NONE32, 0, KVR_REQ_F_QUERY);
	CU_ASSERT_EQUAL(take_accepted_state(), KVR_STATE_QUERY);
	route_in_pinned_session(4, KVR_ACTION_CLOSE, "chat", KVR_NONE32, 0, KVR_REQ_F_QUERY);
	CU_ASSERT_EQUAL(take_accepted_state(), KVR_STATE_QUERY);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_OPEN));
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_CLOSE));
	end_sessions(1);
}

/*
 * A place is reserved when the open begins: the third open is rejected before anything is booked.
 */
static void the_limit_counts_pending_opens(void)
{
	uint64_t worker = 0, to = 0, number, h;

	begin_session_pool(POOL "max_sessions = 2\n");
	open_session(1, "a", KVR_NONE32, 0);
	route_in_session(2, KVR_ACTION_OPEN, "b");
	number = take_session_message(KVR_SESSION_OPEN, "b", &worker, NULL);
	pipeline_flush();
	route_in_session(3, KVR_ACTION_OPEN, "c");
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_SESSION_LIMIT);
	CU_ASSERT_EQUAL(count_live_requests(), 1);
	CU_ASSERT_EQUAL(kvr_stats_get(pipeline_get_pool()->live.rq.count, KVR_RQC_SESSION_REFUSED),
			1);
	send_session_reply(KVR_SESSION_OPENED, worker, number, 0);
	h = take_session_dispatch(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	finish_session_request(2, h, 0);
	release_session_in("a", 5);
	to = 0;
	number = take_session_message(KVR_SESSION_CLOSE, "a", &to, NULL);
	send_session_reply(KVR_SESSION_CLOSED, to, number, 0);
	open_session(4, "c", KVR_NONE32, 0);
	end_sessions(2);
}

static void rejected_requests_return_their_place(void)
{
	begin_session_pool(POOL "max_sessions = 1\n");
	for (uint64_t id = 1; id < 4; id++) {
		route_in_pinned_session(id, KVR_ACTION_OPEN, "a", KVR_NONE32, 12345, 0);
		CU_ASSERT_EQUAL(take_reject_code(), KVR_E_NO_ENDPOINTS);
	}
	open_session(5, "a", KVR_NONE32, 0);
	end_sessions(1);
}

static void sessions_can_be_disabled(void)
{
	uint64_t to = 0, h;

	pipeline_start_with(POOL "max_sessions = 0\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(W1, 1, "a", 1));
	pipeline_flush();
	route_in_session(1, KVR_ACTION_OPEN, "a");
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_SESSION_LIMIT);
	close_unknown_session(2, "a");
	route_in_session(3, KVR_ACTION_NONE, "a");
	h = take_session_dispatch(&to);
	CU_ASSERT_NOT_EQUAL(h, 0);
	finish_session_request(3, h, 0);
	release_session_in("a", 5);
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_UNKNOWN_SESSION);
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(count_live_requests(), 0);
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	pipeline_stop();
}

static void invalid_hints_are_rejected(void)
{
	char id[KVR_HINT_MAX_SESSION + 2];
	uint64_t n = 0;

	begin_sessions();
	route_in_session(++n, 3, "chat");
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_INVALID_SESSION);
	route_in_pinned_session(++n, KVR_ACTION_OPEN, "chat", 0, 0, 0);
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_INVALID_SESSION);
	route_in_pinned_session(++n, KVR_ACTION_OPEN, "chat", 31536001, 0, 0);
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_INVALID_SESSION);
	route_in_session(++n, KVR_ACTION_OPEN, "");
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_INVALID_SESSION);
	memset(id, 'x', sizeof(id));
	id[KVR_HINT_MAX_SESSION + 1] = '\0';
	route_in_session(++n, KVR_ACTION_OPEN, id);
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_INVALID_SESSION);
	id[KVR_HINT_MAX_SESSION] = '\0';
	open_session(++n, id, 31536000, 0);
	end_sessions(1);
}

static void only_the_opening_worker_can_reply(void)
{
	const struct kvr_wire_ids from = {.source = W1, .id = 1, .epoch = 1};
	uint64_t worker = 0, to, number;
	struct kvr_wire_ids ids = from;
	uint8_t buf[128];
	int len;

	begin_sessions();
	route_in_session(1, KVR_ACTION_OPEN, "chat");
	number = take_session_message(KVR_SESSION_OPEN, "chat", &worker, NULL);
	ids.source = worker;
	ids.id = number;
	len = kvr_put_session_status(buf, sizeof(buf), KVR_SESSION_OPENED, &ids, 0);
	pipeline_send(PEER_OTHER, buf, (size_t)len);
	pipeline_turn();
	CU_ASSERT_EQUAL(take_session_dispatch(&to), 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_OPENING), 1);
	cancel_request(1);
	answer_close("chat", worker);
	end_sessions(0);
}

/* ---- workers that leave with bindings ---- */

static void session_of_a_lost_worker_is_reported(void)
{
	uint64_t worker, to = 0, h;

	begin_sessions();
	worker = open_session(1, "chat", 10, 0);
	send_goodbye(worker);
	route_in_session(2, KVR_ACTION_NONE, "chat");
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_SESSION_WORKER_GONE);
	route_in_pinned_session(3, KVR_ACTION_NONE, "chat", KVR_NONE32, get_other_worker(worker),
				0);
	h = take_session_dispatch(&to);
	CU_ASSERT_EQUAL(to, get_other_worker(worker));
	finish_session_request(3, h, 0);
	pipeline_flush();
	/* A new incarnation of the worker does not know the session. */
	CU_ASSERT_TRUE(pipeline_hello(worker, 2, "a", 1));
	route_in_session(4, KVR_ACTION_NONE, "chat");
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_SESSION_WORKER_GONE);
	release_session_in("chat", 5);
	CU_ASSERT_EQUAL(take_code(KVR_SESSION_RELEASED), 0);
	CU_ASSERT_EQUAL(take_session_message(KVR_SESSION_CLOSE, "chat", NULL, NULL),
			0); /* nor its close */
	CU_ASSERT_EQUAL(read_session_counter(SC_CLOSE_WORKER_GONE), 1);
	end_sessions(0);
}

/* ---- affinity ---- */

#define AFFINITY POOL "max_sessions = 2\nsession_affinity_ttl_secs = 100\n"

/* Send request `id` of `session`. @return its handle and its worker. */
static uint64_t use_session(uint64_t id, const char *session, uint64_t *to)
{
	uint64_t h;

	*to = 0;
	route_in_session(id, KVR_ACTION_NONE, session);
	h = take_session_dispatch(to);
	CU_ASSERT_NOT_EQUAL_FATAL(h, 0);
	pipeline_flush();
	return h;
}

static void affinity_binds_with_the_first_success(void)
{
	uint64_t first, to, h1, h2;

	begin_session_pool(AFFINITY);
	h1 = use_session(1, "chat", &first);
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 0);
	acknowledge_dispatch(1, h1, 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_AFFINITY_BOUND), 1);
	for (uint64_t id = 2; id < 8; id++) {
		h2 = use_session(id, "chat", &to);
		CU_ASSERT_EQUAL(to, first);
		finish_session_request(id, h2, 0);
	}
	finish_session_request(1, h1, 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_AFFINITY_BOUND), 1);
	h2 = use_session(20, "item", &to); /* bound by its first item */
	send_session_item(20, h2, 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_AFFINITY_BOUND), 2);
	finish_session_request(20, h2, 0);
	h2 = use_session(21, "third", &to); /* no place: served without a binding */
	acknowledge_dispatch(21, h2, 0);
	finish_session_request(21, h2, 0);
	CU_ASSERT_EQUAL(kvr_stats_get(pipeline_get_pool()->live.rq.count, KVR_RQC_SESSION_REFUSED),
			1);
	end_sessions(2);
}

static void affinity_lasts_while_requests_run_and_then_expires(void)
{
	uint64_t first, h;

	begin_session_pool(AFFINITY);
	h = use_session(1, "chat", &first);
	acknowledge_dispatch(1, h, 0);
	for (int i = 0; i < 5; i++)
		pipeline_advance(50000);
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 1);
	finish_session_request(1, h, 0);
	pipeline_advance(90000); /* the idle time starts at the end */
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 1);
	pipeline_advance(10300);
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_EXPIRED), 1);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_SESSION_CLOSE)); /* was never opened */
	end_sessions(0);
}

static void cancel_keeps_an_affinity_and_failure_ends_it(void)
{
	uint64_t first, to, h;

	begin_session_pool(AFFINITY);
	h = use_session(1, "chat", &first);
	acknowledge_dispatch(1, h, 0);
	cancel_request(1);
	finish_session_request(1, h, KVR_RESP_F_CANCELLED);
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 1);
	h = use_session(2, "chat", &to);
	CU_ASSERT_EQUAL(to, first);
	finish_session_request(2, h, KVR_RESP_F_ERROR);
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_INVALIDATED), 1);
	h = use_session(3, "chat", &to); /* a failed first request binds nothing */
	acknowledge_dispatch(3, h, 9);
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 0);
	h = use_session(4, "chat", &to);
	finish_session_request(4, h, KVR_RESP_F_ERROR);
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 0);
	end_sessions(0);
}

static void affinity_to_an_absent_worker_is_routed_again(void)
{
	uint64_t first, to, h;

	begin_session_pool(AFFINITY);
	h = use_session(1, "chat", &first);
	finish_session_request(1, h, 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 1);
	CU_ASSERT_EQUAL(control_drain(rt, first, true), 0);
	pipeline_flush();
	h = use_session(2, "chat", &to);
	CU_ASSERT_EQUAL(to, get_other_worker(first));
	CU_ASSERT_EQUAL(read_session_counter(SC_INVALIDATED), 1);
	finish_session_request(2, h, 0); /* bound to the other worker now */
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 1);
	CU_ASSERT_EQUAL(control_drain(rt, first, false), 0);
	send_goodbye(get_other_worker(first));
	pipeline_flush();
	h = use_session(3, "chat", &to);
	CU_ASSERT_EQUAL(to, first);
	CU_ASSERT_EQUAL(read_session_counter(SC_INVALIDATED), 2);
	finish_session_request(3, h, 0);
	CU_ASSERT_TRUE(pipeline_hello(first, 2, "a", 1)); /* a new incarnation of the worker */
	h = use_session(4, "chat", &to);
	CU_ASSERT_EQUAL(read_session_counter(SC_INVALIDATED), 3);
	finish_session_request(4, h, 0);
	end_sessions(1);
}

static void affinity_of_a_lost_worker_ends_with_its_requests(void)
{
	uint64_t first, to, h;

	begin_session_pool(AFFINITY);
	h = use_session(1, "chat", &first);
	acknowledge_dispatch(1, h, 0);
	send_goodbye(first);
	CU_ASSERT_EQUAL(take_reject_code(), KVR_E_WORKER_LOST);
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 0);
	h = use_session(2, "chat", &to);
	CU_ASSERT_EQUAL(to, get_other_worker(first));
	finish_session_request(2, h, 0);
	end_sessions(1);
}

static void the_first_of_two_requests_binds(void)
{
	uint64_t w1, w2, to, h1, h2, h3;

	begin_session_pool(AFFINITY);
	h1 = use_session(1, "chat", &w1);
	h2 = use_session(2, "chat", &w2); /* not bound yet: the load decides */
	CU_ASSERT_NOT_EQUAL(w1, w2);
	acknowledge_dispatch(2, h2, 0);
	acknowledge_dispatch(1, h1, 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_AFFINITY_BOUND), 1);
	finish_session_request(1, h1, KVR_RESP_F_ERROR); /* not in the binding: does not end it */
	h3 = use_session(3, "chat", &to);
	CU_ASSERT_EQUAL(to, w2);
	finish_session_request(2, h2, 0);
	finish_session_request(3, h3, 0);
	end_sessions(1);
}

static void affinity_can_be_released_and_opened(void)
{
	uint64_t first, to = 0, h, number;

	begin_session_pool(AFFINITY);
	h = use_session(1, "chat", &first);
	finish_session_request(1, h, 0);
	release_session_in("chat", 5);
	CU_ASSERT_EQUAL(take_code(KVR_SESSION_RELEASED), 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_CLOSING), 0); /* no worker knows it */
	h = use_session(2, "chat", &first);
	acknowledge_dispatch(2, h, 0);
	route_in_session(3, KVR_ACTION_OPEN, "chat"); /* explicit from now on, at the same worker */
	number = take_session_message(KVR_SESSION_OPEN, "chat", &to, NULL);
	CU_ASSERT_EQUAL(to, first);
	send_session_reply(KVR_SESSION_OPENED, to, number, 0);
	finish_session_request(2, h, KVR_RESP_F_ERROR); /* its affinity has ended */
	CU_ASSERT_EQUAL(read_session_counter(SC_LIVE), 1);
	finish_session_request(3, take_session_dispatch(&to), 0);
	CU_ASSERT_EQUAL(read_session_counter(SC_REBOUND), 1);
	end_sessions(1);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(open_holds_the_request_until_the_worker_answers),
			       KVR_CASE(a_rejected_open_ends_the_request),
			       KVR_CASE(an_open_is_retransmitted_for_five_seconds),
			       KVR_CASE(a_reply_to_a_retransmit_counts),
			       KVR_CASE(a_retransmitted_route_opens_once),
			       KVR_CASE(cancel_while_opening_sends_a_close),
			       KVR_CASE(a_failed_reopen_keeps_the_binding),
			       KVR_CASE(loss_of_the_worker_while_opening_fails_the_request),
			       KVR_CASE(stop_while_opening_frees_the_message),
			       KVR_CASE(close_follows_the_end),
			       KVR_CASE(close_follows_a_rejected_dispatch),
			       KVR_CASE(close_to_a_lost_worker_is_counted),
			       KVR_CASE(close_is_retransmitted_and_given_up),
			       KVR_CASE(close_of_an_unknown_session_is_served),
			       KVR_CASE(a_late_close_spares_a_reopened_session),
			       KVR_CASE(too_many_closes_give_up_the_oldest),
			       KVR_CASE(release_unbinds_and_sends_a_close),
			       KVR_CASE(a_session_is_renewed_and_expires_with_a_close),
			       KVR_CASE(use_after_expiry_finds_no_session),
			       KVR_CASE(an_explicit_pin_has_precedence),
			       KVR_CASE(query_uses_the_binding_and_changes_nothing),
			       KVR_CASE(the_limit_counts_pending_opens),
			       KVR_CASE(rejected_requests_return_their_place),
			       KVR_CASE(sessions_can_be_disabled),
			       KVR_CASE(invalid_hints_are_rejected),
			       KVR_CASE(only_the_opening_worker_can_reply),
			       KVR_CASE(session_of_a_lost_worker_is_reported),
			       KVR_CASE(affinity_binds_with_the_first_success),
			       KVR_CASE(affinity_lasts_while_requests_run_and_then_expires),
			       KVR_CASE(cancel_keeps_an_affinity_and_failure_ends_it),
			       KVR_CASE(affinity_to_an_absent_worker_is_routed_again),
			       KVR_CASE(affinity_of_a_lost_worker_ends_with_its_requests),
			       KVR_CASE(the_first_of_two_requests_binds),
			       KVR_CASE(affinity_can_be_released_and_opened),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("session", tests);
}
