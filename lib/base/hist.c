/* SPDX-License-Identifier: BSD-3-Clause */
/* Merge and evaluate histograms. The hot path, kvr_hist_add(), is inline in the header. */
#include "kvr_hist.h"

#include <math.h>

void kvr_hist_merge(struct kvr_hist *to, const struct kvr_hist *from)
{
	for (uint32_t i = 0; i < KVR_HIST_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
	to->count += from->count;
	to->sum += from->sum;
	if (from->max > to->max)
		to->max = from->max;
}

/* Middle of a bucket. Exact below 2 * 2^SUB_BITS, where each bucket holds one value. */
static uint64_t bucket_middle(uint32_t i)
{
	uint32_t shift;
	uint64_t low;

	if (i < (2u << KVR_HIST_SUB_BITS))
		return i;
	shift = (i >> KVR_HIST_SUB_BITS) - 1;
	low = ((uint64_t)(1u << KVR_HIST_SUB_BITS) | (i & ((1u << KVR_HIST_SUB_BITS) - 1)))
	      << shift;
	return low + ((UINT64_C(1) << shift) >> 1);
}

uint64_t kvr_hist_quantile(const struct kvr_hist *h, double q)
{
	uint64_t rank, seen = 0;

	if (h->count == 0)
		return 0;
	rank = (uint64_t)ceil(q * (double)h->count);
	if (rank == 0)
		rank = 1;
	for (uint32_t i = 0; i < KVR_HIST_BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen >= rank) {
			uint64_t v = bucket_middle(i);

			return v < h->max ? v : h->max;
		}
	}
	return h->max;
}

double kvr_hist_mean(const struct kvr_hist *h)
{
	return h->count == 0 ? 0.0 : (double)h->sum / (double)h->count;
}
