/* SPDX-License-Identifier: BSD-3-Clause */
/* pool, worker, worker_gone, drain, resume; states of workers. */
#include "out.h"
#include "request.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- pool -------------------------------------------------------------------------------- */

static bool class_read(const json_t *obj, struct kvr_pool_class *k, struct ex_problem *p)
{
	static const struct ex_field fields[] = {
		{"name", EX_STR, EX_REQUIRED},
		{"queue_policy", EX_STR, EX_NULL},
		{"quantum", EX_U32, EX_NULL},
		{"prefill_busy_threshold", EX_U64, EX_NULL},
		{"prefill_busy_threshold_frac", EX_POS, EX_NULL},
		{"request_queue_limit_per_worker", EX_U64, EX_NULL},
		{"raw_isl_token_queue_limit_per_worker", EX_U64, EX_NULL},
		{"cached_token_queue_limit_per_worker", EX_U64, EX_NULL},
		{NULL},
	};
	static const char *const policy[] = {"fcfs", "lcfs", "wspt"};
	const char *name, *q;
	int i;

	if (!json_is_object(obj))
		return ex_bad(p, "a policy class is an object");
	if (!ex_check(obj, fields, p))
		return false;
	name = ex_str_or(obj, "name", "");
	q = ex_str_or(obj, "queue_policy", "fcfs");
	if (strlen(name) == 0 || strlen(name) >= KVR_POOL_NAME_MAX)
		return ex_bad(p, "a policy class needs a name of 1 to %d bytes",
			      KVR_POOL_NAME_MAX - 1);
	kvr_pool_class_init(k, name);
	for (i = 0; i < 3 && strcmp(q, policy[i]) != 0; i++)
		;
	if (i == 3)
		return ex_bad(p, "queue_policy '%s' is unknown", q);
	k->queue_policy = i;
	k->quantum = (uint32_t)ex_u64_or(obj, "quantum", 1);
	k->busy_threshold = ex_u64_or(obj, "prefill_busy_threshold", KVR_POOL_NONE);
	if (ex_get(obj, "prefill_busy_threshold_frac") != NULL)
		k->busy_threshold_frac = ex_real(ex_get(obj, "prefill_busy_threshold_frac"));
	k->max_requests = ex_u64_or(obj, "request_queue_limit_per_worker", KVR_POOL_NONE);
	k->max_isl_tokens = ex_u64_or(obj, "raw_isl_token_queue_limit_per_worker", KVR_POOL_NONE);
	k->max_cached_tokens = ex_u64_or(obj, "cached_token_queue_limit_per_worker", KVR_POOL_NONE);
	return true;
}

static bool classes_read(const json_t *v, struct kvr_pool_conf *c, struct ex_problem *p)
{
	static const struct ex_field fields[] = {{"policy_classes", EX_ARR, EX_REQUIRED}, {NULL}};
	const json_t *list;

	if (json_is_null(v))
		return true;
	if (!json_is_object(v))
		return ex_bad(p, "'router_policy_config' wants an object");
	if (!ex_check(v, fields, p))
		return false;
	list = json_object_get(v, "policy_classes");
	if (json_array_size(list) == 0 || json_array_size(list) > KVR_POOL_CLASSES_MAX)
		return ex_bad(p, "policy_classes wants 1 to %d classes", KVR_POOL_CLASSES_MAX);
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!class_read(json_array_get(list, i), &c->classes[i], p))
			return false;
	c->n_classes = (uint32_t)json_array_size(list);
	return true;
}

static const struct kvr_opt *option(const char *name)
{
	static const char *const not_here[] = {"model", "role", "block_size", "seed"};

	for (int i = 0; i < 4; i++)
		if (strcmp(name, not_here[i]) == 0)
			return NULL;
	for (const struct kvr_opt *o = kvr_pool_opts; o->name != NULL; o++)
		if (strcmp(o->name, strcmp(name, "overlap_score_weight") == 0 ? "prefill_load_scale"
									      : name) == 0)
			return o;
	return NULL;
}

