/* SPDX-License-Identifier: BSD-3-Clause */
/* The scheduler side: index, entries and the operations on them. */
#include "session_pvt.h"

#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Words with one writer: the scheduler side. */
#define GET(x)	  atomic_load_explicit(&(x), memory_order_relaxed)
#define SET(x, v) atomic_store_explicit(&(x), v, memory_order_relaxed)

bool kvr_session_key(const struct kvr_session *table, const void *id, size_t len,
		     struct kvr_session_key *key)
{
	if (len == 0 || len > KVR_SESSION_ID_MAX)
		return false;
	*key = (struct kvr_session_key){id, (uint32_t)len,
					(uint32_t)XXH3_64bits_withSeed(id, len, table->seed)};
	return true;
}

/* ---- index ------------------------------------------------------------------------------- */

static bool has_key(const struct entry *entry, const struct kvr_session_key *key)
{
	return entry->len == key->len && memcmp(entry->id, key->id, key->len) == 0;
}

/* Place of a key: its own, or the empty one where it would be put. */
static uint32_t place_of(const struct kvr_session *table, const struct kvr_session_key *key)
{
	uint32_t i = key->hash & table->mask;

	for (; table->index[i].entry != 0; i = (i + 1) & table->mask)
		if (table->index[i].tag == key->hash &&
		    has_key(&table->entry[table->index[i].entry - 1], key))
			break;
	return i;
}

/* Place of a bound entry. */
static uint32_t place_of_entry(const struct kvr_session *table, uint32_t n)
{
	uint32_t i = table->entry[n].tag & table->mask;

	while (table->index[i].entry != n + 1)
		i = (i + 1) & table->mask;
	return i;
}

/* Close the gap: later elements whose home is at or before the hole move back. */
static void index_remove(struct kvr_session *table, uint32_t hole)
{
	for (uint32_t i = (hole + 1) & table->mask; table->index[i].entry != 0;
	     i = (i + 1) & table->mask) {
		if (((i - table->index[i].tag) & table->mask) < ((i - hole) & table->mask))
			continue;
		table->index[hole] = table->index[i];
		hole = i;
	}
	table->index[hole].entry = 0;
}

/* ---- entries ----------------------------------------------------------------------------- */

static uint64_t add_ttl(uint64_t now, uint64_t ttl)
{
	return ttl > UINT64_MAX - now ? UINT64_MAX : now + ttl;
}

static bool has_expired(const struct entry *entry, uint64_t now)
{
	return GET(entry->active) == 0 && GET(entry->expires) <= now;
}

static struct kvr_session_binding get_binding(const struct entry *entry)
{
	return (struct kvr_session_binding){entry->worker, entry->dp_rank, entry->caller_tag};
}

/* The entry of an incarnation that has not ended, or NULL. */
static struct entry *find_entry(struct kvr_session *table, struct kvr_session_ref ref)
{
	if (ref.entry >= table->max || (ref.gen & 1) == 0 ||
	    GET(table->entry[ref.entry].gen) != ref.gen)
		return NULL;
	return &table->entry[ref.entry];
}

/*
 * Queue an entry for the control side. The exchange pairs with the one in take_over(): the control
 * side sees what was written before it, whether this call queues the entry or it was queued
 * already.
 */
static void arm_entry(struct kvr_session *table, uint32_t n)
{
	const uint32_t tail = GET(table->tail);

	if (atomic_exchange_explicit(&table->queued[n], 1, memory_order_acq_rel) != 0)
		return;
	table->queue[tail & table->queue_mask] = n;
	/* Pairs with the acquire load in take_over(). */
	atomic_store_explicit(&table->tail, tail + 1, memory_order_release);
}

uint32_t kvr_session_room(const struct kvr_session *table)
{
	const uint32_t used = GET(table->count) + GET(table->reserved);

	return used < table->max ? table->max - used : 0;
}

static bool has_room(const struct kvr_session *table)
{
	return kvr_session_room(table) > 0;
}

