/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_HISTORY_H
#define CTL_HISTORY_H

/**
 * @file
 * History of a router over some minutes, from its samples (sample.h): rates as points of curves,
 * and changes of state. The exporter keeps one, so that its page shows the time before it was
 * opened. Pure: no clock, no socket; one thread.
 */

#include <jansson.h>
#include <stdbool.h>

#define HISTORY_POINTS	150u /* five minutes of one sample every two seconds */
#define HISTORY_CHANGES 60u

/** All zero: empty. */
struct history {
	/* Oldest first: {"t", "received", "finished", "rejected", "predicted", "found": per second,
	 * "waiting", "in flight"}, sums of all pools. */
	json_t *points;
	json_t *changes; /* newest first: {"t", "what", "was", "is"}; null: absent */
	json_t *states;	 /* {"worker 7": "serving", ...} in the newest sample */
	bool gone;	 /* no router answered at the newest sample */
};

/**
 * Add a sample.
 * @param was previous sample; NULL: none.
 * @param is new sample; NULL: no router answers.
 * @param t time of the sample, seconds since 1970.
 */
void history_add(struct history *history, const json_t *was, const json_t *is, double t);

/** Release everything and reset to empty. */
void history_clear(struct history *history);

#endif
