/* SPDX-License-Identifier: BSD-3-Clause */
/* Workers of a scenario join, leave, drain and report their load to lib/sched. */
#include "explain.h"

/* A worker changes its state; the last one of a prefill pool may change that of its side. */
static void change_state(struct kvr_sc_worker *k, enum kvr_wire_worker_state to)
{
	struct kvr_disagg *side = &ex_pool(k->pool)->disagg;

	kvr_sc_line_state(k, to);
	if (k->pool->conf.role == KVR_ROLE_PREFILL &&
	    kvr_disagg_workers(side, kvr_sched_n_able(k->pool->sched)))
		kvr_sc_line_active(k->pool, kvr_disagg_active(side));
}

int ex_worker(struct kvr_sc_pool *pool, const struct kvr_sched_worker *c, const json_t *obj)
{
	const struct kvr_sc_worker *k = kvr_sc_worker_find(pool->world, c->id);

	/* An identical line is a repetition, not a change that would drain the queue. */
	if (k != NULL && json_equal(k->line->obj, obj))
		return 0;
	return kvr_sched_worker_set(pool->sched, c, pool->world->now);
}

void ex_joined(struct kvr_sc_worker *k)
{
	change_state(k, KVR_WORKER_SERVING);
}

void ex_gone(struct kvr_sc_worker *k)
{
	kvr_sched_worker_gone(k->pool->sched, k->id, k->pool->world->now);
	change_state(k, KVR_WORKER_GONE);
}

void ex_drain(struct kvr_sc_worker *k, bool draining)
{
	kvr_sched_worker_drain(k->pool->sched, k->id, draining, k->pool->world->now);
	change_state(k, draining ? KVR_WORKER_DRAINING : KVR_WORKER_SERVING);
}

void ex_load(struct kvr_sc_worker *k, uint32_t dp_rank, uint64_t used_blocks)
{
	kvr_sched_load_report(k->pool->sched, k->id, dp_rank, used_blocks, k->pool->world->now);
}

void ex_report_drained(struct kvr_sc_world *w)
{
	struct kvr_sc_worker *k;

	LIST_FOREACH (k, &w->workers, link)
		if (k->state == KVR_WORKER_DRAINING &&
		    kvr_sched_worker_bookings(k->pool->sched, k->id) == 0)
			change_state(k, KVR_WORKER_DRAINED);
}
