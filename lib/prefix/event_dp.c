/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Events. A store walks its blocks in stretches: those that continue in a run that is there, and
 * those that are new. A remove looks for stretches that go down or up a run; engines evict from
 * the tail, so mostly one compare a block finds the place and the index is only asked for the
 * first. Looking up a single block costs a chain of misses (index, chunk, chunk info, meta,
 * header); in a burst of events each link is fetched a few events ahead.
 */

#include "find_pvt.h"
#include "lines_pvt.h"
#include "one_pvt.h"
#include "run_pvt.h"

#define AHEAD	    4u /* events between two links of the chain */
#define EVENT_UNITS 8u /* of work, beside the blocks */

static const void *skip(const void *sh, uint32_t n)
{
	return (const char *)sh + (size_t)n * 8;
}

static bool is_at(const struct kvr_prefix *t, struct pfx_loc at, uint64_t sh)
{
	struct pfx_hdr *h = pfx_hdr_of(t, at.meta);

	return at.off < pfx_len(h) && *pfx_sh(t, h, at.off) == sh;
}

/* Where the block before number i of the event is. */
static struct pfx_loc before(const struct kvr_prefix *t, const struct kvr_prefix_event *e,
			     uint32_t i)
{
	if (i > 0)
		return pfx_find(t, pfx_ld64(e->sh, i - 1));
	return e->has_parent ? pfx_find(t, e->parent) : (struct pfx_loc){PFX_NONE, 0};
}

/* Stretch of new blocks behind `at` (or at a root, or behind an unknown parent). */
static uint32_t store_new(struct kvr_prefix *t, const struct kvr_prefix_event *e, uint32_t i,
			  struct pfx_loc *at)
{
	struct pfx_new as = {.has_parent = i > 0 || e->has_parent};
	uint32_t n = RTE_MIN(e->n - i, PFX_RUN);

	if (pfx_evict_low(t, n)) {
		kvr_prefix__evict_make_room(t, e->rank, n, at->meta);
		*at = before(t, e, i);
	}
	n = RTE_MIN(n, t->max_blocks - (uint32_t)t->st.blocks);
	if (n == 0)
		return 0;
	if (at->meta != PFX_NONE) {
		uint32_t len = pfx_len(pfx_hdr_of(t, at->meta));

		if (at->off + 1 == len && kvr_prefix__run_can_grow(t, at->meta, e->rank, e->tier)) {
			n = kvr_prefix__run_grow(t, at->meta, e->rank, e->tier, skip(e->sh, i), n);
			at->off += n;
			return n;
		}
		as.parent = at->meta;
		if (at->off + 1 < len)
			as.parent = kvr_prefix__run_split(t, at->meta, at->off + 1);
		if (as.parent == PFX_NONE)
			return 0;
		as.pos = (t->meta[as.parent].pos + at->off + 1) % PFX_RUN;
	}
	if (as.has_parent)
		as.parent_sh = i > 0 ? pfx_ld64(e->sh, i - 1) : e->parent;
	if (as.has_parent && as.parent == PFX_NONE)
		pfx_add(&t->st.orphans, e->n - i);
	at->meta = kvr_prefix__run_create(t, &as, e->rank, e->tier, skip(e->sh, i), &n);
	at->off = n - 1;
	return at->meta != PFX_NONE ? n : 0;
}

static uint32_t store_some(struct kvr_prefix *t, const struct kvr_prefix_event *e, uint32_t i,
			   struct pfx_loc *at)
{
	uint64_t first = pfx_ld64(e->sh, i);
	struct pfx_loc loc = {at->meta, at->off + 1};
	uint32_t n;

	if (at->meta == PFX_NONE || !is_at(t, loc, first))
		loc = pfx_find(t, first);
	if (loc.meta == PFX_NONE)
		return store_new(t, e, i, at);
	n = pfx_same(t, loc, skip(e->sh, i), e->n - i);
	*at = kvr_prefix__run_own(t, loc, n, e->rank, e->tier);
	return at->meta != PFX_NONE ? n : 0;
}

