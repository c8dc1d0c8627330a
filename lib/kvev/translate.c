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

static const uint64_t *parent_of(const struct kvr_kvmap *m, const struct storing *s, uint32_t i)
{
	return i > 0 ? &m->sh[i - 1] : s->parent;
}

/* Compute the sequence hashes of a chunk from block `at` on, and prefetch the index lines of its
 * names. */
static void name_text(struct kvr_kvmap *m, struct storing *s, uint32_t at, uint32_t n)
{
	const struct kvmap_view v = s->v;

	for (uint32_t i = 0; i < n; i += GROUP) {
		const uint32_t k = n - i < GROUP ? n - i : GROUP;

		for (uint32_t j = i; j < i + k; j++) {
			s->key[j] = kvmap_key(&v, s->ev->hashes[at + j]);
			kvmap_prefetch(&v, s->key[j]);
		}
		kvr_hash_blocks(&s->params, parent_of(m, s, at + i),
				s->ev->tokens + (uint64_t)(at + i) * s->params.block_size, k,
				&m->sh[at + i]);
	}
}

/* Compute the sequence hashes of all blocks of an event with images. @return the number of blocks
 * named. */
static uint32_t name_mm(struct kvr_kvmap *m, const struct storing *s, uint32_t n)
{
	struct mm mm = {.ev = s->ev};
	struct kvr_hash_params params = s->params;
	struct kvr_hash_stream stream;

	params.mm_next = mm_next;
	params.mm_arg = &mm;
	kvr_hash_stream_init(&stream, &params, s->parent);
	return kvr_hash_stream_add(&stream, s->ev->tokens, s->ev->n_tokens, NULL, m->sh, n) < 0 ? 0
												: n;
}

static void find_chunk(struct storing *s, uint32_t at, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		s->key[i] = kvmap_key(&s->v, s->ev->hashes[at + i]);
		kvmap_prefetch(&s->v, s->key[i]);
	}
}

static void report_run(struct kvr_kvmap *m, struct storing *s)
{
	if (s->n_run > 0)
		m->out.stored(m->out.user, s->ev->tier, s->run_parent, s->run, s->n_run);
	kvr_cell_add(&m->st.stored, s->n_run);
	s->n_run = 0;
}

/* Count a store of entry e, whose block is in the tier of the event already. */
static void store_again(struct kvr_kvmap *m, const struct kvr_kvev *ev, uint32_t e)
{
	kvr_cell_add(&m->st.again, 1);
	if (!ev->reused)
		kvmap_add_copy(m, e, ev->tier);
}

/*
 * The entry of a known name, or of a new name in a full table. Reports the current run first,
 * because a block that is evicted for the entry may be part of it. @return UINT32_MAX: the block is
 * in the tier, and was counted as a copy.
 */
static uint32_t entry_for(struct kvr_kvmap *m, struct storing *s, uint32_t i, uint64_t key,
			  uint64_t found)
{
	const uint32_t e = KVMAP_POS(found) - 1;

	if (found != 0 &&
	    m->entries[e].sh != m->sh[i]) { /* the engine reused the name for other content */
		report_run(m, s);
		kvr_kvmap__forget(m, e);
		found = 0;
	}
	if (found != 0 && (m->tiers[e] >> s->ev->tier & 1) != 0) {
		store_again(m, s->ev, e);
		report_run(m, s);
		return UINT32_MAX;
	}
	if (found != 0)
		return e;
	if (m->n >= m->max)
		report_run(m, s);
	return kvmap_add(m, &s->v, s->ev->hashes[i], key);
}

static inline void add_to_run(const struct kvr_kvmap *m, struct storing *s, uint32_t i)
{
	if (s->n_run++ == 0) {
		s->run = &m->sh[i];
		s->run_parent = parent_of(m, s, i);
	}
}

/* Add the block of entry e to the tier of the event. */
static void add_to_tier(struct kvr_kvmap *m, struct storing *s, uint32_t i, uint32_t e)
{
	const uint64_t *parent = parent_of(m, s, i);
	uint32_t surplus = UINT32_MAX;

	if (m->tiers[e] == 0) { /* new entry */
		m->entries[e].sh = m->sh[i];
		m->origins[e] = (struct kvmap_origin){parent != NULL ? *parent : 0, s->seed};
		m->tiers[e] = parent != NULL ? KVMAP_HAS_PARENT : 0;
		if (m->newest != NULL)
			surplus = kvr_kvmap__link(m, e);
	}
	m->tiers[e] |= (uint8_t)(1u << s->ev->tier);
	if (kvr_kvmap__is_shared(m, e, s->ev->tier))
		report_run(m, s);
	else
		add_to_run(m, s, i);
	if (surplus != UINT32_MAX) {
		kvr_kvmap__forget(m, surplus);
		kvr_cell_add(&m->st.surplus, 1);
	}
}

/* Store a block in any state: known, without room in its home bucket, or in a full table. */
static __attribute__((noinline)) void store_any(struct kvr_kvmap *m, struct storing *s, uint32_t i,
						uint64_t key)
{
	const uint64_t name = s->ev->hashes[i], found = kvmap_find(m, &s->v, name, key);
	const bool fresh = found == 0 && m->n < m->max;
	const uint32_t e = fresh ? kvmap_add(m, &s->v, name, key) : entry_for(m, s, i, key, found);

	if (e != UINT32_MAX)
		add_to_tier(m, s, i, e);
}

