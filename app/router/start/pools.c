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
#include "sched/long_prompt.h"
#include "sched/request.h"
#include "sched/request_stats.h"
#include "sched/session.h"

/* The overlap arrays follow each job; the pointers to them are constant. */
static void job_obj_init(struct rte_mempool *mp, void *arg, void *obj, unsigned int i)
{
	struct job *job = obj;

	RTE_SET_USED(mp);
	RTE_SET_USED(arg);
	RTE_SET_USED(i);
	job->overlap = (void *)RTE_PTR_ALIGN(job + 1, RTE_CACHE_LINE_SIZE);
}

static void pair_obj_init(struct rte_mempool *mp, void *arg, void *obj, unsigned int i)
{
	struct pair *pair = obj;

	RTE_SET_USED(mp);
	RTE_SET_USED(arg);
	RTE_SET_USED(i);
	pair->overlap = (void *)RTE_PTR_ALIGN(pair + 1, RTE_CACHE_LINE_SIZE);
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

static int pool_sched(struct pool *pool, struct kvr_router_pool_conf *c)
{
	const struct kvr_sched_ops ops = {
		.arg = pool,
		.refresh = sched_refresh,
		.dropped = sched_dropped,
		.rank_added = stats_rank_added,
		.alloc = sched_alloc,
		.release = sched_release,
	};

	if (c->sched.seed == 0)
		c->sched.seed = rte_rand();
	pool->sched = kvr_sched_create(&c->sched, &ops, now_ns(pool->rt));
	if (pool->sched == NULL)
		return -errno;
	kvr_sched_slices(pool->sched, LONG_PROMPT_SLICE);
	pool->max_ranks = kvr_sched_max_ranks(pool->sched);
	pool->log =
		decision_log_create(pool->max_ranks, c->own.decision_sample, c->own.decision_ring);
	return pool->log == NULL ? -ENOMEM : stats_create(pool);
}

static int pool_tables(struct pool *pool, const struct kvr_router_pool_conf *c)
{
	char name[RTE_MEMZONE_NAMESIZE / 2];
	const struct kvr_prefix_conf pc = {
		.name = name,
		.qsbr = pool->rt->qsbr,
		.max_ranks = pool->max_ranks,
		.max_blocks = (uint32_t)c->own.max_blocks,
		.max_runs = (uint32_t)c->own.max_runs,
		.socket_id = SOCKET_ID_ANY,
		.seed = rte_rand(),
	};

	snprintf(name, sizeof(name), "prefix%u", pool->number);
	pool->prefix = kvr_prefix_create(&pc);
	snprintf(name, sizeof(name), "flight%u", pool->number);
	pool->requests = kvr_flight_create(name, c->sched.max_requests, pool->number, rte_rand(),
					   SOCKET_ID_ANY);
	pool->cursor =
		rte_zmalloc("cursor", pool->max_ranks * sizeof(*pool->cursor), RTE_CACHE_LINE_SIZE);
	pool->event_ranks = rte_zmalloc("events", pool->max_ranks * sizeof(*pool->event_ranks),
					RTE_CACHE_LINE_SIZE);
	pool->begun =
		rte_zmalloc("begun", pool->max_ranks * sizeof(*pool->begun), RTE_CACHE_LINE_SIZE);
	pool->loads =
		rte_zmalloc("loads", pool->max_ranks * sizeof(*pool->loads), RTE_CACHE_LINE_SIZE);
	pool->loads_wire = rte_zmalloc("loads", pool->max_ranks * sizeof(*pool->loads_wire),
				       RTE_CACHE_LINE_SIZE);
	return pool->prefix == NULL || pool->requests == NULL || pool->cursor == NULL ||
			       pool->event_ranks == NULL || pool->begun == NULL ||
			       pool->loads == NULL || pool->loads_wire == NULL
		       ? -ENOMEM
		       : 0;
}

static int pool_quotas_create(struct pool *pool, const struct kvr_router_pool_conf *c)
{
	const uint32_t times = pool->rt->conf.opt.source_share;
	const uint32_t slots = c->sched.max_requests, jobs = c->own.max_jobs;
	const uint32_t sessions = RTE_MAX(c->sched.max_sessions, 1u);
	struct pool_quotas *s = &pool->live.quotas;

	s->slots = kvr_quota_create(slots, slots, times, rte_rand());
	s->jobs = kvr_quota_create(jobs, jobs, times, rte_rand());
	s->frames = kvr_quota_create(RTE_MAX(pool->max_held, 1u), jobs, times, rte_rand());
	s->sessions = kvr_quota_create(sessions, sessions, times, rte_rand());
	s->session =
		rte_zmalloc("session quotas", RTE_MAX(c->sched.max_sessions, 1u) * sizeof(uint32_t),
			    RTE_CACHE_LINE_SIZE);
	return s->session == NULL || s->slots == NULL || s->jobs == NULL || s->frames == NULL ||
			       s->sessions == NULL
		       ? -ENOMEM
		       : 0;
}

/* A frame may have left the ring before the next one is counted. */
#define EVENTS_UNSEEN 64u

static void event_quotas_fini(struct router *rt, uint32_t pool)
{
	for (uint32_t i = 0; i < rt->n_lcores; i++) {
		struct event_frames_quota *e = &rt->lcore[i]->events[pool];

		kvr_quota_destroy(e->quota);
		rte_free(e->ref);
		*e = (struct event_frames_quota){0};
	}
}

static int event_quotas(struct pool *pool)
{
	struct router *rt = pool->rt;
	const uint32_t n = rt->sizes.ring_size + EVENTS_UNSEEN;

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++) {
		struct event_frames_quota *e = &rt->lcore[i]->events[pool->number];

		e->most = n;
		e->mask = rte_align32pow2(n) - 1;
		e->quota = kvr_quota_create(rt->sizes.ring_size - 1, n, rt->conf.opt.source_share,
					    rte_rand());
		e->ref = rte_zmalloc("event quotas", (e->mask + (size_t)1) * sizeof(*e->ref),
				     RTE_CACHE_LINE_SIZE);
		if (e->quota == NULL || e->ref == NULL)
			return -ENOMEM;
	}
	return 0;
}

