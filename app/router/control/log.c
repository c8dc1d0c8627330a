/* SPDX-License-Identifier: BSD-3-Clause */
#include "control/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_log.h>

#define CHUNK	    4096u /* PIPE_BUF: a pipe that polls writable takes it whole */
#define KEYS	    256u
#define CAPTURE	    4096u
#define WORKER_RATE 1.0 /* lines a second */
#define ALL_RATE    200.0
#define EAL_KEY	    UINT64_MAX /* lines of EAL and drivers share a limit */

/* Lines a second, with some saved up. */
struct bucket {
	uint64_t key;
	double tokens, since;
	uint64_t left_out;
};

static struct {
	pthread_mutex_t lock; /* never held while anything is written */
	pthread_cond_t more, written;
	int fd;
	bool on, verbose, capturing;
	char ring[LOG_BYTES];
	size_t head, tail; /* bytes ever put in, and written */
	uint64_t reported; /* drops that have been told */
	struct log_counts counts;
	struct bucket key[KEYS], all;
	char captured[CAPTURE];
	char part[LOG_LINE]; /* a line of RTE_LOG that has no end yet */
	size_t part_len;
} lg = {.lock = PTHREAD_MUTEX_INITIALIZER,
	.more = PTHREAD_COND_INITIALIZER,
	.written = PTHREAD_COND_INITIALIZER,
	.all = {.tokens = LOG_ALL_BURST}};

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- into the ring, with the lock ---- */

static void put(const char *text, size_t len)
{
	const size_t at = lg.head % LOG_BYTES;
	const size_t first = len < LOG_BYTES - at ? len : LOG_BYTES - at;

	memcpy(lg.ring + at, text, first);
	memcpy(lg.ring, text + first, len - first);
	lg.head += len;
}

/* A line, after one about those that were dropped before it; all or nothing. */
static void put_line(const char *text, size_t len)
{
	char told[64];
	size_t n = 0;

	if (lg.counts.dropped != lg.reported)
		n = (size_t)snprintf(told, sizeof(told), "kvroute: log: %llu lines were dropped\n",
				     (unsigned long long)(lg.counts.dropped - lg.reported));
	if (LOG_BYTES - (lg.head - lg.tail) < n + len) {
		kvr_cell_add(&lg.counts.dropped, 1);
		return;
	}
	put(told, n);
	put(text, len);
	lg.reported = lg.counts.dropped;
	kvr_cell_add(&lg.counts.lines, 1);
	pthread_cond_signal(&lg.more);
}

static bool take(struct bucket *b, double burst, double rate)
{
	const double now = seconds();

	b->tokens += (now - b->since) * rate;
	if (b->tokens > burst)
		b->tokens = burst;
	b->since = now;
	if (b->tokens < 1)
		return false;
	b->tokens -= 1;
	return true;
}

/* May a line about @key pass? @left_out: how many did not before it. */
static bool allowed(uint64_t key, uint64_t *left_out)
{
	struct bucket *b = &lg.key[(key * UINT64_C(0x9e3779b97f4a7c15)) >> 56];

	*left_out = 0;
	if (b->key != key || b->since == 0)
		*b = (struct bucket){.key = key, .tokens = LOG_WORKER_BURST, .since = seconds()};
	if (!take(b, LOG_WORKER_BURST, WORKER_RATE) || !take(&lg.all, LOG_ALL_BURST, ALL_RATE)) {
		b->left_out++;
		kvr_cell_add(&lg.counts.limited, 1);
		return false;
	}
	*left_out = b->left_out;
	b->left_out = 0;
	return true;
}

/* ---- callers ---- */

static size_t format(char line[LOG_LINE], const char *fmt, va_list ap)
{
	const size_t head = (size_t)snprintf(line, LOG_LINE, "kvroute: ");
	const int n = vsnprintf(line + head, LOG_LINE - head - 1, fmt, ap);
	size_t len = head + (n < 0 ? 0 : (size_t)n);

	if (len > LOG_LINE - 2)
		len = LOG_LINE - 2;
	line[len] = '\n';
	return len + 1;
}

void log_line(const char *fmt, ...)
{
	char line[LOG_LINE];
	va_list ap;
	size_t len;

	va_start(ap, fmt);
	len = format(line, fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&lg.lock);
	put_line(line, len);
	pthread_mutex_unlock(&lg.lock);
}

static void limited(uint64_t key, char line[LOG_LINE], size_t len)
{
	uint64_t left_out;

	pthread_mutex_lock(&lg.lock);
	if (allowed(key, &left_out)) {
		if (left_out != 0 && len < LOG_LINE - 48)
			len += (size_t)snprintf(line + len - 1, LOG_LINE - len + 1,
						" (%llu lines like it left out)\n",
						(unsigned long long)left_out) -
			       1;
		put_line(line, len);
	}
	pthread_mutex_unlock(&lg.lock);
}

void log_worker(uint64_t id, const char *fmt, ...)
{
	char line[LOG_LINE];
	va_list ap;
	size_t len;

	va_start(ap, fmt);
	len = format(line, fmt, ap);
	va_end(ap);
	limited(id, line, len);
}

