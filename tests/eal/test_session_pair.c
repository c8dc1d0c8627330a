/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions of a prefill and decode pair: the decode leg opens and sticks, the prefill leg sticks.
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

static uint64_t counter(uint32_t pool, enum session_counter c)
{
	return kvr_stats_get(rt->pool[pool].sessions->count, c);
}

static void joins(uint64_t id, const char *pool, uint32_t from, uint8_t role, bool bootstrap)
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

static void begin(const char *pools, bool bootstrap)
{
	pipeline_start_with(pools);
	joins(P1, "p", PEER_P, KVR_ROLE_PREFILL, bootstrap);
	joins(P2, "p", PEER_P, KVR_ROLE_PREFILL, bootstrap);
	joins(D1, "d", PEER_D, KVR_ROLE_DECODE, false);
	joins(D2, "d", PEER_D, KVR_ROLE_DECODE, false);
	pipeline_flush();
}

static void end(uint32_t decode_bound, uint32_t prefill_bound)
{
	pipeline_turn();
	CU_ASSERT(pipeline_balanced());
	for (uint32_t i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[i].sched)->booked_now, 0);
		CU_ASSERT_EQUAL(counter(i, SC_OPENING), 0);
		CU_ASSERT_EQUAL(counter(i, SC_CLOSING), 0);
		for (uint32_t k = 0; k < rt->pool[i].n_requests; k++) {
			const struct session_use *u = &rt->pool[i].use[k];

			CU_ASSERT_FATAL(!u->s.reserved && u->ask.kind == 0);
			CU_ASSERT_FATAL(u->s.part[0] == 0 && u->s.part[1] == 0 && u->share == 0);
		}
		CU_ASSERT_EQUAL(
			kvr_quota_held(rt->pool[i].live.shares.sessions, UINT64_C(0xffff0a000002)),
			i == 0 ? decode_bound : prefill_bound);
	}
	CU_ASSERT_EQUAL(counter(0, SC_LIVE), decode_bound);
	CU_ASSERT_EQUAL(counter(1, SC_LIVE), prefill_bound);
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

static struct kvr_wire_ids ids_of(uint64_t id, uint64_t handle)
{
	return (struct kvr_wire_ids){.source = CLIENT, .id = id, .handle = handle, .epoch = 1};
}

static void route(uint64_t id, uint8_t action, const char *session)
{
	uint8_t tlv[512];
	struct kvr_hint_buf h = {.p = tlv, .cap = sizeof(tlv)};

	kvr_hint_put_session(&h, action, KVR_NONE32, session);
	pipeline_route(id, 100 * id, 4, 0, &h);
}

/* Handle and worker of a leg's DISPATCH; 0: none. */
static uint64_t leg(uint32_t peer, uint64_t *worker)
{
	const struct out *o = pipeline_expect(peer, KVR_DISPATCH);

	if (o == NULL)
		return 0;
	*worker = ((const struct kvr_wire_request *)(&o->hdr + 1))->worker;
	return o->hdr.handle;
}

static void ack(uint32_t peer, uint64_t id, uint64_t handle)
{
	const struct kvr_wire_dispatch_ack a = {.code = 0};
	const struct kvr_wire_ids ids = ids_of(id, handle);
	uint8_t buf[64];

	pipeline_send(peer, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &a));
	pipeline_turn();
}

/* The last item of a leg. */
static void done(uint32_t peer, uint64_t id, uint64_t handle, uint16_t flags)
{
	const struct kvr_wire_ids ids = ids_of(id, handle);
	const struct kvr_wire_response r = {.flags = (uint16_t)(flags | KVR_RESP_F_FIN),
					    .generated_tokens = 1,
					    .cached_tokens = KVR_NONE32};
	uint8_t buf[256];
	int len = kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){"item", 4});

	pipeline_send(peer, buf, (size_t)len);
	pipeline_turn();
}

static uint64_t asked(uint8_t kind, uint64_t *worker)
{
	const struct out *o = pipeline_expect(PEER_D, kind);

	if (o == NULL)
		return 0;
	*worker = o->hdr.source;
	return o->hdr.id;
}

static void answer(uint8_t kind, uint64_t worker, uint64_t number, uint16_t code)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = number, .epoch = 1};
	uint8_t buf[128];

	pipeline_send(PEER_D, buf,
		      (size_t)kvr_put_session_status(buf, sizeof(buf), kind, &ids, code));
	pipeline_turn();
}

