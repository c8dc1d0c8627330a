/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Workers that do not acknowledge DISPATCH, frame by frame: which worker gets the request then, and
 * the effect of frames of the first worker.
 */
#include "pair.h"

#include <stdio.h>
#include <string.h>

#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include "sched/request.h"
#include "sched/request_stats.h"

#define FIRST  9u
#define SECOND 10u

static uint64_t read_unacked_counter(enum pool_counter c)
{
	return kvr_stats_get(pipeline_get_pool()->count, c);
}

/* Of the only rank of a worker. */
static uint64_t get_rank_of(uint32_t number, uint64_t worker, enum rank_counter c)
{
	const struct pool *p = &rt->pool[number];
	const uint32_t rank = kvr_sched_rank_find(p->sched, worker, 0);

	return rank == KVR_SCHED_NO_RANK ? 0 : kvr_cell_get(&p->rank_counts[rank].v[c]);
}

static uint32_t count_live_bookings(void)
{
	return (uint32_t)kvr_sched_counters(pipeline_get_pool()->sched)->booked_now;
}

static void begin_unacked(const char *keys)
{
	char text[512];

	snprintf(text, sizeof(text), "[pool a]\nid = 5\n" PIPELINE_POOL "%s", keys);
	pipeline_start_with(text);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(FIRST, 1, "a", 1));
	pipeline_flush();
}

/* The other worker, at another port. */
static void join_second(void)
{
	const struct pipeline_worker w = {
		.id = SECOND, .epoch = 1, .ranks = 1, .pool = "a", .from = PEER_OTHER};

	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&w));
	pipeline_flush();
}

static void end_unacked(void)
{
	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(count_live_bookings(), 0);
	pipeline_advance(KVR_FLIGHT_LINGER_NS / 1000000 + 1);
	CU_ASSERT_EQUAL(kvr_flight_count(pipeline_get_pool()->requests), 0);
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT_EQUAL(pipeline_get_pool()->live.held, 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(pipeline_get_pool()->jobs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hash_bufs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hint_bufs), 0);
	pipeline_stop();
}

static struct kvr_wire_ids make_handle_ids(uint64_t handle)
{
	return (struct kvr_wire_ids){.source = 77, .id = 1, .handle = handle, .epoch = 1};
}

static void route_again(uint32_t flags)
{
	pipeline_route(1, 100, 10, KVR_REQ_F_RESEND | flags, NULL);
	pipeline_turn();
}

/*
 * Handle of the DISPATCH at @p port; 0: none. Sets @p attempt; flags of earlier frames are dropped.
 */
static uint64_t take_attempt(uint32_t port, uint32_t *attempt)
{
	const struct out *o = pipeline_expect(port, KVR_DISPATCH);

	if (o == NULL)
		return 0;
	*attempt = ((const struct kvr_wire_request *)(&o->hdr + 1))->attempt;
	return o->hdr.handle;
}

static void send_ack(uint32_t from, uint64_t handle)
{
	const struct kvr_wire_dispatch_ack taken = {0};
	const struct kvr_wire_ids ids = make_handle_ids(handle);
	uint8_t buf[128];

	pipeline_send(from, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &taken));
	pipeline_turn();
}

static void send_handle_item(uint32_t from, uint64_t handle, uint16_t flags)
{
	const struct kvr_wire_ids ids = make_handle_ids(handle);
	const struct kvr_wire_response r = {
		.flags = flags, .generated_tokens = 1, .cached_tokens = KVR_NONE32};
	uint8_t buf[256];

	pipeline_send(from, buf,
		      (size_t)kvr_put_response(buf, sizeof(buf), &ids, r,
					       (struct kvr_slice){"item", flags ? 0 : 4}));
	pipeline_turn();
}

static void acknowledge_last_item(uint64_t handle)
{
	const struct kvr_wire_ids ids = make_handle_ids(handle);
	const struct kvr_wire_response_ack ack = {1, KVR_RACK_F_FIN};
	uint8_t buf[128];

	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_response_ack(buf, sizeof(buf), &ids, &ack));
	pipeline_turn();
}

static const struct kvr_wire_accepted *take_accepted_handle(uint64_t *handle)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);

	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	*handle = o->hdr.handle;
	return (const void *)(&o->hdr + 1);
}

/* Dispatched to the first worker, which is silent; the second one joins then. */
static uint64_t route_to_silent_worker(uint32_t flags, uint32_t ms)
{
	uint32_t attempt;
	uint64_t h;

	pipeline_route(1, 100, 10, flags, NULL);
	pipeline_turn();
	h = take_attempt(PEER_AGENT, &attempt);
	CU_ASSERT_NOT_EQUAL(h, 0);
	join_second();
	pipeline_advance(ms);
	pipeline_flush();
	return h;
}