static int pool_rings(struct pool *pool, const struct kvr_router_pool_conf *c)
{
	const unsigned int size = pool->rt->sizes.ring_size;
	const unsigned int job_size = (unsigned int)(sizeof(struct job) + RTE_CACHE_LINE_SIZE +
						     kvr_overlap_size(pool->max_ranks));
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "events%u", pool->number);
	pool->events = kvr_rings_create(name, sizeof(struct event_msg), size, SOCKET_ID_ANY);
	snprintf(name, sizeof(name), "jobs%u", pool->number);
	pool->jobs = kvr_rings_pool(name, kvr_router_jobs(&pool->rt->conf, c->own.max_jobs),
				    job_size, KVR_ROUTER_JOB_CACHE(c->own.max_jobs), job_obj_init);
	pool->stats = kvr_stats_create(&router_pool_stats, 1);
	pool->event_stats = kvr_stats_create(&router_event_stats, 1);
	pool->rq_stats = kvr_stats_create(&kvr_request_stats, 1);
	if (mailbox_create(pool, size, pool->rt->conf.n_lcores == 1) < 0 || pool->events == NULL ||
	    pool->jobs == NULL || pool->stats == NULL || pool->event_stats == NULL ||
	    pool->rq_stats == NULL)
		return -ENOMEM;
	pool->count = kvr_stats_row(pool->stats, 0);
	pool->event_count = kvr_stats_row(pool->event_stats, 0);
	return 0;
}

static void pool_fini(struct pool *pool)
{
	struct event_msg e;

	mailbox_destroy(pool);
	event_msg_free(&pool->event.open);
	while (pool->events != NULL && rte_ring_dequeue_elem(pool->events, &e, sizeof(e)) == 0)
		event_msg_free(&e);
	sessions_destroy(pool);
	requests_destroy(pool);
	kvr_sched_destroy(pool->sched);
	decision_log_destroy(pool->log);
	stats_destroy(pool);
	kvr_prefix_destroy(pool->prefix);
	kvr_flight_destroy(pool->requests);
	kvr_quota_destroy(pool->live.quotas.slots);
	kvr_quota_destroy(pool->live.quotas.jobs);
	kvr_quota_destroy(pool->live.quotas.frames);
	kvr_quota_destroy(pool->live.quotas.sessions);
	rte_free(pool->live.quotas.session);
	event_quotas_fini(pool->rt, pool->number);
	rte_free(pool->cursor);
	rte_free(pool->event_ranks);
	rte_free(pool->begun);
	rte_free(pool->loads);
	rte_free(pool->loads_wire);
	rte_ring_free(pool->events);
	rte_mempool_free(pool->jobs);
	rte_mempool_free(pool->pairs);
	kvr_stats_destroy(pool->stats);
	kvr_stats_destroy(pool->event_stats);
	kvr_stats_destroy(pool->rq_stats);
	memset(pool, 0, sizeof(*pool));
}

