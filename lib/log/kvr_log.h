/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_LOG_H
#define KVR_LOG_H

/**
 * @file
 * Log lines with fields, and their sinks:
 *
 * - standard error: `time=... level=... msg="..." worker=...`, one line;
 * - syslog (RFC 3164, local socket): `<30>Nov 23 05:08:01 kvroute[17]: level=... msg="..." ...`;
 * - journal (its datagram form): `MESSAGE=...`, `PRIORITY=...`, `KVROUTE_WORKER=...`, one per line,
 *   and an empty line.
 *
 * record.c formats lines and has no state; the router writes them from a thread of its own
 * (app/router/control/log.h). line.c is the log of programs whose threads write without blocking:
 * one for the process, any thread.
 */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define KVR_LOG_LINE 512u /* bytes of the message; longer ones are cut */

/*
 * Bytes of a line with its fields, in any form. The message and four fields of 200 bytes take 2,800
 * bytes if every byte is escaped.
 */
#define KVR_LOG_RECORD 4096u

/** Numbers of syslog and the journal. */
enum kvr_log_level { KVR_LOG_ERROR = 3, KVR_LOG_WARNING, KVR_LOG_NOTICE, KVR_LOG_INFO };

/**
 * Values of the option, in this order. AUTO: the journal if standard error leads there, else
 * standard error.
 */
enum kvr_log_sink { KVR_LOG_TO_AUTO, KVR_LOG_TO_STDERR, KVR_LOG_TO_SYSLOG, KVR_LOG_TO_JOURNAL };
#define KVR_LOG_SINKS "auto", "stderr", "syslog", "journal", NULL

/** Fields of a line beside its message; NULL = left out. Read during the call only. */
struct kvr_log_about {
	enum kvr_log_level level;
	const uint64_t *worker;
	const char *pool, *port, *addr, *reason;
};
#define KVR_LOG_ABOUT(...) (&(const struct kvr_log_about){__VA_ARGS__})

/* ---- line.c ---- */

/**
 * Open the log of the program @p name (kept) on @p sink. Standard error is the file @p fd; @p path
 * as for kvr_log_connect(). Before this call, and if it fails, lines go to file descriptor 2.
 * @return 0; -errno: the socket does not exist.
 */
int kvr_log_open(const char *name, enum kvr_log_sink sink, int fd, const char *path);

/**
 * Write one line. Never blocks: a line that the sink does not accept at once is dropped, and the
 * next accepted line is preceded by the number of dropped ones. @p left_out: lines suppressed by
 * the caller's rate limit. Any thread.
 */
void kvr_log_line(const struct kvr_log_about *about, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void kvr_log_vline(const struct kvr_log_about *about, uint64_t left_out, const char *fmt,
		   va_list ap) __attribute__((format(printf, 3, 0)));

/* ---- record.c ---- */

/**
 * Format the line @p text of the program @p name with the fields @p a into @p out. @p left_out:
 * lines suppressed by a rate limit before this one; @p dropped: lines lost for lack of room; 0 =
 * none. Bytes other than printable ASCII become '?'.
 * @return length, at most KVR_LOG_RECORD.
 */
size_t kvr_log_form(char out[KVR_LOG_RECORD], const char *name, enum kvr_log_sink sink,
		    const struct timespec *now, const struct kvr_log_about *a, const char *text,
		    uint64_t left_out, uint64_t dropped);

/** Length of the first record in @p len bytes of @p text, its end included. */
size_t kvr_log_record(enum kvr_log_sink sink, const char *text, size_t len);

/**
 * Connect to the socket of @p sink: @p path, or the host's default if NULL.
 * @return the socket; -errno.
 */
int kvr_log_connect(enum kvr_log_sink sink, const char *path);

/**
 * Resolve KVR_LOG_TO_AUTO: the journal if file @p fd leads to it and its socket exists, else
 * standard error.
 */
enum kvr_log_sink kvr_log_auto(int fd, const char *path);

#endif
