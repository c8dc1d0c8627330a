/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SOURCES_H
#define ROUTER_SOURCES_H

/** @file /kvroute/sources: who uses the router most, and what was refused to whom. */

#include "state/router.h"

/** Register the command. @return 0 or -errno. */
int sources_start(struct router *rt);
void sources_stop(void);

#endif
