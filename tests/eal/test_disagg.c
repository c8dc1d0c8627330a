/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests to a pair of pools, frame by frame: both legs, their failures, and what remains
 * afterwards.
 */
#include "pipeline.h"

#include <pthread.h>
#include <sched.h>

#include "config/config.h"
#include "control/control.h"
#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include <string.h>

#define PREFILL 21u /* worker ids */
#define DECODE	31u
#define PEER_P	2000u /* UDP ports of the agents */
#define PEER_D	3000u
#define CLIENT	77u

#define PAIR                                                                                       \
	"[pool d]\nid = 5\nmodel = m\nrole = decode\n" PIPELINE_POOL                               \
	"[pool p]\nid = 6\nmodel = m\nrole = prefill\n" PIPELINE_POOL

static struct pool *decode_pool(void)
{
	return &rt->pool[0];
}

static struct pool *prefill_pool(void)
{
	return &rt->pool[1];
}

static bool join_prefill(uint64_t id, uint32_t epoch, bool bootstrap)
{
	return pipeline_hello_as(&(const struct pipeline_worker){
		.id = id,
		.epoch = epoch,
		.pool = "p",
		.ranks = 2,
		.from = PEER_P,
		.role = KVR_ROLE_PREFILL,
		.host = bootstrap ? "10.9.8.7" : NULL,
		.port = bootstrap ? 8998 : 0,
	});
}

static bool join_decode(uint64_t id, uint32_t epoch)
{
	return pipeline_hello_as(&(const struct pipeline_worker){
		.id = id,
		.epoch = epoch,
		.pool = "d",
		.ranks = 1,
		.from = PEER_D,
		.role = KVR_ROLE_DECODE,
	});
}

static void begin_disagg(bool bootstrap)
{
	pipeline_start_with(PAIR);
	CU_ASSERT_TRUE_FATAL(join_prefill(PREFILL, 1, bootstrap));
	CU_ASSERT_TRUE_FATAL(join_decode(DECODE, 1));
}

/* Check that nothing is left: counters balance, no booking, no request, no frame. */
static void end_disagg(void)
{
	pipeline_turn();
	CU_ASSERT_EQUAL(kvr_sched_counters(decode_pool()->sched)->booked_now, 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(prefill_pool()->sched)->booked_now, 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(decode_pool()->pairs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(decode_pool()->jobs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->small_bufs), 0);
	CU_ASSERT_EQUAL(decode_pool()->pair.n_prefilling, 0);
	CU_ASSERT(pipeline_balanced());
	pipeline_flush();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	pipeline_stop();
}

/* A DISPATCH that an agent received, parsed in place; valid until the next frame is read. */
struct dispatch {
	uint64_t handle;
	struct kvr_message q;
	struct kvr_hint_lists lists;
	struct kvr_hints hints;
};

static bool take_dispatch(uint32_t peer, struct dispatch *d)
{
	const struct out *o = pipeline_expect(peer, KVR_DISPATCH);

	if (o == NULL)
		return false;
	d->handle = o->hdr.handle;
	CU_ASSERT_EQUAL(o->hdr.source, CLIENT);
	CU_ASSERT_EQUAL_FATAL(kvr_request_parse(&o->hdr + 1, o->hdr.msg_len, KVR_DISPATCH, &d->q),
			      0);
	CU_ASSERT_EQUAL_FATAL(kvr_hints_parse(d->q.hints, d->q.fixed.hints_len, KVR_HINTS_DISPATCH,
					      &d->hints, &d->lists),
			      0);
	return true;
}

static const struct kvr_wire_accepted *take_accepted(void)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);

	return o == NULL ? NULL : (const struct kvr_wire_accepted *)(&o->hdr + 1);
}

static int take_rejected(void)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);

	return o == NULL ? -1 : ((const struct kvr_wire_rejected *)(&o->hdr + 1))->code;
}

