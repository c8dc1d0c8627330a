/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory needed by a configuration, part by part as start.c, pools.c, session_ctl.c and control.c
 * allocate it. Libraries report their own needs, and DPDK its overhead where it can without an EAL.
 */
#include "config/config.h"
#include "sched/request.h"
#include "sched/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mempool.h>
#include <rte_ring.h>

#include "kvr_frame.h"
#include "kvr_quota.h"
#include "kvr_reasm.h"
#include "kvr_rings.h"
#include "sched/decision_log.h"
#include "sched/request_stats.h"

#define CTL_POOL  511u			 /* frames to and from control */
#define REMEMBER  4096u			 /* recently reassembled messages */
#define SOURCES	  (2 * UINT64_C(294912)) /* both tables of sources of an ingress lcore */
#define UNSEEN	  64u			 /* event frames that left the ring and are still counted */
#define DEVICE	  (UINT64_C(512) << 10)	 /* queues and data of a port */
#define EAL_OTHER (UINT64_C(1) << 20)	 /* EAL lists, telemetry, views */

/* Properties of the memory and the lcores. */
struct host {
	uint64_t page;
	bool shared; /* some lcores share a CPU: kvr_rings.h */
};

/* Objects do not cross pages, so a packet buffer has a small page for itself. */
static uint64_t objects_bytes(uint32_t n, uint64_t size, uint64_t page)
{
	const uint64_t in_page = page / size;

	if (in_page == 0)
		return n * RTE_ALIGN_CEIL(size, page);
	return (n + in_page - 1) / in_page * page;
}

static uint64_t pool_bytes(uint32_t n, uint32_t size, uint32_t cache, const struct host *h)
{
	struct rte_mempool_objsz obj;

	return objects_bytes(n, rte_mempool_calc_obj_size(size, 0, &obj), h->page) +
	       kvr_rings_pool_bytes(n, h->shared) + sizeof(struct rte_mempool) +
	       (cache != 0 ? RTE_MAX_LCORE * sizeof(struct rte_mempool_cache) : 0);
}

static uint64_t ring_bytes(uint32_t entry, uint32_t n)
{
	return (uint64_t)rte_ring_get_memsize_elem(entry, rte_align32pow2(n));
}

/* Buckets of eight entries in 64 bytes, keys of a pointer and the key, and a ring of free keys. */
static uint64_t hash_bytes(uint32_t entries, uint32_t key)
{
	return 8 * (uint64_t)rte_align32pow2(entries) +
	       (entries + UINT64_C(1)) * RTE_ALIGN_CEIL(key + 8, 16u) +
	       ring_bytes(sizeof(uint32_t), entries + 2);
}

/* ---- the scheduler: counted during a trial allocation ---- */

struct taken {
	uint64_t bytes;
};

static void *alloc_counted(void *arg, size_t bytes)
{
	struct taken *t = arg;

	t->bytes += RTE_ALIGN_CEIL(bytes, (size_t)RTE_CACHE_LINE_SIZE) + RTE_CACHE_LINE_SIZE;
	return calloc(1, bytes); /* untouched pages take no memory */
}

static void free_counted(void *arg, void *p)
{
	RTE_SET_USED(arg);
	free(p);
}

/* @return ranks after rounding; 0: no memory. */
static uint32_t sched_need(const struct kvr_pool_conf *conf, uint64_t *bytes)
{
	struct taken t = {0};
	const struct kvr_sched_ops ops = {
		.arg = &t, .alloc = alloc_counted, .release = free_counted};
	struct kvr_sched *s = kvr_sched_create(conf, &ops, 0);
	const uint32_t ranks = s != NULL ? kvr_sched_max_ranks(s) : 0;

	kvr_sched_destroy(s);
	*bytes += t.bytes;
	return ranks;
}

/* ---- pools ---- */

