/* SPDX-License-Identifier: BSD-3-Clause */
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
	struct kvr_kvmap *m;

	if (block_size == 0 || max_blocks == 0 || max_blocks > 1u << 30) {
		errno = EINVAL;
		return NULL;
	}
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return NULL;
	m->out = *out;
	m->block_size = block_size;
	m->max = max_blocks;
	m->ring_most = max_blocks + max_blocks / 4 + 1;
	m->ring = m->ring_most < KVMAP_FIRST ? m->ring_most : KVMAP_FIRST;
	m->seed = seed;
	m->n_buckets = max_blocks / KVR_BUCKET_FILL + 2;
	m->entries = map_large(m->ring_most * sizeof(m->entries[0]));
	m->origins = map_large(m->ring_most * sizeof(m->origins[0]));
	m->tiers = map_large(m->ring_most);
	m->copies = map_sparse(m->ring_most * sizeof(m->copies[0]));
	m->buckets = map_large(m->n_buckets * sizeof(m->buckets[0]));
	if (m->entries == NULL || m->origins == NULL || m->tiers == NULL || m->copies == NULL ||
	    m->buckets == NULL) {
		kvr_kvmap_destroy(m);
		errno = ENOMEM;
		return NULL;
	}
	return m;
}

void kvr_kvmap_destroy(struct kvr_kvmap *m)
{
	if (m == NULL)
		return;
	give_back(m->entries, m->ring_most * sizeof(m->entries[0]));
	give_back(m->origins, m->ring_most * sizeof(m->origins[0]));
	give_back(m->tiers, m->ring_most);
	give_back(m->copies, m->ring_most * sizeof(m->copies[0]));
	give_back(m->buckets, m->n_buckets * sizeof(m->buckets[0]));
	free(m->sh);
	free(m->parts);
	free(m->newest);
	free(m->newer);
	free(m);
}

static uint32_t next_bucket(const struct kvr_kvmap *m, uint32_t b)
{
	return b + 1 == m->n_buckets ? 0 : b + 1;
}

uint64_t kvr_kvmap__search(const struct kvr_kvmap *m, uint64_t name, uint64_t key)
{
	for (uint32_t at = KVMAP_HOME(key);; at = next_bucket(m, at)) {
		const struct kvr_bucket *b = &m->buckets[at];

		for (uint32_t same = kvr_bucket_tags(b, KVMAP_TAG(key)); same != 0;
		     same &= same - 1) {
			const uint32_t place = (uint32_t)__builtin_ctz(same);

			if (m->entries[b->value[place] - 1].name == name)
				return KVMAP_FOUND(at, place, b->value[place]);
		}
		if (b->over == 0)
			return 0;
	}
}

void kvr_kvmap__del(struct kvr_kvmap *m, uint64_t key, uint64_t found)
{
	for (uint32_t b = KVMAP_HOME(key); b != KVMAP_AT(found); b = next_bucket(m, b))
		m->buckets[b].over--;
	if ((m->tiers[KVMAP_POS(found) - 1] & KVMAP_LINKED) != 0)
		kvr_kvmap__unlink(m, KVMAP_POS(found) - 1);
	m->buckets[KVMAP_AT(found)].tag[KVMAP_PLACE(found)] = 0;
	m->tiers[KVMAP_POS(found) - 1] = 0;
	m->n--;
}

/* Terminates: there are nearly twice as many places as entries allowed. */
void kvr_kvmap__put(struct kvr_kvmap *m, uint64_t key, uint32_t pos)
{
	uint32_t b = KVMAP_HOME(key), is, place;

	while ((is = kvr_bucket_tags(&m->buckets[b], 0)) == 0) {
		m->buckets[b].over++;
		b = next_bucket(m, b);
	}
	place = (uint32_t)__builtin_ctz(is);
	m->buckets[b].tag[place] = KVMAP_TAG(key);
	m->buckets[b].value[place] = pos;
}

void kvr_kvmap__forget(struct kvr_kvmap *m, uint32_t e)
{
	const uint64_t name = m->entries[e].name;
	const struct kvmap_view v = kvmap_view(m);
	const uint64_t key = kvmap_key(&v, name);

	for (enum kvr_tier t = 0; t < KVR_TIERS; t++)
		if ((m->tiers[e] >> t & 1) != 0 && !kvr_kvmap__is_shared(m, e, t))
			m->out.removed(m->out.user, t, &m->entries[e].sh, 1);
	kvr_kvmap__del(m, key, kvmap_find(m, &v, name, key));
}

