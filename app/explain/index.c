/* SPDX-License-Identifier: BSD-3-Clause */
/* The prefix table behind one pool; this thread is its writer and its only reader. */
#include "index.h"

#include <sched.h>
#include <stdio.h>

#include <rte_eal.h>
#include <rte_malloc.h>

#define MAX_BLOCKS (1u << 19) /* different hashes a scenario may hold in one pool */
#define MS	   UINT64_C(1000000)

struct ex_index {
	struct kvr_prefix *t;
	struct rte_rcu_qsbr *qsbr;
	struct kvr_overlap *out;
};

/* Without huge pages, root or devices. */
bool ex_index_start(void)
{
	char lcores[16];
	char *argv[] = {"kvroute-explain", "--no-huge", "--no-shconf", "--no-pci",
			"--no-telemetry",  "-m",	"64",	       "--log-level=1",
			"--lcores",	   lcores,	NULL};
	cpu_set_t allowed;
	bool ok;

	snprintf(lcores, sizeof(lcores), "0@%d", sched_getcpu());
	sched_getaffinity(0, sizeof(allowed), &allowed);
	ok = rte_eal_init(10, argv) >= 0;
	sched_setaffinity(0, sizeof(allowed), &allowed); /* it has pinned this thread */
	return ok;
}

struct ex_index *ex_index_create(uint32_t max_ranks)
{
	static uint32_t n_tables;
	char name[16];
	struct kvr_prefix_conf conf = {.name = name,
				       .max_ranks = max_ranks,
				       .max_blocks = MAX_BLOCKS,
				       .max_runs = MAX_BLOCKS / 8,
				       .socket_id = SOCKET_ID_ANY};
	struct ex_index *x = rte_zmalloc(NULL, sizeof(*x), 0);

	if (x == NULL)
		return NULL;
	snprintf(name, sizeof(name), "ex%u", n_tables++);
	x->out = rte_zmalloc(NULL, kvr_overlap_size(max_ranks), RTE_CACHE_LINE_SIZE);
	x->qsbr = rte_zmalloc(NULL, rte_rcu_qsbr_get_memsize(1), RTE_CACHE_LINE_SIZE);
	if (x->out != NULL && x->qsbr != NULL) {
		rte_rcu_qsbr_init(x->qsbr, 1);
		rte_rcu_qsbr_thread_register(x->qsbr, 0);
		rte_rcu_qsbr_thread_online(x->qsbr, 0);
		conf.qsbr = x->qsbr;
		x->t = kvr_prefix_create(&conf);
	}
	if (x->t != NULL)
		return x;
	rte_free(x->out);
	rte_free(x->qsbr);
	rte_free(x);
	return NULL;
}

/* Give memory back at once, so that the bounds are those of what is held. */
static void settle(struct ex_index *x)
{
	do {
		rte_rcu_qsbr_quiescent(x->qsbr, 0);
	} while (kvr_prefix_maintain(x->t, 0) > 0);
}

void ex_index_event(struct ex_index *x, uint32_t rank, enum kvr_prefix_op op, enum kvr_tier tier,
		    const uint64_t *parent, const uint64_t *sh, uint32_t n)
{
	if (op == KVR_PREFIX_STORE)
		kvr_prefix_store(x->t, (uint16_t)rank, tier, parent, sh, n);
	else
		kvr_prefix_remove(x->t, (uint16_t)rank, tier, sh, n);
	settle(x);
}

void ex_index_clear(struct ex_index *x, uint32_t rank)
{
	kvr_prefix_clear_rank(x->t, (uint16_t)rank);
	settle(x);
}

void ex_index_predict(struct ex_index *x, uint32_t rank, const uint64_t *sh, uint32_t n,
		      uint64_t now_ns, double ttl_s)
{
	const double ms = ttl_s * 1000;

	kvr_prefix_predict(x->t, (uint16_t)rank, sh, n, now_ns / MS,
			   ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX);
	settle(x);
}

void ex_index_score(struct ex_index *x, const uint64_t *sh, uint32_t n, uint64_t now_ns,
		    struct kvr_sched_overlap *ov)
{
	const struct kvr_prefix_query q = {sh, n, x->out};

	while (!kvr_prefix_expire(x->t, now_ns / MS))
		;
	settle(x);
	kvr_prefix_score_burst(x->t, &q, 1);
	*ov = (struct kvr_sched_overlap){
		.device = kvr_overlap_held(x->out, KVR_TIER_DEVICE),
		.host = kvr_overlap_held(x->out, KVR_TIER_HOST),
		.disk = kvr_overlap_held(x->out, KVR_TIER_DISK),
		.external = kvr_overlap_held(x->out, KVR_TIER_EXTERNAL),
	};
}
