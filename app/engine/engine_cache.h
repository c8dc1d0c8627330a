/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ENGINE_CACHE_H
#define ENGINE_CACHE_H

/**
 * @file
 * The KV cache of one simulated rank: `capacity` blocks under least-recently-used eviction,
 * exactly as if every use of a prompt touched its blocks from the last to the first.
 *
 * A sequence hash names a whole prefix, so the cache is a forest and what is resident is always
 * closed towards the root. That makes true LRU cheap: a block is never older than a block behind
 * it, so only blocks that ended a use, or have lost their last child, need a place in the list. A
 * use costs one list move whatever its length; a miss costs one index entry a block.
 *
 *   list:  oldest <-> ... <-> youngest        holds every leaf and some inner blocks
 *   inner block at the old end: all its leaves are younger, so its own use no longer matters and
 *   it leaves the list; when its last child goes it returns at the old end, being the next victim.
 *
 * Longest match: binary search over the closed prefix, one probe when everything is resident. The
 * index is open addressing at most half full, eight bytes an entry. One owner, no locking; memory
 * is allocated at create time only: about 48 bytes a block.
 */

#include <stdint.h>

struct engine_cache;

/**
 * Create an empty cache of @p capacity blocks (1 .. 2^30), with @p seed for the index.
 * @return the cache, or NULL with errno EINVAL or ENOMEM.
 */
struct engine_cache *engine_cache_create(uint32_t capacity, uint64_t seed);

/** Forget everything. */
void engine_cache_clear(struct engine_cache *c);

/** Free it; NULL is fine. */
void engine_cache_destroy(struct engine_cache *c);

/** Number of leading hashes that are resident, 0..n. Changes nothing. */
uint32_t engine_cache_match(const struct engine_cache *c, const uint64_t hashes[], uint32_t n);

/** What a store did. Stored blocks are hashes[have..n). */
struct engine_cache_change {
	uint32_t n;	    /* blocks of the chain now resident: min(n, capacity) */
	uint32_t have;	    /* of them resident before */
	uint32_t n_removed; /* victims, in the order they went */
};

/**
 * Use the chain @p hashes: make its first min(n, capacity) blocks resident and the youngest.
 * @p removed takes the victims' hashes; it has room for n.
 */
struct engine_cache_change engine_cache_store(struct engine_cache *c, const uint64_t hashes[],
					      uint32_t n, uint64_t removed[]);

/** Blocks resident. */
uint32_t engine_cache_used(const struct engine_cache *c);

/**
 * Walk everything resident as chains that can be stored in the order given: called with a
 * parent's hash (has_parent false at a root) and the blocks behind it, first to last; the
 * parent was part of an earlier call. @p scratch has room for `capacity` hashes.
 */
typedef void (*engine_cache_chain_fn)(void *arg, const uint64_t *parent, const uint64_t hashes[],
				      uint32_t n);
void engine_cache_walk(struct engine_cache *c, uint64_t scratch[], engine_cache_chain_fn fn,
		       void *arg);

#endif
