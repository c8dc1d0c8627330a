/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_ENDED_H
#define LOAD_ENDED_H

/**
 * @file
 * Frames of a request that has ended for its client (PROTOCOL.md, 6.3, rows END). An item is
 * acknowledged, otherwise its engine would repeat it. ACCEPTED is answered with CANCEL, otherwise
 * the request would run without a client. No state; load lcore; at most one frame is sent.
 */

#include "load.h"

/** Whether an item needs an acknowledgement only, whatever items are missing before it. */
static inline bool load_ended_unwanted(const struct load_slot *s,
				       const struct kvr_wire_response *item)
{
	return s->cstate == LOAD_C_ENDED ||
	       (s->cstate == LOAD_C_CANCELLING && (item->flags & KVR_RESP_F_FIN) != 0);
}

/** Handle a checked ACCEPTED or RESPONSE of an ended request. Other kinds are ignored. */
void load_ended_frame(struct load *l, const struct kvr_wire_hdr *h);

#endif
