/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pools that a router has given back are taken by the next that asks for the same: to clear their
 * memory and to write each object anew took a fourth of the time of short worlds. What is in the
 * objects is what the router before has left there, as in a real one that has run for a while. The
 * linker sends these calls here (meson.build).
 */
#include "pool_reuse.h"

#include <stdlib.h>

#include <rte_lcore.h>
#include <rte_mbuf.h>

#define SPARES 64u

void __real_rte_mempool_free(struct rte_mempool *mp);
void __wrap_rte_mempool_free(struct rte_mempool *mp);

static struct pool_of {
	struct rte_mempool *mp; /* NULL: none */
	struct spare_shape shape;
	bool spare;
	uint64_t given; /* when, of all */
} known[4 * SPARES];

static uint64_t gifts;

static bool same(const struct spare_shape *a, const struct spare_shape *b)
{
	return a->ops == b->ops && a->init == b->init && a->n == b->n && a->size == b->size &&
	       a->cache == b->cache && a->priv == b->priv && a->socket == b->socket;
}

/* In a test, whoever wants a pool of another kind is another router, which may need all memory. */
static void all_go(void)
{
#ifdef SPARE_ALIKE
	for (uint32_t i = 0; i < RTE_DIM(known); i++) {
		if (!known[i].spare)
			continue;
		__real_rte_mempool_free(known[i].mp);
		known[i] = (struct pool_of){0};
	}
#endif
}

struct rte_mempool *spare_take(const struct spare_shape *want)
{
	for (uint32_t i = 0; i < RTE_DIM(known); i++)
		if (known[i].spare && same(&known[i].shape, want)) {
			known[i].spare = false;
			return known[i].mp;
		}
	all_go();
	return NULL;
}

void spare_note(struct rte_mempool *mp, const struct spare_shape *shape)
{
	for (uint32_t i = 0; i < RTE_DIM(known) && mp != NULL; i++)
		if (known[i].mp == NULL) {
			known[i] = (struct pool_of){.mp = mp, .shape = *shape};
			return;
		}
}

/* At most SPARES wait: whoever waits longest goes. */
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
		for (unsigned int lcore = 0; lcore < RTE_MAX_LCORE; lcore++) /* all have ended */
			rte_mempool_cache_flush(rte_mempool_default_cache(mp, lcore), mp);
		if (!rte_mempool_full(mp)) { /* buffers that are never given back: not again */
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
