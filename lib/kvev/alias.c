/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of one block, linked in a circle from the oldest to the newest. */
#include "kvmap_pvt.h"

#include <errno.h>
#include <stdlib.h>

#define NAMES_MOST 32u /* per block */

static uint32_t first_slot(const struct kvr_kvmap *map, uint64_t sh)
{
	return (uint32_t)((sh ^ map->seed) * UINT64_C(0x9e3779b97f4a7c15) >> 32) & map->newest_mask;
}

/* The slot of a block, or the free slot where the block belongs. */
static uint32_t find_slot(const struct kvr_kvmap *map, uint64_t sh)
{
	uint32_t at = first_slot(map, sh);

	while (map->newest[at] != 0 && map->entries[map->newest[at] - 1].sh != sh)
		at = (at + 1) & map->newest_mask;
	return at;
}

/* Move up the slots behind a freed one that linear probing had displaced. */
static void free_slot(struct kvr_kvmap *map, uint32_t at)
{
	for (uint32_t next = (at + 1) & map->newest_mask; map->newest[next] != 0;
	     next = (next + 1) & map->newest_mask) {
		const uint32_t first = first_slot(map, map->entries[map->newest[next] - 1].sh);

		if (((next - first) & map->newest_mask) < ((next - at) & map->newest_mask))
			continue;
		map->newest[at] = map->newest[next];
		at = next;
	}
	map->newest[at] = 0;
}

int kvr_kvmap__link_names(struct kvr_kvmap *map)
{
	uint32_t slots = 2;

	while (slots < 2 * map->max)
		slots *= 2;
	map->newer = calloc(map->ring_most, sizeof(map->newer[0]));
	map->newest = map->newer != NULL ? calloc(slots, sizeof(map->newest[0])) : NULL;
	map->newest_mask = slots - 1;
	if (map->newest != NULL)
		return 0;
	free(map->newer);
	map->newer = NULL;
	return -ENOMEM;
}

uint32_t kvr_kvmap__link(struct kvr_kvmap *map, uint32_t e)
{
	const uint32_t slot = find_slot(map, map->entries[e].sh), newest = map->newest[slot] - 1;
	uint32_t oldest, n = 2;

	map->tiers[e] |= KVMAP_LINKED;
	map->newest[slot] = e + 1;
	if (newest == UINT32_MAX) {
		map->newer[e] = e;
		return UINT32_MAX;
	}
	kvr_cell_add(&map->st.aliases, 1);
	oldest = map->newer[newest];
	map->newer[newest] = e;
	map->newer[e] = oldest;
	for (uint32_t o = oldest; o != newest; o = map->newer[o])
		n++;
	return n > NAMES_MOST ? oldest : UINT32_MAX;
}

void kvr_kvmap__unlink(struct kvr_kvmap *map, uint32_t e)
{
	const uint32_t slot = find_slot(map, map->entries[e].sh);
	uint32_t older = e;

	while (map->newer[older] != e)
		older = map->newer[older];
	map->newer[older] = map->newer[e];
	if (older == e)
		free_slot(map, slot);
	else if (map->newest[slot] == e + 1)
		map->newest[slot] = older + 1;
}

bool kvr_kvmap__is_repeated(const struct kvr_kvmap *map, uint32_t e, enum kvr_tier tier)
{
	if ((map->tiers[e] & KVMAP_LINKED) == 0)
		return false;
	for (uint32_t o = map->newer[e]; o != e; o = map->newer[o])
		if (o < e && (map->tiers[o] >> tier & 1) != 0)
			return true;
	return false;
}

bool kvr_kvmap__is_shared(const struct kvr_kvmap *map, uint32_t e, enum kvr_tier tier)
{
	if ((map->tiers[e] & KVMAP_LINKED) == 0)
		return false;
	for (uint32_t o = map->newer[e]; o != e; o = map->newer[o])
		if ((map->tiers[o] >> tier & 1) != 0)
			return true;
	return false;
}
