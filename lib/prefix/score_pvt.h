/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Scoring, compiled once for each code path. The including file defines
 *   vec_spread(out, bits, lanes, v, fill): out[r] = v for each bit; with fill, 0 for the others
 *   vec_same(p, q, n): number of leading equal words of n <= 32
 *   vec_max(to, from, lanes), and SCORE_BURST, the name of the function to define.
 *
 * A group of queries advances in rounds. Each round looks up one head per query, or several at
 * multiples of PFX_RUN for a query that passed its first run. Heads that the fingerprints do not
 * rule out are looked up in one bulk call, then prefetched, then compared, so that the misses of
 * all queries overlap. A query that is almost alone has no other misses to overlap with: it looks
 * up several heads from the first round on. Matched runs are kept as a path; owners are applied to
 * the path at the end, see path_pvt.h.
 *
 * Whether a query is unknown, matches whole runs or leaves a run at some block follows no pattern.
 * A branch on that is mispredicted, at 20 cycles, several times per query. Each step of a group
 * therefore processes a list of the queries it concerns, and builds the list of the next step
 * without branches. A lone query is faster with branches: later instructions do not wait for the
 * data.
 */

#include "path_pvt.h"

#define GROUP 16u /* queries per group */
#define KEYS  64u /* lookups per round: the limit of rte_hash */
#define ALONE 2u  /* queries of a group that is too small to overlap misses */
#define LINE  8u  /* SHs */

static void begin_query(const struct kvr_prefix *table, struct query_state *state,
			const struct kvr_prefix_query *query, uint64_t *bits)
{
	struct kvr_overlap *overlap = query->out;

	kvr_prefetch(query->sh); /* prefetch all queries before the first is read */
	overlap->flags = pfx_ld32(&table->planes) & ~1u;
	overlap->nranks = pfx_ld32(&table->nranks);
	overlap->stride = table->stride;
	state->sh = query->sh;
	state->n = RTE_MIN(query->n, (uint32_t)KVR_PREFIX_MAX_QUERY);
	state->pos = state->npath = state->first = 0;
	state->done = state->n == 0;
	state->diverged = false;
	state->o = overlap;
	state->dev.mode = state->pred.mode = NOT_STARTED;
	state->dev.filled = state->pred.filled = false;
	state->dev.max = state->pred.max = 0;
	state->dev.bits = bits;
	state->pred.bits = bits + table->big_words;
	state->dev.out = overlap->count;
	state->pred.out = &overlap->count[(size_t)PFX_PRED * overlap->stride];
}

/*
 * Number of leading blocks that match, for a lone query. As equal ends mean equal beginnings, count
 * the chunks whose last blocks match, then compare one chunk: all loads are independent.
 */
static uint32_t count_leading(const struct kvr_prefix *table, const struct pfx_hdr *hdr,
			      const void *sh, uint32_t n)
{
	uint32_t at = 0, first = RTE_MIN(n, PFX_CHUNK - hdr->start), same;

	for (uint32_t end = first; end <= n; end += PFX_CHUNK)
		at += pfx_rd(pfx_sh(table, hdr, end - 1)) == pfx_ld64(sh, end - 1);
	at = at ? first + (at - 1) * PFX_CHUNK : 0;
	if (at == n)
		return n;
	same = vec_same(pfx_sh(table, hdr, at), (const char *)sh + (size_t)at * 8,
			RTE_MIN(n - at, at ? PFX_CHUNK : first));
	return RTE_MAX(at + same, 1u);
}

/* A query that leaves a run somewhere in lines lo..hi; the end of line hi differs. */
struct fork {
	const struct pfx_hdr *h;
	const char *sh;	    /* SHs of the query where the run begins */
	uint32_t lo, hi;    /* lines of eight places */
	uint32_t end;	    /* the last place compared, which differs */
	const uint64_t *at; /* SH to compare next, and its counterpart in the query */
	const char *with;
	uint32_t key;
};

static void fork_fetch(const struct kvr_prefix *table, struct fork *fork)
{
	const uint32_t place = RTE_MIN((fork->lo + fork->hi) / 2 * LINE + LINE - 1, fork->end);

	fork->at = pfx_sh(table, fork->h, place - fork->h->start);
	fork->with = fork->sh + (size_t)(place - fork->h->start) * 8;
	kvr_prefetch(fork->at);
	kvr_prefetch(fork->with);
}

