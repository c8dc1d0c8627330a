/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent_rig.h"

static const struct kvr_wire_response *next_item(void)
{
	const struct kvr_wire_hdr *h = fake_next(&net, KVR_RESPONSE);

	return h != NULL ? kvr_frame_body(h) : NULL;
}

static const struct kvr_wire_progress *next_progress(void)
{
	const struct kvr_wire_hdr *h = fake_next(&net, KVR_PROGRESS);

	return h != NULL ? kvr_frame_body(h) : NULL;
}

/* --- registration --- */

static void hello_is_retransmitted_until_welcome(void)
{
	static const char *const taints[] = {"gpu", "fast", NULL};
	const struct kvr_wire_hdr *h;
	const struct kvr_wire_hello *w;

	rig_start_conf((struct kvr_agent_conf){.taints = taints, .total_kv_blocks = 1000});
	rig_run_ms(200 + 400 + 800 + 1000 + 1000);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_HELLO), 6);
	h = fake_next(&net, KVR_HELLO);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT_EQUAL(h->source, WORKER);
	CU_ASSERT_EQUAL(h->epoch, 9);
	CU_ASSERT_EQUAL(kvr_body_check(KVR_HELLO, kvr_frame_body(h), h->msg_len, NULL), 0);
	w = kvr_frame_body(h);
	CU_ASSERT_EQUAL(w->dp_start, 4);
	CU_ASSERT_EQUAL(w->dp_size, 2);
	CU_ASSERT_EQUAL(w->total_kv_blocks, 1000);
	CU_ASSERT_EQUAL(w->hints_len, 16 + 8 + 8);
	push_welcome_epoch(ROUTER_EPOCH);
	fake_skip(&net);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.status.state, KVR_AGENT_JOINING);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_HEARTBEAT), 1);
	push_welcome_epoch(ROUTER_EPOCH); /* a duplicate */
	rig_run_ms(499);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_HEARTBEAT), 1);
	rig_run_ms(1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_HEARTBEAT), 2);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_HELLO), 0);
	rig_stop();
}

static void heartbeats_carry_ranks_and_answers_report_the_state(void)
{
	const uint64_t one = 7;
	const struct kvr_wire_heartbeat *w;
	const struct kvr_wire_rank_load *l;

	rig_welcomed((struct kvr_agent_conf){0});
	CU_ASSERT_EQUAL(kvr_agent_load(a, 5, 3, 70), 0);
	CU_ASSERT_EQUAL(kvr_agent_load(a, 6, 3, 70), -EINVAL);
	CU_ASSERT_EQUAL(kvr_agent_events_read(a, 5, 9, 32, true), 0);
	CU_ASSERT_EQUAL(kvr_agent_events_read(a, 6, 9, 32, true), -EINVAL);
	CU_ASSERT_EQUAL(kvr_agent_load(a, 3, 3, 70), -EINVAL);
	kvr_agent_canaries_missed(a, 300);
	CU_ASSERT_EQUAL(kvr_agent_kv_stored(a, 5, &(struct kvr_agent_kv){.hashes = &one, .n = 1}),
			0);
	rig_run_ms(500);
	w = kvr_frame_body(fake_next(&net, KVR_HEARTBEAT));
	CU_ASSERT_EQUAL_FATAL(w->n_ranks, 2);
	l = (const void *)(w + 1);
	CU_ASSERT_EQUAL(l[0].dp_rank, 4);
	CU_ASSERT_EQUAL(l[0].kv_used_blocks, UINT64_MAX);
	CU_ASSERT_EQUAL(l[0].next_event_id, 0);
	CU_ASSERT_EQUAL(l[1].dp_rank, 5);
	CU_ASSERT_EQUAL(l[1].active_requests, 3);
	CU_ASSERT_EQUAL(l[1].kv_used_blocks, 70);
	CU_ASSERT_EQUAL(l[1].next_event_id, 1);
	CU_ASSERT_EQUAL(l[0].events_unread, 0);
	CU_ASSERT_EQUAL(l[1].events_unread, 9);
	CU_ASSERT_EQUAL(l[0].event_form, KVR_FORM_UNKNOWN);
	CU_ASSERT_EQUAL(l[1].event_block_size, 32);
	CU_ASSERT_EQUAL(l[1].event_form, KVR_FORM_PAIRS);
	CU_ASSERT_EQUAL(l[0].canaries_missed, 255);
	CU_ASSERT_EQUAL(l[1].canaries_missed, 255);
	kvr_agent_canaries_missed(a, 0);
	rig_run_ms(500);
	w = kvr_frame_body(fake_next(&net, KVR_HEARTBEAT));
	l = (const void *)(w + 1);
	CU_ASSERT_EQUAL(l[0].canaries_missed, 0);
	CU_ASSERT_EQUAL(l[1].canaries_missed, 0);
	CU_ASSERT_EQUAL(l[1].event_form, KVR_FORM_PAIRS);
	push_heartbeat_ack(KVR_WORKER_SERVING, 0);
	push_heartbeat_ack(KVR_WORKER_SERVING, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.states, 2); /* joining, serving: reported once each */
	push_heartbeat_ack(KVR_WORKER_DRAINING, 2);
	push_heartbeat_ack(KVR_WORKER_DRAINED, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.states, 4);
	CU_ASSERT_EQUAL(kvr_agent_state_now(a), KVR_AGENT_DRAINED);
	rig_stop();
}

