/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvmap_pvt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct kvr_counter counters[] = {
	KVR_KVMAP_COUNTER_LIST(KVR_COUNTER_ROW) KVR_COUNTER_END,
};
/* Each store of a block that we could name adds one, and each that goes takes one away. */
const struct kvr_stats_def kvr_kvmap_stats = {"kvmap", counters, NULL};

static uint64_t mix(const struct kvr_kvmap *m, uint64_t name)
{
	uint64_t h = (name ^ m->seed) * UINT64_C(0x9e3779b97f4a7c15);

	h ^= h >> 32;
	return h * UINT64_C(0xd6e8feb86659fd93);
}

/* The high half chooses the slot and is kept in it, so that slots can move without a name. */
static uint32_t tag_of(const struct kvr_kvmap *m, uint64_t name)
{
	return (uint32_t)(mix(m, name) >> 32);
}

/* Zeroed memory of large pages where there are some: every look goes somewhere else. */
static void *large(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

struct kvr_kvmap *kvr_kvmap_create(uint32_t block_size, uint32_t max_blocks, uint64_t seed,
				   const struct kvr_kvmap_out *out)
{
	struct kvr_kvmap *m;
	uint64_t slots = 16;

	if (block_size == 0 || max_blocks == 0 || max_blocks > 1u << 30) {
		errno = EINVAL;
		return NULL;
	}
	while (slots < 2ull * max_blocks)
		slots *= 2;
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return NULL;
	m->out = *out;
	m->block_size = block_size;
	m->max = max_blocks;
	m->ring = max_blocks + max_blocks / 4 + 1;
	m->seed = seed;
	m->mask = slots - 1;
	m->entries = large(m->ring * sizeof(m->entries[0]));
	m->slots = large(slots * sizeof(m->slots[0]));
	if (m->entries == NULL || m->slots == NULL) {
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
	if (m->entries != NULL)
		munmap(m->entries, m->ring * sizeof(m->entries[0]));
	if (m->slots != NULL)
		munmap(m->slots, (m->mask + 1) * sizeof(m->slots[0]));
	free(m->sh);
	free(m);
}

void kvr_kvmap__prefetch(const struct kvr_kvmap *m, uint64_t name)
{
	__builtin_prefetch(&m->slots[tag_of(m, name) & m->mask]);
}

void kvr_kvmap__prefetch_entry(const struct kvr_kvmap *m, uint64_t name)
{
	const struct kvmap_slot *s = &m->slots[tag_of(m, name) & m->mask];

	if (s->pos != 0)
		__builtin_prefetch(&m->entries[s->pos - 1]);
}

uint64_t kvr_kvmap__slot(const struct kvr_kvmap *m, uint64_t name)
{
	const uint32_t tag = tag_of(m, name);
	uint64_t i = tag & m->mask;

	while (m->slots[i].pos != 0 &&
	       (m->slots[i].tag != tag || m->entries[m->slots[i].pos - 1].name != name))
		i = (i + 1) & m->mask;
	return i;
}

struct kvmap_entry *kvr_kvmap__at(const struct kvr_kvmap *m, uint64_t slot)
{
	const uint32_t pos = m->slots[slot].pos;

	return pos != 0 ? &m->entries[pos - 1] : NULL;
}

void kvr_kvmap__del(struct kvr_kvmap *m, uint64_t slot)
{
	uint64_t hole = slot, i = slot;

	kvr_kvmap__at(m, slot)->tiers = 0;
	/* What stands behind the hole and may stand in it moves there. */
	for (;;) {
		i = (i + 1) & m->mask;
		if (m->slots[i].pos == 0)
			break;
		if (((i - m->slots[i].tag) & m->mask) >= ((i - hole) & m->mask)) {
			m->slots[hole] = m->slots[i];
			hole = i;
		}
	}
	m->slots[hole].pos = 0;
	m->n--;
	kvr_cell_set(&m->st.held, m->n);
}

/* The oldest goes: the router must not keep what we could never take back. */
static void evict(struct kvr_kvmap *m, struct kvmap_entry *e)
{
	for (unsigned int t = 0; t < KVR_TIERS; t++)
		if (e->tiers >> t & 1)
			m->out.removed(m->out.user, (enum kvr_tier)t, &e->sh, 1);
	kvr_cell_add(&m->st.evicted, 1);
	kvr_kvmap__del(m, kvr_kvmap__slot(m, e->name));
}

struct kvmap_entry *kvr_kvmap__add(struct kvr_kvmap *m, uint64_t name, uint64_t slot)
{
	struct kvmap_entry *e = &m->entries[m->next];
	const uint32_t n = m->n;

	__builtin_prefetch(e + AHEAD, 1);
	/* The ring has a quarter more than may live: this ends. */
	while (e->tiers != 0) {
		if (m->n >= m->max) {
			evict(m, e);
			break;
		}
		m->next = m->next + 1 == m->ring ? 0 : m->next + 1;
		e = &m->entries[m->next];
	}
	if (m->n >= m->max) { /* a free place, and none to live in it: look for the oldest */
		uint32_t i = m->next;

		while (m->entries[i].tiers == 0)
			i = i + 1 == m->ring ? 0 : i + 1;
		evict(m, &m->entries[i]);
	}
	if (m->n != n) /* slots have moved */
		slot = kvr_kvmap__slot(m, name);
	m->slots[slot] = (struct kvmap_slot){tag_of(m, name), (uint32_t)(e - m->entries) + 1};
	e->name = name;
	m->next = m->next + 1 == m->ring ? 0 : m->next + 1;
	m->n++;
	kvr_cell_set(&m->st.held, m->n);
	return e;
}

void kvr_kvmap_clear(struct kvr_kvmap *m)
{
	memset(m->slots, 0, (m->mask + 1) * sizeof(m->slots[0]));
	for (uint32_t i = 0; i < m->ring && m->n > 0; i++) {
		m->n -= m->entries[i].tiers != 0;
		m->entries[i].tiers = 0;
	}
	m->next = 0;
	kvr_cell_set(&m->st.held, 0);
	kvr_cell_add(&m->st.cleared, 1);
	m->out.cleared(m->out.user);
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

/* *pos: the place in the ring from `next` on, times tiers, plus the tier. */
bool kvr_kvmap_next(struct kvr_kvmap *m, uint64_t *pos, struct kvr_kvmap_run *run)
{
	*run = (struct kvr_kvmap_run){.sh = m->run};
	/* Tier by tier, so that what follows one another stays together. */
	for (; *pos < (uint64_t)m->ring * KVR_TIERS; (*pos)++) {
		const uint32_t tier = (uint32_t)(*pos / m->ring);
		const uint32_t i = (uint32_t)((m->next + *pos % m->ring) % m->ring);
		const struct kvmap_entry *e = &m->entries[i];

		if ((e->tiers >> tier & 1) == 0)
			continue;
		if (run->n > 0 && (run->tier != tier || run->n == KVMAP_RUN || !e->has_parent ||
				   e->parent != m->run[run->n - 1]))
			return true;
		if (run->n == 0) {
			run->tier = (enum kvr_tier)tier;
			run->has_parent = e->has_parent;
			run->parent = e->parent;
		}
		m->run[run->n++] = e->sh;
	}
	return run->n > 0;
}
