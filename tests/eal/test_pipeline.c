/* SPDX-License-Identifier: BSD-3-Clause */
/* The router frame by frame: frames in, frames out, and what remains. */
#include "pipeline.h"

#include "control/control.h"
#include "kvr_frame.h"
#include "kvr_hash.h"
#include "kvr_put.h"
#include "kvr_rand.h"
#include "kvr_test.h"
#include "loop/loop.h"
#include "sched/request.h"
#include "sched/sched.h"
#include "threads.h"
#include <string.h>

#define WORKER 9u
#define LATER  20u /* joins after WORKER */

static uint64_t count_live(void)
{
	return (uint32_t)kvr_sched_counters(pipeline_get_pool()->sched)->booked_now;
}

/* An item of request @p id's answer, from the agent. */
static void send_pipeline_item(uint64_t id, uint64_t handle, uint32_t seq, uint32_t tokens,
			       uint16_t flags)
{
	const struct kvr_wire_ids ids = pipeline_make_ids(id, handle);
	const struct kvr_wire_response r = {.seq = seq,
					    .flags = flags,
					    .generated_tokens = tokens,
					    .cached_tokens = KVR_NONE32};
	uint8_t buf[256];
	int len = kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){"item", 4});

	CU_ASSERT_FATAL(len > 0);
	pipeline_send(PEER_AGENT, buf, (size_t)len);
	pipeline_turn();
}

static void send_response_ack(uint64_t id, uint64_t handle, uint32_t next, uint32_t flags)
{
	const struct kvr_wire_ids ids = pipeline_make_ids(id, handle);
	const struct kvr_wire_response_ack a = {next, flags};
	uint8_t buf[128];
	int len = kvr_put_response_ack(buf, sizeof(buf), &ids, &a);

	pipeline_send(PEER_CLIENT, buf, (size_t)len);
	pipeline_turn();
}

static void send_empty_frame(uint32_t from, uint8_t kind, uint64_t id, uint64_t handle)
{
	const struct kvr_wire_ids ids = pipeline_make_ids(id, handle);
	uint8_t buf[64];
	int len = kvr_put_empty(buf, sizeof(buf), kind, &ids);

	pipeline_send(from, buf, (size_t)len);
	pipeline_turn();
}

static void send_kv_event(uint64_t worker, uint32_t epoch, uint64_t event_id, uint8_t type,
			  uint64_t hash0, uint32_t n)
{
	uint8_t buf[KVR_WIRE_DEF_FRAME] = {0};
	struct kvr_wire_hdr *h = (void *)buf;
	struct kvr_wire_kv_events *e = (void *)(h + 1);
	struct kvr_wire_kv_event *ev = (void *)(e + 1);
	const struct kvr_wire_ids ids = {.source = worker, .id = event_id, .epoch = epoch};
	uint32_t body = (uint32_t)(sizeof(*e) + sizeof(*ev) + n * 8);

	kvr_hdr_put(h, KVR_KV_EVENTS, &ids, body, 0, (uint16_t)body);
	e->first_event_id = event_id;
	e->n_events = 1;
	ev->type = type;
	ev->n_blocks = n;
	for (uint32_t i = 0; i < n; i++)
		memcpy((uint8_t *)(ev + 1) + i * 8, &(uint64_t){hash0 + i}, 8);
	pipeline_send(PEER_AGENT, buf, sizeof(*h) + body);
	pipeline_turn();
}

/* Handle of the DISPATCH that the agent received; 0: none. */
static uint64_t take_agent_dispatch(void)
{
	const struct out *o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);

	return o == NULL ? 0 : o->hdr.handle;
}

static int take_rejection(uint32_t to)
{
	const struct out *o = pipeline_expect(to, KVR_REJECTED);

	return o == NULL ? -1 : ((const struct kvr_wire_rejected *)(&o->hdr + 1))->code;
}

/* Expect a rejection with this text. @return its code. */
static bool expect_rejection(uint32_t to, enum kvr_code code, const char *words)
{
	const struct out *o = pipeline_expect(to, KVR_REJECTED);
	const struct kvr_wire_rejected *said = o != NULL ? (const void *)(&o->hdr + 1) : NULL;

	return said != NULL && said->code == code && said->text_len == strlen(words) &&
	       memcmp(said + 1, words, strlen(words)) == 0;
}

static const struct kvr_wire_accepted *take_accepted_reply(void)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);

	return o == NULL ? NULL : (const struct kvr_wire_accepted *)(&o->hdr + 1);
}

static void begin_pipeline(void)
{
	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 2));
}

/* Check that nothing is left: counters balance, no booking, no frame. */
static void end_pipeline(void)
{
	uint32_t spare = 0;

	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(count_live(), 0);
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(pipeline_get_pool()->jobs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->small_bufs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hash_bufs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hint_bufs), 0);
	for (uint32_t i = 0; i < rt->n_lcores; i++)
		spare += rt->lcore[i]->spare != NULL;
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->frame_lists), spare);
	pipeline_stop();
}

/* ---- requests ---- */

static void a_finished_request_leaves_nothing(void)
{
	const struct kvr_wire_accepted *a;
	const struct kvr_wire_request *q;
	const struct out *o;
	uint64_t h;

	begin_pipeline();
	pipeline_route(1, 100, 10, 0, NULL);
	o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	q = (const void *)(&o->hdr + 1);
	h = o->hdr.handle;
	CU_ASSERT_NOT_EQUAL(h, 0);
	CU_ASSERT_EQUAL(o->hdr.source, 77);
	CU_ASSERT_EQUAL(o->hdr.id, 1);
	CU_ASSERT_EQUAL(q->worker, WORKER);
	CU_ASSERT(q->dp_rank < 2);
	CU_ASSERT_EQUAL(q->isl, 40);
	CU_ASSERT_EQUAL(q->client_port, PEER_CLIENT);
	CU_ASSERT_EQUAL(q->client_ip[12], 10);
	CU_ASSERT_EQUAL(memcmp((const uint8_t *)(q + 1) + 80, "body", 4), 0);
	a = take_accepted_reply();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->state, KVR_STATE_DISPATCHED);
	CU_ASSERT_EQUAL(a->worker, WORKER);
	CU_ASSERT_EQUAL(a->required_blocks, 10);
	CU_ASSERT(a->prefill_worker == 0 && a->prefill_dp_rank == KVR_NONE32);
	CU_ASSERT_EQUAL(a->path, KVR_WAY_AGGREGATED);
	CU_ASSERT_EQUAL(count_live(), 1);

	send_pipeline_item(1, h, 0, 1, 0);
	o = pipeline_expect(PEER_CLIENT, KVR_RESPONSE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(((const struct kvr_wire_response *)(&o->hdr + 1))->generated_tokens, 1);
	send_pipeline_item(1, h, 1, 2, KVR_RESP_F_FIN);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(count_live(), 0);
	CU_ASSERT_EQUAL(kvr_flight_count(pipeline_get_pool()->requests), 1); /* lingers */
	send_response_ack(1, h, 2, KVR_RACK_F_FIN);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	CU_ASSERT_EQUAL(kvr_flight_count(pipeline_get_pool()->requests), 0);
	end_pipeline();
}