/* Store the blocks of a chunk, whose keys are known. Nearly all are new and have room in their home
 * bucket. */
static __attribute__((noinline)) void store_chunk(struct kvr_kvmap *m, struct storing *s,
						  uint32_t at, uint32_t n)
{
	const struct kvmap_view v = s->v;
	const uint64_t *name = s->ev->hashes + at, *sh = m->sh + at;
	const uint64_t *parent = parent_of(m, s, at);
	const uint8_t bit = (uint8_t)(1u << s->ev->tier);
	struct kvmap_origin from = {parent != NULL ? *parent : 0, s->seed};
	uint8_t has_parent = parent != NULL ? KVMAP_HAS_PARENT : 0;
	const bool linked = m->newest != NULL;

	for (uint32_t i = 0; i < n; i++) {
		const uint32_t e = linked ? UINT32_MAX : kvmap_add_home(m, &v, s->key[i]);

		if (e != UINT32_MAX) {
			v.entries[e] = (struct kvmap_entry){name[i], sh[i]};
			v.origins[e] = from;
			v.tiers[e] = bit | has_parent;
			add_to_run(m, s, at + i);
		} else {
			store_any(m, s, at + i, s->key[i]);
		}
		from.parent = sh[i];
		has_parent = KVMAP_HAS_PARENT;
	}
}

/* Store n blocks and report the new ones. */
static void store_blocks(struct kvr_kvmap *m, struct storing *s, uint32_t n)
{
	uint32_t named = n;

	if (s->ev->n_mm > 0)
		named = name_mm(m, s, n);
	kvr_cell_add(&m->st.strange, n - named);
	for (uint32_t at = 0; at < named; at += CHUNK) {
		const uint32_t k = named - at < CHUNK ? named - at : CHUNK;

		if (s->ev->n_mm > 0)
			find_chunk(s, at, k);
		else
			name_text(m, s, at, k);
		if (k > 1)
			store_chunk(m, s, at, k);
		else
			store_any(m, s, at, s->key[0]);
	}
	report_run(m, s);
}

bool kvr_kvmap__move(struct kvr_kvmap *m, const struct kvr_kvev *ev, uint64_t name)
{
	const uint8_t bit = (uint8_t)(1u << ev->tier);
	const struct kvmap_view v = kvmap_view(m);
	const uint32_t pos = KVMAP_POS(kvmap_find(m, &v, name, kvmap_key(&v, name)));
	uint8_t *tiers = &m->tiers[pos - 1];

	if (pos == 0)
		return false;
	if ((*tiers & bit) != 0) {
		store_again(m, ev, pos - 1);
		return true;
	}
	*tiers |= bit;
	if (kvr_kvmap__is_shared(m, pos - 1, ev->tier))
		return true;
	kvr_cell_add(&m->st.stored, 1);
	m->out.stored(m->out.user, ev->tier,
		      (*tiers & KVMAP_HAS_PARENT) != 0 ? &m->origins[pos - 1].parent : NULL,
		      &m->entries[pos - 1].sh, 1);
	return true;
}

uint32_t kvr_kvmap__usable(struct kvr_kvmap *m, const struct kvr_kvev *ev)
{
	const uint32_t whole = kvr_hash_count(ev->n_tokens, m->block_size, ev->eagle);
	uint32_t n = ev->n_hashes;

	if (n > whole) {
		kvr_cell_add(&m->st.few_tokens, n - whole);
		n = whole;
	}
	if (n > ev->strange_block) {
		kvr_cell_add(&m->st.strange, n - ev->strange_block);
		n = ev->strange_block;
	}
	return n;
}

static bool grow_hashes(struct kvr_kvmap *m, uint32_t n)
{
	uint64_t *larger;

	if (n <= m->cap_sh)
		return true;
	larger = realloc(m->sh, n * sizeof(larger[0]));
	if (larger == NULL)
		return false;
	m->sh = larger;
	m->cap_sh = n;
	return true;
}

int kvr_kvmap__store(struct kvr_kvmap *m, const struct kvr_kvev *ev)
{
	const uint32_t n = kvr_kvmap__usable(m, ev);
	uint32_t pos = 0;
	struct storing s;
	uint64_t parent;

	if (!grow_hashes(m, n))
		return -ENOMEM;
	s.v = kvmap_view(m);
	s.ev = ev;
	s.parent = NULL;
	s.n_run = 0;
	if (ev->has_parent)
		pos = KVMAP_POS(kvmap_find(m, &s.v, ev->parent, kvmap_key(&s.v, ev->parent)));
	if (pos != 0) {
		parent = m->entries[pos - 1].sh;
		s.parent = &parent;
		s.seed = m->origins[pos - 1].seed; /* events of later blocks may omit the keys */
	} else if (ev->has_parent && ev->parent != 0) {
		kvr_cell_add(&m->st.orphans, n);
		return 0;
	} else { /* some engines send 0 for "no parent" */
		s.seed = kvr_hash_seed(ev->lora.p, ev->lora.len, ev->salt.p, ev->salt.len);
	}
	s.params = (struct kvr_hash_params){
		.seed = s.seed, .block_size = m->block_size, .eagle = ev->eagle};
	store_blocks(m, &s, n);
	return 0;
}
