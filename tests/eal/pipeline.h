/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PIPELINE_H
#define PIPELINE_H

/**
 * @file
 *
 * The whole router on one thread, without lcores: frames go into a ring device, pipeline_step()
 * runs every stage once, and frames that come out can be read. Only pipeline_advance() and its
 * relatives move time. With real polling threads (threads.h) pipeline_turn() lasts until no frame
 * moves any more.
 */

#include <stdbool.h>
#include <stdint.h>

#include "kvr_hints.h"
#include "kvr_message.h"
#include "state/router.h"

#define PEER_CLIENT 1000u /* UDP ports of the two peers, both at 10.0.0.2 */
#define PEER_AGENT  2000u
#define PEER_OTHER  3000u

/** A frame the router sent. */
struct out {
	uint16_t to;	/* UDP port */
	uint8_t mac[6]; /* next hop */
	uint32_t len;
	union {
		struct kvr_wire_hdr hdr;
		uint8_t bytes[KVR_WIRE_MAX_FRAME];
	};
};

extern struct router *rt;

/** The first pool of the router. */
static inline struct pool *pipeline_get_pool(void)
{
	return &rt->pool[0];
}

#define PIPELINE_MBUFS 49151u

/** Further keys of [router] for the next start; sources have no quota unless a test changes it. */
extern const char *pipeline_router;

/** Packet buffers of the next start; PIPELINE_MBUFS unless a test changes it. */
extern uint32_t pipeline_mbufs;

/** Ports of the next start, 1 or 2; the second has the addresses 10.0.1.1 and fd00:1::1. */
extern uint32_t pipeline_ports;

/** Port that frames arrive at. */
extern uint32_t pipeline_into;

/** Last byte of the address that pipeline_send() sends from; 2 unless a test changes it. */
extern uint8_t pipeline_host;

/** The byte before that one; 0 unless a test changes it. */
extern uint8_t pipeline_net;

/** Last byte of the MAC that pipeline_send() sends from; 2 unless a test changes it. */
extern uint8_t pipeline_mac;

/** Block size that workers report; 4 unless a test changes it. */
extern uint32_t pipeline_block_size;

/** Start a router with one or two pools ("a" and, with @p pools 2, "b"); aborts on failure. */
void pipeline_start(uint32_t pools);

/** Sizes of every pool in these tests. */
#define PIPELINE_POOL                                                                              \
	"block_size = 4\nmax_ranks = 64\nmax_requests = 256\nmax_jobs = 128\nmax_blocks = 64k\n"   \
	"max_active_blocks = 65536\n"

/** Start a router with these pools, written as sections of the configuration file. */
void pipeline_start_with(const char *pools);
void pipeline_stop(void);

/** Stop the router in the middle of its work. */
void pipeline_cut(void);

#define PIPELINE_SPREAD UINT32_MAX

/** Device queue that frames arrive on if there are several; PIPELINE_SPREAD: the queues in turn. */
extern uint32_t pipeline_queue;

/** Further keys of the port; sources need no cookie unless a test changes it. */
extern const char *pipeline_port;

/** Peers send over IPv6 from now on, from fd00::2. */
extern bool pipeline_ipv6;

/** Cookie of the frames of pipeline_route(). */
extern uint64_t pipeline_cookie;

/** Put one UDP payload from a peer into the router's port. */
void pipeline_send(uint32_t from, const void *payload, size_t len);

/** Put raw bytes (from the Ethernet header on) into the router's port. */
void pipeline_send_raw(const void *bytes, size_t len);

/** Collect the frames sent so far, without a turn. */
void pipeline_collect(void);

/** Run every stage until no frame moves. */
void pipeline_turn(void);

/** Time at the next start; 0: the time of the machine. */
extern uint64_t pipeline_start_ns;

/** Turns take no time, except while messages of several frames are sent, which is paced by time. */
extern bool pipeline_still;

