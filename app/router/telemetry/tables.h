/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_TABLES_H
#define ROUTER_TABLES_H

/**
 * @file
 * Tables of counters of this process, one row each in tables.c: values, number of instances, their
 * names, families of metrics. Telemetry, metrics and tests walk the rows, so every counter of a
 * table is exported.
 *
 * Called under the lock of lib/telemetry. Values are those of the last turns of their writers. Each
 * value is consistent; values of different writers are of different times.
 */

#include <stdint.h>

#include "kvr_metrics.h"

struct router;

#define TABLE_LABELS 160u /* bytes of the labels of one instance */

/** One kind of table. */
struct table {
	const struct kvr_stats_def *def;
	/** Number of instances: one per router, pool, port, lcore ... */
	uint32_t (*count)(const struct router *rt);
	/** Get the values of instance @p i. @return false: this router does not use it. */
	bool (*get)(struct router *rt, uint32_t i, uint64_t v[]);
	/** Families of its metrics; NULL: see table_at(). */
	const struct kvr_family *families;
	/** Label of the name of an instance in metrics; NULL: there is one instance, without a
	 * name. "lcore/stage": the name has two parts, each with a label. */
	const char *label;
	/** Write the name of instance @p i; NULL: there is one instance. */
	void (*name)(const struct router *rt, uint32_t i, char *buf, size_t len);
};

/** @return row @p i, or NULL after the last one. */
const struct table *table_at(uint32_t i);

/** Every metric as Prometheus text; the last line is `# EOF`. @return 0, -ENOMEM. */
int tables_write_metrics(struct router *rt, FILE *out);

/** Register /kvroute/counters and /kvroute/metrics. @return as kvr_telemetry_register(). */
int tables_start(struct router *rt);
void tables_stop(void);

#endif
