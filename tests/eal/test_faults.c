/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A packet lcore has no page fault after the start, whatever it fills for the first time: requests,
 * jobs, buffers of all pools, sessions, the prefix table, active prompts, rings, sources and their
 * state, reassembly up to its bound, the longest messages, legs of pairs. On one thread or on
 * several (threads.h). The first router, filled a little, makes the code resident; the second one
 * has tables of its own. Stacks are touched as by lcore_loop().
 */
#include "kv.h"
#include "peers.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/resource.h>

#include "kvr_hints.h"
#include "loop/loop.h"
#include "sched/session.h"
#include "start/start.h"
#include "threads.h"

#define WORKER	9u
#define PREFILL 30u
#define FEW	4u  /* caused by the system itself, per thread */
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

static long all;   /* page faults in turns of this thread */
static long began; /* page faults of the polling threads so far */

/* Of this thread, or of all polling threads. */
static long count_thread_faults(void)
{
	struct rusage u;

	getrusage(RUSAGE_THREAD, &u);
	return u.ru_minflt + u.ru_majflt;
}

static long read_thread_faults(const char *task)
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
	/* After the name: state, five numbers, flags, minflt. */
	CU_ASSERT_EQUAL_FATAL(sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %ld", &minor), 1);
	return minor;
}

static long count_worker_faults(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	long n = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	while ((e = readdir(d)) != NULL)
		if (e->d_name[0] != '.')
			n += read_thread_faults(e->d_name);
	closedir(d);
	return n;
}

/* Replaces lcore_turn(). */
static void measure_turn(struct lcore *lc)
{
	const long before = count_thread_faults();

	lcore_turn(lc);
	all += count_thread_faults() - before;
}

static long count_faults(void)
{
	return threads_used() != NULL ? count_worker_faults() - began : all;
}

static void run_turn(void)
{
	pipeline_turn();
	pipeline_flush();
}

static void store_event_blocks(uint32_t blocks)
{
	uint64_t sh[EVENT];
	struct kv_frame f;

	for (uint32_t i = 0; i < blocks / EVENT; i++) {
		kv_chain(sh, EVENT, 1000000 + i);
		kv_begin(&f, i);
		kv_add(&f, KVR_KV_STORED, NULL, sh, EVENT);
		kv_send(&f, WORKER, 1);
		if (i % 256 == 255)
			run_turn();
	}
	run_turn();
}

/* From as many addresses, none of which has a cookie. */
static void send_routes(uint64_t *id, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		pipeline_host = (uint8_t)(10 + i % 240);
		pipeline_net = (uint8_t)(i / 240);
		peers_route_send(PEER_CLIENT, ++*id, 0, "body");
		if (i % 1024 == 1023)
			run_turn();
	}
	pipeline_host = 2;
	pipeline_net = 0;
	run_turn();
}

static void open_sessions(uint64_t *id, uint32_t n)
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

/*
 * Fragments of messages that never become complete, from every address: up to the bound and beyond.
 */
static void send_pieces(uint32_t n)
{
	uint8_t f[sizeof(struct kvr_wire_hdr) + 512] = {0};

	for (uint32_t i = 0; i < n; i++) {
		const struct kvr_wire_ids ids = {.source = 666, .id = 1 + i / 8, .epoch = 1};

		pipeline_host = (uint8_t)(10 + i / 8 % 240);
		pipeline_net = (uint8_t)(i / 8 / 240);
		kvr_hdr_put(f, KVR_ROUTE, &ids, 16 * 512, i % 8 * 512, 512);
		pipeline_send(5000, f, sizeof(f));
		if (i % 1024 == 1023)
			run_turn();
	}
	pipeline_host = 2;
	pipeline_net = 0;
	run_turn();
}

/* Prompts of tokens with long bodies. */
static void send_long_prompts(uint64_t *id, uint32_t tokens, uint32_t body)
{
	pipeline_body_len = body;
	pipeline_route_tokens(++*id, 1, tokens, 0, NULL);
	pipeline_body_len = 4;
	pipeline_flush();
}

static void print_faults(const char *what)
{
	printf("%s: %ld page faults so far; %u slots, %lu wait\n", what, count_faults(),
	       kvr_flight_count(rt->pool[0].requests),
	       (unsigned long)kvr_sched_counters(rt->pool[0].sched)->waiting_now);
}

struct amount {
	uint32_t requests, blocks, opens, pieces, tokens, body;
};

static void join_pool_worker(uint64_t worker, const char *pool, uint32_t ranks, uint32_t from,
			     uint8_t role)
{
	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&(const struct pipeline_worker){.id = worker,
									       .epoch = 1,
									       .pool = pool,
									       .ranks = ranks,
									       .from = from,
									       .role = role}));
}

/* @return page faults while everything is filled. */
static long fill_router(const char *pools, const struct amount *n)
{
	char err[300];
	uint64_t id = 0;
	long n_faults;

	lcore_stack(); /* like lcore_loop() */
	pipeline_mbufs = 20479;
	pipeline_router = ""; /* sources have quotas */
	pipeline_start_with(pools);
	CU_ASSERT_EQUAL_FATAL(start_memory(rt, err, sizeof(err)), 0);
	for (uint32_t i = 0; i < 4; i++)
		join_pool_worker(WORKER + i, "a", 64, PEER_AGENT,
				 pools == pair ? KVR_ROLE_DECODE : 0);
	for (uint32_t i = 0; pools == pair && i < 2; i++)
		join_pool_worker(PREFILL + i, "p", 8, PEER_OTHER, KVR_ROLE_PREFILL);
	all = 0;
	began = threads_used() != NULL ? count_worker_faults() : 0;
	store_event_blocks(n->blocks);
	print_faults("events");
	open_sessions(&id, n->opens);
	print_faults("sessions");
	send_long_prompts(&id, n->tokens, n->body);
	print_faults("long messages");
	send_pieces(n->pieces);
	print_faults("pieces");
	send_routes(&id, n->requests);
	print_faults("requests");
	n_faults = count_faults();
	pipeline_stop();
	return n_faults;
}

static void expect_no_faults(const char *pools)
{
	static const struct amount few = {200, 1000, 10, 100, 4000, 100000},
				   many = {15000, 200000, 1000, 30000, 200000, 1000000},
				   threads = {15000, 64000, 20, 10000, 20000, 100000};
	const long most = FEW * (threads_used() != NULL ? threads_used()->threads : 1);

	CU_ASSERT(fill_router(pools, &few) <= most);
	CU_ASSERT(fill_router(pools, threads_used() != NULL ? &threads : &many) <= most);
}

static void a_packet_lcore_takes_no_page_faults(void)
{
	expect_no_faults(alone);
}

static void a_pair_of_pools_takes_no_page_faults(void)
{
	if (threads_used() == NULL) /* legs are retransmitted while threads take turns */
		expect_no_faults(pair);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(a_packet_lcore_takes_no_page_faults),
		KVR_CASE(a_pair_of_pools_takes_no_page_faults),
		CU_TEST_INFO_NULL,
	};

	/* The second router must not get the memory that the first one has freed. */
	mallopt(M_MMAP_THRESHOLD, 32768);
	pipeline_lcore_turn = measure_turn;
	return kvr_test_run("faults", tests);
}
