/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_PROMPTS_H
#define ROUTER_PROMPTS_H

/**
 * @file
 * Long prompts: matching, booking or freeing the 62,500 blocks of a 4 MB message takes 60 to 100
 * us, too long for a turn. lib/sched does it in slices ("long prompts in slices" in kvr_sched.h);
 * this file decides what waits in the meantime.
 *
 * A pool is *busy* while its load model is in the middle of a booking, an end or the match of an
 * admission, and while a decision that a request asked for is not ready (a later leg or another
 * attempt: pool_live::asking, at most one). The two pools of a pair are busy together. Meanwhile
 * their messages stay in the mailbox, lost bookings stay in pool::lost, and no request is admitted.
 * So every decision sees complete bookings, in the same order as without slices. Frames,
 * heartbeats, events, other pools and calls of control continue. Before a message that leads to a
 * decision about a long prompt, the match is prepared in the same way.
 *
 * The hashes of an unfinished booking are kept until its last slice, pool_live::entering; at most
 * one. The end of a request, a cancel, the loss of a worker and the stop are counted and answered
 * at once, and the load model is updated in slices afterwards. The rest is freed with the mempools
 * at the end.
 *
 * Writer: the scheduler lcore. Budget: 10 cycles a message with a short prompt; a turn processes
 * PROMPTS_TURN runs and the cost of one event.
 */

#include <stdbool.h>
#include <stdint.h>

#include "state/pool.h"
#include "state/ring_msg.h"

struct job;
struct kvr_flight;
struct lcore;
struct pool;

#define PROMPTS_LONG  256u /* blocks; shorter prompts are processed at once */
#define PROMPTS_SLICE 32u  /* runs that an event processes at once, 40 to 150 ns each */
#define PROMPTS_TURN                                                                               \
	128u /* runs of pending work per turn, and the limit after which messages wait */
/** Bound of the runs in a turn: pending work, the last event of the burst, and an admission, whose
 * match continues in slices of four times the length. */
#define PROMPTS_MOST (PROMPTS_TURN + PROMPTS_SLICE + 5 * PROMPTS_SLICE)
/** The bound for a pair: each pool has pending work, and an event may book both legs. */
#define PROMPTS_MOST_PAIR (PROMPTS_MOST + PROMPTS_TURN + 2 * PROMPTS_SLICE)

/** Continue pending work over at most PROMPTS_TURN runs. First in a turn. @return whether neither
 * pool of the pair is in the middle of a booking or an end. */
bool prompts_settle(struct pool *p);

/** Whether neither pool of the pair is busy. */
bool prompts_idle(const struct pool *p);

/** Whether @p p may continue to admit: it is in the middle of an admission, or neither pool is
 * busy. */
bool prompts_may_admit(const struct pool *p);

/** Whether no work of the message can be long: the calls below are not needed. */
bool prompts_short(const struct pool *p, const struct note *n);

/** Prepare the decision about the job of a message over at most @p runs runs; for a pair, of both
 * legs. @return false: call again in the next turn; true: call prompts_handled() after the message.
 */
bool prompts_ready_note(struct pool *p, const struct note *n, uint32_t runs);
void prompts_handled(struct pool *p);

/** The same for one decision of @p p. */
bool prompts_ready(struct pool *p, const struct job *j, uint32_t runs);

/** Runs processed so far by both pools of the pair. */
uint64_t prompts_walked(const struct pool *p);

/** The job no longer needs its hashes. If an unfinished booking needs them, keep them and set
 * j->hash_buf to NULL. Hashes in a frame cannot be kept, so their booking is finished. */
void prompts_keep(struct pool *p, struct job *j);

/** Finish all pending work at once: for telemetry that needs consistent figures. */
void prompts_finish(struct pool *p);

#endif
