/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Scoring, compiled once for each code path. The file that includes this has defined
 *   vec_spread(out, bits, lanes, v, fill): out[r] = v for each bit; with fill 0 for the others
 *   vec_same(p, q, n): leading equal words of n <= 32
 *   vec_max(to, from, lanes), and SCORE_BURST, the name of the function to define.
 *
 * A group of queries advances in rounds. Each round looks for one head a query (more for one that
 * went on, at multiples of PFX_RUN): those that no print rules out in one bulk call, then fetches,
 * then compares: the misses of all queries overlap. A query that is nearly alone has nobody's
 * misses beside its own: it looks for several heads from the first round on. What matched is kept
 * as a path; owners are applied to the path at the end, see walk_pvt.h.
 *
 * What becomes of a query follows no pattern: nobody's, whole or left at some block. A branch on
 * that is guessed wrong, for 20 cycles, several times a query; so each step of a group goes over a
 * list of those it concerns, and makes the list of the next one without branches. One alone is
 * better off with branches: then what follows does not wait for what was asked.
 */

#include "walk_pvt.h"

#define GROUP 16u /* queries a group */
#define KEYS  64u /* lookups a round: the limit of rte_hash */
#define ALONE 2u  /* queries in a group that is no burst */
#define LINE  8u  /* SHs */

static void begin(const struct kvr_prefix *t, struct look *l, const struct kvr_prefix_query *q,
		  uint64_t *bits)
{
	struct kvr_overlap *o = q->out;

	kvr_prefetch(q->sh); /* of all queries before the first is read */
	o->flags = pfx_ld32(&t->planes) & ~1u;
	o->nranks = pfx_ld32(&t->nranks);
	o->stride = t->stride;
	l->sh = q->sh;
	l->n = RTE_MIN(q->n, (uint32_t)KVR_PREFIX_MAX_QUERY);
	l->pos = l->npath = l->first = 0;
	l->done = l->n == 0;
	l->diverged = false;
	l->o = o;
	l->dev.mode = l->pred.mode = NOT_STARTED;
	l->dev.filled = l->pred.filled = false;
	l->dev.max = l->pred.max = 0;
	l->dev.bits = bits;
	l->pred.bits = bits + t->big_words;
	l->dev.out = o->count;
	l->pred.out = &o->count[(size_t)PFX_PRED * o->stride];
}

/*
 * Where a query left a run, for one alone. As equal ends mean equal beginnings, count the chunks
 * whose ends match; then one chunk: everything is loaded at the same time.
 */
static uint32_t left_at(const struct kvr_prefix *t, const struct pfx_hdr *h, const void *sh,
			uint32_t n)
{
	uint32_t at = 0, first = RTE_MIN(n, PFX_CHUNK - h->start), same;

	for (uint32_t end = first; end <= n; end += PFX_CHUNK)
		at += pfx_rd(pfx_sh(t, h, end - 1)) == pfx_ld64(sh, end - 1);
	at = at ? first + (at - 1) * PFX_CHUNK : 0;
	if (at == n)
		return n;
	same = vec_same(pfx_sh(t, h, at), (const char *)sh + (size_t)at * 8,
			RTE_MIN(n - at, at ? PFX_CHUNK : first));
	return RTE_MAX(at + same, 1u);
}

/* A query that left a run, somewhere in lines lo..hi of it; the last of those differs at its end.
 */
struct fork {
	const struct pfx_hdr *h;
	const char *sh;	    /* of the query, where the run begins */
	uint32_t lo, hi;    /* lines of eight places */
	uint32_t end;	    /* the last place compared: it differs */
	const uint64_t *at; /* compared next, and with what of the query */
	const char *with;
	uint32_t key;
};

static void fork_fetch(const struct kvr_prefix *t, struct fork *f)
{
	const uint32_t place = RTE_MIN((f->lo + f->hi) / 2 * LINE + LINE - 1, f->end);

	f->at = pfx_sh(t, f->h, place - f->h->start);
	f->with = f->sh + (size_t)(place - f->h->start) * 8;
	kvr_prefetch(f->at);
	kvr_prefetch(f->with);
}

