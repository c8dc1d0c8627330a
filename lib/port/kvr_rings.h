/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_RINGS_H
#define KVR_RINGS_H

/**
 * @file
 * Rings and mempools with several producers. DPDK's default rings are unsuitable for lcores that
 * share a CPU: if the kernel suspends an lcore inside a call, the others spin for the rest of their
 * time slices, because each waits for all calls that began before its own. If the EAL has such
 * lcores (--lcores 1@0,2@0), rings use RTS mode, in which a producer does not wait for others:
 * elements behind a suspended producer are readable once that one continues, and the ring is full
 * when all places are behind it. A pool keeps room for all its objects; a get waits before there is
 * none. Otherwise the default, cheaper kind is used.
 *
 * After EAL initialisation. Any thread.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mempool.h>
#include <rte_ring.h>

/** True if two worker lcores of the EAL have a CPU in common. */
bool kvr_rings_cpus_shared(void);

/**
 * Create a ring of @p count places (a power of two; one stays empty) for elements of @p size bytes,
 * with any number of producers and one consumer. Producers must use calls that follow the kind of
 * the ring, like rte_ring_enqueue(), and none with `mp` in its name. @return NULL with rte_errno.
 */
struct rte_ring *kvr_rings_create(const char *name, unsigned int size, unsigned int count,
				  int socket);

/**
 * Create a pool of packet buffers of @p room bytes, headroom included, for any lcore. @return NULL
 * with rte_errno.
 */
struct rte_mempool *kvr_rings_mbufs(const char *name, unsigned int n, unsigned int cache,
				    uint16_t room, int socket);

/**
 * Create a pool of objects for any lcore. @p init (may be NULL) is called for each object. @return
 * NULL with rte_errno.
 */
struct rte_mempool *kvr_rings_pool(const char *name, unsigned int n, unsigned int size,
				   unsigned int cache, rte_mempool_obj_cb_t *init);

/**
 * The same with DPDK's mempool ops @p usual in place of the default kind, for pools with a single
 * producer or consumer.
 */
struct rte_mempool *kvr_rings_mbufs_as(const char *usual, const char *name, unsigned int n,
				       unsigned int cache, uint16_t room, int socket);
struct rte_mempool *kvr_rings_pool_as(const char *usual, const char *name, unsigned int n,
				      unsigned int size, unsigned int cache,
				      rte_mempool_obj_cb_t *init);

/** Bytes of the ring of a pool of @p n objects, with @p shared CPUs or not. Needs no EAL. */
uint64_t kvr_rings_pool_bytes(unsigned int n, bool shared);

#endif
