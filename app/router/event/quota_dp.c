/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Quota of the event ring by source. Each ingress lcore charges its own table; the event lcore only
 * counts frames that left the ring, so that no table has two writers.
 */
#include "event/event.h"

static void events_give_back(struct event_share *e, uint32_t done)
{
	for (; e->tail != done; e->tail++)
		kvr_quota_return(e->share, e->ref[e->tail & e->mask], 1);
}

bool share_event_take(struct lcore *lc, struct pool *p, const struct kvr_path *from)
{
	struct event_share *e = &lc->events[p->number];
	const uint64_t key = kvr_source_key(from);

	/* Guards no other data: a frame is returned when the next one arrives. */
	events_give_back(e, atomic_load_explicit(&p->event.done[lc->index], memory_order_relaxed));
	if (e->head - e->tail >= e->most ||
	    !kvr_quota_allows(e->share, key, 1, rte_ring_free_count(p->events), NULL))
		return false;
	e->ref[e->head++ & e->mask] = kvr_quota_take(e->share, key, 1);
	return true;
}

void share_event_back(struct lcore *lc, struct pool *p)
{
	struct event_share *e = &lc->events[p->number];

	kvr_quota_return(e->share, e->ref[--e->head & e->mask], 1);
}

void share_event_done(struct pool *p, const struct event_note *n)
{
	_Atomic uint32_t *done;

	if (n->charged == 0)
		return;
	done = &p->event.done[n->charged - 1];
	/* One writer; guards no other data, see share_event_take(). */
	atomic_store_explicit(done, atomic_load_explicit(done, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}
