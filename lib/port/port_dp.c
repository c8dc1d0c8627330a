/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receive and send bursts of one lcore at a port. An lcore has a device queue, or rings to lcores
 * that have one; rx_on and tx_on, the usable queues, change when a memif peer connects.
 */
#include "port_pvt.h"

#include <errno.h>

#include <rte_cycles.h>
#include <rte_ring.h>

/* Attempts at a full device before frames are dropped: about 1 us in total. */
#define TX_TRIES 16
/* Maximum frames of other lcores in one flush: 6 us of copies into a memif. */
#define SEND_TURN (2 * KVR_PORT_BURST)

static inline uint32_t hw_verdict(uint64_t ol_flags)
{
	/* NONE: no checksum in the packet, but valid within the host (virtio). */
	const uint64_t ip = ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
	const uint64_t l4 = ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
	uint32_t hw = 0;

	if (ip == RTE_MBUF_F_RX_IP_CKSUM_BAD)
		hw |= KVR_PKT_HW_IP_BAD;
	else if (ip != 0)
		hw |= KVR_PKT_HW_IP_GOOD;
	if (l4 == RTE_MBUF_F_RX_L4_CKSUM_BAD)
		hw |= KVR_PKT_HW_L4_BAD;
	else if (l4 != 0)
		hw |= KVR_PKT_HW_L4_GOOD;
	return hw;
}

static inline bool is_shut(const struct kvr_port_queue *q)
{
	/*
	 * Pairs with the release store in kvr_port__gate(): when the gate opens, the device has
	 * been started or its peer connected.
	 */
	return atomic_load_explicit(&q->shut, memory_order_acquire) != 0;
}

/* Send frames with bounded retries, then drop the rest. */
static uint16_t send_burst(struct kvr_port_queue *q, struct rte_mbuf **m, uint16_t n)
{
	uint32_t bytes = 0, tries = 0;
	uint16_t sent = 0, k;

	for (uint16_t i = 0; i < n; i++)
		bytes += m[i]->pkt_len;
	while (sent < n) {
		k = rte_eth_tx_burst(q->ethdev, q->queue, &m[sent], (uint16_t)(n - sent));
		sent = (uint16_t)(sent + k);
		if (sent == n)
			break;
		if (k == 0 && ++tries == TX_TRIES)
			break;
		kvr_stats_inc(q->row, KVR_PORT_TX_RETRIES);
		q->again = true;
		rte_pause();
	}
	q->again = false;
	for (uint16_t i = sent; i < n; i++) {
		bytes -= m[i]->pkt_len;
		rte_pktmbuf_free(m[i]);
	}
	kvr_stats_add(q->row, KVR_PORT_TX_SENT, sent);
	kvr_stats_add(q->row, KVR_PORT_TX_BYTES, bytes);
	kvr_stats_add(q->row, KVR_PORT_TX_DROPPED, (uint64_t)(n - sent));
	return sent;
}

/* Send finished frames to the device. */
static uint16_t to_device(struct kvr_port_queue *q, struct rte_mbuf **m, uint16_t n)
{
	uint16_t sent = 0, good;

	if (unlikely(is_shut(q))) {
		kvr_stats_add(q->row, KVR_PORT_TX_DROPPED, n);
		rte_pktmbuf_free_bulk(m, n);
		return 0;
	}
	while (n > 0) {
		good = q->prepare ? rte_eth_tx_prepare(q->ethdev, q->queue, m, n) : n;
		if (good > 0)
			sent = (uint16_t)(sent + send_burst(q, m, good));
		if (good == n)
			break;
		rte_pktmbuf_free(m[good]); /* the driver cannot send this one */
		kvr_stats_inc(q->row, KVR_PORT_TX_REFUSED);
		m += good + 1;
		n = (uint16_t)(n - good - 1);
	}
	return sent;
}

