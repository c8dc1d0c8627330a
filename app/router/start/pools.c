/* SPDX-License-Identifier: BSD-3-Clause */
/* Start and stop of pools: tables, rings, scheduler, and assignment to lcores. */
#include "sched/sched.h"
#include "start/start.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <rte_malloc.h>
#include <rte_random.h>

#include "config/config.h"
#include "event/event.h"
#include "ingress/fragment.h"
#include "kvr_rings.h"
#include "lcore/mailbox.h"
#include "sched/decision_log.h"
#include "sched/measure.h"
#include "sched/prompts.h"
#include "sched/request.h"
#include "sched/session.h"

/* The overlap arrays follow each job; the pointers to them are constant. */
static void job_obj_init(struct rte_mempool *mp, void *arg, void *obj, unsigned int i)
{
	struct job *j = obj;

	RTE_SET_USED(mp);
	RTE_SET_USED(arg);
	RTE_SET_USED(i);
	j->overlap = (void *)RTE_PTR_ALIGN(j + 1, RTE_CACHE_LINE_SIZE);
}

static void pair_obj_init(struct rte_mempool *mp, void *arg, void *obj, unsigned int i)
{
	struct pair *l = obj;

	RTE_SET_USED(mp);
	RTE_SET_USED(arg);
	RTE_SET_USED(i);
	l->overlap = (void *)RTE_PTR_ALIGN(l + 1, RTE_CACHE_LINE_SIZE);
}

static void *sched_alloc(void *arg, size_t bytes)
{
	RTE_SET_USED(arg);
	return rte_zmalloc("sched", bytes, RTE_CACHE_LINE_SIZE);
}

static void sched_release(void *arg, void *p)
{
	RTE_SET_USED(arg);
	rte_free(p);
}

static int pool_sched(struct pool *p, struct kvr_router_pool_conf *c)
{
	const struct kvr_sched_ops ops = {
		.arg = p,
		.refresh = sched_refresh,
		.dropped = sched_dropped,
		.rank_added = measure_rank_added,
		.alloc = sched_alloc,
		.release = sched_release,
	};

	if (c->sched.seed == 0)
		c->sched.seed = rte_rand();
	p->sched = kvr_sched_create(&c->sched, &ops, now_ns(p->rt));
	if (p->sched == NULL)
		return -errno;
	kvr_sched_slices(p->sched, PROMPTS_SLICE);
	p->max_ranks = kvr_sched_max_ranks(p->sched);
	p->log = decision_log_create(p->max_ranks, c->own.decision_sample, c->own.decision_ring);
	return p->log == NULL ? -ENOMEM : measures_create(p);
}

static int pool_tables(struct pool *p, const struct kvr_router_pool_conf *c)
{
	char name[RTE_MEMZONE_NAMESIZE / 2];
	const struct kvr_prefix_conf pc = {
		.name = name,
		.qsbr = p->rt->qsbr,
		.max_ranks = p->max_ranks,
		.max_blocks = (uint32_t)c->own.max_blocks,
		.max_runs = (uint32_t)c->own.max_runs,
		.socket_id = SOCKET_ID_ANY,
		.seed = rte_rand(),
	};

	snprintf(name, sizeof(name), "prefix%u", p->number);
	p->prefix = kvr_prefix_create(&pc);
	snprintf(name, sizeof(name), "flight%u", p->number);
	p->requests = kvr_flight_create(name, c->sched.max_requests, p->number, rte_rand(),
					SOCKET_ID_ANY);
	p->cursor = rte_zmalloc("cursor", p->max_ranks * sizeof(*p->cursor), RTE_CACHE_LINE_SIZE);
	p->event_ranks =
		rte_zmalloc("events", p->max_ranks * sizeof(*p->event_ranks), RTE_CACHE_LINE_SIZE);
	p->begun = rte_zmalloc("begun", p->max_ranks * sizeof(*p->begun), RTE_CACHE_LINE_SIZE);
	p->loads = rte_zmalloc("loads", p->max_ranks * sizeof(*p->loads), RTE_CACHE_LINE_SIZE);
	p->loads_wire =
		rte_zmalloc("loads", p->max_ranks * sizeof(*p->loads_wire), RTE_CACHE_LINE_SIZE);
	return p->prefix == NULL || p->requests == NULL || p->cursor == NULL ||
			       p->event_ranks == NULL || p->begun == NULL || p->loads == NULL ||
			       p->loads_wire == NULL
		       ? -ENOMEM
		       : 0;
}

