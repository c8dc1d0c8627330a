/* SPDX-License-Identifier: BSD-3-Clause */
/* The router dies and lives again: who notices when, and what becomes of what was under way. */
#include "client_rig.h"

/* A router of this life answers a CONNECT that is under way. */
static void answer_connect(uint32_t epoch)
{
	const struct kvr_wire_hdr *h = fake_next(&net, KVR_CONNECT);

	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	push_connected(h->id, epoch);
	kvr_client_process(c);
}

static void connected(uint32_t epoch)
{
	rig_start_conf((struct kvr_client_conf){.max_requests = 256});
	kvr_client_connect(c);
	kvr_client_process(c);
	answer_connect(epoch);
}

static void what_runs_is_sent_again_while_no_item_has_come(void)
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
	/* What the engine of before still says is nobody's. */
	push_item(id, 0, 0, "a");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 0);
	push_accepted(id, HANDLE + 1, KVR_STATE_RUNNING, 8);
	push_item_from(router_at, id, HANDLE + 1, 0, 0, "a");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.accepted, 2);
	CU_ASSERT_EQUAL(saw.items, 1);
	/* From here on another try would say the beginning twice. */
	push_rejected(id, KVR_E_UNKNOWN_REQUEST, KVR_PROBE, "who");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 0);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_LOST);
	CU_ASSERT(saw.end.retryable);
	rig_stop();
}

/* What a run of before has said ahead of its first item is none of the next one's answer. */
static void what_came_early_goes_with_its_run(void)
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

/* DIRECT: the agent needs no router, and so does who has begun to listen to it. */
static void a_direct_answer_goes_on_without_the_router(void)
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
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 1); /* the one that has nothing */
	push_accepted(other, HANDLE + 2, KVR_STATE_RUNNING, 6);
	fake_skip(&net);
	/* The try of before may go on; its sender is not kept waiting. */
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

/* Its agent has died, too. */
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

/* A late refusal of a copy of its ROUTE does not start what runs a second time. */
static void what_runs_needs_no_cookie(void)
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

/* The first word of another life has all requests ask, whatever their timers say. */
static void another_life_is_asked_about_everything_at_once(void)
{
	uint64_t queued, runs, routing, other;

	connected(77);
	queued = rig_submit(0);
	runs = rig_submit(0);
	routing = rig_submit(0);
	push_accepted(queued, HANDLE, KVR_STATE_QUEUED, 0);
	push_accepted(runs, HANDLE + 1, KVR_STATE_RUNNING, 6);
	rig_run_ms(4000); /* gaps are as long as they get */
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
	CU_ASSERT_EQUAL(fake_count(&net, KVR_PROBE), 3); /* that of the new one asks for nothing */
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 1);
	/* What it does not know starts over, all of it within a few milliseconds. */
	fake_skip(&net);
	push_rejected(queued, KVR_E_UNKNOWN_REQUEST, KVR_PROBE, "");
	push_rejected(runs, KVR_E_UNKNOWN_REQUEST, KVR_PROBE, "");
	push_accepted(routing, HANDLE + 2, KVR_STATE_RUNNING, 6);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 2);
	CU_ASSERT_EQUAL(saw.ends, 0);
	rig_stop();
}

/* Many of them come in turns, not in a burst that the router's rings would drop. */
static void many_requests_ask_in_turns(void)
{
	connected(77);
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

/* A router that is down may be up any time; one that answers is not asked that often. */
static void a_probe_without_an_answer_comes_again_each_second(void)
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
	CU_TestInfo tests[] = {{"sent again", what_runs_is_sent_again_while_no_item_has_come},
			       {"came early", what_came_early_goes_with_its_run},
			       {"direct", a_direct_answer_goes_on_without_the_router},
			       {"direct stops", a_direct_answer_that_stops_is_lost},
			       {"no cookie", what_runs_needs_no_cookie},
			       {"all ask", another_life_is_asked_about_everything_at_once},
			       {"many", many_requests_ask_in_turns},
			       {"deaf", a_probe_without_an_answer_comes_again_each_second},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("client_restart", tests);
}
