/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SYSLOG	"/dev/log"
#define JOURNAL "/run/systemd/journal/socket"
#define DAEMON	24u  /* LOG_DAEMON of syslog */
#define VALUE	200u /* bytes of a field; msg may have KVR_LOG_LINE */

struct text {
	char *at;
	size_t len;
};

static const char *const level_names[] = {[KVR_LOG_ERROR] = "error",
					  [KVR_LOG_WARNING] = "warning",
					  [KVR_LOG_NOTICE] = "notice",
					  [KVR_LOG_INFO] = "info"};

static void put_char(struct text *t, char c)
{
	if (t->len < KVR_LOG_RECORD - 4) /* room for a quote and the end */
		t->at[t->len++] = c;
}

static void put(struct text *t, const char *s)
{
	while (*s != '\0')
		put_char(t, *s++);
}

/* What others have sent is one line of text, too. */
static char plain(char c)
{
	return c >= ' ' && c <= '~' ? c : '?';
}

/* key=value, in quotes where the value needs them. */
static void pair(struct text *t, const char *key, const char *value, size_t max)
{
	const bool quoted = value[strcspn(value, " \"=\\")] != '\0' || value[0] == '\0';

	if (t->len != 0 && t->at[t->len - 1] != ' ')
		put_char(t, ' ');
	put(t, key);
	put_char(t, '=');
	if (quoted)
		put_char(t, '"');
	for (size_t i = 0; value[i] != '\0' && i < max; i++) {
		if (value[i] == '"' || value[i] == '\\')
			put_char(t, '\\');
		put_char(t, plain(value[i]));
	}
	if (quoted)
		t->at[t->len++] = '"';
}

/* KEY=value and the end of the line. */
static void field(struct text *t, const char *key, const char *value, size_t max)
{
	put(t, key);
	put_char(t, '=');
	for (size_t i = 0; value[i] != '\0' && i < max; i++)
		put_char(t, plain(value[i]));
	put_char(t, '\n');
}

struct writer {
	struct text t;
	bool journal;
};

static void add(struct writer *w, const char *key, const char *journal_key, const char *value,
		size_t max)
{
	if (value == NULL)
		return;
	if (w->journal)
		field(&w->t, journal_key, value, max);
	else
		pair(&w->t, key, value, max);
}

static void add_u64(struct writer *w, const char *key, const char *journal_key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	add(w, key, journal_key, text, VALUE);
}

static void begin(struct writer *w, const char *name, enum kvr_log_sink sink,
		  const struct timespec *now, enum kvr_log_level level)
{
	char time[48], head[96];
	struct tm tm;

	if (w->journal) {
		snprintf(head, sizeof(head), "PRIORITY=%u\nSYSLOG_IDENTIFIER=%s\n", level, name);
		put(&w->t, head);
		return;
	}
	if (sink == KVR_LOG_TO_SYSLOG) {
		localtime_r(&now->tv_sec, &tm);
		strftime(time, sizeof(time), "%b %e %H:%M:%S", &tm);
		snprintf(head, sizeof(head), "<%u>%s %s[%d]: ", DAEMON + level, time, name,
			 (int)getpid());
		put(&w->t, head);
	} else {
		gmtime_r(&now->tv_sec, &tm);
		strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &tm);
		snprintf(head, sizeof(head), "time=%s.%03ldZ", time, now->tv_nsec / 1000000);
		put(&w->t, head);
	}
	pair(&w->t, "level", level_names[level], VALUE);
}

size_t kvr_log_form(char out[KVR_LOG_RECORD], const char *name, enum kvr_log_sink sink,
		    const struct timespec *now, const struct kvr_log_about *a, const char *text,
		    uint64_t left_out, uint64_t dropped)
{
	struct writer w = {.t = {.at = out}, .journal = sink == KVR_LOG_TO_JOURNAL};

	begin(&w, name, sink, now, a->level);
	add(&w, "msg", "MESSAGE", text, KVR_LOG_LINE);
	if (a->worker != NULL)
		add_u64(&w, "worker", "KVROUTE_WORKER", *a->worker);
	add(&w, "pool", "KVROUTE_POOL", a->pool, VALUE);
	add(&w, "port", "KVROUTE_PORT", a->port, VALUE);
	add(&w, "addr", "KVROUTE_ADDR", a->addr, VALUE);
	add(&w, "reason", "KVROUTE_REASON", a->reason, VALUE);
	if (left_out != 0)
		add_u64(&w, "left_out", "KVROUTE_LEFT_OUT", left_out);
	if (dropped != 0)
		add_u64(&w, "dropped", "KVROUTE_DROPPED", dropped);
	out[w.t.len++] = '\n'; /* the journal's record ends with an empty line, of our own */
	return w.t.len;
}

size_t kvr_log_record(enum kvr_log_sink sink, const char *text, size_t len)
{
	const char *end =
		sink == KVR_LOG_TO_JOURNAL ? memmem(text, len, "\n\n", 2) : memchr(text, '\n', len);

	if (end == NULL)
		return len;
	return (size_t)(end - text) + (sink == KVR_LOG_TO_JOURNAL ? 2 : 1);
}

int kvr_log_connect(enum kvr_log_sink sink, const char *path)
{
	const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int err;

	if (path == NULL)
		path = sink == KVR_LOG_TO_SYSLOG ? SYSLOG : JOURNAL;
	snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
		return fd < 0 ? -errno : fd;
	err = errno;
	close(fd);
	return -err;
}

/* JOURNAL_STREAM says which file the service manager has led there: device and inode. */
enum kvr_log_sink kvr_log_auto(int fd, const char *path)
{
	const char *stream = getenv("JOURNAL_STREAM");
	char this[64];
	struct stat st;
	int s;

	if (stream == NULL || fstat(fd, &st) != 0)
		return KVR_LOG_TO_STDERR;
	snprintf(this, sizeof(this), "%" PRIu64 ":%" PRIu64, (uint64_t)st.st_dev,
		 (uint64_t)st.st_ino);
	s = strcmp(stream, this) == 0 ? kvr_log_connect(KVR_LOG_TO_JOURNAL, path) : -1;
	if (s < 0)
		return KVR_LOG_TO_STDERR;
	close(s);
	return KVR_LOG_TO_JOURNAL;
}
