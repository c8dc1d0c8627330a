/* SPDX-License-Identifier: BSD-3-Clause */
/* (run, first hash) -> child run: linear probing, at most two thirds full, holes closed on removal.
 */
#include "active_pvt.h"

struct child *kvr_active__find(const struct kvr_active *a, uint32_t parent, uint64_t hash)
{
	return child_find(a, child_home(a, parent, hash), parent, hash);
}

void kvr_active__link(struct kvr_active *a, uint32_t parent, uint64_t hash, uint32_t run)
{
	uint32_t i = child_home(a, parent, hash);

	while (a->index[i].run != 0)
		i = (i + 1) & a->index_mask;
	a->index[i] = (struct child){.hash = hash, .parent = parent, .run = run + 1};
}

void kvr_active__unlink(struct kvr_active *a, uint32_t parent, uint64_t hash)
{
	struct child *c = kvr_active__find(a, parent, hash);
	uint32_t hole, i;

	if (c == NULL)
		return;
	hole = (uint32_t)(c - a->index);
	for (i = (hole + 1) & a->index_mask; a->index[i].run != 0; i = (i + 1) & a->index_mask) {
		uint32_t want = child_home(a, a->index[i].parent, a->index[i].hash);

		/* It may move back unless its home lies after the hole. */
		if (((i - want) & a->index_mask) < ((i - hole) & a->index_mask))
			continue;
		a->index[hole] = a->index[i];
		hole = i;
	}
	a->index[hole].run = 0;
}
