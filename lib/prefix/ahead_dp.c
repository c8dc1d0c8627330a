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
#include "hold_pvt.h"

#define NAMES_A_UNIT 8u	 /* of work */
#define PER_LINE     8u	 /* SHs */
#define NAMES	     64u /* of an event fetched ahead: what is behind is read in a row */

static uint64_t first_known(const struct kvr_prefix_event *e)
{
	return e->op == KVR_PREFIX_STORE && e->has_parent ? e->parent : pfx_ld64(e->sh, 0);
}

static void fetch_index(const struct kvr_prefix *t, const struct kvr_prefix_event *e,
			struct pfx_chain *a)
{
	a->mix = 0;
	if (e->n == 0 || e->rank >= t->max_ranks)
		return;
	kvr_prefetch(&t->rank[e->rank]);
	kvr_prefetch(&t->rank_blocks[e->rank]);
	a->mix = pfx_mix(t, first_known(e));
	pfx_index_prefetch(&t->index, a->mix);
	if (e->op == KVR_PREFIX_STORE && e->has_parent)
		pfx_index_prefetch(&t->index, pfx_mix(t, pfx_ld64(e->sh, 0)));
}

/* By the tag alone: a wrong guess costs a fetch in vain. */
static void fetch_chunk(const struct kvr_prefix *t, struct pfx_chain *a)
{
	const struct pfx_bucket *b = &t->index.b[pfx_index_home(&t->index, a->mix)];
	uint32_t m = pfx_index_masks(b, pfx_index_tag(a->mix)).tag;

	a->slot = m ? b->value[__builtin_ctz(m)] : 0;
	kvr_prefetch(&t->sh[a->slot]);
	kvr_prefetch(&t->chunk[a->slot / PFX_CHUNK]);
}

/* And, as a removal compares more than one block, the rest of the chunk. */
static void fetch_meta(const struct kvr_prefix *t, const struct kvr_prefix_event *e,
		       const struct pfx_chain *a)
{
	const uint32_t chunk = a->slot / PFX_CHUNK;

	kvr_prefetch(&t->meta[t->chunk[chunk].meta]);
	if (e->n <= PER_LINE || e->op != KVR_PREFIX_REMOVE)
		return;
	for (uint32_t i = 0; i < PFX_CHUNK; i += PER_LINE)
		kvr_prefetch(&t->sh[(size_t)chunk * PFX_CHUNK + i]);
}

/* What the event names behind its first line. */
static void fetch_names(const struct kvr_prefix_event *e)
{
	for (uint32_t i = PER_LINE; i < e->n && i < NAMES; i += PER_LINE)
		kvr_prefetch((const char *)e->sh + (size_t)i * 8);
}

/* Is the event likely to make a run, or to end one? Else it changes the end of one. */
static bool whole_run(const struct kvr_prefix *t, const struct kvr_prefix_event *e,
		      const struct pfx_chain *a)
{
	const struct pfx_chunk_info c = t->chunk[a->slot / PFX_CHUNK];

	if (e->op == KVR_PREFIX_STORE)
		return !e->has_parent || e->n > PER_LINE;
	return e->n > c.ord * PFX_CHUNK + a->slot % PFX_CHUNK;
}

/* And what the list of a rank and its bits have beside them. */
static void fetch_hdr(const struct kvr_prefix *t, const struct kvr_prefix_event *e,
		      const struct pfx_chain *a)
{
	const uint32_t meta = t->chunk[a->slot / PFX_CHUNK].meta;
	const struct pfx_meta *m = &t->meta[meta];
	const struct pfx_hdr *h = &t->hdr[m->hdr];

	kvr_prefetch(h);
	kvr_prefetch(&h->chunk);
	fetch_names(e);
	if (e->n == 0 || e->rank >= t->max_ranks || !whole_run(t, e, a))
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

		for (uint32_t i = 0; i < PFX_CHUNK; i += PER_LINE)
			kvr_prefetch_far(&p[i]);
	}
}

void kvr_prefix__fetch_link(const struct kvr_prefix *t, const struct kvr_prefix_event *e,
			    struct pfx_chain *c, uint32_t link)
{
	if (link == 0)
		fetch_index(t, e, c);
	else if (link == 1)
		fetch_chunk(t, c);
	else if (link == 2)
		fetch_meta(t, e, c);
	else if (link == 3)
		fetch_hdr(t, e, c);
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
	const uint32_t parts = PFX_LINKS - 1;
	uint32_t names = 0;

	n = RTE_MIN(n, KVR_PREFIX_FETCH);
	for (uint32_t i = 0; i < n; i++)
		names += ev[i].n;
	t->work += names / NAMES_A_UNIT;
	for (uint32_t link = 0; link < PFX_LINKS; link++) {
		for (uint32_t i = 0; i < n; i++)
			kvr_prefix__fetch_link(t, &ev[i], &c[i], link);
		/* Meanwhile the link arrives. */
		if (link < PFX_LINKS - 1)
			fetch_lines(t, ev, &p, names * (link + 1) / parts - names * link / parts);
	}
}
