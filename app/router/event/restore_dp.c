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

static void store_piece(struct pool *pool, uint32_t rank, const struct restore_piece *x)
{
	kvr_prefix_store(pool->prefix, (uint16_t)rank, (enum kvr_tier)x->p->tier,
			 x->p->has_parent != 0 ? &x->p->parent : NULL, kvr_snap_hashes(x->p), x->n);
	kvr_cell_add(&pool->event_ranks[rank].v[ER_RESTORED], x->n);
}

/* @return false: the budget is used up before the rank is complete. */
static bool restore_rank(struct pool *pool, uint32_t rank, const struct kvr_snap_rank *was,
			 struct restore_worker *r, uint64_t end)
{
	const uint32_t place = pool->number * KVR_SNAP_MAX_OWNERS + was->dense;
	const uint32_t first = r->from->first[place], n = r->from->first[place + 1] - first;

	for (; r->at_piece < n; r->at_piece++) {
		if (kvr_prefix_work(pool->prefix) >= end ||
		    !kvr_prefix_ready(pool->prefix, (uint16_t)rank))
			return false;
		store_piece(pool, rank, &r->from->piece[first + r->at_piece]);
	}
	return true;
}

bool event_restore(struct lcore *lc, struct pool *pool, const struct kvr_worker *worker,
		   struct restore_worker *r)
{
	const uint64_t end = kvr_prefix_work(pool->prefix) + RESTORE_UNITS;

	if (!pool->events_used)
		return true;
	for (; r->at_rank < worker->dp_size; r->at_rank++, r->at_piece = 0) {
		const struct kvr_snap_rank *was = &r->rank[r->at_rank];
		const uint32_t rank = worker->rank[r->at_rank];
		struct event_cursor *cursor = &pool->cursor[rank];

		if (rank >= pool->max_ranks || was->dense >= KVR_SNAP_MAX_OWNERS)
			continue;
		if (!restore_rank(pool, rank, was, r, end))
			return false;
		cursor->faith = worker->warm ? CURSOR_ASKED : CURSOR_HINT;
		cursor->next = worker->warm ? was->next : 0;
		kvr_cell_set(&pool->event_ranks[rank].v[ER_AUTHORITATIVE], 0);
	}
	/* Check all ranks, from the first: a check may be in progress. */
	pool->event.doubt_ns = lc->now_ns + DOUBT_NS;
	pool->event.doubt_rank = 0;
	return true;
}

bool event_confirm(struct lcore *lc, struct pool *pool, const struct rank_load *load,
		   struct event_cursor *cursor)
{
	if (cursor->faith == CURSOR_ASKED && load->next_event_id == cursor->next) {
		cursor->faith = CURSOR_SURE; /* no events since the snapshot */
		kvr_cell_set(&pool->event_ranks[load->rank].v[ER_AUTHORITATIVE], 1);
		return false;
	}
	if (cursor->faith == CURSOR_ASKED && load->next_event_id < cursor->next)
		return false; /* the agent restarted: it gets the usual answer */
	event_ack_unasked(lc, load, cursor->faith == CURSOR_HINT ? KVR_KV_DUMP_WANTED : KVR_KV_GAP,
			  cursor);
	return true;
}

void event_expire_unconfirmed(struct pool *pool)
{
	uint32_t end = RTE_MIN(pool->event.doubt_rank + DOUBT_RANKS, pool->max_ranks);

	for (; pool->event.doubt_rank < end; pool->event.doubt_rank++) {
		struct event_cursor *cursor = &pool->cursor[pool->event.doubt_rank];

		if (cursor->faith == CURSOR_SURE)
			continue;
		kvr_prefix_clear_rank(pool->prefix, (uint16_t)pool->event.doubt_rank);
		cursor->faith = CURSOR_HINT; /* a dump is still accepted */
		cursor->next = 0;
	}
	if (pool->event.doubt_rank < pool->max_ranks)
		return;
	pool->event.doubt_rank = 0;
	pool->event.doubt_ns = 0;
}
