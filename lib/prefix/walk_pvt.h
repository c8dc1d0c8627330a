/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The owners of the runs that matched: from a path to counts of every rank and tier. The lower half
 * of score_pvt.h, compiled with it once for each code path; vec_spread() and vec_max() are said
 * there.
 */

#define PATH 8u /* runs kept before the owners are applied */

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
	uint64_t *bits; /* as many words as the table's bitmaps */
};

struct look {
	const void *sh;
	uint32_t n, pos, npath;
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

/* The owners among n words, an even number at an even place, of which most are free. */
static inline uint32_t load_words(_Atomic uint32_t *w, uint32_t n, uint32_t *owner)
{
	uint32_t got = 0;

	for (uint32_t i = 0; i < n; i += 2) {
		uint64_t two = pfx_rd((const uint64_t *)(const void *)&w[i]);

		if (two == 0)
			continue;
		owner[got] = (uint32_t)two;
		got += owner[got] != 0;
		owner[got] = (uint32_t)(two >> 32);
		got += owner[got] != 0;
	}
	return got;
}

/* Partial owners first: a rank that becomes a full one has its bit before it loses its part. */
static uint32_t load_parts(const struct kvr_prefix *t, struct pfx_big *b, uint32_t *part,
			   uint64_t *bits)
{
	uint32_t n = load_words(pfx_parts(t, b), t->big_parts, part);

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
	uint32_t owner[PFX_INLINE];

	if (all)
		fill(a, lanes);
	else
		spread(a, a->bits, lanes, s->pos);
	a->mode = LIST;
	a->n = 0;
	n = load_words(w, n, owner);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t o = owner[i], lead = PFX_LEAD(o);

		if (!(all || has(a, PFX_RANK(o))))
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

/* Nobody has a block of the query. */
static void nothing(struct kvr_overlap *o)
{
	o->flags = 0;
	o->nranks = 0;
	o->max_device = 0;
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
