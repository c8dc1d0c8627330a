/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runs: create, grow, shorten, destroy; split_dp.c has what makes new headers. The caller has made
 * room beforehand, so that the few objects one step needs are there; a step that finds none all the
 * same does nothing and says so.
 */

#include "blocks_pvt.h"
#include "find_pvt.h"
#include "hold_pvt.h"
#include "run_pvt.h"

#include <errno.h>

static void free_meta(struct kvr_prefix *t, uint32_t meta)
{
	t->meta[meta].hdr = PFX_NONE;
	t->meta[meta].gen++;
	kvr_prefix__pool_give(&t->metas, meta);
	pfx_sub(&t->st.runs, 1);
}

static bool parent_lives(const struct kvr_prefix *t, const struct pfx_meta *m)
{
	return m->parent != PFX_NONE && t->meta[m->parent].gen == m->parent_gen;
}

static void count_owner(struct kvr_prefix *t, uint16_t rank, uint32_t plane, uint32_t n)
{
	uint32_t lanes = kvr_overlap_stride(rank + 1u);

	pfx_add(&t->rank_blocks[rank][plane], n);
	if (plane != PFX_PRED) {
		pfx_add(&t->st.stored, n);
		pfx_add(&t->st.entries, n);
	}
	/* Before the owner is published; a reader who misses it counts less for a moment. */
	if (lanes > pfx_ld32(&t->nranks))
		pfx_st32(&t->nranks, lanes);
	if (!(pfx_ld32(&t->planes) & 1u << plane))
		pfx_st32(&t->planes, pfx_ld32(&t->planes) | 1u << plane);
}

/*
 * A new run with up to *n of the SHs, owned by rank; the first of them must be new. *n becomes
 * the number taken. Gives the meta, or PFX_NONE when something was short (nothing changed).
 */
uint32_t kvr_prefix__run_create(struct kvr_prefix *t, const struct pfx_new *as, uint16_t rank,
				uint32_t plane, const void *sh, uint32_t *n)
{
	uint32_t meta = kvr_prefix__pool_take(&t->metas), hdr, len;
	struct pfx_hdr *h;

	if (meta == PFX_NONE)
		return PFX_NONE;
	pfx_hold_fetch(t, rank, meta);
	hdr = kvr_prefix__run_new_hdr(t, 0);
	if (hdr == PFX_NONE) {
		kvr_prefix__pool_give(&t->metas, meta);
		return PFX_NONE;
	}
	h = &t->hdr[hdr];
	h->parent_sh = as->parent_sh;
	h->has_parent = as->has_parent;
	kvr_prefix__run_init(t, meta, hdr, as->parent);
	t->meta[meta].pos = (uint16_t)as->pos;
	len = kvr_prefix__blocks_add(t, meta, sh, *n);
	if (len == 0)
		goto fail;
	pfx_set_last(t, h, len);
	atomic_store_explicit(&h->len, (uint16_t)len, memory_order_relaxed);
	if (kvr_prefix__owner_set(t, h, plane, rank, len) < 0)
		goto fail;
	count_owner(t, rank, plane, len);
	if (kvr_prefix__run_publish(t, hdr, true) < 0) {
		pfx_sub(&t->st.stored, plane == PFX_PRED ? 0 : len);
		pfx_sub(&t->st.entries, plane == PFX_PRED ? 0 : len);
		pfx_sub(&t->rank_blocks[rank][plane], len);
		goto fail;
	}
	if (as->parent != PFX_NONE && t->meta[as->parent].nchild++ == 0)
		kvr_prefix__list_del(t, as->parent);
	t->meta[meta].charge = rank;
	pfx_charge(t, rank, 1, len);
	kvr_prefix__list_add(t, meta, pfx_ld32(&t->age));
	pfx_hold_add(t, rank, meta);
	t->work += len;
	*n = len;
	return meta;
fail:
	kvr_prefix__blocks_drop(t, h, 0, len, false);
	kvr_prefix__owner_retire(t, h);
	kvr_prefix__pool_give(&t->hdrs, hdr);
	free_meta(t, meta);
	return PFX_NONE;
}