static void close_answered(uint64_t worker)
{
	uint64_t to = 0, number = asked(KVR_SESSION_CLOSE, &to);

	CU_ASSERT_NOT_EQUAL(number, 0);
	CU_ASSERT_EQUAL(to, worker);
	answer(KVR_SESSION_CLOSED, to, number, 0);
}

static int rejected(void)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);

	return o == NULL ? -1 : ((const struct kvr_wire_rejected *)(&o->hdr + 1))->code;
}

static int accepted_state(void)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);

	return o == NULL ? -1 : ((const struct kvr_wire_accepted *)(&o->hdr + 1))->state;
}

/* ---- behaviours ---- */

/* The prefill leg runs meanwhile; with the answer the decode leg goes where it was opened. */
static void decode_leg_waits_for_its_session(bool bootstrap)
{
	uint64_t p, d, number, worker = 0, to = 0;

	begin(PAIR, bootstrap);
	route(1, KVR_ACTION_OPEN, "chat");
	p = leg(PEER_P, &to);
	CU_ASSERT_NOT_EQUAL_FATAL(p, 0);
	CU_ASSERT_EQUAL(accepted_state(), KVR_STATE_QUEUED);
	ack(PEER_P, 1, p);
	if (!bootstrap)
		done(PEER_P, 1, p, 0);
	number = asked(KVR_SESSION_OPEN, &worker);
	CU_ASSERT_NOT_EQUAL_FATAL(number, 0);
	CU_ASSERT(worker == D1 || worker == D2);
	CU_ASSERT_EQUAL(leg(PEER_D, &to), 0);
	pipeline_advance(500); /* nothing of the held leg is repeated */
	CU_ASSERT_EQUAL(leg(PEER_D, &to), 0);
	answer(KVR_SESSION_OPENED, worker, number, 0);
	d = leg(PEER_D, &to);
	CU_ASSERT_NOT_EQUAL_FATAL(d, 0);
	CU_ASSERT_EQUAL(to, worker);
	if (!bootstrap)
		CU_ASSERT_EQUAL(accepted_state(), KVR_STATE_QUEUED); /* held */
	CU_ASSERT_EQUAL(accepted_state(), KVR_STATE_DISPATCHED);
	ack(PEER_D, 1, d);
	if (bootstrap)
		done(PEER_P, 1, p, 0);
	done(PEER_D, 1, d, 0);
	CU_ASSERT_EQUAL(counter(0, SC_LIVE), 1);
	CU_ASSERT_EQUAL(counter(1, SC_OPENS), 0);
	pipeline_flush();
	/* The next request sticks to the decode worker, and closes the session when it has ended.
	 */
	route(2, KVR_ACTION_CLOSE, "chat");
	p = leg(PEER_P, &to);
	ack(PEER_P, 2, p);
	done(PEER_P, 2, p, 0);
	d = leg(PEER_D, &to);
	CU_ASSERT_EQUAL(to, worker);
	ack(PEER_D, 2, d);
	CU_ASSERT_EQUAL(asked(KVR_SESSION_CLOSE, &to), 0);
	done(PEER_D, 2, d, 0);
	close_answered(worker);
	end(0, 0);
}

static void open_with_either_path(void)
{
	decode_leg_waits_for_its_session(true);
	decode_leg_waits_for_its_session(false);
}

static void refused_open_ends_the_request_and_lets_the_prefill_leg_run_out(void)
{
	uint64_t p, number, worker = 0, to = 0;

	begin(PAIR, true);
	route(1, KVR_ACTION_OPEN, "chat");
	p = leg(PEER_P, &to);
	ack(PEER_P, 1, p);
	number = asked(KVR_SESSION_OPEN, &worker);
	answer(KVR_SESSION_OPENED, worker, number, 1);
	CU_ASSERT_EQUAL(rejected(), KVR_E_SESSION_OPEN_FAILED);
	CU_ASSERT_EQUAL(leg(PEER_D, &to), 0);
	done(PEER_P, 1, p, 0);
	end(0, 0);
}

static void silence_and_cancel_close_what_may_be_open(void)
{
	const struct kvr_wire_ids ids = ids_of(2, 0);
	uint64_t p, worker = 0, to = 0;
	uint8_t buf[64];

	begin(PAIR, true);
	route(1, KVR_ACTION_OPEN, "chat");
	p = leg(PEER_P, &to);
	ack(PEER_P, 1, p);
	CU_ASSERT_NOT_EQUAL(asked(KVR_SESSION_OPEN, &worker), 0);
	for (int i = 0; i < 60; i++)
		pipeline_advance(100);
	CU_ASSERT_EQUAL(rejected(), KVR_E_SESSION_OPEN_FAILED);
	close_answered(worker);
	done(PEER_P, 1, p, 0);
	pipeline_flush();
	route(2, KVR_ACTION_OPEN, "chat");
	p = leg(PEER_P, &to);
	ack(PEER_P, 2, p);
	CU_ASSERT_NOT_EQUAL(asked(KVR_SESSION_OPEN, &worker), 0);
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	close_answered(worker);
	done(PEER_P, 2, p, 0);
	end(0, 0);
}

