/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_HANG_DETECTOR_H
#define AGENT_HANG_DETECTOR_H

/**
 * @file
 * Detection of an engine that hangs: its kernel accepts connections and requests, but no data
 * arrive. /health alone needs three failures, because one may be slow. An engine that sends
 * anything is not hanging. Only probes of /health and /metrics count, because a request may take
 * any time. Pure; zeroed at start.
 */

#include <stdbool.h>
#include <stdint.h>

#define AGENT_HANG_GAP_US                                                                          \
	1000000u /* longest interval between turns, unless the agent itself was stopped */

struct agent_hang {
	uint64_t probed_us; /* first probe since the last data; 0: none */
	uint64_t turned_us; /* last turn */
	uint64_t received_us;
};

/** A probe was sent, which a working engine answers at once. @param now_us not 0. */
static inline void agent_hang_probed(struct agent_hang *q, uint64_t now_us)
{
	if (q->probed_us == 0)
		q->probed_us = now_us;
}

/** Data were received. */
static inline void agent_hang_received(struct agent_hang *q, uint64_t now_us)
{
	q->probed_us = 0;
	q->received_us = now_us;
}

/** Return true if no data arrived for @p most_us and no probe is unanswered: a probe is needed. */
static inline bool agent_hang_needs_probe(const struct agent_hang *q, uint64_t now_us,
					  uint64_t most_us)
{
	return q->probed_us == 0 && now_us - q->received_us >= most_us;
}

/**
 * Call in each turn after reading: an interval without turns does not count against the engine.
 * @return true if a probe was unanswered for @p most_us without any data.
 */
static inline bool agent_hang_detect(struct agent_hang *q, uint64_t now_us, uint64_t most_us)
{
	const uint64_t gap = now_us - q->turned_us;

	q->turned_us = now_us;
	if (q->probed_us == 0)
		return false;
	if (gap > AGENT_HANG_GAP_US)
		q->probed_us = q->probed_us + gap < now_us ? q->probed_us + gap : now_us;
	return now_us - q->probed_us >= most_us;
}

#endif
