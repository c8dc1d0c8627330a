/* SPDX-License-Identifier: BSD-3-Clause */
/* Items of several frames: splitting, pace, retransmission and limits. */
#include "agent_rig.h"

#include "kvr_message.h"

#define UNIT 1384u

static char data[1 << 20], got[KVR_WIRE_MAX_RESPONSE];

static void start_request(struct kvr_agent_conf conf, uint32_t flags)
{
	for (unsigned int i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7 + i / 251);
	rig_dispatched(conf, flags);
	fake_skip(&net);
}

static int give_item(uint32_t len, uint32_t flags, uint32_t generated)
{
	return kvr_agent_respond(
		a, 100,
		&(struct kvr_agent_item){
			.data = data, .len = len, .flags = flags, .generated_tokens = generated});
}

/* The next frame of an item. */
static const struct kvr_wire_hdr *next_frame(void)
{
	return fake_next(&net, KVR_RESPONSE);
}

/* Reassemble the next item from its fragments in order. @return its fixed part. */
static const struct kvr_wire_response *join_fragments(uint32_t *frames)
{
	const struct kvr_wire_hdr *h = next_frame();
	uint32_t have = 0, seq;

	*frames = 0;
	if (h == NULL)
		return NULL;
	for (seq = h->msg_seq; h != NULL; h = have < h->msg_len ? next_frame() : NULL) {
		CU_ASSERT_EQUAL_FATAL(kvr_frame_check(h, 48u + h->frag_len, KVR_ROLE_BIT_ROUTER),
				      0);
		CU_ASSERT_EQUAL(h->msg_seq, seq);
		memcpy(got + h->frag_off, h + 1, h->frag_len);
		have += h->frag_len;
		(*frames)++;
		if (have == h->msg_len) {
			CU_ASSERT_EQUAL(kvr_body_check(KVR_RESPONSE, got, h->msg_len, NULL), 0);
			return (const void *)got;
		}
	}
	return NULL;
}

static void push_missing(struct kvr_udp_addr from, const struct kvr_wire_hdr *h, uint32_t unit,
			 const uint64_t word[], uint16_t n)
{
	const struct kvr_wire_ids ids = ids_of(h->source, h->id, h->handle);
	const struct kvr_wire_missing w = {.kind = KVR_RESPONSE,
					   .n_words = n,
					   .msg_seq = h->msg_seq,
					   .msg_len = h->msg_len,
					   .unit = unit};

	fake_push(&net, from,
		  kvr_put_message(fake_slot(&net), 1984, KVR_MISSING, &ids,
				  (struct kvr_slice){&w, sizeof(w)},
				  (struct kvr_slice){word, n * 8u}));
}

static void an_item_is_one_message_up_to_the_bound(void)
{
	static const uint32_t lens[] = {
		0, 1, 1352, 1353, 5000, KVR_WIRE_MAX_ITEM - 1, KVR_WIRE_MAX_ITEM};
	const struct kvr_wire_response *w;
	uint32_t n;

	for (uint32_t k = 0; k < RTE_DIM(lens); k++) {
		start_request((struct kvr_agent_conf){0}, 0);
		CU_ASSERT_EQUAL(give_item(lens[k], KVR_AGENT_LAST, 9), 0);
		kvr_agent_process(a);
		w = join_fragments(&n);
		CU_ASSERT_PTR_NOT_NULL_FATAL(w);
		CU_ASSERT_EQUAL(n, (32 + lens[k] + 7) / 8 * 8 / UNIT +
					   ((32 + lens[k] + 7) / 8 * 8 % UNIT != 0));
		CU_ASSERT_EQUAL(w->data_len, lens[k]);
		CU_ASSERT_EQUAL(w->generated_tokens, 9);
		CU_ASSERT_EQUAL(w->flags, KVR_RESP_F_FIN);
		CU_ASSERT_EQUAL(memcmp(w + 1, data, lens[k]), 0);
		CU_ASSERT_PTR_NULL(next_frame());
		rig_stop();
	}
}

static void data_above_the_bound_are_split_into_items(void)
{
	const struct kvr_wire_response *w;
	uint32_t n, len = 0;

	start_request((struct kvr_agent_conf){0}, 0);
	CU_ASSERT_EQUAL(give_item(190000, KVR_AGENT_TOKENS | KVR_AGENT_LAST, 1250), 0);
	for (uint32_t seq = 0; seq < 3; seq++) {
		kvr_agent_process(a);
		w = join_fragments(&n);
		CU_ASSERT_PTR_NOT_NULL_FATAL(w);
		CU_ASSERT_EQUAL(w->seq, seq);
		CU_ASSERT_EQUAL(memcmp(w + 1, data + len, w->data_len), 0);
		len += w->data_len;
		CU_ASSERT_EQUAL(w->flags, KVR_RESP_F_TOKENS | (seq == 2 ? KVR_RESP_F_FIN : 0));
		CU_ASSERT_EQUAL(w->generated_tokens, seq == 2 ? 1250 : 0);
		CU_ASSERT_PTR_NULL(next_frame()); /* 48 frames of 64: the next item waits */
		push_response_ack(router_at, 1, 100, seq + 1, 0);
		kvr_agent_process(a);
		net.now_us += 1000;
	}
	CU_ASSERT_EQUAL(len, 190000);
	rig_stop();
}

