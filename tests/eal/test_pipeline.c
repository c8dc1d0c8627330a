/* SPDX-License-Identifier: BSD-3-Clause */
/* The router by the frame: what comes in, what goes out, what is left behind. */
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
#define LATER  20u /* joins behind it */

static struct pool *pool(void)
{
	return &rt->pool[0];
}

static uint64_t live(void)
{
	return (uint32_t)kvr_sched_counters(pool()->sched)->booked_now;
}

static struct kvr_wire_ids ids_of(uint64_t id, uint64_t handle)
{
	return (struct kvr_wire_ids){
		.source = 77, .id = id, .handle = handle, .epoch = pipeline_epoch(handle)};
}

/* One item of request @p id's answer, from the agent. */
static void respond(uint64_t id, uint64_t handle, uint32_t seq, uint32_t tokens, uint16_t flags)
{
	const struct kvr_wire_ids ids = ids_of(id, handle);
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

static void response_ack(uint64_t id, uint64_t handle, uint32_t next, uint32_t flags)
{
	const struct kvr_wire_ids ids = ids_of(id, handle);
	const struct kvr_wire_response_ack a = {next, flags};
	uint8_t buf[128];
	int len = kvr_put_response_ack(buf, sizeof(buf), &ids, &a);

	pipeline_send(PEER_CLIENT, buf, (size_t)len);
	pipeline_turn();
}

static void empty(uint32_t from, uint8_t kind, uint64_t id, uint64_t handle)
{
	const struct kvr_wire_ids ids = ids_of(id, handle);
	uint8_t buf[64];
	int len = kvr_put_empty(buf, sizeof(buf), kind, &ids);

	pipeline_send(from, buf, (size_t)len);
	pipeline_turn();
}

static void kv_event(uint64_t worker, uint32_t epoch, uint64_t event_id, uint8_t type,
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

/* Handle of the DISPATCH that the agent has got, 0 when there is none. */
static uint64_t dispatched(void)
{
	const struct out *o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);

	return o == NULL ? 0 : o->hdr.handle;
}

static int rejected(uint32_t to)
{
	const struct out *o = pipeline_expect(to, KVR_REJECTED);

	return o == NULL ? -1 : ((const struct kvr_wire_rejected *)(&o->hdr + 1))->code;
}

/* Refused with these words, and the code. */
static bool rejected_with(uint32_t to, enum kvr_code code, const char *words)
{
	const struct out *o = pipeline_expect(to, KVR_REJECTED);
	const struct kvr_wire_rejected *said = o != NULL ? (const void *)(&o->hdr + 1) : NULL;

	return said != NULL && said->code == code && said->text_len == strlen(words) &&
	       memcmp(said + 1, words, strlen(words)) == 0;
}

static const struct kvr_wire_accepted *accepted(void)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);

	return o == NULL ? NULL : (const struct kvr_wire_accepted *)(&o->hdr + 1);
}

static void begin(void)
{
	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 2));
}

/* Nothing may be left: counters add up, no booking, no frame. */
static void end(void)
{
	uint32_t spare = 0;

	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(live(), 0);
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(pool()->jobs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->small_bufs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hash_bufs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hint_bufs), 0);
	for (uint32_t i = 0; i < rt->n_lcores; i++)
		spare += rt->lcore[i]->spare != NULL;
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->frame_lists), spare);
	pipeline_stop();
}

/* ---- life cycles ---- */

static void request_lives_and_leaves_nothing(void)
{
	const struct kvr_wire_accepted *a;
	const struct kvr_wire_request *q;
	const struct out *o;
	uint64_t h;

	begin();
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
	a = accepted();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->state, KVR_STATE_DISPATCHED);
	CU_ASSERT_EQUAL(a->worker, WORKER);
	CU_ASSERT_EQUAL(a->required_blocks, 10);
	CU_ASSERT(a->prefill_worker == 0 && a->prefill_dp_rank == KVR_NONE32);
	CU_ASSERT_EQUAL(a->path, KVR_WAY_AGGREGATED);
	CU_ASSERT_EQUAL(live(), 1);

	respond(1, h, 0, 1, 0);
	o = pipeline_expect(PEER_CLIENT, KVR_RESPONSE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(((const struct kvr_wire_response *)(&o->hdr + 1))->generated_tokens, 1);
	respond(1, h, 1, 2, KVR_RESP_F_FIN);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(live(), 0);
	CU_ASSERT_EQUAL(kvr_flight_count(pool()->requests), 1); /* lingers */
	response_ack(1, h, 2, KVR_RACK_F_FIN);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	CU_ASSERT_EQUAL(kvr_flight_count(pool()->requests), 0);
	end();
}

