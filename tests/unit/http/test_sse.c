/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_sse.h"

#include <stdlib.h>
#include <string.h>

#include "kvr_test.h"

/* The events of a stream, each in brackets; "!" before a truncated one. */
static char got[512];

static void record_event(void *arg, const char *data, uint32_t len, bool cut)
{
	const size_t n = strlen(got);

	CU_ASSERT_PTR_EQUAL(arg, got);
	snprintf(got + n, sizeof(got) - n, "%s[%.*s]", cut ? "!" : "", (int)len, data);
}

/* Split the stream byte by byte, in two pieces, and not at all. */
static void expect_events(const char *text, const char *want, bool open)
{
	const size_t n = strlen(text);
	char buf[16];
	struct kvr_sse s;

	for (size_t cut = 0; cut <= n + 1; cut++) {
		got[0] = 0;
		kvr_sse_init(&s, buf, sizeof(buf));
		if (cut <= n) {
			kvr_sse_add(&s, text, cut, record_event, got);
			kvr_sse_add(&s, text + cut, n - cut, record_event, got);
		} else {
			for (size_t i = 0; i < n; i++)
				kvr_sse_add(&s, text + i, 1, record_event, got);
		}
		CU_ASSERT_STRING_EQUAL(got, want);
		CU_ASSERT_EQUAL(kvr_sse_open(&s), open);
	}
}

static void each_event_is_reported(void)
{
	expect_events("data: a\n\ndata:b\n\ndata: [DONE]\n\n", "[a][b][[DONE]]", false);
	expect_events("data:  two blanks\n\n", "[ two blanks]", false);
	expect_events("data: a:b: c\n\n", "[a:b: c]", false);
}

static void any_end_of_line_is_accepted(void)
{
	expect_events("data: a\r\n\r\ndata: b\r\rdata: c\n\n", "[a][b][c]", false);
}

static void lines_of_one_event_are_joined(void)
{
	expect_events("data: a\ndata: b\ndata\ndata:\n\n", "[a\nb\n\n]", false);
}

static void events_without_data_are_skipped(void)
{
	expect_events(
		": comment\n\nevent: x\nid: 1\nretry: 2\n\nnothing\n\ndatax: 1\n\ndat: 2\n\n\n", "",
		false);
	expect_events("event: x\ndata: a\nid: 2\n\n", "[a]", false);
}

static void a_long_event_is_truncated_and_the_stream_continues(void)
{
	expect_events("data: 0123456789abcdefghij\n\ndata: b\n\n", "![0123456789abcdef][b]", false);
	expect_events("data: 0123456789\ndata: 0123456789\n\ndata: b\n\n",
		      "![0123456789\n01234][b]", false);
}

/* Memory that grows as requested, up to 24 bytes. */
static char *grow_memory(void *arg, uint32_t *size)
{
	char **buf = arg;

	if (*size > 24)
		return NULL;
	*buf = realloc(*buf, *size);
	return *buf;
}

static void a_long_event_is_kept_if_memory_grows(void)
{
	static const char text[] = "data: 0123456789\ndata: abcdefghij\n\ndata: b\n\n"
				   "data: 0123456789\ndata: abcdefghijklmnop\n\ndata: c\n\n";
	static const char want[] = "[0123456789\nabcdefghij][b]![0123456789\nabcdefghij";

	for (size_t step = 1; step <= sizeof(text); step++) {
		char *buf = malloc(4);
		struct kvr_sse s;

		got[0] = 0;
		kvr_sse_init(&s, buf, 4);
		kvr_sse_grows(&s, grow_memory, &buf);
		for (size_t at = 0; at < sizeof(text) - 1; at += step)
			kvr_sse_add(&s, text + at,
				    sizeof(text) - 1 - at < step ? sizeof(text) - 1 - at : step,
				    record_event, got);
		/* The second record_event does not fit; the part that fitted at that time is kept.
		 */
		CU_ASSERT(strncmp(got, want, strlen(want)) == 0);
		CU_ASSERT_STRING_EQUAL(got + strlen(got) - 4, "][c]");
		free(buf);
	}
}

static void half_an_event_is_open(void)
{
	expect_events("data: a\n\ndata: b\n", "[a]", true);
	expect_events("data: a\n\nda", "[a]", true);
	expect_events("", "", false);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(each_event_is_reported),
		KVR_CASE(any_end_of_line_is_accepted),
		KVR_CASE(lines_of_one_event_are_joined),
		KVR_CASE(events_without_data_are_skipped),
		KVR_CASE(a_long_event_is_truncated_and_the_stream_continues),
		KVR_CASE(a_long_event_is_kept_if_memory_grows),
		KVR_CASE(half_an_event_is_open),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("sse", tests);
}