/* The kinds of what was sent to @p peer, in their order. */
static uint32_t sent_to(uint32_t peer, uint8_t kind[8])
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
 * The client goes while the decode leg is held for its session, the prefill leg under way or
 * done: only the decode worker can release what waits for it, so it gets the leg, and stops it.
 */
static void cancel_while_held(bool bootstrap)
{
	const struct kvr_wire_ids ids = ids_of(1, 0);
	uint64_t p, number, worker = 0, to = 0;
	uint8_t buf[64], kind[8];

	begin(PAIR, bootstrap);
	route(1, KVR_ACTION_OPEN, "chat");
	p = leg(PEER_P, &to);
	ack(PEER_P, 1, p);
	if (!bootstrap)
		done(PEER_P, 1, p, 0);
	number = asked(KVR_SESSION_OPEN, &worker);
	CU_ASSERT_NOT_EQUAL_FATAL(number, 0);
	pipeline_flush();
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
	pipeline_turn();
	CU_ASSERT_EQUAL(sent_to(PEER_D, kind), 3);
	CU_ASSERT_EQUAL(kind[0], KVR_DISPATCH);
	CU_ASSERT(kind[1] == KVR_SESSION_CLOSE && kind[2] == KVR_ABORT);
	answer(KVR_SESSION_OPENED, worker, number, 0); /* late: nothing is bound */
	CU_ASSERT_EQUAL(counter(0, SC_LIVE), 0);
	if (bootstrap)
		done(PEER_P, 1, p, 0);
	for (int i = 0; i < 60; i++)
		pipeline_advance(100); /* neither ABORT nor SESSION_CLOSE is answered */
	end(0, 0);
}

static void cancel_while_held_sends_the_leg_and_stops_it(void)
{
	cancel_while_held(true);
	cancel_while_held(false);
}

/* A decode leg that was never sent is not aborted. */
static void held_leg_whose_prefill_leg_fails_hears_nothing(void)
{
	uint64_t p, worker = 0, to = 0;
	uint8_t kind[8];

	begin(PAIR, true);
	route(1, KVR_ACTION_OPEN, "chat");
	for (int i = 0; i < 2; i++) {
		p = leg(PEER_P, &to);
		CU_ASSERT_NOT_EQUAL_FATAL(p, 0);
		ack(PEER_P, 1, p);
		CU_ASSERT_NOT_EQUAL(asked(KVR_SESSION_OPEN, &worker), 0);
		if (i == 1)
			pipeline_flush();
		done(PEER_P, 1, p, KVR_RESP_F_ERROR);
	}
	CU_ASSERT_EQUAL(rejected(), KVR_E_PREFILL_FAILED);
	CU_ASSERT_EQUAL(sent_to(PEER_D, kind), 1);
	CU_ASSERT_EQUAL(kind[0], KVR_SESSION_CLOSE);
	for (int i = 0; i < 60; i++) {
		pipeline_advance(100);
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_D, KVR_ABORT));
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_D, KVR_DISPATCH));
	}
	end(0, 0);
}

/* The prefill leg fails while the decode leg is held: the request starts over and opens again. */
static void failed_prefill_leg_opens_again(void)
{
	uint64_t p, d, number, worker = 0, to = 0;

	begin(PAIR, true);
	route(1, KVR_ACTION_OPEN, "chat");
	p = leg(PEER_P, &to);
	ack(PEER_P, 1, p);
	CU_ASSERT_NOT_EQUAL(asked(KVR_SESSION_OPEN, &worker), 0);
	done(PEER_P, 1, p, KVR_RESP_F_ERROR);
	p = leg(PEER_P, &to); /* at the other prefill worker */
	CU_ASSERT_NOT_EQUAL_FATAL(p, 0);
	ack(PEER_P, 1, p);
	number = asked(KVR_SESSION_OPEN, &worker);
	CU_ASSERT_NOT_EQUAL_FATAL(number, 0);
	answer(KVR_SESSION_OPENED, worker, number, 0);
	d = leg(PEER_D, &to);
	CU_ASSERT_NOT_EQUAL_FATAL(d, 0);
	CU_ASSERT_EQUAL(to, worker);
	ack(PEER_D, 1, d);
	done(PEER_P, 1, p, 0);
	done(PEER_D, 1, d, 0);
	for (int i = 0; i < 60; i++)
		pipeline_advance(100); /* a close of the first try, if any, is given up */
	CU_ASSERT_EQUAL(counter(0, SC_OPENS), 2);
	end(1, 0);
}

