/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_PROM_H
#define AGENT_PROM_H

/**
 * @file
 * Load and constants of an engine from its Prometheus page, by the rows of kinds.h for that page,
 * rank by rank where a sample has a label with its rank. Pure; a line that is no sample is skipped.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kinds.h"

#define AGENT_PROM_RANKS 256u

struct agent_prom_rank {
	bool seen;
	double waiting, running, kv_use; /**< requests, requests, 0..1 */
};

struct agent_prom {
	uint32_t samples;	     /**< lines of a metric of the table */
	uint64_t block_size, blocks; /**< blocks of one rank; 0: none */
	uint32_t engines;	     /**< ranks that the page has; 0: it does not show them */
	uint16_t row[AGENT_VALUES];  /**< 1 + the row of each of these; 0: none */
	enum agent_engine kind;	     /**< whose metrics they are; AGENT_AUTO: unknown */
	struct agent_prom_rank rank[AGENT_PROM_RANKS];
};

/** Read a page; an empty one is that of no engine. A sample without a rank is of rank 0. */
void agent_prom_read(struct agent_prom *out, const char *page, size_t len);

#endif
