/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_OUT_H
#define ROUTER_OUT_H

/**
 * @file
 * Sending from an lcore: frames, rejections and DISPATCH. A frame goes to the lcore's own queue of
 * the port of its path, or to the egress ring (lcore::out) of the ingress lcore that sends for it.
 * The functions run on the lcore that they are given, and write only its counters. Budget:
 * lcore::send_left bounds copying to 32 KB of long messages a turn; relayed frames are not copied.
 */

#include "state/router.h"

/** Whether the same message may succeed later. */
enum rejection_retry { RETRY_BY_CODE, RETRY_YES, RETRY_NO };

/** Content of a REJECTED; all fields but `code` may be 0. */
struct rejection {
	enum kvr_code code;
	enum rejection_retry retry; /* 0: as kvr_code_retryable(code) */
	uint64_t handle;	    /* of the rejected message; set by out_reject_frame() */
	uint64_t detail[4];
	uint16_t policy_class; /* for QueueRejected */
	const char *text; /* reason for people, cut at 255 bytes; NULL: the words for the code */
	uint32_t room;	  /* largest answer in bytes, out_answer_limit(); 0: no limit */
};

/* ---- out_dp.c ---- */

/** Send @p m (data at the frame header, then the body slice) to @p to, fragmented if the path needs
 * it. */
void out_send(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *to);

/** The same for a frame of at most out_limit() bytes. */
void out_send_fitting(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *to);

/** Send a message of one frame. @p body may be NULL if len is 0. Also on the control thread. */
void out_message(struct lcore *lc, const struct kvr_path *to, uint8_t kind, uint64_t source,
		 uint64_t id, uint64_t handle, const void *body, size_t len);

/** Send @p len bytes that are a complete frame. */
void out_frame(struct lcore *lc, const struct kvr_path *to, const void *frame, size_t len);

/** Send the message with header @p hdr and body @p s, fragmented if the path needs it. */
void out_slices(struct lcore *lc, const struct kvr_wire_hdr *hdr, const struct kvr_slice *s,
		uint32_t n, const struct kvr_path *to);

/** Largest frame (UDP payload) on the path to @p to. */
uint32_t out_limit(const struct lcore *lc, const struct kvr_path *to);

/** Count the code of @p why and send the rejection to @p to. */
void out_reject(struct lcore *lc, const struct kvr_path *to, uint8_t kind, uint64_t source,
		uint64_t id, const struct rejection *why);

/** The same for a received frame, which is freed. Kinds that are never answered are only counted.
 */
void out_reject_frame(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
		      const struct rejection *why);

/** Fields that the router sets to turn a ROUTE into a DISPATCH. */
struct dispatch_fields {
	uint64_t handle;
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t overlap_blocks;
	uint32_t cached_tokens;
	uint32_t attempt;
	bool direct;   /* the agent may send items to the client directly */
	bool internal; /* its items go to the router: a prefill leg */
	bool trial;    /* probe of a rank after timeouts */
};

/** Send the one frame of @p job as DISPATCH; takes the frame, not the job. */
void out_dispatch(struct lcore *lc, struct job *job, const struct kvr_path *to,
		  const struct dispatch_fields *f);

/** Turn header and fixed part of the ROUTE of @p job into those of a DISPATCH. */
void out_dispatch_fields(const struct lcore *lc, const struct job *job,
			 const struct dispatch_fields *f, struct kvr_wire_hdr *hdr,
			 struct kvr_wire_request *q);

/** Allocate a frame for a header and @p len bytes of body; failure (NULL) is counted. */
struct kvr_wire_hdr *out_frame_new(struct lcore *lc, struct rte_mbuf **m, size_t len);

/** Largest answer in bytes to @p question bytes from the unvalidated address @p from; 0: no limit.
 */
uint32_t out_answer_limit(const struct router *rt, const struct kvr_path *from, uint32_t question);

/** Send the frames that other lcores put into this lcore's egress ring. @return frames. */
uint32_t out_egress(struct lcore *lc);

/** Store the sender's path in the headroom of a frame that goes through a ring, and read it. */
void path_keep(struct rte_mbuf *m, const struct kvr_path *path);
const struct kvr_path *path_kept(const struct rte_mbuf *m);

#endif
