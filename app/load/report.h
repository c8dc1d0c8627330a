/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_REPORT_H
#define LOAD_REPORT_H

/**
 * @file
 * Output of a run: a line per second, and the result as a table or as one JSON object. Main thread.
 */

#include <stdio.h>

#include "load.h"

/** Counters at the last line, for rates. */
struct load_progress {
	uint64_t last[LOAD_COUNTERS];
	uint64_t tsc;
	uint64_t began;
};

/** Print one line about the time since the last call. */
void load_report_progress(struct load_progress *p, const struct load *l, FILE *out);

/** The result as a table. The load lcore has ended. */
void load_report_table(const struct load *l, FILE *out);

/** The result as one line of JSON. */
void load_report_json(const struct load *l, FILE *out);

#endif
