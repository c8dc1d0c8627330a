/* SPDX-License-Identifier: BSD-3-Clause */
#include "trace.h"

#include <string.h>

#include "kvr_test.h"

static char out[AGENT_TRACEPARENT];

static void the_parent_is_replaced(void)
{
	static const char value[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

	CU_ASSERT(agent_trace_child(value, strlen(value), 0x1f, out));
	CU_ASSERT_STRING_EQUAL(out, "00-0af7651916cd43dd8448eb211c80319c-000000000000001f-01");
}

static void other_values_are_errors(void)
{
	static const char *const bad[] = {
		"",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319cxb7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
	};

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT(!agent_trace_child(bad[i], strlen(bad[i]), 1, out));
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(the_parent_is_replaced),
		KVR_CASE(other_values_are_errors),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("trace", tests);
}