static void repeated_frames_change_nothing(void)
{
	const struct kvr_wire_accepted *a;
	uint64_t h;

	begin();
	pipeline_route(1, 100, 10, 0, NULL);
	h = dispatched();
	CU_ASSERT_PTR_NOT_NULL(accepted());
	pipeline_route(1, 100, 10, 0, NULL); /* duplicated by the network */
	a = accepted();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->state, KVR_STATE_DISPATCHED);
	CU_ASSERT_EQUAL(dispatched(), 0);
	pipeline_route(1, 100, 10, KVR_REQ_F_RESEND, NULL); /* repeated by the client */
	CU_ASSERT_EQUAL(dispatched(), h);
	CU_ASSERT_EQUAL(live(), 1);
	empty(PEER_AGENT, KVR_DISPATCH_ACK, 1, h); /* wrong body: refused */
	CU_ASSERT_EQUAL(live(), 1);
	pipeline_flush();
	respond(1, h, 0, 1, KVR_RESP_F_FIN);
	pipeline_route(1, 100, 10, KVR_REQ_F_RESEND, NULL); /* every item was lost on the way */
	CU_ASSERT_EQUAL(accepted()->state, KVR_STATE_RUNNING);
	CU_ASSERT_EQUAL(dispatched(), 0);
	respond(1, h, 0, 1, KVR_RESP_F_FIN); /* the client has not acknowledged yet */
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(live(), 0);
	response_ack(1, h, 1, KVR_RACK_F_FIN);
	response_ack(1, h, 1, KVR_RACK_F_FIN); /* late: ignored */
	pipeline_flush();
	pipeline_route(1, 100, 10, KVR_REQ_F_RESEND, NULL); /* very late */
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_ENDED);
	CU_ASSERT_EQUAL(dispatched(), 0);
	respond(1, h, 0, 1, KVR_RESP_F_FIN); /* nobody listens any more */
	CU_ASSERT_EQUAL(rejected(PEER_AGENT), KVR_E_UNKNOWN_REQUEST);
	end();
}

static void query_changes_nothing(void)
{
	const struct kvr_wire_accepted *a;

	begin();
	pipeline_route(1, 100, 10, KVR_REQ_F_QUERY, NULL);
	a = accepted();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->state, KVR_STATE_QUERY);
	CU_ASSERT_EQUAL(a->worker, WORKER);
	CU_ASSERT_EQUAL(dispatched(), 0);
	CU_ASSERT_EQUAL(kvr_flight_count(pool()->requests), 0);
	end();
}

