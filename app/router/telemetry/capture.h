/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_CAPTURE_H
#define ROUTER_CAPTURE_H

/**
 * @file
 * /kvroute/capture: frames of one port into a pcapng file, whatever the port and the memory are
 * (memif and --no-huge included, where dpdk-dumpcap cannot attach).
 *
 * Callbacks of the ethdev copy what the filter takes into buffers of the capture's own and put them
 * into a ring: per frame one run of the filter and one copy, no waiting; without a buffer or a
 * place the copy is missed and counted, the frame is not touched. A thread of its own writes the
 * file. One capture at a time, bounded by time and by bytes; nothing is left installed after it.
 * What leaves is in the file once, as it is given to the device, whether the device takes it or
 * not.
 *
 * Writers: a tap's counts by the lcore that owns its queue; state by whoever holds the ctl lock,
 * but `quit` and `bytes`, which are atomic.
 */

#include <rte_bpf.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "state/router.h"

/** One direction of a queue; arg of its callback. */
struct capture_tap {
	struct capture *capture;
	const struct kvr_port_queue *queue;	      /* its lcore: r */
	const struct rte_eth_rxtx_callback *callback; /* NULL: not installed */
	kvr_cell_t kept, missed;		      /* frames; the queue's lcore */
} __rte_cache_aligned;

struct capture {
	struct rte_mempool *pool;
	struct rte_ring *ring;	/* copies, to the thread */
	struct rte_bpf *filter; /* NULL: every frame */
	uint32_t snap;		/* bytes kept of a frame */
	struct capture_tap rx[KVR_PORT_MAX_QUEUES], tx[KVR_PORT_MAX_QUEUES];
};

/** The callbacks. Packet lcores. */
uint16_t capture_rx(uint16_t port, uint16_t queue, struct rte_mbuf *m[], uint16_t n, uint16_t max,
		    void *tap);
uint16_t capture_tx(uint16_t port, uint16_t queue, struct rte_mbuf *m[], uint16_t n, void *tap);

/** Bytes of a file at most; a test has less. */
extern uint64_t capture_most;

/** Register the command. @return 0 or -errno. */
int captures_start(struct router *rt);

/** Ends a capture, too; packet lcores may poll. */
void captures_stop(struct router *rt);

#endif
