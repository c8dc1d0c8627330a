/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding pools, workers, ranks and requests by their names; states of workers. */
#include "world.h"

#include "out.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- states ------------------------------------------------------------------------------ */

static void prefill_side(struct ex_pool *pool)
{
	bool active;

	if (pool->conf.role != KVR_ROLE_PREFILL ||
	    !kvr_disagg_workers(&pool->disagg, kvr_sched_n_able(pool->sched)))
		return;
	active = kvr_disagg_active(&pool->disagg);
	ex_out_line("state");
	ex_out_str("pool", pool->conf.name);
	ex_out_str("from", active ? "inactive" : "active");
	ex_out_str("to", active ? "active" : "inactive");
	ex_out_end();
}

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
	prefill_side(k->pool);
}

void ex_settle(struct ex_world *w)
{
	for (struct ex_worker *k = w->workers; k != NULL; k = k->next)
		if (k->state == EX_DRAINING &&
		    kvr_sched_worker_bookings(k->pool->sched, k->id) == 0)
			ex_state_change(k, EX_DRAINED);
}

/* ---- requests ---------------------------------------------------------------------------- */

int ex_req_find(struct ex_world *w, const json_t *obj, struct ex_req **r, struct ex_problem *p)
{
	const char *id = ex_str_or(obj, "id", "");
	const json_t *at = json_object_get(w->ids, id);

	*r = NULL;
	if (at == NULL) {
		ex_bad(p, "unknown id '%s'", id);
		return -1;
	}
	if (json_is_null(at))
		return 0;
	*r = w->live[json_integer_value(at)];
	return 1;
}

struct ex_req *ex_req_live(const struct ex_world *w, const char *id)
{
	const json_t *at = json_object_get(w->ids, id);

	return json_is_integer(at) ? w->live[json_integer_value(at)] : NULL;
}

void ex_req_enter(struct ex_world *w, struct ex_req *r)
{
	if (w->n_live == w->cap_live) {
		w->cap_live = w->cap_live * 2 + 64;
		w->live = realloc(w->live, w->cap_live * sizeof(*w->live));
		if (w->live == NULL)
			abort();
	}
	r->entered = true;
	r->at = w->n_live;
	w->live[w->n_live++] = r;
	json_object_set_new(w->ids, r->id, json_integer((json_int_t)r->at));
}

void ex_req_leave(struct ex_world *w, struct ex_req *r)
{
	struct ex_req *last;

	if (!r->entered)
		return;
	r->entered = false;
	last = w->live[--w->n_live];
	w->live[r->at] = last;
	last->at = r->at;
	json_object_set_new(w->ids, last->id, json_integer((json_int_t)last->at));
	json_object_set_new(w->ids, r->id, json_null());
}
