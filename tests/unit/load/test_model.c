/* SPDX-License-Identifier: BSD-3-Clause */
/* The model of an engine's rank: order, durations, batching. */
#include "engine_model.h"
#include "kvr_test.h"

#include <rte_common.h>

static const struct engine_speed one_at_a_time = {.prefill = 10, .decode = 100};
static const struct engine_speed in_steps = {.prefill = 1, .step = 1000, .beside = 50, .budget = 8};

static uint64_t hashes[4] = {1, 2, 3, 4}, removed[4];
static const struct engine_prompt prompt = {hashes, 4, 4, 16};
static struct engine_rank rank;
static struct engine_task task[3];

static void set_up(const struct engine_speed *speed)
{
	rank = (struct engine_rank){0};
	engine_init(&rank, speed);
	for (uint32_t i = 0; i < RTE_DIM(task); i++) {
		task[i] = (struct engine_task){.id = i};
		engine_enqueue(&rank, &task[i]);
	}
}

static void begin_task(void *arg, struct engine_task *t)
{
	(void)arg;
	engine_prefill_begin(&rank, t, &prompt);
}

static void prefills_run_one_at_a_time_in_order_of_arrival(void)
{
	set_up(&one_at_a_time);
	CU_ASSERT_PTR_EQUAL_FATAL(engine_next(&rank), &task[0]);
	CU_ASSERT_EQUAL(engine_prefill_begin(&rank, &task[0], &prompt), 160);
	CU_ASSERT_PTR_NULL(engine_next(&rank));
	engine_dequeue(&rank, &task[1]);
	engine_prefill_end(&rank);
	CU_ASSERT_PTR_EQUAL_FATAL(engine_next(&rank), &task[2]);
	engine_prefill_begin(&rank, &task[2], &prompt);
	CU_ASSERT_EQUAL(engine_running(&rank), 2);
	engine_drop(&rank, 2); /* in its prefill */
	engine_drop(&rank, 0); /* decoding */
	CU_ASSERT_EQUAL(engine_running(&rank), 0);
}

static void a_full_rank_starts_no_prefill(void)
{
	set_up(&one_at_a_time);
	rank.max_running = 1;
	begin_task(NULL, engine_next(&rank));
	engine_prefill_end(&rank);
	CU_ASSERT_PTR_NULL(engine_next(&rank));
	engine_drop(&rank, 0);
	CU_ASSERT_PTR_EQUAL(engine_next(&rank), &task[1]);
}

static void cached_blocks_are_not_computed_but_the_last_token_is(void)
{
	const struct engine_prompt transferred = {hashes, 4, 4, 0};

	set_up(&one_at_a_time);
	rank.cache = engine_cache_create(8, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(rank.cache);
	engine_store(&rank, hashes, 3, removed);
	CU_ASSERT_EQUAL(engine_prefill_begin(&rank, &task[0], &prompt), 40);
	CU_ASSERT_TRUE(task[0].blocks == 3 && task[0].cached == 12 && task[0].left == 4);
	engine_store(&rank, hashes, 4, removed);
	CU_ASSERT_EQUAL(engine_prefill_begin(&rank, &task[0], &prompt), 10);
	CU_ASSERT_TRUE(task[0].blocks == 4 && task[0].cached == 15);
	CU_ASSERT_EQUAL(engine_cached_tokens(&rank, &prompt), 15);
	CU_ASSERT_EQUAL(engine_prefill_begin(&rank, &task[0], &transferred), 0);
	engine_cache_destroy(rank.cache);
}

/* Budget 8, prompts of 16: the first takes two steps, then decodes beside the second. */
static void steps_share_the_budget_that_decoding_leaves(void)
{
	set_up(&in_steps);
	CU_ASSERT_EQUAL(engine_step_begin(&rank, begin_task, NULL), 1008);
	CU_ASSERT_PTR_NULL(engine_step_end(&rank));
	CU_ASSERT_EQUAL(engine_step_begin(&rank, begin_task, NULL), 1008);
	CU_ASSERT_PTR_EQUAL(engine_step_end(&rank), &task[0]);
	CU_ASSERT_PTR_NULL(engine_step_end(&rank));
	CU_ASSERT_EQUAL(engine_step_begin(&rank, begin_task, NULL), 1057);
	CU_ASSERT_TRUE(task[1].left == 9 && !task[2].begun);
	CU_ASSERT_EQUAL(engine_idle_prefill(&in_steps, 16), 2016);
	CU_ASSERT_EQUAL(engine_idle_prefill(&one_at_a_time, 16), 160);
}

static void an_idle_rank_makes_no_step(void)
{
	set_up(&in_steps);
	for (uint32_t i = 0; i < RTE_DIM(task); i++)
		engine_dequeue(&rank, &task[i]);
	CU_ASSERT_EQUAL(engine_step_begin(&rank, begin_task, NULL), 0);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(prefills_run_one_at_a_time_in_order_of_arrival),
			       KVR_CASE(a_full_rank_starts_no_prefill),
			       KVR_CASE(cached_blocks_are_not_computed_but_the_last_token_is),
			       KVR_CASE(steps_share_the_budget_that_decoding_leaves),
			       KVR_CASE(an_idle_rank_makes_no_step),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("engine model", tests);
}
