/* SPDX-License-Identifier: BSD-3-Clause */
/* Stores: compute sequence hashes from tokens, enter the blocks in the table, and report them. */
#include "kvmap_pvt.h"

#include <errno.h>
#include <stdlib.h>

#include "kvr_hash.h"

/* Multimodal hashes of an event, block by block, for lib/hash. */
struct mm {
	const struct kvr_kvev *ev;
	uint32_t next;
	uint64_t hashes[KVR_HASH_MAX_MM];
};

static bool mm_next(void *arg, struct kvr_hash_mm *out)
{
	struct mm *s = arg;
	const struct kvr_kvev_mm *mm = s->ev->mm;

	if (s->next == s->ev->n_mm)
		return false;
	*out = (struct kvr_hash_mm){.block = mm[s->next].block, .hashes = s->hashes};
	while (s->next < s->ev->n_mm && mm[s->next].block == out->block) {
		if (out->n < KVR_HASH_MAX_MM)
			s->hashes[out->n] = mm[s->next].hash;
		out->n++; /* too many objects: lib/hash refuses them */
		s->next++;
	}
	return true;
}

#define CHUNK 128u /* blocks named, then stored, at once */
#define GROUP 8u   /* blocks hashed while the index lines of the next group are fetched */

/* Blocks being stored. */
struct storing {
	struct kvmap_view v;
	const struct kvr_kvev *ev;
	const uint64_t *parent; /* of the first block, or NULL */
	uint64_t seed;
	struct kvr_hash_params params;
	/* New blocks not reported yet. */
	const uint64_t *run_parent, *run;
	uint32_t n_run;
	uint64_t key[CHUNK]; /* keys of the current chunk */
};

static const uint64_t *parent_of(const struct kvr_kvmap *map, const struct storing *storing,
				 uint32_t i)
{
	return i > 0 ? &map->sh[i - 1] : storing->parent;
}

/* Compute the sequence hashes of a chunk from block `at` on, and prefetch the index lines of its
 * names. */
static void name_text(struct kvr_kvmap *map, struct storing *storing, uint32_t at, uint32_t n)
{
	const struct kvmap_view v = storing->v;

	for (uint32_t i = 0; i < n; i += GROUP) {
		const uint32_t k = n - i < GROUP ? n - i : GROUP;

		for (uint32_t j = i; j < i + k; j++) {
			storing->key[j] = kvmap_key(&v, storing->ev->hashes[at + j]);
			kvmap_prefetch(&v, storing->key[j]);
		}
		kvr_hash_blocks(&storing->params, parent_of(map, storing, at + i),
				storing->ev->tokens +
					(uint64_t)(at + i) * storing->params.block_size,
				k, &map->sh[at + i]);
	}
}

/* Compute the sequence hashes of all blocks of an event with images. @return the number of blocks
 * named. */
static uint32_t name_mm(struct kvr_kvmap *map, const struct storing *storing, uint32_t n)
{
	struct mm mm = {.ev = storing->ev};
	struct kvr_hash_params params = storing->params;
	struct kvr_hash_stream stream;

	params.mm_next = mm_next;
	params.mm_arg = &mm;
	kvr_hash_stream_init(&stream, &params, storing->parent);
	return kvr_hash_stream_add(&stream, storing->ev->tokens, storing->ev->n_tokens, NULL,
				   map->sh, n) < 0
		       ? 0
		       : n;
}

static void find_chunk(struct storing *storing, uint32_t at, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		storing->key[i] = kvmap_key(&storing->v, storing->ev->hashes[at + i]);
		kvmap_prefetch(&storing->v, storing->key[i]);
	}
}

static void report_run(struct kvr_kvmap *map, struct storing *storing)
{
	if (storing->n_run > 0)
		map->out.stored(map->out.user, storing->ev->tier, storing->run_parent, storing->run,
				storing->n_run);
	kvr_cell_add(&map->st.stored, storing->n_run);
	storing->n_run = 0;
}

/* Count a store of entry e, whose block is in the tier of the event already. */
static void store_again(struct kvr_kvmap *map, const struct kvr_kvev *ev, uint32_t e)
{
	kvr_cell_add(&map->st.again, 1);
	if (!ev->reused)
		kvmap_add_copy(map, e, ev->tier);
}

