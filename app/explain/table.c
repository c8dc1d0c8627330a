/* SPDX-License-Identifier: BSD-3-Clause */
/* The prefix table of a pool. This thread is its writer and its only reader. */
#include "explain.h"

#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>

#include <rte_eal.h>
#include <rte_malloc.h>

#define MAX_BLOCKS (1u << 19) /* distinct hashes of a pool */
#define MS	   UINT64_C(1000000)

/* Needs neither huge pages nor root nor devices. */
bool ex_start_eal(void)
{
	char lcores[16];
	char *argv[] = {"kvroute-explain", "--no-huge", "--no-shconf", "--no-pci",
			"--no-telemetry",  "-m",	"64",	       "--log-level=1",
			"--lcores",	   lcores,	NULL};
	cpu_set_t allowed;
	bool ok;

	/* A scenario touches few pages of the tables, and a huge page would be zeroed whole. */
	(void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	snprintf(lcores, sizeof(lcores), "0@%d", sched_getcpu());
	sched_getaffinity(0, sizeof(allowed), &allowed);
	ok = rte_eal_init(10, argv) >= 0;
	sched_setaffinity(0, sizeof(allowed), &allowed); /* the EAL pins this thread */
	return ok;
}

bool ex_create_table(struct ex_pool *e, uint32_t max_ranks)
{
	static uint32_t n_tables;
	char name[16];
	struct kvr_prefix_conf conf = {.name = name,
				       .max_ranks = max_ranks,
				       .max_blocks = MAX_BLOCKS,
				       .max_runs = MAX_BLOCKS / 8,
				       .socket_id = SOCKET_ID_ANY,
				       .lazy = true};

	snprintf(name, sizeof(name), "ex%u", n_tables++);
	e->overlap = rte_zmalloc(NULL, kvr_overlap_size(max_ranks), RTE_CACHE_LINE_SIZE);
	e->qsbr = rte_zmalloc(NULL, rte_rcu_qsbr_get_memsize(1), RTE_CACHE_LINE_SIZE);
	if (e->overlap == NULL || e->qsbr == NULL)
		return false;
	rte_rcu_qsbr_init(e->qsbr, 1);
	rte_rcu_qsbr_thread_register(e->qsbr, 0);
	rte_rcu_qsbr_thread_online(e->qsbr, 0);
	conf.qsbr = e->qsbr;
	e->table = kvr_prefix_create(&conf);
	return e->table != NULL;
}

/* Return freed memory at once, so that the limits apply to the blocks held now. */
static void return_memory(struct ex_pool *e)
{
	do {
		rte_rcu_qsbr_quiescent(e->qsbr, 0);
	} while (kvr_prefix_maintain(e->table, 0) > 0);
}

void ex_blocks(struct kvr_sc_pool *pool, uint32_t rank, enum kvr_prefix_op op, enum kvr_tier tier,
	       const uint64_t *parent, const uint64_t *sh, uint32_t n)
{
	struct ex_pool *e = pool->own;

	if (op == KVR_PREFIX_STORE)
		kvr_prefix_store(e->table, (uint16_t)rank, tier, parent, sh, n);
	else
		kvr_prefix_remove(e->table, (uint16_t)rank, tier, sh, n);
	return_memory(e);
}

void ex_clear(struct kvr_sc_pool *pool, uint32_t rank)
{
	struct ex_pool *e = pool->own;

	kvr_prefix_clear_rank(e->table, (uint16_t)rank);
	return_memory(e);
}

void ex_predict(struct kvr_sc_pool *pool, uint32_t rank, const uint64_t *sh, uint32_t n)
{
	const struct kvr_pool_conf *c = &pool->conf;
	const double ms = (c->use_kv_events ? c->predicted_ttl_s : c->ttl_s) * 1000;
	struct ex_pool *e = pool->own;

	kvr_prefix_predict(e->table, (uint16_t)rank, sh, n, pool->world->now / MS,
			   ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX);
	return_memory(e);
}

void ex_score(struct kvr_sc_pool *pool, const uint64_t *sh, uint32_t n,
	      struct kvr_sched_overlap *ov)
{
	struct ex_pool *e = pool->own;
	const struct kvr_prefix_query q = {sh, n, e->overlap};

	while (!kvr_prefix_expire(e->table, pool->world->now / MS))
		;
	return_memory(e);
	kvr_prefix_score_burst(e->table, &q, 1);
	kvr_overlap_pad(e->overlap);
	*ov = (struct kvr_sched_overlap){
		.device = kvr_overlap_held(e->overlap, KVR_TIER_DEVICE),
		.host = kvr_overlap_held(e->overlap, KVR_TIER_HOST),
		.disk = kvr_overlap_held(e->overlap, KVR_TIER_DISK),
		.external = kvr_overlap_held(e->overlap, KVR_TIER_EXTERNAL),
	};
}
