/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows 8, 9, 24 and 28, and what of 4 and 6 can be seen by the frame: who speaks for a worker, and
 * when its silence counts.
 */
#include "peers.h"

#include "control/thread.h"
#include "lcore/mailbox.h"
#include "loop/loop.h"
#include "sched/request.h"
#include "sched/session.h"

#define WORKER 9u

static int rejected(uint32_t to, uint8_t *retryable)
{
	const struct out *o = pipeline_expect(to, KVR_REJECTED);
	const struct kvr_wire_rejected *r;

	if (o == NULL)
		return -1;
	r = (const void *)(&o->hdr + 1);
	if (retryable != NULL)
		*retryable = r->retryable;
	return r->code;
}

static bool hello(uint32_t epoch, uint32_t from)
{
	return pipeline_hello_as(&(const struct pipeline_worker){
		.id = WORKER, .epoch = epoch, .pool = "a", .ranks = 2, .from = from});
}

static void say(uint32_t from, uint8_t kind, uint32_t epoch)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 3, .epoch = epoch};
	uint8_t buf[64];

	pipeline_send(from, buf, (size_t)kvr_put_empty(buf, sizeof(buf), kind, &ids));
	pipeline_turn();
}

static void beat(uint32_t from, uint32_t epoch, const uint32_t rank[], uint32_t n)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 4, .epoch = epoch};
	struct kvr_wire_rank_load l[4] = {0};
	uint8_t buf[256];

	for (uint32_t i = 0; i < n; i++)
		l[i] = (struct kvr_wire_rank_load){.dp_rank = rank[i], .kv_used_blocks = 7};
	pipeline_send(from, buf, (size_t)kvr_put_heartbeat(buf, sizeof(buf), &ids, l, n, 0, 0));
	pipeline_turn();
}

static struct kvr_worker *worker(void)
{
	return kvr_registry_find(rt->registry, WORKER);
}

/* Time passes in which the router listens and hears nothing. */
static void silence(uint32_t ms)
{
	for (uint32_t i = 0; i < ms; i += 10) {
		rt->ns_offset += UINT64_C(10000000);
		for (uint32_t k = 0; k < rt->n_lcores; k++)
			lcore_turn(rt->lcore[k]);
		control_round(rt);
	}
}

static void strangers_do_not_speak_for_a_worker(void)
{
	uint8_t retry = 0;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	say(PEER_OTHER, KVR_GOODBYE, 5);
	CU_ASSERT_EQUAL(rejected(PEER_OTHER, NULL), KVR_E_NOT_ALLOWED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(worker());
	beat(PEER_OTHER, 5, NULL, 0);
	CU_ASSERT_EQUAL(rejected(PEER_OTHER, NULL), KVR_E_NOT_ALLOWED);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_OTHER, KVR_HEARTBEAT_ACK));
	/* The same life and a new one, while it is heard. */
	CU_ASSERT_FALSE(hello(5, PEER_OTHER));
	CU_ASSERT_EQUAL(rejected(PEER_OTHER, &retry), KVR_E_WORKER_ALIVE);
	CU_ASSERT_EQUAL(retry, 1);
	CU_ASSERT_FALSE(hello(6, PEER_OTHER));
	CU_ASSERT_EQUAL(rejected(PEER_OTHER, NULL), KVR_E_WORKER_ALIVE);
	CU_ASSERT_EQUAL(worker()->path.udp_port, PEER_AGENT);
	CU_ASSERT_EQUAL(worker()->epoch, 5);
	/* A stranger's heartbeats do not keep a dead one alive. */
	for (int i = 0; i < 110; i++) {
		beat(PEER_OTHER, 5, NULL, 0);
		silence(10);
	}
	CU_ASSERT_PTR_NULL(worker());
	pipeline_flush();
	pipeline_stop();
}

