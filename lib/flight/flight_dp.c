/* SPDX-License-Identifier: BSD-3-Clause */
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

static inline uint64_t folded(uint64_t a, uint64_t b)
{
	const unsigned __int128 p = (unsigned __int128)a * b;

	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* Two folded products, the first under two secrets: four times in the life of a request. */
static uint64_t name_hash(const struct kvr_flight_table *t, const struct kvr_flight_key *k)
{
	return folded(folded(k->source ^ t->seed[0], k->id ^ t->seed[1]) ^ t->seed[1],
		      UINT64_C(0x9E3779B97F4A7C15));
}

/* ---- index: see struct cell ---- */

static struct kvr_flight *index_find(const struct kvr_flight_table *t, uint64_t name,
				     const struct kvr_flight_key *k)
{
	for (uint32_t i = (uint32_t)name & t->mask; t->index[i].slot != 0; i = (i + 1) & t->mask) {
		struct kvr_flight *r = &t->slots[t->index[i].slot - 1];

		if (t->index[i].name == (uint32_t)name && r->relay.source == k->source &&
		    r->relay.id == k->id)
			return r;
	}
	return NULL;
}

/* There is room: fewer slots than cells. */
static void index_add(struct kvr_flight_table *t, uint64_t name, uint32_t slot)
{
	uint32_t i = (uint32_t)name & t->mask;

	while (t->index[i].slot != 0)
		i = (i + 1) & t->mask;
	t->index[i] = (struct cell){(uint32_t)name, slot + 1};
}

static void index_del(struct kvr_flight_table *t, uint64_t name, uint32_t slot)
{
	uint32_t i = (uint32_t)name & t->mask, gap;

	while (t->index[i].slot != slot + 1)
		i = (i + 1) & t->mask;
	for (gap = i; t->index[i = (i + 1) & t->mask].slot != 0;) {
		/* It may move up to the gap unless its own place is behind that. */
		if (((i - t->index[i].name) & t->mask) < ((i - gap) & t->mask))
			continue;
		t->index[gap] = t->index[i];
		gap = i;
	}
	t->index[gap].slot = 0;
}

/* ---- names ---- */

struct kvr_flight *kvr_flight_lookup(struct kvr_flight_table *t, uint64_t source, uint64_t id)
{
	const struct kvr_flight_key k = {source, id};

	return index_find(t, name_hash(t, &k), &k);
}

void kvr_flight_prefetch_name(const struct kvr_flight_table *t, uint64_t source, uint64_t id)
{
	const struct kvr_flight_key k = {source, id};
	const uint64_t h = name_hash(t, &k);

	rte_prefetch0(&t->index[h & t->mask]);
	rte_prefetch0(&t->ended[h >> t->ended_shift]);
}

bool kvr_flight_has_ended(const struct kvr_flight_table *t, uint64_t source, uint64_t id,
			  struct kvr_flight_end *end)
{
	const struct kvr_flight_key k = {source, id};
	const uint64_t h = name_hash(t, &k);
	const struct ended *e = &t->ended[h >> t->ended_shift];

	if (likely(e->name != (h | 1)))
		return false;
	if (end != NULL)
		*end = (struct kvr_flight_end){.code = (uint16_t)e->how,
					       .retry = (uint8_t)(e->how >> 16),
					       .detail = {e->how >> 24}};
	return true;
}

static void remember(struct kvr_flight_table *t, const struct kvr_flight *r)
{
	const struct kvr_flight_end *end = &r->end;

	t->ended[r->name >> t->ended_shift] = (struct ended){
		r->name | 1,
		!r->rejected ? 0 : end->detail[0] << 24 | (uint64_t)end->retry << 16 | end->code};
}

/* The next free slot, cleared, under this name but not in the index. */
static struct kvr_flight *slot_take(struct kvr_flight_table *t, uint64_t source, uint64_t id)
{
	struct kvr_flight *r = &t->slots[t->free[t->n_free - 1]];

	t->n_free--;
	kvr_cell_add(&t->st.taken, 1);
	kvr_cell_add(&t->st.used, 1);
	memset(&r->relay, 0, sizeof(r->relay));
	memset(&r->state, 0,
	       offsetof(struct kvr_flight, abort_ns) - offsetof(struct kvr_flight, state));
	r->abort_ns = 0; /* the rest is read while it is in a list, or when it was refused */
	atomic_store_explicit(&r->relay_mode, KVR_FLIGHT_PASS, memory_order_relaxed);
	r->state = KVR_FLIGHT_LIVE;
	r->relay.source = source;
	r->relay.id = id;
	return r;
}

struct kvr_flight *kvr_flight_alloc(struct kvr_flight_table *t, uint64_t source, uint64_t id)
{
	const struct kvr_flight_key k = {source, id};
	struct kvr_flight *r;

	if (t->n_free == 0)
		return kvr_null(ENOSPC);
	r = slot_take(t, source, id);
	r->name = name_hash(t, &k);
	index_add(t, r->name, r->slot);
	return r;
}

struct kvr_flight *kvr_flight_alloc_unnamed(struct kvr_flight_table *t, uint64_t source,
					    uint64_t id)
{
	struct kvr_flight *r;

	if (t->n_free == 0)
		return kvr_null(ENOSPC);
	r = slot_take(t, source, id);
	r->unnamed = 1;
	return r;
}

void kvr_flight_unname(struct kvr_flight_table *t, struct kvr_flight *r)
{
	if (!r->unnamed)
		index_del(t, r->name, r->slot);
	r->unnamed = 1;
}

/*
 * The generation is even while `relay` changes and odd while it may be read, and no odd value is
 * used twice. The release store pairs with the acquire load (R0) in kvr_flight_relay(); the
 * fence in kvr_flight_renew_handle() keeps later writes of `relay` behind the even value, and pairs
 * with the acquire fence R1 there.
 */
void kvr_flight_publish(struct kvr_flight *r)
{
	uint32_t gen = atomic_load_explicit(&r->gen, memory_order_relaxed);

	atomic_store_explicit(&r->gen, gen | 1, memory_order_release);
}

/* How to reach the client: the last word of its path. */
#define HOP offsetof(struct kvr_path, mac)
_Static_assert(sizeof(struct kvr_path) - HOP == sizeof(uint64_t) &&
		       (offsetof(struct kvr_flight, relay.client) + HOP) % sizeof(uint64_t) == 0,
	       "a word of its own");

static _Atomic uint64_t *hop_of(struct kvr_flight *r)
{
	return (void *)&r->relay.client.mac;
}

void kvr_flight_set_client(struct kvr_flight *r, const struct kvr_path *client)
{
	uint64_t hop;

	memcpy(&r->relay.client, client, HOP);
	memcpy(&hop, (const uint8_t *)client + HOP, sizeof(hop));
	/* Publishes nothing, kvr_flight_publish() does; a reader of the slot's last use may still
	 * load it in copy_relay(), and then sees another generation. */
	atomic_store_explicit(hop_of(r), hop, memory_order_relaxed);
}

void kvr_flight_set_next_hop(struct kvr_flight *r, const uint8_t mac[6])
{
	uint64_t hop = atomic_load_explicit(hop_of(r), memory_order_relaxed);

	memcpy(&hop, mac, sizeof(r->relay.client.mac));
	/* Publishes nothing; pairs with the load in copy_relay(), which sees the one or the other.
	 */
	atomic_store_explicit(hop_of(r), hop, memory_order_relaxed);
}

static void copy_relay(struct kvr_relay *out, struct kvr_flight *r)
{
	const size_t rest = HOP + sizeof(uint64_t);
	const uint64_t hop = atomic_load_explicit(hop_of(r), memory_order_relaxed);

	memcpy(out, &r->relay, HOP);
	memcpy((uint8_t *)out + HOP, &hop, sizeof(hop));
	memcpy((uint8_t *)out + rest, (const uint8_t *)&r->relay + rest, sizeof(*out) - rest);
}

void kvr_flight_renew_handle(struct kvr_flight *r)
{
	uint32_t gen = atomic_load_explicit(&r->gen, memory_order_relaxed);

	atomic_store_explicit(&r->gen, (gen & ~1u) + 2, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
}

void kvr_flight_end(struct kvr_flight_table *t, struct kvr_flight *r, uint64_t now_ns)
{
	if (r->state == KVR_FLIGHT_ENDED)
		return;
	r->state = KVR_FLIGHT_ENDED;
	r->end_ns = now_ns + KVR_FLIGHT_LINGER_NS;
	TAILQ_INSERT_TAIL(&t->lingering, r, link);
	kvr_cell_add(&t->st.lingering, 1);
}

void kvr_flight_release(struct kvr_flight_table *t, struct kvr_flight *r)
{
	if (r->state == KVR_FLIGHT_ENDED) {
		TAILQ_REMOVE(&t->lingering, r, link);
		kvr_cell_sub(&t->st.lingering, 1);
		if (!r->unnamed)
			remember(t, r);
	}
	kvr_flight_renew_handle(r); /* nobody relays for the slot until it is published again */
	if (!r->unnamed)
		index_del(t, r->name, r->slot);
	r->state = KVR_FLIGHT_FREE;
	t->free[t->n_free++] = r->slot;
	kvr_cell_add(&t->st.given, 1);
	kvr_cell_sub(&t->st.used, 1);
}

struct kvr_flight *kvr_flight_lingered(struct kvr_flight_table *t, uint64_t now_ns)
{
	struct kvr_flight *r = TAILQ_FIRST(&t->lingering);

	return r != NULL && r->end_ns <= now_ns ? r : NULL;
}

struct kvr_flight *kvr_flight_oldest(struct kvr_flight_table *t)
{
	return TAILQ_FIRST(&t->lingering);
}

uint64_t kvr_flight_handle(const struct kvr_flight_table *t, const struct kvr_flight *r)
{
	uint32_t gen = atomic_load_explicit(&r->gen, memory_order_relaxed) | 1u;

	return (uint64_t)gen << 32 | (uint64_t)t->pool << 24 | r->slot;
}

struct kvr_flight *kvr_flight_by_handle(struct kvr_flight_table *t, uint64_t handle)
{
	uint32_t slot = (uint32_t)handle & (KVR_FLIGHT_MAX_SLOTS - 1);
	struct kvr_flight *r;

	if (slot >= t->n || kvr_flight_handle_pool(handle) != t->pool)
		return NULL;
	r = &t->slots[slot];
	/* Pool and slot are the handle's: what is left of it is the generation. */
	if (r->state == KVR_FLIGHT_FREE ||
	    (atomic_load_explicit(&r->gen, memory_order_relaxed) | 1u) != (uint32_t)(handle >> 32))
		return NULL;
	return r;
}

struct kvr_flight *kvr_flight_relay(struct kvr_flight_table *t, uint64_t handle,
				    struct kvr_relay *out)
{
	const uint32_t slot = (uint32_t)handle & (KVR_FLIGHT_MAX_SLOTS - 1);
	const uint32_t gen = (uint32_t)(handle >> 32);
	struct kvr_flight *r;

	if (unlikely(slot >= t->n || (gen & 1) == 0 || kvr_flight_handle_pool(handle) != t->pool))
		return NULL;
	r = &t->slots[slot];
	/* R0: pairs with the release store in kvr_flight_publish(). */
	if (atomic_load_explicit(&r->gen, memory_order_acquire) != gen)
		return NULL;
	copy_relay(out, r);
	/* R1: the copy is complete before the generation is looked at again. */
	atomic_thread_fence(memory_order_acquire);
	if (unlikely(atomic_load_explicit(&r->gen, memory_order_relaxed) != gen))
		return NULL;
	return r;
}

void kvr_flight_prefetch_relay(const struct kvr_flight_table *t, uint64_t handle)
{
	const uint32_t slot = (uint32_t)handle & (KVR_FLIGHT_MAX_SLOTS - 1);

	/* Generation and relay part: 128 bytes from the start. */
	if (slot < t->n) {
		rte_prefetch0(&t->slots[slot]);
		rte_prefetch0((const uint8_t *)&t->slots[slot] + RTE_CACHE_LINE_SIZE);
		rte_prefetch0(&t->slots[slot].seen);
	}
}

void kvr_flight_prefetch(const struct kvr_flight_table *t, uint64_t handle)
{
	const uint32_t slot = (uint32_t)handle & (KVR_FLIGHT_MAX_SLOTS - 1);

	if (slot < t->n) {
		rte_prefetch0(&t->slots[slot]);
		rte_prefetch0(&t->slots[slot].state);
	}
}

void kvr_flight_stats_get(const struct kvr_flight_table *t, struct kvr_flight_stats *out)
{
	kvr_stats_row_copy(&out->taken, &t->st.taken, KVR_FLIGHT_COUNTERS);
}

uint32_t kvr_flight_count(const struct kvr_flight_table *t)
{
	return (uint32_t)kvr_cell_get(&t->st.used);
}

uint32_t kvr_flight_lingering(const struct kvr_flight_table *t)
{
	return (uint32_t)kvr_cell_get(&t->st.lingering);
}

uint32_t kvr_flight_size(const struct kvr_flight_table *t)
{
	return t->n;
}

struct kvr_flight *kvr_flight_slot(struct kvr_flight_table *t, uint32_t slot)
{
	return slot < t->n ? &t->slots[slot] : NULL;
}