static void repeated_frames_change_nothing(void)
{
	const struct kvr_wire_accepted *a;
	uint64_t h;

	begin_pipeline();
	pipeline_route(1, 100, 10, 0, NULL);
	h = take_agent_dispatch();
	CU_ASSERT_PTR_NOT_NULL(take_accepted_reply());
	pipeline_route(1, 100, 10, 0, NULL); /* duplicated by the network */
	a = take_accepted_reply();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->state, KVR_STATE_DISPATCHED);
	CU_ASSERT_EQUAL(take_agent_dispatch(), 0);
	pipeline_route(1, 100, 10, KVR_REQ_F_RESEND, NULL); /* retransmitted by the client */
	CU_ASSERT_EQUAL(take_agent_dispatch(), h);
	CU_ASSERT_EQUAL(count_live(), 1);
	send_empty_frame(PEER_AGENT, KVR_DISPATCH_ACK, 1, h); /* wrong body: rejected */
	CU_ASSERT_EQUAL(count_live(), 1);
	pipeline_flush();
	send_pipeline_item(1, h, 0, 1, KVR_RESP_F_FIN);
	pipeline_route(1, 100, 10, KVR_REQ_F_RESEND, NULL); /* every item was lost on the way */
	CU_ASSERT_EQUAL(take_accepted_reply()->state, KVR_STATE_RUNNING);
	CU_ASSERT_EQUAL(take_agent_dispatch(), 0);
	send_pipeline_item(1, h, 0, 1, KVR_RESP_F_FIN); /* the client has not acknowledged yet */
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(count_live(), 0);
	send_response_ack(1, h, 1, KVR_RACK_F_FIN);
	send_response_ack(1, h, 1, KVR_RACK_F_FIN); /* late: ignored */
	pipeline_flush();
	pipeline_route(1, 100, 10, KVR_REQ_F_RESEND, NULL); /* very late */
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_ENDED);
	CU_ASSERT_EQUAL(take_agent_dispatch(), 0);
	send_pipeline_item(1, h, 0, 1, KVR_RESP_F_FIN); /* no client receives it any more */
	CU_ASSERT_EQUAL(take_rejection(PEER_AGENT), KVR_E_UNKNOWN_REQUEST);
	end_pipeline();
}

/* @rule 7.4, @rule 8: queries. */
static void query_changes_nothing(void)
{
	const struct kvr_wire_accepted *a;

	begin_pipeline();
	pipeline_route(1, 100, 10, KVR_REQ_F_QUERY, NULL);
	a = take_accepted_reply();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->state, KVR_STATE_QUERY);
	CU_ASSERT_EQUAL(a->worker, WORKER);
	CU_ASSERT_EQUAL(take_agent_dispatch(), 0);
	CU_ASSERT_EQUAL(kvr_flight_count(pipeline_get_pool()->requests), 0);
	end_pipeline();
}

/* @rule 2.1, @rule 2.2, @rule 4 */
static void overlap_follows_the_events(void)
{
	const struct out *o;
	const struct kvr_wire_kv_ack *k;

	begin_pipeline();
	send_kv_event(WORKER, 1, 0, KVR_KV_STORED, 100, 10);
	o = pipeline_expect(PEER_AGENT, KVR_KV_ACK);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	k = (const void *)(&o->hdr + 1);
	CU_ASSERT_EQUAL(k->next_event_id, 1);
	CU_ASSERT_EQUAL(k->code, KVR_KV_OK);
	pipeline_route(1, 100, 12, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_EQUAL(take_accepted_reply()->overlap_blocks, 10);
	send_kv_event(WORKER, 1, 0, KVR_KV_STORED, 110, 2); /* past: not applied */
	pipeline_route(2, 100, 12, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_EQUAL(take_accepted_reply()->overlap_blocks, 10);
	pipeline_flush();
	send_kv_event(WORKER, 1, 5, KVR_KV_STORED, 110, 2); /* future: a gap */
	k = (const void *)(&pipeline_expect(PEER_AGENT, KVR_KV_ACK)->hdr + 1);
	CU_ASSERT_EQUAL(k->code, KVR_KV_GAP);
	CU_ASSERT_EQUAL(k->next_event_id, 1);
	send_kv_event(WORKER, 1, 1, KVR_KV_REMOVED, 104, 1);
	pipeline_route(3, 100, 12, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_EQUAL(take_accepted_reply()->overlap_blocks, 4);
	pipeline_flush();
	send_kv_event(WORKER, 2, 2, KVR_KV_STORED, 100, 10); /* another incarnation */
	k = (const void *)(&pipeline_expect(PEER_AGENT, KVR_KV_ACK)->hdr + 1);
	CU_ASSERT_EQUAL(k->code, KVR_KV_HELLO);
	send_kv_event(WORKER + 1, 1, 0, KVR_KV_STORED, 100, 10); /* unknown worker */
	k = (const void *)(&pipeline_expect(PEER_AGENT, KVR_KV_ACK)->hdr + 1);
	CU_ASSERT_EQUAL(k->code, KVR_KV_HELLO);
	send_kv_event(WORKER, 1, 2, KVR_KV_CLEARED, 0, 0);
	pipeline_route(4, 100, 12, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_EQUAL(take_accepted_reply()->overlap_blocks, 0);
	end_pipeline();
}

static uint32_t potential_overlap(void)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_LOADS);
	const struct kvr_wire_loads *l = o != NULL ? (const void *)(&o->hdr + 1) : NULL;
	const struct kvr_wire_rank_potential *v = (const void *)(l + 1);
	uint32_t sum = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(l);
	for (uint32_t i = 0; i < l->n_ranks; i++)
		sum += v[i].overlap_blocks;
	return sum;
}

/*
 * A request has been scored and waits for its scheduler. Meanwhile the worker restarts with an
 * empty cache, or it goes and another worker gets its rank numbers. Then no rank has the blocks.
 * @rule 16
 */
static void scores_do_not_outlive_an_incarnation(void)
{
	if (threads_used() != NULL) /* the threads cannot be stopped in between */
		return;
	for (uint32_t other = 0; other < 2; other++) {
		struct lcore *lc;

		begin_pipeline();
		lc = rt->pool[0].sched_lcore;
		CU_ASSERT_TRUE(
			pipeline_hello(LATER, 1, "a", 2)); /* gets ranks after those of WORKER */
		send_kv_event(LATER, 1, 0, KVR_KV_STORED, 100, 10);
		pipeline_flush();
		lc->n_sched = 0;
		pipeline_route(1, 100, 12, KVR_REQ_F_QUERY, NULL);
		pipeline_kind = KVR_POTENTIAL_LOADS;
		pipeline_route(2, 100, 12, 0, NULL);
		pipeline_kind = KVR_ROUTE;
		if (other != 0) {
			kvr_registry_find(rt->registry, LATER)->last_seen_ns = 0;
			pipeline_turn();
			CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), 1);
		}
		CU_ASSERT_TRUE(pipeline_hello(LATER + other, 2, "a", 2));
		CU_ASSERT_EQUAL(kvr_sched_rank_find(rt->pool[0].sched, LATER + other, 1), 3);
		lc->n_sched = 1;
		pipeline_turn();
		CU_ASSERT_EQUAL(take_accepted_reply()->overlap_blocks, 0);
		CU_ASSERT_EQUAL(potential_overlap(), 0);
		send_kv_event(LATER + other, 2, 0, KVR_KV_STORED, 100, 3);
		pipeline_route(3, 100, 12, KVR_REQ_F_QUERY, NULL);
		CU_ASSERT_EQUAL(take_accepted_reply()->overlap_blocks, 3);
		end_pipeline();
	}
}

