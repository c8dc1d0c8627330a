/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SIM
#define KVR_SIM
#endif
#include "../../../lib/base/sim.c" /* as in a build with sites */

#include "kvr_test.h"

static enum kvr_sim_site last;
static bool answer;

static bool count_and_answer(void *arg, enum kvr_sim_site site)
{
	last = site;
	++*(int *)arg;
	return answer;
}

static void a_site_fails_when_the_hook_returns_true(void)
{
	int n = 0;

	CU_ASSERT_FALSE(KVR_SIM_FAULT(JOB)); /* no hook yet */
	kvr_sim_hook(count_and_answer, &n);
	CU_ASSERT_FALSE(KVR_SIM_FAULT(PAIR));
	answer = true;
	CU_ASSERT_TRUE(KVR_SIM_FAULT(MBUF));
	CU_ASSERT_EQUAL(last, KVR_SIM_MBUF);
	CU_ASSERT_EQUAL(n, 2);
	KVR_SIM_SOMETIMES(START_OVER); /* does not call the hook */
	CU_ASSERT_EQUAL(n, 2);
	kvr_sim_hook(NULL, NULL);
	CU_ASSERT_FALSE(KVR_SIM_FAULT(MBUF));
}

static void visits_and_failures_are_counted(void)
{
	static const struct {
		enum kvr_sim_site site;
		uint64_t reached, failed;
	} want[] = {{KVR_SIM_JOB, 1, 0},
		    {KVR_SIM_PAIR, 1, 0},
		    {KVR_SIM_MBUF, 2, 1},
		    {KVR_SIM_START_OVER, 1, 0},
		    {KVR_SIM_REASM_COPY, 0, 0}};
	uint64_t reached, failed;
	const char *text;
	bool fails;

	for (uint32_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		CU_ASSERT_PTR_NOT_NULL(
			kvr_sim_site_get(want[i].site, &text, &fails, &reached, &failed));
		CU_ASSERT_EQUAL(reached, want[i].reached);
		CU_ASSERT_EQUAL(failed, want[i].failed);
		CU_ASSERT_EQUAL(fails, want[i].site < KVR_SIM_REASM_COPY);
	}
	CU_ASSERT_PTR_NULL(kvr_sim_site_get(KVR_SIM_N, &text, &fails, &reached, &failed));
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_site_fails_when_the_hook_returns_true),
			       KVR_CASE(visits_and_failures_are_counted), CU_TEST_INFO_NULL};

	return kvr_test_run("sim", tests);
}
