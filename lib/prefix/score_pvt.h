/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Scoring, compiled once for each code path. The file that includes this has defined
 *   vec_spread(out, bits, lanes, v, fill): out[r] = v for each bit; with fill 0 for the others
 *   vec_same(p, q, n): leading equal words of n <= 32
 *   vec_max(to, from, lanes), and SCORE_BURST, the name of the function to define.
 *
 * A group of queries advances in rounds. Each round looks for one head a query (more for one that
 * went on, at multiples of PFX_RUN): those that the count does not rule out in one bulk call, then
 * fetches, then compares: the misses of all queries overlap. A query that is nearly alone has
 * nobody's misses beside its own: it looks for several heads from the first round on. What matched
 * is kept as a path; owners are applied to the path at the end, see walk_pvt.h.
 */

#include "walk_pvt.h"

#define GROUP 16u /* queries a group */
#define KEYS  64u /* lookups a round: the limit of rte_hash */
#define ALONE 2u  /* queries in a group that is no burst */

static void begin(const struct kvr_prefix *t, struct look *l, const struct kvr_prefix_query *q)
{
	struct kvr_overlap *o = q->out;

	__builtin_prefetch(q->sh); /* of all queries before the first is read */
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
	l->dev.out = o->count;
	l->pred.out = &o->count[(size_t)PFX_PRED * o->stride];
}

/* Leading blocks of the query, n of them from `sh` on, that the run has; the first is known. */
static uint32_t match(const struct kvr_prefix *t, const struct pfx_hdr *h, uint32_t len,
		      const void *sh, uint32_t n)
{
	uint32_t at = 0, first, same;

	if (n >= len) {
		if (pfx_ld64(sh, len - 1) ==
		    atomic_load_explicit(&h->last_sh, memory_order_relaxed))
			return len;
		n = len;
	} else if (pfx_rd(pfx_sh(t, h, n - 1)) == pfx_ld64(sh, n - 1)) {
		return n;
	}
	/* As equal ends mean equal beginnings, count the chunks whose ends match; then one chunk.
	 */
	first = RTE_MIN(n, PFX_CHUNK - h->start);
	for (uint32_t end = first; end <= n; end += PFX_CHUNK)
		at += pfx_rd(pfx_sh(t, h, end - 1)) == pfx_ld64(sh, end - 1);
	at = at ? first + (at - 1) * PFX_CHUNK : 0;
	if (at == n)
		return n;
	same = vec_same(pfx_sh(t, h, at), (const char *)sh + (size_t)at * 8,
			RTE_MIN(n - at, at ? PFX_CHUNK : first));
	return RTE_MAX(at + same, 1u);
}

/* The lower tiers start from nothing. */
static void clear_lower(struct kvr_overlap *o)
{
	for (uint32_t p = KVR_TIER_HOST; p < KVR_TIERS; p++) {
		if (o->flags & 1u << p)
			memset(&o->count[(size_t)p * o->stride], 0, o->nranks * sizeof(uint32_t));
	}
}

/* One head found: compare, note, go on behind it. */
static void take(const struct kvr_prefix *t, struct look *l, struct pfx_hdr *h, uint32_t now)
{
	uint32_t len = pfx_len(h);
	uint32_t m = match(t, h, len, (const char *)l->sh + (size_t)l->pos * 8, l->n - l->pos);

	/* One store a second and run, whoever comes first; publishes nothing. */
	if (pfx_ld32(&h->age) != now)
		pfx_st32(&h->age, now);
	if (l->npath == PATH)
		apply_path(t, l);
	if (l->pos == 0) {
		l->first = m;
		clear_lower(l->o);
	}
	l->path[l->npath++] = (struct step){h, l->pos, m};
	l->pos += m;
	/* Behind a mismatch there may be a run, too, that was stored before its parent was known.
	 */
	l->diverged = m < len;
	l->done = l->pos == l->n;
}

struct keys {
	uint32_t n;
	uint64_t sh[KEYS];
	uint32_t pos[KEYS];
	const void *ptr[KEYS];
	hash_sig_t sig[KEYS];
	void *data[KEYS];
};

static void add_key(const struct kvr_prefix *t, struct keys *k, const struct look *l, uint32_t pos)
{
	uint32_t i = k->n++;

	k->sh[i] = pfx_ld64(l->sh, pos);
	k->pos[i] = pos;
	k->sig[i] = (hash_sig_t)pfx_mix(t, k->sh[i]);
	__builtin_prefetch(pfx_prints(t, k->sig[i]), 0, 3);
}