/* Send a frame of dump @p id: position, flags, one stored event of @p n blocks (0: none). */
static void send_dump_frame(uint64_t pos, uint16_t flags, uint64_t id, uint64_t hash0, uint32_t n,
			    uint64_t resume)
{
	uint8_t buf[KVR_WIRE_DEF_FRAME] = {0};
	struct kvr_wire_hdr *h = (void *)buf;
	struct kvr_wire_kv_events *e = (void *)(h + 1);
	struct kvr_wire_kv_event *ev = (void *)(e + 1);
	const struct kvr_wire_ids ids = {.source = WORKER, .id = id, .epoch = 1};
	uint32_t body = (uint32_t)(sizeof(*e) + (n != 0 ? sizeof(*ev) + n * 8 : 0));

	kvr_hdr_put(h, KVR_KV_EVENTS, &ids, body, 0, (uint16_t)body);
	e->first_event_id = pos;
	e->resume_event_id = resume;
	e->flags = (uint16_t)(flags | KVR_KV_F_DUMP);
	if (n != 0) {
		e->n_events = 1;
		ev->type = KVR_KV_STORED;
		ev->n_blocks = n;
		for (uint32_t i = 0; i < n; i++)
			memcpy((uint8_t *)(ev + 1) + i * 8, &(uint64_t){hash0 + i}, 8);
	}
	pipeline_send(PEER_AGENT, buf, sizeof(*h) + body);
	pipeline_turn();
}

static uint32_t query_overlap(uint64_t id)
{
	pipeline_route(id, 100, 12, KVR_REQ_F_QUERY, NULL);
	return take_accepted_reply()->overlap_blocks;
}

static struct kvr_wire_kv_ack take_last_ack(void)
{
	struct kvr_wire_kv_ack a = {.code = 999};
	const struct out *o;

	while ((o = pipeline_expect(PEER_AGENT, KVR_KV_ACK)) != NULL)
		memcpy(&a, &o->hdr + 1, sizeof(a));
	return a;
}

static void dump_replaces_what_the_rank_holds(void)
{
	begin_pipeline();
	send_kv_event(WORKER, 1, 0, KVR_KV_STORED, 100, 12);
	CU_ASSERT_EQUAL(query_overlap(1), 12);
	send_dump_frame(0, KVR_KV_F_DUMP_BEGIN, 50, 100, 4, 0);
	CU_ASSERT_EQUAL(take_last_ack().next_dump_pos, 1);
	CU_ASSERT_EQUAL(query_overlap(2), 4);
	send_dump_frame(2, KVR_KV_F_DUMP_END, 50, 106, 1, 20); /* frame 1 is missing */
	CU_ASSERT_EQUAL(take_last_ack().next_dump_pos, 1);
	send_kv_event(WORKER, 1, 1, KVR_KV_STORED, 106, 6); /* from before the dump */
	CU_ASSERT_EQUAL(query_overlap(3), 4);
	send_dump_frame(1, 0, 49, 200, 2, 0); /* of another dump */
	CU_ASSERT_EQUAL(take_last_ack().code, KVR_KV_DUMP_WANTED);
	send_dump_frame(1, 0, 50, 104, 2, 0);
	send_dump_frame(2, KVR_KV_F_DUMP_END, 50, 106, 1, 20);
	CU_ASSERT_EQUAL(take_last_ack().next_dump_pos, 3);
	CU_ASSERT_EQUAL(query_overlap(4), 7);
	send_dump_frame(0, KVR_KV_F_DUMP_BEGIN, 50, 100, 4, 0); /* late copy: nothing is cleared */
	CU_ASSERT_EQUAL(take_last_ack().next_dump_pos, 3);
	CU_ASSERT_EQUAL(query_overlap(5), 7);
	send_kv_event(WORKER, 1, 20, KVR_KV_STORED, 107,
		      1); /* live events again, from resume_event_id */
	CU_ASSERT_EQUAL(take_last_ack().next_event_id, 21);
	CU_ASSERT_EQUAL(query_overlap(6), 8);
	send_dump_frame(0, KVR_KV_F_DUMP_BEGIN | KVR_KV_F_DUMP_END, 60, 0, 0,
			30); /* an empty dump */
	CU_ASSERT_EQUAL(query_overlap(7), 0);
	end_pipeline();
}

static void send_rank_heartbeat(uint64_t next_event_id)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 3, .epoch = 1};
	const struct kvr_wire_rank_load load = {.kv_used_blocks = 5,
						.next_event_id = next_event_id};
	uint8_t buf[256];
	int len = kvr_put_heartbeat(buf, sizeof(buf), &ids, &load, 1, 0, 0);

	pipeline_send(PEER_AGENT, buf, (size_t)len);
	pipeline_turn();
}

/* A late first frame of an earlier dump, of which the agent has nothing left and knows nothing. */
static void a_heartbeat_detects_an_interrupted_dump(void)
{
	begin_pipeline();
	send_kv_event(WORKER, 1, 0, KVR_KV_STORED, 100, 12);
	send_dump_frame(0, KVR_KV_F_DUMP_BEGIN, 50, 100, 4, 0);
	take_last_ack();	/* consume all acknowledgements */
	send_rank_heartbeat(1); /* it may be under way */
	CU_ASSERT_EQUAL(take_last_ack().code, 999);
	send_dump_frame(1, 0, 50, 104, 2, 0);
	take_last_ack();	/* consume all acknowledgements */
	send_rank_heartbeat(1); /* so it was */
	CU_ASSERT_EQUAL(take_last_ack().code, 999);
	for (int i = 0; i < 2; i++) { /* a whole heartbeat interval without any */
		struct kvr_wire_kv_ack a;

		send_rank_heartbeat(1);
		a = take_last_ack();
		CU_ASSERT(a.code == KVR_KV_DUMP_WANTED && a.next_dump_pos == 0);
	}
	send_dump_frame(0, KVR_KV_F_DUMP_BEGIN | KVR_KV_F_DUMP_END, 60, 100, 12, 1);
	take_last_ack(); /* consume all acknowledgements */
	for (int i = 0; i < 3; i++)
		send_rank_heartbeat(1);
	CU_ASSERT_EQUAL(take_last_ack().code, 999);
	CU_ASSERT_EQUAL(query_overlap(9), 12);
	end_pipeline();
}

static void a_heartbeat_detects_lost_events(void)
{
	begin_pipeline();
	send_rank_heartbeat(0);
	CU_ASSERT_EQUAL(take_last_ack().code, 999);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_HEARTBEAT_ACK));
	send_rank_heartbeat(7); /* may be under way */
	CU_ASSERT_EQUAL(take_last_ack().code, 999);
	send_rank_heartbeat(7); /* a whole heartbeat interval without any */
	CU_ASSERT_EQUAL(take_last_ack().code, KVR_KV_DUMP_WANTED);
	send_kv_event(WORKER, 1, 0, KVR_KV_STORED, 100, 2);
	take_last_ack();
	send_rank_heartbeat(7);
	CU_ASSERT_EQUAL(take_last_ack().code, 999); /* it moves */
	send_rank_heartbeat(7);
	CU_ASSERT_EQUAL(take_last_ack().code, KVR_KV_GAP);
	end_pipeline();
}

static void fragments_in_any_order_are_one_request(void)
{
	const struct out *o;
	uint32_t bytes = 0, frames = 0;
	uint64_t h = 0;

	begin_pipeline();
	pipeline_route(1, 5000, 4000, 0, NULL); /* 32 kB of hashes */
	while ((o = pipeline_expect(PEER_AGENT, KVR_DISPATCH)) != NULL) {
		h = o->hdr.handle;
		bytes += o->hdr.frag_len;
		frames++;
		CU_ASSERT(o->len <= 1432);
	}
	CU_ASSERT(frames > 20);
	CU_ASSERT_EQUAL(bytes, sizeof(struct kvr_wire_request) + 4000 * 8 + 8);
	CU_ASSERT_EQUAL(take_accepted_reply()->required_blocks, 4000);
	send_pipeline_item(1, h, 0, 1, KVR_RESP_F_FIN);
	send_response_ack(1, h, 1, KVR_RACK_F_FIN);
	end_pipeline();
}