static void an_unknown_worker_registers_again(void)
{
	const struct kvr_wire_hdr *h;

	rig_welcomed((struct kvr_agent_conf){0});
	push_rejected(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT);
	push_rejected(KVR_E_UNKNOWN_WORKER, KVR_KV_EVENTS);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_HELLO), 1);
	h = fake_next(&net, KVR_HELLO);
	CU_ASSERT_EQUAL(h->epoch, 9); /* the same epoch */
	rig_stop();
}

static void an_unresponsive_router_is_offline_until_it_returns(void)
{
	rig_welcomed((struct kvr_agent_conf){0});
	rig_run_ms(2500);
	CU_ASSERT_EQUAL(saw.status.state, KVR_AGENT_OFFLINE);
	CU_ASSERT(fake_count(&net, KVR_HELLO) > 0);
	push_welcome_epoch(ROUTER_EPOCH);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.status.state, KVR_AGENT_JOINING);
	rig_stop();
}

static void a_rejected_hello_is_reported_and_retried_slowly(void)
{
	rig_start_conf((struct kvr_agent_conf){0});
	kvr_agent_process(a);
	push_rejected(KVR_E_WORKER_CONFIG, KVR_HELLO);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.status.reject, KVR_E_WORKER_CONFIG);
	fake_skip(&net);
	rig_run_ms(9999);
	CU_ASSERT_EQUAL(net.n_out, 0);
	rig_run_ms(1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_HELLO), 1);
	rig_stop();
}

static void goodbye_is_sent_five_times(void)
{
	rig_welcomed((struct kvr_agent_conf){0});
	kvr_agent_goodbye(a);
	rig_run_ms(200 + 400 + 800 + 1600 + 2000);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_GOODBYE), 5);
	CU_ASSERT_EQUAL(saw.status.state, KVR_AGENT_GONE);
	CU_ASSERT_EQUAL(kvr_agent_timeout_ms(a), -1);
	rig_stop();
}

/* --- requests --- */

static void a_dispatch_runs_once_and_every_copy_is_answered(void)
{
	const struct kvr_wire_hdr *h;

	rig_dispatched((struct kvr_agent_conf){0}, 0);
	CU_ASSERT_EQUAL(saw.dispatches, 1);
	CU_ASSERT_EQUAL(saw.req.handle, 100);
	CU_ASSERT_EQUAL(saw.req.source, SOURCE);
	CU_ASSERT_EQUAL(saw.req.dp_rank, 5);
	CU_ASSERT_EQUAL(saw.req.max_tokens, 5);
	CU_ASSERT_EQUAL(saw.first_token, 10);
	CU_ASSERT_EQUAL(saw.first_hash_low, 99);
	CU_ASSERT_STRING_EQUAL(saw.body, "do it");
	h = fake_next(&net, KVR_DISPATCH_ACK);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT_EQUAL(h->handle, 100);
	CU_ASSERT_EQUAL(h->source, SOURCE);
	CU_ASSERT_EQUAL(h->id, 1);
	push_dispatch(1, 100, KVR_REQ_F_RESEND);
	push_dispatch(1, 100, KVR_REQ_F_RESEND);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_DISPATCH_ACK), 2);
	/* Also after its end. */
	CU_ASSERT_EQUAL(respond_to_request(100, "x", KVR_AGENT_LAST, 1), 0);
	push_response_ack(router_at, 1, 100, 1, KVR_RACK_F_FIN);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dones, 1);
	push_dispatch(1, 100, KVR_REQ_F_RESEND);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_DISPATCH_ACK), 3);
	rig_stop();
}

static void an_immediate_answer_replaces_the_acknowledgement(void)
{
	rig_welcomed((struct kvr_agent_conf){0});
	saw.answer_inside = true;
	push_dispatch(1, 100, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_DISPATCH_ACK), 0);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 1);
	push_dispatch(2, 101, KVR_REQ_F_DIRECT); /* the router does not see these items */
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_DISPATCH_ACK), 1);
	rig_stop();
}

static void an_answer_in_time_replaces_the_acknowledgement(void)
{
	rig_welcomed((struct kvr_agent_conf){.ack_us = 1000});
	push_dispatch(1, 100, 0);
	push_dispatch(2, 101, 0);
	push_dispatch(3, 102, KVR_REQ_F_DIRECT); /* the router does not see these items */
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 3);
	CU_ASSERT_EQUAL(fake_next(&net, KVR_DISPATCH_ACK)->handle, 102);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_DISPATCH_ACK), 0);
	CU_ASSERT(kvr_agent_timeout_ms(a) == 1);
	CU_ASSERT_FALSE(kvr_agent_timeout_strict(a));
	CU_ASSERT_EQUAL(respond_to_request(100, "x", 0, 1), 0);
	rig_run_ms(1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 1);
	CU_ASSERT_EQUAL(fake_next(&net, KVR_DISPATCH_ACK)->handle, 101);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_DISPATCH_ACK), 0);
	/* The item is retransmitted after its interval, counted from its transmission. */
	rig_run_ms(18);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 0);
	rig_run_ms(1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 1);
	/* A copy is answered at once; a later first item is only an item. */
	push_dispatch(4, 103, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_DISPATCH_ACK), 0);
	push_dispatch(4, 103, KVR_REQ_F_RESEND);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_DISPATCH_ACK), 1);
	/* Its abort ends it earlier. */
	push_abort(4, 103, 0);
	kvr_agent_process(a);
	rig_run_ms(5);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_DISPATCH_ACK), 1);
	rig_stop();
}

