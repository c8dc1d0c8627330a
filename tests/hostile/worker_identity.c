/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows 8, 9, 24 and 28, and the parts of 4 and 6 that are visible frame by frame: frames that count
 * as a worker's, and when its silence counts.
 */
#include "peers.h"

#include "control/thread.h"
#include "lcore/mailbox.h"
#include "loop/loop.h"
#include "sched/request.h"
#include "sched/session.h"

#define WORKER 9u

static int take_rejection_code(uint32_t to, uint8_t *retryable)
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

static bool join_from(uint32_t epoch, uint32_t from)
{
	return pipeline_hello_as(&(const struct pipeline_worker){
		.id = WORKER, .epoch = epoch, .pool = "a", .ranks = 2, .from = from});
}

static void send_worker_frame(uint32_t from, uint8_t kind, uint32_t epoch)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 3, .epoch = epoch};
	uint8_t buf[64];

	pipeline_send(from, buf, (size_t)kvr_put_empty(buf, sizeof(buf), kind, &ids));
	pipeline_turn();
}

static void send_beat_of(uint32_t from, uint32_t epoch, const uint32_t rank[], uint32_t n)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 4, .epoch = epoch};
	struct kvr_wire_rank_load l[4] = {0};
	uint8_t buf[256];

	for (uint32_t i = 0; i < n; i++)
		l[i] = (struct kvr_wire_rank_load){.dp_rank = rank[i], .kv_used_blocks = 7};
	pipeline_send(from, buf, (size_t)kvr_put_heartbeat(buf, sizeof(buf), &ids, l, n, 0, 0));
	pipeline_turn();
}

static struct kvr_worker *get_worker(void)
{
	return kvr_registry_find(rt->registry, WORKER);
}

/* Time passes in which the router receives no frames. */
static void pass_silence(uint32_t ms)
{
	for (uint32_t i = 0; i < ms; i += 10) {
		rt->ns_offset += UINT64_C(10000000);
		for (uint32_t k = 0; k < rt->n_lcores; k++)
			lcore_turn(rt->lcore[k]);
		control_round(rt);
	}
}

static void other_addresses_do_not_count_as_a_worker(void)
{
	uint8_t retry = 0;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(join_from(5, PEER_AGENT));
	send_worker_frame(PEER_OTHER, KVR_GOODBYE, 5);
	CU_ASSERT_EQUAL(take_rejection_code(PEER_OTHER, NULL), KVR_E_NOT_ALLOWED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(get_worker());
	send_beat_of(PEER_OTHER, 5, NULL, 0);
	CU_ASSERT_EQUAL(take_rejection_code(PEER_OTHER, NULL), KVR_E_NOT_ALLOWED);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_OTHER, KVR_HEARTBEAT_ACK));
	/* The same epoch and a new one, while the worker is alive. */
	CU_ASSERT_FALSE(join_from(5, PEER_OTHER));
	CU_ASSERT_EQUAL(take_rejection_code(PEER_OTHER, &retry), KVR_E_WORKER_ALIVE);
	CU_ASSERT_EQUAL(retry, 1);
	CU_ASSERT_FALSE(join_from(6, PEER_OTHER));
	CU_ASSERT_EQUAL(take_rejection_code(PEER_OTHER, NULL), KVR_E_WORKER_ALIVE);
	CU_ASSERT_EQUAL(get_worker()->path.udp_port, PEER_AGENT);
	CU_ASSERT_EQUAL(get_worker()->epoch, 5);
	/* Heartbeats from another address do not keep a lost worker alive. */
	for (int i = 0; i < 110; i++) {
		send_beat_of(PEER_OTHER, 5, NULL, 0);
		pass_silence(10);
	}
	CU_ASSERT_PTR_NULL(get_worker());
	pipeline_flush();
	pipeline_stop();
}

static void epochs_only_grow(void)
{
	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(join_from(5, PEER_AGENT));
	CU_ASSERT_FALSE(join_from(4, PEER_AGENT));
	CU_ASSERT_EQUAL(take_rejection_code(PEER_AGENT, NULL), KVR_E_STALE_EPOCH);
	CU_ASSERT_TRUE(join_from(6, PEER_AGENT));
	send_worker_frame(PEER_AGENT, KVR_GOODBYE, 5); /* late: of the old epoch */
	CU_ASSERT_PTR_NOT_NULL(get_worker());
	send_worker_frame(PEER_AGENT, KVR_GOODBYE, 6);
	CU_ASSERT_PTR_NULL(get_worker());
	CU_ASSERT_FALSE(join_from(6, PEER_AGENT)); /* that epoch is over */
	CU_ASSERT_EQUAL(take_rejection_code(PEER_AGENT, NULL), KVR_E_STALE_EPOCH);
	CU_ASSERT_TRUE(join_from(7, PEER_OTHER));
	pipeline_flush();
	pipeline_stop();
}

