/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * @rule 10: sessions of a prefill and decode pair. The decode leg opens and stays at its worker,
 * the prefill leg has an affinity.
 */
#include "pipeline.h"

#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include "sched/session.h"
#include <string.h>

#define P1     21u /* worker ids */
#define P2     22u
#define D1     31u
#define D2     32u
#define PEER_P 2000u
#define PEER_D 3000u
#define CLIENT 77u

#define KEYS PIPELINE_POOL "max_sessions = 4\n"
#define PAIR                                                                                       \
	"[pool d]\nid = 5\nmodel = m\nrole = decode\n" KEYS                                        \
	"[pool p]\nid = 6\nmodel = m\nrole = prefill\n" KEYS
#define TTL "session_affinity_ttl_secs = 100\n"
#define AFFINITY_PAIR                                                                              \
	"[pool d]\nid = 5\nmodel = m\nrole = decode\n" KEYS TTL                                    \
	"[pool p]\nid = 6\nmodel = m\nrole = prefill\n" KEYS TTL

static uint64_t read_pair_counter(uint32_t pool, enum session_counter c)
{
	return kvr_stats_get(rt->pool[pool].sessions->count, c);
}

static void join_pair_worker(uint64_t id, const char *pool, uint32_t from, uint8_t role,
			     bool bootstrap)
{
	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&(const struct pipeline_worker){
		.id = id,
		.epoch = 1,
		.pool = pool,
		.ranks = 1,
		.from = from,
		.role = role,
		.host = bootstrap ? "10.9.8.7" : NULL,
		.port = bootstrap ? 8998 : 0,
	}));
}

static void begin_session_pair(const char *pools, bool bootstrap)
{
	pipeline_start_with(pools);
	join_pair_worker(P1, "p", PEER_P, KVR_ROLE_PREFILL, bootstrap);
	join_pair_worker(P2, "p", PEER_P, KVR_ROLE_PREFILL, bootstrap);
	join_pair_worker(D1, "d", PEER_D, KVR_ROLE_DECODE, false);
	join_pair_worker(D2, "d", PEER_D, KVR_ROLE_DECODE, false);
	pipeline_flush();
}

static void end_session_pair(uint32_t decode_bound, uint32_t prefill_bound)
{
	pipeline_turn();
	CU_ASSERT(pipeline_balanced());
	for (uint32_t i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[i].sched)->booked_now, 0);
		CU_ASSERT_EQUAL(read_pair_counter(i, SC_OPENING), 0);
		CU_ASSERT_EQUAL(read_pair_counter(i, SC_CLOSING), 0);
		for (uint32_t k = 0; k < rt->pool[i].n_requests; k++) {
			const struct session_use *u = &rt->pool[i].use[k];

			CU_ASSERT_FATAL(!u->s.reserved && u->ask.kind == 0);
			CU_ASSERT_FATAL(u->s.part[0] == 0 && u->s.part[1] == 0 &&
					u->quota_ref == 0);
		}
		CU_ASSERT_EQUAL(
			kvr_quota_held(rt->pool[i].live.quotas.sessions, UINT64_C(0xffff0a000002)),
			i == 0 ? decode_bound : prefill_bound);
	}
	CU_ASSERT_EQUAL(read_pair_counter(0, SC_LIVE), decode_bound);
	CU_ASSERT_EQUAL(read_pair_counter(1, SC_LIVE), prefill_bound);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[0].pairs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[0].jobs), 0);
	CU_ASSERT_EQUAL(rt->pool[0].pair.n_prefilling, 0);
	for (uint32_t i = decode_bound; i < 4; i++)
		CU_ASSERT(kvr_session_reserve(rt->pool[0].sessions->table));
	pipeline_flush();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	pipeline_stop();
}

/* ---- frames ---- */

static struct kvr_wire_ids make_session_ids(uint64_t id, uint64_t handle)
{
	return (struct kvr_wire_ids){.source = CLIENT, .id = id, .handle = handle, .epoch = 1};
}

static void route_pair_session(uint64_t id, uint8_t action, const char *session)
{
	uint8_t tlv[512];
	struct kvr_hint_buf h = {.p = tlv, .cap = sizeof(tlv)};

	kvr_hint_put_session(&h, action, KVR_NONE32, session);
	pipeline_route(id, 100 * id, 4, 0, &h);
}

