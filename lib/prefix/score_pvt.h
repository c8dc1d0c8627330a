/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Scoring, compiled once for each code path. The file that includes this has defined
 *   vec_spread(out, bits, lanes, v, fill): out[r] = v for each bit; with fill 0 for the others
 *   vec_same(p, q, n): leading equal words of n <= 32
 *   vec_max(to, from, lanes), and SCORE_BURST, the name of the function to define.
 *
 * A group of queries advances in rounds. Each round looks up one head a query (more for a long
 * one, at multiples of 512) in one bulk call, then fetches, then compares: the misses of all
 * queries overlap. What matched is kept as a path; owners are applied to the path at the end.
 */

#define GROUP 16u /* queries a group */
#define PATH  8u  /* runs kept before the owners are applied */
#define KEYS  64u /* lookups a round: the limit of rte_hash */

struct step {
	struct pfx_hdr *hdr;
	uint32_t pos; /* first block of the run in the query */
	uint32_t n;   /* blocks that matched */
};

/* The ranks that have everything so far, as a bitmap or, once they are few, as a list. */
struct active {
	enum { NOT_STARTED, BITS, LIST } mode;
	uint32_t n;
	bool filled; /* every lane of the output has a value */
	uint32_t max;
	uint32_t *out;
	uint16_t list[PFX_INLINE];
	uint64_t bits[PFX_WORDS];
};

struct look {
	const void *sh;
	uint32_t n, pos, npath, nkey;
	uint32_t first; /* blocks that matched in the first run */
	bool done;
	bool diverged; /* not likely to go on: do not look up more than one head */
	struct kvr_overlap *o;
	struct step path[PATH];
	struct active dev, pred;
};

static void fill(struct active *a, uint32_t lanes)
{
	if (!a->filled)
		memset(a->out, 0, lanes * sizeof(uint32_t));
	a->filled = true;
}

static void spread(struct active *a, const uint64_t *bits, uint32_t lanes, uint32_t v)
{
	uint64_t any = 0;

	vec_spread(a->out, bits, lanes, v, !a->filled);
	a->filled = true;
	for (uint32_t i = 0; i < (lanes + 63) / 64; i++)
		any |= bits[i];
	if (any != 0)
		a->max = RTE_MAX(a->max, v);
}

static void put(struct active *a, uint16_t rank, uint32_t lanes, uint32_t v)
{
	if (rank >= lanes)
		return;
	a->out[rank] = v;
	a->max = RTE_MAX(a->max, v);
}

static bool has(const struct active *a, uint16_t rank)
{
	return a->bits[rank / 64] >> (rank % 64) & 1;
}

/* Partial owners first: a rank that becomes a full one has its bit before it loses its part. */
static uint32_t load_parts(const struct kvr_prefix *t, struct pfx_big *b, uint32_t *part,
			   uint64_t *bits)
{
	_Atomic uint32_t *w = pfx_parts(t, b);
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->big_parts; i++) {
		uint32_t o = pfx_ld32(&w[i]);

		if (o != 0)
			part[n++] = o;
	}
	/* Pairs with the release in big_set(). */
	atomic_thread_fence(memory_order_acquire);
	for (uint32_t i = 0; i < t->big_words; i++)
		bits[i] = atomic_load_explicit(&b->bits[i], memory_order_relaxed);
	return n;
}

#define MAX_PARTS 32u

/* The active ranks meet a run with a bitmap; before the first run all ranks are active. */
static void meet_bits(const struct kvr_prefix *t, struct active *a, const struct step *s,
		      struct pfx_big *b, uint32_t lanes)
{
	uint32_t part[MAX_PARTS], n;
	uint64_t own[PFX_WORDS], lost[PFX_WORDS], any = 0;

	n = load_parts(t, b, part, own);
	for (uint32_t i = 0; i < n; i++) {
		if (PFX_LEAD(part[i]) >= s->n)
			own[PFX_RANK(part[i]) / 64] |= UINT64_C(1) << (PFX_RANK(part[i]) % 64);
	}
	if (a->mode == NOT_STARTED) {
		if (n > 0)
			fill(a, lanes);
		for (uint32_t i = 0; i < n; i++)
			put(a, PFX_RANK(part[i]), lanes, RTE_MIN(PFX_LEAD(part[i]), s->n));
		memcpy(a->bits, own, t->big_words * sizeof(own[0]));
		a->mode = BITS;
		return;
	}
	for (uint32_t i = 0; i < t->big_words; i++) {
		lost[i] = a->bits[i] & ~own[i];
		any |= lost[i];
	}
	if (any != 0)
		spread(a, lost, lanes, s->pos);
	for (uint32_t i = 0; i < n; i++) {
		if (has(a, PFX_RANK(part[i])))
			put(a, PFX_RANK(part[i]), lanes, s->pos + RTE_MIN(PFX_LEAD(part[i]), s->n));
	}
	for (uint32_t i = 0; i < t->big_words; i++)
		a->bits[i] &= own[i];
}

