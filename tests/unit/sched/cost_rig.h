/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COST_RIG_H
#define COST_RIG_H

/**
 * @file
 * Columns of ranks at random and the part of a cost_in that every cost function reads, for tests
 * that hold the kernels against the formula. What one mode reads alone, its test adds.
 */

#include "sched_pvt.h"

#include "kvr_test.h"

#define R 192 /* ranks */

static uint32_t tier[TIERS][R], shared[R], blocks[R], depth[R], requests[R];
static double mult[R];
static uint64_t mask[R / 64];

static void fill_columns(struct kvr_rand *r, uint32_t n)
{
	for (uint32_t i = 0; i < R; i++) {
		for (uint32_t t = 0; t < TIERS; t++)
			tier[t][i] = kvr_rand_below(r, 3) ? kvr_rand_below(r, 200) : 0;
		shared[i] = kvr_rand_below(r, 100);
		blocks[i] = kvr_rand_below(r, 100000);
		depth[i] = kvr_rand_below(r, n + 1);
		requests[i] = kvr_rand_below(r, 100);
		mult[i] = 0.3 + kvr_rand_unit(r);
		bit_put(mask, i, kvr_rand_below(r, 3) > 0);
	}
}

/* A prompt of 1 to isl tokens, device credit below `credit`. Replaces all of *in. */
static void fill_common(struct kvr_rand *r, struct cost_in *in, uint32_t isl, double credit)
{
	*in = (struct cost_in){.tier = {tier[0], tier[1], tier[2], tier[3]},
			       .blocks = blocks,
			       .depth = depth,
			       .requests = requests,
			       .mask = mask,
			       .words = R / 64,
			       .plain = kvr_rand_below(r, 2),
			       .isl = 1 + kvr_rand_below(r, isl),
			       .block = 1 + kvr_rand_below(r, 33),
			       .n = kvr_rand_below(r, 300),
			       .credit = kvr_rand_unit(r) * credit,
			       .scale = kvr_rand_unit(r) * 2,
			       .host_w = kvr_rand_unit(r),
			       .disk_w = kvr_rand_unit(r),
			       .shared_w = kvr_rand_unit(r),
			       .request_w = kvr_rand_below(r, 2) * kvr_rand_unit(r) * 3};
	if (!in->plain) {
		in->mult = kvr_rand_below(r, 2) ? mult : NULL;
		in->shared = kvr_rand_below(r, 2) ? shared : NULL;
	}
	fill_columns(r, (uint32_t)in->n);
}

#endif
