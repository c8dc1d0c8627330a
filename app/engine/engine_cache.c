/* SPDX-License-Identifier: BSD-3-Clause */
#include "engine_cache.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_errno.h"
#include "kvr_rand.h"

#define NONE 0u /* node 0 is the head of the list, and means "no node" */

struct node {
	uint64_t hash;
	uint32_t parent;
	uint32_t children;
	uint32_t older; /* NONE in both: not in the list (the head links to itself when empty) */
	uint32_t younger;
	uint32_t mark; /* generation of the last walk that visited it; free list: next node */
	uint32_t listed;
};

/* Index entry: the high word is a tag of the hash, the low word the node; 0 is empty. */
struct engine_cache {
	uint32_t capacity;
	uint32_t used;
	uint32_t free; /* first free node, linked through mark */
	uint32_t walk; /* generation of the last walk */
	uint64_t seed;
	uint64_t mask;
	uint64_t *index;
	struct node *nodes;
};

static uint64_t mix_hash(const struct engine_cache *c, uint64_t hash)
{
	return kvr_mix64(hash ^ c->seed);
}

static uint64_t entry_of(uint64_t h, uint32_t node)
{
	return (h & 0xffffffff00000000u) | node;
}

void engine_cache_clear(struct engine_cache *c)
{
	memset(c->index, 0, (c->mask + 1) * sizeof(*c->index));
	memset(c->nodes, 0, ((size_t)c->capacity + 1) * sizeof(*c->nodes));
	for (uint32_t i = 1; i <= c->capacity; i++)
		c->nodes[i].mark = i < c->capacity ? i + 1 : NONE;
	c->free = 1;
	c->used = 0;
	c->walk = 0;
}

struct engine_cache *engine_cache_create(uint32_t capacity, uint64_t seed)
{
	struct engine_cache *c;
	uint64_t size = 4;

	if (capacity == 0 || capacity > 1u << 30)
		return kvr_null(EINVAL);
	while (size < 2ull * capacity)
		size *= 2;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return kvr_null(ENOMEM);
	c->capacity = capacity;
	c->seed = seed;
	c->mask = size - 1;
	c->index = malloc(size * sizeof(*c->index));
	c->nodes = malloc(((size_t)capacity + 1) * sizeof(*c->nodes));
	if (c->index == NULL || c->nodes == NULL) {
		engine_cache_destroy(c);
		return kvr_null(ENOMEM);
	}
	engine_cache_clear(c);
	return c;
}

void engine_cache_destroy(struct engine_cache *c)
{
	if (c == NULL)
		return;
	free(c->nodes);
	free(c->index);
	free(c);
}

uint32_t engine_cache_used(const struct engine_cache *c)
{
	return c->used;
}

static uint32_t find_node(const struct engine_cache *c, uint64_t hash)
{
	uint64_t h = mix_hash(c, hash);

	for (uint64_t i = h & c->mask;; i = (i + 1) & c->mask) {
		uint64_t e = c->index[i];

		if (e == 0)
			return NONE;
		if ((e ^ h) >> 32 == 0 && c->nodes[(uint32_t)e].hash == hash)
			return (uint32_t)e;
	}
}

static void index_add(struct engine_cache *c, uint64_t hash, uint32_t node)
{
	uint64_t h = mix_hash(c, hash);
	uint64_t i = h & c->mask;

	while (c->index[i] != 0)
		i = (i + 1) & c->mask;
	c->index[i] = entry_of(h, node);
}

/* Close the gap after a deleted entry by moving back entries that may be placed earlier. */
static void index_del(struct engine_cache *c, uint64_t hash, uint32_t node)
{
	uint64_t hole = mix_hash(c, hash) & c->mask;

	while ((uint32_t)c->index[hole] != node)
		hole = (hole + 1) & c->mask;
	for (uint64_t i = (hole + 1) & c->mask; c->index[i] != 0; i = (i + 1) & c->mask) {
		uint64_t home = mix_hash(c, c->nodes[(uint32_t)c->index[i]].hash) & c->mask;

		if (((i - home) & c->mask) >= ((i - hole) & c->mask)) {
			c->index[hole] = c->index[i];
			hole = i;
		}
	}
	c->index[hole] = 0;
}

