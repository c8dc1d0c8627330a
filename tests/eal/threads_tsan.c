/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations that ThreadSanitizer cannot see: DPDK's own objects are not instrumented, so passing
 * data through a mempool, a ring device or the hash table looks like a race. Here the same
 * operations are instrumented: those of the mempools' rings and of net_ring are compiled in (with
 * the C11 rings, because fences are invisible, too: see tsan.h), and the hash table declares that a
 * reader sees what its writer wrote. No part of the router is excluded.
 */
#include "threads.h"

#ifdef __SANITIZE_THREAD__

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_hash.h>
#include <rte_mempool.h>

void __tsan_acquire(void *addr);
void __tsan_release(void *addr);

/* ---- mempools: all of one kind, see tsan.h ---- */

static int put_objects(struct rte_mempool *mp, void *const *obj, unsigned int n)
{
	return rte_ring_mp_enqueue_bulk(mp->pool_data, obj, n, NULL) == 0 ? -ENOBUFS : 0;
}

static int get_objects(struct rte_mempool *mp, void **obj, unsigned int n)
{
	return rte_ring_mc_dequeue_bulk(mp->pool_data, obj, n, NULL) == 0 ? -ENOBUFS : 0;
}

void threads_show_mempools(void)
{
	const struct rte_mempool_ops *usual = NULL;

	for (uint32_t i = 0; i < rte_mempool_ops_table.num_ops; i++) {
		const struct rte_mempool_ops *ops = &rte_mempool_ops_table.ops[i];

		if (strcmp(ops->name, "ring_mp_mc") == 0)
			usual = ops;
	}
	for (uint32_t i = 0; i < rte_mempool_ops_table.num_ops; i++) {
		struct rte_mempool_ops *ops = &rte_mempool_ops_table.ops[i];

		if (ops != usual && strcmp(ops->name, "ring_mt_rts") != 0)
			continue;
		ops->alloc = usual->alloc;
		ops->enqueue = put_objects;
		ops->dequeue = get_objects;
	}
}

/* ---- net_ring: a queue begins with its ring ---- */

static uint16_t from_ring(void *queue, struct rte_mbuf **m, uint16_t n)
{
	return (uint16_t)rte_ring_dequeue_burst(*(struct rte_ring **)queue, (void **)m, n, NULL);
}

static uint16_t to_ring(void *queue, struct rte_mbuf **m, uint16_t n)
{
	return (uint16_t)rte_ring_enqueue_burst(*(struct rte_ring **)queue, (void **)m, n, NULL);
}

void threads_show_port(uint16_t ethdev)
{
	rte_eth_fp_ops[ethdev].rx_pkt_burst = from_ring;
	rte_eth_fp_ops[ethdev].tx_pkt_burst = to_ring;
}

/* ---- rte_hash ---- */

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int rte_hash_lookup_with_hash_data(const struct rte_hash *h, const void *key, hash_sig_t sig,
				   void **data)
{
	const int rc = REAL(rte_hash_lookup_with_hash_data)(h, key, sig, data);

	__tsan_acquire((void *)(uintptr_t)h);
	return rc;
}

int rte_hash_add_key_with_hash_data(const struct rte_hash *h, const void *key, hash_sig_t sig,
				    void *data)
{
	__tsan_release((void *)(uintptr_t)h);
	return REAL(rte_hash_add_key_with_hash_data)(h, key, sig, data);
}

#else

void threads_show_mempools(void)
{
}

void threads_show_port(uint16_t ethdev)
{
	(void)ethdev;
}

#endif
