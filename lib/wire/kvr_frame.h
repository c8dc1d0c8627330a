/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_FRAME_H
#define KVR_FRAME_H

/**
 * @file
 * Frames: checking the header of one, writing headers, cutting a message into frames, and
 * gathering parts of a message that arrived in slices. Pure functions over the caller's memory;
 * any thread, packet lcores included. Nothing allocates. Checking a header reads its 48 bytes
 * once and one table row: about 3 ns.
 */

#include "kvr_wire.h"

#include <rte_common.h>

#include <stdbool.h>
#include <stddef.h>

/** Smallest body slice of a fragment that is not the last of its message. */
#define KVR_WIRE_MIN_FRAGMENT 512u
/** Smallest legal value of every max_frame or client_frame field that is not 0. */
#define KVR_WIRE_LEAST_MAX_FRAME (KVR_WIRE_MIN_FRAME + KVR_WIRE_MIN_FRAGMENT)
/** Most fragments of one message. */
#define KVR_WIRE_MAX_FRAGMENTS                                                                     \
	((KVR_WIRE_MAX_DISPATCH + KVR_WIRE_MIN_FRAGMENT - 1) / KVR_WIRE_MIN_FRAGMENT)

/** Roles of sender and receiver, as bits. */
#define KVR_ROLE_BIT_CLIENT 0x1u
#define KVR_ROLE_BIT_AGENT  0x2u
#define KVR_ROLE_BIT_ROUTER 0x4u

/** Results of kvr_frame_check() that are counted, never answered. */
#define KVR_FRAME_SHORT	    (-1) /* shorter than a header */
#define KVR_FRAME_BAD_MAGIC (-2) /* not a kvroute frame */

/** A row of KVR_KINDS. min_body 0 and max_body 0: the body is empty. */
struct kvr_kind_info {
	const char *name; /* NULL: no such kind */
	uint32_t min_body;
	uint32_t max_body;
	uint8_t from;	   /* KVR_ROLE_BIT_* of its senders */
	uint8_t to;	   /* KVR_ROLE_BIT_* of its receivers */
	bool fragmentable; /* false: the whole body is in one frame */
	bool answerable;   /* false: never answered with REJECTED */
};

/** Row of @p kind, NULL for an unknown one. */
const struct kvr_kind_info *kvr_kind_info(uint8_t kind);

/** Name of a kind as PROTOCOL.md writes it ("ROUTE"), "?" for an unknown one. */
const char *kvr_wire_kind_name(uint8_t kind);

/**
 * Check the header of one frame against its UDP payload and the table of kinds. The order of
 * checks is that of the result list; the header may be read as struct kvr_wire_hdr when the
 * result is 0 or positive.
 * @param receiver one of KVR_ROLE_BIT_*: the role of this process.
 * @return 0; KVR_FRAME_SHORT, KVR_FRAME_BAD_MAGIC (count, do not answer); or an enum
 * kvr_code: E_VERSION, E_KIND (unknown, or not for this receiver), E_FLAGS (unknown header
 * flag), E_LENGTH (payload is not 48 + frag_len, body not a multiple of 8 or below the kind's
 * minimum), E_TOO_LARGE (body above the kind's maximum), E_FRAGMENT (fragment leaves the message,
 * is empty, unaligned, too small, or the kind is never fragmented). Answer it with REJECTED only
 * if kvr_frame_answerable().
 */
int kvr_frame_check(const void *payload, size_t len, uint8_t receiver);

/** True if an invalid frame with a readable header may be answered with REJECTED. */
bool kvr_frame_answerable(const struct kvr_wire_hdr *hdr);

/** True if the frame carries its whole message. */
static inline bool kvr_frame_whole(const struct kvr_wire_hdr *hdr)
{
	return hdr->frag_len == hdr->msg_len;
}

/** First body byte of a checked frame. */
static inline const void *kvr_frame_body(const struct kvr_wire_hdr *hdr)
{
	return hdr + 1;
}

/** The identity part of a header. */
struct kvr_wire_ids {
	uint64_t source;
	uint64_t id;
	uint64_t handle;
	uint32_t epoch;
	uint32_t msg_seq;
};

/** Write the 48-byte header of the frame that carries body bytes [off, off + frag_len). */
void kvr_hdr_put(void *dst, uint8_t kind, const struct kvr_wire_ids *ids, uint32_t msg_len,
		 uint32_t off, uint16_t frag_len);

/** A piece of a message in the caller's memory. */
struct kvr_slice {
	const void *p;
	uint32_t len;
};

/** Sum of the lengths. */
uint32_t kvr_slices_len(const struct kvr_slice *s, uint32_t n);

/**
 * Copy bytes [off, off + len) of the concatenation of @p s to @p dst.
 * @return 0, or -EMSGSIZE when the range leaves the slices (nothing useful in dst).
 */
int kvr_slices_copy(const struct kvr_slice *s, uint32_t n, uint32_t off, uint32_t len, void *dst);

/**
 * Pointer to bytes [off, off + len): in place when one slice holds them all, else gathered into
 * @p scratch (len bytes; may be NULL to ask for the in-place pointer only).
 * @return NULL when the range leaves the slices, or must be gathered and scratch is NULL. A
 * zero-length range inside the slices gives a non-NULL pointer that must not be read.
 */
const void *kvr_slices_at(const struct kvr_slice *s, uint32_t n, uint32_t off, uint32_t len,
			  void *scratch);

/** Cutting one message into frames; fields are private but `n_frames`. */
struct kvr_frag {
	struct kvr_wire_ids ids;
	uint32_t msg_len;
	uint32_t next;	   /* first byte of the next frame */
	uint32_t unit;	   /* body bytes of every frame but the last */
	uint32_t n_frames; /* frames of the message */
	uint8_t kind;
	bool done;
};

/**
 * Prepare to cut a message of @p msg_len body bytes into frames of at most @p max_frame bytes of
 * UDP payload. All frames but the last carry the same number of body bytes.
 * @return 0; -EINVAL: msg_len not a multiple of 8, max_frame outside [KVR_WIRE_LEAST_MAX_FRAME,
 * KVR_WIRE_MAX_FRAME]; -EMSGSIZE: the kind is not fragmentable and does not fit one frame.
 */
int kvr_frag_init(struct kvr_frag *f, uint8_t kind, const struct kvr_wire_ids *ids,
		  uint32_t msg_len, uint32_t max_frame);

/**
 * Next frame: write its header to @p hdr (48 bytes), and the range of its body bytes to @p off, @p
 * len.
 * @return true, or false after the last frame (nothing written). A message with an
 * empty body has one frame.
 */
bool kvr_frag_next(struct kvr_frag *f, void *hdr, uint32_t *off, uint32_t *len);

/** Continue with fragment number @p k (below n_frames), to send a lost one again. */
static inline void kvr_frag_seek(struct kvr_frag *f, uint32_t k)
{
	f->next = k * f->unit;
	f->done = false;
}

/** Number of fragments so far. */
static inline uint32_t kvr_frag_sent(const struct kvr_frag *f)
{
	return f->done ? f->n_frames : f->next / f->unit;
}

#endif
