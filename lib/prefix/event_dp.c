/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Applying events. A store splits its blocks into stretches: those that continue in an existing
 * run, and those that are new. A remove looks for stretches that go down or up a run. Engines evict
 * from the tail, so usually one comparison per block finds the place, and only the first block
 * needs the index. Looking up a single block costs a chain of misses (index, chunk, chunk info,
 * meta, header); in a burst each link is prefetched a few events ahead.
 */

#include "lookup_pvt.h"
#include "prefetch_pvt.h"
#include "run_pvt.h"
#include "single_block_pvt.h"

#define AHEAD	    4u /* events between the prefetches of two links */
#define EVENT_UNITS 8u /* units of work per event, in addition to its blocks */

static const void *skip_blocks(const void *sh, uint32_t n)
{
	return (const char *)sh + (size_t)n * 8;
}

static bool is_at(const struct kvr_prefix *table, struct pfx_loc at, uint64_t sh)
{
	struct pfx_hdr *hdr = pfx_hdr_of(table, at.meta);

	return at.off < pfx_len(hdr) && *pfx_sh(table, hdr, at.off) == sh;
}

/* Location of the block before block i of the event. */
static struct pfx_loc locate_parent(const struct kvr_prefix *table,
				    const struct kvr_prefix_event *event, uint32_t i)
{
	if (i > 0)
		return pfx_find(table, pfx_ld64(event->sh, i - 1));
	return event->has_parent ? pfx_find(table, event->parent) : (struct pfx_loc){PFX_NONE, 0};
}

/*
 * Store a stretch of new blocks after `at` (or at a root, or after an unknown parent). @return the
 * number of blocks stored.
 */
static uint32_t store_new(struct kvr_prefix *table, const struct kvr_prefix_event *event,
			  uint32_t i, struct pfx_loc *at)
{
	struct pfx_new as = {.has_parent = i > 0 || event->has_parent};
	uint32_t n = RTE_MIN(event->n - i, PFX_RUN);

	if (pfx_store_low(table, n)) {
		kvr_prefix__evict_for(table, event->rank, n, at->meta);
		*at = locate_parent(table, event, i);
	}
	n = RTE_MIN(n, table->max_blocks - (uint32_t)table->st.blocks);
	if (n == 0)
		return 0;
	if (at->meta != PFX_NONE) {
		uint32_t len = pfx_len(pfx_hdr_of(table, at->meta));

		if (at->off + 1 == len &&
		    kvr_prefix__run_can_grow(table, at->meta, event->rank, event->tier)) {
			n = kvr_prefix__run_grow(table, at->meta, event->rank, event->tier,
						 skip_blocks(event->sh, i), n);
			at->off += n;
			return n;
		}
		as.parent = at->meta;
		if (at->off + 1 < len)
			as.parent = kvr_prefix__run_split(table, at->meta, at->off + 1);
		if (as.parent == PFX_NONE)
			return 0;
		as.pos = (table->meta[as.parent].pos + at->off + 1) % PFX_RUN;
	}
	if (as.has_parent)
		as.parent_sh = i > 0 ? pfx_ld64(event->sh, i - 1) : event->parent;
	if (as.has_parent && as.parent == PFX_NONE)
		pfx_add(&table->st.orphans, event->n - i);
	at->meta = kvr_prefix__run_create(table, &as, event->rank, event->tier,
					  skip_blocks(event->sh, i), &n);
	at->off = n - 1;
	return at->meta != PFX_NONE ? n : 0;
}

static uint32_t store_some(struct kvr_prefix *table, const struct kvr_prefix_event *event,
			   uint32_t i, struct pfx_loc *at)
{
	uint64_t first = pfx_ld64(event->sh, i);
	struct pfx_loc loc = {at->meta, at->off + 1};
	uint32_t n;

	if (at->meta == PFX_NONE || !is_at(table, loc, first))
		loc = pfx_find(table, first);
	if (loc.meta == PFX_NONE)
		return store_new(table, event, i, at);
	n = pfx_match_blocks(table, loc, skip_blocks(event->sh, i), event->n - i);
	*at = kvr_prefix__run_own(table, loc, n, event->rank, event->tier);
	return at->meta != PFX_NONE ? n : 0;
}

