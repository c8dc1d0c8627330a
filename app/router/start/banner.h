/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_BANNER_H
#define ROUTER_BANNER_H

#include <stdint.h>

/**
 * @file
 * Log lines about a completed start: version, mapping of lcores, ports, pools. Main thread.
 */

struct router;

/** Log version, lcores with stages and CPUs, ports, pools, memory, telemetry. A failed start logs
 * one line with the reason instead. */
void banner_log(const struct router *rt);

/** Plural suffix of a noun for @p n. */
static inline const char *plural_suffix(uint32_t n)
{
	return n == 1 ? "" : "s";
}

#endif
