/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lifecycle of a port: create, start, tune, stop, destroy, and its facts for telemetry. Control
 * thread.
 */
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

/* True if an interface of this kernel has the address. */
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
 * The owner of the address answers ARP and ping: the kernel, if it has the address and receives the
 * requests. It receives them on packet sockets; on AF_XDP only with a program that passes them on,
 * as the driver's own program takes every frame.
 */
static void choose_answers(struct kvr_port *port)
{
	const char *driver = port->dev.driver_name;
	const bool shared = strcmp(driver, "net_af_packet") == 0 ||
			    (strcmp(driver, "net_af_xdp") == 0 &&
			     (port->xdp.used || strstr(port->conf.device, "xdp_prog=") != NULL));
	const bool on = port->conf.answer_arp != KVR_PORT_ANSWER_OFF;

	port->answers4 = on && port->conf.ipv4[0] != '\0';
	port->answers6 = on && port->conf.ipv6[0] != '\0';
	if (port->conf.answer_arp != KVR_PORT_ANSWER_AUTO || !shared)
		return;
	port->answers4 = port->answers4 && !kernel_has(AF_INET, port->rules.local.ip4);
	port->answers6 = port->answers6 && !kernel_has(AF_INET6, port->rules.local.ip6);
}

/*
 * True for drivers that deliver frames of this host with unfinished checksums. On a wire, one valid
 * checksum in 65,536 looks the same, and the check would protect nothing.
 */
static bool gives_half_sums(const struct kvr_port *port)
{
	static const char *const drivers[] = {"net_af_packet", "net_af_xdp", "net_tap",
					      "net_virtio",    "net_vhost",  "net_pcap"};
	bool any = false;

	for (uint32_t i = 0; i < RTE_DIM(drivers); i++)
		any = any || strncmp(port->dev.driver_name, drivers[i], strlen(drivers[i])) == 0;
	return any;
}

