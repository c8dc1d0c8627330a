/* SPDX-License-Identifier: BSD-3-Clause */
/* Scheduling around long prompts that are processed in slices: long_prompt.h. */
#include "sched/long_prompt.h"

#include "message/job.h"
#include "sched/request.h"

static bool is_alone(const struct pool *pool)
{
	return pool->other == pool;
}

static bool is_settled(const struct pool *pool)
{
	return kvr_sched_settled(pool->sched) &&
	       (likely(is_alone(pool)) || kvr_sched_settled(pool->other->sched));
}

static bool has_question(const struct pool *pool)
{
	return pool->live.asking.r != NULL ||
	       (unlikely(!is_alone(pool)) && pool->other->live.asking.r != NULL);
}

bool long_prompt_idle(const struct pool *pool)
{
	return is_settled(pool) && !kvr_sched_admits(pool->sched) && !has_question(pool) &&
	       (likely(is_alone(pool)) || !kvr_sched_admits(pool->other->sched));
}

bool long_prompt_may_admit(const struct pool *pool)
{
	return is_settled(pool) && !has_question(pool) &&
	       (kvr_sched_admits(pool->sched) || !kvr_sched_admits(pool->other->sched));
}

static bool is_entering(const struct pool *pool, const void *hashes)
{
	return kvr_sched_enters(pool->sched, hashes) ||
	       kvr_sched_enters(pool->other->sched, hashes);
}

/* Free what is no longer needed. */
static void give_back(struct pool *pool)
{
	if (pool->live.entering == NULL || is_entering(pool, pool->live.entering->sh))
		return;
	hashes_put(pool->live.entering);
	pool->live.entering = NULL;
}

bool long_prompt_settle(struct pool *pool)
{
	kvr_sched_settle(pool->sched, LONG_PROMPT_TURN);
	if (unlikely(pool->live.entering != NULL))
		give_back(pool);
	return is_settled(pool);
}

void long_prompt_finish(struct pool *pool)
{
	kvr_sched_settle(pool->sched, UINT32_MAX);
	kvr_sched_settle(pool->other->sched, UINT32_MAX);
	kvr_sched_admit_again(pool->sched);
	kvr_sched_admit_again(pool->other->sched);
	give_back(pool);
}

void long_prompt_keep(struct pool *pool, struct job *job)
{
	if (unlikely(pool->other->sched == NULL)) /* at the stop it goes before its messages */
		return;
	if (unlikely(job->n_hashes > LONG_PROMPT_BLOCKS))
		long_prompt_handled(pool); /* the memory of its hashes will be reused */
	if (likely(is_settled(pool)) || !is_entering(pool, job->hashes))
		return;
	give_back(pool);
	if (unlikely(job->hash_buf == NULL || pool->live.entering != NULL)) {
		long_prompt_finish(pool);
		return;
	}
	pool->live.entering = job->hash_buf;
	job->hash_buf = NULL;
}

/* ---- before a decision ---- */

bool long_prompt_is_none(const struct pool *pool, const struct sched_msg *msg)
{
	return is_alone(pool) && ((msg->type != MSG_ROUTE && msg->type != MSG_LOADS) ||
				  msg->job->n_hashes <= LONG_PROMPT_BLOCKS);
}

bool long_prompt_ready(struct pool *pool, const struct job *job, uint32_t runs)
{
	if (likely(job == NULL || job->n_hashes <= LONG_PROMPT_BLOCKS))
		return true;
	return kvr_sched_prepare(pool->sched, &job->msg.req, runs);
}

bool long_prompt_ready_msg(struct pool *pool, const struct sched_msg *msg, uint32_t runs)
{
	const uint64_t before = long_prompt_walked(pool);

	if (msg->type != MSG_ROUTE && msg->type != MSG_LOADS)
		return true;
	if (!long_prompt_ready(pool, msg->job, runs))
		return false;
	if (likely(msg->job->pair == NULL))
		return true;
	runs -= RTE_MIN(runs, (uint32_t)(long_prompt_walked(pool) - before));
	return long_prompt_ready(pool->prefill, msg->job, runs);
}

void long_prompt_handled(struct pool *pool)
{
	kvr_sched_prepare_over(pool->sched);
	if (unlikely(!is_alone(pool)))
		kvr_sched_prepare_over(pool->other->sched);
}

uint64_t long_prompt_walked(const struct pool *pool)
{
	return kvr_sched_walked(pool->sched) +
	       (likely(is_alone(pool)) ? 0 : kvr_sched_walked(pool->other->sched));
}
