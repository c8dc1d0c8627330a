/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_NOTE_H
#define ROUTER_NOTE_H

/**
 * @file
 * What travels on the rings between lcores. Each element is written by its sender and read once, by
 * the one consumer of its ring, which then owns what it points at.
 *
 * Notes: what ingress lcores tell the scheduler of a pool, half a cache line each, through
 * pool::notes. One row of NOTE_LIST says for each type which part of the union it has, and with it
 * who owns what the note points at. Written by the ingress lcore that sends it (CANCEL and PROBE
 * also by a scheduler lcore, for the next pool), read once by the pool's scheduler lcore. Budget: a
 * burst of 32 is one ring operation.
 */

#include <stdint.h>

#include <rte_mbuf.h>

#include "kvr_port.h"
#include "kvr_wire.h"

struct job;
struct lcore;
struct pool;

/* ---- notes: ingress -> scheduler ---- */

/** Parts of a note. Whoever has taken the note out of the ring owns what it points at. */
enum note_part {
	NOTE_PART_NONE,	    /* the handle says all */
	NOTE_PART_JOB,	    /* job: the job and its frames */
	NOTE_PART_FRAME,    /* m: the frame */
	NOTE_PART_FRAMES,   /* frames: the list and the frames in it */
	NOTE_PART_CODE,	    /* code; owns nothing */
	NOTE_PART_PROGRESS, /* progress; owns nothing */
	NOTE_PART_SESSION,  /* session; owns nothing */
	NOTE_PART_MAC,	    /* mac; owns nothing */
};

/** X(type, name, part) */
#define NOTE_LIST(X)                                                                               \
	X(NOTE_ROUTE, "ROUTE", NOTE_PART_JOB)                                                      \
	X(NOTE_LOADS, "POTENTIAL_LOADS", NOTE_PART_JOB)                                            \
	X(NOTE_CANCEL, "CANCEL", NOTE_PART_FRAME)                                                  \
	X(NOTE_PROBE, "PROBE", NOTE_PART_FRAME)                                                    \
	X(NOTE_DISPATCH_ACK, "DISPATCH_ACK", NOTE_PART_CODE)                                       \
	X(NOTE_ALIVE, "ALIVE", NOTE_PART_FRAME)                                                    \
	X(NOTE_PROGRESS, "PROGRESS", NOTE_PART_PROGRESS)                                           \
	X(NOTE_RESULT, "RESULT", NOTE_PART_FRAME)                                                  \
	X(NOTE_LONG_RESULT, "LONG_RESULT", NOTE_PART_FRAMES)                                       \
	X(NOTE_RESULT_AGAIN, "RESULT_AGAIN", NOTE_PART_FRAME)                                      \
	X(NOTE_LAST, "LAST", NOTE_PART_FRAME)                                                      \
	X(NOTE_FIN_ACKED, "FIN_ACKED", NOTE_PART_NONE)                                             \
	X(NOTE_ABORT_ACK, "ABORT_ACK", NOTE_PART_NONE)                                             \
	X(NOTE_SESSION_OPENED, "SESSION_OPENED", NOTE_PART_SESSION)                                \
	X(NOTE_SESSION_CLOSED, "SESSION_CLOSED", NOTE_PART_SESSION)                                \
	X(NOTE_SESSION_RELEASE, "SESSION_RELEASE", NOTE_PART_FRAME)                                \
	X(NOTE_MISSING, "MISSING", NOTE_PART_FRAME)                                                \
	X(NOTE_CLIENT_HOP, "CLIENT_HOP", NOTE_PART_MAC)

/** NOTE_PROGRESS: an item of a stream, or PROGRESS, has changed something. NOTE_RESULT: the last
 * item of a prefill leg, a RESPONSE; NOTE_LONG_RESULT: the same of several frames, which count in
 * lcore::moved; NOTE_RESULT_AGAIN: the first of these once more. NOTE_LAST: that of an answer whose
 * client has asked for TRACK. NOTE_FIN_ACKED: the client has the last item. NOTE_MISSING: what a
 * worker lacks of a DISPATCH. NOTE_CLIENT_HOP: frames of the client come by another next hop. The
 * others are called after their frame. */