static void overlap_follows_the_events(void)
{
	const struct out *o;
	const struct kvr_wire_kv_ack *k;

	begin();
	kv_event(WORKER, 1, 0, KVR_KV_STORED, 100, 10);
	o = pipeline_expect(PEER_AGENT, KVR_KV_ACK);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	k = (const void *)(&o->hdr + 1);
	CU_ASSERT_EQUAL(k->next_event_id, 1);
	CU_ASSERT_EQUAL(k->code, KVR_KV_OK);
	pipeline_route(1, 100, 12, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_EQUAL(accepted()->overlap_blocks, 10);
	kv_event(WORKER, 1, 0, KVR_KV_STORED, 110, 2); /* past: not applied */
	pipeline_route(2, 100, 12, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_EQUAL(accepted()->overlap_blocks, 10);
	pipeline_flush();
	kv_event(WORKER, 1, 5, KVR_KV_STORED, 110, 2); /* future: a gap */
	k = (const void *)(&pipeline_expect(PEER_AGENT, KVR_KV_ACK)->hdr + 1);
	CU_ASSERT_EQUAL(k->code, KVR_KV_GAP);
	CU_ASSERT_EQUAL(k->next_event_id, 1);
	kv_event(WORKER, 1, 1, KVR_KV_REMOVED, 104, 1);
	pipeline_route(3, 100, 12, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_EQUAL(accepted()->overlap_blocks, 4);
	pipeline_flush();
	kv_event(WORKER, 2, 2, KVR_KV_STORED, 100, 10); /* another life */
	k = (const void *)(&pipeline_expect(PEER_AGENT, KVR_KV_ACK)->hdr + 1);
	CU_ASSERT_EQUAL(k->code, KVR_KV_HELLO);
	kv_event(WORKER + 1, 1, 0, KVR_KV_STORED, 100, 10); /* nobody */
	k = (const void *)(&pipeline_expect(PEER_AGENT, KVR_KV_ACK)->hdr + 1);
	CU_ASSERT_EQUAL(k->code, KVR_KV_HELLO);
	kv_event(WORKER, 1, 2, KVR_KV_CLEARED, 0, 0);
	pipeline_route(4, 100, 12, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_EQUAL(accepted()->overlap_blocks, 0);
	end();
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
 * A request has been scored, and its scheduler is slow to take it: meanwhile the worker comes back
 * with nothing, or goes and another one gets the numbers of its ranks. Then nobody has its blocks.
 */
static void what_was_scored_before_a_life_is_not_of_it(void)
{
	if (threads_used() != NULL) /* which do not stop for anybody */
		return;
	for (uint32_t other = 0; other < 2; other++) {
		struct lcore *lc;

		begin();
		lc = rt->pool[0].sched_lcore;
		CU_ASSERT_TRUE(pipeline_hello(LATER, 1, "a", 2)); /* behind the ranks of WORKER */
		kv_event(LATER, 1, 0, KVR_KV_STORED, 100, 10);
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
		CU_ASSERT_EQUAL(accepted()->overlap_blocks, 0);
		CU_ASSERT_EQUAL(potential_overlap(), 0);
		kv_event(LATER + other, 2, 0, KVR_KV_STORED, 100, 3);
		pipeline_route(3, 100, 12, KVR_REQ_F_QUERY, NULL);
		CU_ASSERT_EQUAL(accepted()->overlap_blocks, 3);
		end();
	}
}

/* A frame of dump @p id: position, flags, one stored event of @p n blocks (0: none). */
static void dump_frame(uint64_t pos, uint16_t flags, uint64_t id, uint64_t hash0, uint32_t n,
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

static uint32_t overlap(uint64_t id)
{
	pipeline_route(id, 100, 12, KVR_REQ_F_QUERY, NULL);
	return accepted()->overlap_blocks;
}

static struct kvr_wire_kv_ack last_ack(void)
{
	struct kvr_wire_kv_ack a = {.code = 999};
	const struct out *o;

	while ((o = pipeline_expect(PEER_AGENT, KVR_KV_ACK)) != NULL)
		memcpy(&a, &o->hdr + 1, sizeof(a));
	return a;
}

static void dump_replaces_what_the_rank_holds(void)
{
	begin();
	kv_event(WORKER, 1, 0, KVR_KV_STORED, 100, 12);
	CU_ASSERT_EQUAL(overlap(1), 12);
	dump_frame(0, KVR_KV_F_DUMP_BEGIN, 50, 100, 4, 0);
	CU_ASSERT_EQUAL(last_ack().next_dump_pos, 1);
	CU_ASSERT_EQUAL(overlap(2), 4);
	dump_frame(2, KVR_KV_F_DUMP_END, 50, 106, 1, 20); /* frame 1 is missing */
	CU_ASSERT_EQUAL(last_ack().next_dump_pos, 1);
	kv_event(WORKER, 1, 1, KVR_KV_STORED, 106, 6); /* from before the dump */
	CU_ASSERT_EQUAL(overlap(3), 4);
	dump_frame(1, 0, 49, 200, 2, 0); /* of another dump */
	CU_ASSERT_EQUAL(last_ack().code, KVR_KV_DUMP_WANTED);
	dump_frame(1, 0, 50, 104, 2, 0);
	dump_frame(2, KVR_KV_F_DUMP_END, 50, 106, 1, 20);
	CU_ASSERT_EQUAL(last_ack().next_dump_pos, 3);
	CU_ASSERT_EQUAL(overlap(4), 7);
	dump_frame(0, KVR_KV_F_DUMP_BEGIN, 50, 100, 4, 0); /* late copy: nothing is emptied */
	CU_ASSERT_EQUAL(last_ack().next_dump_pos, 3);
	CU_ASSERT_EQUAL(overlap(5), 7);
	kv_event(WORKER, 1, 20, KVR_KV_STORED, 107, 1); /* live again at resume_event_id */
	CU_ASSERT_EQUAL(last_ack().next_event_id, 21);
	CU_ASSERT_EQUAL(overlap(6), 8);
	dump_frame(0, KVR_KV_F_DUMP_BEGIN | KVR_KV_F_DUMP_END, 60, 0, 0, 30); /* an empty one */
	CU_ASSERT_EQUAL(overlap(7), 0);
	end();
}

static void heartbeat(uint64_t next_event_id)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 3, .epoch = 1};
	const struct kvr_wire_rank_load load = {.kv_used_blocks = 5,
						.next_event_id = next_event_id};
	uint8_t buf[256];
	int len = kvr_put_heartbeat(buf, sizeof(buf), &ids, &load, 1, 0, 0);

	pipeline_send(PEER_AGENT, buf, (size_t)len);
	pipeline_turn();
}

/* A late first frame of an earlier dump: the agent has no more of it, and does not know. */
static void heartbeat_finds_a_dump_that_does_not_go_on(void)
{
	begin();
	kv_event(WORKER, 1, 0, KVR_KV_STORED, 100, 12);
	dump_frame(0, KVR_KV_F_DUMP_BEGIN, 50, 100, 4, 0);
	last_ack();   /* and all before */
	heartbeat(1); /* it may be under way */
	CU_ASSERT_EQUAL(last_ack().code, 999);
	dump_frame(1, 0, 50, 104, 2, 0);
	last_ack();   /* and all before */
	heartbeat(1); /* so it was */
	CU_ASSERT_EQUAL(last_ack().code, 999);
	for (int i = 0; i < 2; i++) { /* a whole heartbeat without any */
		struct kvr_wire_kv_ack a;

		heartbeat(1);
		a = last_ack();
		CU_ASSERT(a.code == KVR_KV_DUMP_WANTED && a.next_dump_pos == 0);
	}
	dump_frame(0, KVR_KV_F_DUMP_BEGIN | KVR_KV_F_DUMP_END, 60, 100, 12, 1);
	last_ack(); /* and all before */
	for (int i = 0; i < 3; i++)
		heartbeat(1);
	CU_ASSERT_EQUAL(last_ack().code, 999);
	CU_ASSERT_EQUAL(overlap(9), 12);
	end();
}

static void heartbeat_finds_events_that_never_came(void)
{
	begin();
	heartbeat(0);
	CU_ASSERT_EQUAL(last_ack().code, 999);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_HEARTBEAT_ACK));
	heartbeat(7); /* may be under way */
	CU_ASSERT_EQUAL(last_ack().code, 999);
	heartbeat(7); /* a whole heartbeat without any */
	CU_ASSERT_EQUAL(last_ack().code, KVR_KV_DUMP_WANTED);
	kv_event(WORKER, 1, 0, KVR_KV_STORED, 100, 2);
	last_ack();
	heartbeat(7);
	CU_ASSERT_EQUAL(last_ack().code, 999); /* it moves */
	heartbeat(7);
	CU_ASSERT_EQUAL(last_ack().code, KVR_KV_GAP);
	end();
}

static void fragments_in_any_order_are_one_request(void)
{
	const struct out *o;
	uint32_t bytes = 0, frames = 0;
	uint64_t h = 0;

	begin();
	pipeline_route(1, 5000, 4000, 0, NULL); /* 32 kB of hashes */
	while ((o = pipeline_expect(PEER_AGENT, KVR_DISPATCH)) != NULL) {
		h = o->hdr.handle;
		bytes += o->hdr.frag_len;
		frames++;
		CU_ASSERT(o->len <= 1432);
	}
	CU_ASSERT(frames > 20);
	CU_ASSERT_EQUAL(bytes, sizeof(struct kvr_wire_request) + 4000 * 8 + 8);
	CU_ASSERT_EQUAL(accepted()->required_blocks, 4000);
	respond(1, h, 0, 1, KVR_RESP_F_FIN);
	response_ack(1, h, 1, KVR_RACK_F_FIN);
	end();
}

static void longest_prompt_with_the_largest_body_passes(void)
{
	const struct out *o;
	uint64_t bytes = 0, h = 0;

	begin();
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
	CU_ASSERT_EQUAL(accepted()->required_blocks, KVR_WIRE_MAX_HASHES);
	respond(1, h, 0, 1, KVR_RESP_F_FIN);
	response_ack(1, h, 1, KVR_RACK_F_FIN);
	end();
}

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

	begin();
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
	CU_ASSERT_EQUAL(accepted()->overlap_blocks, 10);
	pipeline_route_tokens(2, 7, 40, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_EQUAL(accepted()->overlap_blocks, 0);
	pipeline_route_tokens(3, 7, 2000, KVR_REQ_F_QUERY, &hints); /* in fragments */
	CU_ASSERT_EQUAL(accepted()->overlap_blocks, 10);
	if (rt->conf.n_ingress == 1) { /* each of several has buffers for less */
		pipeline_route_tokens(4, 7, KVR_WIRE_MAX_TOKENS, 0, NULL); /* 262,144 blocks of 4 */
		CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_PROMPT_TOO_LONG);
	}
	end();
}

static void lost_fragment_leaves_nothing_behind(void)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = 5, .epoch = 1, .msg_seq = 5};
	uint8_t buf[1000] = {0};

	begin();
	kvr_hdr_put(buf, KVR_ROUTE, &ids, 20000, 0, 952);
	pipeline_send(PEER_CLIENT, buf, sizeof(buf));
	pipeline_turn();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 1);
	for (uint32_t i = 0; i < rt->conf.n_ingress; i++) /* one of them has it */
		kvr_reasm_expire(rt->lcore[i]->reasm, rt->lcore[i]->now_ns + UINT64_C(10000000000),
				 10);
	end();
}

