/* SPDX-License-Identifier: BSD-3-Clause */
/* When an lcore without work sleeps, and for how long. */
#include "kvr_test.h"
#include "lcore/idle.h"

#define MOST UINT64_C(1000000)

static void it_turns_a_while_before_it_sleeps(void)
{
	struct idle d = {0};

	for (uint32_t i = 0; i < IDLE_SPIN; i++)
		CU_ASSERT_EQUAL(idle_turn(&d, false, MOST), 0);
	CU_ASSERT_EQUAL(idle_turn(&d, false, MOST), IDLE_LEAST_NS);
}

static void who_is_woken_sleeps_sooner(void)
{
	struct idle d = {.mode = IDLE_INTERRUPT};

	for (uint32_t i = 0; i < IDLE_SPIN_INT; i++)
		CU_ASSERT_EQUAL(idle_turn(&d, false, MOST), 0);
	CU_ASSERT_EQUAL(idle_turn(&d, false, MOST), IDLE_LEAST_NS);
	CU_ASSERT_EQUAL(idle_turn(&d, true, MOST), 0);
	CU_ASSERT_EQUAL(idle_turn(&d, false, MOST), 0);
}

static void sleeps_grow_to_their_bound(void)
{
	struct idle d = {.turns = IDLE_SPIN};
	uint64_t want = IDLE_LEAST_NS, got = 0;

	for (int i = 0; i < 100; i++) {
		got = idle_turn(&d, false, MOST);
		CU_ASSERT_EQUAL(got, want);
		want = 2 * want < MOST ? 2 * want : MOST;
	}
	CU_ASSERT_EQUAL(got, MOST);
	/* A bound that has become smaller holds at once. */
	CU_ASSERT_EQUAL(idle_turn(&d, false, IDLE_LEAST_NS / 2), IDLE_LEAST_NS / 2);
}

static void any_work_begins_anew(void)
{
	struct idle d = {.turns = IDLE_SPIN};

	for (int i = 0; i < 10; i++)
		idle_turn(&d, false, MOST);
	CU_ASSERT_EQUAL(idle_turn(&d, true, MOST), 0);
	for (uint32_t i = 0; i < IDLE_SPIN; i++)
		CU_ASSERT_EQUAL(idle_turn(&d, false, MOST), 0);
	CU_ASSERT_EQUAL(idle_turn(&d, false, MOST), IDLE_LEAST_NS);
	/* In the middle of the turns, too. */
	idle_turn(&d, true, MOST);
	for (uint32_t i = 0; i < IDLE_SPIN / 2; i++)
		idle_turn(&d, false, MOST);
	idle_turn(&d, true, MOST);
	for (uint32_t i = 0; i < IDLE_SPIN; i++)
		CU_ASSERT_EQUAL(idle_turn(&d, false, MOST), 0);
	CU_ASSERT_NOT_EQUAL(idle_turn(&d, false, MOST), 0);
}

int main(void)
{
	CU_TestInfo tests[] = {{"a while before", it_turns_a_while_before_it_sleeps},
			       {"woken: sooner", who_is_woken_sleeps_sooner},
			       {"grow", sleeps_grow_to_their_bound},
			       {"work", any_work_begins_anew},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("idle", tests);
}
