/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_DRAIN_REQUEST_H
#define KVR_DRAIN_REQUEST_H

/**
 * @file
 * Classification of the drain request in a heartbeat (PROTOCOL.md 9.2): a number in the high half,
 * flags KVR_BEAT_F_* in the low half. Agents number their requests, and a delayed heartbeat carries
 * an older one. Each request is acted on once, so that a later command of an operator stays in
 * effect. An incarnation starts without a request (0). The router stores the last request that it
 * acted on. Pure; any thread; a few cycles.
 */

#include "kvr_wire.h"

#include <stdbool.h>
#include <stdint.h>

enum kvr_drain_request {
	KVR_DRAIN_REQUEST_OLD,	 /**< acted on before, or older */
	KVR_DRAIN_REQUEST_AS_IS, /**< new, but the worker is already in that state: only store it */
	KVR_DRAIN_REQUEST_DRAIN, /**< drain the worker; store it afterwards */
	KVR_DRAIN_REQUEST_RESUME, /**< resume the worker; store it afterwards */
};

/**
 * @param request of the last heartbeat.
 * @param done the last request that was acted on; 0: none.
 * @param state of the worker.
 */
static inline enum kvr_drain_request kvr_drain_request_classify(uint32_t request, uint32_t done,
								enum kvr_wire_worker_state state)
{
	const bool drain = (request & KVR_BEAT_F_DRAIN) != 0;
	const bool drains = state == KVR_WORKER_DRAINING || state == KVR_WORKER_DRAINED;
	const int16_t ahead =
		(int16_t)(uint16_t)((request >> 16) - (done >> 16)); /* the number wraps */

	if (request == 0 || request == done || (done != 0 && ahead <= 0))
		return KVR_DRAIN_REQUEST_OLD;
	return drain == drains ? KVR_DRAIN_REQUEST_AS_IS
	       : drain	       ? KVR_DRAIN_REQUEST_DRAIN
			       : KVR_DRAIN_REQUEST_RESUME;
}

#endif
