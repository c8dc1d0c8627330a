/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_json.h"

#include <errno.h>
#include <string.h>

#include "kvr_test.h"

/* Edit `text`, compare, and try every size that is too small. */
static void expect_edited(const char *text, const struct kvr_json_edit *edits, unsigned int n,
			  const char *want)
{
	struct kvr_json_value v;
	char buf[512];
	int64_t len;

	CU_ASSERT_EQUAL_FATAL(kvr_json_parse(text, strlen(text), &v, NULL), 0);
	len = kvr_json_edit(&v, edits, n, buf, sizeof(buf));
	CU_ASSERT_EQUAL(len, (int64_t)strlen(want));
	CU_ASSERT(len > 0 && memcmp(buf, want, (size_t)len) == 0);
	if (len <= 0 || memcmp(buf, want, (size_t)len) != 0)
		fprintf(stderr, "\n%.*s\n%s\n", (int)len, buf, want);
	CU_ASSERT(kvr_json_edit_bound(&v, edits, n) >= (size_t)len);
	for (int64_t size = 0; size < len; size++)
		CU_ASSERT_EQUAL(kvr_json_edit(&v, edits, n, buf, (size_t)size), -ENOSPC);
	CU_ASSERT_EQUAL(kvr_json_parse(want, strlen(want), &v, NULL), 0);
}

#define SET(n, v)                                                                                  \
	{                                                                                          \
		n, v, sizeof(v) - 1                                                                \
	}
#define DROP(n)                                                                                    \
	{                                                                                          \
		n, NULL, 0                                                                         \
	}

static void a_member_is_replaced_in_its_place(void)
{
	static const struct kvr_json_edit one[] = {SET("max_tokens", "1")};

	expect_edited("{ \"max_tokens\" : 500 ,\n \"x\":\"\\u00e9\" }", one, 1,
		      "{ \"max_tokens\" : 1 ,\n \"x\":\"\\u00e9\" }");
	expect_edited("{\"a\":[{\"max_tokens\":2}],\"max_tokens\":{\"y\":[]}}", one, 1,
		      "{\"a\":[{\"max_tokens\":2}],\"max_tokens\":1}");
	expect_edited("{\"max_token\\u0073\":5}", one, 1, "{\"max_token\\u0073\":1}");
}

static void a_missing_member_is_added_after_the_last(void)
{
	static const struct kvr_json_edit two[] = {SET("a", "{\"b\":2}"), SET("c", "null")};

	expect_edited("{}", two, 2, "{\"a\":{\"b\":2},\"c\":null}");
	expect_edited("{ }", two, 2, "{\"a\":{\"b\":2},\"c\":null }");
	expect_edited("{\"x\":1\n}", two, 1, "{\"x\":1,\"a\":{\"b\":2}\n}");
	expect_edited("{\"c\":1,\"x\":1}", two, 2, "{\"c\":null,\"x\":1,\"a\":{\"b\":2}}");
}

static void a_deleted_member_takes_its_comma(void)
{
	static const struct kvr_json_edit a[] = {DROP("a")};

	expect_edited("{\"a\":1}", a, 1, "{}");
	expect_edited("{ \"a\":1 }", a, 1, "{ }");
	expect_edited("{\"a\":1,\"b\":2}", a, 1, "{\"b\":2}");
	expect_edited("{\"a\":1 , \"b\":2}", a, 1, "{ \"b\":2}");
	expect_edited("{\"b\":2,\"a\":1}", a, 1, "{\"b\":2}");
	expect_edited("{\"b\":2 , \"a\":1 , \"c\":3 }", a, 1, "{\"b\":2 , \"c\":3 }");
	expect_edited("{\"b\":2}", a, 1, "{\"b\":2}");
	expect_edited("{\"a\":1,\"a\":2,\"b\":3,\"a\":4}", a, 1, "{\"b\":3}");
}

static void copies_of_a_name_become_one(void)
{
	static const struct kvr_json_edit a[] = {SET("a", "9")};
	static const struct kvr_json_edit both[] = {SET("a", "9"), DROP("b")};

	expect_edited("{\"a\":1,\"b\":2,\"a\":3}", a, 1, "{\"b\":2,\"a\":9}");
	expect_edited("{\"a\":1,\"b\":2,\"\\u0061\":3,\"c\":4}", both, 2,
		      "{\"\\u0061\":9,\"c\":4}");
}

static void no_edit_is_a_copy(void)
{
	expect_edited(" {\"a\" :1}", NULL, 0, "{\"a\" :1}");
}

static void only_objects_are_edited(void)
{
	struct kvr_json_value v;
	char buf[8];

	CU_ASSERT_EQUAL(kvr_json_parse("[1]", 3, &v, NULL), 0);
	CU_ASSERT_EQUAL(kvr_json_edit(&v, NULL, 0, buf, sizeof(buf)), -EINVAL);
	CU_ASSERT_EQUAL(kvr_json_parse("{}", 2, &v, NULL), 0);
	CU_ASSERT_EQUAL(kvr_json_edit(&v, NULL, KVR_JSON_MAX_NAMES + 1, buf, sizeof(buf)), -EINVAL);
}

static void strings_are_quoted(void)
{
	static const char text[] = "a\"b\\c\n\x01\xc3\xa9";
	static const char want[] = "\"a\\\"b\\\\c\\u000a\\u0001\xc3\xa9\"";
	char buf[64], back[64];
	struct kvr_json_value v;
	int64_t n = kvr_json_quote(text, sizeof(text) - 1, buf, sizeof(buf));

	CU_ASSERT_EQUAL(n, (int64_t)sizeof(want) - 1);
	CU_ASSERT_STRING_EQUAL(buf, want);
	CU_ASSERT_EQUAL(kvr_json_parse(buf, (size_t)n, &v, NULL), 0);
	CU_ASSERT_EQUAL(kvr_json_string(&v, back, sizeof(back)), (int64_t)sizeof(text) - 1);
	CU_ASSERT_STRING_EQUAL(back, text);
	CU_ASSERT_EQUAL(kvr_json_quote(text, sizeof(text) - 1, buf, (size_t)n), -ENOSPC);
	CU_ASSERT_EQUAL(kvr_json_quote("\xff", 1, buf, sizeof(buf)), -EILSEQ);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(a_member_is_replaced_in_its_place),
		KVR_CASE(a_missing_member_is_added_after_the_last),
		KVR_CASE(a_deleted_member_takes_its_comma),
		KVR_CASE(copies_of_a_name_become_one),
		KVR_CASE(no_edit_is_a_copy),
		KVR_CASE(only_objects_are_edited),
		KVR_CASE(strings_are_quoted),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("json_edit", tests);
}
