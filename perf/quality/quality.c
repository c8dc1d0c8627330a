/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The quality of decisions: one workload on one cluster under several policies, in virtual time.
 *
 *   quality --trace FILE | --agents | --flood  [--ranks N] [--cache PART] [--load PART]
 *           [--engine fcfs|chunked] [--late S] [--noise SIGMA] [--spread PART] [--turn FACTOR]
 *           [--restart] [--seed N] POLICY...
 *
 * A policy is `reference` (mode kv), `preset`, `most-overlap` or a routing mode, optionally with
 * keys of the pool: ttft,ttft_decode_weight=0. Arrival times are stretched until prefill takes the
 * share `load` of the ranks' time under the reference's defaults. The first tenth of the requests
 * is left out of the results. Output: one line of JSON per policy and per bound, times in seconds.
 */

#include "arrivals.h"
#include "cluster.h"
#include "trace.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALIBRATIONS 4

struct opt {
	const char *trace;
	char workload;
	double cache, load;
	struct cluster_conf c;
};

/* ---- bounds: caches that serve all requests in order ------------------------------------- */

struct bound {
	const char *name;
	double hit;	/* tokens */
	uint32_t *have; /* per request */
};

static struct bound replay_bound(const struct work *w, const char *name, uint32_t blocks)
{
	struct bound b = {.name = name, .have = cluster_alloc(w->n, sizeof(*b.have))};
	struct engine_cache *c = engine_cache_create(blocks, 1);
	uint64_t *gone = cluster_alloc(blocks + 1ul, 8);

	if (c == NULL)
		exit(1);
	for (uint32_t i = 0; i < w->n; i++) {
		const struct cluster_req *r = &w->req[i];
		const uint32_t tokens =
			engine_cache_store(c, r->sh, r->n, gone).have * CLUSTER_BLOCK;

		b.have[i] = tokens < r->isl ? tokens : r->isl - 1;
		b.hit += i >= w->n / 10 ? tokens : 0;
	}
	engine_cache_destroy(c);
	free(gone);
	return b;
}

/* ---- one policy -------------------------------------------------------------------------- */

