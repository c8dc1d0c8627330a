/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pools of packet buffers that a router has given back are taken by the next that asks for the
 * same: to clear their memory and to write each buffer anew took a fourth of the time of short
 * worlds. What is in the buffers is what the router before has left there, as in a real one that
 * has run for a while. The linker sends these calls here (meson.build).
 */
#include "spare.h"

#include <stdlib.h>

#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#define SPARES 8u

void __real_rte_mempool_free(struct rte_mempool *mp);
void __wrap_rte_mempool_free(struct rte_mempool *mp);

/* What a pool was made with. */
struct shape {
	unsigned int n, cache;
	uint16_t priv, room;
	int socket;
};

static struct pool_of {
	struct rte_mempool *mp; /* NULL: none */
	struct shape shape;
	bool spare;
	uint64_t given; /* when, of all */
} known[4 * SPARES];

static uint64_t gifts;

static bool same(const struct shape *a, const struct shape *b)
{
	return a->n == b->n && a->cache == b->cache && a->priv == b->priv && a->room == b->room &&
	       a->socket == b->socket;
}

struct rte_mempool *spare_take(unsigned int n, unsigned int cache, uint16_t priv, uint16_t room,
			       int socket)
{
	const struct shape want = {n, cache, priv, room, socket};

	for (uint32_t i = 0; i < RTE_DIM(known); i++)
		if (known[i].spare && same(&known[i].shape, &want)) {
			known[i].spare = false;
			return known[i].mp;
		}
	return NULL;
}

void spare_note(struct rte_mempool *mp, unsigned int n, unsigned int cache, uint16_t priv,
		uint16_t room, int socket)
{
	for (uint32_t i = 0; i < RTE_DIM(known) && mp != NULL; i++)
		if (known[i].mp == NULL) {
			known[i] =
				(struct pool_of){.mp = mp, .shape = {n, cache, priv, room, socket}};
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
		rte_mempool_cache_flush(rte_mempool_default_cache(mp, rte_lcore_id()), mp);
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
