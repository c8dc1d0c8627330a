/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_KVMAP_PVT_H
#define KVR_KVMAP_PVT_H

/**
 * @file
 * The table (kvmap.c) under the events (events.c) that store (translate.c, lower.c) and remove
 *blocks (remove.c).
 *
 *	buckets: [10 tags|over|10 places] ...  open addressing by lines of the cache; `over` of a
 *	                          |            bucket: entries that found it full
 *	entries: [ ][E][E][ ][E]....           a ring: `next` goes round, over what still lives when
 *	                      ^next            there is room elsewhere, so what is evicted is
 *	                                       nearly the oldest; it grows to a quarter more than
 *	                                       is held
 */

#include <string.h>

#include "kvr_bucket.h"
#include "kvr_kvmap.h"
#include "kvr_prefetch.h"

#define KVMAP_RUN   4096u /* blocks of a run in a dump, and of what is told at once */
#define KVMAP_FIRST 1024u /* entries of the ring at first */
#define KVMAP_NEXT  40u	  /* entries before one is written its line is asked for */

/* What is read to find a block and to take it out; four a line. */
struct kvmap_entry {
	uint64_t name; /* the engine's */
	uint64_t sh;
};

/* And what only those ask for that come after it, and dumps. */
struct kvmap_origin {
	uint64_t parent;
	uint64_t seed; /* of its chain: adapter and cache namespace */
};

/* Where a block is: a bit for each tier; none: the entry is free. Without KVMAP_COPIES the block
 * has one copy in each of them, and `copies` of the entry is undefined. */
#define KVMAP_TIERS	 0x0fu
#define KVMAP_LINKED	 0x20u
#define KVMAP_COPIES	 0x40u
#define KVMAP_HAS_PARENT 0x80u
_Static_assert(KVR_TIERS <= 4, "bits");

/*
 * Plain words, as a compiler takes structs apart where it hurts: a key is where a name is looked
 * for first and, in the lower 16 bits, its tag; what was found is the bucket and the place in it
 * (4 bits) and, in the lower half, the entry + 1; 0: it is not there. That holds until the next add
 * or del.
 */
#define KVMAP_HOME(key)	       ((uint32_t)((key) >> 16))
#define KVMAP_TAG(key)	       ((uint16_t)(key))
#define KVMAP_POS(found)       ((uint32_t)(found))
#define KVMAP_AT(found)	       ((uint32_t)((found) >> 36))
#define KVMAP_PLACE(found)     ((uint32_t)((found) >> 32) & 15u)
#define KVMAP_FOUND(b, i, pos) ((uint64_t)(b) << 36 | (uint64_t)(i) << 32 | (pos))

/* What is known of the engine's cache group of full attention. */
enum kvmap_group {
	KVMAP_NO_GROUP = 0,
	KVMAP_GROUP_PRESUMED, /* the first that stored, without a kind */
	KVMAP_GROUP_KNOWN,
};

struct kvr_kvmap {
	struct kvr_kvmap_out out;
	uint32_t block_size, learned;
	bool learned_eagle;
	uint32_t max, n;
	uint32_t ring, next; /* entries of the ring; where the next one goes */
	uint32_t gap;	     /* entries from there on that are known to be free */
	uint32_t ring_most;
	uint32_t n_buckets;
	uint64_t seed;
	struct kvmap_entry *entries;
	struct kvmap_origin *origins;
	uint8_t *tiers;		       /* by entry, with KVMAP_HAS_PARENT and KVMAP_COPIES */
	uint32_t (*copies)[KVR_TIERS]; /* by entry: copies beyond the first */
	struct kvr_bucket *buckets;
	/* Where names are linked: the newest name of each block, by sh (entry + 1, 0: none), and
	 * by entry the next newer one, of the newest the oldest. */
	uint32_t *newest, *newer;
	uint32_t newest_mask;
	enum kvmap_group group_state;
	uint32_t group; /* whose blocks the table holds */
	uint64_t *sh;	/* of the event being stored */
	uint32_t cap_sh;
	uint32_t chunk;	 /* most blocks of one name in a lower tier; 0: no name has several */
	uint64_t *parts; /* names of blocks of chunks, of the event being stored */
	uint32_t cap_parts;
	uint64_t run[KVMAP_RUN];
	struct kvr_kvmap_stats st;
};

