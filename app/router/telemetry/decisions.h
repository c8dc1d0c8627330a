/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_DECISIONS_H
#define ROUTER_DECISIONS_H

/**
 * @file
 * The /kvroute/ commands about what schedulers have decided, registered by telemetry_start().
 */

struct router;

int decisions_start(struct router *rt);
void decisions_stop(void);

#endif
