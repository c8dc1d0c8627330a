/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runs that get new headers: two for a run that is split, one for a run that is shortened while its
 * owners are in a bitmap. The old header is retired; readers that have found it continue to use it.
 */

#include "held_pvt.h"

#define SPLIT_UNITS 32u

/* Create the header of the head, blocks 0..at-1 of a run. */
static uint32_t head_hdr(struct kvr_prefix *table, struct pfx_hdr *hdr, uint32_t at)
{
	uint32_t i = kvr_prefix__run_new_hdr(table, hdr->start),
		 n = (hdr->start + at + PFX_CHUNK - 1) / PFX_CHUNK;
	struct pfx_hdr *to = &table->hdr[i];

	if (i == PFX_NONE)
		return PFX_NONE;
	to->parent_sh = hdr->parent_sh;
	to->has_parent = hdr->has_parent;
	pfx_st32(&to->age, pfx_ld32(&hdr->age));
	for (uint32_t c = 0; c < n; c++)
		pfx_st32(&to->chunk[c], pfx_ld32(&hdr->chunk[c]));
	atomic_store_explicit(&to->len, (uint16_t)at, memory_order_relaxed);
	pfx_set_last(table, to, at);
	return i;
}

/*
 * Create the header of the tail, blocks at..len-1. `spare` is the copy of a chunk that both parts
 * need.
 */
static uint32_t tail_hdr(struct kvr_prefix *table, struct pfx_hdr *hdr, uint32_t at, uint32_t spare)
{
	uint32_t place = hdr->start + at, i = kvr_prefix__run_new_hdr(table, place % PFX_CHUNK),
		 c0 = place / PFX_CHUNK;
	struct pfx_hdr *to = &table->hdr[i];

	if (i == PFX_NONE)
		return PFX_NONE;
	to->parent_sh = *pfx_sh(table, hdr, at - 1);
	to->has_parent = true;
	pfx_st32(&to->age, pfx_ld32(&hdr->age));
	for (uint32_t c = c0; c < PFX_CHUNKS; c++)
		pfx_st32(&to->chunk[c - c0], pfx_ld32(&hdr->chunk[c]));
	if (spare != PFX_NONE)
		pfx_st32(&to->chunk[0], spare);
	atomic_store_explicit(&to->len, (uint16_t)(pfx_len(hdr) - at), memory_order_relaxed);
	atomic_store_explicit(&to->last_sh,
			      atomic_load_explicit(&hdr->last_sh, memory_order_relaxed),
			      memory_order_relaxed);
	return i;
}

/* Copy the tail's blocks out of the chunk that it shares with the head. */
static uint32_t copy_chunk(struct kvr_prefix *table, struct pfx_hdr *hdr, uint32_t at)
{
	uint32_t k = kvr_prefix__pool_take(&table->chunks), len = pfx_len(hdr);

	if (k == PFX_NONE)
		return PFX_NONE;
	for (uint32_t i = at; i < len && (i == at || (hdr->start + i) % PFX_CHUNK != 0); i++)
		pfx_wr(&table->sh[k * PFX_CHUNK + (hdr->start + i) % PFX_CHUNK],
		       *pfx_sh(table, hdr, i));
	return k;
}

static void repoint_index(struct kvr_prefix *table, struct pfx_hdr *hdr, uint32_t at,
			  uint32_t spare)
{
	uint32_t len = pfx_len(hdr);

	for (uint32_t i = at; i < len && (i == at || (hdr->start + i) % PFX_CHUNK != 0); i++) {
		uint64_t *p = pfx_sh(table, hdr, i);

		kvr_prefix__index_move(&table->index, pfx_mix(table, *p), (uint32_t)(p - table->sh),
				       spare * PFX_CHUNK + (hdr->start + i) % PFX_CHUNK);
	}
}

static void adopt_chunks(struct kvr_prefix *table, uint32_t meta)
{
	struct pfx_hdr *hdr = pfx_hdr_of(table, meta);

	for (uint32_t c = 0; c < PFX_CHUNKS; c++) {
		uint32_t k = pfx_ld32(&hdr->chunk[c]);

		if (k != PFX_NONE)
			table->chunk[k] = pfx_chunk_info_of(meta, c);
	}
}