static void fork_step(struct fork *f)
{
	const uint32_t mid = (f->lo + f->hi) / 2;
	const bool same = (pfx_rd(f->at) == pfx_ld64(f->with, 0)) & (f->lo < f->hi);

	f->lo = same ? mid + 1 : f->lo;
	f->hi = same ? f->hi : mid;
}

/* How many blocks are the same, one line left. */
static uint32_t fork_end(const struct kvr_prefix *t, const struct fork *f)
{
	const uint32_t start = f->h->start, from = RTE_MAX(f->lo * LINE, start) - start;
	const uint32_t to = RTE_MIN(f->lo * LINE + LINE - 1, f->end) - start;
	uint32_t same = vec_same(pfx_sh(t, f->h, from), f->sh + (size_t)from * 8, to - from + 1);

	return RTE_MAX(from + same, 1u);
}

/* Where several queries left their runs: by halves, all a step before any goes on. */
static void fork_all(const struct kvr_prefix *t, struct fork f[], uint32_t n, uint32_t same[])
{
	bool more = n > 0;

	for (uint32_t i = 0; i < n; i++) {
		f[i].lo = f[i].h->start / LINE;
		f[i].hi = f[i].end / LINE;
		fork_fetch(t, &f[i]);
	}
	while (more) {
		more = false;
		for (uint32_t i = 0; i < n; i++) {
			fork_step(&f[i]);
			fork_fetch(t, &f[i]);
			more |= f[i].lo < f[i].hi;
		}
	}
	for (uint32_t i = 0; i < n; i++)
		same[f[i].key] = fork_end(t, &f[i]);
}

/* The lower tiers start from nothing. */
static void clear_lower(struct kvr_overlap *o)
{
	for (uint32_t p = KVR_TIER_HOST; p < KVR_TIERS; p++) {
		if (o->flags & 1u << p)
			memset(&o->count[(size_t)p * o->stride], 0, o->nranks * sizeof(uint32_t));
	}
}

/* One head found, of whose run the query has the first m blocks: note, go on behind them. */
static void take(const struct kvr_prefix *t, struct look *l, struct pfx_hdr *h, uint32_t len,
		 uint32_t m, uint32_t now)
{
	/* One store a second and run, whoever comes first; publishes nothing. */
	if (pfx_ld32(&h->age) != now)
		pfx_st32(&h->age, now);
	if (l->npath == PATH)
		apply_path(t, l);
	if (l->pos == 0) {
		l->first = m;
		if (l->o->flags & LOWER)
			clear_lower(l->o);
	}
	l->path[l->npath++] = (struct step){h, l->pos, m};
	l->pos += m;
	/* Behind a mismatch there may be a run, too, that was stored before its parent was known.
	 */
	l->diverged = m < len;
	l->done = l->pos == l->n;
}

/* What is looked for in a round, by key; from `hdr` on what was found, which are fewer. */
struct keys {
	uint32_t n;
	uint64_t sh[KEYS];
	uint32_t pos[KEYS];
	uint8_t q[KEYS]; /* whose */
	const void *ptr[KEYS];
	hash_sig_t sig[KEYS];
	void *data[KEYS];
	struct pfx_hdr *hdr[KEYS];
	uint32_t len[KEYS];
	uint32_t same[KEYS]; /* leading blocks of the run that the query has */
};

static void add_key(const struct kvr_prefix *t, struct keys *k, const struct look *l, uint8_t q,
		    uint32_t pos)
{
	uint32_t i = k->n++;

	k->sh[i] = pfx_ld64(l->sh, pos);
	k->pos[i] = pos;
	k->q[i] = q;
	k->sig[i] = (hash_sig_t)pfx_mix(t, k->sh[i]);
	kvr_prefetch(pfx_prints(t, k->sig[i]));
}

