/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PREFETCH_PVT_H
#define PREFETCH_PVT_H

/**
 * @file
 * Prefetches for an event: the chain from its first known block to the header of its run (index,
 * chunk, chunk info, meta, header), and the index lines of its blocks. Each function prefetches one
 * link; the link before it must have had time to arrive. The functions are inline because calls
 * would be half the cost of a one-block event. Thread: writer.
 *
 * Nearly all cache misses of stored and removed blocks are in index lines: one line per block, none
 * adjacent. They are prefetched PFX_AHEAD blocks before use, and those of the next event of a burst
 * while the last blocks of the current event are handled. Otherwise a run of 32 blocks would wait
 * for its first lines. The lines an event will need are guessed from its first block; a wrong guess
 * only costs unnecessary prefetches.
 */

#include "held_pvt.h"

struct pfx_chain {
	uint64_t mix;	/* mix of the first known block */
	uint64_t first; /* mix of the first block of a store that has a parent */
	uint32_t slot;	/* slot where the first known block may be, a guess that may be out of date;
			   0: none */
};

#define PFX_PER_LINE 8u /* SHs */
#define PFX_HASHES                                                                                 \
	64u /* block hashes of an event that are prefetched; the hardware prefetches the rest */

static inline void pfx_fetch_index(const struct kvr_prefix *table,
				   const struct kvr_prefix_event *event, struct pfx_chain *chain)
{
	*chain = (struct pfx_chain){0, 0, 0};
	if (event->n == 0 || event->rank >= table->max_ranks)
		return;
	kvr_prefetch(&table->rank[event->rank]);
	kvr_prefetch(&table->rank_blocks[event->rank]);
	chain->mix = pfx_mix(table, pfx_ld64(event->sh, 0));
	pfx_index_prefetch(&table->index, chain->mix);
	if (event->op != KVR_PREFIX_STORE || !event->has_parent)
		return;
	chain->first = chain->mix;
	chain->mix = pfx_mix(table, event->parent);
	pfx_index_prefetch(&table->index, chain->mix);
}

/* Compares only the tag: a wrong guess costs an unnecessary prefetch. */
static inline void pfx_fetch_chunk(const struct kvr_prefix *table, struct pfx_chain *chain)
{
	const struct kvr_bucket *bucket =
		&table->index.b[pfx_index_home(&table->index, chain->mix)];
	uint32_t m = pfx_index_masks(bucket, pfx_index_tag(chain->mix)).tag;

	chain->slot = m ? bucket->value[__builtin_ctz(m)] : 0;
	kvr_prefetch(&table->sh[chain->slot]);
	kvr_prefetch(&table->chunk[chain->slot / PFX_CHUNK]);
}

/* A removal compares more than one block, so it also needs the rest of the chunk. */
static inline void pfx_fetch_meta(const struct kvr_prefix *table,
				  const struct kvr_prefix_event *event,
				  const struct pfx_chain *chain)
{
	const uint32_t chunk = chain->slot / PFX_CHUNK;

	kvr_prefetch(&table->meta[table->chunk[chunk].meta]);
	if (event->n <= PFX_PER_LINE || event->op != KVR_PREFIX_REMOVE)
		return;
	for (uint32_t i = 0; i < PFX_CHUNK; i += PFX_PER_LINE)
		kvr_prefetch(&table->sh[(size_t)chunk * PFX_CHUNK + i]);
}

/* Hashes of the event beyond its first cache line. */
static inline void pfx_fetch_hashes(const struct kvr_prefix_event *event)
{
	for (uint32_t i = PFX_PER_LINE; i < event->n && i < PFX_HASHES; i += PFX_PER_LINE)
		kvr_prefetch((const char *)event->sh + (size_t)i * 8);
}

/*
 * Return true if the event is likely to create or to remove a whole run. Otherwise it changes the
 * end of a run.
 */
static inline bool pfx_changes_whole_run(const struct kvr_prefix *table,
					 const struct kvr_prefix_event *event,
					 const struct pfx_chain *chain)
{
	const struct pfx_chunk_info info = table->chunk[chain->slot / PFX_CHUNK];

	if (event->op == KVR_PREFIX_STORE)
		return !event->has_parent || event->n > PFX_PER_LINE;
	return event->n > info.ord * PFX_CHUNK + chain->slot % PFX_CHUNK;
}

/* Also the neighbours in the list of the rank, and the word of its run bits. */
static inline void pfx_fetch_hdr(const struct kvr_prefix *table,
				 const struct kvr_prefix_event *event,
				 const struct pfx_chain *chain)
{
	const uint32_t meta = table->chunk[chain->slot / PFX_CHUNK].meta;
	const struct pfx_meta *run = &table->meta[meta];
	const struct pfx_hdr *hdr = &table->hdr[run->hdr];

	kvr_prefetch(hdr);
	if (event->n > 1 ||
	    (chain->slot + 1) % PFX_CHUNK <= 1) /* one block: at the start or end of a chunk */
		kvr_prefetch(&hdr->chunk);
	pfx_fetch_hashes(event);
	if (event->n == 0 || event->rank >= table->max_ranks ||
	    !pfx_changes_whole_run(table, event, chain))
		return;
	pfx_held_fetch(table, event->rank, meta);
	if (event->op == KVR_PREFIX_STORE) {
		kvr_prefetch(&table->meta[table->rank[event->rank].last].newer);
	} else {
		kvr_prefetch(&table->meta[run->older].newer);
		kvr_prefetch(&table->meta[run->newer].older);
		kvr_prefetch(&table->meta[run->parent].nchild);
	}
}

/* Start an event. The next event of the burst adds or removes the blocks sh[0] to sh[n - 1]. */
static inline void pfx_set_next_lines(struct kvr_prefix *table, const void *sh, uint32_t n)
{
	table->next_lines = (struct pfx_lines){.sh = sh, .n = RTE_MIN(n, PFX_AHEAD)};
}

/* Prefetch up to n more index lines of the next event. */
static inline void pfx_fetch_next_lines(struct kvr_prefix *table, uint32_t n)
{
	struct pfx_lines *lines = &table->next_lines;

	for (; n > 0 && lines->done < lines->n; n--)
		pfx_index_prefetch(&table->index,
				   pfx_mix(table, pfx_ld64(lines->sh, lines->done++)));
}

#endif
