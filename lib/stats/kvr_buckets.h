/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_BUCKETS_H
#define KVR_BUCKETS_H

/**
 * @file
 * Histograms of few, given buckets, as Prometheus has them: what dashboards chart. A definition
 * says where the buckets end (log-spaced and rounded to two digits, linear or exponential); its
 * bounds are computed once at start, as integers of the parts that values come in (nanoseconds of
 * seconds). lib/base/kvr_hist.h is the finer kind, for benchmarks.
 *
 *   value <= bound[0] -> count[0], <= bound[1] -> count[1] ..., above all of them -> count[n]
 *
 * Writers: bounds by who calls kvr_buckets_init(), before others look; cells by one lcore, read by
 * any thread. A sum and the counts may differ by the value that is being added. Budget: counting is
 * some comparisons (of a mean at most five), two loads, two additions, two stores: 20 to 40
 * instructions; it divides nothing.
 */

#include "kvr_stats.h"

#define KVR_BUCKETS_MAX 31u

enum kvr_buckets_kind {
	KVR_BUCKETS_LOG,    /* 0, then n - 1 bounds a .. b, log-spaced, rounded to two digits */
	KVR_BUCKETS_LINEAR, /* a, a + b, ...: n of them */
	KVR_BUCKETS_EXP,    /* a, a * b, a * b * b, ...: n of them */
};

/** What a histogram counts. */
struct kvr_buckets_def {
	const char *name; /* the whole family: [a-z_]+ */
	const char *unit; /* "seconds", "tokens"; named in OpenMetrics when the name ends in it */
	const char *help; /* one line, no full stop */
	double parts;	  /* of a unit that values are counted in: 1e9 for nanoseconds of seconds */
	enum kvr_buckets_kind kind;
	double a, b;
	uint32_t n; /* at most KVR_BUCKETS_MAX; equal bounds become one */
};

struct kvr_buckets {
	const struct kvr_buckets_def *def;
	uint32_t n;
	double le[KVR_BUCKETS_MAX];	 /* ascending, in units */
	uint64_t bound[KVR_BUCKETS_MAX]; /* the same in parts */
	uint8_t first[65];		 /* by bits of a value: the first bucket it may be in */
};

/** One histogram. Zeroed it is empty. One writer. */
struct kvr_bucket_cells {
	kvr_cell_t sum; /* of values, in parts */
	kvr_cell_t count[KVR_BUCKETS_MAX + 1];
};

/** A copy of one, or a sum of several. */
struct kvr_bucket_counts {
	uint64_t sum;
	uint64_t count[KVR_BUCKETS_MAX + 1];
};

/** Compute the bounds. Any thread. @return 0, or -EINVAL: no buckets, too many, or not ascending.
 */
int kvr_buckets_init(struct kvr_buckets *b, const struct kvr_buckets_def *def);

/** The first bucket whose bound, @p times over, is not below @p v: n when there is none. @p times
 * at least 1; the last bound @p times over must fit in 64 bits. */
static inline uint32_t kvr_buckets_find(const struct kvr_buckets *b, uint64_t v, uint64_t times)
{
	uint32_t at = 0, left = b->n;

	while (left > 0) {
		const uint32_t half = left >> 1;
		const bool above = b->bound[at + half] * times < v;

		at = above ? at + half + 1 : at;
		left = above ? left - half - 1 : half;
	}
	return at;
}

/** The first bucket whose bound is not below @p v: n when there is none. Bounds that have as many
 * bits as @p v are compared, one or two of a log-spaced histogram. */
static inline uint32_t kvr_buckets_at(const struct kvr_buckets *b, uint64_t v)
{
	uint32_t at = b->first[v != 0 ? 64 - __builtin_clzll(v) : 0];

	while (at < b->n && b->bound[at] < v)
		at++;
	return at;
}

/** Count one value, in parts. Only the writer. */
static inline void kvr_buckets_add(const struct kvr_buckets *b, struct kvr_bucket_cells *c,
				   uint64_t v)
{
	kvr_cell_add(&c->count[kvr_buckets_at(b, v)], 1);
	kvr_cell_add(&c->sum, v);
}

/** Count @p n values (at least 1) that are @p total together, each as their mean. Only the writer.
 */
static inline void kvr_buckets_add_mean(const struct kvr_buckets *b, struct kvr_bucket_cells *c,
					uint64_t total, uint32_t n)
{
	kvr_cell_add(&c->count[kvr_buckets_find(b, total, n)], n);
	kvr_cell_add(&c->sum, total);
}

#define KVR_RATIO_PARTS 1280u /* of 1: multiples of 0.05 are whole */

/** @p num / @p den in parts of KVR_RATIO_PARTS, rounded up, at most 2 * KVR_RATIO_PARTS - 1; 0 when
 * @p den is 0. A search of eleven steps instead of a division. */
uint32_t kvr_ratio_parts(uint32_t num, uint32_t den);

/** Add what @p c has to @p sum. Any thread. */
void kvr_buckets_read(const struct kvr_bucket_cells *c, struct kvr_bucket_counts *sum);

/** Values counted. */
uint64_t kvr_buckets_count(const struct kvr_buckets *b, const struct kvr_bucket_counts *c);

/** Upper bound, in units, of the bucket that the ceil(@p q * count)-th smallest value lies in:
 * INFINITY behind the last; NAN without values. */
double kvr_buckets_quantile(const struct kvr_buckets *b, const struct kvr_bucket_counts *c,
			    double q);

/** Write one OpenMetrics family with @p n instances; label texts as kvr_stats_openmetrics(). */
void kvr_buckets_openmetrics(const struct kvr_buckets *b, const struct kvr_bucket_counts c[],
			     const char *const labels[], uint32_t n, FILE *out);

#endif