static void fork_step(struct fork *fork)
{
	const uint32_t mid = (fork->lo + fork->hi) / 2;
	const bool same = (pfx_rd(fork->at) == pfx_ld64(fork->with, 0)) & (fork->lo < fork->hi);

	fork->lo = same ? mid + 1 : fork->lo;
	fork->hi = same ? fork->hi : mid;
}

/* Number of equal blocks, once one line is left. */
static uint32_t fork_end(const struct kvr_prefix *table, const struct fork *fork)
{
	const uint32_t start = fork->h->start, from = RTE_MAX(fork->lo * LINE, start) - start;
	const uint32_t to = RTE_MIN(fork->lo * LINE + LINE - 1, fork->end) - start;
	uint32_t same =
		vec_same(pfx_sh(table, fork->h, from), fork->sh + (size_t)from * 8, to - from + 1);

	return RTE_MAX(from + same, 1u);
}

/*
 * Find where several queries leave their runs: a binary search, one step of all queries at a time.
 */
static void fork_all(const struct kvr_prefix *table, struct fork fork[], uint32_t n,
		     uint32_t same[])
{
	bool more = n > 0;

	for (uint32_t i = 0; i < n; i++) {
		fork[i].lo = fork[i].h->start / LINE;
		fork[i].hi = fork[i].end / LINE;
		fork_fetch(table, &fork[i]);
	}
	while (more) {
		more = false;
		for (uint32_t i = 0; i < n; i++) {
			fork_step(&fork[i]);
			fork_fetch(table, &fork[i]);
			more |= fork[i].lo < fork[i].hi;
		}
	}
	for (uint32_t i = 0; i < n; i++)
		same[fork[i].key] = fork_end(table, &fork[i]);
}

/* The lower tiers start from zero. */
static void clear_lower(struct kvr_overlap *overlap)
{
	for (uint32_t p = KVR_TIER_HOST; p < KVR_TIERS; p++) {
		if (overlap->flags & 1u << p)
			memset(&overlap->count[(size_t)p * overlap->stride], 0,
			       overlap->nranks * sizeof(uint32_t));
	}
}

/*
 * The query has the first m blocks of a run that was found: add the run to its path and continue
 * after it.
 */
static void take_run(const struct kvr_prefix *table, struct query_state *state, struct pfx_hdr *hdr,
		     uint32_t len, uint32_t m, uint32_t now)
{
	/* One store per second and run, by whichever reader comes first; publishes nothing. */
	if (pfx_ld32(&hdr->age) != now)
		pfx_st32(&hdr->age, now);
	if (state->npath == PATH)
		apply_path(table, state);
	if (state->pos == 0) {
		state->first = m;
		if (state->o->flags & LOWER)
			clear_lower(state->o);
	}
	state->path[state->npath++] = (struct path_run){hdr, state->pos, m};
	state->pos += m;
	/* There may be a run after a mismatch too, if it was stored before its parent was known. */
	state->diverged = m < len;
	state->done = state->pos == state->n;
}

/*
 * Lookups of a round. The arrays up to `data` are indexed by key, those from `hdr` on by run found
 * (fewer).
 */
struct keys {
	uint32_t n;
	uint64_t sh[KEYS];
	uint32_t pos[KEYS];
	uint8_t q[KEYS]; /* query of the key */
	const void *ptr[KEYS];
	hash_sig_t sig[KEYS];
	void *data[KEYS];
	struct pfx_hdr *hdr[KEYS];
	uint32_t len[KEYS];
	uint32_t same[KEYS]; /* leading blocks of the run that the query has */
};

static void add_key(const struct kvr_prefix *table, struct keys *keys,
		    const struct query_state *state, uint8_t q, uint32_t pos)
{
	uint32_t i = keys->n++;

	keys->sh[i] = pfx_ld64(state->sh, pos);
	keys->pos[i] = pos;
	keys->q[i] = q;
	keys->sig[i] = (hash_sig_t)pfx_mix(table, keys->sh[i]);
	kvr_prefetch(pfx_fingerprint_set(table, keys->sig[i]));
}

