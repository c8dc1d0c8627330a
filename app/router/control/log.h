/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_LOG_H
#define ROUTER_LOG_H

/**
 * @file
 * The log: lines with fields, on standard error, to syslog or to the journal. Whoever writes one
 * puts it into a ring of LOG_BYTES and goes on; a thread of its own writes them out, and may stand
 * still as long as it likes. A line that finds no room is dropped and counted, and the count is a
 * line as soon as there is room again. The forms: kvr_log.h.
 *
 * Any thread but packet lcores. RTE_LOG of EAL and drivers ends here, too.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_log.h"
#include "state/counters.h"

#define LOG_BYTES 65536u

/**
 * Begin to write to @p sink and take over RTE_LOG. Before that, lines are lost. @p fd is standard
 * error (the log keeps a copy of its own). @p path: another socket than the host's for syslog and
 * journal, or NULL; it lives as long as the log. @p verbose: lines of EAL and drivers below an
 * error, too. Main thread. @return 0; -errno: the socket is not there.
 */
int log_open(enum kvr_log_sink sink, int fd, const char *path, bool verbose);

/** From now on lines of EAL and drivers below an error are shown, or not. Any thread but packet
 * lcores. */
void log_verbose(bool verbose);

/** Write what is there, for at most @p ms, and one line about what was dropped. */
void log_flush(unsigned int ms);

/** One line. */
void log_line(const struct kvr_log_about *about, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/**
 * A line about the worker @p key (or another thing with a number): at most LOG_WORKER_BURST at once
 * and then one a second for each, and LOG_ALL_BURST, then 200 a second for all of them together.
 * The next line that passes says how many were left out.
 */
#define LOG_WORKER_BURST 10u
#define LOG_ALL_BURST	 400u
void log_worker(uint64_t key, const struct kvr_log_about *about, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

struct log_counts {
	LOG_COUNTER_LIST(KVR_COUNTER_FIELD)
};
void log_counts(struct log_counts *out);

/**
 * From now on lines of EAL and drivers are kept, and not shown unless the log is verbose, until
 * log_release(). Calling it again forgets what was kept. Main thread.
 */
void log_capture(void);
const char *log_captured(void);
void log_release(void);

#endif
