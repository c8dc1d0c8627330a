/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_PROM_H
#define AGENT_PROM_H

/**
 * @file
 * Load and constants of an engine from its Prometheus page, by the rows of kinds.h for that page,
 * per rank if samples have a rank label. Pure; invalid lines are skipped.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kinds.h"

#define AGENT_PROM_RANKS 256u

struct agent_prom_rank {
	bool seen;
	double waiting, running,
		kv_use; /**< requests waiting and running; used part of the KV cache, 0..1 */
};

struct agent_prom {
	uint32_t samples;	     /**< samples of known metrics */
	uint64_t block_size, blocks; /**< blocks per rank; 0: unknown */
	uint32_t engines;	     /**< ranks on the page; 0: unknown */
	uint16_t row[AGENT_VALUES];  /**< 1 + the row of each value; 0: none */
	enum agent_engine kind;	     /**< kind of engine with such metrics; AGENT_AUTO: unknown */
	struct agent_prom_rank rank[AGENT_PROM_RANKS];
};

/** Parse a page; an empty page has no engine. A sample without a rank belongs to rank 0. */
void agent_prom_read(struct agent_prom *out, const char *page, size_t len);

#endif