static void sessions_need(const struct kvr_router_pool_conf *p, struct kvr_router_memory *need)
{
	const uint32_t max = p->sched.max_sessions;

	need->apart += kvr_quota_bytes(RTE_MAX(max, 1u));
	need->sessions += RTE_MAX(max, 1u) * sizeof(uint32_t);
	if (max == 0)
		return;
	need->apart += kvr_session_bytes(max);
	need->sessions += sizeof(struct sessions) + SESSION_CLOSES * sizeof(struct session_ask) +
			  SESSION_BUCKETS * sizeof(struct session_closing);
}

/* As requests_create(). */
static void requests_need(const struct kvr_router_conf *conf, const struct kvr_router_pool_conf *p,
			  struct kvr_router_memory *need)
{
	const struct kvr_router_pool_conf *prefill = NULL;
	uint64_t n = REQUESTS_OF(p->sched.max_requests, 0);
	uint32_t sessions = p->sched.max_sessions;

	if (p->peer != KVR_ROUTER_NO_POOL && p->sched.role == KVR_ROLE_DECODE)
		prefill = &conf->pool[p->peer];
	if (prefill != NULL) {
		n = REQUESTS_OF(p->sched.max_requests, prefill->sched.max_requests);
		sessions = RTE_MAX(sessions, prefill->sched.max_sessions);
	}
	need->requests += n * sizeof(struct request) + p->sched.max_requests * sizeof(uint32_t);
	if (sessions != 0)
		need->sessions += n * sizeof(struct session_use);
}

static int pool_need(const struct kvr_router_conf *conf, const struct kvr_router_pool_conf *p,
		     const struct host *h, struct kvr_router_memory *need)
{
	const uint32_t ranks = sched_need(&p->sched, &need->ranks);
	const uint32_t events = conf->sizes.ring_size + UNSEEN;
	const struct kvr_prefix_conf pc = {.max_ranks = ranks,
					   .max_blocks = (uint32_t)p->own.max_blocks,
					   .max_runs = (uint32_t)p->own.max_runs};
	struct kvr_prefix_need prefix;

	if (ranks == 0)
		return -ENOMEM;
	kvr_prefix_need(&pc, &prefix);
	need->tables += prefix.table_bytes;
	need->requests += kvr_flight_bytes(p->sched.max_requests) + prefix.self_bytes;
	requests_need(conf, p, need);
	need->requests += hash_bytes(prefix.index_entries, sizeof(uint64_t));
	need->requests += pool_bytes(
		kvr_router_jobs(conf, p->own.max_jobs),
		(uint32_t)(sizeof(struct job) + RTE_CACHE_LINE_SIZE + kvr_overlap_size(ranks)),
		KVR_ROUTER_JOB_CACHE(p->own.max_jobs), h);
	if (p->peer != KVR_ROUTER_NO_POOL && p->sched.role == KVR_ROLE_DECODE)
		need->requests += pool_bytes(kvr_router_jobs(conf, p->own.max_jobs),
					     (uint32_t)(sizeof(struct pair) + RTE_CACHE_LINE_SIZE +
							kvr_overlap_size(ranks)),
					     KVR_ROUTER_JOB_CACHE(p->own.max_jobs), h) +
				  KVR_WIRE_MAX_HINTS;
	need->ranks +=
		ranks * (sizeof(*((struct pool *)0)->cursor) + sizeof(struct event_rank) +
			 sizeof(*((struct pool *)0)->begun) + sizeof(*((struct pool *)0)->loads) +
			 sizeof(*((struct pool *)0)->loads_wire) + sizeof(struct kvr_sched_term) +
			 sizeof(uint64_t) * 4) +
		sizeof(struct decision_log) + stats_bytes(p->sched.n_classes, ranks);
	need->rings += ring_bytes(sizeof(struct sched_msg), conf->sizes.ring_size) +
		       ring_bytes(sizeof(struct event_msg), conf->sizes.ring_size) +
		       conf->n_ingress * (uint64_t)rte_align32pow2(events) * sizeof(uint32_t);
	need->apart += decision_ring_bytes(p->own.decision_ring);
	need->apart += kvr_quota_bytes(p->sched.max_requests) +
		       2 * kvr_quota_bytes(p->own.max_jobs) +
		       conf->n_ingress * kvr_quota_bytes(events);
	sessions_need(p, need);
	return 0;
}

