/* SPDX-License-Identifier: BSD-3-Clause */
/* Restart of the router: detection, and the effect on requests in flight. */
#include "client_rig.h"

/* A router with this epoch answers the current CONNECT. */
static void answer_connect(uint32_t epoch)
{
	const struct kvr_wire_hdr *h = fake_next(&net, KVR_CONNECT);

	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	push_connected(h->id, epoch);
	kvr_client_process(c);
}

static void answer_reconnect(uint32_t epoch)
{
	rig_start_conf((struct kvr_client_conf){.max_requests = 256});
	kvr_client_connect(c);
	kvr_client_process(c);
	answer_connect(epoch);
}

static void a_running_request_is_sent_again_before_its_first_item(void)
{
	const struct kvr_wire_hdr *h;
	uint64_t id;
	uint32_t seq;

	rig_start();
	id = rig_submit(0);
	h = fake_next(&net, KVR_ROUTE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	seq = h->msg_seq;
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 6);
	kvr_client_process(c);
	push_rejected(id, KVR_E_UNKNOWN_REQUEST, KVR_PROBE, "who");
	kvr_client_process(c);
	h = fake_next(&net, KVR_ROUTE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT_EQUAL(h->id, id);
	CU_ASSERT_EQUAL(h->handle, 0);
	CU_ASSERT_NOT_EQUAL(h->msg_seq, seq);
	CU_ASSERT_EQUAL(saw.ends, 0);
	/* Items of the previous incarnation's attempt are ignored. */
	push_item(id, 0, 0, "a");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 0);
	push_accepted(id, HANDLE + 1, KVR_STATE_RUNNING, 8);
	push_item_from(router_at, id, HANDLE + 1, 0, 0, "a");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.accepted, 2);
	CU_ASSERT_EQUAL(saw.items, 1);
	/* After an item another attempt would repeat the beginning. */
	push_rejected(id, KVR_E_UNKNOWN_REQUEST, KVR_PROBE, "who");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 0);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_LOST);
	CU_ASSERT(saw.end.retryable);
	rig_stop();
}

/* Items of a previous attempt, held ahead of its first item, do not belong to the next answer. */
static void early_items_are_dropped_with_their_attempt(void)
{
	static const char before[] = "of the run before";
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 6);
	push_item(id, 1, 0, before);
	kvr_client_process(c);
	push_accepted(id, HANDLE + 1, KVR_STATE_DISPATCHED, 8);
	push_item_from(router_at, id, HANDLE + 1, 0, 0, "a");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 1);
	CU_ASSERT_EQUAL(saw.bytes, 1);
	push_item_from(router_at, id, HANDLE + 1, 1, KVR_RESP_F_FIN, "b");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 2);
	CU_ASSERT_EQUAL(saw.bytes, 2);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_FINISHED);
	rig_stop();
}

/* DIRECT: neither the agent nor a client that received an item needs a router. */
static void a_direct_answer_continues_without_the_router(void)
{
	const struct kvr_wire_hdr *h;
	uint64_t id, other;

	rig_start();
	id = rig_submit(KVR_CLIENT_DIRECT);
	other = rig_submit(KVR_CLIENT_DIRECT);
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 6);
	push_accepted(other, HANDLE + 1, KVR_STATE_RUNNING, 6);
	push_item_from(agent_at, id, HANDLE, 0, 0, "a");
	kvr_client_process(c);
	fake_skip(&net);
	push_rejected(id, KVR_E_UNKNOWN_REQUEST, KVR_PROBE, "who");
	push_rejected(other, KVR_E_UNKNOWN_REQUEST, KVR_PROBE, "who");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 1); /* a request without an item */
	push_accepted(other, HANDLE + 2, KVR_STATE_RUNNING, 6);
	fake_skip(&net);
	/* The previous attempt may continue; its sender gets acknowledgements. */
	push_item_from(agent_at, other, HANDLE + 1, 0, 0, "old");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 1);
	CU_ASSERT_PTR_NOT_NULL(next_ack());
	rig_run_ms(10000);
	while ((h = fake_next(&net, KVR_PROBE)) != NULL)
		CU_ASSERT_EQUAL(h->id, other);
	CU_ASSERT_EQUAL(saw.ends, 0);
	push_item_from(agent_at, id, HANDLE, 1, KVR_RESP_F_FIN, "b");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_FINISHED);
	rig_stop();
}

