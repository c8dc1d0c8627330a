/* SPDX-License-Identifier: BSD-3-Clause */
/* How much of a prompt is active where: the walk down the runs that it shares with others. */
#include "active_pvt.h"

#include <string.h>

#include <rte_common.h>

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

/* Owners of deeper runs own the shallower ones too, so later stores only raise depths. */
static void spread(const struct kvr_active *a, uint32_t run, uint32_t depth, uint32_t out[])
{
	const struct run *r = &a->run[run];

	if (r->wide != 0) {
		a->spread(wide_set(a, r->wide), a->max_ranks / 64, depth, out);
		return;
	}
	/* As many stores for any number: a loop that ends at the last is guessed wrong. */
	for (uint32_t i = 0; i < INLINE; i++)
		out[r->rank[i < r->n_owner ? i : 0]] = depth;
}

/* Header and hashes of a run, fetched together: one latency instead of one per line. */
static void fetch(const struct kvr_active *a, uint32_t run)
{
	kvr_prefetch(&a->run[run]);
	kvr_prefetch((const char *)&a->run[run] + 64);
	for (uint32_t i = 0; i < KVR_ACTIVE_RUN; i += 8)
		kvr_prefetch(&a->hash[run][i]);
}

void kvr_active_prefetch_match(const struct kvr_active *a, const void *sh, uint32_t n,
			       struct kvr_active_ahead *ahead)
{
	const struct child *c;
	const char *end;
	uint32_t len;

	switch (ahead->step) {
	case AHEAD_PROMPT:
		if (n == 0)
			break;
		ahead->step = AHEAD_CHILD;
		ahead->run = ROOT;
		ahead->home = child_fetch(a, ROOT, hash_at(sh, 0));
		end = (const char *)sh + 8 * (size_t)(n < PREFETCH_HASHES ? n : PREFETCH_HASHES);
		for (const char *p = (const char *)sh + 64; p < end; p += 64)
			kvr_prefetch(p);
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

/*
 * As every walk it has two forms, made from one: all at once, and (`some`) over at most *runs runs,
 * from where it stands. Both count the runs down. @return whether it is over.
 */
static __rte_always_inline bool match_on(struct kvr_active *a, const void *sh, uint32_t n,
					 uint32_t depth[], struct match *m, uint32_t *runs,
					 bool some)
{
	uint32_t at = m->at, done = m->done, home = m->home;

	while (done < n) {
		const struct child *c;
		uint32_t run, len, want, got;

		if (some && *runs == 0) {
			m->at = at;
			m->done = done;
			m->home = home;
			return false;
		}
		--*runs;
		c = child_find(a, home, at, hash_at(sh, done));
		if (c == NULL)
			break;
		run = c->run - 1;
		fetch(a, run);
		len = a->run[run].len;
		want = len < n - done ? len : n - done;
		if (len < n - done) /* the next probe's latency beside the comparison's */
			home = child_fetch(a, run, hash_at(sh, done + len));
		got = a->same(run_hash(a, run), (const char *)sh + 8 * (size_t)done, want,
			      n - done);
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
	return true;
}

static __rte_always_inline void match_begin(struct kvr_active *a, const void *sh, uint32_t n,
					    uint32_t depth[], struct match *m)
{
	memset(depth, 0, a->max_ranks * sizeof(depth[0]));
	a->n_path = 0;
	a->partial = 0;
	a->next = ROOT;
	m->at = ROOT;
	m->done = 0;
	m->home = n > 0 ? child_home(a, ROOT, hash_at(sh, 0)) : 0;
}

static bool matching(const struct match *m, const void *sh, uint32_t n, const uint32_t depth[])
{
	return m->sh == sh && m->n == n && m->depth == depth;
}

bool kvr_active_match_some(struct kvr_active *a, const void *sh, uint32_t n, uint32_t depth[],
			   uint32_t runs)
{
	const uint32_t may = runs, most = n > a->max_prompt ? a->max_prompt : n;
	struct match *m = &a->match;

	if (m->state == MATCH_NONE || !matching(m, sh, n, depth)) {
		match_begin(a, sh, most, depth, m);
		m->sh = sh;
		m->n = n;
		m->depth = depth;
		m->state = MATCH_BEGUN;
	}
	if (m->state == MATCH_BEGUN && match_on(a, sh, most, depth, m, &runs, true))
		m->state = MATCH_WHOLE;
	a->walked += may - runs;
	return m->state == MATCH_WHOLE;
}

void kvr_active_match_forget(struct kvr_active *a)
{
	a->match.state = MATCH_NONE;
}

void kvr_active_match(struct kvr_active *a, const void *sh, uint32_t n, uint32_t depth[])
{
	uint32_t runs = UINT32_MAX;
	struct match m;

	if (a->match.state != MATCH_NONE && matching(&a->match, sh, n, depth)) {
		kvr_active_match_some(a, sh, n, depth, UINT32_MAX);
		return;
	}
	if (n > a->max_prompt)
		n = a->max_prompt;
	a->match.state = MATCH_NONE;
	match_begin(a, sh, n, depth, &m);
	match_on(a, sh, n, depth, &m, &runs, false);
	a->walked += UINT32_MAX - runs;
}