static void send_item(uint32_t from, uint64_t id, uint64_t handle, uint32_t seq, uint32_t tokens,
		      uint16_t flags, const char *data)
{
	const struct kvr_wire_ids ids = {.source = CLIENT, .id = id, .handle = handle, .epoch = 1};
	const struct kvr_wire_response r = {.seq = seq,
					    .flags = flags,
					    .generated_tokens = tokens,
					    .cached_tokens = KVR_NONE32};
	uint8_t buf[256];
	int len = kvr_put_response(buf, sizeof(buf), &ids, r,
				   (struct kvr_slice){data, (uint32_t)strlen(data)});

	CU_ASSERT_FATAL(len > 0);
	pipeline_send(from, buf, (size_t)len);
	pipeline_turn();
}

static void send_empty(uint32_t from, uint8_t kind, uint64_t id, uint64_t handle)
{
	const struct kvr_wire_ids ids = {.source = CLIENT, .id = id, .handle = handle, .epoch = 1};
	uint8_t buf[64];
	int len = kvr_put_empty(buf, sizeof(buf), kind, &ids);

	pipeline_send(from, buf, (size_t)len);
	pipeline_turn();
}

static void send_dispatch_ack(uint32_t from, uint64_t id, uint64_t handle, uint16_t code)
{
	const struct kvr_wire_ids ids = {.source = CLIENT, .id = id, .handle = handle, .epoch = 1};
	const struct kvr_wire_dispatch_ack a = {.code = code};
	uint8_t buf[64];
	int len = kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &a);

	pipeline_send(from, buf, (size_t)len);
	pipeline_turn();
}

/* @rule 9.2: path bootstrap. @rule 9.3: the room selects the rank. */
static void both_legs_go_at_once_with_a_bootstrap_address(void)
{
	const struct kvr_wire_accepted *a;
	struct dispatch p, d;

	begin_disagg(true);
	pipeline_route(1, 100, 6, 0, NULL);
	CU_ASSERT_FATAL(take_dispatch(PEER_P, &p));
	CU_ASSERT_EQUAL(p.q.fixed.flags, KVR_REQ_F_PREFILL_LEG);
	CU_ASSERT_EQUAL(p.q.fixed.phase, KVR_ROLE_PREFILL);
	CU_ASSERT_EQUAL(p.q.fixed.max_tokens, 1);
	CU_ASSERT_EQUAL(p.q.fixed.pool, 6);
	CU_ASSERT_EQUAL(p.q.fixed.worker, PREFILL);
	CU_ASSERT_EQUAL(p.hints.bootstrap.port, 8998);
	CU_ASSERT_EQUAL(p.hints.bootstrap.room % 2, p.q.fixed.dp_rank);
	CU_ASSERT_NSTRING_EQUAL(p.hints.bootstrap.host.p, "10.9.8.7", 8);
	CU_ASSERT_FATAL(take_dispatch(PEER_D, &d));
	CU_ASSERT_EQUAL(d.q.fixed.flags, KVR_REQ_F_DECODE_LEG | KVR_REQ_F_UNPROVEN);
	CU_ASSERT_EQUAL(d.q.fixed.max_tokens, KVR_NONE32);
	CU_ASSERT_EQUAL(d.q.fixed.worker, DECODE);
	CU_ASSERT_EQUAL(d.hints.bootstrap.room, p.hints.bootstrap.room);
	CU_ASSERT_EQUAL(d.hints.prefill_worker, PREFILL);
	CU_ASSERT_NOT_EQUAL(d.handle, p.handle);
	a = take_accepted();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->worker, DECODE);
	CU_ASSERT_EQUAL(a->prefill_worker, PREFILL);
	CU_ASSERT_EQUAL(a->path, KVR_WAY_BOOTSTRAP);

	send_dispatch_ack(PEER_P, 1, p.handle, 0);
	send_dispatch_ack(PEER_D, 1, d.handle, 0);
	send_item(PEER_P, 1, p.handle, 0, 1, KVR_RESP_F_FIN, "");
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_P, KVR_RESPONSE_ACK));
	CU_ASSERT_EQUAL(kvr_sched_counters(prefill_pool()->sched)->booked_now, 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(decode_pool()->pairs), 0);
	send_item(PEER_D, 1, d.handle, 0, 3, KVR_RESP_F_FIN, "abc");
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_PTR_NULL(pipeline_expect(
		PEER_CLIENT, KVR_RESPONSE)); /* one item; the prefill leg's is not relayed */
	end_disagg();
}

