/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device of a port: find or probe it, own it, configure queues, offloads and MAC, create the buffer
 * pool. Every failure becomes one line that names the key and the allowed values.
 */
#include "kvr_rings.h"
#include "port_pvt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_log.h>

/* List the existing ports for an error message. */
static void list_ports(char *buf, size_t len)
{
	size_t n = 0;
	uint16_t id;

	buf[0] = '\0';
	/* Not the macro, which lists unowned ports only. */
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

static int no_device(const struct kvr_port *port, struct port_err e, const char *why)
{
	char present[256];

	list_ports(present, sizeof(present));
	return kvr_port__fail(
		e, -ENODEV,
		"device: got \"%s\" (%s), allowed: a vdev with its arguments, a PCI address, a port name or index; present: %s",
		port->conf.device, why, present);
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
	/* Short PCI addresses, and device arguments that select a port of a device with several. */
	RTE_ETH_FOREACH_MATCHING_DEV(k, name, &it)
	{
		*id = k;
		rte_eth_iterator_cleanup(&it);
		return 0;
	}
	return -ENODEV;
}

/*
 * Probe without the two log lines of the EAL about an unknown device; the caller reports the error.
 */
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

static int probe_device(struct kvr_port *port, const char *name, struct port_err e)
{
	char device[sizeof(port->conf.device) + 64];
	int rc;

	kvr_port__xdp_device(port, device, sizeof(device));
	rc = probe_quietly(device);

	/* -EFAULT: no bus knows the name. */
	if (rc == -EFAULT || rc == -ENOENT || rc == -ENODEV)
		return no_device(port, e, "no such device or driver");
	if (rc == -1) /* drivers without a more specific error */
		return no_device(port, e, "rejected by its driver, or bad arguments");
	if (rc != 0)
		return no_device(port, e, strerror(-rc));
	port->probed = true;
	if (find_by_name(name, &port->ethdev) != 0 &&
	    find_by_name(port->conf.device, &port->ethdev) != 0)
		return no_device(port, e, "the device has no Ethernet port");
	return 0;
}

int kvr_port__open(struct kvr_port *port, struct port_err e)
{
	struct rte_eth_dev_owner owner = {.name = "kvroute"};
	char name[256];
	int rc;

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(port->conf.device, ","),
		 port->conf.device);
	if (name[0] == '\0')
		return no_device(port, e, "not given");
	if (all_digits(port->conf.device)) {
		port->ethdev = (uint16_t)strtoul(port->conf.device, NULL, 10);
		if (!rte_eth_dev_is_valid_port(port->ethdev))
			return no_device(port, e, "no such index");
	} else if (rte_eth_dev_get_port_by_name(name, &port->ethdev) != 0) {
		rc = probe_device(port, name, e);
		if (rc != 0)
			return rc;
	}
	rc = rte_eth_dev_owner_new(&owner.id);
	if (rc == 0)
		rc = rte_eth_dev_owner_set(port->ethdev, &owner);
	if (rc != 0)
		return kvr_port__fail(e, -EBUSY, "device: \"%s\" is used by another port",
				      port->conf.device);
	port->owner = owner.id;
	rc = rte_eth_dev_info_get(port->ethdev, &port->dev);
	if (rc != 0)
		return no_device(port, e, strerror(-rc));
	return 0;
}

/* Largest MTU that ethdev accepts at configuration. */
static uint32_t ethdev_mtu(const struct rte_eth_dev_info *d)
{
	uint32_t overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;

	if (d->max_mtu != UINT16_MAX && d->max_rx_pktlen > d->max_mtu)
		overhead = d->max_rx_pktlen - d->max_mtu;
	return RTE_MIN((uint32_t)d->max_mtu, d->max_rx_pktlen - overhead);
}

/* Bytes of one slot of net_af_packet's ring: an argument of the device, or its default. */
static uint32_t af_packet_slot(const struct kvr_port *port)
{
	const char *arg = strstr(port->conf.device, "framesz=");
	const unsigned long n = arg != NULL ? strtoul(arg + strlen("framesz="), NULL, 10) : 2048;

	return (uint32_t)RTE_MIN(n, 65536ul);
}

static bool is_af_packet(const struct kvr_port *port)
{
	return strcmp(port->dev.driver_name, "net_af_packet") == 0;
}

/*
 * Largest MTU that works. Two drivers report 1518 bytes but accept more: net_memif chains buffers;
 * net_af_packet fills slots, of which its header takes up to 96 bytes (a longer frame would vanish
 * in the driver). They are configured with the MTU that they report.
 */
