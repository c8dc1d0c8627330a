/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Long prompts in slices: deferred work of bookings and ends in lib/active. At most one booking is
 * deferred, as every decision completes the previous one, and any number of ends, in a list through
 * the slots. Each end has the rank and time for its report to the overload detector. Load of
 * requests that wait for a rank (late_dp.c) is entered and removed the same way, without reports.
 * See kvr_sched_settle().
 */
#include "sched_pvt.h"

/* Report a booking or an end after its last slice. */
static void report_later(struct kvr_sched *s, const struct owed *l)
{
	/* The rank may have a new owner or incarnation by now. */
	if (s->rank[l->rank].worker == NIL || s->rank[l->rank].gen != l->gen)
		return;
	if (l->now < NOT_REPORTED)
		kvr_sched__report_then(s, l->rank, l->now);
	else if (s->rank[l->rank].report > l->now - NOT_REPORTED)
		kvr_sched__report_blocks(s, l->rank);
}

static struct owed owed_of(const struct kvr_sched *s, uint32_t rank, uint64_t now)
{
	return (struct owed){.now = now < NOT_REPORTED ? now : NOT_REPORTED + s->reports,
			     .rank = rank,
			     .gen = s->rank[rank].gen};
}

static bool book_on(struct kvr_sched *s, uint32_t runs)
{
	struct slot *b = &s->slot[s->owed.slot];

	if (!kvr_active_book_some(s->active, s->owed.sh, s->owed.n, s->owed.book.rank, &b->act,
				  runs))
		return false;
	kvr_cell_add(&s->cnt.unshared_blocks, b->act.n_private);
	s->owed.slot = NIL;
	return true;
}

void kvr_sched__enter(struct kvr_sched *s, uint32_t slot, const void *sh, uint32_t n, uint64_t now)
{
	const uint32_t rank = s->slot[slot].rank;

	s->owed.slot = slot;
	s->owed.sh = sh;
	s->owed.n = n;
	s->owed.book = owed_of(s, rank, now);
	s->owed.any = !book_on(s, s->slice);
}

static void end_add(struct kvr_sched *s, uint32_t slot, uint32_t rank, uint64_t now)
{
	struct slot *b = &s->slot[slot];

	b->end = owed_of(s, rank, now);
	b->end_next = NIL;
	if (s->owed.first == NIL)
		s->owed.first = slot;
	else
		s->slot[s->owed.last].end_next = slot;
	s->owed.last = slot;
	s->owed.any = true;
}

bool kvr_sched__leave_prompt(struct kvr_sched *s, uint32_t slot, uint32_t rank, uint64_t now)
{
	struct slot *b = &s->slot[slot];

	if (!s->owed.any && kvr_active_free_some(s->active, &b->act, s->slice))
		return true;
	end_add(s, slot, rank, now);
	return false;
}

bool kvr_sched_settle(struct kvr_sched *s, uint32_t runs)
{
	const uint64_t end = kvr_active_walked(s->active) + runs;

	if (!s->owed.any)
		return true;
	if (s->owed.slot != NIL) {
		if (!book_on(s, runs))
			return false;
		report_later(s, &s->owed.book);
	}
	while (s->owed.first != NIL) {
		struct slot *b = &s->slot[s->owed.first];
		const uint64_t walked = kvr_active_walked(s->active);

		if (walked >= end ||
		    !kvr_active_free_some(s->active, &b->act, (uint32_t)(end - walked)))
			return false;
		s->owed.first = b->end_next;
		report_later(s, &b->end);
	}
	s->owed.any = false;
	return true;
}

void kvr_sched__settle(struct kvr_sched *s)
{
	while (!kvr_sched_settle(s, UINT32_MAX))
		;
}

void kvr_sched_slices(struct kvr_sched *s, uint32_t runs)
{
	kvr_sched__settle(s);
	s->slice = runs != 0 ? runs : UINT32_MAX;
}

bool kvr_sched_settled(const struct kvr_sched *s)
{
	return !s->owed.any;
}

bool kvr_sched_enters(const struct kvr_sched *s, const void *sh)
{
	return s->owed.slot != NIL && s->owed.sh == sh;
}

bool kvr_sched_prepare(struct kvr_sched *s, const struct kvr_sched_req *req, uint32_t runs)
{
	const uint32_t n = s->conf.track_active_blocks ? req->n : 0;

	return kvr_sched_settle(s, runs) &&
	       kvr_active_match_some(s->active, req->sh, n, s->depth, runs);
}

void kvr_sched_prepare_over(struct kvr_sched *s)
{
	kvr_active_match_forget(s->active);
}

bool kvr_sched_admits(const struct kvr_sched *s)
{
	return s->turn != NIL;
}

uint64_t kvr_sched_walked(const struct kvr_sched *s)
{
	return kvr_active_walked(s->active);
}
