/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_rig.h"

#include "kvr_hints.h"
#include <errno.h>

/* Start a request that is accepted and runs. */
static void items_are_acknowledged_after_5_ms(void)
{
	const struct kvr_wire_response_ack *a;
	uint64_t id;

	rig_start();
	id = rig_running(0);
	push_item(id, 0, 0, "a");
	kvr_client_process(c);
	push_item(id, 1, 0, "b");
	rig_run_ms(4);
	CU_ASSERT_PTR_NULL(next_ack());
	rig_run_ms(1);
	a = next_ack();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->next_seq, 2);
	CU_ASSERT_EQUAL(a->flags, 0);
	CU_ASSERT(kvr_udp_addr_equal(fake_to(&net), &router_at));
	rig_run_ms(100);
	CU_ASSERT_PTR_NULL(next_ack());
	CU_ASSERT_EQUAL(saw.items, 2);
	rig_stop();
}

static void sixteen_items_are_acknowledged_at_once(void)
{
	const struct kvr_wire_response_ack *a;
	uint64_t id;

	rig_start();
	id = rig_running(0);
	for (uint32_t i = 0; i < 2; i++)
		push_item(id, i, 0, "x");
	kvr_client_process(c);
	CU_ASSERT_PTR_NULL(next_ack());
	push_item(id, 2, 0, "x"); /* an agent sends no more while UNPROVEN */
	kvr_client_process(c);
	a = next_ack();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->next_seq, 3);
	for (uint32_t i = 3; i < 19; i++)
		push_item(id, i, 0, "x");
	kvr_client_process(c);
	a = next_ack();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->next_seq, 19);
	rig_stop();
}

static void the_last_item_ends_and_is_acknowledged(void)
{
	const struct kvr_wire_response_ack *a;
	uint64_t id;

	rig_start();
	id = rig_running(0);
	push_item(id, 0, KVR_RESP_F_TOKENS, "abcd");
	push_item(id, 1, KVR_RESP_F_FIN, "end");
	kvr_client_process(c);
	a = next_ack();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->next_seq, 2);
	CU_ASSERT_EQUAL(a->flags, KVR_RACK_F_FIN);
	CU_ASSERT_EQUAL(saw.items, 2);
	CU_ASSERT_EQUAL(saw.last_flags, KVR_CLIENT_ITEM_LAST);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_FINISHED);
	CU_ASSERT_EQUAL(saw.end.items, 2);
	CU_ASSERT_EQUAL(kvr_client_timeout_ms(c), -1);
	/* Its sender lost the acknowledgement: repeat it, also for the previous item. */
	push_item(id, 0, 0, "abcd");
	push_item(id, 1, KVR_RESP_F_FIN, "end");
	kvr_client_process(c);
	a = next_ack();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->next_seq, 1);
	CU_ASSERT_EQUAL(a->flags, 0);
	a = next_ack();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->next_seq, 2);
	CU_ASSERT_EQUAL(a->flags, KVR_RACK_F_FIN);
	CU_ASSERT_EQUAL(saw.items, 2);
	rig_stop();
}

static void engine_errors_are_reported(void)
{
	uint64_t id;

	rig_start();
	id = rig_running(0);
	push_item(id, 0, KVR_RESP_F_FIN | KVR_RESP_F_ERROR, "out of memory");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_FAILED);
	CU_ASSERT_EQUAL(saw.items, 1);
	CU_ASSERT_STRING_EQUAL(saw.text, "out of memory");
	rig_stop();
}

