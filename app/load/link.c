/* SPDX-License-Identifier: BSD-3-Clause */
#include "link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_log.h>

#include "stats.h"

#define LOOK_MS	     50u
#define RESOLVE_MS   200u
#define SETTLE_MS    200u
#define HANDSHAKE_MS 300u /* from the connection to the link */

int load_link_open(struct load_link *k, const struct kvr_port_conf *conf, uint16_t n_ports,
		   char *err, size_t errlen)
{
	struct kvr_port_info info;
	int rc;

	k->port = kvr_port_create("load", conf, 0, err, errlen);
	if (k->port == NULL)
		return -errno;
	rc = kvr_port_start(k->port, err, errlen);
	if (rc < 0) {
		load_link_close(k);
		return rc;
	}
	kvr_port_info(k->port, &info);
	k->ethdev = info.ethdev;
	k->pool = kvr_port_pool(k->port);
	k->base_port = (uint16_t)conf->udp_port;
	k->n_ports = n_ports;
	k->n_queues = (uint16_t)conf->queues;
	k->rules.local = *kvr_port_local(k->port);
	k->memif_client = strcmp(info.driver, "net_memif") == 0 &&
			  strstr(conf->device, "role=server") == NULL;
	if (k->memif_client) /* it logs every try */
		rte_log_set_level_pattern("pmd.net.memif", RTE_LOG_EMERG);
	return 0;
}

/* The answer may come to another queue than the one that is listened to: each has its turn. */
static int resolve(struct load_link *k, const uint8_t ip[16], uint16_t port, uint32_t timeout_ms,
		   struct kvr_path *path)
{
	const uint32_t turn_ms = k->n_queues > 1 ? RESOLVE_MS : timeout_ms;
	int rc = -EHOSTUNREACH;

	for (uint32_t i = 0, ms = 0; rc == -EHOSTUNREACH && (i < k->n_queues || ms < timeout_ms);
	     i++, ms += turn_ms)
		rc = kvr_port_resolve(kvr_port_queue(k->port, i % k->n_queues), ip, port, turn_ms,
				      path);
	return rc;
}

/* A new router may have a new MAC address. */
static void find_again(struct load_link *k)
{
	const struct kvr_path was = k->router;
	struct kvr_path now;

	if (resolve(k, was.ip, was.udp_port, RESOLVE_MS, &now) != 0)
		return;
	k->router = now;
	k->lost = false;
}

/*
 * The driver takes a connection apart on the EAL's interrupt thread and forgets it. Stopping and
 * starting the device makes a new one; without a server the start fails, and is tried again.
 */
void load_link_look_after(struct load_link *k, uint64_t now)
{
	struct rte_eth_link link = {0};

	if (!k->memif_client || now < k->look_at)
		return;
	k->look_at = now + rte_get_tsc_hz() * LOOK_MS / 1000;
	if (!k->down && (rte_eth_link_get_nowait(k->ethdev, &link) != 0 ||
			 link.link_status == RTE_ETH_LINK_UP)) {
		k->settled = false;
		if (k->lost)
			find_again(k);
		return;
	}
	k->lost = true;
	if (!k->settled) { /* the interrupt thread is still taking the connection apart */
		k->settled = true;
		k->look_at = now + rte_get_tsc_hz() * SETTLE_MS / 1000;
		return;
	}
	if (!k->down) {
		k->down = true;
		rte_eth_dev_stop(k->ethdev);
		kvr_stats_add(k->row, LOAD_LINK_LOST, 1);
	}
	if (rte_eth_dev_start(k->ethdev) != 0)
		return;
	k->down = k->settled = false;
	k->look_at = now + rte_get_tsc_hz() * HANDSHAKE_MS / 1000;
}

void load_link_close(struct load_link *k)
{
	kvr_port_destroy(k->port);
	k->port = NULL;
}

int load_link_resolve(struct load_link *k, const char *router_ip, uint16_t router_port,
		      uint32_t timeout_ms)
{
	uint8_t ip[16];
	struct kvr_port_info info = {0};

	if (kvr_ip_parse(router_ip, ip) < 0)
		return -EINVAL;
	for (uint32_t ms = 0; ms < timeout_ms && !info.link_up; ms += 20) {
		kvr_port_info(k->port, &info);
		if (!info.link_up)
			usleep(20000);
	}
	if (!info.link_up)
		return -ENOLINK;
	return resolve(k, ip, router_port, timeout_ms, &k->router);
}