/* Text of a JSON value as the option table wants it; false when the type is wrong. */
static bool as_text(const json_t *v, const struct kvr_opt *o, char *text, size_t len)
{
	const char *s;

	if (json_is_null(v) && (o->flags & KVR_OPT_F_NONE))
		return snprintf(text, len, "none") > 0;
	switch (o->type) {
	case KVR_OPT_BOOL:
		return json_is_boolean(v) &&
		       snprintf(text, len, "%s", json_is_true(v) ? "true" : "false") > 0;
	case KVR_OPT_F64:
		return (json_is_number(v) || ex_is_number(v)) &&
		       snprintf(text, len, "%.17g", ex_real(v)) > 0;
	case KVR_OPT_U32:
	case KVR_OPT_U64:
		if (!ex_is_number(v) && !(json_is_integer(v) && json_integer_value(v) >= 0))
			return false;
		if ((o->flags & KVR_OPT_F_NONE) && ex_u64(v) == UINT64_MAX)
			return snprintf(text, len, "none") > 0; /* never reached is the same */
		return snprintf(text, len, "%" PRIu64, ex_u64(v)) > 0;
	default:
		s = json_string_value(v);
		return s != NULL && !ex_is_number(v) && strcmp(s, "none") != 0 &&
		       (size_t)snprintf(text, len, "%s", s) < len;
	}
}

static bool config_read(const json_t *config, struct kvr_pool_conf *c, struct ex_problem *p)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)config, key, v)
	{
		const struct kvr_opt *o;
		char text[1100], err[200];

		if (strcmp(key, "router_policy_config") == 0) {
			if (!classes_read(v, c, p))
				return false;
			continue;
		}
		o = option(key);
		if (o == NULL)
			return ex_bad(p, "unknown configuration key '%s'", key);
		if (!as_text(v, o, text, sizeof(text)))
			return ex_bad(p, "configuration key '%s' has the wrong type", key);
		if (kvr_pool_conf_set(c, key, text, err, sizeof(err)) != 0)
			return ex_bad(p, "'%s': %s", key, err);
	}
	return true;
}

static void dropped(void *arg, uint32_t slot, uint32_t rank);
static void rank_removed(void *arg, uint32_t rank, uint64_t worker, uint32_t dp_rank);
static bool refresh(void *arg, uint32_t slot, const struct kvr_sched_req *req,
		    struct kvr_sched_overlap *out);

/* The callbacks need both; there is one world. */
static struct ex_world *the_world;

static bool pool_start(struct ex_world *w, struct ex_pool *pool, struct ex_problem *p)
{
	const struct kvr_sched_ops ops = {
		.arg = pool, .refresh = refresh, .dropped = dropped, .rank_removed = rank_removed};
	const uint32_t n = pool->conf.max_requests;

	the_world = w;
	pool->sched = kvr_sched_create(&pool->conf, &ops, w->now);
	if (pool->sched == NULL)
		return ex_bad(p, "cannot create the pool");
	pool->index = ex_index_create(kvr_sched_max_ranks(pool->sched));
	pool->by_slot = calloc(n, sizeof(*pool->by_slot));
	pool->free_slot = calloc(n, sizeof(*pool->free_slot));
	pool->terms.cap = pool->conf.max_ranks;
	pool->terms.v = calloc(pool->terms.cap, sizeof(*pool->terms.v));
	if (pool->index == NULL || pool->by_slot == NULL || pool->free_slot == NULL ||
	    pool->terms.v == NULL)
		return ex_bad(p, "no memory for the pool");
	for (pool->n_free = 0; pool->n_free < n; pool->n_free++)
		pool->free_slot[pool->n_free] = n - 1 - pool->n_free;
	kvr_sched_explain(pool->sched, &pool->terms);
	return true;
}

static bool pool_known(const struct ex_world *w, const struct kvr_pool_conf *c,
		       struct ex_problem *p)
{
	for (uint32_t i = 0; i < w->n_pools; i++) {
		const struct kvr_pool_conf *o = &w->pool[i].conf;

		if (strcmp(o->name, c->name) == 0)
			return ex_bad(p, "pool '%s' exists", c->name);
		if (strcmp(o->model, c->model) == 0 &&
		    (o->role == c->role || o->role == KVR_POOL_AGGREGATED ||
		     c->role == KVR_POOL_AGGREGATED))
			return ex_bad(p, "model '%s' has a pool of this kind", c->model);
	}
	return true;
}

/* Sizes a scenario is unlikely to meet; memory is touched only when used. */
static void sizes(struct kvr_pool_conf *c)
{
	uint64_t most = UINT32_MAX / c->block_size;

	c->max_ranks = EX_MAX_RANKS;
	c->max_workers = EX_MAX_RANKS;
	c->max_requests = 65536;
	c->max_active_blocks = 1u << 23;
	c->max_prompt_blocks = most < 1u << 20 ? (uint32_t)most : 1u << 20;
	c->max_taints = 4096;
}

