/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * REJECTED with every code for every kind that an agent sends: the agent must follow the table of
 * PROTOCOL.md, which tests/protocol compares with kvr_refusal().
 */
#include "agent_rig.h"

#include "kvr_refusal.h"

static void push_about(unsigned int code, uint8_t kind, bool retryable, uint64_t seq)
{
	const bool request = kind == KVR_RESPONSE || kind == KVR_PROGRESS;
	const struct kvr_wire_ids ids =
		request ? ids_of(SOURCE, 1, HANDLE)
			: ids_of(WORKER, kind == KVR_HELLO ? a->hello_ids.id : 0, 0);
	struct kvr_wire_rejected *w = (void *)(fake_slot(&net) + 48);

	fake_push(&net, router_at, kvr_put_rejected(fake_slot(&net), 1984, &ids, code, kind, NULL));
	w->retryable = retryable;
	w->detail[2] = seq;
	kvr_agent_process(a);
}

/* Registered, with one request that has sent an item. */
static void start_with_item(uint32_t flags)
{
	rig_dispatched((struct kvr_agent_conf){0}, flags);
	CU_ASSERT_EQUAL(respond_to_request(HANDLE, "x", 0, 1), 0);
	kvr_agent_process(a);
	fake_skip(&net);
}

static void check_rejection(unsigned int code, uint8_t kind, bool retryable, uint32_t flags)
{
	const enum kvr_refusal what = kvr_refusal(kind, code, retryable);
	const bool stops = what == KVR_REFUSAL_STOP && (flags & KVR_REQ_F_DIRECT) == 0;
	const bool fails = what == KVR_REFUSAL_ITEM && (flags & KVR_REQ_F_DIRECT) == 0;
	const bool over = what == KVR_REFUSAL_OVER;

	start_with_item(flags);
	push_about(code, kind, retryable, 0);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_HELLO), what == KVR_REFUSAL_HELLO);
	CU_ASSERT_EQUAL(saw.aborts, stops || fails || over);
	CU_ASSERT_EQUAL(kvr_agent_running(a), stops || over ? 0 : 1);
	if (!stops && !fails && !over) { /* retransmission continues unchanged */
		fake_skip(&net);
		rig_run_ms(21);
		CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 1);
	}
	if (what == KVR_REFUSAL_HELLO) {
		CU_ASSERT_NOT_EQUAL(kvr_agent_running(a), 0);
		if (code == KVR_E_NOT_ALLOWED || code == KVR_E_STALE_EPOCH)
			CU_ASSERT(kind == KVR_RESPONSE || kind == KVR_PROGRESS ||
				  saw.status.reject == code);
	}
	rig_stop();
}

static void every_code_follows_the_table(void)
{
	static const uint8_t kinds[] = {KVR_HEARTBEAT, KVR_KV_EVENTS, KVR_RESPONSE, KVR_PROGRESS};

	for (unsigned int code = 1; code < 128; code++)
		for (unsigned int k = 0; k < RTE_DIM(kinds); k++) {
			check_rejection(code, kinds[k], false, 0);
			check_rejection(code, kinds[k], true, KVR_REQ_F_DIRECT);
		}
}

static void a_rejected_hello_is_retried_soon_or_slowly(void)
{
	for (unsigned int code = 1; code < 128; code++)
		for (int retryable = 0; retryable < 2; retryable++) {
			const bool slow =
				kvr_refusal(KVR_HELLO, code, retryable != 0) == KVR_REFUSAL_SLOW;

			rig_start_conf((struct kvr_agent_conf){0});
			kvr_agent_process(a);
			push_about(code, KVR_HELLO, retryable != 0, 0);
			CU_ASSERT_EQUAL(saw.status.reject, code);
			fake_skip(&net);
			rig_run_ms(slow ? 9999 : 199);
			CU_ASSERT_EQUAL(net.n_out, 0);
			rig_run_ms(1);
			CU_ASSERT_EQUAL(fake_count(&net, KVR_HELLO), 1);
			rig_stop();
		}
}