/* Rank 0 of a worker has cached the @p n blocks from @p hash0 on. */
static void store_blocks(uint32_t from, uint64_t worker, uint64_t hash0, uint32_t n)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = 0, .epoch = 1};
	const struct kvr_wire_kv_events head = {0};
	uint64_t hashes[16];
	uint8_t buf[512];
	struct kvr_kv_put put;

	for (uint32_t i = 0; i < n; i++)
		hashes[i] = hash0 + i;
	kvr_kv_put_begin(&put, buf, sizeof(buf) & ~7u, &ids, &head);
	CU_ASSERT_EQUAL(kvr_kv_put_event(&put, KVR_KV_STORED, 0, NULL, hashes, n), 0);
	pipeline_send(from, buf, (size_t)kvr_kv_put_end(&put));
	pipeline_turn();
}

/*
 * ACCEPTED reports the cached blocks of either worker; the decode worker's count excludes the
 * prefill worker's.
 */
static void the_client_receives_both_overlaps(void)
{
	const struct kvr_wire_accepted *a;
	struct dispatch p, d;

	begin_disagg(true);
	store_blocks(PEER_P, PREFILL, 100, 5);
	store_blocks(PEER_D, DECODE, 100, 2);
	pipeline_route(1, 100, 6, KVR_REQ_F_QUERY, NULL);
	a = take_accepted();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->prefill_overlap_blocks, 5);
	pipeline_route(2, 100, 6, 0, NULL);
	CU_ASSERT_FATAL(take_dispatch(PEER_P, &p) && take_dispatch(PEER_D, &d));
	CU_ASSERT_EQUAL(p.q.fixed.overlap_blocks, 5);
	a = take_accepted();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->prefill_overlap_blocks, 5);
	CU_ASSERT_EQUAL(a->overlap_blocks, d.q.fixed.overlap_blocks);
	send_item(PEER_P, 2, p.handle, 0, 1, KVR_RESP_F_FIN, "");
	send_item(PEER_D, 2, d.handle, 0, 3, KVR_RESP_F_FIN, "abc");
	end_disagg();
}

/* @rule 9.2: path sync. */
static void the_result_of_a_sync_prefill_goes_to_decode(void)
{
	const struct kvr_wire_accepted *a;
	struct dispatch p, d;

	begin_disagg(false);
	pipeline_route(1, 100, 6, 0, NULL);
	CU_ASSERT_FATAL(take_dispatch(PEER_P, &p));
	CU_ASSERT_FALSE(take_dispatch(PEER_D, &d));
	a = take_accepted();
	CU_ASSERT_FATAL(a != NULL);
	CU_ASSERT_EQUAL(a->state, KVR_STATE_QUEUED);
	send_item(PEER_P, 1, p.handle, 0, 1, KVR_RESP_F_FIN, "opaque-bytes");
	CU_ASSERT_FATAL(take_dispatch(PEER_D, &d));
	CU_ASSERT_EQUAL(d.hints.prefill_result.len, 12);
	CU_ASSERT_NSTRING_EQUAL(d.hints.prefill_result.p, "opaque-bytes", 12);
	CU_ASSERT_EQUAL(d.hints.prefill_worker, PREFILL);
	a = take_accepted();
	CU_ASSERT_FATAL(a != NULL);
	CU_ASSERT_EQUAL(a->path, KVR_WAY_SYNC);
	CU_ASSERT_EQUAL(a->state, KVR_STATE_DISPATCHED);
	send_item(PEER_D, 1, d.handle, 0, 3, KVR_RESP_F_FIN, "abc");
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	end_disagg();
}

