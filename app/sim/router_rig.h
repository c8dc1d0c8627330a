/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_BOX_H
#define SIM_BOX_H

/**
 * @file
 * A whole router in a box: its own configuration, start and stop, its ports on pairs of rings, its
 * clock that stands still unless told. Whoever has the box runs the router's stages: on this
 * thread, lcore by lcore (app/sim, tests/eal), or on threads of its own (tests/eal/threads.h). Not
 * for packet rates: a frame costs a copy, and its checksums.
 *
 * Writer of everything: the thread that has the box.
 */

#include <stdbool.h>
#include <stdint.h>

#include "router.h"

#define BOX_PORTS  2u
#define BOX_QUEUES 4u

struct box_port {
	char device[64];
	struct rte_ring *to[BOX_QUEUES];   /* frames for the router; one ring a queue */
	struct rte_ring *from[BOX_QUEUES]; /* frames of the router */
};

struct box {
	struct router *rt;
	struct rte_mempool *frames; /* that are on their way to the router */
	uint32_t n_ports, n_queues;
	struct box_port port[BOX_PORTS];
	bool threads; /* somebody else polls: no lcore is registered with QSBR */
	bool plain;   /* frames for the router have no UDP checksum, which IPv4 allows */
};

/** What box_open() makes. */
struct box_sizes {
	uint32_t ports;	   /* 1..BOX_PORTS */
	uint32_t queues;   /* 1..BOX_QUEUES */
	uint32_t to, from; /* entries of a ring, powers of two */
	uint32_t frames;   /* on their way to the router */
};

/** A router that is not configured yet, and its devices. @return 0, -ENOMEM or of the device. */
int box_open(struct box *b, const struct box_sizes *s);

/** Configure it from the text of a file. @return 0, or -errno with a line in @p err. */
int box_load(struct box *b, const char *text, char *err, size_t errlen);

/** Which packet lcores there are, whatever CPUs this process may use: the first @p ingress of
 * @p lcores have a queue each; events and scheduling of all pools lie on one lcore each. @return 0,
 * or -EINVAL with a line in @p err. */
int box_lcores(struct kvr_router_conf *c, uint32_t lcores, uint32_t ingress, uint32_t event,
	       uint32_t sched, char *err, size_t errlen);

/**
 * Start it; its clock says @p start_ns (0: the machine's) and stands. With a @p seed that is not 0
 * nothing about it is random but by that. @return 0, or -errno with a line in @p err.
 */
int box_start(struct box *b, uint64_t start_ns, uint64_t seed, char *err, size_t errlen);

/** Nobody polls it any more: it ends where it stands. @return frames that were on their way. */
uint32_t box_stop(struct box *b);

/** Release what box_open() made. */
void box_close(struct box *b);

/** A frame of @p from for the router's port @p port, with @p len bytes of payload; the peers' MAC
 * is box_mac. NULL: none left, or it fits no frame. */
struct rte_mbuf *box_frame(struct box *b, uint32_t port, const struct kvr_path *from,
			   const void *payload, size_t len);
extern const uint8_t box_mac[6];

/** Where the payload of a frame begins; 0: it has none. @p to is its receiver. */
uint32_t box_payload(const struct rte_mbuf *m, struct kvr_path *to);

/** Is there nothing that the router has still to read, or to do at its next turns? */
bool box_unread(const struct box *b);
bool box_under_way(const struct box *b);
/** Lcores that have something to read or to go on with at their next turn, a bit each. */
uint32_t box_busy(const struct box *b);

/** Packet buffers that are neither in their pool nor in a ring; frames that are read count. */
uint32_t box_mbufs_used(const struct box *b);

#endif
