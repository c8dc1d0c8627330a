/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Engines of the cluster: the shared model of a rank (app/engine) on the event queue. The service
 * time of a rank is the model's, times its own factor, a change in the middle of the trace, and
 * noise.
 */
#include "cluster.h"

#include <math.h>

/* ns; one prefill at a time, or steps of at most 2,048 tokens. */
static const struct engine_speed speeds[] = {
	[CLUSTER_FCFS] = {.prefill = 100000, .decode = 20000000},
	[CLUSTER_CHUNKED] = {.prefill = 100000, .budget = 2048, .step = 10000000, .beside = 100000},
};

const struct engine_speed *cluster_speed(enum cluster_engine engine)
{
	return &speeds[engine];
}

static double draw_gauss(struct kvr_rand *r)
{
	const double u = kvr_rand_unit(r), v = kvr_rand_unit(r);

	return sqrt(-2 * log(1 - u)) * cos(2 * M_PI * v);
}

/* Factor of the service times of a rank now. */
static double service_factor(struct cluster *cluster, const struct cluster_rank *rank)
{
	const double sigma = cluster->conf.noise;
	double x = rank->slow * (cluster->now >= cluster->half ? cluster->conf.turn : 1);

	return sigma > 0 ? x * exp(sigma * draw_gauss(&cluster->rand) - sigma * sigma / 2) : x;
}

static struct engine_prompt prompt_of(const struct cluster_req *r)
{
	return (struct engine_prompt){r->sh, r->n, CLUSTER_BLOCK, r->isl};
}

/* Tokens that another rank has and this one does not. Looked up for a sample of the requests only,
 * as every rank is searched. */
static uint32_t find_elsewhere(const struct cluster *cluster, const struct cluster_req *r)
{
	const struct engine_prompt prompt = prompt_of(r);
	uint32_t best = 0;

	for (uint32_t i = 0; i < cluster->conf.ranks; i++) {
		const uint32_t other = engine_cached_tokens(&cluster->rank[i].model, &prompt);

		best = other > best ? other : best;
	}
	return best > r->cached ? best - r->cached : 0;
}

/* @return ns of the prefill on a rank of factor 1. */
static double begin_prefill(struct cluster *cluster, struct cluster_req *r)
{
	const uint32_t every = cluster->conf.ranks > 8 ? cluster->conf.ranks / 8 : 1;
	const struct engine_prompt prompt = prompt_of(r);
	const double ns = engine_prefill_begin(&cluster->rank[r->rank].model, &r->task, &prompt);

	r->begun = cluster->now;
	r->cached = r->task.cached;
	r->wasted = cluster->number % every == 0 ? find_elsewhere(cluster, r) : CLUSTER_NONE;
	return ns;
}

/* The first token exists: the blocks are resident and the request decodes. */
static void end_prefill(struct cluster *cluster, uint32_t q)
{
	struct cluster_req *r = &cluster->req[q];
	const struct engine_cache_change change =
		engine_store(&cluster->rank[r->rank].model, r->sh, r->n, cluster->scratch);

	r->first = cluster->now;
	r->decoding = true;
	cluster_blocks(cluster, r->rank, r, &change);
	cluster_prefilled(cluster, q);
}

static void end_decode(struct cluster *cluster, uint32_t q)
{
	struct cluster_req *r = &cluster->req[q];

	r->end = cluster->now;
	r->decoding = false;
	engine_drop(&cluster->rank[r->rank].model, q);
	cluster_ended(cluster, q);
}

/* ---- one prefill at a time ---- */

static void start_next(struct cluster *cluster, struct cluster_rank *rank)
{
	const struct engine_task *task = engine_next(&rank->model);
	double ns;

	if (task == NULL)
		return;
	ns = begin_prefill(cluster, &cluster->req[task->id]);
	cluster_add_event(cluster, cluster->now + (uint64_t)(ns * service_factor(cluster, rank)),
			  EV_PREFILLED, task->id);
}

