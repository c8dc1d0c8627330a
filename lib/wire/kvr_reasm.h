/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_REASM_H
#define KVR_REASM_H

/**
 * @file
 * Reassembly of fragmented messages, without copying: a message is complete when all its frames
 * are held, and is then returned as the list of its frames.
 *
 * A partial message is found by (peer, source, kind, id, handle, msg_seq) in a chained hash table
 * with a secret seed. All fragments but the last carry the same number of body bytes (`unit`), so
 * the place of a fragment is frag_off / unit: one division, in any order of arrival. Places
 * are in pages of 64 with one presence mask each; a message owns a table of page numbers. A last
 * fragment that comes first is kept aside until another fragment gives the unit.
 *
 *   entry: key, msg_len, unit, tail, pages[] -> page: present mask, 64 x {frame, data}
 *   peer:  what one source holds            (frames, bytes, messages)
 *   age list of entries: oldest first, for eviction
 *   quiet lists: entries by the time of their last fragment, longest ago first; and entries that
 *          were asked for since. For MISSING and for expiry.
 *   done:  names of recently completed messages, so that late copies do not start them anew
 *
 * Bounds: frames, bytes, messages in total; the same per source, which may include several senders
 * (an address with all ports). At the bound of a source its youngest message makes room for
 * fragments of its older ones, and its other fragments are refused: otherwise only incomplete
 * messages would remain until they expire. Above a total bound (also that of a source whose
 * quota is all frames) the oldest partial messages are dropped, so that a flood of first
 * fragments cannot lock others out. A message expires when no new fragment has come for the
 * time limit. Every fragment costs one hash lookup and one store, about 35 ns, in order or not; the
 * default limits take 6.5 MB.
 *
 * One owner thread (a packet lcore); memory is allocated by create only. Frames are opaque
 * references: reassembly never reads them, and returns each accepted frame exactly once, with a
 * complete message or through the drop callback.
 */

#include "kvr_frame.h"
#include "kvr_stats.h"

struct kvr_reasm;

/** Sender of a frame, compared as bytes. The caller may leave the port out. */
struct kvr_peer {
	uint8_t b[20];
};

/** Most words of a bitmap of missing fragments that fit a frame of the usual size. */
#define KVR_REASM_LACK_WORDS                                                                       \
	((KVR_WIRE_DEF_FRAME - KVR_WIRE_MIN_FRAME - sizeof(struct kvr_wire_missing)) / 8)

/** Sizes and limits; 0 = the default in brackets. */
struct kvr_reasm_conf {
	uint32_t max_messages;	    /* partial messages [1024] */
	uint32_t max_frames;	    /* frames held in total [65536] */
	uint64_t max_bytes;	    /* body bytes held in total [256 MiB] */
	uint32_t peer_max_messages; /* of one peer [256] */
	uint32_t peer_max_frames;   /* of one peer [KVR_WIRE_MAX_FRAGMENTS, at most max_frames] */
	uint64_t peer_max_bytes;    /* of one peer [4 largest messages] */
	uint32_t msg_max_frames;    /* fragments of one message [KVR_WIRE_MAX_FRAGMENTS] */
	uint32_t remember;	    /* recently completed messages, a power of two [0: none] */
	uint64_t
		timeout; /* in units of `now`, from the last new fragment, or completion; never 0 */
	uint64_t quiet;	 /* time without a fragment before MISSING [never] */
	uint64_t seed;	 /* random per start */
	bool resident;	 /* touch all memory at creation, to avoid page faults later */
	/** Source that a sender's frames are counted for. NULL: the sender. */
	struct kvr_peer (*share)(const struct kvr_peer *peer);
	/** Return a frame of a dropped message to the caller. Must not call reasm. */
	void (*drop)(void *arg, void *frame);
	void *drop_arg;
};

/** One frame of a complete message, in order of offset. */
struct kvr_reasm_frag {
	void *frame;	  /* of kvr_reasm_add() */
	const void *data; /* its body bytes */
	uint32_t off;
	uint32_t len;
};

/** A complete message; `frag` is valid until the next call on the same kvr_reasm. */
struct kvr_reasm_msg {
	const struct kvr_reasm_frag *frag;
	uint32_t n_frags;
	uint32_t len;	   /* body bytes */
	enum kvr_code why; /* KVR_REASM_REFUSED: the code; the rest is not set */
};

/** Missing fragments of a message: `len` bytes from `missing` on are the body of MISSING. */
struct kvr_reasm_lack {
	void *frame; /* a held frame, for header and sender */
	uint32_t len;
	uint32_t pad;
	struct kvr_wire_missing missing;
	uint64_t word[KVR_REASM_LACK_WORDS];
};

/** Counters; one writer. Whole frames are not counted. The equations in reasm.c hold between calls.
 */
