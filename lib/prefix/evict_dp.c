/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Eviction. Each rank has a list of the runs without children that are charged to it, ordered by
 * the second of the last match known to the writer. Readers store the true second in the header.
 * The first run of a list is examined: if readers matched it since, it moves to the place of that
 * second; otherwise the rank gives it up. A run with children is in no list, because its children
 * would become unreachable. It enters the list when its children are gone.
 *
 * The rank that gives up a run is, in this order: the rank that wants to store, if it is above its
 * quota; another rank above its quota; the rank with the oldest run. A rank that stores more than
 * its quota therefore evicts its own blocks.
 */

#include "run_pvt.h"

#define MOVES	   32u /* runs moved within their list, because they were matched, per call */
#define REUSE	   16u /* runs given up by one victim before the ranks are compared again */
#define RUN_UNITS  24u
#define MOVE_UNITS 8u

/*
 * Return true if the rank has more than its quota of blocks or of runs. One run above the quota is
 * allowed, as ranks take whole runs.
 */
static bool above_quota(const struct kvr_prefix *table, const struct pfx_rank *rank_info)
{
	uint32_t n = RTE_MAX(table->charged, 1u);

	return rank_info->blocks > table->max_blocks / n + PFX_RUN ||
	       rank_info->runs > table->metas.n / n + 8;
}

/* The oldest run that the rank may give up: any but `keep`. */
static uint32_t oldest_of(const struct kvr_prefix *table, const struct pfx_rank *rank_info,
			  uint32_t keep)
{
	return rank_info->first != keep || keep == PFX_NONE ? rank_info->first
							    : table->meta[keep].newer;
}

/*
 * Choose the rank above its quota that has the oldest run; if no rank is above its quota, the rank
 * with the oldest run.
 */
static uint32_t choose_victim(struct kvr_prefix *table, uint32_t keep)
{
	uint32_t best = UINT32_MAX, age = UINT32_MAX, best_above = UINT32_MAX,
		 age_above = UINT32_MAX;

	if (table->nvictim > 0 && oldest_of(table, &table->rank[table->victim], keep) != PFX_NONE) {
		table->nvictim--;
		return table->victim;
	}
	table->work += table->max_ranks / 16;
	for (uint32_t i = 0; i < table->max_ranks; i++) {
		const struct pfx_rank *rank_info = &table->rank[i];

		if (rank_info->age >= age && rank_info->age >= age_above)
			continue;
		if (rank_info->first == keep && oldest_of(table, rank_info, keep) == PFX_NONE)
			continue;
		if (rank_info->age < age) {
			age = rank_info->age;
			best = i;
		}
		if (rank_info->age < age_above && above_quota(table, rank_info)) {
			age_above = rank_info->age;
			best_above = i;
		}
	}
	table->victim = best_above != UINT32_MAX ? best_above : best;
	/*
	 * If no rank is above its quota, the oldest run of all ranks is evicted, so compare each
	 * time.
	 */
	table->nvictim = best_above != UINT32_MAX ? REUSE : 0;
	return table->victim;
}

/*
 * The rank gives up its oldest run except `keep`. If readers have matched that run since, the run
 * moves within the list instead. @return false if there is no such run.
 */
static bool give_up_oldest(struct kvr_prefix *table, uint16_t rank, uint32_t keep, uint32_t *moves)
{
	uint32_t meta = oldest_of(table, &table->rank[rank], keep), age;

	if (meta == PFX_NONE)
		return false;
	age = pfx_ld32(&pfx_hdr_of(table, meta)->age);
	if (age > table->meta[meta].age && *moves > 0) {
		--*moves;
		table->work += MOVE_UNITS;
		kvr_prefix__list_del(table, meta);
		kvr_prefix__list_add(table, meta, age);
		return true;
	}
	pfx_add(&table->st.evicted_runs, 1);
	table->work +=
		RUN_UNITS + kvr_prefix__clear_run(table, meta, rank, &table->st.evicted_entries);
	return true;
}

static bool give_up_any(struct kvr_prefix *table, uint16_t rank, uint32_t keep, uint32_t *moves)
{
	uint32_t v;

	if (table->charged > 1 && above_quota(table, &table->rank[rank]))
		return give_up_oldest(table, rank, keep, moves);
	if (kvr_prefix__pred_drop_first(table))
		return true;
	v = choose_victim(table, keep);
	return v != UINT32_MAX && give_up_oldest(table, (uint16_t)v, keep, moves);
}

/*
 * Free memory for `rank` to store `blocks` blocks. Runs other than `keep` may be split or removed:
 * the caller must look up other locations again.
 */
void kvr_prefix__evict_for(struct kvr_prefix *table, uint16_t rank, uint32_t blocks, uint32_t keep)
{
	uint32_t moves = MOVES, steps = 2 * blocks + 32 + moves;

	kvr_prefix__pool_reclaim(table);
	while (pfx_memory_low(table, blocks, true) && steps-- > 0) {
		if (!give_up_any(table, rank, keep, &moves))
			break;
	}
	kvr_prefix__pool_reclaim(table);
}

/* The rank holds more device blocks than its limit: evict its own oldest runs. */
void kvr_prefix__evict_to_limit(struct kvr_prefix *table, uint16_t rank, uint32_t steps)
{
	const struct pfx_rank *rank_info = &table->rank[rank];
	uint32_t meta, moves = MOVES;

	while (steps-- > 0 && table->rank_blocks[rank][KVR_TIER_DEVICE] > rank_info->limit) {
		if (give_up_oldest(table, rank, PFX_NONE, &moves))
			continue;
		/* No run charged to it is without children: take any run that it holds. */
		if (kvr_prefix__held_list(table, rank, &meta, 1) == 0)
			return;
		pfx_add(&table->st.evicted_runs, 1);
		table->work += kvr_prefix__clear_run(table, meta, rank, &table->st.evicted_entries);
	}
}
