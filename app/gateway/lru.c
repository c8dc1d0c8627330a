/* SPDX-License-Identifier: BSD-3-Clause */
/* Cache with least-recently-used eviction. */
#include "lru.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include <xxhash.h>

struct entry {
	struct gw_lru_key key;
	UT_hash_handle hh;
	uint32_t n;
	uint32_t ids[];
};

struct gw_lru {
	struct entry *entries; /* in order of use, oldest first */
	size_t bytes, most;
	uint64_t seed;
};

struct gw_lru *gw_lru_create(size_t bytes, uint64_t seed)
{
	struct gw_lru *lru = calloc(1, sizeof(*lru));

	if (lru != NULL)
		*lru = (struct gw_lru){.most = bytes, .seed = seed};
	return lru;
}

static size_t size_of(uint32_t n)
{
	return sizeof(struct entry) + n * sizeof(uint32_t);
}

static void drop_entry(struct gw_lru *lru, struct entry *e)
{
	HASH_DEL(lru->entries, e);
	lru->bytes -= size_of(e->n);
	free(e);
}

void gw_lru_destroy(struct gw_lru *lru)
{
	if (lru == NULL)
		return;
	while (lru->entries != NULL)
		drop_entry(lru, lru->entries);
	free(lru);
}

struct gw_lru_key gw_lru_key(const struct gw_lru *lru, const void *text, size_t len)
{
	const XXH128_hash_t h = XXH3_128bits_withSeed(text, len, lru->seed);

	return (struct gw_lru_key){{h.low64, h.high64}};
}

static struct entry *find_entry(const struct gw_lru *lru, const struct gw_lru_key *key)
{
	struct entry *e = NULL;

	HASH_FIND(hh, lru->entries, key, sizeof(*key), e);
	return e;
}

bool gw_lru_has(const struct gw_lru *lru, const struct gw_lru_key *key)
{
	return find_entry(lru, key) != NULL;
}

uint32_t *gw_lru_get(struct gw_lru *lru, const struct gw_lru_key *key, uint32_t *n)
{
	struct entry *e = find_entry(lru, key);
	uint32_t *ids;

	*n = 0;
	if (e == NULL)
		return NULL;
	HASH_DEL(lru->entries, e);
	HASH_ADD(hh, lru->entries, key, sizeof(e->key), e); /* the most recent */
	ids = malloc(e->n * sizeof(*ids) + 1);
	if (ids == NULL)
		return NULL;
	memcpy(ids, e->ids, e->n * sizeof(*ids));
	*n = e->n;
	return ids;
}

void gw_lru_put(struct gw_lru *lru, const struct gw_lru_key *key, const uint32_t *ids, uint32_t n)
{
	struct entry *e = find_entry(lru, key);

	if (e != NULL)
		drop_entry(lru, e);
	if (size_of(n) > lru->most)
		return;
	e = malloc(size_of(n));
	if (e == NULL)
		return;
	e->key = *key;
	e->n = n;
	memcpy(e->ids, ids, n * sizeof(*ids));
	HASH_ADD(hh, lru->entries, key, sizeof(e->key), e);
	lru->bytes += size_of(n);
	while (lru->bytes > lru->most)
		drop_entry(lru, lru->entries);
}

size_t gw_lru_bytes(const struct gw_lru *lru)
{
	return lru->bytes;
}
