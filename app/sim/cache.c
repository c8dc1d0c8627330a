/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an engine has, and what it says of that. The cache is that of kvroute-load: bounded, least
 * recently used first. Bugs make the words untrue; whether they have is remembered, so that the
 * healed engine tells everything anew, as an agent does that has seen a gap in its engine's events.
 */
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The model counts prompts in blocks: the full ones, and one for the tokens behind them, which is
 * always computed. Items are paced by the request, not by the model. */
static const struct engine_speed speed = {.prefill = 60000};

int cache_begin(struct sim *s, struct engine *e, uint32_t rank)
{
	struct rank *k = &e->rank[rank];

	/* Else routers may take it for the life before until they have heard HELLO. */
	if (!s->plan.bug_epoch && !s->plan.clock_back)
		announced_free(&k->told);
	*k = (struct rank){.told = k->told};
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

static void stored(struct engine *e, uint32_t rank, const uint64_t *parent, const uint64_t *sh,
		   uint32_t n)
{
	const struct kvr_agent_kv kv = {.tier = KVR_TIER_DEVICE,
					.has_parent = parent != NULL,
					.parent = parent != NULL ? *parent : 0,
					.hashes = sh,
					.n = n};

	announced_add(&e->rank[rank].told, sh, n);
	for (uint32_t i = 0; i < e->sim->plan.routers; i++)
		kvr_agent_kv_stored(e->seat[i].agent, rank, &kv);
}

static void removed(struct engine *e, uint32_t rank, const uint64_t *sh, uint32_t n)
{
	const struct kvr_agent_kv kv = {.tier = KVR_TIER_DEVICE, .hashes = sh, .n = n};

	for (uint32_t i = 0; i < e->sim->plan.routers; i++)
		kvr_agent_kv_removed(e->seat[i].agent, rank, &kv);
}

/* Something about blocks that were never there: a removal changes nothing, a store is a lie. */
static void invent(struct engine *e, uint32_t rank)
{
	struct kvr_rand *r = &e->rand;
	uint64_t sh[8];

	for (uint32_t i = 0; i < RTE_DIM(sh); i++)
		sh[i] = kvr_rand_u64(r);
	if (kvr_rand_below(r, 2) == 0) {
		removed(e, rank, sh, RTE_DIM(sh));
	} else {
		stored(e, rank, NULL, sh, RTE_DIM(sh));
		e->rank[rank].dirty = true;
	}
}

static void lose(struct rank *k)
{
	k->dirty = true;
	sim_bug(SIM_BUG_LOST);
}

void cache_store(struct sim *s, struct engine *e, struct run *r)
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
			lose(k);
		else
			removed(e, r->rank, gone, c.n_removed);
	}
	if (c.n > c.have) {
		if (bugs && sim_chance(rand, s->plan.bug_parent)) {
			parent = kvr_rand_below(rand, 2) == 0 ? &lie : NULL;
			sim_bug(SIM_BUG_PARENT);
		}
		if (bugs && sim_chance(rand, s->plan.bug_lost))
			lose(k);
		else
			stored(e, r->rank, parent, &r->hash[c.have], c.n - c.have);
		if (bugs && sim_chance(rand, s->plan.bug_twice)) {
			stored(e, r->rank, NULL, r->hash, c.n);
			sim_bug(SIM_BUG_TWICE);
		}
	}
	if (bugs && sim_chance(rand, s->plan.bug_never)) {
		invent(e, r->rank);
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

/* ---- everything ---- */

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

static void tell(void *arg, const uint64_t *parent, const uint64_t *sh, uint32_t n)
{
	const struct mend *m = arg;

	stored(m->e, m->rank, parent, sh, n);
}

void cache_mend(struct sim *s, struct engine *e, uint32_t rank)
{
	struct mend m = {e, rank};

	if (!e->rank[rank].dirty)
		return;
	e->rank[rank].dirty = false;
	for (uint32_t i = 0; i < s->plan.routers; i++)
		kvr_agent_kv_cleared(e->seat[i].agent, rank);
	cache_walk(e, rank, tell, &m);
	engine_wake(e);
}

static void keep(void *arg, const uint64_t *parent, const uint64_t *sh, uint32_t n)
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
		cache_walk(t->engine, dp_rank, keep, t);
		for (uint32_t i = 0; i < t->dump_n; i++)
			announced_add(&t->engine->rank[dp_rank].told, t->dump[i].hashes,
				      t->dump[i].n);
	}
	if (pos >= t->dump_n)
		return 0;
	*kv = t->dump[pos];
	return 1;
}