/*
 * Add the heads that a query looks up in this round: the next one, and for a long query some later
 * ones.
 */
static void add_query_keys(const struct kvr_prefix *table, struct keys *keys,
			   const struct query_state *state, uint8_t q, uint32_t max)
{
	uint32_t pos = state->pos, more = (state->n - 1) / PFX_RUN - pos / PFX_RUN;

	more = state->diverged ? 0 : RTE_MIN(more, max - 1);
	add_key(table, keys, state, q, pos);
	for (pos = pos / PFX_RUN * PFX_RUN; more > 0; more--)
		add_key(table, keys, state, q, pos += PFX_RUN);
}

/*
 * Drop keys that are not heads, and all keys of a query whose next block is not a head. `alone` is
 * a constant.
 */
static __rte_always_inline void filter_keys(const struct kvr_prefix *table, struct keys *keys,
					    struct query_state state[], bool alone)
{
	uint32_t to = 0;

	for (uint32_t i = 0; i < keys->n; i++) {
		struct query_state *query = &state[keys->q[i]];
		const bool may = pfx_fingerprints_match(pfx_fingerprint_set(table, keys->sig[i]),
							keys->sig[i]);

		if (alone && !may) {
			query->done |= keys->pos[i] == query->pos;
			continue;
		}
		query->done |= !may & (keys->pos[i] == query->pos);
		keys->sh[to] = keys->sh[i];
		keys->pos[to] = keys->pos[i];
		keys->q[to] = keys->q[i];
		keys->sig[to] = keys->sig[i];
		keys->ptr[to] = &keys->sh[to];
		to += may & !query->done;
	}
	keys->n = to;
}

/*
 * Header found by rte_hash. ThreadSanitizer does not see the ordering of rte_hash, so repeat it
 * here.
 */
static struct pfx_hdr *header_found(const struct kvr_prefix *table, const struct keys *keys,
				    uint32_t i)
{
	uintptr_t hdr = (uintptr_t)keys->data[i];

#ifdef __SANITIZE_THREAD__
	(void)atomic_load_explicit(&table->birth[hdr], memory_order_acquire);
#endif
	return &table->hdr[hdr];
}

/* Drop keys that rte_hash does not have, and prefetch the rest of the data of the runs found. */
static void filter_headers(const struct kvr_prefix *table, struct keys *keys,
			   struct query_state state[], uint64_t hits)
{
	uint32_t to = 0;

	for (uint32_t i = 0; i < keys->n; i++) {
		struct query_state *query = &state[keys->q[i]];

		if (!(hits >> i & 1)) {
			query->done |= keys->pos[i] == query->pos;
			continue;
		}
		keys->hdr[to] = header_found(table, keys, i);
		kvr_prefetch(keys->hdr[to]);
		keys->pos[to] = keys->pos[i];
		keys->q[to++] = keys->q[i];
	}
	keys->n = to;
	for (uint32_t i = 0; i < keys->n; i++) {
		const struct query_state *query = &state[keys->q[i]];
		struct pfx_hdr *hdr = keys->hdr[i];
		uint32_t end;

		keys->len[i] = pfx_len(hdr);
		end = keys->pos[i] + keys->len[i] - 1;
		if (end < query->n)
			kvr_prefetch((const char *)query->sh + (size_t)end * 8);
		if (pfx_ld32(&hdr->big) != PFX_NONE)
			kvr_prefetch(pfx_big(table, pfx_ld32(&hdr->big)));
	}
}

/* Return true if the query matches all n blocks that it can share with the run found by key i. */
static inline bool matches_all(const struct kvr_prefix *table, const struct keys *keys, uint32_t i,
			       const void *sh, uint32_t n)
{
	const struct pfx_hdr *hdr = keys->hdr[i];

	return pfx_ld64(sh, n - 1) ==
	       (n == keys->len[i] ? atomic_load_explicit(&hdr->last_sh, memory_order_relaxed)
				  : pfx_rd(pfx_sh(table, hdr, n - 1)));
}

