/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_rig.h"
#include "kvr_reason.h"

/* --- connect --- */

static void connect_is_retransmitted_until_answered(void)
{
	const struct kvr_wire_hdr *h;
	const struct kvr_client_pool *p;
	uint32_t n, seq;

	rig_start();
	CU_ASSERT_EQUAL(kvr_client_pool_lookup(c, "qwen"), -ENOTCONN);
	kvr_client_connect(c);
	kvr_client_process(c);
	h = fake_next(&net, KVR_CONNECT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	seq = h->msg_seq;
	rig_run_ms(99);
	CU_ASSERT_PTR_NULL(fake_next(&net, KVR_CONNECT));
	rig_run_ms(1);
	h = fake_next(&net, KVR_CONNECT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT_EQUAL(h->msg_seq, seq); /* the same bytes */
	rig_run_ms(200);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_CONNECT), 1);
	push_connected(h->id, 77);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.connects, 1);
	CU_ASSERT_EQUAL(saw.connect_status, 0);
	p = kvr_client_pools(c, &n);
	CU_ASSERT_EQUAL_FATAL(n, 2);
	CU_ASSERT_STRING_EQUAL(p[1].name, "qwen");
	CU_ASSERT_EQUAL(p[1].block_size, 64);
	CU_ASSERT_EQUAL(kvr_client_pool_lookup(c, "qwen"), 7);
	CU_ASSERT_EQUAL(kvr_client_pool_lookup(c, "gpt"), -ENOENT);
	fake_skip(&net);
	rig_run_ms(5000);
	CU_ASSERT_EQUAL(net.n_out, 0);
	rig_stop();
}

static void connect_times_out_or_is_rejected(void)
{
	const struct kvr_wire_hdr *h;

	rig_start();
	kvr_client_connect(c);
	rig_run_ms(7000);
	CU_ASSERT_EQUAL(saw.connects, 1);
	CU_ASSERT_EQUAL(saw.connect_status, -ETIMEDOUT);
	/* 0, 0.1, 0.3, 0.7, 1.5, 2.5, 3.5, 4.5 s */
	CU_ASSERT_EQUAL(fake_count(&net, KVR_CONNECT), 8);
	fake_skip(&net);
	kvr_client_connect(c);
	kvr_client_process(c);
	h = fake_next(&net, KVR_CONNECT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	push_rejected(h->id, KVR_E_NOT_ALLOWED, KVR_CONNECT, "no");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.connect_status, -EACCES);
	rig_stop();
}

static void a_new_epoch_of_the_router_refreshes_the_pools(void)
{
	const struct kvr_wire_hdr *h;
	uint64_t id;

	rig_start();
	kvr_client_connect(c);
	kvr_client_process(c);
	h = fake_next(&net, KVR_CONNECT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	push_connected(h->id, 76);
	kvr_client_process(c);
	id = rig_submit(0);
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 1); /* has epoch 77 */
	kvr_client_process(c);
	kvr_client_process(c);
	h = fake_next(&net, KVR_CONNECT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	push_connected(h->id, 77);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.connects, 1); /* not requested by the user: not reported */
	rig_stop();
}

/* --- route --- */

