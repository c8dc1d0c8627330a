/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_RAND_H
#define KVR_RAND_H

/**
 * @file
 * Seeded random numbers for decisions that must repeat with the same seed (ties, temperature,
 * simulated load). rte_rand() is seeded once per process and per lcore, so it does not repeat. The
 * generator is SplitMix64 (Steele, Lea, Flood, OOPSLA 2014); any seed is good. One owner, no
 * locking.
 */

#include <stdint.h>

struct kvr_rand {
	uint64_t state; /**< owner: rw */
};

/** Finalizer of SplitMix64: a bijection that spreads every input bit over the word. */
static inline uint64_t kvr_mix64(uint64_t z)
{
	z ^= z >> 30;
	z *= UINT64_C(0xBF58476D1CE4E5B9);
	z ^= z >> 27;
	z *= UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

static inline void kvr_rand_init(struct kvr_rand *r, uint64_t seed)
{
	r->state = seed;
}

/** Next 64 uniform bits. */
static inline uint64_t kvr_rand_u64(struct kvr_rand *r)
{
	r->state += UINT64_C(0x9E3779B97F4A7C15);
	return kvr_mix64(r->state);
}

/** Uniform in [0, n), n > 0. The bias is below n / 2^32 (Lemire's multiply-shift). */
static inline uint32_t kvr_rand_below(struct kvr_rand *r, uint32_t n)
{
	return (uint32_t)(((kvr_rand_u64(r) >> 32) * n) >> 32);
}

/** Uniform in [0, 1) with 53 bits. */
static inline double kvr_rand_unit(struct kvr_rand *r)
{
	return (double)(kvr_rand_u64(r) >> 11) * 0x1.0p-53;
}

#endif
