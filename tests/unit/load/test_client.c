/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulated clients: ROUTE in pieces, rejections. */
#include "rig.h"

/* Deliver a MISSING for the ROUTE that was sent as @p like. */
static void deliver_missing(uint32_t slot, const struct kvr_wire_hdr *like, uint32_t first,
			    const uint64_t words[], uint16_t n)
{
	struct kvr_wire_ids ids = load_client_ids(&load, &load.slots[slot]);
	const uint32_t len = (uint32_t)sizeof(struct kvr_wire_missing) + n * 8u;
	uint8_t frame[1024];
	struct kvr_wire_missing *m = (void *)(frame + sizeof(*like));

	ids.handle = 0;
	kvr_hdr_put(frame, KVR_MISSING, &ids, len, 0, (uint16_t)len);
	*m = (struct kvr_wire_missing){.kind = KVR_ROUTE,
				       .n_words = n,
				       .msg_seq = like->msg_seq,
				       .msg_len = like->msg_len,
				       .unit = like->frag_len,
				       .first = first};
	if (n != 0)
		memcpy(m + 1, words, n * 8u);
	n_sent = 0;
	load_client_frame(&load, (const struct kvr_wire_hdr *)frame, load.now);
}

/* Number of the fragment in frame @p i. */
static uint32_t piece_number(uint32_t i, uint32_t unit)
{
	return ((const struct kvr_wire_hdr *)sent[i].bytes)->frag_off / unit;
}

static void a_client_sends_the_pieces_that_missing_names(void)
{
	const uint64_t some[2] = {UINT64_C(1) << 3 | UINT64_C(1) << 63, 1};
	uint64_t all[2] = {UINT64_MAX & ~UINT64_C(1)};
	uint8_t first[1500], again[1500];
	struct kvr_wire_hdr like;
	uint32_t slot, n;

	BEGIN((char *)"--body-bytes", (char *)"120000");
	slot = load.free[load.n_free - 1];
	load_client_start(&load, load_workload_turn(load.work, 0, 0), load.now, 0, 0);
	CU_ASSERT_EQUAL(n_sent, 64);
	load.now += SECOND / 1000;
	load_routes_continue(&load);
	n = n_sent;
	CU_ASSERT_FATAL(n > 64 && n <= 88);
	all[1] = (UINT64_C(1) << (n - 64)) - 1;
	memcpy(&like, sent[0].bytes, sizeof(like));
	memcpy(first, sent[3].bytes, sent[3].len);
	load.now += SECOND;
	n_sent = 0;
	load_checks(&load); /* no answer: the first piece is repeated alone */
	CU_ASSERT_EQUAL_FATAL(n_sent, 1);
	CU_ASSERT_EQUAL(piece_number(0, like.frag_len), 0);
	CU_ASSERT_EQUAL(((const struct kvr_wire_hdr *)sent[0].bytes)->msg_seq, like.msg_seq);
	CU_ASSERT_EQUAL(counter_value(LOAD_ROUTE_REPEATS), 1);
	deliver_missing(slot, &like, 0, some, 2);
	CU_ASSERT_EQUAL_FATAL(n_sent, 3);
	CU_ASSERT_EQUAL(piece_number(0, like.frag_len), 3);
	CU_ASSERT_EQUAL(piece_number(1, like.frag_len), 63);
	CU_ASSERT_EQUAL(piece_number(2, like.frag_len), 64);
	memcpy(again, sent[0].bytes, sent[0].len);
	CU_ASSERT_EQUAL(memcmp(first, again, sent[0].len), 0); /* the bytes of the first copy */
	load.now += SECOND / 200;
	deliver_missing(slot, &like, 64, some + 1, 1);
	CU_ASSERT_EQUAL_FATAL(n_sent, 1);
	CU_ASSERT_EQUAL(piece_number(0, like.frag_len), 64);
	load.now += SECOND / 200;
	deliver_missing(slot, &like, 0, all, 2); /* at most the quota of a millisecond at once */
	CU_ASSERT_EQUAL(n_sent, 64);
	CU_ASSERT_EQUAL(piece_number(63, like.frag_len), 64);
	CU_ASSERT_EQUAL(counter_value(LOAD_PIECES_AGAIN), 3 + 1 + 64);
	CU_ASSERT_EQUAL(load.slots[slot].tries, 0); /* the router has answered */
	end_test();
}

