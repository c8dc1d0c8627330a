/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: histograms, as quantiles in JSON and as metrics. */
#include "telemetry/latency.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_metrics.h"
#include "sched/request_stats.h"
#include "state/router.h"
#include "telemetry/commands.h"

#define ALL_CLASSES UINT32_MAX

static const char *class_name(const struct pool *pool, uint32_t class)
{
	return pool->conf->n_classes != 0 ? pool->conf->classes[class].name : "default";
}

static void read_one(const struct pool *pool, uint32_t class, enum measure m,
		     struct kvr_bucket_counts *c)
{
	memset(c, 0, sizeof(*c));
	for (uint32_t i = 0; i < stats_classes(pool); i++)
		if (class == ALL_CLASSES || class == i)
			kvr_buckets_read(&pool->measures[i].v[m], c);
}

/* ---- JSON ---- */

static void add_quantile(struct rte_tel_data *d, const char *name, const struct kvr_buckets *b,
			 const struct kvr_bucket_counts *c, double q)
{
	const double v = kvr_buckets_quantile(b, c, q);
	char text[32];

	snprintf(text, sizeof(text), "%.6g", v);
	rte_tel_data_add_dict_string(d, name, text);
}

static struct rte_tel_data *one_dict(const struct kvr_buckets *b, const struct kvr_bucket_counts *c)
{
	struct rte_tel_data *d = rte_tel_data_alloc();
	const uint64_t n = kvr_buckets_count(b, c);

	if (d == NULL)
		return NULL;
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "count", n);
	if (n == 0)
		return d;
	kvr_telemetry_dict_f64(d, "sum", (double)c->sum / b->def->parts, 9);
	kvr_telemetry_dict_f64(d, "mean", (double)c->sum / b->def->parts / (double)n, 9);
	add_quantile(d, "p50", b, c, 0.5);
	add_quantile(d, "p90", b, c, 0.9);
	add_quantile(d, "p99", b, c, 0.99);
	return d;
}

/* From the bucket before the first non-empty one to the last non-empty one. */
static struct rte_tel_data *bucket_dict(const struct kvr_buckets *b,
					const struct kvr_bucket_counts *c)
{
	struct rte_tel_data *d = rte_tel_data_alloc(), *le = rte_tel_data_alloc(),
			    *n = rte_tel_data_alloc();
	uint32_t first = 0, last = b->n;
	char text[32];

	if (d == NULL || le == NULL || n == NULL) {
		rte_tel_data_free(d);
		rte_tel_data_free(le);
		rte_tel_data_free(n);
		return NULL;
	}
	rte_tel_data_start_dict(d);
	rte_tel_data_start_array(le, RTE_TEL_STRING_VAL);
	rte_tel_data_start_array(n, RTE_TEL_U64_VAL);
	while (first < b->n && c->count[first] == 0)
		first++;
	while (last > first && c->count[last] == 0)
		last--;
	for (uint32_t i = first > 0 ? first - 1 : 0; i <= last; i++) {
		snprintf(text, sizeof(text), "%.6g", i < b->n ? b->le[i] : INFINITY);
		rte_tel_data_add_array_string(le, i < b->n ? text : "+Inf");
		rte_tel_data_add_array_u64(n, c->count[i]);
	}
	kvr_telemetry_dict_part(d, "le", le);
	kvr_telemetry_dict_part(d, "count", n);
	return d;
}

/* The name without the prefix of its family. */
static const char *short_name(enum measure m)
{
	const char *name = stats_buckets[m].def->name;

	if (strncmp(name, OF_DYNAMO, sizeof(OF_DYNAMO) - 1) == 0)
		return name + sizeof(OF_DYNAMO) - 1;
	if (strncmp(name, OF_ROUTER, sizeof(OF_ROUTER) - 1) == 0)
		return name + sizeof(OF_ROUTER) - 1;
	return name + sizeof(OF_KVR) - 1;
}

static int list_pools(struct router *rt, struct rte_tel_data *d)
{
	rte_tel_data_start_dict(d);
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		struct rte_tel_data *t = rte_tel_data_alloc();

		if (t == NULL)
			return kvr_telemetry_error(d, ENOMEM, "no memory");
		rte_tel_data_start_array(t, RTE_TEL_STRING_VAL);
		for (uint32_t k = 0; k < stats_classes(&rt->pool[i]); k++)
			rte_tel_data_add_array_string(t, class_name(&rt->pool[i], k));
		kvr_telemetry_dict_part(d, rt->pool[i].name, t);
	}
	return 0;
}

/* @return false: the pool has no such class. */
static bool find_class(const struct pool *pool, const char *name, uint32_t *class)
{
	for (*class = 0; *class < stats_classes(pool); ++*class)
		if (strcmp(class_name(pool, *class), name) == 0)
			return true;
	return false;
}

static uint64_t decisions_of(const struct pool *pool)
{
	return kvr_cell_get(&kvr_sched_counters(pool->sched)->routed_calls) +
	       kvr_cell_get(&kvr_sched_counters(pool->sched)->admitted);
}

