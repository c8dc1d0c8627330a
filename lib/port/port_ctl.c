/* SPDX-License-Identifier: BSD-3-Clause */
#include "port_pvt.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_telemetry.h>

#include "kvr_errno.h"

#define MEMIF_SETTLE_US 50000

/* Does an interface of this machine's kernel have the address? */
static bool kernel_has(int family, const void *ip)
{
	struct ifaddrs *all, *a;
	bool found = false;

	if (getifaddrs(&all) != 0)
		return false;
	for (a = all; a != NULL && !found; a = a->ifa_next) {
		if (a->ifa_addr == NULL || a->ifa_addr->sa_family != family)
			continue;
		if (family == AF_INET) {
			struct sockaddr_in in;

			memcpy(&in, a->ifa_addr, sizeof(in));
			found = memcmp(&in.sin_addr, ip, 4) == 0;
		} else {
			struct sockaddr_in6 in6;

			memcpy(&in6, a->ifa_addr, sizeof(in6));
			found = memcmp(&in6.sin6_addr, ip, 16) == 0;
		}
	}
	freeifaddrs(all);
	return found;
}

/*
 * Who owns the address answers: the kernel, when it has the address and gets the questions. It
 * does on packet sockets; on AF_XDP only with a program that leaves them to it, as the driver's
 * own takes every frame.
 */
static void choose_answers(struct kvr_port *p)
{
	const char *driver = p->dev.driver_name;
	const bool shared = strcmp(driver, "net_af_packet") == 0 ||
			    (strcmp(driver, "net_af_xdp") == 0 &&
			     (p->xdp.used || strstr(p->conf.device, "xdp_prog=") != NULL));
	const bool on = p->conf.answer_arp != KVR_PORT_ANSWER_OFF;

	p->answers4 = on && p->conf.ipv4[0] != '\0';
	p->answers6 = on && p->conf.ipv6[0] != '\0';
	if (p->conf.answer_arp != KVR_PORT_ANSWER_AUTO || !shared)
		return;
	p->answers4 = p->answers4 && !kernel_has(AF_INET, p->rules.local.ip4);
	p->answers6 = p->answers6 && !kernel_has(AF_INET6, p->rules.local.ip6);
}

/*
 * Where frames of the same host arrive as its stack has left them. From a wire one in 65,536 right
 * checksums looks the same, and would protect nothing.
 */
static bool gives_half_sums(const struct kvr_port *p)
{
	static const char *const drivers[] = {"net_af_packet", "net_af_xdp", "net_tap",
					      "net_virtio",    "net_vhost",  "net_pcap"};
	bool any = false;

	for (uint32_t i = 0; i < RTE_DIM(drivers); i++)
		any = any || strncmp(p->dev.driver_name, drivers[i], strlen(drivers[i])) == 0;
	return any;
}

static void init_queues(struct kvr_port *p)
{
	p->live[0] = p->rules;
	for (uint16_t i = 0; i < p->lcores; i++) {
		struct kvr_port_queue *q = &p->queues[i];

		q->port = p;
		atomic_init(&q->rules, &p->live[0]);
		q->row = kvr_stats_row(p->stats, i);
		q->pool = p->pool;
		q->ethdev = p->ethdev;
		q->queue = i;
		q->answers4 = p->answers4;
		q->answers6 = p->answers6;
		if (p->conf.answer_rate != 0)
			q->answer_gap = RTE_MAX(rte_get_tsc_hz() / p->conf.answer_rate, 1u);
		q->prepare = p->rules.local.tx_cksum == KVR_CKSUM_OFFLOAD;
	}
}

struct kvr_port *kvr_port_create(const char *name, const struct kvr_port_conf *conf,
				 unsigned int index, char *err, size_t errlen)
{
	return kvr_port_create_shared(name, conf, index, RTE_MAX(conf->queues, 1u), err, errlen);
}

