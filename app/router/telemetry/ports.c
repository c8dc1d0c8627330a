/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: ports, device queues, losses, XDP programs. */
#include "telemetry/ports.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_telemetry.h>

#include "control/log.h"
#include "kvr_telemetry.h"

/* ---- /kvroute/ports ---- */

/* Losses of the device before or behind the router's counters. */
static struct rte_tel_data *device_dict(uint16_t ethdev)
{
	struct rte_tel_data *d = rte_tel_data_alloc();
	struct rte_eth_stats s = {0};

	if (d == NULL)
		return NULL;
	rte_tel_data_start_dict(d);
	rte_eth_stats_get(ethdev, &s);
	rte_tel_data_add_dict_u64(d, "ipackets", s.ipackets);
	rte_tel_data_add_dict_u64(d, "opackets", s.opackets);
	rte_tel_data_add_dict_u64(d, "imissed", s.imissed);
	rte_tel_data_add_dict_u64(d, "ierrors", s.ierrors);
	rte_tel_data_add_dict_u64(d, "oerrors", s.oerrors);
	rte_tel_data_add_dict_u64(d, "rx_nombuf", s.rx_nombuf);
	return d;
}

static struct rte_tel_data *queue_dict(struct kvr_stats *s, unsigned int queue)
{
	struct rte_tel_data *d = rte_tel_data_alloc();
	uint64_t v[KVR_STATS_MAX];

	if (d == NULL)
		return NULL;
	kvr_stats_row_get(s, queue, v);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "rx_frames", v[KVR_PORT_RX_FRAMES]);
	rte_tel_data_add_dict_u64(d, "rx_udp", v[KVR_PORT_RX_UDP]);
	rte_tel_data_add_dict_u64(d, "rx_kept", v[KVR_PORT_RX_KEPT]);
	rte_tel_data_add_dict_u64(d, "spread_in", v[KVR_PORT_SPREAD_IN]);
	rte_tel_data_add_dict_u64(d, "spread_out", v[KVR_PORT_SPREAD_OUT]);
	rte_tel_data_add_dict_u64(d, "spread_full", v[KVR_PORT_SPREAD_FULL]);
	rte_tel_data_add_dict_u64(d, "tx_offered", v[KVR_PORT_TX_OFFERED]);
	rte_tel_data_add_dict_u64(d, "tx_taken", v[KVR_PORT_TX_TAKEN]);
	rte_tel_data_add_dict_u64(d, "tx_passed", v[KVR_PORT_TX_PASSED]);
	rte_tel_data_add_dict_u64(d, "tx_sent", v[KVR_PORT_TX_SENT]);
	rte_tel_data_add_dict_u64(d, "tx_dropped", v[KVR_PORT_TX_DROPPED]);
	return d;
}

static struct rte_tel_data *port_dict(struct kvr_port *p)
{
	struct rte_tel_data *d = rte_tel_data_alloc();
	struct kvr_port_info i;
	char name[16];

	if (d == NULL)
		return NULL;
	rte_tel_data_start_dict(d);
	kvr_port_tel(p, d);
	kvr_port_info(p, &i);
	kvr_telemetry_dict_part(d, "device", device_dict(i.ethdev));
	for (unsigned int q = 0; q < i.lcores; q++) {
		snprintf(name, sizeof(name), "lcore%u", q);
		kvr_telemetry_dict_part(d, name, queue_dict(kvr_port_stats(p), q));
	}
	return d;
}

static int cmd_ports(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;

	RTE_SET_USED(params);
	rte_tel_data_start_dict(d);
	for (uint32_t i = 0; i < rt->n_ports; i++)
		kvr_telemetry_dict_part(d, rt->conf.port[i].name, port_dict(rt->port[i]));
	return 0;
}

/* ---- for /kvroute/balance ---- */

/* rx_offered = rx_frames + imissed + ierrors + rx_nombuf; of rx_frames, spread_full are lost later.
 * tx_offered = tx_sent + tx_dropped + frames rejected or pending; of tx_sent, oerrors are lost. */
