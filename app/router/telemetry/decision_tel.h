/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_DECISION_TEL_H
#define ROUTER_DECISION_TEL_H

/**
 * @file
 * The /kvroute/ commands about what schedulers have decided, registered by telemetry_start().
 */

struct router;

int decision_tel_start(struct router *rt);
void decision_tel_stop(void);

#endif
