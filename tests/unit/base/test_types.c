/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_types.h"

#include "kvr_test.h"
#include <string.h>

static void an_unknown_number_has_no_name(void)
{
	CU_ASSERT_STRING_EQUAL(kvr_role_name(KVR_ROLES), "?");
	CU_ASSERT_STRING_EQUAL(kvr_leg_name(KVR_LEGS), "?");
	CU_ASSERT_STRING_EQUAL(kvr_way_name(KVR_WAYS), "?");
	CU_ASSERT_STRING_EQUAL(kvr_tier_name(KVR_TIERS), "?");
}

static void a_known_number_has_its_name(void)
{
	CU_ASSERT_STRING_EQUAL(kvr_leg_name(KVR_LEG_PREFILL), "prefill");
	CU_ASSERT_STRING_EQUAL(kvr_way_name(KVR_WAY_BYPASSED), "bypassed");
	CU_ASSERT_STRING_EQUAL(kvr_tier_name(KVR_TIER_HOST), "host_pinned");
}

static void names_are_found(void)
{
	for (int i = 0; i < KVR_ROLES; i++)
		CU_ASSERT_EQUAL(kvr_role_find(kvr_role_name((unsigned int)i)), i);
	for (int i = 0; i < KVR_TIERS; i++)
		CU_ASSERT_EQUAL(kvr_tier_find(kvr_tier_name((unsigned int)i)), i);
	CU_ASSERT_EQUAL(kvr_role_find("unknown"), -1);
	CU_ASSERT_PTR_NULL(kvr_role_names[KVR_ROLES]);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(an_unknown_number_has_no_name),
			       KVR_CASE(a_known_number_has_its_name), KVR_CASE(names_are_found),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("types", tests);
}