/* Every owner of the whole run holds blocks of the head, but perhaps none of the tail. */
static void hold_both(struct kvr_prefix *table, struct pfx_hdr *whole, uint32_t head, uint32_t tail)
{
	struct pfx_owners list;

	for (uint32_t p = 0; p < pfx_planes_of(whole); p++) {
		kvr_prefix__owner_list(table, whole, p, 0, pfx_len(whole), &list);
		for (uint32_t i = 0; i < list.n; i++) {
			uint16_t rank = PFX_RANK(list.o[i]);

			pfx_held_add(table, rank, head);
			if (!kvr_prefix__owner_has(table, pfx_hdr_of(table, tail), rank))
				kvr_prefix__held_drop(table, rank, tail);
		}
		table->work += 2 * list.n;
	}
	table->work += SPLIT_UNITS;
}

/*
 * Link the runs after both headers are published: the tail keeps the meta, the head gets meta
 * `head`.
 */
static void relink_runs(struct kvr_prefix *table, uint32_t head, uint32_t hh, uint32_t meta,
			uint32_t ht, uint32_t at)
{
	struct pfx_meta *run = &table->meta[meta], *n = &table->meta[head];

	kvr_prefix__run_init(table, head, hh, PFX_NONE);
	n->parent = run->parent;
	n->parent_gen = run->parent_gen;
	n->pos = run->pos;
	n->nchild = 1; /* keeps the run out of the list */
	n->charge = run->charge;
	pfx_charge(table, n->charge, 1, 0);
	n->shrunk = table->batch; /* readers of the old header may still compare its last chunk */
	run->hdr = ht;
	run->parent = head;
	run->parent_gen = n->gen;
	run->pos = (uint16_t)(run->pos + at);
	adopt_chunks(table, head);
	adopt_chunks(table, meta);
	kvr_prefix__pred_split(table, head, meta);
}

/* Split a run before block `at`, 0 < at < len. @return the meta of the head, or PFX_NONE. */
uint32_t kvr_prefix__run_split(struct kvr_prefix *table, uint32_t meta, uint32_t at)
{
	struct pfx_hdr *hdr = pfx_hdr_of(table, meta);
	uint32_t old = table->meta[meta].hdr, head, hh, ht, spare = PFX_NONE, len = pfx_len(hdr);

	if (!kvr_prefix__pred_can_split(table, meta))
		return PFX_NONE;
	head = kvr_prefix__pool_take(&table->metas);
	if (head == PFX_NONE)
		return PFX_NONE;
	if ((hdr->start + at) % PFX_CHUNK != 0) {
		spare = copy_chunk(table, hdr, at);
		if (spare == PFX_NONE)
			goto no_chunk;
	}
	hh = head_hdr(table, hdr, at);
	ht = tail_hdr(table, hdr, at, spare);
	if (hh == PFX_NONE || ht == PFX_NONE ||
	    kvr_prefix__owner_copy(table, hdr, &table->hdr[hh], 0, at) < 0 ||
	    kvr_prefix__owner_copy(table, hdr, &table->hdr[ht], at, len) < 0 ||
	    kvr_prefix__run_publish(table, ht, true) < 0)
		goto no_hdr;
	/* The tail can be found now, so the head may replace the whole run. */
	kvr_prefix__run_publish(table, hh, false);
	if (spare != PFX_NONE)
		repoint_index(table, hdr, at, spare);
	relink_runs(table, head, hh, meta, ht, at);
	hold_both(table, hdr, head, meta);
	kvr_prefix__run_retire(table, old, -1);
	return head;
no_hdr:
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t x = i ? ht : hh;

		if (x == PFX_NONE)
			continue;
		kvr_prefix__owner_retire(table, &table->hdr[x]);
		kvr_prefix__pool_give(&table->hdrs, x);
	}
	if (spare != PFX_NONE)
		kvr_prefix__pool_give(&table->chunks, spare);
no_chunk:
	kvr_prefix__pool_give(&table->metas, head);
	return PFX_NONE;
}

/*
 * Create a header with the same content and length @p len, as the old header must not be shortened.
 */
bool kvr_prefix__run_renew(struct kvr_prefix *table, uint32_t meta, uint32_t len)
{
	uint32_t old = table->meta[meta].hdr, i = head_hdr(table, &table->hdr[old], len);

	if (i == PFX_NONE)
		return false;
	if (kvr_prefix__owner_copy(table, &table->hdr[old], &table->hdr[i], 0, len) < 0) {
		kvr_prefix__owner_retire(table, &table->hdr[i]);
		kvr_prefix__pool_give(&table->hdrs, i);
		return false;
	}
	kvr_prefix__run_publish(table, i, false);
	table->meta[meta].hdr = i;
	kvr_prefix__run_retire(table, old, -1);
	return true;
}