/* The same with owners as words; what stays active becomes a list. */
static void meet_words(struct active *a, const struct step *s, _Atomic uint32_t *w, uint32_t n,
		       uint32_t lanes)
{
	bool all = a->mode == NOT_STARTED;

	if (all)
		fill(a, lanes);
	else
		spread(a, a->bits, lanes, s->pos);
	a->mode = LIST;
	a->n = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t o = pfx_ld32(&w[i]), lead = PFX_LEAD(o);

		if (o == 0 || !(all || has(a, PFX_RANK(o))))
			continue;
		put(a, PFX_RANK(o), lanes, s->pos + RTE_MIN(lead, s->n));
		if (lead >= s->n && a->n < PFX_INLINE)
			a->list[a->n++] = PFX_RANK(o);
	}
}

static uint32_t lead_in(const struct kvr_prefix *t, struct pfx_oset o, uint32_t big, uint16_t rank)
{
	_Atomic uint32_t *w = o.owner;
	uint32_t n = o.inl, lead = 0;

	if (big != PFX_NONE) {
		w = pfx_parts(t, pfx_big(t, big));
		n = t->big_parts;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t x = pfx_ld32(&w[i]);

		if (x != 0 && PFX_RANK(x) == rank)
			lead = RTE_MAX(lead, PFX_LEAD(x));
	}
	if (big == PFX_NONE)
		return lead;
	/* Pairs with the release in big_set(). */
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&pfx_big(t, big)->bits[rank / 64], memory_order_relaxed) >>
		    (rank % 64) &
	    1)
		return PFX_RUN;
	return lead;
}

static void meet_list(const struct kvr_prefix *t, struct active *a, const struct step *s,
		      struct pfx_oset o, uint32_t big, uint32_t lanes)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < a->n; i++) {
		uint16_t rank = a->list[i];
		uint32_t lead = lead_in(t, o, big, rank);

		put(a, rank, lanes, s->pos + RTE_MIN(lead, s->n));
		if (lead >= s->n)
			a->list[n++] = rank;
	}
	a->n = n;
}

/* A test may change the table between the owners of one run and those of the next. */
static inline void between_runs(void)
{
#ifdef PFX_POISON
	if (kvr_prefix__test_between_runs != NULL)
		kvr_prefix__test_between_runs();
#endif
}

static void walk(const struct kvr_prefix *t, const struct look *l, struct active *a, uint32_t plane)
{
	uint32_t lanes = l->o->nranks;

	for (uint32_t i = 0; i < l->npath && !(a->mode == LIST && a->n == 0); i++) {
		const struct step *s = &l->path[i];
		struct pfx_oset o = pfx_oset(t, s->hdr, plane);
		/* Acquire: pairs with the release in grow_big(). */
		uint32_t big = o.big ? atomic_load_explicit(o.big, memory_order_acquire) : PFX_NONE;

		between_runs();
		if (a->mode == LIST)
			meet_list(t, a, s, o, big, lanes);
		else if (big != PFX_NONE)
			meet_bits(t, a, s, pfx_big(t, big), lanes);
		else
			meet_words(a, s, o.owner, o.inl, lanes);
	}
}

/* Write what the active ranks have reached. */
static void settle(struct active *a, uint32_t lanes, uint32_t pos)
{
	if (a->mode == BITS)
		spread(a, a->bits, lanes, pos);
	else
		fill(a, lanes);
}

static void reach(uint32_t *to, uint32_t lanes, const struct step *s, uint16_t rank, uint32_t lead)
{
	uint32_t end = s->pos + RTE_MIN(lead, s->n);

	if (rank < lanes && to[rank] >= s->pos && to[rank] < end)
		to[rank] = end;
}