/* Its requests follow the worker to its new address, and end there. */
static void requests_follow_a_worker_that_moves(void)
{
	const struct out *o;
	uint64_t handle;
	uint8_t buf[128];
	const struct kvr_wire_response fin = {
		.flags = KVR_RESP_F_FIN, .generated_tokens = 1, .cached_tokens = KVR_NONE32};
	struct kvr_wire_ids ids;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(join_from(5, PEER_AGENT));
	pipeline_route(1, 100, 10, 0, NULL);
	o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	handle = o->hdr.handle;
	pass_silence(400);
	CU_ASSERT_EQUAL_FATAL(get_worker()->state, KVR_WORKER_SUSPECT);
	CU_ASSERT_TRUE_FATAL(join_from(5, PEER_OTHER));
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
	/* Its old address no longer counts. */
	pipeline_route(2, 100, 10, 0, NULL);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	pipeline_flush();
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

/* ---- frames about requests and sessions, of the serving epoch and of another ---- */

static struct kvr_flight *find_flight(uint64_t handle)
{
	return kvr_flight_by_handle(rt->pool[0].requests, handle);
}

static void send_about(uint8_t kind, uint64_t handle, uint32_t epoch)
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

static void frames_of_another_epoch_do_not_change_a_request(void)
{
	static const uint8_t ends[] = {KVR_RESPONSE, KVR_PROGRESS, KVR_DISPATCH_ACK};
	struct kvr_flight *r;
	uint64_t h;

	for (uint32_t i = 0; i < RTE_DIM(ends); i++) {
		const bool refusable = ends[i] != KVR_DISPATCH_ACK;

		pipeline_start(1);
		CU_ASSERT_TRUE_FATAL(join_from(5, PEER_AGENT));
		pipeline_route(1, 100, 10, 0, NULL);
		h = peers_take_dispatch();
		r = find_flight(h);
		CU_ASSERT_PTR_NOT_NULL_FATAL(r);
		pipeline_flush();
		send_about(ends[i], h, 4); /* late, of the old epoch */
		CU_ASSERT_EQUAL(take_rejection_code(PEER_AGENT, NULL),
				refusable ? KVR_E_STALE_EPOCH : -1);
		send_about(ends[i], h, 6); /* early: its HELLO is still on the way */
		CU_ASSERT_EQUAL(take_rejection_code(PEER_AGENT, NULL),
				refusable ? KVR_E_STALE_EPOCH : -1);
		CU_ASSERT_EQUAL(leg_state(request_of(r), KVR_LEG_MAIN), KVR_RQS_SENT);
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_PROGRESS_ACK));
		send_about(ends[i], h, 5);
		CU_ASSERT_EQUAL(leg_state(request_of(r), KVR_LEG_MAIN), KVR_RQS_ENDED);
		/* Its incarnation is over, and the present one does not have the request. */
		CU_ASSERT_TRUE_FATAL(join_from(6, PEER_AGENT));
		pipeline_flush();
		send_about(ends[i], h, 6);
		CU_ASSERT_EQUAL(take_rejection_code(PEER_AGENT, NULL),
				refusable ? KVR_E_UNKNOWN_REQUEST : -1);
		send_worker_frame(PEER_AGENT, KVR_GOODBYE, 6);
		send_about(ends[i], h, 6);
		CU_ASSERT_EQUAL(take_rejection_code(PEER_AGENT, NULL),
				refusable ? KVR_E_UNKNOWN_WORKER : -1);
		pipeline_stop();
	}
}

static void only_the_aborted_epoch_acknowledges_an_abort(void)
{
	uint64_t h;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(join_from(5, PEER_AGENT));
	pipeline_route(1, 100, 10, 0, NULL);
	h = peers_take_dispatch();
	peers_empty(PEER_CLIENT, KVR_CANCEL, 1, h);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_ABORT));
	send_about(KVR_ABORT_ACK, h, 4);
	CU_ASSERT_NOT_EQUAL(find_flight(h)->abort_ns, 0);
	send_about(KVR_ABORT_ACK, h, 5);
	CU_ASSERT_EQUAL(find_flight(h)->abort_ns, 0);
	pipeline_stop();
}

static void send_session_answer(uint8_t kind, uint64_t number, uint32_t epoch)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = number, .epoch = epoch};
	uint8_t buf[64];

	pipeline_send(PEER_AGENT, buf,
		      (size_t)kvr_put_session_status(buf, sizeof(buf), kind, &ids, 0));
	pipeline_turn();
}

/* The same answer from the ring, where it may have waited while the worker restarted. */
static void put_session_message(uint8_t type, uint64_t number, uint32_t epoch)
{
	const struct sched_msg n = {
		.type = type,
		.handle = number,
		.session = {.worker = WORKER, .epoch = epoch},
	};

	CU_ASSERT_EQUAL(mailbox_put(&rt->pool[0], &n), 0);
	pipeline_turn();
}

