/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_FRAMES_H
#define ROUTER_FRAMES_H

/**
 * @file
 * The frames of a message that is complete (struct frame_list). On their way to a scheduler they
 * count in lcore::moved (ingress lcore) and pool::live.taken (scheduler lcore), one writer each.
 * Frames that are not needed any more are freed at most FREE_TURN a turn, 5 to 10 us.
 */

#include "state/router.h"

/** Frames freed in a turn of unfinished messages, and of whole ones. */
#define FREE_TURN 256u

/** The job's frames do not count at its ingress lcore any more: they are freed, or counted as
 * waiting. Idempotent. Scheduler lcore. */
void fragments_taken(struct job *j);

/** No scheduler will take it. The ingress lcore that made it. */
void fragments_back(struct lcore *lc, struct job *j);

/** Free all frames of a message, and the list. Any thread. */
void frames_free(struct frame_list *l);

/** The same: as many at once as this turn of @p lc allows, others over the next ones; at once on
 * the control thread. */
void frames_drop(struct lcore *lc, struct frame_list *l);

/** Go on with that, once a turn. */
void frames_poll(struct lcore *lc);

/** Bytes [off, off + len) of the body of a message, which has as many, to @p dst: its frames but
 * the last carry @p unit bytes, so there is nothing to search. */
void frames_part(struct rte_mbuf *const m[], uint32_t unit, uint32_t off, uint32_t len, void *dst);

#endif