static void rejections_carry_the_code_and_are_repeated(void)
{
	const struct kvr_wire_response *item;
	const struct kvr_wire_dispatch_ack *w;

	rig_welcomed((struct kvr_agent_conf){.max_requests = 1});
	saw.refuse = 42;
	push_dispatch(1, 100, 0);
	push_dispatch(1, 100, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 1);
	for (int i = 0; i < 2; i++) {
		w = kvr_frame_body(fake_next(&net, KVR_DISPATCH_ACK));
		CU_ASSERT_EQUAL(w->code, 42);
	}
	saw.refuse = 0;
	push_dispatch(5, 105, 0); /* for another worker */
	((struct kvr_wire_request *)(net.in[net.n_in - 1].data + 48))->worker = WORKER + 1;
	push_dispatch(6, 106, 0); /* for an unknown rank */
	((struct kvr_wire_request *)(net.in[net.n_in - 1].data + 48))->dp_rank = 6;
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 1);
	for (int i = 0; i < 2; i++) {
		w = kvr_frame_body(fake_next(&net, KVR_DISPATCH_ACK));
		CU_ASSERT_EQUAL(w->code, AGENT_CODE_NOT_OURS);
	}
	push_dispatch(2, 101, 0);
	push_dispatch(3, 102, 0); /* one too many */
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 2);
	w = kvr_frame_body(fake_next(&net, KVR_DISPATCH_ACK));
	CU_ASSERT_EQUAL(w->code, 0);
	w = kvr_frame_body(fake_next(&net, KVR_DISPATCH_ACK));
	CU_ASSERT_EQUAL(w->code, AGENT_CODE_FULL);
	CU_ASSERT_EQUAL(kvr_agent_refuse(a, 101, 7, "no blocks left"), 0);
	kvr_agent_process(a);
	item = next_item();
	CU_ASSERT_EQUAL(item->status, 7);
	CU_ASSERT_TRUE(rig_has_text(item, "no blocks left"));
	CU_ASSERT_EQUAL(kvr_agent_refuse(a, 101, 7, ""), -ENOENT);
	rig_stop();
}

/* The router has moved the request: a late copy gets the same answer and does not run. */
static void a_request_rejected_for_capacity_stays_rejected(void)
{
	const struct kvr_wire_dispatch_ack *w;

	rig_welcomed((struct kvr_agent_conf){.max_requests = 1});
	push_dispatch(1, 100, 0);
	push_dispatch(2, 101, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 1);
	CU_ASSERT_EQUAL(respond_to_request(100, "x", KVR_AGENT_LAST, 1), 0);
	kvr_agent_process(a);
	push_response_ack(router_at, 1, 100, 1, KVR_RACK_F_FIN);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL_FATAL(kvr_agent_running(a), 0); /* there is capacity now */
	fake_skip(&net);
	push_dispatch(2, 101, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 1);
	w = kvr_frame_body(fake_next(&net, KVR_DISPATCH_ACK));
	CU_ASSERT_EQUAL(w->code, AGENT_CODE_FULL);
	push_dispatch(3, 102, 0); /* another request runs: the rejection uses no slot */
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 2);
	rig_stop();
}

static void items_are_retransmitted_until_acknowledged(void)
{
	const struct kvr_wire_hdr *h;
	uint32_t seq;

	rig_dispatched((struct kvr_agent_conf){0}, 0);
	CU_ASSERT_EQUAL(respond_to_request(100, "a", 0, 1), 0);
	CU_ASSERT_EQUAL(respond_to_request(100, "b", 0, 2), 0);
	CU_ASSERT_EQUAL(kvr_agent_timeout_ms(a), 0); /* waiting to be flushed */
	push_dispatch(2, 101, 0);
	kvr_agent_flush(a);
	CU_ASSERT_EQUAL(saw.dispatches, 1); /* does not receive */
	CU_ASSERT(kvr_agent_timeout_ms(a) > 0);
	h = fake_next(&net, KVR_RESPONSE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT(kvr_udp_addr_equal(fake_to(&net), &router_at));
	CU_ASSERT_EQUAL(kvr_body_check(KVR_RESPONSE, kvr_frame_body(h), h->msg_len, NULL), 0);
	seq = h->msg_seq;
	CU_ASSERT_EQUAL(next_item()->seq, 1);
	rig_run_ms(20);
	h = fake_next(&net, KVR_RESPONSE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT_EQUAL(h->msg_seq, seq); /* the same bytes */
	CU_ASSERT_EQUAL(next_item()->seq, 1);
	push_response_ack(router_at, 1, 100, 1, 0);
	kvr_agent_process(a);
	rig_run_ms(20);
	CU_ASSERT_EQUAL(next_item()->seq, 1); /* only missing items */
	CU_ASSERT_PTR_NULL(next_item());
	rig_run_ms(39);
	CU_ASSERT_PTR_NULL(next_item());
	rig_run_ms(1);
	CU_ASSERT_EQUAL(next_item()->seq, 1);
	push_response_ack(router_at, 1, 100, 2, 0);
	kvr_agent_process(a);
	fake_skip(&net);
	rig_run_ms(400);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 0);
	rig_stop();
}

static void foreign_and_impossible_acks_have_no_effect(void)
{
	rig_dispatched((struct kvr_agent_conf){0}, 0);
	CU_ASSERT_EQUAL(respond_to_request(100, "a", KVR_AGENT_LAST, 1), 0);
	kvr_agent_process(a);
	push_response_ack(router_at, 1, 100, 2, KVR_RACK_F_FIN); /* not sent yet */
	push_response_ack(router_at, 2, 100, 1, KVR_RACK_F_FIN); /* another request */
	push_response_ack(router_at, 1, 101, 1, KVR_RACK_F_FIN); /* another handle */
	push_response_ack(client_at, 1, 100, 1, KVR_RACK_F_FIN); /* relayed: from the router only */
	push_response_ack(router_at, 1, 100, 0, KVR_RACK_F_FIN); /* outdated */
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dones, 0);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 1);
	rig_stop();
	CU_ASSERT_EQUAL(saw.why, KVR_AGENT_ABORT_CLOSED);
}