static void epochs_only_grow(void)
{
	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	CU_ASSERT_FALSE(hello(4, PEER_AGENT));
	CU_ASSERT_EQUAL(rejected(PEER_AGENT, NULL), KVR_E_STALE_EPOCH);
	CU_ASSERT_TRUE(hello(6, PEER_AGENT));
	say(PEER_AGENT, KVR_GOODBYE, 5); /* late: of the life before */
	CU_ASSERT_PTR_NOT_NULL(worker());
	say(PEER_AGENT, KVR_GOODBYE, 6);
	CU_ASSERT_PTR_NULL(worker());
	CU_ASSERT_FALSE(hello(6, PEER_AGENT)); /* it is over */
	CU_ASSERT_EQUAL(rejected(PEER_AGENT, NULL), KVR_E_STALE_EPOCH);
	CU_ASSERT_TRUE(hello(7, PEER_OTHER));
	pipeline_flush();
	pipeline_stop();
}

/* Its requests go where it goes, and end there. */
static void requests_follow_a_worker_that_moves(void)
{
	const struct out *o;
	uint64_t handle;
	uint8_t buf[128];
	const struct kvr_wire_response fin = {
		.flags = KVR_RESP_F_FIN, .generated_tokens = 1, .cached_tokens = KVR_NONE32};
	struct kvr_wire_ids ids;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	pipeline_route(1, 100, 10, 0, NULL);
	o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	handle = o->hdr.handle;
	silence(400);
	CU_ASSERT_EQUAL_FATAL(worker()->state, KVR_WORKER_SUSPECT);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_OTHER));
	ids = peers_ids(1, handle);
	pipeline_flush();
	pipeline_send(PEER_OTHER, buf,
		      (size_t)kvr_put_response(buf, sizeof(buf), &ids, fin,
					       (struct kvr_slice){"item", 4}));
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 0);
	peers_fin_ack(1, handle);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_OTHER, KVR_RESPONSE_ACK));
	/* Where it was, nobody is any more. */
	pipeline_route(2, 100, 10, 0, NULL);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	pipeline_flush();
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

/* ---- frames about requests and sessions, of the life that has them and of another ---- */

static struct kvr_flight *flight(uint64_t handle)
{
	return kvr_flight_by_handle(rt->pool[0].requests, handle);
}

static void about(uint8_t kind, uint64_t handle, uint32_t epoch)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = 1, .handle = handle, .epoch = epoch};
	const struct kvr_wire_response fin = {
		.flags = KVR_RESP_F_FIN, .generated_tokens = 1, .cached_tokens = KVR_NONE32};
	const struct kvr_wire_progress done = {
		.flags = KVR_PROG_F_FIN, .generated_tokens = 1, .cached_tokens = KVR_NONE32};
	const struct kvr_wire_dispatch_ack refused = {.code = 9};
	uint8_t buf[128];
	int len = kind == KVR_RESPONSE	 ? kvr_put_response(buf, sizeof(buf), &ids, fin,
							    (struct kvr_slice){"item", 4})
		  : kind == KVR_PROGRESS ? kvr_put_progress(buf, sizeof(buf), &ids, &done)
		  : kind == KVR_DISPATCH_ACK
			  ? kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &refused)
			  : kvr_put_empty(buf, sizeof(buf), kind, &ids);

	pipeline_send(PEER_AGENT, buf, (size_t)len);
	pipeline_turn();
}

static void what_another_life_says_of_a_request_changes_nothing(void)
{
	static const uint8_t ends[] = {KVR_RESPONSE, KVR_PROGRESS, KVR_DISPATCH_ACK};
	struct kvr_flight *r;
	uint64_t h;

	for (uint32_t i = 0; i < RTE_DIM(ends); i++) {
		const bool refusable = ends[i] != KVR_DISPATCH_ACK;

		pipeline_start(1);
		CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
		pipeline_route(1, 100, 10, 0, NULL);
		h = peers_dispatched();
		r = flight(h);
		CU_ASSERT_PTR_NOT_NULL_FATAL(r);
		pipeline_flush();
		about(ends[i], h, 4); /* late, of the life before */
		CU_ASSERT_EQUAL(rejected(PEER_AGENT, NULL), refusable ? KVR_E_STALE_EPOCH : -1);
		about(ends[i], h, 6); /* early, its HELLO is still on the way */
		CU_ASSERT_EQUAL(rejected(PEER_AGENT, NULL), refusable ? KVR_E_STALE_EPOCH : -1);
		CU_ASSERT_EQUAL(leg_state(request_of(r), KVR_LEG_MAIN), KVR_RQS_SENT);
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_PROGRESS_ACK));
		about(ends[i], h, 5);
		CU_ASSERT_EQUAL(leg_state(request_of(r), KVR_LEG_MAIN), KVR_RQS_ENDED);
		/* Its life is over, the present one has not got it. */
		CU_ASSERT_TRUE_FATAL(hello(6, PEER_AGENT));
		pipeline_flush();
		about(ends[i], h, 6);
		CU_ASSERT_EQUAL(rejected(PEER_AGENT, NULL), refusable ? KVR_E_UNKNOWN_REQUEST : -1);
		say(PEER_AGENT, KVR_GOODBYE, 6);
		about(ends[i], h, 6);
		CU_ASSERT_EQUAL(rejected(PEER_AGENT, NULL), refusable ? KVR_E_UNKNOWN_WORKER : -1);
		pipeline_stop();
	}
}

