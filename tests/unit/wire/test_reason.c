/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_reason.h"
#include "kvr_test.h"

#include <CUnit/Basic.h>
#include <string.h>

#include "protocol.h"

static void a_text_is_written_piece_by_piece(void)
{
	char buf[64];
	struct kvr_reason t = kvr_reason_init(buf, sizeof(buf));

	CU_ASSERT_STRING_EQUAL(buf, "");
	kvr_reason_say(&t, "pool a");
	kvr_reason_count(&t, ": ", 0);
	kvr_reason_count(&t, " of ", UINT64_MAX);
	CU_ASSERT_STRING_EQUAL(buf, "pool a: 0 of 18446744073709551615");
	CU_ASSERT_EQUAL(t.n, strlen(buf));
}

static void a_long_text_is_truncated(void)
{
	char buf[9] = "........";
	struct kvr_reason t = kvr_reason_init(buf, 8);

	kvr_reason_say(&t, "123456");
	kvr_reason_count(&t, "", 789);
	CU_ASSERT_STRING_EQUAL(buf, "1234567");
	CU_ASSERT_EQUAL(t.n, 7);
	CU_ASSERT_EQUAL(buf[8], '\0'); /* nobody has touched what lies behind */
	t = kvr_reason_init(buf, 1);
	kvr_reason_say(&t, "x");
	CU_ASSERT_STRING_EQUAL(buf, "");
}

static void only_one_printable_line_is_quoted(void)
{
	char buf[64];
	struct kvr_reason t = kvr_reason_init(buf, sizeof(buf));

	kvr_reason_quote(&t, "no \xe2\x82\xac, a\ttab\r\nand more", 21);
	CU_ASSERT_STRING_EQUAL(buf, "no ???, a?tab");
	t = kvr_reason_init(buf, sizeof(buf));
	kvr_reason_quote(&t, "one\0two", 7);
	CU_ASSERT_STRING_EQUAL(buf, "one");
	kvr_reason_quote(&t, NULL, 0);
	CU_ASSERT_STRING_EQUAL(buf, "one");
}

/* Every code has a text of its own, and unknown numbers share one. */
static void every_code_has_a_text(void)
{
	for (unsigned int i = 0; i < KVR_E_MAX; i++) {
		const char *w = kvr_code_text(i);

		CU_ASSERT(strlen(w) > 3 && strlen(w) <= KVR_REASON_MAX);
		if (strcmp(kvr_code_name(i), "?") == 0) {
			CU_ASSERT_STRING_EQUAL(w, kvr_code_text(KVR_E_MAX));
			continue;
		}
		CU_ASSERT_STRING_NOT_EQUAL(w, kvr_code_text(KVR_E_MAX));
		for (unsigned int k = 0; k < i; k++)
			if (strcmp(kvr_code_name(k), "?") != 0)
				CU_ASSERT_STRING_NOT_EQUAL(w, kvr_code_text(k));
	}
	CU_ASSERT_STRING_EQUAL(kvr_code_text(UINT32_MAX), kvr_code_text(KVR_E_MAX));
}

static void a_code_has_its_name(void)
{
	CU_ASSERT_STRING_EQUAL(kvr_code_name(KVR_OK), "Ok");
	CU_ASSERT_STRING_EQUAL(kvr_code_name(KVR_E_ALL_OVERLOADED), "AllEligibleWorkersOverloaded");
	CU_ASSERT(kvr_code_retryable(KVR_E_ALL_OVERLOADED));
	CU_ASSERT_FALSE(kvr_code_retryable(KVR_E_NO_ENDPOINTS));
	CU_ASSERT_STRING_EQUAL(kvr_code_name(KVR_E_SOURCE_LIMIT + 1), "?"); /* an unused number */
	CU_ASSERT_STRING_EQUAL(kvr_code_name(KVR_E_MAX), "?");
	CU_ASSERT_STRING_EQUAL(kvr_code_name(UINT32_MAX), "?");
	CU_ASSERT_FALSE(kvr_code_retryable(KVR_E_SOURCE_LIMIT + 1));
	CU_ASSERT_FALSE(kvr_code_retryable(UINT32_MAX));
}

static void no_name_of_a_code_is_used_twice(void)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < KVR_E_MAX; i++) {
		n += strcmp(kvr_code_name(i), "?") != 0;
		for (unsigned int k = 0; k < i; k++)
			CU_ASSERT(strcmp(kvr_code_name(i), "?") == 0 ||
				  strcmp(kvr_code_name(i), kvr_code_name(k)) != 0);
	}
#define ONE(name, number, ...) +1
	CU_ASSERT_EQUAL(n, 1 KVR_CODES(ONE));
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(a_text_is_written_piece_by_piece),
		KVR_CASE(a_long_text_is_truncated),
		KVR_CASE(only_one_printable_line_is_quoted),
		KVR_CASE(every_code_has_a_text),
		KVR_CASE(a_code_has_its_name),
		KVR_CASE(no_name_of_a_code_is_used_twice),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("reason", tests);
}
