/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SOURCES_H
#define ROUTER_SOURCES_H

/** @file /kvroute/sources: the busiest sources, and rejections by source. */

#include "state/router.h"

/** Register the command. @return 0 or -errno. */
int sources_start(struct router *rt);
void sources_stop(void);

#endif
