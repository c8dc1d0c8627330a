/* SPDX-License-Identifier: BSD-3-Clause */
#include "link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_ethdev.h>

#include "stats.h"

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
	k->rules.local = *kvr_port_local(k->port);
	return 0;
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
	return kvr_port_resolve(kvr_port_queue(k->port, 0), ip, router_port, timeout_ms,
				&k->router);
}
