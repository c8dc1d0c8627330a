/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_STOP_H
#define ROUTER_STOP_H

/**
 * @file
 * The orderly end of a router on the scheduler lcore of each pool, called by control. Budget:
 * STOP_SLICE slots a turn.
 */

#include "state/router.h"

/** Progress through all requests of a pool: STOP_SLICE slots a turn, 3 to 7 us each. */
#define STOP_SLICE 8u
struct stop_part {
	struct pool *pool;
	uint64_t worker; /* stop_worker */
	uint32_t from;
	uint32_t n; /* out: requests that were ended */
	struct call call;
};

/* Functions for `call`; their argument is the struct stop_part. */

/** Reject waiting requests, and from the first turn on all new ones. */
bool stop_admission(struct lcore *lc, void *arg);

/** End all requests with Shutdown and abort them at their workers. */
bool stop_cut(struct lcore *lc, void *arg);

/** End the requests at `worker` of this pool with WorkerLost, so that clients may retry. At most
 * STOP_LOOK slots are visited in a turn. */
#define STOP_LOOK 256u
bool stop_worker(struct lcore *lc, void *arg);

#endif
