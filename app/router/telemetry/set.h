/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SET_H
#define ROUTER_SET_H

/** @file /kvroute/set: change a key at run time. */

struct rte_tel_data;

/** The handler of the command; @p arg is the router. */
int cmd_set(void *arg, const char *params, struct rte_tel_data *d);

#endif