/*
 * The entry of a known name, or of a new name in a full table. Reports the current run first,
 * because a block that is evicted for the entry may be part of it. @return UINT32_MAX: the block is
 * in the tier, and was counted as a copy.
 */
static uint32_t entry_for(struct kvr_kvmap *map, struct storing *storing, uint32_t i, uint64_t key,
			  uint64_t found)
{
	const uint32_t e = KVMAP_POS(found) - 1;

	if (found != 0 &&
	    map->entries[e].sh != map->sh[i]) { /* the engine reused the name for other content */
		report_run(map, storing);
		kvr_kvmap__forget(map, e);
		found = 0;
	}
	if (found != 0 && (map->tiers[e] >> storing->ev->tier & 1) != 0) {
		store_again(map, storing->ev, e);
		report_run(map, storing);
		return UINT32_MAX;
	}
	if (found != 0)
		return e;
	if (map->n >= map->max)
		report_run(map, storing);
	return kvmap_add(map, &storing->v, storing->ev->hashes[i], key);
}

static inline void add_to_run(const struct kvr_kvmap *map, struct storing *storing, uint32_t i)
{
	if (storing->n_run++ == 0) {
		storing->run = &map->sh[i];
		storing->run_parent = parent_of(map, storing, i);
	}
}

/* Add the block of entry e to the tier of the event. */
static void add_to_tier(struct kvr_kvmap *map, struct storing *storing, uint32_t i, uint32_t e)
{
	const uint64_t *parent = parent_of(map, storing, i);
	uint32_t surplus = UINT32_MAX;

	if (map->tiers[e] == 0) { /* new entry */
		map->entries[e].sh = map->sh[i];
		map->origins[e] =
			(struct kvmap_origin){parent != NULL ? *parent : 0, storing->seed};
		map->tiers[e] = parent != NULL ? KVMAP_HAS_PARENT : 0;
		if (map->newest != NULL)
			surplus = kvr_kvmap__link(map, e);
	}
	map->tiers[e] |= (uint8_t)(1u << storing->ev->tier);
	if (kvr_kvmap__is_shared(map, e, storing->ev->tier))
		report_run(map, storing);
	else
		add_to_run(map, storing, i);
	if (surplus != UINT32_MAX) {
		kvr_kvmap__forget(map, surplus);
		kvr_cell_add(&map->st.surplus, 1);
	}
}

/* Store a block in any state: known, without room in its home bucket, or in a full table. */
static __attribute__((noinline)) void store_any(struct kvr_kvmap *map, struct storing *storing,
						uint32_t i, uint64_t key)
{
	const uint64_t name = storing->ev->hashes[i],
		       found = kvmap_find(map, &storing->v, name, key);
	const bool fresh = found == 0 && map->n < map->max;
	const uint32_t e = fresh ? kvmap_add(map, &storing->v, name, key)
				 : entry_for(map, storing, i, key, found);

	if (e != UINT32_MAX)
		add_to_tier(map, storing, i, e);
}

/* Store the blocks of a chunk, whose keys are known. Nearly all are new and have room in their home
 * bucket. */
static __attribute__((noinline)) void store_chunk(struct kvr_kvmap *map, struct storing *storing,
						  uint32_t at, uint32_t n)
{
	const struct kvmap_view v = storing->v;
	const uint64_t *name = storing->ev->hashes + at, *sh = map->sh + at;
	const uint64_t *parent = parent_of(map, storing, at);
	const uint8_t bit = (uint8_t)(1u << storing->ev->tier);
	struct kvmap_origin from = {parent != NULL ? *parent : 0, storing->seed};
	uint8_t has_parent = parent != NULL ? KVMAP_HAS_PARENT : 0;
	const bool linked = map->newest != NULL;

	for (uint32_t i = 0; i < n; i++) {
		const uint32_t e = linked ? UINT32_MAX : kvmap_add_home(map, &v, storing->key[i]);

		if (e != UINT32_MAX) {
			v.entries[e] = (struct kvmap_entry){name[i], sh[i]};
			v.origins[e] = from;
			v.tiers[e] = bit | has_parent;
			add_to_run(map, storing, at + i);
		} else {
			store_any(map, storing, at + i, storing->key[i]);
		}
		from.parent = sh[i];
		has_parent = KVMAP_HAS_PARENT;
	}
}