static uint64_t port_losses(struct kvr_port *p, struct rte_tel_data *d)
{
	uint64_t v[KVR_PORT_COUNTERS], before, after;
	struct rte_eth_stats s = {0};
	struct kvr_port_info i;

	kvr_port_info(p, &i);
	kvr_stats_sum(kvr_port_stats(p), v);
	rte_eth_stats_get(i.ethdev, &s);
	before = s.imissed + s.ierrors + s.rx_nombuf;
	after = v[KVR_PORT_SPREAD_FULL] + v[KVR_PORT_TX_DROPPED] + s.oerrors;
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "rx_offered", v[KVR_PORT_RX_FRAMES] + before);
	rte_tel_data_add_dict_u64(d, "rx_frames", v[KVR_PORT_RX_FRAMES]);
	rte_tel_data_add_dict_u64(d, "imissed", s.imissed);
	rte_tel_data_add_dict_u64(d, "ierrors", s.ierrors);
	rte_tel_data_add_dict_u64(d, "rx_nombuf", s.rx_nombuf);
	rte_tel_data_add_dict_u64(d, "spread_full", v[KVR_PORT_SPREAD_FULL]);
	rte_tel_data_add_dict_u64(d, "tx_offered", v[KVR_PORT_TX_OFFERED]);
	rte_tel_data_add_dict_u64(d, "tx_sent", v[KVR_PORT_TX_SENT]);
	rte_tel_data_add_dict_u64(d, "tx_dropped", v[KVR_PORT_TX_DROPPED]);
	rte_tel_data_add_dict_u64(d, "oerrors", s.oerrors);
	return before + after;
}

uint64_t ports_losses(struct router *rt, struct rte_tel_data *d)
{
	uint64_t lost = 0;

	for (uint32_t i = 0; i < rt->n_ports; i++) {
		struct rte_tel_data *part = rte_tel_data_alloc();
		char name[RTE_TEL_MAX_STRING_LEN];

		if (part == NULL)
			continue;
		lost += port_losses(rt->port[i], part);
		snprintf(name, sizeof(name), "losses_%s", rt->conf.port[i].name);
		kvr_telemetry_dict_part(d, name, part);
	}
	return lost;
}

/* ---- /kvroute/xdp ---- */

static struct rte_tel_data *xdp_dict(struct kvr_port *p)
{
	struct kvr_stats *s = kvr_port_xdp_stats(p);
	struct rte_tel_data *d = s != NULL ? rte_tel_data_alloc() : NULL;
	const int on = kvr_port_xdp_redirects(p);
	uint64_t v[KVR_STATS_MAX];

	if (d == NULL)
		return NULL;
	kvr_stats_sum(s, v);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "redirect", on < 0 ? strerror(-on) : on ? "on" : "off");
	kvr_stats_tel(&kvr_port_xdp_stats_def, v, d);
	return d;
}

static int cmd_xdp(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;

	RTE_SET_USED(params);
	rte_tel_data_start_dict(d);
	for (uint32_t i = 0; i < rt->n_ports; i++) {
		struct rte_tel_data *part = xdp_dict(rt->port[i]);

		if (part != NULL)
			kvr_telemetry_dict_part(d, rt->conf.port[i].name, part);
	}
	return 0;
}

static struct kvr_port *port_by_name(struct router *rt, const char *name, size_t len)
{
	for (uint32_t i = 0; i < rt->n_ports; i++)
		if (strlen(rt->conf.port[i].name) == len &&
		    strncmp(rt->conf.port[i].name, name, len) == 0)
			return rt->port[i];
	return NULL;
}

static int cmd_redirect(void *arg, const char *params, struct rte_tel_data *d)
{
	const char *text = params != NULL ? params : "";
	const size_t len = strcspn(text, ",");
	const char *what = text[len] == ',' ? text + len + 1 : "";
	const bool on = strcmp(what, "on") == 0;
	struct kvr_port *p = port_by_name(arg, text, len);
	int rc;

	if (p == NULL || (!on && strcmp(what, "off") != 0))
		return kvr_telemetry_error(d, EINVAL, "got \"%.64s\", allowed: PORT,on or PORT,off",
					   text);
	rc = kvr_port_xdp_redirect(p, on);
	if (rc == -ENOTSUP)
		return kvr_telemetry_error(
			d, ENOTSUP, "port \"%.*s\" has no XDP program of kvroute", (int)len, text);
	if (rc < 0)
		return kvr_telemetry_error(d, -rc, "rejected by the kernel: %s", strerror(-rc));
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE), "port %.*s: the XDP program %s", (int)len,
		 text, on ? "sends frames to the router" : "leaves every frame to the kernel");
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "redirect", on ? "on" : "off");
	return 0;
}

static const struct kvr_telemetry_cmd commands[] = {
	{"/kvroute/ports", NULL,
	 "every port: link, addresses, counters, queues, drops of the device", cmd_ports, false},
	{"/kvroute/xdp", NULL, "frames at the XDP program of every AF_XDP port", cmd_xdp, false},
	{"/kvroute/xdp/redirect", "PORT,on|off",
	 "off: the XDP program leaves every frame to the kernel", cmd_redirect, true},
	{NULL, NULL, NULL, NULL, false},
};

int ports_start(struct router *rt)
{
	return kvr_telemetry_register(commands, rt);
}

void ports_stop(void)
{
	kvr_telemetry_unregister(commands);
}
