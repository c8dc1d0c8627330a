/* SPDX-License-Identifier: BSD-3-Clause */
/* How many queues of its device a port uses, and the rings for lcores that have none. */
#include "kvr_rings.h"
#include "port_pvt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_random.h>
#include <rte_ring.h>

static bool is(const struct kvr_port *p, const char *driver)
{
	return strcmp(p->dev.driver_name, driver) == 0;
}

int kvr_port__choose_queues(struct kvr_port *p, struct port_err e)
{
	const uint32_t most = RTE_MIN(p->dev.max_rx_queues, p->dev.max_tx_queues);
	const uint32_t asked = p->conf.queues;

	p->hw = asked != 0 ? asked : RTE_MIN(p->lcores, most);
	if (p->hw == 0)
		return kvr_port__fail(e, -ENODEV, "device: %s has no queue to receive and send",
				      p->dev.driver_name);
	if (asked > most)
		return kvr_port__fail(e, -ERANGE,
				      "queues: got \"%u\", allowed: 1 to %u (limit of %s as it was "
				      "created)",
				      asked, most, p->dev.driver_name);
	if (asked > p->lcores)
		return kvr_port__fail(e, -ERANGE,
				      "queues: got \"%u\", allowed: 0 to %u, one for each lcore of "
				      "the port",
				      asked, p->lcores);
	/* The kernel gives frames to every queue that the device was created with. */
	if ((is(p, "net_af_packet") || is(p, "net_af_xdp")) && p->hw < most)
		return kvr_port__fail(e, -ERANGE,
				      "queues: %u are polled, but %s was created with %u and loses "
				      "what comes to the others; allowed: %u in its arguments",
				      p->hw, p->dev.driver_name, most, p->hw);
	atomic_init(&p->rx_on, p->hw);
	atomic_init(&p->tx_on, p->hw);
	return 0;
}

static struct rte_ring *ring(const struct kvr_port *p, const char *what, uint32_t i)
{
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "%s%u.%u", what, p->rules.local.port, i);
	return kvr_rings_create(name, sizeof(void *), KVR_PORT_RING,
				rte_eth_dev_socket_id(p->ethdev));
}

int kvr_port__rings_create(struct kvr_port *p, struct port_err e)
{
	/* A memif peer may bring fewer rings than there are queues. */
	if (p->lcores == 1 || (p->hw == p->lcores && !is(p, "net_memif")))
		return 0;
	p->seed = rte_rand();
	for (uint32_t i = 0; i < p->lcores; i++) {
		struct kvr_port_queue *q = &p->queues[i];

		q->spread = ring(p, "spread", i);
		q->send = ring(p, "send", i);
		if (q->spread == NULL || q->send == NULL)
			return kvr_port__fail(e, -rte_errno,
					      "queues: no memory for the rings between %u lcores",
					      p->lcores);
	}
	return 0;
}

uint32_t kvr_port_waiting(const struct kvr_port *p)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->lcores && p->queues[i].spread != NULL; i++)
		n += rte_ring_count(p->queues[i].spread) + rte_ring_count(p->queues[i].send);
	return n;
}

static void drain(struct rte_ring *r)
{
	struct rte_mbuf *m;

	while (r != NULL && rte_ring_dequeue(r, (void **)&m) == 0)
		rte_pktmbuf_free(m);
	rte_ring_free(r);
}

void kvr_port__rings_free(struct kvr_port *p)
{
	for (uint32_t i = 0; p->queues != NULL && i < p->lcores; i++) {
		drain(p->queues[i].spread);
		drain(p->queues[i].send);
		p->queues[i].spread = p->queues[i].send = NULL;
	}
}
