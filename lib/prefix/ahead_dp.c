/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Fetching ahead. Two things of an event are far away: the chain of misses from its first known
 * block to the header of its run (index, chunk, chunk info, meta, header), each link of which is
 * asked for when the one before has had time to arrive; and a line of the index for each block.
 *
 * Lines go to the second cache, in one row with as little as possible between them. In a table
 * that is larger than what the TLB knows a fetch stands in the reorder buffer until its address is
 * translated, so what counts is how many of them fit into it: one takes 10 cycles in a row, and 15
 * to 30 among the work of another event.
 */

#include "ahead_pvt.h"

#define NAMES_A_UNIT 8u /* of work */
#define LINKS	     5u /* the last one is for long removals only */

/* The blocks that a removal compares its names with, downwards. */
static void fetch_run(const struct kvr_prefix *t, const struct kvr_prefix_event *e,
		      const struct pfx_chain *a)
{
	const struct pfx_chunk_info c = t->chunk[a->slot / PFX_CHUNK];
	const struct pfx_hdr *h = pfx_hdr_of(t, c.meta);
	uint32_t n = e->n;

	if (e->op != KVR_PREFIX_REMOVE || a->slot == 0)
		return;
	for (uint32_t k = c.ord; n > 0 && k-- > 0; n -= RTE_MIN(n, PFX_CHUNK)) {
		const uint64_t *p = &t->sh[(size_t)pfx_ld32(&h->chunk[k]) * PFX_CHUNK];

		for (uint32_t i = 0; i < PFX_CHUNK; i += PFX_PER_LINE)
			kvr_prefetch_far(&p[i]);
	}
}

static void fetch_link(const struct kvr_prefix *t, const struct kvr_prefix_event *e,
		       struct pfx_chain *c, uint32_t link)
{
	if (link == 0)
		pfx_fetch_index(t, e, c);
	else if (link == 1)
		pfx_fetch_chunk(t, c);
	else if (link == 2)
		pfx_fetch_meta(t, e, c);
	else if (link == 3)
		pfx_fetch_hdr(t, e, c);
	else
		fetch_run(t, e, c);
}

/* The lines of up to n names, from the one on that `from` and `at` say. */
struct place {
	uint32_t event, at;
};

static void fetch_lines(const struct kvr_prefix *t, const struct kvr_prefix_event ev[],
			struct place *p, uint32_t n)
{
	while (n > 0) {
		const struct kvr_prefix_event *e = &ev[p->event];
		const uint32_t end = RTE_MIN(e->n, p->at + n);

		n -= end - p->at;
		for (uint32_t i = p->at; i < end; i++) {
			uint64_t mix = pfx_mix(t, pfx_ld64(e->sh, i));

			kvr_prefetch_far(&t->index.b[pfx_index_home(&t->index, mix)]);
		}
		p->at = end;
		if (end == e->n)
			*p = (struct place){p->event + 1, 0};
	}
}

void kvr_prefix_fetch(struct kvr_prefix *t, const struct kvr_prefix_event ev[], uint32_t n)
{
	struct pfx_chain c[KVR_PREFIX_FETCH];
	struct place p = {0, 0};
	const uint32_t parts = LINKS - 1;
	uint32_t names = 0;

	n = RTE_MIN(n, KVR_PREFIX_FETCH);
	for (uint32_t i = 0; i < n; i++)
		names += ev[i].n;
	t->work += names / NAMES_A_UNIT;
	for (uint32_t link = 0; link < LINKS; link++) {
		for (uint32_t i = 0; i < n; i++)
			fetch_link(t, &ev[i], &c[i], link);
		/* Meanwhile the link arrives. */
		if (link < LINKS - 1)
			fetch_lines(t, ev, &p, names * (link + 1) / parts - names * link / parts);
	}
}
