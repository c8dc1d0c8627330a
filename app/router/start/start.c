/* SPDX-License-Identifier: BSD-3-Clause */
/* Start and stop of counters, ports, buffers, registry and lcores. */
#include "start/start.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_memory.h>
#include <rte_random.h>

#include "config/config.h"
#include "config/host.h"
#include "control/control.h"
#include "control/log.h"
#include "control/shared.h"
#include "control/tune.h"
#include "ingress/fragment.h"
#include "kvr_rings.h"
#include "lcore/idle.h"

#define CTL_MBUFS 511u	/* frames of control on their way out */
#define SOURCES	  4096u /* sources that an ingress lcore distinguishes: 288 KiB */

/* ---- counters ---- */

int start_counters(struct router *rt, char *err, size_t errlen)
{
	/* One row per polling lcore and one for the control thread. */
	const unsigned int writers = rt->conf.n_lcores + 1;

	RTE_SET_USED(err);
	RTE_SET_USED(errlen);
	rt->in_stats = kvr_stats_create(&router_in_stats, writers);
	rt->reject_stats = kvr_stats_create(router_reject_stats(), writers);
	if (rt->in_stats == NULL || rt->reject_stats == NULL) {
		stop_counters(rt);
		return -ENOMEM;
	}
	return 0;
}

void stop_counters(struct router *rt)
{
	kvr_stats_destroy(rt->in_stats);
	kvr_stats_destroy(rt->reject_stats);
	rt->in_stats = rt->reject_stats = NULL;
}

/* ---- ports ---- */

/* Append the last message of the driver, which says more than its error number. */
static void add_reason(char *line, size_t len)
{
	const char *said = log_captured(), *last = said;
	const size_t n = strlen(line);

	for (const char *p = said; (p = strchr(p, '\n')) != NULL && *++p != '\0';)
		last = p;
	if (said[0] != '\0')
		snprintf(line + n, len - n, "; driver message: %.*s", (int)strcspn(last, "\n"),
			 last);
	if (strstr(said, "mmap failed on AF_PACKET") != NULL)
		snprintf(
			line + strlen(line), len - strlen(line),
			"; its rings are locked memory: raise the limit (ulimit -l), or lower framecnt");
}

static struct kvr_port *start_port(struct kvr_router_port_conf *c, uint32_t index, uint32_t lcores,
				   char *line, size_t len)
{
	struct kvr_port *p;

	if (host_driver(c->port.device, line, len) < 0 ||
	    host_device(c->port.device, line, len) < 0)
		return NULL;
	log_capture();
	p = kvr_port_create_shared(c->name, &c->port, index, lcores, line, len);
	if (p != NULL && kvr_port_start(p, line, len) < 0) {
		kvr_port_destroy(p);
		p = NULL;
	}
	if (p == NULL)
		add_reason(line, len);
	return p;
}

int start_ports(struct router *rt, char *err, size_t errlen)
{
	char line[480] = "", section[KVR_ROUTER_NAME + 8];

	rt->max_frame = KVR_WIRE_MAX_FRAME;
	rt->sizes = rt->conf.sizes;
	for (; rt->n_ports < rt->conf.n_ports; rt->n_ports++) {
		struct kvr_router_port_conf *c = &rt->conf.port[rt->n_ports];
		struct kvr_port *p;
		const struct kvr_local *l;

		c->port.mbufs = rt->sizes.mbufs[rt->n_ports];
		c->port.interrupts = rt->conf.opt.idle == IDLE_INTERRUPT;
		p = start_port(c, rt->n_ports, rt->conf.n_ingress, line, sizeof(line));

		if (p == NULL) {
			snprintf(section, sizeof(section), "port %s", c->name);
			kvr_conf_blame_line(rt->conf.path, section, line, err, errlen);
			stop_ports(rt);
			return -EINVAL;
		}
		rt->port[rt->n_ports] = p;
		if (rt->conf.opt.idle == IDLE_INTERRUPT)
			kvr_port_wait_start(p);
		l = kvr_port_local(p);
		if (l->max_frame4 != 0)
			rt->max_frame = RTE_MIN(rt->max_frame, l->max_frame4);
		if (l->max_frame6 != 0)
			rt->max_frame = RTE_MIN(rt->max_frame, l->max_frame6);
		rt->ctl_frame = RTE_MAX(rt->ctl_frame, (uint32_t)l->max_frame4);
		rt->ctl_frame = RTE_MAX(rt->ctl_frame, (uint32_t)l->max_frame6);
	}
	/* Freed after the ports, which may hold the last frames of control. */
	rt->ctl_mbufs = kvr_rings_mbufs_as("ring_mp_sc", "ctl_mbufs", CTL_MBUFS, 0,
					   rte_pktmbuf_data_room_size(kvr_port_pool(rt->port[0])),
					   SOCKET_ID_ANY);
	if (rt->ctl_mbufs == NULL) {
		snprintf(err, errlen,
			 "no memory for control buffers: raise [router] memory_mb (now %u)",
			 rt->conf.opt.memory_mb);
		stop_ports(rt);
		return -ENOMEM;
	}
	shared_ports(true);
	return 0;
}

