/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A frame of any kind from an agent counts only with the worker's id, its present epoch and
 * its path, all three. The same frames change nothing when they come from another address, with the
 * old epoch, before HELLO, or from an unknown worker.
 */
#include "kv.h"
#include "lcores.h"
#include "peers.h"

#include "control/thread.h"
#include "sched/request.h"
#include "sched/session.h"

#define WORKER	9u
#define UNKNOWN 99u
#define EPOCH	5u
#define BLOCKS	4u
#define REQUEST 1u

/* The router's state about the worker, before and after. */
static struct state {
	uint64_t beat_ns, used, blocks, opening, closing;
	uint32_t worker_state, request, epoch, abort_waits; /* no padding: compared as bytes */
} was;

static uint64_t handle, open_id, close_id;
static struct kvr_flight *cancelled; /* its ABORT is not acknowledged yet */

static bool join_second_epoch(uint32_t epoch)
{
	return pipeline_hello_as(&(const struct pipeline_worker){
		.id = WORKER, .epoch = epoch, .pool = "a", .ranks = 2, .from = PEER_AGENT});
}

static struct state read_worker_state(void)
{
	const struct kvr_worker *w = kvr_registry_find(rt->registry, WORKER);
	const struct sessions *s = rt->pool[0].sessions;
	const struct kvr_flight *r = kvr_flight_lookup(rt->pool[0].requests, 77, REQUEST);
	struct state n = {.blocks = kv_table().entries,
			  .opening = kvr_stats_get(s->count, SC_OPENING),
			  .closing = kvr_stats_get(s->count, SC_CLOSING),
			  .abort_waits = cancelled->abort_ns != 0};

	CU_ASSERT_FATAL(w != NULL && r != NULL && request_of(r) != NULL);
	n.beat_ns = w->beat->received_ns;
	n.used = w->beat->load[1].kv_used_blocks;
	n.worker_state = w->state;
	n.epoch = w->epoch;
	n.request = leg_state(request_of(r), KVR_LEG_MAIN);
	return n;
}

/* The SESSION_OPEN or SESSION_CLOSE to the worker; its id. */
static uint64_t take_session_id(uint8_t kind)
{
	const struct out *o = pipeline_expect(PEER_AGENT, kind);

	CU_ASSERT_FATAL(o != NULL);
	return o->hdr.id;
}

static void put_session_status(uint8_t kind, uint64_t id)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = id, .epoch = EPOCH};
	uint8_t buf[64];

	pipeline_send(PEER_AGENT, buf,
		      (size_t)kvr_put_session_status(buf, sizeof(buf), kind, &ids, 0));
	pipeline_turn();
}

static void route_with_open(uint64_t id, const char *name)
{
	uint8_t tlv[128];
	struct kvr_hint_buf h = {.p = tlv, .cap = sizeof(tlv)};

	kvr_hint_put_session(&h, KVR_ACTION_OPEN, 60, name);
	pipeline_route(id, 100 * id, 4, 0, &h);
}

/*
 * A worker in its second incarnation with one request, one whose ABORT is unacknowledged, and
 * pending messages to open one session and close another.
 */
static void begin_kinds(void)
{
	const struct kvr_wire_ids ids = peers_ids(9, 0);
	uint8_t buf[128];
	uint64_t h;

	pipeline_start_with("[pool a]\nid = 5\nmax_sessions = 8\n" PIPELINE_POOL);
	CU_ASSERT_FATAL(join_second_epoch(EPOCH - 1));
	CU_ASSERT_FATAL(join_second_epoch(EPOCH));
	peers_route(PEER_CLIENT, REQUEST, 0, "x");
	handle = peers_take_dispatch();
	peers_route(PEER_CLIENT, 2, 0, "x");
	h = peers_take_dispatch();
	CU_ASSERT_FATAL(handle != 0 && h != 0);
	peers_empty(PEER_CLIENT, KVR_CANCEL, 2, h);
	cancelled = kvr_flight_by_handle(rt->pool[0].requests, h);
	route_with_open(3, "closed");
	put_session_status(KVR_SESSION_OPENED, take_session_id(KVR_SESSION_OPEN));
	pipeline_flush();
	pipeline_send(PEER_CLIENT, buf,
		      (size_t)kvr_put_session(buf, sizeof(buf), KVR_SESSION_RELEASE, &ids,
					      (struct kvr_wire_session){.pool = 5},
					      (struct kvr_str){"closed", 6}));
	pipeline_turn();
	close_id = take_session_id(KVR_SESSION_CLOSE);
	pipeline_flush();
	route_with_open(4, "open");
	open_id = take_session_id(KVR_SESSION_OPEN);
	pipeline_flush();
	was = read_worker_state();
	CU_ASSERT(was.opening == 1 && was.closing == 1 && was.abort_waits == 1);
	CU_ASSERT_EQUAL(was.request, KVR_RQS_SENT);
}

static int make_events_of(uint8_t *buf, const struct kvr_wire_ids *ids)
{
	uint64_t sh[BLOCKS];
	struct kv_frame f;

	kv_chain(sh, BLOCKS, 3);
	kv_begin(&f, 0);
	kv_add(&f, KVR_KV_STORED, NULL, sh, BLOCKS);
	kv_end(&f, ids->source, ids->epoch);
	memcpy(buf, f.buf, f.len);
	return (int)f.len;
}

