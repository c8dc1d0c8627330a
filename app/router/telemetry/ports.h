/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_PORTS_H
#define ROUTER_PORTS_H

/** @file /kvroute/ports and /kvroute/xdp: devices, queues, losses, XDP programs. */

#include "state/router.h"

struct rte_tel_data;

/** Add a dictionary "losses_PORT" per port with frames offered and lost, as terms of the balance.
 * @return frames lost in total. Control thread. */
uint64_t ports_losses(struct router *rt, struct rte_tel_data *d);

/** Register the commands. @return 0 or -errno. */
int ports_start(struct router *rt);
void ports_stop(void);

#endif
