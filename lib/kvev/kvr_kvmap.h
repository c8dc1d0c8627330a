/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_KVMAP_H
#define KVR_KVMAP_H

/**
 * @file
 * What one rank of an engine caches: the engine's name of each block beside ours (the sequence
 * hash, made of the tokens), so that its events can be passed to the router in our names.
 *
 * A table of bounded size: a ring of entries in the order of arrival, and an open-addressed index
 * of it. An entry takes at most 50 bytes, 66 where blocks have copies; memory that was never needed
 * is never touched. A full table evicts its oldest entry and reports it as removed, as a later
 * removal of that name could not be translated.
 *
 * Groups: a hybrid model has several cache groups, and a block has the same name in each. The table
 * holds one group: the first of full attention with the pool's block size or, while no kind is
 * given, the first that stores. Events of other groups change nothing.
 *
 * Chunks: a name of a lower tier may cover several blocks (LMCache: 256 tokens). They are entries
 * of their own and come and go with the name.
 *
 * Aliases: with EAGLE or MTP a name covers the token behind its block, so a block has several
 * names. After the first such store the table links the names of a block, and the block leaves a
 * tier with the last of them; an entry takes up to 21 bytes more. A block has at most 32 names; for
 * one more, the oldest is forgotten.
 *
 * Copies: an engine may hold a block more than once in a tier, and reports the store and the
 * removal of each copy. The table counts them; `out` reports the first store and the last removal,
 * and a dump lists the block once. A store that only announces reused blocks adds no copy. A clear
 * ends all counts. A count stops at UINT32_MAX, which is more than the blocks of any engine: beyond
 * that the block leaves before its last copy.
 *
 * One thread; `out` is called from inside the functions. Cost: a hash of the tokens, and one or two
 * cache misses a block.
 */

#include "kvr_kvev.h"
#include "kvr_stats.h"

struct kvr_kvmap;

/** What the engine's events come to, in our names. Arrays are valid during the call. */
struct kvr_kvmap_out {
	void (*stored)(void *user, enum kvr_tier tier, const uint64_t *parent, const uint64_t sh[],
		       uint32_t n);
	void (*removed)(void *user, enum kvr_tier tier, const uint64_t sh[], uint32_t n);
	void (*cleared)(void *user);
	void *user;
};

#define KVR_KVMAP_COUNTER_LIST(X)                                                                  \
	X(KVR_KVMAP_EVENTS, events, COUNT, "events", "events of engines, all types")               \
	X(KVR_KVMAP_UNKNOWN, unknown, COUNT, "events", "of a type that is not known")              \
	X(KVR_KVMAP_BAD, bad, COUNT, "events", "with a field that is missing or wrong")            \
	X(KVR_KVMAP_MEDIUM, medium, COUNT, "events", "about a medium that is not known")           \
	X(KVR_KVMAP_FOREIGN, foreign, COUNT, "events", "about blocks that are remote or others'")  \
	X(KVR_KVMAP_GROUP, group, COUNT, "events", "about cache groups other than the one held")   \
	X(KVR_KVMAP_SIZE, size, COUNT, "events", "stored with another block size than the pool's") \
	X(KVR_KVMAP_CHUNKS, chunks, COUNT, "events",                                               \
	  "stored in a lower tier, of a size that is no multiple of the block size")               \
	X(KVR_KVMAP_STORED, stored, COUNT, "blocks", "stored")                                     \
	X(KVR_KVMAP_AGAIN, again, COUNT, "blocks", "stored that were there already")               \
	X(KVR_KVMAP_ALIASES, aliases, COUNT, "names", "stored for a block that had another one")   \
	X(KVR_KVMAP_SURPLUS, surplus, COUNT, "names", "forgotten, oldest first: 32 for a block")   \
	X(KVR_KVMAP_ORPHANS, orphans, COUNT, "blocks",                                             \
	  "stored behind a parent that is not known, or moved and not known")                      \
	X(KVR_KVMAP_SHORT, few_tokens, COUNT, "blocks", "stored without tokens enough")            \
	X(KVR_KVMAP_STRANGE, strange, COUNT, "blocks", "stored with keys that we cannot name")     \
	X(KVR_KVMAP_REMOVED, removed, COUNT, "blocks", "removed")                                  \
	X(KVR_KVMAP_KEPT, kept, COUNT, "blocks", "removed of which another copy remains")          \
	X(KVR_KVMAP_ABSENT, absent, COUNT, "blocks", "removed that were not there")                \
	X(KVR_KVMAP_EVICTED, evicted, COUNT, "blocks", "forgotten for want of room, oldest first") \
	X(KVR_KVMAP_CLEARED, cleared, COUNT, "events", "the rank holds nothing any more")          \
	X(KVR_KVMAP_HELD, held, GAUGE, "blocks", "known now")

enum kvr_kvmap_counter { KVR_KVMAP_COUNTER_LIST(KVR_COUNTER_ENUM) KVR_KVMAP_N };
struct kvr_kvmap_stats {
	KVR_KVMAP_COUNTER_LIST(KVR_COUNTER_FIELD)
};
extern const struct kvr_stats_def kvr_kvmap_stats;

/**
 * Make a table.
 * @param block_size of the pool, in tokens.
 * @param max_blocks entries, 1..2^30.
 * @param seed random: nobody who names blocks may aim at a place of the index.
 * @return NULL: EINVAL, ENOMEM.
 */
struct kvr_kvmap *kvr_kvmap_create(uint32_t block_size, uint32_t max_blocks, uint64_t seed,
				   const struct kvr_kvmap_out *out);

/** NULL is fine. Nothing is told. */
void kvr_kvmap_destroy(struct kvr_kvmap *m);

/**
 * Take one event.
 * @return 0; -EBADMSG a removal that cannot be read: the rank must start clean
 * (kvr_kvmap_clear()), as it may hold less than we think; -ENOMEM the same.
 */
int kvr_kvmap_apply(struct kvr_kvmap *m, const struct kvr_kvev *ev);

/** Forget all, and tell it as cleared. */
void kvr_kvmap_clear(struct kvr_kvmap *m);

/** Forget block size and cache group, which were learned of the engine: another one follows. */
void kvr_kvmap_forget(struct kvr_kvmap *m);

/** The block size of the first store of full attention on the device; 0: none yet. */
uint32_t kvr_kvmap_block_size(const struct kvr_kvmap *m);

/** Whether it was of pairs of tokens (eagle); only with a block size. */
bool kvr_kvmap_eagle(const struct kvr_kvmap *m);

/** One run of blocks in one tier, for dumps. */
struct kvr_kvmap_run {
	enum kvr_tier tier;
	bool has_parent;
	uint64_t parent;
	const uint64_t *sh; /**< valid until the next call */
	uint32_t n;
};

/**
 * All that is held, oldest first: call with *pos 0, and again with what it became. Nothing may be
 * applied in between.
 * @return false: no more.
 */
bool kvr_kvmap_next(struct kvr_kvmap *m, uint64_t *pos, struct kvr_kvmap_run *run);

/** The counters of the table; the owner's thread. */
const struct kvr_kvmap_stats *kvr_kvmap_stats_get(const struct kvr_kvmap *m);

#endif
