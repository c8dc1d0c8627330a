/* SPDX-License-Identifier: BSD-3-Clause */
#include "router_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_random.h>

#include "config/config.h"
#include "lcore/mailbox.h"
#include "sched/long_prompt.h"
#include "start/start.h"

#define HEADERS4 42u /* Ethernet, IPv4, UDP */
#define HEADERS6 62u

const uint8_t rig_mac[6] = {2, 0, 0, 0, 0, 2};

/* ---- devices ---- */

static int open_port(struct router_rig *b, struct rig_port *p, const struct rig_sizes *s)
{
	static uint32_t round;
	char name[RTE_RING_NAMESIZE];
	int port;

	for (uint32_t q = 0; q < s->queues; q++) {
		snprintf(name, sizeof(name), "t%u.%u", round, q);
		p->to[q] = rte_ring_create(name, s->to, SOCKET_ID_ANY, 0);
		snprintf(name, sizeof(name), "f%u.%u", round, q);
		p->from[q] = rte_ring_create(name, s->from, SOCKET_ID_ANY, 0);
		if (p->to[q] == NULL || p->from[q] == NULL)
			return -ENOMEM;
	}
	snprintf(name, sizeof(name), "box%u", round++);
	port = rte_eth_from_rings(name, p->to, s->queues, p->from, s->queues, 0);
	if (port < 0)
		return port;
	b->n_ports++;
	return rte_eth_dev_get_name_by_port((uint16_t)port, p->device);
}

int rig_open(struct router_rig *b, const struct rig_sizes *s)
{
	static uint32_t round;
	char name[RTE_MEMPOOL_NAMESIZE];
	int rc = 0;

	*b = (struct router_rig){.n_queues = s->queues};
	b->rt = aligned_alloc(RTE_CACHE_LINE_SIZE,
			      RTE_ALIGN_CEIL(sizeof(*b->rt), RTE_CACHE_LINE_SIZE));
	snprintf(name, sizeof(name), "frames%u", round++);
	/* With a cache the next frame takes the memory of the last one, which is still in the CPU's
	 * cache. */
	b->frames = rte_pktmbuf_pool_create(name, s->frames, s->frames >= 1024 ? 64 : 0, 0,
					    RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (b->rt == NULL || b->frames == NULL)
		rc = -ENOMEM;
	for (uint32_t i = 0; i < s->ports && rc == 0; i++)
		rc = open_port(b, &b->port[i], s);
	if (rc < 0) {
		rig_close(b);
		return rc;
	}
	memset(b->rt, 0, sizeof(*b->rt));
	return 0;
}

static uint32_t drain_ring(struct rte_ring *r)
{
	struct rte_mbuf *m;
	uint32_t n = 0;

	for (; r != NULL && rte_ring_dequeue(r, (void **)&m) == 0; n++)
		rte_pktmbuf_free(m);
	return n;
}

static uint32_t drain_all(struct router_rig *b)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->n_ports; i++)
		for (uint32_t q = 0; q < b->n_queues; q++)
			n += drain_ring(b->port[i].to[q]) + drain_ring(b->port[i].from[q]);
	return n;
}

void rig_close(struct router_rig *b)
{
	drain_all(b);
	for (uint32_t i = 0; i < RIG_PORTS; i++) {
		if (b->port[i].device[0] != '\0')
			rte_vdev_uninit(b->port[i].device);
		for (uint32_t q = 0; q < b->n_queues; q++) {
			rte_ring_free(b->port[i].to[q]);
			rte_ring_free(b->port[i].from[q]);
		}
	}
	rte_mempool_free(b->frames);
	free(b->rt);
	*b = (struct router_rig){0};
}

/* ---- start and stop ---- */

int rig_load(struct router_rig *b, const char *text, char *err, size_t errlen)
{
	char path[] = "/tmp/kvr-box-XXXXXX";
	FILE *f = fdopen(mkstemp(path), "w");
	int rc;

	if (f == NULL)
		return -errno;
	fputs(text, f);
	fclose(f);
	rc = kvr_router_conf_load(&b->rt->conf, path, err, errlen);
	unlink(path);
	return rc;
}

