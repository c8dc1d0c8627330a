/* SPDX-License-Identifier: BSD-3-Clause */
/* One screen of text from two samples: rates since the first one, states of the second. */
#include <string.h>

#include "ctl.h"
#include "sample.h"
#include "table.h"

#define BAR	   20u
#define MAX_WORKER 40u /* the busiest workers are printed */

struct two {
	const json_t *was, *is;
	double seconds;
};

/* @return the growth of a number per second. */
static double get_rate(const struct two *t, const json_t *was, const json_t *is, const char *part,
		       const char *name)
{
	const double by = sample_to_number(sample_get(is, part, name, NULL)) -
			  sample_to_number(sample_get(was, part, name, NULL));

	return t->seconds > 0 && by > 0 ? by / t->seconds : 0;
}

static double to_percent(double part, double all)
{
	return all > 0 ? 100 * part / all : 0;
}

static void print_head(const struct two *t, FILE *out)
{
	const json_t *info = sample_get(t->is, "info", NULL);
	const char *router = json_string_value(sample_get(t->is, "router", NULL));
	const char *version = json_string_value(json_object_get(info, "version"));
	const long up = (long)(sample_to_number(json_object_get(info, "uptime_ms")) / 1000);

	fprintf(out, "kvroute %s  %s  up %ldd %02ld:%02ld:%02ld  %.0f workers\n",
		router != NULL ? router : "", version != NULL ? version : "", up / 86400,
		up / 3600 % 24, up / 60 % 60, up % 60,
		sample_to_number(json_object_get(info, "workers")));
}

static void print_pools(const struct two *t, FILE *out)
{
	const char *name;
	json_t *is;

	fprintf(out, "\n%-16s %8s %8s %8s %7s %7s %6s %7s %7s %6s\n", "pool", "routes/s", "done/s",
		"rejected", "waiting", "flight", "found", "blocks", "events", "table");
	json_object_foreach ((json_t *)(uintptr_t)sample_get(t->is, "pools", NULL), name, is) {
		const json_t *was = sample_get(t->was, "pools", name, NULL);
		const double found = get_rate(t, was, is, "requests", "actual_cached");
		const double predicted = get_rate(t, was, is, "requests", "predicted_cached");
		/* Without a report of an engine the ratio is unknown, not 0 %. */
		const bool reported =
			sample_to_number(sample_get(is, "requests", "actual_cached", NULL)) > 0;
		char a[16], b[16], d[16], e[16], f[16], hits[16] = "-";

		if (predicted > 0 && reported)
			snprintf(hits, sizeof(hits), "%.0f%%", to_percent(found, predicted));

		fprintf(out, "%-16s %8s %8s %8s %7.0f %7.0f %6s %7s %7s %5.0f%%\n", name,
			table_format_short(get_rate(t, was, is, "requests", "routes"), a,
					   sizeof(a)),
			table_format_short(get_rate(t, was, is, "requests", "finished"), b,
					   sizeof(b)),
			table_format_short(get_rate(t, was, is, "requests", "rejected"), d,
					   sizeof(d)),
			sample_to_number(sample_get(is, "requests", "waiting", NULL)),
			sample_to_number(sample_get(is, "requests", "live", NULL)), hits,
			table_format_short(
				sample_to_number(sample_get(is, "prefix", "blocks", NULL)), e,
				sizeof(e)),
			table_format_short(get_rate(t, was, is, "events", "frames"), f, sizeof(f)),
			to_percent(
				sample_to_number(sample_get(is, "prefix", "used_bytes", NULL)),
				sample_to_number(sample_get(is, "prefix", "memory_bytes", NULL))));
	}
	fprintf(out,
		"found: cached tokens found by engines, percent of those predicted; events: KV_EVENTS frames per second\n");
}

