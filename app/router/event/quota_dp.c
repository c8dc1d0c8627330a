/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Quota of the event ring by source. Each ingress lcore charges its own table; the event lcore only
 * counts frames that left the ring, so that no table has two writers.
 */
#include "event/event.h"

static void events_give_back(struct event_frames_quota *e, uint32_t done)
{
	for (; e->tail != done; e->tail++)
		kvr_quota_return(e->quota, e->ref[e->tail & e->mask], 1);
}

bool quota_event_take(struct lcore *lc, struct pool *pool, const struct kvr_path *from)
{
	struct event_frames_quota *e = &lc->events[pool->number];
	const uint64_t key = kvr_source_key(from);

	/* Guards no other data: a frame is returned when the next one arrives. */
	events_give_back(e,
			 atomic_load_explicit(&pool->event.done[lc->index], memory_order_relaxed));
	if (e->head - e->tail >= e->most ||
	    !kvr_quota_allows(e->quota, key, 1, rte_ring_free_count(pool->events), NULL))
		return false;
	e->ref[e->head++ & e->mask] = kvr_quota_take(e->quota, key, 1);
	return true;
}

void quota_event_undo(struct lcore *lc, struct pool *pool)
{
	struct event_frames_quota *e = &lc->events[pool->number];

	kvr_quota_return(e->quota, e->ref[--e->head & e->mask], 1);
}

void quota_event_done(struct pool *pool, const struct event_msg *msg)
{
	_Atomic uint32_t *done;

	if (msg->charged == 0)
		return;
	done = &pool->event.done[msg->charged - 1];
	/* One writer; guards no other data, see quota_event_take(). */
	atomic_store_explicit(done, atomic_load_explicit(done, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}
