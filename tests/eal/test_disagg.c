/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests of a pair of pools by the frame: both legs, their failures, and what is left behind. */
#include "pipeline.h"

#include <pthread.h>
#include <sched.h>

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

static bool prefill_joins(uint64_t id, uint32_t epoch, bool bootstrap)
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

static bool decode_joins(uint64_t id, uint32_t epoch)
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

static void begin(bool bootstrap)
{
	pipeline_start_with(PAIR);
	CU_ASSERT_TRUE_FATAL(prefill_joins(PREFILL, 1, bootstrap));
	CU_ASSERT_TRUE_FATAL(decode_joins(DECODE, 1));
}

/* Nothing may be left: counters add up, no booking, no request, no frame. */
static void end(void)
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

/* A DISPATCH that an agent has got: parsed, in place until the next frame is read. */
struct dispatch {
	uint64_t handle;
	struct kvr_message q;
	struct kvr_hints hints;
};

static bool dispatched(uint32_t peer, struct dispatch *d)
{
	const struct out *o = pipeline_expect(peer, KVR_DISPATCH);

	if (o == NULL)
		return false;
	d->handle = o->hdr.handle;
	CU_ASSERT_EQUAL(o->hdr.source, CLIENT);
	CU_ASSERT_EQUAL_FATAL(kvr_request_parse(&o->hdr + 1, o->hdr.msg_len, KVR_DISPATCH, &d->q),
			      0);
	CU_ASSERT_EQUAL_FATAL(
		kvr_hints_parse(d->q.hints, d->q.fixed.hints_len, KVR_HINTS_DISPATCH, &d->hints),
		0);
	return true;
}

static const struct kvr_wire_accepted *accepted(void)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);

	return o == NULL ? NULL : (const struct kvr_wire_accepted *)(&o->hdr + 1);
}

static int rejected(void)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);

	return o == NULL ? -1 : ((const struct kvr_wire_rejected *)(&o->hdr + 1))->code;
}

static void item(uint32_t from, uint64_t id, uint64_t handle, uint32_t seq, uint32_t tokens,
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

static void empty(uint32_t from, uint8_t kind, uint64_t id, uint64_t handle)
{
	const struct kvr_wire_ids ids = {.source = CLIENT, .id = id, .handle = handle, .epoch = 1};
	uint8_t buf[64];
	int len = kvr_put_empty(buf, sizeof(buf), kind, &ids);

	pipeline_send(from, buf, (size_t)len);
	pipeline_turn();
}

static void dispatch_ack(uint32_t from, uint64_t id, uint64_t handle, uint16_t code)
{
	const struct kvr_wire_ids ids = {.source = CLIENT, .id = id, .handle = handle, .epoch = 1};
	const struct kvr_wire_dispatch_ack a = {.code = code};
	uint8_t buf[64];
	int len = kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &a);

	pipeline_send(from, buf, (size_t)len);
	pipeline_turn();
}

static void both_legs_go_at_once_with_a_bootstrap_address(void)
{
	const struct kvr_wire_accepted *a;
	struct dispatch p, d;

	begin(true);
	pipeline_route(1, 100, 6, 0, NULL);
	CU_ASSERT_FATAL(dispatched(PEER_P, &p));
	CU_ASSERT_EQUAL(p.q.fixed.flags, KVR_REQ_F_PREFILL_LEG);
	CU_ASSERT_EQUAL(p.q.fixed.phase, KVR_ROLE_PREFILL);
	CU_ASSERT_EQUAL(p.q.fixed.max_tokens, 1);
	CU_ASSERT_EQUAL(p.q.fixed.pool, 6);
	CU_ASSERT_EQUAL(p.q.fixed.worker, PREFILL);
	CU_ASSERT_EQUAL(p.hints.bootstrap_port, 8998);
	CU_ASSERT_EQUAL(p.hints.bootstrap_room % 2, p.q.fixed.dp_rank);
	CU_ASSERT_NSTRING_EQUAL(p.hints.bootstrap_host.p, "10.9.8.7", 8);
	CU_ASSERT_FATAL(dispatched(PEER_D, &d));
	CU_ASSERT_EQUAL(d.q.fixed.flags, KVR_REQ_F_DECODE_LEG | KVR_REQ_F_UNPROVEN);
	CU_ASSERT_EQUAL(d.q.fixed.max_tokens, KVR_NONE32);
	CU_ASSERT_EQUAL(d.q.fixed.worker, DECODE);
	CU_ASSERT_EQUAL(d.hints.bootstrap_room, p.hints.bootstrap_room);
	CU_ASSERT_EQUAL(d.hints.prefill_worker, PREFILL);
	CU_ASSERT_NOT_EQUAL(d.handle, p.handle);
	a = accepted();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->worker, DECODE);
	CU_ASSERT_EQUAL(a->prefill_worker, PREFILL);
	CU_ASSERT_EQUAL(a->path, KVR_WAY_BOOTSTRAP);

	dispatch_ack(PEER_P, 1, p.handle, 0);
	dispatch_ack(PEER_D, 1, d.handle, 0);
	item(PEER_P, 1, p.handle, 0, 1, KVR_RESP_F_FIN, "");
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_P, KVR_RESPONSE_ACK));
	CU_ASSERT_EQUAL(kvr_sched_counters(prefill_pool()->sched)->booked_now, 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(decode_pool()->pairs), 0);
	item(PEER_D, 1, d.handle, 0, 3, KVR_RESP_F_FIN, "abc");
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE)); /* one, not the prefill's */
	end();
}