static void a_rejected_goodbye_is_repeated_or_ends(void)
{
	for (unsigned int code = 1; code < 128; code++)
		for (int retryable = 0; retryable < 2; retryable++) {
			rig_welcomed((struct kvr_agent_conf){0});
			kvr_agent_goodbye(a);
			push_about(code, KVR_GOODBYE, retryable != 0, 0);
			CU_ASSERT_EQUAL(saw.status.state == KVR_AGENT_GONE, retryable == 0);
			rig_stop();
		}
}

/* A router that rejects everything gets one HELLO per second, not one per rejection. */
static void repeated_hello_is_rate_limited(void)
{
	start_with_item(0);
	for (int i = 0; i < 3000; i++) {
		push_about(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT, false, 0);
		push_welcome_epoch(ROUTER_EPOCH);
		rig_run_ms(1);
		kvr_agent_process(a); /* nothing waits: the fake world has space */
	}
	CU_ASSERT(fake_count(&net, KVR_HELLO) >= 3);
	CU_ASSERT(fake_count(&net, KVR_HELLO) <= 4);
	rig_stop();
}

static uint32_t next_hello_epoch(void)
{
	const struct kvr_wire_hdr *h = fake_next(&net, KVR_HELLO);

	return h != NULL ? h->epoch : 0;
}

static void push_shutdown(uint32_t epoch)
{
	struct kvr_wire_ids ids = ids_of(WORKER, 0, 0);

	ids.epoch = epoch;
	fake_push(
		&net, router_at,
		kvr_put_rejected(fake_slot(&net), 1984, &ids, KVR_E_SHUTDOWN, KVR_HEARTBEAT, NULL));
	kvr_agent_process(a);
}

/* Requests end with their router, and copies do not run. HELLO is sent until another router
 * answers. */
static void a_shutdown_of_the_router_ends_its_requests(void)
{
	start_with_item(0);
	push_shutdown(ROUTER_EPOCH - 1); /* a previous router, which is gone */
	CU_ASSERT_EQUAL(kvr_agent_running(a), 1);
	CU_ASSERT_EQUAL(saw.aborts, 0);
	push_shutdown(ROUTER_EPOCH);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT(saw.why == KVR_AGENT_ABORT_ROUTER && saw.code == KVR_E_SHUTDOWN);
	CU_ASSERT(saw.status.state == KVR_AGENT_OFFLINE && saw.status.reject == KVR_E_SHUTDOWN);
	CU_ASSERT_EQUAL(respond_to_request(HANDLE, "y", 0, 2), -ENOENT);
	push_shutdown(ROUTER_EPOCH); /* sent twice */
	CU_ASSERT_EQUAL(saw.aborts, 1);
	push_dispatch(1, HANDLE, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 1);
	fake_skip(&net);
	rig_run_ms(199);
	CU_ASSERT_EQUAL(net.n_out, 0);
	rig_run_ms(1);
	CU_ASSERT_EQUAL(next_hello_epoch(), 9);
	rig_run_ms(399);
	CU_ASSERT_EQUAL(net.n_out, 1);
	rig_run_ms(1);
	CU_ASSERT_EQUAL(next_hello_epoch(), 9);
	push_welcome_epoch(ROUTER_EPOCH + 1);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.status.state, KVR_AGENT_JOINING);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_HEARTBEAT), 1);
	rig_stop();
}

/*
 * An epoch of the router sent a DISPATCH and ended before its WELCOME arrived. The next epoch ended
 * its requests, but a late copy is no new request. The same holds for the epoch before.
 */
