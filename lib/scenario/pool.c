/* SPDX-License-Identifier: BSD-3-Clause */
/* Operation pool: its line, and its configuration. */
#include "scenario_pvt.h"

#include <inttypes.h>
#include <string.h>

/* ---- configuration ----------------------------------------------------------------------- */

/* Convert a JSON value to the text for the option table. @return false: wrong type. */
static bool as_text(const json_t *v, const struct kvr_opt *o, char *text, size_t len)
{
	const bool none = (o->flags & KVR_OPT_F_NONE) != 0;

	/* A threshold that is never reached stands for none. */
	if (none && (json_is_null(v) || (o->type == KVR_OPT_U64 && kvr_sc_is_u64(v, UINT64_MAX) &&
					 kvr_sc_u64(v) == UINT64_MAX)))
		return snprintf(text, len, "none") > 0;
	switch (o->type) {
	case KVR_OPT_BOOL:
		snprintf(text, len, "%s", json_is_true(v) ? "true" : "false");
		return json_is_boolean(v);
	case KVR_OPT_F64:
		snprintf(text, len, "%.17g", kvr_sc_real(v));
		return kvr_sc_is_real(v);
	case KVR_OPT_U32:
	case KVR_OPT_U64:
		snprintf(text, len, "%" PRIu64, kvr_sc_u64(v));
		return kvr_sc_is_u64(v, UINT64_MAX);
	default:
		return kvr_sc_is_text(v) &&
		       (size_t)snprintf(text, len, "%s", json_string_value(v)) < len;
	}
}

/* @return the value as text, or NULL with the problem noted. */
static const char *read_setting(const struct kvr_opt *o, const char *key, const json_t *v,
				struct kvr_sc_problem *p)
{
	static char text[1100];

	if (o != NULL && as_text(v, o, text, sizeof(text)))
		return text;
	kvr_sc_bad(p, "configuration key '%s' %s", key,
		   o == NULL ? "is unknown" : "has a wrong type");
	return NULL;
}

static bool read_class(const json_t *obj, struct kvr_pool_class *k, struct kvr_sc_problem *p)
{
	const char *name = json_string_value(json_object_get(obj, "name")), *key, *text;
	char err[200];
	json_t *v;

	if (name == NULL || strlen(name) == 0 || strlen(name) >= KVR_POOL_NAME_MAX)
		return kvr_sc_bad(p,
				  "a policy class must be an object with a name of 1 to %d bytes",
				  KVR_POOL_NAME_MAX - 1);
	kvr_pool_class_init(k, name);
	json_object_foreach ((json_t *)obj, key, v) {
		if (strcmp(key, "name") == 0)
			continue;
		text = read_setting(kvr_conf_find(kvr_pool_class_opts, key), key, v, p);
		if (text == NULL)
			return false;
		if (kvr_conf_set(kvr_pool_class_opts, k, key, text, err, sizeof(err)) != 0)
			return kvr_sc_bad(p, "'%s': %s", key, err);
	}
	return true;
}

static bool read_classes(const json_t *v, struct kvr_pool_conf *c, struct kvr_sc_problem *p)
{
	const json_t *list = json_object_get(v, "policy_classes");
	const size_t n = json_array_size(list);

	if (json_is_null(v))
		return true;
	if (json_object_size(v) != 1 || n == 0 || n > KVR_POOL_CLASSES_MAX)
		return kvr_sc_bad(p,
				  "router_policy_config must have policy_classes, 1 to %d of them",
				  KVR_POOL_CLASSES_MAX);
	for (size_t i = 0; i < n; i++)
		if (!read_class(json_array_get(list, i), &c->classes[i], p))
			return false;
	c->n_classes = (uint32_t)n;
	return true;
}

/* Keys that identify a pool are beside `config`. */
static bool is_identity(const char *key)
{
	return strcmp(key, "model") == 0 || strcmp(key, "role") == 0 ||
	       strcmp(key, "block_size") == 0 || strcmp(key, "seed") == 0;
}

static bool read_key(const char *key, const json_t *v, struct kvr_pool_conf *c,
		     struct kvr_sc_problem *p)
{
	const char *text;
	char err[200];

	if (strcmp(key, "router_policy_config") == 0)
		return read_classes(v, c, p);
	text = read_setting(is_identity(key) ? NULL : kvr_conf_find(kvr_pool_opts, key), key, v, p);
	if (text == NULL)
		return false;
	return kvr_pool_conf_set(c, key, text, err, sizeof(err)) == 0 ||
	       kvr_sc_bad(p, "'%s': %s", key, err);
}