/* Rank 0 of a worker has cached the @p n blocks from @p hash0 on. */
static void stored(uint32_t from, uint64_t worker, uint64_t hash0, uint32_t n)
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

/* ACCEPTED says what is cached at either worker; the decode worker's count is not the prefill's. */
static void the_client_hears_both_overlaps(void)
{
	const struct kvr_wire_accepted *a;
	struct dispatch p, d;

	begin(true);
	stored(PEER_P, PREFILL, 100, 5);
	stored(PEER_D, DECODE, 100, 2);
	pipeline_route(1, 100, 6, KVR_REQ_F_QUERY, NULL);
	a = accepted();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->prefill_overlap_blocks, 5);
	pipeline_route(2, 100, 6, 0, NULL);
	CU_ASSERT_FATAL(dispatched(PEER_P, &p) && dispatched(PEER_D, &d));
	CU_ASSERT_EQUAL(p.q.fixed.overlap_blocks, 5);
	a = accepted();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->prefill_overlap_blocks, 5);
	CU_ASSERT_EQUAL(a->overlap_blocks, d.q.fixed.overlap_blocks);
	item(PEER_P, 2, p.handle, 0, 1, KVR_RESP_F_FIN, "");
	item(PEER_D, 2, d.handle, 0, 3, KVR_RESP_F_FIN, "abc");
	end();
}

static void the_result_of_a_sync_prefill_goes_to_decode(void)
{
	const struct kvr_wire_accepted *a;
	struct dispatch p, d;

	begin(false);
	pipeline_route(1, 100, 6, 0, NULL);
	CU_ASSERT_FATAL(dispatched(PEER_P, &p));
	CU_ASSERT_FALSE(dispatched(PEER_D, &d));
	a = accepted();
	CU_ASSERT_FATAL(a != NULL);
	CU_ASSERT_EQUAL(a->state, KVR_STATE_QUEUED);
	item(PEER_P, 1, p.handle, 0, 1, KVR_RESP_F_FIN, "opaque-bytes");
	CU_ASSERT_FATAL(dispatched(PEER_D, &d));
	CU_ASSERT_EQUAL(d.hints.prefill_result.len, 12);
	CU_ASSERT_NSTRING_EQUAL(d.hints.prefill_result.p, "opaque-bytes", 12);
	CU_ASSERT_EQUAL(d.hints.prefill_worker, PREFILL);
	a = accepted();
	CU_ASSERT_FATAL(a != NULL);
	CU_ASSERT_EQUAL(a->path, KVR_WAY_SYNC);
	CU_ASSERT_EQUAL(a->state, KVR_STATE_DISPATCHED);
	item(PEER_D, 1, d.handle, 0, 3, KVR_RESP_F_FIN, "abc");
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	end();
}

static void a_failed_prefill_leg_is_tried_once_more(void)
{
	struct dispatch p, d;

	begin(true);
	CU_ASSERT_TRUE_FATAL(prefill_joins(PREFILL + 1, 1, true));
	pipeline_route(1, 100, 6, 0, NULL);
	CU_ASSERT_FATAL(dispatched(PEER_P, &p));
	CU_ASSERT_FATAL(dispatched(PEER_D, &d));
	const uint64_t first = p.q.fixed.worker;
	pipeline_flush();
	item(PEER_P, 1, p.handle, 0, 0, KVR_RESP_F_FIN | KVR_RESP_F_ERROR, "no");
	CU_ASSERT_FATAL(dispatched(PEER_P, &p));
	CU_ASSERT_NOT_EQUAL(p.q.fixed.worker, first);
	CU_ASSERT_EQUAL(decode_pool()->pair.n_prefilling, 0);
	item(PEER_P, 1, p.handle, 0, 0, KVR_RESP_F_FIN | KVR_RESP_F_ERROR, "no");
	CU_ASSERT_EQUAL(rejected(), KVR_E_PREFILL_FAILED);
	end();
}