static void an_abort_is_acknowledged_by_the_life_that_gets_it(void)
{
	uint64_t h;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	pipeline_route(1, 100, 10, 0, NULL);
	h = peers_dispatched();
	peers_empty(PEER_CLIENT, KVR_CANCEL, 1, h);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	about(KVR_ABORT_ACK, h, 4);
	CU_ASSERT_NOT_EQUAL(flight(h)->abort_ns, 0);
	about(KVR_ABORT_ACK, h, 5);
	CU_ASSERT_EQUAL(flight(h)->abort_ns, 0);
	pipeline_stop();
}

static void session_says(uint8_t kind, uint64_t number, uint32_t epoch)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = number, .epoch = epoch};
	uint8_t buf[64];

	pipeline_send(PEER_AGENT, buf,
		      (size_t)kvr_put_session_status(buf, sizeof(buf), kind, &ids, 0));
	pipeline_turn();
}

/* The same answer from the ring, where it may have waited while the worker began anew. */
static void session_note(uint8_t type, uint64_t number, uint32_t epoch)
{
	const struct note n = {
		.type = type,
		.handle = number,
		.session = {.worker = WORKER, .epoch = epoch},
	};

	CU_ASSERT_EQUAL(notes_put(&rt->pool[0], &n), 0);
	pipeline_turn();
}

static void what_another_life_says_of_a_session_changes_nothing(void)
{
	uint8_t tlv[128];
	struct kvr_hint_buf open = {.p = tlv, .cap = sizeof(tlv)};
	const struct sessions *s;
	const struct out *o;
	struct kvr_wire_ids ids;
	uint8_t buf[128];
	uint64_t number;

	pipeline_start_with("[pool a]\nid = 5\nmax_sessions = 8\n" PIPELINE_POOL);
	s = rt->pool[0].sessions;
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	kvr_hint_put_session(&open, KVR_ACTION_OPEN, 60, "chat");
	pipeline_route(1, 100, 4, 0, &open);
	o = pipeline_expect(PEER_AGENT, KVR_SESSION_OPEN);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	number = o->hdr.id;
	session_says(KVR_SESSION_OPENED, number, 4); /* does not get as far as the pool */
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_UNEXPECTED_STATE), 0);
	session_note(NOTE_SESSION_OPENED, number, 4);
	session_note(NOTE_SESSION_OPENED, number, 6);
	CU_ASSERT_EQUAL(kvr_stats_get(s->count, SC_OPENING), 1);
	CU_ASSERT_EQUAL(peers_dispatched(), 0);
	session_says(KVR_SESSION_OPENED, number, 5);
	CU_ASSERT_NOT_EQUAL(peers_dispatched(), 0);
	CU_ASSERT_EQUAL(kvr_stats_get(s->count, SC_LIVE), 1);

	ids = peers_ids(9, 0);
	pipeline_send(PEER_CLIENT, buf,
		      (size_t)kvr_put_session(buf, sizeof(buf), KVR_SESSION_RELEASE, &ids,
					      (struct kvr_wire_session){.pool = 5},
					      (struct kvr_str){"chat", 4}));
	pipeline_turn();
	o = pipeline_expect(PEER_AGENT, KVR_SESSION_CLOSE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	number = o->hdr.id;
	session_says(KVR_SESSION_CLOSED, number, 6);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_LATE_FRAMES), 0);
	session_note(NOTE_SESSION_CLOSED, number, 4);
	CU_ASSERT_EQUAL(kvr_stats_get(s->count, SC_CLOSING), 1);
	session_says(KVR_SESSION_CLOSED, number, 5);
	CU_ASSERT_EQUAL(kvr_stats_get(s->count, SC_CLOSING), 0);
	pipeline_stop();
}

