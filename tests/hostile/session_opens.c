/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows 18 and 23: a session id is opened by one request at a time; a session that a worker has
 * opened is bound or closed; pending closes cost an open nothing. Only the
 * client that has bound an id can release it.
 */
#include "peers.h"

#include "sched/session.h"
#include <stdio.h>

#define W1 9u
#define W2 10u

static uint64_t read_opens_counter(enum session_counter c)
{
	return kvr_stats_get(rt->pool[0].sessions->count, c);
}

static void begin_opens(void)
{
	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL "max_sessions = 1000\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(W1, 1, "a", 1));
	CU_ASSERT_TRUE_FATAL(pipeline_hello(W2, 1, "a", 1));
	pipeline_flush();
}

/* A ROUTE that opens; pin 0: none. */
static void send_open_at(uint64_t id, const char *session, uint64_t pin)
{
	uint8_t tlv[512];
	struct kvr_hint_buf h = {.p = tlv, .cap = sizeof(tlv)};

	if (pin != 0)
		kvr_hint_put_u64(&h, KVR_HINT_BACKEND, pin);
	kvr_hint_put_session(&h, KVR_ACTION_OPEN, 60, session);
	pipeline_route(id, 100 * id, 4, 0, &h);
}

static void send_session_status(uint8_t kind, uint64_t worker, uint64_t number)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = number, .epoch = 1};
	uint8_t buf[128];

	pipeline_send(PEER_AGENT, buf,
		      (size_t)kvr_put_session_status(buf, sizeof(buf), kind, &ids, 0));
	pipeline_turn();
}

/* The worker that received the message, 0: none; it is answered. */
static uint64_t answer_worker(uint8_t kind)
{
	const struct out *o = pipeline_expect(PEER_AGENT, kind);
	uint64_t worker;

	if (o == NULL)
		return 0;
	worker = o->hdr.source;
	send_session_status(kind + 1, worker, o->hdr.id);
	return worker;
}

static void send_release(uint32_t from, const char *session)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = 5000, .epoch = 1};
	uint8_t buf[512];
	int len = kvr_put_session(buf, sizeof(buf), KVR_SESSION_RELEASE, &ids,
				  (struct kvr_wire_session){.pool = 5},
				  (struct kvr_str){session, (uint32_t)strlen(session)});

	pipeline_send(from, buf, (size_t)len);
	pipeline_turn();
}

static void one_open_at_a_time(void)
{
	struct kvr_wire_rejected why;

	begin_opens();
	send_open_at(1, "chat", W1);
	send_open_at(2, "chat", W2);
	why = peers_take_rejected(PEER_CLIENT);
	CU_ASSERT_EQUAL(why.code, KVR_E_SESSION_OPEN_FAILED);
	CU_ASSERT_EQUAL(why.retryable, 1);
	send_open_at(3, "other", W2); /* another id is independent */
	CU_ASSERT_EQUAL(read_opens_counter(SC_OPENING), 2);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].live.rq.count, KVR_RQC_SESSION_BUSY), 1);
	CU_ASSERT_EQUAL(answer_worker(KVR_SESSION_OPEN), W1);
	CU_ASSERT_EQUAL(answer_worker(KVR_SESSION_OPEN), W2);
	CU_ASSERT_EQUAL(read_opens_counter(SC_BOUND), 2);
	/* Now the id can be opened again, and moves: its former worker gets a close. */
	send_open_at(4, "chat", W2);
	CU_ASSERT_EQUAL(answer_worker(KVR_SESSION_OPEN), W2);
	CU_ASSERT_EQUAL(answer_worker(KVR_SESSION_CLOSE), W1);
	CU_ASSERT_EQUAL(answer_worker(KVR_SESSION_CLOSE), 0);
	CU_ASSERT_EQUAL(read_opens_counter(SC_LIVE), 2);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static void an_open_that_ends_frees_the_id(void)
{
	begin_opens();
	send_open_at(1, "chat", W1);
	peers_empty(PEER_CLIENT, KVR_CANCEL, 1, 0);
	CU_ASSERT_EQUAL(answer_worker(KVR_SESSION_OPEN), W1); /* opened nevertheless, and closed */
	CU_ASSERT_EQUAL(answer_worker(KVR_SESSION_CLOSE), W1);
	send_open_at(2, "chat", W2);
	CU_ASSERT_EQUAL(answer_worker(KVR_SESSION_OPEN), W2);
	CU_ASSERT_EQUAL(read_opens_counter(SC_LIVE), 1);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

/* Hundreds of closes wait for their answer: an open checks only those of its own bucket. */
static void closes_cost_an_open_nothing(void)
{
	enum { N = 600 };
	char session[16];
	uint64_t before;

	begin_opens();
	for (uint64_t i = 1; i <= N; i++) {
		snprintf(session, sizeof(session), "s%u", (unsigned int)i);
		send_open_at(i, session, W1);
		answer_worker(KVR_SESSION_OPEN);
		peers_empty(PEER_CLIENT, KVR_CANCEL, i, 0);
		send_release(PEER_CLIENT, session);
		pipeline_flush();
	}
	CU_ASSERT_EQUAL(read_opens_counter(SC_CLOSING), N);
	before = rt->pool[0].sessions->looked + rt->pool[0].live.rq.looked;
	send_open_at(N + 1, "s1", W1); /* its close is obsolete now, the others stay */
	CU_ASSERT_EQUAL(read_opens_counter(SC_CLOSING), N - 1);
	CU_ASSERT_TRUE(rt->pool[0].sessions->looked + rt->pool[0].live.rq.looked - before < 16);
	answer_worker(KVR_SESSION_OPEN);
	CU_ASSERT_EQUAL(read_opens_counter(SC_LIVE), 1);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static void another_address_releases_nothing(void)
{
	begin_opens();
	send_open_at(1, "chat", W1);
	answer_worker(KVR_SESSION_OPEN);
	pipeline_host = 3;
	send_release(PEER_OTHER, "chat");
	pipeline_host = 2;
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_OTHER).code, KVR_E_NOT_ALLOWED);
	CU_ASSERT_EQUAL(answer_worker(KVR_SESSION_CLOSE), 0);
	CU_ASSERT_EQUAL(read_opens_counter(SC_LIVE), 1);
	send_release(PEER_OTHER, "chat"); /* another socket on its client's host */
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_OTHER, KVR_SESSION_RELEASED));
	CU_ASSERT_EQUAL(answer_worker(KVR_SESSION_CLOSE), W1);
	CU_ASSERT_EQUAL(read_opens_counter(SC_LIVE), 0);
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(one_open_at_a_time),
		KVR_CASE(an_open_that_ends_frees_the_id),
		KVR_CASE(closes_cost_an_open_nothing),
		KVR_CASE(another_address_releases_nothing),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("session_opens", tests);
}
