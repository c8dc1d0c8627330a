/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table: index of names, ring of entries, eviction, and dumps. Memory is mapped once and
 * touched as needed, so that a large table costs nothing while the engine caches little.
 */
#include "kvmap_pvt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct kvr_counter counters[] = {
	KVR_KVMAP_COUNTER_LIST(KVR_COUNTER_ROW) KVR_COUNTER_END,
};
/* Each stored block that could be named adds one, and each removal subtracts one. */
const struct kvr_stats_def kvr_kvmap_stats = {"kvmap", counters, NULL};

/* Zeroed memory that uses physical pages only where it is written. */
static void *map_sparse(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p != MAP_FAILED ? p : NULL;
}

/* The same in huge pages if the kernel has some, because each lookup reads another place. */
static void *map_large(size_t bytes)
{
	void *p = map_sparse(bytes);

	if (p != NULL)
		madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

static void give_back(void *p, size_t bytes)
{
	if (p != NULL)
		munmap(p, bytes);
}

struct kvr_kvmap *kvr_kvmap_create(uint32_t block_size, uint32_t max_blocks, uint64_t seed,
				   const struct kvr_kvmap_out *out)
{
	struct kvr_kvmap *map;

	if (block_size == 0 || max_blocks == 0 || max_blocks > 1u << 30) {
		errno = EINVAL;
		return NULL;
	}
	map = calloc(1, sizeof(*map));
	if (map == NULL)
		return NULL;
	map->out = *out;
	map->block_size = block_size;
	map->max = max_blocks;
	map->ring_most = max_blocks + max_blocks / 4 + 1;
	map->ring = map->ring_most < KVMAP_FIRST ? map->ring_most : KVMAP_FIRST;
	map->seed = seed;
	map->n_buckets = max_blocks / KVR_BUCKET_FILL + 2;
	map->entries = map_large(map->ring_most * sizeof(map->entries[0]));
	map->origins = map_large(map->ring_most * sizeof(map->origins[0]));
	map->tiers = map_large(map->ring_most);
	map->copies = map_sparse(map->ring_most * sizeof(map->copies[0]));
	map->buckets = map_large(map->n_buckets * sizeof(map->buckets[0]));
	if (map->entries == NULL || map->origins == NULL || map->tiers == NULL ||
	    map->copies == NULL || map->buckets == NULL) {
		kvr_kvmap_destroy(map);
		errno = ENOMEM;
		return NULL;
	}
	return map;
}

void kvr_kvmap_destroy(struct kvr_kvmap *map)
{
	if (map == NULL)
		return;
	give_back(map->entries, map->ring_most * sizeof(map->entries[0]));
	give_back(map->origins, map->ring_most * sizeof(map->origins[0]));
	give_back(map->tiers, map->ring_most);
	give_back(map->copies, map->ring_most * sizeof(map->copies[0]));
	give_back(map->buckets, map->n_buckets * sizeof(map->buckets[0]));
	free(map->sh);
	free(map->parts);
	free(map->newest);
	free(map->newer);
	free(map);
}

static uint32_t next_bucket(const struct kvr_kvmap *map, uint32_t b)
{
	return b + 1 == map->n_buckets ? 0 : b + 1;
}

uint64_t kvr_kvmap__search(const struct kvr_kvmap *map, uint64_t name, uint64_t key)
{
	for (uint32_t at = KVMAP_HOME(key);; at = next_bucket(map, at)) {
		const struct kvr_bucket *b = &map->buckets[at];

		for (uint32_t same = kvr_bucket_tags(b, KVMAP_TAG(key)); same != 0;
		     same &= same - 1) {
			const uint32_t place = (uint32_t)__builtin_ctz(same);

			if (map->entries[b->value[place] - 1].name == name)
				return KVMAP_FOUND(at, place, b->value[place]);
		}
		if (b->over == 0)
			return 0;
	}
}

void kvr_kvmap__del(struct kvr_kvmap *map, uint64_t key, uint64_t found)
{
	for (uint32_t b = KVMAP_HOME(key); b != KVMAP_AT(found); b = next_bucket(map, b))
		map->buckets[b].over--;
	if ((map->tiers[KVMAP_POS(found) - 1] & KVMAP_LINKED) != 0)
		kvr_kvmap__unlink(map, KVMAP_POS(found) - 1);
	map->buckets[KVMAP_AT(found)].tag[KVMAP_PLACE(found)] = 0;
	map->tiers[KVMAP_POS(found) - 1] = 0;
	map->n--;
}

/* Terminates: there are nearly twice as many places as entries allowed. */
void kvr_kvmap__put(struct kvr_kvmap *map, uint64_t key, uint32_t pos)
{
	uint32_t b = KVMAP_HOME(key), is, place;

	while ((is = kvr_bucket_tags(&map->buckets[b], 0)) == 0) {
		map->buckets[b].over++;
		b = next_bucket(map, b);
	}
	place = (uint32_t)__builtin_ctz(is);
	map->buckets[b].tag[place] = KVMAP_TAG(key);
	map->buckets[b].value[place] = pos;
}

void kvr_kvmap__forget(struct kvr_kvmap *map, uint32_t e)
{
	const uint64_t name = map->entries[e].name;
	const struct kvmap_view v = kvmap_view(map);
	const uint64_t key = kvmap_key(&v, name);

	for (enum kvr_tier t = 0; t < KVR_TIERS; t++)
		if ((map->tiers[e] >> t & 1) != 0 && !kvr_kvmap__is_shared(map, e, t))
			map->out.removed(map->out.user, t, &map->entries[e].sh, 1);
	kvr_kvmap__del(map, key, kvmap_find(map, &v, name, key));
}

/* Extend the ring only while little of it is free, so that no more memory than needed is
 * touched. */
uint32_t kvr_kvmap__round(struct kvr_kvmap *map)
{
	const uint32_t want = map->n + map->n / 4 + KVMAP_FIRST, end = map->ring;

	if (want <= end || end == map->ring_most)
		return 0;
	map->ring = want < map->ring_most ? want : map->ring_most;
	return end;
}

/* Evict the first used entry from `next` on: the router must not keep a block whose removal could
 * not be translated. The free entries before it are counted in `gap`, so that each is examined
 * once. */
static void evict_oldest(struct kvr_kvmap *map)
{
	uint32_t oldest = map->next + map->gap;

	if (oldest >= map->ring)
		oldest -= map->ring;
	for (; map->tiers[oldest] == 0; map->gap++)
		oldest = oldest + 1 == map->ring ? 0 : oldest + 1;
	map->gap++;
	kvr_kvmap__forget(map, oldest);
	kvr_cell_add(&map->st.evicted, 1);
}

uint32_t kvr_kvmap__free_entry(struct kvr_kvmap *map)
{
	uint32_t e = map->next;

	if (map->n >= map->max) {
		evict_oldest(map);
		return e;
	}
	/* Terminates: the ring has, or grows to, a quarter more entries than are in use. */
	for (; map->tiers[e] != 0; map->gap = 0)
		e = e + 1 == map->ring ? kvr_kvmap__round(map) : e + 1;
	return e;
}

void kvr_kvmap_clear(struct kvr_kvmap *map)
{
	memset(map->buckets, 0, map->n_buckets * sizeof(map->buckets[0]));
	memset(map->tiers, 0, map->ring);
	map->n = 0;
	map->chunk = 0;
	if (map->newest != NULL)
		memset(map->newest, 0, (map->newest_mask + 1) * sizeof(map->newest[0]));
	map->ring = map->ring_most < KVMAP_FIRST ? map->ring_most : KVMAP_FIRST;
	map->next = map->gap = 0;
	kvr_cell_set(&map->st.held, 0);
	kvr_cell_add(&map->st.cleared, 1);
	map->out.cleared(map->out.user);
}

void kvr_kvmap_forget(struct kvr_kvmap *map)
{
	map->learned = 0;
	map->learned_eagle = false;
	map->group_state = KVMAP_NO_GROUP;
}

uint32_t kvr_kvmap_block_size(const struct kvr_kvmap *map)
{
	return map->learned;
}

bool kvr_kvmap_eagle(const struct kvr_kvmap *map)
{
	return map->learned_eagle;
}

const struct kvr_kvmap_stats *kvr_kvmap_stats_get(const struct kvr_kvmap *map)
{
	return &map->st;
}

/* *pos is tier * ring + offset from `next`. */
bool kvr_kvmap_next(struct kvr_kvmap *map, uint64_t *pos, struct kvr_kvmap_run *run)
{
	*run = (struct kvr_kvmap_run){.sh = map->run};
	/* Tier by tier, so that consecutive blocks stay together. */
	for (; *pos < (uint64_t)map->ring * KVR_TIERS; (*pos)++) {
		const uint32_t tier = (uint32_t)(*pos / map->ring);
		const uint32_t i = (uint32_t)((map->next + *pos % map->ring) % map->ring);
		const struct kvmap_origin *from = &map->origins[i];
		const bool has_parent = (map->tiers[i] & KVMAP_HAS_PARENT) != 0;

		if ((map->tiers[i] >> tier & 1) == 0 ||
		    kvr_kvmap__is_repeated(map, i, (enum kvr_tier)tier))
			continue;
		if (run->n > 0 && (run->tier != tier || run->n == KVMAP_RUN || !has_parent ||
				   from->parent != map->run[run->n - 1]))
			return true;
		if (run->n == 0) {
			run->tier = (enum kvr_tier)tier;
			run->has_parent = has_parent;
			run->parent = from->parent;
		}
		map->run[run->n++] = map->entries[i].sh;
	}
	return run->n > 0;
}