/* Store n blocks and report the new ones. */
static void store_blocks(struct kvr_kvmap *map, struct storing *storing, uint32_t n)
{
	uint32_t named = n;

	if (storing->ev->n_mm > 0)
		named = name_mm(map, storing, n);
	kvr_cell_add(&map->st.strange, n - named);
	for (uint32_t at = 0; at < named; at += CHUNK) {
		const uint32_t k = named - at < CHUNK ? named - at : CHUNK;

		if (storing->ev->n_mm > 0)
			find_chunk(storing, at, k);
		else
			name_text(map, storing, at, k);
		if (k > 1)
			store_chunk(map, storing, at, k);
		else
			store_any(map, storing, at, storing->key[0]);
	}
	report_run(map, storing);
}

bool kvr_kvmap__move(struct kvr_kvmap *map, const struct kvr_kvev *ev, uint64_t name)
{
	const uint8_t bit = (uint8_t)(1u << ev->tier);
	const struct kvmap_view v = kvmap_view(map);
	const uint32_t pos = KVMAP_POS(kvmap_find(map, &v, name, kvmap_key(&v, name)));
	uint8_t *tiers = &map->tiers[pos - 1];

	if (pos == 0)
		return false;
	if ((*tiers & bit) != 0) {
		store_again(map, ev, pos - 1);
		return true;
	}
	*tiers |= bit;
	if (kvr_kvmap__is_shared(map, pos - 1, ev->tier))
		return true;
	kvr_cell_add(&map->st.stored, 1);
	map->out.stored(map->out.user, ev->tier,
			(*tiers & KVMAP_HAS_PARENT) != 0 ? &map->origins[pos - 1].parent : NULL,
			&map->entries[pos - 1].sh, 1);
	return true;
}

uint32_t kvr_kvmap__usable(struct kvr_kvmap *map, const struct kvr_kvev *ev)
{
	const uint32_t whole = kvr_hash_count(ev->n_tokens, map->block_size, ev->eagle);
	uint32_t n = ev->n_hashes;

	if (n > whole) {
		kvr_cell_add(&map->st.few_tokens, n - whole);
		n = whole;
	}
	if (n > ev->strange_block) {
		kvr_cell_add(&map->st.strange, n - ev->strange_block);
		n = ev->strange_block;
	}
	return n;
}

static bool grow_hashes(struct kvr_kvmap *map, uint32_t n)
{
	uint64_t *larger;

	if (n <= map->cap_sh)
		return true;
	larger = realloc(map->sh, n * sizeof(larger[0]));
	if (larger == NULL)
		return false;
	map->sh = larger;
	map->cap_sh = n;
	return true;
}

int kvr_kvmap__store(struct kvr_kvmap *map, const struct kvr_kvev *ev)
{
	const uint32_t n = kvr_kvmap__usable(map, ev);
	uint32_t pos = 0;
	struct storing s;
	uint64_t parent;

	if (!grow_hashes(map, n))
		return -ENOMEM;
	s.v = kvmap_view(map);
	s.ev = ev;
	s.parent = NULL;
	s.n_run = 0;
	if (ev->has_parent)
		pos = KVMAP_POS(kvmap_find(map, &s.v, ev->parent, kvmap_key(&s.v, ev->parent)));
	if (pos != 0) {
		parent = map->entries[pos - 1].sh;
		s.parent = &parent;
		s.seed = map->origins[pos - 1].seed; /* events of later blocks may omit the keys */
	} else if (ev->has_parent && ev->parent != 0) {
		kvr_cell_add(&map->st.orphans, n);
		return 0;
	} else { /* some engines send 0 for "no parent" */
		s.seed = kvr_hash_seed(ev->lora.p, ev->lora.len, ev->salt.p, ev->salt.len);
	}
	s.params = (struct kvr_hash_params){
		.seed = s.seed, .block_size = map->block_size, .eagle = ev->eagle};
	store_blocks(map, &s, n);
	return 0;
}
