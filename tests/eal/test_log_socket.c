/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The log in the formats of syslog and of the journal, over a socket whose reader goes and comes
 * back.
 */
#include "control/log.h"
#include "kvr_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "kvr_test.h"

static char folder[] = "/tmp/kvr-log-XXXXXX", path[64], got[KVR_LOG_RECORD + 1];

static int open_reader(void)
{
	const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
	unlink(path);
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* One datagram; "" if none arrives within a minute. */
static const char *read_datagram(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	ssize_t n = poll(&p, 1, 60000) == 1 ? recv(fd, got, sizeof(got) - 1, 0) : 0;

	got[n < 0 ? 0 : n] = '\0';
	return got;
}

static void the_journal_receives_fields(void)
{
	const uint64_t worker = 7;
	int fd = open_reader();

	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL_FATAL(log_open(KVR_LOG_TO_JOURNAL, 2, path, false), 0);
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .worker = &worker, .pool = "p",
			       .port = "p0", .addr = "10.0.0.1:9000", .reason = "a=b"),
		 "two\nlines \"quoted\"");
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO), "next");
	CU_ASSERT_STRING_EQUAL(read_datagram(fd),
			       "PRIORITY=4\nSYSLOG_IDENTIFIER=kvroute\n"
			       "MESSAGE=two?lines \"quoted\"\nKVROUTE_WORKER=7\n"
			       "KVROUTE_POOL=p\nKVROUTE_PORT=p0\n"
			       "KVROUTE_ADDR=10.0.0.1:9000\nKVROUTE_REASON=a=b\n");
	CU_ASSERT_STRING_EQUAL(read_datagram(fd),
			       "PRIORITY=6\nSYSLOG_IDENTIFIER=kvroute\nMESSAGE=next\n");
	/* The reader restarts: lines written meanwhile arrive. */
	close(fd);
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO), "without a reader");
	log_flush(1); /* returns */
	fd = open_reader();
	CU_ASSERT_STRING_EQUAL(read_datagram(fd),
			       "PRIORITY=6\nSYSLOG_IDENTIFIER=kvroute\nMESSAGE=without a reader\n");
	close(fd);
}

static void syslog_receives_a_line(void)
{
	const struct timespec now = {.tv_sec = 1795410481, .tv_nsec = 123456789};
	const struct kvr_log_about about = {.level = KVR_LOG_ERROR, .pool = "p"};
	char text[KVR_LOG_RECORD], want[200];
	size_t n;

	setenv("TZ", "UTC", 1);
	n = kvr_log_form(text, "kvroute", KVR_LOG_TO_SYSLOG, &now, &about, "no \"room\"", 3, 4);
	snprintf(want, sizeof(want),
		 "<27>Nov 23 05:08:01 kvroute[%d]: level=error msg=\"no \\\"room\\\"\" pool=p "
		 "left_out=3 dropped=4\n",
		 (int)getpid());
	CU_ASSERT_EQUAL_FATAL(n, strlen(want));
	CU_ASSERT_EQUAL(memcmp(text, want, n), 0);
	CU_ASSERT_EQUAL(kvr_log_record(KVR_LOG_TO_SYSLOG, text, n), n);
}

/*
 * All fields at their longest and every byte escaped: the record still ends correctly in each
 * format.
 */
static void the_longest_record_fits(void)
{
	const struct timespec now = {.tv_sec = 1};
	const uint64_t worker = UINT64_MAX;
	char text[KVR_LOG_RECORD + 1], most[2 * KVR_LOG_RECORD];
	struct kvr_log_about about = {.level = KVR_LOG_NOTICE,
				      .worker = &worker,
				      .pool = most,
				      .port = most,
				      .addr = most,
				      .reason = most};

	memset(most, '"', sizeof(most) - 1);
	most[sizeof(most) - 1] = '\0';
	for (enum kvr_log_sink s = KVR_LOG_TO_STDERR; s <= KVR_LOG_TO_JOURNAL; s++) {
		text[KVR_LOG_RECORD] = '!';
		const size_t n = kvr_log_form(text, "kvroute", s, &now, &about, most, UINT64_MAX,
					      UINT64_MAX);

		CU_ASSERT(n > KVR_LOG_LINE && n <= KVR_LOG_RECORD);
		CU_ASSERT_EQUAL(text[KVR_LOG_RECORD], '!');
		CU_ASSERT_EQUAL(kvr_log_record(s, text, n), n);
		CU_ASSERT_EQUAL(text[n - 1], '\n');
	}
}

static void auto_selects_the_journal_of_standard_error(void)
{
	char stream[64];
	struct stat st;
	const int fd = open("/dev/null", O_WRONLY), to = open_reader();

	CU_ASSERT_EQUAL_FATAL(fstat(fd, &st), 0);
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	unsetenv("JOURNAL_STREAM");
	CU_ASSERT_EQUAL(kvr_log_auto(fd, path), KVR_LOG_TO_STDERR);
	setenv("JOURNAL_STREAM", "1:1", 1);
	CU_ASSERT_EQUAL(kvr_log_auto(fd, path), KVR_LOG_TO_STDERR);
	setenv("JOURNAL_STREAM", stream, 1);
	CU_ASSERT_EQUAL(kvr_log_auto(fd, path), KVR_LOG_TO_JOURNAL);
	close(to);
	unlink(path);
	CU_ASSERT_EQUAL(kvr_log_auto(fd, path), KVR_LOG_TO_STDERR); /* there is no journal */
	CU_ASSERT_EQUAL(kvr_log_connect(KVR_LOG_TO_SYSLOG, path), -ENOENT);
	close(fd);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(the_journal_receives_fields),
			       KVR_CASE(syslog_receives_a_line), KVR_CASE(the_longest_record_fits),
			       KVR_CASE(auto_selects_the_journal_of_standard_error),
			       CU_TEST_INFO_NULL};
	int rc;

	if (mkdtemp(folder) == NULL)
		return 1;
	snprintf(path, sizeof(path), "%s/s", folder);
	rc = kvr_test_run("log_socket", tests);
	unlink(path);
	rmdir(folder);
	return rc;
}
