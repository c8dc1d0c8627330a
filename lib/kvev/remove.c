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

static uint32_t group_size(const struct removing *removing, uint32_t group)
{
	const uint32_t left = removing->ev->n_hashes - group * GROUP;

	return left < GROUP ? left : GROUP;
}

static __attribute__((noinline)) void prefetch_group(struct removing *removing, uint32_t group)
{
	const uint64_t *name = removing->ev->hashes + (size_t)group * GROUP;
	const uint32_t n = group_size(removing, group);
	const struct kvmap_view v = removing->v;
	uint64_t *key = removing->key[group % KEPT];

	for (uint32_t i = 0; i < n; i++) {
		key[i] = kvmap_key(&v, name[i]);
		kvmap_prefetch(&v, key[i]);
	}
}

static __attribute__((noinline)) void guess_group(struct removing *removing, uint32_t group)
{
	const uint64_t *key = removing->key[group % KEPT];
	const uint32_t n = group_size(removing, group);
	const struct kvmap_view v = removing->v;
	struct kvmap_guess *to = removing->guess[group % KEPT];

	for (uint32_t i = 0; i < n; i++)
		to[i] = kvmap_guess(&v, key[i]);
}

/* Remove a block in any state: in several tiers, with copies or aliases, outside its home bucket,
 * or unknown. @return true if the block left the tier. */
static __attribute__((noinline)) bool remove_any(struct kvr_kvmap *map, struct removing *removing,
						 uint64_t name, uint64_t key, uint64_t *sh)
{
	const uint8_t bit = (uint8_t)(1u << removing->ev->tier);
	const uint64_t found = kvmap_find(map, &removing->v, name, key);
	const uint32_t e = KVMAP_POS(found) - 1;
	bool shared;

	if (found == 0 || (map->tiers[e] & bit) == 0)
		return false;
	if (kvmap_drop_copy(map, e, removing->ev->tier)) {
		removing->kept++;
		return false;
	}
	shared = kvr_kvmap__is_shared(map, e, removing->ev->tier);
	*sh = map->entries[e].sh;
	map->tiers[e] = (uint8_t)(map->tiers[e] & ~bit);
	if ((map->tiers[e] & KVMAP_TIERS) == 0)
		kvr_kvmap__del(map, key, found);
	removing->kept += shared;
	return !shared;
}

/* Remove a group from the tier. Nearly all blocks are in one tier and have one copy. */
static __attribute__((noinline)) void remove_group(struct kvr_kvmap *map, struct removing *removing,
						   uint32_t group)
{
	const uint64_t *name = removing->ev->hashes + (size_t)group * GROUP;
	const struct kvmap_guess *to = removing->guess[group % KEPT];
	const uint8_t bit = (uint8_t)(1u << removing->ev->tier);
	const uint32_t size = group_size(removing, group);
	const struct kvmap_view v = removing->v;
	uint64_t *run = map->run + removing->n;
	uint32_t n = 0, gone = 0;

	for (uint32_t i = 0; i < size; i++) {
		const uint64_t key = removing->key[group % KEPT][i];
		const struct kvmap_entry e = v.entries[to[i].entry];
		const uint8_t tiers =
			v.tiers[to[i].entry] & (KVMAP_TIERS | KVMAP_COPIES | KVMAP_LINKED);

		if (e.name == name[i] && tiers == bit) {
			*to[i].tag = 0;
			v.tiers[to[i].entry] = 0;
			run[n++] = e.sh;
			gone++;
		} else {
			n += remove_any(map, removing, name[i], key, &run[n]);
		}
	}
	map->n -= gone;
	removing->n += n;
}

static void report_removed(struct kvr_kvmap *map, struct removing *removing)
{
	if (removing->n > 0)
		map->out.removed(map->out.user, removing->ev->tier, map->run, removing->n);
	removing->gone += removing->n;
	removing->n = 0;
}

/* Each group passes three stages: prefetch of its index lines, prefetch of its entries, removal. */
static void remove_groups(struct kvr_kvmap *map, struct removing *removing)
{
	const uint32_t groups = (removing->ev->n_hashes + GROUP - 1) / GROUP;
	const uint32_t lag = groups < AHEAD ? groups : AHEAD;

	for (uint32_t g = 0; g < groups + lag; g++) {
		if (g < groups)
			prefetch_group(removing, g);
		if (g >= lag / 2 && g - lag / 2 < groups)
			guess_group(removing, g - lag / 2);
		if (g >= lag)
			remove_group(map, removing, g - lag);
		if (removing->n > KVMAP_RUN - GROUP)
			report_removed(map, removing);
	}
}

uint32_t kvr_kvmap__remove(struct kvr_kvmap *map, const struct kvr_kvev *ev)
{
	struct removing r;

	r.v = kvmap_view(map);
	r.ev = ev;
	r.n = r.gone = r.kept = 0; /* other fields are written before they are read */
	if (ev->n_hashes > FEW)
		remove_groups(map, &r);
	else
		for (uint32_t i = 0; i < ev->n_hashes; i++)
			r.n += remove_any(map, &r, ev->hashes[i], kvmap_key(&r.v, ev->hashes[i]),
					  &map->run[r.n]);
	report_removed(map, &r);
	kvr_cell_add(&map->st.removed, r.gone);
	kvr_cell_add(&map->st.kept, r.kept);
	return ev->n_hashes - r.gone - r.kept;
}