/* The heads a query asks for in this round: the next one, and for a long query some behind. */
static void ask(const struct kvr_prefix *t, struct keys *k, const struct look *l, uint8_t q,
		uint32_t max)
{
	uint32_t pos = l->pos, more = (l->n - 1) / PFX_RUN - pos / PFX_RUN;

	more = l->diverged ? 0 : RTE_MIN(more, max - 1);
	add_key(t, k, l, q, pos);
	for (pos = pos / PFX_RUN * PFX_RUN; more > 0; more--)
		add_key(t, k, l, q, pos += PFX_RUN);
}

/* Leave out what is no head, and a query whose next one is not; `alone` is a constant. */
static __rte_always_inline void sift(const struct kvr_prefix *t, struct keys *k, struct look l[],
				     bool alone)
{
	uint32_t to = 0;

	for (uint32_t i = 0; i < k->n; i++) {
		struct look *x = &l[k->q[i]];
		const bool may = pfx_prints_may(pfx_prints(t, k->sig[i]), k->sig[i]);

		if (alone && !may) {
			x->done |= k->pos[i] == x->pos;
			continue;
		}
		x->done |= !may & (k->pos[i] == x->pos);
		k->sh[to] = k->sh[i];
		k->pos[to] = k->pos[i];
		k->q[to] = k->q[i];
		k->sig[to] = k->sig[i];
		k->ptr[to] = &k->sh[to];
		to += may & !x->done;
	}
	k->n = to;
}

/* What rte_hash gave. Its own ordering is invisible to ThreadSanitizer: shown to it here. */
static struct pfx_hdr *found(const struct kvr_prefix *t, const struct keys *k, uint32_t i)
{
	uintptr_t hdr = (uintptr_t)k->data[i];

#ifdef __SANITIZE_THREAD__
	(void)atomic_load_explicit(&t->birth[hdr], memory_order_acquire);
#endif
	return &t->hdr[hdr];
}

/* Leave out what rte_hash does not have, and fetch what else will be read of a run found. */
static void fetch(const struct kvr_prefix *t, struct keys *k, struct look l[], uint64_t hits)
{
	uint32_t to = 0;

	for (uint32_t i = 0; i < k->n; i++) {
		struct look *x = &l[k->q[i]];

		if (!(hits >> i & 1)) {
			x->done |= k->pos[i] == x->pos;
			continue;
		}
		k->hdr[to] = found(t, k, i);
		kvr_prefetch(k->hdr[to]);
		k->pos[to] = k->pos[i];
		k->q[to++] = k->q[i];
	}
	k->n = to;
	for (uint32_t i = 0; i < k->n; i++) {
		const struct look *x = &l[k->q[i]];
		struct pfx_hdr *h = k->hdr[i];
		uint32_t end;

		k->len[i] = pfx_len(h);
		end = k->pos[i] + k->len[i] - 1;
		if (end < x->n)
			kvr_prefetch((const char *)x->sh + (size_t)end * 8);
		if (pfx_ld32(&h->big) != PFX_NONE)
			kvr_prefetch(pfx_big(t, pfx_ld32(&h->big)));
	}
}

/* Of the run found by key i, all the n blocks that its query may have? */
static inline bool whole(const struct kvr_prefix *t, const struct keys *k, uint32_t i,
			 const void *sh, uint32_t n)
{
	const struct pfx_hdr *h = k->hdr[i];

	return pfx_ld64(sh, n - 1) ==
	       (n == k->len[i] ? atomic_load_explicit(&h->last_sh, memory_order_relaxed)
			       : pfx_rd(pfx_sh(t, h, n - 1)));
}

