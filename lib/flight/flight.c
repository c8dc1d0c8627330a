/* SPDX-License-Identifier: BSD-3-Clause */
#include "flight_pvt.h"
#include "kvr_flight.h"

#include "kvr_rand.h"

#include <rte_common.h>
#include <rte_malloc.h>

_Static_assert(KVR_FLIGHT_MAX_SLOTS == 1u << 24, "slot numbers fill 24 bits of a handle");

static const struct kvr_counter counters[] = {KVR_FLIGHT_COUNTER_LIST(KVR_COUNTER_ROW)
						      KVR_COUNTER_END};
static const struct kvr_equation equations[] = {
	{KVR_TERMS(KVR_FLIGHT_C_TAKEN), KVR_TERMS(KVR_FLIGHT_C_GIVEN, KVR_FLIGHT_C_USED)},
	{0},
};
const struct kvr_stats_def kvr_flight_stats_def = {"flight", counters, equations};

/* Fingerprints: four for every slot, at least 2^16, so that a name outlives many slot reuses. */
static uint32_t ended_bits(uint32_t n)
{
	uint32_t bits = 16;

	while (bits < 24 && (UINT64_C(1) << bits) < (uint64_t)n * 4)
		bits++;
	return bits;
}

static uint32_t index_cells(uint32_t n)
{
	return rte_align32pow2(2 * n);
}

size_t kvr_flight_bytes(uint32_t n)
{
	const struct kvr_flight_table *t = NULL;

	return sizeof(*t) + n * (sizeof(*t->slots) + sizeof(*t->free)) +
	       index_cells(n) * sizeof(*t->index) + (sizeof(*t->ended) << ended_bits(n));
}

struct kvr_flight_table *kvr_flight_create(const char *name, uint32_t n, uint32_t pool,
					   uint64_t seed, int socket_id)
{
	struct kvr_flight_table *t;
	struct kvr_rand rand;

	if (n == 0 || n > KVR_FLIGHT_MAX_SLOTS || pool >= KVR_FLIGHT_MAX_POOLS)
		return kvr_null(EINVAL);
	t = rte_zmalloc_socket(name, sizeof(*t), RTE_CACHE_LINE_SIZE, socket_id);
	if (t == NULL)
		return kvr_null(ENOMEM);
	t->n = n;
	t->pool = pool;
	t->seed[0] = seed;
	t->seed[1] = kvr_mix64(seed + 1);
	t->ended_shift = 64 - ended_bits(n);
	TAILQ_INIT(&t->lingering);
	t->slots = rte_zmalloc_socket(name, n * sizeof(*t->slots), RTE_CACHE_LINE_SIZE, socket_id);
	t->free = rte_zmalloc_socket(name, n * sizeof(*t->free), RTE_CACHE_LINE_SIZE, socket_id);
	t->ended = rte_zmalloc_socket(name, sizeof(*t->ended) << ended_bits(n), RTE_CACHE_LINE_SIZE,
				      socket_id);
	t->index = rte_zmalloc_socket(name, index_cells(n) * sizeof(*t->index), RTE_CACHE_LINE_SIZE,
				      socket_id);
	if (t->slots == NULL || t->free == NULL || t->ended == NULL || t->index == NULL) {
		kvr_flight_destroy(t);
		return kvr_null(ENOMEM);
	}
	t->mask = index_cells(n) - 1;
	/* Handles of an earlier life of this process must not fit: generations start at random. */
	kvr_rand_init(&rand, seed ^ UINT64_C(0x6b76725f72657175));
	for (uint32_t i = 0; i < n; i++) {
		t->slots[i].slot = i;
		atomic_init(&t->slots[i].gen, (uint32_t)kvr_rand_u64(&rand) & ~1u);
		t->free[n - 1 - i] = i;
	}
	t->n_free = n;
	kvr_cell_set(&t->st.all, n);
	return t;
}

void kvr_flight_destroy(struct kvr_flight_table *t)
{
	if (t == NULL)
		return;
	rte_free(t->index);
	rte_free(t->ended);
	rte_free(t->free);
	rte_free(t->slots);
	rte_free(t);
}
