/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cache of an engine's rank, and its KV events. Faults falsify the events. A falsified rank is
 * marked dirty, and the healed engine announces all its blocks again, as an agent does after a gap
 * in its engine's events.
 */
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The model counts prompts in blocks: the full ones, plus one for the remaining tokens, which are
 * always computed. Items are paced by the request, not by the model. */
static const struct engine_speed speed = {.prefill = 60000};

int cache_begin(struct sim *s, struct engine *e, uint32_t rank)
{
	struct rank *k = &e->rank[rank];

	/* Otherwise routers may take the new incarnation for the old one until HELLO arrives. */
	if (!s->plan.bug_epoch && !s->plan.clock_back)
		announced_free(&k->announced);
	*k = (struct rank){.announced = k->announced};
	engine_init(&k->model, &speed);
	k->model.cache = engine_cache_create(s->plan.cache_blocks, s->plan.seed);
	return k->model.cache != NULL ? 0 : -errno;
}

void cache_end(struct engine *e, uint32_t rank)
{
	engine_cache_destroy(e->rank[rank].model.cache);
	e->rank[rank].model.cache = NULL;
}

/* ---- events ---- */

static void announce_stored(struct engine *e, uint32_t rank, const uint64_t *parent,
			    const uint64_t *sh, uint32_t n)
{
	const struct kvr_agent_kv kv = {.tier = KVR_TIER_DEVICE,
					.has_parent = parent != NULL,
					.parent = parent != NULL ? *parent : 0,
					.hashes = sh,
					.n = n};

	announced_add(&e->rank[rank].announced, sh, n);
	for (uint32_t i = 0; i < e->sim->plan.routers; i++)
		kvr_agent_kv_stored(e->seat[i].agent, rank, &kv);
}

static void announce_removed(struct engine *e, uint32_t rank, const uint64_t *sh, uint32_t n)
{
	const struct kvr_agent_kv kv = {.tier = KVR_TIER_DEVICE, .hashes = sh, .n = n};

	for (uint32_t i = 0; i < e->sim->plan.routers; i++)
		kvr_agent_kv_removed(e->seat[i].agent, rank, &kv);
}

/* An event about blocks that never existed: a removal has no effect, a store is false. */
static void announce_invented(struct engine *e, uint32_t rank)
{
	struct kvr_rand *r = &e->rand;
	uint64_t sh[8];

	for (uint32_t i = 0; i < RTE_DIM(sh); i++)
		sh[i] = kvr_rand_u64(r);
	if (kvr_rand_below(r, 2) == 0) {
		announce_removed(e, rank, sh, RTE_DIM(sh));
	} else {
		announce_stored(e, rank, NULL, sh, RTE_DIM(sh));
		e->rank[rank].dirty = true;
	}
}

static void lose_event(struct rank *k)
{
	k->dirty = true;
	sim_bug(SIM_BUG_LOST);
}

void cache_store(struct sim *s, struct engine *e, struct execution *r)
{
	static uint64_t gone[SIM_PROMPT];
	struct rank *k = &e->rank[r->rank];
	struct kvr_rand *rand = &e->rand;
	const bool bugs = sim_faults(s);
	const struct engine_cache_change c = engine_store(&k->model, r->hash, r->n_hashes, gone);
	const uint64_t *parent = c.have > 0 ? &r->hash[c.have - 1] : NULL;
	const uint64_t lie = kvr_rand_u64(rand);

	if (c.n_removed > 0) {
		if (bugs && sim_chance(rand, s->plan.bug_lost))
			lose_event(k);
		else
			announce_removed(e, r->rank, gone, c.n_removed);
	}
	if (c.n > c.have) {
		if (bugs && sim_chance(rand, s->plan.bug_parent)) {
			parent = kvr_rand_below(rand, 2) == 0 ? &lie : NULL;
			sim_bug(SIM_BUG_PARENT);
		}
		if (bugs && sim_chance(rand, s->plan.bug_lost))
			lose_event(k);
		else
			announce_stored(e, r->rank, parent, &r->hash[c.have], c.n - c.have);
		if (bugs && sim_chance(rand, s->plan.bug_twice)) {
			announce_stored(e, r->rank, NULL, r->hash, c.n);
			sim_bug(SIM_BUG_TWICE);
		}
	}
	if (bugs && sim_chance(rand, s->plan.bug_never)) {
		announce_invented(e, r->rank);
		sim_bug(SIM_BUG_NEVER);
	}
}