struct kvr_port *kvr_port_create_shared(const char *name, const struct kvr_port_conf *conf,
					unsigned int index, uint32_t lcores, char *err,
					size_t errlen)
{
	const struct port_err e = {err, errlen};
	struct kvr_port *p;
	size_t bytes;
	int rc;

	p = calloc(1, sizeof(*p));
	if (p == NULL) {
		kvr_port__fail(e, 0, "device: no memory");
		return kvr_null(ENOMEM);
	}
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->conf = *conf;
	rc = kvr_port_rules(conf, index, &p->rules, err, errlen);
	if (rc != 0)
		goto err_free;
	rc = -ENOMEM;
	p->lcores = lcores;
	bytes = p->lcores * sizeof(*p->queues);
	p->queues = aligned_alloc(RTE_CACHE_LINE_SIZE, bytes);
	p->stats = kvr_stats_create(&kvr_port_stats_def, p->lcores);
	if (p->queues != NULL)
		memset(p->queues, 0, bytes);
	if (p->queues == NULL || p->stats == NULL) {
		kvr_port__fail(e, 0, "queues: no memory for %u lcores", p->lcores);
		goto err_free;
	}
	rc = kvr_port__memif_claim(p, e);
	if (rc == 0)
		rc = kvr_port__xdp_claim(p, e);
	if (rc == 0)
		rc = kvr_port__addresses_claim(p, e);
	if (rc == 0)
		rc = kvr_port__open(p, e);
	if (rc == 0)
		rc = kvr_port__choose_queues(p, e);
	if (rc == 0)
		rc = kvr_port__configure(p, e);
	if (rc == 0)
		rc = kvr_port__rings_create(p, e);
	if (rc != 0)
		goto err_free;
	choose_answers(p);
	p->rules.half_udp = gives_half_sums(p);
	init_queues(p);
	kvr_port__link_init(p);
	kvr_port__memif_enter(p);
	return p;

err_free:
	kvr_port_destroy(p);
	return kvr_null(-rc);
}

int kvr_port_start(struct kvr_port *p, char *err, size_t errlen)
{
	const struct port_err e = {err, errlen};
	int rc;

	rc = rte_eth_dev_start(p->ethdev);
	if (rc != 0)
		return kvr_port__fail(e, rc, "device: %s does not start%s%s", p->dev.driver_name,
				      rc == -1 ? "" : ": ", rc == -1 ? "" : strerror(-rc));
	p->started = true;
	if (p->xdp.used) {
		rc = kvr_port_xdp_redirect(p, true);
		if (rc != 0)
			return kvr_port__fail(e, rc, "xdp: the program's map refuses: %s",
					      strerror(-rc));
	}
	/* Software ports have no filters and say "not supported", which is as good. */
	if (p->conf.promiscuous) {
		rc = rte_eth_promiscuous_enable(p->ethdev);
		if (rc != 0 && rc != -ENOTSUP)
			return kvr_port__fail(e, rc, "promiscuous: %s refuses: %s",
					      p->dev.driver_name, strerror(-rc));
	}
	if (p->answers6) /* neighbour solicitations are multicast */
		rte_eth_allmulticast_enable(p->ethdev);
	return 0;
}

/* Of @r and @c, what may change while the port runs. */
static void take_rules(struct kvr_port *p, const struct kvr_pkt_rules *r,
		       const struct kvr_port_conf *c)
{
	p->rules.n_allow = r->n_allow;
	p->rules.n_agents = r->n_agents;
	memcpy(p->rules.allow, r->allow, sizeof(r->allow));
	memcpy(p->rules.agents, r->agents, sizeof(r->agents));
	p->conf.xdp_rate = c->xdp_rate;
	p->conf.xdp_burst = c->xdp_burst;
}

int kvr_port_tune(struct kvr_port *p, const struct kvr_port_conf *conf, void (*wait)(void *arg),
		  void *arg, char *err, size_t errlen)
{
	const struct port_err e = {err, errlen};
	const struct kvr_pkt_rules was = p->rules;
	const struct kvr_port_conf before = p->conf;
	struct kvr_pkt_rules next, *to;
	int rc = kvr_port_rules(conf, p->rules.local.port, &next, err, errlen);

	if (rc != 0)
		return rc;
	take_rules(p, &next, conf);
	rc = kvr_port__xdp_tune(p);
	if (rc != 0) {
		take_rules(p, &was, &before);
		kvr_port__xdp_tune(p);
		return kvr_port__fail(e, rc, "xdp: the program's maps refuse: %s", strerror(-rc));
	}
	to = &p->live[kvr_port__rules(&p->queues[0]) == &p->live[0]];
	*to = p->rules;
	/* Pairs with the acquire load in kvr_port__rules(). */
	for (uint32_t i = 0; i < p->lcores; i++)
		atomic_store_explicit(&p->queues[i].rules, to, memory_order_release);
	wait(arg);
	return 0;
}

