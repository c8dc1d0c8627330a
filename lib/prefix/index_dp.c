/* SPDX-License-Identifier: BSD-3-Clause */

#include "index_pvt.h"

#include <errno.h>

/* Buckets for n values. */
void kvr_prefix__index_size(struct pfx_index *x, uint32_t n)
{
	x->buckets = n / KVR_BUCKET_FILL + 1;
	x->end = x->buckets + PFX_SPARE;
}

int kvr_prefix__index_add(struct pfx_index *x, uint64_t mix, uint32_t value)
{
	for (uint32_t b = pfx_index_home(x, mix);; b++) {
		uint32_t empty = pfx_index_masks(&x->b[b], 0).empty, at;

		if (empty == 0)
			continue;
		at = PFX_AT(b, (uint32_t)__builtin_ctz(empty));
		if (!pfx_index_is_room(x, at))
			return -ENOSPC;
		pfx_index_put(x, mix, at, value);
		return 0;
	}
}

/* Where the entry is, or PFX_NOWHERE. */
static uint32_t place_of(const struct pfx_index *x, uint64_t mix, uint32_t value)
{
	for (uint32_t b = pfx_index_home(x, mix);; b++) {
		uint32_t m = pfx_index_masks(&x->b[b], pfx_index_tag(mix)).tag;

		for (; m != 0; m &= m - 1) {
			if (x->b[b].value[__builtin_ctz(m)] == value)
				return PFX_AT(b, (uint32_t)__builtin_ctz(m));
		}
		if (x->b[b].over == 0)
			return PFX_NOWHERE;
	}
}

void kvr_prefix__index_del(struct pfx_index *x, uint64_t mix, uint32_t value)
{
	uint32_t at = place_of(x, mix, value);

	if (at != PFX_NOWHERE)
		pfx_index_clear(x, mix, at);
}

void kvr_prefix__index_move(struct pfx_index *x, uint64_t mix, uint32_t from, uint32_t to)
{
	uint32_t at = place_of(x, mix, from);

	if (at != PFX_NOWHERE)
		x->b[PFX_AT_BUCKET(at)].value[PFX_AT_PLACE(at)] = to;
}