/* Since the last reading at least a second ago; the first time since the start. */
static double decision_rate(const struct router *rt, const struct pool *pool)
{
	static struct {
		uint64_t at_ns, n;
		double rate;
	} last[KVR_ROUTER_MAX_POOLS];
	const uint64_t now = now_ns(rt), n = decisions_of(pool);

	if (last[pool->number].at_ns < rt->start_ns || last[pool->number].n > n) {
		last[pool->number].at_ns =
			rt->start_ns; /* of another router in the same test process */
		last[pool->number].n = 0;
	}
	if (now - last[pool->number].at_ns >= UINT64_C(1000000000)) {
		last[pool->number].rate = (double)(n - last[pool->number].n) * 1e9 /
					  (double)(now - last[pool->number].at_ns);
		last[pool->number].at_ns = now;
		last[pool->number].n = n;
	}
	return last[pool->number].rate;
}

/* Parse pool and class of a command. @return 0; 1: the answer is in @p d. */
static int parse_pool_class(struct router *rt, const struct kvr_telemetry_args *a,
			    struct rte_tel_data *d, const struct pool **p, uint32_t *class)
{
	*class = ALL_CLASSES;
	*p = tel_pool(rt, a, d);
	if (*p == NULL)
		return 1;
	if (a->n == 2 && !find_class(*p, a->v[1], class)) {
		kvr_telemetry_error(d, ENOENT, "pool %s has no class %s", (*p)->name, a->v[1]);
		return 1;
	}
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "pool", (*p)->name);
	rte_tel_data_add_dict_string(d, "class", a->n == 2 ? a->v[1] : "");
	return 0;
}

/* Call @pool one for every histogram, result in "histograms"; for empty ones if @pool empty. */
static int put_histograms(const struct pool *pool, uint32_t class, bool empty,
			  struct rte_tel_data *(*one)(const struct kvr_buckets *b,
						      const struct kvr_bucket_counts *c),
			  struct rte_tel_data *d)
{
	struct rte_tel_data *list = rte_tel_data_alloc();

	if (list == NULL)
		return kvr_telemetry_error(d, ENOMEM, "no memory");
	rte_tel_data_start_dict(list);
	for (uint32_t m = 0; m < MEASURES; m++) {
		struct kvr_bucket_counts c;

		read_one(pool, class, (enum measure)m, &c);
		if (empty || kvr_buckets_count(&stats_buckets[m], &c) != 0)
			kvr_telemetry_dict_part(list, short_name((enum measure)m),
						one(&stats_buckets[m], &c));
	}
	kvr_telemetry_dict_part(d, "histograms", list);
	return 0;
}

static int cmd_latency(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	struct kvr_telemetry_args a;
	const struct pool *pool;
	uint32_t class;

	if (kvr_telemetry_args(&a, params) < 0 || a.n > 2)
		return kvr_telemetry_error(d, EINVAL,
					   "expected nothing, or a pool and optionally a class");
	if (a.n == 0)
		return list_pools(rt, d);
	if (parse_pool_class(rt, &a, d, &pool, &class) != 0)
		return 0;
	rte_tel_data_add_dict_u64(d, "decisions", decisions_of(pool));
	kvr_telemetry_dict_f64(d, "decisions_per_s", decision_rate(rt, pool), 1);
	return put_histograms(pool, class, true, one_dict, d);
}

static int cmd_buckets(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	struct kvr_telemetry_args a;
	const struct pool *pool;
	uint32_t class;

	if (kvr_telemetry_args(&a, params) < 0 || a.n == 0 || a.n > 2)
		return kvr_telemetry_error(d, EINVAL, "expected a pool and optionally a class");
	return parse_pool_class(rt, &a, d, &pool, &class) != 0
		       ? 0
		       : put_histograms(pool, class, false, bucket_dict, d);
}

/* ---- metrics ---- */

#define LABEL	    320u
#define OF_FRONTEND "dynamo_frontend_router_"

struct instances {
	uint32_t n;
	const struct pool *pool[KVR_ROUTER_MAX_POOLS * KVR_POOL_CLASSES_MAX];
	uint32_t class[KVR_ROUTER_MAX_POOLS * KVR_POOL_CLASSES_MAX];
	char label[KVR_ROUTER_MAX_POOLS * KVR_POOL_CLASSES_MAX][LABEL];
	const char *labels[KVR_ROUTER_MAX_POOLS * KVR_POOL_CLASSES_MAX];
	struct kvr_bucket_counts c[KVR_ROUTER_MAX_POOLS * KVR_POOL_CLASSES_MAX];
};

