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
static double service_factor(struct cluster *s, const struct cluster_rank *rank)
{
	const double sigma = s->c.noise;
	double x = rank->slow * (s->now >= s->half ? s->c.turn : 1);

	return sigma > 0 ? x * exp(sigma * draw_gauss(&s->rand) - sigma * sigma / 2) : x;
}

static struct engine_prompt prompt_of(const struct cluster_req *r)
{
	return (struct engine_prompt){r->sh, r->n, CLUSTER_BLOCK, r->isl};
}

/* Tokens that another rank has and this one does not. Looked up for a sample of the requests only,
 * as every rank is searched. */
static uint32_t find_elsewhere(const struct cluster *s, const struct cluster_req *r)
{
	const struct engine_prompt prompt = prompt_of(r);
	uint32_t best = 0;

	for (uint32_t i = 0; i < s->c.ranks; i++) {
		const uint32_t other = engine_cached_tokens(&s->rank[i].model, &prompt);

		best = other > best ? other : best;
	}
	return best > r->cached ? best - r->cached : 0;
}

/* @return ns of the prefill on a rank of factor 1. */
static double begin_prefill(struct cluster *s, struct cluster_req *r)
{
	const uint32_t every = s->c.ranks > 8 ? s->c.ranks / 8 : 1;
	const struct engine_prompt prompt = prompt_of(r);
	const double ns = engine_prefill_begin(&s->rank[r->rank].model, &r->task, &prompt);

	r->begun = s->now;
	r->cached = r->task.cached;
	r->wasted = s->number % every == 0 ? find_elsewhere(s, r) : CLUSTER_NONE;
	return ns;
}

/* The first token exists: the blocks are resident and the request decodes. */
static void end_prefill(struct cluster *s, uint32_t q)
{
	struct cluster_req *r = &s->req[q];
	const struct engine_cache_change change =
		engine_store(&s->rank[r->rank].model, r->sh, r->n, s->scratch);

	r->first = s->now;
	r->decoding = true;
	cluster_blocks(s, r->rank, r, &change);
	cluster_prefilled(s, q);
}

static void end_request(struct cluster *s, uint32_t q)
{
	struct cluster_req *r = &s->req[q];

	r->end = s->now;
	r->decoding = false;
	engine_drop(&s->rank[r->rank].model, q);
	cluster_ended(s, q);
}

/* ---- one prefill at a time ---- */

static void start_next(struct cluster *s, struct cluster_rank *rank)
{
	const struct engine_task *task = engine_next(&rank->model);
	double ns;

	if (task == NULL)
		return;
	ns = begin_prefill(s, &s->req[task->id]);
	cluster_add_event(s, s->now + (uint64_t)(ns * service_factor(s, rank)), EV_PREFILLED,
			  task->id);
}

static void on_prefilled(struct cluster *s, uint32_t q, uint32_t stay)
{
	struct cluster_rank *rank = &s->rank[s->req[q].rank];

	if (s->req[q].stays != stay)
		return; /* a restart removed it */
	engine_prefill_end(&rank->model);
	end_prefill(s, q);
	cluster_add_event(s, s->now + (uint64_t)((s->req[q].osl - 1) * rank->model.speed->decode),
			  EV_END, q);
	start_next(s, rank);
}

/* ---- steps ---- */

static void begin_in_step(void *arg, struct engine_task *task)
{
	struct cluster *s = arg;

	begin_prefill(s, &s->req[task->id]);
}

static void start_step(struct cluster *s, uint32_t no)
{
	struct cluster_rank *rank = &s->rank[no];
	const double ns = engine_step_begin(&rank->model, begin_in_step, s);

	rank->stepping = ns > 0;
	if (rank->stepping)
		cluster_add_event(s, s->now + (uint64_t)(ns * service_factor(s, rank)), EV_STEP,
				  no);
}

static void on_step(struct cluster *s, uint32_t no)
{
	struct cluster_rank *rank = &s->rank[no];
	const struct engine_task *task;

	rank->steps++;
	while (rank->ends.n > 0 && rank->ends.v[0].at <= rank->steps)
		end_request(s, heap_pop(&rank->ends).who);
	while ((task = engine_step_end(&rank->model)) != NULL) {
		const uint32_t q = task->id;

		end_prefill(s, q);
		if (s->req[q].osl <= 1) {
			end_request(s, q);
			continue;
		}
		heap_push(&rank->ends, (struct event){.at = rank->steps + s->req[q].osl - 1,
						      .number = s->number++,
						      .who = q});
	}
	start_step(s, no);
}

/* ---- */

void cluster_engine_take(struct cluster *s, uint32_t q)
{
	struct cluster_req *r = &s->req[q];
	struct cluster_rank *rank = &s->rank[r->rank];

	r->stays++;
	r->decoding = false;
	r->task = (struct engine_task){.id = q};
	engine_enqueue(&rank->model, &r->task);
	if (s->c.engine == CLUSTER_FCFS)
		start_next(s, rank);
	else if (!rank->stepping)
		start_step(s, r->rank);
}

void cluster_engine_event(struct cluster *s, const struct event *e)
{
	if (e->kind == EV_PREFILLED)
		on_prefilled(s, e->who, e->stay);
	else if (e->kind == EV_STEP)
		on_step(s, e->who);
	else if (s->req[e->who].decoding)
		end_request(s, e->who);
}

static void route_again(struct cluster *s, uint32_t q)
{
	s->req[q].stays++; /* invalidates the end of its prefill */
	cluster_ended(s, q);
	cluster_route(s, q);
}

/* The running prefill and the queue are routed again, from the start. Decoding requests may end, so
 * that the cells of a study stay comparable. */
void cluster_engine_restart(struct cluster *s, uint32_t no)
{
	struct cluster_rank *rank = &s->rank[no];
	const uint32_t running = rank->model.prefilling;
	struct engine_tasks queue = TAILQ_HEAD_INITIALIZER(queue);
	struct engine_task *task;

	engine_cache_clear(rank->model.cache);
	rank->epoch++;
	TAILQ_CONCAT(&queue, &rank->model.queue, link);
	if (running != ENGINE_NO_TASK) {
		engine_drop(&rank->model, running);
		route_again(s, running);
	}
	while ((task = TAILQ_FIRST(&queue)) != NULL) {
		TAILQ_REMOVE(&queue, task, link);
		route_again(s, task->id);
	}
}