/* The decode leg is stopped and its last words are not for the client, who hears the next one. */
static void a_run_that_is_given_up_does_not_end_the_request(void)
{
	struct dispatch p, old, d;

	begin(true);
	CU_ASSERT_TRUE_FATAL(prefill_joins(PREFILL + 1, 1, true));
	pipeline_route(1, 100, 6, 0, NULL);
	CU_ASSERT_FATAL(dispatched(PEER_P, &p));
	CU_ASSERT_FATAL(dispatched(PEER_D, &old));
	item(PEER_P, 1, p.handle, 0, 0, KVR_RESP_F_FIN | KVR_RESP_F_ERROR, "no");
	CU_ASSERT_FATAL(dispatched(PEER_P, &p));
	CU_ASSERT_FATAL(dispatched(PEER_D, &d));
	CU_ASSERT_NOT_EQUAL(d.handle, old.handle);
	pipeline_flush();
	item(PEER_D, 1, old.handle, 0, 0, KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED, "");
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	pipeline_flush();
	item(PEER_D, 1, old.handle, 0, 0, KVR_RESP_F_FIN | KVR_RESP_F_ERROR, "late");
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	item(PEER_P, 1, p.handle, 0, 1, KVR_RESP_F_FIN, "");
	item(PEER_D, 1, d.handle, 0, 3, KVR_RESP_F_FIN, "abc");
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	end();
}

/* Requests that wait for their prefill hold memory by their size: more than large_buffers (8). */
static void many_long_prompts_may_be_in_prefill(void)
{
	uint64_t p[20], d[20];
	const struct out *o;

	begin(false);
	for (uint64_t i = 0; i < 20; i++) {
		pipeline_route(i + 1, 1000 * (i + 1), 300, 0, NULL); /* two frames */
		o = pipeline_expect(PEER_P, KVR_DISPATCH);
		CU_ASSERT_PTR_NOT_NULL_FATAL(o);
		p[i] = o->hdr.handle;
		pipeline_flush();
	}
	for (uint64_t i = 0; i < 20; i++) {
		item(PEER_P, i + 1, p[i], 0, 1, KVR_RESP_F_FIN, "r");
		o = pipeline_expect(PEER_D, KVR_DISPATCH);
		CU_ASSERT_PTR_NOT_NULL_FATAL(o);
		d[i] = o->hdr.handle;
		pipeline_flush();
	}
	for (uint64_t i = 0; i < 20; i++)
		item(PEER_D, i + 1, d[i], 0, 3, KVR_RESP_F_FIN, "abc");
	end();
}

/* A request that waits for its prefill; 0: it was refused. */
static uint64_t waits(uint64_t id)
{
	const struct out *o;
	uint64_t handle;

	pipeline_route(id, 1000 * id, 6, 0, NULL);
	o = pipeline_expect(PEER_P, KVR_DISPATCH);
	handle = o != NULL ? o->hdr.handle : 0;
	if (o == NULL)
		CU_ASSERT_EQUAL(rejected(), KVR_E_NO_MEMORY);
	pipeline_flush();
	return handle;
}

static void prefilled_and_decoded(uint64_t id, uint64_t prefill)
{
	const struct out *o;

	item(PEER_P, id, prefill, 0, 1, KVR_RESP_F_FIN, "r");
	o = pipeline_expect(PEER_D, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	item(PEER_D, id, o->hdr.handle, 0, 3, KVR_RESP_F_FIN, "abc");
	pipeline_flush();
}

/*
 * As many may wait as the pool has jobs, however many halves of pairs lie free with the lcore that
 * gave them back, where the one that takes them does not find them.
 */
static void as_many_may_be_in_prefill_as_there_are_jobs(void)
{
	uint64_t id = 0, prefill[256];
	uint32_t jobs, lie;

	begin(false);
	jobs = decode_pool()->opt->max_jobs;
	lie = KVR_ROUTER_JOB_CACHE(jobs) * 3 / 2; /* as many as an lcore keeps */
	CU_ASSERT_FATAL(jobs < RTE_DIM(prefill));
	for (uint32_t i = 0; i < lie; i++) {
		prefill[0] = waits(++id);
		prefilled_and_decoded(id, prefill[0]);
	}
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(decode_pool()->pairs), 0);
	for (uint32_t i = 0; i < jobs; i++) {
		prefill[i] = waits(++id);
		CU_ASSERT_FATAL(prefill[i] != 0);
	}
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(decode_pool()->pairs), jobs);
	CU_ASSERT_EQUAL(waits(id + 1), 0);
	for (uint32_t i = 0; i < jobs; i++)
		prefilled_and_decoded(id - jobs + 1 + i, prefill[i]);
	end();
}

