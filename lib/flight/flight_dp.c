/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Slots, names and handles of requests in flight. Scheduler calls change the index and the slots;
 * ingress lcores read a slot under its generation, like readers of a sequence lock. R0, R1, H0 and
 * H1 name the pairs of atomic operations.
 */

#include "flight_pvt.h"
#include "kvr_flight.h"

#include <stddef.h>

#include <errno.h>
#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_prefetch.h>

struct kvr_flight_key {
	uint64_t source;
	uint64_t id;
};

static inline uint64_t fold_product(uint64_t a, uint64_t b)
{
	const unsigned __int128 p = (unsigned __int128)a * b;

	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* Two folded products, the first with two secrets. Computed four times per request. */
static uint64_t name_hash(const struct kvr_flight_table *table, const struct kvr_flight_key *key)
{
	return fold_product(fold_product(key->source ^ table->seed[0], key->id ^ table->seed[1]) ^
				    table->seed[1],
			    UINT64_C(0x9E3779B97F4A7C15));
}

/* ---- index: see struct cell ---- */

static struct kvr_flight *index_find(const struct kvr_flight_table *table, uint64_t name,
				     const struct kvr_flight_key *key)
{
	for (uint32_t i = (uint32_t)name & table->mask; table->index[i].slot != 0;
	     i = (i + 1) & table->mask) {
		struct kvr_flight *flight = &table->slots[table->index[i].slot - 1];

		if (table->index[i].name == (uint32_t)name && flight->relay.source == key->source &&
		    flight->relay.id == key->id)
			return flight;
	}
	return NULL;
}

/* There is always a free cell: the index has more cells than slots. */
static void index_add(struct kvr_flight_table *table, uint64_t name, uint32_t slot)
{
	uint32_t i = (uint32_t)name & table->mask;

	while (table->index[i].slot != 0)
		i = (i + 1) & table->mask;
	table->index[i] = (struct cell){(uint32_t)name, slot + 1};
}

static void index_del(struct kvr_flight_table *table, uint64_t name, uint32_t slot)
{
	uint32_t i = (uint32_t)name & table->mask, gap;

	while (table->index[i].slot != slot + 1)
		i = (i + 1) & table->mask;
	for (gap = i; table->index[i = (i + 1) & table->mask].slot != 0;) {
		/* It may move to the gap unless its home is after it. */
		if (((i - table->index[i].name) & table->mask) < ((i - gap) & table->mask))
			continue;
		table->index[gap] = table->index[i];
		gap = i;
	}
	table->index[gap].slot = 0;
}

/* ---- names ---- */

struct kvr_flight *kvr_flight_lookup(struct kvr_flight_table *table, uint64_t source, uint64_t id)
{
	const struct kvr_flight_key key = {source, id};

	return index_find(table, name_hash(table, &key), &key);
}

void kvr_flight_prefetch_name(const struct kvr_flight_table *table, uint64_t source, uint64_t id)
{
	const struct kvr_flight_key key = {source, id};
	const uint64_t h = name_hash(table, &key);

	rte_prefetch0(&table->index[h & table->mask]);
	rte_prefetch0(&table->ended[h >> table->ended_shift]);
}

bool kvr_flight_has_ended(const struct kvr_flight_table *table, uint64_t source, uint64_t id,
			  struct kvr_flight_end *end)
{
	const struct kvr_flight_key key = {source, id};
	const uint64_t h = name_hash(table, &key);
	const struct ended *ended = &table->ended[h >> table->ended_shift];

	if (likely(ended->name != (h | 1)))
		return false;
	if (end != NULL)
		*end = (struct kvr_flight_end){.code = (uint16_t)ended->how,
					       .retry = (uint8_t)(ended->how >> 16),
					       .detail = {ended->how >> 24}};
	return true;
}

static void add_ended(struct kvr_flight_table *table, const struct kvr_flight *flight)
{
	const struct kvr_flight_end *end = &flight->end;

	table->ended[flight->name >> table->ended_shift] = (struct ended){
		flight->name | 1,
		!flight->rejected ? 0
				  : end->detail[0] << 24 | (uint64_t)end->retry << 16 | end->code};
}

/* Take the next free slot, cleared, with this name but not in the index. */
static struct kvr_flight *slot_take(struct kvr_flight_table *table, uint64_t source, uint64_t id)
{
	struct kvr_flight *flight = &table->slots[table->free[table->n_free - 1]];

	table->n_free--;
	kvr_cell_add(&table->st.taken, 1);
	kvr_cell_add(&table->st.used, 1);
	memset(&flight->relay, 0, sizeof(flight->relay));
	memset(&flight->state, 0,
	       offsetof(struct kvr_flight, abort_ns) - offsetof(struct kvr_flight, state));
	flight->abort_ns =
		0; /* the other fields are read only while in a list or after a rejection */
	atomic_store_explicit(&flight->relay_mode, KVR_FLIGHT_PASS, memory_order_relaxed);
	flight->state = KVR_FLIGHT_LIVE;
	flight->relay.source = source;
	flight->relay.id = id;
	return flight;
}

struct kvr_flight *kvr_flight_alloc(struct kvr_flight_table *table, uint64_t source, uint64_t id)
{
	const struct kvr_flight_key key = {source, id};
	struct kvr_flight *flight;

	if (table->n_free == 0)
		return kvr_null(ENOSPC);
	flight = slot_take(table, source, id);
	flight->name = name_hash(table, &key);
	index_add(table, flight->name, flight->slot);
	return flight;
}

struct kvr_flight *kvr_flight_alloc_unnamed(struct kvr_flight_table *table, uint64_t source,
					    uint64_t id)
{
	struct kvr_flight *flight;

	if (table->n_free == 0)
		return kvr_null(ENOSPC);
	flight = slot_take(table, source, id);
	flight->unnamed = 1;
	return flight;
}

void kvr_flight_unname(struct kvr_flight_table *table, struct kvr_flight *flight)
{
	if (!flight->unnamed)
		index_del(table, flight->name, flight->slot);
	flight->unnamed = 1;
}

/*
 * The generation is even while `relay` changes and odd while it may be read; no odd value is used
 * twice. The release store pairs with the acquire load (R0) in kvr_flight_relay(). The fence in
 * kvr_flight_renew_handle() keeps later writes of `relay` after the even value, and pairs with the
 * acquire fence R1 there.
 */
void kvr_flight_publish(struct kvr_flight *flight)
{
	uint32_t gen = atomic_load_explicit(&flight->gen, memory_order_relaxed);

	atomic_store_explicit(&flight->gen, gen | 1, memory_order_release);
}

/* Next hop to the client: the last word of its path. */
#define HOP offsetof(struct kvr_path, mac)
_Static_assert(sizeof(struct kvr_path) - HOP == sizeof(uint64_t) &&
		       (offsetof(struct kvr_flight, relay.client) + HOP) % sizeof(uint64_t) == 0,
	       "the next hop is one word");

static _Atomic uint64_t *hop_of(struct kvr_flight *flight)
{
	return (void *)&flight->relay.client.mac;
}

void kvr_flight_set_client(struct kvr_flight *flight, const struct kvr_path *client)
{
	uint64_t hop;

	memcpy(&flight->relay.client, client, HOP);
	memcpy(&hop, (const uint8_t *)client + HOP, sizeof(hop));
	/*
	 * Publishes nothing; kvr_flight_publish() does. A reader of the previous use of the slot
	 * may still load the word in copy_relay(), and then sees another generation.
	 */
	atomic_store_explicit(hop_of(flight), hop, memory_order_relaxed);
}

void kvr_flight_set_next_hop(struct kvr_flight *flight, const uint8_t mac[6])
{
	uint64_t hop = atomic_load_explicit(hop_of(flight), memory_order_relaxed);

	memcpy(&hop, mac, sizeof(flight->relay.client.mac));
	/*
	 * Publishes nothing; pairs with the load in copy_relay(), which gets the old or the new
	 * hop.
	 */
	atomic_store_explicit(hop_of(flight), hop, memory_order_relaxed);
}

static void copy_relay(struct kvr_relay *out, struct kvr_flight *flight)
{
	const size_t rest = HOP + sizeof(uint64_t);
	const uint64_t hop = atomic_load_explicit(hop_of(flight), memory_order_relaxed);

	memcpy(out, &flight->relay, HOP);
	memcpy((uint8_t *)out + HOP, &hop, sizeof(hop));
	memcpy((uint8_t *)out + rest, (const uint8_t *)&flight->relay + rest, sizeof(*out) - rest);
}

void kvr_flight_renew_handle(struct kvr_flight *flight)
{
	uint32_t gen = atomic_load_explicit(&flight->gen, memory_order_relaxed);

	atomic_store_explicit(&flight->gen, (gen & ~1u) + 2, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
}

void kvr_flight_end(struct kvr_flight_table *table, struct kvr_flight *flight, uint64_t now_ns)
{
	if (flight->state == KVR_FLIGHT_ENDED)
		return;
	flight->state = KVR_FLIGHT_ENDED;
	flight->end_ns = now_ns + KVR_FLIGHT_LINGER_NS;
	TAILQ_INSERT_TAIL(&table->lingering, flight, link);
	kvr_cell_add(&table->st.lingering, 1);
}

void kvr_flight_release(struct kvr_flight_table *table, struct kvr_flight *flight)
{
	if (flight->state == KVR_FLIGHT_ENDED) {
		TAILQ_REMOVE(&table->lingering, flight, link);
		kvr_cell_sub(&table->st.lingering, 1);
		if (!flight->unnamed)
			add_ended(table, flight);
	}
	kvr_flight_renew_handle(
		flight); /* no frame is relayed for the slot until it is published again */
	if (!flight->unnamed)
		index_del(table, flight->name, flight->slot);
	flight->state = KVR_FLIGHT_FREE;
	table->free[table->n_free++] = flight->slot;
	kvr_cell_add(&table->st.given, 1);
	kvr_cell_sub(&table->st.used, 1);
}

struct kvr_flight *kvr_flight_lingered(struct kvr_flight_table *table, uint64_t now_ns)
{
	struct kvr_flight *flight = TAILQ_FIRST(&table->lingering);

	return flight != NULL && flight->end_ns <= now_ns ? flight : NULL;
}

struct kvr_flight *kvr_flight_oldest(struct kvr_flight_table *table)
{
	return TAILQ_FIRST(&table->lingering);
}

uint64_t kvr_flight_handle(const struct kvr_flight_table *table, const struct kvr_flight *flight)
{
	uint32_t gen = atomic_load_explicit(&flight->gen, memory_order_relaxed) | 1u;

	return (uint64_t)gen << 32 | (uint64_t)table->pool << 24 | flight->slot;
}

struct kvr_flight *kvr_flight_by_handle(struct kvr_flight_table *table, uint64_t handle)
{
	uint32_t slot = (uint32_t)handle & (KVR_FLIGHT_MAX_SLOTS - 1);
	struct kvr_flight *flight;

	if (slot >= table->n || kvr_flight_handle_pool(handle) != table->pool)
		return NULL;
	flight = &table->slots[slot];
	/* Pool and slot match; the generation remains to be compared. */
	if (flight->state == KVR_FLIGHT_FREE ||
	    (atomic_load_explicit(&flight->gen, memory_order_relaxed) | 1u) !=
		    (uint32_t)(handle >> 32))
		return NULL;
	return flight;
}

struct kvr_flight *kvr_flight_relay(struct kvr_flight_table *table, uint64_t handle,
				    struct kvr_relay *out)
{
	const uint32_t slot = (uint32_t)handle & (KVR_FLIGHT_MAX_SLOTS - 1);
	const uint32_t gen = (uint32_t)(handle >> 32);
	struct kvr_flight *flight;

	if (unlikely(slot >= table->n || (gen & 1) == 0 ||
		     kvr_flight_handle_pool(handle) != table->pool))
		return NULL;
	flight = &table->slots[slot];
	/* R0: pairs with the release store in kvr_flight_publish(). */
	if (atomic_load_explicit(&flight->gen, memory_order_acquire) != gen)
		return NULL;
	copy_relay(out, flight);
	/* R1: completes the copy before the generation is loaded again. */
	atomic_thread_fence(memory_order_acquire);
	if (unlikely(atomic_load_explicit(&flight->gen, memory_order_relaxed) != gen))
		return NULL;
	return flight;
}

void kvr_flight_prefetch_relay(const struct kvr_flight_table *table, uint64_t handle)
{
	const uint32_t slot = (uint32_t)handle & (KVR_FLIGHT_MAX_SLOTS - 1);

	/* Generation and relay part: the first 128 bytes. */
	if (slot < table->n) {
		rte_prefetch0(&table->slots[slot]);
		rte_prefetch0((const uint8_t *)&table->slots[slot] + RTE_CACHE_LINE_SIZE);
		rte_prefetch0(&table->slots[slot].seen);
	}
}

void kvr_flight_prefetch(const struct kvr_flight_table *table, uint64_t handle)
{
	const uint32_t slot = (uint32_t)handle & (KVR_FLIGHT_MAX_SLOTS - 1);

	if (slot < table->n) {
		rte_prefetch0(&table->slots[slot]);
		rte_prefetch0(&table->slots[slot].state);
	}
}

void kvr_flight_stats_get(const struct kvr_flight_table *table, struct kvr_flight_stats *out)
{
	kvr_stats_row_copy(&out->taken, &table->st.taken, KVR_FLIGHT_COUNTERS);
}

uint32_t kvr_flight_count(const struct kvr_flight_table *table)
{
	return (uint32_t)kvr_cell_get(&table->st.used);
}

uint32_t kvr_flight_lingering(const struct kvr_flight_table *table)
{
	return (uint32_t)kvr_cell_get(&table->st.lingering);
}

uint32_t kvr_flight_size(const struct kvr_flight_table *table)
{
	return table->n;
}

struct kvr_flight *kvr_flight_slot(struct kvr_flight_table *table, uint32_t slot)
{
	return slot < table->n ? &table->slots[slot] : NULL;
}
