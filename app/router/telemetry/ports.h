/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_PORTS_H
#define ROUTER_PORTS_H

/** @file /kvroute/ports and /kvroute/xdp: devices, their queues and losses, their XDP program. */

#include "router.h"

/** Register the commands. @return 0 or -errno. */
int ports_start(struct router *rt);
void ports_stop(void);

#endif
