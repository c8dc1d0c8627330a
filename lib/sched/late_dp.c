/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Late binding, an option of mode ttft. The rank of a request is chosen when it arrives, and from
 * then on its tokens and blocks count there: those behind it see that they will be computed. It is
 * given to the rank only when less than ttft_late_tokens are to be computed there. Until then it
 * stands in the rank's lane of the queue, shortest first: its key is arrival + time to compute, so
 * it ages by a second a second and the key never changes. A rank that cannot be had any more when
 * its turn has come is chosen anew; nothing else moves a request, as moving to whoever is idle
 * costs more hits than it saves waiting. After ttft_late_ms it is given to its rank as it is.
 *
 * Why the tokens count: without them the next request with the same beginning finds neither cache
 * nor flight, goes elsewhere and computes it again; that loses more than the order gains.
 *
 * Decode legs, which compute nothing, and queries never wait here. O(log n) in and out, and a look
 * at each lane in use when somebody may go. A long prompt is entered and taken out in slices, as
 * those of bookings are (slices_dp.c): what counts for others is whole before the next decision.
 */
#include "sched_pvt.h"

/* Given to a rank and not computed yet, as far as is known. */
bool kvr_sched__late_full(const struct kvr_sched *s, uint32_t rank, uint64_t now)
{
	const struct ttft *t = &s->ttft;
	const double going = (t->until[rank] - (double)(now - s->origin)) * t->speed;

	return t->rest[rank] - t->late[rank] + (going > 0 ? going : 0) >=
	       (double)s->conf.ttft_late_tokens;
}

/* Whether a request that chose this rank has to wait for it; not before others that do. */
bool kvr_sched__late_waits(const struct kvr_sched *s, const struct choice *c, uint32_t rank,
			   uint64_t now)
{
	return s->ttft.late != NULL && c->p.track_prefill && !c->req->query_only &&
	       (s->ttft.late[rank] > 0 || kvr_sched__late_full(s, rank, now));
}

/* Its place in the queue: highest first. */
double kvr_sched__late_key(const struct kvr_sched *s, const struct waiting *w, double jump)
{
	const double ns = (double)(w->since - s->origin) + (double)w->left * s->ttft.ns_token;

	return (jump > 0 ? jump : 0) - ns / (double)SECOND_NS;
}

/* ---- what it counts for ------------------------------------------------------------------ */

/* After a choice, as of a booking. */
void kvr_sched__late_hold(struct kvr_sched *s, uint32_t slot, const struct choice *c,
			  const struct kvr_sched_decision *d)
{
	struct slot *b = &s->slot[slot];

	s->wait[slot].left = kvr_sched__left(s, c, d);
	b->rank = d->rank;
	kvr_sched__fly(s, c, slot, UNTOLD);
	s->ttft.late[d->rank] += (double)s->wait[slot].left;
	kvr_sched__ttft_waits(s, d->rank, false);
}

/* It counts for nothing any more; its blocks leave as those of a booking that ends. */
void kvr_sched__late_drop(struct kvr_sched *s, uint32_t slot)
{
	struct slot *b = &s->slot[slot];

	if (b->rank == NIL)
		return;
	kvr_sched__leave_prompt(s, slot, b->rank, UNTOLD);
	s->ttft.late[b->rank] -= (double)s->wait[slot].left;
	kvr_sched__ttft_waits(s, b->rank, false);
	b->rank = NIL;
}

/* The rank that it waits for, whether it counts there or not; NIL: that has gone. */
uint32_t kvr_sched__late_rank(const struct kvr_sched *s, uint32_t slot)
{
	return s->node[slot].lane < s->max_ranks ? s->node[slot].lane : NIL;
}

/* It was its turn, which is put off: it counts as before, at once. */
void kvr_sched__late_again(struct kvr_sched *s, uint32_t slot, const struct choice *c)
{
	const uint32_t rank = kvr_sched__late_rank(s, slot);

	if (s->slot[slot].rank != NIL || rank == NIL)
		return;
	kvr_sched__settle(s);
	kvr_active_match(s->active, c->req->sh, c->p.reuse ? c->n : 0, s->depth);
	s->slot[slot].rank = rank;
	kvr_sched__fly(s, c, slot, UNTOLD);
	kvr_sched__settle(s);
	s->ttft.late[rank] += (double)s->wait[slot].left;
	kvr_sched__ttft_waits(s, rank, false);
}

/* ---- who waits, as they began to ---------------------------------------------------------- */

void kvr_sched__late_add(struct kvr_sched *s, uint32_t slot, uint64_t now)
{
	struct waiting *w = &s->wait[slot];
	struct ttft *t = &s->ttft;

	w->late_since = now;
	w->older = t->late_new;
	w->newer = NIL;
	*(w->older != NIL ? &s->wait[w->older].newer : &t->late_old) = slot;
	t->late_new = slot;
	s->changed = true; /* its rank may have room since the last look */
}

void kvr_sched__late_del(struct kvr_sched *s, uint32_t slot)
{
	struct waiting *w = &s->wait[slot];
	struct ttft *t = &s->ttft;

	kvr_sched__late_drop(s, slot);
	*(w->older != NIL ? &s->wait[w->older].newer : &t->late_old) = w->newer;
	*(w->newer != NIL ? &s->wait[w->newer].older : &t->late_new) = w->older;
	w->late = false;
}

/* When the oldest has waited long enough; UINT64_MAX: nobody waits. */
uint64_t kvr_sched__late_until(const struct kvr_sched *s)
{
	const uint32_t slot = s->ttft.late_old;

	return slot == NIL ? UINT64_MAX
			   : s->wait[slot].late_since + s->conf.ttft_late_ms * UINT64_C(1000000);
}

/* The oldest when it has waited long enough, or NIL. */
uint32_t kvr_sched__late_due(const struct kvr_sched *s, uint64_t now)
{
	return now >= kvr_sched__late_until(s) ? s->ttft.late_old : NIL;
}