static int pool_shares(struct pool *p, const struct kvr_router_pool_conf *c)
{
	const uint32_t times = p->rt->conf.opt.source_share;
	const uint32_t slots = c->sched.max_requests, jobs = c->own.max_jobs;
	const uint32_t sessions = RTE_MAX(c->sched.max_sessions, 1u);
	struct shares *s = &p->live.shares;

	s->slots = kvr_quota_create(slots, slots, times, rte_rand());
	s->jobs = kvr_quota_create(jobs, jobs, times, rte_rand());
	s->frames = kvr_quota_create(RTE_MAX(p->max_held, 1u), jobs, times, rte_rand());
	s->sessions = kvr_quota_create(sessions, sessions, times, rte_rand());
	s->session =
		rte_zmalloc("session shares", RTE_MAX(c->sched.max_sessions, 1u) * sizeof(uint32_t),
			    RTE_CACHE_LINE_SIZE);
	return s->session == NULL || s->slots == NULL || s->jobs == NULL || s->frames == NULL ||
			       s->sessions == NULL
		       ? -ENOMEM
		       : 0;
}

/* A frame may have left the ring before the next one is counted. */
#define EVENTS_UNSEEN 64u

static void event_shares_fini(struct router *rt, uint32_t pool)
{
	for (uint32_t i = 0; i < rt->n_lcores; i++) {
		struct event_share *e = &rt->lcore[i]->events[pool];

		kvr_quota_destroy(e->share);
		rte_free(e->ref);
		*e = (struct event_share){0};
	}
}

static int event_shares(struct pool *p)
{
	struct router *rt = p->rt;
	const uint32_t n = rt->sizes.ring_size + EVENTS_UNSEEN;

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++) {
		struct event_share *e = &rt->lcore[i]->events[p->number];

		e->most = n;
		e->mask = rte_align32pow2(n) - 1;
		e->share = kvr_quota_create(rt->sizes.ring_size - 1, n, rt->conf.opt.source_share,
					    rte_rand());
		e->ref = rte_zmalloc("event shares", (e->mask + (size_t)1) * sizeof(*e->ref),
				     RTE_CACHE_LINE_SIZE);
		if (e->share == NULL || e->ref == NULL)
			return -ENOMEM;
	}
	return 0;
}

static int pool_rings(struct pool *p, const struct kvr_router_pool_conf *c)
{
	const unsigned int size = p->rt->sizes.ring_size;
	const unsigned int job_size = (unsigned int)(sizeof(struct job) + RTE_CACHE_LINE_SIZE +
						     kvr_overlap_size(p->max_ranks));
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "events%u", p->number);
	p->events = kvr_rings_create(name, sizeof(struct event_note), size, SOCKET_ID_ANY);
	snprintf(name, sizeof(name), "jobs%u", p->number);
	p->jobs = kvr_rings_pool(name, kvr_router_jobs(&p->rt->conf, c->own.max_jobs), job_size,
				 KVR_ROUTER_JOB_CACHE(c->own.max_jobs), job_obj_init);
	p->stats = kvr_stats_create(&router_pool_stats, 1);
	p->event_stats = kvr_stats_create(&router_event_stats, 1);
	p->rq_stats = kvr_stats_create(&kvr_request_stats, 1);
	if (notes_create(p, size, p->rt->conf.n_lcores == 1) < 0 || p->events == NULL ||
	    p->jobs == NULL || p->stats == NULL || p->event_stats == NULL || p->rq_stats == NULL)
		return -ENOMEM;
	p->count = kvr_stats_row(p->stats, 0);
	p->event_count = kvr_stats_row(p->event_stats, 0);
	return 0;
}