void stop_ports(struct router *rt)
{
	shared_ports(false);
	while (rt->n_ports > 0)
		kvr_port_destroy(rt->port[--rt->n_ports]);
	rte_mempool_free(rt->ctl_mbufs);
	rt->ctl_mbufs = NULL;
}

/* ---- buffers ---- */

int start_buffers(struct router *rt, char *err, size_t errlen)
{
	const unsigned int n = rt->conf.opt.large_buffers;
	uint32_t blocks = 0, jobs = 0;

	for (uint32_t i = 0; i < rt->conf.n_pools; i++)
		jobs += kvr_router_jobs(&rt->conf, rt->conf.pool[i].own.max_jobs);
	for (uint32_t i = 0; i < rt->conf.n_pools; i++)
		blocks = RTE_MAX(blocks, rt->conf.pool[i].sched.max_prompt_blocks);
	blocks = RTE_MIN(blocks, KVR_WIRE_MAX_HASHES);
	/* Hashes and frame list of every job: 1,024 blocks suffice for most. */
	rt->small_bufs = kvr_rings_pool("small_bufs", 2 * jobs, SMALL_BUF, 0, NULL);
	rt->hash_bufs = kvr_rings_pool(
		"hash_bufs", n, (unsigned int)(sizeof(struct prediction) + blocks * 8), 0, NULL);
	rt->hint_bufs = kvr_rings_pool("hint_bufs", n, KVR_WIRE_MAX_HINTS, 0, NULL);
	rt->frame_lists = kvr_rings_pool(
		"frame_lists", n + rt->conf.n_ingress, /* and the spare lists */
		sizeof(struct frame_list) + KVR_WIRE_MAX_FRAGMENTS * sizeof(struct rte_mbuf *), 0,
		NULL);
	if (rt->small_bufs == NULL || rt->hash_bufs == NULL || rt->hint_bufs == NULL ||
	    rt->frame_lists == NULL) {
		snprintf(
			err, errlen,
			"no memory for %u large buffers: raise [router] memory_mb (now %u) or lower large_buffers or the pools' max_jobs",
			n, rt->conf.opt.memory_mb);
		stop_buffers(rt);
		return -ENOMEM;
	}
	return 0;
}

void stop_buffers(struct router *rt)
{
	rte_mempool_free(rt->frame_lists);
	rte_mempool_free(rt->hint_bufs);
	rte_mempool_free(rt->hash_bufs);
	rte_mempool_free(rt->small_bufs);
	rt->frame_lists = rt->hint_bufs = rt->hash_bufs = rt->small_bufs = NULL;
}

/* ---- registry ---- */

