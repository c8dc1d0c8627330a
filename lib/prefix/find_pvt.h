/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PREFIX_FIND_PVT_H
#define PREFIX_FIND_PVT_H

/* Where the writer finds blocks: through its index, and on along a run. */

#include "prefix_pvt.h"

static inline struct pfx_loc pfx_loc_of(const struct kvr_prefix *t, uint32_t slot)
{
	struct pfx_chunk_info c = t->chunk[slot / PFX_CHUNK];

	return (struct pfx_loc){c.meta, c.ord * PFX_CHUNK + slot % PFX_CHUNK -
						pfx_hdr_of(t, c.meta)->start};
}

/* Slot of `sh`, and in `*at` its entry; or 0, and where it may be added, if there is room. */
static inline uint32_t pfx_index_find(const struct kvr_prefix *t, uint64_t mix, uint64_t sh,
				      uint32_t *at)
{
	const uint16_t tag = pfx_index_tag(mix);

	*at = PFX_NOWHERE;
	for (uint32_t i = pfx_index_home(&t->index, mix);; i++) {
		const struct kvr_bucket *b = &t->index.b[i];
		struct pfx_masks m = pfx_index_masks(b, tag);

		for (; m.tag != 0; m.tag &= m.tag - 1) {
			const uint32_t place = (uint32_t)__builtin_ctz(m.tag),
				       slot = b->value[place];

			if (t->sh[slot] == sh) {
				*at = PFX_AT(i, place);
				return slot;
			}
		}
		if (m.empty != 0 && *at == PFX_NOWHERE)
			*at = PFX_AT(i, (uint32_t)__builtin_ctz(m.empty));
		if (likely(b->over == 0 && *at != PFX_NOWHERE))
			return 0;
	}
}

/* The place of a block; meta PFX_NONE: nowhere. */
static inline struct pfx_loc pfx_find(const struct kvr_prefix *t, uint64_t sh)
{
	uint32_t at, slot = pfx_index_find(t, pfx_mix(t, sh), sh, &at);

	return slot ? pfx_loc_of(t, slot) : (struct pfx_loc){PFX_NONE, 0};
}

/* How many of the n SHs stand in the run one behind the other from `at` on. */
static inline uint32_t pfx_same(const struct kvr_prefix *t, struct pfx_loc at, const void *sh,
				uint32_t n)
{
	struct pfx_hdr *h = pfx_hdr_of(t, at.meta);
	uint32_t len = pfx_len(h), i = 0;

	n = RTE_MIN(n, len - at.off);
	while (i < n) {
		uint32_t place = (h->start + at.off + i) % PFX_CHUNK;
		uint32_t k = RTE_MIN(PFX_CHUNK - place, n - i);
		const uint64_t *p = pfx_sh(t, h, at.off + i);

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
