/* SPDX-License-Identifier: BSD-3-Clause */
#include "link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>

#include "stats.h"

#define RESOLVE_MS 200u
#define LINK_US	   20000u

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
	k->up = true;
	return 0;
}

/* The answer may arrive at any queue, so each queue is polled in turn. */
static int resolve_router(struct load_link *k, const uint8_t ip[16], uint16_t port,
			  struct kvr_path *path)
{
	int rc = -EHOSTUNREACH;

	for (uint32_t i = 0; rc == -EHOSTUNREACH && i < k->n_queues; i++)
		rc = kvr_port_resolve(kvr_port_queue(k->port, i), ip, port, RESOLVE_MS, path);
	return rc;
}

/* A restarted router may have another MAC address. */
static void find_again(struct load_link *k)
{
	const struct kvr_path was = k->router;
	struct kvr_path now;

	if (resolve_router(k, was.ip, was.udp_port, &now) != 0)
		return;
	k->router = now;
	k->lost = false;
}

void load_link_reconnect(struct load_link *k, uint64_t now)
{
	const bool up = kvr_port_look_after(k->port, now, NULL, NULL) == KVR_PORT_UP;

	if (k->up && !up)
		kvr_stats_inc(k->row, LOAD_LINK_LOST);
	k->lost = k->lost || !up;
	k->up = up;
	if (up && k->lost)
		find_again(k);
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
	const uint64_t hz = rte_get_tsc_hz(), end = rte_rdtsc() + hz * timeout_ms / 1000;
	int rc = -ENOLINK;

	if (kvr_ip_parse(router_ip, ip) < 0)
		return -EINVAL;
	/* The router may stop before it answers, and another one start. */
	while (rte_rdtsc() < end) {
		if (kvr_port_look_after(k->port, rte_rdtsc(), NULL, NULL) != KVR_PORT_UP) {
			usleep(LINK_US);
			continue;
		}
		rc = resolve_router(k, ip, router_port, &k->router);
		if (rc != -EHOSTUNREACH)
			break;
	}
	return rc;
}
