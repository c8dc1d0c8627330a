/* SPDX-License-Identifier: BSD-3-Clause */
/* Events of an engine, applied to the table and told in our names. */
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
		out->n++; /* too many: lib/hash refuses them */
		s->next++;
	}
	return true;
}

/* Sequence hashes of the first n blocks. @return how many there are. */
static uint32_t name_blocks(struct kvr_kvmap *m, const struct kvr_kvev *ev, const uint64_t *parent,
			    uint64_t seed, uint32_t n)
{
	const uint32_t size = m->block_size, window = size + ev->eagle;

	if (ev->n_mm == 0) {
		for (uint32_t i = 0; i < n; i++)
			m->sh[i] = kvr_hash_block(ev->tokens + (uint64_t)i * size, window, seed);
		kvr_hash_chain(parent, m->sh, n, m->sh);
		return n;
	}
	struct mm mm = {.ev = ev};
	const struct kvr_hash_params params = {.seed = seed,
					       .block_size = size,
					       .eagle = ev->eagle,
					       .mm_next = mm_next,
					       .mm_arg = &mm};
	struct kvr_hash_stream s;

	kvr_hash_stream_init(&s, &params, parent);
	return kvr_hash_stream_add(&s, ev->tokens, ev->n_tokens, NULL, m->sh, n) < 0 ? 0 : n;
}

/* Blocks of an event that are new and were not told yet. */
struct run {
	const uint64_t *parent, *sh;
	uint32_t n;
	enum kvr_tier tier;
};

static void tell(struct kvr_kvmap *m, struct run *r)
{
	if (r->n > 0)
		m->out.stored(m->out.user, r->tier, r->parent, r->sh, r->n);
	r->n = 0;
}

/* The engine has given a name to other content. */
static void forget(struct kvr_kvmap *m, uint64_t slot)
{
	const struct kvmap_entry *e = kvr_kvmap__at(m, slot);

	for (unsigned int t = 0; t < KVR_TIERS; t++)
		if (e->tiers >> t & 1)
			m->out.removed(m->out.user, (enum kvr_tier)t, &e->sh, 1);
	kvr_kvmap__del(m, slot);
}

/* One block is in the run's tier now. What goes for it may be of the run: that is told before. */
static void store_one(struct kvr_kvmap *m, uint64_t name, const uint64_t *sh,
		      const uint64_t *parent, uint64_t ns, struct run *r)
{
	uint64_t slot = kvr_kvmap__slot(m, name);
	struct kvmap_entry *e = kvr_kvmap__at(m, slot);
	const uint8_t bit = (uint8_t)(1u << r->tier);

	if (e != NULL && e->sh != *sh) {
		tell(m, r);
		forget(m, slot);
		slot = kvr_kvmap__slot(m, name);
		e = NULL;
	}
	if (e != NULL && (e->tiers & bit) != 0) {
		kvr_cell_add(&m->st.again, 1);
		tell(m, r);
		return;
	}
	if (e == NULL) {
		if (m->n >= m->max)
			tell(m, r);
		e = kvr_kvmap__add(m, name, slot);
		e->sh = *sh;
		e->ns = ns;
		e->has_parent = parent != NULL;
		e->parent = parent != NULL ? *parent : 0;
	}
	e->tiers |= bit;
	kvr_cell_add(&m->st.stored, 1);
	if (r->n++ == 0) {
		r->sh = sh;
		r->parent = parent;
	}
}

/* n named blocks; tells the runs that are new. */
static void store(struct kvr_kvmap *m, const struct kvr_kvev *ev, const uint64_t *parent,
		  uint64_t ns, uint32_t n)
{
	struct run r = {.tier = ev->tier};

	for (uint32_t i = 0; i < n; i++) {
		if (i + AHEAD < n)
			kvr_kvmap__prefetch(m, ev->hashes[i + AHEAD]);
		store_one(m, ev->hashes[i], &m->sh[i], i > 0 ? &m->sh[i - 1] : parent, ns, &r);
	}
	tell(m, &r);
}

/* Blocks without tokens: moved, so they are known. */
static void move(struct kvr_kvmap *m, const struct kvr_kvev *ev)
{
	for (uint32_t i = 0; i < ev->n_hashes; i++) {
		struct kvmap_entry *e = kvr_kvmap__at(m, kvr_kvmap__slot(m, ev->hashes[i]));
		const uint8_t bit = (uint8_t)(1u << ev->tier);

		if (e == NULL) {
			kvr_cell_add(&m->st.orphans, 1);
		} else if ((e->tiers & bit) != 0) {
			kvr_cell_add(&m->st.again, 1);
		} else {
			e->tiers |= bit;
			kvr_cell_add(&m->st.stored, 1);
			m->out.stored(m->out.user, ev->tier, e->has_parent ? &e->parent : NULL,
				      &e->sh, 1);
		}
	}
}

/* Is it of a cache group that says nothing about prefixes? Removals name only its number. */
static bool other_group(struct kvr_kvmap *m, const struct kvr_kvev *ev)
{
	const uint64_t bit = ev->has_group && ev->group < 64 ? UINT64_C(1) << ev->group : 0;

	if (ev->other_group) {
		m->other_groups |= bit;
		return true;
	}
	return ev->type == KVR_KVEV_REMOVED && (m->other_groups & bit) != 0;
}

