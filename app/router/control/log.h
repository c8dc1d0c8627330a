/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_LOG_H
#define ROUTER_LOG_H

/**
 * @file
 * The log: lines with fields on standard error, to syslog or to the journal. A caller puts a line
 * into a ring of LOG_BYTES and continues; a separate thread writes the lines and may block. A line
 * that does not fit is dropped and counted, and the number is logged as soon as there is space.
 * Formats: kvr_log.h.
 *
 * Any thread except packet lcores. RTE_LOG of EAL and drivers ends here as well.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_log.h"
#include "state/counters.h"

#define LOG_BYTES 65536u

/** Begin to write to @p sink and take over RTE_LOG; earlier lines are lost. @p fd is standard error
 * (the log duplicates it). @p path: another socket for syslog and journal, or NULL; valid as long
 * as the log. @p verbose: include lines of EAL and drivers below an error. Main thread. @return 0;
 * -errno: the socket does not exist. */
int log_open(enum kvr_log_sink sink, int fd, const char *path, bool verbose);

/** Include or exclude lines of EAL and drivers below an error. Any thread except packet lcores. */
void log_verbose(bool verbose);

/** Write buffered lines for at most @p ms, and a line about dropped ones. */
void log_flush(unsigned int ms);

/** Log one line. */
void log_line(const struct kvr_log_about *about, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/** Log a line about worker @p key (or another number): LOG_WORKER_BURST at once and then one per
 * second for each key, and LOG_ALL_BURST, then 200 per second for all together. The next line that
 * passes reports the number of suppressed ones. */
#define LOG_WORKER_BURST 10u
#define LOG_ALL_BURST	 400u
void log_worker(uint64_t key, const struct kvr_log_about *about, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

struct log_counts {
	LOG_COUNTER_LIST(KVR_COUNTER_FIELD)
};
void log_counts(struct log_counts *out);

/** Keep lines of EAL and drivers from now on, and show them only if the log is verbose, until
 * log_release(). A repeated call drops the kept lines. Main thread. */
void log_capture(void);
const char *log_captured(void);
void log_release(void);

#endif
