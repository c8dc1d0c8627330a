/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * REJECTED with every code for every kind in every state: the client must follow the table of
 * PROTOCOL.md, which tests/protocol compares with kvr_refusal().
 */
#include "client_rig.h"

#include "kvr_refusal.h"

enum phase { SENT_ONCE, SENT_TWICE, WAITING, STREAMING, CANCELLING, PHASES };

static uint64_t start_in_state(enum phase p)
{
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	if (p == SENT_TWICE)
		rig_run_ms(21);
	if (p >= WAITING)
		push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 1);
	if (p >= STREAMING)
		push_item(id, 0, 0, "x");
	kvr_client_process(c);
	if (p == WAITING)
		rig_run_ms(251); /* a PROBE is unanswered */
	if (p == CANCELLING)
		CU_ASSERT_EQUAL(kvr_client_cancel(c, id), 0);
	kvr_client_process(c);
	fake_skip(&net);
	return id;
}

static void push_refusal(uint64_t id, unsigned int code, uint8_t kind, bool retryable)
{
	push_rejected(id, code, kind, "why");
	((struct kvr_wire_rejected *)(net.in[net.n_in - 1].data + 48))->retryable = retryable;
	kvr_client_process(c);
}

/* Expected effect of a rejection in a state. */
static bool ends_with(enum kvr_refusal what, enum phase p, uint8_t kind)
{
	if (p == CANCELLING)
		return kind == KVR_CANCEL ? what == KVR_REFUSAL_DONE
					  : kind == KVR_ROUTE && (what == KVR_REFUSAL_END ||
								  what == KVR_REFUSAL_LINGER);
	if (kind == KVR_CANCEL || (kind == KVR_PROBE && p < WAITING))
		return false;
	if (what == KVR_REFUSAL_FIRST || what == KVR_REFUSAL_BUSY)
		return p < WAITING;
	if (what == KVR_REFUSAL_RESTART)
		return p == STREAMING &&
		       kind == KVR_PROBE; /* the message cannot be retransmitted */
	return what == KVR_REFUSAL_END;
}

static bool sends_again(enum kvr_refusal what, enum phase p, uint8_t kind)
{
	if (what == KVR_REFUSAL_COOKIE)
		return p < STREAMING; /* of ROUTE only; the message is freed later */
	return what == KVR_REFUSAL_RESTART && p == WAITING && kind == KVR_PROBE;
}

static enum kvr_client_reason get_reason(enum kvr_refusal what, enum phase p)
{
	if (p == CANCELLING)
		return KVR_CLIENT_CANCELLED;
	return what == KVR_REFUSAL_RESTART ? KVR_CLIENT_LOST : KVR_CLIENT_REJECTED;
}

static void check_rejection(unsigned int code, bool retryable, uint8_t kind, enum phase p)
{
	const enum kvr_refusal what = kvr_refusal(kind, code, retryable);
	const bool over = ends_with(what, p, kind);
	const uint64_t id = start_in_state(p);
	unsigned int cancels;

	push_refusal(id, code, kind, retryable);
	CU_ASSERT_EQUAL(saw.ends, over);
	if (over)
		CU_ASSERT_EQUAL(saw.end.reason, get_reason(what, p));
	if (over && get_reason(what, p) == KVR_CLIENT_REJECTED) {
		CU_ASSERT_EQUAL(saw.end.code, code);
		CU_ASSERT_EQUAL(saw.end.retryable, retryable);
		CU_ASSERT_STRING_EQUAL(saw.text, "why");
	}
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), sends_again(what, p, kind));
	/* An earlier copy may have been accepted, and must not run without a client. */
	cancels = over && what == KVR_REFUSAL_BUSY && p == SENT_TWICE;
	CU_ASSERT_EQUAL(fake_count(&net, KVR_CANCEL), cancels);
	/* A repetition changes nothing. */
	push_refusal(id, code, kind, retryable);
	CU_ASSERT_EQUAL(saw.ends, over);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), sends_again(what, p, kind));
	CU_ASSERT_EQUAL(fake_count(&net, KVR_CANCEL), cancels);
	rig_stop();
}

