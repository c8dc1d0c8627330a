/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_CLEAR_H
#define BENCH_CLEAR_H

/**
 * @file
 * The part of bench-prefix that clears ranks of a full table.
 */

#include "kvr_prefix.h"

struct bench_clear {
	struct kvr_prefix *t; /**< Full; rank number `ranks` holds nothing. */
	struct rte_rcu_qsbr *qsbr;
	uint32_t ranks;
	void (*report)(const char *name, double v); /**< Copies the name. */
};

/**
 * Clear one rank, then all others at once. The caller is the writer and the only online reader,
 * with id 0.
 */
void bench_clear(struct bench_clear *bench);

#endif
