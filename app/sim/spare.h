/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_SPARE_H
#define SIM_SPARE_H

/**
 * @file
 * Pools of packet buffers, from one router to the next. The thread that runs the world.
 */

#include <stdint.h>

struct rte_mempool;
/** A pool of packet buffers of this kind that was given back; NULL: none. */
struct rte_mempool *spare_take(unsigned int n, unsigned int cache, uint16_t priv, uint16_t room,
			       int socket);
/** @p mp has been made so: when it is freed it waits for spare_take(). */
void spare_note(struct rte_mempool *mp, unsigned int n, unsigned int cache, uint16_t priv,
		uint16_t room, int socket);

#endif
