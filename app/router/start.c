/* SPDX-License-Identifier: BSD-3-Clause */
#include "start.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_memory.h>
#include <rte_pci.h>
#include <rte_random.h>

#include "control.h"
#include "stages.h"

#define CTL_MBUFS     511u /* frames of control on their way out */
#define EAL_ARGS      64
#define SOURCES	      4096u /* that an ingress lcore tells apart: 288 KiB */
#define CONTROL_BURST 1024u /* CONNECT and HELLO of a source at once: a host's engines start */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* EAL lcore 0 is control; polling lcore i is EAL lcore i + 1 on the CPU of the configuration. */
#define EAL_LCORE(i) ((i) + 1)

/* ---- EAL ---- */

/* Free huge pages of all sizes, in MiB. */
static uint64_t free_hugepages_mb(void)
{
	DIR *d = opendir("/sys/kernel/mm/hugepages");
	struct dirent *e;
	uint64_t mb = 0;

	if (d == NULL)
		return 0;
	while ((e = readdir(d)) != NULL) {
		unsigned long kb, n = 0;
		char path[320];
		FILE *f;

		if (sscanf(e->d_name, "hugepages-%lukB", &kb) != 1)
			continue;
		snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/%s/free_hugepages",
			 e->d_name);
		f = fopen(path, "r");
		if (f == NULL)
			continue;
		if (fscanf(f, "%lu", &n) == 1)
			mb += (uint64_t)n * kb / 1024;
		fclose(f);
	}
	closedir(d);
	return mb;
}

static bool use_hugepages(const struct kvr_router_options *o)
{
	if (o->hugepages != KVR_HUGEPAGES_AUTO)
		return o->hugepages == KVR_HUGEPAGES_ON;
	return free_hugepages_mb() >= o->memory_mb;
}

struct eal_args {
	int n;
	char *arg[EAL_ARGS];
};

static void add(struct eal_args *a, const char *text)
{
	if (a->n < EAL_ARGS)
		a->arg[a->n++] = strdup(text);
}

static void add_value(struct eal_args *a, const char *name, const char *value)
{
	add(a, name);
	add(a, value);
}

/* "0@0-7,1@2,2@3": control floats, each polling lcore has its CPU. */
static void add_lcores(struct eal_args *a, const struct kvr_router_conf *c)
{
	char map[1024];
	int n;

	if (c->opt.control_cpus[0] != '\0') {
		n = snprintf(map, sizeof(map), "0@(%s)", c->opt.control_cpus);
	} else {
		cpu_set_t all;

		n = snprintf(map, sizeof(map), "0@(");
		sched_getaffinity(0, sizeof(all), &all);
		for (int i = 0, k = 0; i < CPU_SETSIZE && n < (int)sizeof(map) - 16; i++)
			if (CPU_ISSET(i, &all))
				n += snprintf(map + n, sizeof(map) - (size_t)n, "%s%d",
					      k++ ? "," : "", i);
		n += snprintf(map + n, sizeof(map) - (size_t)n, ")");
	}
	for (uint32_t i = 0; i < c->n_lcores && n < (int)sizeof(map) - 24; i++)
		n += snprintf(map + n, sizeof(map) - (size_t)n, ",%u@%u", EAL_LCORE(i), c->cpu[i]);
	add_value(a, "--lcores", map);
	add_value(a, "--main-lcore", "0");
}

/* Only the devices of the ports are probed: the host's other NICs are none of our business. */
static void add_devices(struct eal_args *a, const struct kvr_router_conf *c)
{
	struct rte_pci_addr pci;
	bool any = strstr(c->opt.eal, "-a ") != NULL;

	for (uint32_t i = 0; i < c->n_ports; i++) {
		const char *device = c->port[i].port.device;
		char address[32];

		/* "0000:3b:00.0" or "3b:00.0", device arguments after a comma. */
		snprintf(address, sizeof(address), "%.*s", (int)strcspn(device, ","), device);
		if (rte_pci_addr_parse(address, &pci) != 0)
			continue;
		if (strstr(c->opt.eal, address) == NULL)
			add_value(a, "-a", device);
		any = true;
	}
	if (!any)
		add(a, "--no-pci");
}

