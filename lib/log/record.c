/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Format one record for each kind of sink. No state, no allocation; fields are bounded, so that a
 * record always fits KVR_LOG_RECORD.
 */
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
#define VALUE	200u /* bytes of a field; msg has KVR_LOG_LINE */

struct text {
	char *at;
	size_t len;
};

static const char *const level_names[] = {[KVR_LOG_ERROR] = "error",
					  [KVR_LOG_WARNING] = "warning",
					  [KVR_LOG_NOTICE] = "notice",
					  [KVR_LOG_INFO] = "info"};

static void put_char(struct text *text, char c)
{
	if (text->len < KVR_LOG_RECORD - 4) /* leave room for a quote and the end */
		text->at[text->len++] = c;
}

static void put_text(struct text *text, const char *s)
{
	while (*s != '\0')
		put_char(text, *s++);
}

/* Text from the network stays one line of printable ASCII. */
static char mask_char(char c)
{
	return c >= ' ' && c <= '~' ? c : '?';
}

/* key=value, quoted if the value needs it. */
static void put_pair(struct text *text, const char *key, const char *value, size_t max)
{
	const bool quoted = value[strcspn(value, " \"=\\")] != '\0' || value[0] == '\0';

	if (text->len != 0 && text->at[text->len - 1] != ' ')
		put_char(text, ' ');
	put_text(text, key);
	put_char(text, '=');
	if (quoted)
		put_char(text, '"');
	for (size_t i = 0; value[i] != '\0' && i < max; i++) {
		if (value[i] == '"' || value[i] == '\\')
			put_char(text, '\\');
		put_char(text, mask_char(value[i]));
	}
	if (quoted)
		text->at[text->len++] = '"';
}

/* KEY=value and a newline. */
static void put_journal_field(struct text *text, const char *key, const char *value, size_t max)
{
	put_text(text, key);
	put_char(text, '=');
	for (size_t i = 0; value[i] != '\0' && i < max; i++)
		put_char(text, mask_char(value[i]));
	put_char(text, '\n');
}

struct writer {
	struct text t;
	bool journal;
};

static void add_field(struct writer *writer, const char *key, const char *journal_key,
		      const char *value, size_t max)
{
	if (value == NULL)
		return;
	if (writer->journal)
		put_journal_field(&writer->t, journal_key, value, max);
	else
		put_pair(&writer->t, key, value, max);
}

static void add_u64(struct writer *writer, const char *key, const char *journal_key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	add_field(writer, key, journal_key, text, VALUE);
}

static void begin_record(struct writer *writer, const char *name, enum kvr_log_sink sink,
			 const struct timespec *now, enum kvr_log_level level)
{
	char time[48], head[96];
	struct tm tm;

	if (writer->journal) {
		snprintf(head, sizeof(head), "PRIORITY=%u\nSYSLOG_IDENTIFIER=%s\n", level, name);
		put_text(&writer->t, head);
		return;
	}
	if (sink == KVR_LOG_TO_SYSLOG) {
		localtime_r(&now->tv_sec, &tm);
		strftime(time, sizeof(time), "%b %e %H:%M:%S", &tm);
		snprintf(head, sizeof(head), "<%u>%s %s[%d]: ", DAEMON + level, time, name,
			 (int)getpid());
		put_text(&writer->t, head);
	} else {
		gmtime_r(&now->tv_sec, &tm);
		strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &tm);
		snprintf(head, sizeof(head), "time=%s.%03ldZ", time, now->tv_nsec / 1000000);
		put_text(&writer->t, head);
	}
	put_pair(&writer->t, "level", level_names[level], VALUE);
}

size_t kvr_log_form(char out[KVR_LOG_RECORD], const char *name, enum kvr_log_sink sink,
		    const struct timespec *now, const struct kvr_log_about *a, const char *text,
		    uint64_t left_out, uint64_t dropped)
{
	struct writer w = {.t = {.at = out}, .journal = sink == KVR_LOG_TO_JOURNAL};

	begin_record(&w, name, sink, now, a->level);
	add_field(&w, "msg", "MESSAGE", text, KVR_LOG_LINE);
	if (a->worker != NULL)
		add_u64(&w, "worker", "KVROUTE_WORKER", *a->worker);
	add_field(&w, "pool", "KVROUTE_POOL", a->pool, VALUE);
	add_field(&w, "port", "KVROUTE_PORT", a->port, VALUE);
	add_field(&w, "addr", "KVROUTE_ADDR", a->addr, VALUE);
	add_field(&w, "reason", "KVROUTE_REASON", a->reason, VALUE);
	if (left_out != 0)
		add_u64(&w, "left_out", "KVROUTE_LEFT_OUT", left_out);
	if (dropped != 0)
		add_u64(&w, "dropped", "KVROUTE_DROPPED", dropped);
	out[w.t.len++] =
		'\n'; /* a record of the journal ends with an empty line (our own framing) */
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

/* JOURNAL_STREAM is device:inode of the file that the service manager connected to the journal. */
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