static void init_queues(struct kvr_port *port)
{
	port->live[0] = port->rules;
	for (uint16_t i = 0; i < port->lcores; i++) {
		struct kvr_port_queue *q = &port->queues[i];

		q->port = port;
		atomic_init(&q->rules, &port->live[0]);
		q->row = kvr_stats_row(port->stats, i);
		q->pool = port->pool;
		q->ethdev = port->ethdev;
		q->queue = i;
		q->answers4 = port->answers4;
		q->answers6 = port->answers6;
		if (port->conf.answer_rate != 0)
			q->answer_gap = RTE_MAX(rte_get_tsc_hz() / port->conf.answer_rate, 1u);
		q->prepare = port->rules.local.tx_cksum == KVR_CKSUM_OFFLOAD;
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
	struct kvr_port *port;
	size_t bytes;
	int rc;

	port = calloc(1, sizeof(*port));
	if (port == NULL) {
		kvr_port__fail(e, 0, "device: out of memory");
		return kvr_null(ENOMEM);
	}
	snprintf(port->name, sizeof(port->name), "%s", name);
	port->conf = *conf;
	rc = kvr_port_rules(conf, index, &port->rules, err, errlen);
	if (rc != 0)
		goto err_free;
	rc = -ENOMEM;
	port->lcores = lcores;
	bytes = port->lcores * sizeof(*port->queues);
	port->queues = aligned_alloc(RTE_CACHE_LINE_SIZE, bytes);
	port->stats = kvr_stats_create(&kvr_port_stats_def, port->lcores);
	if (port->queues != NULL)
		memset(port->queues, 0, bytes);
	if (port->queues == NULL || port->stats == NULL) {
		kvr_port__fail(e, 0, "queues: no memory for %u lcores", port->lcores);
		goto err_free;
	}
	rc = kvr_port__memif_claim(port, e);
	if (rc == 0)
		rc = kvr_port__xdp_claim(port, e);
	if (rc == 0)
		rc = kvr_port__addresses_claim(port, e);
	if (rc == 0)
		rc = kvr_port__open(port, e);
	if (rc == 0)
		rc = kvr_port__choose_queues(port, e);
	if (rc == 0)
		rc = kvr_port__configure(port, e);
	if (rc == 0)
		rc = kvr_port__rings_create(port, e);
	if (rc != 0)
		goto err_free;
	choose_answers(port);
	port->rules.half_udp = gives_half_sums(port);
	init_queues(port);
	kvr_port__link_init(port);
	kvr_port__memif_enter(port);
	return port;

err_free:
	kvr_port_destroy(port);
	return kvr_null(-rc);
}

int kvr_port_start(struct kvr_port *port, char *err, size_t errlen)
{
	const struct port_err e = {err, errlen};
	int rc;

	rc = rte_eth_dev_start(port->ethdev);
	if (rc != 0)
		return kvr_port__fail(e, rc, "device: %s does not start%s%s", port->dev.driver_name,
				      rc == -1 ? "" : ": ", rc == -1 ? "" : strerror(-rc));
	port->started = true;
	if (port->xdp.used) {
		rc = kvr_port_xdp_redirect(port, true);
		if (rc != 0)
			return kvr_port__fail(e, rc, "xdp: cannot update the program's map: %s",
					      strerror(-rc));
	}
	/* Software ports have no filters and report "not supported", which is fine. */
	if (port->conf.promiscuous) {
		rc = rte_eth_promiscuous_enable(port->ethdev);
		if (rc != 0 && rc != -ENOTSUP)
			return kvr_port__fail(e, rc, "promiscuous: %s rejects it: %s",
					      port->dev.driver_name, strerror(-rc));
	}
	if (port->answers6) /* neighbour solicitations are multicast */
		rte_eth_allmulticast_enable(port->ethdev);
	return 0;
}

/* Copy the rules that may change while the port runs. */
static void take_rules(struct kvr_port *port, const struct kvr_pkt_rules *rules,
		       const struct kvr_port_conf *c)
{
	port->rules.n_allow = rules->n_allow;
	port->rules.n_agents = rules->n_agents;
	memcpy(port->rules.allow, rules->allow, sizeof(rules->allow));
	memcpy(port->rules.agents, rules->agents, sizeof(rules->agents));
	port->conf.xdp_rate = c->xdp_rate;
	port->conf.xdp_burst = c->xdp_burst;
}

int kvr_port_tune(struct kvr_port *port, const struct kvr_port_conf *conf, void (*wait)(void *arg),
		  void *arg, char *err, size_t errlen)
{
	const struct port_err e = {err, errlen};
	const struct kvr_pkt_rules was = port->rules;
	const struct kvr_port_conf before = port->conf;
	struct kvr_pkt_rules next, *to;
	int rc = kvr_port_rules(conf, port->rules.local.port, &next, err, errlen);

	if (rc != 0)
		return rc;
	take_rules(port, &next, conf);
	rc = kvr_port__xdp_tune(port);
	if (rc != 0) {
		take_rules(port, &was, &before);
		kvr_port__xdp_tune(port);
		return kvr_port__fail(e, rc, "xdp: cannot update the program's maps: %s",
				      strerror(-rc));
	}
	to = &port->live[kvr_port__rules(&port->queues[0]) == &port->live[0]];
	*to = port->rules;
	/* Pairs with the acquire load in kvr_port__rules(). */
	for (uint32_t i = 0; i < port->lcores; i++)
		atomic_store_explicit(&port->queues[i].rules, to, memory_order_release);
	wait(arg);
	return 0;
}

void kvr_port_stop(struct kvr_port *port)
{
	if (!port->started)
		return;
	kvr_port__link_end(port);
	kvr_port_xdp_redirect(port, false);
	port->started = false;
	for (uint16_t i = 0; i < port->lcores; i++) {
		struct kvr_port_queue *q = &port->queues[i];

		kvr_stats_add(q->row, KVR_PORT_TX_DROPPED, q->n_tx);
		kvr_stats_set(q->row, KVR_PORT_TX_BUFFERED, 0);
		while (q->n_tx > 0)
			rte_pktmbuf_free(q->tx[--q->n_tx]);
	}
	rte_eth_dev_stop(port->ethdev);
}

void kvr_port_destroy(struct kvr_port *port)
{
	if (port == NULL)
		return;
	kvr_port_stop(port);
	/*
	 * net_memif tears down a departed peer on the interrupt thread without a lock against
	 * close. Let it finish, or both free the same memory ("EAL: Error: Invalid memory").
	 */
	if (port->dev.driver_name != NULL && strcmp(port->dev.driver_name, "net_memif") == 0)
		rte_delay_us_sleep(MEMIF_SETTLE_US);
	kvr_port__memif_leave(port);
	kvr_port__wait_stop(port);
	kvr_port__rings_free(port);
	kvr_port__close(port);
	kvr_port__memif_release(port);
	kvr_port__xdp_release(port);
	kvr_port__addresses_release(port);
	kvr_stats_destroy(port->stats);
	free(port->queues);
	free(port);
}

void kvr_port_info(struct kvr_port *port, struct kvr_port_info *out)
{
	struct rte_eth_link link = {0};

	memset(out, 0, sizeof(*out));
	out->name = port->name;
	out->driver = port->dev.driver_name;
	out->ethdev = port->ethdev;
	out->lcores = (uint16_t)port->lcores;
	out->queues = (uint16_t)port->hw;
	out->rx_queues = (uint16_t)atomic_load_explicit(&port->rx_on, memory_order_relaxed);
	out->tx_queues = (uint16_t)atomic_load_explicit(&port->tx_on, memory_order_relaxed);
	out->mtu = (uint16_t)port->conf.mtu;
	out->socket = rte_eth_dev_socket_id(port->ethdev);
	if (rte_eth_link_get_nowait(port->ethdev, &link) == 0) {
		out->link_up = link.link_status == RTE_ETH_LINK_UP;
		out->link_mbps = link.link_speed;
	}
	out->rss = port->rss;
	out->rx_cksum_hw = port->rx_cksum_hw;
	out->tx_cksum_hw = port->rules.local.tx_cksum == KVR_CKSUM_OFFLOAD;
	/* Drivers of kernel interfaces always report the link up. */
	if (port->link.ifindex != 0)
		out->link_up =
			atomic_load_explicit(&port->link.seen, memory_order_relaxed) == KVR_PORT_UP;
	out->link_lost = atomic_load_explicit(&port->link.lost, memory_order_relaxed);
	out->answers4 = port->answers4;
	out->answers6 = port->answers6;
	out->mbufs = port->pool->size;
	out->mbufs_free = rte_mempool_avail_count(port->pool);
}

int kvr_port_tel(struct kvr_port *port, struct rte_tel_data *d)
{
	uint64_t v[KVR_PORT_COUNTERS];
	struct kvr_port_info i;
	char mac[RTE_ETHER_ADDR_FMT_SIZE];
	struct rte_ether_addr addr;

	kvr_port_info(port, &i);
	memcpy(addr.addr_bytes, port->rules.local.mac, 6);
	rte_ether_format_addr(mac, sizeof(mac), &addr);
	rte_tel_data_add_dict_string(d, "name", i.name);
	rte_tel_data_add_dict_string(d, "driver", i.driver);
	rte_tel_data_add_dict_int(d, "ethdev", i.ethdev);
	rte_tel_data_add_dict_string(d, "mac", mac);
	rte_tel_data_add_dict_string(d, "ipv4", port->conf.ipv4);
	rte_tel_data_add_dict_string(d, "ipv6", port->conf.ipv6);
	rte_tel_data_add_dict_int(d, "udp_port", (int)port->conf.udp_port);
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
	kvr_stats_sum(port->stats, v);
	return kvr_stats_tel(&kvr_port_stats_def, v, d);
}

unsigned int kvr_port_index(const struct kvr_port *port)
{
	return port->rules.local.port;
}

const struct kvr_local *kvr_port_local(const struct kvr_port *port)
{
	return &port->rules.local;
}

struct rte_mempool *kvr_port_pool(struct kvr_port *port)
{
	return port->pool;
}

struct kvr_stats *kvr_port_stats(struct kvr_port *port)
{
	return port->stats;
}

struct kvr_port_queue *kvr_port_queue(struct kvr_port *port, unsigned int i)
{
	return &port->queues[i];
}

/* Send one request; the receive call answers or drops what arrives meanwhile. */
static void send_request(struct kvr_port_queue *q, const struct kvr_path *path)
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
	const struct kvr_pkt_rules *rules = kvr_port__rules(q);
	const struct kvr_local *local = &rules->local;
	struct rte_mbuf *m[KVR_PORT_BURST];
	struct kvr_pkt pkts[KVR_PORT_BURST];
	const bool v4 = memcmp(ip, mapped, 12) == 0;
	uint64_t next = start, now = start;

	if (v4 ? local->ip4[0] == 0 : local->ip6[0] == 0)
		return -EAFNOSUPPORT;
	memset(path, 0, sizeof(*path));
	memcpy(path->ip, ip, 16);
	path->udp_port = udp_port;
	path->vlan = rules->vlan;
	path->port = local->port;
	path->family = v4 ? 4 : 6;
	path->max_frame = v4 ? local->max_frame4 : local->max_frame6;
	q->asking = path;
	q->answered = false;
	while (!q->answered && now - start <= timeout_ms * ms) {
		if (now >= next) {
			send_request(q, path);
			next = now + 100 * ms;
		}
		rte_pktmbuf_free_bulk(m, kvr_port_rx_burst(q, m, pkts, KVR_PORT_BURST));
		kvr_port_flush(q);
		now = rte_get_tsc_cycles();
	}
	q->asking = NULL;
	return q->answered ? 0 : -EHOSTUNREACH;
}
