/* SPDX-License-Identifier: BSD-3-Clause */
#include "link.h"

#include <rte_byteorder.h>
#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "stats.h"

#define TX_TRIES 2000 /* a full ring is the router's backlog: retry this often, then drop */

/*
 * Destination port of an untagged UDP frame without IP options, otherwise 0. The parser checks
 * against one port, but the load has a range.
 */
static uint16_t peek_port(const struct rte_mbuf *m)
{
	const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
	const struct rte_udp_hdr *udp;
	size_t at;

	if (m->data_len < 14 + 20 + 8)
		return 0;
	at = 14 + (eth->ether_type == RTE_BE16(RTE_ETHER_TYPE_IPV4) ? 20 : 40);
	if (m->data_len < at + 8)
		return 0;
	udp = rte_pktmbuf_mtod_offset(m, const struct rte_udp_hdr *, at);
	return rte_be_to_cpu_16(udp->dst_port);
}

/* @return true: @m is a datagram for us, and is stripped. Otherwise @m has been handled. */
static bool take_frame(struct load_link *k, struct rte_mbuf *m)
{
	const uint16_t port = peek_port(m);
	struct kvr_pkt pkt;

	k->rules.local.udp_port = (uint16_t)(port - k->base_port) < k->n_ports ? port : 0;
	switch (kvr_pkt_parse(&k->rules, rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, 0,
			      &pkt)) {
	case KVR_PKT_UDP:
		kvr_pkt_strip(m, &pkt);
		m->port = (uint16_t)(port - k->base_port);
		return true;
	case KVR_PKT_ARP:
	case KVR_PKT_ND:
	case KVR_PKT_ECHO:
		if (kvr_pkt_answer(&k->rules, &pkt, m) == 0 &&
		    rte_eth_tx_burst(k->ethdev, 0, &m, 1) == 1)
			return false;
		break;
	default:
		kvr_stats_inc(k->row, LOAD_BAD_FRAMES);
		break;
	}
	rte_pktmbuf_free(m);
	return false;
}

/* Receive a burst from the next queue that has one. */
static uint16_t receive_burst(struct load_link *k, struct rte_mbuf *all[])
{
	uint16_t n = 0;

	for (uint16_t i = 0; i < k->n_queues && n == 0 && k->up; i++) {
		n = rte_eth_rx_burst(k->ethdev, k->next_rx, all, LOAD_BURST);
		k->next_rx = k->next_rx + 1u < k->n_queues ? (uint16_t)(k->next_rx + 1) : 0;
	}
	return n;
}

uint16_t load_link_rx(struct load_link *k, struct rte_mbuf *mbufs[], uint64_t *rx, bool *busy)
{
	struct rte_mbuf *all[LOAD_BURST];
	uint16_t n = receive_burst(k, all), kept = 0;

	*rx = rte_rdtsc();
	*busy = n > 0;
	for (uint16_t i = 0; i < n; i++) {
		if (i + 2 < n)
			rte_prefetch0(rte_pktmbuf_mtod(all[i + 2],
						       void *)); /* headers, two frames ahead */
		if (take_frame(k, all[i]))
			mbufs[kept++] = all[i];
	}
	kvr_stats_add(k->row, LOAD_RX, n);
	return kept;
}

void *load_link_frame(struct load_link *k, uint16_t from, uint16_t len, uint64_t *stamp)
{
	struct rte_mbuf *m;

	if (k->n_tx == LOAD_TX_BUFFER)
		load_link_flush(k);
	m = rte_pktmbuf_alloc(k->pool);
	if (m == NULL || rte_pktmbuf_append(m, len) == NULL) {
		rte_pktmbuf_free(m);
		kvr_stats_inc(k->row, LOAD_NO_MBUF);
		return NULL;
	}
	m->port = from;
	k->tx[k->n_tx] = m;
	k->stamp[k->n_tx] = stamp != NULL && *stamp == 0 ? stamp : NULL;
	k->n_tx++;
	return rte_pktmbuf_mtod(m, void *);
}

/* Send frames on a queue. Frames that it does not take are counted and freed. */
static void transmit_burst(struct load_link *k, uint16_t queue, struct rte_mbuf *m[], uint16_t n)
{
	uint16_t done = 0;

	for (uint32_t tries = 0; k->up && done < n && tries < TX_TRIES; tries++) {
		done += rte_eth_tx_burst(k->ethdev, queue, &m[done], (uint16_t)(n - done));
		if (done < n)
			rte_pause();
	}
	kvr_stats_add(k->row, LOAD_TX, done);
	kvr_stats_add(k->row, LOAD_TX_DROPPED, (uint64_t)(n - done));
	rte_pktmbuf_free_bulk(&m[done], (unsigned int)(n - done));
}

/* Send each frame on its queue, in order within a queue. */
static void transmit_spread(struct load_link *k, const uint16_t queue[], uint16_t n)
{
	for (uint16_t q = 0; q < k->n_queues; q++) {
		struct rte_mbuf *m[LOAD_TX_BUFFER];
		uint16_t of = 0;

		for (uint16_t i = 0; i < n; i++)
			if (queue[i] == q)
				m[of++] = k->tx[i];
		if (of > 0)
			transmit_burst(k, q, m, of);
	}
}

static uint16_t queue_of(struct load_link *k, uint16_t sender)
{
	if (k->spread == LOAD_SPREAD_FRAME)
		return k->next_tx++ % k->n_queues;
	return sender % k->n_queues;
}

bool load_link_flush(struct load_link *k)
{
	struct kvr_local from = k->rules.local;
	uint16_t queue[LOAD_TX_BUFFER], n = 0;
	uint64_t tsc;

	if (k->n_tx == 0)
		return false;
	for (uint16_t i = 0; i < k->n_tx; i++) {
		struct rte_mbuf *m = k->tx[i];
		const uint16_t sender = m->port;

		from.udp_port = (uint16_t)(k->base_port + sender);
		if (kvr_path_write(&from, &k->router, m) < 0) {
			kvr_stats_inc(k->row, LOAD_TX_DROPPED);
			rte_pktmbuf_free(m);
			continue;
		}
		queue[n] = queue_of(k, sender);
		k->tx[n++] = m;
	}
	tsc = rte_rdtsc();
	for (uint16_t i = 0; i < k->n_tx; i++)
		if (k->stamp[i] != NULL && *k->stamp[i] == 0)
			*k->stamp[i] = tsc;
	if (k->n_queues == 1)
		transmit_burst(k, 0, k->tx, n);
	else
		transmit_spread(k, queue, n);
	k->n_tx = 0;
	return true;
}