static void the_window_is_64_items(void)
{
	rig_dispatched((struct kvr_agent_conf){0}, 0);
	for (uint32_t i = 0; i < 100; i++)
		CU_ASSERT_EQUAL(respond_to_request(100, "x", i == 99 ? KVR_AGENT_LAST : 0, i), 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 64);
	fake_skip(&net);
	push_response_ack(router_at, 1, 100, 30, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 30);
	push_response_ack(router_at, 1, 100, 94, 0);
	kvr_agent_process(a);
	push_response_ack(router_at, 1, 100, 100, KVR_RACK_F_FIN);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dones, 1);
	rig_stop();
}

/* A forged address gets three items, including retransmissions; also on the direct path. */
static void an_unproven_client_gets_three_items(void)
{
	static const uint32_t flags[] = {KVR_REQ_F_UNPROVEN, KVR_REQ_F_UNPROVEN | KVR_REQ_F_DIRECT};

	for (uint32_t k = 0; k < 2; k++) {
		rig_welcomed((struct kvr_agent_conf){0});
		push_dispatch(1, 100, flags[k]);
		kvr_agent_process(a);
		for (uint32_t i = 0; i < 10; i++)
			CU_ASSERT_EQUAL(
				respond_to_request(100, "x", i == 9 ? KVR_AGENT_LAST : 0, i), 0);
		kvr_agent_process(a);
		CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 3);
		fake_skip(&net);
		rig_run_ms(25);
		CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 3); /* the same again */
		fake_skip(&net);
		push_response_ack(k == 0 ? router_at : client_at, 1, 100, 1, 0);
		kvr_agent_process(a);
		CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 7); /* the client exists */
		rig_stop();
	}
}

static void invalid_responses_are_errors(void)
{
	static char big[3000];

	rig_dispatched((struct kvr_agent_conf){.request_bytes = 4000}, 0);
	memset(big, 'x', sizeof(big) - 1);
	CU_ASSERT_EQUAL(respond_to_request(101, "x", 0, 1), -ENOENT);
	CU_ASSERT_EQUAL(respond_to_request(100, "x", 0x100, 1), -EINVAL);
	CU_ASSERT_EQUAL(respond_to_request(100, "x", KVR_AGENT_ERROR, 1), -EINVAL);
	CU_ASSERT_EQUAL(respond_to_request(100, "x", KVR_AGENT_TOKENS, 1), -EINVAL);
	CU_ASSERT_EQUAL(respond_to_request(100, "four",
					   KVR_AGENT_LAST | KVR_AGENT_ERROR | KVR_AGENT_TOKENS, 1),
			-EINVAL);
	CU_ASSERT_EQUAL(respond_to_request(100, big, 0, 1), 0);
	CU_ASSERT_EQUAL(respond_to_request(100, big, 0, 1), -ENOBUFS);
	kvr_agent_process(a);
	push_response_ack(router_at, 1, 100, 1, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(respond_to_request(100, big, 0, 1), 0);
	rig_stop();
}

static void abort_ends_the_stream_as_cancelled(void)
{
	const struct kvr_wire_response *w;

	rig_dispatched((struct kvr_agent_conf){0}, 0);
	CU_ASSERT_EQUAL(respond_to_request(100, "a", 0, 1), 0);
	push_abort(1, 100, KVR_E_EXPIRED);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(saw.why, KVR_AGENT_ABORT_ROUTER);
	CU_ASSERT_EQUAL(saw.code, KVR_E_EXPIRED);
	CU_ASSERT_EQUAL(respond_to_request(100, "b", 0, 2), -ENOENT);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ABORT_ACK), 1);
	CU_ASSERT_EQUAL(next_item()->seq, 0);
	w = next_item();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->seq, 1);
	CU_ASSERT_EQUAL(w->flags, KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED);
	CU_ASSERT_TRUE(rig_has_text(w, "a time limit of the request has passed"));
	push_abort(1, 100, KVR_E_EXPIRED); /* its answer was lost */
	push_abort(9, 999, KVR_E_EXPIRED); /* unknown */
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ABORT_ACK), 2);
	push_response_ack(router_at, 1, 100, 2, KVR_RACK_F_FIN);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dones, 0); /* the handle was invalid already */
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	rig_stop();
}