/* May `rank`, owner of the last block, append to this run in place? */
bool kvr_prefix__run_can_grow(const struct kvr_prefix *t, uint32_t meta, uint16_t rank,
			      uint32_t plane)
{
	const struct pfx_meta *m = &t->meta[meta];
	struct pfx_hdr *h = &t->hdr[m->hdr];
	uint32_t len = pfx_len(h);

	return m->nchild == 0 && m->shrunk <= t->done && len < pfx_room_of(m, h) &&
	       !kvr_prefix__owner_any_big(t, h) && kvr_prefix__owner_get(t, h, plane, rank) == len;
}

/* Append in place; gives the number of blocks taken. */
uint32_t kvr_prefix__run_grow(struct kvr_prefix *t, uint32_t meta, uint16_t rank, uint32_t plane,
			      const void *sh, uint32_t n)
{
	struct pfx_hdr *h = pfx_hdr_of(t, meta);
	uint32_t old = pfx_len(h), len = kvr_prefix__blocks_add(t, meta, sh, n);

	if (len == old)
		return 0;
	/* The place of the owner is there already: this cannot fail. */
	kvr_prefix__owner_set(t, h, plane, rank, len);
	count_owner(t, rank, plane, len - old);
	t->rank[t->meta[meta].charge].blocks += len - old;
	t->work += len - old;
	pfx_set_last(t, h, len);
	pfx_publish_len(h, len);
	return len - old;
}

void kvr_prefix__run_destroy(struct kvr_prefix *t, uint32_t meta)
{
	struct pfx_meta *m = &t->meta[meta];
	struct pfx_hdr *h = &t->hdr[m->hdr];
	uint64_t sh = *pfx_sh(t, h, 0);
	int32_t key;

	if (parent_lives(t, m) && --t->meta[m->parent].nchild == 0)
		kvr_prefix__list_add(t, m->parent, pfx_ld32(&pfx_hdr_of(t, m->parent)->age));
	if (m->pred != PFX_NONE)
		kvr_prefix__pred_drop_all(t, meta);
	if (m->nchild == 0)
		kvr_prefix__list_del(t, meta);
	pfx_discharge(t, m->charge, 1, pfx_len(h));
	key = kvr_prefix__run_unpublish(t, sh);
	kvr_prefix__blocks_drop(t, h, 0, pfx_len(h), false);
	kvr_prefix__run_retire(t, m->hdr, key);
	free_meta(t, meta);
}

/* Drop the blocks at the end that nobody holds any more; all of them: the run goes. */
void kvr_prefix__run_trim(struct kvr_prefix *t, uint32_t meta)
{
	struct pfx_hdr *h = pfx_hdr_of(t, meta);
	uint32_t len = pfx_len(h), keep = kvr_prefix__owner_longest(t, h);
	bool stays;

	if (keep == len)
		return;
	if (keep == 0) {
		kvr_prefix__run_destroy(t, meta);
		return;
	}
	/* Bits of a big block stand for the length they were made with. */
	if (kvr_prefix__owner_any_big(t, h) && !kvr_prefix__run_renew(t, meta, keep))
		return;
	stays = h == pfx_hdr_of(t, meta);
	if (stays) {
		pfx_set_last(t, h, keep);
		pfx_publish_len(h, keep);
	}
	kvr_prefix__blocks_drop(t, h, keep, len, stays);
	t->rank[t->meta[meta].charge].blocks -= len - keep;
	/* What followed the lost blocks follows this run no more. */
	if (t->meta[meta].nchild != 0)
		kvr_prefix__list_add(t, meta, pfx_ld32(&pfx_hdr_of(t, meta)->age));
	t->meta[meta].nchild = 0;
	t->meta[meta].gen++;
	t->meta[meta].shrunk = t->batch;
	t->dirty = true;
}

/*
 * `rank` now holds blocks off..off+n-1 of the run. Gives the place of the last of them (the run
 * may have been split), or PFX_NONE when something was short.
 */
