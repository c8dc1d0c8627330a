/* SPDX-License-Identifier: BSD-3-Clause */
#include "stats.h"

#include "kvr_families.h"
#include "kvr_test.h"

static void every_counter_is_in_one_family(void)
{
	const char *wrong = families_check(&gw_stats, gw_families);

	if (wrong != NULL)
		printf("%s\n", wrong);
	CU_ASSERT_PTR_NULL(wrong);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(every_counter_is_in_one_family), CU_TEST_INFO_NULL};

	return kvr_test_run("stats", tests);
}