static void an_abort_that_overtakes_its_dispatch_counts(void)
{
	const struct kvr_wire_hdr *h;

	rig_welcomed((struct kvr_agent_conf){0});
	push_abort(1, 100, KVR_E_EXPIRED);
	push_abort(1, 0, KVR_E_EXPIRED); /* names no request */
	push_dispatch(1, 100, 0);
	push_dispatch(1, 100, KVR_REQ_F_RESEND);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 0);
	CU_ASSERT_EQUAL(saw.aborts, 0);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ABORT_ACK), 2);
	for (int i = 0; i < 2; i++) {
		h = fake_next(&net, KVR_DISPATCH_ACK);
		CU_ASSERT_PTR_NOT_NULL_FATAL(h);
		CU_ASSERT_NOT_EQUAL(((const struct kvr_wire_dispatch_ack *)kvr_frame_body(h))->code,
				    0);
	}
	push_dispatch(1, 101, 0); /* the request started over */
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 1);
	rig_stop();
}

static void run_and_end(uint64_t id)
{
	push_dispatch(id, 100 + id, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL_FATAL(respond_to_request(100 + id, "a", KVR_AGENT_LAST, 1), 0);
	push_response_ack(router_at, id, 100 + id, 1, KVR_RACK_F_FIN);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL_FATAL(kvr_agent_running(a), 0);
	kvr_agent_process(a); /* all items were read: space is free again */
	net.n_out = net.seen = 0;
}

/* PROTOCOL.md 7.1: for 10 s, and the last 4,096 in any case. */
static void ended_requests_are_remembered(void)
{
	const uint32_t n = AGENT_OVER_KEPT;

	rig_welcomed((struct kvr_agent_conf){.max_requests = 1});
	run_and_end(1);
	rig_run_ms(10000);
	for (uint64_t id = 2; id <= n; id++)
		run_and_end(id);
	CU_ASSERT_EQUAL(saw.dispatches, n);
	for (uint64_t id = 1; id <= n; id += n - 1) { /* late copies of the first and the last */
		push_dispatch(id, 100 + id, KVR_REQ_F_RESEND);
		kvr_agent_process(a);
	}
	CU_ASSERT_EQUAL(saw.dispatches, n);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_DISPATCH_ACK), 2);
	/* Two more requests and space for one: the slot that ended first is reused. */
	run_and_end(n + 1);
	run_and_end(n + 2);
	push_dispatch(2, 102, KVR_REQ_F_RESEND);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, n + 2);
	push_dispatch(1, 101, KVR_REQ_F_RESEND);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, n + 3);
	rig_stop();
}

/* Not before a client that was cut off has given up. */
static void long_silence_ends_a_request(void)
{
	const struct kvr_wire_response *w;

	rig_dispatched((struct kvr_agent_conf){0}, 0);
	CU_ASSERT_EQUAL(respond_to_request(100, "a", 0, 1), 0);
	rig_run_ms(KVR_WIRE_ITEMS_KEPT_S * 1000 - 100);
	CU_ASSERT_EQUAL(saw.aborts, 0);
	rig_run_ms(1200);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(saw.why, KVR_AGENT_ABORT_SILENCE);
	/* The router is notified, for the same time again or until it reports that the request is
	 * unknown. */
	fake_skip(&net);
	rig_run_ms(1000);
	w = next_item();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->flags, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
	CU_ASSERT_TRUE(rig_has_text(w, "its items were not acknowledged, s: 17"));
	rig_run_ms(KVR_WIRE_ITEMS_KEPT_S * 1000 + 1000);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	rig_stop();
}

/* The last item waits behind a full window: the router must still learn of the end. */
static void the_router_learns_of_an_end_in_a_full_window(void)
{
	const struct kvr_wire_response *w;

	rig_dispatched((struct kvr_agent_conf){0}, KVR_REQ_F_UNPROVEN);
	for (uint32_t i = 0; i < KVR_WIRE_UNPROVEN_ITEMS; i++)
		CU_ASSERT_EQUAL(respond_to_request(100, "a", 0, i + 1), 0);
	CU_ASSERT_EQUAL(respond_to_request(100, "a", KVR_AGENT_LAST, KVR_WIRE_UNPROVEN_ITEMS + 1),
			0);
	rig_run_ms(KVR_WIRE_ITEMS_KEPT_S * 1000 + 1100);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	fake_skip(&net);
	rig_run_ms(1000);
	w = next_item();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->flags, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
	rig_run_ms(KVR_WIRE_ITEMS_KEPT_S * 1000 + 1000);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	rig_stop();
}

static void a_router_without_the_request_stops_retransmission(void)
{
	const struct kvr_wire_ids other = ids_of(SOURCE, 2, 100), before = ids_of(SOURCE, 1, 99);
	const struct kvr_wire_ids ids = ids_of(SOURCE, 1, 100);

	rig_dispatched((struct kvr_agent_conf){0}, 0);
	CU_ASSERT_EQUAL(respond_to_request(100, "a", 0, 1), 0);
	fake_push(&net, router_at,
		  kvr_put_rejected(fake_slot(&net), 1984, &other, KVR_E_UNKNOWN_REQUEST,
				   KVR_RESPONSE, NULL));
	fake_push(&net, router_at, /* of the same request, before it started over */
		  kvr_put_rejected(fake_slot(&net), 1984, &before, KVR_E_UNKNOWN_REQUEST,
				   KVR_RESPONSE, NULL));
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.aborts, 0);
	fake_push(&net, router_at,
		  kvr_put_rejected(fake_slot(&net), 1984, &ids, KVR_E_UNKNOWN_REQUEST, KVR_RESPONSE,
				   NULL));
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(saw.code, KVR_E_UNKNOWN_REQUEST);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	rig_stop();
}

