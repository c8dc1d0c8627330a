/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_DRAIN_REQUEST_H
#define KVR_DRAIN_REQUEST_H

/**
 * @file
 * What to do about the wish of a heartbeat (PROTOCOL.md 9.2): its number in the high half, flags
 * KVR_BEAT_F_* in the low one. Agents number their wishes, and a heartbeat that was late has an
 * older one; each is acted on once, so that an operator's word after it stands. A life begins
 * without one (0). No data: the router keeps the last wish it has acted on. Pure; any thread; a few
 * cycles.
 */

#include "kvr_wire.h"

#include <stdbool.h>
#include <stdint.h>

enum kvr_drain_request {
	KVR_DRAIN_REQUEST_OLD,	  /**< acted on before, or older than that */
	KVR_DRAIN_REQUEST_AS_IS,  /**< new, and the worker is so already: only remember it */
	KVR_DRAIN_REQUEST_DRAIN,  /**< no new requests; remember it when that is done */
	KVR_DRAIN_REQUEST_RESUME, /**< requests again; the same */
};

/**
 * @param wish of the last heartbeat. @param done the last one that was acted on, 0 none.
 * @param state of the worker.
 */
static inline enum kvr_drain_request kvr_drain_request_classify(uint32_t wish, uint32_t done,
								enum kvr_wire_worker_state state)
{
	const bool drain = (wish & KVR_BEAT_F_DRAIN) != 0;
	const bool drains = state == KVR_WORKER_DRAINING || state == KVR_WORKER_DRAINED;
	const int16_t ahead = (int16_t)(uint16_t)((wish >> 16) - (done >> 16)); /* it wraps */

	if (wish == 0 || wish == done || (done != 0 && ahead <= 0))
		return KVR_DRAIN_REQUEST_OLD;
	return drain == drains ? KVR_DRAIN_REQUEST_AS_IS
	       : drain	       ? KVR_DRAIN_REQUEST_DRAIN
			       : KVR_DRAIN_REQUEST_RESUME;
}

#endif
