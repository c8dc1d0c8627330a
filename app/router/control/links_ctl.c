/* SPDX-License-Identifier: BSD-3-Clause */
/* Links of the ports: log changes, and reconnect those that need help. */
#include "control/log.h"
#include "control/thread.h"

#include <string.h>

#include <rte_cycles.h>

static const char *link_state_text(const struct router *rt, uint32_t port,
				   enum kvr_port_link_state state)
{
	const char *device = rt->conf.port[port].port.device;
	const bool memif = strncmp(device, "net_memif", 9) == 0;

	switch (state) {
	case KVR_PORT_UP:
		return memif ? "link to the memif peer up" : "link up";
	case KVR_PORT_DOWN:
		return !memif ? "link down"
		       : strstr(device, "role=server")
			       ? "no link: no memif client is connected"
			       : "no link to the memif server, reconnecting";
	default:
		return "its interface was removed, so no frames pass; restart kvroute when the interface is back";
	}
}

void links_round(struct router *rt)
{
	const uint64_t now = rte_rdtsc();

	for (uint32_t i = 0; i < rt->n_ports; i++) {
		const enum kvr_port_link_state state =
			kvr_port_look_after(rt->port[i], now, lcores_pass, rt);

		if (state == rt->link[i])
			continue;
		rt->link[i] = state;
		log_worker(i,
			   KVR_LOG_ABOUT(.level = state == KVR_PORT_UP ? KVR_LOG_NOTICE
								       : KVR_LOG_WARNING,
					 .port = rt->conf.port[i].name),
			   "port %s: %s", rt->conf.port[i].name, link_state_text(rt, i, state));
	}
}
