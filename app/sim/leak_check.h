/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_REST_H
#define SIM_REST_H

/**
 * @file
 * A router at rest: what must be zero when nobody wants anything of it, and the equations between
 * its counters. What is not so is said on standard error, a line each, and makes the answer false.
 * The thread that runs the router, between two turns.
 */

#include <stdbool.h>

#include "router_rig.h"

/** Do all counters add up? */
bool rest_balanced(const struct router *rt);

/** No request is left: no booking, slot, job, session, buffer. Workers and their blocks may be. */
bool rest_requests(const struct router *rt);

/** The same, and nobody is there: no worker, no block, no packet buffer. Frames that the router has
 * sent have been taken from its devices. */
bool rest_all(const struct box *b);

/** Counters of the router that have been above 0 in any of the routers given. */
#define REST_COUNTERS 512u
struct rest_seen {
	uint32_t n; /* names and marks below this are valid */
	const char *group[REST_COUNTERS], *name[REST_COUNTERS];
	bool seen[REST_COUNTERS];
};
void rest_see(struct rest_seen *seen, const struct router *rt);

#endif
