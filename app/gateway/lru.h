/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_LRU_H
#define GW_LRU_H

/**
 * @file
 * Cache of token ids by question, limited in bytes; the least recently used entries are evicted. A
 * hash table (uthash) over 128-bit keys, ordered by use. One thread per object.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gw_lru;

struct gw_lru_key {
	uint64_t word[2];
};

/** @return NULL: out of memory. @p bytes 0: a cache that stores nothing. */
struct gw_lru *gw_lru_create(size_t bytes, uint64_t seed);

/** NULL is allowed. */
void gw_lru_destroy(struct gw_lru *lru);

/** Key of a question. */
struct gw_lru_key gw_lru_key(const struct gw_lru *lru, const void *text, size_t len);

/** A malloc()ed copy of a cached entry with @p n ids; NULL: none (*n is 0), or out of memory. */
uint32_t *gw_lru_get(struct gw_lru *lru, const struct gw_lru_key *key, uint32_t *n);

/** Return true if an entry exists; does not count as use. */
bool gw_lru_has(const struct gw_lru *lru, const struct gw_lru_key *key);

/** Store a copy, replacing an older one. A too large entry is not stored. */
void gw_lru_put(struct gw_lru *lru, const struct gw_lru_key *key, const uint32_t *ids, uint32_t n);

/** Bytes in use, including entries. */
size_t gw_lru_bytes(const struct gw_lru *lru);

#endif
