/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory that --check reports for a configuration, compared with that of a started router. */
#include "pipeline.h"

#include <stdio.h>
#include <string.h>

#include <malloc.h>
#include <rte_malloc.h>
#include <rte_memory.h>

#include "config/config.h"
#include "kvr_test.h"

#define MIB 1048576
/* The other end of the device: 16,383 buffers of one page each, and rings. */
#define PEERS (16383 * UINT64_C(4096) + (16384 + 8192 + 16384) * sizeof(void *))

/* Bytes of the EAL's heap in use. */
static uint64_t read_heap(void)
{
	struct rte_malloc_socket_stats s;

	CU_ASSERT_EQUAL_FATAL(rte_malloc_get_socket_stats(0, &s), 0);
	return s.heap_allocsz_bytes;
}

/* Resident bytes of this process. */
static uint64_t read_resident(void)
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

/* Touch the EAL's memory, so that it is resident before the measurement. */
static int touch_segment(const struct rte_memseg_list *msl, const struct rte_memseg *ms, size_t len,
			 void *arg)
{
	for (size_t at = 0; at < len; at += 4096)
		*((volatile char *)ms->addr + at) += 0;
	return 0;
}

static void expect_near(const char *what, uint64_t reported, uint64_t used)
{
	/* The overhead of malloc() differs by 1.7 MiB with the way the same program was started. */
	const uint64_t off = used / 100 + 4 * MIB;

	printf("%s: reported %.1f MiB, used %.1f MiB\n", what, (double)reported / MIB,
	       (double)used / MIB);
	CU_ASSERT(reported <= used + off);
	CU_ASSERT(reported + off >= used);
}

/* Once: memory that the EAL and the first start keep does not belong to the configuration. */
static void start_once(void)
{
	static bool begun;

	if (begun)
		return;
	begun = true;
	pipeline_start(1);
	pipeline_stop();
	rte_memseg_contig_walk(touch_segment, NULL);
}

static void check_configuration(const char *pools)
{
	struct kvr_router_memory m;
	uint64_t heap_before, resident_before;

	start_once();
	heap_before = read_heap();
	malloc_trim(0); /* returns the memory of the case before */
	resident_before = read_resident();
	pipeline_start_with(pools);
	CU_ASSERT_EQUAL_FATAL(kvr_router_conf_memory(&rt->conf, false, &m), 0);
	expect_near("heap", m.heap, read_heap() - heap_before - PEERS);
	expect_near("beside it", m.tables + m.apart, read_resident() - resident_before);
	pipeline_stop();
}

static void a_small_pool(void)
{
	check_configuration("[pool a]\nid = 5\n" PIPELINE_POOL);
}

static void many_requests_and_ranks(void)
{
	check_configuration(
		"[pool a]\nid = 5\nmax_ranks = 1024\nmax_requests = 120000\nmax_jobs = 500\n"
		"max_blocks = 64k\nmax_active_blocks = 1048576\n");
}

static void many_blocks(void)
{
	check_configuration(
		"[pool a]\nid = 5\nmax_ranks = 256\nmax_requests = 512\nmax_jobs = 128\n"
		"max_blocks = 4M\nmax_active_blocks = 65536\n");
}

static void many_sessions(void)
{
	check_configuration("[pool a]\nid = 5\n" PIPELINE_POOL "max_sessions = 500000\n");
}

static void a_pair(void)
{
	check_configuration("[pool a]\nid = 5\nrole = decode\n" PIPELINE_POOL
			    "[pool p]\nid = 6\nmodel = a\nrole = prefill\n" PIPELINE_POOL);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_small_pool), KVR_CASE(many_requests_and_ranks),
			       KVR_CASE(many_blocks),  KVR_CASE(many_sessions),
			       KVR_CASE(a_pair),       CU_TEST_INFO_NULL};

	return kvr_test_run("memory", tests);
}