/* Handle and worker of a leg's DISPATCH; 0: none. */
static uint64_t take_leg(uint32_t peer, uint64_t *worker)
{
	const struct out *o = pipeline_expect(peer, KVR_DISPATCH);

	if (o == NULL)
		return 0;
	*worker = ((const struct kvr_wire_request *)(&o->hdr + 1))->worker;
	return o->hdr.handle;
}

static void ack_leg(uint32_t peer, uint64_t id, uint64_t handle)
{
	const struct kvr_wire_dispatch_ack a = {.code = 0};
	const struct kvr_wire_ids ids = make_session_ids(id, handle);
	uint8_t buf[64];

	pipeline_send(peer, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &a));
	pipeline_turn();
}

/* The last item of a leg. */
static void finish_leg(uint32_t peer, uint64_t id, uint64_t handle, uint16_t flags)
{
	const struct kvr_wire_ids ids = make_session_ids(id, handle);
	const struct kvr_wire_response r = {.flags = (uint16_t)(flags | KVR_RESP_F_FIN),
					    .generated_tokens = 1,
					    .cached_tokens = KVR_NONE32};
	uint8_t buf[256];
	int len = kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){"item", 4});

	pipeline_send(peer, buf, (size_t)len);
	pipeline_turn();
}

static uint64_t take_session_request(uint8_t kind, uint64_t *worker)
{
	const struct out *o = pipeline_expect(PEER_D, kind);

	if (o == NULL)
		return 0;
	*worker = o->hdr.source;
	return o->hdr.id;
}

static void answer_session(uint8_t kind, uint64_t worker, uint64_t number, uint16_t code)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = number, .epoch = 1};
	uint8_t buf[128];

	pipeline_send(PEER_D, buf,
		      (size_t)kvr_put_session_status(buf, sizeof(buf), kind, &ids, code));
	pipeline_turn();
}

static void answer_session_close(uint64_t worker)
{
	uint64_t to = 0, number = take_session_request(KVR_SESSION_CLOSE, &to);

	CU_ASSERT_NOT_EQUAL(number, 0);
	CU_ASSERT_EQUAL(to, worker);
	answer_session(KVR_SESSION_CLOSED, to, number, 0);
}

static int take_session_rejection(void)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);

	return o == NULL ? -1 : ((const struct kvr_wire_rejected *)(&o->hdr + 1))->code;
}

static int take_accepted_reply_state(void)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);

	return o == NULL ? -1 : ((const struct kvr_wire_accepted *)(&o->hdr + 1))->state;
}

/* ---- behaviour ---- */

/* The prefill leg runs meanwhile; after the reply the decode leg goes to the worker that opened. */
static void decode_leg_waits_for_its_session(bool bootstrap)
{
	uint64_t p, d, number, worker = 0, to = 0;

	begin_session_pair(PAIR, bootstrap);
	route_pair_session(1, KVR_ACTION_OPEN, "chat");
	p = take_leg(PEER_P, &to);
	CU_ASSERT_NOT_EQUAL_FATAL(p, 0);
	CU_ASSERT_EQUAL(take_accepted_reply_state(), KVR_STATE_QUEUED);
	ack_leg(PEER_P, 1, p);
	if (!bootstrap)
		finish_leg(PEER_P, 1, p, 0);
	number = take_session_request(KVR_SESSION_OPEN, &worker);
	CU_ASSERT_NOT_EQUAL_FATAL(number, 0);
	CU_ASSERT(worker == D1 || worker == D2);
	CU_ASSERT_EQUAL(take_leg(PEER_D, &to), 0);
	pipeline_advance(500); /* nothing of the held leg is retransmitted */
	CU_ASSERT_EQUAL(take_leg(PEER_D, &to), 0);
	answer_session(KVR_SESSION_OPENED, worker, number, 0);
	d = take_leg(PEER_D, &to);
	CU_ASSERT_NOT_EQUAL_FATAL(d, 0);
	CU_ASSERT_EQUAL(to, worker);
	if (!bootstrap)
		CU_ASSERT_EQUAL(take_accepted_reply_state(), KVR_STATE_QUEUED); /* held */
	CU_ASSERT_EQUAL(take_accepted_reply_state(), KVR_STATE_DISPATCHED);
	ack_leg(PEER_D, 1, d);
	if (bootstrap)
		finish_leg(PEER_P, 1, p, 0);
	finish_leg(PEER_D, 1, d, 0);
	CU_ASSERT_EQUAL(read_pair_counter(0, SC_LIVE), 1);
	CU_ASSERT_EQUAL(read_pair_counter(1, SC_OPENS), 0);
	pipeline_flush();
	/* The next request goes to the same decode worker, and closes the session at its end. */
	route_pair_session(2, KVR_ACTION_CLOSE, "chat");
	p = take_leg(PEER_P, &to);
	ack_leg(PEER_P, 2, p);
	finish_leg(PEER_P, 2, p, 0);
	d = take_leg(PEER_D, &to);
	CU_ASSERT_EQUAL(to, worker);
	ack_leg(PEER_D, 2, d);
	CU_ASSERT_EQUAL(take_session_request(KVR_SESSION_CLOSE, &to), 0);
	finish_leg(PEER_D, 2, d, 0);
	answer_session_close(worker);
	end_session_pair(0, 0);
}