static void every_code_follows_the_table(void)
{
	static const uint8_t kinds[] = {KVR_ROUTE, KVR_PROBE, KVR_CANCEL};

	for (unsigned int code = 1; code < 128; code++)
		for (unsigned int k = 0; k < 3; k++)
			for (int p = 0; p < PHASES; p++) {
				check_rejection(code, kvr_code_retryable(code), kinds[k],
						(enum phase)p);
				check_rejection(code, !kvr_code_retryable(code), kinds[k],
						(enum phase)p);
			}
}

static void kinds_that_are_never_rejected_have_no_effect(void)
{
	for (unsigned int kind = 0; kind < 256; kind++) {
		const uint64_t id = start_in_state(WAITING);

		if (kind != KVR_ROUTE && kind != KVR_PROBE) {
			push_refusal(id, KVR_E_WORKER_LOST, (uint8_t)kind, true);
			CU_ASSERT_EQUAL(saw.ends, 0);
		}
		rig_stop();
	}
}

/* The answer to a PROBE of the previous attempt must not restart the next one. */
static void starting_over_is_no_storm(void)
{
	uint64_t id = start_in_state(WAITING);

	for (int i = 0; i < 100; i++)
		push_refusal(id, KVR_E_UNKNOWN_REQUEST, KVR_PROBE, false);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 1);
	rig_stop();
	/* Nor must a router that never knows the request: the timer decides when to retransmit. */
	id = start_in_state(SENT_ONCE);
	for (int i = 0; i < 1000; i++) {
		push_refusal(id, KVR_E_UNKNOWN_REQUEST, KVR_ROUTE, false);
		rig_run_ms(1);
	}
	CU_ASSERT(fake_count(&net, KVR_ROUTE) <= 6);
	rig_stop();
}

/* Rejections of a router whose earlier answers were lost; also of requests that were accepted,
 * moved, and found no capacity. */
static void a_probe_reports_the_end_of_an_accepted_request(void)
{
	static const unsigned int codes[] = {KVR_E_SOURCE_LIMIT,   KVR_E_NO_ENDPOINTS,
					     KVR_E_QUEUE_REJECTED, KVR_E_NO_MEMORY,
					     KVR_E_WORKER_LOST,	   KVR_E_SHUTDOWN};

	for (unsigned int i = 0; i < RTE_DIM(codes); i++) {
		const uint64_t id = start_in_state(WAITING);

		push_refusal(id, codes[i], KVR_ROUTE, true);
		push_refusal(id, codes[i], KVR_PROBE, true);
		CU_ASSERT_EQUAL(saw.ends, 1);
		CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_REJECTED);
		CU_ASSERT_EQUAL(saw.end.code, codes[i]);
		rig_stop();
	}
}

static void an_ended_request_waits_for_its_last_items(void)
{
	const uint64_t id = start_in_state(STREAMING);

	push_refusal(id, KVR_E_ENDED, KVR_PROBE, false);
	rig_run_ms(2900);
	CU_ASSERT_EQUAL(saw.ends, 0);
	push_item(id, 1, KVR_RESP_F_FIN, "end");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_FINISHED);
	rig_stop();
}

/* The text of a rejection remains valid after its frame. */
static void the_reader_of_a_busy_request_gets_the_text(void)
{
	const struct kvr_client_request q = {.tokens = prompt, .n_tokens = 4};
	struct kvr_client_item item;
	struct kvr_client_end end;
	uint64_t id;

	rig_start();
	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(c, &q, &id), 0);
	kvr_client_process(c);
	rig_run_ms(21);
	fake_skip(&net);
	push_refusal(id, KVR_E_BUSY, KVR_ROUTE, true);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_CANCEL), 1);
	CU_ASSERT_EQUAL_FATAL(kvr_client_next_item(c, id, &item, &end, 0), 0);
	CU_ASSERT_EQUAL(end.reason, KVR_CLIENT_REJECTED);
	CU_ASSERT_EQUAL(end.code, KVR_E_BUSY);
	CU_ASSERT_STRING_EQUAL(end.text, "why");
	CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &item, &end, 0), -ENOENT);
	push_empty(id, KVR_CANCELLED);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(kvr_client_in_flight(c), 0);
	CU_ASSERT_EQUAL(kvr_client_timeout_ms(c), -1);
	rig_stop();
}

