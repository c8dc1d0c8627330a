/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_REFUSED_H
#define ROUTER_REFUSED_H

struct rte_tel_data;

/** Telemetry command: the workers whose newest HELLO was refused, with code, words and address. */
int refused_list(void *arg, const char *params, struct rte_tel_data *d);

#endif
