/* SPDX-License-Identifier: BSD-3-Clause */
/* The log: a ring of text, filled by callers and written by one thread, with rate limits per
 * worker. */
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
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rte_log.h>

#define NAME "kvroute"
#define CHUNK                                                                                      \
	4096u /* PIPE_BUF: a pipe that polls writable accepts this much at once; also the size of  \
		 a record */
#define KEYS	    256u
#define CAPTURE	    4096u
#define WORKER_RATE 1.0 /* lines per second */
#define ALL_RATE    200.0
#define RETRY_MS    100	       /* interval of reconnects to a lost socket */
#define EAL_KEY	    UINT64_MAX /* lines of EAL and drivers share one limit */

/* Token bucket of lines. */
struct bucket {
	uint64_t key;
	double tokens, since;
	uint64_t left_out;
};

static struct {
	pthread_mutex_t lock; /* never held while writing to the sink */
	pthread_cond_t more, written;
	int fd;
	enum kvr_log_sink sink;
	const char *path;
	bool on, verbose, capturing;
	char ring[LOG_BYTES];
	size_t head, tail; /* bytes put and written so far */
	uint64_t reported; /* drops that were logged */
	struct log_counts counts;
	struct bucket key[KEYS], all;
	char captured[CAPTURE];
	char part[KVR_LOG_LINE]; /* incomplete line of RTE_LOG */
	size_t part_len;
} lg = {.lock = PTHREAD_MUTEX_INITIALIZER,
	.more = PTHREAD_COND_INITIALIZER,
	.written = PTHREAD_COND_INITIALIZER,
	.all = {.tokens = LOG_ALL_BURST}};

static double now_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- into the ring, with the lock ---- */

static void ring_put(const char *text, size_t len)
{
	const size_t at = lg.head % LOG_BYTES;
	const size_t first = len < LOG_BYTES - at ? len : LOG_BYTES - at;

	memcpy(lg.ring + at, text, first);
	memcpy(lg.ring, text + first, len - first);
	lg.head += len;
}

/* Put a line, after a line about earlier drops; all or nothing. */
static void put_line(const char *text, size_t len, const struct timespec *now)
{
	char told[KVR_LOG_RECORD];
	size_t n = 0;

	if (lg.counts.buffer_full != lg.reported)
		n = kvr_log_form(told, NAME, lg.sink, now, KVR_LOG_ABOUT(.level = KVR_LOG_WARNING),
				 "log lines dropped: the sink accepts them too slowly", 0,
				 lg.counts.buffer_full - lg.reported);
	if (LOG_BYTES - (lg.head - lg.tail) < n + len) {
		kvr_cell_add(&lg.counts.buffer_full, 1);
		return;
	}
	ring_put(told, n);
	ring_put(text, len);
	lg.reported = lg.counts.buffer_full;
	kvr_cell_add(&lg.counts.lines, 1);
	pthread_cond_signal(&lg.more);
}

static bool bucket_take(struct bucket *b, double burst, double rate)
{
	const double now = now_seconds();

	b->tokens += (now - b->since) * rate;
	if (b->tokens > burst)
		b->tokens = burst;
	b->since = now;
	if (b->tokens < 1)
		return false;
	b->tokens -= 1;
	return true;
}

/* Whether a line about @key may pass. Sets @left_out to the lines suppressed before it. */
static bool line_may_pass(uint64_t key, uint64_t *left_out)
{
	struct bucket *b = &lg.key[(key * UINT64_C(0x9e3779b97f4a7c15)) >> 56];

	*left_out = 0;
	if (b->key != key || b->since == 0)
		*b = (struct bucket){
			.key = key, .tokens = LOG_WORKER_BURST, .since = now_seconds()};
	if (!bucket_take(b, LOG_WORKER_BURST, WORKER_RATE) ||
	    !bucket_take(&lg.all, LOG_ALL_BURST, ALL_RATE)) {
		b->left_out++;
		kvr_cell_add(&lg.counts.rate_limited, 1);
		return false;
	}
	*left_out = b->left_out;
	b->left_out = 0;
	return true;
}

/* ---- callers ---- */

static void log_write(const struct kvr_log_about *about, const char *text, uint64_t left_out)
{
	char record[KVR_LOG_RECORD];
	struct timespec now;
	size_t len;

	clock_gettime(CLOCK_REALTIME, &now);
	len = kvr_log_form(record, NAME, lg.sink, &now, about, text, left_out, 0);
	pthread_mutex_lock(&lg.lock);
	put_line(record, len, &now);
	pthread_mutex_unlock(&lg.lock);
}

