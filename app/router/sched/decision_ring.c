/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of the ring of decisions: start and stop. */
#include "sched/decision_ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_random.h>

uint64_t decision_ring_bytes(uint32_t n)
{
	return (uint64_t)rte_align32pow2(n) *
	       (sizeof(struct decision_line) + 2 * sizeof(_Atomic uint32_t));
}

int decision_ring_init(struct decision_ring *ring, uint32_t n)
{
	memset(ring, 0, sizeof(*ring));
	if (n == 0)
		return 0;
	ring->line = aligned_alloc(RTE_CACHE_LINE_SIZE,
				   RTE_ALIGN_CEIL(decision_ring_bytes(n), RTE_CACHE_LINE_SIZE));
	if (ring->line == NULL)
		return -ENOMEM;
	memset(ring->line, 0,
	       decision_ring_bytes(n)); /* a packet lcore must not take page faults on it */
	ring->mask = rte_align32pow2(n) - 1;
	ring->newest = (_Atomic uint32_t *)(ring->line + ring->mask + 1);
	ring->older = ring->newest + ring->mask + 1;
	ring->seed = rte_rand();
	return 0;
}

void decision_ring_fini(struct decision_ring *ring)
{
	free(ring->line);
}
