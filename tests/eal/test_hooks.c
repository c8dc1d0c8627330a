/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hooks in libraries of DPDK: app/memif and rte_pcapng_copy(). This file is built twice. With
 * HIDDEN its symbols have hidden visibility, so that no library can call them.
 */
#include <errno.h>
#include <string.h>

#include "control/shared.h"
#include "kvr_hook.h"
#include "kvr_test.h"
#include "memif_guard.h"

#ifdef HIDDEN
#define RESULT -ENOTSUP
#else
#define RESULT 0
#endif

static char err[400];

static void memif_guard_is_checked(void)
{
	strcpy(err, "none");
	CU_ASSERT_EQUAL(memif_guard_check(err, sizeof(err)), RESULT);
	CU_ASSERT_EQUAL(strstr(err, "net_memif does not call accept() of this program") != NULL,
			RESULT != 0);
	CU_ASSERT_EQUAL(strstr(err, "build with default visibility") != NULL, RESULT != 0);
	CU_ASSERT_PTR_NULL(strchr(err, '\n'));
}

static void capture_clock_is_checked(void)
{
	strcpy(err, "none");
	CU_ASSERT_EQUAL(shared_clock_check(err, sizeof(err)), RESULT);
	CU_ASSERT_EQUAL(strstr(err, "does not call rte_pcapng_copy() of this program") != NULL,
			RESULT != 0);
	CU_ASSERT_EQUAL(strstr(err, "build with default visibility") != NULL, RESULT != 0);
	CU_ASSERT_PTR_NULL(strchr(err, '\n'));
}

static void a_library_function_is_no_hook(void)
{
	CU_ASSERT_TRUE(kvr_hook_in_effect("strstr", dlsym(RTLD_DEFAULT, "strstr")));
	CU_ASSERT_FALSE(kvr_hook_in_effect("strstr", memif_guard_check));
	CU_ASSERT_FALSE(kvr_hook_in_effect("no_such_function", memif_guard_check));
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(memif_guard_is_checked), KVR_CASE(capture_clock_is_checked),
			       KVR_CASE(a_library_function_is_no_hook), CU_TEST_INFO_NULL};

	return kvr_test_run("hooks", tests);
}
