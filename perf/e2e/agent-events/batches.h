/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BATCHES_H
#define BATCHES_H

/**
 * @file
 * Prepared batches of an engine: stores of 512 chains of blocks, then the removal of all of them,
 * in the form of current vLLM (maps, 64-bit hashes, tokens from a vocabulary of 152,000).
 */

#include <stddef.h>
#include <stdint.h>

#define BATCHES_BLOCK 16u /* tokens per block */

struct batch {
	uint8_t *p;
	size_t len;
};

struct batches {
	struct batch *batch;
	uint32_t n, blocks, events; /* batches; blocks stored; events of all batches */
	uint64_t bytes;
	uint64_t sum; /* of the hashes that lib/hash computes for the stored blocks */
};

struct batches_case {
	const char *name;
	uint32_t blocks; /* per event */
	uint32_t events; /* per batch */
	uint32_t chain;	 /* blocks per chain */
};

/** Events of one block, as in decode, and of a chunk of a long prompt. */
extern const struct batches_case batches_cases[2];

void batches_make(struct batches *b, const struct batches_case *c);
void batches_free(struct batches *b);

#endif