static void a_failed_prefill_leg_is_retried_once(void)
{
	struct dispatch p, d;

	begin_disagg(true);
	CU_ASSERT_TRUE_FATAL(join_prefill(PREFILL + 1, 1, true));
	pipeline_route(1, 100, 6, 0, NULL);
	CU_ASSERT_FATAL(take_dispatch(PEER_P, &p));
	CU_ASSERT_FATAL(take_dispatch(PEER_D, &d));
	const uint64_t first = p.q.fixed.worker;
	pipeline_flush();
	send_item(PEER_P, 1, p.handle, 0, 0, KVR_RESP_F_FIN | KVR_RESP_F_ERROR, "no");
	CU_ASSERT_FATAL(take_dispatch(PEER_P, &p));
	CU_ASSERT_NOT_EQUAL(p.q.fixed.worker, first);
	CU_ASSERT_EQUAL(decode_pool()->pair.n_prefilling, 0);
	send_item(PEER_P, 1, p.handle, 0, 0, KVR_RESP_F_FIN | KVR_RESP_F_ERROR, "no");
	CU_ASSERT_EQUAL(take_rejected(), KVR_E_PREFILL_FAILED);
	end_disagg();
}

/*
 * The decode leg is aborted. Its last items are not relayed; the client receives those of the next
 * attempt.
 */
static void an_aborted_attempt_does_not_end_the_request(void)
{
	struct dispatch p, old, d;

	begin_disagg(true);
	CU_ASSERT_TRUE_FATAL(join_prefill(PREFILL + 1, 1, true));
	pipeline_route(1, 100, 6, 0, NULL);
	CU_ASSERT_FATAL(take_dispatch(PEER_P, &p));
	CU_ASSERT_FATAL(take_dispatch(PEER_D, &old));
	send_item(PEER_P, 1, p.handle, 0, 0, KVR_RESP_F_FIN | KVR_RESP_F_ERROR, "no");
	CU_ASSERT_FATAL(take_dispatch(PEER_P, &p));
	CU_ASSERT_FATAL(take_dispatch(PEER_D, &d));
	CU_ASSERT_NOT_EQUAL(d.handle, old.handle);
	pipeline_flush();
	send_item(PEER_D, 1, old.handle, 0, 0, KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED, "");
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	pipeline_flush();
	send_item(PEER_D, 1, old.handle, 0, 0, KVR_RESP_F_FIN | KVR_RESP_F_ERROR, "late");
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	send_item(PEER_P, 1, p.handle, 0, 1, KVR_RESP_F_FIN, "");
	send_item(PEER_D, 1, d.handle, 0, 3, KVR_RESP_F_FIN, "abc");
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	end_disagg();
}

/* Requests that wait for their prefill hold memory by size: more than large_buffers (8). */
static void many_long_prompts_may_be_in_prefill(void)
{
	uint64_t p[20], d[20];
	const struct out *o;

	begin_disagg(false);
	for (uint64_t i = 0; i < 20; i++) {
		pipeline_route(i + 1, 1000 * (i + 1), 300, 0, NULL); /* two frames */
		o = pipeline_expect(PEER_P, KVR_DISPATCH);
		CU_ASSERT_PTR_NOT_NULL_FATAL(o);
		p[i] = o->hdr.handle;
		pipeline_flush();
	}
	for (uint64_t i = 0; i < 20; i++) {
		send_item(PEER_P, i + 1, p[i], 0, 1, KVR_RESP_F_FIN, "r");
		o = pipeline_expect(PEER_D, KVR_DISPATCH);
		CU_ASSERT_PTR_NOT_NULL_FATAL(o);
		d[i] = o->hdr.handle;
		pipeline_flush();
	}
	for (uint64_t i = 0; i < 20; i++)
		send_item(PEER_D, i + 1, d[i], 0, 3, KVR_RESP_F_FIN, "abc");
	end_disagg();
}

