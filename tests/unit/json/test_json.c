/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_test.h"

static int parse_text(const char *text)
{
	struct kvr_json_value v;

	return kvr_json_parse(text, strlen(text), &v, NULL);
}

static struct kvr_json_value parse_value(const char *text)
{
	struct kvr_json_value v;

	CU_ASSERT_EQUAL(kvr_json_parse(text, strlen(text), &v, NULL), 0);
	return v;
}

static void valid_json_is_accepted(void)
{
	static const char *const good[] = {
		"{}",
		"[]",
		" [ ] ",
		"0",
		"-0",
		"1.5e+10",
		"1E5",
		"\"\"",
		"true",
		"false",
		"null",
		"\r\n\t {\"a\" : [1, 2 , {\"b\":null}] , \"\" : \"\\u00e9\\n\"}\n",
		"[[],{},[{}],{\"a\":{}}]",
		"\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"",
		"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
		"123456789012345678901234567890123456789012345678",
		"\"a long string of plain text, longer than one vector, \xe2\x82\xac and more\"",
		"{\"a\":1,\"a\":2}",
		"\"\\ud800\"",
	};

	for (unsigned int i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		CU_ASSERT_EQUAL(parse_text(good[i]), 0);
}

static void invalid_json_is_rejected(void)
{
	static const char *const bad[] = {
		"",
		" ",
		"{",
		"}",
		"[",
		"]",
		"[1,]",
		"[,1]",
		"[1 2]",
		"{,}",
		"{\"a\"}",
		"{\"a\":}",
		"{\"a\":1,}",
		"{a:1}",
		"{\"a\" 1}",
		"{1:2}",
		"[1}",
		"{\"a\":1]",
		"01",
		"-",
		"+1",
		".5",
		"1.",
		"1e",
		"1e+",
		"0x1",
		"--1",
		"tru",
		"truE",
		"nul",
		"nulll",
		"\"",
		"\"\\\"",
		"\"\\x\"",
		"\"\\u12\"",
		"\"\\u12g4\"",
		"\"a\nb\"",
		"\"\t\"",
		"1 2",
		"{} {}",
		"[]]",
		"NaN",
		"Infinity",
		"'a'",
		"[1,,2]",
		"{\"a\"::1}",
		"\xef\xbb\xbf{}",
		"// c\n1",
	};

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_EQUAL(parse_text(bad[i]), -EBADMSG);
}

static void invalid_utf8_is_rejected(void)
{
	static const char *const bad[] = {
		"\"\x80\"",
		"\"\xc0\x80\"",
		"\"\xc1\xbf\"",
		"\"\xe0\x80\x80\"",
		"\"\xed\xa0\x80\"",
		"\"\xf0\x80\x80\x80\"",
		"\"\xf4\x90\x80\x80\"",
		"\"\xf5\x80\x80\x80\"",
		"\"\xe2\x82\"",
		"\"\xff\"",
		"{\"\xc3\":1}",
		"\"0123456789abcdef0123456789abcdef\xc3(\"",
	};

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_EQUAL(parse_text(bad[i]), -EILSEQ);
}

static void every_prefix_of_a_text_is_rejected(void)
{
	static const char text[] = "{\"a\":[1,-2.5e3,\"x\\u00e9\\n\",{\"b\":true}],\"c\":null}";
	struct kvr_json_value v;
	size_t at;

	for (size_t n = 0; n < sizeof(text) - 1; n++) {
		CU_ASSERT_EQUAL(kvr_json_parse(text, n, &v, &at), -EBADMSG);
		CU_ASSERT(at <= n && v.type == KVR_JSON_NONE);
	}
	CU_ASSERT_EQUAL(kvr_json_parse(text, sizeof(text) - 1, &v, &at), 0);
	CU_ASSERT_EQUAL(at, sizeof(text) - 1);
}

static void the_position_of_a_fault_is_reported(void)
{
	struct kvr_json_value v;
	size_t at = 0;

	CU_ASSERT_EQUAL(kvr_json_parse("{\"a\": x}", 8, &v, &at), -EBADMSG);
	CU_ASSERT_EQUAL(at, 6);
	CU_ASSERT_EQUAL(kvr_json_parse("1 x", 3, &v, &at), -EBADMSG);
	CU_ASSERT_EQUAL(at, 2);
}

/* n brackets and their ends. */
static int parse_nested(unsigned int n, char open, char shut)
{
	static char text[1 << 20];
	struct kvr_json_value v;

	memset(text, open, n);
	memset(text + n, shut, n);
	return kvr_json_parse(text, 2ull * n, &v, NULL);
}

static void depth_is_bounded(void)
{
	CU_ASSERT_EQUAL(parse_nested(KVR_JSON_MAX_DEPTH, '[', ']'), 0);
	CU_ASSERT_EQUAL(parse_nested(KVR_JSON_MAX_DEPTH + 1, '[', ']'), -E2BIG);
	CU_ASSERT_EQUAL(parse_nested(500000, '[', ']'), -E2BIG);
	CU_ASSERT_EQUAL(parse_nested(1, '{', '}'), 0);
	CU_ASSERT_EQUAL(parse_nested(KVR_JSON_MAX_DEPTH, '[', '}'), -EBADMSG);
}

static void members_are_found_in_one_pass(void)
{
	static const char *const names[] = {"stream", "model", "absent", "b\"c", "\xc3\xa9"};
	struct kvr_json_value out[5], v = parse_value("{ \"model\" : \"m\", \"x\":{\"stream\":1}, "
						      "\"stream\" :true,\"b\\\"c\":[1],"
						      "\"\\u00E9\":7 }");

	CU_ASSERT_EQUAL(kvr_json_members(&v, names, 5, out), 4);
	CU_ASSERT(out[0].type == KVR_JSON_BOOL && out[0].len == 4);
	CU_ASSERT(kvr_json_equals(&out[1], "m"));
	CU_ASSERT_EQUAL(out[2].type, KVR_JSON_NONE);
	CU_ASSERT(out[3].len == 3 && memcmp(out[3].p, "[1]", 3) == 0);
	CU_ASSERT_EQUAL(*out[4].p, '7');
	v = parse_value("[1]");
	CU_ASSERT_EQUAL(kvr_json_members(&v, names, 5, out), 0);
}

/* Short and long names, with and without escapes. */
static void names_are_compared_whole(void)
{
	static const char longest[] =
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcd";
	static const char *const forms[] = {"%s", "%.*s", "\\u0030%s"};
	char text[256], name[128];

	for (unsigned int extra = 0; extra < 4; extra++) {
		const char *const names[] = {name, "a"};
		struct kvr_json_value out[2], v;

		snprintf(name, sizeof(name), "%s%.*s", longest, (int)extra, "xyz");
		for (unsigned int form = 0; form < 3; form++) {
			char written[200];

			if (form == 1)
				snprintf(written, sizeof(written), forms[1], (int)strlen(name) - 1,
					 name);
			else
				snprintf(written, sizeof(written), forms[form], name + (form == 2));
			snprintf(text, sizeof(text),
				 "{\"%s\":1,\"a\\u0000\":2,\"\\ud800\":3,\"a%s\":4}", written,
				 name);
			v = parse_value(text);
			CU_ASSERT_EQUAL(kvr_json_members(&v, names, 2, out), form == 1 ? 0 : 1);
			CU_ASSERT_EQUAL(out[0].type, form == 1 ? KVR_JSON_NONE : KVR_JSON_NUMBER);
			CU_ASSERT_EQUAL(out[1].type, KVR_JSON_NONE);
		}
	}
}

static void the_last_of_equal_names_wins(void)
{
	static const char *const names[] = {"a"};
	struct kvr_json_value out, v = parse_value("{\"a\":1,\"b\":0,\"\\u0061\":2}");

	CU_ASSERT_EQUAL(kvr_json_members(&v, names, 1, &out), 1);
	CU_ASSERT_EQUAL(*out.p, '2');
	CU_ASSERT(kvr_json_get(&v, "a", &out) && *out.p == '2');
}

static void paths_lead_through_objects_and_arrays(void)
{
	struct kvr_json_value out,
		v = parse_value("{\"u\":{\"d\":{\"c\":42}},\"l\":[1,[2,3],{\"x\":4}]}");

	CU_ASSERT(kvr_json_get(&v, "u.d.c", &out) && out.len == 2 && *out.p == '4');
	CU_ASSERT(kvr_json_get(&v, "l.1.1", &out) && *out.p == '3');
	CU_ASSERT(kvr_json_get(&v, "l.2.x", &out) && *out.p == '4');
	CU_ASSERT(!kvr_json_get(&v, "l.3", &out));
	CU_ASSERT(!kvr_json_get(&v, "l.x", &out));
	CU_ASSERT(!kvr_json_get(&v, "u.d.c.e", &out) && out.type == KVR_JSON_NONE);
	CU_ASSERT(kvr_json_get(&v, "", &out) && out.type == KVR_JSON_OBJECT);
}

static void elements_come_in_order(void)
{
	struct kvr_json_value name, e,
		v = parse_value("[ 1 ,\"a,]\", [2,[3]] ,{\"k\":\"}\"}, null]");
	static const enum kvr_json_type types[] = {KVR_JSON_NUMBER, KVR_JSON_STRING, KVR_JSON_ARRAY,
						   KVR_JSON_OBJECT, KVR_JSON_NULL};
	struct kvr_json_iter it = kvr_json_begin(&v);

	for (unsigned int i = 0; i < 5; i++) {
		CU_ASSERT(kvr_json_next(&it, &name, &e));
		CU_ASSERT(e.type == types[i] && name.type == KVR_JSON_NONE);
	}
	CU_ASSERT(!kvr_json_next(&it, &name, &e));
	v = parse_value("[]");
	it = kvr_json_begin(&v);
	CU_ASSERT(!kvr_json_next(&it, &name, &e));
	v = parse_value("3");
	it = kvr_json_begin(&v);
	CU_ASSERT(!kvr_json_next(&it, &name, &e));
}

static void strings_are_unescaped(void)
{
	struct kvr_json_value v = parse_value("\"a\\n\\u00e9\\ud83d\\ude00\\u0000z\"");
	char buf[16];

	CU_ASSERT_EQUAL(kvr_json_string(&v, buf, sizeof(buf)), 10);
	CU_ASSERT(memcmp(buf, "a\n\xc3\xa9\xf0\x9f\x98\x80\0z", 11) == 0);
	CU_ASSERT_EQUAL(kvr_json_string(&v, buf, 11), 10);
	CU_ASSERT_EQUAL(kvr_json_string(&v, buf, 10), -ENOSPC);
	CU_ASSERT_EQUAL(kvr_json_string(&v, buf, 0), -ENOSPC);
	v = parse_value("\"\\ud83d x\"");
	CU_ASSERT_EQUAL(kvr_json_string(&v, buf, sizeof(buf)), -EILSEQ);
	v = parse_value("\"\\ude00\"");
	CU_ASSERT_EQUAL(kvr_json_string(&v, buf, sizeof(buf)), -EILSEQ);
	v = parse_value("\"\\ud83d\\u0041\"");
	CU_ASSERT_EQUAL(kvr_json_string(&v, buf, sizeof(buf)), -EILSEQ);
	CU_ASSERT(!kvr_json_equals(&v, "x"));
	v = (struct kvr_json_value){0}; /* not there */
	CU_ASSERT(!kvr_json_equals(&v, "x") && !kvr_json_equals(&v, ""));
	v = parse_value("7");
	CU_ASSERT_EQUAL(kvr_json_string(&v, buf, sizeof(buf)), -EINVAL);
}

static void numbers_fit_or_are_rejected(void)
{
	static const struct {
		const char *text;
		int u, i;
	} row[] = {
		{"0", 0, 0},
		{"18446744073709551615", 0, -ERANGE},
		{"18446744073709551616", -ERANGE, -ERANGE},
		{"99999999999999999999999999999999", -ERANGE, -ERANGE},
		{"9223372036854775807", 0, 0},
		{"-9223372036854775808", -ERANGE, 0},
		{"-9223372036854775809", -ERANGE, -ERANGE},
		{"-1", -ERANGE, 0},
		{"-0", 0, 0},
		{"1.0", -EINVAL, -EINVAL},
		{"1e3", -EINVAL, -EINVAL},
		{"true", -EINVAL, -EINVAL},
		{"\"1\"", -EINVAL, -EINVAL},
	};

	for (unsigned int k = 0; k < sizeof(row) / sizeof(row[0]); k++) {
		struct kvr_json_value v = parse_value(row[k].text);
		uint64_t u;
		int64_t i;

		CU_ASSERT_EQUAL(kvr_json_u64(&v, &u), row[k].u);
		CU_ASSERT_EQUAL(kvr_json_i64(&v, &i), row[k].i);
	}
}

static void numbers_have_their_values(void)
{
	struct kvr_json_value v = parse_value("-9223372036854775808");
	uint64_t u = 0;
	int64_t i = 0;
	double d = 0;
	bool b = false;

	CU_ASSERT(kvr_json_i64(&v, &i) == 0 && i == INT64_MIN);
	v = parse_value("18446744073709551615");
	CU_ASSERT(kvr_json_u64(&v, &u) == 0 && u == UINT64_MAX);
	v = parse_value("-2.5e3");
	CU_ASSERT(kvr_json_f64(&v, &d) == 0 && d == -2500);
	v = parse_value("1e400");
	CU_ASSERT_EQUAL(kvr_json_f64(&v, &d), -ERANGE);
	v = parse_value("1111111111111111111111111111111111111111111111111111111111111111111");
	CU_ASSERT_EQUAL(kvr_json_f64(&v, &d), -ERANGE);
	v = parse_value("true");
	CU_ASSERT(kvr_json_bool(&v, &b) == 0 && b);
	v = parse_value("null");
	CU_ASSERT_EQUAL(kvr_json_bool(&v, &b), -EINVAL);
}

static void token_ids_are_read_from_an_array(void)
{
	struct kvr_json_value v = parse_value("[ 1,2 , 4294967295]");
	uint32_t t[3] = {0};

	CU_ASSERT_EQUAL(kvr_json_u32s(&v, t, 2), 3);
	CU_ASSERT(t[0] == 1 && t[1] == 2 && t[2] == 0);
	CU_ASSERT_EQUAL(kvr_json_u32s(&v, NULL, 0), 3);
	CU_ASSERT(kvr_json_u32s(&v, t, 3) == 3 && t[2] == UINT32_MAX);
	v = parse_value("[4294967296]");
	CU_ASSERT_EQUAL(kvr_json_u32s(&v, t, 3), -ERANGE);
	v = parse_value("[-1]");
	CU_ASSERT_EQUAL(kvr_json_u32s(&v, t, 3), -ERANGE);
	v = parse_value("[1,\"2\"]");
	CU_ASSERT_EQUAL(kvr_json_u32s(&v, t, 3), -EINVAL);
	v = parse_value("\"1\"");
	CU_ASSERT_EQUAL(kvr_json_u32s(&v, t, 3), -EINVAL);
	v = parse_value("[]");
	CU_ASSERT_EQUAL(kvr_json_u32s(&v, t, 3), 0);
}

/* ---- arrays of whole numbers, which have a fast path ---- */

static const char *skip_blanks(const char *p)
{
	while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')
		p++;
	return p;
}

static const char *skip_digits(const char *p)
{
	while (*p >= '0' && *p <= '9')
		p++;
	return p;
}

/*
 * Parse a number by the grammar of RFC 8259; NULL: not a number. *whole: it has neither sign,
 * fraction nor exponent.
 */
static const char *read_number(const char *p, bool *whole)
{
	const char *from = p += *p == '-';

	*whole &= p[-1] != '-' || *p == '0'; /* -0 is a whole number */
	p = skip_digits(p);
	if (p == from || (*from == '0' && p - from > 1))
		return NULL;
	if (*p == '.') {
		*whole = false;
		from = ++p;
		p = skip_digits(p);
		if (p == from)
			return NULL;
	}
	if (*p == 'e' || *p == 'E') {
		*whole = false;
		p++;
		p += *p == '+' || *p == '-';
		from = p;
		p = skip_digits(p);
		if (p == from)
			return NULL;
	}
	return p;
}

/* Parse an array of numbers. @return -1: malformed, -2: kvr_json_u32s() must reject it. */
static int64_t read_array(const char *p, uint32_t out[])
{
	bool whole = true;
	int64_t n = 0;

	p = skip_blanks(p + 1);
	if (*p == ']')
		return skip_blanks(p + 1)[0] == '\0' ? 0 : -1;
	for (;;) {
		const char *from = p;

		p = read_number(p, &whole);
		if (p == NULL)
			return -1;
		whole &= strtoull(from, NULL, 10) <= UINT32_MAX && p - from < 20;
		out[n++] = (uint32_t)strtoull(from, NULL, 10);
		p = skip_blanks(p);
		if (*p == ']')
			return skip_blanks(p + 1)[0] != '\0' ? -1 : whole ? n : -2;
		if (*p != ',')
			return -1;
		p = skip_blanks(p + 1);
	}
}

static void same_numbers(const char *text)
{
	uint32_t want[256], got[256];
	struct kvr_json_value v;
	const int64_t n = read_array(text, want);
	size_t at;
	const int rc = kvr_json_parse(text, strlen(text), &v, &at);
	int64_t m;

	CU_ASSERT_EQUAL(rc == 0, n != -1);
	if (rc != 0 || n == -1)
		return;
	CU_ASSERT_EQUAL(v.len, strlen(skip_blanks(text)));
	m = kvr_json_u32s(&v, got, 256);
	CU_ASSERT_EQUAL(m < 0, n < 0);
	CU_ASSERT_EQUAL(kvr_json_u32s(&v, NULL, 0), m);
	if (m >= 0 && n >= 0) {
		CU_ASSERT_EQUAL(m, n);
		CU_ASSERT_EQUAL(memcmp(got, want, (size_t)m * 4), 0);
	}
}

static void every_array_of_numbers_is_read_exactly(void)
{
	static const char bytes[] = "0159,. -+eE]\n\"x";
	static const char *const seeds[] = {
		"[1,22,333,0,4096,50000,128000,7654321,12345678,0,4294967295,1,2,3,4,5,6,7,8,9,10,"
		"11]",
		"[10, 20, 30, 40, 50, 60, 70, 0, 80, 90, 100, 110, 120, 130, 140, 150, 160, 170]",
		"[123456789012345,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
		"[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]"};
	char text[256];

	for (uint32_t s = 0; s < sizeof(seeds) / sizeof(seeds[0]); s++) {
		same_numbers(seeds[s]);
		/* Change, insert and delete a byte at every position. */
		for (size_t i = 1; i < strlen(seeds[s]); i++) {
			for (const char *b = bytes; *b != '\0'; b++) {
				strcpy(text, seeds[s]);
				text[i] = *b;
				same_numbers(text);
				memcpy(text, seeds[s], i);
				text[i] = *b;
				strcpy(text + i + 1, seeds[s] + i);
				same_numbers(text);
			}
			memcpy(text, seeds[s], i);
			strcpy(text + i, seeds[s] + i + 1);
			same_numbers(text);
		}
	}
}

/*
 * Numbers are read in windows of 64 bytes: a long number may end in the next window, or fill one.
 */
static void a_long_number_is_found_at_every_place(void)
{
	static const char *const numbers[] = {"99999999", "999999999", "4294967295", "4294967296"};
	char text[512];

	for (uint32_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++)
		for (uint32_t before = 0; before < 70; before++) {
			char *p = text;

			*p++ = '[';
			for (uint32_t i = 0; i < before; i++)
				p += sprintf(p, i % 3 == 0 ? "7," : "10,");
			p += sprintf(p, "%s", numbers[k]);
			for (uint32_t i = 0; i < 70; i++)
				p += sprintf(p, ",1");
			strcpy(p, "]");
			same_numbers(text);
		}
}

static void faults_are_found_at_their_position(void)
{
	static const struct {
		const char *text;
		size_t at;
	} cases[] = {
		{"[1,2,3,4,5,6,7,8,9,10,11,12,,13,14,15,16,17,18]", 28},
		{"[1,2,3,4,5,6,7,8,9,10,11,12,013,14,15,16,17,18]", 31},
		{"[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,]", 46},
		{"[1,2,3,4,5,6,7,8,9,10,11,12,13 14,15,16,17,18,19]", 31},
		{"[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19", 48},
	};
	struct kvr_json_value v;
	size_t at;

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CU_ASSERT_EQUAL(kvr_json_parse(cases[i].text, strlen(cases[i].text), &v, &at),
				-EBADMSG);
		CU_ASSERT_EQUAL(at, cases[i].at);
	}
}

