/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RUN_PVT_H
#define RUN_PVT_H

/**
 * @file
 * Steps shared by run_dp.c and single_block_dp.c, and the memory checks before them. Thread:
 * writer.
 */

#include "prefix_pvt.h"

/* Release: pairs with the acquire in pfx_len(); chunks and owners of the new blocks are visible. */
static inline void pfx_publish_len(struct pfx_hdr *hdr, uint32_t len)
{
	atomic_store_explicit(&hdr->len, (uint16_t)len, memory_order_release);
}

/*
 * Largest length of the run: up to the next multiple of 512 blocks, and to the end of its chunks.
 */
static inline uint32_t pfx_max_len(const struct pfx_meta *run, const struct pfx_hdr *hdr)
{
	return RTE_MIN(PFX_RUN - run->pos % PFX_RUN, PFX_RUN - hdr->start);
}

/* Chunk number `c` of the run, allocated if necessary; PFX_NONE: none is left. */
static inline uint32_t pfx_run_chunk(struct kvr_prefix *table, struct pfx_hdr *hdr, uint32_t meta,
				     uint32_t c)
{
	uint32_t k = pfx_ld32(&hdr->chunk[c]);

	if (likely(k != PFX_NONE))
		return k;
	k = kvr_prefix__pool_take(&table->chunks);
	if (k == PFX_NONE)
		return PFX_NONE;
	table->chunk[k] = pfx_chunk_info_of(meta, c);
	pfx_st32(&hdr->chunk[c], k);
	return k;
}

/* Retire the chunks of the run from number `from` on. `stay`: readers can still find the header. */
static inline void pfx_run_drop_chunks(struct kvr_prefix *table, struct pfx_hdr *hdr, uint32_t from,
				       bool stay)
{
	for (uint32_t c = from; c < PFX_CHUNKS; c++) {
		uint32_t k = pfx_ld32(&hdr->chunk[c]);

		if (k == PFX_NONE)
			break;
		kvr_prefix__pool_retire(table, &table->chunks, k);
		if (stay)
			pfx_st32(&hdr->chunk[c], PFX_NONE);
	}
}

/*
 * Return true if fewer than `need` plus the reserve are free. `back`: count objects that wait for
 * readers as free.
 */
static inline bool pfx_pool_low(const struct pfx_pool *pool, uint32_t need, bool back)
{
	return pfx_pool_free(pool) + (back ? pool->nretired : 0) < need + pool->low;
}

static inline bool pfx_memory_low(const struct kvr_prefix *table, uint32_t blocks, bool back)
{
	return table->st.blocks + blocks > table->max_blocks ||
	       pfx_pool_low(&table->metas, 2, back) || pfx_pool_low(&table->hdrs, 4, back) ||
	       pfx_pool_low(&table->bigs, 2 * PFX_PLANES, back) ||
	       pfx_pool_low(&table->exts, 2, back) || pfx_pool_low(&table->preds, 2, back) ||
	       pfx_pool_low(&table->chunks, blocks / PFX_CHUNK + 3, back);
}

/* Return true if memory is short for a step that adds up to `blocks` blocks. */
static inline bool pfx_store_low(const struct kvr_prefix *table, uint32_t blocks)
{
	return pfx_memory_low(table, blocks, false);
}

/* Return true if memory is short for a removal that splits runs. */
static inline bool pfx_remove_low(const struct kvr_prefix *table)
{
	return pfx_pool_free(&table->hdrs) < 4 || pfx_pool_free(&table->chunks) < 4 ||
	       pfx_pool_free(&table->metas) < 4;
}

#endif