static void another_worker_gets_the_request_once(void)
{
	uint32_t attempt = 9;
	uint64_t old, h;

	begin_unacked("");
	old = route_to_silent_worker(0, 1999);
	route_again(0);
	CU_ASSERT_EQUAL(take_attempt(PEER_AGENT, &attempt), old);
	CU_ASSERT_EQUAL(attempt, 1);
	pipeline_advance(1);
	pipeline_flush();
	route_again(0);
	CU_ASSERT_EQUAL(count_live_bookings(), 1);
	CU_ASSERT_EQUAL(read_unacked_counter(PC_UNACKNOWLEDGED), 1);
	CU_ASSERT_EQUAL(read_unacked_counter(PC_RETRIES), 1);
	CU_ASSERT_EQUAL(get_rank_of(0, FIRST, RC_ROUTED), 1);
	CU_ASSERT_EQUAL(get_rank_of(0, FIRST, RC_FAILED), 1);
	CU_ASSERT_EQUAL(get_rank_of(0, SECOND, RC_ROUTED), 1);
	h = take_attempt(PEER_OTHER, &attempt);
	CU_ASSERT(h != 0 && h != old);
	CU_ASSERT_EQUAL(attempt, 0);
	CU_ASSERT_TRUE(pipeline_balanced());
	/* Later frames of the first worker belong to no request. */
	send_ack(PEER_AGENT, old);
	send_handle_item(PEER_AGENT, old, 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	send_handle_item(PEER_AGENT, old, KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(count_live_bookings(), 1);
	send_ack(PEER_OTHER, h);
	send_handle_item(PEER_OTHER, h, KVR_RESP_F_FIN);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(count_live_bookings(), 0);
	acknowledge_last_item(h);
	end_unacked();
}

/* The wait limit of the client counts from its first copy. */
static void a_wait_limit_is_not_restarted(void)
{
	const struct kvr_wire_ids other = {.source = 77, .id = 2, .epoch = 1};
	const struct kvr_wire_rejected *why;
	const struct out *o;
	uint8_t buf[64];
	uint64_t h;

	begin_unacked("router_queue_threshold = 0\n");
	pipeline_deadline_ms = 3000;
	route_to_silent_worker(0, 1000);
	pipeline_deadline_ms = 0;
	pipeline_route(2, 100, 10, 0, NULL);
	pipeline_turn();
	pipeline_advance(1000);
	pipeline_flush();
	pipeline_deadline_ms = 3000;
	route_again(0);
	pipeline_deadline_ms = 0;
	CU_ASSERT_EQUAL(take_accepted_handle(&h)->state, KVR_STATE_QUEUED);
	pipeline_advance(999);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_REJECTED));
	for (uint32_t i = 0; i < 20; i++) /* each turn checks a part of the slots */
		pipeline_advance(10);
	o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	why = (const void *)(&o->hdr + 1);
	CU_ASSERT_EQUAL(why->code, KVR_E_EXPIRED);
	CU_ASSERT_EQUAL(why->detail[0], KVR_RQ_DEADLINE);
	CU_ASSERT_EQUAL(why->detail[1], 3000);
	pipeline_send(PEER_CLIENT, buf,
		      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &other));
	end_unacked();
}

/* Default: twice the silence after which a worker is lost. */
static void the_default_time_is_twice_dead_ms(void)
{
	const char *was = pipeline_router;
	uint32_t attempt;
	uint64_t old, h;

	pipeline_router = "source_share = 0\ndead_ms = 2500\n";
	begin_unacked("");
	pipeline_router = was;
	old = route_to_silent_worker(0, 4999);
	route_again(0);
	CU_ASSERT_EQUAL(take_attempt(PEER_AGENT, &attempt), old);
	pipeline_advance(1);
	pipeline_flush();
	route_again(0);
	h = take_attempt(PEER_OTHER, &attempt);
	CU_ASSERT_NOT_EQUAL(h, 0);
	send_handle_item(PEER_OTHER, h, KVR_RESP_F_FIN);
	acknowledge_last_item(h);
	end_unacked();
}

