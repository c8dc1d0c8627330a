/* SPDX-License-Identifier: BSD-3-Clause */
/* Stores in tiers below the device: chunks of several blocks, and blocks reported without keys. */
#include "kvmap_pvt.h"

#include <errno.h>
#include <stdlib.h>

#define CHUNK_MOST 256u /* blocks per chunk; a removal tries as many */

/* Name of the block that lies @p back blocks before the last block of a chunk. The last block has
 * the name of the chunk, because the next chunk gives that name as its parent. */
static uint64_t name_part(uint64_t chunk, uint32_t back)
{
	uint64_t h = chunk + back * UINT64_C(0x9e3779b97f4a7c15);

	if (back == 0)
		return chunk;
	h ^= h >> 32;
	h *= UINT64_C(0xd6e8feb86659fd93);
	return h ^ h >> 32;
}

static bool make_room(struct kvr_kvmap *map, uint32_t n)
{
	uint64_t *larger;

	if (n <= map->cap_parts)
		return true;
	larger = realloc(map->parts, n * sizeof(larger[0]));
	if (larger == NULL)
		return false;
	map->parts = larger;
	map->cap_parts = n;
	return true;
}

/* Fill @p blocks with the same event and a name for each block. The event does not state which
 * block of a chunk an image lies in, so blocks from the first chunk with an image on cannot be
 * named. @return 0 or -ENOMEM. */
static int split_chunks(struct kvr_kvmap *map, const struct kvr_kvev *ev, uint32_t size,
			struct kvr_kvev *blocks)
{
	const uint32_t whole = ev->n_tokens / ev->block_size;
	const uint32_t n = ev->n_hashes < whole ? ev->n_hashes : whole;
	const uint32_t keyed = ev->n_mm > 0 && ev->mm[0].block < ev->strange_block
				       ? ev->mm[0].block
				       : ev->strange_block;

	if (!make_room(map, n * size))
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < size; k++)
			map->parts[i * size + k] = name_part(ev->hashes[i], size - 1 - k);
	kvr_cell_add(&map->st.few_tokens, ev->n_hashes - n);
	*blocks = *ev;
	blocks->hashes = map->parts;
	blocks->n_hashes = n * size;
	blocks->block_size = map->block_size;
	blocks->n_mm = 0;
	blocks->strange_block = keyed < n ? keyed * size : UINT32_MAX;
	if (map->chunk < size)
		map->chunk = size;
	return 0;
}

/* Store blocks of an event without keys, which leaves salt, adapter and images open: known blocks
 * keep theirs, and new blocks inherit from their predecessor. @return 0 or -ENOMEM. */
static int store_keyless(struct kvr_kvmap *map, const struct kvr_kvev *ev)
{
	const uint32_t n = kvr_kvmap__usable(map, ev);
	const struct kvmap_view v = kvmap_view(map);
	struct kvr_kvev rest = *ev;
	int rc = 0;

	for (uint32_t i = 0, k; i < n && rc == 0; i += k) {
		for (k = 0; i + k < n; k++) {
			const uint64_t name = ev->hashes[i + k];

			if (kvmap_find(map, &v, name, kvmap_key(&v, name)) != 0)
				break;
		}
		if (k == 0) {
			kvr_kvmap__move(map, ev, ev->hashes[i]);
			k = 1;
			continue;
		}
		if (i > 0) {
			rest.has_parent = true;
			rest.parent = ev->hashes[i - 1];
		}
		rest.hashes = ev->hashes + i;
		rest.n_hashes = k;
		rest.tokens = ev->tokens + (size_t)i * map->block_size;
		rest.n_tokens = k * map->block_size + ev->eagle;
		rc = kvr_kvmap__store(map, &rest);
	}
	return rc;
}

int kvr_kvmap__store_lower(struct kvr_kvmap *map, const struct kvr_kvev *ev)
{
	const uint32_t size = ev->block_size / map->block_size;
	struct kvr_kvev blocks = *ev;
	int rc = 0;

	if (size == 0 || size > CHUNK_MOST || ev->block_size % map->block_size != 0) {
		kvr_cell_add(&map->st.chunks, 1);
		return 0;
	}
	if (size > 1)
		rc = split_chunks(map, ev, size, &blocks);
	if (rc < 0)
		return rc;
	if (ev->lora.len == 0 && ev->salt.len == 0 && ev->n_mm == 0 &&
	    ev->strange_block == UINT32_MAX)
		return store_keyless(map, &blocks);
	return kvr_kvmap__store(map, &blocks);
}

void kvr_kvmap__remove_parts(struct kvr_kvmap *map, const struct kvr_kvev *ev)
{
	uint64_t names[CHUNK_MOST];
	struct kvr_kvev part = *ev;

	part.hashes = names;
	part.n_hashes = map->chunk - 1;
	for (uint32_t i = 0; i < ev->n_hashes; i++) {
		for (uint32_t k = 1; k < map->chunk; k++)
			names[k - 1] = name_part(ev->hashes[i], k);
		kvr_kvmap__remove(map, &part);
	}
}