static void on_prefilled(struct cluster *cluster, uint32_t q, uint32_t stay)
{
	struct cluster_rank *rank = &cluster->rank[cluster->req[q].rank];

	if (cluster->req[q].stays != stay)
		return; /* a restart removed it */
	engine_prefill_end(&rank->model);
	end_prefill(cluster, q);
	cluster_add_event(cluster,
			  cluster->now +
				  (uint64_t)((cluster->req[q].osl - 1) * rank->model.speed->decode),
			  EV_END, q);
	start_next(cluster, rank);
}

/* ---- steps ---- */

static void begin_in_step(void *arg, struct engine_task *task)
{
	struct cluster *cluster = arg;

	begin_prefill(cluster, &cluster->req[task->id]);
}

static void start_step(struct cluster *cluster, uint32_t no)
{
	struct cluster_rank *rank = &cluster->rank[no];
	const double ns = engine_step_begin(&rank->model, begin_in_step, cluster);

	rank->stepping = ns > 0;
	if (rank->stepping)
		cluster_add_event(cluster,
				  cluster->now + (uint64_t)(ns * service_factor(cluster, rank)),
				  EV_STEP, no);
}

static void on_step(struct cluster *cluster, uint32_t no)
{
	struct cluster_rank *rank = &cluster->rank[no];
	const struct engine_task *task;

	rank->steps++;
	while (rank->ends.n > 0 && rank->ends.v[0].at <= rank->steps)
		end_decode(cluster, cluster_pop(&rank->ends).subject);
	while ((task = engine_step_end(&rank->model)) != NULL) {
		const uint32_t q = task->id;

		end_prefill(cluster, q);
		if (cluster->req[q].osl <= 1) {
			end_decode(cluster, q);
			continue;
		}
		cluster_push(&rank->ends,
			     (struct event){.at = rank->steps + cluster->req[q].osl - 1,
					    .number = cluster->number++,
					    .subject = q});
	}
	start_step(cluster, no);
}

/* ---- */

void cluster_engine_take(struct cluster *cluster, uint32_t q)
{
	struct cluster_req *r = &cluster->req[q];
	struct cluster_rank *rank = &cluster->rank[r->rank];

	r->stays++;
	r->decoding = false;
	r->task = (struct engine_task){.id = q};
	engine_enqueue(&rank->model, &r->task);
	if (cluster->conf.engine == CLUSTER_FCFS)
		start_next(cluster, rank);
	else if (!rank->stepping)
		start_step(cluster, r->rank);
}

void cluster_engine_event(struct cluster *cluster, const struct event *e)
{
	if (e->kind == EV_PREFILLED)
		on_prefilled(cluster, e->subject, e->stay);
	else if (e->kind == EV_STEP)
		on_step(cluster, e->subject);
	else if (cluster->req[e->subject].decoding)
		end_decode(cluster, e->subject);
}

static void route_again(struct cluster *cluster, uint32_t q)
{
	cluster->req[q].stays++; /* invalidates the end of its prefill */
	cluster_lost(cluster, q);
	cluster_route(cluster, q);
}

/* The running prefill and the queue are routed again, from the start. Decoding requests may end, so
 * that the cells of a study stay comparable. */
void cluster_engine_restart(struct cluster *cluster, uint32_t no)
{
	struct cluster_rank *rank = &cluster->rank[no];
	const uint32_t running = rank->model.prefilling;
	struct engine_tasks queue = TAILQ_HEAD_INITIALIZER(queue);
	struct engine_task *task;

	engine_cache_clear(rank->model.cache);
	rank->epoch++;
	TAILQ_CONCAT(&queue, &rank->model.queue, link);
	if (running != ENGINE_NO_TASK) {
		engine_drop(&rank->model, running);
		route_again(cluster, running);
	}
	while ((task = TAILQ_FIRST(&queue)) != NULL) {
		TAILQ_REMOVE(&queue, task, link);
		route_again(cluster, task->id);
	}
}
