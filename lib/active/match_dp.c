/* SPDX-License-Identifier: BSD-3-Clause */
/* Matching a prompt: the walk down the runs that it shares with active prompts. */
#include "active_pvt.h"

#include <string.h>

#include <rte_common.h>

/* States of kvr_active_ahead: the next thing to prefetch; zero is the first. */
enum { AHEAD_PROMPT, AHEAD_CHILD, AHEAD_RUN, AHEAD_END };

#define PREFETCH_HASHES 256u /* 32 cache lines of the prompt: as many loads as can be in flight */
#define PREFETCH_PLACES 8u   /* index places of runs that a booking adds */

static uint64_t load_hash(const void *sh, uint32_t i)
{
	uint64_t h;

	memcpy(&h, (const char *)sh + 8 * (size_t)i, 8);
	return h;
}

/*
 * Write the depth of all owners of a run. Owners of a deeper run also own the runs above it, so
 * later stores only raise depths.
 */
static void write_depths(const struct kvr_active *active, uint32_t run, uint32_t depth,
			 uint32_t out[])
{
	const struct run *header = &active->run[run];

	if (header->wide != 0) {
		active->spread(wide_set(active, header->wide), active->max_ranks / 64, depth, out);
		return;
	}
	/*
	 * The number of stores is constant: the end of a loop over n_owner would be mispredicted.
	 */
	for (uint32_t i = 0; i < INLINE; i++)
		out[header->rank[i < header->n_owner ? i : 0]] = depth;
}

/* Prefetch header and hashes of a run together: one latency instead of one per line. */
static void fetch_run_all(const struct kvr_active *active, uint32_t run)
{
	kvr_prefetch(&active->run[run]);
	kvr_prefetch((const char *)&active->run[run] + 64);
	for (uint32_t i = 0; i < KVR_ACTIVE_RUN; i += 8)
		kvr_prefetch(&active->hash[run][i]);
}

void kvr_active_prefetch_match(const struct kvr_active *active, const void *sh, uint32_t n,
			       struct kvr_active_ahead *ahead)
{
	const struct child *child;
	const char *end;
	uint32_t len;

	switch (ahead->step) {
	case AHEAD_PROMPT:
		if (n == 0)
			break;
		ahead->step = AHEAD_CHILD;
		ahead->run = ROOT;
		ahead->home = child_fetch(active, ROOT, load_hash(sh, 0));
		end = (const char *)sh + 8 * (size_t)(n < PREFETCH_HASHES ? n : PREFETCH_HASHES);
		for (const char *p = (const char *)sh + 64; p < end; p += 64)
			kvr_prefetch(p);
		return;
	case AHEAD_CHILD:
		child = child_find(active, ahead->home, ahead->run, load_hash(sh, ahead->done));
		if (child == NULL)
			break;
		ahead->step = AHEAD_RUN;
		ahead->run = child->run - 1;
		fetch_run_all(active, ahead->run);
		return;
	case AHEAD_RUN:
		len = active->run[ahead->run].len;
		if (len >= n - ahead->done)
			break;
		ahead->step = AHEAD_CHILD;
		ahead->done += len;
		ahead->home = child_fetch(active, ahead->run, load_hash(sh, ahead->done));
		return;
	default:
		return;
	}
	ahead->step = AHEAD_END;
}

/*
 * Prefetch the index places that a booking will fill, since the ids of its runs are known. The
 * first of them has been accessed unless a run is split.
 */
static void fetch_places(const struct kvr_active *active, const void *sh, uint32_t n)
{
	uint32_t at = active->matched + active->partial;

	if (active->next != ROOT)
		child_fetch(active, pool_peek(&active->runs, 0),
			    run_hash(active, active->next)[active->partial]);
	else
		at += KVR_ACTIVE_RUN;
	for (uint32_t i = 0; at < n && i < PREFETCH_PLACES; i++, at += KVR_ACTIVE_RUN)
		child_fetch(active, pool_peek(&active->runs, i), load_hash(sh, at));
}

/*
 * Continue a match. Like every walk this exists in two forms: complete, or (`some`) at most *runs
 * runs from the current position. Both decrement *runs. @return true if the match is complete.
 */
static __rte_always_inline bool continue_match(struct kvr_active *active, const void *sh,
					       uint32_t n, uint32_t depth[], struct match *match,
					       uint32_t *runs, bool some)
{
	uint32_t at = match->at, done = match->done, home = match->home;

	while (done < n) {
		const struct child *child;
		uint32_t run, len, want, got;

		if (some && *runs == 0) {
			match->at = at;
			match->done = done;
			match->home = home;
			return false;
		}
		--*runs;
		child = child_find(active, home, at, load_hash(sh, done));
		if (child == NULL)
			break;
		run = child->run - 1;
		fetch_run_all(active, run);
		len = active->run[run].len;
		want = len < n - done ? len : n - done;
		if (len < n - done) /* the latency of the next probe overlaps with the comparison */
			home = child_fetch(active, run, load_hash(sh, done + len));
		got = active->same(run_hash(active, run), (const char *)sh + 8 * (size_t)done, want,
				   n - done);
		write_depths(active, run, done + got, depth);
		if (got < len) {
			active->next = run;
			active->partial = got;
			break;
		}
		active->path[active->n_path++] = run;
		at = run;
		done += got;
	}
	active->matched = done;
	fetch_places(active, sh, n);
	return true;
}

static __rte_always_inline void begin_match(struct kvr_active *active, const void *sh, uint32_t n,
					    uint32_t depth[], struct match *match)
{
	memset(depth, 0, active->max_ranks * sizeof(depth[0]));
	active->n_path = 0;
	active->partial = 0;
	active->next = ROOT;
	match->at = ROOT;
	match->done = 0;
	match->home = n > 0 ? child_home(active, ROOT, load_hash(sh, 0)) : 0;
}

static bool is_same_match(const struct match *match, const void *sh, uint32_t n,
			  const uint32_t depth[])
{
	return match->sh == sh && match->n == n && match->depth == depth;
}

bool kvr_active_match_some(struct kvr_active *active, const void *sh, uint32_t n, uint32_t depth[],
			   uint32_t runs)
{
	const uint32_t may = runs, most = n > active->max_prompt ? active->max_prompt : n;
	struct match *match = &active->match;

	if (match->state == MATCH_NONE || !is_same_match(match, sh, n, depth)) {
		begin_match(active, sh, most, depth, match);
		match->sh = sh;
		match->n = n;
		match->depth = depth;
		match->state = MATCH_BEGUN;
	}
	if (match->state == MATCH_BEGUN &&
	    continue_match(active, sh, most, depth, match, &runs, true))
		match->state = MATCH_WHOLE;
	active->walked += may - runs;
	return match->state == MATCH_WHOLE;
}

void kvr_active_match_forget(struct kvr_active *active)
{
	active->match.state = MATCH_NONE;
}

void kvr_active_match(struct kvr_active *active, const void *sh, uint32_t n, uint32_t depth[])
{
	uint32_t runs = UINT32_MAX;
	struct match match;

	if (active->match.state != MATCH_NONE && is_same_match(&active->match, sh, n, depth)) {
		kvr_active_match_some(active, sh, n, depth, UINT32_MAX);
		return;
	}
	if (n > active->max_prompt)
		n = active->max_prompt;
	active->match.state = MATCH_NONE;
	begin_match(active, sh, n, depth, &match);
	continue_match(active, sh, n, depth, &match, &runs, false);
	active->walked += UINT32_MAX - runs;
}