static void members_after_large_values_are_found(void)
{
	static const char text[] =
		"{\"a\":[[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],{\"x\":\"]}[{\\\"\",\"y\":[]}],"
		"\"b\":{\"c\":[{}]},\"d\":1}";
	static const char *const names[] = {"a", "b", "d"};
	struct kvr_json_value v, out[3];

	CU_ASSERT_EQUAL_FATAL(kvr_json_parse(text, strlen(text), &v, NULL), 0);
	CU_ASSERT_EQUAL(kvr_json_members(&v, names, 3, out), 3);
	CU_ASSERT_EQUAL(out[1].len, strlen("{\"c\":[{}]}"));
	CU_ASSERT_EQUAL(out[2].type, KVR_JSON_NUMBER);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(valid_json_is_accepted),
		KVR_CASE(invalid_json_is_rejected),
		KVR_CASE(invalid_utf8_is_rejected),
		KVR_CASE(every_prefix_of_a_text_is_rejected),
		KVR_CASE(the_position_of_a_fault_is_reported),
		KVR_CASE(depth_is_bounded),
		KVR_CASE(members_are_found_in_one_pass),
		KVR_CASE(names_are_compared_whole),
		KVR_CASE(the_last_of_equal_names_wins),
		KVR_CASE(paths_lead_through_objects_and_arrays),
		KVR_CASE(elements_come_in_order),
		KVR_CASE(strings_are_unescaped),
		KVR_CASE(numbers_fit_or_are_rejected),
		KVR_CASE(numbers_have_their_values),
		KVR_CASE(token_ids_are_read_from_an_array),
		KVR_CASE(every_array_of_numbers_is_read_exactly),
		KVR_CASE(a_long_number_is_found_at_every_place),
		KVR_CASE(faults_are_found_at_their_position),
		KVR_CASE(members_after_large_values_are_found),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("json", tests);
}
