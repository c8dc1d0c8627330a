/* SPDX-License-Identifier: BSD-3-Clause */

#include "index_pvt.h"

#include <errno.h>

int kvr_prefix__index_add(struct pfx_index *x, uint32_t tag, uint32_t value)
{
	for (uint32_t i = pfx_index_home(x, tag) * PFX_BUCKET;; i += PFX_BUCKET) {
		uint32_t empty = pfx_index_masks(&x->e[i], tag).empty;

		/* The last bucket stays empty: it ends every search. */
		if (i + PFX_BUCKET >= x->end)
			return -ENOSPC;
		if (empty == 0)
			continue;
		x->e[i + (uint32_t)__builtin_ctz(empty)] = (uint64_t)tag << 32 | value;
		x->used++;
		return 0;
	}
}

/* Entry number, or the number of entries when it is not there; tells whether the bucket is full. */
static uint32_t place_of(const struct pfx_index *x, uint32_t tag, uint32_t value, bool *full)
{
	for (uint32_t i = pfx_index_home(x, tag) * PFX_BUCKET;; i += PFX_BUCKET) {
		struct pfx_masks m = pfx_index_masks(&x->e[i], tag);

		for (*full = m.empty == 0; m.tag != 0; m.tag &= m.tag - 1) {
			uint32_t at = i + (uint32_t)__builtin_ctz(m.tag);

			if ((uint32_t)x->e[at] == value)
				return at;
		}
		if (!*full)
			return x->end;
	}
}

/* An entry behind bucket `b` that would rather be in it or before; 0: none. */
static uint32_t displaced(const struct pfx_index *x, uint32_t b, bool *full)
{
	for (uint32_t i = (b + 1) * PFX_BUCKET; *full; i += PFX_BUCKET) {
		*full = pfx_index_masks(&x->e[i], 0).empty == 0;
		for (uint32_t k = i; k < i + PFX_BUCKET; k++) {
			if (x->e[k] != 0 && pfx_index_home(x, (uint32_t)(x->e[k] >> 32)) <= b)
				return k;
		}
	}
	return 0;
}

void kvr_prefix__index_del(struct pfx_index *x, uint32_t tag, uint32_t value)
{
	bool full;
	uint32_t hole = place_of(x, tag, value, &full), from;

	if (hole == x->end)
		return;
	while (full) {
		from = displaced(x, hole / PFX_BUCKET, &full);
		if (from == 0)
			break;
		x->e[hole] = x->e[from];
		hole = from;
	}
	x->e[hole] = 0;
	x->used--;
}

void kvr_prefix__index_move(struct pfx_index *x, uint32_t tag, uint32_t from, uint32_t to)
{
	bool full;
	uint32_t i = place_of(x, tag, from, &full);

	if (i != x->end)
		x->e[i] = (uint64_t)tag << 32 | to;
}