/* ---- all of it ---- */

static void buffers_need(const struct kvr_router_conf *conf, const struct host *h,
			 struct kvr_router_memory *need)
{
	const uint32_t n = conf->opt.large_buffers;
	uint32_t jobs = 0, blocks = 0;

	for (uint32_t i = 0; i < conf->n_ports; i++) {
		const struct kvr_port_conf *p = &conf->port[i].port;

		need->buffers += pool_bytes(conf->sizes.mbufs[i], kvr_router_buffer_bytes(p) - 64,
					    p->mbuf_cache, h);
		need->other += DEVICE;
	}
	need->other +=
		pool_bytes(CTL_POOL, kvr_router_buffer_bytes(&conf->port[0].port) - 64, 0, h) +
		pool_bytes(CTL_POOL, (uint32_t)sizeof(struct ctl_buf) + KVR_WIRE_DEF_FRAME, 0, h) +
		ring_bytes(sizeof(void *), CTL_POOL + 1);
	for (uint32_t i = 0; i < conf->n_pools; i++) {
		jobs += kvr_router_jobs(conf, conf->pool[i].own.max_jobs);
		blocks = RTE_MAX(blocks, conf->pool[i].sched.max_prompt_blocks);
	}
	blocks = RTE_MIN(blocks, KVR_WIRE_MAX_HASHES);
	need->requests += pool_bytes(2 * jobs, SMALL_BUF, 0, h);
	need->large += pool_bytes(n, (uint32_t)sizeof(struct prediction) + blocks * 8, 0, h) +
		       pool_bytes(n, KVR_WIRE_MAX_HINTS, 0, h) +
		       pool_bytes(n + conf->n_ingress,
				  (uint32_t)(sizeof(struct frame_list) +
					     KVR_WIRE_MAX_FRAGMENTS * sizeof(struct rte_mbuf *)),
				  0, h);
}

static void drop_none(void *arg, void *frame)
{
	RTE_SET_USED(arg);
	RTE_SET_USED(frame);
}

static void lcores_need(const struct kvr_router_conf *conf, struct kvr_router_memory *need)
{
	const struct sizes *s = &conf->sizes;
	const struct kvr_reasm_conf rc = {.max_frames = s->reassembly_lcore,
					  .peer_max_frames = s->reassembly_source,
					  .msg_max_frames = s->max_frames,
					  .remember = REMEMBER,
					  .timeout = 1,
					  .drop = drop_none};

	need->other += EAL_OTHER + conf->n_lcores * (sizeof(struct lcore) + ring_bytes(8, 64));
	need->rings += conf->n_ingress * ring_bytes(sizeof(struct egress_msg), s->egress_size) +
		       ring_bytes(sizeof(struct egress_msg), CTL_POOL + 1);
	if (conf->n_ingress > 1)
		need->rings += conf->n_ingress * (ring_bytes(sizeof(void *), s->joins_size) +
						  2 * conf->n_ports * ring_bytes(8, KVR_PORT_RING));
	need->apart += conf->n_ingress * (kvr_reasm_footprint(&rc) + SOURCES);
}

static bool cpus_shared(const struct kvr_router_conf *conf)
{
	for (uint32_t i = 0; i < conf->n_lcores; i++)
		for (uint32_t k = 0; k < i; k++)
			if (conf->cpu[i] == conf->cpu[k])
				return true;
	return false;
}

int kvr_router_conf_memory(const struct kvr_router_conf *conf, bool huge,
			   struct kvr_router_memory *out)
{
	const struct host h = {.page = huge ? UINT64_C(2) << 20 : 4096,
			       .shared = cpus_shared(conf)};
	struct kvr_router_memory *need = out;
	int rc = 0;

	*need = (struct kvr_router_memory){0};
	buffers_need(conf, &h, need);
	lcores_need(conf, need);
	for (uint32_t i = 0; rc == 0 && i < conf->n_pools; i++)
		rc = pool_need(conf, &conf->pool[i], &h, need);
	need->heap = need->buffers + need->rings + need->requests + need->ranks + need->sessions +
		     need->large + need->other;
	return rc;
}