static void either_path_can_open(void)
{
	decode_leg_waits_for_its_session(true);
	decode_leg_waits_for_its_session(false);
}

static void a_rejected_open_lets_the_prefill_leg_finish(void)
{
	uint64_t p, number, worker = 0, to = 0;

	begin_session_pair(PAIR, true);
	route_pair_session(1, KVR_ACTION_OPEN, "chat");
	p = take_leg(PEER_P, &to);
	ack_leg(PEER_P, 1, p);
	number = take_session_request(KVR_SESSION_OPEN, &worker);
	answer_session(KVR_SESSION_OPENED, worker, number, 1);
	CU_ASSERT_EQUAL(take_session_rejection(), KVR_E_SESSION_OPEN_FAILED);
	CU_ASSERT_EQUAL(take_leg(PEER_D, &to), 0);
	finish_leg(PEER_P, 1, p, 0);
	end_session_pair(0, 0);
}

static void silence_and_cancel_send_a_close(void)
{
	const struct kvr_wire_ids ids = make_session_ids(2, 0);
	uint64_t p, worker = 0, to = 0;
	uint8_t buf[64];

	begin_session_pair(PAIR, true);
	route_pair_session(1, KVR_ACTION_OPEN, "chat");
	p = take_leg(PEER_P, &to);
	ack_leg(PEER_P, 1, p);
	CU_ASSERT_NOT_EQUAL(take_session_request(KVR_SESSION_OPEN, &worker), 0);
	for (int i = 0; i < 60; i++)
		pipeline_advance(100);
	CU_ASSERT_EQUAL(take_session_rejection(), KVR_E_SESSION_OPEN_FAILED);
	answer_session_close(worker);
	finish_leg(PEER_P, 1, p, 0);
	pipeline_flush();
	route_pair_session(2, KVR_ACTION_OPEN, "chat");
	p = take_leg(PEER_P, &to);
	ack_leg(PEER_P, 2, p);
	CU_ASSERT_NOT_EQUAL(take_session_request(KVR_SESSION_OPEN, &worker), 0);
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	answer_session_close(worker);
	finish_leg(PEER_P, 2, p, 0);
	end_session_pair(0, 0);
}

/* The kinds of the frames to @p peer, in order. */
static uint32_t list_frames_to(uint32_t peer, uint8_t kind[8])
{
	const struct out *o;
	uint32_t n = 0;

	while ((o = pipeline_next(peer)) != NULL)
		if (n < 8)
			kind[n++] = o->hdr.kind;
	pipeline_flush();
	return n;
}

/*
 * The client goes while the decode leg is held for its session and the prefill leg is under way or
 * done. Only the decode worker can release the prefilled blocks, so it gets the leg and then an
 * ABORT.
 */
static void check_cancel_while_held(bool bootstrap)
{
	const struct kvr_wire_ids ids = make_session_ids(1, 0);
	uint64_t p, number, worker = 0, to = 0;
	uint8_t buf[64], kind[8];

	begin_session_pair(PAIR, bootstrap);
	route_pair_session(1, KVR_ACTION_OPEN, "chat");
	p = take_leg(PEER_P, &to);
	ack_leg(PEER_P, 1, p);
	if (!bootstrap)
		finish_leg(PEER_P, 1, p, 0);
	number = take_session_request(KVR_SESSION_OPEN, &worker);
	CU_ASSERT_NOT_EQUAL_FATAL(number, 0);
	pipeline_flush();
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(list_frames_to(PEER_D, kind), 3);
	CU_ASSERT_EQUAL(kind[0], KVR_DISPATCH);
	CU_ASSERT(kind[1] == KVR_SESSION_CLOSE && kind[2] == KVR_ABORT);
	answer_session(KVR_SESSION_OPENED, worker, number, 0); /* late: nothing is bound */
	CU_ASSERT_EQUAL(read_pair_counter(0, SC_LIVE), 0);
	if (bootstrap)
		finish_leg(PEER_P, 1, p, 0);
	for (int i = 0; i < 60; i++)
		pipeline_advance(100); /* neither ABORT nor SESSION_CLOSE is answered */
	end_session_pair(0, 0);
}

