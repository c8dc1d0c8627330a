/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_TABLES_H
#define ROUTER_TABLES_H

/**
 * @file
 * Every table of counters of this process, one row each in tables.c: what counts, how many of it
 * there are, what each is called. Telemetry, OpenMetrics and the tests walk the rows, so a counter
 * that stands in a table reaches its operator, and a table reaches him by its row.
 *
 * Under the lock of lib/ctl. Values are those of the last turns of their writers; each alone is
 * whole.
 */

#include <stdint.h>

#include "kvr_stats.h"

struct router;

#define TABLE_LABELS 160u /* bytes of what names one instance */

/** One kind of table. */
struct table {
	const struct kvr_stats_def *def;
	/** How many instances there are: one a router, pool, port, lcore ... */
	uint32_t (*count)(const struct router *rt);
	/** Values of instance @p i. @return false: it is not used by this router. */
	bool (*get)(struct router *rt, uint32_t i, uint64_t v[]);
	/** Its name, for telemetry and (as `label="name"`) OpenMetrics; NULL label: the only one.
	 */
	const char *label;
	void (*name)(const struct router *rt, uint32_t i, char *buf, size_t len);
};

/** Row @p i, or NULL behind the last. */
const struct table *table_at(uint32_t i);

/** Everything as OpenMetrics text, with its end. @return 0, -ENOMEM. */
int tables_openmetrics(struct router *rt, FILE *out);

/** /kvroute/counters and /kvroute/metrics. @return 0 or what kvr_telemetry_register() says. */
int tables_start(struct router *rt);
void tables_stop(void);

#endif
