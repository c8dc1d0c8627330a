/* SPDX-License-Identifier: BSD-3-Clause */
/* The scheduler side: index, entries, and what is done with them. */
#include "session_pvt.h"

#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Words with one writer: this side. */
#define GET(x)	  atomic_load_explicit(&(x), memory_order_relaxed)
#define SET(x, v) atomic_store_explicit(&(x), v, memory_order_relaxed)

bool kvr_session_key(const struct kvr_session *s, const void *id, size_t len,
		     struct kvr_session_key *key)
{
	if (len == 0 || len > KVR_SESSION_ID_MAX)
		return false;
	*key = (struct kvr_session_key){id, (uint32_t)len,
					(uint32_t)XXH3_64bits_withSeed(id, len, s->seed)};
	return true;
}

/* ---- index ------------------------------------------------------------------------------- */

static bool is(const struct entry *e, const struct kvr_session_key *key)
{
	return e->len == key->len && memcmp(e->id, key->id, key->len) == 0;
}

/* Place of a key: where it is, or the empty one where it would be put. */
static uint32_t place_of(const struct kvr_session *s, const struct kvr_session_key *key)
{
	uint32_t i = key->hash & s->mask;

	for (; s->index[i].entry != 0; i = (i + 1) & s->mask)
		if (s->index[i].tag == key->hash && is(&s->entry[s->index[i].entry - 1], key))
			break;
	return i;
}

/* Place of an entry that is bound. */
static uint32_t place_of_entry(const struct kvr_session *s, uint32_t n)
{
	uint32_t i = s->entry[n].tag & s->mask;

	while (s->index[i].entry != n + 1)
		i = (i + 1) & s->mask;
	return i;
}

/* Close the gap: what stands behind and would like to be at the hole or before moves there. */
static void index_remove(struct kvr_session *s, uint32_t hole)
{
	for (uint32_t i = (hole + 1) & s->mask; s->index[i].entry != 0; i = (i + 1) & s->mask) {
		if (((i - s->index[i].tag) & s->mask) < ((i - hole) & s->mask))
			continue;
		s->index[hole] = s->index[i];
		hole = i;
	}
	s->index[hole].entry = 0;
}

/* ---- entries ----------------------------------------------------------------------------- */

static uint64_t later(uint64_t now, uint64_t ttl)
{
	return ttl > UINT64_MAX - now ? UINT64_MAX : now + ttl;
}

static bool is_over(const struct entry *e, uint64_t now)
{
	return GET(e->active) == 0 && GET(e->expires) <= now;
}

static struct kvr_session_binding binding_of(const struct entry *e)
{
	return (struct kvr_session_binding){e->worker, e->dp_rank, e->caller_tag};
}

/* The entry of a life that is not over, or NULL. */
static struct entry *entry_of(struct kvr_session *s, struct kvr_session_ref ref)
{
	if (ref.entry >= s->max || (ref.gen & 1) == 0 || GET(s->entry[ref.entry].gen) != ref.gen)
		return NULL;
	return &s->entry[ref.entry];
}

/*
 * Tell control to look at an entry. The exchange pairs with the one in take_over(): what this side
 * wrote before it is seen by control after its own, whether the entry is queued by this call or was
 * queued already.
 */
static void arm(struct kvr_session *s, uint32_t n)
{
	const uint32_t tail = GET(s->tail);

	if (atomic_exchange_explicit(&s->queued[n], 1, memory_order_acq_rel) != 0)
		return;
	s->queue[tail & s->queue_mask] = n;
	/* Pairs with the acquire load in take_over(). */
	atomic_store_explicit(&s->tail, tail + 1, memory_order_release);
}

uint32_t kvr_session_room(const struct kvr_session *s)
{
	const uint32_t used = GET(s->count) + GET(s->reserved);

	return used < s->max ? s->max - used : 0;
}

static bool has_room(const struct kvr_session *s)
{
	return kvr_session_room(s) > 0;
}

static bool refuse(struct kvr_session *s)
{
	SET(s->rejected, GET(s->rejected) + 1);
	return false;
}

static uint32_t entry_take(struct kvr_session *s)
{
	uint32_t n = s->free;

	if (n == NIL)
		n = s->fresh++;
	else
		s->free = s->entry[n].tag;
	SET(s->count, GET(s->count) + 1);
	return n;
}

/* Forget the binding at place `i`; its wheel slot learns of it when its time comes. */
static void drop(struct kvr_session *s, uint32_t i)
{
	const uint32_t n = s->index[i].entry - 1;
	struct entry *e = &s->entry[n];

	if (s->on_drop != NULL)
		s->on_drop(s->drop_arg, n);
	index_remove(s, i);
	SET(e->gen, GET(e->gen) + 1);
	SET(e->active, 0);
	SET(e->expires, 0);
	e->tag = s->free;
	s->free = n;
	SET(s->count, GET(s->count) - 1);
}

/* ---- operations -------------------------------------------------------------------------- */

void kvr_session_prefetch(const struct kvr_session *s, const struct kvr_session_key *key, int step)
{
	const struct place *p = &s->index[key->hash & s->mask];
	const struct entry *e;

	__asm__ volatile(""); /* an effect: gcc 12 deletes calls of what only fetches */
	if (step == 0) {
		kvr_prefetch(p);
		return;
	}
	for (; p->entry != 0 && p->tag != key->hash; p++)
		if (p == &s->index[s->mask])
			return;
	if (p->entry == 0)
		return;
	e = &s->entry[p->entry - 1];
	kvr_prefetch(e);
	kvr_prefetch((const char *)e + 64);
}

