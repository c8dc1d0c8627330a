/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runs: create, grow, shorten, destroy; split_dp.c makes new headers. The caller has freed memory
 * beforehand, so the few objects that one step needs are normally available. A step that finds none
 * changes nothing and returns a failure.
 */

#include "blocks_pvt.h"
#include "held_pvt.h"
#include "lookup_pvt.h"
#include "run_pvt.h"

#include <errno.h>

static void free_meta(struct kvr_prefix *table, uint32_t meta)
{
	table->meta[meta].hdr = PFX_NONE;
	table->meta[meta].gen++;
	kvr_prefix__pool_give(&table->metas, meta);
	pfx_sub(&table->st.runs, 1);
}

static bool parent_lives(const struct kvr_prefix *table, const struct pfx_meta *run)
{
	return run->parent != PFX_NONE && table->meta[run->parent].gen == run->parent_gen;
}

static void count_owner(struct kvr_prefix *table, uint16_t rank, uint32_t plane, uint32_t n)
{
	uint32_t lanes = kvr_overlap_stride(rank + 1u);

	pfx_add(&table->rank_blocks[rank][plane], n);
	if (plane != PFX_PRED) {
		pfx_add(&table->st.stored, n);
		pfx_add(&table->st.entries, n);
	}
	/* Before the owner is published; a reader that misses it counts less for a moment. */
	if (lanes > pfx_ld32(&table->nranks))
		pfx_st32(&table->nranks, lanes);
	if (!(pfx_ld32(&table->planes) & 1u << plane))
		pfx_st32(&table->planes, pfx_ld32(&table->planes) | 1u << plane);
}

/*
 * Create a run of up to *n of the SHs, owned by rank; the first of them must be new. *n becomes the
 * number of blocks taken. @return the meta, or PFX_NONE if memory is short (nothing changed).
 */
uint32_t kvr_prefix__run_create(struct kvr_prefix *table, const struct pfx_new *as, uint16_t rank,
				uint32_t plane, const void *sh, uint32_t *n)
{
	uint32_t meta = kvr_prefix__pool_take(&table->metas), hdr, len;
	struct pfx_hdr *header;

	if (meta == PFX_NONE)
		return PFX_NONE;
	pfx_held_fetch(table, rank, meta);
	hdr = kvr_prefix__run_new_hdr(table, 0);
	if (hdr == PFX_NONE) {
		kvr_prefix__pool_give(&table->metas, meta);
		return PFX_NONE;
	}
	header = &table->hdr[hdr];
	header->parent_sh = as->parent_sh;
	header->has_parent = as->has_parent;
	kvr_prefix__run_init(table, meta, hdr, as->parent);
	table->meta[meta].pos = (uint16_t)as->pos;
	len = kvr_prefix__blocks_add(table, meta, sh, *n);
	if (len == 0)
		goto fail;
	pfx_set_last(table, header, len);
	atomic_store_explicit(&header->len, (uint16_t)len, memory_order_relaxed);
	if (kvr_prefix__owner_set(table, header, plane, rank, len) < 0)
		goto fail;
	count_owner(table, rank, plane, len);
	if (kvr_prefix__run_publish(table, hdr, true) < 0) {
		pfx_sub(&table->st.stored, plane == PFX_PRED ? 0 : len);
		pfx_sub(&table->st.entries, plane == PFX_PRED ? 0 : len);
		pfx_sub(&table->rank_blocks[rank][plane], len);
		goto fail;
	}
	if (as->parent != PFX_NONE && table->meta[as->parent].nchild++ == 0)
		kvr_prefix__list_del(table, as->parent);
	table->meta[meta].charge = rank;
	pfx_charge(table, rank, 1, len);
	kvr_prefix__list_add(table, meta, pfx_ld32(&table->age));
	pfx_held_add(table, rank, meta);
	table->work += len;
	*n = len;
	return meta;
fail:
	kvr_prefix__blocks_drop(table, header, 0, len, false);
	kvr_prefix__owner_retire(table, header);
	kvr_prefix__pool_give(&table->hdrs, hdr);
	free_meta(table, meta);
	return PFX_NONE;
}

