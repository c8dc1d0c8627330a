/* SPDX-License-Identifier: BSD-3-Clause */
/* Book, fade and free: walks over the runs of one prompt, in two forms as in match_dp.c. */
#include "active_pvt.h"

#include <string.h>

#include <rte_common.h>

static void refresh(struct kvr_active *a, uint32_t rank)
{
	a->blocks[rank] = (uint32_t)((a->sum[rank] + ROUND_HALF) >> 31);
}

static void fetch_run(const struct kvr_active *a, uint32_t run)
{
	if (run == ROOT)
		return;
	kvr_prefetch(&a->run[run]);
	kvr_prefetch((const char *)&a->run[run] + 64);
}

/* What the end of a booking needs of a run beside its header. The first record instead of none: a
 * branch on that would be guessed wrong. */
static void fetch_owner(const struct kvr_active *a, const struct run *r, uint32_t rank)
{
	const uint32_t wide = r->wide != 0 ? r->wide : 1;

	kvr_prefetch(&wide_refs(a, wide)[rank]);
	kvr_prefetch(&wide_set(a, wide)[rank / 64]);
}

void kvr_active_prefetch(const struct kvr_active *a, const struct kvr_active_booking *b, int step)
{
	const struct run *r = &a->run[b->tail - 1];

	__asm__ volatile(""); /* an effect: gcc 12 deletes calls of what only fetches */
	if (b->tail == 0)
		return;
	if (step == 0) {
		fetch_run(a, b->tail - 1);
		kvr_prefetch(a->hash[b->tail - 1]);
		return;
	}
	if (step == 1) {
		child_fetch(a, r->parent, run_hash(a, b->tail - 1)[0]);
		fetch_owner(a, r, b->rank);
		fetch_run(a, r->parent);
		return;
	}
	if (r->parent == ROOT)
		return;
	r = &a->run[r->parent];
	fetch_owner(a, r, b->rank);
	fetch_run(a, r->parent);
}

/*
 * Cut `run` after its first m hashes. The new run takes the upper part and the place in the
 * index; the old one keeps its id and its end, so its children and the bookings that end there
 * need no change.
 */
static uint32_t split(struct kvr_active *a, uint32_t run, uint32_t m)
{
	struct run *low = &a->run[run], *up;
	uint32_t id;

	if (!pool_take(&a->runs, &id))
		return ROOT;
	up = &a->run[id];
	if (!kvr_active__own_copy(a, id, run)) {
		pool_give(&a->runs, id);
		return ROOT;
	}
	up->parent = low->parent;
	up->start = 0;
	up->len = (uint16_t)m;
	memcpy(a->hash[id], run_hash(a, run), m * sizeof(uint64_t));
	kvr_active__find(a, low->parent, a->hash[id][0])->run = id + 1;
	low->parent = id;
	low->start = (uint16_t)(low->start + m);
	low->len = (uint16_t)(low->len - m);
	kvr_active__link(a, id, run_hash(a, run)[0], run);
	kvr_cell_add(&a->stats.splits, 1);
	return id;
}

/*
 * Whether a prompt that once ended or left between the two is gone: all who hold the upper run
 * hold the lower one too. Faded runs are left alone, their weights may differ.
 */
static bool joinable(const struct run *up, const struct run *low)
{
	return up->bookings == low->bookings && up->len + low->len <= (int)KVR_ACTIVE_RUN &&
	       !up->faded && !low->faded;
}

/* The inverse of split: the lower run takes in the upper one and keeps its id and its end. */
static void join(struct kvr_active *a, uint32_t up, uint32_t run)
{
	struct run *low = &a->run[run], *gone = &a->run[up];
	uint16_t start = (uint16_t)(low->start >= gone->len ? low->start - gone->len : 0);

	kvr_active__unlink(a, up, run_hash(a, run)[0]);
	kvr_active__find(a, gone->parent, run_hash(a, up)[0])->run = run + 1;
	memmove(a->hash[run] + start + gone->len, run_hash(a, run), low->len * sizeof(uint64_t));
	memcpy(a->hash[run] + start, run_hash(a, up), gone->len * sizeof(uint64_t));
	low->parent = gone->parent;
	low->start = start;
	low->len = (uint16_t)(low->len + gone->len);
	kvr_active__own_none(a, up);
	gone->len = 0;
	pool_give(&a->runs, up);
	kvr_cell_add(&a->stats.joins, 1);
}

