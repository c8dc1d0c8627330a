/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_REFUSED_H
#define ROUTER_REFUSED_H

struct rte_tel_data;

/** Telemetry command: workers whose last HELLO was rejected, with code, text and address. */
int rejected_hellos(void *arg, const char *params, struct rte_tel_data *d);

#endif
