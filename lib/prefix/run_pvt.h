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

static inline bool pfx_pool_low(const struct pfx_pool *p, uint32_t need)
{
	return pfx_pool_free(p) < need + p->low;
}

/* Is there too little for a step that adds up to `blocks` blocks? */
static inline bool pfx_evict_low(const struct kvr_prefix *t, uint32_t blocks)
{
	return t->st.blocks + blocks > t->max_blocks || pfx_pool_low(&t->metas, 2) ||
	       pfx_pool_low(&t->hdrs, 4) || pfx_pool_low(&t->bigs, 2 * PFX_PLANES) ||
	       pfx_pool_low(&t->exts, 2) || pfx_pool_low(&t->preds, 2) ||
	       pfx_pool_low(&t->chunks, blocks / PFX_CHUNK + 3);
}

/* Might a removal want more than there is, if it splits runs? */
static inline bool pfx_remove_low(const struct kvr_prefix *t)
{
	return pfx_pool_free(&t->hdrs) < 4 || pfx_pool_free(&t->chunks) < 4 ||
	       pfx_pool_free(&t->metas) < 4;
}

#endif