void kvr_port_stop(struct kvr_port *p)
{
	if (!p->started)
		return;
	kvr_port__link_end(p);
	kvr_port_xdp_redirect(p, false);
	p->started = false;
	for (uint16_t i = 0; i < p->lcores; i++) {
		struct kvr_port_queue *q = &p->queues[i];

		kvr_stats_add(q->row, KVR_PORT_TX_DROPPED, q->n_tx);
		kvr_stats_set(q->row, KVR_PORT_TX_BUFFERED, 0);
		while (q->n_tx > 0)
			rte_pktmbuf_free(q->tx[--q->n_tx]);
	}
	rte_eth_dev_stop(p->ethdev);
}

void kvr_port_destroy(struct kvr_port *p)
{
	if (p == NULL)
		return;
	kvr_port_stop(p);
	/*
	 * A peer that has just left is taken apart by memif on the interrupt thread, without a lock
	 * against close: let it finish, or both free the same memory ("EAL: Error: Invalid
	 * memory").
	 */
	if (p->dev.driver_name != NULL && strcmp(p->dev.driver_name, "net_memif") == 0)
		rte_delay_us_sleep(MEMIF_SETTLE_US);
	kvr_port__memif_leave(p);
	kvr_port__wait_stop(p);
	kvr_port__rings_free(p);
	kvr_port__close(p);
	kvr_port__memif_release(p);
	kvr_port__xdp_release(p);
	kvr_port__addresses_release(p);
	kvr_stats_destroy(p->stats);
	free(p->queues);
	free(p);
}

void kvr_port_info(struct kvr_port *p, struct kvr_port_info *out)
{
	struct rte_eth_link link = {0};

	memset(out, 0, sizeof(*out));
	out->name = p->name;
	out->driver = p->dev.driver_name;
	out->ethdev = p->ethdev;
	out->lcores = (uint16_t)p->lcores;
	out->queues = (uint16_t)p->hw;
	out->rx_queues = (uint16_t)atomic_load_explicit(&p->rx_on, memory_order_relaxed);
	out->tx_queues = (uint16_t)atomic_load_explicit(&p->tx_on, memory_order_relaxed);
	out->mtu = (uint16_t)p->conf.mtu;
	out->socket = rte_eth_dev_socket_id(p->ethdev);
	if (rte_eth_link_get_nowait(p->ethdev, &link) == 0) {
		out->link_up = link.link_status == RTE_ETH_LINK_UP;
		out->link_mbps = link.link_speed;
	}
	out->rss = p->rss;
	out->rx_cksum_hw = p->rx_cksum_hw;
	out->tx_cksum_hw = p->rules.local.tx_cksum == KVR_CKSUM_OFFLOAD;
	/* A kernel interface's driver always says up. */
	if (p->link.ifindex != 0)
		out->link_up =
			atomic_load_explicit(&p->link.seen, memory_order_relaxed) == KVR_PORT_UP;
	out->link_lost = atomic_load_explicit(&p->link.lost, memory_order_relaxed);
	out->answers4 = p->answers4;
	out->answers6 = p->answers6;
	out->mbufs = p->pool->size;
	out->mbufs_free = rte_mempool_avail_count(p->pool);
}