static void store_blocks(struct kvr_prefix *table, const struct kvr_prefix_event *event)
{
	struct pfx_loc at = {PFX_NONE, 0};
	bool lost = true; /* `at` must be looked up */

	for (uint32_t i = 0, n; i < event->n; i += n) {
		/* Existing blocks need no memory, but a split may. */
		if (pfx_store_low(table, 0)) {
			kvr_prefix__evict_for(table, event->rank, 0, at.meta);
			lost = true;
		}
		if (lost)
			at = locate_parent(table, event, i);
		lost = false;
		n = store_some(table, event, i, &at);
		if (n == 0) {
			pfx_add(&table->st.dropped, event->n - i);
			break;
		}
	}
	if (unlikely(table->rank[event->rank].limit != 0))
		kvr_prefix__evict_to_limit(table, event->rank, event->n + 8);
}

/* Length of the stretch that continues from `at`, downwards if possible, otherwise upwards. */
static uint32_t match_stretch(const struct kvr_prefix *table, struct pfx_loc at, const void *sh,
			      uint32_t n, bool *down)
{
	const struct pfx_hdr *hdr = pfx_hdr_of(table, at.meta);
	uint32_t k = 1, end = 1;

	while (k == end && k < n && k <= at.off) {
		const uint64_t *p = pfx_sh(table, hdr, at.off - k);

		end = RTE_MIN(n, k + (uint32_t)(p - table->sh) % PFX_CHUNK + 1);
		end = RTE_MIN(end, at.off + 1);
		while (k < end && *p-- == pfx_ld64(sh, k))
			k++;
	}
	*down = k > 1;
	return *down ? k : pfx_match_blocks(table, at, sh, n);
}

/* Remove blocks lo..lo+n-1 as far as the rank holds them. @return the location of block lo - 1. */
static struct pfx_loc remove_range(struct kvr_prefix *table, const struct kvr_prefix_event *event,
				   struct pfx_loc lo, uint32_t n)
{
	uint32_t lead =
		kvr_prefix__owner_get(table, pfx_hdr_of(table, lo.meta), event->tier, event->rank);
	uint32_t has = lead > lo.off ? RTE_MIN(n, lead - lo.off) : 0;

	pfx_add(&table->st.unknown_removes, n - has);
	if (has == 0)
		return (struct pfx_loc){lo.off > 0 ? lo.meta : PFX_NONE, lo.off - 1};
	pfx_add(&table->st.removed, has);
	return kvr_prefix__run_disown(table, lo, has, lead, event->rank, event->tier);
}

static void remove_blocks(struct kvr_prefix *table, const struct kvr_prefix_event *event)
{
	struct pfx_loc below = {PFX_NONE, 0};
	bool down;

	for (uint32_t i = 0, n; i < event->n; i += n) {
		uint64_t sh = pfx_ld64(event->sh, i);
		struct pfx_loc at = below;

		if (pfx_remove_low(table))
			kvr_prefix__pool_reclaim(table);
		if (at.meta == PFX_NONE || !is_at(table, at, sh))
			at = pfx_find(table, sh);
		if (at.meta == PFX_NONE) {
			pfx_add(&table->st.unknown_removes, 1);
			below.meta = PFX_NONE;
			n = 1;
			continue;
		}
		n = match_stretch(table, at, skip_blocks(event->sh, i), event->n - i, &down);
		if (down)
			at.off -= n - 1;
		below = remove_range(table, event, at, n);
		if (below.meta != PFX_NONE && table->meta[below.meta].hdr == PFX_NONE)
			below.meta = PFX_NONE;
	}
}

/*
 * Select the index lines of the next event to prefetch: its new blocks, or the blocks it removes.
 */
static inline void select_next_lines(struct kvr_prefix *table, const struct kvr_prefix_event *event,
				     const struct pfx_chain *chain)
{
	const struct pfx_hdr *hdr;
	uint32_t from = 0;

	if (event->n <= 1) { /* pfx_fetch_index() has prefetched the only line */
		pfx_set_next_lines(table, NULL, 0);
		return;
	}
	hdr = pfx_hdr_of(table, table->chunk[chain->slot / PFX_CHUNK].meta);
	if (event->op == KVR_PREFIX_REMOVE)
		from = chain->slot == 0 || pfx_ld32(&hdr->big) != PFX_NONE ? event->n : 0;
	else if (!event->has_parent && chain->slot != 0)
		from = RTE_MIN(event->n, pfx_len(hdr));
	pfx_set_next_lines(table, skip_blocks(event->sh, from), event->n - from);
}