void log_line(const struct kvr_log_about *about, const char *fmt, ...)
{
	char text[KVR_LOG_LINE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_write(about, text, 0);
}

static void log_limited(uint64_t key, const struct kvr_log_about *about, const char *text)
{
	uint64_t left_out;
	bool passes;

	pthread_mutex_lock(&lg.lock);
	passes = line_may_pass(key, &left_out);
	pthread_mutex_unlock(&lg.lock);
	if (passes)
		log_write(about, text, left_out);
}

void log_worker(uint64_t key, const struct kvr_log_about *about, const char *fmt, ...)
{
	char text[KVR_LOG_LINE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_limited(key, about, text);
}

void log_counts(struct log_counts *out)
{
	pthread_mutex_lock(&lg.lock);
	kvr_stats_row_copy(&out->lines, &lg.counts.lines, LOG_COUNTERS);
	pthread_mutex_unlock(&lg.lock);
}

/* ---- RTE_LOG ---- */

static void capture_line(const char *line)
{
	const size_t have = strlen(lg.captured), len = strlen(line);

	if (have + len + 2 > sizeof(lg.captured))
		return;
	memcpy(lg.captured + have, line, len);
	memcpy(lg.captured + have + len, "\n", 2);
}

static enum kvr_log_level level_of(int rte)
{
	return rte <= (int)RTE_LOG_ERR	     ? KVR_LOG_ERROR
	       : rte == (int)RTE_LOG_WARNING ? KVR_LOG_WARNING
	       : rte == (int)RTE_LOG_NOTICE  ? KVR_LOG_NOTICE
					     : KVR_LOG_INFO;
}

/* A complete line without its newline. */
static void rte_line(const char *text)
{
	static const char ours[] = "USER1: kvroute: ";
	const struct kvr_log_about about = {.level = level_of(rte_log_cur_msg_loglevel())};
	char line[KVR_LOG_LINE];

	if (strncmp(text, ours, sizeof(ours) - 1) == 0) {
		log_line(&about, "%s", text + sizeof(ours) - 1);
		return;
	}
	if (lg.capturing) {
		pthread_mutex_lock(&lg.lock);
		capture_line(text);
		pthread_mutex_unlock(&lg.lock);
	}
	snprintf(line, sizeof(line), "driver: %.500s", text);
	if (lg.verbose)
		log_line(&about, "%s", line);
	else if (!lg.capturing && about.level == KVR_LOG_ERROR)
		log_limited(EAL_KEY, &about, line);
}

/* The caller locks the stream: one call at a time. */
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
			return; /* the sink is permanently closed */
		if (n > 0) {
			text += n;
			len -= (size_t)n;
		}
	}
}

/* Send a record to the socket. While its reader is away, the ring keeps new lines. */
static void send_out(const char *text, size_t len)
{
	while (send(lg.fd, text, len, MSG_NOSIGNAL) < 0) {
		int fd;

		if (errno == EINTR)
			continue;
		if (errno != ECONNREFUSED && errno != ENOTCONN && errno != ENOENT)
			return; /* another error: the next record may succeed */
		poll(NULL, 0, RETRY_MS);
		fd = kvr_log_connect(lg.sink, lg.path);
		if (fd >= 0)
			dup3(fd, lg.fd, O_CLOEXEC);
		if (fd >= 0)
			close(fd);
	}
}

/* One record for a socket, or as much as a pipe accepts at once for a file. */
static size_t next_part(char chunk[CHUNK])
{
	const size_t left = lg.head - lg.tail, n = left < CHUNK ? left : CHUNK;
	size_t first = LOG_BYTES - lg.tail % LOG_BYTES;

	first = n < first ? n : first;
	memcpy(chunk, lg.ring + lg.tail % LOG_BYTES, first);
	memcpy(chunk + first, lg.ring, n - first);
	return lg.sink == KVR_LOG_TO_STDERR ? n : kvr_log_record(lg.sink, chunk, n);
}

static void *writer_main(void *arg)
{
	char chunk[CHUNK];

	(void)arg;
	pthread_mutex_lock(&lg.lock);
	for (;;) {
		size_t n;

		while (lg.head == lg.tail)
			pthread_cond_wait(&lg.more, &lg.lock);
		n = next_part(chunk);
		pthread_mutex_unlock(&lg.lock);
		if (lg.sink == KVR_LOG_TO_STDERR)
			write_out(chunk, n);
		else
			send_out(chunk, n - 1); /* without its newline */
		pthread_mutex_lock(&lg.lock);
		lg.tail += n;
		pthread_cond_broadcast(&lg.written);
	}
	return NULL;
}

static int open_sink(enum kvr_log_sink sink, int fd, const char *path)
{
	lg.sink = sink == KVR_LOG_TO_AUTO ? kvr_log_auto(fd, path) : sink;
	lg.path = path;
	if (lg.sink != KVR_LOG_TO_STDERR) {
		lg.fd = kvr_log_connect(lg.sink, path);
		return lg.fd < 0 ? lg.fd : 0;
	}
	lg.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return lg.fd < 0 ? -errno : 0;
}

int log_open(enum kvr_log_sink sink, int fd, const char *path, bool verbose)
{
	const cookie_io_functions_t io = {.write = rte_write};
	FILE *stream = fopencookie(NULL, "w", io);
	pthread_t thread;
	sigset_t all, old;
	int rc;

	lg.verbose = verbose;
	if (stream == NULL)
		return -errno;
	rc = open_sink(sink, fd, path);
	if (rc < 0)
		return rc;
	setvbuf(stream, NULL, _IOLBF, KVR_LOG_LINE);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* signals go to the main thread */
	rc = pthread_create(&thread, NULL, writer_main, NULL);
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