static double calibrate_load(struct work *w, const struct opt *o)
{
	struct cluster_conf c = {.ranks = o->c.ranks,
				 .cache_blocks = o->c.cache_blocks,
				 .policy = "reference",
				 .turn = 1,
				 .seed = o->c.seed};
	double stretch = 1;

	for (int i = 0; i < CALIBRATIONS; i++) {
		work_run(w, &c, stretch);
		stretch *= work_prefill_share(w, o->c.ranks) / o->load;
	}
	return stretch;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* @tenant CLUSTER_NONE: all */
static void print_times(const struct work *w, uint32_t tenant, const char *name)
{
	double *t = cluster_alloc(w->n, sizeof(*t)), sum = 0;
	uint32_t n = 0;

	for (uint32_t i = w->n / 10; i < w->n; i++)
		if (tenant == CLUSTER_NONE || w->req[i].tenant == tenant) {
			t[n] = (double)(w->req[i].first - w->req[i].at) / 1e9;
			sum += t[n++];
		}
	qsort(t, n, sizeof(*t), by_value);
	if (n > 0)
		printf(", \"%smean\": %.6f, \"%sp50\": %.6f, \"%sp90\": %.6f, \"%sp99\": %.6f",
		       name, sum / n, name, t[n / 2], name, t[(size_t)(n * 0.9)], name,
		       t[(size_t)(n * 0.99)]);
	free(t);
}

/* Take the rank that is free first, for @ns. @return the end. */
static uint64_t serve_first(uint64_t *free_at, uint32_t ranks, uint64_t now, uint64_t ns)
{
	uint32_t k = 0;

	for (uint32_t i = 1; i < ranks; i++)
		k = free_at[i] < free_at[k] ? i : k;
	free_at[k] = (free_at[k] > now ? free_at[k] : now) + ns;
	return free_at[k];
}

/*
 * Print the times of a bound: each rank has such a cache. Without a queue no request waits, and no
 * router can be faster. With a queue, requests take the next free rank in order of arrival: the
 * result of a router that never has to choose between cached blocks and a short queue.
 */
static void print_bound(struct work *w, const struct opt *o, const struct bound *b, bool queue)
{
	uint64_t *free_at = cluster_alloc(o->c.ranks, sizeof(*free_at));
	double all = 0;

	for (uint32_t i = 0; i < w->n; i++) {
		struct cluster_req *r = &w->req[i];
		const uint64_t ns = (uint64_t)engine_idle_prefill(cluster_speed(o->c.engine),
								  r->isl - b->have[i]);

		r->first = queue ? serve_first(free_at, o->c.ranks, r->at, ns) : r->at + ns;
		all += i >= w->n / 10 ? r->isl : 0;
	}
	free(free_at);
	printf("{\"policy\": \"%s%s\"", b->name, queue ? "-queue" : "");
	print_times(w, CLUSTER_NONE, "");
	if (w->tenants)
		print_times(w, 0, "quiet_");
	printf(", \"hits\": %.6f}\n", b->hit / all);
	fflush(stdout);
}

static void print_policy(const struct work *w, const struct opt *o, const char *policy,
			 double pooled, double infinite)
{
	double hit = 0, computed = 0, wasted = 0, looked = 0, tpot = 0;
	uint32_t decoded = 0;

	for (uint32_t i = w->n / 10; i < w->n; i++) {
		const struct cluster_req *r = &w->req[i];

		hit += r->cached;
		computed += r->isl - r->cached;
		if (r->wasted != CLUSTER_NONE) {
			wasted += r->wasted;
			looked += r->isl - r->cached;
		}
		if (r->osl < 2)
			continue;
		tpot += (double)(r->end - r->first) / 1e9 / (r->osl - 1);
		decoded++;
	}
	printf("{\"policy\": \"%s\", \"load\": %.3f", policy, work_prefill_share(w, o->c.ranks));
	print_times(w, CLUSTER_NONE, "");
	if (w->tenants)
		print_times(w, 0, "quiet_");
	printf(", \"tpot\": %.6f, \"hits\": %.6f, \"pooled\": %.6f, \"infinite\": %.6f, "
	       "\"redundant\": "
	       "%.6f}\n",
	       tpot / decoded, hit / (hit + computed), pooled / (hit + computed),
	       infinite / (hit + computed), wasted / looked);
	fflush(stdout);
}

/* ---- */

static double parse_number(const char *s)
{
	char *end;
	double v = strtod(s, &end);

	if (*end != '\0' || end == s || !(v >= 0)) {
		fprintf(stderr, "quality: '%s' is not a number from 0\n", s);
		exit(2);
	}
	return v;
}

static enum cluster_engine parse_engine(const char *s)
{
	if (strcmp(s, "fcfs") != 0 && strcmp(s, "chunked") != 0) {
		fprintf(stderr, "quality: --engine must be fcfs or chunked, not '%s'\n", s);
		exit(2);
	}
	return *s == 'f' ? CLUSTER_FCFS : CLUSTER_CHUNKED;
}

static void parse_options(int argc, char **argv, struct opt *o)
{
	static const struct option names[] = {
		{"trace", 1, NULL, 't'},  {"agents", 0, NULL, 'a'}, {"flood", 0, NULL, 'f'},
		{"ranks", 1, NULL, 'r'},  {"cache", 1, NULL, 'c'},  {"load", 1, NULL, 'l'},
		{"engine", 1, NULL, 'e'}, {"late", 1, NULL, 'd'},   {"noise", 1, NULL, 'n'},
		{"spread", 1, NULL, 's'}, {"turn", 1, NULL, 'u'},   {"restart", 0, NULL, 'x'},
		{"seed", 1, NULL, 'S'},	  {NULL, 0, NULL, 0}};
	int k;

	while ((k = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (k) {
		case 't':
			o->trace = optarg;
			break;
		case 'a':
		case 'f':
			o->workload = (char)k;
			break;
		case 'r':
			o->c.ranks = (uint32_t)parse_number(optarg);
			break;
		case 'c':
			o->cache = parse_number(optarg);
			break;
		case 'l':
			o->load = parse_number(optarg);
			break;
		case 'e':
			o->c.engine = parse_engine(optarg);
			break;
		case 'd':
			o->c.late_s = parse_number(optarg);
			break;
		case 'n':
			o->c.noise = parse_number(optarg);
			break;
		case 's':
			o->c.spread = parse_number(optarg);
			break;
		case 'u':
			o->c.turn = parse_number(optarg);
			break;
		case 'x':
			o->c.restart = true;
			break;
		case 'S':
			o->c.seed = (uint64_t)parse_number(optarg);
			break;
		default:
			exit(2);
		}
	}
	if ((o->trace == NULL) == (o->workload == 0) || o->c.ranks == 0 ||
	    o->c.ranks > KVR_PREFIX_MAX_RANKS || !(o->cache > 0) || !(o->load > 0) ||
	    optind == argc) {
		fprintf(stderr,
			"quality: expected one of --trace, --agents and --flood, --ranks, --cache and --load above 0, and policies\n");
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct opt o = {.cache = 0.2, .load = 0.7, .c = {.ranks = 8, .turn = 1, .seed = 1}};
	struct bound pooled, infinite;
	double stretch;
	struct work w = {0};

	parse_options(argc, argv, &o);
	cluster_start_eal("quality", "1024");
	if (o.trace != NULL)
		work_trace(&w, o.trace, o.c.ranks);
	else if (o.workload == 'a')
		work_agents(&w, o.c.ranks, o.c.seed);
	else
		work_flood(&w, o.c.ranks, o.c.seed);
	o.c.cache_blocks = (uint32_t)(w.unique * o.cache / o.c.ranks);
	if (o.c.cache_blocks < w.longest)
		o.c.cache_blocks = w.longest;
	pooled = replay_bound(&w, "bound-pooled", o.c.cache_blocks * o.c.ranks);
	infinite = replay_bound(&w, "bound-infinite", (uint32_t)w.unique + 1);
	stretch = calibrate_load(&w, &o);
	for (int i = optind; i < argc; i++) {
		struct cluster_conf c = o.c;

		c.policy = argv[i];
		work_run(&w, &c, stretch);
		print_policy(&w, &o, argv[i], pooled.hit, infinite.hit);
	}
	print_bound(&w, &o, &pooled, true);
	print_bound(&w, &o, &pooled, false);
	print_bound(&w, &o, &infinite, false);
	free(pooled.have);
	free(infinite.have);
	return 0;
}
