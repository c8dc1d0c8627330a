/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfer results of several frames: from the prefill agent through the router to the decode
 * agent, with all faults on the way.
 */
#include "pipeline.h"
#include "threads.h"

#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include <string.h>

#define PREFILL 21u /* worker ids */
#define DECODE	31u
#define PEER_P	2000u /* UDP ports of the agents */
#define PEER_D	3000u
#define CLIENT	77u
#define UNIT	1384u

#define PAIR                                                                                       \
	"[pool d]\nid = 5\nmodel = m\nrole = decode\n" PIPELINE_POOL                               \
	"[pool p]\nid = 6\nmodel = m\nrole = prefill\n" PIPELINE_POOL

/* A result at its agent. */
struct result {
	struct kvr_wire_ids ids;
	uint32_t len, n;
	uint8_t body[KVR_WIRE_MAX_RESPONSE + 8];
	uint32_t body_len;
};

static struct result res[2];
static uint8_t joined[KVR_WIRE_MAX_DISPATCH];

static bool join_result_worker(uint64_t id, const char *pool, uint32_t from, uint8_t role)
{
	return pipeline_hello_as(&(const struct pipeline_worker){
		.id = id, .epoch = 1, .pool = pool, .ranks = 2, .from = from, .role = role});
}

static void begin_results(void)
{
	pipeline_start_with(PAIR);
	CU_ASSERT_TRUE_FATAL(join_result_worker(PREFILL, "p", PEER_P, KVR_ROLE_PREFILL));
	CU_ASSERT_TRUE_FATAL(join_result_worker(DECODE, "d", PEER_D, KVR_ROLE_DECODE));
}

/* Check that nothing is left: no booking, no request, no frame. */
static void end_results(void)
{
	pipeline_turn();
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[1].sched)->booked_now, 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[0].pairs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[0].jobs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->small_bufs), 0);
	CU_ASSERT_EQUAL(rt->pool[0].live.held, 0);
	CU_ASSERT(pipeline_balanced());
	pipeline_flush();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	pipeline_stop();
}

/* The handle of a prefill leg that its agent has acknowledged. */
static uint64_t start_prefill(uint64_t id)
{
	const struct kvr_wire_dispatch_ack taken = {0};
	const struct out *o;
	struct kvr_wire_ids ids = {.source = CLIENT, .id = id, .epoch = 1};
	uint8_t buf[64];

	pipeline_route(id, 100 * id, 6, 0, NULL);
	o = pipeline_expect(PEER_P, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	ids.handle = o->hdr.handle;
	pipeline_send(PEER_P, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &taken));
	pipeline_turn();
	return ids.handle;
}

static void make_result(struct result *r, uint64_t id, uint64_t handle, uint32_t len,
			uint32_t msg_seq)
{
	const struct kvr_wire_response w = {.flags = KVR_RESP_F_FIN,
					    .generated_tokens = 1,
					    .data_len = len,
					    .cached_tokens = KVR_NONE32};

	r->ids = (struct kvr_wire_ids){
		.source = CLIENT, .id = id, .handle = handle, .epoch = 1, .msg_seq = msg_seq};
	r->len = len;
	r->body_len = (uint32_t)sizeof(w) + ((len + 7) & ~7u);
	r->n = (r->body_len + UNIT - 1) / UNIT;
	memset(r->body, 0, r->body_len);
	memcpy(r->body, &w, sizeof(w));
	for (uint32_t i = 0; i < len; i++)
		r->body[sizeof(w) + i] = (uint8_t)(i * 7 + i / 251 + id);
}

static void send_part(const struct result *r, uint32_t from, uint32_t k)
{
	uint8_t buf[KVR_WIRE_DEF_FRAME];
	struct kvr_frag f;
	uint32_t off, n;

	CU_ASSERT_EQUAL_FATAL(kvr_frag_init(&f, KVR_RESPONSE, &r->ids, r->body_len, 1432), 0);
	kvr_frag_seek(&f, k);
	CU_ASSERT_TRUE_FATAL(kvr_frag_next(&f, buf, &off, &n));
	memcpy(buf + 48, r->body + off, n);
	pipeline_send(from, buf, 48 + n);
}

/* Send fragments [a, b) in a shuffled order. */
static void send_parts(const struct result *r, uint32_t a, uint32_t b)
{
	for (uint32_t i = 0; i < b - a; i++) {
		send_part(r, PEER_P, a + (i * 389) % (b - a));
		if (i % 16 == 15)
			pipeline_turn();
	}
	pipeline_turn();
}

