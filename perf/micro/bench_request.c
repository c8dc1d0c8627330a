/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of an aggregated request without session apart from its decision: all its events through
 * lib/request, compared with the decision and the end of its booking in lib/sched, in alternating
 * rounds. Prints ns of both (medians, and the least of all rounds) and the ratio of the medians.
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

static double cpu_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* the machine is shared */
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static bool find_worker(void *arg, const struct kvr_rq_pool *pool, uint64_t id,
			struct kvr_rq_worker *out)
{
	(void)arg, (void)pool;
	*out = (struct kvr_rq_worker){.epoch = 1, .dp_size = 1};
	return id != 0;
}

static void step_request(const struct kvr_rq_ctx *ctx, struct kvr_request *request,
			 struct kvr_rq_event event)
{
	struct kvr_rq_orders out;

	kvr_request_step(ctx, request, &event, &out);
	sink += out.n;
}

static double run_requests(struct kvr_rq_pool *pool, struct kvr_request *request,
			   uint32_t n_requests)
{
	static const struct kvr_rq_ops ops = {.worker = find_worker};
	const struct kvr_sched_decision decision = {.result = KVR_SCHED_ROUTED, .worker = 7};
	const struct kvr_rq_ctx ctx = {.ops = &ops};
	const double t = cpu_now_ns();

	for (uint32_t i = 0; i < EACH; i++) {
		struct kvr_rq_msg m;
		struct kvr_rq_orders out;
		struct kvr_request *q = &request[i % n_requests];

		m.req.query_only = false;
		m.req.isl = 100;
		m.hints.policy.len = 0;
		m.pair = NULL;
		kvr_request_arrive(&ctx, q, pool, &m, NULL, &out);
		sink += out.n;
		step_request(&ctx, q,
			     (struct kvr_rq_event){.kind = KVR_RQE_ROUTED, .d = &decision});
		step_request(&ctx, q, (struct kvr_rq_event){.kind = KVR_RQE_TAKEN});
		step_request(&ctx, q, (struct kvr_rq_event){.kind = KVR_RQE_FIN, .tokens = 9});
		step_request(&ctx, q, (struct kvr_rq_event){.kind = KVR_RQE_FIN_ACKED});
	}
	return (cpu_now_ns() - t) / EACH;
}

static double run_decisions(struct kvr_sched *sched, const uint64_t *sh, const uint32_t *device)
{
	const struct kvr_sched_req req = {.sh = sh, .n = 128, .isl = 2048};
	const struct kvr_sched_overlap ov = {.device = device};
	struct kvr_sched_decision decision;
	const double t = cpu_now_ns();

	for (uint32_t i = 0; i < EACH; i++) {
		kvr_sched_route(sched, 0, &req, &ov, i, &decision);
		sink += decision.worker;
		kvr_sched_finish(sched, 0, i);
	}
	return (cpu_now_ns() - t) / EACH;
}

static int compare_doubles(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(void)
{
	static struct kvr_rq_pool pool;
	static struct kvr_request request[1024];
	static uint64_t sh[128];
	static uint32_t device[RANKS];
	double life[ROUNDS], decision[ROUNDS];
	struct kvr_pool_conf conf;
	struct kvr_stats *stats = kvr_stats_create(&kvr_request_stats, 1);
	struct kvr_sched *sched;

	kvr_pool_conf_defaults(&conf);
	strcpy(conf.name, "m");
	conf.block_size = 16;
	conf.max_ranks = RANKS;
	conf.max_workers = RANKS;
	sched = kvr_sched_create(&conf, NULL, 0);
	if (sched == NULL || stats == NULL)
		return 1;
	for (uint32_t i = 0; i < RANKS; i++)
		kvr_sched_worker_set(sched, &(struct kvr_sched_worker){.id = i + 1, .dp_size = 1},
				     0);
	for (uint32_t i = 0; i < 128; i++)
		sh[i] = i * UINT64_C(0x9E3779B97F4A7C15);
	kvr_request_pool_init(&pool, &conf, NULL, kvr_stats_row(stats, 0));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		life[i] = run_requests(&pool, request, 1024);
		decision[i] = run_decisions(sched, sh, device);
	}
	qsort(life, ROUNDS, sizeof(life[0]), compare_doubles);
	qsort(decision, ROUNDS, sizeof(decision[0]), compare_doubles);
	printf("life %.1f ns (least %.1f), decision %.1f ns (least %.1f), ratio %.3f\n",
	       life[ROUNDS / 2], life[0], decision[ROUNDS / 2], decision[0],
	       life[ROUNDS / 2] / decision[ROUNDS / 2]);
	kvr_sched_destroy(sched);
	kvr_stats_destroy(stats);
	return 0;
}
