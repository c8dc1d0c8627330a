/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_STOP_DP_H
#define ROUTER_STOP_DP_H

/**
 * @file
 * The end of a router in good order, on the scheduler lcore of each pool; control calls it there.
 */

#include "router.h"

/** struct call functions. */

/** @p arg = struct pool: waiting requests are refused, and from now on all new ones. */
void stop_admission(struct lcore *lc, void *arg);

/** A part of a pool's request slots; STOP_SLICE of them at a time. */
#define STOP_SLICE 64u
struct stop_slice {
	struct pool *pool;
	uint32_t from;
	uint32_t cut; /* out: requests that were live */
};

/** @p arg = struct stop_slice: the requests in these slots end with Shutdown, their workers are
 * told. */
void stop_cut(struct lcore *lc, void *arg);

#endif
