/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Fast path of events of one block at the end of a run. An engine that generates sends one event
 * per block, so these are most events. The general path through store_blocks() and remove_blocks()
 * takes 600 more instructions; the memory accesses were prefetched long before, so the instructions
 * are the cost. This path touches the second line of the header and the pools only where a chunk
 * begins or ends. All other cases use the general path. Both paths must give the same result.
 */

#include "single_block_pvt.h"

#include "lookup_pvt.h"
#include "run_pvt.h"

/* Bit i of `word`: owner place i equals the word. Bit i of `lead`: owner place i has lead `len`. */
struct places {
	uint32_t word, lead;
};

#ifdef __SSE2__
static uint32_t compare_places(__m128i a, __m128i b, uint32_t with)
{
	const __m128i w = _mm_set1_epi32((int)with);
	__m128i eq = _mm_packs_epi32(_mm_cmpeq_epi32(a, w), _mm_cmpeq_epi32(b, w));

	return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(eq, eq)) & ((1u << PFX_INLINE) - 1);
}

static struct places places_of(const struct pfx_hdr *hdr, uint32_t word)
{
	const __m128i *v = (const __m128i *)(const void *)hdr->owner;
	const __m128i lead = _mm_set1_epi32(PFX_LEAD(UINT32_MAX));
	__m128i a = _mm_loadu_si128(&v[0]), b = _mm_loadu_si128(&v[1]);

	return (struct places){
		compare_places(a, b, word),
		compare_places(_mm_and_si128(a, lead), _mm_and_si128(b, lead), PFX_LEAD(word))};
}
#else
static struct places places_of(const struct pfx_hdr *hdr, uint32_t word)
{
	struct places places = {0, 0};

	for (uint32_t i = 0; i < PFX_INLINE; i++) {
		uint32_t o = pfx_ld32(&hdr->owner[i]);

		places.word |= (uint32_t)(o == word) << i;
		places.lead |= (uint32_t)(PFX_LEAD(o) == PFX_LEAD(word)) << i;
	}
	return places;
}
#endif

/* A run whose last block is in a known slot. */
struct run_end {
	struct pfx_meta *m;
	struct pfx_hdr *h;
	uint32_t meta, len;
	struct places owner; /* places of the owner of the whole run */
};

static bool any_big(const struct kvr_prefix *table, struct pfx_hdr *hdr)
{
	return pfx_ld32(&hdr->big) != PFX_NONE ||
	       (pfx_ld32(&hdr->ext) != PFX_NONE && kvr_prefix__owner_any_big(table, hdr));
}

/* Return true if another rank or plane also owns the last block. */
static bool is_shared(const struct kvr_prefix *table, const struct run_end *end)
{
	return end->owner.lead != end->owner.word ||
	       (pfx_ld32(&end->h->ext) != PFX_NONE &&
		kvr_prefix__owner_longest(table, end->h) == end->len);
}

/*
 * Return true if the block in `slot` is the last one of a run without children that `rank` owns
 * completely.
 */
static bool find_run_end(struct kvr_prefix *table, uint32_t slot, uint16_t rank,
			 struct run_end *end)
{
	const struct pfx_chunk_info info = table->chunk[slot / PFX_CHUNK];

	end->meta = info.meta;
	end->m = &table->meta[info.meta];
	end->h = &table->hdr[end->m->hdr];
	end->len = atomic_load_explicit(&end->h->len, memory_order_relaxed);
	end->owner = places_of(end->h, PFX_OWNER(rank, end->len));
	return info.ord * PFX_CHUNK + slot % PFX_CHUNK + 1 == end->h->start + end->len &&
	       end->m->nchild == 0 && end->owner.word != 0 && !any_big(table, end->h);
}