static void route_carries_the_request(void)
{
	const uint64_t hashes[] = {11, 12};
	const char body[] = "hello";
	struct kvr_client_hints *hints = kvr_client_hints_create();
	struct kvr_client_request q = {.pool = 9,
				       .tokens = prompt,
				       .n_tokens = 3,
				       .hashes = hashes,
				       .n_hashes = 2,
				       .max_tokens = 50,
				       .queue_ms = 900,
				       .flags = KVR_CLIENT_DIRECT | KVR_CLIENT_EAGLE,
				       .body = body,
				       .body_len = 5,
				       .hints = hints,
				       .ops = &rig_ops};
	const struct kvr_wire_hdr *h;
	struct kvr_message r;
	uint64_t id;

	rig_start();
	CU_ASSERT_EQUAL(kvr_client_hint_lora(hints, "ad"), 0);
	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(c, &q, &id), 0);
	CU_ASSERT_EQUAL(net.n_out, 0); /* submit itself sends nothing */
	CU_ASSERT_EQUAL(kvr_client_timeout_ms(c), 0);
	kvr_client_process(c);
	h = fake_next(&net, KVR_ROUTE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT(kvr_udp_addr_equal(fake_to(&net), &router_at));
	CU_ASSERT_EQUAL(h->source, SOURCE);
	CU_ASSERT_EQUAL(h->id, id);
	CU_ASSERT_EQUAL(kvr_body_check(KVR_ROUTE, kvr_frame_body(h), h->msg_len, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(kvr_request_parse(kvr_frame_body(h), h->msg_len, KVR_ROUTE, &r), 0);
	CU_ASSERT_EQUAL(r.fixed.pool, 9);
	CU_ASSERT_EQUAL(r.fixed.flags, KVR_REQ_F_DIRECT | KVR_REQ_F_EAGLE);
	CU_ASSERT_EQUAL(r.fixed.isl, 3);
	CU_ASSERT_EQUAL(r.fixed.max_tokens, 50);
	CU_ASSERT_EQUAL(r.fixed.expected_output_tokens, KVR_NONE32);
	CU_ASSERT_EQUAL(r.fixed.deadline_ms, 900);
	CU_ASSERT_EQUAL(memcmp(r.hashes, hashes, 16), 0);
	CU_ASSERT_EQUAL(memcmp(r.tokens, prompt, 12), 0);
	CU_ASSERT_EQUAL(memcmp(r.body, "hello", 5), 0);
	CU_ASSERT_EQUAL(r.fixed.hints_len, 8);
	kvr_client_hints_destroy(hints);
	rig_stop();
}

/* A prompt that could not be tokenised: its length is used for the load. */
static void route_without_tokens_and_hashes_has_a_length(void)
{
	const struct kvr_client_request q = {.pool = 9, .isl = 300, .ops = &rig_ops};
	const struct kvr_wire_hdr *h;
	struct kvr_message r;
	uint64_t id;

	rig_start();
	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(c, &q, &id), 0);
	kvr_client_process(c);
	h = fake_next(&net, KVR_ROUTE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT_EQUAL_FATAL(kvr_request_parse(kvr_frame_body(h), h->msg_len, KVR_ROUTE, &r), 0);
	CU_ASSERT_EQUAL(r.fixed.isl, 300);
	CU_ASSERT_EQUAL(r.fixed.n_tokens + r.fixed.n_hashes, 0);
	rig_stop();
}

static void route_is_resent_with_the_flag_until_answered(void)
{
	/* 20 ms doubling to 1 s, counted from the first copy */
	static const uint32_t gap_ms[] = {20, 40, 80, 160, 320, 640, 1000, 1000};
	const struct kvr_wire_hdr *h;
	uint32_t seq;
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	h = fake_next(&net, KVR_ROUTE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	seq = h->msg_seq;
	for (unsigned int i = 0; i < 8; i++) {
		const struct kvr_wire_request *w;

		rig_run_ms(gap_ms[i] - 1);
		CU_ASSERT_PTR_NULL(fake_next(&net, KVR_ROUTE));
		rig_run_ms(1);
		h = fake_next(&net, KVR_ROUTE);
		CU_ASSERT_PTR_NOT_NULL_FATAL(h);
		w = kvr_frame_body(h);
		CU_ASSERT_EQUAL(w->flags, KVR_REQ_F_RESEND);
		CU_ASSERT_EQUAL(h->msg_seq,
				seq); /* fragments of different copies complete each other */
	}
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 42);
	fake_skip(&net);
	rig_run_ms(249);
	CU_ASSERT_EQUAL(net.n_out, 0);
	CU_ASSERT_EQUAL(saw.accepted, 1);
	CU_ASSERT_EQUAL(saw.choice.worker, 42);
	CU_ASSERT_EQUAL(saw.choice.overlap_blocks, 5);
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 42); /* a duplicate has no effect */
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.accepted, 1);
	rig_stop();
}

static void a_query_ends_with_its_answer(void)
{
	uint64_t id;

	rig_start();
	id = rig_submit(KVR_CLIENT_QUERY);
	push_item(id, 0, KVR_RESP_F_FIN, "x");		  /* a query has no items */
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 42); /* and does not run */
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends + saw.items + saw.accepted, 0);
	push_accepted(id, 0, KVR_STATE_QUERY, 42);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.accepted, 1);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_QUERIED);
	CU_ASSERT_EQUAL(kvr_client_in_flight(c), 0);
	rig_stop();
}

