/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_RINGS_H
#define KVR_RINGS_H

/**
 * @file
 * Rings and mempools that several lcores fill. DPDK's usual ones are not for lcores that share a
 * CPU: one that the kernel puts aside in the midst of a call keeps the others spinning for the rest
 * of their time slices, as each waits until all that began before it have ended. Where the EAL has
 * such lcores (--lcores 1@0,2@0), rings are of the kind that waits for nobody (RTS): what was put
 * behind the one that is aside is taken when that one has gone on, and when all places are behind
 * it the ring is full. A pool has room for all its objects however much is behind: who takes from
 * it waits before there is none. Else they are the usual ones, which cost less.
 *
 * Once the EAL is there. Any thread.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mempool.h>
#include <rte_ring.h>

/** Do two of the EAL's worker lcores have a CPU in common? */
bool kvr_rings_cpus_shared(void);

/** A ring of @p count places, a power of two, one of which stays empty, for elements of @p size
 * bytes, that any lcore fills and one empties; who fills it must use a call that goes by the kind
 * of the ring, like rte_ring_enqueue(), and none with `mp` in its name. @return NULL with
 * rte_errno. */
struct rte_ring *kvr_rings_create(const char *name, unsigned int size, unsigned int count,
				  int socket);

/** A pool of packet buffers of @p room bytes, headroom included, that any lcore takes and gives
 * back. @return NULL with rte_errno. */
struct rte_mempool *kvr_rings_mbufs(const char *name, unsigned int n, unsigned int cache,
				    uint16_t room, int socket);

/** A pool of objects that any lcore takes and gives back; @p init, unless it is NULL, is called
 * for each. @return NULL with rte_errno. */
struct rte_mempool *kvr_rings_pool(const char *name, unsigned int n, unsigned int size,
				   unsigned int cache, rte_mempool_obj_cb_t *init);

/** The same, where the usual ones are DPDK's mempool ops @p usual: for who is alone on a side. */
struct rte_mempool *kvr_rings_mbufs_as(const char *usual, const char *name, unsigned int n,
				       unsigned int cache, uint16_t room, int socket);
struct rte_mempool *kvr_rings_pool_as(const char *usual, const char *name, unsigned int n,
				      unsigned int size, unsigned int cache,
				      rte_mempool_obj_cb_t *init);

/** Bytes of the ring of a pool of @p n, where CPUs are @p shared or not. Needs no EAL. */
uint64_t kvr_rings_pool_bytes(unsigned int n, bool shared);

#endif
