/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_reason.h"
#include "kvr_test.h"

#include <CUnit/Basic.h>
#include <string.h>

#include "kvr_types.h"

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

static void what_does_not_fit_is_cut(void)
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

static void of_others_only_one_printable_line_is_taken(void)
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

/* Every code of the protocol says something of its own, and no number says nothing. */
static void every_code_has_words(void)
{
	for (unsigned int i = 0; i < KVR_E_MAX; i++) {
		const char *w = kvr_reason_words(i);

		CU_ASSERT(strlen(w) > 3 && strlen(w) <= KVR_REASON_MAX);
		if (strcmp(kvr_code_name(i), "?") == 0) {
			CU_ASSERT_STRING_EQUAL(w, kvr_reason_words(KVR_E_MAX));
			continue;
		}
		CU_ASSERT_STRING_NOT_EQUAL(w, kvr_reason_words(KVR_E_MAX));
		for (unsigned int k = 0; k < i; k++)
			if (strcmp(kvr_code_name(k), "?") != 0)
				CU_ASSERT_STRING_NOT_EQUAL(w, kvr_reason_words(k));
	}
	CU_ASSERT_STRING_EQUAL(kvr_reason_words(UINT32_MAX), kvr_reason_words(KVR_E_MAX));
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"pieces", a_text_is_written_piece_by_piece},
		{"cut", what_does_not_fit_is_cut},
		{"quote", of_others_only_one_printable_line_is_taken},
		{"words", every_code_has_words},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("reason", tests);
}
