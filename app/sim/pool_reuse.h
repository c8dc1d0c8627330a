/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_SPARE_H
#define SIM_SPARE_H

/**
 * @file
 * Pools, from one router to the next. The thread that runs the world, or a test.
 */

#include <stdint.h>

#include <rte_mempool.h>

/** What a pool was made with. */
struct spare_shape {
	const char *ops; /* of packet buffers; constant text, or NULL */
	rte_mempool_obj_cb_t *init;
	unsigned int n, size, cache, priv;
	int socket;
};

/** A pool of this kind that was given back; NULL: none. */
struct rte_mempool *spare_take(const struct spare_shape *want);
/** @p mp has been made so: when it is freed it waits for spare_take(). */
void spare_note(struct rte_mempool *mp, const struct spare_shape *shape);

#endif