/* ---- ends ---- */

static void cancel_frees_and_tells_the_worker(void)
{
	uint64_t h;

	begin();
	pipeline_route(1, 100, 10, 0, NULL);
	h = dispatched();
	empty(PEER_CLIENT, KVR_CANCEL, 1, h);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT_EQUAL(live(), 0);
	empty(PEER_CLIENT, KVR_CANCEL, 1, h); /* again: answered, nothing more */
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	empty(PEER_AGENT, KVR_ABORT_ACK, 1, h);
	respond(1, h, 0, 1, KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	response_ack(1, h, 1, KVR_RACK_F_FIN);
	empty(PEER_CLIENT, KVR_CANCEL, 99, 0); /* unknown: answered all the same */
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	end();
}

/* A client that leaves at once: both are read in one poll, and must be handled in their order. */
static void cancel_does_not_overtake_its_route(void)
{
	uint64_t h;

	begin();
	if (rt->conf.n_ingress > 1) { /* they need not come to one lcore */
		end();
		return;
	}
	pipeline_together = true;
	for (uint64_t id = 1; id <= 3; id++)
		pipeline_route(id, 100 * id, 10, 0, NULL);
	pipeline_together = false;
	empty(PEER_CLIENT, KVR_CANCEL, 2, 0);
	CU_ASSERT_EQUAL(live(), 2);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	pipeline_flush();
	for (uint64_t id = 1; id <= 3; id++) {
		const struct out *o;

		empty(PEER_CLIENT, KVR_CANCEL, id, 0);
		o = pipeline_expect(PEER_AGENT, KVR_ABORT);
		h = o != NULL ? o->hdr.handle : 0;
		CU_ASSERT_EQUAL(h != 0, id != 2); /* that one has been stopped */
		pipeline_flush();
	}
	CU_ASSERT_EQUAL(live(), 0);
	pipeline_stop();
}

static void refused_dispatch_frees_the_booking(void)
{
	const struct kvr_wire_dispatch_ack no = {.code = 3};
	struct kvr_wire_ids ids;
	const struct out *o;
	uint8_t buf[128];
	uint64_t h;

	begin();
	pipeline_route(1, 100, 10, 0, NULL);
	h = dispatched();
	ids = ids_of(1, h);
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &no));
	pipeline_turn();
	CU_ASSERT_EQUAL(live(), 0);
	o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(((const struct kvr_wire_rejected *)(&o->hdr + 1))->code,
			KVR_E_DISPATCH_FAILED);
	CU_ASSERT_EQUAL(((const struct kvr_wire_rejected *)(&o->hdr + 1))->detail[0], 3);
	CU_ASSERT_EQUAL(((const struct kvr_wire_rejected *)(&o->hdr + 1))->retryable, 1);
	empty(PEER_CLIENT, KVR_PROBE, 1, 0); /* the refusal was lost: it is said again */
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_DISPATCH_FAILED);
	end();
}

static void probe_says_where_a_request_stands(void)
{
	const struct kvr_wire_dispatch_ack yes = {.code = 0};
	struct kvr_wire_ids ids;
	uint8_t buf[128];
	uint64_t h;

	begin();
	empty(PEER_CLIENT, KVR_PROBE, 1, 0);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_UNKNOWN_REQUEST);
	pipeline_route(1, 100, 10, 0, NULL);
	CU_ASSERT_PTR_NOT_NULL(accepted());
	h = dispatched();
	empty(PEER_CLIENT, KVR_PROBE, 1, 0);
	CU_ASSERT_EQUAL(accepted()->state, KVR_STATE_DISPATCHED);
	ids = ids_of(1, h);
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &yes));
	pipeline_turn();
	empty(PEER_CLIENT, KVR_PROBE, 1, h);
	CU_ASSERT_EQUAL(accepted()->state, KVR_STATE_RUNNING);
	respond(1, h, 0, 1, KVR_RESP_F_FIN);
	empty(PEER_CLIENT, KVR_PROBE, 1, h); /* the last item may be lost: it will be repeated */
	CU_ASSERT_EQUAL(accepted()->state, KVR_STATE_RUNNING);
	response_ack(1, h, 1, KVR_RACK_F_FIN);
	empty(PEER_CLIENT, KVR_PROBE, 1, h);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_ENDED);
	end();
}