/* ---- other kinds ---- */

static void connect_distinguishes_down_from_denied(void)
{
	for (unsigned int code = 1; code < 128; code++) {
		const bool again = kvr_refusal(KVR_CONNECT, code, kvr_code_retryable(code)) ==
				   KVR_REFUSAL_REPEAT;
		struct kvr_client_refusal why;
		uint64_t id;

		rig_start();
		kvr_client_connect(c);
		kvr_client_process(c);
		id = fake_next(&net, KVR_CONNECT)->id;
		push_rejected(id, code, KVR_ROUTE, "another question's");
		push_rejected(id + 1, code, KVR_CONNECT, "another connect's");
		kvr_client_process(c);
		CU_ASSERT_EQUAL(saw.connects, 0);
		push_rejected(id, code, KVR_CONNECT, "why");
		kvr_client_process(c);
		CU_ASSERT_EQUAL(saw.connects, !again);
		if (again)
			rig_run_ms(5001);
		CU_ASSERT_EQUAL(saw.connects, 1);
		CU_ASSERT_EQUAL(saw.connect_status, again			? -EBUSY
						    : code == KVR_E_NOT_ALLOWED ? -EACCES
										: -EPROTO);
		why = kvr_client_connect_refusal(c);
		CU_ASSERT_EQUAL(why.code, code);
		CU_ASSERT_EQUAL(why.retryable, kvr_code_retryable(code));
		CU_ASSERT_STRING_EQUAL(why.text, "why");
		rig_stop();
	}
	rig_start();
	kvr_client_connect(c);
	rig_run_ms(5001);
	CU_ASSERT_EQUAL(saw.connect_status, -ETIMEDOUT);
	CU_ASSERT_EQUAL(kvr_client_connect_refusal(c).code, 0);
	CU_ASSERT_STRING_EQUAL(kvr_client_connect_refusal(c).text, "");
	rig_stop();
}

static int released, release_status;

static void on_released(struct kvr_client *cl, const char *s, int status, uint16_t code, void *u)
{
	released++;
	release_status = status;
}

static void a_rejected_release_is_repeated_or_ends(void)
{
	for (unsigned int code = 1; code < 128; code++) {
		const bool again = kvr_refusal(KVR_SESSION_RELEASE, code,
					       kvr_code_retryable(code)) == KVR_REFUSAL_REPEAT;
		const struct kvr_client_release q = {.session = "s", .on_released = on_released};
		uint64_t id;

		rig_start();
		released = 0;
		CU_ASSERT_EQUAL(kvr_client_release(c, &q), 0);
		kvr_client_process(c);
		id = fake_next(&net, KVR_SESSION_RELEASE)->id;
		push_rejected(id, code, KVR_SESSION_RELEASE, "why");
		kvr_client_process(c);
		CU_ASSERT_EQUAL(released, !again);
		if (!again)
			CU_ASSERT_EQUAL(release_status,
					code == KVR_E_UNKNOWN_SESSION ? -ENOENT : -EACCES);
		rig_stop();
	}
}