static void an_epoch_without_welcome_ends_too(void)
{
	start_with_item(0);
	dispatch_epoch = ROUTER_EPOCH + 1;
	push_dispatch(2, HANDLE + 1, 0);
	push_dispatch(3, HANDLE + 2, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 3);
	CU_ASSERT_EQUAL(respond_to_request(HANDLE + 2, "z", KVR_AGENT_LAST, 1), 0);
	push_rejected(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT);
	push_welcome_epoch(ROUTER_EPOCH + 2);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	push_dispatch(2, HANDLE + 1, 0);
	push_dispatch(3, HANDLE + 2, 0);
	dispatch_epoch = ROUTER_EPOCH;
	push_dispatch(1, HANDLE, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 3);
	dispatch_epoch = ROUTER_EPOCH + 2;
	push_dispatch(2, HANDLE + 3, 0); /* the client retries */
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 4);
	dispatch_epoch = ROUTER_EPOCH;
	rig_stop();
}

/* DIRECT: the last item was sent, and the client needs no router to receive it. */
static void a_direct_end_survives_the_router(void)
{
	start_with_item(KVR_REQ_F_DIRECT);
	CU_ASSERT_EQUAL(respond_to_request(HANDLE, "z", KVR_AGENT_LAST, 3), 0);
	kvr_agent_process(a);
	push_shutdown(ROUTER_EPOCH);
	CU_ASSERT_EQUAL(saw.aborts, 0);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 1);
	fake_skip(&net);
	rig_run_ms(21);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 2);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_PROGRESS), 0);
	push_response_ack(client_at, 1, HANDLE, 2, KVR_RACK_F_FIN);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	CU_ASSERT_EQUAL(saw.dones, 1);
	rig_stop();
}

/* The router was unresponsive for dead_ms, and HELLO is sent: another router may have taken its
 * address. */
static void silence_router(void)
{
	fake_skip(&net);
	for (int i = 0; i < 40 && fake_count(&net, KVR_HELLO) == 0; i++)
		rig_run_ms(50);
	CU_ASSERT_FALSE(a->registered);
}

/*
 * Another router had the address for a while, and the previous one returns with the same epoch. It
 * believes that its requests run here, so the agent starts a new incarnation. If its WELCOME were
 * ignored as late, the engine would be unusable until a restart.
 */
static void a_replaced_router_returns(void)
{
	start_with_item(0);
	silence_router();
	push_welcome_epoch(ROUTER_EPOCH + 1);
	kvr_agent_process(a);
	CU_ASSERT_TRUE(a->registered);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	dispatch_epoch = ROUTER_EPOCH + 1;
	push_dispatch(2, HANDLE + 1, 0);
	kvr_agent_process(a);
	dispatch_epoch = ROUTER_EPOCH;
	CU_ASSERT_EQUAL(kvr_agent_running(a), 1);

	silence_router();
	fake_skip(&net);
	push_welcome_epoch(ROUTER_EPOCH);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	CU_ASSERT_EQUAL(saw.aborts, 2);
	CU_ASSERT_EQUAL(next_hello_epoch(), 10);
	push_welcome_epoch(ROUTER_EPOCH + 1); /* both answer: at most once a second */
	kvr_agent_process(a);
	CU_ASSERT_FALSE(a->registered);
	push_welcome_epoch(ROUTER_EPOCH);
	kvr_agent_process(a);
	CU_ASSERT_TRUE(a->registered);
	CU_ASSERT_EQUAL(saw.status.state, KVR_AGENT_JOINING);
	push_dispatch(3, HANDLE + 2, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 1);
	rig_stop();
}

/* HELLO was rejected with StaleEpoch; @p last is the router's last epoch of this worker. */
static void push_stale(uint64_t last)
{
	const struct kvr_wire_ids ids = ids_of(WORKER, hello_id(), 0);
	struct kvr_wire_rejected *w = (void *)(fake_slot(&net) + 48);

	fake_push(
		&net, router_at,
		kvr_put_rejected(fake_slot(&net), 1984, &ids, KVR_E_STALE_EPOCH, KVR_HELLO, NULL));
	w->detail[0] = last;
	kvr_agent_process(a);
}

/*
 * Late answers to a previous HELLO come from an epoch that was started in between and has ended.
 * Accepting its WELCOME would exclude the current router.
 */