static bool identity_read(const json_t *obj, struct kvr_pool_conf *c, struct ex_problem *p)
{
	const char *name = ex_str_or(obj, "name", "");
	const char *model = ex_str_or(obj, "model", name);
	char err[200];

	if (strlen(name) == 0 || strlen(name) >= KVR_POOL_NAME_MAX ||
	    strlen(model) >= KVR_POOL_NAME_MAX)
		return ex_bad(p, "names have 1 to %d bytes", KVR_POOL_NAME_MAX - 1);
	strcpy(c->name, name);
	strcpy(c->model, model);
	c->seed = ex_u64_or(obj, "seed", 0);
	c->block_size = (uint32_t)ex_u64_or(obj, "block_size", 0);
	if (c->block_size == 0 || c->block_size > 65536)
		return ex_bad(p, "'block_size' is 1 to 65536");
	if (kvr_pool_conf_set(c, "role", ex_str_or(obj, "role", "aggregated"), err, sizeof(err)))
		return ex_bad(p, "%s", err);
	return true;
}

static void pair(struct ex_world *w, struct ex_pool *pool)
{
	for (uint32_t i = 0; i < w->n_pools; i++) {
		struct ex_pool *o = &w->pool[i];

		if (strcmp(o->conf.model, pool->conf.model) == 0) {
			o->peer = pool;
			pool->peer = o;
		}
	}
}

bool ex_op_pool(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	static const struct ex_field fields[] = {
		{"op", EX_STR, 0},     {"name", EX_STR, EX_REQUIRED},
		{"model", EX_STR, 0},  {"block_size", EX_U32, EX_REQUIRED},
		{"role", EX_STR, 0},   {"seed", EX_U64, 0},
		{"config", EX_OBJ, 0}, {NULL},
	};
	struct ex_pool *pool;
	char err[200];

	if (!ex_check(obj, fields, p))
		return false;
	if (w->n_pools == EX_MAX_POOLS)
		return ex_bad(p, "too many pools");
	pool = &w->pool[w->n_pools];
	memset(pool, 0, sizeof(*pool));
	kvr_pool_conf_defaults(&pool->conf);
	if (!identity_read(obj, &pool->conf, p) || !pool_known(w, &pool->conf, p))
		return false;
	sizes(&pool->conf);
	if (!config_read(json_object_get(obj, "config"), &pool->conf, p))
		return false;
	if (kvr_pool_conf_check(&pool->conf, err, sizeof(err)) != 0)
		return ex_bad(p, "%s", err);
	if (!pool_start(w, pool, p))
		return false;
	pair(w, pool);
	w->n_pools++;
	return true;
}

struct ex_pool *ex_pool_of(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	const char *name = ex_str_or(obj, "pool", NULL);

	if (w->n_pools == 0) {
		ex_bad(p, "there is no pool");
		return NULL;
	}
	if (name == NULL)
		return &w->pool[0];
	for (uint32_t i = 0; i < w->n_pools; i++)
		if (strcmp(w->pool[i].conf.name, name) == 0)
			return &w->pool[i];
	ex_bad(p, "unknown pool '%s'", name);
	return NULL;
}

/* ---- callbacks of the scheduler ---------------------------------------------------------- */

static void dropped(void *arg, uint32_t slot, uint32_t rank)
{
	struct ex_pool *pool = arg;

	ex_leg_dropped(the_world, pool, slot);
}

static void rank_removed(void *arg, uint32_t rank, uint64_t worker, uint32_t dp_rank)
{
	struct ex_pool *pool = arg;

	ex_index_clear(pool->index, rank);
}

static bool refresh(void *arg, uint32_t slot, const struct kvr_sched_req *req,
		    struct kvr_sched_overlap *out)
{
	struct ex_pool *pool = arg;

	ex_index_score(pool->index, req->sh, req->n, the_world->now, out);
	return true;
}

/* A prefill pool is active while it has a worker. */
static void count_workers(struct ex_pool *pool, int by)
{
	pool->n_workers = (uint32_t)((int)pool->n_workers + by);
	if (pool->conf.role != KVR_POOL_PREFILL ||
	    !kvr_disagg_workers(&pool->disagg, pool->n_workers))
		return;
	ex_out_line("state");
	ex_out_str("pool", pool->conf.name);
	ex_out_str("from", pool->n_workers > 0 ? "inactive" : "active");
	ex_out_str("to", pool->n_workers > 0 ? "active" : "inactive");
	ex_out_end();
}

