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

#include "kvr_bucket.h"
#include "kvr_prefetch.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PFX_SPARE 64u /* buckets at the end, for what the last ones displace; the last is empty */

struct pfx_index {
	struct kvr_bucket *b;
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

static inline struct pfx_masks pfx_index_masks(const struct kvr_bucket *b, uint16_t tag)
{
	return (struct pfx_masks){kvr_bucket_tags(b, tag), kvr_bucket_tags(b, 0)};
}

/* The last bucket stays empty: it ends every search for a free place. */
static inline bool pfx_index_is_room(const struct pfx_index *x, uint32_t at)
{
	return PFX_AT_BUCKET(at) + 1 < x->end;
}

/* An entry to the first free place from its home on, for which there is room. */
static inline void pfx_index_put(struct pfx_index *x, uint64_t mix, uint32_t at, uint32_t value)
{
	struct kvr_bucket *b = &x->b[PFX_AT_BUCKET(at)];

	for (struct kvr_bucket *past = &x->b[pfx_index_home(x, mix)]; past < b; past++)
		past->over++;
	b->tag[PFX_AT_PLACE(at)] = pfx_index_tag(mix);
	b->value[PFX_AT_PLACE(at)] = value;
	x->used++;
}

/* The entry that stands there goes. */
static inline void pfx_index_clear(struct pfx_index *x, uint64_t mix, uint32_t at)
{
	struct kvr_bucket *b = &x->b[PFX_AT_BUCKET(at)];

	for (struct kvr_bucket *past = &x->b[pfx_index_home(x, mix)]; past < b; past++)
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