/* The same when the session is open already: the next try is a request of it like any other. */
static void failed_prefill_leg_does_not_open_twice(void)
{
	uint64_t p, d, number, worker = 0, to = 0;

	begin(PAIR, true);
	for (uint64_t id = 1; id < 9; id++) { /* load at both, so that a free choice changes */
		char name[8] = {'c', (char)('0' + id), 0};

		route(id, KVR_ACTION_OPEN, name);
		p = leg(PEER_P, &to);
		ack(PEER_P, id, p);
		number = asked(KVR_SESSION_OPEN, &worker);
		CU_ASSERT_NOT_EQUAL_FATAL(number, 0);
		answer(KVR_SESSION_OPENED, worker, number, 0);
		d = leg(PEER_D, &to);
		ack(PEER_D, id, d);
		done(PEER_P, id, p, KVR_RESP_F_ERROR);
		p = leg(PEER_P, &to);
		CU_ASSERT_NOT_EQUAL_FATAL(p, 0);
		ack(PEER_P, id, p);
		CU_ASSERT_EQUAL(asked(KVR_SESSION_OPEN, &to), 0);
		d = leg(PEER_D, &to);
		CU_ASSERT_NOT_EQUAL_FATAL(d, 0);
		CU_ASSERT_EQUAL(to, worker);
		ack(PEER_D, id, d);
		done(PEER_P, id, p, 0);
		done(PEER_D, id, d, 0);
		CU_ASSERT_EQUAL(asked(KVR_SESSION_CLOSE, &to), 0);
		if (id == 4) { /* max_sessions */
			end(4, 0);
			return;
		}
		pipeline_flush();
	}
}

/* A closing turn whose prefill leg fails: the session is closed when the request has ended. */
static void closing_turn_that_starts_over_closes_once(bool again)
{
	uint64_t p, d, number, worker = 0, to = 0;

	begin(PAIR, true);
	route(1, KVR_ACTION_OPEN, "chat");
	p = leg(PEER_P, &to);
	ack(PEER_P, 1, p);
	number = asked(KVR_SESSION_OPEN, &worker);
	answer(KVR_SESSION_OPENED, worker, number, 0);
	d = leg(PEER_D, &to);
	ack(PEER_D, 1, d);
	done(PEER_P, 1, p, 0);
	done(PEER_D, 1, d, 0);
	pipeline_flush();
	route(2, KVR_ACTION_CLOSE, "chat");
	for (int i = 0; i < 2; i++) {
		p = leg(PEER_P, &to);
		CU_ASSERT_NOT_EQUAL_FATAL(p, 0);
		ack(PEER_P, 2, p);
		d = leg(PEER_D, &to);
		CU_ASSERT_EQUAL(to, worker);
		ack(PEER_D, 2, d);
		CU_ASSERT_EQUAL(asked(KVR_SESSION_CLOSE, &to), 0);
		pipeline_flush();
		done(PEER_P, 2, p, i == 0 || again ? KVR_RESP_F_ERROR : 0);
	}
	if (again) { /* no third try */
		CU_ASSERT_EQUAL(rejected(), KVR_E_PREFILL_FAILED);
	} else {
		CU_ASSERT_EQUAL(asked(KVR_SESSION_CLOSE, &to), 0);
		done(PEER_D, 2, d, 0);
	}
	close_answered(worker);
	CU_ASSERT_EQUAL(counter(0, SC_UNBOUND), 1);
	CU_ASSERT_EQUAL(counter(0, SC_CLOSES), 1);
	end(0, 0);
}

static void closing_turns_that_start_over(void)
{
	closing_turn_that_starts_over_closes_once(false);
	closing_turn_that_starts_over_closes_once(true);
}