int start_eal(struct router *rt, char *err, size_t errlen)
{
	const struct kvr_router_options *o = &rt->conf.opt;
	struct eal_args a = {0};
	char mb[16], extra[sizeof(o->eal)], *save, *word;
	int rc;

	add(&a, "kvroute");
	add_lcores(&a, &rt->conf);
	add_value(&a, "--file-prefix", o->file_prefix);
	snprintf(mb, sizeof(mb), "%u", o->memory_mb);
	add_value(&a, "-m", mb);
	if (use_hugepages(o))
		add(&a, "--in-memory");
	else
		add(&a, "--no-huge");
	add_devices(&a, &rt->conf);
	add(&a, "--log-level=lib.eal:warning");
	add(&a, "--log-level=lib.telemetry:error");
	snprintf(extra, sizeof(extra), "%s", o->eal);
	for (word = strtok_r(extra, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save))
		add(&a, word);
	rc = rte_eal_init(a.n, a.arg);
	if (rc < 0) {
		snprintf(err, errlen,
			 "rte_eal_init failed: check [router] memory_mb = %u (MiB free?), "
			 "hugepages, "
			 "ingress and eal",
			 o->memory_mb);
		return rte_errno > 0 ? -rte_errno : -EIO;
	}
	/* The EAL keeps pointers into the arguments: they live as long as the process. */
	start_clock(rt);
	return 0;
}

void start_clock(struct router *rt)
{
	rt->tsc_hz = rte_get_tsc_hz();
	rt->ns_per_tsc = (UINT64_C(1000000000) << 32) / rt->tsc_hz;
	rt->seed = rte_rand();
	do
		rt->epoch = (uint32_t)rte_rand();
	while (rt->epoch == 0);
	rt->start_ns = now_ns(rt);
}

void stop_eal(struct router *rt)
{
	RTE_SET_USED(rt);
	rte_eal_cleanup();
}

/* ---- counters ---- */