/* Fragments of incomplete results, on any lcore. */
static uint64_t count_partial_results(void)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < rt->n_lcores; i++)
		if (rt->lcore[i]->reasm != NULL)
			n += kvr_reasm_stats(rt->lcore[i]->reasm)->frames;
	return n;
}

/* The DISPATCH of the decode leg as its agent reassembles it; false: there is none. */
static bool reassemble_decode_leg(struct kvr_message *q, uint64_t *handle)
{
	const struct out *o;
	uint32_t have = 0, len = 0;

	while ((len == 0 || have < len) && (o = pipeline_expect(PEER_D, KVR_DISPATCH)) != NULL) {
		memcpy(joined + o->hdr.frag_off, &o->hdr + 1, o->hdr.frag_len);
		have += o->hdr.frag_len;
		len = o->hdr.msg_len;
		*handle = o->hdr.handle;
	}
	return len != 0 && have == len && kvr_request_parse(joined, len, KVR_DISPATCH, q) == 0;
}

static void end_decode(uint64_t id, uint64_t handle)
{
	const struct kvr_wire_ids ids = {.source = CLIENT, .id = id, .handle = handle, .epoch = 1};
	const struct kvr_wire_response w = {.flags = KVR_RESP_F_FIN, .generated_tokens = 3};
	const struct kvr_wire_response_ack ack = {1, KVR_RACK_F_FIN};
	uint8_t buf[256];

	pipeline_send(
		PEER_D, buf,
		(size_t)kvr_put_response(buf, sizeof(buf), &ids, w, (struct kvr_slice){"abc", 3}));
	pipeline_turn();
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_response_ack(buf, sizeof(buf), &ids, &ack));
	pipeline_turn();
}

static uint32_t count_kind(uint32_t to, uint8_t kind)
{
	uint32_t n = 0;

	while (pipeline_expect(to, kind) != NULL)
		n++;
	return n;
}

static const struct kvr_wire_rejected *take_rejected_result(void)
{
	const struct out *o = pipeline_expect(PEER_P, KVR_REJECTED);

	return o == NULL ? NULL : (const void *)(&o->hdr + 1);
}

static void check_result_of(uint32_t len)
{
	struct kvr_message q;
	uint64_t p, d;

	begin_results();
	p = start_prefill(1);
	make_result(&res[0], 1, p, len, 5);
	send_parts(&res[0], 0, res[0].n - 1);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_P, KVR_RESPONSE_ACK));
	pipeline_flush();
	send_parts(&res[0], res[0].n - 1, res[0].n);
	CU_ASSERT_TRUE_FATAL(reassemble_decode_leg(&q, &d));
	CU_ASSERT_EQUAL(q.fixed.result_len, len);
	CU_ASSERT_EQUAL(memcmp(q.result, res[0].body + 32, len), 0);
	CU_ASSERT_EQUAL(q.fixed.n_hashes, 6);
	end_decode(1, d);
	end_results();
}

static void results_arrive_unchanged(void)
{
	static const uint32_t lens[] = {1400, 1353, 50000, 300001, KVR_WIRE_MAX_RESULT};

	for (uint32_t i = 0; i < RTE_DIM(lens); i++)
		check_result_of(lens[i]);
}

static void a_result_of_one_frame_is_a_hint(void)
{
	struct kvr_hint_lists lists;
	struct kvr_hints h;
	struct kvr_message q;
	uint64_t p, d;

	begin_results();
	p = start_prefill(1);
	make_result(&res[0], 1, p, 1352, 5);
	send_parts(&res[0], 0, 1);
	CU_ASSERT_EQUAL(res[0].n, 1);
	CU_ASSERT_TRUE_FATAL(reassemble_decode_leg(&q, &d));
	CU_ASSERT_EQUAL(q.fixed.result_len, 0);
	CU_ASSERT_EQUAL(kvr_hints_parse(q.hints, q.fixed.hints_len, KVR_HINTS_DISPATCH, &h, &lists),
			0);
	CU_ASSERT_EQUAL(h.prefill_result.len, 1352);
	end_decode(1, d);
	end_results();
}

