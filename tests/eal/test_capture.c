/* SPDX-License-Identifier: BSD-3-Clause */
/* /kvroute/capture on one thread: what time its frames are of. */
#include "pipeline.h"

#include <time.h>

#include <rte_cycles.h>

#include "kvr_test.h"
#include "start/shared.h"
#include "telemetry/capture.h"

static uint64_t day_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

#define HOUR UINT64_C(3600000000000)

/* DPDK rounds the rate, and somebody may set the clock: control looks again and again. */
static void frames_are_of_the_time_of_day(void)
{
	pipeline_start(1);
	CU_ASSERT_EQUAL_FATAL(captures_start(rt), 0);
	shared_clock_set(rte_rdtsc(), day_ns() - HOUR);
	CU_ASSERT(shared_time(rte_rdtsc()) < day_ns() - HOUR / 2);
	pipeline_turn(); /* a tick of control */
	CU_ASSERT(shared_time(rte_rdtsc()) > day_ns() - HOUR / 2);
	CU_ASSERT(shared_time(rte_rdtsc()) < day_ns() + HOUR / 2);
	captures_stop(rt);
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {{"time", frames_are_of_the_time_of_day}, CU_TEST_INFO_NULL};

	return kvr_test_run("capture", tests);
}
