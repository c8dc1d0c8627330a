/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_rings.h"
#include "port_pvt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_log.h>

/* Names of the ports that exist, for the message. */
static void list_ports(char *buf, size_t len)
{
	size_t n = 0;
	uint16_t id;

	buf[0] = '\0';
	/* rte_eth_find_next() and not the macro, which lists unowned ports only. */
	for (id = rte_eth_find_next(0); id < RTE_MAX_ETHPORTS;
	     id = rte_eth_find_next((uint16_t)(id + 1))) {
		char name[RTE_ETH_NAME_MAX_LEN];

		if (n < len && rte_eth_dev_get_name_by_port(id, name) == 0)
			n += (size_t)snprintf(buf + n, len - n, "%s%u=%s", n > 0 ? ", " : "", id,
					      name);
	}
	if (n == 0)
		snprintf(buf, len, "none");
}

static int no_device(const struct kvr_port *p, struct port_err e, const char *why)
{
	char present[256];

	list_ports(present, sizeof(present));
	return kvr_port__fail(e, -ENODEV,
			      "device: got \"%s\" (%s), allowed: a vdev with its arguments, a PCI "
			      "address, a port name or index; present: %s",
			      p->conf.device, why, present);
}

static bool all_digits(const char *s)
{
	return s[0] != '\0' && s[strspn(s, "0123456789")] == '\0' && strlen(s) < 6;
}

static int find_by_name(const char *name, uint16_t *id)
{
	struct rte_dev_iterator it;
	uint16_t k;

	if (rte_eth_dev_get_port_by_name(name, id) == 0)
		return 0;
	/* Short PCI addresses and device arguments that name a port of a device with several. */
	RTE_ETH_FOREACH_MATCHING_DEV(k, name, &it)
	{
		*id = k;
		rte_eth_iterator_cleanup(&it);
		return 0;
	}
	return -ENODEV;
}

/* EAL logs two lines of its own about a device it does not know; the caller prints ours. */
static int probe_quietly(const char *devargs)
{
	const int level = rte_log_get_level(RTE_LOGTYPE_EAL);
	int rc;

	rte_log_set_level(RTE_LOGTYPE_EAL, RTE_LOG_EMERG);
	rc = rte_dev_probe(devargs);
	if (level >= 0)
		rte_log_set_level(RTE_LOGTYPE_EAL, (uint32_t)level);
	return rc;
}

static int probe(struct kvr_port *p, const char *name, struct port_err e)
{
	char device[sizeof(p->conf.device) + 64];
	int rc;

	kvr_port__xdp_device(p, device, sizeof(device));
	rc = probe_quietly(device);

	/* -EFAULT: no bus knows the name. */
	if (rc == -EFAULT || rc == -ENOENT || rc == -ENODEV)
		return no_device(p, e, "no such device or driver");
	if (rc == -1) /* what drivers say for want of a better number */
		return no_device(p, e, "its driver refuses it or its arguments");
	if (rc != 0)
		return no_device(p, e, strerror(-rc));
	p->probed = true;
	if (find_by_name(name, &p->ethdev) != 0 && find_by_name(p->conf.device, &p->ethdev) != 0)
		return no_device(p, e, "the device has no Ethernet port");
	return 0;
}

int kvr_port__open(struct kvr_port *p, struct port_err e)
{
	struct rte_eth_dev_owner owner = {.name = "kvroute"};
	char name[256];
	int rc;

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(p->conf.device, ","), p->conf.device);
	if (name[0] == '\0')
		return no_device(p, e, "not given");
	if (all_digits(p->conf.device)) {
		p->ethdev = (uint16_t)strtoul(p->conf.device, NULL, 10);
		if (!rte_eth_dev_is_valid_port(p->ethdev))
			return no_device(p, e, "no such index");
	} else if (rte_eth_dev_get_port_by_name(name, &p->ethdev) != 0) {
		rc = probe(p, name, e);
		if (rc != 0)
			return rc;
	}
	rc = rte_eth_dev_owner_new(&owner.id);
	if (rc == 0)
		rc = rte_eth_dev_owner_set(p->ethdev, &owner);
	if (rc != 0)
		return kvr_port__fail(e, -EBUSY, "device: \"%s\" is used by another port",
				      p->conf.device);
	p->owner = owner.id;
	rc = rte_eth_dev_info_get(p->ethdev, &p->dev);
	if (rc != 0)
		return no_device(p, e, strerror(-rc));
	return 0;
}

/* The largest MTU that ethdev lets through at configure time. */
static uint32_t ethdev_mtu(const struct rte_eth_dev_info *d)
{
	uint32_t overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;

	if (d->max_mtu != UINT16_MAX && d->max_rx_pktlen > d->max_mtu)
		overhead = d->max_rx_pktlen - d->max_mtu;
	return RTE_MIN((uint32_t)d->max_mtu, d->max_rx_pktlen - overhead);
}

