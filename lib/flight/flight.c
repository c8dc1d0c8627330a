/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Creation and destruction of the table of requests in flight; flight_pvt.h and kvr_flight.h
 * describe the structure.
 */

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

/* Fingerprints: four per slot, at least 2^16, so that a name outlives many reuses of its slot. */
static uint32_t fingerprint_bits(uint32_t n)
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
	const struct kvr_flight_table *table = NULL;

	return sizeof(*table) + n * (sizeof(*table->slots) + sizeof(*table->free)) +
	       index_cells(n) * sizeof(*table->index) +
	       (sizeof(*table->ended) << fingerprint_bits(n));
}

struct kvr_flight_table *kvr_flight_create(const char *name, uint32_t n, uint32_t pool,
					   uint64_t seed, int socket_id)
{
	struct kvr_flight_table *table;
	struct kvr_rand rand;

	if (n == 0 || n > KVR_FLIGHT_MAX_SLOTS || pool >= KVR_FLIGHT_MAX_POOLS)
		return kvr_null(EINVAL);
	table = rte_zmalloc_socket(name, sizeof(*table), RTE_CACHE_LINE_SIZE, socket_id);
	if (table == NULL)
		return kvr_null(ENOMEM);
	table->n = n;
	table->pool = pool;
	table->seed[0] = seed;
	table->seed[1] = kvr_mix64(seed + 1);
	table->ended_shift = 64 - fingerprint_bits(n);
	TAILQ_INIT(&table->lingering);
	table->slots =
		rte_zmalloc_socket(name, n * sizeof(*table->slots), RTE_CACHE_LINE_SIZE, socket_id);
	table->free =
		rte_zmalloc_socket(name, n * sizeof(*table->free), RTE_CACHE_LINE_SIZE, socket_id);
	table->ended = rte_zmalloc_socket(name, sizeof(*table->ended) << fingerprint_bits(n),
					  RTE_CACHE_LINE_SIZE, socket_id);
	table->index = rte_zmalloc_socket(name, index_cells(n) * sizeof(*table->index),
					  RTE_CACHE_LINE_SIZE, socket_id);
	if (table->slots == NULL || table->free == NULL || table->ended == NULL ||
	    table->index == NULL) {
		kvr_flight_destroy(table);
		return kvr_null(ENOMEM);
	}
	table->mask = index_cells(n) - 1;
	/*
	 * Generations start at random, so that handles of an earlier incarnation of this process do
	 * not match.
	 */
	kvr_rand_init(&rand, seed ^ UINT64_C(0x6b76725f72657175));
	for (uint32_t i = 0; i < n; i++) {
		table->slots[i].slot = i;
		atomic_init(&table->slots[i].gen, (uint32_t)kvr_rand_u64(&rand) & ~1u);
		table->free[n - 1 - i] = i;
	}
	table->n_free = n;
	kvr_cell_set(&table->st.all, n);
	return table;
}

void kvr_flight_destroy(struct kvr_flight_table *table)
{
	if (table == NULL)
		return;
	rte_free(table->index);
	rte_free(table->ended);
	rte_free(table->free);
	rte_free(table->slots);
	rte_free(table);
}