/* The slot after the last block, usually in the same chunk. 0: there is no chunk left. */
static uint32_t slot_behind(struct kvr_prefix *table, const struct run_end *end, uint32_t slot)
{
	if (likely((slot + 1) % PFX_CHUNK != 0))
		return slot + 1;
	return pfx_run_chunk(table, end->h, end->meta, (end->h->start + end->len) / PFX_CHUNK) *
	       PFX_CHUNK;
}

bool kvr_prefix__append_block(struct kvr_prefix *table, const struct kvr_prefix_event *ev,
			      const struct pfx_chain *chain)
{
	const uint64_t sh = pfx_ld64(ev->sh, 0);
	uint32_t at, slot;
	struct run_end end;

	if (ev->tier != KVR_TIER_DEVICE || !ev->has_parent || table->rank[ev->rank].limit != 0 ||
	    pfx_store_low(table, 1))
		return false;
	slot = pfx_index_find(table, chain->mix, ev->parent, &at);
	if (slot == 0 || !find_run_end(table, slot, ev->rank, &end) ||
	    end.m->shrunk > table->done || end.len >= pfx_max_len(end.m, end.h))
		return false;
	if (pfx_index_find(table, chain->first, sh, &at) != 0 ||
	    !pfx_index_has_room(&table->index, at))
		return false;
	slot = slot_behind(table, &end, slot);
	if (slot == 0)
		return false;
	pfx_wr(&table->sh[slot], sh);
	pfx_index_put(&table->index, chain->first, at, slot);
	pfx_st32(&end.h->owner[__builtin_ctz(end.owner.word)], PFX_OWNER(ev->rank, end.len + 1));
	pfx_add(&table->st.blocks, 1);
	pfx_add(&table->st.stored, 1);
	pfx_add(&table->st.entries, 1);
	pfx_add(&table->rank_blocks[ev->rank][KVR_TIER_DEVICE], 1);
	table->rank[end.m->charge].blocks++;
	table->work++;
	atomic_store_explicit(&end.h->last_sh, sh, memory_order_relaxed);
	pfx_publish_len(end.h, end.len + 1);
	return true;
}

/* Remove the last block, which has no owner left. It is in `slot`, its index entry at `at`. */
static void shorten_run(struct kvr_prefix *table, const struct run_end *end, uint64_t mix,
			uint32_t at, uint32_t slot)
{
	const uint32_t place = end->h->start + end->len - 1;

	if (likely(slot % PFX_CHUNK != 0))
		atomic_store_explicit(&end->h->last_sh, table->sh[slot - 1], memory_order_relaxed);
	else
		pfx_set_last(table, end->h, end->len - 1);
	pfx_publish_len(end->h, end->len - 1);
	pfx_index_clear(&table->index, mix, at);
	if (place % PFX_CHUNK == 0)
		pfx_run_drop_chunks(table, end->h, place / PFX_CHUNK, true);
	pfx_sub(&table->st.blocks, 1);
	table->rank[end->m->charge].blocks--;
	end->m->gen++;
	end->m->shrunk = table->batch;
	table->dirty = true;
}

bool kvr_prefix__remove_last(struct kvr_prefix *table, const struct kvr_prefix_event *ev,
			     const struct pfx_chain *chain)
{
	uint32_t at, slot;
	struct run_end end;

	if (ev->tier != KVR_TIER_DEVICE || pfx_remove_low(table))
		return false;
	slot = pfx_index_find(table, chain->mix, pfx_ld64(ev->sh, 0), &at);
	if (slot == 0 || !find_run_end(table, slot, ev->rank, &end) || end.len == 1)
		return false;
	pfx_st32(&end.h->owner[__builtin_ctz(end.owner.word)], PFX_OWNER(ev->rank, end.len - 1));
	pfx_note_loss(table, ev->rank);
	pfx_add(&table->st.removed, 1);
	pfx_sub(&table->st.entries, 1);
	pfx_sub(&table->rank_blocks[ev->rank][KVR_TIER_DEVICE], 1);
	if (!is_shared(table, &end))
		shorten_run(table, &end, chain->mix, at, slot);
	return true;
}
