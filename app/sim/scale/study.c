/* SPDX-License-Identifier: BSD-3-Clause */
#include "study.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "arrivals.h"
#include "cluster.h"
#include "trace.h"

#define STUDIES	     4u
#define CALIBRATIONS 2
#define TURNS	     3u

const char *const scale_policies[SCALE_POLICIES] = {"reference", "round-robin", "least-loaded"};
static const char *const shown[SCALE_POLICIES] = {"kv", "round-robin", "least-loaded"};

struct options {
	uint32_t ranks[SCALE_POINTS], n_ranks;
	uint32_t sessions, per_rank;
	double load, cache;
	const char *svg, *data;
};

static void print_usage(FILE *out)
{
	fprintf(out,
		"usage: kvroute-sim --scale [option...]\n"
		"  --ranks A,B,...  numbers of ranks, 1 to %u (64,512,4096,10000)\n"
		"  --sessions N     sessions of %u turns in each point; 0: none (1000 per rank)\n"
		"  --data DIR       replay copies of mooncake_{conversation,synthetic}_trace.jsonl of DIR (none)\n"
		"  --per-rank N     requests of a trace per rank, approximately (50)\n"
		"  --load PART      share of the ranks' time that prefill takes in mode kv (0.7)\n"
		"  --cache PART     share of the distinct blocks that fits into all ranks (0.2)\n"
		"  --svg FILE       write a plot over the number of ranks\n"
		"If an option is given twice, the last value counts.\n",
		KVR_PREFIX_MAX_RANKS, TURNS);
}

/* CPU time of this thread, as other processes use the machine as well. */
static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- one run ---- */

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* The first tenth of the requests meets caches that are being filled, and is left out. */
static void evaluate_run(const struct work *w, uint32_t ranks, const struct cluster_cost *cost,
			 struct scale_result *out)
{
	double *computed = cluster_alloc(ranks, sizeof(*computed)),
	       *queue = cluster_alloc(w->n, sizeof(*queue));
	double hit = 0, all = 0, most = 0;
	const uint32_t first = w->n / 10, n = w->n - first;

	*out = (struct scale_result){0};
	for (uint32_t i = first; i < w->n; i++) {
		const struct cluster_req *r = &w->req[i];

		hit += r->cached;
		all += r->isl;
		computed[r->rank] += r->isl - r->cached;
		queue[i - first] = (double)(r->begun - r->at) * 1e-9;
		out->queue_s += queue[i - first] / n;
		out->ttft_s += (double)(r->first - r->at) * 1e-9 / n;
	}
	for (uint32_t r = 0; r < ranks; r++)
		most = computed[r] > most ? computed[r] : most;
	qsort(queue, n, sizeof(*queue), by_value);
	out->queue99_s = queue[n - 1 - n / 100];
	out->hits = hit / all;
	out->balance = most * ranks / (all - hit);
	out->decision_us = (double)cost->ns / (double)cost->decisions * 1e-3;
	free(computed);
	free(queue);
}

/* The stretch for the load without any cached blocks. */
static double first_stretch(const struct options *o, struct work *w, uint32_t ranks)
{
	for (uint32_t i = 0; i < w->n; i++) {
		w->req[i].at = w->at[i];
		w->req[i].cached = 0;
	}
	return work_prefill_share(w, ranks) / o->load;
}

static void measure_point(const struct options *o, struct work *w, struct scale_study *s,
			  uint32_t ranks)
{
	/* All requests may wait at once: the load that kv sustains overloads the other policies. */
	const uint32_t slots = RTE_MAX(w->n, 65536u);
	struct cluster_conf c = {.ranks = ranks, .turn = 1, .seed = 1, .slots = slots};
	double stretch = first_stretch(o, w, ranks);
	char policy[SCALE_POLICIES][80];

	for (uint32_t i = 0; i < SCALE_POLICIES; i++)
		snprintf(policy[i], sizeof(policy[i]), "%s,max_active_blocks=%u", scale_policies[i],
			 RTE_MAX(4u << 20, RTE_MIN(slots, 1u << 21) * 16));
	c.cache_blocks = (uint32_t)(w->unique * o->cache / ranks);
	c.cache_blocks = c.cache_blocks < w->longest ? w->longest : c.cache_blocks;
	c.policy = policy[0];
	for (int i = 0; i < CALIBRATIONS; i++) {
		work_run(w, &c, stretch);
		stretch *= work_prefill_share(w, ranks) / o->load;
	}
	s->ranks[s->n] = ranks;
	s->requests[s->n] = w->n;
	for (uint32_t i = 0; i < SCALE_POLICIES; i++) {
		struct cluster_cost cost = {.clock_ns = clock_ns};
		struct scale_result *r = &s->at[s->n][i];

		c.policy = policy[i];
		c.cost = &cost;
		work_run(w, &c, stretch);
		evaluate_run(w, ranks, &cost, r);
		printf("| %s | %u | %u | %s | %.1f %% | %.2f | %.4f | %.4f | %.4f | %.1f |\n",
		       s->name, ranks, w->n, shown[i], 100 * r->hits, r->balance, r->queue_s,
		       r->queue99_s, r->ttft_s, r->decision_us);
		fflush(stdout);
	}
	s->n++;
	free(w->req);
	free(w->at);
	free(w->sh);
}

/* ---- studies ---- */

static void study_sessions(const struct options *o, struct scale_study *s)
{
	s->name = "sessions";
	for (uint32_t i = 0; i < o->n_ranks; i++) {
		struct work w = {0};

		work_sessions(&w, o->sessions != UINT32_MAX ? o->sessions : 1000 * o->ranks[i],
			      TURNS, 1);
		measure_point(o, &w, s, o->ranks[i]);
	}
}