struct pfx_loc kvr_prefix__run_own(struct kvr_prefix *t, struct pfx_loc at, uint32_t n,
				   uint16_t rank, uint32_t plane)
{
	const struct pfx_loc none = {PFX_NONE, 0};
	struct pfx_hdr *h = pfx_hdr_of(t, at.meta);
	uint32_t lead = kvr_prefix__owner_get(t, h, plane, rank), end = at.off + n;
	int ret;

	if (at.off > lead) {
		if (kvr_prefix__run_split(t, at.meta, at.off) == PFX_NONE)
			return none;
		return kvr_prefix__run_own(t, (struct pfx_loc){at.meta, 0}, n, rank, plane);
	}
	if (plane != PFX_PRED)
		pfx_add(&t->st.duplicates, RTE_MIN(lead, end) - at.off);
	if (end <= lead)
		return (struct pfx_loc){at.meta, end - 1};
	ret = kvr_prefix__owner_set(t, h, plane, rank, end);
	if (ret == -ENOSPC) {
		uint32_t head = kvr_prefix__run_split(t, at.meta, end);

		if (head == PFX_NONE)
			return none;
		at.meta = head;
		ret = kvr_prefix__owner_set(t, pfx_hdr_of(t, head), plane, rank, end);
	}
	if (ret < 0)
		return none;
	count_owner(t, rank, plane, end - lead);
	if (lead == 0)
		pfx_hold_add(t, rank, at.meta);
	return (struct pfx_loc){at.meta, end - 1};
}

/*
 * `rank` has nothing left in one plane of the run. Mostly nobody else has anything of it, and it
 * goes: then nobody is looked for who could be charged instead.
 */
static void run_left(struct kvr_prefix *t, uint16_t rank, uint32_t meta)
{
	struct pfx_hdr *h = pfx_hdr_of(t, meta);

	if (t->meta[meta].charge == rank && kvr_prefix__owner_longest(t, h) == 0) {
		pfx_hold_del(t, rank, meta);
		kvr_prefix__run_destroy(t, meta);
		return;
	}
	kvr_prefix__hold_drop(t, rank, meta);
	kvr_prefix__run_trim(t, meta);
}

/*
 * `rank`, which has the first `lead` blocks of the run, lost off..off+n-1 of them. Gives the run
 * that now holds the block before those, if there is one.
 */
struct pfx_loc kvr_prefix__run_disown(struct kvr_prefix *t, struct pfx_loc at, uint32_t n,
				      uint32_t lead, uint16_t rank, uint32_t plane)
{
	uint32_t meta = at.meta;
	const uint32_t asked = n;
	int ret;

	if (at.off == 0)
		pfx_hold_fetch(t, rank, meta);
	if (at.off + n < lead) {
		uint32_t head = kvr_prefix__run_split(t, meta, at.off + n);

		/* Without room to split the rank loses what is behind, too: never too much. */
		if (head != PFX_NONE)
			meta = head;
		else
			n = lead - at.off;
	}
	ret = kvr_prefix__owner_set(t, pfx_hdr_of(t, meta), plane, rank, at.off);
	if (ret == -ENOSPC) {
		uint32_t head = kvr_prefix__run_split(t, meta, at.off);

		if (head == PFX_NONE) {
			n += at.off;
			at.off = 0;
		}
		kvr_prefix__owner_set(t, pfx_hdr_of(t, meta), plane, rank, 0);
		kvr_prefix__hold_drop(t, rank, meta);
		kvr_prefix__run_trim(t, meta);
		meta = head;
	}
	pfx_note_loss(t, rank);
	pfx_sub(&t->rank_blocks[rank][plane], n);
	pfx_sub(&t->st.entries, n);
	pfx_add(&t->st.evicted_entries, n - asked);
	if (ret == 0 && at.off == 0)
		run_left(t, rank, meta);
	else if (ret == 0)
		kvr_prefix__run_trim(t, meta);
	return (struct pfx_loc){at.off > 0 ? meta : PFX_NONE, at.off - 1};
}