static void missing_for_another_message_is_ignored(void)
{
	const uint64_t all[1] = {0xfe};
	struct kvr_wire_hdr like, wrong;
	uint32_t slot;

	BEGIN((char *)"--body-bytes", (char *)"12000");
	slot = load.free[load.n_free - 1];
	load_client_start(&load, load_workload_turn(load.work, 0, 0), load.now, 0, 0);
	memcpy(&like, sent[0].bytes, sizeof(like));
	for (int i = 0; i < 3; i++) {
		wrong = like;
		wrong.msg_seq += i == 0;
		wrong.msg_len += i == 1 ? 8 : 0;
		wrong.frag_len = i == 2 ? 576 : like.frag_len;
		deliver_missing(slot, &wrong, 0, all, 1);
		CU_ASSERT_EQUAL(n_sent, 0);
	}
	CU_ASSERT_EQUAL(counter_value(LOAD_STALE), 3);
	deliver_missing(slot, &like, 0, NULL, 0); /* no words: not a message of this request */
	CU_ASSERT_EQUAL(n_sent, 0);
	CU_ASSERT_EQUAL(counter_value(LOAD_BAD_FRAMES), 1);
	conclude_request(slot, (struct kvr_wire_accepted){.state = KVR_STATE_RUNNING});
	deliver_missing(slot, &like, 0, all, 1); /* the request is answered */
	CU_ASSERT_EQUAL(n_sent, 0);
	end_test();
}

/* The router has reassembled the message and does not keep it: only another message is reassembled
 * again. */
static void a_lost_dispatch_of_several_frames_is_another_message(void)
{
	struct kvr_wire_accepted a = {.state = KVR_STATE_DISPATCHED, .flags = KVR_ACC_F_KEPT};
	struct kvr_wire_ids ids;
	struct kvr_wire_hdr like;
	uint8_t frame[256];
	uint32_t slot, n;

	BEGIN((char *)"--body-bytes", (char *)"12000");
	slot = load.free[load.n_free - 1];
	load_client_start(&load, load_workload_turn(load.work, 0, 0), load.now, 0, 0);
	n = n_sent;
	memcpy(&like, sent[0].bytes, sizeof(like));
	ids = load_client_ids(&load, &load.slots[slot]);
	for (int i = 0; i < 3; i++) { /* accepted; PROBE with and without the router's copy */
		a.flags = (uint16_t)(i == 2 ? 0 : KVR_ACC_F_KEPT);
		if (i != 0)
			load.slots[slot].flags |= LOAD_S_PROBED;
		n_sent = 0;
		kvr_put_accepted(frame, sizeof(frame), &ids, &a);
		load_client_frame(&load, (const struct kvr_wire_hdr *)frame, load.now);
		CU_ASSERT_EQUAL(n_sent, i == 2 ? n : 0);
	}
	CU_ASSERT_NOT_EQUAL(((const struct kvr_wire_hdr *)sent[0].bytes)->msg_seq, like.msg_seq);
	end_test();
}

/* Send the ROUTE of the first turn, and keep the frames. */
static uint32_t start_request(void)
{
	const uint32_t slot = load.free[load.n_free - 1];

	n_sent = 0;
	load_client_start(&load, load_workload_turn(load.work, 0, 0), load.now, 0, 0);
	return slot;
}

static const struct kvr_wire_hdr *sent_hdr(uint32_t i)
{
	return (const struct kvr_wire_hdr *)sent[i].bytes;
}

static void a_long_route_leaves_64_frames_a_millisecond(void)
{
	const uint64_t lacks[3] = {3, 0, 2}; /* 0 and 1 were sent, 129 was not */
	struct kvr_wire_hdr like;
	uint32_t slot, n;

	BEGIN((char *)"--body-bytes", (char *)"250000");
	slot = start_request();
	memcpy(&like, sent[0].bytes, sizeof(like));
	n = (like.msg_len + like.frag_len - 1) / like.frag_len;
	CU_ASSERT_TRUE_FATAL(n > 128 && n < 192);
	CU_ASSERT_EQUAL(n_sent, 64);
	load.now += SECOND / 1000 - 1;
	load_routes_continue(&load);
	deliver_missing(slot, &like, 0, lacks, 3); /* repeated fragments count as well */
	CU_ASSERT_EQUAL(n_sent, 0);
	load.now++;
	deliver_missing(slot, &like, 0, lacks, 3);
	CU_ASSERT_EQUAL(n_sent, 2);
	load_routes_continue(&load);
	CU_ASSERT_EQUAL_FATAL(n_sent, 64);
	CU_ASSERT_EQUAL(piece_number(2, like.frag_len), 64);
	CU_ASSERT_EQUAL(piece_number(63, like.frag_len), 125);
	n_sent = 0;
	load.now += 2 * SECOND; /* no repetition until all fragments are sent */
	load_checks(&load);
	CU_ASSERT_EQUAL(n_sent, 0);
	load_routes_continue(&load);
	CU_ASSERT_EQUAL_FATAL(n_sent, n - 126);
	CU_ASSERT_EQUAL(piece_number(n_sent - 1, like.frag_len), n - 1);
	load.now += (uint64_t)(opt.repeat_ms * 1e6) - 1;
	load_checks(&load);
	CU_ASSERT_EQUAL(counter_value(LOAD_ROUTE_REPEATS),
			0); /* the timer starts with the last one */
	load.now += SECOND;
	load_checks(&load);
	CU_ASSERT_EQUAL(counter_value(LOAD_ROUTE_REPEATS), 1);
	end_test();
}

