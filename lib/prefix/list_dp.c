/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The runs without children that are charged to a rank, by the second they were last matched, as
 * far as the writer knows; evict_dp.c says what for.
 */

#include "prefix_pvt.h"

#define PLACES 16u /* steps to find the place of a run in its list: then it is nearly right */

/* Before which run of the list one of this age belongs; PFX_NONE: at the end. */
static uint32_t place_of(const struct kvr_prefix *t, const struct pfx_rank *r, uint32_t age)
{
	uint32_t up = r->first, down = r->last, after = PFX_NONE;

	for (uint32_t i = 0; i < PLACES; i++) {
		if (up == PFX_NONE || t->meta[up].age > age)
			return up;
		if (t->meta[down].age <= age)
			return after;
		up = t->meta[up].newer;
		after = down;
		down = t->meta[down].older;
	}
	return after;
}

static void set_first(const struct kvr_prefix *t, struct pfx_rank *r, uint32_t meta)
{
	r->first = meta;
	r->age = meta != PFX_NONE ? t->meta[meta].age : UINT32_MAX;
}

void kvr_prefix__list_add(struct kvr_prefix *t, uint32_t meta, uint32_t age)
{
	struct pfx_meta *m = &t->meta[meta];
	struct pfx_rank *r = &t->rank[m->charge];
	uint32_t next = PFX_NONE, prev = r->last;

	m->age = age;
	if (prev != PFX_NONE && t->meta[prev].age > age) {
		next = place_of(t, r, age);
		prev = next != PFX_NONE ? t->meta[next].older : r->last;
	}
	m->older = prev;
	m->newer = next;
	if (prev != PFX_NONE)
		t->meta[prev].newer = meta;
	else
		set_first(t, r, meta);
	if (next != PFX_NONE)
		t->meta[next].older = meta;
	else
		r->last = meta;
}

void kvr_prefix__list_del(struct kvr_prefix *t, uint32_t meta)
{
	struct pfx_meta *m = &t->meta[meta];
	struct pfx_rank *r = &t->rank[m->charge];

	if (m->older != PFX_NONE)
		t->meta[m->older].newer = m->newer;
	else
		set_first(t, r, m->newer);
	if (m->newer != PFX_NONE)
		t->meta[m->newer].older = m->older;
	else
		r->last = m->older;
}
