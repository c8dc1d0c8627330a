/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_POOL_REUSE_H
#define SIM_POOL_REUSE_H

/**
 * @file
 * Memory pools, reused from one router to the next. Thread: the one that runs the world, or a test.
 */

#include <stdint.h>

#include <rte_mempool.h>

/** Parameters of a pool. */
struct pool_shape {
	const char *ops; /* of packet buffers; constant text, or NULL */
	rte_mempool_obj_cb_t *init;
	unsigned int n, size, cache, priv;
	int socket;
};

/** A freed pool of this shape; NULL: none. */
struct rte_mempool *pool_reuse_take(const struct pool_shape *want);
/** Register @p mp, so that it can be reused after it is freed. */
void pool_reuse_note(struct rte_mempool *mp, const struct pool_shape *shape);

#endif
