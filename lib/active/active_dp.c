/* SPDX-License-Identifier: BSD-3-Clause */
/* Match, book, fade and free: walks over the runs of one prompt. */
#include "active_pvt.h"

#include <string.h>

/* States of kvr_active_ahead: what to fetch next; a zeroed one is at the beginning. */
enum { AHEAD_PROMPT, AHEAD_CHILD, AHEAD_RUN, AHEAD_END };

#define PREFETCH_HASHES 256u /* of a prompt: 32 lines, what the load buffers can have in flight */
#define PREFETCH_PLACES 8u   /* of runs that a booking adds */

static uint64_t hash_at(const void *sh, uint32_t i)
{
	uint64_t h;

	memcpy(&h, (const char *)sh + 8 * (size_t)i, 8);
	return h;
}

static void refresh(struct kvr_active *a, uint32_t rank)
{
	a->blocks[rank] = (uint32_t)((a->sum[rank] + ROUND_HALF) >> 31);
}

static const uint64_t *run_hash(const struct kvr_active *a, uint32_t run)
{
	return a->hash[run] + a->run[run].start;
}

/* Owners of deeper runs own the shallower ones too, so later stores only raise depths. */
static void spread(const struct kvr_active *a, uint32_t run, uint32_t depth, uint32_t out[])
{
	const struct run *r = &a->run[run];

	if (r->wide != 0) {
		a->spread(wide_set(a, r->wide), a->max_ranks / 64, depth, out);
		return;
	}
	for (uint32_t i = 0; i < r->n_owner; i++)
		out[r->rank[i]] = depth;
}

/* Header and hashes of a run, fetched together: one latency instead of one per line. */
static void fetch(const struct kvr_active *a, uint32_t run)
{
	__builtin_prefetch(&a->run[run]);
	__builtin_prefetch((const char *)&a->run[run] + 64);
	for (uint32_t i = 0; i < KVR_ACTIVE_RUN; i += 8)
		__builtin_prefetch(&a->hash[run][i]);
}

void kvr_active_prefetch_match(const struct kvr_active *a, const void *sh, uint32_t n,
			       struct kvr_active_ahead *ahead)
{
	const struct child *c;
	uint32_t len;

	switch (ahead->step) {
	case AHEAD_PROMPT:
		if (n == 0)
			break;
		ahead->step = AHEAD_CHILD;
		ahead->run = ROOT;
		ahead->home = child_fetch(a, ROOT, hash_at(sh, 0));
		for (uint32_t i = 8; i < n && i < PREFETCH_HASHES; i += 8)
			__builtin_prefetch((const char *)sh + 8 * (size_t)i);
		return;
	case AHEAD_CHILD:
		c = child_find(a, ahead->home, ahead->run, hash_at(sh, ahead->done));
		if (c == NULL)
			break;
		ahead->step = AHEAD_RUN;
		ahead->run = c->run - 1;
		fetch(a, ahead->run);
		return;
	case AHEAD_RUN:
		len = a->run[ahead->run].len;
		if (len >= n - ahead->done)
			break;
		ahead->step = AHEAD_CHILD;
		ahead->done += len;
		ahead->home = child_fetch(a, ahead->run, hash_at(sh, ahead->done));
		return;
	default:
		return;
	}
	ahead->step = AHEAD_END;
}

static void fetch_run(const struct kvr_active *a, uint32_t run)
{
	if (run == ROOT)
		return;
	__builtin_prefetch(&a->run[run]);
	__builtin_prefetch((const char *)&a->run[run] + 64);
}

/* What the end of a booking needs of a run beside its header. */
static void fetch_owner(const struct kvr_active *a, const struct run *r, uint32_t rank)
{
	if (r->wide == 0)
		return;
	__builtin_prefetch(&wide_refs(a, r->wide)[rank], 1);
	__builtin_prefetch(&wide_set(a, r->wide)[rank / 64], 1);
}