static void only_missing_fragments_are_retransmitted(void)
{
	const uint64_t word = 1u << 3 | UINT64_C(1) << 40;
	struct kvr_agent_stats s;
	struct kvr_wire_hdr h;
	uint32_t n;

	start_request((struct kvr_agent_conf){0}, 0);
	CU_ASSERT_EQUAL(give_item(65536, KVR_AGENT_LAST, 1), 0);
	kvr_agent_process(a);
	h = *next_frame();
	fake_skip(&net);
	push_missing(router_at, &h, UNIT - 8, &word, 1); /* another unit */
	h.msg_seq++;
	push_missing(router_at, &h, UNIT, &word, 1); /* another message */
	h.msg_seq--;
	push_missing(client_at, &h, UNIT, &word, 1); /* not from the router */
	net.now_us += 5000;
	kvr_agent_process(a);
	CU_ASSERT_PTR_NULL(next_frame());
	push_missing(router_at, &h, UNIT, &word, 1);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(next_frame()->frag_off, 3 * UNIT);
	CU_ASSERT_EQUAL(next_frame()->frag_off, 40 * UNIT);
	CU_ASSERT_PTR_NULL(next_frame());
	kvr_agent_stats_get(a, &s);
	CU_ASSERT_EQUAL(s.fragments_again, 2);
	/* Then it waits as for the first answer, and retransmits the first fragment. */
	rig_run_ms(19);
	CU_ASSERT_PTR_NULL(next_frame());
	rig_run_ms(2);
	CU_ASSERT_EQUAL(next_frame()->frag_off, 0);
	CU_ASSERT_PTR_NULL(next_frame());
	push_response_ack(router_at, 1, 100, 1, KVR_RACK_F_FIN);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dones, 1);
	push_missing(router_at, &h, UNIT, &word, 1); /* late */
	kvr_agent_process(a);
	rig_run_ms(100);
	CU_ASSERT_EQUAL((n = fake_count(&net, KVR_RESPONSE)), 0);
	rig_stop();
}

static void frames_leave_at_the_pace(void)
{
	uint32_t n = 0;

	start_request((struct kvr_agent_conf){.frame_bytes = 560}, 0); /* 129 frames */
	CU_ASSERT_EQUAL(give_item(65536, 0, 1), 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 64);
	CU_ASSERT_TRUE(kvr_agent_timeout_strict(a)); /* a late step delays the item */
	for (uint32_t ms = 1; ms <= 2; ms++) {
		fake_skip(&net);
		kvr_agent_process(a); /* time stands still */
		CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 0);
		net.now_us += 1000;
		kvr_agent_process(a);
		n += fake_count(&net, KVR_RESPONSE);
	}
	CU_ASSERT_EQUAL(n, 129 - 64);
	CU_ASSERT_FALSE(kvr_agent_timeout_strict(a));
	fake_skip(&net);
	rig_run_ms(19); /* the timer starts after the last fragment */
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 0);
	rig_run_ms(2);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 1);
	rig_stop();
}

static void missing_again_and_again_does_not_break_the_pace(void)
{
	const uint64_t all[] = {UINT64_MAX, UINT64_MAX, 1};
	struct kvr_wire_hdr h;

	start_request((struct kvr_agent_conf){.frame_bytes = 560}, 0);
	CU_ASSERT_EQUAL(give_item(65536, 0, 1), 0);
	rig_run_ms(5);
	h = *next_frame();
	fake_skip(&net);
	for (uint32_t i = 0; i < 50; i++) {
		push_missing(router_at, &h, 512, all, 3);
		kvr_agent_process(a);
	}
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 64);
	rig_stop();
}

