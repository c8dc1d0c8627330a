/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_HIST_H
#define KVR_HIST_H

/**
 * @file
 * Latency histogram of fixed memory: log-linear buckets, 32 per power of two, so a value is
 * known to 3.2 % from 0 to 2^63. 15 KiB; adding costs one count-leading-zeros and one increment.
 * One writer; readers on other threads may see a sum that is a few values old. Units are the
 * caller's (cycles or nanoseconds).
 */

#include <stdint.h>

#define KVR_HIST_SUB_BITS 5
#define KVR_HIST_BUCKETS  ((64 - KVR_HIST_SUB_BITS + 1) << KVR_HIST_SUB_BITS)

/** A zeroed histogram is empty and valid. Fields: owner rw, others ro. */
struct kvr_hist {
	uint64_t count;
	uint64_t sum;
	uint64_t max;
	uint64_t bucket[KVR_HIST_BUCKETS];
};

/** Index of the bucket that holds @p v. */
static inline uint32_t kvr_hist_index(uint64_t v)
{
	uint32_t msb;

	if (v < (1u << KVR_HIST_SUB_BITS))
		return (uint32_t)v;
	msb = 63 - (uint32_t)__builtin_clzll(v);
	return ((msb - KVR_HIST_SUB_BITS + 1) << KVR_HIST_SUB_BITS) +
	       (uint32_t)((v >> (msb - KVR_HIST_SUB_BITS)) & ((1u << KVR_HIST_SUB_BITS) - 1));
}

/** Count one value. */
static inline void kvr_hist_add(struct kvr_hist *h, uint64_t v)
{
	h->bucket[kvr_hist_index(v)]++;
	h->count++;
	h->sum += v;
	if (v > h->max)
		h->max = v;
}

/** Add all of @p from to @p to. */
void kvr_hist_merge(struct kvr_hist *to, const struct kvr_hist *from);

/**
 * Value at quantile @p q in [0, 1]: the middle of the bucket holding the ceil(q * count)-th
 * smallest value, never above the largest value seen; 0 for an empty histogram.
 */
uint64_t kvr_hist_quantile(const struct kvr_hist *h, double q);

/** Mean of all values, 0 for an empty histogram. */
double kvr_hist_mean(const struct kvr_hist *h);

#endif
