/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_HIST_H
#define KVR_HIST_H

/**
 * @file
 * Latency histogram in fixed memory (15 KiB): log-linear buckets, 32 per power of two, so that a
 * value is known within 3.2 % from 0 to 2^63. Adding a value takes one count-leading-zeros and one
 * increment. One writer; readers on other threads may see a sum that lags a few values behind. The
 * caller chooses the unit (cycles or nanoseconds).
 */

#include <stdint.h>

#define KVR_HIST_SUB_BITS 5
#define KVR_HIST_BUCKETS  ((64 - KVR_HIST_SUB_BITS + 1) << KVR_HIST_SUB_BITS)

/** A zeroed histogram is valid and empty. Fields: written by the owner, read by others. */
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
 * Value at quantile @p q in [0, 1]: the middle of the bucket that holds the ceil(q * count)-th
 * smallest value, at most the largest value added; 0 if empty.
 */
uint64_t kvr_hist_quantile(const struct kvr_hist *h, double q);

/** Mean of all values; 0 if empty. */
double kvr_hist_mean(const struct kvr_hist *h);

#endif