/* Return true if `rank` owns the last block and may append to this run in place. */
bool kvr_prefix__run_can_grow(const struct kvr_prefix *table, uint32_t meta, uint16_t rank,
			      uint32_t plane)
{
	const struct pfx_meta *run = &table->meta[meta];
	struct pfx_hdr *hdr = &table->hdr[run->hdr];
	uint32_t len = pfx_len(hdr);

	return run->nchild == 0 && run->shrunk <= table->done && len < pfx_max_len(run, hdr) &&
	       !kvr_prefix__owner_any_big(table, hdr) &&
	       kvr_prefix__owner_get(table, hdr, plane, rank) == len;
}

/* Append in place. @return the number of blocks taken. */
uint32_t kvr_prefix__run_grow(struct kvr_prefix *table, uint32_t meta, uint16_t rank,
			      uint32_t plane, const void *sh, uint32_t n)
{
	struct pfx_hdr *hdr = pfx_hdr_of(table, meta);
	uint32_t old = pfx_len(hdr), len = kvr_prefix__blocks_add(table, meta, sh, n);

	if (len == old)
		return 0;
	/* Cannot fail: the rank has an owner word already. */
	kvr_prefix__owner_set(table, hdr, plane, rank, len);
	count_owner(table, rank, plane, len - old);
	table->rank[table->meta[meta].charge].blocks += len - old;
	table->work += len - old;
	pfx_set_last(table, hdr, len);
	pfx_publish_len(hdr, len);
	return len - old;
}

void kvr_prefix__run_destroy(struct kvr_prefix *table, uint32_t meta)
{
	struct pfx_meta *run = &table->meta[meta];
	struct pfx_hdr *hdr = &table->hdr[run->hdr];
	uint64_t sh = *pfx_sh(table, hdr, 0);
	int32_t key;

	if (parent_lives(table, run) && --table->meta[run->parent].nchild == 0)
		kvr_prefix__list_add(table, run->parent,
				     pfx_ld32(&pfx_hdr_of(table, run->parent)->age));
	if (run->pred != PFX_NONE)
		kvr_prefix__pred_drop_all(table, meta);
	if (run->nchild == 0)
		kvr_prefix__list_del(table, meta);
	pfx_discharge(table, run->charge, 1, pfx_len(hdr));
	key = kvr_prefix__run_unpublish(table, sh);
	kvr_prefix__blocks_drop(table, hdr, 0, pfx_len(hdr), false);
	kvr_prefix__run_retire(table, run->hdr, key);
	free_meta(table, meta);
}

/* Remove the blocks at the end that have no owner; if none is left, destroy the run. */
void kvr_prefix__run_trim(struct kvr_prefix *table, uint32_t meta)
{
	struct pfx_hdr *hdr = pfx_hdr_of(table, meta);
	uint32_t len = pfx_len(hdr), keep = kvr_prefix__owner_longest(table, hdr);
	bool stays;

	if (keep == len)
		return;
	if (keep == 0) {
		kvr_prefix__run_destroy(table, meta);
		return;
	}
	/* The bits of a big block refer to the length of the run: make a new header. */
	if (kvr_prefix__owner_any_big(table, hdr) && !kvr_prefix__run_renew(table, meta, keep))
		return;
	stays = hdr == pfx_hdr_of(table, meta);
	if (stays) {
		pfx_set_last(table, hdr, keep);
		pfx_publish_len(hdr, keep);
	}
	kvr_prefix__blocks_drop(table, hdr, keep, len, stays);
	table->rank[table->meta[meta].charge].blocks -= len - keep;
	/* Runs that followed the removed blocks are no longer children of this run. */
	if (table->meta[meta].nchild != 0)
		kvr_prefix__list_add(table, meta, pfx_ld32(&pfx_hdr_of(table, meta)->age));
	table->meta[meta].nchild = 0;
	table->meta[meta].gen++;
	table->meta[meta].shrunk = table->batch;
	table->dirty = true;
}

/*
 * Make `rank` an owner of blocks off..off+n-1 of the run. @return the location of the last of them
 * (the run may have been split), or PFX_NONE if memory is short.
 */
