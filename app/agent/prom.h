/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_PROM_H
#define AGENT_PROM_H

/**
 * @file
 * The load of an engine out of its Prometheus page: by the names of vLLM and SGLang, rank by rank
 * where the engine says whose a sample is. Pure; what is no sample is passed over.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AGENT_PROM_RANKS 256u

struct agent_prom_rank {
	bool seen;
	double waiting, running, kv_use; /**< requests, requests, 0..1 */
};

struct agent_prom {
	uint32_t samples;	     /**< that meant something */
	uint64_t block_size, blocks; /**< of the first sample that has them; 0: none */
	const char *engine;	     /**< vllm, sglang: whose names these are; NULL: neither's */
	struct agent_prom_rank rank[AGENT_PROM_RANKS];
};

/** Read a page. A sample without a rank is of rank 0. */
void agent_prom_read(struct agent_prom *out, const char *page, size_t len);

#endif
