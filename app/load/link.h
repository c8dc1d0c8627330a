/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_LINK_H
#define LOAD_LINK_H

/**
 * @file
 * The load's end of the wire: one ethdev, one address, and as many UDP ports as there are
 * clients and engines (so a NIC's RSS spreads them). Opening, addresses and parsing are
 * lib/port's; what is added is the source port per sender, and the time stamps: a frame's receive
 * time is read after the burst that brought it, its send time before the burst that takes it.
 *
 * The device may have several queues, as a router with several ingress CPUs wants of a memif peer.
 * All are read in turn; a sender's frames leave through one of them, or each through the next.
 *
 * Load lcore, but for open, resolve and close.
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

/** Where a send time is to be stored, when not yet there (0). */
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
	bool up;	 /* the device may be used */
	bool lost;	 /* the router's address is asked for again */
	kvr_cell_t *row; /* LOAD_RX, LOAD_TX, ... */
	struct rte_mbuf *tx[LOAD_TX_BUFFER];
	uint64_t *stamp[LOAD_TX_BUFFER];
};

/**
 * Open the device with conf->queues queues and start it. @p n_ports UDP ports from conf->udp_port
 * on are ours.
 * @return 0 or -errno with a line in @p err.
 */
int load_link_open(struct load_link *k, const struct kvr_port_conf *conf, uint16_t n_ports,
		   char *err, size_t errlen);
void load_link_close(struct load_link *k);

/** Wait for the link, then find the router; a memif server that goes meanwhile is waited for again.
 * @return 0, -ENOLINK or -EHOSTUNREACH. */
int load_link_resolve(struct load_link *k, const char *router_ip, uint16_t router_port,
		      uint32_t timeout_ms);

/**
 * Receive the datagrams for us, trimmed to their payload; mbuf->port is the number of the UDP port
 * it came to (0 .. n_ports - 1). The caller frees them. *rx is the receive time of all.
 * @return datagrams, at most LOAD_BURST; *busy says whether the device had anything.
 */
uint16_t load_link_rx(struct load_link *k, struct rte_mbuf *mbufs[], uint64_t *rx, bool *busy);

/**
 * Begin a frame of @p len payload bytes from sender @p from (0 .. n_ports - 1) to the router: the
 * caller fills the bytes returned. It leaves with the next flush, or at once when the buffer is
 * full. When @p stamp is given and holds 0, the send time is stored there.
 * @return NULL when there is no buffer (counted).
 */
void *load_link_frame(struct load_link *k, uint16_t from, uint16_t len, uint64_t *stamp);

/** Shorten the frame begun last to @p len payload bytes. */
static inline void load_link_trim(struct load_link *k, uint16_t len)
{
	struct rte_mbuf *m = k->tx[k->n_tx - 1];

	rte_pktmbuf_trim(m, (uint16_t)(m->data_len - len));
}

/**
 * A memif client whose server has gone does not come back by itself: look after it, @p now in TSC
 * cycles. Between two calls the caller is outside rx and flush.
 */
void load_link_look_after(struct load_link *k, uint64_t now);

/** Give what is buffered to the device. @return whether there was anything. */
bool load_link_flush(struct load_link *k);

#endif
