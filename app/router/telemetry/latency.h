/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_LATENCY_H
#define ROUTER_LATENCY_H

/** @file Histograms of every pool and policy class (sched/measure.h) as OpenMetrics text. */

#include <stdio.h>

struct router;

/** Their families, with the names that dashboards know, and requests by ending. @return 0, -ENOMEM.
 */
int latency_openmetrics(struct router *rt, FILE *out);

#endif