static uint32_t working_mtu(const struct kvr_port *port)
{
	const uint32_t headers = 96 + RTE_ETHER_HDR_LEN + 2 * RTE_VLAN_HLEN;

	if (strcmp(port->dev.driver_name, "net_memif") == 0)
		return UINT16_MAX;
	if (is_af_packet(port))
		return af_packet_slot(port) - RTE_MIN(headers, af_packet_slot(port));
	return ethdev_mtu(&port->dev);
}

/* Buffers that the driver holds for each queue in addition to its descriptors. */
static uint32_t driver_keeps(const struct kvr_port *port)
{
	return strcmp(port->dev.driver_name, "net_af_xdp") == 0 ? 4096 : 0; /* fill ring */
}

static int check_limits(const struct kvr_port *port, struct port_err e)
{
	const struct kvr_port_conf *c = &port->conf;
	const uint32_t least = port->hw * (c->rx_descriptors + driver_keeps(port) + KVR_PORT_BURST);

	if (c->mtu > working_mtu(port))
		return kvr_port__fail(
			e, -ERANGE,
			"mtu: got \"%u\", allowed: up to %u bytes (limit of %s as it was created)",
			c->mtu, working_mtu(port), port->dev.driver_name);
	if (c->mbufs != 0 && c->mbufs < least)
		return kvr_port__fail(
			e, -ERANGE,
			"mbufs: got \"%u\", allowed: 0 or at least %u (receive rings of %u queues and a burst each)",
			c->mbufs, least, port->hw);
	return 0;
}

static int configure_dev(struct kvr_port *port, struct port_err e)
{
	const uint64_t rx_sums = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
	const uint64_t tx_sums = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
	const uint16_t q = (uint16_t)port->hw;
	const struct rte_eth_dev_info *d = &port->dev;
	struct rte_eth_conf conf = {.rxmode.mtu = RTE_MIN(port->conf.mtu, ethdev_mtu(d))};
	uint64_t hf = d->flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP);
	int rc;

	conf.rxmode.offloads = d->rx_offload_capa & rx_sums;
	conf.txmode.offloads = d->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	if (port->conf.tx_checksum == KVR_PORT_TX_AUTO &&
	    (d->tx_offload_capa & tx_sums) == tx_sums) {
		conf.txmode.offloads |= tx_sums;
		port->rules.local.tx_cksum = KVR_CKSUM_OFFLOAD;
	} else if (port->conf.tx_checksum == KVR_PORT_TX_NONE) {
		port->rules.local.tx_cksum = KVR_CKSUM_NONE;
	}
	if (q > 1 && hf != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = hf;
		port->rss = true;
	}
	port->rx_cksum_hw = (conf.rxmode.offloads & rx_sums) == rx_sums;
	conf.intr_conf.rxq = port->conf.interrupts;
	rc = rte_eth_dev_configure(port->ethdev, q, q, &conf);
	if (rc != 0 && port->conf.interrupts) {
		conf.intr_conf.rxq = 0; /* interrupts may be the cause */
		rc = rte_eth_dev_configure(port->ethdev, q, q, &conf);
	}
	port->interrupts = conf.intr_conf.rxq != 0;
	if (rc != 0)
		return kvr_port__fail(e, rc, "device: %s rejects %u queues with mtu %u: %s",
				      d->driver_name, q, port->conf.mtu, strerror(-rc));
	port->configured = true;
	for (uint16_t i = 0; i < port->lcores; i++)
		port->queues[i].segments = conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	return 0;
}