int rig_lcores(struct kvr_router_conf *c, uint32_t lcores, uint32_t ingress, uint32_t event,
	       uint32_t sched, char *err, size_t errlen)
{
	c->n_lcores = lcores;
	c->n_ingress = ingress;
	for (uint32_t i = 0; i < c->n_lcores; i++)
		c->cpu[i] = i;
	for (uint32_t i = 0; i < c->n_pools; i++) {
		c->pool[i].event_lcore = event;
		c->pool[i].sched_lcore = sched;
	}
	return kvr_router_conf_sizes(c, err, errlen); /* more lcores need longer rings */
}

/* Keys that do not come from rte_rand(). */
static void known_key(struct router *rt)
{
	const uint64_t w[2] = {rte_rand(), rte_rand()};

	memcpy(rt->cookie_key.b, w, sizeof(rt->cookie_key.b));
}

int rig_start(struct router_rig *b, uint64_t start_ns, uint64_t seed, char *err, size_t errlen)
{
	struct router *rt = b->rt;
	int rc;

	if (seed != 0)
		rte_srand(seed);
	start_clock(rt);
	rt->ns_per_tsc = 0; /* time stands still unless the owner advances it */
	if (start_ns != 0)
		rt->start_ns = start_ns;
	rt->ns_offset = rt->start_ns;
	rc = start_counters(rt, err, errlen);
	rc = rc == 0 ? start_ports(rt, err, errlen) : rc;
	rc = rc == 0 ? start_buffers(rt, err, errlen) : rc;
	rc = rc == 0 ? start_registry(rt, err, errlen) : rc;
	rc = rc == 0 ? start_lcores(rt, err, errlen) : rc;
	rc = rc == 0 ? start_pools(rt, err, errlen) : rc;
	if (rc < 0)
		return rc;
	if (seed != 0)
		known_key(rt);
	for (uint32_t i = 0; i < rt->n_lcores && !b->threads; i++) {
		rte_rcu_qsbr_thread_register(rt->qsbr, i);
		rte_rcu_qsbr_thread_online(rt->qsbr, i);
	}
	return 0;
}

uint32_t rig_stop(struct router_rig *b)
{
	struct router *rt = b->rt;
	uint32_t n;

	for (uint32_t i = 0; i < rt->n_lcores && !b->threads; i++) {
		rte_rcu_qsbr_thread_offline(rt->qsbr, i);
		rte_rcu_qsbr_thread_unregister(rt->qsbr, i);
	}
	atomic_store_explicit(&rt->running, 0, memory_order_relaxed);
	stop_pools(rt);
	stop_lcores(rt);
	stop_registry(rt);
	stop_buffers(rt);
	n = drain_all(b); /* the frames belong to the port's pool */
	stop_ports(rt);
	stop_counters(rt);
	return n + drain_all(b);
}

/* ---- frames ---- */

struct rte_mbuf *rig_frame(struct router_rig *b, uint32_t port, const struct kvr_path *from,
			   const void *payload, size_t len)
{
	const struct kvr_local *us = kvr_port_local(b->rt->port[port]);
	struct kvr_local peer = *us;
	struct kvr_path to = {.udp_port = us->udp_port, .family = from->family};
	struct rte_mbuf *m = rte_pktmbuf_alloc(b->frames);
	char *data;

	if (b->plain)
		peer.tx_cksum = KVR_CKSUM_NONE;
	memcpy(peer.mac, rig_mac, sizeof(peer.mac));
	memcpy(peer.ip4, from->ip + 12, sizeof(peer.ip4));
	memcpy(peer.ip6, from->ip, sizeof(peer.ip6));
	peer.udp_port = from->udp_port;
	memcpy(to.mac, us->mac, sizeof(to.mac));
	memcpy(to.ip, us->ip6, sizeof(to.ip));
	if (from->family == 4) {
		memcpy(to.ip, from->ip, sizeof(to.ip));
		memcpy(to.ip + 12, us->ip4, sizeof(us->ip4));
	}
	data = m != NULL ? rte_pktmbuf_append(m, (uint16_t)len) : NULL;
	if (data != NULL)
		memcpy(data, payload, len);
	if (data == NULL || kvr_path_write(&peer, &to, m) < 0) {
		rte_pktmbuf_free(m);
		return NULL;
	}
	return m;
}

