/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The out-of-line operations of the writer's index. Those of the event path are inline in
 * index_pvt.h, which describes the structure.
 */

#include "index_pvt.h"

#include <errno.h>

/* Set the number of buckets for n values. */
void kvr_prefix__index_size(struct pfx_index *index, uint32_t n)
{
	index->buckets = n / KVR_BUCKET_FILL + 1;
	index->end = index->buckets + PFX_SPARE;
}

int kvr_prefix__index_add(struct pfx_index *index, uint64_t mix, uint32_t value)
{
	for (uint32_t b = pfx_index_home(index, mix);; b++) {
		uint32_t empty = pfx_index_masks(&index->b[b], 0).empty, at;

		if (empty == 0)
			continue;
		at = PFX_AT(b, (uint32_t)__builtin_ctz(empty));
		if (!pfx_index_has_room(index, at))
			return -ENOSPC;
		pfx_index_put(index, mix, at, value);
		return 0;
	}
}

/* The entry of `value`, or PFX_NOWHERE. */
static uint32_t locate_value(const struct pfx_index *index, uint64_t mix, uint32_t value)
{
	for (uint32_t b = pfx_index_home(index, mix);; b++) {
		uint32_t m = pfx_index_masks(&index->b[b], pfx_index_tag(mix)).tag;

		for (; m != 0; m &= m - 1) {
			if (index->b[b].value[__builtin_ctz(m)] == value)
				return PFX_AT(b, (uint32_t)__builtin_ctz(m));
		}
		if (index->b[b].over == 0)
			return PFX_NOWHERE;
	}
}

void kvr_prefix__index_del(struct pfx_index *index, uint64_t mix, uint32_t value)
{
	uint32_t at = locate_value(index, mix, value);

	if (at != PFX_NOWHERE)
		pfx_index_clear(index, mix, at);
}

void kvr_prefix__index_move(struct pfx_index *index, uint64_t mix, uint32_t from, uint32_t to)
{
	uint32_t at = locate_value(index, mix, from);

	if (at != PFX_NOWHERE)
		index->b[PFX_AT_BUCKET(at)].value[PFX_AT_PLACE(at)] = to;
}
