/* SPDX-License-Identifier: BSD-3-Clause */
/* The two kinds of engine. */
#include "cluster.h"

#include <math.h>

#define PREFILL_NS 100000.0 /* a token */
#define DECODE_NS  20000000.0
#define BUDGET	   2048u /* tokens of a step */
#define STEP_NS	   10000000.0
#define BESIDE_NS  100000.0 /* a token of decode in a step */

uint64_t engine_alone(const struct sim_conf *c, uint32_t tokens)
{
	const uint32_t steps = c->engine == SIM_FCFS ? 0 : (tokens + BUDGET - 1) / BUDGET;

	return (uint64_t)(tokens * PREFILL_NS + steps * STEP_NS);
}

static double gauss(struct kvr_rand *r)
{
	const double u = kvr_rand_unit(r), v = kvr_rand_unit(r);

	return sqrt(-2 * log(1 - u)) * cos(2 * M_PI * v);
}

static double service(struct sim *s, const struct sim_rank *k)
{
	const double sigma = s->c.noise;
	double x = k->slow * (s->now >= s->half ? s->c.turn : 1);

	return sigma > 0 ? x * exp(sigma * gauss(&s->rand) - sigma * sigma / 2) : x;
}

static uint32_t found(const struct sim_rank *k, const struct sim_req *r)
{
	const uint32_t tokens = load_cache_match(k->cache, r->sh, r->n) * SIM_BLOCK;

	return tokens < r->isl ? tokens : r->isl - 1; /* the last token is always computed */
}

/* What others have; of one request in some, as every rank is asked. */
static uint32_t found_elsewhere(const struct sim *s, const struct sim_req *r)
{
	uint32_t best = 0;

	for (uint32_t i = 0; i < s->c.ranks; i++) {
		const uint32_t other = found(&s->rank[i], r);

		best = other > best ? other : best;
	}
	return best > r->cached ? best - r->cached : 0;
}

/* A prefill begins. */
static void begin(struct sim *s, struct sim_rank *k, struct sim_req *r)
{
	const uint32_t every = s->c.ranks > 8 ? s->c.ranks / 8 : 1;

	r->begun = s->now;
	r->cached = found(k, r);
	r->left = r->isl - r->cached;
	r->in_engine = true;
	r->wasted = s->number % every == 0 ? found_elsewhere(s, r) : SIM_NONE;
}

static uint32_t leave(struct sim *s, struct sim_rank *k)
{
	const uint32_t q = k->first;

	k->first = s->req[q].next;
	if (k->first == SIM_NONE)
		k->last = SIM_NONE;
	return q;
}

/* The first token is there; the request decodes, or is over. */
static void prefilled(struct sim *s, struct sim_rank *k, uint32_t q)
{
	struct sim_req *r = &s->req[q];
	const struct load_cache_change c = load_cache_store(k->cache, r->sh, r->n, s->scratch);

	r->first = s->now;
	r->decoding = true;
	router_blocks(s, r->rank, r, &c);
	router_prefilled(s, q);
}

static void over(struct sim *s, uint32_t q)
{
	s->req[q].end = s->now;
	s->req[q].decoding = s->req[q].in_engine = false;
	router_ended(s, q);
}

/* ---- one prefill at a time ---- */

static void start_next(struct sim *s, struct sim_rank *k)
{
	struct sim_req *r;

	if (k->first == SIM_NONE || s->req[k->first].in_engine)
		return;
	r = &s->req[k->first];
	begin(s, k, r);
	sim_at(s, s->now + (uint64_t)(r->left * PREFILL_NS * service(s, k)), EV_PREFILLED,
	       k->first);
}

static void on_prefilled(struct sim *s, uint32_t q, uint32_t life)
{
	struct sim_rank *k = &s->rank[s->req[q].rank];

	if (s->req[q].life != life)
		return; /* it was thrown out in a restart */
	leave(s, k);
	prefilled(s, k, q);
	sim_at(s, s->now + (uint64_t)((s->req[q].osl - 1) * DECODE_NS), EV_END, q);
	start_next(s, k);
}

/* ---- steps ---- */

static uint32_t step_tokens(struct sim *s, struct sim_rank *k)
{
	uint32_t room = BUDGET > k->n_decode ? BUDGET - k->n_decode : 0, used = 0;

	for (uint32_t q = k->first; q != SIM_NONE && room > 0; q = s->req[q].next) {
		struct sim_req *r = &s->req[q];
		uint32_t take;

		if (!r->in_engine)
			begin(s, k, r);
		take = r->left < room ? r->left : room;
		r->left -= take;
		room -= take;
		used += take;
	}
	return used;
}

static void step(struct sim *s, uint32_t rank)
{
	struct sim_rank *k = &s->rank[rank];
	uint32_t used;
	double ns;

	k->stepping = k->first != SIM_NONE || k->n_decode > 0;
	if (!k->stepping)
		return;
	used = step_tokens(s, k);
	ns = STEP_NS + k->n_decode * BESIDE_NS + used * PREFILL_NS;
	sim_at(s, s->now + (uint64_t)(ns * service(s, k)), EV_STEP, rank);
}

/* The step under way has ended: tokens are there. */
static void on_step(struct sim *s, uint32_t rank)
{
	struct sim_rank *k = &s->rank[rank];

	k->steps++;
	while (k->ends.n > 0 && k->ends.v[0].at <= k->steps) {
		const uint32_t q = heap_pop(&k->ends).who;

		k->n_decode--;
		over(s, q);
	}
	while (k->first != SIM_NONE && s->req[k->first].in_engine && s->req[k->first].left == 0) {
		const uint32_t q = leave(s, k);

		prefilled(s, k, q);
		if (s->req[q].osl <= 1) {
			over(s, q);
			continue;
		}
		k->n_decode++;
		heap_push(&k->ends, (struct event){.at = k->steps + s->req[q].osl - 1,
						   .number = s->number++,
						   .who = q});
	}
	step(s, rank);
}

/* ---- */

void engine_take(struct sim *s, uint32_t q)
{
	struct sim_rank *k = &s->rank[s->req[q].rank];

	s->req[q].next = SIM_NONE;
	s->req[q].life++;
	s->req[q].in_engine = s->req[q].decoding = false;
	if (k->last == SIM_NONE)
		k->first = q;
	else
		s->req[k->last].next = q;
	k->last = q;
	if (s->c.engine == SIM_FCFS)
		start_next(s, k);
	else if (!k->stepping)
		step(s, s->req[q].rank);
}

void engine_event(struct sim *s, const struct event *e)
{
	if (e->kind == EV_PREFILLED)
		on_prefilled(s, e->who, e->life);
	else if (e->kind == EV_STEP)
		on_step(s, e->who);
	else if (s->req[e->who].decoding)
		over(s, e->who);
}

/* The queue goes elsewhere, from the start; what decodes is let end, to keep the cells comparable.
 */
void engine_restart(struct sim *s, uint32_t rank)
{
	struct sim_rank *k = &s->rank[rank];
	uint32_t q = k->first;

	load_cache_clear(k->cache);
	k->epoch++;
	k->first = k->last = SIM_NONE;
	while (q != SIM_NONE) {
		const uint32_t next = s->req[q].next;

		s->req[q].in_engine = false;
		s->req[q].life++; /* its prefill ends no more, and it may wait now */
		router_ended(s, q);
		router_route(s, q);
		q = next;
	}
}
