/* SPDX-License-Identifier: BSD-3-Clause */
/* Workers that do not acknowledge DISPATCH, by the frame: who gets the request then, and what the
 * frames of the one that had it first still do. */
#include "pair.h"

#include <stdio.h>
#include <string.h>

#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include "sched/measure.h"
#include "sched/request.h"

#define FIRST  9u
#define SECOND 10u

static struct pool *pool(void)
{
	return &rt->pool[0];
}

static uint64_t counter(enum pool_counter c)
{
	return kvr_stats_get(pool()->count, c);
}

/* Of the rank of a worker, which has one. */
static uint64_t of_rank(uint32_t number, uint64_t worker, enum rank_counter c)
{
	const struct pool *p = &rt->pool[number];
	const uint32_t rank = kvr_sched_rank_find(p->sched, worker, 0);

	return rank == KVR_SCHED_NO_RANK ? 0 : kvr_cell_get(&p->rank_counts[rank].v[c]);
}

static uint32_t live(void)
{
	return (uint32_t)kvr_sched_counters(pool()->sched)->booked_now;
}

static void begin(const char *keys)
{
	char text[512];

	snprintf(text, sizeof(text), "[pool a]\nid = 5\n" PIPELINE_POOL "%s", keys);
	pipeline_start_with(text);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(FIRST, 1, "a", 1));
	pipeline_flush();
}

/* The other worker, behind another port. */
static void second(void)
{
	const struct pipeline_worker w = {
		.id = SECOND, .epoch = 1, .ranks = 1, .pool = "a", .from = PEER_OTHER};

	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&w));
	pipeline_flush();
}

static void end(void)
{
	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(live(), 0);
	pipeline_advance(KVR_FLIGHT_LINGER_NS / 1000000 + 1);
	CU_ASSERT_EQUAL(kvr_flight_count(pool()->requests), 0);
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT_EQUAL(pool()->live.held, 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(pool()->jobs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hash_bufs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hint_bufs), 0);
	pipeline_stop();
}

static struct kvr_wire_ids ids_of(uint64_t handle)
{
	return (struct kvr_wire_ids){.source = 77, .id = 1, .handle = handle, .epoch = 1};
}

static void again(uint32_t flags)
{
	pipeline_route(1, 100, 10, KVR_REQ_F_RESEND | flags, NULL);
	pipeline_turn();
}

/* Handle of the DISPATCH at @p port, 0: there is none. @p attempt of it, and what came before. */
static uint64_t dispatched(uint32_t port, uint32_t *attempt)
{
	const struct out *o = pipeline_expect(port, KVR_DISPATCH);

	if (o == NULL)
		return 0;
	*attempt = ((const struct kvr_wire_request *)(&o->hdr + 1))->attempt;
	return o->hdr.handle;
}

static void acks(uint32_t from, uint64_t handle)
{
	const struct kvr_wire_dispatch_ack taken = {0};
	const struct kvr_wire_ids ids = ids_of(handle);
	uint8_t buf[128];

	pipeline_send(from, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &taken));
	pipeline_turn();
}

static void item(uint32_t from, uint64_t handle, uint16_t flags)
{
	const struct kvr_wire_ids ids = ids_of(handle);
	const struct kvr_wire_response r = {
		.flags = flags, .generated_tokens = 1, .cached_tokens = KVR_NONE32};
	uint8_t buf[256];

	pipeline_send(from, buf,
		      (size_t)kvr_put_response(buf, sizeof(buf), &ids, r,
					       (struct kvr_slice){"item", flags ? 0 : 4}));
	pipeline_turn();
}

static void client_has_all(uint64_t handle)
{
	const struct kvr_wire_ids ids = ids_of(handle);
	const struct kvr_wire_response_ack ack = {1, KVR_RACK_F_FIN};
	uint8_t buf[128];

	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_response_ack(buf, sizeof(buf), &ids, &ack));
	pipeline_turn();
}

