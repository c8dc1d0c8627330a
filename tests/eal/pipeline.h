/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PIPELINE_H
#define PIPELINE_H

/**
 * @file
 * The whole router on one thread, without lcores: frames go into a ring device, turn() runs every
 * stage once, frames that come out are read back. Time stands still but for pipeline_advance().
 * With real polling threads, when threads.h says so: then a turn lasts until nothing moves.
 */

#include <stdbool.h>
#include <stdint.h>

#include "kvr_hints.h"
#include "kvr_message.h"
#include "router.h"

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

#define PIPELINE_MBUFS 49151u

/** More keys of [router] for the next start; no shares of sources unless a test changes it. */
extern const char *pipeline_router;

/** Packet buffers of the next start; PIPELINE_MBUFS unless a test changes it. */
extern uint32_t pipeline_mbufs;

/** Ports of the next start, 1 or 2: the second is 10.0.1.1 and fd00:1::1. */
extern uint32_t pipeline_ports;

/** Port that frames arrive at. */
extern uint32_t pipeline_into;

/** Last byte of the address that pipeline_send() sends from; 2 unless a test changes it. */
extern uint8_t pipeline_host;

/** The byte before it; 0 unless a test changes it. */
extern uint8_t pipeline_net;

/** Last byte of the MAC that pipeline_send() sends from; 2 unless a test changes it. */
extern uint8_t pipeline_mac;

/** Block size that workers name; 4 unless a test changes it. */
extern uint32_t pipeline_block_size;

/** Start a router with one or two pools ("a" and, with @p pools 2, "b"); aborts on failure. */
void pipeline_start(uint32_t pools);

/** Sizes that every pool of these tests has. */
#define PIPELINE_POOL                                                                              \
	"block_size = 4\nmax_ranks = 64\nmax_requests = 256\nmax_jobs = 128\nmax_blocks = 64k\n"   \
	"max_active_blocks = 65536\n"

/** Start a router with the pools of this text, sections as in the configuration file. */
void pipeline_start_with(const char *pools);
void pipeline_stop(void);

/** The same where it stands, in the middle of whatever it does. */
void pipeline_cut(void);

#define PIPELINE_SPREAD UINT32_MAX

/** Device queue that frames arrive on, when there are several; PIPELINE_SPREAD: each on the next.
 */
extern uint32_t pipeline_queue;

/** More keys of the port; nobody has to prove his address unless a test changes it. */
extern const char *pipeline_port;

/** Peers send over IPv6 from now on, from fd00::2. */
extern bool pipeline_ipv6;

/** Cookie of what pipeline_route() sends. */
extern uint64_t pipeline_cookie;

/** Put one UDP payload from a peer into the router's port. */
void pipeline_send(uint32_t from, const void *payload, size_t len);

/** Put raw bytes (from the Ethernet header on) into the router's port. */
void pipeline_send_raw(const void *bytes, size_t len);

/** Take what has been sent so far, without a turn. */
void pipeline_collect(void);

/** Run every stage until nothing moves. */
void pipeline_turn(void);

/** Time at the next start; 0: the machine's. */
extern uint64_t pipeline_start_ns;

/** Turns take no time, but for messages of several frames, which are sent as time passes. */
extern bool pipeline_still;

/** What runs every stage once, without polling threads: lcore_turn() unless a test changes it. */
extern void (*pipeline_lcore_turn)(struct lcore *lc);

/** Run every stage once, and control. */
void pipeline_step(void);

/** The router stands still for so long, and its peers do not. */
void pipeline_pause(uint32_t ms);

/** Let time pass, in which the router runs, all workers are heard and no client is. */
void pipeline_skip(uint32_t ms);
void pipeline_skip_ns(uint64_t ns);

/** The same, then run every stage. */
void pipeline_advance(uint32_t ms);

/** Next frame the router has sent to @p to (0: anybody), or NULL; valid until the next call. */
const struct out *pipeline_next(uint32_t to);

/** Next frame of @p kind to @p to, others are thrown away; NULL when there is none. */
const struct out *pipeline_expect(uint32_t to, uint8_t kind);

/** Throw away what was sent. */
void pipeline_flush(void);

/** mbufs that are neither in their pool nor in a device ring; 0 when nothing leaks. */
uint32_t pipeline_mbufs_used(void);

/** Whether all counters add up; prints the violated equation. */
bool pipeline_balanced(void);

/** Whether nobody is there and nothing is left; says what is. */
bool pipeline_at_rest(void);

/** What a worker says of itself; the peer at UDP port `from` speaks for it. */
struct pipeline_worker {
	uint64_t id;
	uint32_t epoch;
	uint32_t ranks;
	const char *pool;
	uint32_t from;
	uint8_t role;
	uint8_t enforcement;  /* of `domain` */
	uint16_t port;	      /* of `host` */
	const char *host;     /* bootstrap address, or NULL */
	const char *topology; /* "key=value", or NULL */
	const char *domain;   /* of transfers, or NULL */
	uint64_t kv_blocks;   /* of each rank; 0: 1,000 */
};

/** The worker joins; true when WELCOMEd. */
bool pipeline_hello_as(const struct pipeline_worker *w);

/** Life of the worker that has request @p handle: what frames of its agent carry. 1: nobody has it.
 */
uint32_t pipeline_life(uint64_t handle);

/** Worker @p id joins pool @p pool with @p ranks ranks; true when WELCOMEd. */
bool pipeline_hello(uint64_t id, uint32_t epoch, const char *pool, uint32_t ranks);

/** Bytes of the opaque body of what pipeline_route() sends; 4 unless a test changes it. */
extern uint32_t pipeline_body_len;

/** Deadline of what pipeline_route() sends; 0 (none) unless a test changes it. */
extern uint32_t pipeline_deadline_ms;

/** Pool number of what pipeline_route() sends; 5 unless a test changes it. */
extern uint16_t pipeline_pool;

/** client_frame of what pipeline_route() sends; 0 unless a test changes it. */
extern uint16_t pipeline_client_frame;

/** What pipeline_route() sends stays in the port, and is read together with what follows. */
extern bool pipeline_together;

/** Kind of what pipeline_route() sends; KVR_ROUTE unless a test changes it. */
extern uint8_t pipeline_kind;

/** Send a ROUTE of tokens first, first + 1, ... instead of hashes. */
void pipeline_route_tokens(uint64_t id, uint32_t first, uint32_t n, uint32_t flags,
			   const struct kvr_hint_buf *hints);

/** Send a ROUTE of @p n hashes (values hash0, hash0 + 1, ...) as request @p id; hints may be NULL.
 */
void pipeline_route(uint64_t id, uint64_t hash0, uint32_t n, uint32_t flags,
		    const struct kvr_hint_buf *hints);

#endif