static bool count_refusal(struct kvr_session *table)
{
	SET(table->rejected, GET(table->rejected) + 1);
	return false;
}

static uint32_t entry_take(struct kvr_session *table)
{
	uint32_t n = table->free;

	if (n == NIL)
		n = table->fresh++;
	else
		table->free = table->entry[n].tag;
	SET(table->count, GET(table->count) + 1);
	return n;
}

/* Remove the binding at place `i`; the control side notices when its slot of the wheel comes. */
static void drop_binding(struct kvr_session *table, uint32_t i)
{
	const uint32_t n = table->index[i].entry - 1;
	struct entry *entry = &table->entry[n];

	if (table->on_drop != NULL)
		table->on_drop(table->drop_arg, n);
	index_remove(table, i);
	SET(entry->gen, GET(entry->gen) + 1);
	SET(entry->active, 0);
	SET(entry->expires, 0);
	entry->tag = table->free;
	table->free = n;
	SET(table->count, GET(table->count) - 1);
}

/* ---- operations -------------------------------------------------------------------------- */

void kvr_session_prefetch(const struct kvr_session *table, const struct kvr_session_key *key,
			  int step)
{
	const struct place *place = &table->index[key->hash & table->mask];
	const struct entry *entry;

	__asm__ volatile(
		""); /* a side effect: gcc 12 removes calls of functions that only prefetch */
	if (step == 0) {
		kvr_prefetch(place);
		return;
	}
	for (; place->entry != 0 && place->tag != key->hash; place++)
		if (place == &table->index[table->mask])
			return;
	if (place->entry == 0)
		return;
	entry = &table->entry[place->entry - 1];
	kvr_prefetch(entry);
	kvr_prefetch((const char *)entry + 64);
}

bool kvr_session_reserve(struct kvr_session *table)
{
	if (!has_room(table))
		return count_refusal(table);
	SET(table->reserved, GET(table->reserved) + 1);
	return true;
}

void kvr_session_unreserve(struct kvr_session *table)
{
	SET(table->reserved, GET(table->reserved) - 1);
}

int kvr_session_bind(struct kvr_session *table, const struct kvr_session_key *key,
		     const struct kvr_session_binding *to, uint64_t ttl_ns, uint64_t now,
		     struct kvr_session_ref *ref)
{
	const uint32_t i = place_of(table, key);
	uint32_t n = table->index[i].entry - 1;
	struct entry *entry;

	if (ttl_ns == 0)
		return -EINVAL;
	if (table->index[i].entry == 0) {
		if (!has_room(table)) {
			count_refusal(table);
			return -ENOSPC;
		}
		n = entry_take(table);
		table->index[i] = (struct place){key->hash, n + 1};
		entry = &table->entry[n];
		entry->tag = key->hash;
		entry->len = key->len;
		memcpy(entry->id, key->id, key->len);
		SET(entry->gen, GET(entry->gen) + 1);
	} else {
		entry = &table->entry[n];
		if (table->on_drop != NULL)
			table->on_drop(table->drop_arg, n);
		SET(entry->gen, GET(entry->gen) + 2);
		SET(entry->active, 0);
	}
	entry->worker = to->worker;
	entry->dp_rank = to->dp_rank;
	entry->caller_tag = to->tag;
	SET(entry->ttl, ttl_ns);
	SET(entry->expires, add_ttl(now, ttl_ns));
	arm_entry(table, n);
	if (ref != NULL)
		*ref = (struct kvr_session_ref){n, GET(entry->gen)};
	return 0;
}

enum kvr_session_found kvr_session_resolve(struct kvr_session *s, const struct kvr_session_key *key,
					   uint64_t now, struct kvr_session_binding *to,
					   struct kvr_session_ref *ref)
{
	const uint32_t i = place_of(s, key), n = s->index[i].entry - 1;
	struct entry *e;

