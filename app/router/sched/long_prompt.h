/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_LONG_PROMPT_H
#define ROUTER_LONG_PROMPT_H

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
 * LONG_PROMPT_TURN runs and the cost of one event.
 */

#include <stdbool.h>
#include <stdint.h>

#include "state/pool.h"
#include "state/ring_msg.h"

struct job;
struct kvr_flight;
struct lcore;
struct pool;

#define LONG_PROMPT_BLOCKS 256u /* blocks; shorter prompts are processed at once */
#define LONG_PROMPT_SLICE  32u	/* runs that an event processes at once, 40 to 150 ns each */
#define LONG_PROMPT_TURN                                                                           \
	128u /* runs of pending work per turn, and the limit after which messages wait */
/** Bound of the runs in a turn: pending work, the last event of the burst, and an admission, whose
 * match continues in slices of four times the length. */
#define LONG_PROMPT_MOST (LONG_PROMPT_TURN + LONG_PROMPT_SLICE + 5 * LONG_PROMPT_SLICE)
/** The bound for a pair: each pool has pending work, and an event may book both legs. */
#define LONG_PROMPT_MOST_PAIR (LONG_PROMPT_MOST + LONG_PROMPT_TURN + 2 * LONG_PROMPT_SLICE)

/** Continue pending work over at most LONG_PROMPT_TURN runs. First in a turn. @return whether
 * neither pool of the pair is in the middle of a booking or an end. */
bool long_prompt_settle(struct pool *pool);

/** Whether neither pool of the pair is busy. */
bool long_prompt_idle(const struct pool *pool);

/** Whether @p pool may continue to admit: it is in the middle of an admission, or neither pool is
 * busy. */
bool long_prompt_may_admit(const struct pool *pool);

/** Whether no work of the message can be long: the calls below are not needed. */
bool long_prompt_is_none(const struct pool *pool, const struct sched_msg *msg);

/** Prepare the decision about the job of a message over at most @pool runs runs; for a pair, of
 * both legs. @return false: call again in the next turn; true: call long_prompt_handled() after the
 * message.
 */
bool long_prompt_ready_msg(struct pool *pool, const struct sched_msg *msg, uint32_t runs);
void long_prompt_handled(struct pool *pool);

/** The same for one decision of @p pool. */
bool long_prompt_ready(struct pool *pool, const struct job *job, uint32_t runs);

/** Runs processed so far by both pools of the pair. */
uint64_t long_prompt_walked(const struct pool *pool);

/** The job no longer needs its hashes. If an unfinished booking needs them, keep them and set
 * job->hash_buf to NULL. Hashes in a frame cannot be kept, so their booking is finished. */
void long_prompt_keep(struct pool *pool, struct job *job);

/** Finish all pending work at once: for telemetry that needs consistent figures. */
void long_prompt_finish(struct pool *pool);

#endif
