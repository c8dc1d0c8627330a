/* SPDX-License-Identifier: BSD-3-Clause */
/* Rings and mempools for lcores that may share CPUs; see kvr_rings.h. */
#include "kvr_rings.h"

#include <errno.h>
#include <stdio.h>

#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

bool kvr_rings_cpus_shared(void)
{
	unsigned int lcore;
	cpu_set_t seen, both;

	CPU_ZERO(&seen);
	RTE_LCORE_FOREACH_WORKER (lcore) {
		cpu_set_t mine = rte_lcore_cpuset(lcore);

		CPU_AND(&both, &seen, &mine);
		if (CPU_COUNT(&both) > 0)
			return true;
		CPU_OR(&seen, &seen, &mine);
	}
	return false;
}

/*
 * Let an lcore that fills the ring wait for no other while there are free places. By default DPDK
 * makes lcores spin once they are 1/8 of the ring ahead of a suspended one. No effect on rings of
 * other kinds.
 */
static void set_no_wait(struct rte_ring *r)
{
	rte_ring_set_prod_htd_max(r, rte_ring_get_capacity(r));
}

struct rte_ring *kvr_rings_create(const char *name, unsigned int size, unsigned int count,
				  int socket)
{
	struct rte_ring *r = rte_ring_create_elem(
		name, size, count, socket,
		RING_F_SC_DEQ | (kvr_rings_cpus_shared() ? RING_F_MP_RTS_ENQ : 0u));

	if (r != NULL)
		set_no_wait(r);
	return r;
}

static const char *pool_ops(const char *usual)
{
	return kvr_rings_cpus_shared() ? "ring_mt_rts" : usual;
}

/* Maximum objects that one call takes from a pool: a burst plus a refill of the lcore's cache. */
#define AT_ONCE 1024u

/*
 * Places of a pool's ring such that each object has one even if all but AT_ONCE places are behind a
 * suspended lcore.
 */
static unsigned int pool_places(unsigned int n)
{
	return rte_align32pow2(2 * n + AT_ONCE);
}

/*
 * DPDK sizes the ring of a pool barely above the number of objects. While an lcore is suspended
 * inside a get, the places behind it are not free. Objects returned meanwhile may find no place;
 * rte_mempool_put() does not report it, and the object is lost. The ring is therefore replaced by a
 * longer one, in which a get waits before the places are exhausted.
 */
static int lengthen_ring(struct rte_mempool *m)
{
	struct rte_ring *was = m->pool_data, *r;
	char name[RTE_RING_NAMESIZE];
	void *obj;

	/*
	 * Rings have another kind under ThreadSanitizer, whose operations are replaced. In tests, a
	 * former router may have left this pool.
	 */
	if (rte_ring_get_cons_sync_type(was) != RTE_RING_SYNC_MT_RTS ||
	    rte_ring_get_size(was) == pool_places(m->size))
		return 0;
	snprintf(name, sizeof(name), "ML_%s", m->name);
	r = rte_ring_create(name, pool_places(m->size), m->socket_id,
			    RING_F_MP_RTS_ENQ | RING_F_MC_RTS_DEQ);
	if (r == NULL)
		return -rte_errno;
	set_no_wait(r);
	rte_ring_set_cons_htd_max(r, rte_ring_get_capacity(r) - m->size - AT_ONCE);
	while (rte_ring_dequeue(was, &obj) == 0)
		rte_ring_enqueue(r, obj);
	rte_ring_free(was);
	m->pool_data = r;
	return 0;
}

/* Finish a new pool. @return the pool, or NULL with rte_errno. */
static struct rte_mempool *pool_made(struct rte_mempool *m)
{
	const int rc = m != NULL && kvr_rings_cpus_shared() ? lengthen_ring(m) : 0;

	if (rc == 0)
		return m;
	rte_mempool_free(m);
	rte_errno = -rc;
	return NULL;
}

uint64_t kvr_rings_pool_bytes(unsigned int n, bool shared)
{
	const unsigned int count = shared ? pool_places(n) : rte_align32pow2(n + 1);

	return (uint64_t)rte_ring_get_memsize_elem(sizeof(void *), count);
}

struct rte_mempool *kvr_rings_mbufs(const char *name, unsigned int n, unsigned int cache,
				    uint16_t room, int socket)
{
	return kvr_rings_mbufs_as(NULL, name, n, cache, room, socket);
}

struct rte_mempool *kvr_rings_mbufs_as(const char *usual, const char *name, unsigned int n,
				       unsigned int cache, uint16_t room, int socket)
{
	const char *ops = pool_ops(usual);

	return pool_made(rte_pktmbuf_pool_create_by_ops(name, n, cache, 0, room, socket, ops));
}

struct rte_mempool *kvr_rings_pool(const char *name, unsigned int n, unsigned int size,
				   unsigned int cache, rte_mempool_obj_cb_t *init)
{
	return kvr_rings_pool_as("ring_mp_mc", name, n, size, cache, init);
}

struct rte_mempool *kvr_rings_pool_as(const char *usual, const char *name, unsigned int n,
				      unsigned int size, unsigned int cache,
				      rte_mempool_obj_cb_t *init)
{
	struct rte_mempool *m = rte_mempool_create_empty(name, n, size, cache, 0, SOCKET_ID_ANY, 0);
	int rc;

	if (m == NULL)
		return NULL;
	rc = rte_mempool_set_ops_byname(m, pool_ops(usual), NULL);
	if (rc == 0)
		rc = rte_mempool_populate_default(m);
	if (rc < 0) {
		rte_mempool_free(m);
		rte_errno = -rc;
		return NULL;
	}
	m = pool_made(m);
	if (m != NULL && init != NULL)
		rte_mempool_obj_iter(m, init, NULL);
	return m;
}