/** Look for a name beyond its home. */
uint64_t kvr_kvmap__search(const struct kvr_kvmap *m, uint64_t name, uint64_t key);

/** The next entry of the ring that is free; the oldest goes when there is no room. */
uint32_t kvr_kvmap__free_entry(struct kvr_kvmap *m);

/** What comes behind the ring's last entry: its first, or one more. */
uint32_t kvr_kvmap__round(struct kvr_kvmap *m);

/** Under a name that was not found; beyond its home when that is full. */
void kvr_kvmap__put(struct kvr_kvmap *m, uint64_t key, uint32_t pos);

/** Forget a name: the block leaves the tiers that none of its other names is in. */
void kvr_kvmap__forget(struct kvr_kvmap *m, uint32_t e);

/** alias.c: link names of one block from now on, of an empty table. @return 0; -ENOMEM. */
int kvr_kvmap__link_names(struct kvr_kvmap *m);

/** An entry that is not linked yet. @return the entry to forget, as the block has too many names;
 * UINT32_MAX: none. */
uint32_t kvr_kvmap__link(struct kvr_kvmap *m, uint32_t e);

/** An entry that is linked. */
void kvr_kvmap__unlink(struct kvr_kvmap *m, uint32_t e);

/** Whether a dump lists the block under another name in the tier. */
bool kvr_kvmap__is_repeated(const struct kvr_kvmap *m, uint32_t e, enum kvr_tier tier);

/** Whether another name of the entry's block is in the tier. */
bool kvr_kvmap__is_shared(const struct kvr_kvmap *m, uint32_t e, enum kvr_tier tier);

/** translate.c: a store with tokens, of blocks of the table's size. @return 0; -ENOMEM. */
int kvr_kvmap__store(struct kvr_kvmap *m, const struct kvr_kvev *ev);

/** The blocks of that event that can be named; the others are counted. */
uint32_t kvr_kvmap__usable(struct kvr_kvmap *m, const struct kvr_kvev *ev);

/** A known block is stored in the tier of the event, too. @return false: it is not known. */
bool kvr_kvmap__move(struct kvr_kvmap *m, const struct kvr_kvev *ev, uint64_t name);

/** lower.c: a store with tokens in a tier below the device. @return 0; -ENOMEM. */
int kvr_kvmap__store_lower(struct kvr_kvmap *m, const struct kvr_kvev *ev);

/** Remove the other blocks of names that may be those of chunks. */
void kvr_kvmap__remove_parts(struct kvr_kvmap *m, const struct kvr_kvev *ev);

/** remove.c: an event without fault that removes blocks. @return names that were not there. */
uint32_t kvr_kvmap__remove(struct kvr_kvmap *m, const struct kvr_kvev *ev);

/** Take one out that was found. */
void kvr_kvmap__del(struct kvr_kvmap *m, uint64_t key, uint64_t found);

/** Count one more copy of a block that is in the tier. */
static inline void kvmap_add_copy(struct kvr_kvmap *m, uint32_t e, enum kvr_tier tier)
{
	if ((m->tiers[e] & KVMAP_COPIES) == 0)
		memset(m->copies[e], 0, sizeof(m->copies[e]));
	m->tiers[e] |= KVMAP_COPIES;
	m->copies[e][tier] += m->copies[e][tier] != UINT32_MAX;
}

/** Drop one copy of a block that is in the tier. @return false: it was the last, which remains for
 * the caller to take out. */
static inline bool kvmap_drop_copy(struct kvr_kvmap *m, uint32_t e, enum kvr_tier tier)
{
	if ((m->tiers[e] & KVMAP_COPIES) == 0 || m->copies[e][tier] == 0)
		return false;
	m->copies[e][tier]--;
	return true;
}