/* ---- workers ----------------------------------------------------------------------------- */

void ex_state_change(struct ex_worker *k, enum ex_state to)
{
	static const char *const name[] = {"joining", "serving", "draining", "drained", "gone"};

	if (k->state == to)
		return;
	ex_out_line("state");
	ex_out_u64("worker", k->id);
	ex_out_str("from", name[k->state]);
	ex_out_str("to", name[to]);
	ex_out_end();
	k->state = to;
}

void ex_settle(struct ex_world *w)
{
	for (struct ex_worker *k = w->workers; k != NULL; k = k->next)
		if (k->state == EX_DRAINING &&
		    kvr_sched_worker_bookings(k->pool->sched, k->id) == 0)
			ex_state_change(k, EX_DRAINED);
}

struct ex_worker *ex_worker_find(const struct ex_world *w, uint64_t id)
{
	struct ex_worker *k = w->workers;

	while (k != NULL && k->id != id)
		k = k->next;
	return k;
}

struct ex_worker *ex_worker_of(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	struct ex_worker *k = ex_worker_find(w, ex_u64_or(obj, "worker", 0));

	if (k == NULL)
		ex_bad(p, "unknown worker %" PRIu64, ex_u64_or(obj, "worker", 0));
	return k;
}

uint32_t ex_rank_of(const struct ex_worker *k, const json_t *obj, struct ex_problem *p)
{
	uint32_t dp = (uint32_t)ex_u64_or(obj, "dp_rank", 0);
	uint32_t rank = kvr_sched_rank_find(k->pool->sched, k->id, dp);

	if (rank == KVR_SCHED_NO_RANK)
		ex_bad(p, "worker %" PRIu64 " has no rank %u", k->id, dp);
	return rank;
}

static bool extras_check(const json_t *obj, struct ex_problem *p)
{
	static const struct ex_field transfer[] = {{"domain", EX_STR, EX_NULL},
						   {"enforcement", EX_STR, EX_NULL},
						   {"weight", EX_REAL, EX_NULL},
						   {NULL}};
	static const struct ex_field bootstrap[] = {
		{"host", EX_STR, EX_REQUIRED}, {"port", EX_U32, EX_REQUIRED}, {NULL}};
	const json_t *topology = ex_get(obj, "topology"), *t = ex_get(obj, "kv_transfer");
	const json_t *b = ex_get(obj, "bootstrap");
	const char *key, *e;
	json_t *v;

	json_object_foreach((json_t *)topology, key,
			    v) if (!json_is_string(v) ||
				   ex_is_number(v)) return ex_bad(p, "topology '%s' wants a string",
								  key);
	if (t != NULL) {
		if (!ex_check(t, transfer, p))
			return false;
		e = ex_str_or(t, "enforcement", "preferred");
		if (strcmp(e, "required") != 0 && strcmp(e, "preferred") != 0)
			return ex_bad(p, "enforcement is 'required' or 'preferred'");
	}
	if (b != NULL) {
		if (!ex_check(b, bootstrap, p))
			return false;
		if (ex_u64_or(b, "port", 0) == 0 || ex_u64_or(b, "port", 0) > 65535)
			return ex_bad(p, "'port' is 1 to 65535");
	}
	return true;
}

/* The taints given, and dynamo.topology/<key>=<value> for each topology entry. */
static struct kvr_sched_str *taints_make(const json_t *obj, uint32_t *n)
{
	const json_t *list = ex_get(obj, "taints"), *topology = ex_get(obj, "topology");
	size_t most = json_array_size(list) + json_object_size(topology), i;
	struct kvr_sched_str *t = calloc(most + 1, sizeof(*t));
	const char *key;
	json_t *v;

	*n = 0;
	json_array_foreach(list, i, v)
	{
		char *s = strdup(json_string_value(v));

		t[(*n)++] = (struct kvr_sched_str){s, (uint32_t)strlen(s)};
	}
	json_object_foreach((json_t *)topology, key, v)
	{
		char *s;
		int len = asprintf(&s, "dynamo.topology/%s=%s", key, json_string_value(v));

		t[(*n)++] = (struct kvr_sched_str){s, (uint32_t)len};
	}
	return t;
}

