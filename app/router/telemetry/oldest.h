/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_TEL_OLDEST_H
#define ROUTER_TEL_OLDEST_H

/**
 * @file
 * The oldest requests in flight of a pool, for people: a walk over its slots by the scheduler
 * lcore, which alone may read them, 32 slots a turn (two lines each, that nobody has fetched).
 *
 * The telemetry thread owns struct oldest before and after the call, the lcore in between.
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
	uint64_t worker; /* only what is there */
	bool of_worker;
	uint32_t at;			  /* next slot */
	uint32_t n, live;		  /* kept; in use of those seen */
	uint64_t now_ns;		  /* the lcore's clock at the end */
	struct oldest_one v[OLDEST_KEPT]; /* oldest first */
};

/** A part of the walk, as struct call wants it; @p arg is a struct oldest. Scheduler lcore. */
bool oldest_walk(struct lcore *lc, void *arg);

#endif
