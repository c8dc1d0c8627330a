/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_LINK_H
#define KVR_LINK_H

/**
 * @file
 * Messages over datagrams: what the client and the agent share below their state machines.
 * Outgoing messages are cut into frames and collected into bursts; incoming frames are checked,
 * put together and handed up one message at a time. Timers hang on the link too, so that one
 * clock reading serves everything done in one call. One thread. Not installed.
 *
 * Nothing is sent before kvr_link_flush(), or the end of kvr_link_process() and kvr_link_run(),
 * unless the burst is full. What the socket does not take is dropped and counted: every message of
 * the protocol is repeated by its owner anyway.
 */

#include "kvr_put.h"
#include "kvr_reasm.h"
#include "kvr_timer.h"
#include "kvr_udp.h"

#include <stdint.h>

struct kvr_link;

/** The state machine above a link. */
struct kvr_link_user {
	/** Is this frame meant for us? Asked before any memory is spent on it. */
	bool (*wants)(void *user, const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h);
	/** One whole, checked message; @p body is 8-aligned and valid during the call. */
	void (*message)(void *user, const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
			const uint8_t *body, uint32_t len);
	/** A fragment, before any memory is spent on it; @p h and the body behind it as they came.
	 * @return false: it has been dealt with. May be NULL. */
	bool (*fragment)(void *user, const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h);
	/** A first fragment of a message that has been handed up came again; its body stands behind
	 * @p h. @return true: put the message together once more. May be NULL. */
	bool (*again)(void *user, const struct kvr_wire_hdr *h);
	/** A timer is due; it is idle again. */
	void (*timer)(void *user, struct kvr_timer *t);
};

/** Counters; owner: rw. sent + unsent = frames given to the link and flushed. */
struct kvr_link_stats {
	uint64_t sent, unsent;
	uint64_t received; /* = handed up or kept for reassembly + bad + foreign */
	uint64_t bad;	   /* frame, body or fragment failed a check of lib/wire */
	uint64_t foreign;  /* refused by wants() */
	uint64_t expired;  /* messages that stayed incomplete */
};

struct kvr_link_conf {
	uint32_t epoch;		 /* of this process, not 0 */
	uint32_t timers;	 /* that may run at once */
	uint32_t assembly_bytes; /* bound of reassembly, all messages; 0: none */
	uint64_t seed;		 /* of the hash over message identities, random */
	uint8_t role;		 /* KVR_ROLE_BIT_*: who we are */
	const struct kvr_link_user *ops;
	void *user;
};

/** Fields are read by the owner; written only by the functions below. */
struct kvr_link {
	struct kvr_link_conf conf;
	struct kvr_udp udp;
	struct kvr_timers timers;
	struct kvr_link_stats stats;
	uint64_t now_us;  /* of the current call */
	uint32_t msg_seq; /* last one given out */
	uint32_t n_tx;
	uint64_t flush_us;  /* while n_tx > 0: these leave then, at the latest; 0: now */
	uint64_t strict_us; /* until then timers are steps of something large */
	struct kvr_udp_msg tx[KVR_UDP_BURST];
	uint8_t *tx_mem;	 /* KVR_UDP_BURST frames of KVR_WIRE_MAX_FRAME */
	struct kvr_reasm *reasm; /* NULL until a fragment comes */
};

/**
 * The opening of both sides: find @p router (a name or an address; @p port 0: the protocol's) and
 * open a socket, at @p bind when that is not NULL. The caller gives @p udp to kvr_link_init().
 * @return 0; -EINVAL @p router is NULL, or what kvr_udp_resolve() and kvr_udp_open() say.
 */
int kvr_link_open(const char *router, uint16_t port, const char *bind, struct kvr_udp_addr *to,
		  struct kvr_udp *udp);

/** A word that differs between programs and between lives of one, from @p udp when that gives
 * some. Not 0. */
uint64_t kvr_link_random(const struct kvr_udp *udp);

/**
 * Take over @p udp (closed by fini, also when init fails) and get ready.
 * @return 0 or -ENOMEM.
 */
int kvr_link_init(struct kvr_link *l, const struct kvr_udp *udp, const struct kvr_link_conf *conf);
void kvr_link_fini(struct kvr_link *l);

/** Read the clock; every entry from outside starts with it. */
static inline uint64_t kvr_link_tick(struct kvr_link *l)
{
	return l->now_us = l->udp.io->now_us(l->udp.ctx);
}

/** Names of a new message (not a repeat of the same bytes). */
struct kvr_wire_ids kvr_link_ids(struct kvr_link *l, uint64_t source, uint64_t id, uint64_t handle);

/** Buffer of KVR_WIRE_MAX_FRAME bytes for the kvr_put_*() of the next frame. */
uint8_t *kvr_link_frame(struct kvr_link *l);

/** Queue the frame just put there; @p len is what kvr_put_*() returned, errors are ignored. */
void kvr_link_queue(struct kvr_link *l, const struct kvr_udp_addr *to, int len);

/** Queue a message of one frame whose body is @p len bytes, 0 allowed. */
void kvr_link_send(struct kvr_link *l, const struct kvr_udp_addr *to, enum kvr_wire_kind kind,
		   struct kvr_wire_ids ids, const void *body, uint32_t len);

/** The same of a message that may wait for others until @p due_us of the link's clock: it leaves
 * with the first that may not. */
void kvr_link_send_later(struct kvr_link *l, const struct kvr_udp_addr *to, enum kvr_wire_kind kind,
			 struct kvr_wire_ids ids, const void *body, uint32_t len, uint64_t due_us);

/**
 * Queue the next frames of a message, at most @p max of them, copied from @p body.
 * @return true when there are more.
 */
bool kvr_link_send_frames(struct kvr_link *l, const struct kvr_udp_addr *to, struct kvr_frag *f,
			  const void *body, uint32_t max);

/** Hand the queued frames to the network. */
void kvr_link_flush(struct kvr_link *l);

/**
 * Start @p t for the next repetition of what has just been sent: in @p gap_us, but not after
 * @p until_us of the link's clock (KVR_TIMER_NEVER: no end), when its owner gives up. The gap after
 * that is twice as long, @p max_us at most.
 */
void kvr_link_repeat(struct kvr_link *l, struct kvr_timer *t, uint32_t *gap_us, uint32_t max_us,
		     uint64_t until_us);

/** Start @p t for @p due_us, when the next part of something large may go: kvr_link_strict() says
 * so till then. */
void kvr_link_step(struct kvr_link *l, struct kvr_timer *t, uint64_t due_us);

/** Receive what waits (bounded, so that timers get their turn), then as kvr_link_run().
 * @return frames received. */
unsigned int kvr_link_process(struct kvr_link *l);

/** Run timers and flush, unless all that is queued may wait; what has come is left where it is. */
void kvr_link_run(struct kvr_link *l);

/** When kvr_link_process() or kvr_link_run() is needed even in silence, by the link's clock: 0 when
 * frames are to be flushed, KVR_TIMER_NEVER: never. */
uint64_t kvr_link_due_us(const struct kvr_link *l);

/** The same in milliseconds from now, rounded up; 0 when it is due; -1: never. */
int kvr_link_timeout_ms(const struct kvr_link *l);

/** Whether a sleep for that time should end on time: a step is due (kvr_link_step()), or fragments
 * of a message are waited for. Else some milliseconds more do no harm. */
bool kvr_link_strict(const struct kvr_link *l);

#endif
