/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Bounds, sums and text of histograms: everything except counting, which is inline in
 * kvr_buckets.h.
 */

#include "kvr_buckets.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kvr_metrics.h"

/* ---- bounds ---- */

static double round_to_two_digits(double v)
{
	const double f = pow(10.0, 1.0 - floor(log10(v)));

	return round(v * f) / f;
}

static double get_bound(const struct kvr_buckets_def *def, uint32_t i)
{
	switch (def->kind) {
	case KVR_BUCKETS_LOG:
		return i == 0 ? 0
			      : round_to_two_digits(def->a *
						    pow(def->b / def->a, (double)i / (def->n - 1)));
	case KVR_BUCKETS_LINEAR:
		return def->a + def->b * i;
	default:
		return def->a * pow(def->b, i);
	}
}

int kvr_buckets_init(struct kvr_buckets *buckets, const struct kvr_buckets_def *def)
{
	memset(buckets, 0, sizeof(*buckets));
	buckets->def = def;
	if (def->n < 2 || def->n > KVR_BUCKETS_MAX || !(def->parts > 0))
		return -EINVAL;
	for (uint32_t i = 0; i < def->n; i++) {
		const double le = get_bound(def, i);

		if (!(le >= 0) || le * def->parts > 9e18 ||
		    (buckets->n > 0 && le < buckets->le[buckets->n - 1]))
			return -EINVAL;
		if (buckets->n > 0 && le == buckets->le[buckets->n - 1])
			continue;
		buckets->le[buckets->n] = le;
		buckets->bound[buckets->n++] = (uint64_t)llround(le * def->parts);
	}
	for (uint32_t bits = 0; bits <= 64; bits++)
		buckets->first[bits] = (uint8_t)kvr_buckets_find(
			buckets, bits != 0 ? UINT64_C(1) << (bits - 1) : 0, 1);
	return 0;
}

uint32_t kvr_ratio_parts(uint32_t num, uint32_t den)
{
	const uint64_t want = (uint64_t)num * KVR_RATIO_PARTS;
	uint32_t below = 0; /* largest number of parts known to be less than the ratio */

	if (num == 0 || den == 0)
		return 0;
	for (uint32_t step = 2048; step > 0; step >>= 1)
		below = (uint64_t)(below + step) * den < want ? below + step : below;
	return below + 1 < 2 * KVR_RATIO_PARTS ? below + 1 : 2 * KVR_RATIO_PARTS - 1;
}

/* ---- reading ---- */

void kvr_buckets_read(const struct kvr_bucket_cells *cells, struct kvr_bucket_counts *sum)
{
	sum->sum += kvr_cell_get(&cells->sum);
	for (uint32_t i = 0; i <= KVR_BUCKETS_MAX; i++)
		sum->count[i] += kvr_cell_get(&cells->count[i]);
}

uint64_t kvr_buckets_count(const struct kvr_buckets *buckets,
			   const struct kvr_bucket_counts *counts)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i <= buckets->n; i++)
		n += counts->count[i];
	return n;
}

double kvr_buckets_quantile(const struct kvr_buckets *buckets,
			    const struct kvr_bucket_counts *counts, double q)
{
	const uint64_t n = kvr_buckets_count(buckets, counts);
	uint64_t rank = (uint64_t)ceil(q * (double)n), seen = 0;

	if (n == 0)
		return NAN;
	if (rank == 0)
		rank = 1;
	for (uint32_t i = 0; i < buckets->n; i++) {
		seen += counts->count[i];
		if (seen >= rank)
			return buckets->le[i];
	}
	return INFINITY;
}

/* ---- Prometheus text ---- */

/* Print a number with a point or an exponent. */
static void print_number(double v, FILE *out)
{
	char text[32];

	snprintf(text, sizeof(text), "%.10g", v);
	fprintf(out, "%s%s", text, strpbrk(text, ".en") == NULL ? ".0" : "");
}

static void write_instance(const struct kvr_buckets *buckets,
			   const struct kvr_bucket_counts *counts, const char *label, FILE *out)
{
	const char *name = buckets->def->name, *l = label != NULL ? label : "";
	const char *open = label != NULL ? "{" : "", *close = label != NULL ? "}" : "";
	uint64_t n = 0;

	for (uint32_t i = 0; i <= buckets->n; i++) {
		n += counts->count[i];
		fprintf(out, "%s_bucket{%s%sle=\"", name, l, label != NULL ? "," : "");
		if (i < buckets->n)
			print_number(buckets->le[i], out);
		else
			fprintf(out, "+Inf");
		fprintf(out, "\"} %" PRIu64 "\n", n);
	}
	fprintf(out, "%s_count%s%s%s %" PRIu64 "\n", name, open, l, close, n);
	fprintf(out, "%s_sum%s%s%s ", name, open, l, close);
	print_number((double)counts->sum / buckets->def->parts, out);
	fprintf(out, "\n");
}

void kvr_buckets_write(const struct kvr_buckets *buckets, const struct kvr_bucket_counts counts[],
		       const char *const labels[], uint32_t n, FILE *out)
{
	kvr_metrics_head(buckets->def->name, "histogram", buckets->def->help, out);
	for (uint32_t i = 0; i < n; i++)
		write_instance(buckets, &counts[i], labels != NULL ? labels[i] : NULL, out);
}