static void pool_fini(struct pool *p)
{
	struct event_note e;

	notes_destroy(p);
	event_drop(&p->event.open);
	while (p->events != NULL && rte_ring_dequeue_elem(p->events, &e, sizeof(e)) == 0)
		event_drop(&e);
	sessions_destroy(p);
	requests_destroy(p);
	kvr_sched_destroy(p->sched);
	decision_log_destroy(p->log);
	measures_destroy(p);
	kvr_prefix_destroy(p->prefix);
	kvr_flight_destroy(p->requests);
	kvr_quota_destroy(p->live.shares.slots);
	kvr_quota_destroy(p->live.shares.jobs);
	kvr_quota_destroy(p->live.shares.frames);
	kvr_quota_destroy(p->live.shares.sessions);
	rte_free(p->live.shares.session);
	event_shares_fini(p->rt, p->number);
	rte_free(p->cursor);
	rte_free(p->event_ranks);
	rte_free(p->begun);
	rte_free(p->loads);
	rte_free(p->loads_wire);
	rte_ring_free(p->events);
	rte_mempool_free(p->jobs);
	rte_mempool_free(p->pairs);
	kvr_stats_destroy(p->stats);
	kvr_stats_destroy(p->event_stats);
	kvr_stats_destroy(p->rq_stats);
	memset(p, 0, sizeof(*p));
}

/* The part of the pool that lib/request uses; pool_pair() adds the other half. */
static void life_init(struct pool *p, const struct kvr_pool_conf *c)
{
	kvr_request_pool_init(&p->live.rq, c, p->sessions != NULL ? p->sessions->table : NULL,
			      kvr_stats_row(p->rq_stats, 0));
	p->live.rq.owner = p;
	p->live.rq.disagg = &p->pair.disagg;
	/* Without dispatch_ms, a silent worker is lost before its messages are given up. */
	if (c->dispatch_ms == KVR_POOL_NONE)
		p->live.rq.dispatch_ns = p->rt->conf.opt.dead_ms * UINT64_C(2000000);
	p->predict = p->live.rq.predict;
	if (p->predict) /* an unset time is not a number */
		p->predict_ttl_ms =
			(uint32_t)(1000 * (p->events_used ? c->predicted_ttl_s : c->ttl_s));
}

static int pool_init(struct router *rt, struct pool *p, struct kvr_router_pool_conf *c)
{
	int rc;

	p->rt = rt;
	p->number = rt->n_pools;
	p->other = p;
	p->name = c->name;
	p->wire_id = c->own.id;
	p->conf = &c->sched;
	p->block_size = c->sched.block_size;
	p->max_prompt_blocks = RTE_MIN(c->sched.max_prompt_blocks, KVR_WIRE_MAX_HASHES);
	p->role = (uint8_t)c->sched.role;
	p->eagle = c->own.eagle;
	p->events_used = c->sched.use_kv_events;
	p->opt = &c->own;
	atomic_init(&p->control.expected,
		    true); /* until the first check of control: the router is starting */
	TAILQ_INIT(&p->live.aborts);
	for (uint32_t i = 0; i < LEG_STEPS; i++)
		TAILQ_INIT(&p->live.resends[i]);
	TAILQ_INIT(&p->live.sends);
	kvr_rand_init(&p->pair.rand, rte_rand());
	rc = pool_sched(p, c);
	if (rc == 0)
		rc = pool_tables(p, c);
	if (rc == 0)
		rc = pool_rings(p, c);
	if (rc == 0)
		rc = pool_shares(p, c);
	if (rc == 0)
		rc = event_shares(p);
	if (rc == 0)
		rc = sessions_create(p, rte_rand());
	if (rc == 0)
		life_init(p, &c->sched);
	return rc;
}