/* Extend `to`, where each rank has got so far, by what it holds in one lower tier. */
static void walk_tier(const struct kvr_prefix *t, const struct look *l, uint32_t *to,
		      uint32_t plane)
{
	uint32_t lanes = l->o->nranks, part[MAX_PARTS], n;
	uint64_t own[PFX_WORDS];

	for (uint32_t i = 0; i < l->npath; i++) {
		const struct step *s = &l->path[i];
		struct pfx_oset o = pfx_oset(t, s->hdr, plane);
		uint32_t big = o.big ? atomic_load_explicit(o.big, memory_order_acquire) : PFX_NONE;

		if (big == PFX_NONE) {
			for (uint32_t k = 0; k < o.inl; k++) {
				uint32_t w = pfx_ld32(&o.owner[k]);

				reach(to, lanes, s, PFX_RANK(w), PFX_LEAD(w));
			}
			continue;
		}
		n = load_parts(t, pfx_big(t, big), part, own);
		for (uint32_t k = 0; k < n; k++)
			reach(to, lanes, s, PFX_RANK(part[k]), PFX_LEAD(part[k]));
		for (uint32_t k = 0; k < t->big_words; k++) {
			for (uint64_t b = own[k]; b != 0; b &= b - 1)
				reach(to, lanes, s, (uint16_t)(k * 64 + __builtin_ctzll(b)), s->n);
		}
	}
}

#define LOWER (KVR_OVERLAP_HOST | KVR_OVERLAP_DISK | KVR_OVERLAP_EXTERNAL)

/*
 * Lower tiers, cumulative: each array starts from the one before. A rank still active in a tier
 * stands at the end of the path, where no run of it can extend it: the next path will tell.
 */
static void walk_lower(const struct kvr_prefix *t, struct look *l)
{
	uint32_t lanes = l->o->nranks, *base = l->dev.out;

	settle(&l->dev, lanes, l->pos);
	if (l->o->flags & KVR_OVERLAP_PREDICTED)
		settle(&l->pred, lanes, l->pos);
	for (uint32_t p = KVR_TIER_HOST; p < KVR_TIERS; p++) {
		uint32_t *to = &l->o->count[(size_t)p * l->o->stride];

		if (!(l->o->flags & 1u << p))
			continue;
		vec_max(to, base, lanes);
		if (base == l->dev.out && l->o->flags & KVR_OVERLAP_PREDICTED)
			vec_max(to, l->pred.out, lanes);
		walk_tier(t, l, to, p);
		base = to;
	}
}

/* The path is full or ends here. */
static void apply_path(const struct kvr_prefix *t, struct look *l)
{
	walk(t, l, &l->dev, KVR_TIER_DEVICE);
	if (l->o->flags & KVR_OVERLAP_PREDICTED)
		walk(t, l, &l->pred, PFX_PRED);
	if (l->o->flags & LOWER)
		walk_lower(t, l);
	l->npath = 0;
}

static void finish(const struct kvr_prefix *t, struct look *l)
{
	uint32_t lanes = l->o->nranks, *base;

	if (l->npath > 0)
		apply_path(t, l);
	settle(&l->dev, lanes, l->pos);
	l->o->max_device = l->dev.max;
	if (l->o->flags & KVR_OVERLAP_PREDICTED) {
		settle(&l->pred, lanes, l->pos);
		vec_max(l->dev.out, l->pred.out, lanes);
		l->o->max_device = RTE_MAX(l->dev.max, l->pred.max);
	}
	/* From cumulative to extensions, the last tier first. */
	for (uint32_t p = KVR_TIERS - 1; p >= KVR_TIER_HOST; p--) {
		uint32_t *to = &l->o->count[(size_t)p * l->o->stride], b = p - 1;

		if (!(l->o->flags & 1u << p))
			continue;
		while (b > 0 && !(l->o->flags & 1u << b))
			b--;
		base = &l->o->count[(size_t)b * l->o->stride];
		for (uint32_t r = 0; r < lanes; r++)
			to[r] -= base[r];
	}
}

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
	for (uint32_t p = KVR_TIER_HOST; p < KVR_TIERS; p++) {
		if (o->flags & 1u << p)
			memset(&o->count[(size_t)p * o->stride], 0, o->nranks * sizeof(uint32_t));
	}
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
	if (l->pos == 0)
		l->first = m;
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
	k->ptr[i] = &k->sh[i];
	k->sig[i] = (hash_sig_t)pfx_mix(t, k->sh[i]);
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
	for (uint32_t max = 1; live > 0; max = KEYS / GROUP) {
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

void SCORE_BURST(struct kvr_prefix *t, const struct kvr_prefix_query q[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i += GROUP)
		score_group(t, &q[i], RTE_MIN(n - i, GROUP));
}