static const struct kvr_wire_accepted *accepted(uint64_t *handle)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);

	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	*handle = o->hdr.handle;
	return (const void *)(&o->hdr + 1);
}

/* Sent to the first worker, which says nothing; the second is there from now on. */
static uint64_t silent(uint32_t flags, uint32_t ms)
{
	uint32_t attempt;
	uint64_t h;

	pipeline_route(1, 100, 10, flags, NULL);
	pipeline_turn();
	h = dispatched(PEER_AGENT, &attempt);
	CU_ASSERT_NOT_EQUAL(h, 0);
	second();
	pipeline_advance(ms);
	pipeline_flush();
	return h;
}

static void another_worker_gets_it_once(void)
{
	uint32_t attempt = 9;
	uint64_t old, h;

	begin("");
	old = silent(0, 1999);
	again(0);
	CU_ASSERT_EQUAL(dispatched(PEER_AGENT, &attempt), old);
	CU_ASSERT_EQUAL(attempt, 1);
	pipeline_advance(1);
	pipeline_flush();
	again(0);
	CU_ASSERT_EQUAL(live(), 1);
	CU_ASSERT_EQUAL(counter(PC_UNACKNOWLEDGED), 1);
	CU_ASSERT_EQUAL(counter(PC_RETRIES), 1);
	CU_ASSERT_EQUAL(of_rank(0, FIRST, RC_ROUTED), 1);
	CU_ASSERT_EQUAL(of_rank(0, FIRST, RC_FAILED), 1);
	CU_ASSERT_EQUAL(of_rank(0, SECOND, RC_ROUTED), 1);
	h = dispatched(PEER_OTHER, &attempt);
	CU_ASSERT(h != 0 && h != old);
	CU_ASSERT_EQUAL(attempt, 0);
	CU_ASSERT_TRUE(pipeline_balanced());
	/* What the first one says now is nobody's. */
	acks(PEER_AGENT, old);
	item(PEER_AGENT, old, 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	item(PEER_AGENT, old, KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(live(), 1);
	acks(PEER_OTHER, h);
	item(PEER_OTHER, h, KVR_RESP_F_FIN);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(live(), 0);
	client_has_all(h);
	end();
}

/* How long its client wants to wait is counted from its first copy. */
static void a_limit_does_not_begin_anew(void)
{
	const struct kvr_wire_ids other = {.source = 77, .id = 2, .epoch = 1};
	const struct kvr_wire_rejected *why;
	const struct out *o;
	uint8_t buf[64];
	uint64_t h;

	begin("router_queue_threshold = 0\n");
	pipeline_deadline_ms = 3000;
	silent(0, 1000);
	pipeline_deadline_ms = 0;
	pipeline_route(2, 100, 10, 0, NULL);
	pipeline_turn();
	pipeline_advance(1000);
	pipeline_flush();
	pipeline_deadline_ms = 3000;
	again(0);
	pipeline_deadline_ms = 0;
	CU_ASSERT_EQUAL(accepted(&h)->state, KVR_STATE_QUEUED);
	pipeline_advance(999);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_REJECTED));
	for (uint32_t i = 0; i < 20; i++) /* slots are looked at in parts */
		pipeline_advance(10);
	o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	why = (const void *)(&o->hdr + 1);
	CU_ASSERT_EQUAL(why->code, KVR_E_EXPIRED);
	CU_ASSERT_EQUAL(why->detail[0], KVR_RQ_DEADLINE);
	CU_ASSERT_EQUAL(why->detail[1], 3000);
	pipeline_send(PEER_CLIENT, buf,
		      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &other));
	end();
}

/* Unless the pool says otherwise: twice as long as a worker may be silent altogether. */
static void time_follows_from_dead_ms(void)
{
	const char *was = pipeline_router;
	uint32_t attempt;
	uint64_t old, h;

	pipeline_router = "source_share = 0\ndead_ms = 2500\n";
	begin("");
	pipeline_router = was;
	old = silent(0, 4999);
	again(0);
	CU_ASSERT_EQUAL(dispatched(PEER_AGENT, &attempt), old);
	pipeline_advance(1);
	pipeline_flush();
	again(0);
	h = dispatched(PEER_OTHER, &attempt);
	CU_ASSERT_NOT_EQUAL(h, 0);
	item(PEER_OTHER, h, KVR_RESP_F_FIN);
	client_has_all(h);
	end();
}