static void pool_assign(struct router *rt, struct pool *p, const struct kvr_router_pool_conf *c)
{
	struct lcore *e = rt->lcore[c->event_lcore], *s = rt->lcore[c->sched_lcore];

	p->event_lcore = e;
	p->sched_lcore = s;
	e->event_pool[e->n_event++] = p;
	s->sched_pool[s->n_sched++] = p;
}

/* Connect a decode pool with its prefill pool when both exist. */
static int pool_pair(struct router *rt, struct pool *d, const struct kvr_router_pool_conf *c)
{
	struct lcore *s = d->sched_lcore;
	struct pool *p;
	char name[RTE_MEMPOOL_NAMESIZE];

	if (c->peer == KVR_ROUTER_NO_POOL || c->sched.role != KVR_ROLE_DECODE)
		return 0;
	p = &rt->pool[c->peer];
	d->prefill = d->other = p;
	p->decode = p->other = d;
	d->live.rq.prefill = &p->live.rq;
	snprintf(name, sizeof(name), "pairs%u", d->number);
	d->pairs = kvr_rings_pool(name, kvr_router_jobs(&d->rt->conf, c->own.max_jobs),
				  (unsigned int)(sizeof(struct pair) + RTE_CACHE_LINE_SIZE +
						 kvr_overlap_size(p->max_ranks)),
				  KVR_ROUTER_JOB_CACHE(c->own.max_jobs), pair_obj_init);
	if (s->hints == NULL)
		s->hints = rte_malloc("hints", KVR_WIRE_MAX_HINTS, RTE_CACHE_LINE_SIZE);
	return d->pairs == NULL || s->hints == NULL ? -ENOMEM : 0;
}

static int no_memory(struct router *rt, const char *pool, char *err, size_t errlen)
{
	snprintf(
		err, errlen,
		"no memory for pool %s: raise [router] memory_mb (now %u), or lower max_blocks, max_requests, max_jobs or max_ranks of the pool",
		pool, rt->conf.opt.memory_mb);
	stop_pools(rt);
	return -ENOMEM;
}

/* List the pools for rejections with UnknownPool. */
static void name_pools(struct router *rt)
{
	size_t n = (size_t)snprintf(rt->pool_names, sizeof(rt->pool_names),
				    "pool: unknown number; pools of this router:");

	for (uint32_t i = 0; i < rt->n_pools && n < sizeof(rt->pool_names); i++)
		n += (size_t)snprintf(rt->pool_names + n, sizeof(rt->pool_names) - n, "%s %u (%s)",
				      i != 0 ? "," : "", rt->pool[i].wire_id, rt->pool[i].name);
}

int start_pools(struct router *rt, char *err, size_t errlen)
{
	while (rt->n_pools < rt->conf.n_pools) {
		struct kvr_router_pool_conf *c = &rt->conf.pool[rt->n_pools];
		struct pool *p = &rt->pool[rt->n_pools];
		int rc;

		p->max_held = rt->sizes.waiting_pool;
		rc = pool_init(rt, p, c);
		rt->n_pools++;
		if (rc < 0)
			return no_memory(rt, c->name, err, errlen);
		pool_assign(rt, p, c);
	}
	name_pools(rt);
	for (uint32_t i = 0; i < rt->n_pools; i++)
		if (pool_pair(rt, &rt->pool[i], &rt->conf.pool[i]) < 0 ||
		    requests_create(&rt->pool[i]) < 0)
			return no_memory(rt, rt->pool[i].name, err, errlen);
	return 0;
}

void stop_pools(struct router *rt)
{
	/* Messages being read hold jobs of their pools. */
	for (uint32_t i = 0; i < rt->n_lcores; i++)
		read_drop(rt->lcore[i]);
	for (uint32_t i = 0; i < rt->n_pools; i++)
		requests_drop(&rt->control, &rt->pool[i]);
	while (rt->n_pools > 0)
		pool_fini(&rt->pool[--rt->n_pools]);
}
