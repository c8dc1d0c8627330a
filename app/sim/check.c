/* SPDX-License-Identifier: BSD-3-Clause */
/* Invariants: of loads at any time, of everything at the end. */
#include "sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "leak_check.h"
#include "sched/request.h"

/* ---- loads ---- */

/* Bookings of all requests, by pool and rank. The loads of the scheduler must add up to them. A
 * released booking has no load. */
static uint32_t live[2][SIM_ENGINES * SIM_RANKS + 16], released[2];

static void count_leg(const struct kvr_leg *leg, ptrdiff_t pool)
{
	if (leg->booked && leg->released)
		released[pool]++;
	else if (leg->booked)
		live[pool][leg->rank]++;
}

static void count_live(const struct router *rt)
{
	memset(live, 0, sizeof(live));
	memset(released, 0, sizeof(released));
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		const struct pool *p = &rt->pool[i];

		for (uint32_t k = 0; k < p->n_requests; k++) {
			const struct kvr_leg *leg = p->request[k].rq.leg;

			count_leg(&leg[KVR_LEG_MAIN], i);
			if (p->prefill != NULL)
				count_leg(&leg[KVR_LEG_PREFILL], p->prefill - rt->pool);
		}
	}
}

static void check_rank_load(struct sim *s, const struct pool *p, uint32_t r, uint32_t requests)
{
	struct kvr_sched_rank_info i;
	const bool in_use = kvr_sched_rank_get(p->sched, r, &i) == 0 && i.in_use;
	struct kvr_sched_pending waiting = {0};

	if (s->plan.late_binding) /* a waiting request adds its blocks to its rank */
		kvr_sched_pending(p->sched, &waiting);
	if ((in_use ? i.active_requests : 0) != requests)
		sim_fail(s, "pool %s, rank %u: its load counts %u requests, but %u are booked",
			 p->name, r, in_use ? i.active_requests : 0, requests);
	else if (in_use && requests == 0 && waiting.count == 0 &&
		 (i.active_blocks != 0 || i.active_prefill_tokens != 0))
		sim_fail(s,
			 "pool %s, rank %u: no request is booked, but its load has %" PRIu64
			 " blocks and %" PRIu64 " prompt tokens",
			 p->name, r, (uint64_t)i.active_blocks, (uint64_t)i.active_prefill_tokens);
}

void check_loads(struct host *h)
{
	const struct router *rt = h->rig.rt;

	if (h->sim->steps % 32 != 0) /* the check visits every request slot */
		return;
	count_live(rt);
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		uint64_t sum = 0;

		for (uint32_t r = 0; r < rt->pool[i].max_ranks; r++) {
			check_rank_load(h->sim, &rt->pool[i], r, live[i][r]);
			sum += live[i][r];
		}
		if (sum != kvr_sched_counters(rt->pool[i].sched)->booked_now)
			sim_fail(h->sim,
				 "pool %s: %" PRIu64
				 " requests are booked, but the scheduler counts %" PRIu64,
				 rt->pool[i].name, sum,
				 (uint64_t)kvr_sched_counters(rt->pool[i].sched)->booked_now);
		if (released[i] != kvr_sched_counters(rt->pool[i].sched)->released_now)
			sim_fail(
				h->sim,
				"pool %s: %u bookings are released, but the scheduler counts %" PRIu64,
				rt->pool[i].name, released[i],
				(uint64_t)kvr_sched_counters(rt->pool[i].sched)->released_now);
	}
}

bool check_serving(struct sim *s, bool say)
{
	bool all = true;

	for (uint32_t i = 0; i < s->plan.engines * s->plan.routers; i++) {
		const struct seat *seat = &s->engine[i / s->plan.routers].seat[i % s->plan.routers];

		if (seat->state == KVR_AGENT_SERVING)
			continue;
		all = false;
		if (say)
			sim_fail(s, "engine %u does not serve router %u: state %u",
				 i / s->plan.routers, i % s->plan.routers, seat->state);
	}
	return all;
}

/* ---- the table ---- */

/* Blocks in the cache of a rank, sorted by hash. `found` and `foreign`: blocks of the rank in the
 * table that are, and are not, in the cache. */
struct held {
	uint64_t *sh;
	uint32_t n, found, foreign;
};

struct table {
	struct held held[SIM_ENGINES * SIM_RANKS];
	struct held *of[SIM_ENGINES * SIM_RANKS + 64]; /* by rank index of the router */
};

