/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_REQUEST_H
#define EX_REQUEST_H

/** @file Making, naming and ending requests and their legs; see world.h. */

#include "world.h"

/** Read a route line; NULL with the problem noted. Not yet known by its id. */
struct ex_req *ex_req_read(struct ex_world *w, const json_t *obj, struct ex_problem *p);

void ex_req_free(struct ex_req *r);

/** Whether a request of that id is booked or waiting. */
bool ex_req_live(const struct ex_world *w, const char *id);

/** Remember an id whose request is over. */
void ex_req_ended(struct ex_world *w, const char *id);

/** Make it live under its id. */
void ex_req_enter(struct ex_world *w, struct ex_req *r);

/** Give a leg a slot of the pool; false when there is none. */
bool ex_leg_take(struct ex_pool *pool, struct ex_req *r, struct ex_leg *leg);

/** The slot is free in the scheduler already. */
void ex_leg_release(struct ex_world *w, struct ex_pool *pool, struct ex_leg *leg);

/** End a booking or a wait, if there is one. */
void ex_leg_end(struct ex_world *w, struct ex_pool *pool, struct ex_leg *leg, bool cancel);

/** End both legs, forget the request but for its id, free it. Writes nothing. */
void ex_req_end(struct ex_world *w, struct ex_req *r, bool cancel);

/* ---- legs (ops_route.c) ------------------------------------------------------------------ */

/** The prefill leg is over: free it, and decide the decode leg if that waited for it. */
void ex_prefill_over(struct ex_world *w, struct ex_req *r);

/** A booking went with its rank. */
void ex_leg_dropped(struct ex_world *w, struct ex_pool *pool, uint32_t slot);

/* ---- sessions (session.c) ---------------------------------------------------------------- */

enum ex_session_entry {
	EX_SESSION_FINE,
	EX_SESSION_FULL, /**< no room for another session */
	EX_SESSION_GONE, /**< the worker that it names has left */
};

/** Before the decision: pin the main leg to the binding, keep room for an open. */
enum ex_session_entry ex_session_enter(struct ex_world *w, struct ex_req *r);

/** Whether what the request closes is there; else a problem. */
bool ex_session_known(struct ex_world *w, const struct ex_req *r, struct ex_problem *p);

/** The same for the prefill leg, which has affinity alone. */
void ex_session_enter_prefill(struct ex_world *w, struct ex_req *r);

/** The decision failed. @return true: an affinity has pinned it and is gone; decide again. */
bool ex_session_unpin(struct ex_world *w, struct ex_req *r, struct ex_pool *pool,
		      struct ex_leg *leg, enum kvr_sched_err err);

/** A leg was booked: open, close, or be bound. */
void ex_session_routed(struct ex_world *w, struct ex_req *r, struct ex_pool *pool,
		       struct ex_leg *leg, const struct kvr_sched_decision *d);

/** A booked leg has ended: leave its affinity, or end it with a failure. */
void ex_session_leg_over(struct ex_world *w, struct ex_pool *pool, struct ex_leg *leg);

/** Write close_sent when this request was to close its session. */
void ex_session_finish(const struct ex_req *r);

/** Expired sessions: lines for each. Returns the time of the next look, or UINT64_MAX. */
uint64_t ex_session_timer(const struct ex_world *w);
void ex_session_expire(struct ex_world *w);

#endif