/* Send frames of lcores without a queue. The peer may have removed this lcore's queue meanwhile. */
static uint16_t send_of_others(struct kvr_port_queue *q)
{
	struct rte_mbuf *m[SEND_TURN];
	uint16_t n = (uint16_t)rte_ring_sc_dequeue_burst(q->send, (void **)m, SEND_TURN, NULL);

	kvr_stats_add(q->row, KVR_PORT_TX_TAKEN, n);
	return kvr_port__tx_on(q) ? to_device(q, m, n) : kvr_port__pass(q, m, n);
}

uint16_t kvr_port_flush(struct kvr_port_queue *q)
{
	uint16_t n = q->n_tx, sent = 0;

	if (n > 0) {
		q->n_tx = 0;
		kvr_stats_set(q->row, KVR_PORT_TX_BUFFERED, 0);
		sent = likely(kvr_port__tx_on(q)) ? to_device(q, q->tx, n)
						  : kvr_port__pass(q, q->tx, n);
	}
	if (unlikely(q->send != NULL) && !rte_ring_empty(q->send))
		sent = (uint16_t)(sent + send_of_others(q));
	return sent;
}

/* Add a finished frame to the send buffer. */
static inline void push_frame(struct kvr_port_queue *q, struct rte_mbuf *m)
{
	if (q->n_tx == KVR_PORT_TX_BUFFER)
		kvr_port_flush(q);
	q->tx[q->n_tx++] = m;
	kvr_stats_inc(q->row, KVR_PORT_TX_OFFERED);
	kvr_stats_set(q->row, KVR_PORT_TX_BUFFERED, q->n_tx);
}

static int refuse_frame(struct kvr_port_queue *q, struct rte_mbuf *m, int rc)
{
	kvr_stats_inc(q->row, KVR_PORT_TX_OFFERED);
	kvr_stats_inc(q->row, KVR_PORT_TX_REFUSED);
	rte_pktmbuf_free(m);
	return rc;
}

int kvr_port_send(struct kvr_port_queue *q, const struct kvr_path *path, struct rte_mbuf *m)
{
	int rc;

	if (rte_mbuf_refcnt_read(m) != 1)
		return refuse_frame(q, m, -EBUSY);
	if (m->nb_segs > 1 && !q->segments && rte_pktmbuf_linearize(m) != 0)
		return refuse_frame(q, m, -ENOBUFS);
	rc = kvr_path_write(&kvr_port__rules(q)->local, path, m);
	if (rc < 0)
		return refuse_frame(q, m, rc);
	push_frame(q, m);
	return 0;
}

bool kvr_port_tx_again(const struct kvr_port_queue *q)
{
	return q->again;
}

struct rte_mbuf *kvr_port_alloc(struct kvr_port_queue *q)
{
	return rte_pktmbuf_alloc(q->pool);
}

/*
 * Requests come from unauthenticated senders: a flood must not occupy the lcore, and a flood of
 * pings must not suppress the answers that keep the link alive. One second's worth may come at
 * once.
 */
static bool within_rate(struct kvr_port_queue *q, bool echo)
{
	const uint64_t now = rte_rdtsc(), due = RTE_MAX(q->answer_due[echo], now);

	if (q->answer_gap == 0)
		return true;
	if (due - now >= rte_get_tsc_hz()) {
		kvr_stats_inc(q->row, KVR_PORT_UNANSWERED);
		return false;
	}
	q->answer_due[echo] = due + q->answer_gap;
	return true;
}

/*
 * ARP, neighbour discovery, echo: answer, or check for the reply that kvr_port_resolve() waits for.
 */
static void local_frame(struct kvr_port_queue *q, const struct kvr_pkt *pkt, struct rte_mbuf *m)
{
	const bool v4 = pkt->verdict == KVR_PKT_ARP ||
			(pkt->verdict == KVR_PKT_ECHO && pkt->path.family == 4);

	if (q->asking != NULL &&
	    kvr_pkt_reply_for(pkt, rte_pktmbuf_mtod(m, const uint8_t *), q->asking))
		q->answered = true;
	if ((v4 ? q->answers4 : q->answers6) && rte_mbuf_refcnt_read(m) == 1 &&
	    within_rate(q, pkt->verdict == KVR_PKT_ECHO) &&
	    kvr_pkt_answer(kvr_port__rules(q), pkt, m) == 0) {
		kvr_stats_inc(q->row, KVR_PORT_ANSWERED);
		push_frame(q, m);
		return;
	}
	rte_pktmbuf_free(m);
}

