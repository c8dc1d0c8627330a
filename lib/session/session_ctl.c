/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control side: a wheel of SLOTS ticks. An entry stands in the slot of its time, or at the
 * far end of the wheel when that is further away; a slot is looked at when its tick has passed.
 */
#include "session_pvt.h"

#define GET(x) atomic_load_explicit(&(x), memory_order_relaxed)

static void link_remove(struct kvr_session *s, uint32_t l)
{
	const struct link at = s->link[l];

	s->link[at.prev].next = at.next;
	s->link[at.next].prev = at.prev;
	s->link[l] = (struct link){l, l};
}

static void link_add(struct kvr_session *s, uint32_t slot, uint32_t l)
{
	const uint32_t last = s->link[slot].prev;

	s->link[l] = (struct link){last, slot};
	s->link[last].next = l;
	s->link[slot].prev = l;
}

/* Not into a slot that this turn has passed or stands at, never a full turn ahead. */
static void wheel_put(struct kvr_session *s, uint32_t n, uint64_t tick)
{
	if (tick <= s->tick)
		tick = s->tick + 1;
	if (tick > s->tick + SLOTS - 1)
		tick = s->tick + SLOTS - 1;
	link_add(s, (uint32_t)(tick % SLOTS), SLOTS + n);
}

/*
 * When an entry must be looked at. While requests use it, a time to live from now: it cannot be
 * over before, whenever they leave.
 */
static uint64_t look_at(const struct entry *e, uint64_t now)
{
	const uint64_t ttl = GET(e->ttl);

	if (GET(e->active) == 0)
		return GET(e->expires);
	return ttl > UINT64_MAX - now ? UINT64_MAX : now + ttl;
}

/* An entry has its place in the wheel; one that is free again has none. */
static void place(struct kvr_session *s, uint32_t n, uint64_t now)
{
	const uint64_t at = look_at(&s->entry[n], now);

	link_remove(s, SLOTS + n);
	if (at != 0)
		wheel_put(s, n, at >> TICK_SHIFT);
}

/* Entries that were bound. @return looks left. */
static uint32_t take_over(struct kvr_session *s, uint64_t now, uint32_t looks)
{
	/* Pairs with the release store in arm(): the queue's elements up to it are written. */
	const uint32_t tail = atomic_load_explicit(&s->tail, memory_order_acquire);

	for (; s->head != tail && looks > 0; s->head++, looks--) {
		const uint32_t n = s->queue[s->head & s->queue_mask];

		/*
		 * Pairs with the exchange in arm(): either it is seen here, with all that was
		 * written before, or it finds 0 and queues the entry again. It also tells that
		 * side that this element of the queue has been read.
		 */
		atomic_exchange_explicit(&s->queued[n], 0, memory_order_acq_rel);
		place(s, n, now);
	}
	return looks;
}

/* Look at the first entry of a slot, which leaves the slot. @return whether it seems over. */
static bool look(struct kvr_session *s, uint32_t slot, uint64_t now, struct kvr_session_ref *due)
{
	const uint32_t l = s->link[slot].next, next = s->link[l].next, n = l - SLOTS;
	const struct entry *e = &s->entry[n];

	if (next != slot)
		kvr_prefetch(&s->entry[next - SLOTS]);
	/* The generation first: a time that belongs to a later life only delays the report. */
	*due = (struct kvr_session_ref){n, GET(e->gen)};
	if (look_at(e, now) > now || GET(e->expires) == 0) {
		place(s, n, now);
		return false;
	}
	link_remove(s, l);
	wheel_put(s, n, (now >> TICK_SHIFT) + LOOK_AGAIN);
	return true;
}

uint32_t kvr_session_due(struct kvr_session *s, uint64_t now, struct kvr_session_ref due[],
			 uint32_t n)
{
	const uint64_t last = now >> TICK_SHIFT;
	uint32_t done = 0, looks = take_over(s, now, KVR_SESSION_CHECKS);

	/* Nobody has called for a whole turn: one turn sees everybody, but for what is reported. */
	if (last >= SLOTS && s->tick < last - SLOTS + LOOK_AGAIN + 1)
		s->tick = last - SLOTS + LOOK_AGAIN + 1;
	for (; s->tick < last; s->tick++) {
		const uint32_t slot = (uint32_t)(s->tick % SLOTS);

		for (; s->link[slot].next != slot; looks--) {
			if (done == n || looks == 0)
				return done;
			done += look(s, slot, now, &due[done]);
		}
	}
	return done;
}

bool kvr_session_behind(const struct kvr_session *s, uint64_t now)
{
	return s->tick < now >> TICK_SHIFT ||
	       s->head != atomic_load_explicit(&s->tail, memory_order_acquire);
}
