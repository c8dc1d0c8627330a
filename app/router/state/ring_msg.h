/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_RING_MSG_H
#define ROUTER_RING_MSG_H

/**
 * @file
 * Elements of the rings between lcores. The sender writes an element; the one consumer of the ring
 * reads it once and then owns the data behind its pointers.
 *
 * Messages to the scheduler of a pool (struct sched_msg) are half a cache line and go through its
 * mailbox, lcore/mailbox.h. The row of MSG_LIST names the valid part of the union, and thereby the
 * owned data. Senders: ingress lcores; for CANCEL and PROBE also the scheduler lcore of the pool
 * before. Budget: a burst of 32 is one ring operation.
 */

#include <stdint.h>

#include <rte_mbuf.h>

#include "kvr_port.h"
#include "kvr_wire.h"

struct job;
struct lcore;
struct pool;

/* ---- messages to a scheduler ---- */

/** Parts of a message. The reader owns the named data. */
enum sched_msg_part {
	MSG_PART_NONE,	   /* the handle is enough */
	MSG_PART_JOB,	   /* job: the job with its frames */
	MSG_PART_FRAME,	   /* m: a frame */
	MSG_PART_FRAMES,   /* frames: a list with its frames */
	MSG_PART_CODE,	   /* code; owns nothing */
	MSG_PART_PROGRESS, /* progress; owns nothing */
	MSG_PART_SESSION,  /* session; owns nothing */
	MSG_PART_MAC,	   /* mac; owns nothing */
};

/** X(type, name, part) */
#define MSG_LIST(X)                                                                                \
	X(MSG_ROUTE, "ROUTE", MSG_PART_JOB)                                                        \
	X(MSG_LOADS, "POTENTIAL_LOADS", MSG_PART_JOB)                                              \
	X(MSG_CANCEL, "CANCEL", MSG_PART_FRAME)                                                    \
	X(MSG_PROBE, "PROBE", MSG_PART_FRAME)                                                      \
	X(MSG_DISPATCH_ACK, "DISPATCH_ACK", MSG_PART_CODE)                                         \
	X(MSG_ALIVE, "ALIVE", MSG_PART_FRAME)                                                      \
	X(MSG_PROGRESS, "PROGRESS", MSG_PART_PROGRESS)                                             \
	X(MSG_RESULT, "RESULT", MSG_PART_FRAME)                                                    \
	X(MSG_LONG_RESULT, "LONG_RESULT", MSG_PART_FRAMES)                                         \
	X(MSG_RESULT_AGAIN, "RESULT_AGAIN", MSG_PART_FRAME)                                        \
	X(MSG_LAST, "LAST", MSG_PART_FRAME)                                                        \
	X(MSG_FIN_ACKED, "FIN_ACKED", MSG_PART_NONE)                                               \
	X(MSG_ABORT_ACK, "ABORT_ACK", MSG_PART_NONE)                                               \
	X(MSG_SESSION_OPENED, "SESSION_OPENED", MSG_PART_SESSION)                                  \
	X(MSG_SESSION_CLOSED, "SESSION_CLOSED", MSG_PART_SESSION)                                  \
	X(MSG_SESSION_RELEASE, "SESSION_RELEASE", MSG_PART_FRAME)                                  \
	X(MSG_MISSING, "MISSING", MSG_PART_FRAME)                                                  \
	X(MSG_CLIENT_HOP, "CLIENT_HOP", MSG_PART_MAC)

/**
 * MSG_PROGRESS: an item of a stream, or PROGRESS, that changes the request.
 * MSG_RESULT: last item of a prefill leg, a RESPONSE of one frame.
 * MSG_LONG_RESULT: the same of several frames, which count in lcore::moved.
 * MSG_RESULT_AGAIN: the first frame of such a result, retransmitted.
 * MSG_LAST: last item of an answer whose client sent TRACK.
 * MSG_FIN_ACKED: the client acknowledged the last item.
 * MSG_MISSING: fragments of a DISPATCH that a worker lacks.
 * MSG_CLIENT_HOP: frames of the client now arrive through another next hop.
 * The other types have the name of their frame.
 */
