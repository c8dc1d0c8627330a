/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_TEST_H
#define KVR_TEST_H

/**
 * @file
 * The main() of every CUnit program: run one suite from a table of cases, and exit with 1 when a
 * case fails (CUnit's own runner exits with 0).
 */

#include <CUnit/Basic.h>
#include <stdlib.h>

/** A case has the name of its function, so that output can be searched for in the code. */
#define KVR_CASE(fn)                                                                               \
	{                                                                                          \
#fn, fn                                                                            \
	}

/** Run one suite of tests ended by CU_TEST_INFO_NULL; returns the program's exit status. */
static inline int kvr_test_run(const char *suite, CU_TestInfo *tests)
{
	CU_SuiteInfo suites[] = {{suite, NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
	unsigned int bad;

	if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS)
		return 1;
	CU_basic_set_mode(CU_BRM_VERBOSE);
	if (CU_basic_run_tests() != CUE_SUCCESS)
		return 1;
	bad = CU_get_number_of_failures() + CU_get_number_of_tests_failed() +
	      CU_get_number_of_suites_failed();
	CU_cleanup_registry();
	return bad > 0;
}

#endif
