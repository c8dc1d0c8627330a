/* SPDX-License-Identifier: BSD-3-Clause */
/* What simulated clients do: ROUTE in pieces, refusals. */
#include "rig.h"

/* What the router lacks of the ROUTE that was sent as @p like. */
static void missing(uint32_t slot, const struct kvr_wire_hdr *like, uint32_t first,
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

/* Number of the fragment that was sent as number @p i. */
static uint32_t piece(uint32_t i, uint32_t unit)
{
	return ((const struct kvr_wire_hdr *)sent[i].bytes)->frag_off / unit;
}

static void the_client_sends_the_pieces_the_router_lacks(void)
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
	load_checks(&load); /* nobody has answered: the first piece, and it alone */
	CU_ASSERT_EQUAL_FATAL(n_sent, 1);
	CU_ASSERT_EQUAL(piece(0, like.frag_len), 0);
	CU_ASSERT_EQUAL(((const struct kvr_wire_hdr *)sent[0].bytes)->msg_seq, like.msg_seq);
	CU_ASSERT_EQUAL(count(LOAD_ROUTE_REPEATS), 1);
	missing(slot, &like, 0, some, 2);
	CU_ASSERT_EQUAL_FATAL(n_sent, 3);
	CU_ASSERT_EQUAL(piece(0, like.frag_len), 3);
	CU_ASSERT_EQUAL(piece(1, like.frag_len), 63);
	CU_ASSERT_EQUAL(piece(2, like.frag_len), 64);
	memcpy(again, sent[0].bytes, sent[0].len);
	CU_ASSERT_EQUAL(memcmp(first, again, sent[0].len), 0); /* the bytes of the first copy */
	load.now += SECOND / 200;
	missing(slot, &like, 64, some + 1, 1);
	CU_ASSERT_EQUAL_FATAL(n_sent, 1);
	CU_ASSERT_EQUAL(piece(0, like.frag_len), 64);
	load.now += SECOND / 200;
	missing(slot, &like, 0, all, 2); /* no more than a millisecond's worth at once */
	CU_ASSERT_EQUAL(n_sent, 64);
	CU_ASSERT_EQUAL(piece(63, like.frag_len), 64);
	CU_ASSERT_EQUAL(count(LOAD_PIECES_AGAIN), 3 + 1 + 64);
	CU_ASSERT_EQUAL(load.slots[slot].tries, 0); /* somebody is there */
	end();
}

static void missing_about_another_message_changes_nothing(void)
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
		missing(slot, &wrong, 0, all, 1);
		CU_ASSERT_EQUAL(n_sent, 0);
	}
	CU_ASSERT_EQUAL(count(LOAD_STALE), 3);
	missing(slot, &like, 0, NULL, 0); /* no words: no message of ours */
	CU_ASSERT_EQUAL(n_sent, 0);
	CU_ASSERT_EQUAL(count(LOAD_BAD_FRAMES), 1);
	conclude(slot, (struct kvr_wire_accepted){.state = KVR_STATE_RUNNING});
	missing(slot, &like, 0, all, 1); /* it has been answered */
	CU_ASSERT_EQUAL(n_sent, 0);
	end();
}

/* The router has put it together and does not keep it: only another message is put together again.
 */
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
	for (int i = 0; i < 3; i++) { /* accepted; PROBEd, with and without the router's copy */
		a.flags = (uint16_t)(i == 2 ? 0 : KVR_ACC_F_KEPT);
		if (i != 0)
			load.slots[slot].flags |= LOAD_S_PROBED;
		n_sent = 0;
		kvr_put_accepted(frame, sizeof(frame), &ids, &a);
		load_client_frame(&load, (const struct kvr_wire_hdr *)frame, load.now);
		CU_ASSERT_EQUAL(n_sent, i == 2 ? n : 0);
	}
	CU_ASSERT_NOT_EQUAL(((const struct kvr_wire_hdr *)sent[0].bytes)->msg_seq, like.msg_seq);
	end();
}

/* The ROUTE of the first turn; what it sent is kept. */
static uint32_t start(void)
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
	const uint64_t lacks[3] = {3, 0, 2}; /* 0 and 1, sent; 129, not yet */
	struct kvr_wire_hdr like;
	uint32_t slot, n;

	BEGIN((char *)"--body-bytes", (char *)"250000");
	slot = start();
	memcpy(&like, sent[0].bytes, sizeof(like));
	n = (like.msg_len + like.frag_len - 1) / like.frag_len;
	CU_ASSERT_TRUE_FATAL(n > 128 && n < 192);
	CU_ASSERT_EQUAL(n_sent, 64);
	load.now += SECOND / 1000 - 1;
	load_routes_continue(&load);
	missing(slot, &like, 0, lacks, 3); /* what is sent again counts, too */
	CU_ASSERT_EQUAL(n_sent, 0);
	load.now++;
	missing(slot, &like, 0, lacks, 3);
	CU_ASSERT_EQUAL(n_sent, 2);
	load_routes_continue(&load);
	CU_ASSERT_EQUAL_FATAL(n_sent, 64);
	CU_ASSERT_EQUAL(piece(2, like.frag_len), 64);
	CU_ASSERT_EQUAL(piece(63, like.frag_len), 125);
	n_sent = 0;
	load.now += 2 * SECOND; /* nobody asks again as long as it is not all out */
	load_checks(&load);
	CU_ASSERT_EQUAL(n_sent, 0);
	load_routes_continue(&load);
	CU_ASSERT_EQUAL_FATAL(n_sent, n - 126);
	CU_ASSERT_EQUAL(piece(n_sent - 1, like.frag_len), n - 1);
	load.now += (uint64_t)(opt.repeat_ms * 1e6) - 1;
	load_checks(&load);
	CU_ASSERT_EQUAL(count(LOAD_ROUTE_REPEATS), 0); /* the timer starts with the last one */
	load.now += SECOND;
	load_checks(&load);
	CU_ASSERT_EQUAL(count(LOAD_ROUTE_REPEATS), 1);
	end();
}

