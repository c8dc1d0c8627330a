/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_BANNER_H
#define ROUTER_BANNER_H

#include <stdint.h>

/** @file What the log says of a start: what runs where. Main thread. */

struct router;

/** After the start: version, lcores with their stages and CPUs, ports, pools, memory, telemetry. A
 * start that fails is one line, its reason. */
void banner(const struct router *rt);

/** The end of a noun behind @p n. */
static inline const char *plural(uint32_t n)
{
	return n == 1 ? "" : "s";
}

#endif