/* The agent stopped as well. */
static void a_direct_answer_that_stops_is_lost(void)
{
	uint64_t id;

	rig_start();
	id = rig_submit(KVR_CLIENT_DIRECT);
	push_item_from(agent_at, id, HANDLE, 0, 0, "a");
	kvr_client_process(c);
	push_rejected(id, KVR_E_UNKNOWN_REQUEST, KVR_PROBE, "who");
	kvr_client_process(c);
	fake_skip(&net);
	rig_run_ms(14000);
	CU_ASSERT_EQUAL(saw.ends, 0);
	rig_run_ms(3000);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_LOST);
	rig_stop();
}

/* A late rejection of a ROUTE copy does not start a second attempt of a running request. */
static void a_running_request_needs_no_cookie(void)
{
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 6);
	kvr_client_process(c);
	fake_skip(&net);
	push_rejected(id, KVR_E_COOKIE, KVR_ROUTE, "");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 0);
	rig_stop();
}

/* The first frame of a new incarnation makes all requests ask, regardless of their timers. */
static void a_new_epoch_makes_all_requests_ask_at_once(void)
{
	uint64_t queued, runs, routing, other;

	answer_reconnect(77);
	queued = rig_submit(0);
	runs = rig_submit(0);
	routing = rig_submit(0);
	push_accepted(queued, HANDLE, KVR_STATE_QUEUED, 0);
	push_accepted(runs, HANDLE + 1, KVR_STATE_RUNNING, 6);
	rig_run_ms(4000); /* at the longest interval */
	fake_skip(&net);
	other = rig_submit(0);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 1);
	fake_push(&net, router_at,
		  kvr_put_accepted(
			  fake_slot(&net), 1984,
			  &(struct kvr_wire_ids){
				  .source = SOURCE, .id = other, .handle = 5, .epoch = 78},
			  &(struct kvr_wire_accepted){.worker = 6, .state = KVR_STATE_RUNNING}));
	kvr_client_process(c);
	kvr_client_process(c);
	fake_next(&net, KVR_ROUTE);
	answer_connect(78);
	rig_run_ms(1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_PROBE),
			3); /* a frame of the known epoch has no effect */
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 1);
	/* Unknown requests start over within a few milliseconds. */
	fake_skip(&net);
	push_rejected(queued, KVR_E_UNKNOWN_REQUEST, KVR_PROBE, "");
	push_rejected(runs, KVR_E_UNKNOWN_REQUEST, KVR_PROBE, "");
	push_accepted(routing, HANDLE + 2, KVR_STATE_RUNNING, 6);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 2);
	CU_ASSERT_EQUAL(saw.ends, 0);
	rig_stop();
}

/* Many requests ask in groups, because a burst would overflow the router's rings. */
static void many_requests_ask_in_groups(void)
{
	answer_reconnect(77);
	for (uint32_t i = 0; i < 160; i++)
		push_accepted(rig_submit(0), HANDLE + i, KVR_STATE_RUNNING, 6);
	rig_run_ms(4000);
	fake_skip(&net);
	kvr_client_connect(c);
	kvr_client_process(c);
	answer_connect(78);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_PROBE), 64);
	rig_run_ms(1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_PROBE), 128);
	rig_run_ms(1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_PROBE), 160);
	rig_stop();
}

/* A router that is down may return at any time, so it is probed more often than one that
 * answers. */
static void an_unanswered_probe_is_repeated_every_second(void)
{
	static const uint32_t deaf_ms[] = {250, 500, 1000, 1000, 1000, 1000};
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 6);
	kvr_client_process(c);
	for (unsigned int i = 0; i < RTE_DIM(deaf_ms); i++) {
		fake_skip(&net);
		rig_run_ms(deaf_ms[i] - 1);
		CU_ASSERT_EQUAL(net.n_out, 0);
		rig_run_ms(1);
		CU_ASSERT_EQUAL(fake_count(&net, KVR_PROBE), 1);
	}
	for (unsigned int i = 0; i < 3; i++) {
		push_accepted(id, HANDLE, KVR_STATE_RUNNING, 6);
		kvr_client_process(c);
		fake_skip(&net);
		rig_run_ms(i == 0 ? 1000 : 2000);
		CU_ASSERT_EQUAL(fake_count(&net, KVR_PROBE), 1);
	}
	rig_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_running_request_is_sent_again_before_its_first_item),
			       KVR_CASE(early_items_are_dropped_with_their_attempt),
			       KVR_CASE(a_direct_answer_continues_without_the_router),
			       KVR_CASE(a_direct_answer_that_stops_is_lost),
			       KVR_CASE(a_running_request_needs_no_cookie),
			       KVR_CASE(a_new_epoch_makes_all_requests_ask_at_once),
			       KVR_CASE(many_requests_ask_in_groups),
			       KVR_CASE(an_unanswered_probe_is_repeated_every_second),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("client_restart", tests);
}
