/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_SAMPLE_H
#define CTL_SAMPLE_H

/**
 * @file
 * Sample of a router: one JSON object with the answers of its read commands, by their names without
 * "/kvroute/" ("pools", "workers", ...). More members:
 *
 *	at      seconds of this host's monotonic clock, before the first command
 *	info_at the same, after the answer of "info"
 *	host    times of the polling threads from the kernel: {"TID": {name, run_ms, wait_ms}}; only
 *	        on the router's own host
 *	sched   /kvroute/counters,sched of every pool, by its name
 *	decisions, loads, queue, events, hits, latency, oldest, buckets   likewise
 *
 * An answer is missing if the router does not know the command or rejects it. top, doctor and the
 * exporter compare two samples.
 */

#include <jansson.h>
#include <stdint.h>

#include "telemetry.h"

/** Take a sample. @return the object, or NULL with one line in @p err: connection lost. */
json_t *sample_take(struct tel *t, char *err, size_t errlen);

/** @return the member at the end of a path of names, which ends with NULL; or NULL. */
const json_t *sample_get(const json_t *sample, ...) __attribute__((sentinel));

/** @return a number or a text as a number; 0 for anything else. */
double sample_to_number(const json_t *v);

/** @return a 64-bit number from a text such as "0x3e9"; 0 for anything else. */
uint64_t sample_to_id(const json_t *v);

#endif