/* The part of the pool that lib/request uses; pool_pair() adds the other half. */
static void life_init(struct pool *pool, const struct kvr_pool_conf *c)
{
	kvr_request_pool_init(&pool->live.rq, c,
			      pool->sessions != NULL ? pool->sessions->table : NULL,
			      kvr_stats_row(pool->rq_stats, 0));
	pool->live.rq.owner = pool;
	pool->live.rq.disagg = &pool->pair.disagg;
	/* Without dispatch_ms, a silent worker is lost before its messages are given up. */
	if (c->dispatch_ms == KVR_POOL_NONE)
		pool->live.rq.dispatch_ns = pool->rt->conf.opt.dead_ms * UINT64_C(2000000);
	pool->predict = pool->live.rq.predict;
	if (pool->predict) /* an unset time is not a number */
		pool->predict_ttl_ms =
			(uint32_t)(1000 * (pool->events_used ? c->predicted_ttl_s : c->ttl_s));
}

static int pool_init(struct router *rt, struct pool *pool, struct kvr_router_pool_conf *c)
{
	int rc;

	pool->rt = rt;
	pool->number = rt->n_pools;
	pool->other = pool;
	pool->name = c->name;
	pool->wire_id = c->own.id;
	pool->conf = &c->sched;
	pool->block_size = c->sched.block_size;
	pool->max_prompt_blocks = RTE_MIN(c->sched.max_prompt_blocks, KVR_WIRE_MAX_HASHES);
	pool->role = (uint8_t)c->sched.role;
	pool->eagle = c->own.eagle;
	pool->events_used = c->sched.use_kv_events;
	pool->opt = &c->own;
	atomic_init(&pool->control.expected,
		    true); /* until the first check of control: the router is starting */
	TAILQ_INIT(&pool->live.aborts);
	for (uint32_t i = 0; i < LEG_STEPS; i++)
		TAILQ_INIT(&pool->live.resends[i]);
	TAILQ_INIT(&pool->live.sends);
	kvr_rand_init(&pool->pair.rand, rte_rand());
	rc = pool_sched(pool, c);
	if (rc == 0)
		rc = pool_tables(pool, c);
	if (rc == 0)
		rc = pool_rings(pool, c);
	if (rc == 0)
		rc = pool_quotas_create(pool, c);
	if (rc == 0)
		rc = event_quotas(pool);
	if (rc == 0)
		rc = sessions_create(pool, rte_rand());
	if (rc == 0)
		life_init(pool, &c->sched);
	return rc;
}

static void pool_assign(struct router *rt, struct pool *pool, const struct kvr_router_pool_conf *c)
{
	struct lcore *e = rt->lcore[c->event_lcore], *s = rt->lcore[c->sched_lcore];

	pool->event_lcore = e;
	pool->sched_lcore = s;
	e->event_pool[e->n_event++] = pool;
	s->sched_pool[s->n_sched++] = pool;
}

/* Connect a decode pool with its prefill pool when both exist. */
static int pool_pair(struct router *rt, struct pool *d, const struct kvr_router_pool_conf *c)
{
	struct lcore *s = d->sched_lcore;
	struct pool *pool;
	char name[RTE_MEMPOOL_NAMESIZE];

	if (c->peer == KVR_ROUTER_NO_POOL || c->sched.role != KVR_ROLE_DECODE)
		return 0;
	pool = &rt->pool[c->peer];
	d->prefill = d->other = pool;
	pool->decode = pool->other = d;
	d->live.rq.prefill = &pool->live.rq;
	snprintf(name, sizeof(name), "pairs%u", d->number);
	d->pairs = kvr_rings_pool(name, kvr_router_jobs(&d->rt->conf, c->own.max_jobs),
				  (unsigned int)(sizeof(struct pair) + RTE_CACHE_LINE_SIZE +
						 kvr_overlap_size(pool->max_ranks)),
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
		struct pool *pool = &rt->pool[rt->n_pools];
		int rc;

		pool->max_held = rt->sizes.waiting_pool;
		rc = pool_init(rt, pool, c);
		rt->n_pools++;
		if (rc < 0)
			return no_memory(rt, c->name, err, errlen);
		pool_assign(rt, pool, c);
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
