/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef HOLD_PVT_H
#define HOLD_PVT_H

/** @file
 * Words of hold_dp.c that change with every run that comes or goes: 20 instructions each, so they
 * stand where they are used. Writer: the event thread.
 */

#include "prefix_pvt.h"

static inline uint64_t *pfx_hold_sum(const struct kvr_prefix *t, uint16_t rank, uint32_t word)
{
	return &t->sum[(size_t)rank * t->sum_words + word / 64];
}

/* The line of the bit is on its way while the caller does something else. */
static inline void pfx_hold_fetch(const struct kvr_prefix *t, uint16_t rank, uint32_t meta)
{
	kvr_prefetch(pfx_hold(t, rank, meta / 64));
}

static inline void pfx_hold_add(struct kvr_prefix *t, uint16_t rank, uint32_t meta)
{
	struct pfx_rank *r = &t->rank[rank];
	uint32_t word = meta / 64;
	uint64_t *w = pfx_hold(t, rank, word), bit = UINT64_C(1) << (meta % 64);

	if (*w & bit)
		return;
	if (*w == 0) {
		*pfx_hold_sum(t, rank, word) |= UINT64_C(1) << (word % 64);
		r->hint = RTE_MIN(r->hint, word);
	}
	*w |= bit;
	r->held++;
}

/* The bit alone: the run is to go, or kvr_prefix__hold_drop() sees to the rest. */
static inline void pfx_hold_del(struct kvr_prefix *t, uint16_t rank, uint32_t meta)
{
	uint32_t word = meta / 64;
	uint64_t *w = pfx_hold(t, rank, word), bit = UINT64_C(1) << (meta % 64);

	if (!(*w & bit))
		return;
	*w &= ~bit;
	if (*w == 0)
		*pfx_hold_sum(t, rank, word) &= ~(UINT64_C(1) << (word % 64));
	t->rank[rank].held--;
}

/* The run is charged to the rank, or not any more. */
static inline void pfx_charge(struct kvr_prefix *t, uint16_t rank, uint32_t runs, uint32_t blocks)
{
	struct pfx_rank *r = &t->rank[rank];

	t->charged += r->runs == 0 && runs > 0;
	r->runs += runs;
	r->blocks += blocks;
}

static inline void pfx_discharge(struct kvr_prefix *t, uint16_t rank, uint32_t runs,
				 uint32_t blocks)
{
	struct pfx_rank *r = &t->rank[rank];

	r->runs -= runs;
	r->blocks -= blocks;
	t->charged -= r->runs == 0 && runs > 0;
}

#endif
