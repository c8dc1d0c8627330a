/* SPDX-License-Identifier: BSD-3-Clause */
/* The clock of silence: what the router's own stalls are credited with. All times are given. */
#include "kvr_worker.h"

#include "kvr_test.h"

#define MS   UINT64_C(1000000)
#define STEP (20 * MS) /* the longest that counts at once */

static struct kvr_live_clock at(uint64_t ns)
{
	return (struct kvr_live_clock){.now_ns = ns, .real_ns = ns, .most_ns = STEP};
}

static void rounds_in_time_count_in_full(void)
{
	struct kvr_live_clock l = at(5 * MS);

	for (uint64_t t = 6; t <= 1005; t++)
		CU_ASSERT_EQUAL(kvr_live_clock_advance(&l, t * MS, true), t * MS);
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&l, 1005 * MS, true),
			1005 * MS); /* twice at one time */
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&l, 1025 * MS, true), 1025 * MS); /* just one step */
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&l, 1045 * MS + 1, true), 1045 * MS);
}

/* SIGSTOP, a pause of the virtual machine: one step, whatever it took, once and again and again. */
static void a_stall_counts_as_one_step(void)
{
	static const uint64_t stall_ms[] = {21, 350, 1300, 2500, 3600000};
	struct kvr_live_clock l = at(0);
	uint64_t real = 0, live = 0;

	for (uint32_t i = 0; i < 5; i++) {
		real += stall_ms[i] * MS;
		live += STEP;
		CU_ASSERT_EQUAL(kvr_live_clock_advance(&l, real, true), live);
		real += MS; /* and then it goes on as before */
		live += MS;
		CU_ASSERT_EQUAL(kvr_live_clock_advance(&l, real, true), live);
	}
}

/* Control runs, but nobody reads what arrives: nothing counts, and then not what was missed. */
static void what_nobody_read_in_does_not_count(void)
{
	struct kvr_live_clock l = at(100 * MS);

	for (uint64_t t = 101; t < 2600; t++)
		CU_ASSERT_EQUAL(kvr_live_clock_advance(&l, t * MS, false), 100 * MS);
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&l, 2600 * MS, true), 100 * MS + STEP);
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&l, 2601 * MS, true), 101 * MS + STEP);
	/* A round or two without a look are no stall: their time counts with the next one. */
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&l, 2602 * MS, false), 101 * MS + STEP);
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&l, 2603 * MS, false), 101 * MS + STEP);
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&l, 2604 * MS, true), 104 * MS + STEP);
}

/* Silence that is heard counts in full, however it is cut by stalls. */
static void silence_is_still_silence(void)
{
	const uint64_t dead = 1000 * MS;
	struct kvr_live_clock l = at(0);
	uint64_t real = 0, rounds = 0;

	while (l.now_ns < dead) {
		real += ++rounds % 100 == 0 ? 2500 * MS : MS;
		kvr_live_clock_advance(&l, real, true);
	}
	/* Of every 100 rounds 99 count 1 ms, the stall one step. */
	CU_ASSERT_EQUAL(rounds, 848);
	CU_ASSERT_EQUAL(l.now_ns, dead);
}

int main(void)
{
	CU_TestInfo tests[] = {{"in time", rounds_in_time_count_in_full},
			       {"stall", a_stall_counts_as_one_step},
			       {"unread", what_nobody_read_in_does_not_count},
			       {"silence", silence_is_still_silence},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("live", tests);
}