/* Missing fragments are requested; a copy of the first one after the end is acknowledged again. */
static void losses_are_requested_and_copies_acknowledged(void)
{
	const struct kvr_wire_missing *m;
	struct kvr_message q;
	const struct out *o;
	uint64_t p, d, word;

	begin_results();
	p = start_prefill(1);
	make_result(&res[0], 1, p, 80000, 5);
	for (uint32_t k = 0; k < res[0].n; k++)
		if (k != 3 && k != 40)
			send_part(&res[0], PEER_P, k);
	pipeline_turn();
	pipeline_flush();
	pipeline_advance(6);
	o = pipeline_expect(PEER_P, KVR_MISSING);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.handle, p);
	m = (const void *)(&o->hdr + 1);
	CU_ASSERT_EQUAL(m->kind, KVR_RESPONSE);
	CU_ASSERT_EQUAL(m->msg_seq, 5);
	memcpy(&word, m + 1, 8);
	CU_ASSERT_EQUAL(word, UINT64_C(1) << 3 | UINT64_C(1) << 40);
	send_part(&res[0], PEER_P, 3);
	send_part(&res[0], PEER_P, 40);
	pipeline_turn();
	CU_ASSERT_TRUE_FATAL(reassemble_decode_leg(&q, &d));
	CU_ASSERT_EQUAL(memcmp(q.result, res[0].body + 32, 80000), 0);
	pipeline_flush();
	for (uint32_t k = 0; k < res[0].n; k++)
		send_part(&res[0], PEER_P, k);
	pipeline_turn();
	CU_ASSERT_EQUAL(count_kind(PEER_P, KVR_RESPONSE_ACK), 1);
	end_decode(1, d);
	end_results();
}

static void hostile_fragments_change_nothing(void)
{
	struct kvr_message q;
	uint64_t p, d;

	begin_results();
	p = start_prefill(1);
	make_result(&res[0], 1, p, 20000, 5);
	send_parts(&res[0], 0, 8);
	pipeline_flush();
	send_part(&res[0], PEER_D, 9); /* another agent's */
	res[1] = res[0];
	res[1].ids.epoch = 2; /* another epoch */
	send_part(&res[1], PEER_P, 9);
	res[1] = res[0];
	res[1].ids.id = 9; /* another request */
	send_part(&res[1], PEER_P, 9);
	res[1] = res[0];
	res[1].body_len += 8; /* another length */
	send_part(&res[1], PEER_P, 9);
	make_result(&res[1], 1, p, 20000, 6);
	((struct kvr_wire_response *)res[1].body)->flags = 0; /* not the last item */
	send_part(&res[1], PEER_P, 0);
	((struct kvr_wire_response *)res[1].body)->data_len = 100; /* shorter than the message */
	send_part(&res[1], PEER_P, 0);
	pipeline_turn();
	CU_ASSERT_EQUAL(count_partial_results(), 8);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_P, KVR_RESPONSE_ACK));
	make_result(&res[1], 1, p, 20001, 7);
	res[1].body[32 + 20001] = 1; /* padding */
	send_parts(&res[1], 0, res[1].n);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_D, KVR_DISPATCH));
	send_parts(&res[0], 8, res[0].n);
	CU_ASSERT_TRUE_FATAL(reassemble_decode_leg(&q, &d));
	CU_ASSERT_EQUAL(memcmp(q.result, res[0].body + 32, 20000), 0);
	end_decode(1, d);
	end_results();
}

/* Larger than the router's buffers: its first fragment gets a rejection with numbers. */
static void a_too_large_result_is_rejected(void)
{
	const struct kvr_wire_rejected *w;
	uint64_t p;

	pipeline_mbufs = threads_used() == NULL ? 6000 : 13000; /* each lcore caches some buffers */
	begin_results();
	CU_ASSERT_FATAL(rt->sizes.max_frames < 700);
	p = start_prefill(1);
	make_result(&res[0], 1, p, KVR_WIRE_MAX_RESULT, 5);
	for (uint32_t k = 0; k < 20; k++)
		send_part(&res[0], PEER_P, k);
	pipeline_turn();
	w = take_rejected_result();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->code, KVR_E_TOO_LARGE);
	CU_ASSERT_EQUAL(w->kind, KVR_RESPONSE);
	CU_ASSERT_EQUAL(w->detail[0], res[0].body_len);
	CU_ASSERT_EQUAL(w->detail[1], rt->sizes.max_frames * UNIT);
	CU_ASSERT_EQUAL(w->detail[2], 0);
	CU_ASSERT_PTR_NULL(take_rejected_result());
	CU_ASSERT_EQUAL(count_partial_results(), 0);
	pipeline_cut();
	pipeline_mbufs = PIPELINE_MBUFS;
}

