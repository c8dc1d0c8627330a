/* SPDX-License-Identifier: BSD-3-Clause */
/* Log of a program whose threads write themselves, without blocking; see kvr_log.h. */
#include "kvr_log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock;
	const char *name, *path;
	enum kvr_log_sink sink;
	int fd;
	uint64_t dropped; /* since the last accepted line */
} lg = {PTHREAD_MUTEX_INITIALIZER, "kvroute", NULL, KVR_LOG_TO_STDERR, STDERR_FILENO, 0};

int kvr_log_open(const char *name, enum kvr_log_sink sink, int fd, const char *path)
{
	int to = fd;

	if (sink == KVR_LOG_TO_AUTO)
		sink = kvr_log_auto(fd, path);
	if (sink != KVR_LOG_TO_STDERR)
		to = kvr_log_connect(sink, path);
	pthread_mutex_lock(&lg.lock);
	lg.name = name;
	if (to >= 0) {
		lg.path = path;
		lg.sink = sink;
		lg.fd = to;
	}
	pthread_mutex_unlock(&lg.lock);
	return to < 0 ? to : 0;
}

/* A pipe with room accepts the whole line, which is shorter than PIPE_BUF. */
static bool write_out(const char *text, size_t len)
{
	struct pollfd p = {.fd = lg.fd, .events = POLLOUT};

	return poll(&p, 1, 0) == 1 && (p.revents & POLLOUT) != 0 &&
	       write(lg.fd, text, len) == (ssize_t)len;
}

/* Reconnect once: the reader may have restarted. */
static bool send_out(const char *text, size_t len)
{
	int fd;

	if (send(lg.fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
		return true;
	if (errno != ECONNREFUSED && errno != ENOTCONN && errno != ENOENT)
		return false;
	fd = kvr_log_connect(lg.sink, lg.path);
	if (fd < 0)
		return false;
	close(lg.fd);
	lg.fd = fd;
	return send(lg.fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

static bool write_line(const struct kvr_log_about *about, const char *text, uint64_t left_out,
		       uint64_t dropped)
{
	char record[KVR_LOG_RECORD];
	struct timespec now;
	size_t len;

	clock_gettime(CLOCK_REALTIME, &now);
	len = kvr_log_form(record, lg.name, lg.sink, &now, about, text, left_out, dropped);
	return lg.sink == KVR_LOG_TO_STDERR ? write_out(record, len) : send_out(record, len - 1);
}

void kvr_log_vline(const struct kvr_log_about *about, uint64_t left_out, const char *fmt,
		   va_list ap)
{
	char text[KVR_LOG_LINE];

	vsnprintf(text, sizeof(text), fmt, ap);
	pthread_mutex_lock(&lg.lock);
	if (lg.dropped != 0 &&
	    write_line(KVR_LOG_ABOUT(.level = KVR_LOG_WARNING),
		       "log lines dropped: the sink accepts them too slowly", 0, lg.dropped))
		lg.dropped = 0;
	if (lg.dropped != 0 || !write_line(about, text, left_out, 0))
		lg.dropped++;
	pthread_mutex_unlock(&lg.lock);
}

void kvr_log_line(const struct kvr_log_about *about, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	kvr_log_vline(about, 0, fmt, ap);
	va_end(ap);
}