#define KVR_REASM_COUNTER_LIST(X)                                                                  \
	X(KVR_REASM_C_FRAGMENTS, fragments, COUNT, "frames", "fragments given to reassembly")      \
	X(KVR_REASM_C_ACCEPTED, accepted, COUNT, "frames", "fragments that were new")              \
	X(KVR_REASM_C_DUPLICATES, duplicates, COUNT, "frames",                                     \
	  "fragments already held, or of completed messages")                                      \
	X(KVR_REASM_C_REFUSED_FRAGMENT, refused_fragment, COUNT, "frames",                         \
	  "fragments with overlap, another length or unit")                                        \
	X(KVR_REASM_C_REFUSED_FULL, refused_full, COUNT, "frames",                                 \
	  "fragments refused for lack of room")                                                    \
	X(KVR_REASM_C_REFUSED_LARGE, refused_large, COUNT, "frames",                               \
	  "fragments of messages above the limit")                                                 \
	X(KVR_REASM_C_DELIVERED, delivered_frames, COUNT, "frames",                                \
	  "fragments of completed messages")                                                       \
	X(KVR_REASM_C_DROPPED, dropped_frames, COUNT, "frames", "fragments of dropped messages")   \
	X(KVR_REASM_C_STARTED, started, COUNT, "messages", "messages begun")                       \
	X(KVR_REASM_C_COMPLETED, completed, COUNT, "messages", "messages completed")               \
	X(KVR_REASM_C_EXPIRED, expired, COUNT, "messages", "messages dropped: expired")            \
	X(KVR_REASM_C_EVICTED, evicted, COUNT, "messages", "messages dropped for room")            \
	X(KVR_REASM_C_FLUSHED, flushed, COUNT, "messages", "messages dropped at a flush")          \
	X(KVR_REASM_C_ASKED, asked, COUNT, "messages", "MISSING sent for a message")               \
	X(KVR_REASM_C_MESSAGES, messages, GAUGE, "messages",                                       \
	  "messages begun and not complete now")                                                   \
	X(KVR_REASM_C_FRAMES, frames, GAUGE, "frames", "fragments held now")                       \
	X(KVR_REASM_C_BYTES, bytes, GAUGE, "bytes", "bytes held now")
enum kvr_reasm_counter { KVR_REASM_COUNTER_LIST(KVR_COUNTER_ENUM) KVR_REASM_COUNTERS };
struct kvr_reasm_stats {
	KVR_REASM_COUNTER_LIST(KVR_COUNTER_FIELD)
};
extern const struct kvr_stats_def kvr_reasm_stats_def;

enum kvr_reasm_result {
	KVR_REASM_HELD = 0,	 /* the frame is held */
	KVR_REASM_COMPLETE = 1,	 /* *out lists all frames, this one too; the caller owns them */
	KVR_REASM_DUPLICATE = 2, /* already held; the caller keeps the frame */
	KVR_REASM_DONE = 3,	 /* of a completed message; the caller keeps the frame */
	KVR_REASM_REFUSED = 4,	 /* out->why is the code; the caller keeps the frame */
};

/**
 * Allocate everything.
 * @return NULL with errno: EINVAL (no timeout, no drop, or limits that contradict), ENOMEM.
 */
struct kvr_reasm *kvr_reasm_create(const struct kvr_reasm_conf *conf);

/** Drop all partial messages through the callback and free. NULL is allowed. */
void kvr_reasm_destroy(struct kvr_reasm *r);

/** Bytes that create allocates for @p conf; 0 if it is invalid. */
size_t kvr_reasm_footprint(const struct kvr_reasm_conf *conf);

/**
 * Add one frame that passed kvr_frame_check(). A frame that carries its whole message completes
 * at once and touches no table.
 * @param hdr its header; only the header is read.
 * @param data its body bytes, given back in the message (not read).
 * @param now time, never decreasing.
 * @return the result. Reasons of a refusal: KVR_E_FRAGMENT (contradicts held fragments),
 * KVR_E_REASSEMBLY_FULL or KVR_E_TOO_LARGE (more fragments than msg_max_frames).
 */
enum kvr_reasm_result kvr_reasm_add(struct kvr_reasm *r, const struct kvr_peer *peer,
				    const struct kvr_wire_hdr *hdr, const void *data, void *frame,
				    uint64_t now, struct kvr_reasm_msg *out);

/** Forget that the message of @p hdr was completed: its fragments are accepted again. */
void kvr_reasm_forget(struct kvr_reasm *r, const struct kvr_peer *peer,
		      const struct kvr_wire_hdr *hdr);

/**
 * True if the message has more than msg_max_frames fragments, judged by this one: kvr_reasm_add()
 * would refuse it for KVR_E_TOO_LARGE. Reads the limits only.
 */
bool kvr_reasm_too_long(const struct kvr_reasm *r, const struct kvr_wire_hdr *h);

/**
 * Limit the frames of dropped messages that are freed from now until the next call to @p frames,
 * for any number of messages. The remaining frames are freed by later calls; until then they count
 * as held and occupy their room, while their messages are forgotten. There is no limit until the
 * first call, nor for kvr_reasm_flush().
 */
void kvr_reasm_allow(struct kvr_reasm *r, uint32_t frames);

/**
 * Drop expired partial messages, at most @p max of them; call it once per loop.
 * @return their number.
 */
uint32_t kvr_reasm_expire(struct kvr_reasm *r, uint64_t now, uint32_t max);

/**
 * Next message without recent fragments, for MISSING. Each is returned once, until another fragment
 * of it (or a copy) has come. MISSING is not longer than the frames that came since the last one.
 * @return true: *out is filled.
 */
bool kvr_reasm_lacking(struct kvr_reasm *r, uint64_t now, struct kvr_reasm_lack *out);

/** Time of the next result of kvr_reasm_lacking() without further fragments; UINT64_MAX: never. */
uint64_t kvr_reasm_quiet_at(const struct kvr_reasm *r);

/** Drop the @p max oldest partial messages, for lack of memory. Remaining frames of messages that
 * were dropped before are freed first. @return the number of messages. */
uint32_t kvr_reasm_evict(struct kvr_reasm *r, uint32_t max);

/** Drop all partial messages, e.g. before a port stops. @return their number. */
uint32_t kvr_reasm_flush(struct kvr_reasm *r);

const struct kvr_reasm_stats *kvr_reasm_stats(const struct kvr_reasm *r);

#endif
