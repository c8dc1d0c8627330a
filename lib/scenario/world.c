/* SPDX-License-Identifier: BSD-3-Clause */
/* Lookup of pools, workers, ranks and requests. */
#include "scenario_pvt.h"

#include <inttypes.h>
#include <string.h>

void kvr_sc_world_init(struct kvr_sc_world *w, const struct kvr_sc_executor *run, FILE *out)
{
	w->run = run;
	w->out.to = out;
	w->ids = json_object();
	LIST_INIT(&w->workers);
	TAILQ_INIT(&w->live);
	TAILQ_INIT(&w->dead);
}

struct kvr_sc_pool *kvr_sc_pool_of(struct kvr_sc_world *w, const json_t *obj,
				   struct kvr_sc_problem *p)
{
	const char *name = kvr_sc_str_or(obj, "pool", NULL);

	for (uint32_t i = 0; i < w->n_pools; i++)
		if (name == NULL || strcmp(w->pool[i].conf.name, name) == 0)
			return &w->pool[i];
	kvr_sc_bad(p, "unknown pool '%s'", name != NULL ? name : "");
	return NULL;
}

struct kvr_sc_worker *kvr_sc_worker_find(const struct kvr_sc_world *w, uint64_t id)
{
	struct kvr_sc_worker *k;

	LIST_FOREACH (k, &w->workers, link)
		if (k->id == id)
			return k;
	return NULL;
}

struct kvr_sc_worker *kvr_sc_worker_of(struct kvr_sc_world *w, const json_t *obj,
				       struct kvr_sc_problem *p)
{
	const uint64_t id = kvr_sc_u64_or(obj, "worker", 0);
	struct kvr_sc_worker *k = kvr_sc_worker_find(w, id);

	if (k == NULL)
		kvr_sc_bad(p, "unknown worker %" PRIu64, id);
	return k;
}

uint32_t kvr_sc_rank_of(const struct kvr_sc_worker *k, const json_t *obj, struct kvr_sc_problem *p)
{
	const uint32_t dp_rank = (uint32_t)kvr_sc_u64_or(obj, "dp_rank", 0);
	const uint32_t rank = kvr_sched_rank_find(k->pool->sched, k->id, dp_rank);

	if (rank == KVR_SCHED_NO_RANK)
		kvr_sc_bad(p, "worker %" PRIu64 " has no rank %u", k->id, dp_rank);
	return rank;
}

/* ---- sessions, requests ------------------------------------------------------------------- */

const char *kvr_sc_session_id(const json_t *obj, struct kvr_sc_problem *p)
{
	const char *id = kvr_sc_str_or(obj, "session_id", "");

	if (id[0] != '\0' && strlen(id) <= KVR_SESSION_ID_MAX)
		return id;
	kvr_sc_bad(p, "a session id must have 1 to %u bytes", KVR_SESSION_ID_MAX);
	return NULL;
}

int kvr_sc_req_find(struct kvr_sc_world *w, const json_t *obj, struct kvr_sc_req **r,
		    struct kvr_sc_problem *p)
{
	const char *id = kvr_sc_str_or(obj, "id", "");

	*r = kvr_sc_req_live(w, id);
	if (*r != NULL)
		return 1;
	if (json_object_get(w->ids, id) != NULL)
		return 0;
	kvr_sc_bad(p, "unknown id '%s'", id);
	return -1;
}

struct kvr_sc_req *kvr_sc_req_live(const struct kvr_sc_world *w, const char *id)
{
	return (struct kvr_sc_req *)(uintptr_t)json_integer_value(json_object_get(w->ids, id));
}

void kvr_sc_req_enter(struct kvr_sc_req *r)
{
	struct kvr_sc_world *w = r->pool->world;

	r->live = true;
	TAILQ_INSERT_TAIL(&w->live, r, link);
	json_object_set_new(w->ids, r->id, json_integer((json_int_t)(uintptr_t)r));
}

void kvr_sc_req_leave(struct kvr_sc_req *r)
{
	struct kvr_sc_world *w = r->pool->world;

	if (!r->live)
		return;
	r->live = false;
	TAILQ_REMOVE(&w->live, r, link);
	json_object_set_new(w->ids, r->id, json_null());
}

void kvr_sc_req_over(struct kvr_sc_req *r)
{
	kvr_sc_req_leave(r);
	TAILQ_INSERT_TAIL(&r->pool->world->dead, r, link);
}
