/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_STOP_DP_H
#define ROUTER_STOP_DP_H

/**
 * @file
 * The end of a router in good order, on the scheduler lcore of each pool, whose words it writes;
 * control calls it there. Budget: STOP_SLICE slots a turn.
 */

#include "router.h"

/** struct call functions. */

/** @p arg = struct pool: waiting requests are refused, and from now on all new ones. */
void stop_admission(struct lcore *lc, void *arg);

/** A pool whose requests are cut off, STOP_SLICE slots a turn of its lcore. */
#define STOP_SLICE 64u
struct stop_cut {
	struct pool *pool;
	uint32_t from;
	uint32_t cut; /* out: requests that were live */
	struct call call;
};

/** @p arg = struct stop_cut: all its requests end with Shutdown, their workers are told. */
bool stop_cut(struct lcore *lc, void *arg);

#endif