static void longest_prompt_with_the_largest_body_passes(void)
{
	const struct out *o;
	uint64_t bytes = 0, h = 0;

	begin_pipeline();
	pipeline_body_len = KVR_WIRE_MAX_BODY;
	pipeline_route(1, 1 << 20, KVR_WIRE_MAX_HASHES, 0, NULL);
	pipeline_body_len = 4;
	while ((o = pipeline_next(PEER_AGENT)) != NULL)
		if (o->hdr.kind == KVR_DISPATCH) {
			h = o->hdr.handle;
			bytes += o->hdr.frag_len;
		}
	CU_ASSERT_EQUAL(bytes, sizeof(struct kvr_wire_request) + KVR_WIRE_MAX_HASHES * 8 +
				       KVR_WIRE_MAX_BODY);
	CU_ASSERT_EQUAL(take_accepted_reply()->required_blocks, KVR_WIRE_MAX_HASHES);
	send_pipeline_item(1, h, 0, 1, KVR_RESP_F_FIN);
	send_response_ack(1, h, 1, KVR_RACK_F_FIN);
	end_pipeline();
}

/* @rule 1.2: adapter and namespace change the hashes. */
static void tokens_are_hashed_with_lora_and_namespace(void)
{
	static const char *const lora = "adapter-a", *const ns = "tenant-a";
	const struct kvr_hash_params params = {.seed = kvr_hash_seed(lora, 9, ns, 8),
					       .block_size = 4};
	uint32_t token[40];
	uint64_t sh[10];
	uint8_t tlv[64], buf[512] = {0};
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	struct kvr_wire_kv_events *e = (void *)(buf + 48);
	struct kvr_wire_kv_event *ev = (void *)(e + 1);
	const struct kvr_wire_ids ids = {.source = WORKER, .epoch = 1};

	begin_pipeline();
	for (uint32_t i = 0; i < 40; i++)
		token[i] = 7 + i;
	CU_ASSERT_EQUAL(kvr_hash_tokens(&params, token, 40, NULL, sh, 10), 10);
	kvr_hdr_put(buf, KVR_KV_EVENTS, &ids, 48 + 80, 0, 48 + 80);
	e->n_events = 1;
	ev->type = KVR_KV_STORED;
	ev->n_blocks = 10;
	memcpy(ev + 1, sh, sizeof(sh));
	pipeline_send(PEER_AGENT, buf, 48 + 48 + 80);
	pipeline_turn();
	kvr_hint_put_str(&hints, KVR_HINT_LORA, lora);
	kvr_hint_put_str(&hints, KVR_HINT_NAMESPACE, ns);
	pipeline_route_tokens(1, 7, 40, KVR_REQ_F_QUERY, &hints);
	CU_ASSERT_EQUAL(take_accepted_reply()->overlap_blocks, 10);
	pipeline_route_tokens(2, 7, 40, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_EQUAL(take_accepted_reply()->overlap_blocks, 0);
	pipeline_route_tokens(3, 7, 2000, KVR_REQ_F_QUERY, &hints); /* fragmented */
	CU_ASSERT_EQUAL(take_accepted_reply()->overlap_blocks, 10);
	if (rt->conf.n_ingress == 1) { /* with several ingress lcores each has fewer buffers */
		pipeline_route_tokens(4, 7, KVR_WIRE_MAX_TOKENS, 0, NULL); /* 262,144 blocks of 4 */
		CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_PROMPT_TOO_LONG);
	}
	end_pipeline();
}

static void lost_fragment_leaves_nothing_behind(void)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = 5, .epoch = 1, .msg_seq = 5};
	uint8_t buf[1000] = {0};

	begin_pipeline();
	kvr_hdr_put(buf, KVR_ROUTE, &ids, 20000, 0, 952);
	pipeline_send(PEER_CLIENT, buf, sizeof(buf));
	pipeline_turn();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 1);
	for (uint32_t i = 0; i < rt->conf.n_ingress; i++) /* one of them has it */
		kvr_reasm_expire(rt->lcore[i]->reasm, rt->lcore[i]->now_ns + UINT64_C(10000000000),
				 10);
	end_pipeline();
}

/* ---- endings ---- */

static void cancel_frees_and_aborts(void)
{
	uint64_t h;

	begin_pipeline();
	pipeline_route(1, 100, 10, 0, NULL);
	h = take_agent_dispatch();
	send_empty_frame(PEER_CLIENT, KVR_CANCEL, 1, h);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT_EQUAL(count_live(), 0);
	send_empty_frame(PEER_CLIENT, KVR_CANCEL, 1, h); /* again: answered, nothing more */
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	send_empty_frame(PEER_AGENT, KVR_ABORT_ACK, 1, h);
	send_pipeline_item(1, h, 0, 1, KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	send_response_ack(1, h, 1, KVR_RACK_F_FIN);
	send_empty_frame(PEER_CLIENT, KVR_CANCEL, 99, 0); /* unknown: still answered */
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	end_pipeline();
}

/*
 * A client that cancels at once: both frames are read in one burst and must be handled in their
 * order.
 */
static void cancel_does_not_overtake_its_route(void)
{
	uint64_t h;

	begin_pipeline();
	if (rt->conf.n_ingress > 1) { /* they may reach different lcores */
		end_pipeline();
		return;
	}
	pipeline_together = true;
	for (uint64_t id = 1; id <= 3; id++)
		pipeline_route(id, 100 * id, 10, 0, NULL);
	pipeline_together = false;
	send_empty_frame(PEER_CLIENT, KVR_CANCEL, 2, 0);
	CU_ASSERT_EQUAL(count_live(), 2);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	pipeline_flush();
	for (uint64_t id = 1; id <= 3; id++) {
		const struct out *o;

		send_empty_frame(PEER_CLIENT, KVR_CANCEL, id, 0);
		o = pipeline_expect(PEER_AGENT, KVR_ABORT);
		h = o != NULL ? o->hdr.handle : 0;
		CU_ASSERT_EQUAL(h != 0, id != 2); /* that one was cancelled */
		pipeline_flush();
	}
	CU_ASSERT_EQUAL(count_live(), 0);
	pipeline_stop();
}

static void a_rejected_dispatch_frees_the_booking(void)
{
	const struct kvr_wire_dispatch_ack no = {.code = 3};
	struct kvr_wire_ids ids;
	const struct out *o;
	uint8_t buf[128];
	uint64_t h;

	begin_pipeline();
	pipeline_route(1, 100, 10, 0, NULL);
	h = take_agent_dispatch();
	ids = pipeline_make_ids(1, h);
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &no));
	pipeline_turn();
	CU_ASSERT_EQUAL(count_live(), 0);
	o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(((const struct kvr_wire_rejected *)(&o->hdr + 1))->code,
			KVR_E_DISPATCH_FAILED);
	CU_ASSERT_EQUAL(((const struct kvr_wire_rejected *)(&o->hdr + 1))->detail[0], 3);
	CU_ASSERT_EQUAL(((const struct kvr_wire_rejected *)(&o->hdr + 1))->retryable, 1);
	send_empty_frame(PEER_CLIENT, KVR_PROBE, 1,
			 0); /* the rejection was lost: it is sent again */
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_DISPATCH_FAILED);
	end_pipeline();
}

