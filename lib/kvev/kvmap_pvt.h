/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_KVMAP_PVT_H
#define KVR_KVMAP_PVT_H

/**
 * @file
 * The table (kvmap.c) under the translation of events (translate.c).
 *
 *	slots:   [tag|pos] ........ open addressing, linear, at most half full, removal by shifting
 *	              |
 *	entries: [ ][E][E][ ][E].....  a ring: `next` goes round, over what still lives when there
 *	                      ^next     is room elsewhere, so what is evicted is (nearly) the oldest
 */

#include "kvr_kvmap.h"

#define KVMAP_RUN 4096u /* blocks of a run in a dump, and of what is told at once */
#define AHEAD	  16u /* names whose lines are asked for before they are used; at half way, entries */

struct kvmap_entry {
	uint64_t name; /* the engine's */
	uint64_t sh, parent;
	uint64_t ns;   /* what its cache namespace adds to the seed of its blocks */
	uint8_t tiers; /* a bit each; 0: free */
	bool has_parent;
};

struct kvmap_slot {
	uint32_t tag; /* of the name */
	uint32_t pos; /* entry + 1; 0: free */
};

struct kvr_kvmap {
	struct kvr_kvmap_out out;
	uint32_t block_size, learned;
	bool learned_eagle;
	uint32_t max, n;
	uint32_t ring, next; /* entries of the ring; where the next one goes */
	uint64_t mask, seed;
	struct kvmap_entry *entries;
	struct kvmap_slot *slots;
	uint64_t other_groups; /* groups that were seen without full attention */
	uint64_t *sh;	       /* of the event being stored */
	uint32_t cap_sh;
	uint64_t run[KVMAP_RUN];
	struct kvr_kvmap_stats st;
};

/** The slot of a name, or the free one where the search ends; until the next add or del. */
uint64_t kvr_kvmap__slot(const struct kvr_kvmap *m, uint64_t name);

/** The entry of a slot, or NULL. */
struct kvmap_entry *kvr_kvmap__at(const struct kvr_kvmap *m, uint64_t slot);

/** A new entry, which is not there, in its slot; the oldest goes when there is no room. */
struct kvmap_entry *kvr_kvmap__add(struct kvr_kvmap *m, uint64_t name, uint64_t slot);

/** Take one out that is there. */
void kvr_kvmap__del(struct kvr_kvmap *m, uint64_t slot);

/** Ask for the index's line of a name that is looked for soon; then for its entry. */
void kvr_kvmap__prefetch(const struct kvr_kvmap *m, uint64_t name);
void kvr_kvmap__prefetch_entry(const struct kvr_kvmap *m, uint64_t name);

#endif