static void connected_includes_the_limits(void)
{
	static const char body[4096];
	struct kvr_client_request q = {
		.tokens = prompt, .n_tokens = 4, .body = body, .ops = &rig_ops};
	struct kvr_client_limits l;
	uint64_t id;

	rig_start();
	CU_ASSERT_EQUAL(kvr_client_limits(c, &l), -ENOTCONN);
	kvr_client_connect(c);
	kvr_client_process(c);
	push_connected(fake_next(&net, KVR_CONNECT)->id, 77);
	((struct kvr_wire_connected *)(net.in[net.n_in - 1].data + 48))->max_frames = 2;
	kvr_client_process(c);
	CU_ASSERT_EQUAL_FATAL(kvr_client_limits(c, &l), 0);
	CU_ASSERT_EQUAL(l.frame_bytes, 1432);
	CU_ASSERT_EQUAL(l.max_tokens, 100000);
	CU_ASSERT_EQUAL(l.max_hashes, 1000);
	CU_ASSERT_EQUAL(l.max_body, 5000);
	CU_ASSERT_EQUAL(l.max_message, 2 * 1384);
	q.body_len = 2 * 1384 - 88 - 16;
	CU_ASSERT_EQUAL(kvr_client_submit(c, &q, &id), 0);
	q.body_len++;
	CU_ASSERT_EQUAL(kvr_client_submit(c, &q, &id), -EMSGSIZE);
	rig_stop();
}

/* ---- blocking functions ---- */

/* The id of a client's first request. */
#define FIRST_ID ((UINT64_C(1) << 32) | 1)

static int wait_for(struct kvr_client_choice *ch)
{
	const struct kvr_client_request q = {.tokens = prompt, .n_tokens = 4};
	uint64_t id;
	const int rc = kvr_client_route_wait(c, &q, ch, &id);

	CU_ASSERT_EQUAL(id, FIRST_ID);
	return rc;
}

static void read_all(enum kvr_client_reason how)
{
	struct kvr_client_item item;
	struct kvr_client_end end;

	CU_ASSERT_EQUAL(kvr_client_next_item(c, FIRST_ID, &item, &end, 0), 1);
	CU_ASSERT_NSTRING_EQUAL(item.data, "all", 3);
	CU_ASSERT_EQUAL(kvr_client_next_item(c, FIRST_ID, &item, &end, 0), 0);
	CU_ASSERT_EQUAL(end.reason, how);
}

/* An answer is complete whether its ACCEPTED is late or lost. */
static void a_complete_answer_may_overtake_accepted(void)
{
	struct kvr_client_choice ch;

	rig_start();
	push_item(FIRST_ID, 0, KVR_RESP_F_FIN, "all");
	push_accepted(FIRST_ID, HANDLE, KVR_STATE_DISPATCHED, 42);
	CU_ASSERT_EQUAL(wait_for(&ch), 0);
	CU_ASSERT(ch.known);
	CU_ASSERT_EQUAL(ch.worker, 42);
	read_all(KVR_CLIENT_FINISHED);
	rig_stop();

	rig_start();
	push_item(FIRST_ID, 0, KVR_RESP_F_FIN | KVR_RESP_F_ERROR, "all");
	CU_ASSERT_EQUAL(wait_for(&ch), 0);
	CU_ASSERT(!ch.known);
	CU_ASSERT_EQUAL(ch.worker, 0);
	read_all(KVR_CLIENT_FAILED);
	rig_stop();

	rig_start();
	push_rejected(FIRST_ID, KVR_E_NO_ENDPOINTS, KVR_ROUTE, "no worker");
	net.in_after_send = true;
	CU_ASSERT_EQUAL(wait_for(&ch), -ECANCELED);
	rig_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(every_code_follows_the_table),
			       KVR_CASE(kinds_that_are_never_rejected_have_no_effect),
			       KVR_CASE(starting_over_is_no_storm),
			       KVR_CASE(a_probe_reports_the_end_of_an_accepted_request),
			       KVR_CASE(an_ended_request_waits_for_its_last_items),
			       KVR_CASE(the_reader_of_a_busy_request_gets_the_text),
			       KVR_CASE(connect_distinguishes_down_from_denied),
			       KVR_CASE(a_rejected_release_is_repeated_or_ends),
			       KVR_CASE(connected_includes_the_limits),
			       KVR_CASE(a_complete_answer_may_overtake_accepted),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("client_refused", tests);
}
