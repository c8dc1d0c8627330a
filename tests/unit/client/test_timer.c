/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_timer.h"

#include "kvr_rand.h"
#include "kvr_test.h"

#define N 500

static struct kvr_timer t[N];
static struct kvr_timers h;

static void setup_timers(void)
{
	for (int i = 0; i < N; i++)
		t[i] = (struct kvr_timer){0};
	CU_ASSERT_EQUAL_FATAL(kvr_timers_init(&h, N), 0);
}

static void empty_heap_never_fires(void)
{
	setup_timers();
	CU_ASSERT_EQUAL(kvr_timers_next(&h), KVR_TIMER_NEVER);
	CU_ASSERT_PTR_NULL(kvr_timers_expire(&h, UINT64_MAX));
	kvr_timer_stop(&h, &t[0]);
	CU_ASSERT_FALSE(kvr_timer_running(&t[0]));
	kvr_timers_fini(&h);
}

static void fires_at_its_time_and_not_before(void)
{
	setup_timers();
	kvr_timer_set(&h, &t[0], 100);
	CU_ASSERT_PTR_NULL(kvr_timers_expire(&h, 99));
	CU_ASSERT(kvr_timer_running(&t[0]));
	CU_ASSERT_PTR_EQUAL(kvr_timers_expire(&h, 100), &t[0]);
	CU_ASSERT_FALSE(kvr_timer_running(&t[0]));
	CU_ASSERT_PTR_NULL(kvr_timers_expire(&h, 1000));
	kvr_timers_fini(&h);
}

static void moving_replaces_the_previous_time(void)
{
	setup_timers();
	kvr_timer_set(&h, &t[0], 100);
	kvr_timer_set(&h, &t[1], 200);
	kvr_timer_set(&h, &t[0], 300);
	CU_ASSERT_EQUAL(kvr_timers_next(&h), 200);
	kvr_timer_set(&h, &t[1], 400);
	CU_ASSERT_EQUAL(kvr_timers_next(&h), 300);
	CU_ASSERT_PTR_EQUAL(kvr_timers_expire(&h, 500), &t[0]);
	CU_ASSERT_PTR_EQUAL(kvr_timers_expire(&h, 500), &t[1]);
	kvr_timers_fini(&h);
}

/* Random sets, moves and stops, compared with a plain array. */
static void heap_agrees_with_a_scan(void)
{
	uint64_t due[N];
	struct kvr_rand r;

	setup_timers();
	kvr_rand_init(&r, 7);
	for (int i = 0; i < N; i++)
		due[i] = KVR_TIMER_NEVER;
	for (int step = 0; step < 200000; step++) {
		const uint32_t i = kvr_rand_below(&r, N), what = kvr_rand_below(&r, 8);
		uint64_t least = KVR_TIMER_NEVER;

		if (what < 5) {
			due[i] = kvr_rand_below(&r, 1000);
			kvr_timer_set(&h, &t[i], due[i]);
		} else if (what < 7) {
			due[i] = KVR_TIMER_NEVER;
			kvr_timer_stop(&h, &t[i]);
		}
		if (step % 64 == 0) {
			for (int k = 0; k < N; k++)
				least = due[k] < least ? due[k] : least;
			CU_ASSERT_EQUAL_FATAL(kvr_timers_next(&h), least);
		}
		if (what == 7) {
			struct kvr_timer *x = kvr_timers_expire(&h, 500);

			if (x != NULL) {
				CU_ASSERT_FATAL(due[x - t] <= 500);
				due[x - t] = KVR_TIMER_NEVER;
			}
		}
	}
	kvr_timers_fini(&h);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(empty_heap_never_fires),
			       KVR_CASE(fires_at_its_time_and_not_before),
			       KVR_CASE(moving_replaces_the_previous_time),
			       KVR_CASE(heap_agrees_with_a_scan), CU_TEST_INFO_NULL};

	return kvr_test_run("timer", tests);
}