static void lost_worker_fails_its_requests_and_is_forgotten(void)
{
	begin();
	kv_event(WORKER, 1, 0, KVR_KV_STORED, 100, 10);
	pipeline_route(1, 100, 10, 0, NULL);
	CU_ASSERT_NOT_EQUAL(dispatched(), 0);
	pipeline_flush();
	CU_ASSERT_TRUE(pipeline_hello(WORKER, 2, "a", 2)); /* restarted */
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_WORKER_LOST);
	CU_ASSERT_FALSE(pipeline_hello(WORKER, 1, "a", 2)); /* late, from the life before */
	CU_ASSERT_EQUAL(rejected(PEER_AGENT), KVR_E_STALE_EPOCH);
	CU_ASSERT_EQUAL(live(), 0);
	pipeline_route(2, 100, 10, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_EQUAL(accepted()->overlap_blocks, 0);
	CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), 1);
	empty(PEER_AGENT, KVR_GOODBYE, 1, 0); /* source 77: not this worker */
	CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), 1);
	kvr_registry_at(rt->registry, 0)->last_seen_ns = 0; /* silent for long */
	pipeline_turn();
	CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), 0);
	pipeline_flush();
	pipeline_route(3, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_NO_ENDPOINTS);
	end();
}

static void draining_worker_takes_nothing_new_and_ends_drained(void)
{
	uint64_t h;

	begin();
	pipeline_route(1, 100, 10, 0, NULL);
	h = dispatched();
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), 0);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), -EALREADY);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER + 1, true), -ENOENT);
	pipeline_turn();
	CU_ASSERT_EQUAL(kvr_registry_at(rt->registry, 0)->state, KVR_WORKER_DRAINING);
	pipeline_flush();
	pipeline_route(2, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_NO_ENDPOINTS);
	respond(1, h, 0, 1, KVR_RESP_F_FIN);
	response_ack(1, h, 1, KVR_RACK_F_FIN);
	pipeline_turn();
	CU_ASSERT_EQUAL(kvr_registry_at(rt->registry, 0)->state, KVR_WORKER_DRAINED);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, false), 0);
	pipeline_flush();
	pipeline_route(3, 100, 10, KVR_REQ_F_QUERY, NULL);
	CU_ASSERT_PTR_NOT_NULL(accepted());
	end();
}

/* An agent that says nothing of what it has: the silence of its requests bounds the drain; one
 * whose client is silent, too, ends then. */
static void a_drain_ends_with_the_silence_of_bookings(void)
{
	uint32_t seconds = 0;

	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL "active_request_expiry_secs = 2\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 2));
	pipeline_route(1, 100, 10, 0, NULL);
	CU_ASSERT_NOT_EQUAL(dispatched(), 0);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), 0);
	pipeline_advance(1000);
	CU_ASSERT_EQUAL(kvr_registry_at(rt->registry, 0)->state, KVR_WORKER_DRAINING);
	CU_ASSERT_EQUAL(kvr_registry_at(rt->registry, 0)->bookings, 1);
	pipeline_flush();
	while (kvr_registry_at(rt->registry, 0)->state == KVR_WORKER_DRAINING && seconds < 100) {
		pipeline_advance(1000);
		seconds++;
	}
	CU_ASSERT(seconds <= 2 + 60 + 1); /* the limit, and the pause between two sweeps */
	CU_ASSERT_EQUAL(kvr_registry_at(rt->registry, 0)->state, KVR_WORKER_DRAINED);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_EXPIRED);
	end();
}

/* The same with a bound: what is left is cut off, by a word that its client may act on. */
static void a_drain_with_a_bound_cuts_off_what_is_left(void)
{
	const struct kvr_worker *w;
	uint64_t h, other;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 1));
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER + 1, 1, "a", 1));
	w = kvr_registry_find(rt->registry, WORKER);
	/* One at each; which is whose the slots say. */
	pipeline_route(1, 100, 10, 0, NULL);
	h = dispatched();
	pipeline_flush();
	pipeline_route(2, 300, 10, 0, NULL);
	other = dispatched();
	CU_ASSERT_NOT_EQUAL_FATAL(kvr_flight_by_handle(rt->pool[0].requests, h)->relay.worker,
				  kvr_flight_by_handle(rt->pool[0].requests, other)->relay.worker);
	if (kvr_flight_by_handle(rt->pool[0].requests, h)->relay.worker != WORKER)
		h = other;
	CU_ASSERT_EQUAL(control_drain_bound(rt, WORKER, 3), -EPERM);
	CU_ASSERT_EQUAL(control_drain_bound(rt, 12345, 3), -ENOENT);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), 0);
	CU_ASSERT_EQUAL(control_drain_bound(rt, WORKER, 3), 0);
	pipeline_advance(2900);
	CU_ASSERT(w->state == KVR_WORKER_DRAINING && live() == 2);
	pipeline_flush();
	pipeline_advance(200);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_WORKER_LOST);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT(w->state == KVR_WORKER_DRAINED && live() == 1);
	CU_ASSERT_EQUAL(kvr_flight_by_handle(rt->pool[0].requests, h)->state == KVR_FLIGHT_LIVE, 0);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, false), 0);
	CU_ASSERT(w->state == KVR_WORKER_SERVING && w->drain_ns == 0);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER + 1, true), 0);
	CU_ASSERT_EQUAL(control_drain_bound(rt, WORKER + 1, 1), 0);
	pipeline_advance(1100);
	end();
}