	if (s->index[i].entry == 0)
		return KVR_SESSION_NONE;
	e = &s->entry[n];
	*to = get_binding(e);
	if (has_expired(e, now)) {
		drop_binding(s, i);
		return KVR_SESSION_EXPIRED;
	}
	SET(e->expires,
	    add_ttl(now, GET(e->ttl))); /* the control side notices when the old time comes */
	if (ref != NULL)
		*ref = (struct kvr_session_ref){n, GET(e->gen)};
	return KVR_SESSION_BOUND;
}

bool kvr_session_unbind(struct kvr_session *table, const struct kvr_session_key *key,
			struct kvr_session_binding *to)
{
	const uint32_t i = place_of(table, key);
	const struct entry *entry;

	if (table->index[i].entry == 0)
		return false;
	entry = &table->entry[table->index[i].entry - 1];
	if (to != NULL)
		*to = get_binding(entry);
	drop_binding(table, i);
	return true;
}

bool kvr_session_unbind_ref(struct kvr_session *table, struct kvr_session_ref ref)
{
	if (find_entry(table, ref) == NULL)
		return false;
	drop_binding(table, place_of_entry(table, ref.entry));
	return true;
}

void kvr_session_enter(struct kvr_session *table, struct kvr_session_ref ref)
{
	struct entry *entry = find_entry(table, ref);

	if (entry != NULL)
		SET(entry->active, GET(entry->active) + 1);
}

void kvr_session_leave(struct kvr_session *table, struct kvr_session_ref ref, uint64_t now)
{
	struct entry *entry = find_entry(table, ref);

	if (entry == NULL || GET(entry->active) == 0)
		return;
	SET(entry->expires, add_ttl(now, GET(entry->ttl)));
	SET(entry->active, GET(entry->active) - 1);
}

bool kvr_session_confirm(struct kvr_session *table, struct kvr_session_ref ref, uint64_t now,
			 struct kvr_session_ended *out)
{
	const struct entry *entry = find_entry(table, ref);

	if (entry == NULL || !has_expired(entry, now))
		return false;
	*out = (struct kvr_session_ended){entry->id, entry->len, get_binding(entry)};
	drop_binding(table, place_of_entry(table, ref.entry));
	return true;
}

uint64_t kvr_session_left(const struct kvr_session *table, const struct kvr_session_key *key,
			  uint64_t now)
{
	const uint32_t i = place_of(table, key);
	const struct entry *entry;

	if (table->index[i].entry == 0)
		return 0;
	entry = &table->entry[table->index[i].entry - 1];
	if (has_expired(entry, now))
		return 0;
	return GET(entry->active) != 0 ? GET(entry->ttl) : GET(entry->expires) - now;
}

uint32_t kvr_session_entries(const struct kvr_session *table)
{
	return table->fresh;
}

bool kvr_session_entry(const struct kvr_session *table, uint32_t n, uint64_t now,
		       struct kvr_session_held *out)
{
	const struct entry *entry = &table->entry[n];

	if (n >= table->fresh || (GET(entry->gen) & 1) == 0 || has_expired(entry, now))
		return false;
	*out = (struct kvr_session_held){entry->id, entry->len, get_binding(entry), GET(entry->ttl),
					 GET(entry->active) != 0 ? GET(entry->ttl)
								 : GET(entry->expires) - now};
	return true;
}

int kvr_session_restore(struct kvr_session *table, const struct kvr_session_key *key,
			const struct kvr_session_binding *to, uint64_t ttl_ns, uint64_t left_ns,
			uint64_t now)
{
	struct kvr_session_ref ref;
	int rc;

	if (left_ns == 0)
		return -EINVAL;
	if (kvr_session_left(table, key, now) != 0)
		return -EEXIST;
	/* Armed with the shorter time first, so that the control side checks it then. */
	rc = kvr_session_bind(table, key, to, left_ns < ttl_ns ? left_ns : ttl_ns, now, &ref);
	if (rc == 0)
		SET(table->entry[ref.entry].ttl, ttl_ns);
	return rc;
}

uint32_t kvr_session_count(const struct kvr_session *table)
{
	return GET(table->count);
}

uint64_t kvr_session_rejected(const struct kvr_session *table)
{
	return GET(table->rejected);
}