static void store(struct kvr_prefix *t, const struct kvr_prefix_event *e)
{
	struct pfx_loc at = {PFX_NONE, 0};
	bool lost = true; /* `at` is to be looked up */

	for (uint32_t i = 0, n; i < e->n; i += n) {
		/* Blocks that are there need no room, but perhaps a split. */
		if (pfx_evict_low(t, 0)) {
			kvr_prefix__evict_make_room(t, e->rank, 0, at.meta);
			lost = true;
		}
		if (lost)
			at = before(t, e, i);
		lost = false;
		n = store_some(t, e, i, &at);
		if (n == 0) {
			pfx_add(&t->st.dropped, e->n - i);
			break;
		}
	}
	if (unlikely(t->rank[e->rank].limit != 0))
		kvr_prefix__evict_to_limit(t, e->rank, e->n + 8);
}

/* Blocks of the stretch that goes on from `at` downwards, or else upwards. */
static uint32_t stretch(const struct kvr_prefix *t, struct pfx_loc at, const void *sh, uint32_t n,
			bool *down)
{
	const struct pfx_hdr *h = pfx_hdr_of(t, at.meta);
	uint32_t k = 1, end = 1;

	while (k == end && k < n && k <= at.off) {
		const uint64_t *p = pfx_sh(t, h, at.off - k);

		end = RTE_MIN(n, k + (uint32_t)(p - t->sh) % PFX_CHUNK + 1);
		end = RTE_MIN(end, at.off + 1);
		while (k < end && *p-- == pfx_ld64(sh, k))
			k++;
	}
	*down = k > 1;
	return *down ? k : pfx_same(t, at, sh, n);
}

/* Remove blocks lo..lo+n-1 as far as the rank has them. Gives the place of block lo - 1. */
static struct pfx_loc remove_range(struct kvr_prefix *t, const struct kvr_prefix_event *e,
				   struct pfx_loc lo, uint32_t n)
{
	uint32_t lead = kvr_prefix__owner_get(t, pfx_hdr_of(t, lo.meta), e->tier, e->rank);
	uint32_t has = lead > lo.off ? RTE_MIN(n, lead - lo.off) : 0;

	pfx_add(&t->st.unknown_removes, n - has);
	if (has == 0)
		return (struct pfx_loc){lo.off > 0 ? lo.meta : PFX_NONE, lo.off - 1};
	pfx_add(&t->st.removed, has);
	return kvr_prefix__run_disown(t, lo, has, lead, e->rank, e->tier);
}

static void remove_blocks(struct kvr_prefix *t, const struct kvr_prefix_event *e)
{
	struct pfx_loc below = {PFX_NONE, 0};
	bool down;

	for (uint32_t i = 0, n; i < e->n; i += n) {
		uint64_t sh = pfx_ld64(e->sh, i);
		struct pfx_loc at = below;

		if (pfx_remove_low(t))
			kvr_prefix__pool_reclaim(t);
		if (at.meta == PFX_NONE || !is_at(t, at, sh))
			at = pfx_find(t, sh);
		if (at.meta == PFX_NONE) {
			pfx_add(&t->st.unknown_removes, 1);
			below.meta = PFX_NONE;
			n = 1;
			continue;
		}
		n = stretch(t, at, skip(e->sh, i), e->n - i, &down);
		if (down)
			at.off -= n - 1;
		below = remove_range(t, e, at, n);
		if (below.meta != PFX_NONE && t->meta[below.meta].hdr == PFX_NONE)
			below.meta = PFX_NONE;
	}
}

/* The event behind the one that begins: which of its blocks are new, or will be gone. */
static inline void fetch_lines(struct kvr_prefix *t, const struct kvr_prefix_event *e,
			       const struct pfx_chain *a)
{
	const struct pfx_hdr *h;
	uint32_t from = 0;

	if (e->n <= 1) { /* pfx_fetch_index() has seen to it */
		pfx_lines_next(t, NULL, 0);
		return;
	}
	h = pfx_hdr_of(t, t->chunk[a->slot / PFX_CHUNK].meta);
	if (e->op == KVR_PREFIX_REMOVE)
		from = a->slot == 0 || pfx_ld32(&h->big) != PFX_NONE ? e->n : 0;
	else if (!e->has_parent && a->slot != 0)
		from = RTE_MIN(e->n, pfx_len(h));
	pfx_lines_next(t, skip(e->sh, from), e->n - from);
}

