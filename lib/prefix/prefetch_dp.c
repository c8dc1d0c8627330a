/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Prefetching for events. An event misses the cache in two places: along the chain from its first
 * known block to the header of its run (index, chunk, chunk info, meta, header), and in one index
 * line per block. Each link of the chain is prefetched when the link before it has had time to
 * arrive.
 *
 * Index lines go to the second-level cache, in one tight loop. In a table larger than the reach of
 * the TLB a prefetch occupies the reorder buffer until its address is translated, so throughput
 * depends on how many prefetches fit into that buffer: 10 cycles each in a tight loop, 15 to 30
 * between the instructions of another event.
 */

#include "prefetch_pvt.h"

#define HASHES_PER_UNIT 8u /* block hashes per unit of work */
#define LINKS		5u /* the last link is for long removals only */

/* Prefetch the blocks that a removal compares its hashes with, from the last to the first. */
static void fetch_run_blocks(const struct kvr_prefix *table, const struct kvr_prefix_event *event,
			     const struct pfx_chain *chain)
{
	const struct pfx_chunk_info info = table->chunk[chain->slot / PFX_CHUNK];
	const struct pfx_hdr *hdr = pfx_hdr_of(table, info.meta);
	uint32_t n = event->n;

	if (event->op != KVR_PREFIX_REMOVE || chain->slot == 0)
		return;
	for (uint32_t k = info.ord; n > 0 && k-- > 0; n -= RTE_MIN(n, PFX_CHUNK)) {
		const uint64_t *p = &table->sh[(size_t)pfx_ld32(&hdr->chunk[k]) * PFX_CHUNK];

		for (uint32_t i = 0; i < PFX_CHUNK; i += PFX_PER_LINE)
			kvr_prefetch_far(&p[i]);
	}
}

static void fetch_link(const struct kvr_prefix *table, const struct kvr_prefix_event *event,
		       struct pfx_chain *chain, uint32_t link)
{
	if (link == 0)
		pfx_fetch_index(table, event, chain);
	else if (link == 1)
		pfx_fetch_chunk(table, chain);
	else if (link == 2)
		pfx_fetch_meta(table, event, chain);
	else if (link == 3)
		pfx_fetch_hdr(table, event, chain);
	else
		fetch_run_blocks(table, event, chain);
}

/* Prefetch the index lines of up to n blocks, starting at *pos, and advance *pos. */
struct block_pos {
	uint32_t event, at;
};

static void fetch_lines(const struct kvr_prefix *table, const struct kvr_prefix_event ev[],
			struct block_pos *pos, uint32_t n)
{
	while (n > 0) {
		const struct kvr_prefix_event *event = &ev[pos->event];
		const uint32_t end = RTE_MIN(event->n, pos->at + n);

		n -= end - pos->at;
		for (uint32_t i = pos->at; i < end; i++) {
			uint64_t mix = pfx_mix(table, pfx_ld64(event->sh, i));

			kvr_prefetch_far(&table->index.b[pfx_index_home(&table->index, mix)]);
		}
		pos->at = end;
		if (end == event->n)
			*pos = (struct block_pos){pos->event + 1, 0};
	}
}

void kvr_prefix_fetch(struct kvr_prefix *table, const struct kvr_prefix_event ev[], uint32_t n)
{
	struct pfx_chain chain[KVR_PREFIX_FETCH];
	struct block_pos pos = {0, 0};
	const uint32_t parts = LINKS - 1;
	uint32_t hashes = 0;

	n = RTE_MIN(n, KVR_PREFIX_FETCH);
	for (uint32_t i = 0; i < n; i++)
		hashes += ev[i].n;
	table->work += hashes / HASHES_PER_UNIT;
	for (uint32_t link = 0; link < LINKS; link++) {
		for (uint32_t i = 0; i < n; i++)
			fetch_link(table, &ev[i], &chain[i], link);
		/* The link arrives meanwhile. */
		if (link < LINKS - 1)
			fetch_lines(table, ev, &pos,
				    hashes * (link + 1) / parts - hashes * link / parts);
	}
}
