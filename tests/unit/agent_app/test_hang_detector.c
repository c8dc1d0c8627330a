/* SPDX-License-Identifier: BSD-3-Clause */
#include "hang_detector.h"

#include "kvr_test.h"

#define MS   UINT64_C(1000)
#define MOST (10000 * MS)

/* Run turns of 200 ms until the engine hangs. @return the time, or 0 after a minute. */
static uint64_t hangs_at(struct agent_hang *q, uint64_t now, uint64_t answers_every)
{
	for (uint64_t t = now, n = 1; t < now + 60000 * MS; t += 200 * MS, n++) {
		agent_hang_probed(q, t); /* /metrics */
		if (answers_every != 0 && n % answers_every == 0)
			agent_hang_received(q, t);
		if (agent_hang_detect(q, t, MOST))
			return t;
	}
	return 0;
}

static void an_engine_without_data_is_detected(void)
{
	struct agent_hang q = {0};

	CU_ASSERT_EQUAL(hangs_at(&q, 500 * MS, 0), 500 * MS + MOST);
}

static void any_data_reset_the_limit(void)
{
	struct agent_hang q = {0};

	CU_ASSERT_EQUAL(hangs_at(&q, MS, 1), 0);
	CU_ASSERT_EQUAL(hangs_at(&q, 100000 * MS, 49), 0); /* every 9.8 s */
	CU_ASSERT_NOT_EQUAL(hangs_at(&q, 200000 * MS, 60), 0);
}

static void an_idle_engine_is_not_probed(void)
{
	struct agent_hang q = {0};

	for (uint64_t t = MS; t < 100000 * MS; t += 200 * MS)
		CU_ASSERT_FALSE(agent_hang_detect(&q, t, MOST));
}

/* A long request does not mean that the engine hangs: it is probed, and answers. */
static void a_long_request_does_not_count(void)
{
	struct agent_hang q = {0};
	uint32_t looks = 0;

	agent_hang_received(&q, 1000 * MS);
	for (uint64_t t = 1000 * MS; t < 61000 * MS; t += 200 * MS) {
		CU_ASSERT_FALSE(agent_hang_detect(&q, t, MOST));
		if (!agent_hang_needs_probe(&q, t, MOST / 2))
			continue;
		looks++;
		agent_hang_probed(&q, t);
		CU_ASSERT_FALSE(agent_hang_needs_probe(&q, t, MOST / 2)); /* one probe at a time */
		agent_hang_received(&q, t);
	}
	CU_ASSERT_EQUAL(looks, 11);
}

/* A pause of the agent does not count against the engine. */
static void a_pause_of_the_agent_does_not_count(void)
{
	struct agent_hang q = {0};

	CU_ASSERT_FALSE(agent_hang_detect(&q, 1000 * MS, MOST));
	agent_hang_probed(&q, 1000 * MS);
	CU_ASSERT_FALSE(agent_hang_detect(&q, 1200 * MS, MOST));
	CU_ASSERT_FALSE(agent_hang_detect(&q, 90000 * MS, MOST));
	CU_ASSERT_EQUAL(hangs_at(&q, 90200 * MS, 0), 90000 * MS - 200 * MS + MOST);
	q = (struct agent_hang){0};
	agent_hang_probed(&q, 90000 * MS); /* the first probe is late */
	CU_ASSERT_FALSE(agent_hang_detect(&q, 90100 * MS, MOST));
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(an_engine_without_data_is_detected),
			       KVR_CASE(any_data_reset_the_limit),
			       KVR_CASE(an_idle_engine_is_not_probed),
			       KVR_CASE(a_long_request_does_not_count),
			       KVR_CASE(a_pause_of_the_agent_does_not_count),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("agent quiet", tests);
}