/* The request ends and another one takes its slot: the rest of the first is not sent. */
static void an_ended_request_sends_no_further_fragments(void)
{
	uint32_t slot, n;

	BEGIN((char *)"--body-bytes", (char *)"120000");
	slot = start_request();
	n = (sent_hdr(0)->msg_len + sent_hdr(0)->frag_len - 1) / sent_hdr(0)->frag_len;
	load_client_lost(&load, slot);
	CU_ASSERT_EQUAL_FATAL(load.free[load.n_free - 1], slot);
	load.now += SECOND / 2000;
	CU_ASSERT_EQUAL(start_request(), slot);
	CU_ASSERT_EQUAL(n_sent, 64);
	CU_ASSERT_EQUAL(load.pace_n, 1); /* room for one entry per slot */
	load.now += SECOND / 2000;
	load_routes_continue(&load); /* the millisecond of the first request, not of this one */
	CU_ASSERT_EQUAL(n_sent, 64);
	load.now += SECOND / 2000;
	load_routes_continue(&load);
	CU_ASSERT_EQUAL(n_sent, n);
	load.now += SECOND;
	load_routes_continue(&load);
	CU_ASSERT_EQUAL(n_sent, n);
	end_test();
}

/* Tokens are made frame by frame. */
static void every_piece_has_the_tokens_of_the_prompt(void)
{
	const uint64_t third[1] = {4};
	static uint8_t body[16384];
	struct kvr_wire_hdr like;
	uint32_t want[1024];
	uint32_t slot;

	BEGIN((char *)"--tokens");
	load.max_frame = 560;
	slot = load.free[load.n_free - 1];
	load_client_start(&load, load_workload_turn(load.work, 0, 3), load.now, 0, 0);
	memcpy(&like, sent[0].bytes, sizeof(like));
	CU_ASSERT_TRUE_FATAL(n_sent >= 3 && like.msg_len <= sizeof(body));
	for (uint32_t i = 0; i < n_sent; i++)
		memcpy(body + sent_hdr(i)->frag_off, sent_hdr(i) + 1, sent_hdr(i)->frag_len);
	CU_ASSERT_TRUE_FATAL(load.slots[slot].prompt->isl <= RTE_DIM(want));
	load_workload_fill_tokens(load.work, load.slots[slot].prompt, 0,
				  load.slots[slot].prompt->isl, want);
	CU_ASSERT_EQUAL(memcmp(body + sizeof(struct kvr_wire_request), want,
			       load.slots[slot].prompt->isl * 4),
			0);
	memset(load.tokens, 0xee, load.slots[slot].prompt->isl * 4); /* another request's tokens */
	deliver_missing(slot, &like, 0, third, 1);
	CU_ASSERT_EQUAL_FATAL(n_sent, 1);
	CU_ASSERT_EQUAL(
		memcmp(sent_hdr(0) + 1, body + sent_hdr(0)->frag_off, sent_hdr(0)->frag_len), 0);
	end_test();
}

/* ---- rejections ---- */

/* Deliver a REJECTED for what the slot sent, and keep the answer. */
static void deliver_rejected(uint32_t slot, uint8_t kind, uint16_t code, uint64_t detail)
{
	const struct load_slot *s = &load.slots[slot];
	struct {
		struct kvr_wire_hdr h;
		struct kvr_wire_rejected r;
	} f = {.r = {.code = code,
		     .kind = kind,
		     .retryable = kvr_code_retryable(code),
		     .detail = {detail}}};
	const struct kvr_wire_ids ids = {load.clients[s->client].source, s->id, s->handle, 1, 1};

	kvr_hdr_put(&f.h, KVR_REJECTED, &ids, sizeof(f.r), 0, sizeof(f.r));
	n_sent = 0;
	load_client_frame(&load, &f.h, load.now);
}