int start_counters(struct router *rt, char *err, size_t errlen)
{
	/* One row for each polling lcore and one for the control thread. */
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

int start_ports(struct router *rt, char *err, size_t errlen)
{
	char line[300] = "", section[KVR_ROUTER_NAME + 8];

	rt->max_frame = KVR_WIRE_MAX_FRAME;
	for (; rt->n_ports < rt->conf.n_ports; rt->n_ports++) {
		struct kvr_router_port_conf *c = &rt->conf.port[rt->n_ports];
		struct kvr_port *p =
			kvr_port_create(c->name, &c->port, rt->n_ports, line, sizeof(line));
		const struct kvr_local *l;

		snprintf(section, sizeof(section), "port %s", c->name);
		if (p == NULL)
			goto fail;
		rt->port[rt->n_ports] = p;
		if (kvr_port_start(p, line, sizeof(line)) < 0) {
			kvr_port_destroy(p);
			goto fail;
		}
		l = kvr_port_local(p);
		if (l->max_frame4 != 0)
			rt->max_frame = RTE_MIN(rt->max_frame, l->max_frame4);
		if (l->max_frame6 != 0)
			rt->max_frame = RTE_MIN(rt->max_frame, l->max_frame6);
		rt->ctl_frame = RTE_MAX(rt->ctl_frame, RTE_MAX(l->max_frame4, l->max_frame6));
	}
	/* As long as the ports: they may hold what control has sent to the very end. */
	rt->ctl_mbufs = rte_pktmbuf_pool_create_by_ops(
		"ctl_mbufs", CTL_MBUFS, 0, 0,
		rte_pktmbuf_data_room_size(kvr_port_pool(rt->port[0])), SOCKET_ID_ANY,
		"ring_mp_sc");
	if (rt->ctl_mbufs == NULL) {
		snprintf(err, errlen,
			 "no memory for the buffers of control: raise [router] "
			 "memory_mb (now %u)",
			 rt->conf.opt.memory_mb);
		stop_ports(rt);
		return -ENOMEM;
	}
	return 0;
fail:
	kvr_conf_blame_line(rt->conf.path, section, line, err, errlen);
	stop_ports(rt);
	return -EINVAL;
}

void stop_ports(struct router *rt)
{
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
		jobs += rt->conf.pool[i].own.max_jobs;
	for (uint32_t i = 0; i < rt->conf.n_pools; i++)
		blocks = RTE_MAX(blocks, rt->conf.pool[i].sched.max_prompt_blocks);
	blocks = RTE_MIN(blocks, KVR_WIRE_MAX_HASHES);
	/* Hashes and the list of frames of every job: 1,024 blocks are enough for most. */
	rt->small_bufs = rte_mempool_create("small_bufs", 2 * jobs, SMALL_BUF, 0, 0, NULL, NULL,
					    NULL, NULL, SOCKET_ID_ANY, 0);
	rt->hash_bufs = rte_mempool_create("hash_bufs", n,
					   (unsigned int)(sizeof(struct prediction) + blocks * 8),
					   0, 0, NULL, NULL, NULL, NULL, SOCKET_ID_ANY, 0);
	rt->hint_bufs = rte_mempool_create("hint_bufs", n, KVR_WIRE_MAX_HINTS, 0, 0, NULL, NULL,
					   NULL, NULL, SOCKET_ID_ANY, 0);
	rt->frame_lists = rte_mempool_create(
		"frame_lists", n,
		sizeof(struct frame_list) + KVR_WIRE_MAX_FRAGMENTS * sizeof(struct rte_mbuf *), 0,
		0, NULL, NULL, NULL, NULL, SOCKET_ID_ANY, 0);
	if (rt->small_bufs == NULL || rt->hash_bufs == NULL || rt->hint_bufs == NULL ||
	    rt->frame_lists == NULL) {
		snprintf(err, errlen,
			 "no memory for %u large buffers: raise [router] memory_mb (now %u) or "
			 "lower large_buffers or the pools' max_jobs",
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
	const size_t size = rte_rcu_qsbr_get_memsize(rt->conf.n_lcores);
	struct kvr_view *v = NULL;

	RTE_SET_USED(err);
	RTE_SET_USED(errlen);
	rt->registry = kvr_registry_create(rt->conf.opt.max_workers, rt->seed);
	rt->qsbr = rte_zmalloc("qsbr", size, RTE_CACHE_LINE_SIZE);
	if (rt->registry != NULL && control_create(rt) == 0)
		v = kvr_view_build(rt->registry);
	if (v == NULL || rt->qsbr == NULL) {
		kvr_view_free(v);
		stop_registry(rt);
		return -ENOMEM;
	}
	rte_rcu_qsbr_init(rt->qsbr, rt->conf.n_lcores);
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

/* What every context has, the control thread's too; `row` is its row of counters. */
static void lcore_init(struct router *rt, struct lcore *lc, uint32_t row)
{
	lc->rt = rt;
	lc->index = row;
	lc->mbufs = kvr_port_pool(rt->port[0]);
	lc->in = kvr_stats_row(rt->in_stats, row);
	lc->reject = kvr_stats_row(rt->reject_stats, row);
	lc->view = atomic_load_explicit(&rt->view, memory_order_relaxed);
	lc->now_ns = now_ns(rt);
	lc->full_since_ns = lc->now_ns;
}

/* A ring that a longest message fits, frame by frame: it comes at once. */
static uint32_t frames_ring(const struct router *rt)
{
	return rte_align32pow2(
		RTE_MAX(rt->conf.opt.ring_size, (uint32_t)KVR_WIRE_MAX_FRAGMENTS + 1));
}

/* Frames of lcores without a queue, which send whole messages, and of control, which does not. */
static uint32_t egress_size(const struct router *rt)
{
	return rt->conf.n_lcores > rt->conf.n_ingress ? frames_ring(rt)
						      : rte_align32pow2(rt->conf.opt.ring_size);
}

/* Whether frames of one sender may arrive on several queues of a port. */
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
	const struct kvr_reasm_conf rc = {
		.max_bytes = o->reassembly_bytes,
		.max_frames = (uint32_t)(o->reassembly_bytes / KVR_WIRE_MIN_FRAGMENT),
		.peer_max_bytes = o->reassembly_source_bytes,
		.peer_max_frames = (uint32_t)(o->reassembly_source_bytes / KVR_WIRE_MIN_FRAGMENT),
		.timeout = o->reassembly_ms * UINT64_C(1000000),
		.seed = rte_rand(),
		.drop = ingress_reasm_drop,
		.drop_arg = lc,
	};
	char name[RTE_RING_NAMESIZE];

	for (uint32_t p = 0; p < rt->n_ports; p++)
		lc->queue[p] = kvr_port_queue(rt->port[p], i);
	snprintf(name, sizeof(name), "egress%u", i);
	lc->egress = rte_ring_create_elem(name, sizeof(struct egress_note), egress_size(rt),
					  SOCKET_ID_ANY, RING_F_SC_DEQ);
	if (spreads_frames(rt)) {
		snprintf(name, sizeof(name), "joins%u", i);
		lc->joins = rte_ring_create(name, frames_ring(rt), SOCKET_ID_ANY, RING_F_SC_DEQ);
		if (lc->joins == NULL)
			return -ENOMEM;
	}
	lc->reasm = kvr_reasm_create(&rc);
	if (i == 0)
		lc->egress_ctl = rte_ring_create_elem("egress_ctl", sizeof(struct egress_note),
						      rte_align32pow2(CTL_MBUFS + 1), SOCKET_ID_ANY,
						      RING_F_SP_ENQ | RING_F_SC_DEQ);
	lc->sources = kvr_source_create(SOURCES, rte_rand());
	lc->proven = kvr_source_create(SOURCES, rte_rand());
	return lc->egress == NULL || (i == 0 && lc->egress_ctl == NULL) || lc->reasm == NULL ||
			       lc->sources == NULL || lc->proven == NULL
		       ? -ENOMEM
		       : 0;
}

static int rules_init(struct router *rt)
{
	for (uint32_t i = 0; i < rt->n_ports; i++) {
		const struct kvr_port_conf *c = &rt->conf.port[i].port;
		struct kvr_source_rate *r = rt->rules[i].rate;

		r[KVR_SOURCE_REQUESTS] = kvr_source_rate(c->source_rate, c->source_burst);
		r[KVR_SOURCE_ANSWERS] = kvr_source_rate(c->source_answers, c->source_answers);
		rt->rules[i].cookie = c->cookie;
		r[KVR_SOURCE_CONTROL] = kvr_source_rate(c->source_control, CONTROL_BURST);
	}
	return kvr_cookie_key_init(&rt->cookie_key);
}

int start_lcores(struct router *rt, char *err, size_t errlen)
{
	if (rules_init(rt) < 0) {
		snprintf(err, errlen, "no randomness for cookies");
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
		if (lc->calls == NULL || (i < rt->conf.n_ingress && ingress_init(rt, lc, i) < 0))
			goto fail;
	}
	lcore_init(rt, &rt->control, rt->conf.n_lcores);
	rt->control.via = rt->lcore[0];
	rt->control.out = rt->lcore[0]->egress_ctl;
	rt->control.mbufs = rt->ctl_mbufs;
	return 0;
fail:
	snprintf(err, errlen, "no memory for polling lcore %u: raise [router] memory_mb (now %u)",
		 rt->n_lcores, rt->conf.opt.memory_mb);
	stop_lcores(rt);
	return -ENOMEM;
}

/* Frames that were on their way when the lcores stopped. */
static void drain_egress(struct rte_ring *r)
{
	struct egress_note e;

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
	while (rt->n_lcores > 0) {
		struct lcore *lc = rt->lcore[--rt->n_lcores];

		drain_egress(lc->egress);
		drain_egress(lc->egress_ctl);
		kvr_reasm_destroy(lc->reasm);
		kvr_source_destroy(lc->sources);
		kvr_source_destroy(lc->proven);
		drain_joins(lc->joins);
		rte_ring_free(lc->calls);
		rte_free(lc->hints);
		rte_free(lc);
	}
}

/* ---- traffic ---- */

/* One memory segment of the EAL: give it its pages now. */
static int populate(const struct rte_memseg_list *msl, const struct rte_memseg *ms, void *arg)
{
	RTE_SET_USED(msl);
	RTE_SET_USED(arg);
	/* Kernels before 5.14 do not know the advice: touch the pages, whose content is kept. */
	if (madvise(ms->addr, ms->len, MADV_POPULATE_WRITE) == 0)
		return 0;
	for (size_t i = 0; i < ms->len; i += 4096)
		__atomic_fetch_or((uint8_t *)ms->addr + i, 0, __ATOMIC_RELAXED);
	return 0;
}

int start_traffic(struct router *rt, char *err, size_t errlen)
{
	/* Without huge pages memory comes by page faults; packet lcores shall have none. */
	rte_memseg_walk(populate, NULL);
	atomic_store_explicit(&rt->running, 1, memory_order_relaxed);
	for (uint32_t i = 0; i < rt->n_lcores; i++)
		if (rte_eal_remote_launch(lcore_loop, rt->lcore[i], EAL_LCORE(i)) != 0) {
			snprintf(err, errlen, "cannot launch polling lcore %u", i);
			stop_traffic(rt);
			return -EBUSY;
		}
	return 0;
}

void stop_traffic(struct router *rt)
{
	atomic_store_explicit(&rt->stop, 1, memory_order_relaxed);
	rte_eal_mp_wait_lcore();
	atomic_store_explicit(&rt->running, 0, memory_order_relaxed);
}