/* A request that waits for its prefill; 0: it was rejected. */
static uint64_t start_waiting(uint64_t id)
{
	const struct out *o;
	uint64_t handle;

	pipeline_route(id, 1000 * id, 6, 0, NULL);
	o = pipeline_expect(PEER_P, KVR_DISPATCH);
	handle = o != NULL ? o->hdr.handle : 0;
	if (o == NULL)
		CU_ASSERT_EQUAL(take_rejected(), KVR_E_NO_MEMORY);
	pipeline_flush();
	return handle;
}

static void finish_both_legs(uint64_t id, uint64_t prefill)
{
	const struct out *o;

	send_item(PEER_P, id, prefill, 0, 1, KVR_RESP_F_FIN, "r");
	o = pipeline_expect(PEER_D, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	send_item(PEER_D, id, o->hdr.handle, 0, 3, KVR_RESP_F_FIN, "abc");
	pipeline_flush();
}

/*
 * As many requests may wait as the pool has jobs, even if freed job pairs cached in the cache of
 * the lcore that freed them, where the lcore that allocates does not find them.
 */
static void the_number_of_jobs_bounds_prefill(void)
{
	uint64_t id = 0, prefill[256];
	uint32_t jobs, cached;

	begin_disagg(false);
	jobs = decode_pool()->opt->max_jobs;
	cached = KVR_ROUTER_JOB_CACHE(jobs) * 3 / 2; /* as many as an lcore caches */
	CU_ASSERT_FATAL(jobs < RTE_DIM(prefill));
	for (uint32_t i = 0; i < cached; i++) {
		prefill[0] = start_waiting(++id);
		finish_both_legs(id, prefill[0]);
	}
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(decode_pool()->pairs), 0);
	for (uint32_t i = 0; i < jobs; i++) {
		prefill[i] = start_waiting(++id);
		CU_ASSERT_FATAL(prefill[i] != 0);
	}
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(decode_pool()->pairs), jobs);
	CU_ASSERT_EQUAL(start_waiting(id + 1), 0);
	for (uint32_t i = 0; i < jobs; i++)
		finish_both_legs(id - jobs + 1 + i, prefill[i]);
	end_disagg();
}

static void an_operator_deactivates_the_prefill_pool(void)
{
	struct dispatch p, d;

	begin_disagg(true);
	CU_ASSERT_EQUAL(control_deactivate(rt, "x", true), -ENOENT);
	CU_ASSERT_EQUAL(control_deactivate(rt, "d", true), -EINVAL);
	CU_ASSERT_EQUAL(control_deactivate(rt, "p", true), 0);
	pipeline_route(1, 100, 6, 0, NULL);
	CU_ASSERT_EQUAL(take_rejected(), KVR_E_NOT_ACTIVATED);
	CU_ASSERT_EQUAL(control_deactivate(rt, "p", false), 1);
	pipeline_route(2, 100, 6, 0, NULL);
	CU_ASSERT_FATAL(take_dispatch(PEER_P, &p));
	CU_ASSERT_FATAL(take_dispatch(PEER_D, &d));
	send_item(PEER_P, 2, p.handle, 0, 1, KVR_RESP_F_FIN, "");
	send_item(PEER_D, 2, d.handle, 0, 1, KVR_RESP_F_FIN, "x");
	end_disagg();
}

/*
 * A prefill slot is free when its leg has ended; otherwise the pool would serve its size every two
 * seconds.
 */