static void deliver_accepted(uint32_t slot, uint8_t state)
{
	const struct kvr_wire_ids ids = {load.clients[load.slots[slot].client].source,
					 load.slots[slot].id, 78, 1, 1};
	const struct kvr_wire_accepted a = {.state = state};
	uint8_t frame[256];

	kvr_put_accepted(frame, sizeof(frame), &ids, &a);
	load_client_frame(&load, (const struct kvr_wire_hdr *)frame, load.now);
}

static void let_silence_pass(uint64_t ms)
{
	load.now += ms * (SECOND / 1000);
	n_sent = 0;
	load_checks(&load);
}

static void a_repetition_replaces_lost_fragments(void)
{
	uint32_t slot;

	BEGIN((char *)"--body-bytes", (char *)"12000");
	slot = start_request();
	deliver_rejected(slot, KVR_ROUTE, KVR_E_REASSEMBLY_FULL, 0);
	CU_ASSERT_EQUAL(load.slots[slot].cstate, LOAD_C_ROUTED);
	CU_ASSERT_EQUAL(n_sent, 0);
	let_silence_pass(1000);
	CU_ASSERT_PTR_NOT_NULL(find_sent(KVR_ROUTE, 0));
	CU_ASSERT_EQUAL(counter_value(LOAD_FAILED), 0);
	conclude_request(slot, (struct kvr_wire_accepted){.state = KVR_STATE_RUNNING});
	CU_ASSERT_EQUAL(counter_value(LOAD_COMPLETED), 1);
	end_test();
}

static void a_rejection_counts_in_the_states_of_its_table(void)
{
	static const struct {
		uint16_t code;
		uint8_t kind;
		bool sent, waits; /* whether it ends in SENT, in WAIT */
	} rows[] = {
		{KVR_E_QUEUE_REJECTED, KVR_ROUTE, true, true},
		{KVR_E_FRAGMENT, KVR_ROUTE, true, false},
		{KVR_E_BUSY, KVR_ROUTE, true, false},
		{KVR_E_BUSY, KVR_PROBE, false, false},
		{KVR_E_NO_MEMORY, KVR_PROBE, false, true},
		{KVR_E_WORKER_LOST, KVR_PROBE, false, true},
		{KVR_E_WORKER_LOST, KVR_ROUTE, true, true},
		{KVR_E_UNKNOWN_REQUEST, KVR_CANCEL, false, false},
		{KVR_E_REASSEMBLY_FULL, KVR_ROUTE, false, false},
	};

	for (uint32_t i = 0; i < RTE_DIM(rows); i++)
		for (int waits = 0; waits < 2; waits++) {
			uint32_t slot;

			BEGIN((char *)"--items", (char *)"2");
			slot = start_request();
			if (waits)
				deliver_accepted(slot, KVR_STATE_RUNNING);
			deliver_rejected(slot, rows[i].kind, rows[i].code, 0);
			CU_ASSERT_EQUAL(counter_value(LOAD_FAILED),
					waits ? rows[i].waits : rows[i].sent);
			CU_ASSERT_EQUAL(load.m->code[rows[i].code], counter_value(LOAD_FAILED));
			CU_ASSERT_PTR_NULL(find_sent(KVR_CANCEL, 0));
			end_test();
		}
}

static void busy_for_one_of_several_copies_cancels_the_request(void)
{
	uint32_t slot;

	BEGIN((char *)"--items", (char *)"2");
	slot = start_request();
	let_silence_pass(1000);
	CU_ASSERT_EQUAL(counter_value(LOAD_ROUTE_REPEATS), 1);
	deliver_rejected(slot, KVR_ROUTE, KVR_E_BUSY, 0);
	CU_ASSERT_PTR_NOT_NULL(find_sent(KVR_CANCEL, 0));
	CU_ASSERT_EQUAL(counter_value(LOAD_FAILED), 0);
	deliver_rejected(slot, KVR_CANCEL, KVR_E_BUSY, 0); /* again, later */
	CU_ASSERT_EQUAL(load.slots[slot].cstate, LOAD_C_CANCELLING);
	let_silence_pass(1000);
	CU_ASSERT_PTR_NOT_NULL(find_sent(KVR_CANCEL, 0));
	deliver_rejected(slot, KVR_CANCEL, KVR_E_ENDED, 0);
	CU_ASSERT_EQUAL(counter_value(LOAD_FAILED), 1);
	CU_ASSERT_EQUAL(counter_value(LOAD_CANCELLED), 0);
	CU_ASSERT_EQUAL(load.m->code[KVR_E_BUSY], 1);
	end_test();
}

