/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_REFERENCE_H
#define CTL_REFERENCE_H

/**
 * @file
 * Gauges with the names of the reference system's front end and registry, from a sample (sample.h):
 * queues, load and last times of each rank, workers. The router exports the other metrics of that
 * system; app/router/telemetry/COMMANDS.md lists both, and those without a meaning here.
 */

#include <jansson.h>
#include <stdio.h>

/** Write the families of @p sample as Prometheus text. Without workers, or without a sample (NULL),
 * they have no samples. */
void reference_write(const json_t *sample, FILE *out);

#endif