static void cancel_while_held_sends_and_aborts_the_leg(void)
{
	check_cancel_while_held(true);
	check_cancel_while_held(false);
}

/* A decode leg that was never sent is not aborted. */
static void a_held_leg_without_prefill_is_not_aborted(void)
{
	uint64_t p, worker = 0, to = 0;
	uint8_t kind[8];

	begin_session_pair(PAIR, true);
	route_pair_session(1, KVR_ACTION_OPEN, "chat");
	for (int i = 0; i < 2; i++) {
		p = take_leg(PEER_P, &to);
		CU_ASSERT_NOT_EQUAL_FATAL(p, 0);
		ack_leg(PEER_P, 1, p);
		CU_ASSERT_NOT_EQUAL(take_session_request(KVR_SESSION_OPEN, &worker), 0);
		if (i == 1)
			pipeline_flush();
		finish_leg(PEER_P, 1, p, KVR_RESP_F_ERROR);
	}
	CU_ASSERT_EQUAL(take_session_rejection(), KVR_E_PREFILL_FAILED);
	CU_ASSERT_EQUAL(list_frames_to(PEER_D, kind), 1);
	CU_ASSERT_EQUAL(kind[0], KVR_SESSION_CLOSE);
	for (int i = 0; i < 60; i++) {
		pipeline_advance(100);
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_D, KVR_ABORT));
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_D, KVR_DISPATCH));
	}
	end_session_pair(0, 0);
}

/* The prefill leg fails while the decode leg is held: the request starts over and opens again. */
static void a_failed_prefill_leg_opens_again(void)
{
	uint64_t p, d, number, worker = 0, to = 0;

	begin_session_pair(PAIR, true);
	route_pair_session(1, KVR_ACTION_OPEN, "chat");
	p = take_leg(PEER_P, &to);
	ack_leg(PEER_P, 1, p);
	CU_ASSERT_NOT_EQUAL(take_session_request(KVR_SESSION_OPEN, &worker), 0);
	finish_leg(PEER_P, 1, p, KVR_RESP_F_ERROR);
	p = take_leg(PEER_P, &to); /* at the other prefill worker */
	CU_ASSERT_NOT_EQUAL_FATAL(p, 0);
	ack_leg(PEER_P, 1, p);
	number = take_session_request(KVR_SESSION_OPEN, &worker);
	CU_ASSERT_NOT_EQUAL_FATAL(number, 0);
	answer_session(KVR_SESSION_OPENED, worker, number, 0);
	d = take_leg(PEER_D, &to);
	CU_ASSERT_NOT_EQUAL_FATAL(d, 0);
	CU_ASSERT_EQUAL(to, worker);
	ack_leg(PEER_D, 1, d);
	finish_leg(PEER_P, 1, p, 0);
	finish_leg(PEER_D, 1, d, 0);
	for (int i = 0; i < 60; i++)
		pipeline_advance(100); /* a close of the first attempt, if any, is given up */
	CU_ASSERT_EQUAL(read_pair_counter(0, SC_OPENS), 2);
	end_session_pair(1, 0);
}

