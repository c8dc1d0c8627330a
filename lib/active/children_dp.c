/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The index (run, first hash) -> child run: linear probing, at most two thirds full; a removal
 * closes the hole.
 */
#include "active_pvt.h"

struct child *kvr_active__find(const struct kvr_active *active, uint32_t parent, uint64_t hash)
{
	return child_find(active, child_home(active, parent, hash), parent, hash);
}

void kvr_active__link(struct kvr_active *active, uint32_t parent, uint64_t hash, uint32_t run)
{
	uint32_t i = child_home(active, parent, hash);

	while (active->index[i].run != 0)
		i = (i + 1) & active->index_mask;
	active->index[i] = (struct child){.hash = hash, .parent = parent, .run = run + 1};
}

void kvr_active__unlink(struct kvr_active *active, uint32_t parent, uint64_t hash)
{
	struct child *child = kvr_active__find(active, parent, hash);
	uint32_t hole, i;

	if (child == NULL)
		return;
	hole = (uint32_t)(child - active->index);
	for (i = (hole + 1) & active->index_mask; active->index[i].run != 0;
	     i = (i + 1) & active->index_mask) {
		uint32_t want = child_home(active, active->index[i].parent, active->index[i].hash);

		/* It may move back unless its home is after the hole. */
		if (((i - want) & active->index_mask) < ((i - hole) & active->index_mask))
			continue;
		active->index[hole] = active->index[i];
		hole = i;
	}
	active->index[hole].run = 0;
}