static void a_rejection_ends_with_code_and_text(void)
{
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	push_rejected(id + 1, KVR_E_BUSY, KVR_ROUTE, "other slot");
	push_rejected(id + (1ull << 32), KVR_E_BUSY, KVR_ROUTE, "other use of the slot");
	push_rejected(id, KVR_E_UNKNOWN_REQUEST, KVR_RESPONSE_ACK, "not about the request");
	kvr_client_process(c);
	push_rejected(id, KVR_E_REASSEMBLY_FULL, KVR_ROUTE, "a fragment: repeating repairs it");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 0);
	push_rejected(id, KVR_E_NO_ENDPOINTS, KVR_ROUTE, "no worker");
	push_rejected(id, KVR_E_NO_ENDPOINTS, KVR_ROUTE, "no worker"); /* passed */
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_REJECTED);
	CU_ASSERT_EQUAL(saw.end.code, KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(saw.end.detail[0], 7);
	CU_ASSERT_STRING_EQUAL(saw.text, "no worker");
	CU_ASSERT_STRING_EQUAL(kvr_code_name(saw.end.code), "NoEndpoints");
	rig_stop();
}

static const char *rejection_text = "text";

static const char *check_explanation(uint16_t code, uint64_t d0, uint64_t d1, uint64_t d2)
{
	static char line[200];
	const struct kvr_client_end e = {.reason = KVR_CLIENT_REJECTED,
					 .code = code,
					 .detail = {d0, d1, d2},
					 .text = rejection_text};

	CU_ASSERT_EQUAL(kvr_client_explain(&e, line, sizeof(line)), (int)strlen(line));
	return line;
}

static void a_rejection_is_explained_with_its_numbers(void)
{
	CU_ASSERT_STRING_EQUAL(
		check_explanation(KVR_E_PROMPT_TOO_LONG, 9000, 4096, 16),
		"PromptTooLong: the prompt has 9000 blocks of 16 tokens, the pool accepts 4096 blocks");
	CU_ASSERT_STRING_EQUAL(check_explanation(KVR_E_UNKNOWN_POOL, 9, 2, 0),
			       "UnknownPool: pool 9, but the router has 2 pools; text");
	CU_ASSERT_STRING_EQUAL(
		check_explanation(KVR_E_NO_ENDPOINTS, 3, 6, 0),
		"NoEndpoints: the pool has 3 workers with 6 ranks, all draining or unresponsive");
	CU_ASSERT_STRING_EQUAL(
		check_explanation(KVR_E_NO_ENDPOINTS, 3, 6, 2),
		"NoEndpoints: the pool has 3 workers with 6 ranks, but pins, allowed workers or taints of the request exclude all");
	CU_ASSERT_STRING_EQUAL(check_explanation(KVR_E_NO_ENDPOINTS, 0, 0, 0),
			       "NoEndpoints: the pool has no worker");
	CU_ASSERT_STRING_EQUAL(check_explanation(KVR_E_QUEUE_REJECTED, 1, 20, 16),
			       "QueueRejected: text");
	rejection_text =
		kvr_code_text(KVR_E_QUEUE_REJECTED); /* the text of the router was truncated */
	CU_ASSERT_STRING_EQUAL(check_explanation(KVR_E_QUEUE_REJECTED, 1, 20, 16),
			       "QueueRejected: the queue is at a limit (1, 20, 16)");
	rejection_text = "text";
	CU_ASSERT_STRING_EQUAL(check_explanation(KVR_E_BUSY, 0, 0, 0), "Busy: text");
}

static void a_queued_request_is_probed_until_sent(void)
{
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	push_accepted(id, 0, KVR_STATE_QUEUED, 0);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.queued, 1);
	CU_ASSERT_EQUAL(saw.accepted, 0);
	fake_skip(&net);
	rig_run_ms(250);
	CU_ASSERT_PTR_NOT_NULL(fake_next(&net, KVR_PROBE));
	push_accepted(id, 0, KVR_STATE_QUEUED, 0);
	rig_run_ms(499);
	CU_ASSERT_PTR_NULL(fake_next(&net, KVR_PROBE));
	rig_run_ms(1);
	CU_ASSERT_PTR_NOT_NULL(fake_next(&net, KVR_PROBE));
	CU_ASSERT_EQUAL(saw.queued, 1);
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 6);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.accepted, 1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 0);
	rig_stop();
}

static void an_unacknowledged_dispatch_is_retransmitted(void)
{
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 6);
	kvr_client_process(c);
	fake_skip(&net);
	rig_run_ms(250);
	CU_ASSERT_PTR_NOT_NULL(fake_next(&net, KVR_PROBE));
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 0);
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 6);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 1);
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 6);
	kvr_client_process(c);
	fake_skip(&net);
	rig_run_ms(200);
	CU_ASSERT_EQUAL(net.n_out, 0); /* running: only waits, with rare PROBEs */
	rig_run_ms(100);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_PROBE), 1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 0);
	rig_stop();
}

