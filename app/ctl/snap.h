/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_SNAP_H
#define CTL_SNAP_H

/**
 * @file
 * A look at a whole router: one JSON object with the answers of the commands that tell how it is,
 * by their names without "/kvroute/" ("pools", "workers", ...), with
 *
 *	at      seconds of this host's monotonic clock, before the first question
 *	info_at the same, when "info" had been answered
 *	host    what the kernel says of the polling threads: {"TID": {name, run_ms, wait_ms}}; only
 *	        on the router's own host
 *	sched   /kvroute/counters,sched of every pool, by its name
 *	decisions, loads, queue, events, hits, latency, oldest, buckets   in the same way
 *
 * A command that the router does not know, or refuses, is left out. What top, doctor and the
 * exporter say is a function of two of these.
 */

#include <jansson.h>
#include <stdint.h>

#include "tel.h"

/** Look. @return the object, or NULL with one line in @p err: the connection is gone. */
json_t *snap_take(struct tel *t, char *err, size_t errlen);

/** The member at the end of a path of names that ends with NULL, or NULL. */
const json_t *snap_at(const json_t *snap, ...) __attribute__((sentinel));

/** A number, also when it is told as text; 0 for anything else. */
double snap_number(const json_t *v);

/** A number of 64 bits, which is told as text ("0x3e9"); 0 for anything else. */
uint64_t snap_id(const json_t *v);

#endif
