/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_KVMAP_H
#define KVR_KVMAP_H

/**
 * @file
 * Blocks cached by one rank of an engine. For each block the table holds the engine's name and the
 * sequence hash, computed from the tokens, so that events of the engine can be reported to the
 * router by sequence hash.
 *
 * Structure: a ring of entries in order of arrival, with an open-addressed index, of bounded size.
 * An entry takes at most 50 bytes, or 66 if blocks have copies. Memory that is not needed yet is
 * not touched. A full table evicts its oldest entry and reports the block as removed, because a
 * later removal of that name could not be translated.
 *
 * Groups: a hybrid model has several cache groups, and a block has the same name in each. The table
 * holds one group: the first group of full attention with the pool's block size or, while no kind
 * is given, the first that stores. Events of other groups are counted and ignored.
 *
 * Chunks: a name of a lower tier may cover several blocks (LMCache: 256 tokens). Each block has its
 * own entry, which is added and removed with the name.
 *
 * Aliases: with EAGLE or MTP a name also covers the token behind its block, so a block has several
 * names. After the first such store the table links the names of a block, and the block leaves a
 * tier with its last name. An entry takes up to 21 bytes more. A block has at most 32 names; beyond
 * that the oldest is forgotten.
 *
 * Copies: an engine may hold a block more than once in a tier, and reports store and removal of
 * each copy. The table counts copies. `out` reports the first store and the last removal, and a
 * dump lists the block once. A store that only announces reused blocks adds no copy. A clear resets
 * all counts. A count stops at UINT32_MAX, which exceeds the blocks of any engine; beyond that the
 * block leaves before its last copy.
 *
 * One thread; `out` is called from inside the functions. Cost: a hash of the tokens, and one or two
 * cache misses per block.
 */

#include "kvr_kvev.h"
#include "kvr_stats.h"

struct kvr_kvmap;

/** Receiver of changes, by sequence hash. Arrays are valid during the call. */
struct kvr_kvmap_out {
	void (*stored)(void *user, enum kvr_tier tier, const uint64_t *parent, const uint64_t sh[],
		       uint32_t n);
	void (*removed)(void *user, enum kvr_tier tier, const uint64_t sh[], uint32_t n);
	void (*cleared)(void *user);
	void *user;
};

#define KVR_KVMAP_COUNTER_LIST(X)                                                                  \
	X(KVR_KVMAP_EVENTS, events, COUNT, "events", "events of engines, all types")               \
	X(KVR_KVMAP_UNKNOWN, unknown, COUNT, "events", "of an unknown type")                       \
	X(KVR_KVMAP_BAD, bad, COUNT, "events", "with a missing or invalid field")                  \
	X(KVR_KVMAP_MEDIUM, medium, COUNT, "events", "about an unknown medium")                    \
	X(KVR_KVMAP_FOREIGN, foreign, COUNT, "events",                                             \
	  "about remote blocks or blocks of other owners")                                         \
	X(KVR_KVMAP_GROUP, group, COUNT, "events", "about cache groups other than the one held")   \
	X(KVR_KVMAP_SIZE, size, COUNT, "events", "stored with another block size than the pool's") \
	X(KVR_KVMAP_CHUNKS, chunks, COUNT, "events",                                               \
	  "stored in a lower tier with a size that is not a multiple of the block size")           \
	X(KVR_KVMAP_STORED, stored, COUNT, "blocks", "stored")                                     \
	X(KVR_KVMAP_AGAIN, again, COUNT, "blocks", "stored while present")                         \
	X(KVR_KVMAP_ALIASES, aliases, COUNT, "names", "additional names of blocks")                \
	X(KVR_KVMAP_SURPLUS, surplus, COUNT, "names", "dropped beyond 32 per block, oldest first") \
	X(KVR_KVMAP_ORPHANS, orphans, COUNT, "blocks",                                             \
	  "stored behind an unknown parent, or moved while unknown")                               \
	X(KVR_KVMAP_SHORT, few_tokens, COUNT, "blocks", "stored with too few tokens")              \
	X(KVR_KVMAP_STRANGE, strange, COUNT, "blocks", "stored with unsupported keys")             \
	X(KVR_KVMAP_REMOVED, removed, COUNT, "blocks", "removed")                                  \
	X(KVR_KVMAP_KEPT, kept, COUNT, "blocks", "removed while another copy remains")             \
	X(KVR_KVMAP_ABSENT, absent, COUNT, "blocks", "removed while unknown")                      \
	X(KVR_KVMAP_EVICTED, evicted, COUNT, "blocks",                                             \
	  "evicted from the full table, oldest first")                                             \
	X(KVR_KVMAP_CLEARED, cleared, COUNT, "events", "that cleared the rank")                    \
	X(KVR_KVMAP_HELD, held, GAUGE, "blocks", "in the table")

enum kvr_kvmap_counter { KVR_KVMAP_COUNTER_LIST(KVR_COUNTER_ENUM) KVR_KVMAP_N };
struct kvr_kvmap_stats {
	KVR_KVMAP_COUNTER_LIST(KVR_COUNTER_FIELD)
};
extern const struct kvr_stats_def kvr_kvmap_stats;

/**
 * Create a table.
 * @param block_size of the pool, in tokens.
 * @param max_blocks entries, 1..2^30.
 * @param seed random, so that chosen names cannot collide in the index on purpose.
 * @return NULL: EINVAL, ENOMEM.
 */
struct kvr_kvmap *kvr_kvmap_create(uint32_t block_size, uint32_t max_blocks, uint64_t seed,
				   const struct kvr_kvmap_out *out);

/** Destroy a table without reports. NULL is allowed. */
void kvr_kvmap_destroy(struct kvr_kvmap *map);

/**
 * Apply one event.
 * @return 0; -EBADMSG: a removal that cannot be read; -ENOMEM. After an error the table may list
 * blocks that the engine no longer has: the caller must call kvr_kvmap_clear().
 */
int kvr_kvmap_apply(struct kvr_kvmap *map, const struct kvr_kvev *ev);

/** Forget all blocks, and report a clear. */
void kvr_kvmap_clear(struct kvr_kvmap *map);

/** Forget the block size and cache group learned from the engine, because another engine follows.
 */
void kvr_kvmap_forget(struct kvr_kvmap *map);

/** Block size of the first store of full attention on the device; 0: none yet. */
uint32_t kvr_kvmap_block_size(const struct kvr_kvmap *map);

/** Return true if that store had pairs of tokens (EAGLE). Undefined without a block size. */
bool kvr_kvmap_eagle(const struct kvr_kvmap *map);

/** Consecutive blocks in one tier, for dumps. */
struct kvr_kvmap_run {
	enum kvr_tier tier;
	bool has_parent;
	uint64_t parent;
	const uint64_t *sh; /**< valid until the next call */
	uint32_t n;
};

/**
 * List all blocks, oldest first: call with *pos 0, then with the updated *pos. The table must not
 * change meanwhile.
 * @return false: no more blocks.
 */
bool kvr_kvmap_next(struct kvr_kvmap *map, uint64_t *pos, struct kvr_kvmap_run *run);

/** Counters of the table; for the owner's thread. */
const struct kvr_kvmap_stats *kvr_kvmap_stats_get(const struct kvr_kvmap *map);

#endif