/* --- the direct path --- */

static void direct_items_go_to_the_client_and_progress_to_the_router(void)
{
	const struct kvr_wire_progress *p;

	rig_dispatched((struct kvr_agent_conf){0},
		       KVR_REQ_F_DIRECT); /* 8 prompt tokens, blocks of 4 */
	CU_ASSERT_EQUAL(respond_to_request(100, "a", 0, 1), 0);
	CU_ASSERT_EQUAL(respond_to_request(100, "b", 0, 3),
			0); /* same block, not the first token: no report */
	CU_ASSERT_EQUAL(respond_to_request(100, "c", 0, 5), 0); /* a fourth block */
	CU_ASSERT_EQUAL(respond_to_request(100, "d", KVR_AGENT_LAST, 6), 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 4);
	p = next_progress();
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	CU_ASSERT(kvr_udp_addr_equal(fake_to(&net), &router_at));
	CU_ASSERT_EQUAL(p->seq, 0);
	CU_ASSERT_EQUAL(p->flags, KVR_PROG_F_FIRST);
	CU_ASSERT_EQUAL(p->generated_tokens, 1);
	p = next_progress();
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	CU_ASSERT_EQUAL(p->seq, 1);
	CU_ASSERT_EQUAL(p->generated_tokens, 5);
	p = next_progress();
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	CU_ASSERT_EQUAL(p->seq, 2);
	CU_ASSERT_EQUAL(p->flags, KVR_PROG_F_FIRST | KVR_PROG_F_FIN);
	CU_ASSERT_PTR_NULL(next_progress());
	fake_skip(&net);
	/* The client has all items, but the router does not know: only the end is retransmitted. */
	push_response_ack(client_at, 1, 100, 4, KVR_RACK_F_FIN);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dones, 0);
	rig_run_ms(20);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 0);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_PROGRESS), 1);
	const struct kvr_wire_ids ids = ids_of(SOURCE, 1, 100);
	struct kvr_wire_progress_ack w = {.next_seq = 2};
	fake_push(&net, router_at, kvr_put_progress_ack(fake_slot(&net), 1984, &ids, &w));
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dones, 0); /* not the last item */
	w.next_seq = 3;
	fake_push(&net, router_at, kvr_put_progress_ack(fake_slot(&net), 1984, &ids, &w));
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dones, 1);
	rig_stop();
}

static void direct_items_reach_the_client(void)
{
	rig_dispatched((struct kvr_agent_conf){0}, KVR_REQ_F_DIRECT);
	CU_ASSERT_EQUAL(respond_to_request(100, "a", 0, 1), 0);
	kvr_agent_process(a);
	CU_ASSERT_PTR_NOT_NULL(next_item());
	CU_ASSERT(kvr_udp_addr_equal(fake_to(&net), &client_at));
	rig_stop();
}

/* --- a router that restarts; fragments; hostile frames --- */

static void a_new_router_epoch_ends_previous_requests(void)
{
	rig_dispatched((struct kvr_agent_conf){0}, 0);
	push_rejected(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT);
	push_welcome_epoch(ROUTER_EPOCH + 1);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(saw.code, KVR_E_UNKNOWN_REQUEST);
	push_dispatch(7, 100, 0); /* the same handle is another request now */
	((struct kvr_wire_hdr *)net.in[net.n_in - 1].data)->epoch = ROUTER_EPOCH + 1;
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 2);
	rig_stop();
}

/* DIRECT: a client that has part of an answer gets the rest without a router. */
static void a_direct_answer_continues_in_a_new_router_epoch(void)
{
	rig_welcomed((struct kvr_agent_conf){0});
	push_dispatch(1, 100, KVR_REQ_F_DIRECT);
	push_dispatch(2, 101, KVR_REQ_F_DIRECT);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(respond_to_request(100, "x", 0, 1), 0);
	push_rejected(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT);
	push_welcome_epoch(ROUTER_EPOCH + 1);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.aborts, 1); /* without an item the client starts over */
	CU_ASSERT_EQUAL(respond_to_request(101, "y", 0, 1), -ENOENT);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 1);
	/* Also in the epoch after that one, and in a new incarnation of the agent. */
	push_rejected(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT);
	push_welcome_epoch(ROUTER_EPOCH + 2);
	kvr_agent_process(a);
	fake_skip(&net);
	CU_ASSERT_EQUAL(respond_to_request(100, "y", KVR_AGENT_LAST, 9), 0);
	kvr_agent_process(a);
	CU_ASSERT_PTR_NOT_NULL(next_item());
	CU_ASSERT(kvr_udp_addr_equal(fake_to(&net), &client_at));
	/* Nothing is reported, and the end of all other requests is not the end of these. */
	CU_ASSERT_EQUAL(fake_count(&net, KVR_PROGRESS), 0);
	push_heartbeat_ack(KVR_WORKER_DRAINED, 0);
	((struct kvr_wire_hdr *)net.in[net.n_in - 1].data)->epoch = ROUTER_EPOCH + 2;
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.status.state, KVR_AGENT_DRAINING);
	push_response_ack(client_at, 1, 100, 2, KVR_RACK_F_FIN);
	push_heartbeat_ack(KVR_WORKER_DRAINED, 0);
	((struct kvr_wire_hdr *)net.in[net.n_in - 1].data)->epoch = ROUTER_EPOCH + 2;
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	CU_ASSERT_EQUAL(saw.dones, 1);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(saw.status.state, KVR_AGENT_DRAINED);
	rig_stop();
}

