/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_KVMAP_PVT_H
#define KVR_KVMAP_PVT_H

/**
 * @file
 * The table (kvmap.c) below the events (events.c), which store blocks (translate.c, lower_tiers.c)
 * and remove them (remove.c).
 *
 *	buckets: [10 tags|over|10 places] ...  open addressing by cache lines; `over` of a bucket
 *	                          |            counts entries that found it full
 *	entries: [ ][E][E][ ][E]....           a ring: `next` goes round and skips used entries
 *	                      ^next            while others are free, so eviction is nearly in
 *	                                       order of age; the ring grows to a quarter more
 *	                                       entries than are in use
 */

#include <string.h>

#include "kvr_bucket.h"
#include "kvr_kvmap.h"
#include "kvr_prefetch.h"

#define KVMAP_RUN   4096u /* blocks per run in a dump, and per report */
#define KVMAP_FIRST 1024u /* initial entries of the ring */
#define KVMAP_NEXT  40u	  /* entries of look-ahead for prefetching */

/* Data to find and remove a block; four per cache line. */
struct kvmap_entry {
	uint64_t name; /* name given by the engine */
	uint64_t sh;
};

/* Data that only later blocks and dumps need. */
struct kvmap_origin {
	uint64_t parent;
	uint64_t seed; /* of the chain: adapter and cache namespace */
};

/* Tiers of a block, one bit each; none: the entry is free. Without KVMAP_COPIES the block has one
 * copy in each of these tiers, and `copies` of the entry is undefined. */
#define KVMAP_TIERS	 0x0fu
#define KVMAP_LINKED	 0x20u
#define KVMAP_COPIES	 0x40u
#define KVMAP_HAS_PARENT 0x80u
_Static_assert(KVR_TIERS <= 4, "bits");

/*
 * Plain words, because the compiler handles structs badly here. A key holds the home bucket of a
 * name and, in the lower 16 bits, its tag. A result holds the bucket, the place in the bucket (4
 * bits) and, in the lower half, the entry + 1; 0: not found. A result is valid until the next add
 * or delete.
 */
#define KVMAP_HOME(key)	       ((uint32_t)((key) >> 16))
#define KVMAP_TAG(key)	       ((uint16_t)(key))
#define KVMAP_POS(found)       ((uint32_t)(found))
#define KVMAP_AT(found)	       ((uint32_t)((found) >> 36))
#define KVMAP_PLACE(found)     ((uint32_t)((found) >> 32) & 15u)
#define KVMAP_FOUND(b, i, pos) ((uint64_t)(b) << 36 | (uint64_t)(i) << 32 | (pos))

/* Knowledge about the engine's cache group of full attention. */
enum kvmap_group {
	KVMAP_NO_GROUP = 0,
	KVMAP_GROUP_PRESUMED, /* the first group that stored, of unknown kind */
	KVMAP_GROUP_KNOWN,
};

struct kvr_kvmap {
	struct kvr_kvmap_out out;
	uint32_t block_size, learned;
	bool learned_eagle;
	uint32_t max, n;
	uint32_t ring, next; /* entries of the ring; position of the next entry */
	uint32_t gap;	     /* free entries known to follow that position */
	uint32_t ring_most;
	uint32_t n_buckets;
	uint64_t seed;
	struct kvmap_entry *entries;
	struct kvmap_origin *origins;
	uint8_t *tiers; /* by entry, with KVMAP_HAS_PARENT, KVMAP_COPIES and KVMAP_LINKED */
	uint32_t (*copies)[KVR_TIERS]; /* by entry: copies beyond the first */
	struct kvr_bucket *buckets;
	/* If names are linked: the newest name of each block, by sh (entry + 1, 0: none), and for
	 * each entry the next newer name of its block; the newest links to the oldest. */
	uint32_t *newest, *newer;
	uint32_t newest_mask;
	enum kvmap_group group_state;
	uint32_t group; /* group of the blocks in the table */
	uint64_t *sh;	/* names of the event being stored */
	uint32_t cap_sh;
	uint32_t chunk;	 /* maximum blocks per name in a lower tier; 0: no name covers several */
	uint64_t *parts; /* block names of chunks of the event being stored */
	uint32_t cap_parts;
	uint64_t run[KVMAP_RUN];
	struct kvr_kvmap_stats st;
};

/** Search a name beyond its home bucket. */
uint64_t kvr_kvmap__search(const struct kvr_kvmap *map, uint64_t name, uint64_t key);

