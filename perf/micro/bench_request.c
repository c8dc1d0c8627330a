/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the life of an aggregated request without session costs beside its decision: all its events
 * through lib/request, against the decision and the end of its booking in lib/sched, in turns of
 * one run. Prints ns of both (medians, least of all rounds) and the ratio of the medians.
 */
#include "kvr_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 101
#define EACH   20000u
#define RANKS  64u

static volatile uint64_t sink;

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* others share the machine */
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static bool worker(void *arg, const struct kvr_rq_pool *p, uint64_t id, struct kvr_rq_worker *out)
{
	(void)arg, (void)p;
	*out = (struct kvr_rq_worker){.epoch = 1, .dp_size = 1};
	return id != 0;
}

static void step(const struct kvr_rq_ctx *c, struct kvr_request *r, struct kvr_rq_event e)
{
	struct kvr_rq_orders out;

	kvr_request_step(c, r, &e, &out);
	sink += out.n;
}

static double lives(struct kvr_rq_pool *p, struct kvr_request *r, uint32_t n_requests)
{
	static const struct kvr_rq_ops ops = {.worker = worker};
	const struct kvr_sched_decision d = {.result = KVR_SCHED_ROUTED, .worker = 7};
	const struct kvr_rq_ctx c = {.ops = &ops};
	const double t = now_ns();

	for (uint32_t i = 0; i < EACH; i++) {
		struct kvr_rq_msg m;
		struct kvr_rq_orders out;
		struct kvr_request *q = &r[i % n_requests];

		m.req.query_only = false;
		m.req.isl = 100;
		m.policy.len = 0;
		m.pair = NULL;
		kvr_request_arrive(&c, q, p, &m, NULL, &out);
		sink += out.n;
		step(&c, q, (struct kvr_rq_event){.kind = KVR_RQE_ROUTED, .d = &d});
		step(&c, q, (struct kvr_rq_event){.kind = KVR_RQE_TAKEN});
		step(&c, q, (struct kvr_rq_event){.kind = KVR_RQE_FIN, .tokens = 9});
		step(&c, q, (struct kvr_rq_event){.kind = KVR_RQE_FIN_ACKED});
	}
	return (now_ns() - t) / EACH;
}

static double decisions(struct kvr_sched *s, const uint64_t *sh, const uint32_t *device)
{
	const struct kvr_sched_req req = {.sh = sh, .n = 128, .isl = 2048};
	const struct kvr_sched_overlap ov = {.device = device};
	struct kvr_sched_decision d;
	const double t = now_ns();

	for (uint32_t i = 0; i < EACH; i++) {
		kvr_sched_route(s, 0, &req, &ov, i, &d);
		sink += d.worker;
		kvr_sched_finish(s, 0, i);
	}
	return (now_ns() - t) / EACH;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(void)
{
	static struct kvr_rq_pool pool;
	static struct kvr_request r[1024];
	static uint64_t sh[128];
	static uint32_t device[RANKS];
	double life[ROUNDS], decision[ROUNDS];
	struct kvr_pool_conf conf;
	struct kvr_stats *stats = kvr_stats_create(&kvr_request_stats, 1);
	struct kvr_sched *s;

	kvr_pool_conf_defaults(&conf);
	strcpy(conf.name, "m");
	conf.block_size = 16;
	conf.max_ranks = RANKS;
	conf.max_workers = RANKS;
	s = kvr_sched_create(&conf, NULL, 0);
	if (s == NULL || stats == NULL)
		return 1;
	for (uint32_t i = 0; i < RANKS; i++)
		kvr_sched_worker_set(s, &(struct kvr_sched_worker){.id = i + 1, .dp_size = 1}, 0);
	for (uint32_t i = 0; i < 128; i++)
		sh[i] = i * UINT64_C(0x9E3779B97F4A7C15);
	kvr_request_pool_init(&pool, &conf, NULL, kvr_stats_row(stats, 0));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		life[i] = lives(&pool, r, 1024);
		decision[i] = decisions(s, sh, device);
	}
	qsort(life, ROUNDS, sizeof(life[0]), by_value);
	qsort(decision, ROUNDS, sizeof(decision[0]), by_value);
	printf("life %.1f ns (least %.1f), decision %.1f ns (least %.1f), ratio %.3f\n",
	       life[ROUNDS / 2], life[0], decision[ROUNDS / 2], decision[0],
	       life[ROUNDS / 2] / decision[ROUNDS / 2]);
	kvr_sched_destroy(s);
	kvr_stats_destroy(stats);
	return 0;
}
