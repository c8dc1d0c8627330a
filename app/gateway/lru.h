/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_LRU_H
#define GW_LRU_H

/**
 * @file
 * Token ids by the question that they answer, bounded in bytes; the least recently used go first.
 * A hash table (uthash) over 128-bit keys, whose order is that of use. One thread an object.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gw_lru;

struct gw_lru_key {
	uint64_t word[2];
};

/** @return NULL: out of memory. @p bytes 0: it keeps nothing. */
struct gw_lru *gw_lru_create(size_t bytes, uint64_t seed);

/** NULL is fine. */
void gw_lru_destroy(struct gw_lru *l);

/** Name of a question. */
struct gw_lru_key gw_lru_key(const struct gw_lru *l, const void *text, size_t len);

/** A malloc()ed copy of what is kept, @p n ids; NULL: nothing (*n is 0), or out of memory. */
uint32_t *gw_lru_get(struct gw_lru *l, const struct gw_lru_key *key, uint32_t *n);

/** Is something kept? It does not count as use. */
bool gw_lru_has(const struct gw_lru *l, const struct gw_lru_key *key);

/** Keep a copy, in the place of an older one. What does not fit is not kept. */
void gw_lru_put(struct gw_lru *l, const struct gw_lru_key *key, const uint32_t *ids, uint32_t n);

/** Bytes in use, entries included. */
size_t gw_lru_bytes(const struct gw_lru *l);

#endif