/* The same with an open session: the next attempt is an ordinary request of it. */
static void a_failed_prefill_leg_does_not_open_twice(void)
{
	uint64_t p, d, number, worker = 0, to = 0;

	begin_session_pair(PAIR, true);
	for (uint64_t id = 1; id < 9;
	     id++) { /* load at both workers, so that a free choice would change */
		char name[8] = {'c', (char)('0' + id), 0};

		route_pair_session(id, KVR_ACTION_OPEN, name);
		p = take_leg(PEER_P, &to);
		ack_leg(PEER_P, id, p);
		number = take_session_request(KVR_SESSION_OPEN, &worker);
		CU_ASSERT_NOT_EQUAL_FATAL(number, 0);
		answer_session(KVR_SESSION_OPENED, worker, number, 0);
		d = take_leg(PEER_D, &to);
		ack_leg(PEER_D, id, d);
		finish_leg(PEER_P, id, p, KVR_RESP_F_ERROR);
		p = take_leg(PEER_P, &to);
		CU_ASSERT_NOT_EQUAL_FATAL(p, 0);
		ack_leg(PEER_P, id, p);
		CU_ASSERT_EQUAL(take_session_request(KVR_SESSION_OPEN, &to), 0);
		d = take_leg(PEER_D, &to);
		CU_ASSERT_NOT_EQUAL_FATAL(d, 0);
		CU_ASSERT_EQUAL(to, worker);
		ack_leg(PEER_D, id, d);
		finish_leg(PEER_P, id, p, 0);
		finish_leg(PEER_D, id, d, 0);
		CU_ASSERT_EQUAL(take_session_request(KVR_SESSION_CLOSE, &to), 0);
		if (id == 4) { /* max_sessions */
			end_session_pair(4, 0);
			return;
		}
		pipeline_flush();
	}
}

/*
 * The prefill leg of a closing request fails: the session is closed once, at the end of the
 * request.
 */
static void check_closing_retry(bool again)
{
	uint64_t p, d, number, worker = 0, to = 0;

	begin_session_pair(PAIR, true);
	route_pair_session(1, KVR_ACTION_OPEN, "chat");
	p = take_leg(PEER_P, &to);
	ack_leg(PEER_P, 1, p);
	number = take_session_request(KVR_SESSION_OPEN, &worker);
	answer_session(KVR_SESSION_OPENED, worker, number, 0);
	d = take_leg(PEER_D, &to);
	ack_leg(PEER_D, 1, d);
	finish_leg(PEER_P, 1, p, 0);
	finish_leg(PEER_D, 1, d, 0);
	pipeline_flush();
	route_pair_session(2, KVR_ACTION_CLOSE, "chat");
	for (int i = 0; i < 2; i++) {
		p = take_leg(PEER_P, &to);
		CU_ASSERT_NOT_EQUAL_FATAL(p, 0);
		ack_leg(PEER_P, 2, p);
		d = take_leg(PEER_D, &to);
		CU_ASSERT_EQUAL(to, worker);
		ack_leg(PEER_D, 2, d);
		CU_ASSERT_EQUAL(take_session_request(KVR_SESSION_CLOSE, &to), 0);
		pipeline_flush();
		finish_leg(PEER_P, 2, p, i == 0 || again ? KVR_RESP_F_ERROR : 0);
	}
	if (again) { /* no third attempt */
		CU_ASSERT_EQUAL(take_session_rejection(), KVR_E_PREFILL_FAILED);
	} else {
		CU_ASSERT_EQUAL(take_session_request(KVR_SESSION_CLOSE, &to), 0);
		finish_leg(PEER_D, 2, d, 0);
	}
	answer_session_close(worker);
	CU_ASSERT_EQUAL(read_pair_counter(0, SC_UNBOUND), 1);
	CU_ASSERT_EQUAL(read_pair_counter(0, SC_CLOSES), 1);
	end_session_pair(0, 0);
}

static void a_retried_closing_request_closes_once(void)
{
	check_closing_retry(false);
	check_closing_retry(true);
}

static void each_leg_has_an_affinity(void)
{
	uint64_t p, d, p_worker = 0, d_worker = 0, to = 0;

	begin_session_pair(AFFINITY_PAIR, true);
	route_pair_session(1, KVR_ACTION_NONE, "chat");
	p = take_leg(PEER_P, &p_worker);
	d = take_leg(PEER_D, &d_worker);
	ack_leg(PEER_P, 1, p);
	ack_leg(PEER_D, 1, d);
	CU_ASSERT_EQUAL(read_pair_counter(0, SC_AFFINITY_BOUND), 1);
	CU_ASSERT_EQUAL(read_pair_counter(1, SC_AFFINITY_BOUND), 1);
	for (uint64_t id = 2; id < 8; id++) { /* the load of the first would move them elsewhere */
		uint64_t p2, d2;

		route_pair_session(id, KVR_ACTION_NONE, "chat");
		p2 = take_leg(PEER_P, &to);
		CU_ASSERT_EQUAL(to, p_worker);
		d2 = take_leg(PEER_D, &to);
		CU_ASSERT_EQUAL(to, d_worker);
		ack_leg(PEER_P, id, p2);
		ack_leg(PEER_D, id, d2);
		finish_leg(PEER_P, id, p2, 0);
		finish_leg(PEER_D, id, d2, 0);
		pipeline_flush();
	}
	finish_leg(PEER_P, 1, p, 0);
	finish_leg(PEER_D, 1, d, KVR_RESP_F_ERROR); /* ends only the decode worker's affinity */
	CU_ASSERT_EQUAL(read_pair_counter(0, SC_INVALIDATED), 1);
	CU_ASSERT_EQUAL(read_pair_counter(1, SC_INVALIDATED), 0);
	end_session_pair(0, 1);
}

