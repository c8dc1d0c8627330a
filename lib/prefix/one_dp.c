/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * One block more at the end of a run, or one less: what an engine that generates tells, an event a
 * block, and so most of all events. The way through store() and remove_blocks() takes 600
 * instructions more, and what they wait for was fetched long before: they are the time. Here the
 * second line of the header and the pools are touched only where a chunk begins or ends. What is
 * not that plain goes the general way, whose result this must be equal to.
 */

#include "one_pvt.h"

#include "find_pvt.h"
#include "run_pvt.h"

/* Bit i: place i of the owners is `word`; has the lead `len`. */
struct places {
	uint32_t word, lead;
};

#ifdef __SSE2__
static uint32_t eq8(__m128i a, __m128i b, uint32_t with)
{
	const __m128i w = _mm_set1_epi32((int)with);
	__m128i eq = _mm_packs_epi32(_mm_cmpeq_epi32(a, w), _mm_cmpeq_epi32(b, w));

	return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(eq, eq)) & ((1u << PFX_INLINE) - 1);
}

static struct places places_of(const struct pfx_hdr *h, uint32_t word)
{
	const __m128i *v = (const __m128i *)(const void *)h->owner;
	const __m128i lead = _mm_set1_epi32(PFX_LEAD(UINT32_MAX));
	__m128i a = _mm_loadu_si128(&v[0]), b = _mm_loadu_si128(&v[1]);

	return (struct places){eq8(a, b, word),
			       eq8(_mm_and_si128(a, lead), _mm_and_si128(b, lead), PFX_LEAD(word))};
}
#else
static struct places places_of(const struct pfx_hdr *h, uint32_t word)
{
	struct places p = {0, 0};

	for (uint32_t i = 0; i < PFX_INLINE; i++) {
		uint32_t o = pfx_ld32(&h->owner[i]);

		p.word |= (uint32_t)(o == word) << i;
		p.lead |= (uint32_t)(PFX_LEAD(o) == PFX_LEAD(word)) << i;
	}
	return p;
}
#endif

/* A run whose last block stands in `slot`. */
struct end {
	struct pfx_meta *m;
	struct pfx_hdr *h;
	uint32_t meta, len;
	struct places owner; /* of all of it */
};

static bool any_big(const struct kvr_prefix *t, struct pfx_hdr *h)
{
	return pfx_ld32(&h->big) != PFX_NONE ||
	       (pfx_ld32(&h->ext) != PFX_NONE && kvr_prefix__owner_any_big(t, h));
}

/* Has any other the last block? */
static bool others(const struct kvr_prefix *t, const struct end *e)
{
	return e->owner.lead != e->owner.word ||
	       (pfx_ld32(&e->h->ext) != PFX_NONE && kvr_prefix__owner_longest(t, e->h) == e->len);
}

/* Is that the last block of a run that ends there, and has the rank all of it? */
static bool end_of(struct kvr_prefix *t, uint32_t slot, uint16_t rank, struct end *e)
{
	const struct pfx_chunk_info c = t->chunk[slot / PFX_CHUNK];

	e->meta = c.meta;
	e->m = &t->meta[c.meta];
	e->h = &t->hdr[e->m->hdr];
	e->len = atomic_load_explicit(&e->h->len, memory_order_relaxed);
	e->owner = places_of(e->h, PFX_OWNER(rank, e->len));
	return c.ord * PFX_CHUNK + slot % PFX_CHUNK + 1 == e->h->start + e->len &&
	       e->m->nchild == 0 && e->owner.word != 0 && !any_big(t, e->h);
}

/* The slot behind the last block: mostly in the same chunk. 0: there is none. */
static uint32_t slot_behind(struct kvr_prefix *t, const struct end *e, uint32_t slot)
{
	if (likely((slot + 1) % PFX_CHUNK != 0))
		return slot + 1;
	return pfx_run_chunk(t, e->h, e->meta, (e->h->start + e->len) / PFX_CHUNK) * PFX_CHUNK;
}

bool kvr_prefix__one_more(struct kvr_prefix *t, const struct kvr_prefix_event *ev,
			  const struct pfx_chain *c)
{
	const uint64_t sh = pfx_ld64(ev->sh, 0);
	uint32_t at, slot;
	struct end e;

	if (ev->tier != KVR_TIER_DEVICE || !ev->has_parent || t->rank[ev->rank].limit != 0 ||
	    pfx_evict_low(t, 1))
		return false;
	slot = pfx_index_find(t, c->mix, ev->parent, &at);
	if (slot == 0 || !end_of(t, slot, ev->rank, &e) || e.m->shrunk > t->done ||
	    e.len >= pfx_room_of(e.m, e.h))
		return false;
	if (pfx_index_find(t, c->first, sh, &at) != 0 || !pfx_index_is_room(&t->index, at))
		return false;
	slot = slot_behind(t, &e, slot);
	if (slot == 0)
		return false;
	pfx_wr(&t->sh[slot], sh);
	pfx_index_put(&t->index, c->first, at, slot);
	pfx_st32(&e.h->owner[__builtin_ctz(e.owner.word)], PFX_OWNER(ev->rank, e.len + 1));
	pfx_add(&t->st.blocks, 1);
	pfx_add(&t->st.stored, 1);
	pfx_add(&t->st.entries, 1);
	pfx_add(&t->rank_blocks[ev->rank][KVR_TIER_DEVICE], 1);
	t->rank[e.m->charge].blocks++;
	t->work++;
	atomic_store_explicit(&e.h->last_sh, sh, memory_order_relaxed);
	pfx_publish_len(e.h, e.len + 1);
	return true;
}

/* The last block in `slot`, at `at` in the index, is nobody's now. */
static void shorten(struct kvr_prefix *t, const struct end *e, uint64_t mix, uint32_t at,
		    uint32_t slot)
{
	const uint32_t place = e->h->start + e->len - 1;

	if (likely(slot % PFX_CHUNK != 0))
		atomic_store_explicit(&e->h->last_sh, t->sh[slot - 1], memory_order_relaxed);
	else
		pfx_set_last(t, e->h, e->len - 1);
	pfx_publish_len(e->h, e->len - 1);
	pfx_index_clear(&t->index, mix, at);
	if (place % PFX_CHUNK == 0)
		pfx_run_drop_chunks(t, e->h, place / PFX_CHUNK, true);
	pfx_sub(&t->st.blocks, 1);
	t->rank[e->m->charge].blocks--;
	e->m->gen++;
	e->m->shrunk = t->batch;
	t->dirty = true;
}

bool kvr_prefix__one_less(struct kvr_prefix *t, const struct kvr_prefix_event *ev,
			  const struct pfx_chain *c)
{
	uint32_t at, slot;
	struct end e;

	if (ev->tier != KVR_TIER_DEVICE || pfx_remove_low(t))
		return false;
	slot = pfx_index_find(t, c->mix, pfx_ld64(ev->sh, 0), &at);
	if (slot == 0 || !end_of(t, slot, ev->rank, &e) || e.len == 1)
		return false;
	pfx_st32(&e.h->owner[__builtin_ctz(e.owner.word)], PFX_OWNER(ev->rank, e.len - 1));
	pfx_note_loss(t, ev->rank);
	pfx_add(&t->st.removed, 1);
	pfx_sub(&t->st.entries, 1);
	pfx_sub(&t->rank_blocks[ev->rank][KVR_TIER_DEVICE], 1);
	if (!others(t, &e))
		shorten(t, &e, c->mix, at, slot);
	return true;
}
