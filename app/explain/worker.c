/* SPDX-License-Identifier: BSD-3-Clause */
/* worker, worker_gone, drain, resume. */
#include "run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	rc = ex_run_worker(w, pool, &c, obj);
	for (uint32_t i = 0; i < c.n_taints; i++)
		free((void *)(uintptr_t)t[i].ptr);
	free(t);
	return rc;
}

/* What the worker says of transfers of KV cache, and the taint a decode worker should share. */
static void transfer_read(const json_t *obj, struct ex_worker *k)
{
	const json_t *policy = ex_get(obj, "kv_transfer");
	const char *domain = ex_str_or(policy, "domain", NULL);
	const char *value =
		domain != NULL ? ex_str_or(ex_get(obj, "topology"), domain, NULL) : NULL;

	free(k->taint);
	k->taint = NULL;
	if (value != NULL && asprintf(&k->taint, "dynamo.topology/%s=%s", domain, value) < 0)
		abort();
	k->transfer = domain == NULL ? 0 : 1;
	if (domain != NULL && strcmp(ex_str_or(policy, "enforcement", ""), "required") == 0)
		k->transfer = 2;
	k->weight = ex_get(policy, "weight") != NULL ? ex_real(ex_get(policy, "weight")) : 1;
	k->dp_size = (uint32_t)ex_u64_or(obj, "dp_size", 1);
	k->bootstrap = ex_get(obj, "bootstrap") != NULL;
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
	json_t *line;
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
	line = json_copy((json_t *)obj);
	json_object_del(line, "pool"); /* it stays in its pool, named or not */
	rc = worker_apply(w, pool, line);
	if (rc != 0)
		json_decref(line);
	if (rc != 0)
		return ex_bad(p, rc == -ENOSPC	  ? "too many ranks, workers or taints"
				 : rc == -ENOTSUP ? "a worker cannot become this here"
						  : "dp range or taint out of range");
	if (k == NULL) {
		k = calloc(1, sizeof(*k));
		k->id = ex_u64_or(obj, "worker", 0);
		k->pool = pool;
		k->epoch = ++w->epochs;
		worker_insert(w, k);
		ex_run_joined(w, k);
	}
	transfer_read(line, k);
	json_decref(k->line);
	k->line = line;
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
	ex_run_gone(w, k);
	while (*at != k)
		at = &(*at)->next;
	*at = k->next;
	free(k->taint);
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
	ex_run_drain(w, k, true);
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
	if (k->state != EX_SERVING)
		ex_run_drain(w, k, false);
	return true;
}