/* A failed prefill leg ends its own affinity and not that of the decode worker. */
static void a_failed_prefill_leg_ends_its_own_affinity(void)
{
	uint64_t p, d, p_worker = 0, d_worker = 0, to = 0;

	begin_session_pair(AFFINITY_PAIR, true);
	route_pair_session(1, KVR_ACTION_NONE, "chat");
	p = take_leg(PEER_P, &p_worker);
	d = take_leg(PEER_D, &d_worker);
	ack_leg(PEER_P, 1, p);
	ack_leg(PEER_D, 1, d);
	finish_leg(PEER_P, 1, p, KVR_RESP_F_ERROR); /* starts over */
	CU_ASSERT_EQUAL(read_pair_counter(0, SC_INVALIDATED), 0);
	CU_ASSERT_EQUAL(read_pair_counter(1, SC_INVALIDATED), 1);
	p = take_leg(PEER_P, &to);
	CU_ASSERT_NOT_EQUAL(to, p_worker);
	d = take_leg(PEER_D, &to);
	CU_ASSERT_EQUAL(to, d_worker);
	ack_leg(PEER_P, 1, p);
	ack_leg(PEER_D, 1, d);
	finish_leg(PEER_P, 1, p, 0);
	finish_leg(PEER_D, 1, d, 0);
	CU_ASSERT_EQUAL(read_pair_counter(0, SC_AFFINITY_BOUND), 1);
	CU_ASSERT_EQUAL(read_pair_counter(1, SC_AFFINITY_BOUND), 2);
	pipeline_flush();
	/* A pinned leg fails: the next attempt is not pinned. */
	route_pair_session(2, KVR_ACTION_NONE, "chat");
	p = take_leg(PEER_P, &to);
	CU_ASSERT_NOT_EQUAL(to, p_worker);
	d = take_leg(PEER_D, &to);
	ack_leg(PEER_P, 2, p);
	ack_leg(PEER_D, 2, d);
	finish_leg(PEER_P, 2, p, KVR_RESP_F_ERROR);
	p = take_leg(PEER_P, &to);
	CU_ASSERT_NOT_EQUAL_FATAL(p, 0);
	CU_ASSERT_EQUAL(to, p_worker);
	d = take_leg(PEER_D, &to);
	CU_ASSERT_EQUAL(to, d_worker);
	ack_leg(PEER_P, 2, p);
	ack_leg(PEER_D, 2, d);
	finish_leg(PEER_P, 2, p, 0);
	finish_leg(PEER_D, 2, d, 0);
	end_session_pair(1, 1);
}

static void stop_while_held_frees_the_message(void)
{
	uint64_t worker = 0;

	begin_session_pair(PAIR, true);
	route_pair_session(1, KVR_ACTION_OPEN, "chat");
	CU_ASSERT_NOT_EQUAL(take_session_request(KVR_SESSION_OPEN, &worker), 0);
	pipeline_stop(); /* reports leaked frames */
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(either_path_can_open),
			       KVR_CASE(a_rejected_open_lets_the_prefill_leg_finish),
			       KVR_CASE(silence_and_cancel_send_a_close),
			       KVR_CASE(cancel_while_held_sends_and_aborts_the_leg),
			       KVR_CASE(a_held_leg_without_prefill_is_not_aborted),
			       KVR_CASE(a_failed_prefill_leg_opens_again),
			       KVR_CASE(a_failed_prefill_leg_does_not_open_twice),
			       KVR_CASE(a_retried_closing_request_closes_once),
			       KVR_CASE(each_leg_has_an_affinity),
			       KVR_CASE(a_failed_prefill_leg_ends_its_own_affinity),
			       KVR_CASE(stop_while_held_frees_the_message),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("session pair", tests);
}