static void gather_chain(void *arg, const uint64_t *parent, const uint64_t *sh, uint32_t n)
{
	struct held *h = arg;

	RTE_SET_USED(parent);
	memcpy(h->sh + h->n, sh, n * sizeof(*sh));
	h->n += n;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static bool compare_piece(void *ctx, const struct kvr_prefix_piece *p)
{
	const struct table *t = ctx;
	struct held *h = p->rank < RTE_DIM(t->of) ? t->of[p->rank] : NULL;

	for (uint32_t i = 0; i < p->n && h != NULL; i++)
		if (bsearch(&p->sh[i], h->sh, h->n, sizeof(*h->sh), by_value) != NULL)
			h->found++;
		else
			h->foreign++;
	return true;
}

/* Map the ranks of a pool to the caches of their engines. */
static void hold_all(struct sim *s, const struct router *rt, uint32_t pool, struct table *t)
{
	memset(t->of, 0, sizeof(t->of));
	for (uint32_t i = 0; i < s->plan.engines && !s->failed; i++) {
		const struct kvr_worker *w = kvr_registry_find(rt->registry, engine_worker(i));

		if (w == NULL)
			sim_fail(s, "engine %u is not registered", i);
		if (w == NULL || s->engine[i].prefill != (pool == 1))
			continue;
		for (uint32_t k = 0; k < s->plan.ranks; k++) {
			struct held *h = &t->held[i * s->plan.ranks + k];

			h->n = h->found = h->foreign = 0;
			cache_walk(&s->engine[i], k, gather_chain, h);
			qsort(h->sh, h->n, sizeof(*h->sh), by_value);
			t->of[w->rank[k]] = h;
		}
	}
}

static void check_pool(struct sim *s, const struct router *rt, uint32_t pool, struct table *t)
{
	struct kvr_prefix_stats st;

	hold_all(s, rt, pool, t);
	kvr_prefix_dump(rt->pool[pool].prefix, 0, compare_piece, NULL, t);
	kvr_prefix_stats_get(rt->pool[pool].prefix, &st);
	for (uint32_t i = 0; i < s->plan.engines * s->plan.ranks; i++) {
		const uint32_t engine = i / s->plan.ranks;
		const struct held *h = &t->held[i];

		/* At its limit of runs the table evicts the least recently matched ones. */
		if (s->engine[engine].prefill == (pool == 1) &&
		    (h->foreign != 0 ||
		     (h->found != h->n && st.evicted_runs == 0 && st.dropped == 0)))
			sim_fail(
				s,
				"engine %u, rank %u has %u blocks; the table has %u of them, and %u others",
				engine, i % s->plan.ranks, h->n, h->found, h->foreign);
	}
}

static void check_table(struct sim *s, const struct router *rt)
{
	const uint32_t n = s->plan.engines * s->plan.ranks, most = s->plan.cache_blocks + 1;
	struct table *t = calloc(1, sizeof(*t));
	uint64_t *sh = malloc((size_t)n * most * sizeof(*sh));

	if (t == NULL || sh == NULL)
		abort();
	for (uint32_t i = 0; i < n; i++)
		t->held[i].sh = sh + (size_t)i * most;
	for (uint32_t i = 0; i < rt->n_pools && !s->failed; i++)
		check_pool(s, rt, i, t);
	free(sh);
	free(t);
}

/* ---- the end of a world ---- */

static void check_requests(struct sim *s)
{
	for (uint32_t i = 0; i < s->n_requests; i++)
		if (s->request[i].outcomes != 1 && !s->request[i].killed)
			sim_fail(s, "request %u has %u outcomes", i, s->request[i].outcomes);
	for (uint32_t i = 0; i < s->plan.engines; i++)
		for (uint32_t k = s->engine[i].executions; k != 0; k = s->execution[k - 1].next)
			sim_fail(s, "engine %u still runs request %u", i,
				 s->execution[k - 1].request);
}

/* Log the details of a request that the router does not release. */
static void log_slot(struct sim *s, const struct kvr_flight *f)
{
	for (uint32_t i = 0; i < s->n_requests; i++) {
		const struct sim_request *a = &s->request[i];

		if (a->id != f->relay.id || a->source != f->relay.source)
			continue;
		sim_log(s,
			"left: request %u of client %u, incarnation %u, sent at %" PRIu64
			" ms, outcomes %u, reason %u, killed %u, cancelled %u; worker %" PRIu64
			" epoch %u, direct %u, attempt %u, state %u",
			i, a->client, a->incarnation, a->sent_ns / SIM_MS, a->outcomes, a->reason,
			a->killed, a->cancelled, f->relay.worker, f->relay.epoch, f->relay.direct,
			f->attempt, f->state);
		for (uint32_t r = a->last_execution; r != 0; r = s->execution[r - 1].before)
			sim_log(s,
				"  execution %u at engine %u, incarnation %u (now %u), state %u, items %u",
				r - 1, s->execution[r - 1].engine, s->execution[r - 1].incarnation,
				s->engine[s->execution[r - 1].engine].incarnation,
				s->execution[r - 1].state, s->execution[r - 1].made);
	}
}

static void log_rank(struct sim *s, const struct pool *p, uint32_t r)
{
	struct kvr_sched_rank_info i;

	if (kvr_sched_rank_get(p->sched, r, &i) == 0 && i.in_use)
		sim_log(s, "  rank %u: %u requests, %" PRIu64 " prompt tokens, %" PRIu64 " blocks",
			r, i.active_requests, (uint64_t)i.active_prefill_tokens,
			(uint64_t)i.active_blocks);
}

void check_log_left(struct sim *s, const struct router *rt)
{
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		const struct pool *p = &rt->pool[i];

		sim_log(s, "left: pool %s: %" PRIu64 " booked, %" PRIu64 " wait", p->name,
			(uint64_t)kvr_sched_counters(p->sched)->booked_now,
			(uint64_t)kvr_sched_counters(p->sched)->waiting_now);
		for (uint32_t r = 0; r < p->max_ranks; r++)
			log_rank(s, p, r);
		for (uint32_t k = 0; k < p->n_requests; k++)
			if (p->request[k].slot[0] != NULL)
				log_slot(s, p->request[k].slot[0]);
	}
}

void check_rest(struct sim *s)
{
	check_requests(s);
	for (uint32_t i = 0; i < s->plan.routers && !s->failed; i++) {
		const struct router *rt = s->host[i].rig.rt;

		if (leak_check_requests(rt)) {
			check_table(s, rt);
			continue;
		}
		sim_fail(s, "router %u is not at rest", i);
	}
}