static enum kvr_pkt_verdict judge_mbuf(const struct kvr_port_queue *q, struct rte_mbuf *m,
				       struct kvr_pkt *pkt)
{
	if (m->nb_segs > 1 && rte_pktmbuf_linearize(m) != 0)
		return KVR_PKT_SEGMENTS;
	return kvr_pkt_parse(kvr_port__rules(q), rte_pktmbuf_mtod(m, const uint8_t *), m->data_len,
			     hw_verdict(m->ol_flags), pkt);
}

/*
 * Receive one burst of the device: parse it, and pass on datagrams whose source belongs to another
 * lcore.
 */
static uint16_t from_device(struct kvr_port_queue *q, struct rte_mbuf *mbufs[],
			    struct kvr_pkt pkts[], uint16_t n)
{
	const bool spreads = unlikely(kvr_port_spreads(q));
	uint16_t got, udp = 0, kept = 0;
	uint32_t bytes = 0;

	got = rte_eth_rx_burst(q->ethdev, q->queue, mbufs, n);
	q->got = got;
	q->device_full = got == n;
	if (got == 0)
		return 0;
	for (uint16_t i = 0; i < got; i++)
		rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], const void *));
	for (uint16_t i = 0; i < got; i++) {
		struct rte_mbuf *m = mbufs[i];
		struct kvr_pkt *pkt = &pkts[kept];
		enum kvr_pkt_verdict v;

		bytes += m->pkt_len;
		v = judge_mbuf(q, m, pkt);
		if (v == KVR_PKT_UDP) {
			kvr_pkt_strip(m, pkt);
			udp++;
			if (!spreads || !kvr_port__spread(q, &pkt->path, m))
				mbufs[kept++] = m;
			continue;
		}
		kvr_stats_inc(q->row, KVR_PORT_RX_VERDICT + v);
		if (v == KVR_PKT_ARP || v == KVR_PKT_ND || v == KVR_PKT_ECHO)
			local_frame(q, pkt, m);
		else
			rte_pktmbuf_free(m);
	}
	kvr_stats_add(q->row, KVR_PORT_RX_FRAMES, got);
	kvr_stats_add(q->row, KVR_PORT_RX_BYTES, bytes);
	kvr_stats_add(q->row, KVR_PORT_RX_VERDICT + KVR_PKT_UDP, udp);
	kvr_stats_add(q->row, KVR_PORT_RX_KEPT, kept);
	return kept;
}

uint16_t kvr_port_rx_burst(struct kvr_port_queue *q, struct rte_mbuf *mbufs[],
			   struct kvr_pkt pkts[], uint16_t n)
{
	n = n < KVR_PORT_BURST ? n : KVR_PORT_BURST;
	q->got = 0;
	if (unlikely(is_shut(q))) {
		q->device_full = q->ring_full = false;
		return 0;
	}
	if (likely(q->spread == NULL))
		return from_device(q, mbufs, pkts, n);
	/* Alternate, so that neither starves. */
	q->ring_next = !q->ring_next;
	if (q->ring_next || !kvr_port__rx_on(q)) {
		q->got = kvr_port__take(q, mbufs, pkts, n);
		q->ring_full = q->got == n;
		if (q->got != 0)
			return q->got;
	}
	if (kvr_port__rx_on(q))
		return from_device(q, mbufs, pkts, n);
	q->device_full = false;
	return 0;
}

uint16_t kvr_port_rx_got(const struct kvr_port_queue *q)
{
	return q->got;
}

bool kvr_port_rx_full(const struct kvr_port_queue *q)
{
	return q->device_full || q->ring_full;
}

bool kvr_port_agent_allowed(const struct kvr_port *port, const uint8_t ip[16])
{
	return kvr_pkt_agent_allowed(kvr_port__rules(&port->queues[0]), ip);
}
