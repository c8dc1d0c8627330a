/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef INDEX_PVT_H
#define INDEX_PVT_H

/*
 * The writer's index, 32-bit tag to 32-bit value: buckets of one cache line, eight entries each,
 * compared at once. An entry lives in its home bucket or, while that is full, in the next that is
 * not. The home follows from the tag, so deletion can pull a displaced entry back without
 * reading anything else: no tombstones. Values under one tag are told apart by the caller.
 *
 * One line a lookup, and few branches to mispredict: linear probing by single entries took twice
 * the time, most of it in the unpredictable ends of its loops.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PFX_BUCKET 8u

/* entry = tag << 32 | value, 0 is empty; no value is 0. */
struct pfx_index {
	uint64_t *e;
	uint32_t buckets;
	uint32_t end; /* entries, with room for what the last bucket displaces */
	uint32_t used;
};

/* Bit i: entry i of the bucket has this tag; is empty. */
struct pfx_masks {
	uint32_t tag, empty;
};

static inline uint32_t pfx_index_home(const struct pfx_index *x, uint32_t tag)
{
	return (uint32_t)((uint64_t)tag * x->buckets >> 32);
}

static inline void pfx_index_prefetch(const struct pfx_index *x, uint32_t tag)
{
	__builtin_prefetch(&x->e[(size_t)pfx_index_home(x, tag) * PFX_BUCKET], 1, 3);
}

#ifdef __SSE2__
#include <emmintrin.h>

static inline uint32_t pfx_eq8(__m128i a, __m128i b, __m128i with)
{
	__m128i w = _mm_packs_epi32(_mm_cmpeq_epi32(a, with), _mm_cmpeq_epi32(b, with));

	return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(w, _mm_setzero_si128()));
}

static inline struct pfx_masks pfx_index_masks(const uint64_t *e, uint32_t tag)
{
	const __m128i *v = (const __m128i *)(const void *)e;
	__m128 a = _mm_castsi128_ps(_mm_load_si128(&v[0]));
	__m128 b = _mm_castsi128_ps(_mm_load_si128(&v[1]));
	__m128 c = _mm_castsi128_ps(_mm_load_si128(&v[2]));
	__m128 d = _mm_castsi128_ps(_mm_load_si128(&v[3]));
	__m128i tags = _mm_castps_si128(_mm_shuffle_ps(a, b, 0xdd));
	__m128i tags2 = _mm_castps_si128(_mm_shuffle_ps(c, d, 0xdd));
	__m128i values = _mm_castps_si128(_mm_shuffle_ps(a, b, 0x88));
	__m128i values2 = _mm_castps_si128(_mm_shuffle_ps(c, d, 0x88));
	struct pfx_masks m;

	m.empty = pfx_eq8(values, values2, _mm_setzero_si128());
	m.tag = pfx_eq8(tags, tags2, _mm_set1_epi32((int)tag)) & ~m.empty;
	return m;
}
#else
static inline struct pfx_masks pfx_index_masks(const uint64_t *e, uint32_t tag)
{
	struct pfx_masks m = {0, 0};

	for (uint32_t i = 0; i < PFX_BUCKET; i++) {
		m.empty |= (uint32_t)(e[i] == 0) << i;
		m.tag |= (uint32_t)(e[i] != 0 && e[i] >> 32 == tag) << i;
	}
	return m;
}
#endif

int kvr_prefix__index_add(struct pfx_index *x, uint32_t tag, uint32_t value);
void kvr_prefix__index_del(struct pfx_index *x, uint32_t tag, uint32_t value);
void kvr_prefix__index_move(struct pfx_index *x, uint32_t tag, uint32_t from, uint32_t to);

#endif
