/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * REJECTED of every code for every kind an agent sends: what PROTOCOL.md's table says (which
 * tests/protocol compares with kvr_refusal()) is what the agent does.
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

/* Registered, and one request has sent an item. */
static void begin(uint32_t flags)
{
	rig_dispatched((struct kvr_agent_conf){0}, flags);
	CU_ASSERT_EQUAL(respond(HANDLE, "x", 0, 1), 0);
	kvr_agent_process(a);
	fake_skip(&net);
}

static void one(unsigned int code, uint8_t kind, bool retryable, uint32_t flags)
{
	const enum kvr_refusal what = kvr_refusal(kind, code, retryable);
	const bool stops = what == KVR_REFUSAL_STOP && (flags & KVR_REQ_F_DIRECT) == 0;
	const bool fails = what == KVR_REFUSAL_ITEM && (flags & KVR_REQ_F_DIRECT) == 0;
	const bool over = what == KVR_REFUSAL_OVER;

	begin(flags);
	push_about(code, kind, retryable, 0);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_HELLO), what == KVR_REFUSAL_HELLO);
	CU_ASSERT_EQUAL(saw.aborts, stops || fails || over);
	CU_ASSERT_EQUAL(kvr_agent_running(a), stops || over ? 0 : 1);
	if (!stops && !fails && !over) { /* what was sent is repeated as if nothing had been said */
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

static void every_code_does_what_the_table_says(void)
{
	static const uint8_t kinds[] = {KVR_HEARTBEAT, KVR_KV_EVENTS, KVR_RESPONSE, KVR_PROGRESS};

	for (unsigned int code = 1; code < 128; code++)
		for (unsigned int k = 0; k < RTE_DIM(kinds); k++) {
			one(code, kinds[k], false, 0);
			one(code, kinds[k], true, KVR_REQ_F_DIRECT);
		}
}

static void a_refused_hello_comes_again_soon_or_slowly(void)
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

static void a_refused_goodbye_is_said_again_or_over(void)
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

/* A router that refuses everything gets a HELLO a second, not one for each refusal. */
static void hello_again_is_no_storm(void)
{
	begin(0);
	for (int i = 0; i < 3000; i++) {
		push_about(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT, false, 0);
		push_welcome_epoch(ROUTER_EPOCH);
		rig_run_ms(1);
		kvr_agent_process(a); /* nothing waits: the fake world makes room */
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

/* What the router has given ends with it, and no copy of it is run; HELLO until another is there.
 */
static void a_router_that_goes_takes_its_requests_along(void)
{
	begin(0);
	push_shutdown(ROUTER_EPOCH - 1); /* a former one: it has gone long ago */
	CU_ASSERT_EQUAL(kvr_agent_running(a), 1);
	CU_ASSERT_EQUAL(saw.aborts, 0);
	push_shutdown(ROUTER_EPOCH);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT(saw.why == KVR_AGENT_ABORT_ROUTER && saw.code == KVR_E_SHUTDOWN);
	CU_ASSERT(saw.status.state == KVR_AGENT_OFFLINE && saw.status.reject == KVR_E_SHUTDOWN);
	CU_ASSERT_EQUAL(respond(HANDLE, "y", 0, 2), -ENOENT);
	push_shutdown(ROUTER_EPOCH); /* said twice */
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
 * A life of the router sent a DISPATCH and died, and its WELCOME never came: that the next one has
 * ended its runs does not make a late copy another request. Neither does it for the life before.
 */
static void a_life_that_never_welcomed_is_over_too(void)
{
	begin(0);
	dispatch_epoch = ROUTER_EPOCH + 1;
	push_dispatch(2, HANDLE + 1, 0);
	push_dispatch(3, HANDLE + 2, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 3);
	CU_ASSERT_EQUAL(respond(HANDLE + 2, "z", KVR_AGENT_LAST, 1), 0);
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
	push_dispatch(2, HANDLE + 3, 0); /* the client asks again */
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 4);
	dispatch_epoch = ROUTER_EPOCH;
	rig_stop();
}

/* DIRECT: the end has been handed over, and the client needs no router to get it. */
static void a_direct_end_outlives_the_router(void)
{
	begin(KVR_REQ_F_DIRECT);
	CU_ASSERT_EQUAL(respond(HANDLE, "z", KVR_AGENT_LAST, 3), 0);
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

/* The router has been silent for its dead_ms, and HELLO is said: another router may have its place.
 */
static void router_falls_silent(void)
{
	fake_skip(&net);
	for (int i = 0; i < 40 && fake_count(&net, KVR_HELLO) == 0; i++)
		rig_run_ms(50);
	CU_ASSERT_FALSE(a->registered);
}

/*
 * Another router had the address for a while, and the one before has it again, in the same life. It
 * believes that its requests run here: a new life of ours tells it. Were its WELCOME a late one for
 * ever, the engine would be out until either was restarted.
 */
static void a_router_whose_place_was_taken_comes_back(void)
{
	begin(0);
	router_falls_silent();
	push_welcome_epoch(ROUTER_EPOCH + 1);
	kvr_agent_process(a);
	CU_ASSERT_TRUE(a->registered);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	dispatch_epoch = ROUTER_EPOCH + 1;
	push_dispatch(2, HANDLE + 1, 0);
	kvr_agent_process(a);
	dispatch_epoch = ROUTER_EPOCH;
	CU_ASSERT_EQUAL(kvr_agent_running(a), 1);

	router_falls_silent();
	fake_skip(&net);
	push_welcome_epoch(ROUTER_EPOCH);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	CU_ASSERT_EQUAL(saw.aborts, 2);
	CU_ASSERT_EQUAL(next_hello_epoch(), 10);
	push_welcome_epoch(ROUTER_EPOCH + 1); /* both are there: no more than once a second */
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

/* HELLO was refused with StaleEpoch; the router's last epoch of this worker is @p last. */
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
 * Answers to a HELLO that was said before the last one come late: of a life of the router that had
 * been started in between and is over, whose WELCOME would shut the present one out.
 */
static void a_late_answer_to_a_hello_before_is_none(void)
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
	CU_ASSERT_EQUAL(next_hello_epoch(), 9); /* no other life because of that */
	push_welcome_epoch(ROUTER_EPOCH);
	kvr_agent_process(a);
	CU_ASSERT_TRUE(a->registered);
	first = a->hello_ids.id;
	push_rejected(KVR_E_SHUTDOWN, KVR_HEARTBEAT); /* it goes in good order */
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

/* The life that the router has given up ends with all it ran; the next one is above both epochs,
 * says HELLO at once, and its events begin with a dump. */
static void a_stale_epoch_begins_a_new_life(void)
{
	const uint64_t hash = 5;
	const struct kvr_wire_hdr *h;

	begin(0);
	saw.dump_runs = saw.dump_blocks = 1;
	CU_ASSERT_EQUAL(kvr_agent_kv_stored(a, 4, &(struct kvr_agent_kv){.hashes = &hash, .n = 1}),
			0);
	kvr_agent_process(a);
	push_kv_ack(1, KVR_KV_OK, 0);
	kvr_agent_process(a);
	push_about(KVR_E_STALE_EPOCH, KVR_HEARTBEAT, false, 0);
	fake_skip(&net);
	rig_run_ms(200); /* said once already, with the same epoch */
	CU_ASSERT_EQUAL(next_hello_epoch(), 9);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 1);
	push_stale(20);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(saw.why, KVR_AGENT_ABORT_ROUTER);
	CU_ASSERT_EQUAL(respond(HANDLE, "y", 0, 2), -ENOENT);
	CU_ASSERT_EQUAL(next_hello_epoch(), 21);
	push_stale(3); /* whatever the router says: never back */
	CU_ASSERT_EQUAL(next_hello_epoch(), 22);
	fake_skip(&net);
	push_dispatch(1, HANDLE, KVR_REQ_F_RESEND); /* late copies are not run */
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
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 0); /* of the life before */
	h = fake_next(&net, KVR_HEARTBEAT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT_EQUAL(h->epoch, 22);
	rig_stop();
}

/* A router that has no epoch to tell, and one above which there is none: an operator must look. */
static void without_a_greater_epoch_there_is_no_new_life(void)
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

/* An item that no frame of the client takes: the stream ends in its place, what is before stays. */
static void an_undeliverable_item_ends_the_request(void)
{
	const struct kvr_wire_response *w;

	begin(0);
	CU_ASSERT_EQUAL(respond(HANDLE, "y", 0, 2), 0);
	CU_ASSERT_EQUAL(respond(HANDLE, "z", KVR_AGENT_LAST, 3), 0);
	kvr_agent_process(a);
	fake_skip(&net);
	push_about(KVR_E_TOO_LARGE, KVR_RESPONSE, false, 7); /* never sent */
	CU_ASSERT_EQUAL(saw.aborts, 0);
	push_about(KVR_E_TOO_LARGE, KVR_RESPONSE, false, 1);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(saw.code, KVR_E_TOO_LARGE);
	CU_ASSERT_EQUAL(respond(HANDLE, "more", 0, 4), -ENOENT);
	w = next_item();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->seq, 1);
	CU_ASSERT_EQUAL(w->flags, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
	CU_ASSERT_TRUE(rig_says(w, "an item does not fit the client's frames"));
	CU_ASSERT_PTR_NULL(next_item());
	rig_run_ms(21); /* repeated: the item before it, and it */
	CU_ASSERT_EQUAL(next_item()->seq, 0);
	CU_ASSERT_EQUAL(next_item()->seq, 1);
	CU_ASSERT_PTR_NULL(next_item());
	push_response_ack(router_at, 1, HANDLE, 2, KVR_RACK_F_FIN);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dones, 0);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	rig_stop();
}

/* DIRECT: the client may have all items, and the router nothing of the end. */
static void a_direct_request_ends_without_the_router(void)
{
	begin(KVR_REQ_F_DIRECT);
	CU_ASSERT_EQUAL(respond(HANDLE, "z", KVR_AGENT_LAST, 3), 0);
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
	CU_TestInfo tests[] = {{"every code", every_code_does_what_the_table_says},
			       {"hello", a_refused_hello_comes_again_soon_or_slowly},
			       {"goodbye", a_refused_goodbye_is_said_again_or_over},
			       {"no storm", hello_again_is_no_storm},
			       {"router goes", a_router_that_goes_takes_its_requests_along},
			       {"direct end", a_direct_end_outlives_the_router},
			       {"no welcome", a_life_that_never_welcomed_is_over_too},
			       {"late answer", a_late_answer_to_a_hello_before_is_none},
			       {"router back", a_router_whose_place_was_taken_comes_back},
			       {"new life", a_stale_epoch_begins_a_new_life},
			       {"no epoch", without_a_greater_epoch_there_is_no_new_life},
			       {"undeliverable", an_undeliverable_item_ends_the_request},
			       {"direct", a_direct_request_ends_without_the_router},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("agent_refused", tests);
}