/* Names of pools and classes contain no characters that need escaping. */
static void list_instances(const struct router *rt, struct instances *v)
{
	for (uint32_t i = 0; i < rt->n_pools; i++)
		for (uint32_t k = 0; k < stats_classes(&rt->pool[i]); k++) {
			snprintf(v->label[v->n], LABEL, "pool=\"%s\",policy_class=\"%s\"",
				 rt->pool[i].name, class_name(&rt->pool[i], k));
			v->labels[v->n] = v->label[v->n];
			v->pool[v->n] = &rt->pool[i];
			v->class[v->n++] = k;
		}
}

/* Requests by outcome, in one counter as in Dynamo. */
static void write_outcomes(const struct router *rt, FILE *out)
{
	static const struct {
		const char *name;
		enum pool_counter c;
	} outcomes[] = {{"finished", PC_FINISHED},
			{"errored", PC_ERRORED},
			{"cancelled", PC_CANCELLED},
			{"rejected", PC_WORKER_REJECTED},
			{"lost", PC_LOST},
			{"expired", PC_EXPIRED},
			{"stopped", PC_STOPPED},
			{"unacknowledged", PC_UNACKNOWLEDGED},
			{"overloaded", PC_OVERLOADED}};
	uint64_t v[PC_COUNTERS];

	kvr_metrics_head(OF_DYNAMO "requests_started_total", "counter", "Legs booked on a rank",
			 out);
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		kvr_stats_sum(rt->pool[i].stats, v);
		fprintf(out, OF_DYNAMO "requests_started_total{pool=\"%s\"} %" PRIu64 "\n",
			rt->pool[i].name, v[PC_ROUTED] + v[PC_ADMITTED] + v[PC_LEG_ROUTED]);
	}
	kvr_metrics_head(OF_DYNAMO "requests_total", "counter", "Bookings that ended, by outcome",
			 out);
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		kvr_stats_sum(rt->pool[i].stats, v);
		for (uint32_t k = 0; k < RTE_DIM(outcomes); k++)
			fprintf(out,
				OF_DYNAMO "requests_total{pool=\"%s\",outcome=\"%s\"} %" PRIu64
					  "\n",
				rt->pool[i].name, outcomes[k].name, v[outcomes[k].c]);
	}
}

static const char *worker_type(const struct pool *pool)
{
	return pool->decode != NULL ? "prefill" : "decode";
}

/* Counters of the scheduler under Dynamo's names. */
static void write_choices(const struct router *rt, FILE *out)
{
	static const char *const reasons[] = {"request_limit", "raw_isl_token_limit",
					      "cached_token_limit"};

	kvr_metrics_head(OF_DYNAMO "non_max_overlap_selections_total", "counter",
			 "Bookings on a rank although an eligible rank had a larger overlap", out);
	for (uint32_t i = 0; i < rt->n_pools; i++)
		fprintf(out,
			OF_DYNAMO
			"non_max_overlap_selections_total{pool=\"%s\",worker_type=\"%s\"} %" PRIu64
			"\n",
			rt->pool[i].name, worker_type(&rt->pool[i]),
			kvr_cell_get(&kvr_sched_counters(rt->pool[i].sched)->non_max_overlap));
	kvr_metrics_head(OF_FRONTEND "queue_backpressure_total", "counter",
			 "Requests rejected at a limit of the queue, by limit", out);
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		const struct kvr_sched_counters *c = kvr_sched_counters(rt->pool[i].sched);
		const uint64_t v[] = {kvr_cell_get(&c->limit_requests),
				      kvr_cell_get(&c->limit_isl_tokens),
				      kvr_cell_get(&c->limit_cached_tokens)};

		for (uint32_t k = 0; k < RTE_DIM(reasons); k++)
			fprintf(out,
				OF_FRONTEND
				"queue_backpressure_total{pool=\"%s\",worker_type=\"%s\",reason=\"%s\"} %" PRIu64
				"\n",
				rt->pool[i].name, worker_type(&rt->pool[i]), reasons[k], v[k]);
	}
}

int latency_write_metrics(struct router *rt, FILE *out)
{
	struct instances *v = calloc(1, sizeof(*v));

	if (v == NULL)
		return -ENOMEM;
	list_instances(rt, v);
	for (uint32_t m = 0; m < MEASURES; m++) {
		for (uint32_t i = 0; i < v->n; i++)
			read_one(v->pool[i], v->class[i], (enum measure)m, &v -> c[i]);
		kvr_buckets_write(&stats_buckets[m], v->c, v->labels, v->n, out);
	}
	free(v);
	write_outcomes(rt, out);
	write_choices(rt, out);
	return 0;
}

static const struct kvr_telemetry_cmd commands[] = {
	{"/kvroute/latency", "[POOL[,CLASS]]",
	 "latencies, tokens and hit rate: counts, means, quantiles", cmd_latency, false},
	{"/kvroute/buckets", "POOL[,CLASS]", "non-empty buckets of the same histograms",
	 cmd_buckets, false},
	{NULL, NULL, NULL, NULL, false},
};

int latency_start(struct router *rt)
{
	return kvr_telemetry_register(commands, rt);
}

void latency_stop(void)
{
	kvr_telemetry_unregister(commands);
}