static int worker_apply(struct ex_world *w, struct ex_pool *pool, const json_t *obj)
{
	struct kvr_sched_worker c = {
		.id = ex_u64_or(obj, "worker", 0),
		.dp_start = (uint32_t)ex_u64_or(obj, "dp_start", 0),
		.dp_size = (uint32_t)ex_u64_or(obj, "dp_size", 1),
		.total_kv_blocks = ex_u64_or(obj, "total_kv_blocks", 0),
		.max_num_batched_tokens = ex_u64_or(obj, "max_num_batched_tokens", 0),
	};
	const json_t *topology = ex_get(obj, "topology");
	struct kvr_sched_str *t;
	int rc;

	c.cpu = topology != NULL && strcmp(ex_str_or(topology, "device", ""), "cpu") == 0;
	t = taints_make(obj, &c.n_taints);
	c.taints = t;
	rc = kvr_sched_worker_set(pool->sched, &c, w->now);
	for (uint32_t i = 0; i < c.n_taints; i++)
		free((void *)(uintptr_t)t[i].ptr);
	free(t);
	return rc;
}

static void worker_insert(struct ex_world *w, struct ex_worker *k)
{
	struct ex_worker **at = &w->workers;

	while (*at != NULL && (*at)->id < k->id)
		at = &(*at)->next;
	k->next = *at;
	*at = k;
}

bool ex_op_worker(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	static const struct ex_field fields[] = {
		{"op", EX_STR, 0},
		{"worker", EX_U64, EX_REQUIRED},
		{"dp_start", EX_U32, 0},
		{"dp_size", EX_U32, 0},
		{"total_kv_blocks", EX_U64, EX_NULL},
		{"max_num_batched_tokens", EX_U64, EX_NULL},
		{"taints", EX_STRS, 0},
		{"topology", EX_OBJ, 0},
		{"kv_transfer", EX_OBJ, EX_NULL},
		{"bootstrap", EX_OBJ, EX_NULL},
		{"pool", EX_STR, 0},
		{NULL},
	};
	struct ex_worker *k;
	struct ex_pool *pool;
	int rc;

	if (!ex_check(obj, fields, p) || !extras_check(obj, p))
		return false;
	pool = ex_pool_of(w, obj, p);
	if (pool == NULL)
		return false;
	k = ex_worker_find(w, ex_u64_or(obj, "worker", 0));
	if (k != NULL && ex_get(obj, "pool") == NULL)
		pool = k->pool;
	if (k != NULL && k->pool != pool)
		return ex_bad(p, "worker %" PRIu64 " is in pool '%s'", k->id, k->pool->conf.name);
	rc = worker_apply(w, pool, obj);
	if (rc != 0)
		return ex_bad(p, rc == -ENOSPC ? "too many ranks, workers or taints"
					       : "dp range or taint out of range");
	if (k == NULL) {
		k = calloc(1, sizeof(*k));
		k->id = ex_u64_or(obj, "worker", 0);
		k->pool = pool;
		worker_insert(w, k);
		ex_state_change(k, EX_SERVING);
		count_workers(pool, 1);
	}
	json_decref(k->line);
	k->line = json_incref((json_t *)obj);
	return true;
}

static const struct ex_field only_worker[] = {
	{"op", EX_STR, 0}, {"worker", EX_U64, EX_REQUIRED}, {NULL}};

bool ex_op_worker_gone(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	struct ex_worker *k, **at = &w->workers;

	if (!ex_check(obj, only_worker, p))
		return false;
	k = ex_worker_of(w, obj, p);
	if (k == NULL)
		return false;
	kvr_sched_worker_gone(k->pool->sched, k->id, w->now);
	ex_state_change(k, EX_GONE);
	count_workers(k->pool, -1);
	while (*at != k)
		at = &(*at)->next;
	*at = k->next;
	json_decref(k->line);
	free(k);
	return true;
}

bool ex_op_drain(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	struct ex_worker *k;

	if (!ex_check(obj, only_worker, p))
		return false;
	k = ex_worker_of(w, obj, p);
	if (k == NULL)
		return false;
	if (k->state == EX_DRAINING || k->state == EX_DRAINED)
		return true;
	kvr_sched_worker_drain(k->pool->sched, k->id, true, w->now);
	ex_state_change(k, EX_DRAINING);
	return true;
}

bool ex_op_resume(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	struct ex_worker *k;

	if (!ex_check(obj, only_worker, p))
		return false;
	k = ex_worker_of(w, obj, p);
	if (k == NULL)
		return false;
	kvr_sched_worker_drain(k->pool->sched, k->id, false, w->now);
	ex_state_change(k, EX_SERVING);
	return true;
}
