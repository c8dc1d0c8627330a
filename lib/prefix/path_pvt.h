/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * From the runs that matched (the path) to counts of every rank and tier. The lower half of
 * score_pvt.h, compiled with it once for each code path; score_pvt.h describes vec_spread() and
 * vec_max().
 */

#define PATH 8u /* runs kept before their owners are applied */

struct path_run {
	struct pfx_hdr *hdr;
	uint32_t pos; /* first block of the run in the query */
	uint32_t n;   /* blocks that matched */
};

/* The ranks that hold everything so far, as a bitmap or, once they are few, as a list. */
struct active {
	enum { NOT_STARTED, BITS, LIST } mode;
	uint32_t n;
	bool filled; /* every lane of the output is written */
	uint32_t max;
	uint32_t *out;
	uint16_t list[PFX_INLINE];
	uint64_t *bits; /* big_words words */
};

struct query_state {
	const void *sh;
	uint32_t n, pos, npath;
	uint32_t first; /* blocks that matched in the first run */
	bool done;
	bool diverged; /* unlikely to continue: look up one head at a time */
	struct kvr_overlap *o;
	struct path_run path[PATH];
	struct active dev, pred;
};

static void fill_lanes(struct active *active, uint32_t lanes)
{
	if (!active->filled)
		memset(active->out, 0, lanes * sizeof(uint32_t));
	active->filled = true;
}

static void spread_ranks(struct active *active, const uint64_t *bits, uint32_t lanes, uint32_t v)
{
	uint64_t any = 0;

	vec_spread(active->out, bits, lanes, v, !active->filled);
	active->filled = true;
	for (uint32_t i = 0; i < (lanes + 63) / 64; i++)
		any |= bits[i];
	if (any != 0)
		active->max = RTE_MAX(active->max, v);
}

static void put_rank(struct active *active, uint16_t rank, uint32_t lanes, uint32_t v)
{
	if (rank >= lanes)
		return;
	active->out[rank] = v;
	active->max = RTE_MAX(active->max, v);
}

static bool is_active(const struct active *active, uint16_t rank)
{
	return active->bits[rank / 64] >> (rank % 64) & 1;
}

/* Load the non-zero owner words of n, an even number at an even index; most words are zero. */
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

/*
 * Load the partial owners first: a rank that becomes a full owner gets its bit before it loses its
 * part.
 */
static uint32_t load_parts(const struct kvr_prefix *table, struct pfx_big *big, uint32_t *part,
			   uint64_t *bits)
{
	uint32_t n = load_words(pfx_parts(table, big), table->big_parts, part);

	/* Pairs with the release in big_set(). */
	atomic_thread_fence(memory_order_acquire);
	for (uint32_t i = 0; i < table->big_words; i++)
		bits[i] = atomic_load_explicit(&big->bits[i], memory_order_relaxed);
	return n;
}

#define MAX_PARTS 32u

/* Apply a run with a bitmap to the active ranks. Before the first run all ranks are active. */
static void meet_bits(const struct kvr_prefix *table, struct active *active,
		      const struct path_run *run, struct pfx_big *big, uint32_t lanes)
{
	uint32_t part[MAX_PARTS], n;
	uint64_t own[PFX_WORDS], lost[PFX_WORDS], any = 0;

	n = load_parts(table, big, part, own);
	for (uint32_t i = 0; i < n; i++) {
		if (PFX_LEAD(part[i]) >= run->n)
			own[PFX_RANK(part[i]) / 64] |= UINT64_C(1) << (PFX_RANK(part[i]) % 64);
	}
	if (active->mode == NOT_STARTED) {
		if (n > 0)
			fill_lanes(active, lanes);
		for (uint32_t i = 0; i < n; i++)
			put_rank(active, PFX_RANK(part[i]), lanes,
				 RTE_MIN(PFX_LEAD(part[i]), run->n));
		memcpy(active->bits, own, table->big_words * sizeof(own[0]));
		active->mode = BITS;
		return;
	}
	for (uint32_t i = 0; i < table->big_words; i++) {
		lost[i] = active->bits[i] & ~own[i];
		any |= lost[i];
	}
	if (any != 0)
		spread_ranks(active, lost, lanes, run->pos);
	for (uint32_t i = 0; i < n; i++) {
		if (is_active(active, PFX_RANK(part[i])))
			put_rank(active, PFX_RANK(part[i]), lanes,
				 run->pos + RTE_MIN(PFX_LEAD(part[i]), run->n));
	}
	for (uint32_t i = 0; i < table->big_words; i++)
		active->bits[i] &= own[i];
}

