/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_LOG_H
#define KVR_LOG_H

/**
 * @file
 * Lines of a log with fields, and where they go:
 *
 * - standard error: `time=... level=... msg="..." worker=...`, one line;
 * - syslog (RFC 3164, the local socket): `<30>Nov 23 05:08:01 kvroute[17]: level=... msg="..."
 * ...`;
 * - journal (its datagram form): `MESSAGE=...`, `PRIORITY=...`, `KVROUTE_WORKER=...`, a line each,
 *   and an empty one.
 *
 * form.c makes them and has no state; the router writes them with a thread of its own
 * (app/router/control/log.h). line.c is the log of programs whose threads write themselves and do
 * not wait either: one for the process, any thread.
 */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define KVR_LOG_LINE 512u /* bytes of the message; longer ones are cut */

/* A line with its fields, in any form: the message and four fields of 200 bytes, every one of them
 * escaped, are 2,800. */
#define KVR_LOG_RECORD 4096u

/** The numbers of syslog and the journal. */
enum kvr_log_level { KVR_LOG_ERROR = 3, KVR_LOG_WARNING, KVR_LOG_NOTICE, KVR_LOG_INFO };

/** Values of the option, in this order. AUTO: the journal when it has standard error, else that. */
enum kvr_log_sink { KVR_LOG_TO_AUTO, KVR_LOG_TO_STDERR, KVR_LOG_TO_SYSLOG, KVR_LOG_TO_JOURNAL };
#define KVR_LOG_SINKS "auto", "stderr", "syslog", "journal", NULL

/** What a line is about: fields beside its message; NULL: left out. Read during the call. */
struct kvr_log_about {
	enum kvr_log_level level;
	const uint64_t *worker;
	const char *pool, *port, *addr, *reason;
};
#define KVR_LOG_ABOUT(...) (&(const struct kvr_log_about){__VA_ARGS__})

/* ---- line.c ---- */

/**
 * From now on kvr_log_line() writes as the program @p name (kept) to @p sink: standard error is the
 * file @p fd; @p path as for kvr_log_connect(). Before that, and when this fails, to file 2.
 * @return 0; -errno: the socket is not there.
 */
int kvr_log_open(const char *name, enum kvr_log_sink sink, int fd, const char *path);

/** One line. What nobody takes at once is dropped; the next line that is taken is preceded by their
 * number. @p left_out: lines that a limit of the caller's has left out. Any thread. */
void kvr_log_line(const struct kvr_log_about *about, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void kvr_log_vline(const struct kvr_log_about *about, uint64_t left_out, const char *fmt,
		   va_list ap) __attribute__((format(printf, 3, 0)));

/* ---- form.c ---- */

/**
 * Write the line @p text of the program @p name about @p a into @p out; @p left_out: lines that a
 * limit has left out before it, @p dropped: those that found no room, 0: none. What is no printable
 * ASCII becomes '?'.
 * @return its length, at most KVR_LOG_RECORD.
 */
size_t kvr_log_form(char out[KVR_LOG_RECORD], const char *name, enum kvr_log_sink sink,
		    const struct timespec *now, const struct kvr_log_about *a, const char *text,
		    uint64_t left_out, uint64_t dropped);

/** Length of the record at the begin of the @p len bytes of @p text: up to and with its end. */
size_t kvr_log_record(enum kvr_log_sink sink, const char *text, size_t len);

/**
 * Connect to the socket of @p sink: @p path, or where it is on this host.
 * @return the socket; -errno.
 */
int kvr_log_connect(enum kvr_log_sink sink, const char *path);

/** What KVR_LOG_TO_AUTO is: the journal when file @p fd leads to it and it is there, else standard
 * error. */
enum kvr_log_sink kvr_log_auto(int fd, const char *path);

#endif
