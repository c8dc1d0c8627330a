/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_QUIET_H
#define AGENT_QUIET_H

/**
 * @file
 * An engine that stands still: its kernel takes connections and requests, and nothing comes of
 * any. /health alone needs three looks for that, as one that is slow may be busy; whoever has
 * brought anything is not meant here. Looks alone say so, at /health and /metrics: what a request
 * asks for may take any time. Pure; zeroed to begin with.
 */

#include <stdbool.h>
#include <stdint.h>

#define AGENT_QUIET_GAP_US 1000000u /* we look more often, unless we stand still ourselves */

struct agent_quiet {
	uint64_t asked_us;  /* the first time since it was heard last; 0: not since */
	uint64_t looked_us; /* when time was looked at last */
	uint64_t heard_us;
};

/** It is asked what it answers at once. @param now_us not 0. */
static inline void agent_quiet_asked(struct agent_quiet *q, uint64_t now_us)
{
	if (q->asked_us == 0)
		q->asked_us = now_us;
}

/** It has brought something. */
static inline void agent_quiet_heard(struct agent_quiet *q, uint64_t now_us)
{
	q->asked_us = 0;
	q->heard_us = now_us;
}

/** Whether it has brought nothing for @p most_us, and nobody has asked it: who waits for it had
 * better look. */
static inline bool agent_quiet_look(const struct agent_quiet *q, uint64_t now_us, uint64_t most_us)
{
	return q->asked_us == 0 && now_us - q->heard_us >= most_us;
}

/**
 * To be asked in each turn, when what has come is read: time in which there was no turn is not the
 * engine's.
 * @return whether it has been asked for @p most_us and has brought nothing.
 */
static inline bool agent_quiet_turn(struct agent_quiet *q, uint64_t now_us, uint64_t most_us)
{
	const uint64_t gap = now_us - q->looked_us;

	q->looked_us = now_us;
	if (q->asked_us == 0)
		return false;
	if (gap > AGENT_QUIET_GAP_US)
		q->asked_us = q->asked_us + gap < now_us ? q->asked_us + gap : now_us;
	return now_us - q->asked_us >= most_us;
}

#endif