/* The request ends, another one takes its slot: what is left of the first is not sent. */
static void an_ended_request_sends_no_more_of_its_route(void)
{
	uint32_t slot, n;

	BEGIN((char *)"--body-bytes", (char *)"120000");
	slot = start();
	n = (sent_hdr(0)->msg_len + sent_hdr(0)->frag_len - 1) / sent_hdr(0)->frag_len;
	load_client_lost(&load, slot);
	CU_ASSERT_EQUAL_FATAL(load.free[load.n_free - 1], slot);
	load.now += SECOND / 2000;
	CU_ASSERT_EQUAL(start(), slot);
	CU_ASSERT_EQUAL(n_sent, 64);
	CU_ASSERT_EQUAL(load.pace_n, 1); /* room for one of each slot */
	load.now += SECOND / 2000;
	load_routes_continue(&load); /* a millisecond of the first one, not of this one */
	CU_ASSERT_EQUAL(n_sent, 64);
	load.now += SECOND / 2000;
	load_routes_continue(&load);
	CU_ASSERT_EQUAL(n_sent, n);
	load.now += SECOND;
	load_routes_continue(&load);
	CU_ASSERT_EQUAL(n_sent, n);
	end();
}

/* They are made frame by frame. */
static void tokens_are_those_of_the_prompt_in_every_piece(void)
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
	memset(load.tokens, 0xee, load.slots[slot].prompt->isl * 4); /* another request's */
	missing(slot, &like, 0, third, 1);
	CU_ASSERT_EQUAL_FATAL(n_sent, 1);
	CU_ASSERT_EQUAL(
		memcmp(sent_hdr(0) + 1, body + sent_hdr(0)->frag_off, sent_hdr(0)->frag_len), 0);
	end();
}

/* ---- refusals ---- */

/* REJECTED of what the slot has sent; what it answers is kept. */
static void refuse(uint32_t slot, uint8_t kind, uint16_t code, uint64_t detail)
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

static void accepted(uint32_t slot, uint8_t state)
{
	const struct kvr_wire_ids ids = {load.clients[load.slots[slot].client].source,
					 load.slots[slot].id, 78, 1, 1};
	const struct kvr_wire_accepted a = {.state = state};
	uint8_t frame[256];

	kvr_put_accepted(frame, sizeof(frame), &ids, &a);
	load_client_frame(&load, (const struct kvr_wire_hdr *)frame, load.now);
}

static void silence(uint64_t ms)
{
	load.now += ms * (SECOND / 1000);
	n_sent = 0;
	load_checks(&load);
}

static void what_repeats_makes_up_for_goes_on(void)
{
	uint32_t slot;

	BEGIN((char *)"--body-bytes", (char *)"12000");
	slot = start();
	refuse(slot, KVR_ROUTE, KVR_E_REASSEMBLY_FULL, 0);
	CU_ASSERT_EQUAL(load.slots[slot].cstate, LOAD_C_ROUTED);
	CU_ASSERT_EQUAL(n_sent, 0);
	silence(1000);
	CU_ASSERT_PTR_NOT_NULL(find(KVR_ROUTE, 0));
	CU_ASSERT_EQUAL(count(LOAD_FAILED), 0);
	conclude(slot, (struct kvr_wire_accepted){.state = KVR_STATE_RUNNING});
	CU_ASSERT_EQUAL(count(LOAD_COMPLETED), 1);
	end();
}

static void a_refusal_counts_where_it_matters(void)
{
	static const struct {
		uint16_t code;
		uint8_t kind;
		bool sent, waits; /* it ends in SENT, in WAIT */
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
			slot = start();
			if (waits)
				accepted(slot, KVR_STATE_RUNNING);
			refuse(slot, rows[i].kind, rows[i].code, 0);
			CU_ASSERT_EQUAL(count(LOAD_FAILED), waits ? rows[i].waits : rows[i].sent);
			CU_ASSERT_EQUAL(load.m->code[rows[i].code], count(LOAD_FAILED));
			CU_ASSERT_PTR_NULL(find(KVR_CANCEL, 0));
			end();
		}
}