/* One ROUTE for each answered PROBE, at growing intervals. */
static void retransmission_slows_down_without_change(void)
{
	static const uint32_t gap_ms[] = {250, 500, 1000, 2000, 2000};
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 6);
	kvr_client_process(c);
	for (unsigned int i = 0; i < RTE_DIM(gap_ms); i++) {
		fake_skip(&net);
		rig_run_ms(gap_ms[i] - 1);
		CU_ASSERT_EQUAL(net.n_out, 0);
		rig_run_ms(1);
		CU_ASSERT_EQUAL(fake_count(&net, KVR_PROBE), 1);
		for (int k = 0; k < 50;
		     k++) { /* ROUTE is answered, too; each answer may come twice */
			push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 6);
			kvr_client_process(c);
		}
		CU_ASSERT_EQUAL(fake_count(&net, KVR_PROBE), 1);
		CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 1);
	}
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 6); /* a change: intervals start again */
	kvr_client_process(c);
	fake_skip(&net);
	rig_run_ms(250);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_PROBE), 1);
	rig_stop();
}

static uint64_t cookie_of(const struct kvr_wire_hdr *h)
{
	return h == NULL ? 0 : ((const struct kvr_wire_request *)kvr_frame_body(h))->worker;
}

/* detail[0] of push_rejected() is 7, used as the cookie. */
static void a_cookie_is_sent_at_once_and_afterwards(void)
{
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	CU_ASSERT_EQUAL(cookie_of(fake_next(&net, KVR_ROUTE)), 0);
	push_rejected(id, KVR_E_COOKIE, KVR_ROUTE, "");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(cookie_of(fake_next(&net, KVR_ROUTE)), 7);
	push_rejected(id, KVR_E_COOKIE, KVR_ROUTE, ""); /* for the previous copy: no effect */
	kvr_client_process(c);
	CU_ASSERT_PTR_NULL(fake_next(&net, KVR_ROUTE));
	CU_ASSERT_EQUAL(saw.ends, 0);
	rig_submit(0);
	CU_ASSERT_EQUAL(cookie_of(fake_next(&net, KVR_ROUTE)), 7);
	rig_stop();
}

static void a_router_that_lost_the_request_gets_it_again(void)
{
	uint64_t id;

	rig_start();
	id = rig_submit(0);
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 6);
	rig_run_ms(251);
	fake_skip(&net);
	push_rejected(id, KVR_E_UNKNOWN_REQUEST, KVR_PROBE, "who");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), 1);
	CU_ASSERT_EQUAL(saw.ends, 0);
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 6); /* late, with the previous epoch */
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.accepted, 1);
	push_accepted(id, HANDLE + 1, KVR_STATE_RUNNING, 8);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.accepted, 2);
	CU_ASSERT_EQUAL(saw.choice.worker, 8);
	rig_stop();
}

static void an_unresponsive_router_ends_a_request(void)
{
	rig_start();
	rig_submit(0);
	rig_run_ms(14000);
	CU_ASSERT_EQUAL(saw.ends, 0);
	rig_run_ms(3000);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_SILENT);
	CU_ASSERT_EQUAL(kvr_client_timeout_ms(c), -1);
	rig_stop();
}

/* Start a large request whose frames were all sent once. @return its id. */
static uint64_t start_large_request(struct kvr_wire_missing *m)
{
	static uint32_t tokens[4000]; /* 16,088 bytes: 12 frames */
	const struct kvr_client_request q = {.tokens = tokens, .n_tokens = 4000, .ops = &rig_ops};
	const struct kvr_wire_hdr *h;
	uint64_t id;

	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(c, &q, &id), 0);
	rig_run_ms(1);
	CU_ASSERT_EQUAL_FATAL(fake_count(&net, KVR_ROUTE), 12);
	h = fake_next(&net, KVR_ROUTE);
	*m = (struct kvr_wire_missing){.kind = KVR_ROUTE,
				       .n_words = 1,
				       .msg_seq = h->msg_seq,
				       .msg_len = h->msg_len,
				       .unit = h->frag_len};
	fake_skip(&net);
	return id;
}

static void push_missing(uint64_t id, const struct kvr_wire_missing *m, uint64_t word)
{
	const struct kvr_wire_ids ids = ids_of(id, 0);

	fake_push(&net, router_at,
		  kvr_put_message(fake_slot(&net), 1984, KVR_MISSING, &ids,
				  (struct kvr_slice){m, sizeof(*m)},
				  (struct kvr_slice){&word, sizeof(word)}));
}

