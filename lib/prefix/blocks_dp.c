/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Adding and removing the blocks of a run. The main cost of a block is its index entry: a cache
 * line of its own, prefetched PFX_AHEAD blocks before use, and then the instructions. Both
 * directions therefore process a few blocks of one chunk at a time. Nearly every entry is added to
 * or removed from its home bucket; the rest use the general search.
 */

#include "blocks_pvt.h"
#include "lookup_pvt.h"
#include "prefetch_pvt.h"

#define STEP  8u	      /* blocks between two batches of prefetches */
#define ROUND (2 * PFX_AHEAD) /* blocks of one step and PFX_AHEAD beyond, rounded up */

/* Home bucket and tag of the blocks whose index lines are being prefetched. */
struct fetched {
	uint32_t n; /* blocks so far; the arrays hold the last ROUND of them */
	uint32_t home[ROUND];
	uint16_t tag[ROUND];
};

static inline void fetch_line(const struct kvr_prefix *table, struct fetched *fetched, uint64_t sh)
{
	const uint64_t mix = pfx_mix(table, sh);
	const uint32_t home = pfx_index_home(&table->index, mix), k = fetched->n++ % ROUND;

	fetched->home[k] = home;
	fetched->tag[k] = pfx_index_tag(mix);
	kvr_prefetch(&table->index.b[home]);
}

/* ---- adding ---- */

static inline void fetch_lines_up(const struct kvr_prefix *table, struct fetched *fetched,
				  const void *sh, uint32_t end)
{
	while (fetched->n < end)
		fetch_line(table, fetched, pfx_ld64(sh, fetched->n));
}

/*
 * Add one block by the general search. @return false if the block is already in the index, or the
 * index is full.
 */
static bool add_by_search(struct kvr_prefix *table, uint64_t sh, uint32_t slot)
{
	const uint64_t mix = pfx_mix(table, sh);
	uint32_t at;

	if (pfx_index_find(table, mix, sh, &at) != 0 || !pfx_index_has_room(&table->index, at))
		return false;
	pfx_wr(&table->sh[slot], sh);
	pfx_index_put(&table->index, mix, at, slot);
	return true;
}

/*
 * Add blocks first..end-1 of `sh` at the places from `slot` on, all in one chunk. @return the index
 * of the first block that was not added.
 */
static uint32_t add_blocks(struct kvr_prefix *table, const struct fetched *fetched, const void *sh,
			   uint32_t first, uint32_t end, uint32_t slot)
{
	struct kvr_bucket *buckets = table->index.b;
	uint32_t i, fast = 0;

	for (i = first; i < end; i++, slot++) {
		const uint64_t v = pfx_ld64(sh, i);
		const uint16_t tag = fetched->tag[i % ROUND];
		struct kvr_bucket *bucket = &buckets[fetched->home[i % ROUND]];
		const struct pfx_masks masks = pfx_index_masks(bucket, tag);

		if (likely(masks.tag == 0 && masks.empty != 0 && bucket->over == 0)) {
			const uint32_t at = (uint32_t)__builtin_ctz(masks.empty);

			pfx_wr(&table->sh[slot], v);
			bucket->tag[at] = tag;
			bucket->value[at] = slot;
			fast++;
		} else if (!add_by_search(table, v, slot)) {
			break;
		}
	}
	table->index.used += fast;
	return i;
}

uint32_t kvr_prefix__blocks_add(struct kvr_prefix *table, uint32_t meta, const void *sh, uint32_t n)
{
	struct pfx_hdr *hdr = pfx_hdr_of(table, meta);
	const uint32_t len = atomic_load_explicit(&hdr->len, memory_order_relaxed);
	struct fetched fetched;
	uint32_t done = 0, end, first;

	fetched.n = 0;
	n = RTE_MIN(n, pfx_max_len(&table->meta[meta], hdr) - len);
	for (end = 0; done == end && done < n;) {
		const uint32_t place = hdr->start + len + done;
		uint32_t chunk;

		end = RTE_MIN(n, done + RTE_MIN(STEP, PFX_CHUNK - place % PFX_CHUNK));
		fetch_lines_up(table, &fetched, sh, RTE_MIN(n, end + PFX_AHEAD));
		if (fetched.n == n)
			pfx_fetch_next_lines(table, end - done);
		chunk = pfx_run_chunk(table, hdr, meta, place / PFX_CHUNK);
		if (chunk == PFX_NONE)
			break;
		first = done;
		done = add_blocks(table, &fetched, sh, first, end,
				  chunk * PFX_CHUNK + place % PFX_CHUNK);
		if (unlikely(done == first) && place % PFX_CHUNK == 0) /* the new chunk is empty */
			pfx_run_drop_chunks(table, hdr, place / PFX_CHUNK, true);
	}
	pfx_add(&table->st.blocks, done);
	return len + done;
}

/* ---- removing ---- */

/* From the last block to the first, the order of most events. */
static void fetch_lines_down(const struct kvr_prefix *table, struct fetched *fetched,
			     const struct pfx_hdr *hdr, uint32_t len, uint32_t end)
{
	while (fetched->n < end) {
		const uint64_t *p = pfx_sh(table, hdr, len - 1 - fetched->n);
		uint32_t k = RTE_MIN(end - fetched->n, (uint32_t)(p - table->sh) % PFX_CHUNK + 1);

		for (; k > 0; k--)
			fetch_line(table, fetched, *p--);
	}
}

/* Remove blocks first..end-1, counted from the end of the run; block `first` is at `slot`. */
static void drop_blocks(struct kvr_prefix *table, const struct fetched *fetched, uint32_t first,
			uint32_t end, uint32_t slot)
{
	struct kvr_bucket *buckets = table->index.b;
	uint32_t fast = 0;

	for (uint32_t i = first; i < end; i++, slot--) {
		struct kvr_bucket *bucket = &buckets[fetched->home[i % ROUND]];
		const uint32_t m = pfx_index_masks(bucket, fetched->tag[i % ROUND]).tag;
		const uint32_t at = m != 0 ? (uint32_t)__builtin_ctz(m) : 0;

		if (likely(bucket->value[at] == slot)) {
			bucket->tag[at] = 0;
			bucket->value[at] = 0;
			fast++;
		} else {
			kvr_prefix__index_del(&table->index, pfx_mix(table, table->sh[slot]), slot);
		}
	}
	table->index.used -= fast;
}

void kvr_prefix__blocks_drop(struct kvr_prefix *table, struct pfx_hdr *hdr, uint32_t from,
			     uint32_t len, bool stays)
{
	const uint32_t keep = (hdr->start + from + PFX_CHUNK - 1) / PFX_CHUNK, n = len - from;
	struct fetched fetched;

	fetched.n = 0;
	for (uint32_t done = 0, end; done < n; done = end) {
		const uint32_t slot = (uint32_t)(pfx_sh(table, hdr, len - 1 - done) - table->sh);

		end = RTE_MIN(n, done + RTE_MIN(STEP, slot % PFX_CHUNK + 1));
		fetch_lines_down(table, &fetched, hdr, len, RTE_MIN(n, end + PFX_AHEAD));
		if (fetched.n == n)
			pfx_fetch_next_lines(table, end - done);
		drop_blocks(table, &fetched, done, end, slot);
	}
	pfx_run_drop_chunks(table, hdr, from == 0 ? 0 : keep, stays);
	pfx_sub(&table->st.blocks, n);
}