/* The busiest workers first, by bookings; the list is short. */
static void print_workers(const struct two *t, FILE *out)
{
	json_t *all = json_copy((json_t *)(uintptr_t)sample_get(t->is, "workers", "workers", NULL));
	double most = 0;
	const char *id, *best;
	json_t *w;

	json_object_foreach (all, id, w) {
		const double n = sample_to_number(json_object_get(w, "bookings"));

		most = n > most ? n : most;
	}
	fprintf(out, "\n%-20s %-16s %-9s %8s\n", "worker", "pool", "state", "bookings");
	for (unsigned int i = 0; i < MAX_WORKER && json_object_size(all) != 0; i++) {
		const char *pool, *state;
		double n = -1;
		char bar[BAR + 1];

		best = NULL;
		json_object_foreach (all, id, w)
			if (sample_to_number(json_object_get(w, "bookings")) > n) {
				n = sample_to_number(json_object_get(w, "bookings"));
				best = id;
			}
		w = json_object_get(all, best);
		pool = json_string_value(json_object_get(w, "pool"));
		state = json_string_value(json_object_get(w, "state"));
		fprintf(out, "%-20s %-16s %-9s %8.0f  %s\n", best, pool != NULL ? pool : "",
			state != NULL ? state : "", n,
			table_format_bar(most > 0 ? n / most : 0, BAR, bar, sizeof(bar)));
		json_object_del(all, best);
	}
	if (json_object_size(all) != 0)
		fprintf(out, "%zu more workers\n", json_object_size(all));
	json_decref(all);
}

/* Cycles per item since the first sample, and the load of the core. */
static void print_stages(const struct two *t, FILE *out)
{
	const double hz = sample_to_number(sample_get(t->is, "stages", "tsc_hz", NULL));
	const char *lcore, *stage;
	json_t *lc, *is;

	fprintf(out, "\n%-8s %4s  stage: cycles per item, load of the core\n", "lcore", "cpu");
	json_object_foreach ((json_t *)(uintptr_t)sample_get(t->is, "stages", NULL), lcore, lc) {
		if (!json_is_object(lc))
			continue;
		fprintf(out, "%-8s %4.0f ", lcore, sample_to_number(json_object_get(lc, "cpu")));
		json_object_foreach (lc, stage, is) {
			const json_t *was = sample_get(t->was, "stages", lcore, stage, NULL);
			const struct two one = {was, is, t->seconds};
			const double items = get_rate(&one, was, is, "items", NULL);
			const double cycles = get_rate(&one, was, is, "cycles", NULL);
			char a[16];

			if (json_is_object(is))
				fprintf(out, " %s %s %.0f%%", stage,
					table_format_short(items > 0 ? cycles / items : 0, a,
							   sizeof(a)),
					to_percent(cycles, hz));
		}
		fprintf(out, "\n");
	}
}

/* Median and 99th percentile since the start of the router. */
static void print_latency(const struct two *t, FILE *out)
{
	const char *pool, *what;
	json_t *p, *h;

	json_object_foreach ((json_t *)(uintptr_t)sample_get(t->is, "latency", NULL), pool, p) {
		fprintf(out, "\n%-40s %8s %10s %10s\n", pool, "count", "p50", "p99");
		json_object_foreach (json_object_get(p, "histograms"), what, h) {
			const char *p50 = json_string_value(json_object_get(h, "p50"));
			const char *p99 = json_string_value(json_object_get(h, "p99"));
			char n[16];

			if (p50 != NULL && p99 != NULL)
				fprintf(out, "%-40s %8s %10s %10s\n", what,
					table_format_short(
						sample_to_number(json_object_get(h, "count")), n,
						sizeof(n)),
					p50, p99);
		}
	}
}

void top_print(const json_t *was, const json_t *is, FILE *out)
{
	const struct two t = {was, is,
			      sample_to_number(json_object_get(is, "at")) -
				      sample_to_number(json_object_get(was, "at"))};

	print_head(&t, out);
	print_pools(&t, out);
	print_workers(&t, out);
	print_stages(&t, out);
	print_latency(&t, out);
}
