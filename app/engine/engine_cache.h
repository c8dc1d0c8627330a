/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ENGINE_CACHE_H
#define ENGINE_CACHE_H

/**
 * @file
 * The KV cache of one simulated rank: `capacity` blocks with eviction of the least recently used
 * one, as if each use of a prompt touched its blocks from the last to the first.
 *
 * Data structure. A sequence hash names a whole prefix, so the cache is a forest, and the parent of
 * a resident block is resident. A block is never older than its children. Therefore only blocks at
 * the end of a use, and blocks that lost their last child, are in the LRU list. A use costs one
 * list move at any length; a miss costs one index entry per block.
 *
 *   list:  oldest <-> ... <-> youngest        has every leaf and some inner blocks
 *   inner block at the old end: all its leaves are younger, so its own use no longer matters and it
 *   leaves the list. When its last child is evicted, it returns at the old end as the next victim.
 *
 * Longest match: binary search over the closed prefix, one probe when all blocks are resident. The
 * index is open addressing, at most half full, eight bytes per entry.
 *
 * One owner, no locking. Memory is allocated at creation only: about 48 bytes per block.
 */

#include <stdint.h>

struct engine_cache;

/**
 * Create an empty cache of @p capacity blocks (1 .. 2^30), with @p seed for the index.
 * @return the cache, or NULL with errno EINVAL or ENOMEM.
 */
struct engine_cache *engine_cache_create(uint32_t capacity, uint64_t seed);

/** Remove all blocks. */
void engine_cache_clear(struct engine_cache *c);

/** Free it; NULL is fine. */
void engine_cache_destroy(struct engine_cache *c);

/** Number of leading hashes that are resident, 0..n. Changes nothing. */
uint32_t engine_cache_match(const struct engine_cache *c, const uint64_t hashes[], uint32_t n);

/** Result of a store. Stored blocks are hashes[have..n). */
struct engine_cache_change {
	uint32_t n;	    /* blocks of the chain now resident: min(n, capacity) */
	uint32_t have;	    /* resident before */
	uint32_t n_removed; /* evicted blocks, in order */
};

/**
 * Use the chain @p hashes: make its first min(n, capacity) blocks resident and the youngest.
 * @p removed gets the hashes of the evicted blocks; it has room for n.
 */
struct engine_cache_change engine_cache_store(struct engine_cache *c, const uint64_t hashes[],
					      uint32_t n, uint64_t removed[]);

/** Number of resident blocks. */
uint32_t engine_cache_used(const struct engine_cache *c);

/**
 * Pass all resident blocks to a function, as chains that can be stored in this order: @p parent is
 * the hash before the chain (NULL at a root) and was part of an earlier call, @p hashes are the
 * blocks behind it.
 * @p scratch has room for `capacity` hashes.
 */
typedef void (*engine_cache_chain_fn)(void *arg, const uint64_t *parent, const uint64_t hashes[],
				      uint32_t n);
void engine_cache_walk(struct engine_cache *c, uint64_t scratch[], engine_cache_chain_fn fn,
		       void *arg);

#endif