/* Failures that count against a rank, with the rank: from the item, otherwise from ACCEPTED. */
static void failures_are_reported_with_their_rank(void)
{
	const uint64_t worker = 9;
	const uint32_t rank = 4;
	struct kvr_wire_response w = {.flags = KVR_RESP_F_FIN | KVR_RESP_F_FAILED, .status = 500};
	uint8_t mem[64];
	struct kvr_hint_buf b = {.p = mem, .cap = sizeof(mem)};
	struct kvr_wire_ids ids;
	uint8_t *f;
	uint64_t id;

	rig_start();
	id = rig_running(0);
	push_item(id, 0, KVR_RESP_F_FIN | KVR_RESP_F_REFUSED, "no room");
	kvr_client_process(c);
	CU_ASSERT(saw.end.reason == KVR_CLIENT_FINISHED && saw.end.refused && !saw.end.failed);
	CU_ASSERT(saw.end.place_known && saw.end.place.worker == 1 && saw.end.place.dp_rank == 3);
	memset(&saw, 0, sizeof(saw));
	id = rig_submit(KVR_CLIENT_QUIET);
	ids = ids_of(id, HANDLE);
	f = fake_slot(&net);
	CU_ASSERT(kvr_put_response(f, 1984, &ids, w, (struct kvr_slice){"words", 5}) > 0);
	kvr_hint_put_ranks(&b, KVR_HINT_RANK, &worker, &rank, 1);
	fake_push(&net, router_at, (int)kvr_response_append((void *)f, b.p, b.len));
	kvr_client_process(c);
	CU_ASSERT(saw.end.reason == KVR_CLIENT_FINISHED && saw.end.failed && !saw.end.refused);
	CU_ASSERT(saw.end.place_known && saw.end.place.worker == 9 && saw.end.place.dp_rank == 4);
	memset(&saw, 0, sizeof(saw));
	id = rig_submit(KVR_CLIENT_QUIET);
	push_item(id, 0, KVR_RESP_F_FIN | KVR_RESP_F_FAILED, "x");
	kvr_client_process(c);
	CU_ASSERT(saw.end.failed && !saw.end.place_known);
	rig_stop();
}

static void failed_ranks_are_sent_with_the_request(void)
{
	const struct kvr_client_place at[5] = {{9, 4}, {8, UINT32_MAX}};
	struct kvr_client_request q = {.tokens = prompt,
				       .n_tokens = 4,
				       .ops = &rig_ops,
				       .failed_at = at,
				       .n_failed_at = 2};
	const struct kvr_wire_request *w;
	struct kvr_hint_lists lists;
	struct kvr_hints h;
	uint64_t id;

	rig_start();
	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(c, &q, &id), 0);
	w = (const void *)kvr_client__find(c, id)->msg;
	CU_ASSERT_EQUAL_FATAL(kvr_hints_parse((const uint8_t *)(w + 1) + 16, w->hints_len,
					      KVR_HINTS_ROUTE, &h, &lists),
			      0);
	CU_ASSERT_EQUAL(h.n_failed_at, 2);
	CU_ASSERT(h.failed_at[0].worker == 9 && h.failed_at[0].dp_rank == 4);
	CU_ASSERT(h.failed_at[1].worker == 8 && h.failed_at[1].dp_rank == UINT32_MAX);
	q.n_failed_at = 5;
	CU_ASSERT_EQUAL(kvr_client_submit(c, &q, &id), -EINVAL);
	rig_stop();
}

/* The failure of a booked request counts for its rank: RULES.md, section 12.3. */
static void a_failed_booking_is_reported_as_failed(void)
{
	const struct kvr_client_report end = {.last = true, .failed = true};
	uint64_t id;

	rig_start();
	id = rig_submit(KVR_CLIENT_BOOK);
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 1);
	kvr_client_process(c);
	CU_ASSERT_EQUAL_FATAL(kvr_client_report(c, id, &end), 0);
	CU_ASSERT_EQUAL(kvr_client__find(c, id)->report.flags,
			KVR_PROG_F_FIN | KVR_PROG_F_ERROR | KVR_PROG_F_FAILED);
	rig_stop();
}

/* The text of an agent that was stopped is not an item. One printable line of it is reported. */
static void the_reason_of_a_stopped_agent_is_reported(void)
{
	uint64_t id;

	rig_start();
	id = rig_running(0);
	push_item(id, 0, 0, "x");
	push_item(id, 1, KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED, "the router\x01stops\nhere");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_CANCELLED);
	CU_ASSERT_EQUAL(saw.items, 1);
	CU_ASSERT_EQUAL(saw.end.items, 1);
	CU_ASSERT_STRING_EQUAL(saw.text, "the router?stops");
	rig_stop();
}

