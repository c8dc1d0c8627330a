/* SPDX-License-Identifier: BSD-3-Clause */
#include "table.h"

#include <string.h>

#include "kvr_test.h"

/* @return the text of JSON with ' in place of ". */
static const char *print_json(const char *text, const char *columns)
{
	static char out[8192];
	char buf[4096];
	json_t *v;
	FILE *f;

	snprintf(buf, sizeof(buf), "%s", text);
	for (char *p = buf; *p != '\0'; p++)
		if (*p == '\'')
			*p = '"';
	v = json_loads(buf, JSON_DECODE_ANY, NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	memset(out, 0, sizeof(out));
	f = fmemopen(out, sizeof(out), "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	table_print(v, columns, f);
	fclose(f);
	json_decref(v);
	return out;
}

static void objects_of_values_are_rows(void)
{
	CU_ASSERT_STRING_EQUAL(
		print_json("{'1': {'state': 'serving', 'n': 7}, '20': {'n': 100}}", NULL),
		"    state      n\n"
		"1   serving    7\n"
		"20           100\n");
}

static void columns_are_chosen(void)
{
	CU_ASSERT_STRING_EQUAL(print_json("{'1': {'a': 1, 'b': 2, 'c': 3}}", "c a"), "   c  a\n"
										     "1  3  1\n");
}

static void values_come_before_sections(void)
{
	CU_ASSERT_STRING_EQUAL(
		print_json("{'part': {'x': 1}, 'name': 'm', 'on': true, 'list': [1, 2]}", NULL),
		"name  m\n"
		"on    yes\n"
		"list  1 2\n"
		"part\n"
		"  x  1\n");
}

static void parts_of_a_text_are_joined(void)
{
	CU_ASSERT_STRING_EQUAL(print_json("{'p0': ['10.0.0.0/8 ', 'fd00::/8']}", NULL),
			       "p0  10.0.0.0/8 fd00::/8\n");
	CU_ASSERT_STRING_EQUAL(
		print_json("{'d': ['a=1,', 'b=/x/', 'y'], 'w': ['one', '', 'two']}", NULL),
		"d  a=1,b=/x/y\n"
		"w  one  two\n");
}

static void empty_values_are_printed(void)
{
	CU_ASSERT_STRING_EQUAL(print_json("{}", NULL), "(none)\n");
	CU_ASSERT_STRING_EQUAL(print_json("[]", NULL), "(none)\n");
	CU_ASSERT_STRING_EQUAL(print_json("null", NULL), "-\n");
}

/* Two rows of fifty columns become fifty rows of two. */
static void wide_tables_are_transposed(void)
{
	char text[4000] = "{'first': {";
	const char *out;

	for (int row = 0; row < 2; row++) {
		for (int i = 0; i < 50; i++) {
			char one[40];

			snprintf(one, sizeof(one), "%s'column%02d': %d", i != 0 ? ", " : "", i, i);
			strcat(text, one);
		}
		strcat(text, row == 0 ? "}, 'second': {" : "}}");
	}
	out = print_json(text, NULL);
	CU_ASSERT_PTR_NOT_NULL(strstr(out, "          first  second\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(out, "column49     49      49\n"));
}

static void numbers_are_short(void)
{
	char buf[16];

	CU_ASSERT_STRING_EQUAL(table_format_short(0, buf, sizeof(buf)), "0");
	CU_ASSERT_STRING_EQUAL(table_format_short(999, buf, sizeof(buf)), "999");
	CU_ASSERT_STRING_EQUAL(table_format_short(1234, buf, sizeof(buf)), "1.2k");
	CU_ASSERT_STRING_EQUAL(table_format_short(123456, buf, sizeof(buf)), "123k");
	CU_ASSERT_STRING_EQUAL(table_format_short(999999, buf, sizeof(buf)), "1.0M");
	CU_ASSERT_STRING_EQUAL(table_format_short(2.5e9, buf, sizeof(buf)), "2.5G");
}

static void bars_stay_in_their_width(void)
{
	char buf[16];

	CU_ASSERT_STRING_EQUAL(table_format_bar(0.5, 4, buf, sizeof(buf)), "##..");
	CU_ASSERT_STRING_EQUAL(table_format_bar(7, 4, buf, sizeof(buf)), "####");
	CU_ASSERT_STRING_EQUAL(table_format_bar(-1, 4, buf, sizeof(buf)), "....");
	CU_ASSERT_STRING_EQUAL(table_format_bar(0.0 / 0.0, 4, buf, sizeof(buf)), "....");
	CU_ASSERT_STRING_EQUAL(table_format_bar(1, 400, buf, 4), "###");
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(objects_of_values_are_rows),
		KVR_CASE(columns_are_chosen),
		KVR_CASE(values_come_before_sections),
		KVR_CASE(empty_values_are_printed),
		KVR_CASE(parts_of_a_text_are_joined),
		KVR_CASE(wide_tables_are_transposed),
		KVR_CASE(numbers_are_short),
		KVR_CASE(bars_stay_in_their_width),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("table", tests);
}
