/* SPDX-License-Identifier: BSD-3-Clause */
/* pool: its line, and what is made of it. */
#include "run.h"

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

static bool setting_read(const char *key, const json_t *v, struct kvr_pool_conf *c,
			 struct ex_problem *p)
{
	const struct kvr_opt *o = option(key);
	char text[1100], err[200];

	if (o == NULL)
		return ex_bad(p, "unknown configuration key '%s'", key);
	if (!as_text(v, o, text, sizeof(text)))
		return ex_bad(p, "configuration key '%s' has the wrong type", key);
	if (kvr_pool_conf_set(c, key, text, err, sizeof(err)) != 0)
		return ex_bad(p, "'%s': %s", key, err);
	return true;
}

static bool config_read(const json_t *config, struct kvr_pool_conf *c, struct ex_problem *p)
{
	const char *key;
	json_t *v;

	/* A preset gives way to the keys beside it, which come in no order. */
	v = json_object_get(config, "router_preset");
	if (v != NULL && !setting_read("router_preset", v, c, p))
		return false;
	json_object_foreach((json_t *)config, key, v)
	{
		if (strcmp(key, "router_preset") == 0)
			continue;
		if (strcmp(key, "router_policy_config") == 0) {
			if (!classes_read(v, c, p))
				return false;
			continue;
		}
		if (!setting_read(key, v, c, p))
			return false;
	}
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
		    (o->role == c->role || o->role == KVR_ROLE_AGGREGATED ||
		     c->role == KVR_ROLE_AGGREGATED))
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
			if (o->conf.role == KVR_ROLE_DECODE)
				o->rq.prefill = &pool->rq;
			else
				pool->rq.prefill = &o->rq;
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
	if (!ex_run_pool(w, pool, p))
		return false;
	pair(w, pool);
	w->n_pools++;
	return true;
}
