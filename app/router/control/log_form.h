/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_LOG_FORM_H
#define ROUTER_LOG_FORM_H

/**
 * @file
 * The three forms of a line of the log, and where each goes. No state; any thread but packet
 * lcores.
 *
 * - standard error: `time=... level=... msg="..." worker=...`, one line;
 * - syslog (RFC 3164, the local socket): `<30>Nov 23 05:08:01 kvroute[17]: level=... msg="..."
 * ...`;
 * - journal (its datagram form): `MESSAGE=...`, `PRIORITY=...`, `KVROUTE_WORKER=...`, a line each,
 *   and an empty one.
 */

#include "control/log.h"

#include <time.h>

/* A line with its fields, in any form: the message and four fields of 200 bytes, every one of them
 * escaped, are 2,800. */
#define LOG_RECORD 4096u

/**
 * Write the line @p text about @p a into @p out; @p left_out: lines that a limit has left out
 * before it, @p dropped: those that found no room, 0: none. What is no printable ASCII becomes '?'.
 * @return its length, at most LOG_RECORD.
 */
size_t log_form(char out[LOG_RECORD], enum log_sink sink, const struct timespec *now,
		const struct log_about *a, const char *text, uint64_t left_out, uint64_t dropped);

/** Length of the record at the begin of the @p len bytes of @p text: up to and with its end. */
size_t log_form_record(enum log_sink sink, const char *text, size_t len);

/**
 * Connect to the socket of @p sink: @p path, or where it is on this host.
 * @return the socket; -errno.
 */
int log_connect(enum log_sink sink, const char *path);

/** What LOG_TO_AUTO is: the journal when file @p fd leads to it and it is there, else standard
 * error. */
enum log_sink log_auto(int fd, const char *path);

#endif