int start_registry(struct router *rt, char *err, size_t errlen)
{
	const size_t size = rte_rcu_qsbr_get_memsize(rt->conf.n_lcores + 1);
	struct kvr_view *v = NULL;

	RTE_SET_USED(err);
	RTE_SET_USED(errlen);
	rt->registry = kvr_registry_create(kvr_router_conf_workers(&rt->conf), rt->seed);
	rt->qsbr = rte_zmalloc("qsbr", size, RTE_CACHE_LINE_SIZE);
	if (rt->registry != NULL && control_create(rt) == 0)
		v = kvr_view_build(rt->registry);
	if (v == NULL || rt->qsbr == NULL) {
		kvr_view_free(v);
		stop_registry(rt);
		return -ENOMEM;
	}
	rte_rcu_qsbr_init(rt->qsbr, rt->conf.n_lcores + 1); /* plus the snapshot thread */
	atomic_init(&rt->view, v);
	return 0;
}

void stop_registry(struct router *rt)
{
	kvr_view_free(atomic_load_explicit(&rt->view, memory_order_relaxed));
	atomic_store_explicit(&rt->view, NULL, memory_order_relaxed);
	rte_free(rt->qsbr);
	control_destroy(rt);
	kvr_registry_destroy(rt->registry);
	rt->qsbr = NULL;
	rt->registry = NULL;
}

/* ---- lcores ---- */

/* Fields of every context, also of the control thread; `row` is its row of counters. */
static void lcore_init(struct router *rt, struct lcore *lc, uint32_t row)
{
	lc->rt = rt;
	lc->index = row;
	lc->mbufs = kvr_port_pool(rt->port[0]);
	lc->in = kvr_stats_row(rt->in_stats, row);
	lc->reject = kvr_stats_row(rt->reject_stats, row);
	lc->view = atomic_load_explicit(&rt->view, memory_order_relaxed);
	lc->now_ns = now_ns(rt);
	lc->quiet.now_ns = atomic_load_explicit(&rt->live_ns, memory_order_relaxed);
	lc->quiet.real_ns = lc->quiet.now_ns;
	lc->quiet.most_ns = QUIET_STEP;
	lc->free_left = FREE_TURN;
	for (uint32_t p = 0; p < KVR_ROUTER_MAX_PORTS; p++)
		lc->load[p].seen_ns = lc->now_ns;
}

/* Complete fragmented messages are remembered for reassembly_ms. */
#define REMEMBER 4096u
/* Fragments of a message are requested after this time without a new one: PROTOCOL.md, section 4.
 */
#define QUIET_NS UINT64_C(5000000)

/* Whether frames of one sender may arrive at several queues of a port. */
static bool spreads_frames(const struct router *rt)
{
	struct kvr_port_info info;

	for (uint32_t i = 0; i < rt->n_ports; i++) {
		kvr_port_info(rt->port[i], &info);
		if (info.queues > 1 && !info.rss)
			return true;
	}
	return false;
}

static int ingress_init(struct router *rt, struct lcore *lc, uint32_t i)
{
	const struct kvr_router_options *o = &rt->conf.opt;
	const struct sizes *s = &rt->sizes;
	const struct kvr_reasm_conf rc = {
		.max_bytes = (uint64_t)s->reassembly_lcore * KVR_WIRE_MAX_FRAME,
		.max_frames = s->reassembly_lcore,
		.peer_max_bytes = (uint64_t)s->reassembly_source * KVR_WIRE_MAX_FRAME,
		.peer_max_frames = s->reassembly_source,
		.msg_max_frames = s->max_frames,
		.remember = REMEMBER,
		.timeout = o->reassembly_ms * UINT64_C(1000000),
		.quiet = QUIET_NS,
		.share = fragment_share,
		.seed = rte_rand(),
		.resident = true,
		.drop = ingress_reasm_drop,
		.drop_arg = lc,
	};
	char name[RTE_RING_NAMESIZE];

	for (uint32_t p = 0; p < rt->n_ports; p++)
		lc->queue[p] = kvr_port_queue(rt->port[p], i);
	snprintf(name, sizeof(name), "egress%u", i);
	lc->egress =
		kvr_rings_create(name, sizeof(struct egress_msg), s->egress_size, SOCKET_ID_ANY);
	if (spreads_frames(rt)) {
		snprintf(name, sizeof(name), "joins%u", i);
		lc->joins = kvr_rings_create(name, sizeof(void *), s->joins_size, SOCKET_ID_ANY);
		if (lc->joins == NULL)
			return -ENOMEM;
	}
	lc->reasm = kvr_reasm_create(&rc);
	if (i == 0)
		lc->egress_ctl = rte_ring_create_elem("egress_ctl", sizeof(struct egress_msg),
						      rte_align32pow2(CTL_MBUFS + 1), SOCKET_ID_ANY,
						      RING_F_SP_ENQ | RING_F_SC_DEQ);
	lc->sources = kvr_source_create(SOURCES, rte_rand());
	lc->proven = kvr_source_create(SOURCES, rte_rand());
	return lc->egress == NULL || (i == 0 && lc->egress_ctl == NULL) || lc->reasm == NULL ||
			       lc->sources == NULL || lc->proven == NULL
		       ? -ENOMEM
		       : 0;
}

