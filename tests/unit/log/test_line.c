/* SPDX-License-Identifier: BSD-3-Clause */
/* Log of programs whose threads write themselves: fields, and no blocking on a slow reader. */
#include "kvr_log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "kvr_test.h"

static char text[70000];

static const char *read_all(int fd)
{
	ssize_t n;
	size_t len = 0;

	while (len < sizeof(text) - 1 && (n = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	return text;
}

static void a_line_has_its_fields(void)
{
	const uint64_t worker = 17;
	const char *line;
	int p[2];

	CU_ASSERT_EQUAL_FATAL(pipe2(p, O_NONBLOCK), 0);
	CU_ASSERT_EQUAL(kvr_log_open("kvroute-test", KVR_LOG_TO_STDERR, p[1], NULL), 0);
	kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .worker = &worker, .pool = "m",
				   .addr = "10.0.0.1:7650", .reason = "no way"),
		     "the router rejects %s\n", "pool m");
	line = read_all(p[0]);
	CU_ASSERT_EQUAL(strncmp(line, "time=20", 7), 0);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(line, "Z level=warning msg=\"the router rejects pool m?\" worker=17 pool=m "
			     "addr=10.0.0.1:7650 reason=\"no way\"\n"));
	kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO), "short");
	CU_ASSERT_PTR_NOT_NULL(strstr(read_all(p[0]), "Z level=info msg=short\n"));
	close(p[0]);
	close(p[1]);
}

/* A reader that stops reading does not block the writer, and gets the number of dropped lines. */
static void a_full_pipe_does_not_block_the_writer(void)
{
	uint32_t written = 0, missed = 0;
	const char *at;
	int p[2];

	CU_ASSERT_EQUAL_FATAL(pipe2(p, O_NONBLOCK), 0);
	fcntl(p[1], F_SETFL, 0); /* blocking, like standard error */
	CU_ASSERT_EQUAL(kvr_log_open("kvroute-test", KVR_LOG_TO_STDERR, p[1], NULL), 0);
	for (uint32_t i = 0; i < 2000; i++)
		kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO), "a line of some length, %u", i);
	for (at = read_all(p[0]); (at = strstr(at, "a line of")) != NULL; at++)
		written++;
	CU_ASSERT(written > 100 && written < 2000);
	kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO), "the next");
	at = read_all(p[0]);
	CU_ASSERT_PTR_NOT_NULL_FATAL(strstr(at, "dropped="));
	missed = (uint32_t)strtoul(strstr(at, "dropped=") + 8, NULL, 10);
	CU_ASSERT_EQUAL(missed, 2000 - written);
	CU_ASSERT_PTR_NOT_NULL(strstr(at, "msg=\"the next\"\n"));
	kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO), "one more");
	CU_ASSERT_PTR_NULL(strstr(read_all(p[0]), "dropped="));
	close(p[0]);
	close(p[1]);
}

static int listen_at(struct sockaddr_un *to)
{
	const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	unlink(to->sun_path);
	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)to, sizeof(*to)), 0);
	return fd;
}

/* The journal stops and starts again. */
static void a_socket_is_reconnected(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	char folder[] = "/tmp/kvr-log.XXXXXX", record[KVR_LOG_RECORD];
	ssize_t n;
	int fd;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
	snprintf(to.sun_path, sizeof(to.sun_path), "%s/s", folder);
	CU_ASSERT(kvr_log_open("kvroute-test", KVR_LOG_TO_JOURNAL, 2, to.sun_path) < 0);
	fd = listen_at(&to);
	CU_ASSERT_EQUAL(kvr_log_open("kvroute-test", KVR_LOG_TO_JOURNAL, 2, to.sun_path), 0);
	kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .pool = "m"), "first");
	n = read(fd, record, sizeof(record) - 1);
	CU_ASSERT_FATAL(n > 0);
	record[n] = '\0';
	CU_ASSERT_STRING_EQUAL(record, "PRIORITY=3\nSYSLOG_IDENTIFIER=kvroute-test\nMESSAGE=first\n"
				       "KVROUTE_POOL=m\n");
	close(fd);
	kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_ERROR), "lost");
	fd = listen_at(&to);
	kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_ERROR), "again");
	n = read(fd, record, sizeof(record) - 1);
	CU_ASSERT_FATAL(n > 0);
	record[n] = '\0';
	CU_ASSERT_PTR_NOT_NULL(strstr(record, "KVROUTE_DROPPED=1\n"));
	n = read(fd, record, sizeof(record) - 1);
	CU_ASSERT(n > 0 && strstr(record, "MESSAGE=again\n") != NULL);
	close(fd);
	unlink(to.sun_path);
	rmdir(folder);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_line_has_its_fields),
			       KVR_CASE(a_full_pipe_does_not_block_the_writer),
			       KVR_CASE(a_socket_is_reconnected), CU_TEST_INFO_NULL};

	return kvr_test_run("line", tests);
}
