/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_OUT_H
#define ROUTER_OUT_H

/**
 * @file
 * What leaves an lcore: frames, refusals and DISPATCH. A frame goes into the lcore's own queue on
 * the port of its path, or, without one, into the egress ring (lcore::out) of the ingress lcore
 * that sends for it; nothing else is kept here. On the lcore that is given, unless said otherwise;
 * its counters are the only words written. Budget: copying is bounded by lcore::send_left, 32 KB of
 * long messages a turn; a frame that is relayed is not copied.
 */

#include "state/router.h"

/** Whether the same message may succeed later. */
enum refusal_retry { RETRY_BY_CODE, RETRY_YES, RETRY_NO };

/** What a REJECTED says; all but `code` may be left 0. */
struct refusal {
	enum kvr_code code;
	enum refusal_retry retry; /* 0: kvr_code_retryable(code) */
	uint64_t handle;	  /* of the refused message; out_reject_frame() fills it in */
	uint64_t detail[4];
	uint16_t policy_class; /* QueueRejected */
	const char *text;      /* for people, cut at 255 bytes; NULL: words for the code */
	uint32_t room; /* bytes the answer may have, source_room(); 0: as many as it needs */
};

/* ---- out_dp.c ---- */

/** Send @p m (data = frame header and body slice) to @p to, cut when the path needs it. */
void out_send(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *to);

/** The same for a frame that is known to fit: out_limit() is not below its length. */
void out_send_fitting(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *to);

/** Send a message of one frame. @p body may be NULL when len is 0. Also on the control thread. */
void out_message(struct lcore *lc, const struct kvr_path *to, uint8_t kind, uint64_t source,
		 uint64_t id, uint64_t handle, const void *body, size_t len);

/** Send @p len bytes that are a whole frame, header included. */
void out_frame(struct lcore *lc, const struct kvr_path *to, const void *frame, size_t len);

/** Send the message of header @p h whose body is @p s, cut as the path needs it. */
void out_slices(struct lcore *lc, const struct kvr_wire_hdr *h, const struct kvr_slice *s,
		uint32_t n, const struct kvr_path *to);

/** Largest frame (UDP payload) on the way to @p to. */
uint32_t out_limit(const struct lcore *lc, const struct kvr_path *to);

/** Count the code of @p why and tell @p to that its message was refused. */
void out_reject(struct lcore *lc, const struct kvr_path *to, uint8_t kind, uint64_t source,
		uint64_t id, const struct refusal *why);

/** The same for a received frame, which it frees; quiet for kinds that are never answered. */
void out_reject_frame(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
		      const struct refusal *why);

/** What the router fills into a ROUTE to make it a DISPATCH. */
struct dispatch_fields {
	uint64_t handle;
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t overlap_blocks;
	uint32_t cached_tokens;
	uint32_t attempt;
	bool direct;   /* the agent may send items to the client itself */
	bool internal; /* its items are for the router: a prefill leg */
	bool trial;    /* its rank is probed after time-outs */
};

/** Send the one frame of @p j as DISPATCH; takes the frame, leaves the job. */
void out_dispatch(struct lcore *lc, struct job *j, const struct kvr_path *to,
		  const struct dispatch_fields *f);

/** Make header and fixed part of the ROUTE of @p j those of a DISPATCH. */
void out_dispatch_fields(const struct lcore *lc, const struct job *j,
			 const struct dispatch_fields *f, struct kvr_wire_hdr *h,
			 struct kvr_wire_request *q);

/** Room for a header and @p len bytes of body in a new frame; NULL is counted. */
struct kvr_wire_hdr *out_frame_new(struct lcore *lc, struct rte_mbuf **m, size_t len);

/** Most bytes of an answer to @p question bytes from @p from, whose address is not proven; 0: any
 * number. */
uint32_t source_room(const struct router *rt, const struct kvr_path *from, uint32_t question);

/** Send the frames that other lcores left in this lcore's egress ring. @return frames. */
uint32_t out_egress(struct lcore *lc);

/** Keep the sender's path with a frame that goes through a ring, in its headroom. */
void path_keep(struct rte_mbuf *m, const struct kvr_path *path);
const struct kvr_path *path_kept(const struct rte_mbuf *m);

#endif
