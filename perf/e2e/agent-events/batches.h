/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BATCHES_H
#define BATCHES_H

/**
 * @file
 * What an engine would send, prepared: stores of 512 chains of blocks, and then the removal of all
 * of them, in the form that vLLM writes today (maps, 64-bit hashes, tokens out of a vocabulary of
 * 152,000).
 */

#include <stddef.h>
#include <stdint.h>

#define BATCHES_BLOCK 16u /* tokens of one */

struct batch {
	uint8_t *p;
	size_t len;
};

struct batches {
	struct batch *batch;
	uint32_t n, blocks, events; /* blocks that are stored; events of all batches */
	uint64_t bytes;
	uint64_t sum; /* of the names that lib/hash gives the blocks that are stored */
};

struct batches_case {
	const char *name;
	uint32_t blocks; /* of an event */
	uint32_t events; /* of a batch */
	uint32_t chain;	 /* blocks of a chain */
};

/** Events of one block as engines write them while they decode, and of a long prompt's chunk. */
extern const struct batches_case batches_cases[2];

void batches_make(struct batches *b, const struct batches_case *c);
void batches_free(struct batches *b);

#endif
