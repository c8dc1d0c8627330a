/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_TRAIL_H
#define CTL_TRAIL_H

/**
 * @file
 * What became of a router over some minutes, from the looks at it (snap.h): rates as points of
 * curves, and what changed its state. The exporter keeps one for its page, so that a page that was
 * opened just now shows what has happened before. Pure: no clock, no socket; one thread.
 */

#include <jansson.h>
#include <stdbool.h>

#define TRAIL_POINTS  150u /* five minutes of a look every other second */
#define TRAIL_CHANGES 60u

/** Zeroed it is empty. */
struct trail {
	/* Oldest first: {"t", "asked", "done", "refused", "predicted", "found": each a second,
	 * "waiting", "live"}, sums of all pools. */
	json_t *points;
	json_t *changes; /* newest first: {"t", "what", "was", "is"}; null: not there */
	json_t *states;	 /* {"worker 7": "serving", ...} at the newest look */
	bool gone;	 /* at the newest look no router answered */
};

/**
 * A look was taken.
 * @param was the look before it, NULL: there is none, or there was no router.
 * @param is the look, NULL: no router answers.
 * @param t seconds since 1970, of the look.
 */
void trail_add(struct trail *tr, const json_t *was, const json_t *is, double t);

/** Give everything back; it is empty then. */
void trail_clear(struct trail *tr);

#endif
