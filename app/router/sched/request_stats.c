/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics of requests: definitions and memory. */
#include "sched/request_stats.h"

#include <assert.h>
#include <errno.h>

#include <rte_malloc.h>

#include "state/router.h"

#define MEASURE_DEF(id, prefix, name, unit, parts, kind, a, b, n, help)                            \
	[id] = {prefix name, unit, help, parts, kind, a, b, n},
static const struct kvr_buckets_def defs[MEASURES] = {MEASURE_LIST(MEASURE_DEF)};

struct kvr_buckets stats_buckets[MEASURES];

#define RANK_NAME(id, name, kind, unit, help) [id] = #name,
const char *const rank_counter_names[RANK_COUNTERS] = {RANK_COUNTER_LIST(RANK_NAME)};

uint32_t stats_classes(const struct pool *pool)
{
	return pool->conf->n_classes != 0 ? pool->conf->n_classes : 1;
}

uint64_t stats_bytes(uint32_t classes, uint32_t ranks)
{
	return (classes != 0 ? classes : 1) * sizeof(struct measures) +
	       ranks * sizeof(struct rank_counts);
}

int stats_create(struct pool *pool)
{
	for (uint32_t i = 0; i < MEASURES; i++) {
		const int rc = kvr_buckets_init(&stats_buckets[i], &defs[i]);

		assert(rc == 0); /* constants */
		RTE_SET_USED(rc);
	}
	pool->measures = rte_zmalloc("measures", stats_classes(pool) * sizeof(*pool->measures),
				     RTE_CACHE_LINE_SIZE);
	pool->rank_counts = rte_zmalloc("ranks", pool->max_ranks * sizeof(*pool->rank_counts),
					RTE_CACHE_LINE_SIZE);
	return pool->measures == NULL || pool->rank_counts == NULL ? -ENOMEM : 0;
}

void stats_destroy(struct pool *pool)
{
	rte_free(pool->measures);
	rte_free(pool->rank_counts);
}
