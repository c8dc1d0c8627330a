/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics of requests: definitions and memory. */
#include "sched/measure.h"

#include <assert.h>
#include <errno.h>

#include <rte_malloc.h>

#include "state/router.h"

#define MEASURE_DEF(id, prefix, name, unit, parts, kind, a, b, n, help)                            \
	[id] = {prefix name, unit, help, parts, kind, a, b, n},
static const struct kvr_buckets_def defs[MEASURES] = {MEASURE_LIST(MEASURE_DEF)};

struct kvr_buckets measure_buckets[MEASURES];

#define RANK_NAME(id, name, kind, unit, help) [id] = #name,
const char *const rank_counter_names[RANK_COUNTERS] = {RANK_COUNTER_LIST(RANK_NAME)};

uint32_t measures_classes(const struct pool *p)
{
	return p->conf->n_classes != 0 ? p->conf->n_classes : 1;
}

uint64_t measures_bytes(uint32_t classes, uint32_t ranks)
{
	return (classes != 0 ? classes : 1) * sizeof(struct measures) +
	       ranks * sizeof(struct rank_counts);
}

int measures_create(struct pool *p)
{
	for (uint32_t i = 0; i < MEASURES; i++) {
		const int rc = kvr_buckets_init(&measure_buckets[i], &defs[i]);

		assert(rc == 0); /* constants */
		RTE_SET_USED(rc);
	}
	p->measures = rte_zmalloc("measures", measures_classes(p) * sizeof(*p->measures),
				  RTE_CACHE_LINE_SIZE);
	p->rank_counts =
		rte_zmalloc("ranks", p->max_ranks * sizeof(*p->rank_counts), RTE_CACHE_LINE_SIZE);
	return p->measures == NULL || p->rank_counts == NULL ? -ENOMEM : 0;
}

void measures_destroy(struct pool *p)
{
	rte_free(p->measures);
	rte_free(p->rank_counts);
}