/** What a loop over many names has at hand: the map's words are not these, for all that the
 * compiler knows after each that is written. Right for the map's life. */
struct kvmap_view {
	struct kvr_bucket *buckets;
	struct kvmap_entry *entries;
	struct kvmap_origin *origins;
	uint8_t *tiers;
	uint64_t seed;
	uint32_t n_buckets;
};

static inline struct kvmap_view kvmap_view(const struct kvr_kvmap *m)
{
	return (struct kvmap_view){m->buckets, m->entries, m->origins,
				   m->tiers,   m->seed,	   m->n_buckets};
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

/** What a key most likely leads to. It is right when the entry there, which is asked for, is of
 * that name and in a tier: the tag is its then. (A place keeps the entry of the one that it had
 * last. One that lives elsewhere found its home full when it came, so no place there had its entry
 * last.) */
struct kvmap_guess {
	uint16_t *tag;
	uint32_t entry;
};

static inline struct kvmap_guess kvmap_guess(const struct kvmap_view *v, uint64_t key)
{
	struct kvr_bucket *b = &v->buckets[KVMAP_HOME(key)];
	/* Without one of this tag it is any, and wrong. */
	const uint32_t same = kvr_bucket_tags(b, KVMAP_TAG(key)) | 1u << (KVR_BUCKET - 1);
	const uint32_t i = (uint32_t)__builtin_ctz(same), pos = b->value[i];
	const struct kvmap_guess g = {&b->tag[i], pos - (pos != 0)};

	kvr_prefetch(&v->entries[g.entry]);
	return g;
}

static inline uint64_t kvmap_find(const struct kvr_kvmap *m, const struct kvmap_view *v,
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
	return kvr_kvmap__search(m, name, key);
}

static inline void kvmap_take_entry(struct kvr_kvmap *m, uint32_t e)
{
	m->n++;
	m->gap -= m->gap != 0;
	m->next = e + 1 == m->ring ? kvr_kvmap__round(m) : e + 1;
}

/** The next entry, where a block is new and has room at its home, with all but the entry written;
 * or UINT32_MAX, and nothing is. */
static inline uint32_t kvmap_add_home(struct kvr_kvmap *m, const struct kvmap_view *v, uint64_t key)
{
	struct kvr_bucket *b = &v->buckets[KVMAP_HOME(key)];
	const uint32_t same = kvr_bucket_tags(b, KVMAP_TAG(key)), is = kvr_bucket_tags(b, 0);
	const uint32_t e = m->next;

	if ((same | b->over) != 0 || is == 0 || v->tiers[e] != 0 || m->n >= m->max)
		return UINT32_MAX;
	kvr_prefetch(&v->entries[e] + KVMAP_NEXT);
	kvr_prefetch(&v->origins[e] + KVMAP_NEXT);
	b->tag[__builtin_ctz(is)] = KVMAP_TAG(key);
	b->value[__builtin_ctz(is)] = e + 1;
	kvmap_take_entry(m, e);
	return e;
}

/** A new entry, in no tier yet, under a name that was not found. */
static inline uint32_t kvmap_add(struct kvr_kvmap *m, const struct kvmap_view *v, uint64_t name,
				 uint64_t key)
{
	const uint32_t e =
		m->n < m->max && v->tiers[m->next] == 0 ? m->next : kvr_kvmap__free_entry(m);
	struct kvr_bucket *b = &v->buckets[KVMAP_HOME(key)];
	const uint32_t is = kvr_bucket_tags(b, 0);

	kvr_prefetch(&v->entries[e] + KVMAP_NEXT);
	kvr_prefetch(&v->origins[e] + KVMAP_NEXT);
	if (is != 0) {
		b->tag[__builtin_ctz(is)] = KVMAP_TAG(key);
		b->value[__builtin_ctz(is)] = e + 1;
	} else {
		kvr_kvmap__put(m, key, e + 1);
	}
	v->entries[e].name = name;
	kvmap_take_entry(m, e);
	return e;
}

#endif