/** Runs every stage once, without polling threads; lcore_turn() unless a test changes it. */
extern void (*pipeline_lcore_turn)(struct lcore *lc);

/** Run every stage and the control thread once. */
void pipeline_step(void);

/** The router pauses for @p ms while its peers do not. */
void pipeline_pause(uint32_t ms);

/** Let time pass: the router runs, all workers send heartbeats, clients send nothing. */
void pipeline_skip(uint32_t ms);
void pipeline_skip_ns(uint64_t ns);

/** pipeline_skip(), then run every stage. */
void pipeline_advance(uint32_t ms);

/** Next frame that the router has sent to @p to (0: to any peer), or NULL; valid until the next
 * call. */
const struct out *pipeline_next(uint32_t to);

/** Next frame of @p kind to @p to, or NULL. Other frames to @p to are dropped. */
const struct out *pipeline_expect(uint32_t to, uint8_t kind);

/** Drop the frames collected so far. */
void pipeline_flush(void);

/** Packet buffers that are neither in their pool nor in a device ring; 0 if nothing leaks. */
uint32_t pipeline_mbufs_used(void);

/** Return true if all counters balance; prints the violated equation otherwise. */
bool pipeline_balanced(void);

/** Return true if the router has no peers and nothing is left; prints what is left otherwise. */
bool pipeline_at_rest(void);

/** Registration of a worker; the peer at UDP port `from` is its agent. */
struct pipeline_worker {
	uint64_t id;
	uint32_t epoch;
	uint32_t ranks;
	const char *pool;
	uint32_t from;
	uint8_t role;
	uint8_t enforcement;  /* for `domain` */
	uint16_t port;	      /* port of `host` */
	const char *host;     /* bootstrap address, or NULL */
	const char *topology; /* "key=value", or NULL */
	const char *domain;   /* of KV transfers, or NULL */
	uint64_t kv_blocks;   /* per rank; 0: 1,000 */
};

/** The worker joins. @return true when the router sent WELCOME. */
bool pipeline_hello_as(const struct pipeline_worker *w);

/** Epoch of the worker that has request @p handle, as frames of its agent carry it; 1 if no worker
 * has it. */
uint32_t pipeline_epoch(uint64_t handle);

/** Ids of a frame about request @p id of source 77; @p handle 0: unknown. */
static inline struct kvr_wire_ids pipeline_make_ids(uint64_t id, uint64_t handle)
{
	return (struct kvr_wire_ids){
		.source = 77, .id = id, .handle = handle, .epoch = pipeline_epoch(handle)};
}

/** Worker @p id joins pool @p pool with @p ranks ranks. @return true when the router sent WELCOME.
 */
bool pipeline_hello(uint64_t id, uint32_t epoch, const char *pool, uint32_t ranks);

/** Length of the opaque body in pipeline_route(); 4 unless a test changes it. */
extern uint32_t pipeline_body_len;

/** Deadline in pipeline_route(); 0 (none) unless a test changes it. */
extern uint32_t pipeline_deadline_ms;

/** Pool number in pipeline_route(); 5 unless a test changes it. */
extern uint16_t pipeline_pool;

/** client_frame in pipeline_route(); 0 unless a test changes it. */
extern uint16_t pipeline_client_frame;

/** Frames of pipeline_route() stay in the port and are read together with later ones. */
extern bool pipeline_together;

/** Kind of message in pipeline_route(); KVR_ROUTE unless a test changes it. */
extern uint8_t pipeline_kind;

/** Send a ROUTE of tokens first, first + 1, ... instead of hashes. */
void pipeline_route_tokens(uint64_t id, uint32_t first, uint32_t n, uint32_t flags,
			   const struct kvr_hint_buf *hints);

/** Send a ROUTE of @p n hashes (values hash0, hash0 + 1, ...) as request @p id; hints may be NULL.
 */
void pipeline_route(uint64_t id, uint64_t hash0, uint32_t n, uint32_t flags,
		    const struct kvr_hint_buf *hints);

#endif
