/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_ROUTER_RIG_H
#define SIM_ROUTER_RIG_H

/**
 * @file
 * A complete router for tests and simulations: its configuration, start and stop, its ports on
 * pairs of rings, and a clock that stands still unless it is set. The owner runs the stages: on
 * this thread, lcore by lcore (app/sim, tests/eal), or on threads of its own (tests/eal/threads.h).
 * Not for packet rates: a frame costs a copy and its checksums.
 *
 * Writer of all fields: the owner's thread.
 */

#include <stdbool.h>
#include <stdint.h>

#include "state/router.h"

#define RIG_PORTS  2u
#define RIG_QUEUES 4u

struct rig_port {
	char device[64];
	struct rte_ring *to[RIG_QUEUES];   /* frames to the router, one ring per queue */
	struct rte_ring *from[RIG_QUEUES]; /* frames from the router */
};

struct router_rig {
	struct router *rt;
	struct rte_mempool *frames; /* in flight to the router */
	uint32_t n_ports, n_queues;
	struct rig_port port[RIG_PORTS];
	bool threads; /* other threads poll: no lcore is registered with QSBR */
	bool plain;   /* frames to the router have no UDP checksum, which IPv4 allows */
};

/** Sizes for rig_open(). */
struct rig_sizes {
	uint32_t ports;	   /* 1..RIG_PORTS */
	uint32_t queues;   /* 1..RIG_QUEUES */
	uint32_t to, from; /* entries of a ring, powers of two */
	uint32_t frames;   /* in flight to the router */
};

/** Create an unconfigured router and its devices. @return 0, -ENOMEM, or an error of the device. */
int rig_open(struct router_rig *b, const struct rig_sizes *s);

/** Configure the router from the text of a file. @return 0, or -errno with a line in @p err. */
int rig_load(struct router_rig *b, const char *text, char *err, size_t errlen);

/** Set the packet lcores, independent of the CPUs of this process: the first @p ingress of @p
 * lcores have one queue each; events and scheduling of all pools are on one lcore each. @return 0,
 * or -EINVAL with a line in @p err. */
int rig_lcores(struct kvr_router_conf *c, uint32_t lcores, uint32_t ingress, uint32_t event,
	       uint32_t sched, char *err, size_t errlen);

/** Start the router. Its clock is set to @p start_ns (0: the machine's time) and stands still. A @p
 * seed other than 0 determines all its random numbers. @return 0, or -errno with a line in @p err.
 */
int rig_start(struct router_rig *b, uint64_t start_ns, uint64_t seed, char *err, size_t errlen);

/** Stop the router at once, while no thread polls it. @return frames that were in flight. */
uint32_t rig_stop(struct router_rig *b);

/** Release what rig_open() created. */
void rig_close(struct router_rig *b);

/** A frame from @p from to port @p port of the router with @p len bytes of payload, sent by MAC
 * rig_mac. NULL: no buffer is left, or the payload exceeds a frame. */
struct rte_mbuf *rig_frame(struct router_rig *b, uint32_t port, const struct kvr_path *from,
			   const void *payload, size_t len);
extern const uint8_t rig_mac[6];

/** Offset of the payload of a frame, and its receiver @p to. 0: no payload. */
uint32_t rig_payload(const struct rte_mbuf *m, struct kvr_path *to);

/** Whether the router has frames to read; whether it has work for its next turns. */
bool rig_unread(const struct router_rig *b);
bool rig_under_way(const struct router_rig *b);
/** Bit mask of lcores with frames to read or work for their next turn. */
uint32_t rig_busy(const struct router_rig *b);

/** Packet buffers that are neither in their pool nor in a ring, including frames that are being
 * read. */
uint32_t rig_mbufs_used(const struct router_rig *b);

#endif
