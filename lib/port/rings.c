/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_rings.h"

#include <errno.h>

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

/* Of these rings nobody waits, as long as there are places: DPDK has who is an eighth of them
 * before the one that is aside spin for it. Rings of another kind have nothing to set. */
static void wait_for_nobody(struct rte_ring *r)
{
	rte_ring_set_prod_htd_max(r, rte_ring_get_capacity(r));
	rte_ring_set_cons_htd_max(r, rte_ring_get_capacity(r));
}

struct rte_ring *kvr_rings_create(const char *name, unsigned int size, unsigned int count,
				  int socket)
{
	struct rte_ring *r = rte_ring_create_elem(
		name, size, count, socket,
		RING_F_SC_DEQ | (kvr_rings_cpus_shared() ? RING_F_MP_RTS_ENQ : 0u));

	if (r != NULL)
		wait_for_nobody(r);
	return r;
}

/* NULL: the usual ones. */
static const char *pool_ops(void)
{
	return kvr_rings_cpus_shared() ? "ring_mt_rts" : NULL;
}

static void pool_made(struct rte_mempool *m)
{
	if (pool_ops() != NULL) /* which keep the objects in a ring */
		wait_for_nobody(m->pool_data);
}

struct rte_mempool *kvr_rings_mbufs(const char *name, unsigned int n, unsigned int cache,
				    uint16_t room, int socket)
{
	struct rte_mempool *m =
		rte_pktmbuf_pool_create_by_ops(name, n, cache, 0, room, socket, pool_ops());

	if (m != NULL)
		pool_made(m);
	return m;
}

struct rte_mempool *kvr_rings_pool(const char *name, unsigned int n, unsigned int size,
				   unsigned int cache, rte_mempool_obj_cb_t *init)
{
	const char *ops = pool_ops();
	struct rte_mempool *m = rte_mempool_create_empty(name, n, size, cache, 0, SOCKET_ID_ANY, 0);
	int rc;

	if (m == NULL)
		return NULL;
	rc = rte_mempool_set_ops_byname(m, ops != NULL ? ops : "ring_mp_mc", NULL);
	if (rc == 0)
		rc = rte_mempool_populate_default(m);
	if (rc < 0) {
		rte_mempool_free(m);
		rte_errno = -rc;
		return NULL;
	}
	pool_made(m);
	if (init != NULL)
		rte_mempool_obj_iter(m, init, NULL);
	return m;
}