enum sched_msg_type {
#define MSG_ENUM(type, name, part) type,
	MSG_LIST(MSG_ENUM)
#undef MSG_ENUM
		MSG_TYPES
};

/** Element of a pool's mailbox. */
struct sched_msg {
	uint8_t type; /* enum sched_msg_type */
	uint8_t pad[7];
	uint64_t handle; /* of the request, or number of a session message; 0: none */
	union {
		struct job *job;
		struct rte_mbuf *m;
		struct frame_list *frames;
		uint32_t code; /* enum kvr_code of a DISPATCH_ACK */
		struct {
			uint32_t tokens; /* generated so far */
			uint32_t cached; /* cached prompt tokens according to the engine, or
					    KVR_NONE32 */
			uint16_t flags;	 /* KVR_PROG_F_* */
		} progress;
		struct {
			uint64_t worker; /* sender */
			uint32_t epoch;	 /* epoch of the sender */
			uint32_t code;
		} session;
		uint8_t mac[6];
	};
};
_Static_assert(sizeof(struct sched_msg) == 32, "two notes a cache line");

/** MSG_PROGRESS for an item. */
static inline struct sched_msg sched_msg_of_item(uint64_t handle, const struct kvr_wire_response *w)
{
	const uint32_t flags = (w->flags & KVR_RESP_F_FIN ? KVR_PROG_F_FIN : 0) |
			       (w->flags & KVR_RESP_F_ERROR ? KVR_PROG_F_ERROR : 0) |
			       (w->flags & KVR_RESP_F_CANCELLED ? KVR_PROG_F_CANCELLED : 0) |
			       (w->flags & KVR_RESP_F_FAILED ? KVR_PROG_F_FAILED : 0) |
			       (w->flags & KVR_RESP_F_REFUSED ? KVR_PROG_F_REFUSED : 0);

	return (struct sched_msg){
		.type = MSG_PROGRESS,
		.handle = handle,
		.progress = {w->generated_tokens, w->cached_tokens, (uint16_t)flags},
	};
}

struct sched_msg_info {
	const char *name;
	enum sched_msg_part part;
};

/** By enum sched_msg_type. */
extern const struct sched_msg_info sched_msg_types[MSG_TYPES];

/* ---- elements of other rings ---- */

/** Element of a pool's event ring: a KV_EVENTS frame (data at the frame header), or a prediction.
 */
struct event_msg {
	struct rte_mbuf *m;
	struct prediction *p; /* if m is NULL; freed by the event stage */
	uint32_t rank;	      /* dense index */
	uint32_t charged; /* index of the ingress lcore that charged the frame to its source, + 1;
			     0: none */
};

/** Element of an egress ring. */
struct egress_msg {
	struct rte_mbuf *m;
	struct kvr_path path;
};
_Static_assert(sizeof(struct egress_msg) % 4 == 0, "rte_ring element size");

/** A frame for control, copied from its mbuf at ingress. From router::ctl_bufs. */
struct ctl_buf {
	struct kvr_path path;
	uint32_t len; /* of the frame */
	uint32_t pad;
	uint64_t frame[]; /* header and body, aligned */
};

/** Hashes of a prompt that are not stored in its frame: hashes_get(). The job, an unfinished
 * booking and a prediction hold a reference each; the last hashes_put() frees them. The hashes are
 * constant after the job is made. */
struct prompt_hashes {
	/* Each put releases; the last one acquires, so that no reader uses freed memory. */
	_Atomic uint32_t refs;
	uint32_t pad;
	uint64_t sh[];
};

/** Hashes of a decision for the event stage; buf_get() of router::hash_bufs. */
struct prediction {
	uint64_t worker; /* with `epoch`: the rank may change its owner on the way */
	uint32_t epoch;
	uint32_t n;
	struct prompt_hashes *of; /* source of the hashes; NULL: they follow */
	uint64_t sh[];
};

/** Frames of a message of several frames; buf_get() of router::frame_lists. */
struct frame_list {
	struct frame_list *next; /* next list in the queue of an lcore */
	uint32_t n;
	uint32_t lcore; /* of a result: index of the ingress lcore that counts the frames in `moved`
			 */
	struct rte_mbuf *m[];
};

#endif
