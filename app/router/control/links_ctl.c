/* SPDX-License-Identifier: BSD-3-Clause */
/* Links that do not come back by themselves: ports that are the client of a memif server. */
#include "control/log.h"
#include "control/thread.h"

#include <rte_cycles.h>

void links_round(struct router *rt)
{
	const uint64_t now = rte_rdtsc();

	for (uint32_t i = 0; i < rt->n_ports; i++) {
		const bool down = !kvr_port_look_after(rt->port[i], now, lcores_pass, rt);

		if (down == rt->link_down[i])
			continue;
		rt->link_down[i] = down;
		log_worker(i, "port %s: %s", rt->conf.port[i].name,
			   down ? "no link to the memif server, connecting again"
				: "link to the memif server");
	}
}
