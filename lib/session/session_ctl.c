/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control side: a wheel of SLOTS ticks. An entry is in the slot of its time, or at the far end
 * of the wheel if its time is later. A slot is checked when its tick has passed.
 */
#include "session_pvt.h"

#define GET(x) atomic_load_explicit(&(x), memory_order_relaxed)

static void link_remove(struct kvr_session *table, uint32_t l)
{
	const struct link at = table->link[l];

	table->link[at.prev].next = at.next;
	table->link[at.next].prev = at.prev;
	table->link[l] = (struct link){l, l};
}

static void link_add(struct kvr_session *table, uint32_t slot, uint32_t l)
{
	const uint32_t last = table->link[slot].prev;

	table->link[l] = (struct link){last, slot};
	table->link[last].next = l;
	table->link[slot].prev = l;
}

/* Never put an entry into a slot that was passed or is current, nor a full rotation ahead. */
static void wheel_put(struct kvr_session *table, uint32_t n, uint64_t tick)
{
	if (tick <= table->tick)
		tick = table->tick + 1;
	if (tick > table->tick + SLOTS - 1)
		tick = table->tick + SLOTS - 1;
	link_add(table, (uint32_t)(tick % SLOTS), SLOTS + n);
}

/*
 * Time of the next check of an entry. While requests use it: one time to live from now, as it
 * cannot expire earlier whenever they leave.
 */
static uint64_t next_check(const struct entry *entry, uint64_t now)
{
	const uint64_t ttl = GET(entry->ttl);

	if (GET(entry->active) == 0)
		return GET(entry->expires);
	return ttl > UINT64_MAX - now ? UINT64_MAX : now + ttl;
}

/* Move an entry to its place in the wheel; a free entry leaves the wheel. */
static void place_entry(struct kvr_session *table, uint32_t n, uint64_t now)
{
	const uint64_t at = next_check(&table->entry[n], now);

	link_remove(table, SLOTS + n);
	if (at != 0)
		wheel_put(table, n, at >> TICK_SHIFT);
}

/* Put newly bound entries into the wheel. @return remaining checks. */
static uint32_t take_over(struct kvr_session *table, uint64_t now, uint32_t checks)
{
	/*
	 * Pairs with the release store in arm_entry(): the elements of the queue before the tail
	 * are written.
	 */
	const uint32_t tail = atomic_load_explicit(&table->tail, memory_order_acquire);

	for (; table->head != tail && checks > 0; table->head++, checks--) {
		const uint32_t n = table->queue[table->head & table->queue_mask];

		/*
		 * Pairs with the exchange in arm_entry(): either this thread sees all writes before
		 * it, or it finds 0 and queues the entry again. It also shows the scheduler side
		 * that this element of the queue has been read.
		 */
		atomic_exchange_explicit(&table->queued[n], 0, memory_order_acq_rel);
		place_entry(table, n, now);
	}
	return checks;
}

/* Check the first entry of a slot, which leaves the slot. @return true if it seems expired. */
static bool check_first(struct kvr_session *table, uint32_t slot, uint64_t now,
			struct kvr_session_ref *due)
{
	const uint32_t l = table->link[slot].next, next = table->link[l].next, n = l - SLOTS;
	const struct entry *entry = &table->entry[n];

	if (next != slot)
		kvr_prefetch(&table->entry[next - SLOTS]);
	/* Read the generation first: a time of a later incarnation only delays the report. */
	*due = (struct kvr_session_ref){n, GET(entry->gen)};
	if (next_check(entry, now) > now || GET(entry->expires) == 0) {
		place_entry(table, n, now);
		return false;
	}
	link_remove(table, l);
	wheel_put(table, n, (now >> TICK_SHIFT) + RECHECK_TICKS);
	return true;
}

uint32_t kvr_session_due(struct kvr_session *table, uint64_t now, struct kvr_session_ref due[],
			 uint32_t n)
{
	const uint64_t last = now >> TICK_SHIFT;
	uint32_t done = 0, checks = take_over(table, now, KVR_SESSION_CHECKS);

	/*
	 * After a pause longer than a rotation, one rotation checks all entries, except those
	 * reported recently.
	 */
	if (last >= SLOTS && table->tick < last - SLOTS + RECHECK_TICKS + 1)
		table->tick = last - SLOTS + RECHECK_TICKS + 1;
	for (; table->tick < last; table->tick++) {
		const uint32_t slot = (uint32_t)(table->tick % SLOTS);

		for (; table->link[slot].next != slot; checks--) {
			if (done == n || checks == 0)
				return done;
			done += check_first(table, slot, now, &due[done]);
		}
	}
	return done;
}

bool kvr_session_behind(const struct kvr_session *table, uint64_t now)
{
	return table->tick < now >> TICK_SHIFT ||
	       table->head != atomic_load_explicit(&table->tail, memory_order_acquire);
}