static void probe_reports_the_state_of_a_request(void)
{
	const struct kvr_wire_dispatch_ack yes = {.code = 0};
	struct kvr_wire_ids ids;
	uint8_t buf[128];
	uint64_t h;

	begin_pipeline();
	send_empty_frame(PEER_CLIENT, KVR_PROBE, 1, 0);
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_UNKNOWN_REQUEST);
	pipeline_route(1, 100, 10, 0, NULL);
	CU_ASSERT_PTR_NOT_NULL(take_accepted_reply());
	h = take_agent_dispatch();
	send_empty_frame(PEER_CLIENT, KVR_PROBE, 1, 0);
	CU_ASSERT_EQUAL(take_accepted_reply()->state, KVR_STATE_DISPATCHED);
	ids = pipeline_make_ids(1, h);
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &yes));
	pipeline_turn();
	send_empty_frame(PEER_CLIENT, KVR_PROBE, 1, h);
	CU_ASSERT_EQUAL(take_accepted_reply()->state, KVR_STATE_RUNNING);
	send_pipeline_item(1, h, 0, 1, KVR_RESP_F_FIN);
	send_empty_frame(PEER_CLIENT, KVR_PROBE, 1,
			 h); /* the last item may be lost: it will be retransmitted */
	CU_ASSERT_EQUAL(take_accepted_reply()->state, KVR_STATE_RUNNING);
	send_response_ack(1, h, 1, KVR_RACK_F_FIN);
	send_empty_frame(PEER_CLIENT, KVR_PROBE, 1, h);
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_ENDED);
	end_pipeline();
}

static void a_lost_worker_fails_its_requests_and_is_removed(void)
{
	begin_pipeline();
	send_kv_event(WORKER, 1, 0, KVR_KV_STORED, 100, 10);
	pipeline_route(1, 100, 10, 0, NULL);
	CU_ASSERT_NOT_EQUAL(take_agent_dispatch(), 0);
	pipeline_flush();
	CU_ASSERT_TRUE(pipeline_hello(WORKER, 2, "a", 2)); /* restarted */
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_WORKER_LOST);
	CU_ASSERT_FALSE(pipeline_hello(WORKER, 1, "a", 2)); /* late, from the incarnation before */
	CU_ASSERT_EQUAL(take_rejection(PEER_AGENT), KVR_E_STALE_EPOCH);
	CU_ASSERT_EQUAL(count_live(), 0);
	pipeline_route(2, 100, 10, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_EQUAL(take_accepted_reply()->overlap_blocks, 0);
	CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), 1);
	send_empty_frame(PEER_AGENT, KVR_GOODBYE, 1, 0); /* source 77: not this worker */
	CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), 1);
	kvr_registry_at(rt->registry, 0)->last_seen_ns = 0; /* silent for long */
	pipeline_turn();
	CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), 0);
	pipeline_flush();
	pipeline_route(3, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_NO_ENDPOINTS);
	end_pipeline();
}

/* @rule 5.5, @rule 16 */
static void a_draining_worker_gets_no_requests_and_ends_drained(void)
{
	uint64_t h;

	begin_pipeline();
	pipeline_route(1, 100, 10, 0, NULL);
	h = take_agent_dispatch();
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), 0);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), -EALREADY);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER + 1, true), -ENOENT);
	pipeline_turn();
	CU_ASSERT_EQUAL(kvr_registry_at(rt->registry, 0)->state, KVR_WORKER_DRAINING);
	pipeline_flush();
	pipeline_route(2, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_NO_ENDPOINTS);
	send_pipeline_item(1, h, 0, 1, KVR_RESP_F_FIN);
	send_response_ack(1, h, 1, KVR_RACK_F_FIN);
	pipeline_turn();
	CU_ASSERT_EQUAL(kvr_registry_at(rt->registry, 0)->state, KVR_WORKER_DRAINED);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, false), 0);
	pipeline_flush();
	pipeline_route(3, 100, 10, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_PTR_NOT_NULL(take_accepted_reply());
	end_pipeline();
}

/*
 * The agent reports nothing about its requests: the limit of silence bounds the drain. A request
 * whose client is silent, too, ends then.
 */
static void a_drain_ends_with_the_silence_of_bookings(void)
{
	uint32_t seconds = 0;

	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL "active_request_expiry_secs = 2\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 2));
	pipeline_route(1, 100, 10, 0, NULL);
	CU_ASSERT_NOT_EQUAL(take_agent_dispatch(), 0);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), 0);
	pipeline_advance(1000);
	CU_ASSERT_EQUAL(kvr_registry_at(rt->registry, 0)->state, KVR_WORKER_DRAINING);
	CU_ASSERT_EQUAL(kvr_registry_at(rt->registry, 0)->bookings, 1);
	pipeline_flush();
	while (kvr_registry_at(rt->registry, 0)->state == KVR_WORKER_DRAINING && seconds < 100) {
		pipeline_advance(1000);
		seconds++;
	}
	CU_ASSERT(seconds <= 2 + 60 + 1); /* the limit, and one interval of sweeps */
	CU_ASSERT_EQUAL(kvr_registry_at(rt->registry, 0)->state, KVR_WORKER_DRAINED);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_EXPIRED);
	end_pipeline();
}

/*
 * The same with a bound: remaining requests are cut off with a code on which their client may
 * retry.
 */
static void a_bounded_drain_cuts_off_remaining_requests(void)
{
	const struct kvr_worker *w;
	uint64_t h, other;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 1));
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER + 1, 1, "a", 1));
	w = kvr_registry_find(rt->registry, WORKER);
	/* One request at each worker; the slots tell which. */
	pipeline_route(1, 100, 10, 0, NULL);
	h = take_agent_dispatch();
	pipeline_flush();
	pipeline_route(2, 300, 10, 0, NULL);
	other = take_agent_dispatch();
	CU_ASSERT_NOT_EQUAL_FATAL(kvr_flight_by_handle(rt->pool[0].requests, h)->relay.worker,
				  kvr_flight_by_handle(rt->pool[0].requests, other)->relay.worker);
	if (kvr_flight_by_handle(rt->pool[0].requests, h)->relay.worker != WORKER)
		h = other;
	CU_ASSERT_EQUAL(control_drain_bound(rt, WORKER, 3), -EPERM);
	CU_ASSERT_EQUAL(control_drain_bound(rt, 12345, 3), -ENOENT);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), 0);
	CU_ASSERT_EQUAL(control_drain_bound(rt, WORKER, 3), 0);
	pipeline_advance(2900);
	CU_ASSERT(w->state == KVR_WORKER_DRAINING && count_live() == 2);
	pipeline_flush();
	pipeline_advance(200);
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_WORKER_LOST);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT(w->state == KVR_WORKER_DRAINED && count_live() == 1);
	CU_ASSERT_EQUAL(kvr_flight_by_handle(rt->pool[0].requests, h)->state == KVR_FLIGHT_LIVE, 0);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, false), 0);
	CU_ASSERT(w->state == KVR_WORKER_SERVING && w->drain_ns == 0);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER + 1, true), 0);
	CU_ASSERT_EQUAL(control_drain_bound(rt, WORKER + 1, 1), 0);
	pipeline_advance(1100);
	end_pipeline();
}

static void progress_accounts_for_the_direct_path(void)
{
	struct kvr_wire_progress pr = {
		.flags = KVR_PROG_F_FIRST, .generated_tokens = 1, .cached_tokens = 0};
	struct kvr_wire_ids ids;
	uint8_t buf[128];
	uint64_t h;

	begin_pipeline();
	pipeline_route(1, 100, 10, KVR_REQ_F_DIRECT, NULL);
	h = take_agent_dispatch();
	ids = pipeline_make_ids(1, h);
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_progress(buf, sizeof(buf), &ids, &pr));
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_PROGRESS_ACK));
	CU_ASSERT_EQUAL(count_live(), 1);
	pr = (struct kvr_wire_progress){
		.seq = 1, .flags = KVR_PROG_F_FIN, .generated_tokens = 4, .cached_tokens = 0};
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_progress(buf, sizeof(buf), &ids, &pr));
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_PROGRESS_ACK));
	CU_ASSERT_EQUAL(count_live(), 0);
	end_pipeline();
}