static void a_late_answer_to_a_previous_hello_is_ignored(void)
{
	uint64_t first;

	rig_start_conf((struct kvr_agent_conf){0});
	kvr_agent_process(a);
	first = a->hello_ids.id;
	push_welcome_epoch(ROUTER_EPOCH);
	push_rejected(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT);
	kvr_agent_process(a);
	CU_ASSERT_NOT_EQUAL(a->hello_ids.id, first);
	hello_answered = first;
	push_welcome_epoch(ROUTER_EPOCH + 1);
	kvr_agent_process(a);
	CU_ASSERT_FALSE(a->registered);
	push_stale(1 << 20);
	hello_answered = 0;
	fake_skip(&net);
	rig_run_ms(400);
	CU_ASSERT_EQUAL(next_hello_epoch(), 9); /* no new incarnation because of it */
	push_welcome_epoch(ROUTER_EPOCH);
	kvr_agent_process(a);
	CU_ASSERT_TRUE(a->registered);
	first = a->hello_ids.id;
	push_rejected(KVR_E_SHUTDOWN, KVR_HEARTBEAT); /* leaves in good order */
	kvr_agent_process(a);
	hello_answered = first;
	push_welcome_epoch(ROUTER_EPOCH + 1);
	kvr_agent_process(a);
	CU_ASSERT_FALSE(a->registered);
	hello_answered = 0;
	push_welcome_epoch(ROUTER_EPOCH + 2);
	kvr_agent_process(a);
	CU_ASSERT_TRUE(a->registered);
	rig_stop();
}

/* A stale incarnation ends with all its requests. The next epoch is above both, HELLO is sent at
 * once, and events begin with a dump. */
static void a_stale_epoch_starts_a_new_incarnation(void)
{
	const uint64_t hash = 5;
	const struct kvr_wire_hdr *h;

	start_with_item(0);
	saw.dump_runs = saw.dump_blocks = 1;
	CU_ASSERT_EQUAL(kvr_agent_kv_stored(a, 4, &(struct kvr_agent_kv){.hashes = &hash, .n = 1}),
			0);
	kvr_agent_process(a);
	push_kv_ack(1, KVR_KV_OK, 0);
	kvr_agent_process(a);
	push_about(KVR_E_STALE_EPOCH, KVR_HEARTBEAT, false, 0);
	fake_skip(&net);
	rig_run_ms(200); /* sent before, with the same epoch */
	CU_ASSERT_EQUAL(next_hello_epoch(), 9);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 1);
	push_stale(20);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(saw.why, KVR_AGENT_ABORT_ROUTER);
	CU_ASSERT_EQUAL(respond_to_request(HANDLE, "y", 0, 2), -ENOENT);
	CU_ASSERT_EQUAL(next_hello_epoch(), 21);
	push_stale(3); /* epochs never decrease */
	CU_ASSERT_EQUAL(next_hello_epoch(), 22);
	fake_skip(&net);
	push_dispatch(1, HANDLE, KVR_REQ_F_RESEND); /* late copies do not run */
	push_welcome_epoch(ROUTER_EPOCH);
	kvr_agent_process(a);
	push_dispatch(1, HANDLE, KVR_REQ_F_RESEND);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 1);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	h = fake_next(&net, KVR_KV_EVENTS);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT_EQUAL(h->epoch, 22);
	CU_ASSERT_NOT_EQUAL(((const struct kvr_wire_kv_events *)kvr_frame_body(h))->flags &
				    KVR_KV_F_DUMP_BEGIN,
			    0);
	CU_ASSERT_EQUAL(saw.dumps, 1);
	fake_skip(&net);
	rig_run_ms(1000);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 0); /* of the previous incarnation */
	h = fake_next(&net, KVR_HEARTBEAT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT_EQUAL(h->epoch, 22);
	rig_stop();
}

