/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_KINDS_H
#define ROUTER_KINDS_H

/**
 * @file
 * Who serves each kind of frame: a row of loop/frame_kinds.c. What a kind looks like, who may send
 * it to whom and whether a refusal is answered stands in lib/wire (struct kvr_kind_info); a frame
 * comes here when it is as that says. Constant; every thread reads it, one load a frame.
 */

#include "lcore/out.h"

/** A frame for control; its body has been checked by kvr_body_check(). */
struct ctl_frame {
	const struct kvr_wire_hdr *hdr;
	const uint8_t *body;
	const struct kvr_path *path;
	uint32_t len;	     /* of the frame */
	struct ctl_buf *buf; /* NULL: somebody else answers, and has taken it */
};

struct frame_kind {
	/** On the ingress lcore it came to: takes the frame, and counts it in one of the terms of
	 * `frames`. NULL: nobody sends it to a router. */
	void (*ingress)(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);
	/** On the control thread, for those that ingress hands on; else NULL. Says in *why when it
	 * refuses. */
	void (*control)(struct router *rt, struct ctl_frame *f, struct refusal *why);
	/** May come in fragments: its body is checked when all of it is here. */
	bool in_parts;
};

/** By enum kvr_wire_kind, below KVR_WIRE_KIND_MAX. */
extern const struct frame_kind frame_kinds[];

#endif
