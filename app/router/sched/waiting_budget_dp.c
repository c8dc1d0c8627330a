/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting budget: frames of jobs that wait at a scheduler. The scheduler lcore of the pool is the
 * only writer. An ingress lcore frees jobs with job_drop(), which does not touch these counts.
 */
#include "message/frames.h"
#include "message/job.h"
#include "sched/long_prompt.h"
#include "sched/quota.h"
#include "sched/sched.h"

#include <assert.h>

static void held_set(struct pool *pool, uint32_t n)
{
	/* One writer; telemetry reads whole words, and no other data is published. */
	atomic_store_explicit(&pool->live.held, n, memory_order_relaxed);
}

enum kvr_code job_hold(struct job *job)
{
	const uint32_t n = job->frames != NULL ? job->frames->n : 1;
	const uint32_t held = atomic_load_explicit(&job->pool->live.held, memory_order_relaxed);
	enum kvr_code code;

	if (job->held != 0)
		return KVR_OK;
	if (held + n > job->pool->max_held)
		return KVR_E_NO_MEMORY;
	code = quota_wait(job->pool, job, n, job->pool->max_held - held);
	if (code != KVR_OK)
		return code;
	job->held = n;
	held_set(job->pool, held + n);
	frames_count_taken(job); /* from now on they count here */
	return KVR_OK;
}

enum kvr_code result_hold(struct job *job, struct frame_list *list)
{
	enum kvr_code code = job_hold(job);
	const uint32_t held = atomic_load_explicit(&job->pool->live.held, memory_order_relaxed);

	if (code == KVR_OK && held + list->n > job->pool->max_held)
		code = KVR_E_NO_MEMORY;
	if (code == KVR_OK)
		code = quota_result(job->pool, job, list->n, job->pool->max_held - held);
	if (code != KVR_OK)
		return code;
	job->pair->long_result = list;
	held_set(job->pool, held + list->n);
	return KVR_OK;
}

void result_free(struct lcore *lc, struct job *job)
{
	struct pair *pair = job->pair;

	rte_pktmbuf_free(pair->result);
	pair->result = NULL;
	if (pair->long_result == NULL)
		return;
	held_set(job->pool, atomic_load_explicit(&job->pool->live.held, memory_order_relaxed) -
				    pair->long_result->n);
	kvr_quota_return(job->pool->live.quotas.frames, pair->quota_result, pair->long_result->n);
	frames_drop(lc, pair->long_result);
	pair->long_result = NULL;
}

void job_free(struct lcore *lc, struct job *job)
{
	struct pool *pool = job->pool;

	/* At the stop the control thread frees the rest, while no lcore runs. */
	assert(lc == pool->sched_lcore || lc == &lc->rt->control);
	frames_count_taken(job);
	if (job->pair != NULL)
		result_free(lc, job);
	if (job->held != 0) {
		held_set(pool,
			 atomic_load_explicit(&pool->live.held, memory_order_relaxed) - job->held);
		quota_wait_end(pool, job, job->held);
	}
	long_prompt_keep(pool, job);
	job_drop(lc, job);
}
