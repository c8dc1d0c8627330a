/* SPDX-License-Identifier: BSD-3-Clause */
#include "quiet.h"

#include "kvr_test.h"

#define MS   UINT64_C(1000)
#define MOST (10000 * MS)

/* Turns of 200 ms, until it is quiet. @return when, or 0 after a minute. */
static uint64_t quiet_at(struct agent_quiet *q, uint64_t now, uint64_t answers_every)
{
	for (uint64_t t = now, n = 1; t < now + 60000 * MS; t += 200 * MS, n++) {
		agent_quiet_asked(q, t); /* /metrics */
		if (answers_every != 0 && n % answers_every == 0)
			agent_quiet_heard(q, t);
		if (agent_quiet_turn(q, t, MOST))
			return t;
	}
	return 0;
}

static void who_brings_nothing_is_found(void)
{
	struct agent_quiet q = {0};

	CU_ASSERT_EQUAL(quiet_at(&q, 500 * MS, 0), 500 * MS + MOST);
}

static void who_brings_anything_is_not(void)
{
	struct agent_quiet q = {0};

	CU_ASSERT_EQUAL(quiet_at(&q, MS, 1), 0);
	CU_ASSERT_EQUAL(quiet_at(&q, 100000 * MS, 49), 0); /* every 9.8 s */
	CU_ASSERT_NOT_EQUAL(quiet_at(&q, 200000 * MS, 60), 0);
}

static void nobody_is_asked(void)
{
	struct agent_quiet q = {0};

	for (uint64_t t = MS; t < 100000 * MS; t += 200 * MS)
		CU_ASSERT_FALSE(agent_quiet_turn(&q, t, MOST));
}

/* A request that takes its time says nothing of the engine: it is looked at, and answers. */
static void a_request_takes_long(void)
{
	struct agent_quiet q = {0};
	uint32_t looks = 0;

	agent_quiet_heard(&q, 1000 * MS);
	for (uint64_t t = 1000 * MS; t < 61000 * MS; t += 200 * MS) {
		CU_ASSERT_FALSE(agent_quiet_turn(&q, t, MOST));
		if (!agent_quiet_look(&q, t, MOST / 2))
			continue;
		looks++;
		agent_quiet_asked(&q, t);
		CU_ASSERT_FALSE(agent_quiet_look(&q, t, MOST / 2)); /* one at a time */
		agent_quiet_heard(&q, t);
	}
	CU_ASSERT_EQUAL(looks, 11);
}

/* A pause of ours is no silence of the engine's. */
static void a_pause_of_our_own(void)
{
	struct agent_quiet q = {0};

	CU_ASSERT_FALSE(agent_quiet_turn(&q, 1000 * MS, MOST));
	agent_quiet_asked(&q, 1000 * MS);
	CU_ASSERT_FALSE(agent_quiet_turn(&q, 1200 * MS, MOST));
	CU_ASSERT_FALSE(agent_quiet_turn(&q, 90000 * MS, MOST));
	CU_ASSERT_EQUAL(quiet_at(&q, 90200 * MS, 0), 90000 * MS - 200 * MS + MOST);
	q = (struct agent_quiet){0};
	agent_quiet_asked(&q, 90000 * MS); /* the first look comes late */
	CU_ASSERT_FALSE(agent_quiet_turn(&q, 90100 * MS, MOST));
}

int main(void)
{
	CU_TestInfo tests[] = {{"nothing", who_brings_nothing_is_found},
			       {"anything", who_brings_anything_is_not},
			       {"not asked", nobody_is_asked},
			       {"request", a_request_takes_long},
			       {"pause", a_pause_of_our_own},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("agent quiet", tests);
}
