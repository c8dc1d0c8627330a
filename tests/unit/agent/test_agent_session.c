/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent_rig.h"

#include "kvr_rand.h"

static void push_session_of(uint32_t epoch, uint8_t kind, uint64_t id, const char *session,
			    uint32_t timeout_s)
{
	struct kvr_wire_ids ids = ids_of(WORKER, id, 0);
	const struct kvr_wire_session w = {.timeout_s = timeout_s, .pool = 1};
	const struct kvr_str s = {session, (uint32_t)strlen(session)};

	ids.epoch = epoch;
	fake_push(&net, router_at, kvr_put_session(fake_slot(&net), 1984, kind, &ids, w, s));
}

static void push_open(uint64_t id, const char *session, uint32_t timeout_s)
{
	push_session_of(ROUTER_EPOCH, KVR_SESSION_OPEN, id, session, timeout_s);
}

static void push_close(uint64_t id, const char *session)
{
	push_session_of(ROUTER_EPOCH, KVR_SESSION_CLOSE, id, session, 0);
}

/* Code of the next answer of @p kind, which must be about @p id; -1: no answer. */
static int next_answer(uint8_t kind, uint64_t id)
{
	const struct kvr_wire_hdr *h = fake_next(&net, kind);

	if (h == NULL)
		return -1;
	CU_ASSERT(kvr_udp_addr_equal(fake_to(&net), &router_at));
	CU_ASSERT_EQUAL(h->source, WORKER);
	CU_ASSERT_EQUAL(h->id, id);
	CU_ASSERT_EQUAL(h->handle, 0);
	CU_ASSERT_EQUAL(kvr_body_check(kind, kvr_frame_body(h), h->msg_len, NULL), 0);
	return ((const struct kvr_wire_session_status *)kvr_frame_body(h))->code;
}

/* The second call receives nothing, and the fake network has space again. */
static void receive_twice(void)
{
	kvr_agent_process(a);
	kvr_agent_process(a);
}

static void copies_open_and_close_a_session_once(void)
{
	struct kvr_agent_stats st;

	rig_welcomed((struct kvr_agent_conf){0});
	for (int i = 0; i < 3; i++)
		push_open(7, "chat-1", 330);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.opens, 1);
	CU_ASSERT_STRING_EQUAL(saw.session, "chat-1");
	CU_ASSERT_EQUAL(saw.timeout_s, 330);
	for (int i = 0; i < 3; i++)
		CU_ASSERT_EQUAL(next_answer(KVR_SESSION_OPENED, 7), 0);
	CU_ASSERT_EQUAL(next_answer(KVR_SESSION_OPENED, 7), -1);
	push_close(8, "chat-1");
	push_close(8, "chat-1");
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.closes, 1);
	CU_ASSERT_EQUAL(next_answer(KVR_SESSION_CLOSED, 8), 0);
	CU_ASSERT_EQUAL(next_answer(KVR_SESSION_CLOSED, 8), 0);
	/* A late copy of the OPEN does not open the session again. */
	push_open(7, "chat-1", 330);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.opens, 1);
	CU_ASSERT_EQUAL(next_answer(KVR_SESSION_OPENED, 7), 0);
	/* A new question with the same id does, and a CLOSE may use the number of an OPEN. */
	push_open(9, "chat-1", 60);
	push_close(9, "chat-1");
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.opens, 2);
	CU_ASSERT_EQUAL(saw.closes, 2);
	kvr_agent_stats_get(a, &st);
	CU_ASSERT(st.sessions_opened == 2 && st.sessions_closed == 2);
	CU_ASSERT(st.sessions_refused == 0 && st.session_copies == 4);
	rig_stop();
}

static void rejections_are_repeated_and_bounded(void)
{
	rig_welcomed((struct kvr_agent_conf){0});
	saw.session_code = 42;
	push_open(1, "a", 1);
	push_open(1, "a", 1);
	push_close(2, "a");
	kvr_agent_process(a);
	CU_ASSERT(saw.opens == 1 && saw.closes == 1);
	CU_ASSERT_EQUAL(next_answer(KVR_SESSION_OPENED, 1), 42);
	CU_ASSERT_EQUAL(next_answer(KVR_SESSION_OPENED, 1), 42);
	CU_ASSERT_EQUAL(next_answer(KVR_SESSION_CLOSED, 2), 42);
	saw.session_code = -5;
	push_open(3, "a", 1);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(next_answer(KVR_SESSION_OPENED, 3), UINT16_MAX);
	saw.session_code = 65536;
	push_open(4, "a", 1);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(next_answer(KVR_SESSION_OPENED, 4), UINT16_MAX);
	rig_stop();
}

static void an_engine_without_sessions_accepts(void)
{
	static const struct kvr_agent_ops bare = {.on_dispatch = on_dispatch};

	rig_welcomed((struct kvr_agent_conf){0});
	a->conf.ops = &bare;
	push_open(1, "a", 1);
	push_close(2, "a");
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(next_answer(KVR_SESSION_OPENED, 1), 0);
	CU_ASSERT_EQUAL(next_answer(KVR_SESSION_CLOSED, 2), 0);
	CU_ASSERT_EQUAL(saw.opens + saw.closes, 0);
	rig_stop();
}

