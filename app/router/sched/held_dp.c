/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting budget: frames of jobs that wait at a scheduler. The scheduler lcore of the pool is the
 * only writer. An ingress lcore frees jobs with job_drop(), which does not touch these counts.
 */
#include "message/frames.h"
#include "message/job.h"
#include "sched/prompts.h"
#include "sched/quota.h"
#include "sched/sched.h"

#include <assert.h>

static void held_set(struct pool *p, uint32_t n)
{
	/* One writer; telemetry reads whole words, and no other data is published. */
	atomic_store_explicit(&p->live.held, n, memory_order_relaxed);
}

enum kvr_code job_hold(struct job *j)
{
	const uint32_t n = j->frames != NULL ? j->frames->n : 1;
	const uint32_t held = atomic_load_explicit(&j->pool->live.held, memory_order_relaxed);
	enum kvr_code code;

	if (j->held != 0)
		return KVR_OK;
	if (held + n > j->pool->max_held)
		return KVR_E_NO_MEMORY;
	code = share_wait(j->pool, j, n, j->pool->max_held - held);
	if (code != KVR_OK)
		return code;
	j->held = n;
	held_set(j->pool, held + n);
	fragments_taken(j); /* from now on they count here */
	return KVR_OK;
}

enum kvr_code result_hold(struct job *j, struct frame_list *l)
{
	enum kvr_code code = job_hold(j);
	const uint32_t held = atomic_load_explicit(&j->pool->live.held, memory_order_relaxed);

	if (code == KVR_OK && held + l->n > j->pool->max_held)
		code = KVR_E_NO_MEMORY;
	if (code == KVR_OK)
		code = share_result(j->pool, j, l->n, j->pool->max_held - held);
	if (code != KVR_OK)
		return code;
	j->pair->long_result = l;
	held_set(j->pool, held + l->n);
	return KVR_OK;
}

void result_free(struct lcore *lc, struct job *j)
{
	struct pair *l = j->pair;

	rte_pktmbuf_free(l->result);
	l->result = NULL;
	if (l->long_result == NULL)
		return;
	held_set(j->pool, atomic_load_explicit(&j->pool->live.held, memory_order_relaxed) -
				  l->long_result->n);
	kvr_quota_return(j->pool->live.shares.frames, l->share_result, l->long_result->n);
	frames_drop(lc, l->long_result);
	l->long_result = NULL;
}

void job_free(struct lcore *lc, struct job *j)
{
	struct pool *p = j->pool;

	/* At the stop the control thread frees the rest, while no lcore runs. */
	assert(lc == p->sched_lcore || lc == &lc->rt->control);
	fragments_taken(j);
	if (j->pair != NULL)
		result_free(lc, j);
	if (j->held != 0) {
		held_set(p, atomic_load_explicit(&p->live.held, memory_order_relaxed) - j->held);
		share_go_on(p, j, j->held);
	}
	prompts_keep(p, j);
	job_drop(lc, j);
}
