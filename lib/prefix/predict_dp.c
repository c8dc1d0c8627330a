/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * New predictions, as the store of an event: run by run from the root. pred_dp.c keeps the entries,
 * expire_dp.c ends them.
 */

#include "find_pvt.h"
#include "run_pvt.h"

#define PREDICT_UNITS 8u /* of work a run, beside its new blocks */

/*
 * Predict up to k blocks of a run from `loc` on. One entry has one end, so the run is split where
 * blocks that end later meet blocks that end sooner. Gives the place of the last block, and in
 * *k their number.
 */
static struct pfx_loc predict_known(struct kvr_prefix *t, struct pfx_loc loc, uint32_t *k,
				    uint16_t rank, uint64_t until_ms)
{
	uint32_t lead = kvr_prefix__owner_get(t, pfx_hdr_of(t, loc.meta), PFX_PRED, rank);
	uint32_t i = lead ? kvr_prefix__pred_find(t, loc.meta, rank) : PFX_NONE;
	bool sooner = i != PFX_NONE && until_ms < t->pred[i].until_ms && loc.off < lead;

	if (sooner && loc.off + *k <= lead)
		return (struct pfx_loc){loc.meta, loc.off + *k - 1};
	if (sooner) {
		*k = lead - loc.off;
		loc.meta = kvr_prefix__run_split(t, loc.meta, lead);
		return (struct pfx_loc){loc.meta, lead - 1};
	}
	if (loc.off + *k < lead) {
		loc.meta = kvr_prefix__run_split(t, loc.meta, loc.off + *k);
		if (loc.meta == PFX_NONE)
			return loc;
	}
	return kvr_prefix__run_own(t, loc, *k, rank, PFX_PRED);
}

/* Up to *k blocks that are new, from number i on; the chain so far ends at `at`. */
static struct pfx_loc predict_new(struct kvr_prefix *t, uint16_t rank, const void *sh, uint32_t i,
				  uint32_t *k, struct pfx_loc at)
{
	struct pfx_new as = {.has_parent = i > 0};
	uint32_t meta;

	*k = RTE_MIN(*k, PFX_RUN);
	if (pfx_evict_low(t, *k)) {
		kvr_prefix__evict_make_room(t, rank, *k, at.meta);
		at.meta = PFX_NONE;
		if (i > 0)
			at = pfx_find(t, pfx_ld64(sh, i - 1));
	}
	*k = RTE_MIN(*k, t->max_blocks - (uint32_t)t->st.blocks);
	if (*k == 0)
		return (struct pfx_loc){PFX_NONE, 0};
	t->work += *k;
	as.parent = at.meta;
	if (at.meta != PFX_NONE && at.off + 1 < pfx_len(pfx_hdr_of(t, at.meta)))
		as.parent = kvr_prefix__run_split(t, at.meta, at.off + 1);
	if (i > 0)
		as.parent_sh = pfx_ld64(sh, i - 1);
	if (as.parent != PFX_NONE)
		as.pos = (t->meta[as.parent].pos + at.off + 1) % PFX_RUN;
	meta = kvr_prefix__run_create(t, &as, rank, PFX_PRED, (const char *)sh + (size_t)i * 8, k);
	return (struct pfx_loc){meta, *k - 1};
}

/*
 * As the store of an event, run by run from the root. `at` ends on the last block taken; what
 * one step adds belongs to one run.
 */
static uint32_t step(struct kvr_prefix *t, uint16_t rank, const void *sh, uint32_t i, uint32_t n,
		     struct pfx_loc *at, uint64_t until_ms)
{
	const char *from = (const char *)sh + (size_t)i * 8;
	struct pfx_loc loc = pfx_find(t, pfx_ld64(from, 0));
	uint32_t k = n - i;

	if (loc.meta != PFX_NONE) {
		k = pfx_same(t, loc, from, k);
		*at = predict_known(t, loc, &k, rank, until_ms);
	} else {
		*at = predict_new(t, rank, sh, i, &k, *at);
	}
	if (at->meta == PFX_NONE)
		return 0;
	if (kvr_prefix__pred_touch(t, at->meta, rank, until_ms) < 0) {
		kvr_prefix__pred_lose(t, at->meta, rank);
		kvr_prefix__run_trim(t, at->meta);
		return 0;
	}
	return k;
}

uint32_t kvr_prefix_predict_some(struct kvr_prefix *t, uint16_t rank, const void *sh, uint32_t from,
				 uint32_t n, uint64_t now_ms, uint32_t ttl_ms, uint64_t end)
{
	const uint32_t most = RTE_MIN(n, (uint32_t)KVR_PREFIX_MAX_QUERY);
	struct pfx_loc at = {PFX_NONE, 0};
	uint32_t i = from;

	if (rank >= t->max_ranks || ttl_ms == 0)
		return n;
	if (t->rank[rank].hidden) {
		pfx_add(&t->st.dropped, most - RTE_MIN(from, most));
		return n;
	}
	for (uint32_t k; i < most && (i == from || t->work < end); i += k) {
		if (pfx_evict_low(t, 0)) {
			kvr_prefix__evict_make_room(t, rank, 0, at.meta);
			at.meta = PFX_NONE;
		}
		if (i > 0 && at.meta == PFX_NONE)
			at = pfx_find(t, pfx_ld64(sh, i - 1));
		t->work += PREDICT_UNITS;
		k = step(t, rank, sh, i, most, &at, now_ms + ttl_ms);
		if (k == 0) {
			pfx_add(&t->st.dropped, most - i);
			i = most;
			break;
		}
	}
	kvr_prefix__pool_reclaim(t);
	return i < most ? i : n;
}

void kvr_prefix_predict(struct kvr_prefix *t, uint16_t rank, const void *sh, uint32_t n,
			uint64_t now_ms, uint32_t ttl_ms)
{
	kvr_prefix_predict_some(t, rank, sh, 0, n, now_ms, ttl_ms, UINT64_MAX);
}
