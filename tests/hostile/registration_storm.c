/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A worker sends thousands of HELLOs per second, each with a new epoch, beside the
 * heartbeats of a thousand other workers. In virtual time, frame by frame; perf/e2e/storm does the
 * same with a clock and a real router.
 */
#include "peers.h"

#include "control/thread.h"
#include "ingress/source.h"

#define WORKERS 1000u
#define FIRST	1000u /* id of the first honest worker */
#define HOSTILE 7u
#define STEP_MS 10u
#define JOIN	64u /* HELLOs per burst */
#define HOST	2u
#define FOE	66u /* last byte of its address */

static uint64_t answered, not_serving, refused, welcomes, foe_refused;

static uint64_t sum_in_counter(enum in_counter c)
{
	uint64_t v[KVR_STATS_MAX];

	kvr_stats_sum(rt->in_stats, v);
	return v[c];
}

static void send_storm_hello(uint32_t from, uint64_t worker, uint32_t epoch)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = epoch, .epoch = epoch};
	const struct kvr_wire_hello h = {
		.block_size = 4, .dp_size = 1, .total_kv_blocks = 1000, .max_frame = 1432};
	uint8_t buf[256], tlv[64];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};

	kvr_hint_put_str(&hints, KVR_HINT_POOL, "a");
	pipeline_send(from, buf, (size_t)kvr_put_hello(buf, sizeof(buf), &ids, h, &hints));
}

static void send_storm_heartbeat(uint64_t worker)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = 4, .epoch = 1};
	const struct kvr_wire_rank_load l = {.kv_used_blocks = 7};
	uint8_t buf[128];

	pipeline_send(PEER_AGENT, buf,
		      (size_t)kvr_put_heartbeat(buf, sizeof(buf), &ids, &l, 1, 0, 0));
}

static void read_answers(void)
{
	const struct out *o;

	while ((o = pipeline_next(0)) != NULL) {
		const struct kvr_wire_heartbeat_ack *a = (const void *)(&o->hdr + 1);

		if (o->hdr.kind == KVR_HEARTBEAT_ACK) {
			answered++;
			not_serving += a->state != KVR_WORKER_SERVING;
		}
		welcomes += o->hdr.kind == KVR_WELCOME && o->hdr.source == HOSTILE;
		foe_refused += o->hdr.kind == KVR_REJECTED && o->hdr.source == HOSTILE;
		refused += o->hdr.kind == KVR_REJECTED && o->hdr.source != HOSTILE;
	}
	pipeline_flush();
}

static void begin_storm(void)
{
	pipeline_start_with(
		"[pool a]\nid = 5\nblock_size = 4\nmax_workers = 1024\nmax_ranks = 1024\n"
		"max_requests = 256\nmax_jobs = 128\nmax_blocks = 64k\n"
		"max_active_blocks = 65536\n");
	for (uint32_t i = 0; i < WORKERS; i++) {
		send_storm_hello(PEER_AGENT, FIRST + i, 1);
		if (i % JOIN == JOIN - 1)
			pipeline_turn();
	}
	pipeline_turn();
	pipeline_flush();
	CU_ASSERT_EQUAL_FATAL(kvr_registry_count(rt->registry), WORKERS);
	answered = not_serving = refused = welcomes = foe_refused = 0;
}

/* Honest workers whose state has changed since @since. */
static uint32_t count_changed(uint64_t since)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < WORKERS; i++) {
		const struct kvr_worker *w = kvr_registry_find(rt->registry, FIRST + i);

		n += w == NULL || w->state != KVR_WORKER_SERVING || w->since_ns > since;
	}
	return n;
}

/* Heartbeats and HELLOs per second, for three times dead_ms. */
static void run_storm(uint32_t beats, uint32_t hellos)
{
	const uint32_t steps = 3 * 1000 / STEP_MS;
	const uint32_t limit = rt->conf.port[0].port.source_control;
	uint64_t sent = 0, said = 0, since, limited, heard;
	uint32_t used;

	rt->ns_offset += STEP_MS * UINT64_C(1000000);
	since = now_ns(rt);
	limited = sum_in_counter(IN_RATE_LIMITED);
	heard = sum_in_counter(IN_HEARTBEATS);
	used = pipeline_mbufs_used();
	for (uint32_t step = 0; step < steps; step++) {
		rt->ns_offset += STEP_MS * UINT64_C(1000000);
		pipeline_host = FOE;
		for (; said < (uint64_t)hellos * (step + 1) * STEP_MS / 1000; said++)
			send_storm_hello(PEER_OTHER, HOSTILE, (uint32_t)said + 1);
		pipeline_host = HOST;
		for (; sent < (uint64_t)beats * (step + 1) * STEP_MS / 1000; sent++)
			send_storm_heartbeat(FIRST + sent % WORKERS);
		pipeline_turn();
		read_answers();
	}
	CU_ASSERT_EQUAL(count_changed(since), 0);
	CU_ASSERT_EQUAL(answered, sent);
	CU_ASSERT_EQUAL(sum_in_counter(IN_HEARTBEATS) - heard, sent);
	CU_ASSERT_EQUAL(not_serving, 0);
	CU_ASSERT_EQUAL(refused, 0);
	/* The burst of a source, then its rate; further HELLOs are limited and counted. */
	CU_ASSERT(welcomes > 3 * limit && welcomes <= 1024 + 4 * limit);
	CU_ASSERT_EQUAL(foe_refused, 0);
	CU_ASSERT_EQUAL(sum_in_counter(IN_RATE_LIMITED) - limited, said - welcomes);
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), used);
	CU_ASSERT_TRUE(pipeline_balanced());
}

static void a_slow_storm_changes_no_other_worker(void)
{
	begin_storm();
	run_storm(10000, 3000);
	pipeline_stop();
}

static void a_fast_storm_changes_no_other_worker(void)
{
	begin_storm();
	run_storm(20000, 8000);
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_slow_storm_changes_no_other_worker),
			       KVR_CASE(a_fast_storm_changes_no_other_worker), CU_TEST_INFO_NULL};

	return kvr_test_run("registration_storm", tests);
}