static void send_bye(uint64_t worker, uint32_t from)
{
	const struct kvr_wire_ids ids = {.source = worker, .epoch = 1};
	uint8_t buf[64];

	pipeline_send(from, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
	pipeline_turn();
	pipeline_turn();
}

/* The request waits for another worker, which leaves: the first one gets it again. */
static void a_waiting_request_is_not_rejected(void)
{
	const struct kvr_wire_ids other = {.source = 77, .id = 2, .epoch = 1};
	uint32_t attempt;
	uint64_t old, h;
	uint8_t buf[64];

	begin_unacked("router_queue_threshold = 0\n");
	old = route_to_silent_worker(0, 1000);
	pipeline_route(2, 100, 10, 0, NULL); /* occupies the other worker */
	pipeline_turn();
	h = take_attempt(PEER_OTHER, &attempt);
	CU_ASSERT_NOT_EQUAL(h, 0);
	pipeline_flush();
	pipeline_advance(1000);
	route_again(0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	CU_ASSERT_EQUAL(take_accepted_handle(&h)->state, KVR_STATE_QUEUED);
	CU_ASSERT_EQUAL(read_unacked_counter(PC_LEG_QUEUED), 1);
	CU_ASSERT_TRUE(pipeline_balanced());
	send_bye(SECOND, PEER_OTHER);
	h = take_attempt(PEER_AGENT, &attempt);
	CU_ASSERT(h != 0 && h != old);
	CU_ASSERT_EQUAL(read_unacked_counter(PC_ADMITTED), 1);
	CU_ASSERT_EQUAL(read_unacked_counter(PC_ADMISSION_REJECTED), 0);
	CU_ASSERT_TRUE(pipeline_balanced());
	send_handle_item(PEER_AGENT, h, KVR_RESP_F_FIN);
	acknowledge_last_item(h);
	pipeline_send(PEER_CLIENT, buf,
		      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &other));
	end_unacked();
	/* The same when both leave: no worker is left for it. */
	begin_unacked("router_queue_threshold = 0\n");
	route_to_silent_worker(0, 1000);
	pipeline_route(2, 100, 10, 0, NULL);
	pipeline_turn();
	pipeline_advance(1000);
	route_again(0);
	send_bye(FIRST, PEER_AGENT);
	CU_ASSERT_EQUAL(count_live_bookings(), 1);
	send_bye(SECOND, PEER_OTHER);
	CU_ASSERT_EQUAL(read_unacked_counter(PC_ADMITTED), 0);
	CU_ASSERT_EQUAL(read_unacked_counter(PC_ADMISSION_REJECTED), 1);
	CU_ASSERT_TRUE(pipeline_balanced());
	end_unacked();
}

/* A worker with heartbeats that acknowledges nothing: later requests avoid it. */
static void a_silent_worker_gets_no_more_requests(void)
{
	struct kvr_sched_rank_info info;
	uint32_t attempt;
	uint64_t old, h;

	begin_unacked("");
	old = route_to_silent_worker(0, 2000);
	route_again(0);
	h = take_attempt(PEER_OTHER, &attempt);
	CU_ASSERT_NOT_EQUAL(h, 0);
	send_ack(PEER_OTHER, h);
	pipeline_flush();
	CU_ASSERT_EQUAL(kvr_sched_n_unresponsive(pipeline_get_pool()->sched), 1);
	CU_ASSERT_EQUAL(get_rank_of(0, FIRST, RC_UNACKNOWLEDGED), 1);
	CU_ASSERT_EQUAL(kvr_sched_rank_get(
				pipeline_get_pool()->sched,
				kvr_sched_rank_find(pipeline_get_pool()->sched, FIRST, 0), &info),
			0);
	CU_ASSERT_TRUE(info.silent);
	/* Idle, it would have been the better choice. */
	pipeline_route(2, 100, 10, 0, NULL);
	pipeline_turn();
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	CU_ASSERT_EQUAL(count_live_bookings(), 2);
	/* A late frame of it names missing fragments. */
	send_ack(PEER_AGENT, old);
	CU_ASSERT_EQUAL(kvr_sched_n_unresponsive(pipeline_get_pool()->sched), 0);
	pipeline_route(3, 100, 10, 0, NULL);
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	send_handle_item(PEER_OTHER, h, KVR_RESP_F_FIN);
	acknowledge_last_item(h);
	for (uint64_t id = 2; id <= 3; id++) {
		const struct kvr_wire_ids ids = {.source = 77, .id = id, .epoch = 1};
		uint8_t buf[64];

		pipeline_send(PEER_CLIENT, buf,
			      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
	}
	end_unacked();
}

static void the_client_and_the_first_worker_are_notified(void)
{
	const struct kvr_wire_accepted *a;
	const struct out *o;
	uint64_t old, moved_handle;

	begin_unacked("dispatch_ms = 40\n");
	old = route_to_silent_worker(0, 40);
	route_again(0);
	a = take_accepted_handle(&moved_handle);
	CU_ASSERT_EQUAL(a->worker, SECOND);
	CU_ASSERT_EQUAL(a->state, KVR_STATE_DISPATCHED);
	CU_ASSERT_NOT_EQUAL(moved_handle, old);
	send_handle_item(PEER_OTHER, moved_handle,
			 KVR_RESP_F_FIN); /* an item acknowledges the dispatch, too */
	o = pipeline_expect(PEER_CLIENT, KVR_RESPONSE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.handle, moved_handle);
	acknowledge_last_item(moved_handle);
	/* ABORT is retransmitted until it is acknowledged. */
	pipeline_advance(500);
	o = pipeline_expect(PEER_AGENT, KVR_ABORT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.handle, old);
	CU_ASSERT_EQUAL(((const struct kvr_wire_abort *)(&o->hdr + 1))->code, KVR_E_WORKER_LOST);
	end_unacked();
}

/*
 * An item that arrives while the scheduler moves the request counts as lost: otherwise it would
 * pass or be acknowledged for no request.
 */
static void an_item_during_the_move_counts_as_lost(void)
{
	struct kvr_flight *slot;
	uint32_t attempt;
	uint64_t old, h;

	begin_unacked("");
	old = route_to_silent_worker(0, 100);
	slot = kvr_flight_by_handle(pipeline_get_pool()->requests, old);
	CU_ASSERT_PTR_NOT_NULL_FATAL(slot);
	CU_ASSERT_TRUE(kvr_flight_hold_items(slot));
	send_handle_item(PEER_AGENT, old, 0);
	CU_ASSERT_PTR_NULL(pipeline_next(0));
	kvr_flight_pass_items(slot);
	send_handle_item(PEER_AGENT, old, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	send_handle_item(PEER_AGENT, old, KVR_RESP_F_FIN);
	acknowledge_last_item(old);
	end_unacked();
	/* It has moved. */
	begin_unacked("");
	old = route_to_silent_worker(0, 2000);
	route_again(0);
	h = take_attempt(PEER_OTHER, &attempt);
	CU_ASSERT_NOT_EQUAL(h, 0);
	pipeline_flush();
	send_handle_item(PEER_AGENT, old, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_RESPONSE_ACK));
	send_handle_item(PEER_OTHER, h, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	send_handle_item(PEER_OTHER, h, KVR_RESP_F_FIN);
	acknowledge_last_item(h);
	end_unacked();
	/* It may not move. */
	begin_unacked("reroutes = 0\n");
	old = route_to_silent_worker(0, 2000);
	route_again(0);
	slot = kvr_flight_by_handle(pipeline_get_pool()->requests, old);
	CU_ASSERT_EQUAL(kvr_flight_relay_mode(slot), KVR_FLIGHT_PASS);
	send_handle_item(PEER_AGENT, old, KVR_RESP_F_FIN);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	acknowledge_last_item(old);
	end_unacked();
}

/* Acknowledged, answered, direct, or without a further attempt: the request stays. */
static void check_staying_requests(void)
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

		begin_unacked(rows[i].keys);
		h = route_to_silent_worker(rows[i].flags, 3000);
		if (rows[i].ack)
			send_ack(PEER_AGENT, h);
		route_again(rows[i].flags);
		CU_ASSERT_EQUAL(take_attempt(PEER_AGENT, &attempt), rows[i].ack ? 0 : h);
		CU_ASSERT_EQUAL(read_unacked_counter(PC_UNACKNOWLEDGED), 0);
		if (rows[i].flags == 0) {
			send_handle_item(PEER_AGENT, h, KVR_RESP_F_FIN);
			acknowledge_last_item(h);
		} else {
			const struct kvr_wire_ids ids = make_handle_ids(h);
			uint8_t buf[64];

			pipeline_send(PEER_CLIENT, buf,
				      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
			pipeline_turn();
		}
		end_unacked();
	}
}

/* A ROUTE of several frames; a new message has a new number. */
static void send_long_route(uint32_t flags, uint32_t msg_seq)
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

/*
 * The router retransmits a DISPATCH of several frames itself. After a long time without success it
 * asks the client to send the message again, and then uses another worker.
 */
static void a_long_message_is_sent_again_first(void)
{
	const struct kvr_wire_ids ids = make_handle_ids(0);
	const struct out *o;
	uint32_t attempt;
	uint64_t old, h;
	uint8_t buf[64];

	begin_unacked("");
	send_long_route(0, 1);
	old = take_attempt(PEER_AGENT, &attempt);
	join_second();
	pipeline_advance(1999);
	pipeline_flush();
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_PROBE, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(take_accepted_handle(&h)->flags, KVR_ACC_F_KEPT);
	send_long_route(KVR_REQ_F_RESEND, 2); /* too early */
	CU_ASSERT_EQUAL(take_attempt(PEER_OTHER, &attempt), 0);
	pipeline_advance(1);
	pipeline_flush();
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_PROBE, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(take_accepted_handle(&h)->flags, 0);
	CU_ASSERT_EQUAL(h, old);
	send_long_route(KVR_REQ_F_RESEND, 3);
	o = pipeline_expect(PEER_OTHER, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	h = o->hdr.handle;
	CU_ASSERT_EQUAL(read_unacked_counter(PC_UNACKNOWLEDGED), 1);
	send_ack(PEER_OTHER, h);
	send_handle_item(PEER_OTHER, h, KVR_RESP_F_FIN);
	acknowledge_last_item(h);
	end_unacked();
}

/* A pause of the router does not count as silence of a worker, neither then nor later. */
static void a_pause_of_the_router_is_not_silence(void)
{
	const struct kvr_wire_ids ids = make_handle_ids(0);
	uint32_t attempt;
	uint64_t old, h;
	uint8_t buf[64];

	begin_unacked("");
	pipeline_pause(5000);
	pipeline_turn();
	send_long_route(0, 1);
	old = take_attempt(PEER_AGENT, &attempt);
	join_second();
	for (uint32_t ms = 0; ms < 1990; ms += 10)
		pipeline_advance(10); /* it is retransmitted meanwhile */
	pipeline_flush();
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_PROBE, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(take_accepted_handle(&h)->flags, KVR_ACC_F_KEPT);
	CU_ASSERT_EQUAL(h, old);
	pipeline_advance(20);
	pipeline_flush();
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_PROBE, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(take_accepted_handle(&h)->flags, 0);
	send_ack(PEER_AGENT, old);
	send_handle_item(PEER_AGENT, old, KVR_RESP_F_FIN);
	acknowledge_last_item(old);
	end_unacked();
}

/* ---- pairs ------------------------------------------------------------------------------- */

static void legs_move_to_other_workers(void)
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
	CU_ASSERT_EQUAL(read_unacked_counter(PC_UNACKNOWLEDGED) +
				kvr_stats_get(rt->pool[1].count, PC_UNACKNOWLEDGED),
			1);
	CU_ASSERT_EQUAL(get_rank_of(1, PAIR_P, RC_FAILED), 1);
	CU_ASSERT_EQUAL(get_rank_of(0, PAIR_D, RC_CANCELLED), 1);
	pair_finish();
	pair_stop();
	/* The decode leg, and its prefill leg with it. */
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

/* The longest unacknowledged leg comes first when more legs are due than one turn checks. */
static void the_longest_unacknowledged_leg_is_first(void)
{
	pair_start("dispatch_ms = 2000\n", "");
	CU_ASSERT_TRUE(pair_join(PAIR_D, 1, true) && pair_join(PAIR_P, 1, true));
	pair_route(1, NULL);
	pair_ack(pair_leg(1, true), 0);
	CU_ASSERT_TRUE(pair_join(PAIR_E, 1, true));
	/* Retransmitted after 20, 60, 140 ... 1,260 ms, and at 2,260 ms. */
	for (uint32_t i = 0; i < 2240; i += 10)
		pipeline_advance(10);
	for (uint64_t id = 2; id < 2 + 2 * BURST; id++)
		pair_route(id, NULL);
	CU_ASSERT_EQUAL(read_unacked_counter(PC_UNACKNOWLEDGED), 0);
	pipeline_advance(30);
	CU_ASSERT_EQUAL(read_unacked_counter(PC_UNACKNOWLEDGED), 1);
	pair_take();
	CU_ASSERT_NOT_EQUAL(pair_leg(1, false)->worker, PAIR_D);
	pair_finish();
	pair_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(another_worker_gets_the_request_once),
		KVR_CASE(the_default_time_is_twice_dead_ms),
		KVR_CASE(a_waiting_request_is_not_rejected),
		KVR_CASE(a_wait_limit_is_not_restarted),
		KVR_CASE(a_silent_worker_gets_no_more_requests),
		KVR_CASE(the_client_and_the_first_worker_are_notified),
		KVR_CASE(an_item_during_the_move_counts_as_lost),
		KVR_CASE(check_staying_requests),
		KVR_CASE(a_long_message_is_sent_again_first),
		KVR_CASE(a_pause_of_the_router_is_not_silence),
		KVR_CASE(legs_move_to_other_workers),
		KVR_CASE(the_longest_unacknowledged_leg_is_first),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("unacknowledged", tests);
}
