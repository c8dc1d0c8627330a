/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_METRICS_H
#define ROUTER_METRICS_H

/**
 * @file
 * Families in which the counters of the router are exported, one list per table (tables.c). Every
 * counter of a table has a place in exactly one family, unless it is the sum of others.
 */

#include "kvr_metrics.h"

extern const struct kvr_family metrics_ingress[], metrics_log[], metrics_port[], metrics_xdp[],
	metrics_lcore[], metrics_stage[], metrics_reasm[], metrics_pool[], metrics_request[],
	metrics_session[], metrics_sched[], metrics_active[], metrics_flight[], metrics_event[],
	metrics_prefix[];
/** One family with a sample per enum kvr_code; router_reject_stats() has the names. */
const struct kvr_family *metrics_reject(void);

#endif
