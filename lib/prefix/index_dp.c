/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The writer's index: open addressing with linear probing. The home of an entry follows from its
 * tag, so that deletion can close the gap without reading anything else; no tombstones.
 */

#include "prefix_pvt.h"

#include <errno.h>

int pfx_index__add(struct pfx_index *x, uint32_t tag, uint32_t value)
{
	uint32_t i = pfx_index_home(x, tag);

	while (x->e[i] != 0)
		i++;
	if (i + 1 >= x->end) /* the last entry stays empty: it ends every search */
		return -ENOSPC;
	x->e[i] = (uint64_t)tag << 32 | value;
	x->used++;
	return 0;
}

static uint32_t place_of(const struct pfx_index *x, uint32_t tag, uint32_t value)
{
	uint64_t want = (uint64_t)tag << 32 | value;
	uint32_t i = pfx_index_home(x, tag);

	while (x->e[i] != want && x->e[i] != 0)
		i++;
	return i;
}

void pfx_index__del(struct pfx_index *x, uint32_t tag, uint32_t value)
{
	uint32_t hole = place_of(x, tag, value);

	if (x->e[hole] == 0)
		return;
	for (uint32_t i = hole + 1; x->e[i] != 0; i++) {
		if (pfx_index_home(x, (uint32_t)(x->e[i] >> 32)) <= hole) {
			x->e[hole] = x->e[i];
			hole = i;
		}
	}
	x->e[hole] = 0;
	x->used--;
}

void pfx_index__move(struct pfx_index *x, uint32_t tag, uint32_t from, uint32_t to)
{
	uint32_t i = place_of(x, tag, from);

	if (x->e[i] != 0)
		x->e[i] = (uint64_t)tag << 32 | to;
}