/* ---- permissions ---- */

/* @rule 6.2: an id identifies one live request. */
static void another_prompt_under_a_live_id_is_rejected(void)
{
	uint64_t h;

	begin_pipeline();
	pipeline_route(1, 100, 10, 0, NULL);
	h = take_agent_dispatch();
	take_accepted_reply();
	pipeline_route(1, 900, 10, KVR_REQ_F_RESEND, NULL); /* same length, other blocks */
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_DUPLICATE_REQUEST);
	CU_ASSERT_EQUAL(take_agent_dispatch(), 0);
	send_pipeline_item(1, h, 0, 1, KVR_RESP_F_FIN);
	send_response_ack(1, h, 1, KVR_RACK_F_FIN);
	end_pipeline();
}

static void reserved_bits_of_relayed_frames_are_rejected(void)
{
	struct kvr_wire_response r = {.flags = 0x4000, .generated_tokens = 1};
	struct kvr_wire_ids ids;
	uint8_t buf[128];
	uint64_t h;

	begin_pipeline();
	pipeline_route(1, 100, 10, 0, NULL);
	h = take_agent_dispatch();
	ids = pipeline_make_ids(1, h);
	pipeline_send(
		PEER_AGENT, buf,
		(size_t)kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){NULL, 0}));
	pipeline_turn();
	CU_ASSERT_EQUAL(take_rejection(PEER_AGENT), KVR_E_FLAGS);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	send_pipeline_item(1, h, 0, 1, KVR_RESP_F_FIN);
	send_response_ack(1, h, 1, KVR_RACK_F_FIN);
	end_pipeline();
}

static void only_peers_of_a_request_can_change_it(void)
{
	uint64_t h;
	struct kvr_wire_ids ids;
	const struct kvr_wire_response r = {.flags = KVR_RESP_F_FIN, .generated_tokens = 1};
	uint8_t buf[128];

	begin_pipeline();
	pipeline_route(1, 100, 10, 0, NULL);
	h = take_agent_dispatch();
	ids = pipeline_make_ids(1, h);
	pipeline_send(
		PEER_OTHER, buf,
		(size_t)kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){NULL, 0}));
	pipeline_turn();
	CU_ASSERT_EQUAL(take_rejection(PEER_OTHER), KVR_E_NOT_ALLOWED);
	ids.id = 2; /* the right agent, another request */
	pipeline_send(
		PEER_AGENT, buf,
		(size_t)kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){NULL, 0}));
	pipeline_turn();
	CU_ASSERT_EQUAL(take_rejection(PEER_AGENT), KVR_E_NOT_ALLOWED);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(count_live(), 1);
	send_pipeline_item(1, h, 0, 1, KVR_RESP_F_FIN);
	send_response_ack(1, h, 1, KVR_RACK_F_FIN);
	end_pipeline();
}

/* @rule 7.6: the first class serves it, and the unknown name is counted. */
static void an_unknown_policy_class_is_the_first(void)
{
	uint8_t tlv[64];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	uint64_t h;

	begin_pipeline();
	kvr_hint_put_str(&hints, KVR_HINT_POLICY_CLASS, "gold");
	pipeline_route(1, 100, 10, 0, &hints);
	h = take_agent_dispatch();
	CU_ASSERT_EQUAL(kvr_stats_get(pipeline_get_pool()->live.rq.count, KVR_RQC_UNKNOWN_CLASS),
			1);
	send_pipeline_item(1, h, 0, 1, KVR_RESP_F_FIN);
	send_response_ack(1, h, 1, KVR_RACK_F_FIN);
	end_pipeline();
}

static void every_rejection_has_its_code(void)
{
	uint64_t in[IN_COUNTERS];
	uint8_t tlv[64], buf[512];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	struct kvr_wire_hdr *hdr = (void *)buf;
	struct kvr_wire_ids ids = pipeline_make_ids(1, 0);

	begin_pipeline();
	kvr_hint_put_u64(&hints, KVR_HINT_BACKEND, 12345);
	kvr_hint_put_u32(&hints, KVR_HINT_DP_RANK, 0);
	pipeline_route(1, 100, 10, 0, &hints);
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_NO_ENDPOINTS);
	hints.len = 0;
	kvr_hint_put_u64(&hints, KVR_HINT_BACKEND, WORKER);
	pipeline_route(2, 100, 10, 0, &hints);
	CU_ASSERT_TRUE(
		expect_rejection(PEER_CLIENT, KVR_E_DP_RANK_REQUIRED,
				 "the pinned worker has several ranks; give dp_rank: worker 9"));
	hints.len = 0;
	kvr_hint_put_u64(&hints, KVR_HINT_BACKEND, 12345);
	pipeline_route(5, 100, 10, 0, &hints);
	CU_ASSERT_TRUE(
		expect_rejection(PEER_CLIENT, KVR_E_DP_RANK_REQUIRED,
				 "pool a: the pinned worker is not registered: worker 12345"));
	hints.len = 0;
	kvr_hint_put_session(&hints, KVR_ACTION_OPEN, 0, "no time");
	pipeline_route(3, 100, 10, 0, &hints);
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_INVALID_SESSION);
	hints.len = 0;
	kvr_hint_put_allowed(&hints, NULL, 0);
	pipeline_route(4, 100, 10, 0, &hints);
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_NO_ENDPOINTS);
	memset(buf, 0, sizeof(buf));
	kvr_hdr_put(buf, KVR_ROUTE, &ids, 96, 0, 96);
	pipeline_send(PEER_CLIENT, buf, 144); /* pool 0, no prompt */
	pipeline_turn();
	CU_ASSERT_NOT_EQUAL(take_rejection(PEER_CLIENT), -1);
	hdr->version = 9;
	pipeline_send(PEER_CLIENT, buf, 144);
	pipeline_turn();
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_VERSION);
	hdr->version = KVR_WIRE_VERSION;
	hdr->kind = 200;
	pipeline_send(PEER_CLIENT, buf, 144);
	pipeline_turn();
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_KIND);
	hdr->magic = 0;
	pipeline_send(PEER_CLIENT, buf, 144);
	pipeline_turn();
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT),
			-1);		 /* not for this router: counted, not answered */
	kvr_stats_sum(rt->in_stats, in); /* summed over the lcores */
	CU_ASSERT_EQUAL(in[IN_BAD_MAGIC], 1);
	CU_ASSERT_EQUAL(kvr_flight_count(pipeline_get_pool()->requests), 0);
	end_pipeline();
}

static void hello_is_checked_against_the_pool(void)
{
	pipeline_start(2);
	CU_ASSERT_FALSE(pipeline_hello(1, 1, "unknown", 1));
	CU_ASSERT_EQUAL(take_rejection(PEER_AGENT), KVR_E_UNKNOWN_POOL);
	CU_ASSERT_FALSE(pipeline_hello(1, 0, "a", 1));
	CU_ASSERT_EQUAL(take_rejection(PEER_AGENT), KVR_E_STALE_EPOCH);
	CU_ASSERT_FALSE(pipeline_hello(1, 1, "a", 65)); /* the pool allows 64 */
	CU_ASSERT_EQUAL(take_rejection(PEER_AGENT), KVR_E_WORKER_LIMIT);
	CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), 0);
	CU_ASSERT_TRUE(pipeline_hello(1, 1, "a", 1));
	CU_ASSERT_TRUE(pipeline_hello(1, 1, "a", 1)); /* repeated */
	CU_ASSERT_TRUE(pipeline_hello(2, 1, "b", 64));
	CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), 2);
	end_pipeline();
}

