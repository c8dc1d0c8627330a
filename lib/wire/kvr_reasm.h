/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_REASM_H
#define KVR_REASM_H

/**
 * @file
 * Reassembly of fragmented messages, without copying: a message is complete when all its frames
 * are held, and is then handed over as the list of them.
 *
 * A partial message is found by (peer, source, kind, id, handle, msg_seq) in a chained hash table
 * with a secret seed. All fragments but the last carry the same number of body bytes (`unit`), so
 * the place of a fragment is frag_off / unit: one division, whatever the order of arrival. Places
 * live in pages of 64 with one presence mask each; a message owns a table of page numbers. A last
 * fragment that comes first waits aside until another one tells the unit.
 *
 *   entry: key, msg_len, unit, tail, pages[] -> page: present mask, 64 x {frame, data}
 *   peer:  what one source holds            (frames, bytes, messages)
 *   age list of entries: oldest first, for eviction
 *   quiet lists: entries that a fragment has come to, longest ago first; and those that have been
 *          asked for since. For questions (MISSING) and for expiry.
 *   done:  names of messages completed lately, so that late copies do not begin them anew
 *
 * Bounds: frames, bytes, messages in total; the same per source, of which one sender may be only a
 * part (its address without the port). At the bound of a source its youngest message makes room for
 * fragments of its older ones, and all others of it are refused: else messages of which none can
 * become whole would wait for the time limit. Above a total bound (which is that of a source whose
 * share is all frames, too) the oldest partial messages are dropped, so that a flood of first
 * fragments cannot lock others out. A message is given up when nothing new has come to it for the
 * time limit. Every fragment costs one hash lookup and one store, about 35 ns, in order or not; the
 * default limits take 6.5 MB.
 *
 * One owner thread (a packet lcore); memory is allocated by create only. Frames are opaque
 * references: reassembly never reads them and returns every one it accepted exactly once, with a
 * complete message or through the drop callback.
 */

#include "kvr_frame.h"
#include "kvr_stats.h"

struct kvr_reasm;

/** Who sent a frame: compared as bytes. The caller decides whether the port is part of it. */
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
	uint32_t remember;	    /* messages completed lately, a power of two [0: none] */
	uint64_t
		timeout; /* in units of `now`, from the last new fragment, or completion; never 0 */
	uint64_t quiet;	 /* a message to which nothing came for so long is asked for [never] */
	uint64_t seed;	 /* random per start */
	bool resident;	 /* touch all memory now: its thread, a packet lcore, has no page faults */
	/** Whose share a sender's frames count in. NULL: its own. */
	struct kvr_peer (*share)(const struct kvr_peer *peer);
	/** Takes back one frame of a message that will not be completed. May not call reasm. */
	void (*drop)(void *arg, void *frame);
	void *drop_arg;
};

