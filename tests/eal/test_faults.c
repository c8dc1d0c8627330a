/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A packet lcore takes no page fault after the start, whatever it fills for the first time:
 * requests, jobs, buffers of all pools, sessions, the prefix table, active prompts, rings, sources,
 * reassembly. A first router, filled a little, shows the thread the code and its stack; the second
 * one has tables of its own.
 */
#include "kv.h"
#include "peers.h"

#include <malloc.h>
#include <stdio.h>
#include <sys/resource.h>

#include "kvr_hints.h"
#include "lcore/loop.h"
#include "sched/session.h"
#include "start/start.h"

#define WORKER 9u
#define FEW    4u  /* of the system's own making */
#define EVENT  32u /* blocks of an event */

static const char pools[] =
	"[pool a]\nid = 5\nblock_size = 4\nmax_ranks = 512\nmax_requests = 16384\nmax_jobs = 2048\n"
	"max_blocks = 256k\nmax_active_blocks = 262144\nmax_sessions = 20000\n";

static long all; /* page faults inside turns */

static long faults(void)
{
	struct rusage u;

	getrusage(RUSAGE_THREAD, &u);
	return u.ru_minflt + u.ru_majflt;
}

static void turn(void)
{
	const long before = faults();

	lcore_turn(rt->lcore[0]);
	all += faults() - before;
	pipeline_collect();
	pipeline_flush();
}

static void stored(uint32_t blocks)
{
	uint64_t sh[EVENT];
	struct kv_frame f;

	for (uint32_t i = 0; i < blocks / EVENT; i++) {
		kv_chain(sh, EVENT, 1000000 + i);
		kv_begin(&f, i);
		kv_add(&f, KVR_KV_STORED, NULL, sh, EVENT);
		kv_send(&f, WORKER, 1);
		if (i % 8 == 7)
			turn();
	}
	turn();
}

/* From as many addresses, none of which proves itself. */
static void routes(uint64_t *id, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		pipeline_host = (uint8_t)(10 + i % 240);
		peers_route_send(PEER_CLIENT, ++*id, 0, "body");
		if (i % 16 == 15)
			turn();
	}
	pipeline_host = 2;
	turn();
}

static void sessions(uint64_t *id, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint8_t tlv[64];
		struct kvr_hint_buf h = {.p = tlv, .cap = sizeof(tlv)};
		char name[24];

		snprintf(name, sizeof(name), "chat %u", i);
		kvr_hint_put_session(&h, KVR_ACTION_OPEN, 600, name);
		++*id;
		pipeline_route(*id, 1000 * *id, 4, 0, &h);
		pipeline_flush();
	}
}

/* Long prompts, and pieces of messages that never become whole. */
static void fragments(uint64_t *id, uint32_t n)
{
	uint8_t f[sizeof(struct kvr_wire_hdr) + 512] = {0};

	pipeline_body_len = 100000;
	pipeline_route_tokens(++*id, 1, 4000, 0, NULL);
	pipeline_body_len = 4;
	for (uint32_t i = 0; i < n; i++) {
		const struct kvr_wire_ids ids = {.source = 666, .id = 1 + i / 8, .epoch = 1};

		pipeline_host = (uint8_t)(10 + i % 240);
		kvr_hdr_put(f, KVR_ROUTE, &ids, 16 * 512, i % 8 * 512, 512);
		pipeline_send(5000, f, sizeof(f));
		if (i % 16 == 15)
			turn();
	}
	pipeline_host = 2;
	turn();
}

static void report(const char *what)
{
	printf("%s: %ld page faults so far; %u slots, %lu wait\n", what, all,
	       kvr_flight_count(rt->pool[0].requests),
	       (unsigned long)kvr_sched_counters(rt->pool[0].sched)->waiting_now);
}

/* @return page faults of all that. */
static long fill(uint32_t requests, uint32_t blocks, uint32_t opens, uint32_t pieces)
{
	char err[300];
	uint64_t id = 0;

	pipeline_mbufs = 20479;
	pipeline_start_with(pools);
	CU_ASSERT_EQUAL_FATAL(start_memory(rt, err, sizeof(err)), 0);
	for (uint32_t i = 0; i < 4; i++)
		CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER + i, 1, "a", 64));
	all = 0;
	stored(blocks);
	report("events");
	sessions(&id, opens);
	report("sessions");
	fragments(&id, pieces);
	report("fragments");
	routes(&id, requests);
	report("requests");
	CU_ASSERT(kvr_flight_count(rt->pool[0].requests) >= requests);
	pipeline_stop();
	return all;
}

static void a_packet_lcore_takes_no_page_faults(void)
{
	/* What the second one gets is not what the first has given back. */
	mallopt(M_MMAP_THRESHOLD, 32768);
	CU_ASSERT(fill(200, 1000, 10, 100) <= FEW);
	CU_ASSERT(fill(15000, 200000, 1000, 4000) <= FEW);
}

int main(void)
{
	CU_TestInfo tests[] = {{"none", a_packet_lcore_takes_no_page_faults}, CU_TEST_INFO_NULL};

	return kvr_test_run("faults", tests);
}