void cache_forget(struct sim *s, struct engine *e, uint32_t rank)
{
	RTE_SET_USED(s);
	engine_cache_clear(e->rank[rank].model.cache);
	e->rank[rank].dirty = true;
	sim_bug(SIM_BUG_FORGOT);
}

void cache_move(struct sim *s, struct engine *e, struct engine *f, uint32_t rank)
{
	struct engine_cache *cache = e->rank[rank].model.cache;

	RTE_SET_USED(s);
	e->rank[rank].model.cache = f->rank[rank].model.cache;
	f->rank[rank].model.cache = cache;
	e->rank[rank].dirty = f->rank[rank].dirty = true;
	sim_bug(SIM_BUG_MOVED);
}

/* ---- all blocks ---- */

void cache_walk(struct engine *e, uint32_t rank,
		void (*fn)(void *arg, const uint64_t *parent, const uint64_t *sh, uint32_t n),
		void *arg)
{
	const uint32_t n = engine_cache_used(e->rank[rank].model.cache);
	uint64_t *scratch = malloc((e->sim->plan.cache_blocks + 1) * sizeof(*scratch));

	if (scratch == NULL)
		abort();
	if (n > 0)
		engine_cache_walk(e->rank[rank].model.cache, scratch, fn, arg);
	free(scratch);
}

struct mend {
	struct engine *e;
	uint32_t rank;
};

static void announce_chain(void *arg, const uint64_t *parent, const uint64_t *sh, uint32_t n)
{
	const struct mend *m = arg;

	announce_stored(m->e, m->rank, parent, sh, n);
}

void cache_mend(struct sim *s, struct engine *e, uint32_t rank)
{
	struct mend m = {e, rank};

	if (!e->rank[rank].dirty)
		return;
	e->rank[rank].dirty = false;
	for (uint32_t i = 0; i < s->plan.routers; i++)
		kvr_agent_kv_cleared(e->seat[i].agent, rank);
	cache_walk(e, rank, announce_chain, &m);
	engine_wake(e);
}

static void keep_chain(void *arg, const uint64_t *parent, const uint64_t *sh, uint32_t n)
{
	struct seat *t = arg;
	uint64_t *at = t->dump_hash;

	for (uint32_t i = 0; i < t->dump_n; i++)
		at += t->dump[i].n;
	memcpy(at, sh, n * sizeof(*sh));
	t->dump[t->dump_n++] = (struct kvr_agent_kv){.tier = KVR_TIER_DEVICE,
						     .has_parent = parent != NULL,
						     .parent = parent != NULL ? *parent : 0,
						     .hashes = at,
						     .n = n};
}

int cache_dump(struct kvr_agent *a, uint32_t dp_rank, uint64_t pos, struct kvr_agent_kv *kv,
	       void *user)
{
	struct seat *t = user;

	RTE_SET_USED(a);
	if (pos == 0) {
		const uint32_t n = engine_cache_used(t->engine->rank[dp_rank].model.cache);

		free(t->dump);
		free(t->dump_hash);
		t->dump = calloc(n + 1, sizeof(*t->dump));
		t->dump_hash = calloc(n + 1, sizeof(*t->dump_hash));
		t->dump_n = 0;
		if (t->dump == NULL || t->dump_hash == NULL)
			abort();
		cache_walk(t->engine, dp_rank, keep_chain, t);
		for (uint32_t i = 0; i < t->dump_n; i++)
			announced_add(&t->engine->rank[dp_rank].announced, t->dump[i].hashes,
				      t->dump[i].n);
	}
	if (pos >= t->dump_n)
		return 0;
	*kv = t->dump[pos];
	return 1;
}
