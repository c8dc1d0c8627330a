/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Late binding, an option of mode ttft. The rank of a request is chosen on arrival, and its tokens
 * and blocks count there at once. The request is dispatched to the rank only when less than
 * ttft_late_tokens are to be computed there. Until then it waits in the lane of the rank, shortest
 * first: the key is arrival + AGE * time to compute, so AGE seconds of waiting compensate for one
 * second more of computing, and the key never changes. If the rank is not eligible at the turn of
 * the request, another one is chosen. Nothing else moves a request, because moving to an idle rank
 * loses more hits than it saves waiting time. After ttft_late_ms the request is dispatched
 * regardless.
 *
 * Blocks count because otherwise the next request with the same prefix would find neither cache nor
 * flight, go to another rank and compute the prefix again.
 *
 * Tokens: a new request waits for shorter ones, and longer ones wait for it. Q(r) of ttft_dp.c
 * therefore has the tokens of the shorter requests and, for each longer request, the tokens of the
 * new one. Sizes are classified by factors of four; half of the requests of the same size count as
 * shorter. Counting all tokens, as in order of arrival, would overrate busy ranks for long requests
 * and underrate them for short ones.
 *
 * Decode legs, which compute nothing, and queries never wait here. Cost: O(log n) per insertion and
 * removal, and one check per used lane when a request may go. Long prompts are entered and removed
 * in slices like those of bookings (slices_dp.c), completed before the next decision.
 */
#include "sched_pvt.h"

#define AGE 4 /* seconds of waiting per second of computing */

/* Return the tokens dispatched to a rank and not computed yet, as far as known. */
bool kvr_sched__late_full(const struct kvr_sched *s, uint32_t rank, uint64_t now)
{
	const struct ttft *t = &s->ttft;
	const double going = (t->until[rank] - (double)(now - s->origin)) * t->speed;

	return t->rest[rank] - t->late[rank] + (going > 0 ? going : 0) >=
	       (double)s->conf.ttft_late_tokens;
}

/* Return true if a request that chose this rank must wait for it, behind others that wait. */
bool kvr_sched__late_waits(const struct kvr_sched *s, const struct choice *c, uint32_t rank,
			   uint64_t now)
{
	return s->ttft.late != NULL && c->p.track_prefill && !c->req->query_only &&
	       (s->ttft.late[rank] > 0 || kvr_sched__late_full(s, rank, now));
}

/* Return the key in the queue: highest first. */
double kvr_sched__late_key(const struct kvr_sched *s, const struct waiting *w, double jump)
{
	const double ns = (double)(w->since - s->origin) + AGE * (double)w->left * s->ttft.ns_token;

	return (jump > 0 ? jump : 0) - ns / (double)SECOND_NS;
}

/* ---- load of waiting requests--------------------------------------------------------------- */

/* Return the size class: 0 below 1,024 tokens, plus one for each factor of four. */
static uint32_t size_of(uint64_t tokens)
{
	const uint32_t size = tokens < 1024 ? 0 : (55 - (uint32_t)__builtin_clzll(tokens)) / 2;

	return size < LATE_SIZES ? size : LATE_SIZES - 1;
}

/* Add (by 1) or remove (by -1) a request that waits for a rank with @p left tokens to compute. */
static void count_waiting(struct kvr_sched *s, uint32_t rank, uint64_t left, int by)
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

/* Compute Q of the ranks with waiting requests for the request of the current decision. */
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

/* Add the load of a request after its choice, like a booking. */
void kvr_sched__late_hold(struct kvr_sched *s, uint32_t slot, const struct choice *c,
			  const struct kvr_sched_decision *d)
{
	struct slot *b = &s->slot[slot];

	s->wait[slot].left = kvr_sched__left(s, c, d);
	b->rank = d->rank;
	kvr_sched__fly(s, c, slot, NOT_REPORTED);
	count_waiting(s, d->rank, s->wait[slot].left, 1);
}

/* Remove the load of a request; its blocks are removed like those of a booking. */
void kvr_sched__late_drop(struct kvr_sched *s, uint32_t slot)
{
	struct slot *b = &s->slot[slot];

	if (b->rank == NIL)
		return;
	kvr_sched__leave_prompt(s, slot, b->rank, NOT_REPORTED);
	count_waiting(s, b->rank, s->wait[slot].left, -1);
	b->rank = NIL;
}

/* Return the rank that the request waits for, NIL if removed. */
uint32_t kvr_sched__late_rank(const struct kvr_sched *s, uint32_t slot)
{
	return s->node[slot].lane < s->max_ranks ? s->node[slot].lane : NIL;
}

/* Restore the load of a request whose turn was deferred. */
void kvr_sched__late_again(struct kvr_sched *s, uint32_t slot, const struct choice *c)
{
	const uint32_t rank = kvr_sched__late_rank(s, slot);

	if (s->slot[slot].rank != NIL || rank == NIL)
		return;
	kvr_sched__settle(s);
	kvr_active_match(s->active, c->req->sh, c->p.reuse ? c->n : 0, s->depth);
	s->slot[slot].rank = rank;
	kvr_sched__fly(s, c, slot, NOT_REPORTED);
	kvr_sched__settle(s);
	count_waiting(s, rank, s->wait[slot].left, 1);
}

/* ---- waiting requests by arrival ---------------------------------------------------------- */

void kvr_sched__late_add(struct kvr_sched *s, uint32_t slot, uint64_t now)
{
	struct waiting *w = &s->wait[slot];
	struct ttft *t = &s->ttft;

	w->late_since = now;
	w->older = t->late_new;
	w->newer = NIL;
	*(w->older != NIL ? &s->wait[w->older].newer : &t->late_old) = slot;
	t->late_new = slot;
	s->changed = true; /* its rank may have capacity since the last poll */
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

/* Return the time when the oldest request is due; UINT64_MAX: none waits. */
uint64_t kvr_sched__late_until(const struct kvr_sched *s)
{
	const uint32_t slot = s->ttft.late_old;

	return slot == NIL ? UINT64_MAX
			   : s->wait[slot].late_since + s->conf.ttft_late_ms * UINT64_C(1000000);
}

/* Return the oldest request if it is due, else NIL. */
uint32_t kvr_sched__late_due(const struct kvr_sched *s, uint64_t now)
{
	return now >= kvr_sched__late_until(s) ? s->ttft.late_old : NIL;
}