int kvr_port_tel(struct kvr_port *p, struct rte_tel_data *d)
{
	uint64_t v[KVR_PORT_COUNTERS];
	struct kvr_port_info i;
	char mac[RTE_ETHER_ADDR_FMT_SIZE];
	struct rte_ether_addr addr;

	kvr_port_info(p, &i);
	memcpy(addr.addr_bytes, p->rules.local.mac, 6);
	rte_ether_format_addr(mac, sizeof(mac), &addr);
	rte_tel_data_add_dict_string(d, "name", i.name);
	rte_tel_data_add_dict_string(d, "driver", i.driver);
	rte_tel_data_add_dict_int(d, "ethdev", i.ethdev);
	rte_tel_data_add_dict_string(d, "mac", mac);
	rte_tel_data_add_dict_string(d, "ipv4", p->conf.ipv4);
	rte_tel_data_add_dict_string(d, "ipv6", p->conf.ipv6);
	rte_tel_data_add_dict_int(d, "udp_port", (int)p->conf.udp_port);
	rte_tel_data_add_dict_int(d, "lcores", i.lcores);
	rte_tel_data_add_dict_int(d, "queues", i.queues);
	rte_tel_data_add_dict_int(d, "rx_queues", i.rx_queues);
	rte_tel_data_add_dict_int(d, "tx_queues", i.tx_queues);
	rte_tel_data_add_dict_int(d, "mtu", i.mtu);
	rte_tel_data_add_dict_int(d, "socket", i.socket);
	rte_tel_data_add_dict_int(d, "link_up", i.link_up);
	rte_tel_data_add_dict_u64(d, "link_mbps", i.link_mbps);
	rte_tel_data_add_dict_u64(d, "link_lost", i.link_lost);
	rte_tel_data_add_dict_int(d, "rss", i.rss);
	rte_tel_data_add_dict_int(d, "rx_checksum_offload", i.rx_cksum_hw);
	rte_tel_data_add_dict_int(d, "tx_checksum_offload", i.tx_cksum_hw);
	rte_tel_data_add_dict_int(d, "answers_arp", i.answers4);
	rte_tel_data_add_dict_int(d, "answers_nd", i.answers6);
	rte_tel_data_add_dict_u64(d, "mbufs", i.mbufs);
	rte_tel_data_add_dict_u64(d, "mbufs_free", i.mbufs_free);
	kvr_stats_sum(p->stats, v);
	return kvr_stats_tel(&kvr_port_stats_def, v, d);
}

unsigned int kvr_port_index(const struct kvr_port *p)
{
	return p->rules.local.port;
}

const struct kvr_local *kvr_port_local(const struct kvr_port *p)
{
	return &p->rules.local;
}

struct rte_mempool *kvr_port_pool(struct kvr_port *p)
{
	return p->pool;
}

struct kvr_stats *kvr_port_stats(struct kvr_port *p)
{
	return p->stats;
}

struct kvr_port_queue *kvr_port_queue(struct kvr_port *p, unsigned int i)
{
	return &p->queues[i];
}

/* One request on its way; what arrives meanwhile is answered or dropped by the receive call. */
static void ask(struct kvr_port_queue *q, const struct kvr_path *path)
{
	struct rte_mbuf *m = kvr_port_alloc(q);

	if (m == NULL)
		return;
	if (kvr_pkt_ask(&kvr_port__rules(q)->local, path, m) != 0) {
		rte_pktmbuf_free(m);
		return;
	}
	kvr_stats_inc(q->row, KVR_PORT_TX_OFFERED);
	if (kvr_port__tx_on(q) && rte_eth_tx_burst(q->ethdev, q->queue, &m, 1) == 1) {
		kvr_stats_inc(q->row, KVR_PORT_TX_SENT);
		return;
	}
	kvr_stats_inc(q->row, KVR_PORT_TX_DROPPED);
	rte_pktmbuf_free(m);
}

int kvr_port_resolve(struct kvr_port_queue *q, const uint8_t ip[16], uint16_t udp_port,
		     uint32_t timeout_ms, struct kvr_path *path)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	const uint64_t ms = rte_get_tsc_hz() / 1000, start = rte_get_tsc_cycles();
	const struct kvr_pkt_rules *r = kvr_port__rules(q);
	const struct kvr_local *l = &r->local;
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	const bool v4 = memcmp(ip, mapped, 12) == 0;
	uint64_t next = start, now = start;

	if (v4 ? l->ip4[0] == 0 : l->ip6[0] == 0)
		return -EAFNOSUPPORT;
	memset(path, 0, sizeof(*path));
	memcpy(path->ip, ip, 16);
	path->udp_port = udp_port;
	path->vlan = r->vlan;
	path->port = l->port;
	path->family = v4 ? 4 : 6;
	path->max_frame = v4 ? l->max_frame4 : l->max_frame6;
	q->asking = path;
	q->answered = false;
	while (!q->answered && now - start <= timeout_ms * ms) {
		if (now >= next) {
			ask(q, path);
			next = now + 100 * ms;
		}
		rte_pktmbuf_free_bulk(m, kvr_port_rx_burst(q, m, pkts, KVR_PORT_BURST));
		kvr_port_flush(q);
		now = rte_get_tsc_cycles();
	}
	q->asking = NULL;
	return q->answered ? 0 : -EHOSTUNREACH;
}