uint32_t rig_payload(const struct rte_mbuf *m, struct kvr_path *to)
{
	const uint8_t *p = rte_pktmbuf_mtod(m, const uint8_t *);
	const uint32_t headers = p[12] == 0x86 ? HEADERS6 : HEADERS4;

	if (m->pkt_len < headers)
		return 0;
	*to = (struct kvr_path){.family = headers == HEADERS6 ? 6 : 4};
	if (to->family == 6) {
		memcpy(to->ip, p + 38, sizeof(to->ip));
	} else {
		to->ip[10] = to->ip[11] = 0xff;
		memcpy(to->ip + 12, p + 30, 4);
	}
	to->udp_port = (uint16_t)(p[headers - 6] << 8 | p[headers - 5]);
	return headers;
}

/* ---- remaining work ---- */

bool rig_unread(const struct router_rig *b)
{
	bool any = false;

	for (uint32_t i = 0; i < b->n_ports; i++)
		for (uint32_t q = 0; q < b->n_queues; q++)
			any = any || !rte_ring_empty(b->port[i].to[q]);
	return any;
}

/* Frames of abandoned messages are freed over several turns. */
static bool frees_frames(const struct lcore *lc)
{
	const struct kvr_reasm_stats *s = lc->reasm != NULL ? kvr_reasm_stats(lc->reasm) : NULL;

	return lc->trash != NULL || (s != NULL && s->messages == 0 && s->frames != 0);
}

/* Long messages are read, sent and applied over several turns, and sending is paced by time. Long
 * prompts are matched, booked and freed over several turns. */
bool rig_under_way(const struct router_rig *b)
{
	const struct router *rt = b->rt;
	bool any = false;

	for (uint32_t i = 0; i < rt->n_lcores; i++)
		any = any || rt->lcore[i]->reading.first != NULL || frees_frames(rt->lcore[i]);
	for (uint32_t i = 0; i < rt->n_pools; i++)
		any = any || !TAILQ_EMPTY(&rt->pool[i].live.sends) ||
		      rt->pool[i].event.open.m != NULL || !long_prompt_idle(&rt->pool[i]);
	return any;
}

static bool ring_waits(const struct rte_ring *r)
{
	return r != NULL && !rte_ring_empty(r);
}

static uint32_t lcore_bit(const struct lcore *lc, bool busy)
{
	return busy ? 1u << lc->index : 0;
}

static bool lcore_busy(const struct lcore *lc)
{
	return ring_waits(lc->egress) || ring_waits(lc->egress_ctl) || ring_waits(lc->joins) ||
	       ring_waits(lc->calls) || lc->call != NULL || lc->reading.first != NULL ||
	       frees_frames(lc);
}

uint32_t rig_busy(const struct router_rig *b)
{
	const struct router *rt = b->rt;
	uint32_t busy = 0;

	for (uint32_t i = 0; i < rt->n_lcores; i++)
		busy |= lcore_bit(rt->lcore[i], lcore_busy(rt->lcore[i]));
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		const struct pool *p = &rt->pool[i];

		busy |= lcore_bit(p->event_lcore, ring_waits(p->events) || p->event.open.m != NULL);
		busy |= lcore_bit(p->sched_lcore, mailbox_count(p) != 0 ||
							  !TAILQ_EMPTY(&p->live.sends) ||
							  !long_prompt_idle(p));
	}
	for (uint32_t i = 0; i < b->n_ports; i++) {
		for (uint32_t q = 0; q < b->n_queues; q++)
			busy |= lcore_bit(rt->lcore[q], ring_waits(b->port[i].to[q]));
		if (kvr_port_waiting(rt->port[i]) != 0)
			busy |= (1u << rt->conf.n_ingress) - 1;
	}
	return busy;
}

uint32_t rig_mbufs_used(const struct router_rig *b)
{
	struct kvr_port_info info;

	kvr_port_info(b->rt->port[0], &info);
	return info.mbufs - info.mbufs_free + rte_mempool_in_use_count(b->frames);
}