/* Apply a run with owners as words; the ranks that stay active become a list. */
static void meet_words(struct active *active, const struct path_run *run, _Atomic uint32_t *w,
		       uint32_t n, uint32_t lanes)
{
	bool all = active->mode == NOT_STARTED;
	uint32_t owner[PFX_INLINE];

	if (all)
		fill_lanes(active, lanes);
	else
		spread_ranks(active, active->bits, lanes, run->pos);
	active->mode = LIST;
	active->n = 0;
	n = load_words(w, n, owner);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t o = owner[i], lead = PFX_LEAD(o);

		if (!(all || is_active(active, PFX_RANK(o))))
			continue;
		put_rank(active, PFX_RANK(o), lanes, run->pos + RTE_MIN(lead, run->n));
		if (lead >= run->n && active->n < PFX_INLINE)
			active->list[active->n++] = PFX_RANK(o);
	}
}

static uint32_t lead_in(const struct kvr_prefix *table, struct pfx_oset owners, uint32_t big,
			uint16_t rank)
{
	_Atomic uint32_t *w = owners.owner;
	uint32_t n = owners.inl, lead = 0;

	if (big != PFX_NONE) {
		w = pfx_parts(table, pfx_big(table, big));
		n = table->big_parts;
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
	if (atomic_load_explicit(&pfx_big(table, big)->bits[rank / 64], memory_order_relaxed) >>
		    (rank % 64) &
	    1)
		return PFX_RUN;
	return lead;
}

static void meet_list(const struct kvr_prefix *table, struct active *active,
		      const struct path_run *run, struct pfx_oset owners, uint32_t big,
		      uint32_t lanes)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < active->n; i++) {
		uint16_t rank = active->list[i];
		uint32_t lead = lead_in(table, owners, big, rank);

		put_rank(active, rank, lanes, run->pos + RTE_MIN(lead, run->n));
		if (lead >= run->n)
			active->list[n++] = rank;
	}
	active->n = n;
}

/* Lets a test change the table between the owners of two runs. */
static inline void between_runs(void)
{
#ifdef PFX_POISON
	if (kvr_prefix__test_between_runs != NULL)
		kvr_prefix__test_between_runs();
#endif
}

static void walk_plane(const struct kvr_prefix *table, const struct query_state *state,
		       struct active *active, uint32_t plane)
{
	uint32_t lanes = state->o->nranks;

	for (uint32_t i = 0; i < state->npath && !(active->mode == LIST && active->n == 0); i++) {
		const struct path_run *run = &state->path[i];
		struct pfx_oset owners = pfx_oset(table, run->hdr, plane);
		/* Acquire: pairs with the release in grow_big(). */
		uint32_t big = owners.big ? atomic_load_explicit(owners.big, memory_order_acquire)
					  : PFX_NONE;

		between_runs();
		if (active->mode == LIST)
			meet_list(table, active, run, owners, big, lanes);
		else if (big != PFX_NONE)
			meet_bits(table, active, run, pfx_big(table, big), lanes);
		else
			meet_words(active, run, owners.owner, owners.inl, lanes);
	}
}

/* Write the count that the active ranks have reached. */
static void write_reached(struct active *active, uint32_t lanes, uint32_t pos)
{
	if (active->mode == BITS)
		spread_ranks(active, active->bits, lanes, pos);
	else
		fill_lanes(active, lanes);
}

static void extend_rank(uint32_t *to, uint32_t lanes, const struct path_run *run, uint16_t rank,
			uint32_t lead)
{
	uint32_t end = run->pos + RTE_MIN(lead, run->n);

	if (rank < lanes && to[rank] >= run->pos && to[rank] < end)
		to[rank] = end;
}

