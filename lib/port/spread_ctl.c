/* SPDX-License-Identifier: BSD-3-Clause */
/* Number of device queues of a port, and the rings for lcores without one. */
#include "kvr_rings.h"
#include "port_pvt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_random.h>
#include <rte_ring.h>

static bool driver_is(const struct kvr_port *port, const char *driver)
{
	return strcmp(port->dev.driver_name, driver) == 0;
}

int kvr_port__choose_queues(struct kvr_port *port, struct port_err e)
{
	const uint32_t most = RTE_MIN(port->dev.max_rx_queues, port->dev.max_tx_queues);
	const uint32_t asked = port->conf.queues;

	port->hw = asked != 0 ? asked : RTE_MIN(port->lcores, most);
	if (port->hw == 0)
		return kvr_port__fail(e, -ENODEV, "device: %s has no queue to receive and send",
				      port->dev.driver_name);
	if (asked > most)
		return kvr_port__fail(
			e, -ERANGE,
			"queues: got \"%u\", allowed: 1 to %u (limit of %s as it was created)",
			asked, most, port->dev.driver_name);
	if (asked > port->lcores)
		return kvr_port__fail(
			e, -ERANGE,
			"queues: got \"%u\", allowed: 0 to %u, one for each lcore of the port",
			asked, port->lcores);
	/* The kernel delivers frames to every queue that the device was created with. */
	if ((driver_is(port, "net_af_packet") || driver_is(port, "net_af_xdp")) && port->hw < most)
		return kvr_port__fail(
			e, -ERANGE,
			"queues: %u are polled, but %s was created with %u, and frames of the others would be lost; allowed: %u in its arguments",
			port->hw, port->dev.driver_name, most, port->hw);
	atomic_init(&port->rx_on, port->hw);
	atomic_init(&port->tx_on, port->hw);
	return 0;
}

static struct rte_ring *create_ring(const struct kvr_port *port, const char *what, uint32_t i)
{
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "%s%u.%u", what, port->rules.local.port, i);
	return kvr_rings_create(name, sizeof(void *), KVR_PORT_RING,
				rte_eth_dev_socket_id(port->ethdev));
}

int kvr_port__rings_create(struct kvr_port *port, struct port_err e)
{
	/* A memif peer may have fewer rings than there are queues. */
	if (port->lcores == 1 || (port->hw == port->lcores && !driver_is(port, "net_memif")))
		return 0;
	port->seed = rte_rand();
	for (uint32_t i = 0; i < port->lcores; i++) {
		struct kvr_port_queue *q = &port->queues[i];

		q->spread = create_ring(port, "spread", i);
		q->send = create_ring(port, "send", i);
		if (q->spread == NULL || q->send == NULL)
			return kvr_port__fail(e, -rte_errno,
					      "queues: no memory for the rings between %u lcores",
					      port->lcores);
	}
	return 0;
}

uint32_t kvr_port_waiting(const struct kvr_port *port)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < port->lcores && port->queues[i].spread != NULL; i++)
		n += rte_ring_count(port->queues[i].spread) + rte_ring_count(port->queues[i].send);
	return n;
}

static void drain_ring(struct rte_ring *r)
{
	struct rte_mbuf *m;

	while (r != NULL && rte_ring_dequeue(r, (void **)&m) == 0)
		rte_pktmbuf_free(m);
	rte_ring_free(r);
}

void kvr_port__rings_free(struct kvr_port *port)
{
	for (uint32_t i = 0; port->queues != NULL && i < port->lcores; i++) {
		drain_ring(port->queues[i].spread);
		drain_ring(port->queues[i].send);
		port->queues[i].spread = port->queues[i].send = NULL;
	}
}
