/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_TELEMETRY_H
#define ROUTER_TELEMETRY_H

/**
 * @file
 * The /kvroute/ commands on DPDK's telemetry socket. Handlers run on telemetry threads under
 * kvr_telemetry_lock(), which the control thread holds while it works.
 */

#include <stddef.h>

struct router;

int telemetry_start(struct router *rt, char *err, size_t errlen);
void telemetry_stop(struct router *rt);

#endif
