/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_BUCKETS_H
#define KVR_BUCKETS_H

/**
 * @file
 * Histograms with few, given buckets, as Prometheus has them, for dashboards. A definition
 * specifies the bounds (log-spaced and rounded to two digits, linear or exponential). They are
 * computed once at start, as integers in parts of the unit that values are counted in (nanoseconds
 * for seconds). lib/base/kvr_hist.h is the finer kind, for benchmarks.
 *
 *   value <= bound[0] -> count[0], <= bound[1] -> count[1] ..., above all of them -> count[n]
 *
 * Writers: the caller of kvr_buckets_init() writes the bounds before other threads use them; one
 * lcore writes the cells, any thread reads them. Sum and counts may differ by the value that is
 * being added. Budget: counting takes a few comparisons (at most five for a mean), two loads, two
 * additions and two stores: 20 to 40 instructions without a division.
 */

#include <stdio.h>

#include "kvr_stats.h"

#define KVR_BUCKETS_MAX 31u

enum kvr_buckets_kind {
	KVR_BUCKETS_LOG,    /* 0, then n - 1 bounds a .. b, log-spaced, rounded to two digits */
	KVR_BUCKETS_LINEAR, /* n bounds a, a + b, ... */
	KVR_BUCKETS_EXP,    /* n bounds a, a * b, a * b * b, ... */
};

/** Definition of a histogram. */
struct kvr_buckets_def {
	const char *name; /* name of the family: [a-z_]+ */
	const char *unit; /* "seconds", "tokens"; exported as the unit if the name ends in it */
	const char *help; /* one line, no full stop */
	double parts;	  /* parts per unit: 1e9 for nanoseconds of seconds */
	enum kvr_buckets_kind kind;
	double a, b;
	uint32_t n; /* at most KVR_BUCKETS_MAX; equal bounds are merged */
};

struct kvr_buckets {
	const struct kvr_buckets_def *def;
	uint32_t n;
	double le[KVR_BUCKETS_MAX];	 /* ascending, in units */
	uint64_t bound[KVR_BUCKETS_MAX]; /* the same in parts */
	uint8_t first[65];		 /* by bit length of a value: first possible bucket */
};

/** One histogram; all zero: empty. One writer. */
struct kvr_bucket_cells {
	kvr_cell_t sum; /* sum of values, in parts */
	kvr_cell_t count[KVR_BUCKETS_MAX + 1];
};

/** A copy of a histogram, or the sum of several. */
struct kvr_bucket_counts {
	uint64_t sum;
	uint64_t count[KVR_BUCKETS_MAX + 1];
};

/**
 * Compute the bounds. Any thread. @return 0, or -EINVAL: no buckets, too many, or not ascending.
 */
int kvr_buckets_init(struct kvr_buckets *buckets, const struct kvr_buckets_def *def);

/**
 * The first bucket whose bound, multiplied by @p times, is not below @p v; n: none. @p times is at
 * least 1, and the product with the last bound must fit in 64 bits.
 */
static inline uint32_t kvr_buckets_find(const struct kvr_buckets *buckets, uint64_t v,
					uint64_t times)
{
	uint32_t at = 0, left = buckets->n;

	while (left > 0) {
		const uint32_t half = left >> 1;
		const bool above = buckets->bound[at + half] * times < v;

		at = above ? at + half + 1 : at;
		left = above ? left - half - 1 : half;
	}
	return at;
}

/**
 * The first bucket whose bound is not below @p v; n: none. Compares the bounds with as many bits as
 * @p v: one or two of a log-spaced histogram.
 */
static inline uint32_t kvr_buckets_at(const struct kvr_buckets *buckets, uint64_t v)
{
	uint32_t at = buckets->first[v != 0 ? 64 - __builtin_clzll(v) : 0];

	while (at < buckets->n && buckets->bound[at] < v)
		at++;
	return at;
}

/** Count one value, in parts. Writer only. */
static inline void kvr_buckets_add(const struct kvr_buckets *buckets,
				   struct kvr_bucket_cells *cells, uint64_t v)
{
	kvr_cell_add(&cells->count[kvr_buckets_at(buckets, v)], 1);
	kvr_cell_add(&cells->sum, v);
}

/** Count @p n values (at least 1) with the sum @p total, each as their mean. Writer only. */
static inline void kvr_buckets_add_mean(const struct kvr_buckets *buckets,
					struct kvr_bucket_cells *cells, uint64_t total, uint32_t n)
{
	kvr_cell_add(&cells->count[kvr_buckets_find(buckets, total, n)], n);
	kvr_cell_add(&cells->sum, total);
}

#define KVR_RATIO_PARTS 1280u /* parts of 1; multiples of 0.05 are integers */

/**
 * @p num / @p den in parts of KVR_RATIO_PARTS, rounded up, at most 2 * KVR_RATIO_PARTS - 1; 0 if @p
 *   den is 0. A search of eleven steps instead of a division.
 */
uint32_t kvr_ratio_parts(uint32_t num, uint32_t den);

/** Add the content of @p cells to @p sum. Any thread. */
void kvr_buckets_read(const struct kvr_bucket_cells *cells, struct kvr_bucket_counts *sum);

/** Number of counted values. */
uint64_t kvr_buckets_count(const struct kvr_buckets *buckets,
			   const struct kvr_bucket_counts *counts);

/**
 * Upper bound, in units, of the bucket of the ceil(@p q * count)-th smallest value; INFINITY beyond
 * the last bound; NAN without values.
 */
double kvr_buckets_quantile(const struct kvr_buckets *buckets,
			    const struct kvr_bucket_counts *counts, double q);

/** Write one family of Prometheus text with @p n instances; label texts as in kvr_metrics_write().
 */
void kvr_buckets_write(const struct kvr_buckets *buckets, const struct kvr_bucket_counts counts[],
		       const char *const labels[], uint32_t n, FILE *out);

#endif
