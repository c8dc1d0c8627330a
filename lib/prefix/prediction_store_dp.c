/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Storing predictions: run by run from the root, as for a store event. prediction_dp.c keeps the
 * entries, prediction_expiry_dp.c ends them.
 */

#include "lookup_pvt.h"
#include "run_pvt.h"

#define PREDICT_UNITS 8u /* units of work per run, in addition to its new blocks */

/*
 * Predict up to *k blocks of a run from `loc` on. An entry has one end time, so the run is split
 * where blocks that end later meet blocks that end sooner. @return the location of the last block,
 * with the number of blocks in *k.
 */
static struct pfx_loc predict_known(struct kvr_prefix *table, struct pfx_loc loc, uint32_t *k,
				    uint16_t rank, uint64_t until_ms)
{
	uint32_t lead = kvr_prefix__owner_get(table, pfx_hdr_of(table, loc.meta), PFX_PRED, rank);
	uint32_t i = lead ? kvr_prefix__pred_find(table, loc.meta, rank) : PFX_NONE;
	bool sooner = i != PFX_NONE && until_ms < table->pred[i].until_ms && loc.off < lead;

	if (sooner && loc.off + *k <= lead)
		return (struct pfx_loc){loc.meta, loc.off + *k - 1};
	if (sooner) {
		*k = lead - loc.off;
		loc.meta = kvr_prefix__run_split(table, loc.meta, lead);
		return (struct pfx_loc){loc.meta, lead - 1};
	}
	if (loc.off + *k < lead) {
		loc.meta = kvr_prefix__run_split(table, loc.meta, loc.off + *k);
		if (loc.meta == PFX_NONE)
			return loc;
	}
	return kvr_prefix__run_own(table, loc, *k, rank, PFX_PRED);
}

/* Predict up to *k new blocks, from block i on; the chain so far ends at `at`. */
static struct pfx_loc predict_new(struct kvr_prefix *table, uint16_t rank, const void *sh,
				  uint32_t i, uint32_t *k, struct pfx_loc at)
{
	struct pfx_new as = {.has_parent = i > 0};
	uint32_t meta;

	*k = RTE_MIN(*k, PFX_RUN);
	if (pfx_store_low(table, *k)) {
		kvr_prefix__evict_for(table, rank, *k, at.meta);
		at.meta = PFX_NONE;
		if (i > 0)
			at = pfx_find(table, pfx_ld64(sh, i - 1));
	}
	*k = RTE_MIN(*k, table->max_blocks - (uint32_t)table->st.blocks);
	if (*k == 0)
		return (struct pfx_loc){PFX_NONE, 0};
	table->work += *k;
	as.parent = at.meta;
	if (at.meta != PFX_NONE && at.off + 1 < pfx_len(pfx_hdr_of(table, at.meta)))
		as.parent = kvr_prefix__run_split(table, at.meta, at.off + 1);
	if (i > 0)
		as.parent_sh = pfx_ld64(sh, i - 1);
	if (as.parent != PFX_NONE)
		as.pos = (table->meta[as.parent].pos + at.off + 1) % PFX_RUN;
	meta = kvr_prefix__run_create(table, &as, rank, PFX_PRED, (const char *)sh + (size_t)i * 8,
				      k);
	return (struct pfx_loc){meta, *k - 1};
}

/*
 * Predict the next blocks of the prompt, all in one run. `at` becomes the location of the last one.
 * @return the number of blocks; 0: out of memory.
 */
static uint32_t predict_run(struct kvr_prefix *table, uint16_t rank, const void *sh, uint32_t i,
			    uint32_t n, struct pfx_loc *at, uint64_t until_ms)
{
	const char *from = (const char *)sh + (size_t)i * 8;
	struct pfx_loc loc = pfx_find(table, pfx_ld64(from, 0));
	uint32_t k = n - i;

	if (loc.meta != PFX_NONE) {
		k = pfx_match_blocks(table, loc, from, k);
		*at = predict_known(table, loc, &k, rank, until_ms);
	} else {
		*at = predict_new(table, rank, sh, i, &k, *at);
	}
	if (at->meta == PFX_NONE)
		return 0;
	if (kvr_prefix__pred_renew(table, at->meta, rank, until_ms) < 0) {
		kvr_prefix__pred_disown(table, at->meta, rank);
		kvr_prefix__run_trim(table, at->meta);
		return 0;
	}
	return k;
}

uint32_t kvr_prefix_predict_some(struct kvr_prefix *table, uint16_t rank, const void *sh,
				 uint32_t from, uint32_t n, uint64_t now_ms, uint32_t ttl_ms,
				 uint64_t end)
{
	const uint32_t most = RTE_MIN(n, (uint32_t)KVR_PREFIX_MAX_QUERY);
	struct pfx_loc at = {PFX_NONE, 0};
	uint32_t i = from;

	if (rank >= table->max_ranks || ttl_ms == 0)
		return n;
	if (table->rank[rank].hidden) {
		pfx_add(&table->st.dropped, most - RTE_MIN(from, most));
		return n;
	}
	for (uint32_t k; i < most && (i == from || table->work < end); i += k) {
		if (pfx_store_low(table, 0)) {
			kvr_prefix__evict_for(table, rank, 0, at.meta);
			at.meta = PFX_NONE;
		}
		if (i > 0 && at.meta == PFX_NONE)
			at = pfx_find(table, pfx_ld64(sh, i - 1));
		table->work += PREDICT_UNITS;
		k = predict_run(table, rank, sh, i, most, &at, now_ms + ttl_ms);
		if (k == 0) {
			pfx_add(&table->st.dropped, most - i);
			i = most;
			break;
		}
	}
	kvr_prefix__pool_reclaim(table);
	return i < most ? i : n;
}

void kvr_prefix_predict(struct kvr_prefix *table, uint16_t rank, const void *sh, uint32_t n,
			uint64_t now_ms, uint32_t ttl_ms)
{
	kvr_prefix_predict_some(table, rank, sh, 0, n, now_ms, ttl_ms, UINT64_MAX);
}