static void one_copy_of_several_may_live(void)
{
	uint32_t slot;

	BEGIN((char *)"--items", (char *)"2");
	slot = start();
	silence(1000);
	CU_ASSERT_EQUAL(count(LOAD_ROUTE_REPEATS), 1);
	refuse(slot, KVR_ROUTE, KVR_E_BUSY, 0);
	CU_ASSERT_PTR_NOT_NULL(find(KVR_CANCEL, 0));
	CU_ASSERT_EQUAL(count(LOAD_FAILED), 0);
	refuse(slot, KVR_CANCEL, KVR_E_BUSY, 0); /* again, later */
	CU_ASSERT_EQUAL(load.slots[slot].cstate, LOAD_C_CANCELLING);
	silence(1000);
	CU_ASSERT_PTR_NOT_NULL(find(KVR_CANCEL, 0));
	refuse(slot, KVR_CANCEL, KVR_E_ENDED, 0);
	CU_ASSERT_EQUAL(count(LOAD_FAILED), 1);
	CU_ASSERT_EQUAL(count(LOAD_CANCELLED), 0);
	CU_ASSERT_EQUAL(load.m->code[KVR_E_BUSY], 1);
	end();
}

static void what_the_router_has_lost_starts_over(void)
{
	uint32_t slot, n, seq;

	BEGIN((char *)"--body-bytes", (char *)"12000");
	slot = start();
	n = n_sent;
	seq = sent_hdr(0)->msg_seq;
	refuse(slot, KVR_ROUTE, KVR_E_UNKNOWN_REQUEST, 0);
	CU_ASSERT_EQUAL(n_sent, 0); /* with the next repetition */
	silence(1000);
	CU_ASSERT_EQUAL(n_sent, n);
	CU_ASSERT_NOT_EQUAL(sent_hdr(0)->msg_seq, seq);
	accepted(slot, KVR_STATE_DISPATCHED);
	seq = sent_hdr(0)->msg_seq;
	refuse(slot, KVR_ROUTE, KVR_E_UNKNOWN_REQUEST, 0); /* PROBE will tell */
	CU_ASSERT_EQUAL(n_sent, 0);
	load.slots[slot].handle++;
	refuse(slot, KVR_PROBE, KVR_E_UNKNOWN_REQUEST, 0);
	CU_ASSERT_EQUAL(n_sent, n); /* at once */
	CU_ASSERT_NOT_EQUAL(sent_hdr(0)->msg_seq, seq);
	CU_ASSERT_EQUAL(sent_hdr(0)->handle, 0);
	CU_ASSERT_EQUAL(load.slots[slot].cstate, LOAD_C_ROUTED);
	end();
}

static void an_answer_that_has_ended_may_still_come(void)
{
	const struct kvr_wire_response last = {.seq = 0, .flags = KVR_RESP_F_FIN};

	for (uint32_t comes = 0; comes < 2; comes++) {
		uint32_t slot;

		BEGIN((char *)"--items", (char *)"2");
		slot = start();
		accepted(slot, KVR_STATE_RUNNING);
		refuse(slot, KVR_PROBE, KVR_E_ENDED, 0);
		silence(2000);
		CU_ASSERT_EQUAL(n_sent, 0); /* no PROBE */
		CU_ASSERT_EQUAL(count(LOAD_FAILED) + count(LOAD_LOST), 0);
		if (comes)
			load_client_item(&load, slot, &last, load.now);
		silence(3000);
		CU_ASSERT_EQUAL(count(LOAD_COMPLETED), comes);
		CU_ASSERT_EQUAL(count(LOAD_LOST), 1 - comes);
		end();
	}
}

static void a_cookie_is_shown_once(void)
{
	uint32_t slot;

	BEGIN((char *)"--items", (char *)"2");
	slot = start();
	refuse(slot, KVR_ROUTE, KVR_E_COOKIE, 4711);
	CU_ASSERT_EQUAL_FATAL(n_sent, 1);
	CU_ASSERT_EQUAL(((const struct kvr_wire_request *)(sent_hdr(0) + 1))->worker, 4711);
	refuse(slot, KVR_ROUTE, KVR_E_COOKIE, 4711);
	CU_ASSERT_EQUAL(n_sent, 0);
	end();
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"client's pieces", the_client_sends_the_pieces_the_router_lacks},
		{"other missing", missing_about_another_message_changes_nothing},
		{"dispatch lost", a_lost_dispatch_of_several_frames_is_another_message},
		{"pace", a_long_route_leaves_64_frames_a_millisecond},
		{"ended", an_ended_request_sends_no_more_of_its_route},
		{"tokens", tokens_are_those_of_the_prompt_in_every_piece},
		{"repeat", what_repeats_makes_up_for_goes_on},
		{"matters", a_refusal_counts_where_it_matters},
		{"busy", one_copy_of_several_may_live},
		{"starts over", what_the_router_has_lost_starts_over},
		{"linger", an_answer_that_has_ended_may_still_come},
		{"cookie", a_cookie_is_shown_once},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("load client", tests);
}
