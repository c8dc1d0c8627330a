/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_DECISIONS_H
#define ROUTER_DECISIONS_H

/** @file The /kvroute/ commands about decisions of schedulers, registered by telemetry_start(). */

struct decision;
struct router;
struct rte_tel_data;

/** Terms of the best ranks as a dictionary by number; NULL: no memory. */
struct rte_tel_data *decision_terms(const struct decision *v);

int decisions_start(struct router *rt);
void decisions_stop(void);

#endif
