/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_engine_paths.h"

#include <string.h>

#include "kvr_test.h"

static bool is_allowed(const char *list, const char *target)
{
	return kvr_engine_path_allowed(list, target, strlen(target));
}

static void a_path_is_compared_byte_for_byte(void)
{
	static const char list[] = "/v1/completions,/v1/chat/completions";
	static const char *const bad[] = {
		"/",
		"",
		"/v1",
		"/v1/completion",
		"/v1/completions/",
		"/v1/completions/../load_lora_adapter",
		"/v1/./completions",
		"//v1/completions",
		"/v1//completions",
		"/v1/chat/../completions",
		"/V1/completions",
		"/v1/completions%00",
		"/v1/completions%2f..%2fx",
		"/v1/%63ompletions",
		"/v1/completions;x",
		"/v1/completions ",
		"/v1/completions\r\nX: y",
		"http://e/v1/completions",
		"e:80/v1/completions",
		"*",
		"/sleep",
		"/sleep?/v1/completions",
		"/sleep#,/v1/completions",
		"/v1/completions,/v1/chat/completions",
		"?/v1/completions",
	};

	CU_ASSERT(is_allowed(list, "/v1/completions") && is_allowed(list, "/v1/chat/completions"));
	CU_ASSERT(is_allowed(list, "/v1/completions?a=/../b") &&
		  is_allowed(list, "/v1/completions#/../b"));
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (is_allowed(list, bad[i]))
			CU_FAIL(bad[i]);
	CU_ASSERT_FALSE(kvr_engine_path_allowed(list, "/v1/completions\0x", 17));
	CU_ASSERT_TRUE(kvr_engine_path_allowed(list, "/v1/completionsx", 15));
}

static void an_asterisk_allows_a_prefix(void)
{
	static const char *const bad[] = {
		"/v1",	      "/v2/x",	       "/v1/../sleep",	"/v1/x/../../sleep",
		"/v1/%2e%2e", "/v1/..",	       "/v1/.",		"/v1//sleep",
		"/v1/a\\b",   "/v1/a;b",       "/v1/..;/sleep", "/v1/a%2fb",
		"/v1/a b",    "/v1/\xc0\xaf.", "/v1/a\r\nb",	"/sleep?/v1/",
	};

	CU_ASSERT(is_allowed("/v1/*", "/v1/") && is_allowed("/v1/*", "/v1/a/b.c-d_e~f?x=%2e%2e"));
	CU_ASSERT(is_allowed("/x,/v1/c*", "/v1/completions") && is_allowed("/x,/v1/c*", "/x"));
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (is_allowed("/v1/*", bad[i]))
			CU_FAIL(bad[i]);
	CU_ASSERT_FALSE(kvr_engine_path_allowed("/v1/*", "/v1/a\0b", 7));
	CU_ASSERT(is_allowed("*", "/v1/../sleep") && is_allowed("/a,*", "/b%20"));
}

static void a_list_consists_of_paths(void)
{
	CU_ASSERT(kvr_engine_paths_valid("/a") && kvr_engine_paths_valid("/a,/b*,*") &&
		  kvr_engine_paths_valid("/"));
	CU_ASSERT_FALSE(kvr_engine_paths_valid("") || kvr_engine_paths_valid("a") ||
			kvr_engine_paths_valid("/a,") || kvr_engine_paths_valid(",/a") ||
			kvr_engine_paths_valid("/a,,/b") || kvr_engine_paths_valid("/a*b") ||
			kvr_engine_paths_valid("**") || kvr_engine_paths_valid("/a, /b") ||
			kvr_engine_paths_valid("/a ") || kvr_engine_paths_valid("/a?x") ||
			kvr_engine_paths_valid("/a?") || kvr_engine_paths_valid("/a#"));
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_path_is_compared_byte_for_byte),
			       KVR_CASE(an_asterisk_allows_a_prefix),
			       KVR_CASE(a_list_consists_of_paths), CU_TEST_INFO_NULL};

	return kvr_test_run("agent paths", tests);
}
