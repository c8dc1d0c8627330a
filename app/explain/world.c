/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding pools, workers, ranks and requests by their names; states of workers. */
#include "world.h"

#include "out.h"

#include <inttypes.h>
#include <string.h>

void ex_world_init(struct ex_world *w)
{
	w->ids = json_object();
	LIST_INIT(&w->workers);
	TAILQ_INIT(&w->live);
	TAILQ_INIT(&w->dead);
	STAILQ_INIT(&w->todo);
}

struct ex_pool *ex_pool_of(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	const char *name = ex_str_or(obj, "pool", NULL);

	for (uint32_t i = 0; i < w->n_pools; i++)
		if (name == NULL || strcmp(w->pool[i].conf.name, name) == 0)
			return &w->pool[i];
	ex_bad(p, "there is no pool '%s'", name != NULL ? name : "");
	return NULL;
}

struct ex_worker *ex_worker_find(const struct ex_world *w, uint64_t id)
{
	struct ex_worker *k;

	LIST_FOREACH (k, &w->workers, link)
		if (k->id == id)
			return k;
	return NULL;
}

struct ex_worker *ex_worker_of(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	const uint64_t id = ex_u64_or(obj, "worker", 0);
	struct ex_worker *k = ex_worker_find(w, id);

	if (k == NULL)
		ex_bad(p, "unknown worker %" PRIu64, id);
	return k;
}

uint32_t ex_rank_of(const struct ex_worker *k, const json_t *obj, struct ex_problem *p)
{
	const uint32_t dp_rank = (uint32_t)ex_u64_or(obj, "dp_rank", 0);
	const uint32_t rank = kvr_sched_rank_find(k->pool->sched, k->id, dp_rank);

	if (rank == KVR_SCHED_NO_RANK)
		ex_bad(p, "worker %" PRIu64 " has no rank %u", k->id, dp_rank);
	return rank;
}

/* ---- states ------------------------------------------------------------------------------ */

static void prefill_side(struct ex_pool *pool)
{
	bool active;

	if (pool->conf.role != KVR_ROLE_PREFILL ||
	    !kvr_disagg_workers(&pool->disagg, kvr_sched_n_able(pool->sched)))
		return;
	active = kvr_disagg_active(&pool->disagg);
	ex_out("{ op:s pool:s from:s to:s }", "state", pool->conf.name,
	       active ? "inactive" : "active", active ? "active" : "inactive");
}

void ex_state_change(struct ex_worker *k, enum kvr_wire_worker_state to)
{
	ex_out("{ op:s worker:U from:s to:s }", "state", k->id, kvr_worker_state_name(k->state),
	       kvr_worker_state_name(to));
	k->state = to;
	prefill_side(k->pool);
}

/* ---- sessions, requests
 * ---------------------------------------------------------------------------- */

const char *ex_session_id(const json_t *obj, struct ex_problem *p)
{
	const char *id = ex_str_or(obj, "session_id", "");

	if (id[0] != '\0' && strlen(id) <= KVR_SESSION_ID_MAX)
		return id;
	ex_bad(p, "a session id has 1 to %u bytes", KVR_SESSION_ID_MAX);
	return NULL;
}

int ex_req_find(struct ex_world *w, const json_t *obj, struct ex_req **r, struct ex_problem *p)
{
	const char *id = ex_str_or(obj, "id", "");

	*r = ex_req_live(w, id);
	if (*r != NULL)
		return 1;
	if (json_object_get(w->ids, id) != NULL)
		return 0;
	ex_bad(p, "unknown id '%s'", id);
	return -1;
}

struct ex_req *ex_req_live(const struct ex_world *w, const char *id)
{
	return (struct ex_req *)(uintptr_t)json_integer_value(json_object_get(w->ids, id));
}

void ex_req_enter(struct ex_world *w, struct ex_req *r)
{
	r->live = true;
	TAILQ_INSERT_TAIL(&w->live, r, link);
	json_object_set_new(w->ids, r->id, json_integer((json_int_t)(uintptr_t)r));
}

void ex_req_leave(struct ex_world *w, struct ex_req *r)
{
	if (!r->live)
		return;
	r->live = false;
	TAILQ_REMOVE(&w->live, r, link);
	json_object_set_new(w->ids, r->id, json_null());
}

void ex_req_over(struct ex_world *w, struct ex_req *r)
{
	ex_req_leave(w, r);
	TAILQ_INSERT_TAIL(&w->dead, r, link);
}