static void a_request_unknown_to_the_router_starts_over(void)
{
	uint32_t slot, n, seq;

	BEGIN((char *)"--body-bytes", (char *)"12000");
	slot = start_request();
	n = n_sent;
	seq = sent_hdr(0)->msg_seq;
	deliver_rejected(slot, KVR_ROUTE, KVR_E_UNKNOWN_REQUEST, 0);
	CU_ASSERT_EQUAL(n_sent, 0); /* with the next repetition */
	let_silence_pass(1000);
	CU_ASSERT_EQUAL(n_sent, n);
	CU_ASSERT_NOT_EQUAL(sent_hdr(0)->msg_seq, seq);
	deliver_accepted(slot, KVR_STATE_DISPATCHED);
	seq = sent_hdr(0)->msg_seq;
	deliver_rejected(slot, KVR_ROUTE, KVR_E_UNKNOWN_REQUEST, 0); /* PROBE will show the state */
	CU_ASSERT_EQUAL(n_sent, 0);
	load.slots[slot].handle++;
	deliver_rejected(slot, KVR_PROBE, KVR_E_UNKNOWN_REQUEST, 0);
	CU_ASSERT_EQUAL(n_sent, n); /* at once */
	CU_ASSERT_NOT_EQUAL(sent_hdr(0)->msg_seq, seq);
	CU_ASSERT_EQUAL(sent_hdr(0)->handle, 0);
	CU_ASSERT_EQUAL(load.slots[slot].cstate, LOAD_C_ROUTED);
	end_test();
}

static void last_items_of_an_ended_answer_are_accepted(void)
{
	const struct kvr_wire_response last = {.seq = 0, .flags = KVR_RESP_F_FIN};

	for (uint32_t comes = 0; comes < 2; comes++) {
		uint32_t slot;

		BEGIN((char *)"--items", (char *)"2");
		slot = start_request();
		deliver_accepted(slot, KVR_STATE_RUNNING);
		deliver_rejected(slot, KVR_PROBE, KVR_E_ENDED, 0);
		let_silence_pass(2000);
		CU_ASSERT_EQUAL(n_sent, 0); /* no PROBE */
		CU_ASSERT_EQUAL(counter_value(LOAD_FAILED) + counter_value(LOAD_LOST), 0);
		if (comes)
			load_client_item(&load, slot, &last, load.now);
		let_silence_pass(3000);
		CU_ASSERT_EQUAL(counter_value(LOAD_COMPLETED), comes);
		CU_ASSERT_EQUAL(counter_value(LOAD_LOST), 1 - comes);
		end_test();
	}
}

static void a_cookie_is_sent_once(void)
{
	uint32_t slot;

	BEGIN((char *)"--items", (char *)"2");
	slot = start_request();
	deliver_rejected(slot, KVR_ROUTE, KVR_E_COOKIE, 4711);
	CU_ASSERT_EQUAL_FATAL(n_sent, 1);
	CU_ASSERT_EQUAL(((const struct kvr_wire_request *)(sent_hdr(0) + 1))->worker, 4711);
	deliver_rejected(slot, KVR_ROUTE, KVR_E_COOKIE, 4711);
	CU_ASSERT_EQUAL(n_sent, 0);
	end_test();
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"client's pieces", a_client_sends_the_pieces_that_missing_names},
		KVR_CASE(missing_for_another_message_is_ignored),
		KVR_CASE(a_lost_dispatch_of_several_frames_is_another_message),
		KVR_CASE(a_long_route_leaves_64_frames_a_millisecond),
		KVR_CASE(an_ended_request_sends_no_further_fragments),
		KVR_CASE(every_piece_has_the_tokens_of_the_prompt),
		KVR_CASE(a_repetition_replaces_lost_fragments),
		KVR_CASE(a_rejection_counts_in_the_states_of_its_table),
		KVR_CASE(busy_for_one_of_several_copies_cancels_the_request),
		KVR_CASE(a_request_unknown_to_the_router_starts_over),
		KVR_CASE(last_items_of_an_ended_answer_are_accepted),
		KVR_CASE(a_cookie_is_sent_once),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("load client", tests);
}
