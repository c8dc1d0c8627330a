/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runs that get new headers: two for one that is split, one for one that is shortened under a
 * bitmap. The old header is retired, readers that have found it go on with it.
 */

#include "hold_pvt.h"

#define SPLIT_UNITS 32u

/* Header of the head 0..at-1 of a run. */
static uint32_t head_hdr(struct kvr_prefix *t, struct pfx_hdr *h, uint32_t at)
{
	uint32_t i = kvr_prefix__run_new_hdr(t, h->start),
		 n = (h->start + at + PFX_CHUNK - 1) / PFX_CHUNK;
	struct pfx_hdr *to = &t->hdr[i];

	if (i == PFX_NONE)
		return PFX_NONE;
	to->parent_sh = h->parent_sh;
	to->has_parent = h->has_parent;
	pfx_st32(&to->age, pfx_ld32(&h->age));
	for (uint32_t c = 0; c < n; c++)
		pfx_st32(&to->chunk[c], pfx_ld32(&h->chunk[c]));
	atomic_store_explicit(&to->len, (uint16_t)at, memory_order_relaxed);
	pfx_set_last(t, to, at);
	return i;
}

/* Header of the tail at..len-1; a chunk that both need is copied to `spare`. */
static uint32_t tail_hdr(struct kvr_prefix *t, struct pfx_hdr *h, uint32_t at, uint32_t spare)
{
	uint32_t place = h->start + at, i = kvr_prefix__run_new_hdr(t, place % PFX_CHUNK),
		 c0 = place / PFX_CHUNK;
	struct pfx_hdr *to = &t->hdr[i];

	if (i == PFX_NONE)
		return PFX_NONE;
	to->parent_sh = *pfx_sh(t, h, at - 1);
	to->has_parent = true;
	pfx_st32(&to->age, pfx_ld32(&h->age));
	for (uint32_t c = c0; c < PFX_CHUNKS; c++)
		pfx_st32(&to->chunk[c - c0], pfx_ld32(&h->chunk[c]));
	if (spare != PFX_NONE)
		pfx_st32(&to->chunk[0], spare);
	atomic_store_explicit(&to->len, (uint16_t)(pfx_len(h) - at), memory_order_relaxed);
	atomic_store_explicit(&to->last_sh, atomic_load_explicit(&h->last_sh, memory_order_relaxed),
			      memory_order_relaxed);
	return i;
}

/* Copy the tail's blocks out of the chunk that block `at` shares with the head. */
static uint32_t copy_chunk(struct kvr_prefix *t, struct pfx_hdr *h, uint32_t at)
{
	uint32_t k = kvr_prefix__pool_take(&t->chunks), len = pfx_len(h);

	if (k == PFX_NONE)
		return PFX_NONE;
	for (uint32_t i = at; i < len && (i == at || (h->start + i) % PFX_CHUNK != 0); i++)
		pfx_wr(&t->sh[k * PFX_CHUNK + (h->start + i) % PFX_CHUNK], *pfx_sh(t, h, i));
	return k;
}

static void repoint(struct kvr_prefix *t, struct pfx_hdr *h, uint32_t at, uint32_t spare)
{
	uint32_t len = pfx_len(h);

	for (uint32_t i = at; i < len && (i == at || (h->start + i) % PFX_CHUNK != 0); i++) {
		uint64_t *p = pfx_sh(t, h, i);

		kvr_prefix__index_move(&t->index, pfx_mix(t, *p), (uint32_t)(p - t->sh),
				       spare * PFX_CHUNK + (h->start + i) % PFX_CHUNK);
	}
}

static void adopt_chunks(struct kvr_prefix *t, uint32_t meta)
{
	struct pfx_hdr *h = pfx_hdr_of(t, meta);

	for (uint32_t c = 0; c < PFX_CHUNKS; c++) {
		uint32_t k = pfx_ld32(&h->chunk[c]);

		if (k != PFX_NONE)
			t->chunk[k] = pfx_chunk_of(meta, c);
	}
}