/* Leading blocks of a run that its query has; the first is known to match. */
static uint32_t match_run(const struct kvr_prefix *table, const struct keys *keys, uint32_t i,
			  const struct query_state *state)
{
	const char *sh = (const char *)state->sh + (size_t)keys->pos[i] * 8;
	const uint32_t n = RTE_MIN(keys->len[i], state->n - keys->pos[i]);

	return matches_all(table, keys, i, sh, n) ? n : count_leading(table, keys->hdr[i], sh, n);
}

/* match_run() for all keys of a group. */
static void match_runs(const struct kvr_prefix *table, struct keys *keys,
		       const struct query_state state[])
{
	struct fork fork[KEYS];
	uint32_t nfork = 0;

	for (uint32_t i = 0; i < keys->n; i++) {
		const struct query_state *query = &state[keys->q[i]];
		const struct pfx_hdr *hdr = keys->hdr[i];
		const char *sh = (const char *)query->sh + (size_t)keys->pos[i] * 8;
		const uint32_t n = RTE_MIN(keys->len[i], query->n - keys->pos[i]);
		const bool all = matches_all(table, keys, i, sh, n);

		keys->same[i] = n;
		fork[nfork] =
			(struct fork){.h = hdr, .sh = sh, .end = hdr->start + n - 1, .key = i};
		nfork += !all;
		kvr_prefetch(all ? (const void *)hdr : (const void *)hdr->chunk);
	}
	fork_all(table, fork, nfork, keys->same);
}

/* Run one round of the queries that are not finished. @return how many continue. */
static __rte_always_inline uint32_t run_round(struct kvr_prefix *table, struct query_state state[],
					      uint8_t live[], uint32_t n, uint32_t max, bool alone)
{
	uint32_t now = pfx_ld32(&table->age), on = 0;
	uint64_t hits = 0;
	struct keys keys;

	keys.n = 0;
	for (uint32_t i = 0; i < n; i++)
		add_query_keys(table, &keys, &state[live[i]], live[i], max);
	filter_keys(table, &keys, state, alone);
	if (keys.n == 0)
		return 0;
	rte_hash_lookup_with_hash_bulk_data(table->hash, keys.ptr, keys.sig, keys.n, &hits,
					    keys.data);
	filter_headers(table, &keys, state, hits);
	if (!alone)
		match_runs(table, &keys, state);
	for (uint32_t i = 0; i < keys.n; i++) {
		struct query_state *query = &state[keys.q[i]];

		if (keys.pos[i] == query->pos && !query->done)
			take_run(table, query, keys.hdr[i], keys.len[i],
				 alone ? match_run(table, &keys, i, query) : keys.same[i], now);
	}
	for (uint32_t i = 0; i < n; i++) {
		live[on] = live[i];
		on += !state[live[i]].done;
	}
	return on;
}

/* Ranks from..to-1 lost blocks meanwhile: limit them to the count of one run. */
static void clip_ranks(struct query_state *state, uint32_t from, uint32_t to)
{
	to = RTE_MIN(to, state->o->nranks);
	for (uint32_t r = from; r < to; r++) {
		state->dev.out[r] = RTE_MIN(state->dev.out[r], state->first);
		if (state->o->flags & KVR_OVERLAP_PREDICTED)
			state->pred.out[r] = RTE_MIN(state->pred.out[r], state->first);
		for (uint32_t p = KVR_TIER_HOST; p < KVR_TIERS; p++) {
			if (state->o->flags & 1u << p)
				state->o->count[(size_t)p * state->o->stride + r] = 0;
		}
	}
}

static void clip_losers(const struct kvr_prefix *table, struct query_state *state, uint32_t n,
			uint64_t since)
{
	uint64_t now;

	/*
	 * Both acquires pair with the release in pfx_note_loss(): if a store is visible, the losses
	 * recorded before it are too.
	 */
	atomic_thread_fence(memory_order_acquire);
	now = atomic_load_explicit(&table->losses, memory_order_acquire);
	for (uint64_t i = since + 1; i <= now; i++) {
		uint16_t rank =
			atomic_load_explicit(&table->loser[i % PFX_LOSSES], memory_order_relaxed);
		bool overrun = atomic_load_explicit(&table->losses, memory_order_acquire) - since >=
			       PFX_LOSSES - 2;

		if (overrun) {
			for (uint32_t k = 0; k < n; k++)
				clip_ranks(&state[k], 0, KVR_PREFIX_MAX_RANKS);
			return;
		}
		for (uint32_t k = 0; k < n; k++)
			clip_ranks(&state[k], rank, rank + 1u);
	}
}

