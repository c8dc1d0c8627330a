/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_buckets.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- bounds ---- */

static double two_digits(double v)
{
	const double f = pow(10.0, 1.0 - floor(log10(v)));

	return round(v * f) / f;
}

static double bound_of(const struct kvr_buckets_def *d, uint32_t i)
{
	switch (d->kind) {
	case KVR_BUCKETS_LOG:
		return i == 0 ? 0 : two_digits(d->a * pow(d->b / d->a, (double)i / (d->n - 1)));
	case KVR_BUCKETS_LINEAR:
		return d->a + d->b * i;
	default:
		return d->a * pow(d->b, i);
	}
}

int kvr_buckets_init(struct kvr_buckets *b, const struct kvr_buckets_def *def)
{
	memset(b, 0, sizeof(*b));
	b->def = def;
	if (def->n < 2 || def->n > KVR_BUCKETS_MAX || !(def->parts > 0))
		return -EINVAL;
	for (uint32_t i = 0; i < def->n; i++) {
		const double le = bound_of(def, i);

		if (!(le >= 0) || le * def->parts > 9e18 || (b->n > 0 && le < b->le[b->n - 1]))
			return -EINVAL;
		if (b->n > 0 && le == b->le[b->n - 1])
			continue;
		b->le[b->n] = le;
		b->bound[b->n++] = (uint64_t)llround(le * def->parts);
	}
	for (uint32_t bits = 0; bits <= 64; bits++)
		b->first[bits] =
			(uint8_t)kvr_buckets_find(b, bits != 0 ? UINT64_C(1) << (bits - 1) : 0, 1);
	return 0;
}

uint32_t kvr_ratio_parts(uint32_t num, uint32_t den)
{
	const uint64_t want = (uint64_t)num * KVR_RATIO_PARTS;
	uint32_t below = 0; /* largest number of parts that is known to be less than the ratio */

	if (num == 0 || den == 0)
		return 0;
	for (uint32_t step = 2048; step > 0; step >>= 1)
		below = (uint64_t)(below + step) * den < want ? below + step : below;
	return below + 1 < 2 * KVR_RATIO_PARTS ? below + 1 : 2 * KVR_RATIO_PARTS - 1;
}

/* ---- reading ---- */

void kvr_buckets_read(const struct kvr_bucket_cells *c, struct kvr_bucket_counts *sum)
{
	sum->sum += kvr_cell_get(&c->sum);
	for (uint32_t i = 0; i <= KVR_BUCKETS_MAX; i++)
		sum->count[i] += kvr_cell_get(&c->count[i]);
}

uint64_t kvr_buckets_count(const struct kvr_buckets *b, const struct kvr_bucket_counts *c)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i <= b->n; i++)
		n += c->count[i];
	return n;
}

double kvr_buckets_quantile(const struct kvr_buckets *b, const struct kvr_bucket_counts *c,
			    double q)
{
	const uint64_t n = kvr_buckets_count(b, c);
	uint64_t rank = (uint64_t)ceil(q * (double)n), seen = 0;

	if (n == 0)
		return NAN;
	if (rank == 0)
		rank = 1;
	for (uint32_t i = 0; i < b->n; i++) {
		seen += c->count[i];
		if (seen >= rank)
			return b->le[i];
	}
	return INFINITY;
}

/* ---- OpenMetrics ---- */

static bool ends_in(const char *name, const char *unit)
{
	const size_t n = strlen(name), u = strlen(unit);

	return u != 0 && n > u && strcmp(name + n - u, unit) == 0 && name[n - u - 1] == '_';
}

/* A number of the format's canonical kind: with a point, or an exponent. */
static void number(double v, FILE *out)
{
	char text[32];

	snprintf(text, sizeof(text), "%.10g", v);
	fprintf(out, "%s%s", text, strpbrk(text, ".en") == NULL ? ".0" : "");
}

static void write_one(const struct kvr_buckets *b, const struct kvr_bucket_counts *c,
		      const char *label, FILE *out)
{
	const char *name = b->def->name, *l = label != NULL ? label : "";
	const char *open = label != NULL ? "{" : "", *close = label != NULL ? "}" : "";
	uint64_t n = 0;

	for (uint32_t i = 0; i <= b->n; i++) {
		n += c->count[i];
		fprintf(out, "%s_bucket{%s%sle=\"", name, l, label != NULL ? "," : "");
		if (i < b->n)
			number(b->le[i], out);
		else
			fprintf(out, "+Inf");
		fprintf(out, "\"} %" PRIu64 "\n", n);
	}
	fprintf(out, "%s_count%s%s%s %" PRIu64 "\n", name, open, l, close, n);
	fprintf(out, "%s_sum%s%s%s ", name, open, l, close);
	number((double)c->sum / b->def->parts, out);
	fprintf(out, "\n");
}

void kvr_buckets_openmetrics(const struct kvr_buckets *b, const struct kvr_bucket_counts c[],
			     const char *const labels[], uint32_t n, FILE *out)
{
	const struct kvr_buckets_def *d = b->def;

	fprintf(out, "# TYPE %s histogram\n", d->name);
	if (ends_in(d->name, d->unit))
		fprintf(out, "# UNIT %s %s\n", d->name, d->unit);
	fprintf(out, "# HELP %s %s\n", d->name, d->help);
	for (uint32_t i = 0; i < n; i++)
		write_one(b, &c[i], labels != NULL ? labels[i] : NULL, out);
}
