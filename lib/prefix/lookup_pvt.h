/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PREFIX_LOOKUP_PVT_H
#define PREFIX_LOOKUP_PVT_H

/* Block lookup by the writer: through its index, and onwards along a run. */

#include "prefix_pvt.h"

static inline struct pfx_loc pfx_loc_of(const struct kvr_prefix *table, uint32_t slot)
{
	struct pfx_chunk_info info = table->chunk[slot / PFX_CHUNK];

	return (struct pfx_loc){info.meta, info.ord * PFX_CHUNK + slot % PFX_CHUNK -
						   pfx_hdr_of(table, info.meta)->start};
}

/*
 * Slot of `sh`, with its entry in `*at`. If there is none: 0, with the place for a new entry in
 * `*at`.
 */
static inline uint32_t pfx_index_find(const struct kvr_prefix *table, uint64_t mix, uint64_t sh,
				      uint32_t *at)
{
	const uint16_t tag = pfx_index_tag(mix);

	*at = PFX_NOWHERE;
	for (uint32_t i = pfx_index_home(&table->index, mix);; i++) {
		const struct kvr_bucket *bucket = &table->index.b[i];
		struct pfx_masks masks = pfx_index_masks(bucket, tag);

		for (; masks.tag != 0; masks.tag &= masks.tag - 1) {
			const uint32_t place = (uint32_t)__builtin_ctz(masks.tag),
				       slot = bucket->value[place];

			if (table->sh[slot] == sh) {
				*at = PFX_AT(i, place);
				return slot;
			}
		}
		if (masks.empty != 0 && *at == PFX_NOWHERE)
			*at = PFX_AT(i, (uint32_t)__builtin_ctz(masks.empty));
		if (likely(bucket->over == 0 && *at != PFX_NOWHERE))
			return 0;
	}
}

/* Location of a block; meta is PFX_NONE if the table does not have it. */
static inline struct pfx_loc pfx_find(const struct kvr_prefix *table, uint64_t sh)
{
	uint32_t at, slot = pfx_index_find(table, pfx_mix(table, sh), sh, &at);

	return slot ? pfx_loc_of(table, slot) : (struct pfx_loc){PFX_NONE, 0};
}

/* Number of leading SHs of `sh` that equal the blocks of the run from `at` on. */
static inline uint32_t pfx_match_blocks(const struct kvr_prefix *table, struct pfx_loc at,
					const void *sh, uint32_t n)
{
	struct pfx_hdr *hdr = pfx_hdr_of(table, at.meta);
	uint32_t len = pfx_len(hdr), i = 0;

	n = RTE_MIN(n, len - at.off);
	while (i < n) {
		uint32_t place = (hdr->start + at.off + i) % PFX_CHUNK;
		uint32_t k = RTE_MIN(PFX_CHUNK - place, n - i);
		const uint64_t *p = pfx_sh(table, hdr, at.off + i);

		if (memcmp(p, (const char *)sh + (size_t)i * 8, k * 8) != 0) {
			while (*p == pfx_ld64(sh, i)) {
				p++;
				i++;
			}
			return i;
		}
		i += k;
	}
	return n;
}

#endif