bool kvr_session_reserve(struct kvr_session *s)
{
	if (!has_room(s))
		return refuse(s);
	SET(s->reserved, GET(s->reserved) + 1);
	return true;
}

void kvr_session_unreserve(struct kvr_session *s)
{
	SET(s->reserved, GET(s->reserved) - 1);
}

int kvr_session_bind(struct kvr_session *s, const struct kvr_session_key *key,
		     const struct kvr_session_binding *to, uint64_t ttl_ns, uint64_t now,
		     struct kvr_session_ref *ref)
{
	const uint32_t i = place_of(s, key);
	uint32_t n = s->index[i].entry - 1;
	struct entry *e;

	if (ttl_ns == 0)
		return -EINVAL;
	if (s->index[i].entry == 0) {
		if (!has_room(s)) {
			refuse(s);
			return -ENOSPC;
		}
		n = entry_take(s);
		s->index[i] = (struct place){key->hash, n + 1};
		e = &s->entry[n];
		e->tag = key->hash;
		e->len = key->len;
		memcpy(e->id, key->id, key->len);
		SET(e->gen, GET(e->gen) + 1);
	} else {
		e = &s->entry[n];
		if (s->on_drop != NULL)
			s->on_drop(s->drop_arg, n);
		SET(e->gen, GET(e->gen) + 2);
		SET(e->active, 0);
	}
	e->worker = to->worker;
	e->dp_rank = to->dp_rank;
	e->caller_tag = to->tag;
	SET(e->ttl, ttl_ns);
	SET(e->expires, later(now, ttl_ns));
	arm(s, n);
	if (ref != NULL)
		*ref = (struct kvr_session_ref){n, GET(e->gen)};
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
	*to = binding_of(e);
	if (is_over(e, now)) {
		drop(s, i);
		return KVR_SESSION_EXPIRED;
	}
	SET(e->expires, later(now, GET(e->ttl))); /* control finds out when the old time comes */
	if (ref != NULL)
		*ref = (struct kvr_session_ref){n, GET(e->gen)};
	return KVR_SESSION_BOUND;
}

bool kvr_session_unbind(struct kvr_session *s, const struct kvr_session_key *key,
			struct kvr_session_binding *to)
{
	const uint32_t i = place_of(s, key);
	const struct entry *e;

	if (s->index[i].entry == 0)
		return false;
	e = &s->entry[s->index[i].entry - 1];
	if (to != NULL)
		*to = binding_of(e);
	drop(s, i);
	return true;
}

bool kvr_session_unbind_ref(struct kvr_session *s, struct kvr_session_ref ref)
{
	if (entry_of(s, ref) == NULL)
		return false;
	drop(s, place_of_entry(s, ref.entry));
	return true;
}

void kvr_session_enter(struct kvr_session *s, struct kvr_session_ref ref)
{
	struct entry *e = entry_of(s, ref);

	if (e != NULL)
		SET(e->active, GET(e->active) + 1);
}

void kvr_session_leave(struct kvr_session *s, struct kvr_session_ref ref, uint64_t now)
{
	struct entry *e = entry_of(s, ref);

	if (e == NULL || GET(e->active) == 0)
		return;
	SET(e->expires, later(now, GET(e->ttl)));
	SET(e->active, GET(e->active) - 1);
}

bool kvr_session_confirm(struct kvr_session *s, struct kvr_session_ref ref, uint64_t now,
			 struct kvr_session_ended *out)
{
	const struct entry *e = entry_of(s, ref);

	if (e == NULL || !is_over(e, now))
		return false;
	*out = (struct kvr_session_ended){e->id, e->len, binding_of(e)};
	drop(s, place_of_entry(s, ref.entry));
	return true;
}

uint64_t kvr_session_left(const struct kvr_session *s, const struct kvr_session_key *key,
			  uint64_t now)
{
	const uint32_t i = place_of(s, key);
	const struct entry *e;

	if (s->index[i].entry == 0)
		return 0;
	e = &s->entry[s->index[i].entry - 1];
	if (is_over(e, now))
		return 0;
	return GET(e->active) != 0 ? GET(e->ttl) : GET(e->expires) - now;
}

uint32_t kvr_session_entries(const struct kvr_session *s)
{
	return s->fresh;
}

bool kvr_session_entry(const struct kvr_session *s, uint32_t n, uint64_t now,
		       struct kvr_session_held *out)
{
	const struct entry *e = &s->entry[n];

	if (n >= s->fresh || (GET(e->gen) & 1) == 0 || is_over(e, now))
		return false;
	*out = (struct kvr_session_held){e->id, e->len, binding_of(e), GET(e->ttl),
					 GET(e->active) != 0 ? GET(e->ttl) : GET(e->expires) - now};
	return true;
}

int kvr_session_restore(struct kvr_session *s, const struct kvr_session_key *key,
			const struct kvr_session_binding *to, uint64_t ttl_ns, uint64_t left_ns,
			uint64_t now)
{
	struct kvr_session_ref ref;
	int rc;

	if (left_ns == 0)
		return -EINVAL;
	if (kvr_session_left(s, key, now) != 0)
		return -EEXIST;
	/* Armed with the shorter time first: control looks at it then. */
	rc = kvr_session_bind(s, key, to, left_ns < ttl_ns ? left_ns : ttl_ns, now, &ref);
	if (rc == 0)
		SET(s->entry[ref.entry].ttl, ttl_ns);
	return rc;
}

uint32_t kvr_session_count(const struct kvr_session *s)
{
	return GET(s->count);
}

uint64_t kvr_session_rejected(const struct kvr_session *s)
{
	return GET(s->rejected);
}
