/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

/**
 * @file
 * The model of one rank of a simulated engine: speed, batching and block cache. kvroute-load,
 * kvroute-sim and the cluster model of --scale share it. The caller owns time: the model returns
 * durations in ticks (ns, or cycles of a clock) and the caller reports their end.
 *
 * A rank prefills the tasks of its queue in order of arrival. A prefill computes the prompt tokens
 * that the cache does not hold, at least one. Two ways of batching:
 *
 *   one at a time  engine_next(), engine_prefill_begin(), engine_prefill_end(); decoding tasks run
 *                  beside the prefill at a constant time per token
 *   steps          engine_step_begin(), engine_step_end(): in each step every decoding task makes
 *                  one token, and prefills share the rest of a token budget
 *
 * Memory is the caller's. One owner, no locking; only engine_cache_create() allocates.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "engine_cache.h"

#define ENGINE_NO_TASK UINT32_MAX

/** Durations in ticks. */
struct engine_speed {
	double prefill;	 /* per computed prompt token */
	double decode;	 /* per generated token; one at a time */
	double step;	 /* steps: base time of one */
	double beside;	 /* steps: added per decoding task */
	uint32_t budget; /* steps: tokens of one; 0: one prefill at a time */
};

/** A request at a rank. The owner sets @p id and zeroes the rest. */
struct engine_task {
	TAILQ_ENTRY(engine_task) link; /* in the queue */
	uint32_t id;		       /* owner's; below ENGINE_NO_TASK */
	uint32_t blocks;	       /* prompt blocks found in the cache */
	uint32_t cached;	       /* prompt tokens that need no computation */
	uint32_t left;		       /* prompt tokens still to compute */
	bool begun;		       /* its prefill has begun */
};

/** A prompt: @p n_blocks sequence hashes of @p block_size tokens each, @p tokens in all. @p tokens
 * 0: the blocks have been transferred, and nothing is computed. */
struct engine_prompt {
	const uint64_t *hashes;
	uint32_t n_blocks, block_size, tokens;
};

TAILQ_HEAD(engine_tasks, engine_task);

/** Zeroed by its owner, then engine_init(). */
struct engine_rank {
	const struct engine_speed *speed;
	struct engine_cache *cache; /* NULL: caches nothing. Owner: creates, destroys */
	struct engine_tasks queue;
	uint32_t prefilling;  /* one at a time: id of the task, or ENGINE_NO_TASK */
	uint32_t decoding;    /* tasks past their prefill and not finished */
	uint32_t max_running; /* prefilling and decoding; 0: no limit */
};

void engine_init(struct engine_rank *rank, const struct engine_speed *speed);

/** Tasks past the queue. */
static inline uint32_t engine_running(const struct engine_rank *rank)
{
	return rank->decoding + (rank->prefilling != ENGINE_NO_TASK);
}

/** Prompt tokens of @p prompt that the cache holds now, at most all but one. */
uint32_t engine_cached_tokens(const struct engine_rank *rank, const struct engine_prompt *prompt);

/** Make the first @p n blocks resident. @p removed as engine_cache_store(). @return what changed.
 */
struct engine_cache_change engine_store(struct engine_rank *rank, const uint64_t hashes[],
					uint32_t n, uint64_t removed[]);

/** Append to the queue. */
void engine_enqueue(struct engine_rank *rank, struct engine_task *task);

/** Remove a queued task. */
void engine_dequeue(struct engine_rank *rank, struct engine_task *task);

/** Take the next task off the queue, when no prefill runs and the rank is below max_running.
 * @return the task, whose prefill the caller begins; NULL: none. */
struct engine_task *engine_next(struct engine_rank *rank);

/** Begin the prefill of @p task and look its prompt up. @return ticks until engine_prefill_end();
 * with steps: 0. */
double engine_prefill_begin(struct engine_rank *rank, struct engine_task *task,
			    const struct engine_prompt *prompt);

/** The running prefill has ended: its task decodes. */
void engine_prefill_end(struct engine_rank *rank);

/** A decoding task has finished, or a task past the queue is dropped. */
void engine_drop(struct engine_rank *rank, uint32_t id);

/** Begin the prefill of a task during a step: calls engine_prefill_begin(). */
typedef void (*engine_begin_fn)(void *arg, struct engine_task *task);

/** Begin a step. @return its ticks; 0: the rank has nothing to do. */
double engine_step_begin(struct engine_rank *rank, engine_begin_fn begin, void *arg);

/** A step has ended. Call until NULL. @return the next task whose prefill it completed, which
 * leaves the queue and decodes. */
struct engine_task *engine_step_end(struct engine_rank *rank);

/** Ticks to the first token of a prompt of which @p tokens must be computed, on an idle rank. */
double engine_idle_prefill(const struct engine_speed *speed, uint32_t tokens);

#endif
