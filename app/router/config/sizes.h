/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SIZES_H
#define ROUTER_SIZES_H

/**
 * @file
 * How many packet buffers there are and how many each consumer may hold, derived from one another
 * in one place. A port receives into buffers of its own pool; whoever keeps a frame keeps a buffer
 * of that pool, so everything below must fit the pool of every port at the same time:
 *
 *   mbufs = device + room      device: descriptors, driver, caches and bursts of lcores
 *   room  = reserve            always free, so that heartbeats and other short frames are received
 *         + rings * ring_size  rings between stages that carry frames; those in which all of a
 *                              message may lie at once are longer than the largest
 *         + reassembly         fragments of unfinished messages, all ingress lcores; whole messages
 *                              until the scheduler has taken them count here, too
 *         + waiting            requests that wait, or wait for their worker's acknowledgement, and
 *                              the transfer results of their prefill legs
 *
 * From these follows the largest message: two of it fit the share of one source, and two of it may
 * wait in one pool. Pure: no EAL, no device.
 */

#include <stddef.h>
#include <stdint.h>

#include "state/sizes.h"

/** What is given. Keys of the configuration that are 0 are derived. */
struct sizes_in {
	uint32_t mbufs[SIZES_PORTS];  /* [port] mbufs */
	uint32_t device[SIZES_PORTS]; /* what the port and its lcores hold at most */
	uint32_t buffer[SIZES_PORTS]; /* bytes of a buffer with its descriptor */
	const char *port[SIZES_PORTS];
	uint32_t n_ports;
	uint32_t n_ingress;
	uint32_t n_pools;
	uint32_t rings;	    /* that carry frames, n_ingress of them egress rings */
	uint32_t joins;	    /* of them: fragments on their way to the lcore that joins them */
	uint32_t apart;	    /* lcores without a queue send whole messages through egress rings */
	uint32_t max_frame; /* UDP payload of the smallest port */
	uint32_t memory_mb;
	uint32_t ring_size;
	uint32_t reassembly_frames;
	uint32_t reassembly_source_frames;
	uint32_t waiting_frames;
};

/**
 * Derive *out. On failure @p err holds one line that names the keys that contradict each other,
 * with their values. @return 0 or -EINVAL.
 */
int sizes_derive(const struct sizes_in *in, struct sizes *out, char *err, size_t errlen);

#endif