/* Extend the ring only while little of it is free, so that no more memory than needed is
 * touched. */
uint32_t kvr_kvmap__round(struct kvr_kvmap *m)
{
	const uint32_t want = m->n + m->n / 4 + KVMAP_FIRST, end = m->ring;

	if (want <= end || end == m->ring_most)
		return 0;
	m->ring = want < m->ring_most ? want : m->ring_most;
	return end;
}

/* Evict the first used entry from `next` on: the router must not keep a block whose removal could
 * not be translated. The free entries before it are counted in `gap`, so that each is examined
 * once. */
static void evict_oldest(struct kvr_kvmap *m)
{
	uint32_t oldest = m->next + m->gap;

	if (oldest >= m->ring)
		oldest -= m->ring;
	for (; m->tiers[oldest] == 0; m->gap++)
		oldest = oldest + 1 == m->ring ? 0 : oldest + 1;
	m->gap++;
	kvr_kvmap__forget(m, oldest);
	kvr_cell_add(&m->st.evicted, 1);
}

uint32_t kvr_kvmap__free_entry(struct kvr_kvmap *m)
{
	uint32_t e = m->next;

	if (m->n >= m->max) {
		evict_oldest(m);
		return e;
	}
	/* Terminates: the ring has, or grows to, a quarter more entries than are in use. */
	for (; m->tiers[e] != 0; m->gap = 0)
		e = e + 1 == m->ring ? kvr_kvmap__round(m) : e + 1;
	return e;
}

void kvr_kvmap_clear(struct kvr_kvmap *m)
{
	memset(m->buckets, 0, m->n_buckets * sizeof(m->buckets[0]));
	memset(m->tiers, 0, m->ring);
	m->n = 0;
	m->chunk = 0;
	if (m->newest != NULL)
		memset(m->newest, 0, (m->newest_mask + 1) * sizeof(m->newest[0]));
	m->ring = m->ring_most < KVMAP_FIRST ? m->ring_most : KVMAP_FIRST;
	m->next = m->gap = 0;
	kvr_cell_set(&m->st.held, 0);
	kvr_cell_add(&m->st.cleared, 1);
	m->out.cleared(m->out.user);
}

void kvr_kvmap_forget(struct kvr_kvmap *m)
{
	m->learned = 0;
	m->learned_eagle = false;
	m->group_state = KVMAP_NO_GROUP;
}

uint32_t kvr_kvmap_block_size(const struct kvr_kvmap *m)
{
	return m->learned;
}

bool kvr_kvmap_eagle(const struct kvr_kvmap *m)
{
	return m->learned_eagle;
}

const struct kvr_kvmap_stats *kvr_kvmap_stats_get(const struct kvr_kvmap *m)
{
	return &m->st;
}

/* *pos is tier * ring + offset from `next`. */
bool kvr_kvmap_next(struct kvr_kvmap *m, uint64_t *pos, struct kvr_kvmap_run *run)
{
	*run = (struct kvr_kvmap_run){.sh = m->run};
	/* Tier by tier, so that consecutive blocks stay together. */
	for (; *pos < (uint64_t)m->ring * KVR_TIERS; (*pos)++) {
		const uint32_t tier = (uint32_t)(*pos / m->ring);
		const uint32_t i = (uint32_t)((m->next + *pos % m->ring) % m->ring);
		const struct kvmap_origin *from = &m->origins[i];
		const bool has_parent = (m->tiers[i] & KVMAP_HAS_PARENT) != 0;

		if ((m->tiers[i] >> tier & 1) == 0 ||
		    kvr_kvmap__is_repeated(m, i, (enum kvr_tier)tier))
			continue;
		if (run->n > 0 && (run->tier != tier || run->n == KVMAP_RUN || !has_parent ||
				   from->parent != m->run[run->n - 1]))
			return true;
		if (run->n == 0) {
			run->tier = (enum kvr_tier)tier;
			run->has_parent = has_parent;
			run->parent = from->parent;
		}
		m->run[run->n++] = m->entries[i].sh;
	}
	return run->n > 0;
}
