/* SPDX-License-Identifier: BSD-3-Clause */
/* Removal of many blocks. Their index lines and entries are rarely in the CPU cache, so names are
 * processed in groups with prefetching. */
#include "kvmap_pvt.h"

#define GROUP 8u  /* names looked up together */
#define AHEAD 8u  /* distance of prefetching, in groups ... */
#define KEPT  16u /* ... whose keys are kept */
#define FEW   3u  /* names: too few for prefetching to help */

/* Names of an event to be removed: their keys, and the guessed entries. */
struct removing {
	struct kvmap_view v;
	const struct kvr_kvev *ev;
	uint32_t n, gone; /* blocks in m->run; removed in all */
	uint32_t kept;	  /* removed copies of blocks that have another copy */
	uint64_t key[KEPT][GROUP];
	struct kvmap_guess guess[KEPT][GROUP];
};

static uint32_t group_size(const struct removing *r, uint32_t group)
{
	const uint32_t left = r->ev->n_hashes - group * GROUP;

	return left < GROUP ? left : GROUP;
}

static __attribute__((noinline)) void prefetch_group(struct removing *r, uint32_t group)
{
	const uint64_t *name = r->ev->hashes + (size_t)group * GROUP;
	const uint32_t n = group_size(r, group);
	const struct kvmap_view v = r->v;
	uint64_t *key = r->key[group % KEPT];

	for (uint32_t i = 0; i < n; i++) {
		key[i] = kvmap_key(&v, name[i]);
		kvmap_prefetch(&v, key[i]);
	}
}

static __attribute__((noinline)) void guess_group(struct removing *r, uint32_t group)
{
	const uint64_t *key = r->key[group % KEPT];
	const uint32_t n = group_size(r, group);
	const struct kvmap_view v = r->v;
	struct kvmap_guess *to = r->guess[group % KEPT];

	for (uint32_t i = 0; i < n; i++)
		to[i] = kvmap_guess(&v, key[i]);
}

/* Remove a block in any state: in several tiers, with copies or aliases, outside its home bucket,
 * or unknown. @return true if the block left the tier. */
static __attribute__((noinline)) bool remove_any(struct kvr_kvmap *m, struct removing *r,
						 uint64_t name, uint64_t key, uint64_t *sh)
{
	const uint8_t bit = (uint8_t)(1u << r->ev->tier);
	const uint64_t found = kvmap_find(m, &r->v, name, key);
	const uint32_t e = KVMAP_POS(found) - 1;
	bool shared;

	if (found == 0 || (m->tiers[e] & bit) == 0)
		return false;
	if (kvmap_drop_copy(m, e, r->ev->tier)) {
		r->kept++;
		return false;
	}
	shared = kvr_kvmap__is_shared(m, e, r->ev->tier);
	*sh = m->entries[e].sh;
	m->tiers[e] = (uint8_t)(m->tiers[e] & ~bit);
	if ((m->tiers[e] & KVMAP_TIERS) == 0)
		kvr_kvmap__del(m, key, found);
	r->kept += shared;
	return !shared;
}

/* Remove a group from the tier. Nearly all blocks are in one tier and have one copy. */
static __attribute__((noinline)) void remove_group(struct kvr_kvmap *m, struct removing *r,
						   uint32_t group)
{
	const uint64_t *name = r->ev->hashes + (size_t)group * GROUP;
	const struct kvmap_guess *to = r->guess[group % KEPT];
	const uint8_t bit = (uint8_t)(1u << r->ev->tier);
	const uint32_t size = group_size(r, group);
	const struct kvmap_view v = r->v;
	uint64_t *run = m->run + r->n;
	uint32_t n = 0, gone = 0;

	for (uint32_t i = 0; i < size; i++) {
		const uint64_t key = r->key[group % KEPT][i];
		const struct kvmap_entry e = v.entries[to[i].entry];
		const uint8_t tiers =
			v.tiers[to[i].entry] & (KVMAP_TIERS | KVMAP_COPIES | KVMAP_LINKED);

		if (e.name == name[i] && tiers == bit) {
			*to[i].tag = 0;
			v.tiers[to[i].entry] = 0;
			run[n++] = e.sh;
			gone++;
		} else {
			n += remove_any(m, r, name[i], key, &run[n]);
		}
	}
	m->n -= gone;
	r->n += n;
}

static void report_removed(struct kvr_kvmap *m, struct removing *r)
{
	if (r->n > 0)
		m->out.removed(m->out.user, r->ev->tier, m->run, r->n);
	r->gone += r->n;
	r->n = 0;
}

/* Each group passes three stages: prefetch of its index lines, prefetch of its entries, removal. */
static void remove_groups(struct kvr_kvmap *m, struct removing *r)
{
	const uint32_t groups = (r->ev->n_hashes + GROUP - 1) / GROUP;
	const uint32_t lag = groups < AHEAD ? groups : AHEAD;

	for (uint32_t g = 0; g < groups + lag; g++) {
		if (g < groups)
			prefetch_group(r, g);
		if (g >= lag / 2 && g - lag / 2 < groups)
			guess_group(r, g - lag / 2);
		if (g >= lag)
			remove_group(m, r, g - lag);
		if (r->n > KVMAP_RUN - GROUP)
			report_removed(m, r);
	}
}

uint32_t kvr_kvmap__remove(struct kvr_kvmap *m, const struct kvr_kvev *ev)
{
	struct removing r;

	r.v = kvmap_view(m);
	r.ev = ev;
	r.n = r.gone = r.kept = 0; /* other fields are written before they are read */
	if (ev->n_hashes > FEW)
		remove_groups(m, &r);
	else
		for (uint32_t i = 0; i < ev->n_hashes; i++)
			r.n += remove_any(m, &r, ev->hashes[i], kvmap_key(&r.v, ev->hashes[i]),
					  &m->run[r.n]);
	report_removed(m, &r);
	kvr_cell_add(&m->st.removed, r.gone);
	kvr_cell_add(&m->st.kept, r.kept);
	return ev->n_hashes - r.gone - r.kept;
}