static void only_missing_fragments_are_retransmitted(void)
{
	const struct kvr_wire_hdr *h;
	struct kvr_wire_missing m, other;
	unsigned int sent;
	uint64_t id;

	rig_start();
	id = start_large_request(&m);
	push_missing(id, &m, 1 << 3 | 1 << 11);
	rig_run_ms(1);
	h = fake_next(&net, KVR_ROUTE);
	CU_ASSERT_EQUAL_FATAL(h->frag_off, 3 * m.unit);
	CU_ASSERT_EQUAL(h->msg_seq, m.msg_seq);
	h = fake_next(&net, KVR_ROUTE);
	CU_ASSERT_EQUAL_FATAL(h->frag_off, 11 * m.unit);
	CU_ASSERT_PTR_NULL(fake_next(&net, KVR_ROUTE));
	/* About another message: no effect. */
	other = m;
	other.msg_seq++;
	push_missing(id, &other, 1);
	rig_run_ms(1);
	CU_ASSERT_PTR_NULL(fake_next(&net, KVR_ROUTE));
	/* No answer: the first fragment alone, after 20 ms, 40 ms and so on. */
	sent = fake_count(&net, KVR_ROUTE);
	rig_run_ms(70);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), sent + 2);
	while ((h = fake_next(&net, KVR_ROUTE)) != NULL) {
		CU_ASSERT_EQUAL(h->frag_off, 0);
		CU_ASSERT_EQUAL(h->msg_seq, m.msg_seq);
		CU_ASSERT((((const struct kvr_wire_request *)(h + 1))->flags & KVR_REQ_F_RESEND) !=
			  0);
	}
	/* Nothing is sent while it runs. */
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 9);
	rig_run_ms(1);
	push_missing(id, &m, 1);
	rig_run_ms(1);
	CU_ASSERT_PTR_NULL(fake_next(&net, KVR_ROUTE));
	rig_stop();
}

/* The router, or the worker, lost the complete message: send another message. */
static void starting_over_uses_a_new_message_number(void)
{
	const struct kvr_wire_hdr *h;
	struct kvr_wire_missing m;
	uint32_t n = 0;
	uint64_t id;

	rig_start();
	id = start_large_request(&m);
	push_rejected(id, KVR_E_UNKNOWN_REQUEST, KVR_ROUTE, "");
	rig_run_ms(3);
	CU_ASSERT_PTR_NULL(
		fake_next(&net, KVR_ROUTE)); /* by the timer: see starting_over_is_no_storm() in
						test_client_refused.c */
	rig_run_ms(20);
	while ((h = fake_next(&net, KVR_ROUTE)) != NULL) {
		CU_ASSERT_NOT_EQUAL(h->msg_seq, m.msg_seq);
		n++;
	}
	CU_ASSERT_EQUAL(n, 12);
	rig_stop();
}

static void a_large_request_is_paced_and_complete(void)
{
	static uint32_t tokens[200000];
	const struct kvr_client_request q = {.tokens = tokens, .n_tokens = 200000, .ops = &rig_ops};
	const struct kvr_wire_hdr *h;
	static uint8_t got[88 + 800000];
	uint32_t bytes = 0;
	uint64_t id;

	for (uint32_t i = 0; i < 200000; i++)
		tokens[i] = i * 2654435761u;
	rig_start();
	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(c, &q, &id), 0);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(net.n_out, CLIENT_PACE_FRAMES);
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 1); /* about the first frame: continue */
	kvr_client_process(c);
	CU_ASSERT_EQUAL(kvr_client_timeout_ms(c), 1);
	CU_ASSERT_TRUE(kvr_client_timeout_strict(c)); /* a late step delays the message */
	rig_run_ms(10);
	CU_ASSERT_FALSE(kvr_client_timeout_strict(c)); /* waits for other messages */
	while ((h = fake_next(&net, KVR_ROUTE)) != NULL) {
		CU_ASSERT(h->frag_len + 48u <= 1432);
		CU_ASSERT_EQUAL_FATAL(h->msg_len, sizeof(got));
		CU_ASSERT_EQUAL_FATAL(h->frag_off, bytes);
		memcpy(got + h->frag_off, h + 1, h->frag_len);
		bytes += h->frag_len;
	}
	CU_ASSERT_EQUAL(bytes, sizeof(got));
	rig_run_ms(250); /* the worker has not acknowledged: retransmit at longer intervals */
	push_accepted(id, HANDLE, KVR_STATE_DISPATCHED, 1);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_ROUTE), CLIENT_PACE_FRAMES / 2);
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 1);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.accepted, 1);
	rig_stop();
}