/* A router that states no epoch, and one with the highest epoch: an operator must intervene. */
static void without_a_greater_epoch_no_incarnation_starts(void)
{
	static const uint64_t last[] = {0, UINT32_MAX, UINT64_MAX};

	for (unsigned int i = 0; i < RTE_DIM(last); i++) {
		rig_start_conf((struct kvr_agent_conf){0});
		kvr_agent_process(a);
		push_stale(last[i]);
		CU_ASSERT_EQUAL(saw.status.reject, KVR_E_STALE_EPOCH);
		fake_skip(&net);
		rig_run_ms(9999);
		CU_ASSERT_EQUAL(net.n_out, 0);
		rig_run_ms(1);
		CU_ASSERT_EQUAL(next_hello_epoch(), 9);
		rig_stop();
	}
}

static const struct kvr_wire_response *next_item(void)
{
	const struct kvr_wire_hdr *h = fake_next(&net, KVR_RESPONSE);

	return h != NULL ? kvr_frame_body(h) : NULL;
}

/* An item that fits no frame of the client: the stream ends in its place, earlier items remain. */
static void an_undeliverable_item_ends_the_request(void)
{
	const struct kvr_wire_response *w;

	start_with_item(0);
	CU_ASSERT_EQUAL(respond_to_request(HANDLE, "y", 0, 2), 0);
	CU_ASSERT_EQUAL(respond_to_request(HANDLE, "z", KVR_AGENT_LAST, 3), 0);
	kvr_agent_process(a);
	fake_skip(&net);
	push_about(KVR_E_TOO_LARGE, KVR_RESPONSE, false, 7); /* never sent */
	CU_ASSERT_EQUAL(saw.aborts, 0);
	push_about(KVR_E_TOO_LARGE, KVR_RESPONSE, false, 1);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(saw.code, KVR_E_TOO_LARGE);
	CU_ASSERT_EQUAL(respond_to_request(HANDLE, "more", 0, 4), -ENOENT);
	w = next_item();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->seq, 1);
	CU_ASSERT_EQUAL(w->flags, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
	CU_ASSERT_TRUE(rig_has_text(w, "an item does not fit the client's frames"));
	CU_ASSERT_PTR_NULL(next_item());
	rig_run_ms(21); /* retransmitted: the previous item and this one */
	CU_ASSERT_EQUAL(next_item()->seq, 0);
	CU_ASSERT_EQUAL(next_item()->seq, 1);
	CU_ASSERT_PTR_NULL(next_item());
	push_response_ack(router_at, 1, HANDLE, 2, KVR_RACK_F_FIN);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dones, 0);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	rig_stop();
}

/* DIRECT: the client may have all items, and the router no report of the end. */
static void a_direct_request_ends_without_the_router(void)
{
	start_with_item(KVR_REQ_F_DIRECT);
	CU_ASSERT_EQUAL(respond_to_request(HANDLE, "z", KVR_AGENT_LAST, 3), 0);
	kvr_agent_process(a);
	push_response_ack(client_at, 1, HANDLE, 2, KVR_RACK_F_FIN);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 1);
	push_about(KVR_E_UNKNOWN_REQUEST, KVR_PROGRESS, false, 0);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	CU_ASSERT_EQUAL(saw.dones, 1);
	rig_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(every_code_follows_the_table),
			       KVR_CASE(a_rejected_hello_is_retried_soon_or_slowly),
			       KVR_CASE(a_rejected_goodbye_is_repeated_or_ends),
			       KVR_CASE(repeated_hello_is_rate_limited),
			       KVR_CASE(a_shutdown_of_the_router_ends_its_requests),
			       KVR_CASE(a_direct_end_survives_the_router),
			       KVR_CASE(an_epoch_without_welcome_ends_too),
			       KVR_CASE(a_late_answer_to_a_previous_hello_is_ignored),
			       KVR_CASE(a_replaced_router_returns),
			       KVR_CASE(a_stale_epoch_starts_a_new_incarnation),
			       KVR_CASE(without_a_greater_epoch_no_incarnation_starts),
			       KVR_CASE(an_undeliverable_item_ends_the_request),
			       KVR_CASE(a_direct_request_ends_without_the_router),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("agent_refused", tests);
}
