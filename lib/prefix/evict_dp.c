/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The bound. Runs stand in lists by the second they were last matched, as far as the writer
 * knows; readers note the true second in the header. The first run of the oldest list is taken
 * out: if readers matched it since, it goes to the list of that second, else it is dropped. So
 * the order is exact to a second and costs O(1). A run with children waits until they are gone:
 * dropping it would leave them out of reach.
 */

#include "prefix_pvt.h"

static uint32_t list_of(const struct kvr_prefix *t, uint32_t age)
{
	return age <= t->ancient ? PFX_AGES : age % PFX_AGES;
}

void kvr_prefix__evict_link(struct kvr_prefix *t, uint32_t meta, uint32_t age)
{
	struct pfx_meta *m = &t->meta[meta];
	uint32_t l = list_of(t, age), last = t->ages[l].last;

	m->age = age;
	m->older = last;
	m->newer = PFX_NONE;
	if (last != PFX_NONE)
		t->meta[last].newer = meta;
	else
		t->ages[l].first = meta;
	t->ages[l].last = meta;
	t->oldest = RTE_MIN(t->oldest, age);
}

void kvr_prefix__evict_unlink(struct kvr_prefix *t, uint32_t meta)
{
	struct pfx_meta *m = &t->meta[meta];
	uint32_t l = list_of(t, m->age);

	if (m->older != PFX_NONE)
		t->meta[m->older].newer = m->newer;
	else
		t->ages[l].first = m->newer;
	if (m->newer != PFX_NONE)
		t->meta[m->newer].older = m->older;
	else
		t->ages[l].last = m->older;
}

/* A second passes: the list that is to be used again is hung behind the ancient one. */
void kvr_prefix__evict_next_age(struct kvr_prefix *t)
{
	uint32_t now = pfx_ld32(&t->age) + 1, l = now % PFX_AGES;
	uint32_t first = t->ages[l].first, last = t->ages[PFX_AGES].last;

	/* Readers note it with their matches; publishes nothing. */
	pfx_st32(&t->age, now);
	if (now <= PFX_AGES)
		return;
	t->ancient = now - PFX_AGES;
	if (first == PFX_NONE)
		return;
	t->meta[first].older = last;
	if (last != PFX_NONE)
		t->meta[last].newer = first;
	else
		t->ages[PFX_AGES].first = first;
	t->ages[PFX_AGES].last = t->ages[l].last;
	t->ages[l].first = t->ages[l].last = PFX_NONE;
}

static bool pool_low(const struct pfx_pool *p, uint32_t need)
{
	return pfx_pool_free(p) < need + p->low;
}

/* Is there too little for a step that adds up to `blocks` blocks? */
bool kvr_prefix__evict_low(const struct kvr_prefix *t, uint32_t blocks)
{
	return t->st.blocks + blocks > t->max_blocks || pool_low(&t->metas, 2) ||
	       pool_low(&t->hdrs, 4) || pool_low(&t->bigs, 2 * PFX_PLANES) ||
	       pool_low(&t->exts, 2) || pool_low(&t->preds, 2) ||
	       pool_low(&t->chunks, blocks / PFX_CHUNK + 3);
}

/* The same, counting what comes back as soon as the readers have moved on. */
static bool scarce(const struct kvr_prefix *t, uint32_t blocks)
{
	const struct pfx_pool *p[] = {&t->metas, &t->hdrs,  &t->bigs,
				      &t->exts,	 &t->preds, &t->chunks};
	const uint32_t need[] = {2, 4, 2 * PFX_PLANES, 2, 2, blocks / PFX_CHUNK + 3};

	for (uint32_t i = 0; i < RTE_DIM(p); i++) {
		if (pfx_pool_free(p[i]) + p[i]->nretired < need[i] + p[i]->low)
			return true;
	}
	return t->st.blocks + blocks > t->max_blocks;
}

/* The run to look at next; PFX_NONE when the table is empty. */
static uint32_t oldest(struct kvr_prefix *t)
{
	uint32_t now = pfx_ld32(&t->age);

	if (t->ages[PFX_AGES].first != PFX_NONE)
		return t->ages[PFX_AGES].first;
	t->oldest = RTE_MAX(t->oldest, t->ancient + 1);
	for (; t->oldest <= now; t->oldest++) {
		if (t->ages[t->oldest % PFX_AGES].first != PFX_NONE)
			return t->ages[t->oldest % PFX_AGES].first;
	}
	return PFX_NONE;
}

static bool evict_one(struct kvr_prefix *t)
{
	for (uint32_t meta; (meta = oldest(t)) != PFX_NONE;) {
		struct pfx_hdr *h = pfx_hdr_of(t, meta);
		uint32_t age = pfx_ld32(&h->age);
		bool inner = t->meta[meta].nchild > 0;

		if (!inner && age <= t->meta[meta].age) {
			kvr_prefix__owner_forget(t, h);
			kvr_prefix__run_destroy(t, meta);
			pfx_note_loss(t, PFX_ALL);
			pfx_add(&t->st.evicted_runs, 1);
			return true;
		}
		kvr_prefix__evict_unlink(t, meta);
		kvr_prefix__evict_link(t, meta, inner ? pfx_ld32(&t->age) : age);
	}
	return false;
}

/* Runs may be split or dropped: places known before must be looked up again. */
void kvr_prefix__evict_make_room(struct kvr_prefix *t, uint32_t blocks)
{
	kvr_prefix__pool_reclaim(t);
	while (scarce(t, blocks)) {
		if (!kvr_prefix__pred_drop_first(t) && !evict_one(t))
			break;
	}
	kvr_prefix__pool_reclaim(t);
}
