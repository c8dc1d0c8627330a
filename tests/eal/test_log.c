/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bounded log: writers never wait, lines without space are counted, and rate limits report how
 * much they suppressed.
 */
#include "control/log.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_log.h>

#include "kvr_test.h"

static int pipe_fd[2];
static char text[4 * LOG_BYTES];
static size_t text_len;

/* Read what is available; false if nothing arrives for 10 s. */
static bool read_some(void)
{
	struct pollfd p = {.fd = pipe_fd[0], .events = POLLIN};
	ssize_t n;

	if (text_len > 3 * LOG_BYTES) { /* keep the newest */
		memmove(text, text + 2 * LOG_BYTES, text_len - 2 * LOG_BYTES + 1);
		text_len -= 2 * LOG_BYTES;
	}
	if (poll(&p, 1, 10000) != 1)
		return false;
	n = read(pipe_fd[0], text + text_len, sizeof(text) - 1 - text_len);
	if (n <= 0)
		return false;
	text_len += (size_t)n;
	text[text_len] = '\0';
	return true;
}

/* Read until @word appears. */
static bool read_until(const char *word)
{
	while (strstr(text, word) == NULL)
		if (!read_some())
			return false;
	return true;
}

/* time=2026-11-23T05:08:01.123Z -> time=T; other text is unchanged. */
static void remove_times(char *lines)
{
	char *to = lines;

	for (const char *from = lines; *from != '\0';) {
		int y, mo, d, h, mi, sec, ms, n = 0;

		if (sscanf(from, "time=%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &y, &mo, &d, &h, &mi, &sec,
			   &ms, &n) == 7 &&
		    n == 29) {
			memcpy(to, "time=T", 6);
			to += 6;
			from += n;
		} else {
			*to++ = *from++;
		}
	}
	*to = '\0';
	text_len = (size_t)(to - lines);
}

static void lines_are_written_in_order(void)
{
	const uint64_t worker = 7;

	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO), "first %d", 1);
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .worker = &worker, .pool = "a b",
			       .port = "p0", .addr = "10.0.0.1:9000", .reason = "says \"no\""),
		 "of \\ worker\n\x80");
	RTE_LOG(NOTICE, USER1, "kvroute: second\n");
	RTE_LOG(ERR, USER2, "a driver complains\n");
	RTE_LOG(NOTICE, USER2, "a driver chats\n");
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE), "last");
	CU_ASSERT_TRUE_FATAL(read_until("msg=last\n"));
	remove_times(text);
	CU_ASSERT_STRING_EQUAL(
		text, "time=T level=info msg=\"first 1\"\n"
		      "time=T level=warning msg=\"of \\\\ worker??\" worker=7 pool=\"a b\" port=p0 "
		      "addr=10.0.0.1:9000 reason=\"says \\\"no\\\"\"\n"
		      "time=T level=notice msg=second\n"
		      "time=T level=error msg=\"driver: USER2: a driver complains\"\n"
		      "time=T level=notice msg=last\n");
}

static void writers_do_not_wait_for_a_reader(void)
{
	struct log_counts before, after;

	log_counts(&before);
	for (int i = 0; i < 20000;
	     i++) /* ten times the capacity of ring and pipe; a waiting writer would hang here */
		log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO),
			 "line %d of many, long enough to fill what there is to fill", i);
	log_counts(&after);
	CU_ASSERT(after.buffer_full > before.buffer_full);
	CU_ASSERT_EQUAL(after.lines + after.buffer_full, before.lines + before.buffer_full + 20000);
	log_flush(1); /* returns although nothing can be written */
}

static void dropped_lines_are_reported(void)
{
	struct log_counts before, after;

	/* Now the reader reads: the first line that finds space reports the missing ones. */
	do {
		CU_ASSERT_TRUE_FATAL(read_some());
		log_counts(&before);
		log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO), "after");
		log_counts(&after);
	} while (after.lines == before.lines);
	CU_ASSERT_EQUAL(after.buffer_full, before.buffer_full);
	CU_ASSERT_TRUE(read_until("msg=after\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(
		text, "msg=\"log lines dropped: the sink accepts them too slowly\" dropped="));
}

static void one_worker_is_rate_limited(void)
{
	struct log_counts before, after;

	log_flush(1000);
	log_counts(&before);
	for (int i = 0; i < 1000; i++)
		log_worker(7, KVR_LOG_ABOUT(.level = KVR_LOG_INFO), "worker 7 flaps %d", i);
	log_worker(8, KVR_LOG_ABOUT(.level = KVR_LOG_INFO), "worker 8 is fine");
	log_counts(&after);
	CU_ASSERT(after.rate_limited - before.rate_limited > 900);
	CU_ASSERT(after.lines - before.lines >= LOG_WORKER_BURST + 1);
	CU_ASSERT_TRUE(read_until("msg=\"worker 8 is fine\"\n"));
	CU_ASSERT_PTR_NULL(strstr(text, "worker 7 flaps 500"));
}

static void long_lines_are_truncated(void)
{
	char longer[2 * KVR_LOG_LINE];
	const char *at;

	memset(longer, 'y', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO), "%s", longer);
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO), "after the long one");
	CU_ASSERT_TRUE_FATAL(read_until("after the long one\"\n"));
	at = strstr(text, "msg=yyy");
	CU_ASSERT_PTR_NOT_NULL_FATAL(at);
	CU_ASSERT_EQUAL(strcspn(at, "\n"), strlen("msg=") + KVR_LOG_LINE - 1);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(lines_are_written_in_order), KVR_CASE(writers_do_not_wait_for_a_reader),
		KVR_CASE(dropped_lines_are_reported), KVR_CASE(one_worker_is_rate_limited),
		KVR_CASE(long_lines_are_truncated),   CU_TEST_INFO_NULL};

	if (pipe(pipe_fd) != 0 || log_open(KVR_LOG_TO_STDERR, pipe_fd[1], NULL, false) != 0)
		return 1;
	return kvr_test_run("log", tests);
}
