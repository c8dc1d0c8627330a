/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_FRAME_KIND_H
#define ROUTER_FRAME_KIND_H

/**
 * @file
 * Handlers of each kind of frame: a row of loop/frame_kinds.c. The format of a kind, its allowed
 * senders, and whether rejections are answered are in lib/wire (struct kvr_kind_info); handlers get
 * frames that passed those checks. Constant, one load per frame.
 */

#include "lcore/out.h"

/** A frame for control; its body has been checked by kvr_body_check(). */
struct ctl_frame {
	const struct kvr_wire_hdr *hdr;
	const uint8_t *body;
	const struct kvr_path *path;
	uint32_t len;	     /* of the frame */
	struct ctl_buf *buf; /* NULL: another thread has taken it and answers */
};

struct frame_kind {
	/** On the receiving ingress lcore: takes the frame and counts it in one term of `frames`.
	 * NULL: never sent to a router. */
	void (*ingress)(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);
	/** On the control thread, if ingress passes the kind on; else NULL. Fills *why on
	 * rejection. */
	void (*control)(struct router *rt, struct ctl_frame *f, struct rejection *why);
	/** May be fragmented: its body is checked when the message is complete. */
	bool in_parts;
};

/** By enum kvr_wire_kind, below KVR_WIRE_KIND_MAX. */
extern const struct frame_kind frame_kinds[];

#endif