/*
 * Load the ranks that are being cleared when a group begins: they hold nothing. If clearing begins
 * later, a loss is recorded. @return false if there is none.
 */
static bool load_hidden(const struct kvr_prefix *table, uint64_t mask[])
{
	/* Acquire both: pair with the releases in hide_rank() and show_rank(). */
	if (likely(atomic_load_explicit(&table->nhidden, memory_order_acquire) == 0))
		return false;
	for (uint32_t i = 0; i < table->big_words; i++)
		mask[i] = atomic_load_explicit(&table->hidden[i], memory_order_acquire);
	return true;
}

static void clip_hidden(const struct kvr_prefix *table, struct query_state *state,
			const uint64_t mask[])
{
	state->first = 0;
	for (uint32_t i = 0; i < table->big_words; i++) {
		for (uint64_t b = mask[i]; b != 0; b &= b - 1) {
			uint32_t r = i * 64 + (uint32_t)__builtin_ctzll(b);

			clip_ranks(state, r, r + 1);
		}
	}
}

/*
 * Which prompts are unknown follows no pattern: partition the queries first, as a mispredicted
 * branch for each costs more.
 */
static void finish_all(const struct kvr_prefix *table, struct query_state state[], uint32_t n)
{
	uint8_t some[GROUP + 1], none[GROUP + 1];
	uint32_t nsome = 0, nnone = 0;

	for (uint32_t i = 0; i < n; i++) {
		some[nsome] = none[nnone] = (uint8_t)i;
		nsome += state[i].pos != 0;
		nnone += state[i].pos == 0;
	}
	for (uint32_t i = 0; i < nnone; i++)
		clear_overlap(state[none[i]].o);
	for (uint32_t i = 0; i < nsome; i++)
		finish_query(table, &state[some[i]]);
}

static __rte_always_inline void score_group(struct kvr_prefix *table,
					    const struct kvr_prefix_query query[], uint32_t n,
					    const bool alone)
{
	/* Acquire: losses recorded later are later than all lookups from here on. */
	uint64_t losses = atomic_load_explicit(&table->losses, memory_order_acquire);
	uint64_t mask[PFX_WORDS], bits[2 * GROUP * PFX_WORDS];
	bool hidden = load_hidden(table, mask); /* must follow the load of losses */
	struct query_state state[GROUP];
	uint8_t live[GROUP + 1];
	uint32_t on = 0;

	for (uint32_t i = 0; i < n; i++) {
		begin_query(table, &state[i], &query[i], &bits[2 * i * table->big_words]);
		live[on] = (uint8_t)i;
		on += !state[i].done;
	}
	/*
	 * The first head alone decides whether the prompt is unknown; queries that continue may
	 * look up several heads.
	 */
	for (uint32_t max = alone ? KEYS / GROUP : 1; on > 0; max = KEYS / GROUP)
		on = run_round(table, state, live, on, max, alone);
	finish_all(table, state, n);
	clip_losers(table, state, n, losses);
	for (uint32_t i = 0; hidden && i < n; i++)
		clip_hidden(table, &state[i], mask);
}

/*
 * Return true if no rank holds the first block of a lone prompt. Checked before any setup for a
 * walk.
 */
static bool is_unknown_prompt(const struct kvr_prefix *table, const struct kvr_prefix_query *query)
{
	uint64_t mix = query->n > 0 ? pfx_mix(table, pfx_ld64(query->sh, 0)) : 0;

	if (query->n > 0 && pfx_fingerprints_match(pfx_fingerprint_set(table, mix), mix))
		return false;
	query->out->stride = table->stride;
	clear_overlap(query->out);
	return true;
}

void SCORE_BURST(struct kvr_prefix *table, const struct kvr_prefix_query query[], uint32_t n)
{
	if (n == 1 && is_unknown_prompt(table, query))
		return;
	for (uint32_t i = 0; i < n; i += GROUP) {
		if (n - i <= ALONE)
			score_group(table, &query[i], n - i, true);
		else
			score_group(table, &query[i], RTE_MIN(n - i, GROUP), false);
	}
}