/* Leading blocks of a run found that its query has; the first is known. */
static uint32_t match(const struct kvr_prefix *t, const struct keys *k, uint32_t i,
		      const struct look *x)
{
	const char *sh = (const char *)x->sh + (size_t)k->pos[i] * 8;
	const uint32_t n = RTE_MIN(k->len[i], x->n - k->pos[i]);

	return whole(t, k, i, sh, n) ? n : left_at(t, k->hdr[i], sh, n);
}

/* The same of each. */
static void match_all(const struct kvr_prefix *t, struct keys *k, const struct look l[])
{
	struct fork f[KEYS];
	uint32_t nfork = 0;

	for (uint32_t i = 0; i < k->n; i++) {
		const struct look *x = &l[k->q[i]];
		const struct pfx_hdr *h = k->hdr[i];
		const char *sh = (const char *)x->sh + (size_t)k->pos[i] * 8;
		const uint32_t n = RTE_MIN(k->len[i], x->n - k->pos[i]);
		const bool all = whole(t, k, i, sh, n);

		k->same[i] = n;
		f[nfork] = (struct fork){.h = h, .sh = sh, .end = h->start + n - 1, .key = i};
		nfork += !all;
		kvr_prefetch(all ? (const void *)h : (const void *)h->chunk);
	}
	fork_all(t, f, nfork, k->same);
}

/* One round of those queries that are still looking: gives how many go on. */
static __rte_always_inline uint32_t round_of(struct kvr_prefix *t, struct look l[], uint8_t live[],
					     uint32_t n, uint32_t max, bool alone)
{
	uint32_t now = pfx_ld32(&t->age), on = 0;
	uint64_t hits = 0;
	struct keys k;

	k.n = 0;
	for (uint32_t i = 0; i < n; i++)
		ask(t, &k, &l[live[i]], live[i], max);
	sift(t, &k, l, alone);
	if (k.n == 0)
		return 0;
	rte_hash_lookup_with_hash_bulk_data(t->hash, k.ptr, k.sig, k.n, &hits, k.data);
	fetch(t, &k, l, hits);
	if (!alone)
		match_all(t, &k, l);
	for (uint32_t i = 0; i < k.n; i++) {
		struct look *x = &l[k.q[i]];

		if (k.pos[i] == x->pos && !x->done)
			take(t, x, k.hdr[i], k.len[i], alone ? match(t, &k, i, x) : k.same[i], now);
	}
	for (uint32_t i = 0; i < n; i++) {
		live[on] = live[i];
		on += !l[live[i]].done;
	}
	return on;
}

/* Ranks from..to-1 lost blocks meanwhile: only what one run said is sure. */
static void clip(struct look *l, uint32_t from, uint32_t to)
{
	to = RTE_MIN(to, l->o->nranks);
	for (uint32_t r = from; r < to; r++) {
		l->dev.out[r] = RTE_MIN(l->dev.out[r], l->first);
		if (l->o->flags & KVR_OVERLAP_PREDICTED)
			l->pred.out[r] = RTE_MIN(l->pred.out[r], l->first);
		for (uint32_t p = KVR_TIER_HOST; p < KVR_TIERS; p++) {
			if (l->o->flags & 1u << p)
				l->o->count[(size_t)p * l->o->stride + r] = 0;
		}
	}
}

static void clip_losers(const struct kvr_prefix *t, struct look *l, uint32_t n, uint64_t since)
{
	uint64_t now;

	/* Both pair with the release in pfx_note_loss(): a store seen was preceded by its notes. */
	atomic_thread_fence(memory_order_acquire);
	now = atomic_load_explicit(&t->losses, memory_order_acquire);
	for (uint64_t i = since + 1; i <= now; i++) {
		uint16_t rank =
			atomic_load_explicit(&t->loser[i % PFX_LOSSES], memory_order_relaxed);
		bool forgotten = atomic_load_explicit(&t->losses, memory_order_acquire) - since >=
				 PFX_LOSSES - 2;

		if (forgotten) {
			for (uint32_t k = 0; k < n; k++)
				clip(&l[k], 0, KVR_PREFIX_MAX_RANKS);
			return;
		}
		for (uint32_t k = 0; k < n; k++)
			clip(&l[k], rank, rank + 1u);
	}
}