enum note_type {
#define NOTE_ENUM(type, name, part) type,
	NOTE_LIST(NOTE_ENUM)
#undef NOTE_ENUM
		NOTE_TYPES
};

/** Element of a pool's note ring. */
struct note {
	uint8_t type; /* enum note_type */
	uint8_t pad[7];
	uint64_t handle; /* of the request; of a session: number of the ask; 0: none */
	union {
		struct job *job;
		struct rte_mbuf *m;
		struct frame_list *frames;
		uint32_t code; /* enum kvr_code of a DISPATCH_ACK */
		struct {
			uint32_t tokens; /* generated so far */
			uint32_t cached; /* prompt tokens that the engine had; KVR_NONE32 */
			uint16_t flags;	 /* KVR_PROG_F_* */
		} progress;
		struct {
			uint64_t worker; /* who says so */
			uint32_t epoch;	 /* and its life */
			uint32_t code;
		} session;
		uint8_t mac[6];
	};
};
_Static_assert(sizeof(struct note) == 32, "two notes a cache line");

/** NOTE_PROGRESS of an item. */
static inline struct note note_item(uint64_t handle, const struct kvr_wire_response *w)
{
	const uint32_t flags = (w->flags & KVR_RESP_F_FIN ? KVR_PROG_F_FIN : 0) |
			       (w->flags & KVR_RESP_F_ERROR ? KVR_PROG_F_ERROR : 0) |
			       (w->flags & KVR_RESP_F_CANCELLED ? KVR_PROG_F_CANCELLED : 0) |
			       (w->flags & KVR_RESP_F_FAILED ? KVR_PROG_F_FAILED : 0) |
			       (w->flags & KVR_RESP_F_REFUSED ? KVR_PROG_F_REFUSED : 0);

	return (struct note){
		.type = NOTE_PROGRESS,
		.handle = handle,
		.progress = {w->generated_tokens, w->cached_tokens, (uint16_t)flags},
	};
}

struct note_info {
	const char *name;
	enum note_part part;
};

/** By enum note_type. */
extern const struct note_info note_types[NOTE_TYPES];

/* ---- elements of other rings ---- */

/** Element of a pool's event ring: a KV_EVENTS frame (data = frame header), or a prediction. */
struct event_note {
	struct rte_mbuf *m;
	struct prediction *p; /* when m is NULL; the event stage puts it back */
	uint32_t rank;	      /* dense index */
	uint32_t charged;     /* ingress lcore that has charged the frame to its source, + 1 */
};

/** Element of an egress ring. */
struct egress_note {
	struct rte_mbuf *m;
	struct kvr_path path;
};
_Static_assert(sizeof(struct egress_note) % 4 == 0, "rte_ring element size");

/** A frame for control, copied out of its mbuf at ingress. From router::ctl_bufs. */
struct ctl_buf {
	struct kvr_path path;
	uint32_t len; /* of the frame */
	uint32_t pad;
	uint64_t frame[]; /* header and body, aligned */
};

/**
 * Hashes of a prompt that do not stand in its frame; hashes_get(). Who has it (its job, a booking
 * that goes on, a prediction) has a reference; the last one to let go gives it back. Nobody writes
 * the hashes once the job is made.
 */
struct prompt_hashes {
	/* Whoever lets go releases, the last one acquires: nobody reads what has been given back.
	 */
	_Atomic uint32_t refs;
	uint32_t pad;
	uint64_t sh[];
};

/** Hashes of a decision on their way to the event stage; buf_get() of router::hash_bufs. */
struct prediction {
	uint64_t worker; /* and its life: the rank may pass to another on the way */
	uint32_t epoch;
	uint32_t n;
	struct prompt_hashes *of; /* its hashes; NULL: they follow, copied from the frame */
	uint64_t sh[];
};

/** Frames of a message longer than one; buf_get() of router::frame_lists. */
struct frame_list {
	struct frame_list *next; /* in the queue of an lcore */
	uint32_t n;
	uint32_t lcore; /* of a result: ingress lcore that has counted it in `moved` */
	struct rte_mbuf *m[];
};

#endif
