/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_TEL_OLDEST_H
#define ROUTER_TEL_OLDEST_H

/**
 * @file
 * The oldest requests in flight of a pool: the scheduler lcore, which alone may read slots, walks
 * them, 32 a turn (two cache lines each, not prefetched). struct oldest belongs to the telemetry
 * thread before and after the call, and to the lcore during it.
 */

#include <stdbool.h>
#include <stdint.h>

#define OLDEST_KEPT 16u

struct lcore;
struct pool;

struct oldest_one {
	uint64_t id, source;
	uint64_t arrival_ns;
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t tokens; /* generated, as reported */
	uint8_t state;	 /* enum kvr_rq_state */
	uint8_t leg;	 /* enum kvr_leg_id */
	bool has_worker, booked;
};

struct oldest {
	const struct pool *p;
	uint64_t worker; /* only requests of this worker, if set */
	bool of_worker;
	uint32_t at;			  /* next slot */
	uint32_t n, live;		  /* entries kept; slots in use among those visited */
	uint64_t now_ns;		  /* the lcore's clock at the end */
	struct oldest_one v[OLDEST_KEPT]; /* oldest first */
};

/** Part of the walk; function of a struct call with a struct oldest as @p arg. Scheduler lcore. */
bool oldest_walk(struct lcore *lc, void *arg);

#endif
