/* SPDX-License-Identifier: BSD-3-Clause */
#include "link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "stats.h"

#define RESOLVE_MS 200u

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

void load_link_look_after(struct load_link *k, uint64_t now)
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
