/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a decision log: start and stop. */
#include "sched/decision_log.h"

#include <rte_malloc.h>

struct decision_log *decision_log_create(uint32_t max_ranks, uint64_t every, uint32_t ring)
{
	struct decision_log *log = rte_zmalloc("decisions", sizeof(*log), RTE_CACHE_LINE_SIZE);

	if (log == NULL)
		return NULL;
	log->terms.v = rte_zmalloc("terms", max_ranks * sizeof(*log->terms.v), 0);
	log->terms.cap = max_ranks;
	log->load = rte_zmalloc("loads", max_ranks * sizeof(*log->load), 0);
	if (decision_ring_init(&log->all, ring) < 0 || log->terms.v == NULL || log->load == NULL) {
		decision_log_destroy(log);
		return NULL;
	}
	for (uint32_t i = 0; i < DECISIONS_KEPT; i++)
		rte_seqcount_init(&log->ring[i].seq);
	decision_log_sample(log, every);
	return log;
}

void decision_log_destroy(struct decision_log *log)
{
	if (log == NULL)
		return;
	rte_free(log->terms.v);
	rte_free(log->load);
	decision_ring_fini(&log->all);
	rte_free(log);
}
