/* SPDX-License-Identifier: BSD-3-Clause */
/* Index, wheel, and the operations. */
#include "session_pvt.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

/* ---- index ------------------------------------------------------------------------------- */

static uint32_t place(const struct kvr_session *s, const void *id, size_t len, uint64_t hash)
{
	uint32_t i = (uint32_t)hash & s->mask;

	while (s->index[i] != 0) {
		const struct entry *e = &s->entry[s->index[i] - 1];

		if (e->hash == hash && e->len == len && memcmp(e->id, id, len) == 0)
			break;
		i = (i + 1) & s->mask;
	}
	return i;
}

static void index_remove(struct kvr_session *s, uint32_t hole)
{
	for (uint32_t i = (hole + 1) & s->mask; s->index[i] != 0; i = (i + 1) & s->mask) {
		uint32_t want = (uint32_t)s->entry[s->index[i] - 1].hash & s->mask;

		if (((i - want) & s->mask) < ((i - hole) & s->mask))
			continue;
		s->index[hole] = s->index[i];
		hole = i;
	}
	s->index[hole] = 0;
}

static uint64_t hash_of(const struct kvr_session *s, const void *id, size_t len)
{
	return XXH3_64bits_withSeed(id, len, s->seed);
}

/* ---- wheel ------------------------------------------------------------------------------- */

static void wheel_remove(struct kvr_session *s, uint32_t n)
{
	struct entry *e = &s->entry[n];

	if (e->prev == NIL)
		s->at[e->slot] = e->next;
	else
		s->entry[e->prev].next = e->next;
	if (e->next != NIL)
		s->entry[e->next].prev = e->prev;
}

/* Never into a slot already passed, never a full turn ahead. */
static void wheel_add(struct kvr_session *s, uint32_t n)
{
	struct entry *e = &s->entry[n];
	uint64_t due = e->expires / TICK;

	if (due <= s->tick)
		due = s->tick;
	if (due > s->tick + SLOTS - 1)
		due = s->tick + SLOTS - 1;
	e->slot = (uint16_t)(due % SLOTS);
	e->prev = NIL;
	e->next = s->at[e->slot];
	if (e->next != NIL)
		s->entry[e->next].prev = n;
	s->at[e->slot] = n;
}

static void drop(struct kvr_session *s, uint32_t i)
{
	uint32_t n = s->index[i] - 1;

	wheel_remove(s, n);
	index_remove(s, i);
	s->entry[n].next = s->free;
	s->free = n;
	s->count--;
}

/* ---- operations -------------------------------------------------------------------------- */

static uint64_t later(uint64_t now, uint64_t ttl)
{
	return ttl > UINT64_MAX - TICK - now ? UINT64_MAX - TICK : now + ttl;
}

static uint32_t entry_take(struct kvr_session *s)
{
	uint32_t n = s->free;

	if (n != NIL) {
		s->free = s->entry[n].next;
		return n;
	}
	return s->fresh < s->max ? s->fresh++ : NIL;
}

int kvr_session_bind(struct kvr_session *s, const void *id, size_t len,
		     const struct kvr_session_binding *to, uint64_t ttl_ns, uint64_t now)
{
	uint64_t hash;
	struct entry *e;
	uint32_t i, n;

	if (len == 0 || len > KVR_SESSION_ID_MAX || ttl_ns == 0)
		return -EINVAL;
	hash = hash_of(s, id, len);
	i = place(s, id, len, hash);
	if (s->index[i] == 0) {
		n = entry_take(s);
		if (n == NIL) {
			s->refused++;
			return -ENOSPC;
		}
		s->index[i] = n + 1;
		s->count++;
		e = &s->entry[n];
		e->hash = hash;
		e->len = (uint16_t)len;
		memcpy(e->id, id, len);
	} else {
		n = s->index[i] - 1;
		e = &s->entry[n];
		wheel_remove(s, n);
	}
	e->to = *to;
	e->ttl = ttl_ns;
	e->expires = later(now, ttl_ns);
	wheel_add(s, n);
	return 0;
}

enum kvr_session_found kvr_session_resolve(struct kvr_session *s, const void *id, size_t len,
					   uint64_t now, struct kvr_session_binding *to)
{
	struct entry *e;
	uint32_t i;

	if (len == 0 || len > KVR_SESSION_ID_MAX)
		return KVR_SESSION_NONE;
	i = place(s, id, len, hash_of(s, id, len));
	if (s->index[i] == 0)
		return KVR_SESSION_NONE;
	e = &s->entry[s->index[i] - 1];
	*to = e->to;
	if (e->expires <= now) {
		drop(s, i);
		return KVR_SESSION_EXPIRED;
	}
	e->expires = later(now, e->ttl); /* the wheel finds out when the old time comes */
	return KVR_SESSION_BOUND;
}

bool kvr_session_unbind(struct kvr_session *s, const void *id, size_t len,
			struct kvr_session_binding *to)
{
	uint32_t i;

	if (len == 0 || len > KVR_SESSION_ID_MAX)
		return false;
	i = place(s, id, len, hash_of(s, id, len));
	if (s->index[i] == 0)
		return false;
	if (to != NULL)
		*to = s->entry[s->index[i] - 1].to;
	drop(s, i);
	return true;
}

uint64_t kvr_session_left(const struct kvr_session *s, const void *id, size_t len, uint64_t now)
{
	const struct entry *e;
	uint32_t i;

	if (len == 0 || len > KVR_SESSION_ID_MAX)
		return 0;
	i = place(s, id, len, hash_of(s, id, len));
	if (s->index[i] == 0)
		return 0;
	e = &s->entry[s->index[i] - 1];
	return e->expires > now ? e->expires - now : 0;
}

/* One slot of the wheel; false when `out` is full before it is done. */
static bool sweep(struct kvr_session *s, uint64_t now, struct kvr_session_ended out[], uint32_t n,
		  uint32_t *done)
{
	uint32_t next, slot = (uint32_t)(s->tick % SLOTS);

	for (uint32_t at = s->at[slot]; at != NIL; at = next) {
		struct entry *e = &s->entry[at];

		next = e->next;
		if (e->expires > now) {
			if (e->expires / TICK <= s->tick)
				continue; /* later in this very second */
			wheel_remove(s, at);
			s->tick++; /* so that it cannot come back into this slot */
			wheel_add(s, at);
			s->tick--;
			continue;
		}
		if (*done == n)
			return false;
		out[(*done)++] = (struct kvr_session_ended){e->id, e->len, e->to};
		drop(s, place(s, e->id, e->len, e->hash));
	}
	return true;
}

uint32_t kvr_session_expire(struct kvr_session *s, uint64_t now, struct kvr_session_ended out[],
			    uint32_t n)
{
	const uint64_t last = now / TICK;
	uint32_t done = 0;

	if (last >= SLOTS && s->tick < last - SLOTS)
		s->tick = last - SLOTS; /* one whole turn sees everybody */
	for (;; s->tick++) {
		if (!sweep(s, now, out, n, &done) || s->tick >= last)
			return done;
	}
}

uint32_t kvr_session_count(const struct kvr_session *s)
{
	return s->count;
}

uint64_t kvr_session_refused(const struct kvr_session *s)
{
	return s->refused;
}
