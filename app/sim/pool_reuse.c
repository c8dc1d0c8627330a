/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory pools that a router has freed are reused by the next request for an equal pool. Clearing
 * the memory and initialising each object took a quarter of the time of short worlds. Objects keep
 * the content of their last use, as in a router that has run for a while. The linker redirects
 * these calls here (meson.build).
 */
#include "pool_reuse.h"

#include <stdlib.h>

#include <rte_lcore.h>
#include <rte_mbuf.h>

#define SPARES 64u

void __real_rte_mempool_free(struct rte_mempool *mp);
void __wrap_rte_mempool_free(struct rte_mempool *mp);

static struct pool_of {
	struct rte_mempool *mp; /* NULL: unused entry */
	struct pool_shape shape;
	bool spare;
	uint64_t given; /* order in which pools were freed */
} known[4 * SPARES];

static uint64_t gifts;

static bool same_shape(const struct pool_shape *a, const struct pool_shape *b)
{
	return a->ops == b->ops && a->init == b->init && a->n == b->n && a->size == b->size &&
	       a->cache == b->cache && a->priv == b->priv && a->socket == b->socket;
}

/* A request for a different pool comes from another router, which may need all memory. For tests.
 */
static void all_go(void)
{
#ifdef REUSE_SIMILAR
	for (uint32_t i = 0; i < RTE_DIM(known); i++) {
		if (!known[i].spare)
			continue;
		__real_rte_mempool_free(known[i].mp);
		known[i] = (struct pool_of){0};
	}
#endif
}

struct rte_mempool *pool_reuse_take(const struct pool_shape *want)
{
	for (uint32_t i = 0; i < RTE_DIM(known); i++)
		if (known[i].spare && same_shape(&known[i].shape, want)) {
			known[i].spare = false;
			return known[i].mp;
		}
	all_go();
	return NULL;
}

void pool_reuse_note(struct rte_mempool *mp, const struct pool_shape *shape)
{
	for (uint32_t i = 0; i < RTE_DIM(known) && mp != NULL; i++)
		if (known[i].mp == NULL) {
			known[i] = (struct pool_of){.mp = mp, .shape = *shape};
			return;
		}
}

/* Keep at most SPARES pools: free the one that was freed first. */
static void make_room(void)
{
	struct pool_of *oldest = NULL;
	uint32_t n = 0;

	for (uint32_t i = 0; i < RTE_DIM(known); i++) {
		if (!known[i].spare)
			continue;
		n++;
		if (oldest == NULL || known[i].given < oldest->given)
			oldest = &known[i];
	}
	if (n <= SPARES)
		return;
	__real_rte_mempool_free(oldest->mp);
	*oldest = (struct pool_of){0};
}

void __wrap_rte_mempool_free(struct rte_mempool *mp)
{
	for (uint32_t i = 0; i < RTE_DIM(known) && mp != NULL; i++) {
		if (known[i].mp != mp)
			continue;
		for (unsigned int lcore = 0; lcore < RTE_MAX_LCORE;
		     lcore++) /* all threads have ended */
			rte_mempool_cache_flush(rte_mempool_default_cache(mp, lcore), mp);
		if (!rte_mempool_full(mp)) { /* buffers are missing: not reusable */
			known[i] = (struct pool_of){0};
			break;
		}
		known[i].spare = true;
		known[i].given = ++gifts;
		make_room();
		return;
	}
	__real_rte_mempool_free(mp);
}