/* The heads a query asks for in this round: the next one, and for a long query some behind. */
static uint32_t ask(const struct kvr_prefix *t, struct keys *k, const struct look *l, uint32_t max)
{
	uint32_t pos = l->pos, n = 0;

	max = l->diverged ? 1 : max;

	do {
		add_key(t, k, l, pos);
		pos = (pos / PFX_RUN + 1) * PFX_RUN;
	} while (++n < max && pos < l->n);
	return n;
}

/* Leave out what is no head, and a query whose next one is not. */
static void sift(const struct kvr_prefix *t, struct keys *k, struct look l[], uint32_t n)
{
	uint32_t from = 0, to = 0;

	for (uint32_t q = 0; q < n; q++) {
		const uint32_t first = from, end = from + l[q].nkey, was = to;

		for (; from < end && !l[q].done; from++) {
			if (!pfx_prints_may(pfx_prints(t, k->sig[from]), k->sig[from])) {
				l[q].done = from == first;
				continue;
			}
			k->sh[to] = k->sh[from];
			k->pos[to] = k->pos[from];
			k->sig[to] = k->sig[from];
			k->ptr[to] = &k->sh[to];
			to++;
		}
		from = end;
		l[q].nkey = to - was;
	}
	k->n = to;
}

static void fetch(const struct keys *k, const struct look *l, uint32_t i, struct pfx_hdr *h)
{
	uint32_t end = k->pos[i] + pfx_len(h) - 1;

	if (end < l->n)
		__builtin_prefetch((const char *)l->sh + (size_t)end * 8, 0, 3);
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

static void round_of(struct kvr_prefix *t, struct look l[], uint32_t n, uint32_t max)
{
	uint32_t i, q, first, now = pfx_ld32(&t->age);
	uint64_t hits = 0;
	struct keys k;

	k.n = 0;
	for (q = 0; q < n; q++)
		l[q].nkey = l[q].done ? 0 : ask(t, &k, &l[q], max);
	sift(t, &k, l, n);
	if (k.n == 0)
		return;
	rte_hash_lookup_with_hash_bulk_data(t->hash, k.ptr, k.sig, k.n, &hits, k.data);
	for (i = 0; i < k.n; i++) {
		if (hits >> i & 1)
			__builtin_prefetch(found(t, &k, i), 0, 3);
	}
	for (q = 0, i = 0; q < n; q++) {
		for (uint32_t j = 0; j < l[q].nkey; j++, i++) {
			struct pfx_hdr *h;

			if (!(hits >> i & 1))
				continue;
			h = found(t, &k, i);
			fetch(&k, &l[q], i, h);
			if (pfx_ld32(&h->big) != PFX_NONE)
				__builtin_prefetch(pfx_big(t, pfx_ld32(&h->big)), 0, 3);
		}
	}
	for (q = 0, first = 0; q < n; first += l[q++].nkey) {
		for (i = first; i < first + l[q].nkey && !l[q].done; i++) {
			if (k.pos[i] != l[q].pos)
				continue;
			if (hits >> i & 1)
				take(t, &l[q], found(t, &k, i), now);
			else
				l[q].done = true;
		}
	}
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

static void score_group(struct kvr_prefix *t, const struct kvr_prefix_query q[], uint32_t n)
{
	/* Acquire: what is noted later is later than what is looked up from here on. */
	uint64_t losses = atomic_load_explicit(&t->losses, memory_order_acquire);
	uint64_t mask[PFX_WORDS];
	bool hidden = load_hidden(t, mask); /* not before the losses */
	struct look l[GROUP];
	uint32_t live = n;

	for (uint32_t i = 0; i < n; i++)
		begin(t, &l[i], &q[i]);
	/* The first head alone decides a miss; who went on may ask for several. */
	for (uint32_t max = n <= ALONE ? KEYS / GROUP : 1; live > 0; max = KEYS / GROUP) {
		live = 0;
		round_of(t, l, n, max);
		for (uint32_t i = 0; i < n; i++)
			live += !l[i].done;
	}
	for (uint32_t i = 0; i < n; i++)
		finish(t, &l[i]);
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
	for (uint32_t i = 0; i < n; i += GROUP)
		score_group(t, &q[i], RTE_MIN(n - i, GROUP));
}