/* Cuts that nobody needs any more would cost every later walk a step each. */
static __rte_always_inline bool heal_path(struct kvr_active *a, struct entry *e, uint32_t *runs,
					  bool some)
{
	for (; e->i < a->n_path; e->i++) {
		uint32_t run = a->path[e->i];

		if (some && *runs == 0)
			return false;
		--*runs;
		if (e->n > 0 && joinable(&a->run[a->path[e->n - 1]], &a->run[run]))
			join(a, a->path[--e->n], run);
		a->path[e->n++] = run;
	}
	a->n_path = e->n;
	return true;
}

/* A new run with one owner; false when the pool is empty. */
static bool grow(struct kvr_active *a, uint32_t *at, const void *sh, uint32_t len, uint32_t rank)
{
	struct run *r;
	uint32_t id;

	if (!pool_take(&a->runs, &id))
		return false;
	r = &a->run[id];
	memcpy(a->hash[id], sh, len * sizeof(uint64_t));
	r->parent = *at;
	r->start = 0;
	r->len = (uint16_t)len;
	r->n_owner = 1;
	r->wide = 0;
	r->rank[0] = rank;
	r->owner[0] = (struct owner){1, KVR_ACTIVE_ONE};
	r->bookings = 1;
	r->faded = false;
	a->sum[rank] += (uint64_t)len * KVR_ACTIVE_ONE;
	kvr_active__link(a, *at, a->hash[id][0], id);
	*at = id;
	return true;
}

/* Take the matched runs, root first. */
static __rte_always_inline bool own_path(struct kvr_active *a, uint32_t rank, struct entry *e,
					 uint32_t *runs, bool some)
{
	for (; e->i < a->n_path; e->i++) {
		if (some && *runs == 0)
			return false;
		--*runs;
		if (!kvr_active__own(a, a->path[e->i], rank)) {
			e->full = true;
			return true;
		}
		e->at = a->path[e->i];
		e->done += a->run[e->at].len;
	}
	return true;
}

/* Take the matched part of the last run. */
static __rte_always_inline void own_part(struct kvr_active *a, uint32_t rank, struct entry *e)
{
	uint32_t up;

	if (e->full || a->next == ROOT)
		return;
	up = split(a, a->next, a->partial);
	if (up == ROOT || !kvr_active__own(a, up, rank)) {
		e->full = true;
		return;
	}
	e->at = up;
	e->done += a->partial;
}

/* New runs for what nobody has. */
static __rte_always_inline bool grow_path(struct kvr_active *a, const void *sh, uint32_t limit,
					  uint32_t rank, struct entry *e, uint32_t *runs, bool some)
{
	while (!e->full && e->done < limit) {
		uint32_t len = limit - e->done < KVR_ACTIVE_RUN ? limit - e->done : KVR_ACTIVE_RUN;

		if (some && *runs == 0)
			return false;
		--*runs;
		if (!grow(a, &e->at, (const char *)sh + 8 * (size_t)e->done, len, rank))
			e->full = true;
		else
			e->done += len;
	}
	return true;
}

/* The walk of a booking from where it stands. @return whether it is over. */
static __rte_always_inline bool enter(struct kvr_active *a, const void *sh, uint32_t n,
				      uint32_t rank, struct entry *e, uint32_t *runs, bool some)
{
	if (e->step == ENTRY_HEAL) {
		if (!heal_path(a, e, runs, some))
			return false;
		e->step = ENTRY_OWN;
		e->i = 0;
	}
	if (e->step == ENTRY_OWN) {
		if (!own_path(a, rank, e, runs, some))
			return false;
		own_part(a, rank, e);
		e->step = ENTRY_GROW;
	}
	return grow_path(a, sh, n < a->max_prompt ? n : a->max_prompt, rank, e, runs, some);
}

static __rte_always_inline void entered(struct kvr_active *a, uint32_t n, uint32_t rank,
					const struct entry *e, struct kvr_active_booking *b)
{
	*b = (struct kvr_active_booking){.rank = rank,
					 .tail = e->at == ROOT ? 0 : e->at + 1,
					 .n_shared = e->done,
					 .n_private = n - e->done,
					 .private_weight = KVR_ACTIVE_ONE,
					 .output_weight = KVR_ACTIVE_ONE};
	kvr_cell_add(&a->stats.private_blocks, n - e->done);
	a->sum[rank] += (uint64_t)(n - e->done) * KVR_ACTIVE_ONE;
	a->n_path = 0;
	a->next = ROOT;
	refresh(a, rank);
}