/* Bytes of one slot of net_af_packet's ring: an argument of the device, or its default. */
static uint32_t af_packet_slot(const struct kvr_port *p)
{
	const char *arg = strstr(p->conf.device, "framesz=");
	const unsigned long n = arg != NULL ? strtoul(arg + strlen("framesz="), NULL, 10) : 2048;

	return (uint32_t)RTE_MIN(n, 65536ul);
}

static bool is_af_packet(const struct kvr_port *p)
{
	return strcmp(p->dev.driver_name, "net_af_packet") == 0;
}

/*
 * The largest MTU that works. Two drivers name 1518 bytes but take more: net_memif chains
 * buffers, net_af_packet fills slots, of which its header takes up to 96 bytes (a longer frame
 * would vanish inside the driver). They are told their own figure.
 */
static uint32_t working_mtu(const struct kvr_port *p)
{
	const uint32_t headers = 96 + RTE_ETHER_HDR_LEN + 2 * RTE_VLAN_HLEN;

	if (strcmp(p->dev.driver_name, "net_memif") == 0)
		return UINT16_MAX;
	if (is_af_packet(p))
		return af_packet_slot(p) - RTE_MIN(headers, af_packet_slot(p));
	return ethdev_mtu(&p->dev);
}

/* Buffers that the driver holds for each queue beside its descriptors. */
static uint32_t driver_keeps(const struct kvr_port *p)
{
	return strcmp(p->dev.driver_name, "net_af_xdp") == 0 ? 4096 : 0; /* its fill ring */
}

static int check_limits(const struct kvr_port *p, struct port_err e)
{
	const struct kvr_port_conf *c = &p->conf;
	const uint32_t least = p->hw * (c->rx_descriptors + driver_keeps(p) + KVR_PORT_BURST);

	if (c->mtu > working_mtu(p))
		return kvr_port__fail(e, -ERANGE,
				      "mtu: got \"%u\", allowed: up to %u bytes (limit "
				      "of %s as it was created)",
				      c->mtu, working_mtu(p), p->dev.driver_name);
	if (c->mbufs != 0 && c->mbufs < least)
		return kvr_port__fail(e, -ERANGE,
				      "mbufs: got \"%u\", allowed: 0 or at least %u "
				      "(receive rings of %u queues and a burst each)",
				      c->mbufs, least, p->hw);
	return 0;
}

static int configure_dev(struct kvr_port *p, struct port_err e)
{
	const uint64_t rx_sums = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
	const uint64_t tx_sums = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
	const uint16_t q = (uint16_t)p->hw;
	const struct rte_eth_dev_info *d = &p->dev;
	struct rte_eth_conf conf = {.rxmode.mtu = RTE_MIN(p->conf.mtu, ethdev_mtu(d))};
	uint64_t hf = d->flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP);
	int rc;

	conf.rxmode.offloads = d->rx_offload_capa & rx_sums;
	conf.txmode.offloads = d->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	if (p->conf.tx_checksum == KVR_PORT_TX_AUTO && (d->tx_offload_capa & tx_sums) == tx_sums) {
		conf.txmode.offloads |= tx_sums;
		p->rules.local.tx_cksum = KVR_CKSUM_OFFLOAD;
	} else if (p->conf.tx_checksum == KVR_PORT_TX_NONE) {
		p->rules.local.tx_cksum = KVR_CKSUM_NONE;
	}
	if (q > 1 && hf != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = hf;
		p->rss = true;
	}
	p->rx_cksum_hw = (conf.rxmode.offloads & rx_sums) == rx_sums;
	conf.intr_conf.rxq = p->conf.interrupts;
	rc = rte_eth_dev_configure(p->ethdev, q, q, &conf);
	if (rc != 0 && p->conf.interrupts) {
		conf.intr_conf.rxq = 0; /* what it refuses may be these */
		rc = rte_eth_dev_configure(p->ethdev, q, q, &conf);
	}
	p->interrupts = conf.intr_conf.rxq != 0;
	if (rc != 0)
		return kvr_port__fail(e, rc, "device: %s refuses %u queues with mtu %u: %s",
				      d->driver_name, q, p->conf.mtu, strerror(-rc));
	p->configured = true;
	for (uint16_t i = 0; i < p->lcores; i++)
		p->queues[i].segments = conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	return 0;
}

