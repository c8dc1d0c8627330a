/* SPDX-License-Identifier: BSD-3-Clause */
#include "engine_model.h"

#include <stddef.h>

void engine_init(struct engine_rank *rank, const struct engine_speed *speed)
{
	rank->speed = speed;
	rank->prefilling = ENGINE_NO_TASK;
	TAILQ_INIT(&rank->queue);
}

/* ---- the cache ---- */

static uint32_t cached_blocks(const struct engine_rank *rank, const struct engine_prompt *prompt)
{
	return rank->cache != NULL
		       ? engine_cache_match(rank->cache, prompt->hashes, prompt->n_blocks)
		       : 0;
}

/* Prompt tokens to compute when @blocks are cached: at least the last one. */
static uint32_t tokens_left(const struct engine_prompt *prompt, uint32_t blocks)
{
	const uint32_t found = blocks * prompt->block_size;

	return prompt->tokens > found ? prompt->tokens - found : prompt->tokens > 0;
}

uint32_t engine_cached_tokens(const struct engine_rank *rank, const struct engine_prompt *prompt)
{
	return prompt->tokens - tokens_left(prompt, cached_blocks(rank, prompt));
}

struct engine_cache_change engine_store(struct engine_rank *rank, const uint64_t hashes[],
					uint32_t n, uint64_t removed[])
{
	if (rank->cache == NULL)
		return (struct engine_cache_change){0};
	return engine_cache_store(rank->cache, hashes, n, removed);
}

/* ---- one prefill at a time ---- */

void engine_enqueue(struct engine_rank *rank, struct engine_task *task)
{
	TAILQ_INSERT_TAIL(&rank->queue, task, link);
}

void engine_dequeue(struct engine_rank *rank, struct engine_task *task)
{
	TAILQ_REMOVE(&rank->queue, task, link);
}

struct engine_task *engine_next(struct engine_rank *rank)
{
	struct engine_task *task = TAILQ_FIRST(&rank->queue);

	if (task == NULL || rank->prefilling != ENGINE_NO_TASK ||
	    (rank->max_running != 0 && rank->decoding >= rank->max_running))
		return NULL;
	TAILQ_REMOVE(&rank->queue, task, link);
	return task;
}

double engine_prefill_begin(struct engine_rank *rank, struct engine_task *task,
			    const struct engine_prompt *prompt)
{
	task->begun = true;
	task->blocks = cached_blocks(rank, prompt);
	task->left = tokens_left(prompt, task->blocks);
	task->cached = prompt->tokens - task->left;
	if (rank->speed->budget != 0)
		return 0;
	rank->prefilling = task->id;
	return task->left * rank->speed->prefill;
}

void engine_prefill_end(struct engine_rank *rank)
{
	rank->prefilling = ENGINE_NO_TASK;
	rank->decoding++;
}

void engine_drop(struct engine_rank *rank, uint32_t id)
{
	if (rank->prefilling == id)
		rank->prefilling = ENGINE_NO_TASK;
	else
		rank->decoding--;
}

/* ---- steps ---- */

/* Share the budget that decoding leaves, in order of the queue. @return tokens used. */
static uint32_t share_budget(struct engine_rank *rank, engine_begin_fn begin, void *arg)
{
	const uint32_t budget = rank->speed->budget;
	uint32_t room = budget > rank->decoding ? budget - rank->decoding : 0, used = 0;
	struct engine_task *task;

	TAILQ_FOREACH (task, &rank->queue, link) {
		uint32_t taken;

		if (room == 0)
			break;
		if (!task->begun)
			begin(arg, task);
		taken = task->left < room ? task->left : room;
		task->left -= taken;
		room -= taken;
		used += taken;
	}
	return used;
}

double engine_step_begin(struct engine_rank *rank, engine_begin_fn begin, void *arg)
{
	const struct engine_speed *speed = rank->speed;
	uint32_t used;

	if (TAILQ_EMPTY(&rank->queue) && rank->decoding == 0)
		return 0;
	used = share_budget(rank, begin, arg);
	return speed->step + rank->decoding * speed->beside + used * speed->prefill;
}

struct engine_task *engine_step_end(struct engine_rank *rank)
{
	struct engine_task *task = TAILQ_FIRST(&rank->queue);

	if (task == NULL || !task->begun || task->left != 0)
		return NULL;
	TAILQ_REMOVE(&rank->queue, task, link);
	rank->decoding++;
	return task;
}

double engine_idle_prefill(const struct engine_speed *speed, uint32_t tokens)
{
	const uint32_t steps =
		speed->budget != 0 ? (tokens + speed->budget - 1) / speed->budget : 0;

	return tokens * speed->prefill + steps * speed->step;
}
