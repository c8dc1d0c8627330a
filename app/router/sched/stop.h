/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_STOP_DP_H
#define ROUTER_STOP_DP_H

/**
 * @file
 * The end of a router in good order, on the scheduler lcore of each pool, whose words it writes;
 * control calls it there. Budget: STOP_SLICE slots a turn.
 */

#include "state/router.h"

/** What is done to all requests of a pool, STOP_SLICE slots a turn of its lcore: 3 to 7 us each. */
#define STOP_SLICE 8u
struct stop_part {
	struct pool *pool;
	uint64_t worker; /* stop_worker */
	uint32_t from;
	uint32_t n; /* out: requests that have ended with it */
	struct call call;
};

/* Functions of `call`; its argument is the part. */

/** Waiting requests are refused, and from its first turn on all new ones. */
bool stop_admission(struct lcore *lc, void *arg);

/** All its requests end with Shutdown, their workers are told. */
bool stop_cut(struct lcore *lc, void *arg);

/** Those at `worker`, of this pool, end with WorkerLost, which clients may send again; STOP_LOOK
 * slots are looked at in a turn. */
#define STOP_LOOK 256u
bool stop_worker(struct lcore *lc, void *arg);

#endif