/* ---- waiting ---- */

static void route_to_pool_b(uint64_t id)
{
	uint64_t hash[10];
	struct kvr_request_src src = {
		.fixed = {.pool = 6,
			  .isl = 40,
			  .max_tokens = KVR_NONE32,
			  .expected_output_tokens = KVR_NONE32},
		.hashes = hash,
		.n_hashes = 10,
	};
	const struct kvr_wire_ids ids = pipeline_make_ids(id, 0);
	struct kvr_slice s[KVR_REQUEST_SLICES];
	uint8_t frame[512];
	uint32_t len;

	for (int i = 0; i < 10; i++)
		hash[i] = id * 100 + (uint64_t)i;
	len = kvr_request_build(&src, s);
	kvr_hdr_put(frame, KVR_ROUTE, &ids, len, 0, (uint16_t)len);
	kvr_slices_copy(s, KVR_REQUEST_SLICES, 0, len, frame + sizeof(struct kvr_wire_hdr));
	pipeline_send(PEER_CLIENT, frame, sizeof(struct kvr_wire_hdr) + len);
	pipeline_turn();
}

/* @rule 7.1, @rule 7.3 */
static void a_busy_pool_admits_requests_in_order(void)
{
	uint64_t h1, h2;

	pipeline_start(2);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "b", 1));
	route_to_pool_b(1); /* 40 prefill tokens > 0.5 * 64 */
	h1 = take_agent_dispatch();
	CU_ASSERT_NOT_EQUAL(h1, 0);
	CU_ASSERT_PTR_NOT_NULL(take_accepted_reply());
	route_to_pool_b(2);
	CU_ASSERT_EQUAL(take_accepted_reply()->state, KVR_STATE_QUEUED);
	CU_ASSERT_EQUAL(take_agent_dispatch(), 0);
	route_to_pool_b(3);
	CU_ASSERT_EQUAL(take_accepted_reply()->queue_len, 2);
	send_empty_frame(PEER_CLIENT, KVR_PROBE, 3,
			 0); /* pool a gets the PROBE first and passes it on */
	CU_ASSERT_EQUAL(take_accepted_reply()->state, KVR_STATE_QUEUED);
	send_empty_frame(PEER_CLIENT, KVR_CANCEL, 3, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	send_pipeline_item(1, h1, 0, 1, 0); /* first token: prefill is done, the next may start */
	h2 = take_agent_dispatch();
	CU_ASSERT_NOT_EQUAL(h2, 0);
	CU_ASSERT_EQUAL(take_accepted_reply()->state, KVR_STATE_DISPATCHED);
	send_pipeline_item(1, h1, 1, 2, KVR_RESP_F_FIN);
	send_pipeline_item(2, h2, 0, 1, KVR_RESP_F_FIN);
	send_response_ack(1, h1, 2, KVR_RACK_F_FIN);
	send_response_ack(2, h2, 1, KVR_RACK_F_FIN);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[1].jobs), 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[1].sched)->booked_now, 0);
	end_pipeline();
}

/* Waiting clients send PROBE; one that is silent for client_timeout_ms is removed. */
static void a_waiting_request_of_a_silent_client_is_removed(void)
{
	const struct kvr_wire_rejected *said;
	const struct out *o;
	struct pool *b;
	uint64_t h1;

	pipeline_start(2);
	b = &rt->pool[1];
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "b", 1));
	route_to_pool_b(1);
	h1 = take_agent_dispatch();
	route_to_pool_b(2);
	route_to_pool_b(3);
	CU_ASSERT_EQUAL(kvr_sched_counters(b->sched)->waiting_now, 2);
	pipeline_advance(6000);
	send_empty_frame(PEER_CLIENT, KVR_PROBE, 3, 0); /* this client is alive */
	pipeline_advance(6000);
	for (int i = 0; i < 17; i++) {
		sched_tick(b->sched_lcore, b);
		pipeline_turn();
	}
	o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	said = (const void *)(&o->hdr + 1);
	CU_ASSERT(said->code == KVR_E_EXPIRED && said->detail[0] == 2 && said->detail[1] == 10000);
	CU_ASSERT_EQUAL(said->text_len, 37);
	CU_ASSERT_NSTRING_EQUAL(said + 1, "the client stopped sending, ms: 10000", 37);
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), -1);
	CU_ASSERT_EQUAL(kvr_sched_counters(b->sched)->waiting_now, 1);
	CU_ASSERT_EQUAL(kvr_stats_get(b->count, PC_CLIENT_GONE), 1);
	send_empty_frame(PEER_CLIENT, KVR_PROBE, 2, 0);
	CU_ASSERT_EQUAL(take_rejection(PEER_CLIENT), KVR_E_EXPIRED);
	send_empty_frame(PEER_CLIENT, KVR_CANCEL, 3, 0);
	send_pipeline_item(1, h1, 0, 1, KVR_RESP_F_FIN);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(b->jobs), 0);
	end_pipeline();
}

/* Waiting frames occupy receive buffers: the queue may not take all of them. */
static void waiting_requests_leave_receive_buffers(void)
{
	const uint32_t before = pipeline_body_len;
	struct pool *b;
	uint32_t refused = 0;
	uint64_t h;

	pipeline_router = "source_share = 0\nwaiting_frames = 8190\n";
	pipeline_start(2);
	pipeline_router = "source_share = 0\n";
	b = &rt->pool[1];
	CU_ASSERT_EQUAL(b->max_held, 8190 / 2);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "b", 1));
	route_to_pool_b(1);
	h = take_agent_dispatch();
	pipeline_pool = 6;
	pipeline_body_len = KVR_WIRE_MAX_BODY; /* about 760 frames */
	for (uint64_t id = 2; id < 12; id++) {
		pipeline_route(id, id * 100, 10, 0, NULL);
		refused += take_rejection(PEER_CLIENT) == KVR_E_NO_MEMORY;
	}
	CU_ASSERT_EQUAL(kvr_sched_counters(b->sched)->waiting_now, 5);
	CU_ASSERT_EQUAL(refused, 5);
	CU_ASSERT(b->live.held > 3500 && b->live.held <= b->max_held);
	for (uint64_t id = 2; id < 12; id++)
		send_empty_frame(PEER_CLIENT, KVR_CANCEL, id, 0);
	CU_ASSERT_EQUAL(b->live.held, 0);
	pipeline_body_len = before;
	pipeline_pool = 5;
	send_pipeline_item(1, h, 0, 1, KVR_RESP_F_FIN);
	end_pipeline();
}