static void submit_rejects_what_the_router_would_reject(void)
{
	const struct kvr_client_request good = {.tokens = prompt, .n_tokens = 4, .ops = &rig_ops};
	struct kvr_client_request q;
	uint64_t id = 5;

	rig_start_conf((struct kvr_client_conf){.max_requests = 2});
#define REFUSED(change, code)                                                                      \
	do {                                                                                       \
		q = good;                                                                          \
		change;                                                                            \
		CU_ASSERT_EQUAL(kvr_client_submit(c, &q, &id), code);                              \
		CU_ASSERT_EQUAL(id, 0);                                                            \
	} while (0)
	REFUSED(q.n_tokens = 0, -EINVAL);
	REFUSED(q.tokens = NULL, -EINVAL);
	REFUSED(q.isl = 3, -EINVAL);
	REFUSED(q.flags = 0x200, -EINVAL);
	REFUSED(q.flags = KVR_CLIENT_BOOK | KVR_CLIENT_QUERY, -EINVAL);
	REFUSED(q.flags = KVR_CLIENT_BOOK | KVR_CLIENT_DIRECT, -EINVAL);
	REFUSED(q.flags = KVR_CLIENT_BOOK | KVR_CLIENT_LOADS, -EINVAL);
	REFUSED(q.flags = KVR_CLIENT_QUERY | KVR_CLIENT_DIRECT, -EINVAL);
	REFUSED(q.body_len = 1, -EINVAL);
	REFUSED(q.n_tokens = KVR_WIRE_MAX_TOKENS + 1, -EMSGSIZE);
	REFUSED(q.pool_name = "llama", -ENOTCONN);
#undef REFUSED
	CU_ASSERT_EQUAL(kvr_client_submit(c, &good, &id), 0);
	CU_ASSERT_EQUAL(kvr_client_submit(c, &good, &id), 0);
	CU_ASSERT_EQUAL(kvr_client_in_flight(c), 2);
	CU_ASSERT_EQUAL(kvr_client_submit(c, &good, &id), -EBUSY);
	rig_stop();
	CU_ASSERT_EQUAL(saw.ends, 2);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_CLOSED);
}

static void invalid_configurations_are_errors(void)
{
	static const struct kvr_client_conf bad[] = {
		{0},
		{.router = "127.0.0.1", .frame_bytes = 100},
		{.router = "127.0.0.1", .frame_bytes = 9000},
		{.router = "127.0.0.1", .max_requests = 1u << 21},
		{.router = "127.0.0.1:x"},
		{.router = "127.0.0.1", .bind = "127.0.0.1:-4"},
	};

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		errno = 0;
		CU_ASSERT_PTR_NULL(kvr_client_create(&bad[i]));
		CU_ASSERT_EQUAL(errno, EINVAL);
	}
	kvr_client_destroy(NULL);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(connect_is_retransmitted_until_answered),
			       KVR_CASE(a_cookie_is_sent_at_once_and_afterwards),
			       KVR_CASE(connect_times_out_or_is_rejected),
			       KVR_CASE(a_new_epoch_of_the_router_refreshes_the_pools),
			       KVR_CASE(route_carries_the_request),
			       KVR_CASE(route_without_tokens_and_hashes_has_a_length),
			       KVR_CASE(route_is_resent_with_the_flag_until_answered),
			       KVR_CASE(a_query_ends_with_its_answer),
			       KVR_CASE(a_rejection_ends_with_code_and_text),
			       KVR_CASE(a_rejection_is_explained_with_its_numbers),
			       KVR_CASE(a_queued_request_is_probed_until_sent),
			       KVR_CASE(an_unacknowledged_dispatch_is_retransmitted),
			       KVR_CASE(retransmission_slows_down_without_change),
			       KVR_CASE(a_router_that_lost_the_request_gets_it_again),
			       KVR_CASE(an_unresponsive_router_ends_a_request),
			       KVR_CASE(only_missing_fragments_are_retransmitted),
			       KVR_CASE(starting_over_uses_a_new_message_number),
			       KVR_CASE(a_large_request_is_paced_and_complete),
			       KVR_CASE(submit_rejects_what_the_router_would_reject),
			       KVR_CASE(invalid_configurations_are_errors),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("client_route", tests);
}