/* The last item with hints arrives before the previous item. */
static void push_tracked(uint64_t id, const struct kvr_wire_tracker *k)
{
	const struct kvr_wire_response w = {
		.seq = 1, .flags = KVR_RESP_F_FIN, .generated_tokens = 2, .cached_tokens = 16};
	const struct kvr_wire_ids ids = ids_of(id, HANDLE);
	uint8_t mem[256];
	struct kvr_hint_buf b = {.p = mem, .cap = sizeof(mem)};
	uint8_t *f = fake_slot(&net);
	int len = kvr_put_response(f, 1984, &ids, w, (struct kvr_slice){"bye", 3});

	CU_ASSERT(len > 0);
	kvr_hint_put(&b, KVR_HINT_PROMPT_DETAILS, "{\"cached_tokens\":16}", 20, NULL, 0);
	len = (int)kvr_response_append((void *)f, b.p, b.len);
	b.len = 0;
	kvr_hint_put(&b, KVR_HINT_TRACKER, k, sizeof(*k), "later", 5);
	fake_push(&net, router_at, (int)kvr_response_append((void *)f, b.p, b.len));
	CU_ASSERT_EQUAL((uint32_t)len, sizeof(struct kvr_wire_hdr) + sizeof(w) + 8 + 24);
}

static void tracking_data_come_with_the_end(void)
{
	const struct kvr_wire_tracker k = {.worker = 9,
					   .dp_rank = 1,
					   .prefill_dp_rank = KVR_NONE32,
					   .overlap_blocks = 3,
					   .required_blocks = 4,
					   .isl = 64,
					   .osl = 2,
					   .ttft_us = 5000,
					   .itl_us = KVR_NONE32,
					   .hit_rate = UINT64_C(0x3fe8000000000000)}; /* 0.75 */
	uint64_t id;

	rig_start();
	id = rig_running(0);
	push_tracked(id, &k);
	push_item(id, 0, 0, "x");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 2);
	CU_ASSERT_EQUAL(saw.bytes, 4);
	CU_ASSERT_TRUE_FATAL(saw.tracked);
	CU_ASSERT(saw.tracker.worker == 9 && saw.tracker.dp_rank == 1 && saw.tracker.isl == 64);
	CU_ASSERT(saw.tracker.cached_tokens == 16 && saw.tracker.ttft_us == 5000);
	CU_ASSERT(saw.tracker.itl_us == UINT32_MAX && saw.tracker.trace_link_len == 0);
	CU_ASSERT_DOUBLE_EQUAL(saw.tracker.hit_rate, 0.75, 0);
	CU_ASSERT_STRING_EQUAL(saw.details, "{\"cached_tokens\":16}");
	saw.items = saw.ends = 0;
	id = rig_running(0);
	push_item(id, 0, KVR_RESP_F_FIN, "x");
	kvr_client_process(c);
	CU_ASSERT_FALSE(saw.tracked);
	rig_stop();
}

static void overtaking_items_are_put_in_order(void)
{
	static const uint8_t order[] = {3, 1, 2, 1, 0, 0, 6, 5, 4, 7};
	uint64_t id;

	rig_start();
	id = rig_running(0);
	for (unsigned int i = 0; i < sizeof(order); i++)
		push_item(id, order[i], order[i] == 7 ? KVR_RESP_F_FIN : 0, "x");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 8); /* on_item checks the order */
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_FINISHED);
	rig_stop();
}

static void an_item_too_far_ahead_is_dropped(void)
{
	uint64_t id;

	rig_start();
	id = rig_running(0);
	push_item(id, 1000000, KVR_RESP_F_FIN, "x");
	push_item(id, UINT32_MAX, KVR_RESP_F_FIN, "x");
	for (uint32_t i = 1; i < 200; i++)
		push_item(id, i, 0, "x");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 0);
	push_item(id, 0, 0, "x");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 1 + CLIENT_HOLD_ITEMS);
	CU_ASSERT_EQUAL(saw.ends, 0);
	rig_stop();
}

static void an_item_that_overtakes_accepted_counts(void)
{
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	fake_skip(&net);
	push_item(id, 0, 0, "x");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_PROBE), 1); /* asks for the choice */
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 4);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.accepted, 0); /* outdated: the answer to the probe counts */
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 4);
	rig_run_ms(100);
	CU_ASSERT_EQUAL(saw.accepted, 1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 0);
	rig_stop();
}

