/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_LINK_H
#define LOAD_LINK_H

/**
 * @file
 * The port of kvroute-load: one ethdev, one address, and one UDP port per client and engine, so
 * that RSS of a NIC spreads them. lib/port opens the device, resolves addresses and parses frames.
 * This adds the source port per sender and time stamps: the receive time is read after the burst
 * that received a frame, the send time before the burst that sends it.
 *
 * The device may have several queues, as a router with several ingress CPUs requires of a memif
 * peer. All are polled in turn. Frames of a sender leave through one queue, or each through the
 * next one.
 *
 * Load lcore, except for open, resolve and close.
 */

#include <stddef.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "kvr_path.h"
#include "kvr_pkt.h"
#include "kvr_port.h"
#include "kvr_stats.h"
#include "options.h"

#define LOAD_BURST     32u
#define LOAD_TX_BUFFER 64u

/** Where a send time is stored, unless the value there is not 0. */
struct load_link {
	struct kvr_port *port;
	struct kvr_pkt_rules rules;
	struct kvr_path router;
	struct rte_mempool *pool;
	uint16_t ethdev;
	uint16_t base_port;
	uint16_t n_ports;
	uint16_t n_tx;
	uint16_t n_queues;
	uint16_t next_rx, next_tx; /* queues */
	enum load_spread spread;
	bool up;	 /* the device is usable */
	bool lost;	 /* the router's address must be resolved again */
	kvr_cell_t *row; /* LOAD_RX, LOAD_TX, ... */
	struct rte_mbuf *tx[LOAD_TX_BUFFER];
	uint64_t *stamp[LOAD_TX_BUFFER];
};

/**
 * Open and start the device with conf->queues queues. It receives on @p n_ports UDP ports from
 * conf->udp_port on.
 * @return 0 or -errno with a line in @p err.
 */
int load_link_open(struct load_link *k, const struct kvr_port_conf *conf, uint16_t n_ports,
		   char *err, size_t errlen);
void load_link_close(struct load_link *k);

/** Wait for the link, then resolve the router's address. Waits again if the memif server goes away
 * meanwhile. @return 0, -ENOLINK or -EHOSTUNREACH. */
int load_link_resolve(struct load_link *k, const char *router_ip, uint16_t router_port,
		      uint32_t timeout_ms);

/**
 * Receive datagrams, trimmed to their payload. mbuf->port is the index of the UDP port of arrival,
 * 0 to n_ports - 1. The caller frees them. *rx is the receive time of the burst.
 * @return number of datagrams, at most LOAD_BURST; *busy: the device had frames.
 */
uint16_t load_link_rx(struct load_link *k, struct rte_mbuf *mbufs[], uint64_t *rx, bool *busy);

/**
 * Begin a frame of @p len payload bytes from sender @p from (0 to n_ports - 1) to the router. The
 * caller fills the returned bytes. The frame leaves with the next flush, or at once when the buffer
 * is full. If @p stamp is given and holds 0, it gets the send time.
 * @return NULL: no buffer (counted).
 */
void *load_link_frame(struct load_link *k, uint16_t from, uint16_t len, uint64_t *stamp);

/** Shorten the last frame to @p len payload bytes. */
static inline void load_link_trim(struct load_link *k, uint16_t len)
{
	struct rte_mbuf *m = k->tx[k->n_tx - 1];

	rte_pktmbuf_trim(m, (uint16_t)(m->data_len - len));
}

/**
 * Reconnect to a memif server that went away, as a memif client does not do that on its own. @p now
 * in TSC cycles. Between two calls the caller is outside rx and flush.
 */
void load_link_reconnect(struct load_link *k, uint64_t now);

/** Send the buffered frames. @return whether there were any. */
bool load_link_flush(struct load_link *k);

#endif