/* Every owner of the whole has some of the head; of the tail perhaps nothing. */
static void hold_both(struct kvr_prefix *t, struct pfx_hdr *whole, uint32_t head, uint32_t tail)
{
	struct pfx_owners l;

	for (uint32_t p = 0; p < pfx_planes_of(whole); p++) {
		kvr_prefix__owner_list(t, whole, p, 0, pfx_len(whole), &l);
		for (uint32_t i = 0; i < l.n; i++) {
			uint16_t rank = PFX_RANK(l.o[i]);

			pfx_hold_add(t, rank, head);
			if (!kvr_prefix__owner_has(t, pfx_hdr_of(t, tail), rank))
				kvr_prefix__hold_drop(t, rank, tail);
		}
		t->work += 2 * l.n;
	}
	t->work += SPLIT_UNITS;
}

/* After both headers are published: the tail keeps the meta, the head gets `head`. */
static void relink(struct kvr_prefix *t, uint32_t head, uint32_t hh, uint32_t meta, uint32_t ht,
		   uint32_t at)
{
	struct pfx_meta *m = &t->meta[meta], *n = &t->meta[head];

	kvr_prefix__run_init(t, head, hh, PFX_NONE);
	n->parent = m->parent;
	n->parent_gen = m->parent_gen;
	n->pos = m->pos;
	n->nchild = 1; /* so it stands in no list */
	n->charge = m->charge;
	pfx_charge(t, n->charge, 1, 0);
	n->shrunk = t->batch; /* readers of the old header may still compare its last chunk */
	m->hdr = ht;
	m->parent = head;
	m->parent_gen = n->gen;
	m->pos = (uint16_t)(m->pos + at);
	adopt_chunks(t, head);
	adopt_chunks(t, meta);
	kvr_prefix__pred_split(t, head, meta);
}

/* Split before block `at`, 0 < at < len. Gives the meta of the head, or PFX_NONE. */
uint32_t kvr_prefix__run_split(struct kvr_prefix *t, uint32_t meta, uint32_t at)
{
	struct pfx_hdr *h = pfx_hdr_of(t, meta);
	uint32_t old = t->meta[meta].hdr, head, hh, ht, spare = PFX_NONE, len = pfx_len(h);

	if (!kvr_prefix__pred_can_split(t, meta))
		return PFX_NONE;
	head = kvr_prefix__pool_take(&t->metas);
	if (head == PFX_NONE)
		return PFX_NONE;
	if ((h->start + at) % PFX_CHUNK != 0) {
		spare = copy_chunk(t, h, at);
		if (spare == PFX_NONE)
			goto no_chunk;
	}
	hh = head_hdr(t, h, at);
	ht = tail_hdr(t, h, at, spare);
	if (hh == PFX_NONE || ht == PFX_NONE ||
	    kvr_prefix__owner_copy(t, h, &t->hdr[hh], 0, at) < 0 ||
	    kvr_prefix__owner_copy(t, h, &t->hdr[ht], at, len) < 0 ||
	    kvr_prefix__run_publish(t, ht, true) < 0)
		goto no_hdr;
	/* The tail can be found: now the head may take the place of the whole. */
	kvr_prefix__run_publish(t, hh, false);
	if (spare != PFX_NONE)
		repoint(t, h, at, spare);
	relink(t, head, hh, meta, ht, at);
	hold_both(t, h, head, meta);
	kvr_prefix__run_retire(t, old, -1);
	return head;
no_hdr:
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t x = i ? ht : hh;

		if (x == PFX_NONE)
			continue;
		kvr_prefix__owner_retire(t, &t->hdr[x]);
		kvr_prefix__pool_give(&t->hdrs, x);
	}
	if (spare != PFX_NONE)
		kvr_prefix__pool_give(&t->chunks, spare);
no_chunk:
	kvr_prefix__pool_give(&t->metas, head);
	return PFX_NONE;
}

/* A new header with the same content, so that the old one may be shortened for good. */
bool kvr_prefix__run_renew(struct kvr_prefix *t, uint32_t meta, uint32_t len)
{
	uint32_t old = t->meta[meta].hdr, i = head_hdr(t, &t->hdr[old], len);

	if (i == PFX_NONE)
		return false;
	if (kvr_prefix__owner_copy(t, &t->hdr[old], &t->hdr[i], 0, len) < 0) {
		kvr_prefix__owner_retire(t, &t->hdr[i]);
		kvr_prefix__pool_give(&t->hdrs, i);
		return false;
	}
	kvr_prefix__run_publish(t, i, false);
	t->meta[meta].hdr = i;
	kvr_prefix__run_retire(t, old, -1);
	return true;
}