static void apply(struct kvr_prefix *t, const struct kvr_prefix_event *e, const struct pfx_chain *c)
{
	if (e->n == 0 || e->rank >= t->max_ranks || e->tier >= KVR_TIERS)
		return;
	t->work += EVENT_UNITS + e->n / 4;
	if (unlikely(t->rank[e->rank].hidden)) { /* it has nothing, and takes nothing */
		pfx_add(e->op == KVR_PREFIX_STORE ? &t->st.dropped : &t->st.unknown_removes, e->n);
		return;
	}
	if (e->op == KVR_PREFIX_STORE) {
		if (e->n > 1 || !kvr_prefix__one_more(t, e, c))
			store(t, e);
	} else if (e->op == KVR_PREFIX_REMOVE) {
		if (e->n > 1 || !kvr_prefix__one_less(t, e, c))
			remove_blocks(t, e);
	}
}

/* Link after link for each event, some events apart; then it is applied. */
static void apply_ahead(struct kvr_prefix *t, const struct kvr_prefix_event ev[], uint32_t n)
{
	struct pfx_chain a[8 * AHEAD];

	for (uint32_t i = 0; i < n; i++)
		kvr_prefetch(ev[i].sh);
	for (uint32_t i = 0; i < n + 4 * AHEAD; i++) {
		const uint32_t chunk = i - AHEAD, meta = i - 2 * AHEAD, hdr = i - 3 * AHEAD,
			       now = i - 4 * AHEAD;

		if (i < n)
			pfx_fetch_index(t, &ev[i], &a[i % RTE_DIM(a)]);
		if (chunk < n)
			pfx_fetch_chunk(t, &a[chunk % RTE_DIM(a)]);
		if (meta < n)
			pfx_fetch_meta(t, &ev[meta], &a[meta % RTE_DIM(a)]);
		if (hdr < n)
			pfx_fetch_hdr(t, &ev[hdr], &a[hdr % RTE_DIM(a)]);
		if (i < 4 * AHEAD)
			continue;
		if (now + 1 < n)
			fetch_lines(t, &ev[now + 1], &a[(now + 1) % RTE_DIM(a)]);
		else
			pfx_lines_next(t, NULL, 0);
		apply(t, &ev[now], &a[now % RTE_DIM(a)]);
	}
}

void kvr_prefix_apply_burst(struct kvr_prefix *t, const struct kvr_prefix_event ev[], uint32_t n)
{
	struct pfx_chain alone;

	if (n > 1) {
		apply_ahead(t, ev, n);
	} else if (n == 1) {
		pfx_fetch_index(t, ev, &alone);
		apply(t, ev, &alone);
	}
	kvr_prefix__pool_reclaim(t);
}

void kvr_prefix_store(struct kvr_prefix *t, uint16_t rank, enum kvr_tier tier,
		      const uint64_t *parent, const void *sh, uint32_t n)
{
	const struct kvr_prefix_event e = {.op = KVR_PREFIX_STORE,
					   .tier = (uint8_t)tier,
					   .has_parent = parent != NULL,
					   .rank = rank,
					   .n = n,
					   .parent = parent != NULL ? *parent : 0,
					   .sh = sh};

	kvr_prefix_apply_burst(t, &e, 1);
}

void kvr_prefix_remove(struct kvr_prefix *t, uint16_t rank, enum kvr_tier tier, const void *sh,
		       uint32_t n)
{
	const struct kvr_prefix_event e = {
		.op = KVR_PREFIX_REMOVE, .tier = (uint8_t)tier, .rank = rank, .n = n, .sh = sh};

	kvr_prefix_apply_burst(t, &e, 1);
}
