/* SPDX-License-Identifier: BSD-3-Clause */
/* The words against those of the wire, until the wire takes them from here. */
#include "kvr_frame.h"
#include "kvr_wire.h"
#include "kvr_words.h"

#include "kvr_test.h"
#include <string.h>

static void refusals_are_those_of_the_wire(void)
{
	for (unsigned int i = 0; i < KVR_E_MAX + 8; i++) {
		if (strcmp(kvr_words_why(i), kvr_code_name(i)) != 0)
			fprintf(stderr, "%u: %s, %s\n", i, kvr_words_why(i), kvr_code_name(i));
		CU_ASSERT_STRING_EQUAL(kvr_words_why(i), kvr_code_name(i));
		CU_ASSERT_EQUAL(kvr_words_retryable(i), kvr_code_retryable(i));
	}
	CU_ASSERT_EQUAL(KVR_WHY_NO_ENDPOINTS, (int)KVR_E_NO_ENDPOINTS);
}

static void numbers_are_those_of_the_wire(void)
{
	CU_ASSERT_EQUAL((int)KVR_WAY_BOOTSTRAP, (int)KVR_PATH_BOOTSTRAP);
	CU_ASSERT_EQUAL((int)KVR_WAY_SYNC, (int)KVR_PATH_SYNC);
	CU_ASSERT_EQUAL((int)KVR_WAY_BYPASSED, (int)KVR_PATH_BYPASSED);
	CU_ASSERT_EQUAL((int)KVR_ROLE_IS_PREFILL, (int)KVR_ROLE_PREFILL);
	CU_ASSERT_EQUAL((int)KVR_ROLE_IS_DECODE, (int)KVR_ROLE_DECODE);
}

static void texts_are_found_again(void)
{
	for (int i = 0; i < KVR_ROLES; i++)
		CU_ASSERT_EQUAL(kvr_words_role_find(kvr_words_role((unsigned int)i)), i);
	for (int i = 0; i < KVR_TIERS; i++)
		CU_ASSERT_EQUAL(kvr_words_tier_find(kvr_words_tier((unsigned int)i)), i);
	CU_ASSERT_EQUAL(kvr_words_role_find("nobody"), -1);
	CU_ASSERT_STRING_EQUAL(kvr_words_leg(KVR_LEG_IS_PREFILL), "prefill");
	CU_ASSERT_STRING_EQUAL(kvr_words_leg(2), "?");
	CU_ASSERT_STRING_EQUAL(kvr_words_way(9), "?");
}

int main(void)
{
	CU_TestInfo tests[] = {{"refusals", refusals_are_those_of_the_wire},
			       {"numbers", numbers_are_those_of_the_wire},
			       {"texts", texts_are_found_again},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("words", tests);
}
