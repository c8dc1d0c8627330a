/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_FRAMES_H
#define ROUTER_FRAMES_H

/**
 * @file
 * Frames of a complete message (struct frame_list). On their way to a scheduler they are counted in
 * lcore::moved (written by the ingress lcore) and pool::live.taken (written by the scheduler
 * lcore). At most FREE_TURN unneeded frames are freed in a turn: 5 to 10 us.
 */

#include "state/router.h"

/** Frames freed in a turn, each of incomplete and of complete messages. */
#define FREE_TURN 256u

/** The job's frames no longer count at the ingress lcore: they are freed, or counted as waiting.
 * Idempotent. Scheduler lcore. */
void frames_count_taken(struct job *job);

/** Undo the count: no scheduler takes the job. Ingress lcore that made it. */
void frames_count_back(struct lcore *lc, struct job *job);

/** Free all frames of a message and the list at once. Any thread. */
void frames_free(struct frame_list *list);

/** The same, at most as many frames as this turn of @p lc allows, the others in later turns. At
 * once on the control thread. */
void frames_drop(struct lcore *lc, struct frame_list *list);

/** Continue frames_drop(); once a turn. */
void frames_poll(struct lcore *lc);

/** Copy bytes [off, off + len) of the body of a message, which must exist, to @p dst. All frames
 * but the last carry @p unit bytes. */
void frames_copy(struct rte_mbuf *const m[], uint32_t unit, uint32_t off, uint32_t len, void *dst);

#endif
