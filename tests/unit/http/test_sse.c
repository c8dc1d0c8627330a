/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_sse.h"

#include <stdlib.h>
#include <string.h>

#include "kvr_test.h"

/* The events of a stream, each in brackets; "!" before one that was cut. */
static char got[512];

static void event(void *arg, const char *data, uint32_t len, bool cut)
{
	const size_t n = strlen(got);

	CU_ASSERT_PTR_EQUAL(arg, got);
	snprintf(got + n, sizeof(got) - n, "%s[%.*s]", cut ? "!" : "", (int)len, data);
}

/* Whatever the cuts: byte by byte, in two pieces, at once. */
static void expect(const char *text, const char *want, bool open)
{
	const size_t n = strlen(text);
	char buf[16];
	struct kvr_sse s;

	for (size_t cut = 0; cut <= n + 1; cut++) {
		got[0] = 0;
		kvr_sse_init(&s, buf, sizeof(buf));
		if (cut <= n) {
			kvr_sse_add(&s, text, cut, event, got);
			kvr_sse_add(&s, text + cut, n - cut, event, got);
		} else {
			for (size_t i = 0; i < n; i++)
				kvr_sse_add(&s, text + i, 1, event, got);
		}
		CU_ASSERT_STRING_EQUAL(got, want);
		CU_ASSERT_EQUAL(kvr_sse_open(&s), open);
	}
}

static void each_event_is_told(void)
{
	expect("data: a\n\ndata:b\n\ndata: [DONE]\n\n", "[a][b][[DONE]]", false);
	expect("data:  two blanks\n\n", "[ two blanks]", false);
	expect("data: a:b: c\n\n", "[a:b: c]", false);
}

static void any_end_of_line_will_do(void)
{
	expect("data: a\r\n\r\ndata: b\r\rdata: c\n\n", "[a][b][c]", false);
}

static void lines_of_one_event_are_joined(void)
{
	expect("data: a\ndata: b\ndata\ndata:\n\n", "[a\nb\n\n]", false);
}

static void what_is_no_data_is_not_told(void)
{
	expect(": comment\n\nevent: x\nid: 1\nretry: 2\n\nnothing\n\ndatax: 1\n\ndat: 2\n\n\n", "",
	       false);
	expect("event: x\ndata: a\nid: 2\n\n", "[a]", false);
}

static void what_is_too_long_is_cut_and_the_rest_goes_on(void)
{
	expect("data: 0123456789abcdefghij\n\ndata: b\n\n", "![0123456789abcdef][b]", false);
	expect("data: 0123456789\ndata: 0123456789\n\ndata: b\n\n", "![0123456789\n01234][b]",
	       false);
}

/* Memory that grows by as much as is asked for, up to 24 bytes. */
static char *larger(void *arg, uint32_t *size)
{
	char **buf = arg;

	if (*size > 24)
		return NULL;
	*buf = realloc(*buf, *size);
	return *buf;
}

static void what_is_too_long_is_kept_where_memory_grows(void)
{
	static const char text[] = "data: 0123456789\ndata: abcdefghij\n\ndata: b\n\n"
				   "data: 0123456789\ndata: abcdefghijklmnop\n\ndata: c\n\n";
	static const char want[] = "[0123456789\nabcdefghij][b]![0123456789\nabcdefghij";

	for (size_t step = 1; step <= sizeof(text); step++) {
		char *buf = malloc(4);
		struct kvr_sse s;

		got[0] = 0;
		kvr_sse_init(&s, buf, 4);
		kvr_sse_grows(&s, larger, &buf);
		for (size_t at = 0; at < sizeof(text) - 1; at += step)
			kvr_sse_add(&s, text + at,
				    sizeof(text) - 1 - at < step ? sizeof(text) - 1 - at : step,
				    event, got);
		/* Of the second one, which fits no memory, there is what had room when that was
		 * seen. */
		CU_ASSERT(strncmp(got, want, strlen(want)) == 0);
		CU_ASSERT_STRING_EQUAL(got + strlen(got) - 4, "][c]");
		free(buf);
	}
}

static void half_an_event_is_open(void)
{
	expect("data: a\n\ndata: b\n", "[a]", true);
	expect("data: a\n\nda", "[a]", true);
	expect("", "", false);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"each event is told", each_event_is_told},
		{"any end of line will do", any_end_of_line_will_do},
		{"lines of one event are joined", lines_of_one_event_are_joined},
		{"what is no data is not told", what_is_no_data_is_not_told},
		{"what is too long is cut, and the rest goes on",
		 what_is_too_long_is_cut_and_the_rest_goes_on},
		{"what is too long is kept where memory grows",
		 what_is_too_long_is_kept_where_memory_grows},
		{"half an event is open", half_an_event_is_open},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("sse", tests);
}