/** One frame of a complete message, in order of offset. */
struct kvr_reasm_frag {
	void *frame;	  /* as given to kvr_reasm_add() */
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

/** What a message lacks; the body of a MISSING is the `len` bytes from `missing` on. */
struct kvr_reasm_lack {
	void *frame; /* one that is held, to learn header and sender from */
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
	  "fragments held already, or of completed messages")                                      \
	X(KVR_REASM_C_REFUSED_FRAGMENT, refused_fragment, COUNT, "frames",                         \
	  "fragments that overlap, or say another length or unit")                                 \
	X(KVR_REASM_C_REFUSED_FULL, refused_full, COUNT, "frames",                                 \
	  "fragments for which there was no room")                                                 \
	X(KVR_REASM_C_REFUSED_LARGE, refused_large, COUNT, "frames",                               \
	  "fragments of messages of more than may be")                                             \
	X(KVR_REASM_C_DELIVERED, delivered_frames, COUNT, "frames",                                \
	  "fragments of completed messages")                                                       \
	X(KVR_REASM_C_DROPPED, dropped_frames, COUNT, "frames", "fragments of messages given up")  \
	X(KVR_REASM_C_STARTED, started, COUNT, "messages", "messages begun")                       \
	X(KVR_REASM_C_COMPLETED, completed, COUNT, "messages", "messages completed")               \
	X(KVR_REASM_C_EXPIRED, expired, COUNT, "messages", "messages given up: out of time")       \
	X(KVR_REASM_C_EVICTED, evicted, COUNT, "messages", "messages given up for room")           \
	X(KVR_REASM_C_FLUSHED, flushed, COUNT, "messages", "messages given up with all")           \
	X(KVR_REASM_C_ASKED, asked, COUNT, "messages", "questions for what a message lacks")       \
	X(KVR_REASM_C_MESSAGES, messages, GAUGE, "messages",                                       \
	  "messages begun and not complete now")                                                   \
	X(KVR_REASM_C_FRAMES, frames, GAUGE, "frames", "fragments held now")                       \
	X(KVR_REASM_C_BYTES, bytes, GAUGE, "bytes", "bytes of them")
enum kvr_reasm_counter { KVR_REASM_COUNTER_LIST(KVR_COUNTER_ENUM) KVR_REASM_COUNTERS };
struct kvr_reasm_stats {
	KVR_REASM_COUNTER_LIST(KVR_COUNTER_FIELD)
};
extern const struct kvr_stats_def kvr_reasm_stats_def;

enum kvr_reasm_result {
	KVR_REASM_HELD = 0,	 /* the frame is kept */
	KVR_REASM_COMPLETE = 1,	 /* *out lists all frames, this one too; they are the caller's */
	KVR_REASM_DUPLICATE = 2, /* already held; the frame stays the caller's */
	KVR_REASM_DONE = 3,	 /* its message has been completed; the frame stays the caller's */
	KVR_REASM_REFUSED = 4,	 /* for out->why; the frame stays the caller's */
};

/**
 * Allocate everything.
 * @return NULL with errno: EINVAL (no timeout, no drop, or limits that contradict), ENOMEM.
 */
struct kvr_reasm *kvr_reasm_create(const struct kvr_reasm_conf *conf);

/** Drop all partial messages through the callback and free. NULL is allowed. */
void kvr_reasm_destroy(struct kvr_reasm *r);

/** Bytes that create allocates for @p conf, 0 when it is not valid. */
size_t kvr_reasm_footprint(const struct kvr_reasm_conf *conf);

/**
 * Add one frame that passed kvr_frame_check(). A frame that carries its whole message completes
 * at once and touches no table.
 * @param hdr its header; only the header is read.
 * @param data its body bytes, given back in the message (not read).
 * @param now time, never decreasing.
 * @return what has become of it. Refused for KVR_E_FRAGMENT (contradicts fragments held),
 * KVR_E_REASSEMBLY_FULL or KVR_E_TOO_LARGE (more fragments than msg_max_frames).
 */
enum kvr_reasm_result kvr_reasm_add(struct kvr_reasm *r, const struct kvr_peer *peer,
				    const struct kvr_wire_hdr *hdr, const void *data, void *frame,
				    uint64_t now, struct kvr_reasm_msg *out);

/** The message of @p hdr, whole already, is wanted once more: its fragments are taken again. */
void kvr_reasm_forget(struct kvr_reasm *r, const struct kvr_peer *peer,
		      const struct kvr_wire_hdr *hdr);

/**
 * Whether the fragment's message has more fragments than msg_max_frames, as far as this one tells:
 * kvr_reasm_add() would refuse it for KVR_E_TOO_LARGE. Looks at the limits only.
 */
bool kvr_reasm_too_long(const struct kvr_reasm *r, const struct kvr_wire_hdr *h);

/**
 * Frames of messages that have been given up are freed as far as this allows: at most @p frames
 * from now until the next call, however many messages go. Those that are left are freed by the
 * calls that follow, count as held, and need their room; the messages are not known any more. Until
 * the first call there is no limit. kvr_reasm_flush() has none.
 */
void kvr_reasm_allow(struct kvr_reasm *r, uint32_t frames);

/**
 * Give up partial messages older than the timeout, at most @p max of them; call it once per loop.
 * @return how many were given up.
 */
uint32_t kvr_reasm_expire(struct kvr_reasm *r, uint64_t now, uint32_t max);

/**
 * Next message that has been quiet, to be asked for. Each is given once, until another fragment of
 * it (or a copy of one) has come. The question is not longer than what has come since the last one.
 * @return true: *out is filled.
 */
bool kvr_reasm_lacking(struct kvr_reasm *r, uint64_t now, struct kvr_reasm_lack *out);

/** When kvr_reasm_lacking() has something to say if nothing comes; UINT64_MAX: never. */
uint64_t kvr_reasm_quiet_at(const struct kvr_reasm *r);

/** Give up the @p max oldest partial messages: memory is short. While frames of messages given up
 * before are left, those are freed first. @return how many were given up. */
uint32_t kvr_reasm_evict(struct kvr_reasm *r, uint32_t max);

/** Drop everything partial, e.g. before a port stops. @return how many messages. */
uint32_t kvr_reasm_flush(struct kvr_reasm *r);

const struct kvr_reasm_stats *kvr_reasm_stats(const struct kvr_reasm *r);

#endif
