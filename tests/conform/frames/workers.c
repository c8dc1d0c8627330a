/* SPDX-License-Identifier: BSD-3-Clause */
/* Workers as their agents tell of them: HELLO, GOODBYE, KV events, loads; their states. */
#include "frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_PORT 2000u
#define MAX_AGENTS 8192u

/* What a worker holds is what it has stored and not removed: its agent can say it again. */
struct noted {
	struct noted *next;
	uint32_t dp_rank;
	uint8_t type, tier;
	bool has_parent;
	uint64_t parent;
	uint32_t n;
	uint64_t sh[];
};

/* One for every worker that has ever been there; index + FIRST_PORT is its port. */
struct agent {
	struct peers_agent at;
	bool lives;
	bool reported;	 /* a load in this life */
	uint16_t answer; /* to the last HELLO: 0 none yet, KVR_WELCOME, or a code above */
	json_t *line;	 /* what it is */
	uint32_t dp_start;
	uint64_t next[256]; /* event of each rank */
	struct noted *held, **last;
};

static struct agent *agents[MAX_AGENTS];
static uint32_t n_agents, lives;

static struct agent *agent_of(uint64_t worker)
{
	for (uint32_t i = 0; i < n_agents; i++)
		if (agents[i]->at.worker == worker)
			return agents[i];
	return NULL;
}

const struct peers_agent *frames_agent(uint16_t port)
{
	return port >= FIRST_PORT && port < FIRST_PORT + n_agents ? &agents[port - FIRST_PORT]->at
								  : NULL;
}

bool frames_bootstraps(uint64_t worker)
{
	const struct agent *a = agent_of(worker);

	return a != NULL && kvr_sc_get(a->line, "bootstrap") != NULL;
}

static struct agent *agent_new(uint64_t worker)
{
	struct agent *a = calloc(1, sizeof(*a));

	if (n_agents == MAX_AGENTS)
		abort();
	a->at.worker = worker;
	a->at.port = (uint16_t)(FIRST_PORT + n_agents);
	a->last = &a->held;
	agents[n_agents++] = a;
	return a;
}

/* ---- HELLO ------------------------------------------------------------------------------- */

static void hello_taints(const json_t *obj, struct peers_hello *h, char text[][600])
{
	const json_t *topology = kvr_sc_get(obj, "topology"), *list = kvr_sc_get(obj, "taints");
	const char *key;
	json_t *v;
	size_t i;

	json_array_foreach (list, i, v)
		if (h->n_taints < 16)
			h->taint[h->n_taints++] = json_string_value(v);
	json_object_foreach ((json_t *)topology, key, v) {
		if (h->n_topology == 8)
			break;
		snprintf(text[h->n_topology], 600, "%s=%s", key, json_string_value(v));
		h->topology[h->n_topology] = text[h->n_topology];
		h->n_topology++;
	}
}

static void hello(struct agent *a, const struct kvr_sc_pool *pool, const struct kvr_sched_worker *c,
		  const json_t *obj)
{
	const json_t *b = kvr_sc_get(obj, "bootstrap"), *t = kvr_sc_get(obj, "kv_transfer");
	struct peers_hello h = {
		.pool = pool->conf.name,
		.role = (uint8_t)pool->conf.role,
		.block_size = pool->conf.block_size,
		.dp_start = c->dp_start,
		.dp_size = c->dp_size,
		.max_num_batched_tokens = c->max_num_batched_tokens > UINT32_MAX
						  ? UINT32_MAX
						  : (uint32_t)c->max_num_batched_tokens,
		.total_kv_blocks = c->total_kv_blocks,
		.cpu = c->cpu,
		.host = b != NULL ? kvr_sc_str_or(b, "host", "") : NULL,
		.bootstrap_port = (uint16_t)kvr_sc_u64_or(b, "port", 0),
		.domain = kvr_sc_str_or(t, "domain", NULL),
		.required = strcmp(kvr_sc_str_or(t, "enforcement", ""), "required") == 0,
		.weight = kvr_sc_real_or(t, "weight", 1),
	};
	char text[8][600];

	hello_taints(obj, &h, text);
	a->answer = 0;
	peers_hello(&a->at, &h);
	frames_settle(pool->world);
}

void frames_hello_answered(const struct peers_got *g)
{
	struct agent *a = agent_of(g->source);

	a->answer = g->kind == KVR_WELCOME ? KVR_WELCOME : (uint16_t)(256 + g->code);
}

static void held_free(struct agent *a)
{
	while (a->held != NULL) {
		struct noted *e = a->held;

		a->held = e->next;
		free(e);
	}
	a->last = &a->held;
}

/* What it held in the life before it holds in this one, too. */
static void held_again(struct agent *a)
{
	memset(a->next, 0, sizeof(a->next));
	for (const struct noted *e = a->held; e != NULL; e = e->next)
		if (e->dp_rank - a->dp_start < 256)
			peers_events(&a->at, e->dp_rank, e->type, e->tier,
				     e->has_parent ? &e->parent : NULL, e->sh, e->n,
				     &a->next[e->dp_rank - a->dp_start]);
}

