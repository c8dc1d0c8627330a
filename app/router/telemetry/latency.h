/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_LATENCY_H
#define ROUTER_LATENCY_H

/** @file Histograms of every pool and policy class (sched/request_stats.h) as Prometheus text. */

#include <stdio.h>

struct router;

/** Write the families of the histograms and of the requests by outcome. @return 0, -ENOMEM. */
int latency_write_metrics(struct router *rt, FILE *out);

#endif