/* A DISPATCH of the previous epoch was in flight all the time, and so was a WELCOME. */
static void nothing_runs_for_a_previous_router(void)
{
	rig_dispatched((struct kvr_agent_conf){0}, 0);
	CU_ASSERT_EQUAL(saw.dispatches, 1);
	rig_run_ms(3000); /* no answer */
	push_welcome_epoch(ROUTER_EPOCH + 1);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	push_dispatch(1, 100, KVR_REQ_F_RESEND);
	push_dispatch(2, 101, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 1);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	rig_run_ms(3000);
	push_welcome_epoch(ROUTER_EPOCH);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(kvr_agent_state_now(a), KVR_AGENT_OFFLINE);
	rig_stop();
}

/* The WELCOME of a new epoch is late: requests that it dispatched already continue. */
static void a_dispatch_before_welcome_belongs_to_the_new_epoch(void)
{
	rig_welcomed((struct kvr_agent_conf){0});
	push_dispatch(1, 100, 0);
	push_rejected(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT);
	push_dispatch(2, 200, 0);
	((struct kvr_wire_hdr *)net.in[net.n_in - 1].data)->epoch = ROUTER_EPOCH + 1;
	push_welcome_epoch(ROUTER_EPOCH + 1);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 2);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(respond_to_request(100, "x", 0, 1), -ENOENT);
	CU_ASSERT_EQUAL(respond_to_request(200, "x", 0, 1), 0);
	rig_stop();
}

static void a_fragmented_dispatch_is_reassembled(void)
{
	static uint32_t many[4000];
	struct kvr_request_src src = {.tokens = many, .n_tokens = 4000};
	struct kvr_slice s[KVR_REQUEST_SLICES];
	struct kvr_wire_ids ids = ids_of(SOURCE, 1, 100);
	struct kvr_frag f;
	uint32_t len, off, n, frames;

	rig_welcomed((struct kvr_agent_conf){0});
	many[0] = 4711;
	src.fixed = (struct kvr_wire_request){.isl = 4000, .worker = WORKER, .dp_rank = 4};
	len = kvr_request_build(&src, s);
	kvr_frag_init(&f, KVR_DISPATCH, &ids, len, 1432);
	frames = f.n_frames;
	CU_ASSERT_FATAL(frames > 10);
	while (kvr_frag_next(&f, fake_slot(&net), &off, &n)) {
		kvr_slices_copy(s, KVR_REQUEST_SLICES, off, n, fake_slot(&net) + 48);
		fake_push(&net, router_at, (int)(48 + n));
		if (off == 0) /* a copy of a fragment */
			net.in[net.n_in] = net.in[net.n_in - 1], net.n_in++;
	}
	/* The last fragment first. */
	net.in[511] = net.in[net.taken];
	net.in[net.taken] = net.in[net.n_in - 1];
	net.in[net.n_in - 1] = net.in[511];
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 1);
	CU_ASSERT_EQUAL(saw.req.n_tokens, 4000);
	CU_ASSERT_EQUAL(saw.first_token, 4711);
	rig_stop();
}

static void hostile_frames_have_no_effect(void)
{
	struct kvr_agent_stats st;

	rig_welcomed((struct kvr_agent_conf){0});
	for (uint32_t len = 1; len < 200; len++) {
		push_dispatch(1, 100, 0);
		net.in[net.n_in - 1].len = RTE_MIN(len, net.in[net.n_in - 1].len - 1);
	}
	push_dispatch(1, 0, 0); /* no handle */
	push_dispatch(1, 100, 0);
	net.in[net.n_in - 1].addr = fake_addr(66, 666); /* not the router */
	push_dispatch(1, 100, 0);
	((struct kvr_wire_request *)(net.in[net.n_in - 1].data + 48))->n_tokens = UINT32_MAX;
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 0);
	CU_ASSERT_EQUAL(net.n_out, 0);
	kvr_agent_stats_get(a, &st);
	CU_ASSERT_EQUAL(st.frames_bad, 199 + 2);
	CU_ASSERT_EQUAL(st.frames_foreign, 1);
	rig_stop();
}

static void invalid_configurations_are_errors(void)
{
	static const struct kvr_agent_conf good = {
		.router = "127.0.0.1", .worker = 1, .pool = "p", .block_size = 16, .ops = &rig_ops};
	static const char *const bad_topology[] = {"no equals sign", NULL};
	struct kvr_agent_conf conf;

#define REFUSED(change)                                                                            \
	do {                                                                                       \
		conf = good;                                                                       \
		change;                                                                            \
		errno = 0;                                                                         \
		CU_ASSERT_PTR_NULL(kvr_agent_create(&conf));                                       \
		CU_ASSERT_EQUAL(errno, EINVAL);                                                    \
	} while (0)
	REFUSED(conf.router = NULL);
	REFUSED(conf.worker = 0);
	REFUSED(conf.pool = NULL);
	REFUSED(conf.pool = "");
	REFUSED(conf.block_size = 0);
	REFUSED(conf.ops = NULL);
	REFUSED(conf.dp_start = UINT32_MAX);
	REFUSED(conf.frame_bytes = 9000);
	REFUSED(conf.kv_ring_bytes = 10);
	REFUSED(conf.ack_us = 1001);
	REFUSED(conf.topology = bad_topology);
#undef REFUSED
	a = kvr_agent_create(&good);
	CU_ASSERT_PTR_NOT_NULL(a);
	kvr_agent_destroy(a);
	kvr_agent_destroy(NULL);
}

