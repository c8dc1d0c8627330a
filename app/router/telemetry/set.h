/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SET_H
#define ROUTER_SET_H

/** @file /kvroute/set: keys that take another value while the router runs. */

struct rte_tel_data;

/** The handler of the command; @p arg is the router. */
int cmd_set(void *arg, const char *params, struct rte_tel_data *d);

#endif
