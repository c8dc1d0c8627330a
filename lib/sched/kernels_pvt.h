/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KERNELS_PVT_H
#define KERNELS_PVT_H

/**
 * @file
 * Loops over the ranks of one decision: their input, and one set of functions per instruction set.
 * Stateless. Scheduler lcore.
 */

#include <stdbool.h>
#include <stdint.h>

#define TIERS 4u

/** Input of the cost of a rank. */
struct cost_in {
	const uint32_t *tier[TIERS]; /* not NULL unless `plain` */
	const uint32_t *shared;	     /* blocks beyond device in the shared pool, or NULL */
	const double *tokens;
	const uint32_t *blocks;
	const uint32_t *depth;
	const uint32_t *requests;
	const double *mult;	    /* or NULL */
	const double *rest, *until; /* ttft: see struct ttft */
	const uint64_t *mask;
	uint32_t words;
	bool plain; /* device tier only, no decay, no multiplier, no shared pool */
	bool pow2;  /* block size: multiply by inv_block instead of dividing */
	bool cache_lowers_decode;
	bool track;
	bool ttft; /* cost of ttft_dp.c; fields marked ttft are valid */
	double isl, block, inv_block, n;
	double credit, scale, host_w, disk_w, shared_w, request_w;
	double decay, min_tokens, request_blocks;
	double at;		   /* ttft: now, ns from the origin */
	double speed;		   /* ttft: tokens per ns; 0: unknown */
	double full;		   /* ttft: cost of an uncached prompt, isl / (1 - rho) */
	double per_block, per_hit; /* ttft: reduction per block, and per device block by weight */
	double decode_w;	   /* ttft: per block */
};

typedef double (*kvr_sched__cost_fn)(const struct cost_in *in, double *cost, uint32_t *top);

/** Loops over ranks, one set per instruction set; tested equal to the bit. */
struct kernels {
	/**
	 * cost[r] for every bit of the mask, +inf elsewhere; returns the lowest. top = largest
	 * device overlap over the mask.
	 */
	kvr_sched__cost_fn cost;
	/** Bit set of entries equal to v; returns their number. */
	uint32_t (*equal)(const double *cost, double v, uint32_t words, uint64_t *out);
	/** Largest v[r] over the bits of mask. */
	uint32_t (*max)(const uint32_t *v, const uint64_t *mask, uint32_t words);
	/** Lowest place[r] of the ranks of mask with v[r] == want, or NIL. */
	uint32_t (*first)(const uint32_t *v, uint32_t want, const uint64_t *mask, uint32_t words,
			  const uint32_t *place);
	/** Return true if tokens[r] <= limit[r] for any bit of mask. */
	bool (*any_free)(const double *tokens, const double *limit, const uint64_t *mask,
			 uint32_t words);
	/** Replace each cost c by e^-((c - low) / width), +inf by 0; returns the sum; sums per 64.
	 */
	double (*weights)(double *cost, uint32_t words, double low, double width, double *sums);
	kvr_sched__cost_fn ttft; /* as cost, in mode ttft */
};

enum sched_isa {
	SCHED_SCALAR,
	SCHED_AVX2,
	SCHED_AVX512,
};

/* kernels_dp.c: returns false if the CPU lacks the instructions. */
bool kvr_sched__kernels(enum sched_isa isa, struct kernels *k);

/* cost_dp.c */
double kvr_sched__cost_one(const struct cost_in *in, uint32_t rank);
kvr_sched__cost_fn kvr_sched__cost_kernel(enum sched_isa isa);

/* ttft_dp.c */
double kvr_sched__ttft_one(const struct cost_in *in, uint32_t rank);
kvr_sched__cost_fn kvr_sched__ttft_kernel(enum sched_isa isa);

#endif
