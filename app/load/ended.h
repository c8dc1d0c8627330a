/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_LATE_H
#define LOAD_LATE_H

/**
 * @file
 * What comes for a request that is over for its client (PROTOCOL.md, 6.3, the rows of END): an item
 * is acknowledged, or its engine would repeat it, and ACCEPTED is answered with CANCEL, or the
 * request would run for nobody. Nothing is kept; load lcore, one frame sent at the most.
 */

#include "load.h"

/** Must an item only be acknowledged, whatever is missing before it? */
static inline bool load_late_unwanted(const struct load_slot *s,
				      const struct kvr_wire_response *item)
{
	return s->cstate == LOAD_C_ENDED ||
	       (s->cstate == LOAD_C_CANCELLING && (item->flags & KVR_RESP_F_FIN) != 0);
}

/** A checked frame, ACCEPTED or RESPONSE, of a request that is over; others are left alone. */
void load_late_frame(struct load *l, const struct kvr_wire_hdr *h);

#endif