int start_lcores(struct router *rt, char *err, size_t errlen)
{
	rules_update(rt);
	if (kvr_cookie_key_init(&rt->cookie_key) < 0) {
		snprintf(err, errlen, "no random numbers for cookies");
		return -EIO;
	}
	for (uint32_t i = 0; i < rt->conf.n_lcores; i++) {
		struct lcore *lc = rte_zmalloc("lcore", sizeof(*lc), RTE_CACHE_LINE_SIZE);
		char name[RTE_RING_NAMESIZE];

		if (lc == NULL)
			goto fail;
		rt->lcore[rt->n_lcores++] = lc;
		lcore_init(rt, lc, i);
		lc->qsbr_id = i;
		lc->lcore_id = EAL_LCORE(i);
		lc->via = rt->lcore[0];
		lc->out = rt->lcore[0]->egress;
		snprintf(name, sizeof(name), "calls%u", i);
		lc->calls = rte_ring_create(name, 64, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
		if (lc->calls == NULL || idle_init(&lc->idle, rt->conf.opt.idle) < 0 ||
		    (i < rt->conf.n_ingress && ingress_init(rt, lc, i) < 0))
			goto fail;
	}
	lcore_init(rt, &rt->control, rt->conf.n_lcores);
	rt->control.via = rt->lcore[0];
	rt->control.out = rt->lcore[0]->egress_ctl;
	rt->control.mbufs = rt->ctl_mbufs;
	if (idle_init(&rt->control.idle, rt->conf.opt.idle) < 0)
		goto fail;
	return 0;
fail:
	snprintf(err, errlen, "no memory for polling lcore %u: raise [router] memory_mb (now %u)",
		 rt->n_lcores, rt->conf.opt.memory_mb);
	stop_lcores(rt);
	return -ENOMEM;
}

/* Frees frames that were in the ring when the lcores stopped. */
static void drain_egress(struct rte_ring *r)
{
	struct egress_msg e;

	while (r != NULL && rte_ring_dequeue_elem(r, &e, sizeof(e)) == 0)
		rte_pktmbuf_free(e.m);
	rte_ring_free(r);
}

static void drain_joins(struct rte_ring *r)
{
	struct rte_mbuf *m;

	while (r != NULL && rte_ring_dequeue(r, (void **)&m) == 0)
		rte_pktmbuf_free(m);
	rte_ring_free(r);
}

void stop_lcores(struct router *rt)
{
	idle_fini(&rt->control.idle);
	while (rt->n_lcores > 0) {
		struct lcore *lc = rt->lcore[--rt->n_lcores];

		drain_egress(lc->egress);
		drain_egress(lc->egress_ctl);
		buf_put(lc->spare);
		kvr_reasm_destroy(lc->reasm);
		kvr_source_destroy(lc->sources);
		kvr_source_destroy(lc->proven);
		drain_joins(lc->joins);
		rte_ring_free(lc->calls);
		idle_fini(&lc->idle);
		rte_free(lc->hints);
		rte_free(lc);
	}
}
