/* SPDX-License-Identifier: BSD-3-Clause */
/* Quota of one source of the frames in the event ring of a pool: taken by ingress lcores, each from
 * a table of its own. */
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

	/* Publishes nothing: a frame is given back with the next one that comes. */
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
	/* One writer; pairs with nothing, see share_event_take(). */
	atomic_store_explicit(done, atomic_load_explicit(done, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}