/* Extend `to`, the count that each rank has reached, by what the rank holds in one lower tier. */
static void walk_tier(const struct kvr_prefix *table, const struct query_state *state, uint32_t *to,
		      uint32_t plane)
{
	uint32_t lanes = state->o->nranks, part[MAX_PARTS], n;
	uint64_t own[PFX_WORDS];

	for (uint32_t i = 0; i < state->npath; i++) {
		const struct path_run *run = &state->path[i];
		struct pfx_oset owners = pfx_oset(table, run->hdr, plane);
		uint32_t big = owners.big ? atomic_load_explicit(owners.big, memory_order_acquire)
					  : PFX_NONE;

		if (big == PFX_NONE) {
			for (uint32_t k = 0; k < owners.inl; k++) {
				uint32_t w = pfx_ld32(&owners.owner[k]);

				extend_rank(to, lanes, run, PFX_RANK(w), PFX_LEAD(w));
			}
			continue;
		}
		n = load_parts(table, pfx_big(table, big), part, own);
		for (uint32_t k = 0; k < n; k++)
			extend_rank(to, lanes, run, PFX_RANK(part[k]), PFX_LEAD(part[k]));
		for (uint32_t k = 0; k < table->big_words; k++) {
			for (uint64_t b = own[k]; b != 0; b &= b - 1)
				extend_rank(to, lanes, run, (uint16_t)(k * 64 + __builtin_ctzll(b)),
					    run->n);
		}
	}
}

#define LOWER (KVR_OVERLAP_HOST | KVR_OVERLAP_DISK | KVR_OVERLAP_EXTERNAL)

/*
 * Lower tiers, cumulative: each array starts from the one before. A rank that is still active in a
 * tier is at the end of the path, where no run of the path can extend it: the next path may.
 */
static void walk_lower(const struct kvr_prefix *table, struct query_state *state)
{
	uint32_t lanes = state->o->nranks, *base = state->dev.out;

	write_reached(&state->dev, lanes, state->pos);
	if (state->o->flags & KVR_OVERLAP_PREDICTED)
		write_reached(&state->pred, lanes, state->pos);
	for (uint32_t p = KVR_TIER_HOST; p < KVR_TIERS; p++) {
		uint32_t *to = &state->o->count[(size_t)p * state->o->stride];

		if (!(state->o->flags & 1u << p))
			continue;
		vec_max(to, base, lanes);
		if (base == state->dev.out && state->o->flags & KVR_OVERLAP_PREDICTED)
			vec_max(to, state->pred.out, lanes);
		walk_tier(table, state, to, p);
		base = to;
	}
}

/* Apply the owners of a path that is full or complete. */
static void apply_path(const struct kvr_prefix *table, struct query_state *state)
{
	walk_plane(table, state, &state->dev, KVR_TIER_DEVICE);
	if (state->o->flags & KVR_OVERLAP_PREDICTED)
		walk_plane(table, state, &state->pred, PFX_PRED);
	if (state->o->flags & LOWER)
		walk_lower(table, state);
	state->npath = 0;
}

/* No rank holds a block of the query. */
static void clear_overlap(struct kvr_overlap *overlap)
{
	overlap->flags = 0;
	overlap->nranks = 0;
	overlap->max_device = 0;
}

static void finish_query(const struct kvr_prefix *table, struct query_state *state)
{
	uint32_t lanes = state->o->nranks, *base;

	if (state->npath > 0)
		apply_path(table, state);
	write_reached(&state->dev, lanes, state->pos);
	state->o->max_device = state->dev.max;
	if (state->o->flags & KVR_OVERLAP_PREDICTED) {
		write_reached(&state->pred, lanes, state->pos);
		vec_max(state->dev.out, state->pred.out, lanes);
		state->o->max_device = RTE_MAX(state->dev.max, state->pred.max);
	}
	/* From cumulative counts to extensions, the last tier first. */
	for (uint32_t p = KVR_TIERS - 1; p >= KVR_TIER_HOST; p--) {
		uint32_t *to = &state->o->count[(size_t)p * state->o->stride], b = p - 1;

		if (!(state->o->flags & 1u << p))
			continue;
		while (b > 0 && !(state->o->flags & 1u << b))
			b--;
		base = &state->o->count[(size_t)b * state->o->stride];
		for (uint32_t r = 0; r < lanes; r++)
			to[r] -= base[r];
	}
}
