/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a scheduler: the part that grows with the ranks, and the part that does not. */
#include "kvr_sched.h"
#include "kvr_test.h"

#include <stdlib.h>
#include <string.h>

#define RANK_BYTES  810u		/* 48 of them for the failure ratio (12.3) */
#define BLOCK_BYTES 12u			/* of max_active_blocks */
#define OTHER_BYTES (UINT64_C(1) << 20) /* classes, adapters, taints, 64 requests */

static void *count_bytes(void *arg, size_t bytes)
{
	*(uint64_t *)arg += bytes;
	return calloc(1, bytes);
}

static void free_part(void *arg, void *part)
{
	(void)arg;
	free(part);
}

static uint64_t sched_bytes(uint32_t max_ranks, uint32_t max_active_blocks)
{
	uint64_t bytes = 0;
	const struct kvr_sched_ops ops = {
		.arg = &bytes, .alloc = count_bytes, .release = free_part};
	struct kvr_pool_conf conf;
	struct kvr_sched *sched;

	kvr_pool_conf_defaults(&conf);
	strcpy(conf.name, "t");
	conf.block_size = 16;
	conf.max_ranks = max_ranks;
	conf.max_workers = 64;
	conf.max_requests = 64;
	conf.max_active_blocks = max_active_blocks;
	sched = kvr_sched_create(&conf, &ops, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(sched);
	kvr_sched_destroy(sched);
	return bytes;
}

static void a_rank_takes_at_most_810_bytes(void)
{
	const uint64_t bytes = (sched_bytes(2048, 64) - sched_bytes(1024, 64)) / 1024;

	CU_ASSERT_TRUE(bytes <= RANK_BYTES);
	CU_ASSERT_TRUE(bytes >= RANK_BYTES - 16); /* lower the limit with the memory */
}

/* The default of max_active_blocks takes 44 MiB of a pool, however few ranks the pool has. */
static void active_blocks_take_most_of_a_small_pool(void)
{
	const uint32_t blocks = 1u << 22;
	const uint64_t small = sched_bytes(64, 64), large = sched_bytes(64, blocks);

	CU_ASSERT_TRUE(small <= OTHER_BYTES);
	CU_ASSERT_TRUE(large - small <= BLOCK_BYTES * (uint64_t)blocks);
	CU_ASSERT_TRUE(large - small >= (BLOCK_BYTES - 2) * (uint64_t)blocks);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_rank_takes_at_most_810_bytes),
			       KVR_CASE(active_blocks_take_most_of_a_small_pool),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("sched_memory", tests);
}