/* Whether a new life loses nothing that the worker of the scenario keeps. */
static bool may_become(const struct agent *a, const struct kvr_sc_pool *pool)
{
	const struct kvr_sc_worker *k = kvr_sc_worker_find(pool->world, a->at.worker);

	return k->state == KVR_WORKER_SERVING && !a->reported &&
	       kvr_sched_worker_bookings(pool->sched, k->id) == 0;
}

int frames_worker(struct kvr_sc_pool *pool, const struct kvr_sched_worker *c, const json_t *obj)
{
	struct agent *a = agent_of(c->id);
	json_t *is = json_incref((json_t *)obj);
	bool was;

	if (a == NULL)
		a = agent_new(c->id);
	was = a->lives;
	if (was && !json_equal(a->line, is) && !may_become(a, pool)) {
		frames_not(FRAMES_NOT_BECOME);
		json_decref(is);
		return -ENOTSUP;
	}
	if (!was || !json_equal(a->line, is))
		a->at.epoch = ++lives;
	hello(a, pool, c, obj);
	if (a->answer != KVR_WELCOME) {
		const uint32_t code = a->answer - 256u;

		json_decref(is);
		return code == KVR_E_WORKER_LIMIT || code == KVR_E_NO_MEMORY ? -ENOSPC : -EINVAL;
	}
	if (!was || !json_equal(a->line, is)) {
		a->dp_start = c->dp_start;
		a->reported = false;
		held_again(a);
	}
	json_decref(a->line);
	a->line = is;
	a->lives = true;
	return 0;
}

void frames_joined(struct kvr_sc_worker *k)
{
	frames_states(k->pool->world);
}

void frames_gone(struct kvr_sc_worker *k)
{
	struct agent *a = agent_of(k->id);

	frames_forget(k->pool->world, k->id);
	if (k->id % 2 == 1) /* some say it, some do not */
		peers_silent(k->id);
	else
		peers_goodbye(&a->at);
	a->lives = false;
	held_free(a);
	frames_settle(k->pool->world);
}

void frames_drain(struct kvr_sc_worker *k, bool draining)
{
	peers_drain(k->id, draining);
	frames_states(k->pool->world);
	frames_settle(k->pool->world);
}

void frames_load(struct kvr_sc_worker *k, uint32_t dp_rank, uint64_t used_blocks)
{
	struct agent *a = agent_of(k->id);

	a->reported = true;
	peers_load(&a->at, dp_rank, used_blocks, a->next[dp_rank - a->dp_start]);
	frames_settle(k->pool->world);
}

/* ---- states ------------------------------------------------------------------------------ */

void frames_states(struct kvr_sc_world *w)
{
	static bool active[KVR_SC_MAX_POOLS];
	struct kvr_sc_worker *k;

	LIST_FOREACH (k, &w->workers, link)
		if (peers_worker_state(k->id) != k->state)
			kvr_sc_line_state(k, peers_worker_state(k->id));
	for (uint32_t i = 0; i < w->n_pools; i++) {
		struct kvr_sc_pool *p = &w->pool[i];
		const bool now = p->conf.role == KVR_ROLE_PREFILL && peers_active(frames_pool(p));

		if (now != active[i])
			kvr_sc_line_active(p, now);
		active[i] = now;
	}
}

/* ---- blocks ------------------------------------------------------------------------------ */

static void event(struct kvr_sc_pool *pool, uint32_t rank, uint8_t type, enum kvr_tier tier,
		  const uint64_t *parent, const uint64_t *sh, uint32_t n)
{
	struct kvr_sched_rank_info info;
	struct noted *e;
	struct agent *a;

	if ((n == 0 && type != KVR_KV_CLEARED) || kvr_sched_rank_get(pool->sched, rank, &info) != 0)
		return;
	a = agent_of(info.worker);
	peers_events(&a->at, info.dp_rank, type, (uint8_t)tier, parent, sh, n,
		     &a->next[info.dp_rank - a->dp_start]);
	e = calloc(1, sizeof(*e) + n * sizeof(e->sh[0]));
	e->dp_rank = info.dp_rank;
	e->type = type;
	e->tier = (uint8_t)tier;
	e->has_parent = parent != NULL;
	e->parent = parent != NULL ? *parent : 0;
	e->n = n;
	if (n != 0)
		memcpy(e->sh, sh, n * sizeof(e->sh[0]));
	*a->last = e;
	a->last = &e->next;
}

void frames_blocks(struct kvr_sc_pool *pool, uint32_t rank, enum kvr_prefix_op op,
		   enum kvr_tier tier, const uint64_t *parent, const uint64_t *sh, uint32_t n)
{
	event(pool, rank, op == KVR_PREFIX_STORE ? KVR_KV_STORED : KVR_KV_REMOVED, tier, parent, sh,
	      n);
}

void frames_clear(struct kvr_sc_pool *pool, uint32_t rank)
{
	event(pool, rank, KVR_KV_CLEARED, KVR_TIER_DEVICE, NULL, NULL, 0);
}

void frames_score(struct kvr_sc_pool *pool, const uint64_t *sh, uint32_t n,
		  struct kvr_sched_overlap *ov)
{
	peers_scores(frames_pool(pool), sh, n, ov);
}
