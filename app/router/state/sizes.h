/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_STATE_SIZES_H
#define ROUTER_STATE_SIZES_H

/**
 * @file
 * Numbers of packet buffers, computed by sizes_derive(): config/sizes.h. Constant after the start.
 */

#include <stdint.h>

#define SIZES_PORTS 8u

/** Results; numbers of buffers unless stated otherwise. */
struct sizes {
	uint32_t mbufs[SIZES_PORTS];
	uint32_t room;
	uint32_t reserve;
	uint32_t low_water;	   /* incomplete messages are dropped when fewer buffers are free */
	uint32_t ring_size;	   /* entries, a power of two */
	uint32_t egress_size;	   /* entries of egress rings: a message is sent at once */
	uint32_t joins_size;	   /* entries of rings of fragments: a message arrives at once */
	uint32_t reassembly;	   /* all ingress lcores together */
	uint32_t reassembly_lcore; /* for one ingress lcore */
	uint32_t reassembly_source; /* for one source address at one ingress lcore */
	uint32_t waiting;	    /* all pools together */
	uint32_t waiting_pool;
	uint32_t max_frames;  /* of one message */
	uint32_t max_message; /* bytes of the body in frames of max_frame */
};

#endif
