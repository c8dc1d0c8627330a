/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations worker, worker_gone, drain, resume, mute, load. */
#include "scenario_pvt.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Store the text of a taint in the memory of the line. */
static struct kvr_str read_taint(struct kvr_sc_line *l, const char *key, const char *value)
{
	const size_t size = sizeof(KVR_TOPOLOGY_TAINT) + strlen(key) + 1 + strlen(value);
	char *s = kvr_sc_alloc(l, size, 1);

	snprintf(s, size, KVR_TOPOLOGY_TAINT "%s=%s", key, value);
	return (struct kvr_str){s, (uint32_t)size - 1};
}

/* Read the taints, and dynamo.topology/<key>=<value> for each topology entry. */
static bool read_taints(struct kvr_sc_line *l, struct kvr_sched_worker *c, struct kvr_sc_problem *p)
{
	const json_t *list = kvr_sc_get(l->obj, "taints"),
		     *topology = kvr_sc_get(l->obj, "topology");
	const size_t most = json_array_size(list) + json_object_size(topology);
	struct kvr_str *t = kvr_sc_alloc(l, most, sizeof(*t));
	const char *key;
	json_t *v;
	size_t i;

	c->taints = t;
	json_array_foreach (list, i, v)
		t[c->n_taints++] =
			(struct kvr_str){json_string_value(v), (uint32_t)json_string_length(v)};
	json_object_foreach ((json_t *)topology, key, v) {
		if (!kvr_sc_is_text(v))
			return kvr_sc_bad(p, "topology '%s' must be a string", key);
		t[c->n_taints++] = read_taint(l, key, json_string_value(v));
	}
	c->cpu = topology != NULL && strcmp(kvr_sc_str_or(topology, "device", ""), "cpu") == 0;
	return true;
}

/* Read the constraint on KV transfers, and the taint that a decode worker should share. */
static bool read_transfer(struct kvr_sc_line *l, struct kvr_rq_worker *out,
			  struct kvr_sc_problem *p)
{
	const json_t *t = kvr_sc_get(l->obj, "kv_transfer"), *b = kvr_sc_get(l->obj, "bootstrap");
	const char *domain = kvr_sc_str_or(t, "domain", NULL);
	const char *how = kvr_sc_str_or(t, "enforcement", "preferred");
	const char *value = kvr_sc_str_or(kvr_sc_get(l->obj, "topology"), domain, NULL);
	const bool required = strcmp(how, "required") == 0;

	if (!required && strcmp(how, "preferred") != 0)
		return kvr_sc_bad(p, "enforcement must be 'required' or 'preferred'");
	if (b != NULL && (kvr_sc_u64_or(b, "port", 0) == 0 || kvr_sc_u64_or(b, "port", 0) > 65535))
		return kvr_sc_bad(p, "'port' is 1 to 65535");
	*out = (struct kvr_rq_worker){.dp_size = (uint32_t)kvr_sc_u64_or(l->obj, "dp_size", 1),
				      .bootstrap = b != NULL,
				      .transfer = domain == NULL ? 0
						  : required	 ? 2
								 : 1,
				      .weight = kvr_sc_real_or(t, "weight", 1),
				      .taint = value != NULL ? read_taint(l, domain, value).p : ""};
	return true;
}

static struct kvr_sc_worker *worker_new(struct kvr_sc_world *w, uint64_t id,
					struct kvr_sc_pool *pool)
{
	struct kvr_sc_worker *k = calloc(1, sizeof(*k));

	if (k == NULL)
		abort();
	k->id = id;
	k->pool = pool;
	k->state = KVR_WORKER_JOINING;
	k->rq.epoch = ++w->epochs;
	LIST_INSERT_HEAD(&w->workers, k, link);
	return k;
}

bool kvr_sc_op_worker(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	struct kvr_sched_worker c = {.id = kvr_sc_u64_or(l->obj, "worker", 0),
				     .dp_start = (uint32_t)kvr_sc_u64_or(l->obj, "dp_start", 0),
				     .dp_size = (uint32_t)kvr_sc_u64_or(l->obj, "dp_size", 1),
				     .total_kv_blocks = kvr_sc_u64_or(l->obj, "total_kv_blocks", 0),
				     .max_num_batched_tokens =
					     kvr_sc_u64_or(l->obj, "max_num_batched_tokens", 0)};
	struct kvr_sc_worker *k = kvr_sc_worker_find(w, c.id);
	const bool known = k != NULL;
	struct kvr_sc_pool *pool = kvr_sc_pool_of(w, l->obj, p);
	struct kvr_rq_worker rq;
	int rc;

	if (pool == NULL || !read_taints(l, &c, p) || !read_transfer(l, &rq, p))
		return false;
	if (known && kvr_sc_get(l->obj, "pool") == NULL)
		pool = k->pool;
	if (known && k->pool != pool)
		return kvr_sc_bad(p, "worker %" PRIu64 " is in pool '%s'", k->id,
				  k->pool->conf.name);
	json_object_del(l->obj, "pool"); /* the pool may be named or not; it does not change */
	rc = w->run->worker(pool, &c, l->obj);
	if (rc != 0)
		return kvr_sc_bad(p, rc == -ENOSPC ? "too many ranks, workers or taints"
				     : rc == -ENOTSUP
					     ? "this executor cannot change a worker in this way"
					     : "dp range or taint out of range");
	if (!known) {
		k = worker_new(w, c.id, pool);
		w->run->joined(k);
	}
	rq.epoch = k->rq.epoch;
	k->rq = rq;
	kvr_sc_line_free(k->line);
	k->line = l;
	l->kept = true;
	return true;
}

bool kvr_sc_op_worker_gone(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	struct kvr_sc_worker *k = kvr_sc_worker_of(w, l->obj, p);

	if (k == NULL)
		return false;
	w->run->gone(k);
	LIST_REMOVE(k, link);
	kvr_sc_line_free(k->line);
	free(k);
	return true;
}

bool kvr_sc_op_drain(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	struct kvr_sc_worker *k = kvr_sc_worker_of(w, l->obj, p);

	if (k != NULL && k->state == KVR_WORKER_SERVING)
		w->run->drain(k, true);
	return k != NULL;
}

bool kvr_sc_op_resume(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	struct kvr_sc_worker *k = kvr_sc_worker_of(w, l->obj, p);

	if (k != NULL && k->state != KVR_WORKER_SERVING)
		w->run->drain(k, false);
	return k != NULL;
}

bool kvr_sc_op_mute(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	struct kvr_sc_worker *k = kvr_sc_worker_of(w, l->obj, p);

	if (k != NULL)
		k->mute = true;
	return k != NULL;
}

bool kvr_sc_op_load(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	struct kvr_sc_worker *k = kvr_sc_worker_of(w, l->obj, p);

	if (k == NULL || kvr_sc_rank_of(k, l->obj, p) == KVR_SCHED_NO_RANK)
		return false;
	w->run->load(k, (uint32_t)kvr_sc_u64_or(l->obj, "dp_rank", 0),
		     kvr_sc_u64_or(l->obj, "kv_used_blocks", 0));
	return true;
}
