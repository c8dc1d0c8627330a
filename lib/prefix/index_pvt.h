/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef INDEX_PVT_H
#define INDEX_PVT_H

/*
 * The writer's index, 64-bit hash to 32-bit value: buckets of one cache line, ten entries each, of
 * which 16 bits of the hash are compared at once. An entry lives in its home bucket or, while that
 * is full, in the next that is not. Each bucket counts the entries that went past it, so a search
 * ends where nothing did, and a deletion clears its own place and those counts: no tombstones, and
 * nothing is moved. Values under one tag are told apart by the caller.
 *
 * One line a lookup, and few branches to mispredict: linear probing by single entries took twice
 * the time, most of it in the unpredictable ends of its loops. Nine bytes a value when full, 13
 * with tags of 32 bits.
 */

#include "kvr_prefetch.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PFX_BUCKET 10u
#define PFX_FILL   7u  /* entries of a bucket when all is full: one in ten has more than places */
#define PFX_SPARE  64u /* buckets at the end, for what the last ones displace; the last is empty */

struct pfx_bucket {
	uint16_t tag[PFX_BUCKET];   /* of an entry, never 0; 0: a free place */
	uint32_t over;		    /* entries of this bucket or one before that stand behind it */
	uint32_t value[PFX_BUCKET]; /* never 0 */
};
_Static_assert(sizeof(struct pfx_bucket) == 64, "one line");

struct pfx_index {
	struct pfx_bucket *b;
	uint32_t buckets; /* homes */
	uint32_t end;	  /* all buckets */
	uint32_t used;
};

/* Where an entry is or may be: bucket * 16 + place. */
#define PFX_AT(bucket, place) ((bucket) << 4 | (place))
#define PFX_AT_BUCKET(at)     ((at) >> 4)
#define PFX_AT_PLACE(at)      ((at)&15u)
#define PFX_NOWHERE	      UINT32_MAX

/* Bit i: entry i of the bucket has this tag; is free. */
struct pfx_masks {
	uint32_t tag, empty;
};

/* The upper half of the hash says where, the lowest bits what. */
static inline uint32_t pfx_index_home(const struct pfx_index *x, uint64_t mix)
{
	return (uint32_t)((mix >> 32) * x->buckets >> 32);
}

static inline uint16_t pfx_index_tag(uint64_t mix)
{
	return (uint16_t)(((uint16_t)mix) + ((uint16_t)mix == 0));
}

static inline void pfx_index_prefetch(const struct pfx_index *x, uint64_t mix)
{
	kvr_prefetch(&x->b[pfx_index_home(x, mix)]);
}

#ifdef __SSE2__
#include <emmintrin.h>

static inline uint32_t pfx_eq10(__m128i a, __m128i b, __m128i with)
{
	__m128i w = _mm_packs_epi16(_mm_cmpeq_epi16(a, with), _mm_cmpeq_epi16(b, with));

	return (uint32_t)_mm_movemask_epi8(w) & ((1u << PFX_BUCKET) - 1);
}

static inline struct pfx_masks pfx_index_masks(const struct pfx_bucket *b, uint16_t tag)
{
	const __m128i *v = (const __m128i *)(const void *)b;
	__m128i low = _mm_load_si128(&v[0]), high = _mm_load_si128(&v[1]);

	return (struct pfx_masks){pfx_eq10(low, high, _mm_set1_epi16((short)tag)),
				  pfx_eq10(low, high, _mm_setzero_si128())};
}
#else
static inline struct pfx_masks pfx_index_masks(const struct pfx_bucket *b, uint16_t tag)
{
	struct pfx_masks m = {0, 0};

	for (uint32_t i = 0; i < PFX_BUCKET; i++) {
		m.empty |= (uint32_t)(b->tag[i] == 0) << i;
		m.tag |= (uint32_t)(b->tag[i] == tag) << i;
	}
	return m;
}
#endif

/* The last bucket stays empty: it ends every search for a free place. */
static inline bool pfx_index_is_room(const struct pfx_index *x, uint32_t at)
{
	return PFX_AT_BUCKET(at) + 1 < x->end;
}

/* An entry to the first free place from its home on, for which there is room. */
static inline void pfx_index_put(struct pfx_index *x, uint64_t mix, uint32_t at, uint32_t value)
{
	struct pfx_bucket *b = &x->b[PFX_AT_BUCKET(at)];

	for (struct pfx_bucket *past = &x->b[pfx_index_home(x, mix)]; past < b; past++)
		past->over++;
	b->tag[PFX_AT_PLACE(at)] = pfx_index_tag(mix);
	b->value[PFX_AT_PLACE(at)] = value;
	x->used++;
}

/* The entry that stands there goes. */
static inline void pfx_index_clear(struct pfx_index *x, uint64_t mix, uint32_t at)
{
	struct pfx_bucket *b = &x->b[PFX_AT_BUCKET(at)];

	for (struct pfx_bucket *past = &x->b[pfx_index_home(x, mix)]; past < b; past++)
		past->over--;
	b->tag[PFX_AT_PLACE(at)] = 0;
	b->value[PFX_AT_PLACE(at)] = 0;
	x->used--;
}

void kvr_prefix__index_size(struct pfx_index *x, uint32_t n);
int kvr_prefix__index_add(struct pfx_index *x, uint64_t mix, uint32_t value);
void kvr_prefix__index_del(struct pfx_index *x, uint64_t mix, uint32_t value);
void kvr_prefix__index_move(struct pfx_index *x, uint64_t mix, uint32_t from, uint32_t to);

#endif