static void direct_path_is_accounted_by_progress(void)
{
	struct kvr_wire_progress pr = {
		.flags = KVR_PROG_F_FIRST, .generated_tokens = 1, .cached_tokens = 0};
	struct kvr_wire_ids ids;
	uint8_t buf[128];
	uint64_t h;

	begin();
	pipeline_route(1, 100, 10, KVR_REQ_F_DIRECT, NULL);
	h = dispatched();
	ids = ids_of(1, h);
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_progress(buf, sizeof(buf), &ids, &pr));
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_PROGRESS_ACK));
	CU_ASSERT_EQUAL(live(), 1);
	pr = (struct kvr_wire_progress){
		.seq = 1, .flags = KVR_PROG_F_FIN, .generated_tokens = 4, .cached_tokens = 0};
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_progress(buf, sizeof(buf), &ids, &pr));
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_PROGRESS_ACK));
	CU_ASSERT_EQUAL(live(), 0);
	end();
}

/* ---- who may do what ---- */

static void other_prompt_under_a_live_id_is_refused(void)
{
	uint64_t h;

	begin();
	pipeline_route(1, 100, 10, 0, NULL);
	h = dispatched();
	accepted();
	pipeline_route(1, 900, 10, KVR_REQ_F_RESEND, NULL); /* same length, other blocks */
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_DUPLICATE_REQUEST);
	CU_ASSERT_EQUAL(dispatched(), 0);
	respond(1, h, 0, 1, KVR_RESP_F_FIN);
	response_ack(1, h, 1, KVR_RACK_F_FIN);
	end();
}

static void reserved_bits_of_relayed_frames_are_refused(void)
{
	struct kvr_wire_response r = {.flags = 0x4000, .generated_tokens = 1};
	struct kvr_wire_ids ids;
	uint8_t buf[128];
	uint64_t h;

	begin();
	pipeline_route(1, 100, 10, 0, NULL);
	h = dispatched();
	ids = ids_of(1, h);
	pipeline_send(
		PEER_AGENT, buf,
		(size_t)kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){NULL, 0}));
	pipeline_turn();
	CU_ASSERT_EQUAL(rejected(PEER_AGENT), KVR_E_FLAGS);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	respond(1, h, 0, 1, KVR_RESP_F_FIN);
	response_ack(1, h, 1, KVR_RACK_F_FIN);
	end();
}

static void strangers_cannot_touch_a_request(void)
{
	uint64_t h;
	struct kvr_wire_ids ids;
	const struct kvr_wire_response r = {.flags = KVR_RESP_F_FIN, .generated_tokens = 1};
	uint8_t buf[128];

	begin();
	pipeline_route(1, 100, 10, 0, NULL);
	h = dispatched();
	ids = ids_of(1, h);
	pipeline_send(
		PEER_OTHER, buf,
		(size_t)kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){NULL, 0}));
	pipeline_turn();
	CU_ASSERT_EQUAL(rejected(PEER_OTHER), KVR_E_NOT_ALLOWED);
	ids.id = 2; /* the right agent about another request */
	pipeline_send(
		PEER_AGENT, buf,
		(size_t)kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){NULL, 0}));
	pipeline_turn();
	CU_ASSERT_EQUAL(rejected(PEER_AGENT), KVR_E_NOT_ALLOWED);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(live(), 1);
	respond(1, h, 0, 1, KVR_RESP_F_FIN);
	response_ack(1, h, 1, KVR_RACK_F_FIN);
	end();
}

/* The first class serves it, and who looks sees that it was not the one that was named. */
static void unknown_policy_class_is_the_first(void)
{
	uint8_t tlv[64];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	uint64_t h;

	begin();
	kvr_hint_put_str(&hints, KVR_HINT_POLICY_CLASS, "gold");
	pipeline_route(1, 100, 10, 0, &hints);
	h = dispatched();
	CU_ASSERT_EQUAL(kvr_stats_get(pool()->live.rq.count, KVR_RQC_UNKNOWN_CLASS), 1);
	respond(1, h, 0, 1, KVR_RESP_F_FIN);
	response_ack(1, h, 1, KVR_RACK_F_FIN);
	end();
}

