/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_rings.h"

#include <errno.h>

#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_ring.h>

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

unsigned int kvr_rings_flags(void)
{
	return RING_F_SC_DEQ | (kvr_rings_cpus_shared() ? RING_F_MP_RTS_ENQ : 0u);
}

const char *kvr_rings_pool_ops(void)
{
	return kvr_rings_cpus_shared() ? "ring_mt_rts" : NULL;
}

struct rte_mempool *kvr_rings_pool(const char *name, unsigned int n, unsigned int size,
				   unsigned int cache, rte_mempool_obj_cb_t *init)
{
	const char *ops = kvr_rings_pool_ops();
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
	if (init != NULL)
		rte_mempool_obj_iter(m, init, NULL);
	return m;
}