/* One pool a port: frames of the MTU with both tags fit one buffer. */
static int create_pool(struct kvr_port *p, uint16_t rx, uint16_t tx, struct port_err e)
{
	const struct kvr_port_conf *c = &p->conf;
	const uint32_t frame = c->mtu + RTE_ETHER_HDR_LEN + 2 * RTE_VLAN_HLEN + RTE_ETHER_CRC_LEN;
	const uint32_t slot = is_af_packet(p) ? af_packet_slot(p) : 0; /* it wants all of it */
	const uint32_t room =
		RTE_PKTMBUF_HEADROOM + RTE_MAX(RTE_MAX(RTE_ALIGN_CEIL(frame, 64u), slot), 2048u);
	uint32_t n = c->mbufs, cache = c->mbuf_cache;
	char name[RTE_MEMPOOL_NAMESIZE];

	if (n == 0)
		n = p->hw * ((uint32_t)rx + tx + driver_keeps(p)) +
		    p->lcores * (2 * KVR_PORT_BURST + cache) + kvr_port_ring_frames(p->lcores) +
		    4096;
	if (cache > n / 2)
		cache = n / 2; /* rte_mempool wants 1.5 times the cache */
	snprintf(name, sizeof(name), "kvr_port_%u", p->rules.local.port);
	p->pool = kvr_rings_mbufs(name, n, cache, (uint16_t)RTE_MIN(room, 65535u),
				  rte_eth_dev_socket_id(p->ethdev));
	if (p->pool == NULL)
		return kvr_port__fail(e, -rte_errno,
				      "mbufs: no memory for %u buffers of %u bytes "
				      "(%s), allowed: fewer, or more EAL memory",
				      n, room, rte_strerror(rte_errno));
	return 0;
}

static int set_up_queues(struct kvr_port *p, uint16_t rx, uint16_t tx, struct port_err e)
{
	const int socket = rte_eth_dev_socket_id(p->ethdev);
	int rc = 0;

	for (uint16_t i = 0; rc == 0 && i < p->hw; i++) {
		rc = rte_eth_rx_queue_setup(p->ethdev, i, rx, (unsigned int)socket, NULL, p->pool);
		if (rc == 0)
			rc = rte_eth_tx_queue_setup(p->ethdev, i, tx, (unsigned int)socket, NULL);
		if (rc != 0) /* net_af_xdp loads its program here, and says EINVAL whatever it is */
			return kvr_port__fail(e, rc,
					      "queues: %s cannot set up queue %u (%u and %u "
					      "descriptors): %s%s",
					      p->dev.driver_name, i, rx, tx, strerror(-rc),
					      p->xdp.used ? KVR_PORT_XDP_NEEDS : "");
	}
	return 0;
}

static int choose_mac(struct kvr_port *p, struct port_err e)
{
	struct rte_ether_addr mac = {0};
	int rc;

	rte_eth_macaddr_get(p->ethdev, &mac);
	if (p->conf.mac[0] != '\0') {
		if (rte_ether_unformat_addr(p->conf.mac, &mac) != 0 ||
		    !rte_is_valid_assigned_ether_addr(&mac))
			return kvr_port__fail(e, -EINVAL,
					      "mac: got \"%s\", allowed: a unicast "
					      "address such as 02:00:00:00:00:01",
					      p->conf.mac);
		rc = rte_eth_dev_default_mac_addr_set(p->ethdev, &mac);
		if (rc != 0 && rc != -ENOTSUP)
			return kvr_port__fail(e, rc, "mac: %s refuses \"%s\": %s",
					      p->dev.driver_name, p->conf.mac, strerror(-rc));
	} else if (rte_is_zero_ether_addr(&mac)) {
		rte_eth_random_addr(mac.addr_bytes); /* ring and null have none */
	}
	memcpy(p->rules.local.mac, mac.addr_bytes, 6);
	return 0;
}

int kvr_port__configure(struct kvr_port *p, struct port_err e)
{
	uint16_t rx = (uint16_t)p->conf.rx_descriptors, tx = (uint16_t)p->conf.tx_descriptors;
	int rc = check_limits(p, e);

	if (rc == 0)
		rc = configure_dev(p, e);
	if (rc != 0)
		return rc;
	rc = rte_eth_dev_adjust_nb_rx_tx_desc(p->ethdev, &rx, &tx);
	if (rc != 0)
		return kvr_port__fail(e, rc, "rx_descriptors: %s refuses %u and %u descriptors: %s",
				      p->dev.driver_name, rx, tx, strerror(-rc));
	rc = create_pool(p, rx, tx, e);
	if (rc == 0)
		rc = set_up_queues(p, rx, tx, e);
	if (rc == 0)
		rc = kvr_port__xdp_set_up(p, e);
	return rc != 0 ? rc : choose_mac(p, e);
}

void kvr_port__close(struct kvr_port *p)
{
	struct rte_device *device = p->dev.device;

	if (p->owner != 0)
		rte_eth_dev_owner_unset(p->ethdev, p->owner);
	if (p->configured)
		rte_eth_dev_close(p->ethdev);
	if (p->probed && device != NULL)
		rte_dev_remove(device);
	rte_mempool_free(p->pool);
	p->pool = NULL;
}
