/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_CAPTURE_H
#define ROUTER_CAPTURE_H

/**
 * @file
 * /kvroute/capture: frames of one port to a pcapng file, with any kind of port and memory,
 * including memif and --no-huge, where dpdk-dumpcap cannot attach.
 *
 * Callbacks of the ethdev copy frames that match the filter into buffers of the capture and put
 * them into a ring: one run of the filter and one copy per frame, without waiting. Without a free
 * buffer or entry, the copy is counted as missed and the frame passes unchanged. A separate thread
 * writes the file. One capture at a time, limited in time and bytes; afterwards no callback stays
 * installed. Sent frames are captured once, as given to the device, even if the device rejects
 * them.
 *
 * Writers: a tap's counters by the lcore of its queue; state under kvr_telemetry_lock(); atomics as
 * stated.
 */

#include <rte_bpf.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "state/router.h"

/** One direction of a queue; argument of its callback. */
struct capture_tap {
	struct capture *capture;
	const struct kvr_port_queue *queue;	      /* read by its lcore */
	const struct rte_eth_rxtx_callback *callback; /* NULL: not installed */
	kvr_cell_t kept, missed;		      /* frames; written by the queue's lcore */
} __rte_cache_aligned;

struct capture {
	struct rte_mempool *pool;
	struct rte_ring *ring;	/* copies for the thread */
	struct rte_bpf *filter; /* NULL: all frames */
	uint32_t snap;		/* bytes kept per frame */
	struct capture_tap rx[KVR_PORT_MAX_QUEUES], tx[KVR_PORT_MAX_QUEUES];
};

/** The callbacks. Packet lcores. */
uint16_t capture_rx(uint16_t port, uint16_t queue, struct rte_mbuf *m[], uint16_t n, uint16_t max,
		    void *tap);
uint16_t capture_tx(uint16_t port, uint16_t queue, struct rte_mbuf *m[], uint16_t n, void *tap);

/** Largest file in bytes; a test sets less. */
extern uint64_t capture_most;

/** Register the command. @return 0 or -errno. */
int captures_start(struct router *rt);

/** End a running capture; packet lcores may poll. */
void captures_stop(struct router *rt);

#endif
