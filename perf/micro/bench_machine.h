/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

/**
 * @file
 * The speed of this machine as the benchmarks report it: the time of the chain hash of one block
 * with hot caches, relative to the reference machine. Figures of two machines are comparable after
 * division by this ratio.
 */

#include "kvr_rand.h"

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#define BENCH_REFERENCE_NS 3.7

static inline double bench_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/** Order of doubles, for qsort(). */
static inline int bench_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/**
 * Nanoseconds per link, as the reference measures it: 8,192 tokens in blocks of 16; median of 25.
 */
static inline double bench_chain_ns(void)
{
	static volatile uint64_t sink;
	uint64_t local[512], s = 0;
	struct kvr_rand r = {1};
	double v[25];

	for (uint32_t i = 0; i < 512; i++)
		local[i] = kvr_rand_u64(&r);
	for (uint32_t k = 0; k < 25; k++) {
		double start = bench_now_ns();

		for (uint32_t rep = 0; rep < 100; rep++)
			for (uint32_t i = 0; i < 512; i++) {
				const uint64_t link[2] = {s, local[i]};

				s = XXH3_64bits_withSeed(link, sizeof(link), 1337);
			}
		v[k] = (bench_now_ns() - start) / 51200;
	}
	sink = s;
	(void)sink;
	qsort(v, 25, sizeof(v[0]), bench_by_value);
	return v[12];
}

#endif
