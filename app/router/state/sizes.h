/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_STATE_SIZES_H
#define ROUTER_STATE_SIZES_H

/**
 * @file
 * The numbers of packet buffers that sizes_derive() computes: config/sizes.h. Constant after the
 * start.
 */

#include <stdint.h>

#define SIZES_PORTS 8u

/** What follows; numbers of buffers unless said. */
struct sizes {
	uint32_t mbufs[SIZES_PORTS];
	uint32_t room;
	uint32_t reserve;
	uint32_t low_water;	    /* below so many free ones unfinished messages are given up */
	uint32_t ring_size;	    /* entries, a power of two */
	uint32_t egress_size;	    /* of egress rings: a message comes at once */
	uint32_t joins_size;	    /* of rings of fragments: so does it there */
	uint32_t reassembly;	    /* all ingress lcores together */
	uint32_t reassembly_lcore;  /* one of them */
	uint32_t reassembly_source; /* one source address at one of them */
	uint32_t waiting;	    /* all pools together */
	uint32_t waiting_pool;
	uint32_t max_frames;  /* of one message */
	uint32_t max_message; /* bytes of its body, in frames of max_frame */
};

#endif