static void each_leg_has_an_affinity(void)
{
	uint64_t p, d, p_worker = 0, d_worker = 0, to = 0;

	begin(AFFINITY_PAIR, true);
	route(1, KVR_ACTION_NONE, "chat");
	p = leg(PEER_P, &p_worker);
	d = leg(PEER_D, &d_worker);
	ack(PEER_P, 1, p);
	ack(PEER_D, 1, d);
	CU_ASSERT_EQUAL(counter(0, SC_AFFINITY_BOUND), 1);
	CU_ASSERT_EQUAL(counter(1, SC_AFFINITY_BOUND), 1);
	for (uint64_t id = 2; id < 8; id++) { /* the load of the first would send them elsewhere */
		uint64_t p2, d2;

		route(id, KVR_ACTION_NONE, "chat");
		p2 = leg(PEER_P, &to);
		CU_ASSERT_EQUAL(to, p_worker);
		d2 = leg(PEER_D, &to);
		CU_ASSERT_EQUAL(to, d_worker);
		ack(PEER_P, id, p2);
		ack(PEER_D, id, d2);
		done(PEER_P, id, p2, 0);
		done(PEER_D, id, d2, 0);
		pipeline_flush();
	}
	done(PEER_P, 1, p, 0);
	done(PEER_D, 1, d, KVR_RESP_F_ERROR); /* ends the decode worker's affinity alone */
	CU_ASSERT_EQUAL(counter(0, SC_INVALIDATED), 1);
	CU_ASSERT_EQUAL(counter(1, SC_INVALIDATED), 0);
	end(0, 1);
}

/* A prefill leg that fails ends its own affinity; the decode worker has done nothing wrong. */
static void failed_prefill_leg_ends_its_own_affinity(void)
{
	uint64_t p, d, p_worker = 0, d_worker = 0, to = 0;

	begin(AFFINITY_PAIR, true);
	route(1, KVR_ACTION_NONE, "chat");
	p = leg(PEER_P, &p_worker);
	d = leg(PEER_D, &d_worker);
	ack(PEER_P, 1, p);
	ack(PEER_D, 1, d);
	done(PEER_P, 1, p, KVR_RESP_F_ERROR); /* starts over */
	CU_ASSERT_EQUAL(counter(0, SC_INVALIDATED), 0);
	CU_ASSERT_EQUAL(counter(1, SC_INVALIDATED), 1);
	p = leg(PEER_P, &to);
	CU_ASSERT_NOT_EQUAL(to, p_worker);
	d = leg(PEER_D, &to);
	CU_ASSERT_EQUAL(to, d_worker);
	ack(PEER_P, 1, p);
	ack(PEER_D, 1, d);
	done(PEER_P, 1, p, 0);
	done(PEER_D, 1, d, 0);
	CU_ASSERT_EQUAL(counter(0, SC_AFFINITY_BOUND), 1);
	CU_ASSERT_EQUAL(counter(1, SC_AFFINITY_BOUND), 2);
	pipeline_flush();
	/* Now the leg that fails was pinned: the next try is not. */
	route(2, KVR_ACTION_NONE, "chat");
	p = leg(PEER_P, &to);
	CU_ASSERT_NOT_EQUAL(to, p_worker);
	d = leg(PEER_D, &to);
	ack(PEER_P, 2, p);
	ack(PEER_D, 2, d);
	done(PEER_P, 2, p, KVR_RESP_F_ERROR);
	p = leg(PEER_P, &to);
	CU_ASSERT_NOT_EQUAL_FATAL(p, 0);
	CU_ASSERT_EQUAL(to, p_worker);
	d = leg(PEER_D, &to);
	CU_ASSERT_EQUAL(to, d_worker);
	ack(PEER_P, 2, p);
	ack(PEER_D, 2, d);
	done(PEER_P, 2, p, 0);
	done(PEER_D, 2, d, 0);
	end(1, 1);
}

static void stop_while_held_frees_the_message(void)
{
	uint64_t worker = 0;

	begin(PAIR, true);
	route(1, KVR_ACTION_OPEN, "chat");
	CU_ASSERT_NOT_EQUAL(asked(KVR_SESSION_OPEN, &worker), 0);
	pipeline_stop(); /* says when frames are left */
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(open_with_either_path),
		KVR_CASE(refused_open_ends_the_request_and_lets_the_prefill_leg_run_out),
		KVR_CASE(silence_and_cancel_close_what_may_be_open),
		KVR_CASE(cancel_while_held_sends_the_leg_and_stops_it),
		KVR_CASE(held_leg_whose_prefill_leg_fails_hears_nothing),
		KVR_CASE(failed_prefill_leg_opens_again),
		KVR_CASE(failed_prefill_leg_does_not_open_twice),
		KVR_CASE(closing_turns_that_start_over),
		KVR_CASE(each_leg_has_an_affinity),
		KVR_CASE(failed_prefill_leg_ends_its_own_affinity),
		KVR_CASE(stop_while_held_frees_the_message),
		CU_TEST_INFO_NULL};

	return kvr_test_run("session pair", tests);
}