static void foreign_items_are_ignored(void)
{
	const struct kvr_udp_addr evil = fake_addr(66, 6666);
	struct kvr_client_stats st;
	uint64_t id;

	rig_start();
	id = rig_running(0);
	push_item_from(evil, id, HANDLE, 0, KVR_RESP_F_FIN,
		       "evil"); /* relayed: from the router only */
	push_item_from(router_at, id, 0, 0, KVR_RESP_F_FIN, "no handle");
	kvr_client_process(c);
	push_item(id, 0, 0, "good");
	push_item_from(router_at, id, HANDLE + 1, 1, KVR_RESP_F_FIN, "of another dispatch");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 1);
	CU_ASSERT_EQUAL(saw.ends, 0);
	kvr_client_stats_get(c, &st);
	CU_ASSERT_EQUAL(st.frames_foreign, 3);
	rig_stop();
}

static void direct_items_are_acknowledged_to_their_sender(void)
{
	uint64_t id;

	rig_start();
	id = rig_running(KVR_CLIENT_DIRECT);
	push_item_from(agent_at, id, HANDLE, 0, KVR_RESP_F_FIN, "x");
	kvr_client_process(c);
	CU_ASSERT_PTR_NOT_NULL(next_ack());
	CU_ASSERT(kvr_udp_addr_equal(fake_to(&net), &agent_at));
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_FINISHED);
	rig_stop();
}

static void direct_items_may_follow_ended(void)
{
	uint64_t id;

	rig_start();
	id = rig_running(KVR_CLIENT_DIRECT);
	push_rejected(id, KVR_E_ENDED, KVR_PROBE, "ended");
	rig_run_ms(1000);
	CU_ASSERT_EQUAL(saw.ends, 0);
	push_item_from(agent_at, id, HANDLE, 0, KVR_RESP_F_FIN, "x");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_FINISHED);
	/* Without items it ends soon. */
	id = rig_running(KVR_CLIENT_DIRECT);
	push_rejected(id, KVR_E_ENDED, KVR_PROBE, "ended");
	rig_run_ms(5000);
	CU_ASSERT_EQUAL(saw.ends, 2);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_LOST);
	rig_stop();
}

static void hostile_frames_have_no_effect(void)
{
	struct kvr_wire_hdr *h;
	struct kvr_client_stats st;
	uint64_t id;
	uint32_t n = 0;

	rig_start();
	id = rig_running(0);
	for (unsigned int byte = 0; byte < 48 + 40; byte++) { /* each byte inverted in turn */
		if (byte >= 4 + 4 && byte < 8 + 24)
			continue; /* source, id, handle: foreign frames, tested above */
		if (byte >= 40 && byte < 48 + 12)
			continue; /* epoch, msg_seq, seq, generated_tokens, status: any value is
				     valid */
		if (byte >= 48 + 16 && byte < 48 + 20)
			continue; /* cached_tokens */
		if (byte >= 48 + 32 && byte < 48 + 33)
			continue; /* data */
		push_item(id, 0, KVR_RESP_F_FIN, "x");
		net.in[net.n_in - 1].data[byte] ^= 0xff;
		n++;
	}
	for (uint32_t len = 1; len < 88; len++) { /* truncated */
		push_item(id, 0, KVR_RESP_F_FIN, "x");
		net.in[net.n_in - 1].len = len;
		n++;
	}
	push_item(id, 0, KVR_RESP_F_FIN, "x");
	h = (void *)net.in[net.n_in - 1].data;
	h->frag_off = 8;
	n++;
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items + saw.ends, 0);
	kvr_client_stats_get(c, &st);
	CU_ASSERT_EQUAL(st.frames_bad, n);
	push_item(id, 0, KVR_RESP_F_FIN, "x");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_FINISHED);
	rig_stop();
}

/* --- cancel and time limits --- */

static void cancel_is_retransmitted_until_answered(void)
{
	uint64_t id;

	rig_start();
	id = rig_running(0);
	CU_ASSERT_EQUAL(kvr_client_cancel(c, id), 0);
	CU_ASSERT_EQUAL(kvr_client_cancel(c, id), 0); /* a second call has no effect */
	kvr_client_process(c);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_CANCEL), 1);
	rig_run_ms(20 + 40 + 80);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_CANCEL), 4);
	push_item(id, 0, 0, "late");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items + saw.ends, 0);
	push_empty(id, KVR_CANCELLED);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_CANCELLED);
	CU_ASSERT_EQUAL(kvr_client_cancel(c, id), -ENOENT);
	push_item(id, 0, KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED, "");
	fake_skip(&net);
	kvr_client_process(c);
	CU_ASSERT_PTR_NOT_NULL(next_ack()); /* an agent may stop retransmitting */
	rig_stop();
}

