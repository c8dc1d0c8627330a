/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_PROMPTS_H
#define ROUTER_PROMPTS_H

/**
 * @file
 * Prompts so long that a turn is too short for them: the prompt of 62,500 blocks that fills a
 * message of 4 MB is matched, booked and freed in 60 to 100 us each. lib/sched does this in slices
 * ("long prompts in slices" in kvr_sched.h); here stands what of a turn waits meanwhile.
 *
 * A pool is *busy* while its load model is in the middle of a booking, an end or the match of an
 * admission, and while a request asks for a decision that is not ready (a leg that follows another
 * one, another try: pool_live::asking, at most one). The two pools of a pair are busy together.
 * While they are, their notes stay in the ring, lost bookings in pool::lost, and nobody is
 * admitted: whatever is decided is decided with whole bookings, in the order in which it would have
 * been without slices. Everything else on the lcore goes on: frames, heartbeats, events, other
 * pools, the calls of control. Before a note that leads to a decision about a long prompt the match
 * is made ready in the same way.
 *
 * The hashes of a booking that goes on are kept until its last slice, pool_live::entering; at most
 * one. The end of a request, a cancel, a worker that goes, the stop: each is counted and answered
 * at once, and what it frees of the load model follows in slices. What is left at the very end goes
 * with the pools of memory.
 *
 * All words are the scheduler lcore's. Budget: 10 cycles a note whose prompt is short; a turn looks
 * at PROMPTS_TURN runs, and what one event costs.
 */

#include <stdbool.h>
#include <stdint.h>

#include "state/pool.h"
#include "state/ring_msg.h"

struct job;
struct kvr_flight;
struct lcore;
struct pool;

#define PROMPTS_LONG  256u /* blocks: shorter ones are handled at once */
#define PROMPTS_SLICE 32u  /* runs that an event does at once, 40 to 150 ns each */
#define PROMPTS_TURN  128u /* runs that a turn does of what is kept, and before it leaves notes */
/** Runs that a turn looks at, at most: those, the last event of its burst, and an admission, whose
 * match goes on in slices four times as long. */
#define PROMPTS_MOST (PROMPTS_TURN + PROMPTS_SLICE + 5 * PROMPTS_SLICE)
/** The same for a pair: each pool goes on with what is kept, and an event may book both legs. */
#define PROMPTS_MOST_PAIR (PROMPTS_MOST + PROMPTS_TURN + 2 * PROMPTS_SLICE)

/** Go on with what is kept, over at most PROMPTS_TURN runs. First in a turn. @return whether the
 * pool and its other one are not in the middle of a booking or an end any more. */
bool prompts_settle(struct pool *p);

/** Whether neither pool of the pair is busy. */
bool prompts_idle(const struct pool *p);

/** Whether @p p may go on to admit: it is in the middle of that, or neither pool is busy. */
bool prompts_may_admit(const struct pool *p);

/** Whether nothing that a note leads to can be long: the calls below have nothing to do. */
bool prompts_short(const struct pool *p, const struct note *n);

/** Make the decision about the message of a job that a note leads to ready, over at most @p runs
 * runs: of a pair those of both legs. @return false: not yet, in the next turn again; else
 * prompts_handled() follows when it has been handled. */
bool prompts_ready_note(struct pool *p, const struct note *n, uint32_t runs);
void prompts_handled(struct pool *p);

/** The same for one decision, of @p p. */
bool prompts_ready(struct pool *p, const struct job *j, uint32_t runs);

/** Runs looked at by the pool and its other one. */
uint64_t prompts_walked(const struct pool *p);

/** The hashes of a job are not needed any more, but perhaps for a booking that goes on: then they
 * are kept and j->hash_buf is NULL. Those in a frame cannot be kept: their booking is finished. */
void prompts_keep(struct pool *p, struct job *j);

/** Do all of it at once: for telemetry that wants whole figures. */
void prompts_finish(struct pool *p);

#endif
