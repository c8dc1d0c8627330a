/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_RUN_H
#define EX_RUN_H

/**
 * @file
 * The executor of lib/request in virtual time: orders become calls of lib/sched and lines. Workers
 * and clients are part of the scenario and do at once what they should: a worker acknowledges what
 * it is sent, a client its last item. Here is no rule of routing.
 */

#include "world.h"

/** What the scheduler of a pool asks. */
struct kvr_sched_ops ex_run_ops(struct ex_world *w, struct ex_pool *pool);

/** A request that was read: it belongs to the run from now on. */
void ex_run_arrive(struct ex_world *w, struct ex_req *r);

/** @p e has happened to @p r, with all that follows. @p r may be over; it is freed later. */
void ex_run_event(struct ex_world *w, struct ex_req *r, struct kvr_rq_event e);

/** Admit what waits, in every pool, and settle draining workers. After every operation. */
void ex_run_poll(struct ex_world *w);

/** Bookings and sessions that are over now. */
void ex_run_expire(struct ex_world *w);

/** Time of the next look after sessions; UINT64_MAX: none. */
uint64_t ex_run_session_timer(const struct ex_world *w);

#endif