static void cancel_gives_up_after_ten_tries(void)
{
	uint64_t id;

	rig_start();
	id = rig_running(0);
	CU_ASSERT_EQUAL(kvr_client_cancel(c, id), 0);
	rig_run_ms(10000);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_CANCEL), 10);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_CANCELLED);
	CU_ASSERT_EQUAL(kvr_client_in_flight(c), 0);
	rig_stop();
}

/* CANCEL overtook its ROUTE on the way to the router: the router reports that it accepted a request
 * that was abandoned. */
static void an_abandoned_request_is_cancelled_when_accepted(void)
{
	struct kvr_client_item it;
	struct kvr_client_end e;
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	CU_ASSERT_EQUAL(kvr_client_cancel(c, id), 0);
	push_empty(id, KVR_CANCELLED);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_CANCELLED);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_CANCEL), 1);
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 1);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_CANCEL), 2);
	CU_ASSERT_EQUAL(saw.accepted, 0);
	rig_stop();

	rig_start(); /* the end was not read yet */
	CU_ASSERT_EQUAL_FATAL(
		kvr_client_submit(c, &(struct kvr_client_request){.tokens = prompt, .n_tokens = 4},
				  &id),
		0);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(kvr_client_cancel(c, id), 0);
	push_empty(id, KVR_CANCELLED);
	push_accepted(id, HANDLE, KVR_STATE_QUEUED, 1);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_CANCEL), 2);
	CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &it, &e, 0), 0);
	rig_stop();

	rig_start(); /* the complete answer overtook it */
	id = rig_submit(0);
	push_item(id, 0, KVR_RESP_F_FIN, "all");
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 1);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_FINISHED);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_CANCEL), 0);
	rig_stop();
}

static void cancel_from_inside_a_callback(void)
{
	uint64_t id;

	rig_start();
	id = rig_running(0);
	saw.cancel_at_item = 2;
	for (uint32_t i = 0; i < 5; i++)
		push_item(id, i, 0, "x");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 2);
	push_empty(id, KVR_CANCELLED);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_CANCELLED);
	CU_ASSERT_EQUAL(saw.end.items, 2);
	rig_stop();
}

static void submit_from_inside_the_end(void)
{
	uint64_t id;

	rig_start_conf((struct kvr_client_conf){.max_requests = 2});
	id = rig_running(0);
	saw.submit_at_end = true;
	push_item(id, 1, 0, "held back");
	push_item(id, 0, KVR_RESP_F_FIN, "x");
	push_item(id, 2, 0, "unowned");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_NOT_EQUAL(saw.next_id, 0);
	CU_ASSERT_NOT_EQUAL(saw.next_id, id);
	CU_ASSERT_EQUAL(kvr_client_in_flight(c), 1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 1);
	rig_stop();
}

static void a_time_limit_ends_and_stops_the_engine(void)
{
	const struct kvr_client_request q = {
		.tokens = prompt, .n_tokens = 4, .request_ms = 300, .ops = &rig_ops};
	uint64_t id;

	rig_start();
	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(c, &q, &id), 0);
	kvr_client_process(c);
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 1);
	rig_run_ms(299);
	CU_ASSERT_EQUAL(saw.ends, 0);
	rig_run_ms(1);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_TIMEOUT);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_CANCEL), 1);
	push_item(id, 0, KVR_RESP_F_FIN, "late");
	push_empty(id, KVR_CANCELLED);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 0);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(kvr_client_timeout_ms(c), -1);
	rig_stop();
}

/* --- without callbacks --- */

