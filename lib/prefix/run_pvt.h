/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RUN_PVT_H
#define RUN_PVT_H

/** @file Steps of run_dp.c that one_dp.c takes, too, and what both ask first. Writer. */

#include "prefix_pvt.h"

/* Release: pairs with the acquire in pfx_len(); chunks and owners of the new blocks are there. */
static inline void pfx_publish_len(struct pfx_hdr *h, uint32_t len)
{
	atomic_store_explicit(&h->len, (uint16_t)len, memory_order_release);
}

/* Blocks the run may have at most: to the next multiple of 512, and in its chunks. */
static inline uint32_t pfx_room_of(const struct pfx_meta *m, const struct pfx_hdr *h)
{
	return RTE_MIN(PFX_RUN - m->pos % PFX_RUN, PFX_RUN - h->start);
}

/* Chunk number `c` of the run, a new one if it has none there yet; PFX_NONE: none is left. */
static inline uint32_t pfx_run_chunk(struct kvr_prefix *t, struct pfx_hdr *h, uint32_t meta,
				     uint32_t c)
{
	uint32_t k = pfx_ld32(&h->chunk[c]);

	if (likely(k != PFX_NONE))
		return k;
	k = kvr_prefix__pool_take(&t->chunks);
	if (k == PFX_NONE)
		return PFX_NONE;
	t->chunk[k] = pfx_chunk_of(meta, c);
	pfx_st32(&h->chunk[c], k);
	return k;
}

/* The chunks of the run from number `from` on go; readers `stay` with the header, or it goes, too.
 */
static inline void pfx_run_drop_chunks(struct kvr_prefix *t, struct pfx_hdr *h, uint32_t from,
				       bool stay)
{
	for (uint32_t c = from; c < PFX_CHUNKS; c++) {
		uint32_t k = pfx_ld32(&h->chunk[c]);

		if (k == PFX_NONE)
			break;
		kvr_prefix__pool_retire(t, &t->chunks, k);
		if (stay)
			pfx_st32(&h->chunk[c], PFX_NONE);
	}
}

/* Are less than `need` and the reserve free? `back`: counting what only readers hold still. */
static inline bool pfx_pool_low(const struct pfx_pool *p, uint32_t need, bool back)
{
	return pfx_pool_free(p) + (back ? p->nretired : 0) < need + p->low;
}

static inline bool pfx_is_low(const struct kvr_prefix *t, uint32_t blocks, bool back)
{
	return t->st.blocks + blocks > t->max_blocks || pfx_pool_low(&t->metas, 2, back) ||
	       pfx_pool_low(&t->hdrs, 4, back) || pfx_pool_low(&t->bigs, 2 * PFX_PLANES, back) ||
	       pfx_pool_low(&t->exts, 2, back) || pfx_pool_low(&t->preds, 2, back) ||
	       pfx_pool_low(&t->chunks, blocks / PFX_CHUNK + 3, back);
}

/* Is there too little for a step that adds up to `blocks` blocks? */
static inline bool pfx_evict_low(const struct kvr_prefix *t, uint32_t blocks)
{
	return pfx_is_low(t, blocks, false);
}

/* Might a removal want more than there is, if it splits runs? */
static inline bool pfx_remove_low(const struct kvr_prefix *t)
{
	return pfx_pool_free(&t->hdrs) < 4 || pfx_pool_free(&t->chunks) < 4 ||
	       pfx_pool_free(&t->metas) < 4;
}

#endif