uint32_t kvr_active_book(struct kvr_active *a, const void *sh, uint32_t n, uint32_t rank,
			 struct kvr_active_booking *b)
{
	const uint64_t before = a->sum[rank];
	struct entry e = {.at = ROOT};
	uint32_t runs = UINT32_MAX;

	a->match.state = MATCH_NONE;
	enter(a, sh, n, rank, &e, &runs, false);
	entered(a, n, rank, &e, b);
	a->walked += UINT32_MAX - runs;
	return (uint32_t)((a->sum[rank] - before) / KVR_ACTIVE_ONE);
}

bool kvr_active_book_some(struct kvr_active *a, const void *sh, uint32_t n, uint32_t rank,
			  struct kvr_active_booking *b, uint32_t runs)
{
	const uint32_t may = runs;
	struct entry *e = &a->entry;
	bool done;

	a->match.state = MATCH_NONE;
	if (!e->on)
		*e = (struct entry){.on = true, .at = ROOT};
	done = enter(a, sh, n, rank, e, &runs, true);
	a->walked += may - runs;
	if (!done)
		return false;
	e->on = false;
	entered(a, n, rank, e, b);
	return true;
}

void kvr_active_book_private(struct kvr_active *a, uint32_t n, uint32_t rank,
			     struct kvr_active_booking *b)
{
	*b = (struct kvr_active_booking){.rank = rank,
					 .n_private = n,
					 .private_weight = KVR_ACTIVE_ONE,
					 .output_weight = KVR_ACTIVE_ONE};
	a->sum[rank] += (uint64_t)n * KVR_ACTIVE_ONE;
	refresh(a, rank);
}

static __rte_always_inline bool leave(struct kvr_active *a, struct kvr_active_booking *b,
				      uint32_t *runs, bool some)
{
	uint32_t at = b->tail == 0 ? ROOT : b->tail - 1;

	while (at != ROOT) {
		struct run *r = &a->run[at];
		uint32_t up = r->parent;

		if (some && *runs == 0) {
			b->tail = at + 1;
			return false;
		}
		--*runs;
		kvr_active__disown(a, at, b->rank);
		if (r->n_owner == 0) {
			kvr_active__unlink(a, up, run_hash(a, at)[0]);
			r->len = 0;
			pool_give(&a->runs, at);
		}
		at = up;
	}
	a->sum[b->rank] -= (uint64_t)b->n_private * b->private_weight +
			   (uint64_t)b->n_output * b->output_weight;
	refresh(a, b->rank);
	*b = (struct kvr_active_booking){0};
	return true;
}

static void match_undo(struct kvr_active *a)
{
	a->match.state = MATCH_NONE;
	a->n_path = 0;
	a->next = ROOT;
}

bool kvr_active_free_some(struct kvr_active *a, struct kvr_active_booking *b, uint32_t runs)
{
	const uint32_t may = runs;
	const bool done = leave(a, b, &runs, true);

	match_undo(a);
	a->walked += may - runs;
	return done;
}

void kvr_active_free(struct kvr_active *a, struct kvr_active_booking *b)
{
	uint32_t runs = UINT32_MAX;

	leave(a, b, &runs, false);
	match_undo(a);
	a->walked += UINT32_MAX - runs;
}

uint64_t kvr_active_walked(const struct kvr_active *a)
{
	return a->walked;
}

void kvr_active_output(struct kvr_active *a, struct kvr_active_booking *b, uint32_t n)
{
	b->n_output += n;
	a->sum[b->rank] += (uint64_t)n * b->output_weight;
	refresh(a, b->rank);
}

void kvr_active_fade(struct kvr_active *a, struct kvr_active_booking *b, uint32_t weight)
{
	uint32_t at = b->tail == 0 ? ROOT : b->tail - 1;
	uint64_t *sum = &a->sum[b->rank];

	*sum += (uint64_t)b->n_output * weight - (uint64_t)b->n_output * b->output_weight;
	b->output_weight = weight;
	*sum += (uint64_t)b->n_private * weight - (uint64_t)b->n_private * b->private_weight;
	b->private_weight = weight;
	while (at != ROOT) {
		const struct run *r = &a->run[at];
		const struct owner o = kvr_active__owner(a, at, b->rank);

		if (o.refs != 1)
			break;
		*sum += (uint64_t)r->len * weight - (uint64_t)r->len * o.weight;
		kvr_active__weigh(a, at, b->rank, weight);
		at = r->parent;
	}
	refresh(a, b->rank);
}