/** The next free entry of the ring; evicts the oldest if there is none. */
uint32_t kvr_kvmap__free_entry(struct kvr_kvmap *map);

/** Position behind the ring's last entry: the first entry, or a new one. */
uint32_t kvr_kvmap__round(struct kvr_kvmap *map);

/** Enter a name that was not found; beyond its home bucket if that is full. */
void kvr_kvmap__put(struct kvr_kvmap *map, uint64_t key, uint32_t pos);

/** Forget a name. The block leaves each tier in which it has no other name. */
void kvr_kvmap__forget(struct kvr_kvmap *map, uint32_t e);

/** alias.c: link the names of each block from now on; the table is empty. @return 0 or -ENOMEM. */
int kvr_kvmap__link_names(struct kvr_kvmap *map);

/** Link entry @p e. @return the entry to forget because the block has too many names; UINT32_MAX:
 * none. */
uint32_t kvr_kvmap__link(struct kvr_kvmap *map, uint32_t e);

/** Unlink entry @p e. */
void kvr_kvmap__unlink(struct kvr_kvmap *map, uint32_t e);

/** Return true if a dump lists the block of entry @p e in the tier under another name. */
bool kvr_kvmap__is_repeated(const struct kvr_kvmap *map, uint32_t e, enum kvr_tier tier);

/** Return true if another name of the block of entry @p e is in the tier. */
bool kvr_kvmap__is_shared(const struct kvr_kvmap *map, uint32_t e, enum kvr_tier tier);

/** translate.c: store blocks of the table's size, with tokens. @return 0 or -ENOMEM. */
int kvr_kvmap__store(struct kvr_kvmap *map, const struct kvr_kvev *ev);

/** Number of leading blocks of the event that can be named; the others are counted. */
uint32_t kvr_kvmap__usable(struct kvr_kvmap *map, const struct kvr_kvev *ev);

/** Add a known block to the tier of the event. @return false: the block is unknown. */
bool kvr_kvmap__move(struct kvr_kvmap *map, const struct kvr_kvev *ev, uint64_t name);

/** lower_tiers.c: store blocks with tokens in a tier below the device. @return 0 or -ENOMEM. */
int kvr_kvmap__store_lower(struct kvr_kvmap *map, const struct kvr_kvev *ev);

/** Remove the remaining blocks of names that may be chunks. */
void kvr_kvmap__remove_parts(struct kvr_kvmap *map, const struct kvr_kvev *ev);

/** remove.c: remove the blocks of a valid event. @return the number of unknown names. */
uint32_t kvr_kvmap__remove(struct kvr_kvmap *map, const struct kvr_kvev *ev);

/** Delete an entry that was found. */
void kvr_kvmap__del(struct kvr_kvmap *map, uint64_t key, uint64_t found);

/** Count one more copy of a block that is in the tier. */
static inline void kvmap_add_copy(struct kvr_kvmap *map, uint32_t e, enum kvr_tier tier)
{
	if ((map->tiers[e] & KVMAP_COPIES) == 0)
		memset(map->copies[e], 0, sizeof(map->copies[e]));
	map->tiers[e] |= KVMAP_COPIES;
	map->copies[e][tier] += map->copies[e][tier] != UINT32_MAX;
}

/** Drop one copy of a block that is in the tier. @return false: it was the last copy, which the
 * caller must remove. */
static inline bool kvmap_drop_copy(struct kvr_kvmap *map, uint32_t e, enum kvr_tier tier)
{
	if ((map->tiers[e] & KVMAP_COPIES) == 0 || map->copies[e][tier] == 0)
		return false;
	map->copies[e][tier]--;
	return true;
}

/** Fields of the table for loops over many names: copied, so that the compiler need not reload them
 * after each store. Valid for the lifetime of the table. */
struct kvmap_view {
	struct kvr_bucket *buckets;
	struct kvmap_entry *entries;
	struct kvmap_origin *origins;
	uint8_t *tiers;
	uint64_t seed;
	uint32_t n_buckets;
};

static inline struct kvmap_view kvmap_view(const struct kvr_kvmap *map)
{
	return (struct kvmap_view){map->buckets, map->entries, map->origins,
				   map->tiers,	 map->seed,    map->n_buckets};
}