void log_counts(struct log_counts *out)
{
	pthread_mutex_lock(&lg.lock);
	kvr_stats_row_copy(&out->lines, &lg.counts.lines, LOG_COUNTERS);
	pthread_mutex_unlock(&lg.lock);
}

/* ---- RTE_LOG ---- */

static void capture(const char *line)
{
	const size_t have = strlen(lg.captured), len = strlen(line);

	if (have + len + 2 > sizeof(lg.captured))
		return;
	memcpy(lg.captured + have, line, len);
	memcpy(lg.captured + have + len, "\n", 2);
}

/* A whole line, without its end. */
static void rte_line(const char *text)
{
	static const char ours[] = "USER1: kvroute: ";
	char line[LOG_LINE];
	int n;

	if (strncmp(text, ours, sizeof(ours) - 1) == 0) {
		log_line("%s", text + sizeof(ours) - 1);
		return;
	}
	if (lg.capturing) {
		pthread_mutex_lock(&lg.lock);
		capture(text);
		pthread_mutex_unlock(&lg.lock);
	}
	if (lg.verbose) {
		log_line("%s", text);
	} else if (!lg.capturing && rte_log_cur_msg_loglevel() <= (int)RTE_LOG_ERR) {
		n = snprintf(line, sizeof(line) - 1, "kvroute: driver: %s", text);
		n = n > (int)sizeof(line) - 2 ? (int)sizeof(line) - 2 : n;
		line[n] = '\n';
		limited(EAL_KEY, line, (size_t)n + 1);
	}
}

/* The stream is locked by the caller: one at a time. */
static ssize_t rte_write(void *cookie, const char *text, size_t len)
{
	(void)cookie;
	for (size_t i = 0; i < len; i++) {
		if (text[i] != '\n') {
			if (lg.part_len < sizeof(lg.part) - 1)
				lg.part[lg.part_len++] = text[i];
			continue;
		}
		lg.part[lg.part_len] = '\0';
		if (lg.part_len != 0)
			rte_line(lg.part);
		lg.part_len = 0;
	}
	return (ssize_t)len;
}

void log_verbose(bool verbose)
{
	pthread_mutex_lock(&lg.lock);
	lg.verbose = verbose;
	pthread_mutex_unlock(&lg.lock);
}

void log_capture(void)
{
	pthread_mutex_lock(&lg.lock);
	lg.captured[0] = '\0';
	lg.capturing = true;
	pthread_mutex_unlock(&lg.lock);
}

const char *log_captured(void)
{
	return lg.captured;
}

void log_release(void)
{
	pthread_mutex_lock(&lg.lock);
	lg.capturing = false;
	pthread_mutex_unlock(&lg.lock);
}

/* ---- out ---- */

static void write_out(const char *text, size_t len)
{
	struct pollfd p = {.fd = lg.fd, .events = POLLOUT};

	while (len > 0) {
		ssize_t n;

		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			return;
		n = write(lg.fd, text, len);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return; /* nobody will ever read it */
		if (n > 0) {
			text += n;
			len -= (size_t)n;
		}
	}
}

static void *writer(void *arg)
{
	char chunk[CHUNK];

	(void)arg;
	pthread_mutex_lock(&lg.lock);
	for (;;) {
		size_t n, first;

		while (lg.head == lg.tail)
			pthread_cond_wait(&lg.more, &lg.lock);
		n = lg.head - lg.tail < CHUNK ? lg.head - lg.tail : CHUNK;
		first = LOG_BYTES - lg.tail % LOG_BYTES;
		first = n < first ? n : first;
		memcpy(chunk, lg.ring + lg.tail % LOG_BYTES, first);
		memcpy(chunk + first, lg.ring, n - first);
		pthread_mutex_unlock(&lg.lock);
		write_out(chunk, n);
		pthread_mutex_lock(&lg.lock);
		lg.tail += n;
		pthread_cond_broadcast(&lg.written);
	}
	return NULL;
}

int log_open(int fd, bool verbose)
{
	const cookie_io_functions_t io = {.write = rte_write};
	FILE *stream = fopencookie(NULL, "w", io);
	pthread_t thread;
	sigset_t all, old;
	int rc;

	lg.verbose = verbose;
	lg.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (lg.fd < 0 || stream == NULL)
		return -errno;
	setvbuf(stream, NULL, _IOLBF, LOG_LINE);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the main thread's */
	rc = pthread_create(&thread, NULL, writer, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc != 0)
		return -rc;
	pthread_detach(thread);
	pthread_setname_np(thread, "kvr-log");
	lg.on = true;
	rte_openlog_stream(stream);
	return 0;
}

void log_flush(unsigned int ms)
{
	struct timespec until;

	if (!lg.on)
		return;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += (long)(ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_mutex_lock(&lg.lock);
	while (lg.head != lg.tail && pthread_cond_timedwait(&lg.written, &lg.lock, &until) == 0)
		;
	pthread_mutex_unlock(&lg.lock);
}