static bool is_there(const struct options *o, const char *name, char *path, size_t len)
{
	snprintf(path, len, "%s/mooncake_%s_trace.jsonl", o->data, name);
	return access(path, R_OK) == 0;
}

static int study_trace(const struct options *o, const char *name, struct scale_study *s)
{
	char path[512], err[256];
	struct load_trace t = {0};

	if (o->data == NULL)
		return -ENOENT;
	if (!is_there(o, name, path, sizeof(path))) {
		printf("\n%s: no such file, skipped\n\n", path);
		return -ENOENT;
	}
	if (load_trace_read(&t, path, 0, err, sizeof(err)) < 0) {
		fprintf(stderr, "kvroute-sim: %s: %s\n", path, err);
		exit(1);
	}
	s->name = name;
	for (uint32_t i = 0; i < o->n_ranks; i++) {
		const uint64_t want = (uint64_t)o->per_rank * o->ranks[i];
		struct work w = {0};

		work_copies(&w, &t, (uint32_t)((want + t.n_rows - 1) / t.n_rows));
		measure_point(o, &w, s, o->ranks[i]);
	}
	load_trace_free(&t);
	return 0;
}

/* ---- options ---- */

static double parse_number(const char *text, double most)
{
	char *end;
	const double v = strtod(text, &end);

	if (end != text && *end == '\0' && v >= 0 && v <= most)
		return v;
	fprintf(stderr, "kvroute-sim: '%s' is not a number from 0 to %.0f\n", text, most);
	exit(2);
}

static void parse_ranks(struct options *o, char *text)
{
	o->n_ranks = 0;
	for (char *at = strtok(text, ","); at != NULL; at = strtok(NULL, ",")) {
		const double v = parse_number(at, UINT32_MAX);

		if (v < 1 || v > KVR_PREFIX_MAX_RANKS || o->n_ranks == SCALE_POINTS) {
			fprintf(stderr, "kvroute-sim: --ranks: at most 16 numbers from 1 to %u\n",
				KVR_PREFIX_MAX_RANKS);
			exit(2);
		}
		o->ranks[o->n_ranks++] = (uint32_t)v;
	}
}

static void parse_options(int argc, char **argv, struct options *o)
{
	static const struct option names[] = {
		{"ranks", 1, NULL, 'r'},    {"sessions", 1, NULL, 's'}, {"data", 1, NULL, 'd'},
		{"per-rank", 1, NULL, 'p'}, {"load", 1, NULL, 'l'},	{"cache", 1, NULL, 'c'},
		{"svg", 1, NULL, 'g'},	    {"help", 0, NULL, 'h'},	{NULL, 0, NULL, 0}};
	int c;

	while ((c = getopt_long(argc, argv, "h", names, NULL)) != -1) {
		if (c == 'r')
			parse_ranks(o, optarg);
		else if (c == 's')
			o->sessions = (uint32_t)parse_number(optarg, 1e8);
		else if (c == 'd')
			o->data = optarg;
		else if (c == 'p')
			o->per_rank = (uint32_t)parse_number(optarg, 1e5);
		else if (c == 'l')
			o->load = parse_number(optarg, 10);
		else if (c == 'c')
			o->cache = parse_number(optarg, 10);
		else if (c == 'g')
			o->svg = optarg;
		else {
			print_usage(c == 'h' ? stdout : stderr);
			exit(c == 'h' ? 0 : 2);
		}
	}
	if (optind == argc && o->n_ranks > 0 && o->per_rank > 0 && o->load > 0 && o->cache > 0)
		return;
	print_usage(stderr);
	exit(2);
}

/* Fail when --data names a folder without traces. */
static void need_traces(const struct options *o)
{
	char path[512];

	if (o->data == NULL && o->sessions == 0) {
		fprintf(stderr, "kvroute-sim: --sessions 0 without --data leaves no workload\n");
		exit(2);
	}
	if (o->data == NULL || is_there(o, "conversation", path, sizeof(path)) ||
	    is_there(o, "synthetic", path, sizeof(path)))
		return;
	fprintf(stderr,
		"kvroute-sim: --data %s: neither mooncake_conversation_trace.jsonl nor mooncake_synthetic_trace.jsonl is there\n",
		o->data);
	exit(2);
}

int scale_main(int argc, char **argv)
{
	static struct scale_study s[STUDIES];
	struct options o = {.ranks = {64, 512, 4096, 10000},
			    .n_ranks = 4,
			    .sessions = UINT32_MAX,
			    .per_rank = 50,
			    .load = 0.7,
			    .cache = 0.2};
	uint32_t n = 0;
	int rc = 0;

	parse_options(argc, argv, &o);
	need_traces(&o);
	cluster_start_eal("kvroute-sim", "4096");
	printf("| workload | ranks | requests | policy | hit share | busiest / mean | queue, mean "
	       "s | "
	       "p99 s | TTFT, mean s | us a decision |\n"
	       "|---|---|---|---|---|---|---|---|---|---|\n");
	n += study_trace(&o, "conversation", &s[n]) == 0;
	n += study_trace(&o, "synthetic", &s[n]) == 0;
	if (o.sessions != 0)
		study_sessions(&o, &s[n++]);
	if (o.svg != NULL)
		rc = scale_plot(o.svg, s, n);
	if (rc < 0)
		fprintf(stderr, "kvroute-sim: %s: %s\n", o.svg, strerror(-rc));
	return rc < 0;
}