static void every_refusal_has_its_code(void)
{
	uint64_t in[IN_COUNTERS];
	uint8_t tlv[64], buf[512];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	struct kvr_wire_hdr *hdr = (void *)buf;
	struct kvr_wire_ids ids = ids_of(1, 0);

	begin();
	kvr_hint_put_u64(&hints, KVR_HINT_BACKEND, 12345);
	kvr_hint_put_u32(&hints, KVR_HINT_DP_RANK, 0);
	pipeline_route(1, 100, 10, 0, &hints);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_NO_ENDPOINTS);
	hints.len = 0;
	kvr_hint_put_u64(&hints, KVR_HINT_BACKEND, WORKER);
	pipeline_route(2, 100, 10, 0, &hints);
	CU_ASSERT_TRUE(rejected_with(PEER_CLIENT, KVR_E_DP_RANK_REQUIRED,
				     "the pinned worker has several ranks: say which: worker 9"));
	hints.len = 0;
	kvr_hint_put_u64(&hints, KVR_HINT_BACKEND, 12345);
	pipeline_route(5, 100, 10, 0, &hints);
	CU_ASSERT_TRUE(rejected_with(PEER_CLIENT, KVR_E_DP_RANK_REQUIRED,
				     "pool a has no such worker as the pin names: worker 12345"));
	hints.len = 0;
	kvr_hint_put_session(&hints, KVR_ACTION_OPEN, 0, "no time");
	pipeline_route(3, 100, 10, 0, &hints);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_INVALID_SESSION);
	hints.len = 0;
	kvr_hint_put_allowed(&hints, NULL, 0);
	pipeline_route(4, 100, 10, 0, &hints);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_NO_ENDPOINTS);
	memset(buf, 0, sizeof(buf));
	kvr_hdr_put(buf, KVR_ROUTE, &ids, 96, 0, 96);
	pipeline_send(PEER_CLIENT, buf, 144); /* pool 0, no prompt */
	pipeline_turn();
	CU_ASSERT_NOT_EQUAL(rejected(PEER_CLIENT), -1);
	hdr->version = 9;
	pipeline_send(PEER_CLIENT, buf, 144);
	pipeline_turn();
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_VERSION);
	hdr->version = KVR_WIRE_VERSION;
	hdr->kind = 200;
	pipeline_send(PEER_CLIENT, buf, 144);
	pipeline_turn();
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_KIND);
	hdr->magic = 0;
	pipeline_send(PEER_CLIENT, buf, 144);
	pipeline_turn();
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), -1); /* not ours: counted, not answered */
	kvr_stats_sum(rt->in_stats, in);	    /* whichever lcore has it */
	CU_ASSERT_EQUAL(in[IN_BAD_MAGIC], 1);
	CU_ASSERT_EQUAL(kvr_flight_count(pool()->requests), 0);
	end();
}

static void hello_is_checked_against_the_pool(void)
{
	pipeline_start(2);
	CU_ASSERT_FALSE(pipeline_hello(1, 1, "nobody", 1));
	CU_ASSERT_EQUAL(rejected(PEER_AGENT), KVR_E_UNKNOWN_POOL);
	CU_ASSERT_FALSE(pipeline_hello(1, 0, "a", 1));
	CU_ASSERT_EQUAL(rejected(PEER_AGENT), KVR_E_STALE_EPOCH);
	CU_ASSERT_FALSE(pipeline_hello(1, 1, "a", 65)); /* the pool has 64 */
	CU_ASSERT_EQUAL(rejected(PEER_AGENT), KVR_E_WORKER_LIMIT);
	CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), 0);
	CU_ASSERT_TRUE(pipeline_hello(1, 1, "a", 1));
	CU_ASSERT_TRUE(pipeline_hello(1, 1, "a", 1)); /* said again */
	CU_ASSERT_TRUE(pipeline_hello(2, 1, "b", 64));
	CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), 2);
	end();
}

/* ---- waiting ---- */

static void route_b(uint64_t id)
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
	const struct kvr_wire_ids ids = ids_of(id, 0);
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

static void busy_pool_makes_requests_wait_and_admits_them_in_turn(void)
{
	uint64_t h1, h2;

	pipeline_start(2);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "b", 1));
	route_b(1); /* 40 prefill tokens > 0.5 * 64 */
	h1 = dispatched();
	CU_ASSERT_NOT_EQUAL(h1, 0);
	CU_ASSERT_PTR_NOT_NULL(accepted());
	route_b(2);
	CU_ASSERT_EQUAL(accepted()->state, KVR_STATE_QUEUED);
	CU_ASSERT_EQUAL(dispatched(), 0);
	route_b(3);
	CU_ASSERT_EQUAL(accepted()->queue_len, 2);
	empty(PEER_CLIENT, KVR_PROBE, 3, 0); /* pool a is asked first and passes it on */
	CU_ASSERT_EQUAL(accepted()->state, KVR_STATE_QUEUED);
	empty(PEER_CLIENT, KVR_CANCEL, 3, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	respond(1, h1, 0, 1, 0); /* first token: prefill is done, the next may start */
	h2 = dispatched();
	CU_ASSERT_NOT_EQUAL(h2, 0);
	CU_ASSERT_EQUAL(accepted()->state, KVR_STATE_DISPATCHED);
	respond(1, h1, 1, 2, KVR_RESP_F_FIN);
	respond(2, h2, 0, 1, KVR_RESP_F_FIN);
	response_ack(1, h1, 2, KVR_RACK_F_FIN);
	response_ack(2, h2, 1, KVR_RACK_F_FIN);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[1].jobs), 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[1].sched)->booked_now, 0);
	end();
}

/* Clients that wait say so; one that is silent for client_timeout_ms has gone. */
static void waiting_request_of_a_silent_client_leaves(void)
{
	const struct kvr_wire_rejected *said;
	const struct out *o;
	struct pool *b;
	uint64_t h1;

	pipeline_start(2);
	b = &rt->pool[1];
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "b", 1));
	route_b(1);
	h1 = dispatched();
	route_b(2);
	route_b(3);
	CU_ASSERT_EQUAL(kvr_sched_counters(b->sched)->waiting_now, 2);
	pipeline_advance(6000);
	empty(PEER_CLIENT, KVR_PROBE, 3, 0); /* this one is there */
	pipeline_advance(6000);
	for (int i = 0; i < 17; i++) {
		sched_tick(b->sched_lcore, b);
		pipeline_turn();
	}
	o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	said = (const void *)(&o->hdr + 1);
	CU_ASSERT(said->code == KVR_E_EXPIRED && said->detail[0] == 2 && said->detail[1] == 10000);
	CU_ASSERT_EQUAL(said->text_len, 47);
	CU_ASSERT_NSTRING_EQUAL(said + 1, "nothing has been heard of its client, ms: 10000", 47);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), -1);
	CU_ASSERT_EQUAL(kvr_sched_counters(b->sched)->waiting_now, 1);
	CU_ASSERT_EQUAL(kvr_stats_get(b->count, PC_CLIENT_GONE), 1);
	empty(PEER_CLIENT, KVR_PROBE, 2, 0);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT), KVR_E_EXPIRED);
	empty(PEER_CLIENT, KVR_CANCEL, 3, 0);
	respond(1, h1, 0, 1, KVR_RESP_F_FIN);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(b->jobs), 0);
	end();
}

