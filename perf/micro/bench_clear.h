/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_CLEAR_H
#define BENCH_CLEAR_H

/**
 * @file
 * The part of bench-prefix that clears ranks of a full table.
 */

#include "kvr_prefix.h"

struct bench_clear {
	struct kvr_prefix *t; /**< Full; rank number `ranks` has nothing. */
	struct rte_rcu_qsbr *qsbr;
	uint32_t ranks;
	void (*say)(const char *name, double v); /**< Takes a copy of the name. */
};

/** Clear one rank, then all others at once. Writer, and the only online reader: 0. */
void bench_clear(struct bench_clear *b);

#endif