/* No more frames than short items would take, until the address is proven. */
static void an_unproven_address_gets_three_frames(void)
{
	static const uint32_t flags[] = {KVR_REQ_F_UNPROVEN, KVR_REQ_F_UNPROVEN | KVR_REQ_F_DIRECT};
	const uint64_t rest = ((UINT64_C(1) << 48) - 1) & ~UINT64_C(7);

	for (uint32_t k = 0; k < 2; k++) {
		const struct kvr_udp_addr from = k == 0 ? router_at : client_at;
		struct kvr_wire_hdr h;

		start_request((struct kvr_agent_conf){0}, flags[k]);
		CU_ASSERT_EQUAL(give_item(65536, 0, 1), 0);
		CU_ASSERT_EQUAL(give_item(10, KVR_AGENT_LAST, 2), 0);
		kvr_agent_process(a);
		CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 3);
		h = *next_frame();
		fake_skip(&net);
		rig_run_ms(15);
		CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 0);
		rig_run_ms(10); /* the first one again */
		CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 1);
		fake_skip(&net);
		push_missing(from, &h, UNIT, &rest, 1); /* none of them was sent */
		kvr_agent_process(a);
		CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 48 - 3 + 1);
		rig_stop();
	}
}

static void silence_ends_long_items_like_short_ones(void)
{
	start_request((struct kvr_agent_conf){0}, 0);
	CU_ASSERT_EQUAL(give_item(65536, 0, 1), 0);
	rig_run_ms(18500);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(saw.why, KVR_AGENT_ABORT_SILENCE);
	rig_stop();
}

static void endless_requests_for_fragments_are_no_progress(void)
{
	const uint64_t all = (UINT64_C(1) << 48) - 1;
	struct kvr_wire_hdr h;

	start_request((struct kvr_agent_conf){0}, 0);
	CU_ASSERT_EQUAL(give_item(65536, 0, 1), 0);
	kvr_agent_process(a);
	h = *next_frame();
	for (uint32_t ms = 0; ms < 17000; ms += 5) {
		CU_ASSERT_EQUAL_FATAL(saw.aborts, 0);
		fake_skip(&net);
		push_missing(router_at, &h, UNIT, &all, 1);
		kvr_agent_process(a);
		rig_run_ms(5);
	}
	fake_skip(&net);
	push_missing(router_at, &h, UNIT, &all, 1);
	kvr_agent_process(a);
	rig_run_ms(5);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(saw.why, KVR_AGENT_ABORT_SILENCE);
	rig_stop();
}

static void an_abort_lets_a_started_item_finish(void)
{
	const struct kvr_wire_hdr *h;
	uint32_t n = 0;

	start_request((struct kvr_agent_conf){.frame_bytes = 560}, 0);
	CU_ASSERT_EQUAL(give_item(65536, 0, 1), 0);
	kvr_agent_process(a);
	push_abort(1, 100, 0);
	rig_run_ms(4);
	while ((h = next_frame()) != NULL)
		n++;
	CU_ASSERT_EQUAL(n, 129);
	push_response_ack(router_at, 1, 100, 1, 0);
	kvr_agent_process(a);
	h = next_frame();
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT_EQUAL(((const struct kvr_wire_response *)(h + 1))->flags,
			KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED);
	push_response_ack(router_at, 1, 100, 2, KVR_RACK_F_FIN);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	rig_stop();
}

static void an_item_that_does_not_fit_becomes_an_error(void)
{
	const struct kvr_wire_ids ids = ids_of(SOURCE, 1, 100);
	const struct kvr_fault f = {.seen = 70000, .allowed = 65536};
	const struct kvr_wire_response *w;

	start_request((struct kvr_agent_conf){.frame_bytes = 560}, 0);
	CU_ASSERT_EQUAL(give_item(65536, KVR_AGENT_LAST, 1), 0);
	kvr_agent_process(a);
	fake_push(&net, router_at,
		  kvr_put_rejected(fake_slot(&net), 1984, &ids, KVR_E_TOO_LARGE, KVR_RESPONSE, &f));
	fake_skip(&net);
	rig_run_ms(3);
	w = (const void *)(next_frame() + 1);
	CU_ASSERT_EQUAL(w->flags, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
	CU_ASSERT_EQUAL(w->seq, 0);
	CU_ASSERT_PTR_NULL(next_frame()); /* nothing more of the other item */
	rig_stop();
}

/* The router extends the last item, which therefore has one frame. */
static void a_tracked_answer_ends_with_a_short_item(void)
{
	const struct kvr_wire_response *w;
	uint32_t n;

	start_request((struct kvr_agent_conf){0}, KVR_REQ_F_TRACK);
	CU_ASSERT_EQUAL(kvr_agent_respond(a, 100,
					  &(struct kvr_agent_item){.data = data,
								   .len = 5000,
								   .flags = KVR_AGENT_LAST,
								   .trace_link = "link",
								   .trace_link_len = 4}),
			0);
	kvr_agent_process(a);
	w = join_fragments(&n);
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->flags, 0);
	CU_ASSERT_EQUAL(w->hints_len, 0);
	w = join_fragments(&n);
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(n, 1);
	CU_ASSERT_EQUAL(w->flags, KVR_RESP_F_FIN);
	CU_ASSERT_EQUAL(w->hints_len, 8);
	rig_stop();
}

/* ---- transfer results ---- */