static void bye(uint64_t worker, uint32_t from)
{
	const struct kvr_wire_ids ids = {.source = worker, .epoch = 1};
	uint8_t buf[64];

	pipeline_send(from, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
	pipeline_turn();
	pipeline_turn();
}

/* It waits for another worker, and that leaves: the first one has it again. */
static void who_has_waited_in_vain_is_not_refused(void)
{
	const struct kvr_wire_ids other = {.source = 77, .id = 2, .epoch = 1};
	uint32_t attempt;
	uint64_t old, h;
	uint8_t buf[64];

	begin("router_queue_threshold = 0\n");
	old = silent(0, 1000);
	pipeline_route(2, 100, 10, 0, NULL); /* it takes the other worker */
	pipeline_turn();
	h = dispatched(PEER_OTHER, &attempt);
	CU_ASSERT_NOT_EQUAL(h, 0);
	pipeline_flush();
	pipeline_advance(1000);
	again(0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT_EQUAL(accepted(&h)->state, KVR_STATE_QUEUED);
	CU_ASSERT_EQUAL(counter(PC_LEG_QUEUED), 1);
	CU_ASSERT_TRUE(pipeline_balanced());
	bye(SECOND, PEER_OTHER);
	h = dispatched(PEER_AGENT, &attempt);
	CU_ASSERT(h != 0 && h != old);
	CU_ASSERT_EQUAL(counter(PC_ADMITTED), 1);
	CU_ASSERT_EQUAL(counter(PC_ADMISSION_REJECTED), 0);
	CU_ASSERT_TRUE(pipeline_balanced());
	item(PEER_AGENT, h, KVR_RESP_F_FIN);
	client_has_all(h);
	pipeline_send(PEER_CLIENT, buf,
		      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &other));
	end();
	/* So it is when both leave: nobody is left to have it. */
	begin("router_queue_threshold = 0\n");
	silent(0, 1000);
	pipeline_route(2, 100, 10, 0, NULL);
	pipeline_turn();
	pipeline_advance(1000);
	again(0);
	bye(FIRST, PEER_AGENT);
	CU_ASSERT_EQUAL(live(), 1);
	bye(SECOND, PEER_OTHER);
	CU_ASSERT_EQUAL(counter(PC_ADMITTED), 0);
	CU_ASSERT_EQUAL(counter(PC_ADMISSION_REJECTED), 1);
	CU_ASSERT_TRUE(pipeline_balanced());
	end();
}

/* It reports, and takes nothing: who comes after the first does not have to find that out. */
static void who_is_silent_gets_no_more(void)
{
	struct kvr_sched_rank_info info;
	uint32_t attempt;
	uint64_t old, h;

	begin("");
	old = silent(0, 2000);
	again(0);
	h = dispatched(PEER_OTHER, &attempt);
	CU_ASSERT_NOT_EQUAL(h, 0);
	acks(PEER_OTHER, h);
	pipeline_flush();
	CU_ASSERT_EQUAL(kvr_sched_n_silent(pool()->sched), 1);
	CU_ASSERT_EQUAL(of_rank(0, FIRST, RC_UNACKNOWLEDGED), 1);
	CU_ASSERT_EQUAL(kvr_sched_rank_get(pool()->sched,
					   kvr_sched_rank_find(pool()->sched, FIRST, 0), &info),
			0);
	CU_ASSERT_TRUE(info.silent);
	/* Idle, it would have been the better one. */
	pipeline_route(2, 100, 10, 0, NULL);
	pipeline_turn();
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	CU_ASSERT_EQUAL(live(), 2);
	/* A late word of it, about what it has lost. */
	acks(PEER_AGENT, old);
	CU_ASSERT_EQUAL(kvr_sched_n_silent(pool()->sched), 0);
	pipeline_route(3, 100, 10, 0, NULL);
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	item(PEER_OTHER, h, KVR_RESP_F_FIN);
	client_has_all(h);
	for (uint64_t id = 2; id <= 3; id++) {
		const struct kvr_wire_ids ids = {.source = 77, .id = id, .epoch = 1};
		uint8_t buf[64];

		pipeline_send(PEER_CLIENT, buf,
			      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
	}
	end();
}

static void the_client_and_the_first_worker_are_told(void)
{
	const struct kvr_wire_accepted *a;
	const struct out *o;
	uint64_t old, told;

	begin("dispatch_ms = 40\n");
	old = silent(0, 40);
	again(0);
	a = accepted(&told);
	CU_ASSERT_EQUAL(a->worker, SECOND);
	CU_ASSERT_EQUAL(a->state, KVR_STATE_DISPATCHED);
	CU_ASSERT_NOT_EQUAL(told, old);
	item(PEER_OTHER, told, KVR_RESP_F_FIN); /* an item says that it has it, too */
	o = pipeline_expect(PEER_CLIENT, KVR_RESPONSE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.handle, told);
	client_has_all(told);
	/* ABORT is repeated until it is heard. */
	pipeline_advance(500);
	o = pipeline_expect(PEER_AGENT, KVR_ABORT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.handle, old);
	CU_ASSERT_EQUAL(((const struct kvr_wire_abort *)(&o->hdr + 1))->code, KVR_E_WORKER_LOST);
	end();
}

/* An item that comes while the scheduler takes the request elsewhere is as if it had not come: then
 * it passes, or is acknowledged for nobody. */
static void an_item_on_the_way_is_nobodys_yet(void)
{
	struct kvr_flight *slot;
	uint32_t attempt;
	uint64_t old, h;

	begin("");
	old = silent(0, 100);
	slot = kvr_flight_by_handle(pool()->requests, old);
	CU_ASSERT_PTR_NOT_NULL_FATAL(slot);
	CU_ASSERT_TRUE(kvr_flight_hold_items(slot));
	item(PEER_AGENT, old, 0);
	CU_ASSERT_PTR_NULL(pipeline_next(0));
	kvr_flight_pass_items(slot);
	item(PEER_AGENT, old, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	item(PEER_AGENT, old, KVR_RESP_F_FIN);
	client_has_all(old);
	end();
	/* It has moved. */
	begin("");
	old = silent(0, 2000);
	again(0);
	h = dispatched(PEER_OTHER, &attempt);
	CU_ASSERT_NOT_EQUAL(h, 0);
	pipeline_flush();
	item(PEER_AGENT, old, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	item(PEER_OTHER, h, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	item(PEER_OTHER, h, KVR_RESP_F_FIN);
	client_has_all(h);
	end();
	/* It may not. */
	begin("reroutes = 0\n");
	old = silent(0, 2000);
	again(0);
	slot = kvr_flight_by_handle(pool()->requests, old);
	CU_ASSERT_EQUAL(kvr_flight_relay_mode(slot), KVR_FLIGHT_PASS);
	item(PEER_AGENT, old, KVR_RESP_F_FIN);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	client_has_all(old);
	end();
}

/* Acknowledged, answered, direct, or without another try: it stays. */
static void who_stays(void)
{
	static const struct {
		const char *keys;
		uint32_t flags;
		bool ack;
	} rows[] = {{"", 0, true},
		    {"", KVR_REQ_F_DIRECT, false},
		    {"reroutes = 0\n", 0, false},
		    {"dispatch_ms = 0\n", 0, false}};

	for (uint32_t i = 0; i < RTE_DIM(rows); i++) {
		uint32_t attempt;
		uint64_t h;

		begin(rows[i].keys);
		h = silent(rows[i].flags, 3000);
		if (rows[i].ack)
			acks(PEER_AGENT, h);
		again(rows[i].flags);
		CU_ASSERT_EQUAL(dispatched(PEER_AGENT, &attempt), rows[i].ack ? 0 : h);
		CU_ASSERT_EQUAL(counter(PC_UNACKNOWLEDGED), 0);
		if (rows[i].flags == 0) {
			item(PEER_AGENT, h, KVR_RESP_F_FIN);
			client_has_all(h);
		} else {
			const struct kvr_wire_ids ids = ids_of(h);
			uint8_t buf[64];

			pipeline_send(PEER_CLIENT, buf,
				      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
			pipeline_turn();
		}
		end();
	}
}

/* A ROUTE of several frames; what goes out as another message has another number. */
static void long_route(uint32_t flags, uint32_t msg_seq)
{
	static const char body[4000];
	const struct kvr_wire_ids ids = {.source = 77, .id = 1, .epoch = 1, .msg_seq = msg_seq};
	struct kvr_request_src src = {.fixed = {.pool = 5,
						.flags = flags,
						.isl = 40,
						.max_tokens = KVR_NONE32,
						.expected_output_tokens = KVR_NONE32},
				      .body = body,
				      .body_len = sizeof(body)};
	uint8_t frame[KVR_WIRE_DEF_FRAME];
	struct kvr_slice s[KVR_REQUEST_SLICES];
	struct kvr_frag f;
	uint32_t off, part;

	CU_ASSERT_FATAL(
		kvr_frag_init(&f, KVR_ROUTE, &ids, kvr_request_build(&src, s), sizeof(frame)) == 0);
	while (kvr_frag_next(&f, frame, &off, &part)) {
		kvr_slices_copy(s, KVR_REQUEST_SLICES, off, part,
				frame + sizeof(struct kvr_wire_hdr));
		pipeline_send(PEER_CLIENT, frame, sizeof(struct kvr_wire_hdr) + part);
	}
	pipeline_turn();
}

/* Of several frames the router repeats the DISPATCH itself; in vain for long, it lets the client
 * send the message again, and with that it goes elsewhere. */
static void a_long_message_comes_again_first(void)
{
	const struct kvr_wire_ids ids = ids_of(0);
	const struct out *o;
	uint32_t attempt;
	uint64_t old, h;
	uint8_t buf[64];

	begin("");
	long_route(0, 1);
	old = dispatched(PEER_AGENT, &attempt);
	second();
	pipeline_advance(1999);
	pipeline_flush();
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_PROBE, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(accepted(&h)->flags, KVR_ACC_F_KEPT);
	long_route(KVR_REQ_F_RESEND, 2); /* too early */
	CU_ASSERT_EQUAL(dispatched(PEER_OTHER, &attempt), 0);
	pipeline_advance(1);
	pipeline_flush();
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_PROBE, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(accepted(&h)->flags, 0);
	CU_ASSERT_EQUAL(h, old);
	long_route(KVR_REQ_F_RESEND, 3);
	o = pipeline_expect(PEER_OTHER, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	h = o->hdr.handle;
	CU_ASSERT_EQUAL(counter(PC_UNACKNOWLEDGED), 1);
	acks(PEER_OTHER, h);
	item(PEER_OTHER, h, KVR_RESP_F_FIN);
	client_has_all(h);
	end();
}

/* What the router has not seen while it stood still is nobody's silence, then or later. */
static void a_pause_of_the_router_is_no_silence(void)
{
	const struct kvr_wire_ids ids = ids_of(0);
	uint32_t attempt;
	uint64_t old, h;
	uint8_t buf[64];

	begin("");
	pipeline_pause(5000);
	pipeline_turn();
	long_route(0, 1);
	old = dispatched(PEER_AGENT, &attempt);
	second();
	for (uint32_t ms = 0; ms < 1990; ms += 10)
		pipeline_advance(10); /* it is repeated meanwhile */
	pipeline_flush();
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_PROBE, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(accepted(&h)->flags, KVR_ACC_F_KEPT);
	CU_ASSERT_EQUAL(h, old);
	pipeline_advance(20);
	pipeline_flush();
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_PROBE, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(accepted(&h)->flags, 0);
	acks(PEER_AGENT, old);
	item(PEER_AGENT, old, KVR_RESP_F_FIN);
	client_has_all(old);
	end();
}

/* ---- pairs ------------------------------------------------------------------------------- */

static void legs_go_elsewhere(void)
{
	pair_start("dispatch_ms = 15\n", "");
	CU_ASSERT_TRUE(pair_join(PAIR_D, 1, true) && pair_join(PAIR_P, 1, true));
	pair_route(1, NULL);
	SAID("p.DISPATCH d.DISPATCH c.DISPATCHED");
	CU_ASSERT_TRUE(pair_join(PAIR_Q, 1, true));
	pair_ack(pair_leg(1, false), 0);
	pair_take_frames();
	pipeline_advance(20);
	SAID("p.ABORT d.ABORT q.DISPATCH d.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(counter(PC_UNACKNOWLEDGED) +
				kvr_stats_get(rt->pool[1].count, PC_UNACKNOWLEDGED),
			1);
	CU_ASSERT_EQUAL(of_rank(1, PAIR_P, RC_FAILED), 1);
	CU_ASSERT_EQUAL(of_rank(0, PAIR_D, RC_CANCELLED), 1);
	pair_finish();
	pair_stop();
	/* The decode leg, and its prefill with it. */
	pair_start("dispatch_ms = 15\n", "");
	CU_ASSERT_TRUE(pair_join(PAIR_D, 1, true) && pair_join(PAIR_P, 1, true));
	pair_route(1, NULL);
	CU_ASSERT_TRUE(pair_join(PAIR_E, 1, true));
	pair_ack(pair_leg(1, true), 0);
	pair_take_frames();
	pipeline_advance(20);
	SAID("p.ABORT d.ABORT p.DISPATCH e.DISPATCH c.DISPATCHED");
	pair_finish();
	pair_stop();
}

/* The leg that has been silent for longest, when more legs are due than are looked at in a turn. */
static void first_who_has_been_silent_for_longest(void)
{
	pair_start("dispatch_ms = 2000\n", "");
	CU_ASSERT_TRUE(pair_join(PAIR_D, 1, true) && pair_join(PAIR_P, 1, true));
	pair_route(1, NULL);
	pair_ack(pair_leg(1, true), 0);
	CU_ASSERT_TRUE(pair_join(PAIR_E, 1, true));
	/* Repeated after 20 ms, 60, 140 ... 1,260: again at 2,260. */
	for (uint32_t i = 0; i < 2240; i += 10)
		pipeline_advance(10);
	for (uint64_t id = 2; id < 2 + 2 * BURST; id++)
		pair_route(id, NULL);
	CU_ASSERT_EQUAL(counter(PC_UNACKNOWLEDGED), 0);
	pipeline_advance(30);
	CU_ASSERT_EQUAL(counter(PC_UNACKNOWLEDGED), 1);
	pair_take();
	CU_ASSERT_NOT_EQUAL(pair_leg(1, false)->worker, PAIR_D);
	pair_finish();
	pair_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(another_worker_gets_it_once),
		KVR_CASE(time_follows_from_dead_ms),
		KVR_CASE(who_has_waited_in_vain_is_not_refused),
		KVR_CASE(a_limit_does_not_begin_anew),
		KVR_CASE(who_is_silent_gets_no_more),
		KVR_CASE(the_client_and_the_first_worker_are_told),
		KVR_CASE(an_item_on_the_way_is_nobodys_yet),
		KVR_CASE(who_stays),
		KVR_CASE(a_long_message_comes_again_first),
		KVR_CASE(a_pause_of_the_router_is_no_silence),
		KVR_CASE(legs_go_elsewhere),
		KVR_CASE(first_who_has_been_silent_for_longest),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("unheard", tests);
}
