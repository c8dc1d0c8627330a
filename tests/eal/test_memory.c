/* SPDX-License-Identifier: BSD-3-Clause */
/* What --check says a configuration takes, beside what a router that has started has taken. */
#include "pipeline.h"

#include <stdio.h>
#include <string.h>

#include <malloc.h>
#include <rte_malloc.h>
#include <rte_memory.h>

#include "kvr_test.h"

#define MIB 1048576
/* The other end of the device: 16,383 buffers, a page each, and rings. */
#define PEERS (16383 * UINT64_C(4096) + (16384 + 8192 + 16384) * sizeof(void *))

/* Bytes of the EAL's heap in use. */
static uint64_t heap(void)
{
	struct rte_malloc_socket_stats s;

	CU_ASSERT_EQUAL_FATAL(rte_malloc_get_socket_stats(0, &s), 0);
	return s.heap_allocsz_bytes;
}

/* Bytes of this process that have their pages. */
static uint64_t resident(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long kb = 0;
	char line[128];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "VmRSS: %lu", &kb) == 1)
			break;
	if (f != NULL)
		fclose(f);
	return (uint64_t)kb << 10;
}

/* The EAL's memory gets its pages, so that they are nobody's afterwards. */
static int touch(const struct rte_memseg_list *msl, const struct rte_memseg *ms, size_t len,
		 void *arg)
{
	for (size_t at = 0; at < len; at += 4096)
		*((volatile char *)ms->addr + at) += 0;
	return 0;
}

static void near(const char *what, uint64_t said, uint64_t taken)
{
	/* What malloc() keeps beside it differs by 1.7 MiB with how the same program was started.
	 */
	const uint64_t off = taken / 100 + 4 * MIB;

	printf("%s: said %.1f MiB, taken %.1f MiB\n", what, (double)said / MIB,
	       (double)taken / MIB);
	CU_ASSERT(said <= taken + off);
	CU_ASSERT(said + off >= taken);
}

/* Once: what the EAL and the first start take for ever is not the configuration's. */
static void begin(void)
{
	static bool begun;

	if (begun)
		return;
	begun = true;
	pipeline_start(1);
	pipeline_stop();
	rte_memseg_contig_walk(touch, NULL);
}

static void one(const char *pools)
{
	struct kvr_router_memory m;
	uint64_t heap_before, resident_before;

	begin();
	heap_before = heap();
	malloc_trim(0); /* what the one before has given back is not there */
	resident_before = resident();
	pipeline_start_with(pools);
	CU_ASSERT_EQUAL_FATAL(kvr_router_conf_memory(&rt->conf, false, &m), 0);
	near("heap", m.heap, heap() - heap_before - PEERS);
	near("beside it", m.tables + m.apart, resident() - resident_before);
	pipeline_stop();
}

static void a_small_pool(void)
{
	one("[pool a]\nid = 5\n" PIPELINE_POOL);
}

static void many_requests_and_ranks(void)
{
	one("[pool a]\nid = 5\nmax_ranks = 1024\nmax_requests = 120000\nmax_jobs = 500\n"
	    "max_blocks = 64k\nmax_active_blocks = 1048576\n");
}

static void many_blocks(void)
{
	one("[pool a]\nid = 5\nmax_ranks = 256\nmax_requests = 512\nmax_jobs = 128\n"
	    "max_blocks = 4M\nmax_active_blocks = 65536\n");
}

static void many_sessions(void)
{
	one("[pool a]\nid = 5\n" PIPELINE_POOL "max_sessions = 500000\n");
}

static void a_pair(void)
{
	one("[pool a]\nid = 5\nrole = decode\n" PIPELINE_POOL
	    "[pool p]\nid = 6\nmodel = a\nrole = prefill\n" PIPELINE_POOL);
}

int main(void)
{
	CU_TestInfo tests[] = {{"small", a_small_pool}, {"requests", many_requests_and_ranks},
			       {"blocks", many_blocks}, {"sessions", many_sessions},
			       {"pair", a_pair},	CU_TEST_INFO_NULL};

	return kvr_test_run("memory", tests);
}
