/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_BUCKET_H
#define KVR_BUCKET_H

/**
 * @file
 * A bucket of a hash table, one cache line: ten values with a 16-bit tag of their hashes, all
 * compared at once, and the number of values that belong here but overflowed into a later bucket.
 * The table defines the probe order and the meaning of a value: the index of lib/prefix, the map of
 * lib/kvev. One writer, no concurrent readers.
 */

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <stdint.h>

#define KVR_BUCKET 10u
#define KVR_BUCKET_FILL                                                                            \
	7u /* average values per bucket at full load; 10 % of the buckets overflow */

struct kvr_bucket {
	_Alignas(64) uint16_t tag[KVR_BUCKET]; /* tag of a value, never 0; 0 = free place */
	uint32_t over;			       /* values that overflowed from this bucket */
	uint32_t value[KVR_BUCKET];	       /* never 0 where the tag is set */
};
_Static_assert(sizeof(struct kvr_bucket) == 64, "one line");

/** Places with this tag, as bits; tag 0 finds the free places. */
static inline uint32_t kvr_bucket_tags(const struct kvr_bucket *b, uint16_t tag)
{
#ifdef __SSE2__
	const __m128i want = _mm_set1_epi16((short)tag);
	const __m128i *v = (const void *)b;
	const __m128i same = _mm_packs_epi16(_mm_cmpeq_epi16(_mm_load_si128(&v[0]), want),
					     _mm_cmpeq_epi16(_mm_load_si128(&v[1]), want));

	return (uint32_t)_mm_movemask_epi8(same) & ((1u << KVR_BUCKET) - 1);
#else
	uint32_t bits = 0;

	for (uint32_t i = 0; i < KVR_BUCKET; i++)
		bits |= (uint32_t)(b->tag[i] == tag) << i;
	return bits;
#endif
}

#endif