static inline uint64_t kvmap_key(const struct kvmap_view *v, uint64_t name)
{
	uint64_t h = (name ^ v->seed) * UINT64_C(0x9e3779b97f4a7c15);

	h ^= h >> 32;
	h *= UINT64_C(0xd6e8feb86659fd93);
	return (h >> 32) * v->n_buckets >> 32 << 16 | (uint16_t)((uint16_t)h + ((uint16_t)h == 0));
}

static inline void kvmap_prefetch(const struct kvmap_view *v, uint64_t key)
{
	kvr_prefetch(&v->buckets[KVMAP_HOME(key)]);
}

/** Most likely entry of a key. The guess is right if that entry, which is prefetched, has the name
 * and is in a tier; the tag is then the entry's. (A place keeps the number of its last entry. An
 * entry outside its home bucket found that bucket full when it came, so no place of the bucket had
 * its number last.) */
struct kvmap_guess {
	uint16_t *tag;
	uint32_t entry;
};

static inline struct kvmap_guess kvmap_guess(const struct kvmap_view *v, uint64_t key)
{
	struct kvr_bucket *b = &v->buckets[KVMAP_HOME(key)];
	/* Without a matching tag the guess is arbitrary, and wrong. */
	const uint32_t same = kvr_bucket_tags(b, KVMAP_TAG(key)) | 1u << (KVR_BUCKET - 1);
	const uint32_t i = (uint32_t)__builtin_ctz(same), pos = b->value[i];
	const struct kvmap_guess g = {&b->tag[i], pos - (pos != 0)};

	kvr_prefetch(&v->entries[g.entry]);
	return g;
}

static inline uint64_t kvmap_find(const struct kvr_kvmap *map, const struct kvmap_view *v,
				  uint64_t name, uint64_t key)
{
	const struct kvr_bucket *b = &v->buckets[KVMAP_HOME(key)];
	const uint32_t same = kvr_bucket_tags(b, KVMAP_TAG(key));

	if ((same | b->over) == 0)
		return 0;
	if (same != 0) {
		const uint32_t i = (uint32_t)__builtin_ctz(same), pos = b->value[i];

		if (v->entries[pos - 1].name == name)
			return KVMAP_FOUND(KVMAP_HOME(key), i, pos);
	}
	return kvr_kvmap__search(map, name, key);
}

static inline void kvmap_take_entry(struct kvr_kvmap *map, uint32_t e)
{
	map->n++;
	map->gap -= map->gap != 0;
	map->next = e + 1 == map->ring ? kvr_kvmap__round(map) : e + 1;
}

/** Take the next entry for a new block with room in its home bucket, and write everything but the
 * entry. @return UINT32_MAX: not possible; nothing was changed. */
static inline uint32_t kvmap_add_home(struct kvr_kvmap *map, const struct kvmap_view *v,
				      uint64_t key)
{
	struct kvr_bucket *b = &v->buckets[KVMAP_HOME(key)];
	const uint32_t same = kvr_bucket_tags(b, KVMAP_TAG(key)), is = kvr_bucket_tags(b, 0);
	const uint32_t e = map->next;

	if ((same | b->over) != 0 || is == 0 || v->tiers[e] != 0 || map->n >= map->max)
		return UINT32_MAX;
	kvr_prefetch(&v->entries[e] + KVMAP_NEXT);
	kvr_prefetch(&v->origins[e] + KVMAP_NEXT);
	b->tag[__builtin_ctz(is)] = KVMAP_TAG(key);
	b->value[__builtin_ctz(is)] = e + 1;
	kvmap_take_entry(map, e);
	return e;
}

/** Add an entry, in no tier yet, under a name that was not found. */
static inline uint32_t kvmap_add(struct kvr_kvmap *map, const struct kvmap_view *v, uint64_t name,
				 uint64_t key)
{
	const uint32_t e = map->n < map->max && v->tiers[map->next] == 0
				   ? map->next
				   : kvr_kvmap__free_entry(map);
	struct kvr_bucket *b = &v->buckets[KVMAP_HOME(key)];
	const uint32_t is = kvr_bucket_tags(b, 0);

	kvr_prefetch(&v->entries[e] + KVMAP_NEXT);
	kvr_prefetch(&v->origins[e] + KVMAP_NEXT);
	if (is != 0) {
		b->tag[__builtin_ctz(is)] = KVMAP_TAG(key);
		b->value[__builtin_ctz(is)] = e + 1;
	} else {
		kvr_kvmap__put(map, key, e + 1);
	}
	v->entries[e].name = name;
	kvmap_take_entry(map, e);
	return e;
}

#endif
