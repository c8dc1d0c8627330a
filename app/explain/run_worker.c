/* SPDX-License-Identifier: BSD-3-Clause */
/* Workers of a scenario come, go, drain and say their load: what lib/sched is told of it. */
#include "run.h"

#include <rte_common.h>

int ex_run_worker(struct ex_world *w, struct ex_pool *pool, const struct kvr_sched_worker *c,
		  const json_t *obj)
{
	const struct ex_worker *k = ex_worker_find(w, c->id);

	/* What says the same again is a repetition, and no change that the queue would be drained
	 * for. */
	if (k != NULL && json_equal(k->line->obj, obj))
		return 0;
	return kvr_sched_worker_set(pool->sched, c, w->now);
}

void ex_run_joined(struct ex_world *w, struct ex_worker *k)
{
	RTE_SET_USED(w);
	ex_state_change(k, KVR_WORKER_SERVING);
}

void ex_run_gone(struct ex_world *w, struct ex_worker *k)
{
	kvr_sched_worker_gone(k->pool->sched, k->id, w->now);
	ex_state_change(k, KVR_WORKER_GONE);
}

void ex_run_drain(struct ex_world *w, struct ex_worker *k, bool draining)
{
	kvr_sched_worker_drain(k->pool->sched, k->id, draining, w->now);
	ex_state_change(k, draining ? KVR_WORKER_DRAINING : KVR_WORKER_SERVING);
}

void ex_run_load(struct ex_world *w, struct ex_worker *k, uint32_t dp_rank, uint64_t used_blocks)
{
	kvr_sched_load_report(k->pool->sched, k->id, dp_rank, used_blocks, w->now);
}

uint32_t ex_run_loads(struct ex_world *w, struct ex_pool *pool, const struct ex_prompt *prompt,
		      struct kvr_sched_load v[], uint32_t cap, struct kvr_sched_pending *pending)
{
	const struct kvr_sched_req req = {.sh = prompt->sh, .n = prompt->n, .isl = prompt->isl};
	struct kvr_sched_overlap ov;

	ex_index_score(pool->index, prompt->sh, prompt->n, w->now, &ov);
	kvr_sched_pending(pool->sched, pending);
	return kvr_sched_loads(pool->sched, &req, &ov, w->now, v, cap);
}