/* No memory to keep it: its agent gets a rejection, and sends it again under another number. */
static void a_result_without_memory_is_sent_again(void)
{
	const struct kvr_wire_rejected *w;
	struct kvr_message q;
	uint32_t most;
	uint64_t p, d;

	begin_results();
	p = start_prefill(1);
	make_result(&res[0], 1, p, 100000, 5);
	most = rt->pool[0].max_held;
	rt->pool[0].max_held = 20;
	send_parts(&res[0], 0, res[0].n);
	w = take_rejected_result();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->code, KVR_E_NO_MEMORY);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_P, KVR_RESPONSE_ACK));
	CU_ASSERT(rt->pool[0].live.held <= 1); /* the ROUTE */
	send_part(&res[0], PEER_P, 0);	       /* the same again: it is not there */
	pipeline_turn();
	w = take_rejected_result();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->code, KVR_E_NO_MEMORY);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[1].sched)->booked_now, 1);
	rt->pool[0].max_held = most;
	res[0].ids.msg_seq = 6;
	send_parts(&res[0], 0, res[0].n);
	CU_ASSERT_TRUE_FATAL(reassemble_decode_leg(&q, &d));
	CU_ASSERT_EQUAL(memcmp(q.result, res[0].body + 32, 100000), 0);
	end_decode(1, d);
	end_results();
}

static void two_largest_results_pass_together(void)
{
	struct kvr_message q;
	uint64_t p[2], d;

	begin_results();
	for (uint32_t i = 0; i < 2; i++) {
		p[i] = start_prefill(i + 1);
		make_result(&res[i], i + 1, p[i], KVR_WIRE_MAX_RESULT, 5 + i);
	}
	for (uint32_t k = 0; k + 1 < res[0].n; k++) {
		send_part(&res[0], PEER_P, k);
		send_part(&res[1], PEER_P, k);
		if (k % 8 == 7)
			pipeline_turn();
	}
	pipeline_turn();
	pipeline_flush();
	for (uint32_t i = 0; i < 2; i++) {
		send_part(&res[i], PEER_P, res[i].n - 1);
		pipeline_turn();
		CU_ASSERT_TRUE_FATAL(reassemble_decode_leg(&q, &d));
		CU_ASSERT_EQUAL(memcmp(q.result, res[i].body + 32, KVR_WIRE_MAX_RESULT), 0);
		end_decode(i + 1, d);
	}
	end_results();
}

/*
 * The client cancels in the middle: the prefill leg runs to its end, and the decode leg is aborted.
 */
static void cancel_in_the_middle_of_a_result(void)
{
	const struct kvr_wire_ids ids = {.source = CLIENT, .id = 1, .epoch = 1};
	struct kvr_wire_ids abort_ids;
	uint8_t buf[64];
	const struct out *o;
	uint64_t p;

	begin_results();
	p = start_prefill(1);
	make_result(&res[0], 1, p, 100000, 5);
	send_parts(&res[0], 0, 30);
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(count_kind(PEER_CLIENT, KVR_CANCELLED), 1);
	send_parts(&res[0], 30, res[0].n);
	o = pipeline_expect(PEER_D, KVR_ABORT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	abort_ids = (struct kvr_wire_ids){
		.source = CLIENT, .id = 1, .handle = o->hdr.handle, .epoch = 1};
	pipeline_send(PEER_D, buf,
		      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_ABORT_ACK, &abort_ids));
	pipeline_turn();
	end_decode(1, abort_ids.handle);
	end_results();
}

/* The agent goes in the middle: the fragments so far are dropped. */
static void loss_of_the_agent_in_the_middle_of_a_result(void)
{
	const struct kvr_wire_ids ids = {.source = PREFILL, .id = 1, .epoch = 1};
	uint8_t buf[64];
	uint64_t p;

	begin_results();
	p = start_prefill(1);
	make_result(&res[0], 1, p, 100000, 5);
	send_parts(&res[0], 0, 30);
	CU_ASSERT_EQUAL(count_partial_results(), 30);
	pipeline_send(PEER_P, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(count_kind(PEER_CLIENT, KVR_REJECTED), 1);
	send_part(&res[0], PEER_P, 30);
	pipeline_turn();
	CU_ASSERT_EQUAL(count_partial_results(), 30);
	pipeline_skip(4000);
	pipeline_turn();
	end_results();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(results_arrive_unchanged),
			       KVR_CASE(a_result_of_one_frame_is_a_hint),
			       KVR_CASE(losses_are_requested_and_copies_acknowledged),
			       KVR_CASE(hostile_fragments_change_nothing),
			       KVR_CASE(a_too_large_result_is_rejected),
			       KVR_CASE(a_result_without_memory_is_sent_again),
			       KVR_CASE(two_largest_results_pass_together),
			       KVR_CASE(cancel_in_the_middle_of_a_result),
			       KVR_CASE(loss_of_the_agent_in_the_middle_of_a_result),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("results", tests);
}