static void frames_of_another_epoch_do_not_change_a_session(void)
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
	CU_ASSERT_TRUE_FATAL(join_from(5, PEER_AGENT));
	kvr_hint_put_session(&open, KVR_ACTION_OPEN, 60, "chat");
	pipeline_route(1, 100, 4, 0, &open);
	o = pipeline_expect(PEER_AGENT, KVR_SESSION_OPEN);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	number = o->hdr.id;
	send_session_answer(KVR_SESSION_OPENED, number, 4); /* does not reach the pool */
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_UNEXPECTED_STATE), 0);
	put_session_message(MSG_SESSION_OPENED, number, 4);
	put_session_message(MSG_SESSION_OPENED, number, 6);
	CU_ASSERT_EQUAL(kvr_stats_get(s->count, SC_OPENING), 1);
	CU_ASSERT_EQUAL(peers_take_dispatch(), 0);
	send_session_answer(KVR_SESSION_OPENED, number, 5);
	CU_ASSERT_NOT_EQUAL(peers_take_dispatch(), 0);
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
	send_session_answer(KVR_SESSION_CLOSED, number, 6);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_LATE_FRAMES), 0);
	put_session_message(MSG_SESSION_CLOSED, number, 4);
	CU_ASSERT_EQUAL(kvr_stats_get(s->count, SC_CLOSING), 1);
	send_session_answer(KVR_SESSION_CLOSED, number, 5);
	CU_ASSERT_EQUAL(kvr_stats_get(s->count, SC_CLOSING), 0);
	pipeline_stop();
}

static void agents_register_only_from_allowed_addresses(void)
{
	const char *before = pipeline_port;

	pipeline_port = "cookie = off\nallow_agents = 10.0.0.4/31 10.0.0.3\n";
	pipeline_start(1);
	CU_ASSERT_FALSE(join_from(5, PEER_AGENT)); /* 10.0.0.2 */
	CU_ASSERT_EQUAL(take_rejection_code(PEER_AGENT, NULL), KVR_E_NOT_ALLOWED);
	CU_ASSERT_PTR_NULL(get_worker());
	pipeline_host = 3;
	CU_ASSERT_TRUE(join_from(5, PEER_AGENT));
	pipeline_host = 4;
	CU_ASSERT_FALSE(join_from(6, PEER_AGENT)); /* allowed, but another agent is not */
	CU_ASSERT_EQUAL(take_rejection_code(PEER_AGENT, NULL), KVR_E_WORKER_ALIVE);
	/* A peer that may not register is an ordinary client. */
	pipeline_host = 2;
	pipeline_route(1, 100, 10, 0, NULL);
	CU_ASSERT_NOT_EQUAL(peers_take_dispatch(), 0);
	pipeline_stop();
	pipeline_port = before;
}

static void heartbeats_name_each_existing_rank_once(void)
{
	static const uint32_t other[] = {2}, twice[] = {1, 1}, both[] = {1, 0};

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(join_from(5, PEER_AGENT));
	send_beat_of(PEER_AGENT, 5, other, 1);
	CU_ASSERT_EQUAL(take_rejection_code(PEER_AGENT, NULL), KVR_E_WORKER_CONFIG);
	send_beat_of(PEER_AGENT, 5, twice, 2);
	CU_ASSERT_EQUAL(take_rejection_code(PEER_AGENT, NULL), KVR_E_INVALID_REQUEST);
	send_beat_of(PEER_AGENT, 5, both, 2);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_HEARTBEAT_ACK));
	pipeline_stop();
}