static bool read_config(const json_t *config, struct kvr_pool_conf *c, struct kvr_sc_problem *p)
{
	const json_t *preset = json_object_get(config, "router_preset");
	const char *key;
	json_t *v;

	/* A preset is applied first, so that the keys beside it override it in any order. */
	if (preset != NULL && !read_key("router_preset", preset, c, p))
		return false;
	json_object_foreach ((json_t *)config, key, v)
		if (v != preset && !read_key(key, v, c, p))
			return false;
	return true;
}

/* ---- the pool ---------------------------------------------------------------------------- */

/* Sizes that a scenario is unlikely to exceed; unused memory is never touched. */
static void check_sizes(struct kvr_pool_conf *c)
{
	const uint32_t most = UINT32_MAX / c->block_size;

	c->max_ranks = KVR_SC_MAX_RANKS;
	c->max_workers = KVR_SC_MAX_RANKS;
	c->max_requests = 65536;
	c->max_active_blocks = 1u << 23;
	c->max_prompt_blocks = RTE_MIN(most, 1u << 20);
	c->max_taints = 4096;
}

/* @return the other half of the model, or NULL; false with the problem noted. */
static bool peer_find(struct kvr_sc_world *w, const struct kvr_pool_conf *c,
		      struct kvr_sc_pool **peer, struct kvr_sc_problem *p)
{
	*peer = NULL;
	for (uint32_t i = 0; i < w->n_pools; i++) {
		struct kvr_sc_pool *o = &w->pool[i];
		const enum kvr_pool_relation is = kvr_pool_conf_relation(&o->conf, c);

		if (strcmp(o->conf.name, c->name) == 0)
			return kvr_sc_bad(p, "pool '%s' exists", c->name);
		if (is == KVR_POOLS_CONTRADICT)
			return kvr_sc_bad(p, "model '%s' already has a pool of this role",
					  c->model);
		if (is == KVR_POOLS_PAIR)
			*peer = o;
	}
	return true;
}

static void pair_pools(struct kvr_sc_pool *a, struct kvr_sc_pool *b)
{
	struct kvr_sc_pool *decode = a->conf.role == KVR_ROLE_DECODE ? a : b;

	a->peer = b;
	b->peer = a;
	decode->rq.prefill = &decode->peer->rq;
}

static bool read_identity(const json_t *obj, struct kvr_pool_conf *c, struct kvr_sc_problem *p)
{
	const char *name = kvr_sc_str_or(obj, "name", ""),
		   *model = kvr_sc_str_or(obj, "model", name);

	c->role = kvr_role_find(kvr_sc_str_or(obj, "role", "aggregated"));
	c->seed = kvr_sc_u64_or(obj, "seed", 0);
	c->block_size = (uint32_t)kvr_sc_u64_or(obj, "block_size", 0);
	if (name[0] == '\0' || strlen(name) >= KVR_POOL_NAME_MAX ||
	    strlen(model) >= KVR_POOL_NAME_MAX)
		return kvr_sc_bad(p, "a name must have 1 to %d bytes", KVR_POOL_NAME_MAX - 1);
	if (c->block_size == 0 || c->block_size > 65536)
		return kvr_sc_bad(p, "'block_size' is 1 to 65536");
	if (c->role < 0)
		return kvr_sc_bad(p, "unknown role '%s'", kvr_sc_str_or(obj, "role", ""));
	strcpy(c->name, name);
	strcpy(c->model, model);
	return true;
}

bool kvr_sc_op_pool(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	struct kvr_sc_pool *pool = &w->pool[w->n_pools], *peer;
	struct kvr_pool_conf *c = &pool->conf;
	char err[200];

	if (w->n_pools == KVR_SC_MAX_POOLS)
		return kvr_sc_bad(p, "too many pools");
	memset(pool, 0, sizeof(*pool));
	kvr_pool_conf_defaults(c);
	if (!read_identity(l->obj, c, p) || !peer_find(w, c, &peer, p))
		return false;
	check_sizes(c);
	if (!read_config(kvr_sc_get(l->obj, "config"), c, p))
		return false;
	if (kvr_pool_conf_check(c, err, sizeof(err)) != 0)
		return kvr_sc_bad(p, "%s", err);
	pool->world = w;
	if (!w->run->pool(pool, p))
		return false;
	if (peer != NULL)
		pair_pools(pool, peer);
	w->n_pools++;
	return true;
}
