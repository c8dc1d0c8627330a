/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_REFERENCE_H
#define CTL_REFERENCE_H

/**
 * @file
 * Gauges under the names that the reference system's front end and registry have, made from a look
 * at the router (snap.h): what waits, each rank's load and last times, the workers. The router's
 * own text has the other metrics of that system; app/router/telemetry/COMMANDS.md lists both, and
 * what has no meaning here.
 */

#include <jansson.h>
#include <stdio.h>

/** Write the families of @p snap as Prometheus text; those without a worker, or of no look (NULL),
 * are empty. */
void reference_put(const json_t *snap, FILE *out);

#endif
