/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Late binding, an option of mode ttft. The rank of a request is chosen when it arrives, and from
 * then on its tokens and blocks count there. It is given to the rank only when less than
 * ttft_late_tokens are to be computed there. Until then it stands in the rank's lane of the queue,
 * shortest first: its key is arrival + AGE * time to compute, so that AGE seconds of waiting make
 * up for one more of computing, and the key never changes. A rank that cannot be had any more when
 * its turn has come is chosen anew; nothing else moves a request, as moving to whoever is idle
 * costs more hits than it saves waiting. After ttft_late_ms it is given to its rank as it is.
 *
 * Why the blocks count: without them the next request with the same beginning finds neither cache
 * nor flight, goes elsewhere and computes it again; that loses more than the order gains.
 *
 * How the tokens count: who comes waits for what is shorter, and what is longer waits for it. So
 * Q(r) of ttft_dp.c has the tokens of the first and, for each of the second, those of the new one.
 * Sizes are told apart by factors of four; of those of the same size half are before it. All
 * tokens, as if the order was that of arrival, would make busy ranks look worse to short requests
 * than they are, and better to long ones.
 *
 * Decode legs, which compute nothing, and queries never wait here. O(log n) in and out, and a look
 * at each lane in use when somebody may go. A long prompt is entered and taken out in slices, as
 * those of bookings are (slices_dp.c): what counts for others is whole before the next decision.
 */
#include "sched_pvt.h"

#define AGE 4 /* seconds of waiting for one of computing */

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
	const double ns = (double)(w->since - s->origin) + AGE * (double)w->left * s->ttft.ns_token;

	return (jump > 0 ? jump : 0) - ns / (double)SECOND_NS;
}

/* ---- what it counts for ------------------------------------------------------------------ */

/* 0 below 1,024 tokens, and one more for each factor of four. */
static uint32_t size_of(uint64_t tokens)
{
	const uint32_t size = tokens < 1024 ? 0 : (55 - (uint32_t)__builtin_clzll(tokens)) / 2;

	return size < LATE_SIZES ? size : LATE_SIZES - 1;
}

/* One more, or one less, that waits for a rank with so many tokens to compute. */
static void count(struct kvr_sched *s, uint32_t rank, uint64_t left, int by)
{
	struct late_line *l = &s->ttft.line[rank];
	const double tokens = (double)by * (double)left;
	const uint32_t size = size_of(left);

	for (uint32_t i = 0; i < LATE_SIZES; i++) {
		const double before = i > size ? 1 : i == size ? 0.5 : 0;

		l->before[i] += before * tokens;
		l->after[i] += (1 - before) * by;
	}
	bit_put(s->ttft.lines, rank, l->after[0] > 0);
	s->ttft.late[rank] += tokens;
	kvr_sched__ttft_waits(s, rank, false);
}

/* Q of the ranks that somebody waits for, as the request of the decision under way finds it. */
void kvr_sched__late_see(const struct kvr_sched *s, struct cost_in *in)
{
	const struct ttft *t = &s->ttft;

	if (t->late == NULL || s->pending.count == 0)
		return;
	memcpy(t->seen, t->rest, s->words * 64 * sizeof(*t->seen));
	for (uint32_t w = 0; w < s->words; w++)
		for (uint64_t b = t->lines[w]; b != 0; b &= b - 1) {
			const uint32_t r = w * 64 + (uint32_t)__builtin_ctzll(b);
			const double own = kvr_sched__ttft_left(in, r), left = own > 0 ? own : 0;
			const struct late_line *l = &t->line[r];
			const uint32_t size = size_of((uint64_t)left);

			t->seen[r] += l->before[size] + l->after[size] * left - t->late[r];
		}
	in->rest = t->seen;
}

/* After a choice, as of a booking. */
void kvr_sched__late_hold(struct kvr_sched *s, uint32_t slot, const struct choice *c,
			  const struct kvr_sched_decision *d)
{
	struct slot *b = &s->slot[slot];

	s->wait[slot].left = kvr_sched__left(s, c, d);
	b->rank = d->rank;
	kvr_sched__fly(s, c, slot, UNTOLD);
	count(s, d->rank, s->wait[slot].left, 1);
}

/* It counts for nothing any more; its blocks leave as those of a booking that ends. */
void kvr_sched__late_drop(struct kvr_sched *s, uint32_t slot)
{
	struct slot *b = &s->slot[slot];

	if (b->rank == NIL)
		return;
	kvr_sched__leave_prompt(s, slot, b->rank, UNTOLD);
	count(s, b->rank, s->wait[slot].left, -1);
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
	count(s, rank, s->wait[slot].left, 1);
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
