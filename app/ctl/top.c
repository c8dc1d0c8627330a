/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "ctl.h"
#include "snap.h"
#include "table.h"

#define BAR	   20u
#define MAX_WORKER 40u /* of the busiest */

struct two {
	const json_t *was, *is;
	double seconds;
};

/* Growth of a number per second. */
static double rate(const struct two *t, const json_t *was, const json_t *is, const char *part,
		   const char *name)
{
	const double by = snap_number(snap_at(is, part, name, NULL)) -
			  snap_number(snap_at(was, part, name, NULL));

	return t->seconds > 0 && by > 0 ? by / t->seconds : 0;
}

static double share(double part, double all)
{
	return all > 0 ? 100 * part / all : 0;
}

static void head(const struct two *t, FILE *out)
{
	const json_t *info = snap_at(t->is, "info", NULL);
	const char *router = json_string_value(snap_at(t->is, "router", NULL));
	const char *version = json_string_value(json_object_get(info, "version"));
	const long up = (long)(snap_number(json_object_get(info, "uptime_ms")) / 1000);

	fprintf(out, "kvroute %s  %s  up %ldd %02ld:%02ld:%02ld  %.0f workers\n",
		router != NULL ? router : "", version != NULL ? version : "", up / 86400,
		up / 3600 % 24, up / 60 % 60, up % 60,
		snap_number(json_object_get(info, "workers")));
}

static void pools(const struct two *t, FILE *out)
{
	const char *name;
	json_t *is;

	fprintf(out, "\n%-16s %8s %8s %8s %7s %7s %6s %7s %7s %6s\n", "pool", "asked/s", "done/s",
		"refused", "waiting", "live", "hits", "blocks", "events", "table");
	json_object_foreach ((json_t *)(uintptr_t)snap_at(t->is, "pools", NULL), name, is) {
		const json_t *was = snap_at(t->was, "pools", name, NULL);
		const double found = rate(t, was, is, "requests", "actual_cached");
		const double said = rate(t, was, is, "requests", "predicted_cached");
		/* No engine has told what it found: that is not 0 %. */
		const bool told = snap_number(snap_at(is, "requests", "actual_cached", NULL)) > 0;
		char a[16], b[16], d[16], e[16], f[16], hits[16] = "-";

		if (said > 0 && told)
			snprintf(hits, sizeof(hits), "%.0f%%", share(found, said));

		fprintf(out, "%-16s %8s %8s %8s %7.0f %7.0f %6s %7s %7s %5.0f%%\n", name,
			table_short(rate(t, was, is, "requests", "routes"), a, sizeof(a)),
			table_short(rate(t, was, is, "requests", "finished"), b, sizeof(b)),
			table_short(rate(t, was, is, "requests", "rejected"), d, sizeof(d)),
			snap_number(snap_at(is, "requests", "waiting", NULL)),
			snap_number(snap_at(is, "requests", "live", NULL)), hits,
			table_short(snap_number(snap_at(is, "prefix", "blocks", NULL)), e,
				    sizeof(e)),
			table_short(rate(t, was, is, "events", "frames"), f, sizeof(f)),
			share(snap_number(snap_at(is, "prefix", "used_bytes", NULL)),
			      snap_number(snap_at(is, "prefix", "memory_bytes", NULL))));
	}
	fprintf(out, "hits: cached tokens found by engines, of those predicted\n");
}

/* The busiest first, by bookings; lists are short. */
static void workers(const struct two *t, FILE *out)
{
	json_t *all = json_copy((json_t *)(uintptr_t)snap_at(t->is, "workers", "workers", NULL));
	double most = 0;
	const char *id, *best;
	json_t *w;

	json_object_foreach (all, id, w) {
		const double n = snap_number(json_object_get(w, "bookings"));

		most = n > most ? n : most;
	}
	fprintf(out, "\n%-20s %-16s %-9s %8s\n", "worker", "pool", "state", "bookings");
	for (unsigned int i = 0; i < MAX_WORKER && json_object_size(all) != 0; i++) {
		const char *pool, *state;
		double n = -1;
		char bar[BAR + 1];

		best = NULL;
		json_object_foreach (all, id, w)
			if (snap_number(json_object_get(w, "bookings")) > n) {
				n = snap_number(json_object_get(w, "bookings"));
				best = id;
			}
		w = json_object_get(all, best);
		pool = json_string_value(json_object_get(w, "pool"));
		state = json_string_value(json_object_get(w, "state"));
		fprintf(out, "%-20s %-16s %-9s %8.0f  %s\n", best, pool != NULL ? pool : "",
			state != NULL ? state : "", n,
			table_bar(most > 0 ? n / most : 0, BAR, bar, sizeof(bar)));
		json_object_del(all, best);
	}
	if (json_object_size(all) != 0)
		fprintf(out, "and %zu more\n", json_object_size(all));
	json_decref(all);
}

/* Cycles of each item since the last look, and the share of a core. */
static void stages(const struct two *t, FILE *out)
{
	const double hz = snap_number(snap_at(t->is, "stages", "tsc_hz", NULL));
	const char *lcore, *stage;
	json_t *lc, *is;

	fprintf(out, "\n%-8s %4s  stage: cycles an item, share of the core\n", "lcore", "cpu");
	json_object_foreach ((json_t *)(uintptr_t)snap_at(t->is, "stages", NULL), lcore, lc) {
		if (!json_is_object(lc))
			continue;
		fprintf(out, "%-8s %4.0f ", lcore, snap_number(json_object_get(lc, "cpu")));
		json_object_foreach (lc, stage, is) {
			const json_t *was = snap_at(t->was, "stages", lcore, stage, NULL);
			const struct two one = {was, is, t->seconds};
			const double items = rate(&one, was, is, "items", NULL);
			const double cycles = rate(&one, was, is, "cycles", NULL);
			char a[16];

			if (json_is_object(is))
				fprintf(out, " %s %s %.0f%%", stage,
					table_short(items > 0 ? cycles / items : 0, a, sizeof(a)),
					share(cycles, hz));
		}
		fprintf(out, "\n");
	}
}

/* The median and the 99th of a hundred, since the router has started. */
static void latency(const struct two *t, FILE *out)
{
	const char *pool, *what;
	json_t *p, *h;

	json_object_foreach ((json_t *)(uintptr_t)snap_at(t->is, "latency", NULL), pool, p) {
		fprintf(out, "\n%-40s %8s %10s %10s\n", pool, "count", "p50", "p99");
		json_object_foreach (json_object_get(p, "histograms"), what, h) {
			const char *p50 = json_string_value(json_object_get(h, "p50"));
			const char *p99 = json_string_value(json_object_get(h, "p99"));
			char n[16];

			if (p50 != NULL && p99 != NULL)
				fprintf(out, "%-40s %8s %10s %10s\n", what,
					table_short(snap_number(json_object_get(h, "count")), n,
						    sizeof(n)),
					p50, p99);
		}
	}
}

void top_print(const json_t *was, const json_t *is, FILE *out)
{
	const struct two t = {was, is,
			      snap_number(json_object_get(is, "at")) -
				      snap_number(json_object_get(was, "at"))};

	head(&t, out);
	pools(&t, out);
	workers(&t, out);
	stages(&t, out);
	latency(&t, out);
}