static void prefill_slots_do_not_linger(void)
{
	struct dispatch p, d;

	begin_disagg(true);
	for (uint64_t i = 1; i <= 300; i++) { /* max_requests is 256 */
		const struct kvr_wire_ids ids = {.source = CLIENT, .id = i, .epoch = 1};
		const struct kvr_wire_response_ack fin = {1, KVR_RACK_F_FIN};
		struct kvr_wire_ids back = ids;
		uint8_t buf[128];

		pipeline_route(i, 100, 6, 0, NULL);
		CU_ASSERT_FATAL(take_dispatch(PEER_P, &p));
		CU_ASSERT_FATAL(take_dispatch(PEER_D, &d));
		send_item(PEER_P, i, p.handle, 0, 1, KVR_RESP_F_FIN, "");
		CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_P, KVR_RESPONSE_ACK));
		send_item(PEER_P, i, p.handle, 0, 1, KVR_RESP_F_FIN,
			  ""); /* the acknowledgement was lost */
		CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_P, KVR_RESPONSE_ACK));
		send_item(PEER_D, i, d.handle, 0, 1, KVR_RESP_F_FIN, "x");
		back.handle = d.handle;
		pipeline_send(PEER_CLIENT, buf,
			      (size_t)kvr_put_response_ack(buf, sizeof(buf), &back, &fin));
		pipeline_turn();
		pipeline_flush();
	}
	CU_ASSERT_EQUAL(kvr_flight_count(prefill_pool()->requests), 0);
	end_disagg();
}

static void cancel_aborts_both_legs(void)
{
	struct dispatch p, d;

	begin_disagg(true);
	pipeline_route(1, 100, 6, 0, NULL);
	CU_ASSERT_FATAL(take_dispatch(PEER_P, &p));
	CU_ASSERT_FATAL(take_dispatch(PEER_D, &d));
	send_empty(PEER_CLIENT, KVR_CANCEL, 1, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_D, KVR_ABORT));
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_P, KVR_ABORT));
	send_item(PEER_P, 1, p.handle, 0, 1, KVR_RESP_F_FIN, "");
	end_disagg();
}

/* ---- telemetry beside the scheduler lcore ---- */

static _Atomic int asked, enough;

static void *poll_telemetry(void *arg)
{
	const struct pool *p = arg;

	while (atomic_load_explicit(&enough, memory_order_relaxed) == 0) {
		kvr_disagg_active(&p->pair.disagg);
		atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed);
		sched_yield();
	}
	return NULL;
}

/* Telemetry reads what the scheduler lcore writes at the same time: checked by ThreadSanitizer. */
static void telemetry_reads_while_the_prefill_side_changes(void)
{
	pthread_t t;

	begin_disagg(true);
	atomic_store_explicit(&enough, 0, memory_order_relaxed);
	CU_ASSERT_FATAL(pthread_create(&t, NULL, poll_telemetry, prefill_pool()) == 0);
	for (uint32_t i = 0; i < 20; i++) {
		const int before = atomic_load_explicit(&asked, memory_order_relaxed);

		CU_ASSERT_EQUAL(control_deactivate(rt, "p", i % 2 == 0), i % 2 != 0);
		while (atomic_load_explicit(&asked, memory_order_relaxed) == before)
			sched_yield();
		pipeline_turn();
	}
	atomic_store_explicit(&enough, 1, memory_order_relaxed);
	pthread_join(t, NULL);
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(both_legs_go_at_once_with_a_bootstrap_address),
			       KVR_CASE(the_client_receives_both_overlaps),
			       KVR_CASE(the_result_of_a_sync_prefill_goes_to_decode),
			       KVR_CASE(a_failed_prefill_leg_is_retried_once),
			       KVR_CASE(an_aborted_attempt_does_not_end_the_request),
			       KVR_CASE(many_long_prompts_may_be_in_prefill),
			       KVR_CASE(the_number_of_jobs_bounds_prefill),
			       KVR_CASE(an_operator_deactivates_the_prefill_pool),
			       KVR_CASE(telemetry_reads_while_the_prefill_side_changes),
			       KVR_CASE(prefill_slots_do_not_linger),
			       KVR_CASE(cancel_aborts_both_legs),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("disagg", tests);
}
