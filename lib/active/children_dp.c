/* SPDX-License-Identifier: BSD-3-Clause */
/* (run, first hash) -> child run: linear probing, at most two thirds full, holes closed on removal.
 */
#include "active_pvt.h"

static uint32_t home(const struct kvr_active *a, uint32_t parent, uint64_t hash)
{
	/* Two rounds, so that neither hash nor parent alone chooses the slot. */
	uint64_t x = kvr_mix64(hash ^ a->seed);

	return (uint32_t)kvr_mix64(x + parent * UINT64_C(0x9E3779B97F4A7C15)) & a->index_mask;
}

void kvr_active__prefetch_child(const struct kvr_active *a, uint32_t parent, uint64_t hash)
{
	__builtin_prefetch(&a->index[home(a, parent, hash)]);
}

struct child *kvr_active__find(const struct kvr_active *a, uint32_t parent, uint64_t hash)
{
	uint32_t i = home(a, parent, hash);

	while (a->index[i].run != 0) {
		struct child *c = &a->index[i];

		if (c->hash == hash && c->parent == parent)
			return c;
		i = (i + 1) & a->index_mask;
	}
	return NULL;
}

void kvr_active__link(struct kvr_active *a, uint32_t parent, uint64_t hash, uint32_t run)
{
	uint32_t i = home(a, parent, hash);

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
		uint32_t want = home(a, a->index[i].parent, a->index[i].hash);

		/* It may move back unless its home lies after the hole. */
		if (((i - want) & a->index_mask) < ((i - hole) & a->index_mask))
			continue;
		a->index[hole] = a->index[i];
		hole = i;
	}
	a->index[hole].run = 0;
}
