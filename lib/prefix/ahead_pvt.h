/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AHEAD_PVT_H
#define AHEAD_PVT_H

/** @file
 * The links of the chain from the first known block of an event to the header of its run: each
 * asks for what it is about, and the one before must have had time to arrive. Half of what a
 * one-block event costs would be calls, so they stand where they are used. Writer.
 */

#include "hold_pvt.h"

struct pfx_chain {
	uint64_t mix;	/* of the first known block */
	uint64_t first; /* of the first that a store with a parent names */
	uint32_t slot;	/* where that block may be, 0: nowhere; a guess, which may be out of date */
};

#define PFX_PER_LINE 8u	 /* SHs */
#define PFX_NAMES    64u /* of an event fetched ahead: what is behind is read in a row */

static inline void pfx_fetch_index(const struct kvr_prefix *t, const struct kvr_prefix_event *e,
				   struct pfx_chain *a)
{
	*a = (struct pfx_chain){0, 0, 0};
	if (e->n == 0 || e->rank >= t->max_ranks)
		return;
	kvr_prefetch(&t->rank[e->rank]);
	kvr_prefetch(&t->rank_blocks[e->rank]);
	a->mix = pfx_mix(t, pfx_ld64(e->sh, 0));
	pfx_index_prefetch(&t->index, a->mix);
	if (e->op != KVR_PREFIX_STORE || !e->has_parent)
		return;
	a->first = a->mix;
	a->mix = pfx_mix(t, e->parent);
	pfx_index_prefetch(&t->index, a->mix);
}

/* By the tag alone: a wrong guess costs a fetch in vain. */
static inline void pfx_fetch_chunk(const struct kvr_prefix *t, struct pfx_chain *a)
{
	const struct kvr_bucket *b = &t->index.b[pfx_index_home(&t->index, a->mix)];
	uint32_t m = pfx_index_masks(b, pfx_index_tag(a->mix)).tag;

	a->slot = m ? b->value[__builtin_ctz(m)] : 0;
	kvr_prefetch(&t->sh[a->slot]);
	kvr_prefetch(&t->chunk[a->slot / PFX_CHUNK]);
}

/* And, as a removal compares more than one block, the rest of the chunk. */
static inline void pfx_fetch_meta(const struct kvr_prefix *t, const struct kvr_prefix_event *e,
				  const struct pfx_chain *a)
{
	const uint32_t chunk = a->slot / PFX_CHUNK;

	kvr_prefetch(&t->meta[t->chunk[chunk].meta]);
	if (e->n <= PFX_PER_LINE || e->op != KVR_PREFIX_REMOVE)
		return;
	for (uint32_t i = 0; i < PFX_CHUNK; i += PFX_PER_LINE)
		kvr_prefetch(&t->sh[(size_t)chunk * PFX_CHUNK + i]);
}

/* What the event names behind its first line. */
static inline void pfx_fetch_names(const struct kvr_prefix_event *e)
{
	for (uint32_t i = PFX_PER_LINE; i < e->n && i < PFX_NAMES; i += PFX_PER_LINE)
		kvr_prefetch((const char *)e->sh + (size_t)i * 8);
}

/* Is the event likely to make a run, or to end one? Else it changes the end of one. */
static inline bool pfx_whole_run(const struct kvr_prefix *t, const struct kvr_prefix_event *e,
				 const struct pfx_chain *a)
{
	const struct pfx_chunk_info c = t->chunk[a->slot / PFX_CHUNK];

	if (e->op == KVR_PREFIX_STORE)
		return !e->has_parent || e->n > PFX_PER_LINE;
	return e->n > c.ord * PFX_CHUNK + a->slot % PFX_CHUNK;
}

/* And what the list of a rank and its bits have beside them. */
static inline void pfx_fetch_hdr(const struct kvr_prefix *t, const struct kvr_prefix_event *e,
				 const struct pfx_chain *a)
{
	const uint32_t meta = t->chunk[a->slot / PFX_CHUNK].meta;
	const struct pfx_meta *m = &t->meta[meta];
	const struct pfx_hdr *h = &t->hdr[m->hdr];

	kvr_prefetch(h);
	if (e->n > 1 ||
	    (a->slot + 1) % PFX_CHUNK <= 1) /* one block: where a chunk ends or begins */
		kvr_prefetch(&h->chunk);
	pfx_fetch_names(e);
	if (e->n == 0 || e->rank >= t->max_ranks || !pfx_whole_run(t, e, a))
		return;
	pfx_hold_fetch(t, e->rank, meta);
	if (e->op == KVR_PREFIX_STORE) {
		kvr_prefetch(&t->meta[t->rank[e->rank].last].newer);
	} else {
		kvr_prefetch(&t->meta[m->older].newer);
		kvr_prefetch(&t->meta[m->newer].older);
		kvr_prefetch(&t->meta[m->parent].nchild);
	}
}

#endif