static void an_operator_deactivates_the_prefill_pool(void)
{
	struct dispatch p, d;

	begin(true);
	CU_ASSERT_EQUAL(control_deactivate(rt, "x", true), -ENOENT);
	CU_ASSERT_EQUAL(control_deactivate(rt, "d", true), -EINVAL);
	CU_ASSERT_EQUAL(control_deactivate(rt, "p", true), 0);
	pipeline_route(1, 100, 6, 0, NULL);
	CU_ASSERT_EQUAL(rejected(), KVR_E_NOT_ACTIVATED);
	CU_ASSERT_EQUAL(control_deactivate(rt, "p", false), 1);
	pipeline_route(2, 100, 6, 0, NULL);
	CU_ASSERT_FATAL(dispatched(PEER_P, &p));
	CU_ASSERT_FATAL(dispatched(PEER_D, &d));
	item(PEER_P, 2, p.handle, 0, 1, KVR_RESP_F_FIN, "");
	item(PEER_D, 2, d.handle, 0, 1, KVR_RESP_F_FIN, "x");
	end();
}

/* A prefill slot is free when its leg has ended: not the pool's size in every two seconds. */
static void prefill_slots_do_not_linger(void)
{
	struct dispatch p, d;

	begin(true);
	for (uint64_t i = 1; i <= 300; i++) { /* max_requests is 256 */
		const struct kvr_wire_ids ids = {.source = CLIENT, .id = i, .epoch = 1};
		const struct kvr_wire_response_ack fin = {1, KVR_RACK_F_FIN};
		struct kvr_wire_ids back = ids;
		uint8_t buf[128];

		pipeline_route(i, 100, 6, 0, NULL);
		CU_ASSERT_FATAL(dispatched(PEER_P, &p));
		CU_ASSERT_FATAL(dispatched(PEER_D, &d));
		item(PEER_P, i, p.handle, 0, 1, KVR_RESP_F_FIN, "");
		CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_P, KVR_RESPONSE_ACK));
		item(PEER_P, i, p.handle, 0, 1, KVR_RESP_F_FIN, ""); /* the ack was lost */
		CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_P, KVR_RESPONSE_ACK));
		item(PEER_D, i, d.handle, 0, 1, KVR_RESP_F_FIN, "x");
		back.handle = d.handle;
		pipeline_send(PEER_CLIENT, buf,
			      (size_t)kvr_put_response_ack(buf, sizeof(buf), &back, &fin));
		pipeline_turn();
		pipeline_flush();
	}
	CU_ASSERT_EQUAL(kvr_flight_count(prefill_pool()->requests), 0);
	end();
}

static void cancel_of_both(void)
{
	struct dispatch p, d;

	begin(true);
	pipeline_route(1, 100, 6, 0, NULL);
	CU_ASSERT_FATAL(dispatched(PEER_P, &p));
	CU_ASSERT_FATAL(dispatched(PEER_D, &d));
	empty(PEER_CLIENT, KVR_CANCEL, 1, 0);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_D, KVR_ABORT));
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_P, KVR_ABORT));
	item(PEER_P, 1, p.handle, 0, 1, KVR_RESP_F_FIN, "");
	end();
}

/* ---- telemetry beside the scheduler lcore ---- */

static _Atomic int asked, enough;

static void *telemetry(void *arg)
{
	const struct pool *p = arg;

	while (atomic_load_explicit(&enough, memory_order_relaxed) == 0) {
		kvr_disagg_active(&p->pair.disagg);
		atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed);
		sched_yield();
	}
	return NULL;
}

/* What telemetry asks is written by the scheduler lcore at the same time: ThreadSanitizer looks. */
static void telemetry_asks_while_the_prefill_side_comes_and_goes(void)
{
	pthread_t t;

	begin(true);
	atomic_store_explicit(&enough, 0, memory_order_relaxed);
	CU_ASSERT_FATAL(pthread_create(&t, NULL, telemetry, prefill_pool()) == 0);
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
	CU_TestInfo tests[] = {{"bootstrap", both_legs_go_at_once_with_a_bootstrap_address},
			       {"both overlaps", the_client_hears_both_overlaps},
			       {"sync", the_result_of_a_sync_prefill_goes_to_decode},
			       {"again", a_failed_prefill_leg_is_tried_once_more},
			       {"given up", a_run_that_is_given_up_does_not_end_the_request},
			       {"long", many_long_prompts_may_be_in_prefill},
			       {"max_jobs", as_many_may_be_in_prefill_as_there_are_jobs},
			       {"operator", an_operator_deactivates_the_prefill_pool},
			       {"telemetry", telemetry_asks_while_the_prefill_side_comes_and_goes},
			       {"slots", prefill_slots_do_not_linger},
			       {"cancel", cancel_of_both},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("disagg", tests);
}