/* A frame that changes something if it counts. @return its length. */
static int make_frame_of_kind(uint8_t *buf, size_t cap, uint8_t kind, uint64_t worker,
			      uint32_t epoch)
{
	static const struct kvr_wire_rank_load load = {.dp_rank = 1, .kv_used_blocks = 77};
	static const struct kvr_wire_response fin = {.flags = KVR_RESP_F_FIN,
						     .cached_tokens = KVR_NONE32};
	static const struct kvr_wire_progress done = {.flags = KVR_PROG_F_FIN,
						      .cached_tokens = KVR_NONE32};
	static const struct kvr_wire_dispatch_ack refused = {.code = 9};
	/* Kinds about the worker, and about requests. */
	struct kvr_wire_ids of = {.source = worker, .id = 4, .epoch = epoch};
	struct kvr_wire_ids about = {.source = 77, .id = REQUEST, .handle = handle, .epoch = epoch};

	switch (kind) {
	case KVR_HEARTBEAT:
		return kvr_put_heartbeat(buf, cap, &of, &load, 1, 0, 0);
	case KVR_KV_EVENTS:
		return make_events_of(buf, &of);
	case KVR_SESSION_OPENED:
	case KVR_SESSION_CLOSED:
		of.id = kind == KVR_SESSION_OPENED ? open_id : close_id;
		return kvr_put_session_status(buf, cap, kind, &of, 0);
	case KVR_RESPONSE:
		return kvr_put_response(buf, cap, &about, fin, (struct kvr_slice){"x", 1});
	case KVR_PROGRESS:
		return kvr_put_progress(buf, cap, &about, &done);
	case KVR_DISPATCH_ACK:
		return kvr_put_dispatch_ack(buf, cap, &about, &refused);
	case KVR_ABORT_ACK:
		about.id = 2;
		about.handle = kvr_flight_handle(rt->pool[0].requests, cancelled);
		return kvr_put_empty(buf, cap, kind, &about);
	default:
		return kvr_put_empty(buf, cap, kind, &of);
	}
}

static void send_frame_of_kind(uint32_t from, uint8_t kind, uint64_t worker, uint32_t epoch)
{
	uint8_t buf[512];
	const int len = make_frame_of_kind(buf, sizeof(buf), kind, worker, epoch);

	CU_ASSERT_FATAL(len > 0);
	rt->ns_offset += 1000000; /* a heartbeat that counts is visible */
	pipeline_send(from, buf, (size_t)len);
	pipeline_turn();
}

/* First kinds with the worker's id, then kinds about a request, which carry none. */
static const uint8_t kinds[] = {KVR_HEARTBEAT,	    KVR_KV_EVENTS, KVR_SESSION_OPENED,
				KVR_SESSION_CLOSED, KVR_GOODBYE,   KVR_RESPONSE,
				KVR_PROGRESS,	    KVR_ABORT_ACK, KVR_DISPATCH_ACK};
#define NAMING 5u

/* @return whether the state differs from the one before. */
static bool has_changed(uint8_t kind)
{
	const struct kvr_worker *w = kvr_registry_find(rt->registry, WORKER);
	const struct kvr_flight *r = kvr_flight_lookup(rt->pool[0].requests, 77, REQUEST);
	struct state is;

	if (w == NULL || r == NULL || request_of(r) == NULL)
		return true;
	is = read_worker_state();
	if (memcmp(&is, &was, sizeof(is)) != 0)
		fprintf(stderr, "kind %u counts\n", kind);
	return memcmp(&is, &was, sizeof(is)) != 0;
}

static uint64_t expect_not_allowed(void)
{
	return lcores_sum_rejected(KVR_E_NOT_ALLOWED) +
	       kvr_stats_get(rt->control.reject, KVR_E_NOT_ALLOWED);
}

static void a_wrong_id_epoch_or_path_changes_nothing(void)
{
	uint64_t refusals;

	begin_kinds();
	for (uint32_t i = 0; i < RTE_DIM(kinds); i++) {
		refusals = expect_not_allowed();
		send_frame_of_kind(PEER_OTHER, kinds[i], WORKER, EPOCH);
		CU_ASSERT_FALSE(has_changed(kinds[i]));
		/* Rejected, whether or not frames of this kind are answered. */
		CU_ASSERT_EQUAL(expect_not_allowed(), refusals + 1);
		pipeline_flush();
		for (uint32_t epoch = EPOCH - 1; epoch <= EPOCH + 1; epoch += 2) {
			send_frame_of_kind(PEER_AGENT, kinds[i], WORKER, epoch);
			CU_ASSERT_FALSE(has_changed(kinds[i]));
			CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_HEARTBEAT_ACK));
			CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
			pipeline_flush();
		}
		if (i < NAMING) {
			send_frame_of_kind(PEER_AGENT, kinds[i], UNKNOWN, EPOCH);
			CU_ASSERT_FALSE(has_changed(kinds[i]));
			pipeline_flush();
		}
	}
	pipeline_stop();
}

/* Proof that the cases above can fail: with all three right, each kind changes something. */
static void the_right_id_epoch_and_path_change_something(void)
{
	for (uint32_t i = 0; i < RTE_DIM(kinds); i++) {
		begin_kinds();
		send_frame_of_kind(PEER_AGENT, kinds[i], WORKER, EPOCH);
		CU_ASSERT_TRUE(has_changed(kinds[i]));
		pipeline_stop();
	}
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_wrong_id_epoch_or_path_changes_nothing),
			       KVR_CASE(the_right_id_epoch_and_path_change_something),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("worker_identity_kinds", tests);
}