/* Blocks of the event that can be named; what cannot is counted. */
static uint32_t usable(struct kvr_kvmap *m, const struct kvr_kvev *ev)
{
	const uint32_t whole = kvr_hash_count(ev->n_tokens, m->block_size, ev->eagle);
	uint32_t n = ev->n_hashes;

	if (n > whole) {
		kvr_cell_add(&m->st.short_, n - whole);
		n = whole;
	}
	if (n > ev->strange_block) {
		kvr_cell_add(&m->st.strange, n - ev->strange_block);
		n = ev->strange_block;
	}
	return n;
}

static bool room(struct kvr_kvmap *m, uint32_t n)
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

static int stored(struct kvr_kvmap *m, const struct kvr_kvev *ev)
{
	uint64_t seed, parent = 0, ns = 0;
	uint32_t n, named;

	if (ev->n_tokens == 0) {
		move(m, ev);
		return 0;
	}
	if (m->learned == 0) {
		m->learned = ev->block_size;
		m->learned_eagle = ev->eagle;
	}
	if (ev->block_size != m->block_size) {
		kvr_cell_add(&m->st.size, 1);
		return 0;
	}
	n = usable(m, ev);
	if (!room(m, n))
		return -ENOMEM;
	for (uint32_t i = 0; i < n && i < AHEAD; i++) /* while the tokens are hashed */
		kvr_kvmap__prefetch(m, ev->hashes[i]);
	if (ev->has_parent) {
		const struct kvmap_entry *e = kvr_kvmap__at(m, kvr_kvmap__slot(m, ev->parent));

		if (e == NULL) {
			kvr_cell_add(&m->st.orphans, n);
			return 0;
		}
		parent = e->sh;
		ns = e->ns; /* only the first block's event must tell it */
	} else if (ev->salt.len > 0) {
		ns = kvr_hash_seed(NULL, 0, ev->salt.p, ev->salt.len) - KVR_HASH_SEED;
	}
	seed = kvr_hash_seed(ev->lora.p, ev->lora.len, NULL, 0) + ns;
	named = name_blocks(m, ev, ev->has_parent ? &parent : NULL, seed, n);
	kvr_cell_add(&m->st.strange, n - named);
	store(m, ev, ev->has_parent ? &parent : NULL, ns, named);
	return 0;
}

static void removed(struct kvr_kvmap *m, const struct kvr_kvev *ev)
{
	const uint8_t bit = (uint8_t)(1u << ev->tier);
	uint32_t n = 0;

	for (uint32_t i = 0; i < ev->n_hashes && i < AHEAD; i++)
		kvr_kvmap__prefetch(m, ev->hashes[i]);
	for (uint32_t i = 0; i < ev->n_hashes; i++) {
		struct kvmap_entry *e;
		uint64_t slot;

		if (i + AHEAD < ev->n_hashes)
			kvr_kvmap__prefetch(m, ev->hashes[i + AHEAD]);
		if (i + AHEAD / 2 < ev->n_hashes)
			kvr_kvmap__prefetch_entry(m, ev->hashes[i + AHEAD / 2]);
		slot = kvr_kvmap__slot(m, ev->hashes[i]);
		e = kvr_kvmap__at(m, slot);
		if (e == NULL || (e->tiers & bit) == 0) {
			kvr_cell_add(&m->st.absent, 1);
			continue;
		}
		m->run[n++] = e->sh;
		e->tiers = (uint8_t)(e->tiers & ~bit);
		if (e->tiers == 0)
			kvr_kvmap__del(m, slot);
		if (n == KVMAP_RUN) {
			m->out.removed(m->out.user, ev->tier, m->run, n);
			kvr_cell_add(&m->st.removed, n);
			n = 0;
		}
	}
	if (n > 0)
		m->out.removed(m->out.user, ev->tier, m->run, n);
	kvr_cell_add(&m->st.removed, n);
}

int kvr_kvmap_apply(struct kvr_kvmap *m, const struct kvr_kvev *ev)
{
	kvr_cell_add(&m->st.events, 1);
	if (ev->type == KVR_KVEV_UNKNOWN) {
		kvr_cell_add(&m->st.unknown, 1);
		return 0;
	}
	if (ev->type == KVR_KVEV_CLEARED) {
		kvr_kvmap_clear(m);
		return 0;
	}
	if (ev->foreign) {
		kvr_cell_add(&m->st.foreign, 1);
		return 0;
	}
	if (other_group(m, ev)) {
		kvr_cell_add(&m->st.group, 1);
		return 0;
	}
	if (ev->fault == KVR_KVEV_MEDIUM) { /* nothing was stored there either */
		kvr_cell_add(&m->st.medium, 1);
		return 0;
	}
	if (ev->fault != KVR_KVEV_FINE) {
		kvr_cell_add(&m->st.bad, 1);
		return ev->type == KVR_KVEV_REMOVED ? -EBADMSG : 0;
	}
	if (ev->type == KVR_KVEV_STORED)
		return stored(m, ev);
	removed(m, ev);
	return 0;
}