void kvr_active_prefetch(const struct kvr_active *a, const struct kvr_active_booking *b, int step)
{
	const struct run *r = &a->run[b->tail - 1];

	if (b->tail == 0)
		return;
	if (step == 0) {
		fetch_run(a, b->tail - 1);
		__builtin_prefetch(a->hash[b->tail - 1]);
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

/* The places in the index that a booking will fill, as the numbers of its runs are known: their
 * latency beside that of the choice. The first of them has been looked at, unless a run is cut. */
static void fetch_places(const struct kvr_active *a, const void *sh, uint32_t n)
{
	uint32_t at = a->matched + a->partial;

	if (a->next != ROOT)
		child_fetch(a, pool_peek(&a->runs, 0), run_hash(a, a->next)[a->partial]);
	else
		at += KVR_ACTIVE_RUN;
	for (uint32_t i = 0; at < n && i < PREFETCH_PLACES; i++, at += KVR_ACTIVE_RUN)
		child_fetch(a, pool_peek(&a->runs, i), hash_at(sh, at));
}

void kvr_active_match(struct kvr_active *a, const void *sh, uint32_t n, uint32_t depth[])
{
	uint32_t at = ROOT, done = 0, home;

	memset(depth, 0, a->max_ranks * sizeof(depth[0]));
	a->n_path = 0;
	a->partial = 0;
	a->next = ROOT;
	if (n > a->max_prompt)
		n = a->max_prompt;
	home = n > 0 ? child_home(a, ROOT, hash_at(sh, 0)) : 0;
	while (done < n) {
		const struct child *c = child_find(a, home, at, hash_at(sh, done));
		uint32_t run, len, want, got;

		if (c == NULL)
			break;
		run = c->run - 1;
		fetch(a, run);
		len = a->run[run].len;
		want = len < n - done ? len : n - done;
		if (len < n - done) /* the next probe's latency beside the comparison's */
			home = child_fetch(a, run, hash_at(sh, done + len));
		got = a->same(run_hash(a, run), (const char *)sh + 8 * (size_t)done, want);
		spread(a, run, done + got, depth);
		if (got < len) {
			a->next = run;
			a->partial = got;
			break;
		}
		a->path[a->n_path++] = run;
		at = run;
		done += got;
	}
	a->matched = done;
	fetch_places(a, sh, n);
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
static void heal_path(struct kvr_active *a)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < a->n_path; i++) {
		uint32_t run = a->path[i];

		if (n > 0 && joinable(&a->run[a->path[n - 1]], &a->run[run]))
			join(a, a->path[--n], run);
		a->path[n++] = run;
	}
	a->n_path = n;
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

/* Take the matched runs, root first; true when all were taken. */
static bool own_path(struct kvr_active *a, uint32_t rank, uint32_t *at, uint32_t *done)
{
	for (uint32_t i = 0; i < a->n_path; i++) {
		if (!kvr_active__own(a, a->path[i], rank))
			return false;
		*at = a->path[i];
		*done += a->run[*at].len;
	}
	if (a->next != ROOT) {
		uint32_t up = split(a, a->next, a->partial);

		if (up == ROOT)
			return false;
		if (!kvr_active__own(a, up, rank))
			return false;
		*at = up;
		*done += a->partial;
	}
	return true;
}

uint32_t kvr_active_book(struct kvr_active *a, const void *sh, uint32_t n, uint32_t rank,
			 struct kvr_active_booking *b)
{
	uint64_t before = a->sum[rank];
	uint32_t at = ROOT, done = 0, limit = n < a->max_prompt ? n : a->max_prompt;

	heal_path(a);
	if (own_path(a, rank, &at, &done)) {
		while (done < limit) {
			uint32_t len =
				limit - done < KVR_ACTIVE_RUN ? limit - done : KVR_ACTIVE_RUN;

			if (!grow(a, &at, (const char *)sh + 8 * (size_t)done, len, rank))
				break;
			done += len;
		}
	}
	*b = (struct kvr_active_booking){.rank = rank,
					 .tail = at == ROOT ? 0 : at + 1,
					 .n_shared = done,
					 .n_private = n - done,
					 .private_weight = KVR_ACTIVE_ONE,
					 .output_weight = KVR_ACTIVE_ONE};
	kvr_cell_add(&a->stats.private_blocks, n - done);
	a->sum[rank] += (uint64_t)(n - done) * KVR_ACTIVE_ONE;
	a->n_path = 0;
	a->next = ROOT;
	refresh(a, rank);
	return (uint32_t)((a->sum[rank] - before) / KVR_ACTIVE_ONE);
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

void kvr_active_free(struct kvr_active *a, struct kvr_active_booking *b)
{
	uint32_t at = b->tail == 0 ? ROOT : b->tail - 1;

	while (at != ROOT) {
		struct run *r = &a->run[at];
		uint32_t up = r->parent;

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
	a->n_path = 0;
	a->next = ROOT;
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