/* Frames that wait are receive buffers: the queue may not take them all. */
static void waiting_requests_leave_buffers_to_receive_into(void)
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
	route_b(1);
	h = dispatched();
	pipeline_pool = 6;
	pipeline_body_len = KVR_WIRE_MAX_BODY; /* about 760 frames */
	for (uint64_t id = 2; id < 12; id++) {
		pipeline_route(id, id * 100, 10, 0, NULL);
		refused += rejected(PEER_CLIENT) == KVR_E_NO_MEMORY;
	}
	CU_ASSERT_EQUAL(kvr_sched_counters(b->sched)->waiting_now, 5);
	CU_ASSERT_EQUAL(refused, 5);
	CU_ASSERT(b->live.held > 3500 && b->live.held <= b->max_held);
	for (uint64_t id = 2; id < 12; id++)
		empty(PEER_CLIENT, KVR_CANCEL, id, 0);
	CU_ASSERT_EQUAL(b->live.held, 0);
	pipeline_body_len = before;
	pipeline_pool = 5;
	respond(1, h, 0, 1, KVR_RESP_F_FIN);
	end();
}

/* POTENTIAL_LOADS asks what every rank would have to do, and changes nothing. */
static void potential_loads_of_every_rank(void)
{
	const struct kvr_wire_loads *l;
	const struct kvr_wire_rank_potential *r;
	const struct out *o;
	uint64_t h;

	begin();
	pipeline_route(1, 100, 6, 0, NULL);
	h = dispatched();
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
	CU_ASSERT_EQUAL(live(), 1);
	CU_ASSERT_EQUAL(dispatched(), 0);
	respond(1, h, 0, 1, KVR_RESP_F_FIN);
	end();
}

/* ---- hostile ---- */

/* A valid frame of a random kind, from whoever may send it. */
static size_t some_frame(struct kvr_rand *rnd, uint8_t *buf, uint64_t handle, uint32_t *from)
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

static void mutated_frames_by_the_million_leak_nothing(void)
{
	struct kvr_rand rnd;
	uint64_t handle = 0;
	uint8_t buf[1024];

	begin();
	kvr_rand_init(&rnd, 2026);
	for (uint32_t i = 0; i < 1000000; i++) {
		uint32_t from, flips = kvr_rand_below(&rnd, 4);
		size_t len = some_frame(&rnd, buf, handle, &from);

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
	/* Whatever is still booked belongs to the worker: it leaves, and everything is given back.
	 */
	kvr_registry_at(rt->registry, 0)->last_seen_ns = 0;
	rt->lcore[0]->now_ns += UINT64_C(10000000000);
	kvr_reasm_flush(rt->lcore[0]->reasm);
	pipeline_turn();
	pipeline_flush();
	end();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(request_lives_and_leaves_nothing),
			       KVR_CASE(repeated_frames_change_nothing),
			       KVR_CASE(query_changes_nothing),
			       KVR_CASE(overlap_follows_the_events),
			       KVR_CASE(what_was_scored_before_a_life_is_not_of_it),
			       KVR_CASE(dump_replaces_what_the_rank_holds),
			       KVR_CASE(heartbeat_finds_events_that_never_came),
			       KVR_CASE(heartbeat_finds_a_dump_that_does_not_go_on),
			       KVR_CASE(fragments_in_any_order_are_one_request),
			       KVR_CASE(longest_prompt_with_the_largest_body_passes),
			       KVR_CASE(tokens_are_hashed_with_lora_and_namespace),
			       KVR_CASE(lost_fragment_leaves_nothing_behind),
			       KVR_CASE(cancel_frees_and_tells_the_worker),
			       KVR_CASE(cancel_does_not_overtake_its_route),
			       KVR_CASE(refused_dispatch_frees_the_booking),
			       KVR_CASE(probe_says_where_a_request_stands),
			       KVR_CASE(lost_worker_fails_its_requests_and_is_forgotten),
			       KVR_CASE(draining_worker_takes_nothing_new_and_ends_drained),
			       KVR_CASE(a_drain_ends_with_the_silence_of_bookings),
			       KVR_CASE(a_drain_with_a_bound_cuts_off_what_is_left),
			       KVR_CASE(direct_path_is_accounted_by_progress),
			       KVR_CASE(other_prompt_under_a_live_id_is_refused),
			       KVR_CASE(reserved_bits_of_relayed_frames_are_refused),
			       KVR_CASE(strangers_cannot_touch_a_request),
			       KVR_CASE(every_refusal_has_its_code),
			       KVR_CASE(unknown_policy_class_is_the_first),
			       KVR_CASE(hello_is_checked_against_the_pool),
			       KVR_CASE(waiting_request_of_a_silent_client_leaves),
			       KVR_CASE(waiting_requests_leave_buffers_to_receive_into),
			       KVR_CASE(potential_loads_of_every_rank),
			       KVR_CASE(busy_pool_makes_requests_wait_and_admits_them_in_turn),
			       KVR_CASE(mutated_frames_by_the_million_leak_nothing),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("pipeline", tests);
}