static void start_prefill(uint32_t frame_bytes)
{
	start_request((struct kvr_agent_conf){.role = KVR_ROLE_PREFILL, .frame_bytes = frame_bytes},
		      KVR_REQ_F_PREFILL_LEG);
}

static void a_result_is_one_message_of_up_to_a_mebibyte(void)
{
	const struct kvr_wire_response *w = NULL;
	const struct kvr_wire_hdr *h;
	uint32_t have = 0;

	start_prefill(0);
	CU_ASSERT_EQUAL(give_item(KVR_WIRE_MAX_RESULT, KVR_AGENT_LAST, 1), 0);
	for (uint32_t ms = 0; ms < 14; ms++) { /* 758 frames, 64 per millisecond */
		kvr_agent_process(a);
		CU_ASSERT(fake_count(&net, KVR_RESPONSE) <= 64);
		while ((h = next_frame()) != NULL) {
			memcpy(got + h->frag_off, h + 1, h->frag_len);
			have += h->frag_len;
			w = (const void *)got;
		}
		fake_skip(&net);
		net.now_us += 1000;
	}
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(have, 32 + KVR_WIRE_MAX_RESULT);
	CU_ASSERT_EQUAL(kvr_body_check(KVR_RESPONSE, got, have, NULL), 0);
	CU_ASSERT_EQUAL(w->flags, KVR_RESP_F_FIN);
	CU_ASSERT_EQUAL(memcmp(w + 1, data, KVR_WIRE_MAX_RESULT), 0);
	push_response_ack(router_at, 1, 100, 1, KVR_RACK_F_FIN);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dones, 1);
	rig_stop();
}

/* The router completed it without room: the next retransmission is another message. */
static void an_item_without_room_is_sent_as_another_message(void)
{
	const struct kvr_wire_ids ids = ids_of(SOURCE, 1, 100);
	struct kvr_wire_hdr h;
	uint32_t n;

	start_prefill(0);
	CU_ASSERT_EQUAL(give_item(50000, KVR_AGENT_LAST, 1), 0);
	kvr_agent_process(a);
	h = *next_frame();
	fake_skip(&net);
	fake_push(
		&net, router_at,
		kvr_put_rejected(fake_slot(&net), 1984, &ids, KVR_E_NO_MEMORY, KVR_RESPONSE, NULL));
	rig_run_ms(15);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 0); /* not at once */
	rig_run_ms(10);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE), 37);
	CU_ASSERT_NOT_EQUAL(next_frame()->msg_seq, h.msg_seq);
	fake_skip(&net);
	rig_run_ms(15);
	CU_ASSERT_EQUAL((n = fake_count(&net, KVR_RESPONSE)), 0);
	rig_run_ms(200);
	CU_ASSERT_EQUAL(next_frame()->frag_off, 0); /* then as usual */
	rig_stop();
}

static void a_decode_leg_receives_a_long_result(void)
{
	static const uint32_t lens[] = {1, 5000, 300000};
	struct kvr_hint_buf none = {0};

	for (uint32_t i = 0; i < RTE_DIM(lens); i++) {
		rig_welcomed((struct kvr_agent_conf){.role = KVR_ROLE_DECODE});
		rig_result = data;
		rig_result_len = lens[i];
		push_dispatch_hints(1, 100, KVR_REQ_F_DECODE_LEG, &none);
		kvr_agent_process(a);
		CU_ASSERT_EQUAL(saw.dispatches, 1);
		CU_ASSERT(saw.leg_result_is);
		push_dispatch_hints(1, 101, 0, &none); /* a result without a decode leg */
		kvr_agent_process(a);
		CU_ASSERT_EQUAL(saw.dispatches, 1);
		rig_result_len = 0;
		rig_stop();
	}
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(an_item_is_one_message_up_to_the_bound),
			       KVR_CASE(data_above_the_bound_are_split_into_items),
			       KVR_CASE(only_missing_fragments_are_retransmitted),
			       KVR_CASE(frames_leave_at_the_pace),
			       KVR_CASE(missing_again_and_again_does_not_break_the_pace),
			       KVR_CASE(endless_requests_for_fragments_are_no_progress),
			       KVR_CASE(an_unproven_address_gets_three_frames),
			       KVR_CASE(silence_ends_long_items_like_short_ones),
			       KVR_CASE(an_abort_lets_a_started_item_finish),
			       KVR_CASE(an_item_that_does_not_fit_becomes_an_error),
			       KVR_CASE(a_tracked_answer_ends_with_a_short_item),
			       KVR_CASE(a_result_is_one_message_of_up_to_a_mebibyte),
			       KVR_CASE(an_item_without_room_is_sent_as_another_message),
			       KVR_CASE(a_decode_leg_receives_a_long_result),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("agent_parts", tests);
}
