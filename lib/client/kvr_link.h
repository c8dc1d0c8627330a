/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_LINK_H
#define KVR_LINK_H

/**
 * @file
 * Messages over datagrams, shared by client and agent below their state machines. Outgoing messages
 * are cut into frames and collected into bursts. Incoming frames are checked and reassembled, and
 * each message is passed up. Timers belong to the link, so that one clock reading serves a whole
 * call. One thread. Not installed.
 *
 * Frames are sent by kvr_link_flush(), at the end of kvr_link_process() and kvr_link_run(), or when
 * a burst is full. Frames that the socket does not accept are dropped and counted, because the
 * owner retransmits every message of the protocol.
 */

#include "kvr_put.h"
#include "kvr_reasm.h"
#include "kvr_timer.h"
#include "kvr_udp.h"

#include <stdint.h>

struct kvr_link;

/** Callbacks of the state machine above a link. */
struct kvr_link_user {
	/** Return true if the frame is for this user. Called before memory is allocated. */
	bool (*wants)(void *user, const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h);
	/** A complete, checked message. @p body is aligned to 8 bytes and valid during the call. */
	void (*message)(void *user, const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
			const uint8_t *body, uint32_t len);
	/** A fragment, before memory is allocated; the body follows @p h. @return false: it was
	 * handled. May be NULL. */
	bool (*fragment)(void *user, const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h);
	/** A copy of the first fragment of a complete message; its body follows @p h. @return true:
	 * reassemble the message again. May be NULL. */
	bool (*again)(void *user, const struct kvr_wire_hdr *h);
	/** A timer fired, and is idle. */
	void (*timer)(void *user, struct kvr_timer *t);
};

/** Counters; writer: the owner. sent + unsent = frames flushed. */
struct kvr_link_stats {
	uint64_t sent, unsent;
	uint64_t received; /* = passed up or kept for reassembly + bad + foreign */
	uint64_t bad;	   /* frames, bodies and fragments that failed a check of lib/wire */
	uint64_t foreign;  /* rejected by wants() */
	uint64_t expired;  /* messages that remained incomplete */
};

struct kvr_link_conf {
	uint32_t epoch;		 /* of this process, not 0 */
	uint32_t timers;	 /* running at once */
	uint32_t assembly_bytes; /* limit of reassembly for all messages; 0: none */
	uint64_t seed;		 /* random; for the hash over message identities */
	uint8_t role;		 /* KVR_ROLE_BIT_* of the user */
	const struct kvr_link_user *ops;
	void *user;
};

/** The owner may read the fields; only the functions below write them. */
struct kvr_link {
	struct kvr_link_conf conf;
	struct kvr_udp udp;
	struct kvr_timers timers;
	struct kvr_link_stats stats;
	uint64_t now_us;  /* of the current call */
	uint32_t msg_seq; /* last number used */
	uint32_t n_tx;
	uint64_t flush_us;  /* if n_tx > 0: latest time to flush; 0: now */
	uint64_t strict_us; /* timers before this time are steps of a large transfer */
	struct kvr_udp_msg tx[KVR_UDP_BURST];
	uint8_t *tx_mem;	 /* buffers: KVR_UDP_BURST frames of KVR_WIRE_MAX_FRAME */
	struct kvr_reasm *reasm; /* NULL until the first fragment */
};

/**
 * Resolve @p router, a name or an address (@p port 0: the protocol's default), and open a socket,
 * bound to @p bind unless that is NULL. The caller passes @p udp to kvr_link_init().
 * @return 0; -EINVAL: @p router is NULL; or an error of kvr_udp_resolve() or kvr_udp_open().
 */
int kvr_link_open(const char *router, uint16_t port, const char *bind, struct kvr_udp_addr *to,
		  struct kvr_udp *udp);

/** A random number that is not 0, from @p udp if that provides randomness. Differs between programs
 * and between incarnations. */
uint64_t kvr_link_random(const struct kvr_udp *udp);

/**
 * Initialise; takes over @p udp, which kvr_link_fini() closes, also after a failure.
 * @return 0 or -ENOMEM.
 */
int kvr_link_init(struct kvr_link *link, const struct kvr_udp *udp,
		  const struct kvr_link_conf *conf);
void kvr_link_fini(struct kvr_link *link);

/** Read the clock. Every entry point starts with it. */
static inline uint64_t kvr_link_tick(struct kvr_link *link)
{
	return link->now_us = link->udp.io->now_us(link->udp.ctx);
}

/** Identification of a new message, not of a retransmission. */
struct kvr_wire_ids kvr_link_ids(struct kvr_link *link, uint64_t source, uint64_t id,
				 uint64_t handle);

/** Buffer of KVR_WIRE_MAX_FRAME bytes for the kvr_put_*() of the next frame. */
uint8_t *kvr_link_frame(struct kvr_link *link);

/** Queue the frame in that buffer. @p len is the result of kvr_put_*(); negative values are
 * ignored. */
void kvr_link_queue(struct kvr_link *link, const struct kvr_udp_addr *to, int len);

/** Queue a message of one frame with a body of @p len bytes, which may be 0. */
void kvr_link_send(struct kvr_link *link, const struct kvr_udp_addr *to, enum kvr_wire_kind kind,
		   struct kvr_wire_ids ids, const void *body, uint32_t len);

/** The same for a message that may be delayed until @p due_us of the link's clock: it leaves with
 * the next frame that may not. */
void kvr_link_send_later(struct kvr_link *link, const struct kvr_udp_addr *to,
			 enum kvr_wire_kind kind, struct kvr_wire_ids ids, const void *body,
			 uint32_t len, uint64_t due_us);

/**
 * Queue the next frames of a message, at most @p max, copied from @p body.
 * @return true if more remain.
 */
bool kvr_link_send_frames(struct kvr_link *link, const struct kvr_udp_addr *to, struct kvr_frag *f,
			  const void *body, uint32_t max);

/** Send the queued frames. */
void kvr_link_flush(struct kvr_link *link);

/**
 * Start @p t for the next retransmission: after @p gap_us, but not later than @p until_us of the
 * link's clock, when the owner gives up (KVR_TIMER_NEVER: no limit). Doubles *gap_us up to @p
 * max_us.
 */
void kvr_link_repeat(struct kvr_link *link, struct kvr_timer *t, uint32_t *gap_us, uint32_t max_us,
		     uint64_t until_us);

/** Start @p t at @p due_us for the next step of a large transfer, which makes kvr_link_strict()
 * return true until then. */
void kvr_link_step(struct kvr_link *link, struct kvr_timer *t, uint64_t due_us);

/** Receive waiting frames, bounded so that timers are served, then act as kvr_link_run().
 * @return the number of frames received. */
unsigned int kvr_link_process(struct kvr_link *link);

/** Run timers, and flush unless all queued frames may be delayed. Does not receive. */
void kvr_link_run(struct kvr_link *link);

/** Time at which kvr_link_process() or kvr_link_run() is needed without input, by the link's clock;
 * 0: frames are to be flushed; KVR_TIMER_NEVER: never. */
uint64_t kvr_link_due_us(const struct kvr_link *link);

/** The same in milliseconds from now, rounded up; 0: now; -1: never. */
int kvr_link_timeout_ms(const struct kvr_link *link);

/** Return true if a sleep for that time should end on time: a step of kvr_link_step() is due, or
 * fragments are missing. Otherwise a few milliseconds more are harmless. */
bool kvr_link_strict(const struct kvr_link *link);

#endif
