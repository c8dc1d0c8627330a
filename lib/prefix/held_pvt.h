/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef HELD_PVT_H
#define HELD_PVT_H

/**
 * @file
 * Updates of the run bits and the charges of a rank, made whenever a run is created or removed: 20
 * instructions each, therefore inline. Thread: writer.
 */

#include "prefix_pvt.h"

static inline uint64_t *pfx_held_sum(const struct kvr_prefix *table, uint16_t rank, uint32_t word)
{
	return &table->sum[(size_t)rank * table->sum_words + word / 64];
}

/* Prefetch the line of the bit. */
static inline void pfx_held_fetch(const struct kvr_prefix *table, uint16_t rank, uint32_t meta)
{
	kvr_prefetch(pfx_held_word(table, rank, meta / 64));
}

static inline void pfx_held_add(struct kvr_prefix *table, uint16_t rank, uint32_t meta)
{
	struct pfx_rank *rank_info = &table->rank[rank];
	uint32_t word = meta / 64;
	uint64_t *w = pfx_held_word(table, rank, word), bit = UINT64_C(1) << (meta % 64);

	if (*w & bit)
		return;
	if (*w == 0) {
		*pfx_held_sum(table, rank, word) |= UINT64_C(1) << (word % 64);
		rank_info->hint = RTE_MIN(rank_info->hint, word);
	}
	*w |= bit;
	rank_info->held++;
}

/* Clears only the bit: the caller destroys the run, or calls kvr_prefix__held_drop(). */
static inline void pfx_held_del(struct kvr_prefix *table, uint16_t rank, uint32_t meta)
{
	uint32_t word = meta / 64;
	uint64_t *w = pfx_held_word(table, rank, word), bit = UINT64_C(1) << (meta % 64);

	if (!(*w & bit))
		return;
	*w &= ~bit;
	if (*w == 0)
		*pfx_held_sum(table, rank, word) &= ~(UINT64_C(1) << (word % 64));
	table->rank[rank].held--;
}

/* Charge runs and blocks to the rank. */
static inline void pfx_charge(struct kvr_prefix *table, uint16_t rank, uint32_t runs,
			      uint32_t blocks)
{
	struct pfx_rank *rank_info = &table->rank[rank];

	table->charged += rank_info->runs == 0 && runs > 0;
	rank_info->runs += runs;
	rank_info->blocks += blocks;
}

static inline void pfx_discharge(struct kvr_prefix *table, uint16_t rank, uint32_t runs,
				 uint32_t blocks)
{
	struct pfx_rank *rank_info = &table->rank[rank];

	rank_info->runs -= runs;
	rank_info->blocks -= blocks;
	table->charged -= rank_info->runs == 0 && runs > 0;
}

#endif