/* One pool per port. A frame of the MTU with both tags fits one buffer. */
static int create_pool(struct kvr_port *port, uint16_t rx, uint16_t tx, struct port_err e)
{
	const struct kvr_port_conf *c = &port->conf;
	const uint32_t frame = c->mtu + RTE_ETHER_HDR_LEN + 2 * RTE_VLAN_HLEN + RTE_ETHER_CRC_LEN;
	const uint32_t slot =
		is_af_packet(port) ? af_packet_slot(port) : 0; /* the driver needs the whole slot */
	const uint32_t room =
		RTE_PKTMBUF_HEADROOM + RTE_MAX(RTE_MAX(RTE_ALIGN_CEIL(frame, 64u), slot), 2048u);
	uint32_t n = c->mbufs, cache = c->mbuf_cache;
	char name[RTE_MEMPOOL_NAMESIZE];

	if (n == 0)
		n = port->hw * ((uint32_t)rx + tx + driver_keeps(port)) +
		    port->lcores * (2 * KVR_PORT_BURST + cache) +
		    kvr_port_ring_frames(port->lcores) + 4096;
	if (cache > n / 2)
		cache = n / 2; /* rte_mempool requires 1.5 times the cache */
	snprintf(name, sizeof(name), "kvr_port_%u", port->rules.local.port);
	port->pool = kvr_rings_mbufs(name, n, cache, (uint16_t)RTE_MIN(room, 65535u),
				     rte_eth_dev_socket_id(port->ethdev));
	if (port->pool == NULL)
		return kvr_port__fail(
			e, -rte_errno,
			"mbufs: no memory for %u buffers of %u bytes (%s), allowed: fewer, or more EAL memory",
			n, room, rte_strerror(rte_errno));
	return 0;
}

static int set_up_queues(struct kvr_port *port, uint16_t rx, uint16_t tx, struct port_err e)
{
	const int socket = rte_eth_dev_socket_id(port->ethdev);
	int rc = 0;

	for (uint16_t i = 0; rc == 0 && i < port->hw; i++) {
		rc = rte_eth_rx_queue_setup(port->ethdev, i, rx, (unsigned int)socket, NULL,
					    port->pool);
		if (rc == 0)
			rc = rte_eth_tx_queue_setup(port->ethdev, i, tx, (unsigned int)socket,
						    NULL);
		if (rc !=
		    0) /* net_af_xdp loads its program here, and reports EINVAL for any failure */
			return kvr_port__fail(
				e, rc,
				"queues: %s cannot set up queue %u (%u and %u descriptors): %s%s",
				port->dev.driver_name, i, rx, tx, strerror(-rc),
				port->xdp.used ? KVR_PORT_XDP_NEEDS : "");
	}
	return 0;
}

static int choose_mac(struct kvr_port *port, struct port_err e)
{
	struct rte_ether_addr mac = {0};
	int rc;

	rte_eth_macaddr_get(port->ethdev, &mac);
	if (port->conf.mac[0] != '\0') {
		if (rte_ether_unformat_addr(port->conf.mac, &mac) != 0 ||
		    !rte_is_valid_assigned_ether_addr(&mac))
			return kvr_port__fail(
				e, -EINVAL,
				"mac: got \"%s\", allowed: a unicast address such as 02:00:00:00:00:01",
				port->conf.mac);
		rc = rte_eth_dev_default_mac_addr_set(port->ethdev, &mac);
		if (rc != 0 && rc != -ENOTSUP)
			return kvr_port__fail(e, rc, "mac: %s rejects \"%s\": %s",
					      port->dev.driver_name, port->conf.mac, strerror(-rc));
	} else if (rte_is_zero_ether_addr(&mac)) {
		rte_eth_random_addr(mac.addr_bytes); /* net_ring and net_null have none */
	}
	memcpy(port->rules.local.mac, mac.addr_bytes, 6);
	return 0;
}

int kvr_port__configure(struct kvr_port *port, struct port_err e)
{
	uint16_t rx = (uint16_t)port->conf.rx_descriptors, tx = (uint16_t)port->conf.tx_descriptors;
	int rc = check_limits(port, e);

	if (rc == 0)
		rc = configure_dev(port, e);
	if (rc != 0)
		return rc;
	rc = rte_eth_dev_adjust_nb_rx_tx_desc(port->ethdev, &rx, &tx);
	if (rc != 0)
		return kvr_port__fail(e, rc, "rx_descriptors: %s rejects %u and %u descriptors: %s",
				      port->dev.driver_name, rx, tx, strerror(-rc));
	rc = create_pool(port, rx, tx, e);
	if (rc == 0)
		rc = set_up_queues(port, rx, tx, e);
	if (rc == 0)
		rc = kvr_port__xdp_set_up(port, e);
	return rc != 0 ? rc : choose_mac(port, e);
}

void kvr_port__close(struct kvr_port *port)
{
	struct rte_device *device = port->dev.device;

	if (port->owner != 0)
		rte_eth_dev_owner_unset(port->ethdev, port->owner);
	if (port->configured)
		rte_eth_dev_close(port->ethdev);
	if (port->probed && device != NULL)
		rte_dev_remove(device);
	rte_mempool_free(port->pool);
	port->pool = NULL;
}
