/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef INDEX_PVT_H
#define INDEX_PVT_H

/*
 * The writer's index from a 64-bit hash to a 32-bit value. A bucket is one cache line of ten
 * entries; 16 bits of the hash are compared for all entries at once. An entry is in its home bucket
 * or, if that was full, in the next bucket with a free place. Each bucket counts the entries that
 * passed it, so a search ends at the first bucket that no entry passed. A deletion clears one place
 * and decrements those counts: there are no tombstones, and nothing moves. The caller tells values
 * with equal tags apart.
 *
 * Cost: one cache line per lookup and few unpredictable branches. Linear probing of single entries
 * took twice the time, mostly in mispredicted loop ends. Nine bytes per value when full; 13 with
 * tags of 32 bits.
 */

#include "kvr_bucket.h"
#include "kvr_prefetch.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PFX_SPARE 64u /* spare buckets for displaced entries; the very last one stays empty */

struct pfx_index {
	struct kvr_bucket *b;
	uint32_t buckets; /* home buckets */
	uint32_t end;	  /* all buckets */
	uint32_t used;
};

/* An entry or a free place: bucket * 16 + place. */
#define PFX_AT(bucket, place) ((bucket) << 4 | (place))
#define PFX_AT_BUCKET(at)     ((at) >> 4)
#define PFX_AT_PLACE(at)      ((at)&15u)
#define PFX_NOWHERE	      UINT32_MAX

/* Bit i of `tag`: entry i of the bucket has the tag. Bit i of `empty`: entry i is free. */
struct pfx_masks {
	uint32_t tag, empty;
};

/* The upper half of the hash selects the home bucket, the lowest 16 bits are the tag. */
static inline uint32_t pfx_index_home(const struct pfx_index *index, uint64_t mix)
{
	return (uint32_t)((mix >> 32) * index->buckets >> 32);
}

static inline uint16_t pfx_index_tag(uint64_t mix)
{
	return (uint16_t)(((uint16_t)mix) + ((uint16_t)mix == 0));
}

static inline void pfx_index_prefetch(const struct pfx_index *index, uint64_t mix)
{
	kvr_prefetch(&index->b[pfx_index_home(index, mix)]);
}

static inline struct pfx_masks pfx_index_masks(const struct kvr_bucket *bucket, uint16_t tag)
{
	return (struct pfx_masks){kvr_bucket_tags(bucket, tag), kvr_bucket_tags(bucket, 0)};
}

/* The last bucket stays empty: it ends every search for a free place. */
static inline bool pfx_index_has_room(const struct pfx_index *index, uint32_t at)
{
	return PFX_AT_BUCKET(at) + 1 < index->end;
}

/*
 * Put a value into `at`, the first free place from its home bucket on. The caller has checked
 * pfx_index_has_room().
 */
static inline void pfx_index_put(struct pfx_index *index, uint64_t mix, uint32_t at, uint32_t value)
{
	struct kvr_bucket *bucket = &index->b[PFX_AT_BUCKET(at)];

	for (struct kvr_bucket *past = &index->b[pfx_index_home(index, mix)]; past < bucket; past++)
		past->over++;
	bucket->tag[PFX_AT_PLACE(at)] = pfx_index_tag(mix);
	bucket->value[PFX_AT_PLACE(at)] = value;
	index->used++;
}

/* Remove the entry at `at`. */
static inline void pfx_index_clear(struct pfx_index *index, uint64_t mix, uint32_t at)
{
	struct kvr_bucket *bucket = &index->b[PFX_AT_BUCKET(at)];

	for (struct kvr_bucket *past = &index->b[pfx_index_home(index, mix)]; past < bucket; past++)
		past->over--;
	bucket->tag[PFX_AT_PLACE(at)] = 0;
	bucket->value[PFX_AT_PLACE(at)] = 0;
	index->used--;
}

void kvr_prefix__index_size(struct pfx_index *index, uint32_t n);
int kvr_prefix__index_add(struct pfx_index *index, uint64_t mix, uint32_t value);
void kvr_prefix__index_del(struct pfx_index *index, uint64_t mix, uint32_t value);
void kvr_prefix__index_move(struct pfx_index *index, uint64_t mix, uint32_t from, uint32_t to);

#endif
