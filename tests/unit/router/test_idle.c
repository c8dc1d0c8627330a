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

/* @return empty turns before it sleeps; it has slept once more without being woken. */
static uint32_t until_it_sleeps(struct idle *d)
{
	uint32_t n = 0;

	while (idle_turn(d, false, MOST) == 0)
		n++;
	CU_ASSERT_NOT_EQUAL(idle_turn(d, false, MOST), 0);
	return n;
}

static void turns_in_vain_become_fewer(void)
{
	struct idle d = {.mode = IDLE_INTERRUPT};
	uint32_t most = IDLE_SPIN_INT;

	for (int i = 0; i < 10; i++) {
		CU_ASSERT_EQUAL(until_it_sleeps(&d), most);
		idle_turn(&d, true, MOST); /* what woke it */
		most = most / 2 > IDLE_SPIN_LEAST ? most / 2 : IDLE_SPIN_LEAST;
	}
	CU_ASSERT_EQUAL(most, IDLE_SPIN_LEAST);
	/* Turns with work do not change the number of empty ones. */
	for (int i = 0; i < 10; i++)
		idle_turn(&d, true, MOST);
	CU_ASSERT_EQUAL(until_it_sleeps(&d), IDLE_SPIN_LEAST);
	/* What comes in an empty turn was worth it, though it was not slept before. */
	idle_turn(&d, true, MOST);
	for (int i = 0; i < 10; i++) {
		CU_ASSERT_EQUAL(idle_turn(&d, false, MOST), 0);
		idle_turn(&d, true, MOST);
	}
	CU_ASSERT_EQUAL(until_it_sleeps(&d), IDLE_SPIN_INT);
}

static void who_looks_now_and_then_turns_as_long_as_ever(void)
{
	struct idle d = {.mode = IDLE_SLEEP};

	for (int i = 0; i < 10; i++) {
		CU_ASSERT_EQUAL(until_it_sleeps(&d), IDLE_SPIN);
		idle_turn(&d, true, MOST);
	}
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
	CU_TestInfo tests[] = {KVR_CASE(it_turns_a_while_before_it_sleeps),
			       KVR_CASE(who_is_woken_sleeps_sooner),
			       KVR_CASE(turns_in_vain_become_fewer),
			       KVR_CASE(who_looks_now_and_then_turns_as_long_as_ever),
			       KVR_CASE(sleeps_grow_to_their_bound),
			       KVR_CASE(any_work_begins_anew),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("idle", tests);
}
