/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_RUN_H
#define EX_RUN_H

/**
 * @file
 * What carries a scenario out: the operations read lines, and say here what happens. run.c is the
 * executor of lib/request in virtual time: orders become calls of lib/sched and lines. Workers
 * and clients are part of the scenario and do at once what they should: a worker acknowledges what
 * it is sent, a client its last item. Here is no rule of routing. tests/conform/ has another
 * executor, which says the same in frames to the stages of the router.
 */

#include "world.h"

#include <stdio.h>

/** Run the lines of @p in in @p w (empty). @return 0; 1: some were refused. */
int ex_script(struct ex_world *w, FILE *in);

/** A pool that was read. @return false with the problem noted: it does not start. */
bool ex_run_pool(struct ex_world *w, struct ex_pool *pool, struct ex_problem *p);

/**
 * A worker comes, or is another one from now on; @p obj is its line without the pool. @return 0;
 * -EINVAL, -ENOSPC as kvr_sched_worker_set(); -ENOTSUP: it cannot be said here. Nothing has changed
 * then.
 */
int ex_run_worker(struct ex_world *w, struct ex_pool *pool, const struct kvr_sched_worker *c,
		  const json_t *obj);

/** It was a new one, and is known now. */
void ex_run_joined(struct ex_world *w, struct ex_worker *k);

/** It has left; @p k is forgotten after this. */
void ex_run_gone(struct ex_world *w, struct ex_worker *k);

void ex_run_drain(struct ex_world *w, struct ex_worker *k, bool draining);

/** Load report of a rank that exists. */
void ex_run_load(struct ex_world *w, struct ex_worker *k, uint32_t dp_rank, uint64_t used_blocks);

/** Potential loads and what waits. @return as kvr_sched_loads(). */
uint32_t ex_run_loads(struct ex_world *w, struct ex_pool *pool, const struct ex_prompt *prompt,
		      struct kvr_sched_load v[], uint32_t cap, struct kvr_sched_pending *pending);

/** A request that was read: it belongs to the run from now on. */
void ex_run_arrive(struct ex_world *w, struct ex_req *r);

/** @p e has happened to @p r, with all that follows. @p r may be over; it is freed later. */
void ex_run_event(struct ex_world *w, struct ex_req *r, struct kvr_rq_event e);

/** A client ends a session. @return as kvr_request_session_release(). */
enum kvr_code ex_run_release(struct ex_world *w, struct ex_pool *pool, const char *id);

/** Admit what waits, in every pool, settle draining workers, end sessions that are over. After
 * every operation. */
void ex_run_poll(struct ex_world *w);

/** Bookings that are over now. */
void ex_run_expire(struct ex_world *w);

/** When something is due: bookings, queues, and sessions at every EX_LOOK_NS. UINT64_MAX: never. */
uint64_t ex_run_timer(const struct ex_world *w);

#define EX_LOOK_NS UINT64_C(15000000000) /* so that no session is over for 30 s */

#endif
