/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The clock that measures silence: stalls of the router itself do not count. All times are given.
 */
#include "kvr_worker.h"

#include "kvr_test.h"

#define MS   UINT64_C(1000000)
#define STEP (20 * MS) /* maximum of one step */

static struct kvr_live_clock start_clock_at(uint64_t ns)
{
	return (struct kvr_live_clock){.now_ns = ns, .real_ns = ns, .most_ns = STEP};
}

static void short_rounds_count_in_full(void)
{
	struct kvr_live_clock clock = start_clock_at(5 * MS);

	for (uint64_t t = 6; t <= 1005; t++)
		CU_ASSERT_EQUAL(kvr_live_clock_advance(&clock, t * MS, true), t * MS);
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&clock, 1005 * MS, true),
			1005 * MS); /* twice at the same time */
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&clock, 1025 * MS, true),
			1025 * MS); /* exactly one step */
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&clock, 1045 * MS + 1, true), 1045 * MS);
}

/* A SIGSTOP or a pause of the virtual machine: one step each, however long and however often. */
static void a_stall_counts_as_one_step(void)
{
	static const uint64_t stall_ms[] = {21, 350, 1300, 2500, 3600000};
	struct kvr_live_clock clock = start_clock_at(0);
	uint64_t real = 0, live = 0;

	for (uint32_t i = 0; i < 5; i++) {
		real += stall_ms[i] * MS;
		live += STEP;
		CU_ASSERT_EQUAL(kvr_live_clock_advance(&clock, real, true), live);
		real += MS; /* then the clock continues normally */
		live += MS;
		CU_ASSERT_EQUAL(kvr_live_clock_advance(&clock, real, true), live);
	}
}

/* Control runs, but arriving frames are not read: the clock stops, and the missed time is lost. */
static void time_without_reading_does_not_count(void)
{
	struct kvr_live_clock clock = start_clock_at(100 * MS);

	for (uint64_t t = 101; t < 2600; t++)
		CU_ASSERT_EQUAL(kvr_live_clock_advance(&clock, t * MS, false), 100 * MS);
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&clock, 2600 * MS, true), 100 * MS + STEP);
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&clock, 2601 * MS, true), 101 * MS + STEP);
	/* One or two rounds without reading are no stall: their time counts with the next round. */
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&clock, 2602 * MS, false), 101 * MS + STEP);
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&clock, 2603 * MS, false), 101 * MS + STEP);
	CU_ASSERT_EQUAL(kvr_live_clock_advance(&clock, 2604 * MS, true), 104 * MS + STEP);
}

/* Silence counts in full while frames are read, whatever stalls interrupt it. */
static void silence_between_stalls_counts(void)
{
	const uint64_t dead = 1000 * MS;
	struct kvr_live_clock clock = start_clock_at(0);
	uint64_t real = 0, rounds = 0;

	while (clock.now_ns < dead) {
		real += ++rounds % 100 == 0 ? 2500 * MS : MS;
		kvr_live_clock_advance(&clock, real, true);
	}
	/* Of every 100 rounds 99 count 1 ms, the stall one step. */
	CU_ASSERT_EQUAL(rounds, 848);
	CU_ASSERT_EQUAL(clock.now_ns, dead);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(short_rounds_count_in_full),
			       KVR_CASE(a_stall_counts_as_one_step),
			       KVR_CASE(time_without_reading_does_not_count),
			       KVR_CASE(silence_between_stalls_counts), CU_TEST_INFO_NULL};

	return kvr_test_run("live_clock", tests);
}