/* A failure is sent with its rank, which the client may not know. */
static void failures_name_their_rank(void)
{
	const struct kvr_wire_response *w;
	struct kvr_tlv_iter it;
	struct kvr_tlv t;
	uint64_t worker;

	rig_dispatched((struct kvr_agent_conf){0}, 0);
	CU_ASSERT_EQUAL(respond_to_request(100, "x", KVR_AGENT_FAILED, 0),
			-EINVAL); /* not the last item */
	CU_ASSERT_EQUAL(respond_to_request(
				100, "x", KVR_AGENT_LAST | KVR_AGENT_FAILED | KVR_AGENT_REFUSED, 0),
			-EINVAL);
	CU_ASSERT_EQUAL(
		respond_to_request(100, "the engine's words", KVR_AGENT_LAST | KVR_AGENT_FAILED, 0),
		0);
	kvr_agent_process(a);
	w = next_item();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->flags, KVR_RESP_F_FIN | KVR_RESP_F_FAILED);
	CU_ASSERT_TRUE(rig_has_text(w, "the engine's words"));
	it = kvr_tlv_begin((const uint8_t *)(w + 1) + (w->data_len + 7) / 8 * 8, w->hints_len);
	CU_ASSERT_EQUAL_FATAL(kvr_tlv_next(&it, &t), 1);
	CU_ASSERT(t.type == KVR_HINT_RANK && t.len == 16);
	memcpy(&worker, t.value, sizeof(worker));
	CU_ASSERT_EQUAL(worker, WORKER);
	rig_stop();
	/* On the direct path the router is notified, too. */
	rig_dispatched((struct kvr_agent_conf){0}, KVR_REQ_F_DIRECT);
	CU_ASSERT_EQUAL(respond_to_request(100, "x", KVR_AGENT_LAST | KVR_AGENT_REFUSED, 0), 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(next_progress()->flags, KVR_PROG_F_FIN | KVR_PROG_F_REFUSED);
	rig_stop();
	/* Texts are short and leave space for the rank; a success has none. */
	rig_dispatched((struct kvr_agent_conf){0}, 0);
	CU_ASSERT_EQUAL(respond_to_request(100, "why",
					   KVR_AGENT_LAST | KVR_AGENT_ERROR | KVR_AGENT_FAILED, 0),
			0);
	kvr_agent_process(a);
	w = next_item();
	CU_ASSERT(w != NULL && w->hints_len == 24 && rig_has_text(w, "why"));
	rig_stop();
	rig_dispatched((struct kvr_agent_conf){0}, 0);
	CU_ASSERT_EQUAL(respond_to_request(100, "well", KVR_AGENT_LAST, 1), 0);
	kvr_agent_process(a);
	w = next_item();
	CU_ASSERT(w != NULL && w->hints_len == 0);
	rig_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(failures_name_their_rank),
			       KVR_CASE(hello_is_retransmitted_until_welcome),
			       KVR_CASE(heartbeats_carry_ranks_and_answers_report_the_state),
			       KVR_CASE(an_unknown_worker_registers_again),
			       KVR_CASE(an_unresponsive_router_is_offline_until_it_returns),
			       KVR_CASE(a_rejected_hello_is_reported_and_retried_slowly),
			       KVR_CASE(goodbye_is_sent_five_times),
			       KVR_CASE(a_dispatch_runs_once_and_every_copy_is_answered),
			       KVR_CASE(an_immediate_answer_replaces_the_acknowledgement),
			       KVR_CASE(an_answer_in_time_replaces_the_acknowledgement),
			       KVR_CASE(rejections_carry_the_code_and_are_repeated),
			       KVR_CASE(a_request_rejected_for_capacity_stays_rejected),
			       KVR_CASE(items_are_retransmitted_until_acknowledged),
			       KVR_CASE(foreign_and_impossible_acks_have_no_effect),
			       KVR_CASE(the_window_is_64_items),
			       KVR_CASE(an_unproven_client_gets_three_items),
			       KVR_CASE(invalid_responses_are_errors),
			       KVR_CASE(abort_ends_the_stream_as_cancelled),
			       KVR_CASE(an_abort_that_overtakes_its_dispatch_counts),
			       KVR_CASE(ended_requests_are_remembered),
			       KVR_CASE(long_silence_ends_a_request),
			       KVR_CASE(the_router_learns_of_an_end_in_a_full_window),
			       KVR_CASE(a_router_without_the_request_stops_retransmission),
			       KVR_CASE(direct_items_go_to_the_client_and_progress_to_the_router),
			       KVR_CASE(direct_items_reach_the_client),
			       KVR_CASE(a_new_router_epoch_ends_previous_requests),
			       KVR_CASE(nothing_runs_for_a_previous_router),
			       KVR_CASE(a_direct_answer_continues_in_a_new_router_epoch),
			       KVR_CASE(a_dispatch_before_welcome_belongs_to_the_new_epoch),
			       KVR_CASE(a_fragmented_dispatch_is_reassembled),
			       KVR_CASE(hostile_frames_have_no_effect),
			       KVR_CASE(invalid_configurations_are_errors),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("agent_request", tests);
}