static void unlist_node(struct engine_cache *c, uint32_t v)
{
	struct node *x = &c->nodes[v];

	if (!x->listed)
		return;
	c->nodes[x->older].younger = x->younger;
	c->nodes[x->younger].older = x->older;
	x->listed = 0;
}

/* The head's `younger` is the oldest node, its `older` the youngest: the list is a ring through the
 * head. */
static void list_between(struct engine_cache *c, uint32_t v, uint32_t older, uint32_t younger)
{
	struct node *x = &c->nodes[v];

	x->older = older;
	x->younger = younger;
	c->nodes[older].younger = v;
	c->nodes[younger].older = v;
	x->listed = 1;
}

static void list_youngest(struct engine_cache *c, uint32_t v)
{
	unlist_node(c, v);
	list_between(c, v, c->nodes[NONE].older, NONE);
}

static uint64_t evict_block(struct engine_cache *c)
{
	uint32_t v, parent;
	uint64_t hash;

	for (v = c->nodes[NONE].younger; c->nodes[v].children > 0; v = c->nodes[NONE].younger)
		unlist_node(c, v); /* all its leaves have been used later than itself */
	assert(v != NONE);
	unlist_node(c, v);
	hash = c->nodes[v].hash;
	parent = c->nodes[v].parent;
	index_del(c, hash, v);
	c->nodes[v].mark = c->free;
	c->free = v;
	c->used--;
	if (parent != NONE && --c->nodes[parent].children == 0 && !c->nodes[parent].listed)
		list_between(c, parent, NONE, c->nodes[NONE].younger);
	return hash;
}

uint32_t engine_cache_match(const struct engine_cache *c, const uint64_t hashes[], uint32_t n)
{
	uint32_t lo = 0,
		 hi = n; /* the first lo blocks are resident; hashes[hi] is not, if hi < n */

	if (n == 0 || find_node(c, hashes[n - 1]) != NONE)
		return n;
	for (hi = n - 1; lo < hi;) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (find_node(c, hashes[mid]) != NONE)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct engine_cache_change engine_cache_store(struct engine_cache *c, const uint64_t hashes[],
					      uint32_t n, uint64_t removed[])
{
	struct engine_cache_change r = {0};
	uint32_t parent = NONE;

	r.n = n < c->capacity ? n : c->capacity;
	if (r.n == 0)
		return r;
	r.have = engine_cache_match(c, hashes, r.n);
	if (r.have > 0)
		parent = find_node(c, hashes[r.have - 1]);
	for (uint32_t k = r.have; k < r.n; k++) {
		uint32_t v;

		if (parent != NONE)
			c->nodes[parent]
				.children++; /* before the eviction, so that the parent stays */
		if (c->used == c->capacity)
			removed[r.n_removed++] = evict_block(c);
		v = c->free;
		c->free = c->nodes[v].mark;
		c->nodes[v] = (struct node){.hash = hashes[k], .parent = parent};
		index_add(c, hashes[k], v);
		c->used++;
		parent = v;
	}
	list_youngest(c, parent);
	return r;
}

/* Emit the chain that ends in v, from the first block that this walk has not visited. */
static void walk_up(struct engine_cache *c, uint32_t v, uint64_t scratch[],
		    engine_cache_chain_fn fn, void *arg)
{
	uint32_t at = c->capacity;

	while (v != NONE && c->nodes[v].mark != c->walk) {
		c->nodes[v].mark = c->walk;
		scratch[--at] = c->nodes[v].hash;
		v = c->nodes[v].parent;
	}
	if (at < c->capacity)
		fn(arg, v != NONE ? &c->nodes[v].hash : NULL, &scratch[at], c->capacity - at);
}

void engine_cache_walk(struct engine_cache *c, uint64_t scratch[], engine_cache_chain_fn fn,
		       void *arg)
{
	/* Free nodes use mark as a link, but a walk reaches none; a new node has mark 0. */
	if (++c->walk == 0)
		c->walk = 1;
	for (uint32_t v = c->nodes[NONE].younger; v != NONE; v = c->nodes[v].younger)
		walk_up(c, v, scratch, fn, arg);
}