static void items_are_kept_for_their_reader(void)
{
	const struct kvr_client_request q = {.tokens = prompt, .n_tokens = 4};
	struct kvr_client_item it;
	struct kvr_client_end e;
	uint64_t id;

	rig_start();
	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(c, &q, &id), 0);
	CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &it, &e, 0), -ETIMEDOUT);
	push_item(id, 0, 0, "first");
	push_item(id, 1, 0, "second");
	CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &it, &e, 0), 1);
	CU_ASSERT_EQUAL(memcmp(it.data, "first", 5), 0);
	push_rejected(id, KVR_E_WORKER_LOST, KVR_ROUTE, "worker died");
	CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &it, &e, 0), 1);
	CU_ASSERT_EQUAL(memcmp(it.data, "second", 6), 0);
	CU_ASSERT_EQUAL_FATAL(kvr_client_next_item(c, id, &it, &e, 0), 0);
	CU_ASSERT_EQUAL(e.reason, KVR_CLIENT_REJECTED);
	CU_ASSERT_STRING_EQUAL(e.text, "worker died");
	CU_ASSERT(e.retryable);
	CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &it, &e, 0), -ENOENT);
	rig_stop();
}

static void a_slow_reader_stops_the_sender(void)
{
	const struct kvr_client_request q = {.tokens = prompt, .n_tokens = 4};
	const struct kvr_wire_response_ack *a, *b;
	struct kvr_client_item it;
	struct kvr_client_end e;
	uint64_t id;

	rig_start_conf((struct kvr_client_conf){.buffer_bytes = 300});
	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(c, &q, &id), 0);
	kvr_client_process(c);
	for (uint32_t i = 0; i < 16; i++)
		push_item(id, i, 0, "0123456789");
	kvr_client_process(c);
	rig_run_ms(5);
	for (a = next_ack(); (b = next_ack()) != NULL; a = b)
		;
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT(a->next_seq > 1 && a->next_seq < 8);
	for (uint32_t i = 0; i < a->next_seq; i++)
		CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &it, &e, 0), 1);
	CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &it, &e, 0), -ETIMEDOUT);
	push_item(id, a->next_seq, 0, "again");
	CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &it, &e, 0), 1);
	CU_ASSERT_EQUAL(it.seq, a->next_seq);
	rig_stop();
}

static void a_time_limit_without_callbacks(void)
{
	const struct kvr_client_request q = {.tokens = prompt, .n_tokens = 4, .request_ms = 50};
	struct kvr_client_item it;
	struct kvr_client_end e;
	uint64_t id;

	rig_start_conf((struct kvr_client_conf){.max_requests = 1});
	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(c, &q, &id), 0);
	rig_run_ms(60);
	CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &it, &e, 0), 0);
	CU_ASSERT_EQUAL(e.reason, KVR_CLIENT_TIMEOUT);
	CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &it, &e, 0), -ENOENT);
	push_empty(id, KVR_CANCELLED);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(kvr_client_submit(c, &q, &id), 0); /* the slot is free again */
	rig_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(items_are_acknowledged_after_5_ms),
			       KVR_CASE(sixteen_items_are_acknowledged_at_once),
			       KVR_CASE(the_last_item_ends_and_is_acknowledged),
			       KVR_CASE(engine_errors_are_reported),
			       KVR_CASE(failures_are_reported_with_their_rank),
			       KVR_CASE(failed_ranks_are_sent_with_the_request),
			       KVR_CASE(a_failed_booking_is_reported_as_failed),
			       KVR_CASE(tracking_data_come_with_the_end),
			       KVR_CASE(the_reason_of_a_stopped_agent_is_reported),
			       KVR_CASE(overtaking_items_are_put_in_order),
			       KVR_CASE(an_item_too_far_ahead_is_dropped),
			       KVR_CASE(an_item_that_overtakes_accepted_counts),
			       KVR_CASE(foreign_items_are_ignored),
			       KVR_CASE(direct_items_are_acknowledged_to_their_sender),
			       KVR_CASE(direct_items_may_follow_ended),
			       KVR_CASE(hostile_frames_have_no_effect),
			       KVR_CASE(cancel_is_retransmitted_until_answered),
			       KVR_CASE(cancel_gives_up_after_ten_tries),
			       KVR_CASE(an_abandoned_request_is_cancelled_when_accepted),
			       KVR_CASE(cancel_from_inside_a_callback),
			       KVR_CASE(submit_from_inside_the_end),
			       KVR_CASE(a_time_limit_ends_and_stops_the_engine),
			       KVR_CASE(items_are_kept_for_their_reader),
			       KVR_CASE(a_slow_reader_stops_the_sender),
			       KVR_CASE(a_time_limit_without_callbacks),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("client_stream", tests);
}
