/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_PORTS_H
#define ROUTER_PORTS_H

/** @file /kvroute/ports and /kvroute/xdp: devices, their queues and losses, their XDP program. */

#include "state/router.h"

struct rte_tel_data;

/** What devices and rings of the ports had and lost, as terms of the balance: a dictionary
 * "losses_PORT" for each. @return frames lost in all. Control thread. */
uint64_t ports_losses(struct router *rt, struct rte_tel_data *d);

/** Register the commands. @return 0 or -errno. */
int ports_start(struct router *rt);
void ports_stop(void);

#endif
