/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A packet lcore takes no page fault after the start, whatever it fills for the first time:
 * requests, jobs, buffers of all pools, sessions, the prefix table, active prompts, rings, sources
 * and what they have, reassembly up to its bound, the longest messages, legs of pairs. On one
 * thread, or on several (threads.h). A first router, filled a little, shows the threads the code;
 * the second one has tables of its own. Stacks have their pages as lcore_loop() begins.
 */
#include "kv.h"
#include "peers.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/resource.h>

#include "kvr_hints.h"
#include "lcore/loop.h"
#include "sched/session.h"
#include "start/start.h"
#include "threads.h"

#define WORKER	9u
#define PREFILL 30u
#define FEW	4u  /* of the system's own making, of each thread */
#define EVENT	32u /* blocks of an event */

static const char alone[] =
	"[pool a]\nid = 5\nblock_size = 4\nmax_ranks = 512\nmax_requests = 16384\nmax_jobs = 2048\n"
	"max_blocks = 256k\nmax_active_blocks = 262144\nmax_sessions = 20000\n";
static const char pair[] =
	"[pool a]\nid = 5\nmodel = m\nrole = decode\nblock_size = 4\nmax_ranks = 512\n"
	"max_requests = 16384\nmax_jobs = 2048\nmax_blocks = 256k\nmax_active_blocks = 262144\n"
	"max_sessions = 20000\n"
	"[pool p]\nid = 6\nmodel = m\nrole = prefill\nblock_size = 4\nmax_ranks = 128\n"
	"max_requests = 16384\nmax_jobs = 64\nmax_blocks = 64k\nmax_active_blocks = 65536\n";

static long all;   /* page faults inside turns of this thread */
static long began; /* those of the polling threads before */

/* Of the thread, or of all that poll. */
static long faults_of_this(void)
{
	struct rusage u;

	getrusage(RUSAGE_THREAD, &u);
	return u.ru_minflt + u.ru_majflt;
}

static long faults_of(const char *task)
{
	char path[300], text[600], *at;
	long minor = 0;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%s/stat", task);
	f = fopen(path, "r");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = 0;
	at = strrchr(text, ')');
	CU_ASSERT_PTR_NOT_NULL_FATAL(at);
	if (strstr(text, "-worker-") == NULL)
		return 0;
	/* Behind the name: state, five numbers, flags, minflt. */
	CU_ASSERT_EQUAL_FATAL(sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %ld", &minor), 1);
	return minor;
}

static long faults_of_workers(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	long n = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	while ((e = readdir(d)) != NULL)
		if (e->d_name[0] != '.')
			n += faults_of(e->d_name);
	closedir(d);
	return n;
}

/* In place of lcore_turn(). */
static void measured(struct lcore *lc)
{
	const long before = faults_of_this();

	lcore_turn(lc);
	all += faults_of_this() - before;
}

static long so_far(void)
{
	return threads_used() != NULL ? faults_of_workers() - began : all;
}

static void turn(void)
{
	pipeline_turn();
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
		if (i % 256 == 255)
			turn();
	}
	turn();
}

/* From as many addresses, none of which proves itself. */
static void routes(uint64_t *id, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		pipeline_host = (uint8_t)(10 + i % 240);
		pipeline_net = (uint8_t)(i / 240);
		peers_route_send(PEER_CLIENT, ++*id, 0, "body");
		if (i % 1024 == 1023)
			turn();
	}
	pipeline_host = 2;
	pipeline_net = 0;
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

/* Pieces of messages that never become whole, from every address: up to the bound and beyond. */
static void pieces(uint32_t n)
{
	uint8_t f[sizeof(struct kvr_wire_hdr) + 512] = {0};

	for (uint32_t i = 0; i < n; i++) {
		const struct kvr_wire_ids ids = {.source = 666, .id = 1 + i / 8, .epoch = 1};

		pipeline_host = (uint8_t)(10 + i / 8 % 240);
		pipeline_net = (uint8_t)(i / 8 / 240);
		kvr_hdr_put(f, KVR_ROUTE, &ids, 16 * 512, i % 8 * 512, 512);
		pipeline_send(5000, f, sizeof(f));
		if (i % 1024 == 1023)
			turn();
	}
	pipeline_host = 2;
	pipeline_net = 0;
	turn();
}

/* Prompts of tokens with long bodies. */
static void long_ones(uint64_t *id, uint32_t tokens, uint32_t body)
{
	pipeline_body_len = body;
	pipeline_route_tokens(++*id, 1, tokens, 0, NULL);
	pipeline_body_len = 4;
	pipeline_flush();
}

static void report(const char *what)
{
	printf("%s: %ld page faults so far; %u slots, %lu wait\n", what, so_far(),
	       kvr_flight_count(rt->pool[0].requests),
	       (unsigned long)kvr_sched_counters(rt->pool[0].sched)->waiting_now);
}

struct amount {
	uint32_t requests, blocks, opens, pieces, tokens, body;
};

static void join(uint64_t worker, const char *pool, uint32_t ranks, uint32_t from, uint8_t role)
{
	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&(const struct pipeline_worker){.id = worker,
									       .epoch = 1,
									       .pool = pool,
									       .ranks = ranks,
									       .from = from,
									       .role = role}));
}

/* @return page faults of all that. */
static long fill(const char *pools, const struct amount *n)
{
	char err[300];
	uint64_t id = 0;
	long n_faults;

	lcore_stack(); /* as lcore_loop() does */
	pipeline_mbufs = 20479;
	pipeline_router = ""; /* sources have shares */
	pipeline_start_with(pools);
	CU_ASSERT_EQUAL_FATAL(start_memory(rt, err, sizeof(err)), 0);
	for (uint32_t i = 0; i < 4; i++)
		join(WORKER + i, "a", 64, PEER_AGENT, pools == pair ? KVR_ROLE_DECODE : 0);
	for (uint32_t i = 0; pools == pair && i < 2; i++)
		join(PREFILL + i, "p", 8, PEER_OTHER, KVR_ROLE_PREFILL);
	all = 0;
	began = threads_used() != NULL ? faults_of_workers() : 0;
	stored(n->blocks);
	report("events");
	sessions(&id, n->opens);
	report("sessions");
	long_ones(&id, n->tokens, n->body);
	report("long messages");
	pieces(n->pieces);
	report("pieces");
	routes(&id, n->requests);
	report("requests");
	n_faults = so_far();
	pipeline_stop();
	return n_faults;
}

static void none_of(const char *pools)
{
	static const struct amount few = {200, 1000, 10, 100, 4000, 100000},
				   many = {15000, 200000, 1000, 30000, 200000, 1000000},
				   threads = {15000, 64000, 20, 10000, 20000, 100000};
	const long most = FEW * (threads_used() != NULL ? threads_used()->threads : 1);

	CU_ASSERT(fill(pools, &few) <= most);
	CU_ASSERT(fill(pools, threads_used() != NULL ? &threads : &many) <= most);
}

static void a_packet_lcore_takes_no_page_faults(void)
{
	none_of(alone);
}

static void nor_with_a_pair_of_pools(void)
{
	if (threads_used() == NULL) /* legs are said again and again while threads take turns */
		none_of(pair);
}

int main(void)
{
	CU_TestInfo tests[] = {{"alone", a_packet_lcore_takes_no_page_faults},
			       {"pair", nor_with_a_pair_of_pools},
			       CU_TEST_INFO_NULL};

	/* What the second router gets is not what the first has given back. */
	mallopt(M_MMAP_THRESHOLD, 32768);
	pipeline_lcore_turn = measured;
	return kvr_test_run("faults", tests);
}