static void a_callback_may_receive(void)
{
	int code, answers = 0;

	rig_welcomed((struct kvr_agent_conf){0});
	saw.receive_inside = true;
	saw.session_code = 42;
	for (int i = 0; i < 2 * KVR_UDP_BURST; i++) /* the inner call receives the second half */
		push_open(1, "a", 1);
	push_close(2, "b");
	receive_twice();
	CU_ASSERT_EQUAL(saw.opens, 1);
	CU_ASSERT_EQUAL(saw.closes, 1);
	while ((code = next_answer(KVR_SESSION_OPENED, 1)) >= 0) {
		CU_ASSERT_EQUAL(code, 42); /* no answer before the decision */
		answers++;
	}
	CU_ASSERT(answers > 0 && answers < 2 * KVR_UDP_BURST);
	rig_stop();
}

static void only_the_current_epoch_of_the_router_is_accepted(void)
{
	struct kvr_agent_stats st;

	rig_welcomed((struct kvr_agent_conf){0});
	push_session_of(ROUTER_EPOCH - 1, KVR_SESSION_OPEN, 1, "a", 1);
	push_open(2, "a", 1);
	net.in[net.n_in - 1].addr = fake_addr(66, 666);
	push_open(3, "a", 1);
	((struct kvr_wire_hdr *)net.in[net.n_in - 1].data)->source = WORKER + 1;
	push_session_of(ROUTER_EPOCH, KVR_SESSION_OPEN, 4, "a", 0); /* no timeout */
	push_open(5, "a\nb", 1);
	push_session_of(ROUTER_EPOCH, KVR_SESSION_CLOSE, 6, "a", 1);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.opens + saw.closes, 0);
	CU_ASSERT_EQUAL(net.n_out, 0);
	kvr_agent_stats_get(a, &st);
	CU_ASSERT_EQUAL(st.frames_foreign, 3);
	CU_ASSERT_EQUAL(st.frames_bad, 3);
	/* Numbers of a new epoch are new questions. */
	push_open(7, "a", 1);
	kvr_agent_process(a);
	push_rejected(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT);
	push_welcome_epoch(ROUTER_EPOCH + 1);
	push_session_of(ROUTER_EPOCH + 1, KVR_SESSION_OPEN, 7, "a", 1);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.opens, 2);
	rig_stop();
}

static void many_sessions_do_not_evict_recent_answers(void)
{
	char id[257];

	rig_welcomed((struct kvr_agent_conf){0});
	memset(id, 'x', 256);
	id[256] = '\0';
	for (uint64_t i = 1; i <= 20000; i++) {
		push_open(i, id, 1);
		receive_twice();
		fake_skip(&net);
	}
	CU_ASSERT_EQUAL(saw.opens, 20000);
	CU_ASSERT_EQUAL(strlen(saw.session), 256);
	for (uint64_t i = 20000 - 1000; i <= 20000; i++) {
		push_open(i, id, 1);
		receive_twice();
	}
	CU_ASSERT_EQUAL(saw.opens, 20000);
	rig_stop();
}

/* A router that retransmits until answered, over a network that loses and repeats: every session is
 * opened once and closed once, in this order. */
static void losses_and_copies_open_and_close_once(void)
{
	struct kvr_rand rnd;
	char name[16];

	rig_welcomed((struct kvr_agent_conf){0});
	kvr_rand_init(&rnd, 3);
	for (uint32_t s = 0; s < 500; s++) {
		snprintf(name, sizeof(name), "s%u", s);
		for (uint8_t kind = KVR_SESSION_OPEN; kind <= KVR_SESSION_CLOSE; kind += 2) {
			bool answered = false;

			while (!answered) {
				const uint32_t copies = kvr_rand_below(&rnd, 4);

				for (uint32_t i = 0; i < copies; i++)
					push_session_of(ROUTER_EPOCH, kind, 2ul * s + kind, name,
							kind == KVR_SESSION_OPEN);
				rig_run_ms(1);
				answered = copies > 0 && kvr_rand_below(&rnd, 3) > 0;
			}
			fake_skip(&net);
			CU_ASSERT_STRING_EQUAL(saw.session, name);
		}
		CU_ASSERT_EQUAL_FATAL(saw.opens, (int)s + 1);
		CU_ASSERT_EQUAL_FATAL(saw.closes, (int)s + 1);
	}
	rig_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(copies_open_and_close_a_session_once),
			       KVR_CASE(rejections_are_repeated_and_bounded),
			       KVR_CASE(an_engine_without_sessions_accepts),
			       KVR_CASE(a_callback_may_receive),
			       KVR_CASE(only_the_current_epoch_of_the_router_is_accepted),
			       KVR_CASE(many_sessions_do_not_evict_recent_answers),
			       KVR_CASE(losses_and_copies_open_and_close_once),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("agent_session", tests);
}
