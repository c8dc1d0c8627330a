/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks from a snapshot: the content of a rank before event `next` of its worker's epoch, as known
 * to the router, plus perhaps some later changes. Applying the events from `next` on in order makes
 * it exact. Until then, or until a dump, the rank is not authoritative. Blocks that are not
 * confirmed within DOUBT_NS are dropped, so a wrong score never stays.
 */
#include "event/event.h"
#include "state/restore.h"

#define DOUBT_NS    UINT64_C(10000000000)
#define DOUBT_RANKS 64u /* per turn */

static void store(struct pool *p, uint32_t rank, const struct restore_piece *x)
{
	kvr_prefix_store(p->prefix, (uint16_t)rank, (enum kvr_tier)x->p->tier,
			 x->p->has_parent != 0 ? &x->p->parent : NULL, kvr_snap_hashes(x->p), x->n);
	kvr_cell_add(&p->event_ranks[rank].v[ER_RESTORED], x->n);
}

/* @return false: the budget is used up before the rank is complete. */
static bool restore_rank(struct pool *p, uint32_t rank, const struct kvr_snap_rank *was,
			 struct restore_worker *r, uint64_t end)
{
	const uint32_t place = p->number * KVR_SNAP_MAX_OWNERS + was->dense;
	const uint32_t first = r->from->first[place], n = r->from->first[place + 1] - first;

	for (; r->at_piece < n; r->at_piece++) {
		if (kvr_prefix_work(p->prefix) >= end ||
		    !kvr_prefix_ready(p->prefix, (uint16_t)rank))
			return false;
		store(p, rank, &r->from->piece[first + r->at_piece]);
	}
	return true;
}

bool event_restore(struct lcore *lc, struct pool *p, const struct kvr_worker *w,
		   struct restore_worker *r)
{
	const uint64_t end = kvr_prefix_work(p->prefix) + RESTORE_UNITS;

	if (!p->events_used)
		return true;
	for (; r->at_rank < w->dp_size; r->at_rank++, r->at_piece = 0) {
		const struct kvr_snap_rank *was = &r->rank[r->at_rank];
		const uint32_t rank = w->rank[r->at_rank];
		struct event_cursor *c = &p->cursor[rank];

		if (rank >= p->max_ranks || was->dense >= KVR_SNAP_MAX_OWNERS)
			continue;
		if (!restore_rank(p, rank, was, r, end))
			return false;
		c->faith = w->warm ? CURSOR_ASKED : CURSOR_HINT;
		c->next = w->warm ? was->next : 0;
		kvr_cell_set(&p->event_ranks[rank].v[ER_AUTHORITATIVE], 0);
	}
	/* Check all ranks, from the first: a check may be in progress. */
	p->event.doubt_ns = lc->now_ns + DOUBT_NS;
	p->event.doubt_rank = 0;
	return true;
}

bool event_unsure(struct lcore *lc, struct pool *p, const struct rank_load *load,
		  struct event_cursor *c)
{
	if (c->faith == CURSOR_ASKED && load->next_event_id == c->next) {
		c->faith = CURSOR_SURE; /* no events since the snapshot */
		kvr_cell_set(&p->event_ranks[load->rank].v[ER_AUTHORITATIVE], 1);
		return false;
	}
	if (c->faith == CURSOR_ASKED && load->next_event_id < c->next)
		return false; /* the agent restarted: it gets the usual answer */
	event_tell(lc, load, c->faith == CURSOR_HINT ? KVR_KV_DUMP_WANTED : KVR_KV_GAP, c);
	return true;
}

void event_doubt(struct pool *p)
{
	uint32_t end = RTE_MIN(p->event.doubt_rank + DOUBT_RANKS, p->max_ranks);

	for (; p->event.doubt_rank < end; p->event.doubt_rank++) {
		struct event_cursor *c = &p->cursor[p->event.doubt_rank];

		if (c->faith == CURSOR_SURE)
			continue;
		kvr_prefix_clear_rank(p->prefix, (uint16_t)p->event.doubt_rank);
		c->faith = CURSOR_HINT; /* a dump is still accepted */
		c->next = 0;
	}
	if (p->event.doubt_rank < p->max_ranks)
		return;
	p->event.doubt_rank = 0;
	p->event.doubt_ns = 0;
}