struct pfx_loc kvr_prefix__run_own(struct kvr_prefix *table, struct pfx_loc at, uint32_t n,
				   uint16_t rank, uint32_t plane)
{
	const struct pfx_loc none = {PFX_NONE, 0};
	struct pfx_hdr *hdr = pfx_hdr_of(table, at.meta);
	uint32_t lead = kvr_prefix__owner_get(table, hdr, plane, rank), end = at.off + n;
	int ret;

	if (at.off > lead) {
		if (kvr_prefix__run_split(table, at.meta, at.off) == PFX_NONE)
			return none;
		return kvr_prefix__run_own(table, (struct pfx_loc){at.meta, 0}, n, rank, plane);
	}
	if (plane != PFX_PRED)
		pfx_add(&table->st.duplicates, RTE_MIN(lead, end) - at.off);
	if (end <= lead)
		return (struct pfx_loc){at.meta, end - 1};
	ret = kvr_prefix__owner_set(table, hdr, plane, rank, end);
	if (ret == -ENOSPC) {
		uint32_t head = kvr_prefix__run_split(table, at.meta, end);

		if (head == PFX_NONE)
			return none;
		at.meta = head;
		ret = kvr_prefix__owner_set(table, pfx_hdr_of(table, head), plane, rank, end);
	}
	if (ret < 0)
		return none;
	count_owner(table, rank, plane, end - lead);
	if (lead == 0)
		pfx_held_add(table, rank, at.meta);
	return (struct pfx_loc){at.meta, end - 1};
}

/*
 * `rank` has no block left in one plane of the run. Usually no other rank has one either, so the
 * run is destroyed without looking for another rank to charge.
 */
static void run_left(struct kvr_prefix *table, uint16_t rank, uint32_t meta)
{
	struct pfx_hdr *hdr = pfx_hdr_of(table, meta);

	if (table->meta[meta].charge == rank && kvr_prefix__owner_longest(table, hdr) == 0) {
		pfx_held_del(table, rank, meta);
		kvr_prefix__run_destroy(table, meta);
		return;
	}
	kvr_prefix__held_drop(table, rank, meta);
	kvr_prefix__run_trim(table, meta);
}

/*
 * Remove blocks off..off+n-1 of the run from `rank`, which holds its first `lead` blocks. @return
 * the location of the block before them, if there is one.
 */
struct pfx_loc kvr_prefix__run_disown(struct kvr_prefix *table, struct pfx_loc at, uint32_t n,
				      uint32_t lead, uint16_t rank, uint32_t plane)
{
	uint32_t meta = at.meta;
	const uint32_t asked = n;
	int ret;

	if (at.off == 0)
		pfx_held_fetch(table, rank, meta);
	if (at.off + n < lead) {
		uint32_t head = kvr_prefix__run_split(table, meta, at.off + n);

		/*
		 * If there is no memory to split, the rank also loses the blocks after them, so it
		 * never counts too much.
		 */
		if (head != PFX_NONE)
			meta = head;
		else
			n = lead - at.off;
	}
	ret = kvr_prefix__owner_set(table, pfx_hdr_of(table, meta), plane, rank, at.off);
	if (ret == -ENOSPC) {
		uint32_t head = kvr_prefix__run_split(table, meta, at.off);

		if (head == PFX_NONE) {
			n += at.off;
			at.off = 0;
		}
		kvr_prefix__owner_set(table, pfx_hdr_of(table, meta), plane, rank, 0);
		kvr_prefix__held_drop(table, rank, meta);
		kvr_prefix__run_trim(table, meta);
		meta = head;
	}
	pfx_note_loss(table, rank);
	pfx_sub(&table->rank_blocks[rank][plane], n);
	pfx_sub(&table->st.entries, n);
	pfx_add(&table->st.evicted_entries, n - asked);
	if (ret == 0 && at.off == 0)
		run_left(table, rank, meta);
	else if (ret == 0)
		kvr_prefix__run_trim(table, meta);
	return (struct pfx_loc){at.off > 0 ? meta : PFX_NONE, at.off - 1};
}