static void agents_speak_from_where_they_may(void)
{
	const char *before = pipeline_port;

	pipeline_port = "cookie = off\nallow_agents = 10.0.0.4/31 10.0.0.3\n";
	pipeline_start(1);
	CU_ASSERT_FALSE(hello(5, PEER_AGENT)); /* 10.0.0.2 */
	CU_ASSERT_EQUAL(rejected(PEER_AGENT, NULL), KVR_E_NOT_ALLOWED);
	CU_ASSERT_PTR_NULL(worker());
	pipeline_host = 3;
	CU_ASSERT_TRUE(hello(5, PEER_AGENT));
	pipeline_host = 4;
	CU_ASSERT_FALSE(hello(6, PEER_AGENT)); /* may speak, but another one does */
	CU_ASSERT_EQUAL(rejected(PEER_AGENT, NULL), KVR_E_WORKER_ALIVE);
	/* Whoever may not register is a client like any other. */
	pipeline_host = 2;
	pipeline_route(1, 100, 10, 0, NULL);
	CU_ASSERT_NOT_EQUAL(peers_dispatched(), 0);
	pipeline_stop();
	pipeline_port = before;
}

static void heartbeats_name_ranks_that_are_there_once(void)
{
	static const uint32_t other[] = {2}, twice[] = {1, 1}, both[] = {1, 0};

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	beat(PEER_AGENT, 5, other, 1);
	CU_ASSERT_EQUAL(rejected(PEER_AGENT, NULL), KVR_E_WORKER_CONFIG);
	beat(PEER_AGENT, 5, twice, 2);
	CU_ASSERT_EQUAL(rejected(PEER_AGENT, NULL), KVR_E_INVALID_REQUEST);
	beat(PEER_AGENT, 5, both, 2);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_HEARTBEAT_ACK));
	pipeline_stop();
}

static void nobody_yet_is_worth_a_retry(void)
{
	uint8_t retry = 0;

	pipeline_start(1);
	rt->ns_offset += UINT64_C(3000000000); /* the tables of a large pool took so long */
	pipeline_turn();
	pipeline_route(1, 100, 10, 0, NULL); /* agents had no time to say HELLO */
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT, &retry), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(retry, 1);
	silence(1100);
	pipeline_route(2, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT, &retry), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(retry, 0);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	silence(400);
	pipeline_route(3, 100, 10, 0, NULL); /* suspect */
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT, &retry), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(retry, 1);
	say(PEER_AGENT, KVR_GOODBYE, 5); /* it may come again, for dead_ms */
	silence(900);
	pipeline_route(4, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT, &retry), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(retry, 1);
	silence(200);
	pipeline_route(5, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT, &retry), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(retry, 0);
	pipeline_stop();
}

/* Lcores poll before control has looked for the first time. */
static void the_very_first_moment_is_worth_a_retry(void)
{
	uint8_t retry = 0;

	pipeline_start(2);
	pipeline_route(1, 100, 10, 0, NULL); /* read in the first turn, before control's */
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT, &retry), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(retry, 1);
	pipeline_stop();
}

/* Silent, then drained, then heard again: the operator's resume takes the silence back, too. */
static void a_worker_drained_while_suspect_resumes(void)
{
	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	silence(400);
	CU_ASSERT_EQUAL_FATAL(worker()->state, KVR_WORKER_SUSPECT);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), 0);
	beat(PEER_AGENT, 5, NULL, 0);
	CU_ASSERT_EQUAL(worker()->state, KVR_WORKER_DRAINED); /* it has nothing */
	pipeline_flush();
	pipeline_route(1, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT, NULL), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, false), 0);
	CU_ASSERT_EQUAL(worker()->state, KVR_WORKER_SERVING);
	pipeline_route(2, 100, 10, 0, NULL);
	CU_ASSERT_NOT_EQUAL(peers_dispatched(), 0);
	/* Resumed while it is silent: suspect again as soon as time passes. */
	silence(400);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), 0);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, false), 0);
	silence(10);
	CU_ASSERT_EQUAL(worker()->state, KVR_WORKER_SUSPECT);
	pipeline_flush();
	pipeline_route(3, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT, NULL), KVR_E_NO_ENDPOINTS);
	beat(PEER_AGENT, 5, NULL, 0);
	pipeline_route(4, 100, 10, 0, NULL);
	CU_ASSERT_NOT_EQUAL(peers_dispatched(), 0);
	pipeline_stop();
}