/*
 * Ranks that are being cleared when a group begins have nothing; for those whose clearing begins
 * later there is a note. False: none.
 */
static bool load_hidden(const struct kvr_prefix *t, uint64_t mask[])
{
	/* Acquire both: pair with the releases in hide() and show(). */
	if (likely(atomic_load_explicit(&t->nhidden, memory_order_acquire) == 0))
		return false;
	for (uint32_t i = 0; i < t->big_words; i++)
		mask[i] = atomic_load_explicit(&t->hidden[i], memory_order_acquire);
	return true;
}

static void hide(const struct kvr_prefix *t, struct look *l, const uint64_t mask[])
{
	l->first = 0;
	for (uint32_t i = 0; i < t->big_words; i++) {
		for (uint64_t b = mask[i]; b != 0; b &= b - 1) {
			uint32_t r = i * 64 + (uint32_t)__builtin_ctzll(b);

			clip(l, r, r + 1);
		}
	}
}

/* Which prompts are nobody's follows no pattern: asked for all first, a guess at each costs more.
 */
static void finish_all(const struct kvr_prefix *t, struct look l[], uint32_t n)
{
	uint8_t some[GROUP + 1], none[GROUP + 1];
	uint32_t nsome = 0, nnone = 0;

	for (uint32_t i = 0; i < n; i++) {
		some[nsome] = none[nnone] = (uint8_t)i;
		nsome += l[i].pos != 0;
		nnone += l[i].pos == 0;
	}
	for (uint32_t i = 0; i < nnone; i++)
		nothing(l[none[i]].o);
	for (uint32_t i = 0; i < nsome; i++)
		finish(t, &l[some[i]]);
}

static __rte_always_inline void score_group(struct kvr_prefix *t, const struct kvr_prefix_query q[],
					    uint32_t n, const bool alone)
{
	/* Acquire: what is noted later is later than what is looked up from here on. */
	uint64_t losses = atomic_load_explicit(&t->losses, memory_order_acquire);
	uint64_t mask[PFX_WORDS], bits[2 * GROUP * PFX_WORDS];
	bool hidden = load_hidden(t, mask); /* not before the losses */
	struct look l[GROUP];
	uint8_t live[GROUP + 1];
	uint32_t on = 0;

	for (uint32_t i = 0; i < n; i++) {
		begin(t, &l[i], &q[i], &bits[2 * i * t->big_words]);
		live[on] = (uint8_t)i;
		on += !l[i].done;
	}
	/* The first head alone decides a miss; who went on may ask for several. */
	for (uint32_t max = alone ? KEYS / GROUP : 1; on > 0; max = KEYS / GROUP)
		on = round_of(t, l, live, on, max, alone);
	finish_all(t, l, n);
	clip_losers(t, l, n, losses);
	for (uint32_t i = 0; hidden && i < n; i++)
		hide(t, &l[i], mask);
}

/* A lone prompt that begins like nobody's: told before anything is set up for a walk. */
static bool nobodys(const struct kvr_prefix *t, const struct kvr_prefix_query *q)
{
	uint64_t mix = q->n > 0 ? pfx_mix(t, pfx_ld64(q->sh, 0)) : 0;

	if (q->n > 0 && pfx_prints_may(pfx_prints(t, mix), mix))
		return false;
	q->out->stride = t->stride;
	nothing(q->out);
	return true;
}

void SCORE_BURST(struct kvr_prefix *t, const struct kvr_prefix_query q[], uint32_t n)
{
	if (n == 1 && nobodys(t, q))
		return;
	for (uint32_t i = 0; i < n; i += GROUP) {
		if (n - i <= ALONE)
			score_group(t, &q[i], n - i, true);
		else
			score_group(t, &q[i], RTE_MIN(n - i, GROUP), false);
	}
}