static void apply_event(struct kvr_prefix *table, const struct kvr_prefix_event *event,
			const struct pfx_chain *chain)
{
	if (event->n == 0 || event->rank >= table->max_ranks || event->tier >= KVR_TIERS)
		return;
	table->work += EVENT_UNITS + event->n / 4;
	if (unlikely(table->rank[event->rank].hidden)) { /* a rank that is being cleared holds
							    nothing and accepts nothing */
		pfx_add(event->op == KVR_PREFIX_STORE ? &table->st.dropped
						      : &table->st.unknown_removes,
			event->n);
		return;
	}
	if (event->op == KVR_PREFIX_STORE) {
		if (event->n > 1 || !kvr_prefix__append_block(table, event, chain))
			store_blocks(table, event);
	} else if (event->op == KVR_PREFIX_REMOVE) {
		if (event->n > 1 || !kvr_prefix__remove_last(table, event, chain))
			remove_blocks(table, event);
	}
}

/* Prefetch the links of each event AHEAD events apart, then apply it. */
static void apply_ahead(struct kvr_prefix *table, const struct kvr_prefix_event ev[], uint32_t n)
{
	struct pfx_chain chain[8 * AHEAD];

	for (uint32_t i = 0; i < n; i++)
		kvr_prefetch(ev[i].sh);
	for (uint32_t i = 0; i < n + 4 * AHEAD; i++) {
		const uint32_t chunk = i - AHEAD, meta = i - 2 * AHEAD, hdr = i - 3 * AHEAD,
			       now = i - 4 * AHEAD;

		if (i < n)
			pfx_fetch_index(table, &ev[i], &chain[i % RTE_DIM(chain)]);
		if (chunk < n)
			pfx_fetch_chunk(table, &chain[chunk % RTE_DIM(chain)]);
		if (meta < n)
			pfx_fetch_meta(table, &ev[meta], &chain[meta % RTE_DIM(chain)]);
		if (hdr < n)
			pfx_fetch_hdr(table, &ev[hdr], &chain[hdr % RTE_DIM(chain)]);
		if (i < 4 * AHEAD)
			continue;
		if (now + 1 < n)
			select_next_lines(table, &ev[now + 1], &chain[(now + 1) % RTE_DIM(chain)]);
		else
			pfx_set_next_lines(table, NULL, 0);
		apply_event(table, &ev[now], &chain[now % RTE_DIM(chain)]);
	}
}

void kvr_prefix_apply_burst(struct kvr_prefix *table, const struct kvr_prefix_event ev[],
			    uint32_t n)
{
	struct pfx_chain alone;

	if (n > 1) {
		apply_ahead(table, ev, n);
	} else if (n == 1) {
		pfx_fetch_index(table, ev, &alone);
		apply_event(table, ev, &alone);
	}
	kvr_prefix__pool_reclaim(table);
}

void kvr_prefix_store(struct kvr_prefix *table, uint16_t rank, enum kvr_tier tier,
		      const uint64_t *parent, const void *sh, uint32_t n)
{
	const struct kvr_prefix_event event = {.op = KVR_PREFIX_STORE,
					       .tier = (uint8_t)tier,
					       .has_parent = parent != NULL,
					       .rank = rank,
					       .n = n,
					       .parent = parent != NULL ? *parent : 0,
					       .sh = sh};

	kvr_prefix_apply_burst(table, &event, 1);
}

void kvr_prefix_remove(struct kvr_prefix *table, uint16_t rank, enum kvr_tier tier, const void *sh,
		       uint32_t n)
{
	const struct kvr_prefix_event event = {
		.op = KVR_PREFIX_REMOVE, .tier = (uint8_t)tier, .rank = rank, .n = n, .sh = sh};

	kvr_prefix_apply_burst(table, &event, 1);
}
