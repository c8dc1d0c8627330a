/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * List of the runs without children that are charged to a rank, ordered by the second of their last
 * match as known to the writer. evict_dp.c uses it.
 */

#include "prefix_pvt.h"

#define PLACES 16u /* steps to find the place of a run; then the place is approximate */

/* The run before which a run of this age belongs; PFX_NONE: at the end. */
static uint32_t place_for_age(const struct kvr_prefix *table, const struct pfx_rank *rank_info,
			      uint32_t age)
{
	uint32_t up = rank_info->first, down = rank_info->last, after = PFX_NONE;

	for (uint32_t i = 0; i < PLACES; i++) {
		if (up == PFX_NONE || table->meta[up].age > age)
			return up;
		if (table->meta[down].age <= age)
			return after;
		up = table->meta[up].newer;
		after = down;
		down = table->meta[down].older;
	}
	return after;
}

static void set_first(const struct kvr_prefix *table, struct pfx_rank *rank_info, uint32_t meta)
{
	rank_info->first = meta;
	rank_info->age = meta != PFX_NONE ? table->meta[meta].age : UINT32_MAX;
}

void kvr_prefix__list_add(struct kvr_prefix *table, uint32_t meta, uint32_t age)
{
	struct pfx_meta *run = &table->meta[meta];
	struct pfx_rank *rank_info = &table->rank[run->charge];
	uint32_t next = PFX_NONE, prev = rank_info->last;

	run->age = age;
	if (prev != PFX_NONE && table->meta[prev].age > age) {
		next = place_for_age(table, rank_info, age);
		prev = next != PFX_NONE ? table->meta[next].older : rank_info->last;
	}
	run->older = prev;
	run->newer = next;
	if (prev != PFX_NONE)
		table->meta[prev].newer = meta;
	else
		set_first(table, rank_info, meta);
	if (next != PFX_NONE)
		table->meta[next].older = meta;
	else
		rank_info->last = meta;
}

void kvr_prefix__list_del(struct kvr_prefix *table, uint32_t meta)
{
	struct pfx_meta *run = &table->meta[meta];
	struct pfx_rank *rank_info = &table->rank[run->charge];

	if (run->older != PFX_NONE)
		table->meta[run->older].newer = run->newer;
	else
		set_first(table, rank_info, run->newer);
	if (run->newer != PFX_NONE)
		table->meta[run->newer].older = run->older;
	else
		rank_info->last = run->older;
}