static void requests_before_the_first_worker_are_retryable(void)
{
	uint8_t retry = 0;

	pipeline_start(1);
	rt->ns_offset +=
		UINT64_C(3000000000); /* allocating the tables of a large pool took that long */
	pipeline_turn();
	pipeline_route(1, 100, 10, 0, NULL); /* agents had no time to send HELLO */
	CU_ASSERT_EQUAL(take_rejection_code(PEER_CLIENT, &retry), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(retry, 1);
	pass_silence(1100);
	pipeline_route(2, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(take_rejection_code(PEER_CLIENT, &retry), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(retry, 0);
	CU_ASSERT_TRUE_FATAL(join_from(5, PEER_AGENT));
	pass_silence(400);
	pipeline_route(3, 100, 10, 0, NULL); /* suspect */
	CU_ASSERT_EQUAL(take_rejection_code(PEER_CLIENT, &retry), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(retry, 1);
	send_worker_frame(PEER_AGENT, KVR_GOODBYE, 5); /* it may return within dead_ms */
	pass_silence(900);
	pipeline_route(4, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(take_rejection_code(PEER_CLIENT, &retry), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(retry, 1);
	pass_silence(200);
	pipeline_route(5, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(take_rejection_code(PEER_CLIENT, &retry), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(retry, 0);
	pipeline_stop();
}

/* Lcores poll before control has run for the first time. */
static void requests_before_the_first_control_round_are_retryable(void)
{
	uint8_t retry = 0;

	pipeline_start(2);
	pipeline_route(1, 100, 10, 0,
		       NULL); /* read in the first turn, before control's first round */
	CU_ASSERT_EQUAL(take_rejection_code(PEER_CLIENT, &retry), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(retry, 1);
	pipeline_stop();
}

/* Silent, then drained, then alive again: the operator's resume ends the suspicion, too. */
static void a_worker_drained_while_suspect_resumes(void)
{
	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(join_from(5, PEER_AGENT));
	pass_silence(400);
	CU_ASSERT_EQUAL_FATAL(get_worker()->state, KVR_WORKER_SUSPECT);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), 0);
	send_beat_of(PEER_AGENT, 5, NULL, 0);
	CU_ASSERT_EQUAL(get_worker()->state, KVR_WORKER_DRAINED); /* it has no requests */
	pipeline_flush();
	pipeline_route(1, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(take_rejection_code(PEER_CLIENT, NULL), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, false), 0);
	CU_ASSERT_EQUAL(get_worker()->state, KVR_WORKER_SERVING);
	pipeline_route(2, 100, 10, 0, NULL);
	CU_ASSERT_NOT_EQUAL(peers_take_dispatch(), 0);
	/* Resumed while silent: suspect again as soon as time passes. */
	pass_silence(400);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, true), 0);
	CU_ASSERT_EQUAL(control_drain(rt, WORKER, false), 0);
	pass_silence(10);
	CU_ASSERT_EQUAL(get_worker()->state, KVR_WORKER_SUSPECT);
	pipeline_flush();
	pipeline_route(3, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(take_rejection_code(PEER_CLIENT, NULL), KVR_E_NO_ENDPOINTS);
	send_beat_of(PEER_AGENT, 5, NULL, 0);
	pipeline_route(4, 100, 10, 0, NULL);
	CU_ASSERT_NOT_EQUAL(peers_take_dispatch(), 0);
	pipeline_stop();
}

/* A pause of the process, then one of the ingress lcores only: no worker is judged. */
static void a_stall_of_the_router_is_not_silence_of_workers(void)
{
	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(join_from(5, PEER_AGENT));
	rt->ns_offset += UINT64_C(2500000000);
	control_round(rt); /* before the backlog is read */
	CU_ASSERT_EQUAL(get_worker()->state, KVR_WORKER_SERVING);
	for (int i = 0; i < 200; i++) { /* control runs, ingress does not */
		rt->ns_offset += UINT64_C(10000000);
		control_round(rt);
	}
	CU_ASSERT_PTR_NOT_NULL_FATAL(get_worker());
	CU_ASSERT_EQUAL(get_worker()->state, KVR_WORKER_SERVING);
	pass_silence(400);
	CU_ASSERT_EQUAL(get_worker()->state, KVR_WORKER_SUSPECT);
	send_beat_of(PEER_AGENT, 5, NULL, 0);
	CU_ASSERT_EQUAL(get_worker()->state, KVR_WORKER_SERVING);
	pipeline_stop();
}

/* Eight HELLOs with new epochs per heartbeat interval, and a full ring of them in one burst. */
static void hellos_do_not_delay_heartbeats(void)
{
	uint32_t used;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(join_from(5, PEER_AGENT));
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
	CU_ASSERT_NOT_EQUAL(get_worker()->beat->received_ns, get_worker()->read_ns);
	pipeline_turn();
	CU_ASSERT_EQUAL(get_worker()->state, KVR_WORKER_SERVING);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(other_addresses_do_not_count_as_a_worker),
			       KVR_CASE(epochs_only_grow),
			       KVR_CASE(requests_follow_a_worker_that_moves),
			       KVR_CASE(frames_of_another_epoch_do_not_change_a_request),
			       KVR_CASE(only_the_aborted_epoch_acknowledges_an_abort),
			       KVR_CASE(frames_of_another_epoch_do_not_change_a_session),
			       KVR_CASE(agents_register_only_from_allowed_addresses),
			       KVR_CASE(heartbeats_name_each_existing_rank_once),
			       KVR_CASE(requests_before_the_first_worker_are_retryable),
			       KVR_CASE(requests_before_the_first_control_round_are_retryable),
			       KVR_CASE(a_worker_drained_while_suspect_resumes),
			       KVR_CASE(a_stall_of_the_router_is_not_silence_of_workers),
			       KVR_CASE(hellos_do_not_delay_heartbeats),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("worker_identity", tests);
}