/* A stop of the process, then one of the ingress lcores alone: nobody is judged. */
static void the_routers_own_stall_is_nobodys_silence(void)
{
	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	rt->ns_offset += UINT64_C(2500000000);
	control_round(rt); /* before anything that has piled up is read */
	CU_ASSERT_EQUAL(worker()->state, KVR_WORKER_SERVING);
	for (int i = 0; i < 200; i++) { /* control runs, ingress does not */
		rt->ns_offset += UINT64_C(10000000);
		control_round(rt);
	}
	CU_ASSERT_PTR_NOT_NULL_FATAL(worker());
	CU_ASSERT_EQUAL(worker()->state, KVR_WORKER_SERVING);
	silence(400);
	CU_ASSERT_EQUAL(worker()->state, KVR_WORKER_SUSPECT);
	beat(PEER_AGENT, 5, NULL, 0);
	CU_ASSERT_EQUAL(worker()->state, KVR_WORKER_SERVING);
	pipeline_stop();
}

/* Eight HELLOs of new lives in each heartbeat's time, and a ring of them in one burst. */
static void hellos_take_nothing_from_heartbeats(void)
{
	uint32_t used;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	used = pipeline_mbufs_used();
	for (uint32_t i = 0; i < 2000; i++) {
		const struct kvr_wire_ids ids = {.source = 1000 + i % 7, .id = 1, .epoch = i + 1};
		uint8_t buf[256], tlv[64];
		struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
		const struct kvr_wire_hello h = {.block_size = 4, .dp_size = 1, .max_frame = 1432};

		kvr_hint_put_str(&hints, KVR_HINT_POOL, "a");
		pipeline_send(PEER_OTHER, buf,
			      (size_t)kvr_put_hello(buf, sizeof(buf), &ids, h, &hints));
		if (i % 500 == 499) /* control does nothing meanwhile */
			for (uint32_t k = 0; k < 40; k++)
				lcore_turn(rt->lcore[0]);
	}
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), used);
	pipeline_flush();
	CU_ASSERT_TRUE(rte_mempool_avail_count(rt->ctl_bufs) == 0);
	{
		const struct kvr_wire_ids ids = {.source = WORKER, .id = 4, .epoch = 5};
		uint8_t buf[64];

		pipeline_send(PEER_AGENT, buf,
			      (size_t)kvr_put_heartbeat(buf, sizeof(buf), &ids, NULL, 0, 0, 0));
	}
	lcore_turn(rt->lcore[0]);
	lcore_turn(rt->lcore[0]);
	CU_ASSERT_NOT_EQUAL(worker()->beat->received_ns, worker()->read_ns);
	pipeline_turn();
	CU_ASSERT_EQUAL(worker()->state, KVR_WORKER_SERVING);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {{"strangers", strangers_do_not_speak_for_a_worker},
			       {"epochs", epochs_only_grow},
			       {"moves", requests_follow_a_worker_that_moves},
			       {"lives", what_another_life_says_of_a_request_changes_nothing},
			       {"aborts", an_abort_is_acknowledged_by_the_life_that_gets_it},
			       {"sessions", what_another_life_says_of_a_session_changes_nothing},
			       {"allowed", agents_speak_from_where_they_may},
			       {"ranks", heartbeats_name_ranks_that_are_there_once},
			       {"expected", nobody_yet_is_worth_a_retry},
			       {"first moment", the_very_first_moment_is_worth_a_retry},
			       {"resume", a_worker_drained_while_suspect_resumes},
			       {"stall", the_routers_own_stall_is_nobodys_silence},
			       {"hellos", hellos_take_nothing_from_heartbeats},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("worker_identity", tests);
}
