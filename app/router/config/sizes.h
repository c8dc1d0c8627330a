/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SIZES_H
#define ROUTER_SIZES_H

/**
 * @file
 * Numbers of packet buffers, and the share of each consumer, derived in one place. A port receives
 * into buffers of its own pool, and a kept frame keeps a buffer of that pool, so everything below
 * must fit the pool of every port at the same time:
 *
 *   mbufs = device + room      device: descriptors, driver, caches and bursts of lcores
 *   room  = reserve            always free, so that heartbeats and other short frames are received
 *         + rings * ring_size  rings between stages that carry frames; rings that may hold a
 *                              complete message are longer than the largest one
 *         + reassembly         fragments of incomplete messages of all ingress lcores, and complete
 *                              messages until the scheduler has them
 *         + waiting            requests that wait in the queue or for their acknowledgement, and
 *                              transfer results of their prefill legs
 *
 * The largest message follows: twice its size fits the quota of one source, and twice its size may
 * wait in one pool. Pure: no EAL, no device.
 */

#include <stddef.h>
#include <stdint.h>

#include "state/sizes.h"

/** Input. Configuration keys that are 0 are derived. */
struct sizes_in {
	uint32_t mbufs[SIZES_PORTS];  /* [port] mbufs */
	uint32_t device[SIZES_PORTS]; /* most buffers held by the port and its lcores */
	uint32_t buffer[SIZES_PORTS]; /* bytes of a buffer with its descriptor */
	const char *port[SIZES_PORTS];
	uint32_t n_ports;
	uint32_t n_ingress;
	uint32_t n_pools;
	uint32_t rings;	    /* rings with frames; n_ingress of them are egress rings */
	uint32_t joins;	    /* number of these that forward fragments to the joining lcore */
	uint32_t apart;	    /* lcores without a queue send complete messages through egress rings */
	uint32_t max_frame; /* UDP payload of the smallest port */
	uint32_t memory_mb;
	uint32_t ring_size;
	uint32_t reassembly_frames;
	uint32_t reassembly_source_frames;
	uint32_t waiting_frames;
};

/** Derive *out. On failure @p err is one line with the contradicting keys and their values. @return
 * 0 or -EINVAL. */
int sizes_derive(const struct sizes_in *in, struct sizes *out, char *err, size_t errlen);

#endif