/* @rule 15: POTENTIAL_LOADS reports the load each rank would have, and changes nothing. */
static void potential_loads_of_every_rank(void)
{
	const struct kvr_wire_loads *l;
	const struct kvr_wire_rank_potential *r;
	const struct out *o;
	uint64_t h;

	begin_pipeline();
	pipeline_route(1, 100, 6, 0, NULL);
	h = take_agent_dispatch();
	pipeline_flush();
	pipeline_kind = KVR_POTENTIAL_LOADS;
	pipeline_route(2, 500, 3, 0, NULL);
	o = pipeline_expect(PEER_CLIENT, KVR_LOADS);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.id, 2);
	l = (const void *)(&o->hdr + 1);
	r = (const void *)(l + 1);
	CU_ASSERT_EQUAL_FATAL(l->n_ranks, 2);
	CU_ASSERT_EQUAL(l->queue_len, 0);
	CU_ASSERT_EQUAL(o->hdr.msg_len, sizeof(*l) + 2 * sizeof(*r));
	CU_ASSERT(r[0].worker == WORKER && r[1].worker == WORKER && r[1].dp_rank == 1);
	CU_ASSERT_EQUAL(r[0].active_requests + r[1].active_requests, 1);
	CU_ASSERT_EQUAL(r[0].prefill_tokens + r[1].prefill_tokens, 24 + 12 + 12);
	CU_ASSERT_EQUAL(r[0].decode_blocks + r[1].decode_blocks, 6 + 3 + 3);
	pipeline_route(3, 500, 400, 0, NULL); /* a question of several frames */
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_LOADS));
	pipeline_kind = KVR_ROUTE;
	CU_ASSERT_EQUAL(count_live(), 1);
	CU_ASSERT_EQUAL(take_agent_dispatch(), 0);
	send_pipeline_item(1, h, 0, 1, KVR_RESP_F_FIN);
	end_pipeline();
}

/* ---- hostile ---- */

/* A valid frame of a random kind, from a permitted sender. */
static size_t send_random_frame(struct kvr_rand *rnd, uint8_t *buf, uint64_t handle, uint32_t *from)
{
	const struct kvr_wire_ids ids = {.source = kvr_rand_below(rnd, 2) ? 77 : WORKER,
					 .id = kvr_rand_below(rnd, 50),
					 .handle = handle,
					 .epoch = 1,
					 .msg_seq = kvr_rand_below(rnd, 50)};
	static const uint8_t kinds[] = {KVR_ROUTE,	    KVR_CANCEL,		KVR_PROBE,
					KVR_RESPONSE,	    KVR_RESPONSE_ACK,	KVR_PROGRESS,
					KVR_DISPATCH_ACK,   KVR_KV_EVENTS,	KVR_HEARTBEAT,
					KVR_CONNECT,	    KVR_ABORT_ACK,	KVR_SESSION_OPENED,
					KVR_SESSION_CLOSED, KVR_SESSION_RELEASE};
	const uint8_t kind = kinds[kvr_rand_below(rnd, sizeof(kinds))];
	const struct kvr_kind_info *info = kvr_kind_info(kind);
	uint32_t body = info->min_body + 8 * kvr_rand_below(rnd, 12);

	*from = (info->from & KVR_ROLE_BIT_AGENT) != 0 ? PEER_AGENT : PEER_CLIENT;
	if (info->max_body < body)
		body = info->max_body;
	memset(buf, 0, 48 + body);
	kvr_hdr_put(buf, kind, &ids, body, 0, (uint16_t)body);
	if (kind == KVR_ROUTE) {
		struct kvr_wire_request *q = (void *)(buf + 48);
		uint32_t n = (body - (uint32_t)sizeof(*q)) / 8;

		q->pool = 5;
		q->n_hashes = n;
		q->isl = n * 4 + kvr_rand_below(rnd, 4);
		q->max_tokens = KVR_NONE32;
		q->expected_output_tokens = KVR_NONE32;
	}
	if (kind == KVR_SESSION_RELEASE) {
		((struct kvr_wire_session *)(buf + 48))->pool = 5;
		((struct kvr_wire_session *)(buf + 48))->id_len = (uint16_t)(body - 8);
	}
	if (kind == KVR_KV_EVENTS) {
		struct kvr_wire_kv_events *e = (void *)(buf + 48);
		struct kvr_wire_kv_event *ev = (void *)(e + 1);

		if (body >= sizeof(*e) + sizeof(*ev)) {
			e->n_events = 1;
			e->first_event_id = kvr_rand_below(rnd, 4);
			ev->type = KVR_KV_STORED;
			ev->n_blocks = (body - (uint32_t)(sizeof(*e) + sizeof(*ev))) / 8;
		}
	}
	return 48 + body;
}

static void mutated_frames_leak_nothing(void)
{
	struct kvr_rand rnd;
	uint64_t handle = 0;
	uint8_t buf[1024];

	begin_pipeline();
	kvr_rand_init(&rnd, 2026);
	for (uint32_t i = 0; i < 1000000; i++) {
		uint32_t from, flips = kvr_rand_below(&rnd, 4);
		size_t len = send_random_frame(&rnd, buf, handle, &from);

		for (; flips > 0; flips--)
			buf[kvr_rand_below(&rnd, (uint32_t)len)] ^=
				(uint8_t)(1u << kvr_rand_below(&rnd, 8));
		if (kvr_rand_below(&rnd, 8) == 0)
			len = kvr_rand_below(&rnd, (uint32_t)len + 1);
		pipeline_send(from, buf, len);
		if (i % 16 == 15) {
			const struct out *o;

			lcore_turn(rt->lcore[0]);
			pipeline_turn();
			o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);
			handle = o != NULL && kvr_rand_below(&rnd, 2) ? o->hdr.handle : handle;
			pipeline_flush();
		}
		if (i % 65536 == 0)
			CU_ASSERT_TRUE_FATAL(pipeline_balanced());
	}
	/* All remaining bookings belong to the worker: it leaves and everything is freed. */
	kvr_registry_at(rt->registry, 0)->last_seen_ns = 0;
	rt->lcore[0]->now_ns += UINT64_C(10000000000);
	kvr_reasm_flush(rt->lcore[0]->reasm);
	pipeline_turn();
	pipeline_flush();
	end_pipeline();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_finished_request_leaves_nothing),
			       KVR_CASE(repeated_frames_change_nothing),
			       KVR_CASE(query_changes_nothing),
			       KVR_CASE(overlap_follows_the_events),
			       KVR_CASE(scores_do_not_outlive_an_incarnation),
			       KVR_CASE(dump_replaces_what_the_rank_holds),
			       KVR_CASE(a_heartbeat_detects_lost_events),
			       KVR_CASE(a_heartbeat_detects_an_interrupted_dump),
			       KVR_CASE(fragments_in_any_order_are_one_request),
			       KVR_CASE(longest_prompt_with_the_largest_body_passes),
			       KVR_CASE(tokens_are_hashed_with_lora_and_namespace),
			       KVR_CASE(lost_fragment_leaves_nothing_behind),
			       KVR_CASE(cancel_frees_and_aborts),
			       KVR_CASE(cancel_does_not_overtake_its_route),
			       KVR_CASE(a_rejected_dispatch_frees_the_booking),
			       KVR_CASE(probe_reports_the_state_of_a_request),
			       KVR_CASE(a_lost_worker_fails_its_requests_and_is_removed),
			       KVR_CASE(a_draining_worker_gets_no_requests_and_ends_drained),
			       KVR_CASE(a_drain_ends_with_the_silence_of_bookings),
			       KVR_CASE(a_bounded_drain_cuts_off_remaining_requests),
			       KVR_CASE(progress_accounts_for_the_direct_path),
			       KVR_CASE(another_prompt_under_a_live_id_is_rejected),
			       KVR_CASE(reserved_bits_of_relayed_frames_are_rejected),
			       KVR_CASE(only_peers_of_a_request_can_change_it),
			       KVR_CASE(every_rejection_has_its_code),
			       KVR_CASE(an_unknown_policy_class_is_the_first),
			       KVR_CASE(hello_is_checked_against_the_pool),
			       KVR_CASE(a_waiting_request_of_a_silent_client_is_removed),
			       KVR_CASE(waiting_requests_leave_receive_buffers),
			       KVR_CASE(potential_loads_of_every_rank),
			       KVR_CASE(a_busy_pool_admits_requests_in_order),
			       KVR_CASE(mutated_frames_leak_nothing),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("pipeline", tests);
}
