/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings between the lcores of a port. A datagram goes to the lcore selected by its source address,
 * so that rate, quota and fragments of a client are kept in one place, whatever queue a datagram
 * arrives on. Frames of an lcore without a queue go to one that has a queue.
 */
#include "port_pvt.h"

#include <rte_ring.h>

/* The path is stored in the first bytes of the headroom; headers end right before the data. */
_Static_assert(RTE_PKTMBUF_HEADROOM >= sizeof(struct kvr_path) + KVR_PATH_MAX_HEADERS,
	       "path and headers share the headroom");

/* An IPv6 host owns all addresses of its /64. */
static inline uint32_t lcore_of(const struct kvr_port *port, const struct kvr_path *from)
{
	uint64_t w[2];

	memcpy(w, from->ip, sizeof(w));
	w[0] = kvr_mix64(port->seed ^ (from->family == 4 ? w[1] : w[0]));
	return (uint32_t)(((w[0] >> 32) * port->lcores) >> 32);
}

bool kvr_port__spread(struct kvr_port_queue *q, const struct kvr_path *from, struct rte_mbuf *m)
{
	struct kvr_port *port = q->port;
	struct kvr_port_queue *to = &port->queues[lcore_of(port, from)];

	if (to == q)
		return false;
	memcpy(m->buf_addr, from, sizeof(*from));
	if (likely(rte_ring_enqueue(to->spread, m) == 0)) {
		kvr_stats_inc(q->row, KVR_PORT_SPREAD_OUT);
		return true;
	}
	kvr_stats_inc(q->row, KVR_PORT_SPREAD_FULL);
	rte_pktmbuf_free(m);
	return true;
}

uint16_t kvr_port__take(struct kvr_port_queue *q, struct rte_mbuf *mbufs[], struct kvr_pkt pkts[],
			uint16_t n)
{
	n = (uint16_t)rte_ring_sc_dequeue_burst(q->spread, (void **)mbufs, n, NULL);
	for (uint16_t i = 0; i < n; i++) {
		rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], const void *));
		pkts[i] = (struct kvr_pkt){.len = mbufs[i]->data_len, .verdict = KVR_PKT_UDP};
		memcpy(&pkts[i].path, mbufs[i]->buf_addr, sizeof(pkts[i].path));
	}
	kvr_stats_add(q->row, KVR_PORT_SPREAD_IN, n);
	kvr_stats_add(q->row, KVR_PORT_RX_KEPT, n);
	return n;
}

uint16_t kvr_port__pass(struct kvr_port_queue *q, struct rte_mbuf *m[], uint16_t n)
{
	struct kvr_port *port = q->port;
	const uint32_t on = atomic_load_explicit(&port->tx_on, memory_order_relaxed);
	uint32_t k = 0;

	if (on > 0)
		k = rte_ring_enqueue_burst(port->queues[q->queue % on].send, (void **)m, n, NULL);
	kvr_stats_add(q->row, KVR_PORT_TX_PASSED, k);
	kvr_stats_add(q->row, KVR_PORT_TX_DROPPED, n - k);
	rte_pktmbuf_free_bulk(m + k, n - k);
	return (uint16_t)k;
}

bool kvr_port_spreads(const struct kvr_port_queue *q)
{
	return q->spread != NULL &&
	       atomic_load_explicit(&q->port->rx_on, memory_order_relaxed) < q->port->lcores;
}
