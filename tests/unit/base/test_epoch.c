/* SPDX-License-Identifier: BSD-3-Clause */
/* Epochs of incarnations: from the clock, and above a rejected one. */
#include "kvr_epoch.h"
#include "kvr_test.h"

static void epochs_from_the_clock_do_not_fall(void)
{
	const uint32_t a = kvr_epoch_of_clock(), b = kvr_epoch_of_clock();

	CU_ASSERT_NOT_EQUAL(a, 0);
	CU_ASSERT_TRUE((int32_t)(b - a) >= 0);
}

static void the_next_epoch_is_above_both(void)
{
	CU_ASSERT_EQUAL(kvr_epoch_above(5, 9), 10);
	CU_ASSERT_EQUAL(kvr_epoch_above(9, 5), 10);
	CU_ASSERT_EQUAL(kvr_epoch_above(9, 0), 0);
	CU_ASSERT_EQUAL(kvr_epoch_above(9, UINT32_MAX - 1), UINT32_MAX);
	CU_ASSERT_EQUAL(kvr_epoch_above(9, UINT32_MAX), 0);
	CU_ASSERT_EQUAL(kvr_epoch_above(UINT32_MAX, 9), 0);
	CU_ASSERT_EQUAL(kvr_epoch_above(9, UINT64_MAX), 0);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(epochs_from_the_clock_do_not_fall),
		KVR_CASE(the_next_epoch_is_above_both),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("epoch", tests);
}
