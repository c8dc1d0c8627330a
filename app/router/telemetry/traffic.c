/* SPDX-License-Identifier: BSD-3-Clause */
/* The last steps of the start: populate memory, then run the packet lcores. */
#include "start/start.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#include <rte_launch.h>
#include <rte_memory.h>

#include "loop/loop.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#define SLICE (UINT64_C(16) << 20) /* between checks for signals: a few ms */

/* Populate a part of the EAL's memory. @return 1: the router stops. */
static int populate_memory(const struct rte_memseg_list *msl, const struct rte_memseg *ms,
			   size_t len, void *arg)
{
	struct router *rt = arg;

	RTE_SET_USED(msl);
	for (size_t at = 0; at < len; at += SLICE) {
		uint8_t *p = (uint8_t *)ms->addr + at;
		const size_t n = RTE_MIN(len - at, SLICE);

		if (atomic_load_explicit(&rt->quit, memory_order_relaxed))
			return 1;
		/* Kernels before 5.14 lack the advice: touch the pages without changing them. */
		if (madvise(p, n, MADV_POPULATE_WRITE) == 0)
			continue;
		for (size_t i = 0; i < n; i += 4096)
			/* Guards no other data; a driver may write to the page at the same time. */
			atomic_fetch_or_explicit((_Atomic uint8_t *)(p + i), 0,
						 memory_order_relaxed);
	}
	return 0;
}

int start_memory(struct router *rt, char *err, size_t errlen)
{
	RTE_SET_USED(err);
	RTE_SET_USED(errlen);
	/* Without huge pages, memory is populated by page faults, which packet lcores must not
	 * take. */
	rte_memseg_contig_walk(populate_memory, rt);
	return 0;
}

void stop_memory(struct router *rt)
{
	RTE_SET_USED(rt);
}

int start_traffic(struct router *rt, char *err, size_t errlen)
{
	atomic_store_explicit(&rt->running, 1, memory_order_relaxed);
	for (uint32_t i = 0; i < rt->n_lcores; i++)
		if (rte_eal_remote_launch(lcore_loop, rt->lcore[i], EAL_LCORE(i)) != 0) {
			snprintf(err, errlen, "cannot launch polling lcore %u", i);
			stop_traffic(rt);
			return -EBUSY;
		}
	return 0;
}

void stop_traffic(struct router *rt)
{
	atomic_store_explicit(&rt->stop, 1, memory_order_relaxed);
	rte_eal_mp_wait_lcore();
	atomic_store_explicit(&rt->running, 0, memory_order_relaxed);
}
