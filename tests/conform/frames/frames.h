/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FRAMES_H
#define FRAMES_H

/**
 * @file
 * The executor of scenarios that says them in frames (app/explain/run.h is what it carries out):
 * each operation becomes what clients and agents send, and what the router sends back becomes the
 * lines. What it knows of a request is only what its client and its workers have been told.
 *
 *   peers, router   frames in and out, and what is read in the router; no type of a scenario
 *   talk            requests: frames about them, and the lines these make
 *   sessions        what sessions are bound to
 *   workers         agents, KV events, states
 *   main            pools, and what frames cannot say
 */

#include "peers.h"
#include "run.h"

/* ---- main.c ------------------------------------------------------------------------------ */

/** What a scenario can say and frames cannot; see the table in main.c. */
enum frames_not {
	FRAMES_NOT_BECOME,
	FRAMES_NOT_EMPTY_LOADS,
	FRAMES_NOT_ENCODED,
	FRAMES_NOT_LARGE,
	FRAMES_NOT_N
};

/** One of these was met: it is counted, and said at the end. */
void frames_not(enum frames_not what);

/** Number of a pool in the router. */
uint32_t frames_pool(const struct ex_pool *pool);

/* ---- workers.c --------------------------------------------------------------------------- */

/** Who speaks from a port, or NULL. */
const struct peers_agent *frames_agent(uint16_t port);

/** Whether the worker has given an address for transfers. */
bool frames_bootstraps(uint64_t worker);

/** Answers to HELLO. */
void frames_hello_answered(const struct peers_got *g);

/** The prefix table of a pool, as index.h has it: changed by KV events. */
struct ex_index *frames_index(struct ex_pool *pool);

/** Lines about workers and pools that are in another state than at the last look. */
void frames_states(struct ex_world *w);

/* ---- talk.c ------------------------------------------------------------------------------ */

/** Turn the router, and answer what it sends, until nothing is said any more. */
void frames_settle(struct ex_world *w);

/** A worker's life is over: what it runs is over with it, and it says no more about that. */
void frames_forget(struct ex_world *w, uint64_t worker);

/** POTENTIAL_LOADS was sent; its answer, or NULL: it was refused. */
const struct peers_got *frames_loads(struct ex_world *w, const struct peers_route *q);

/* ---- sessions.c -------------------------------------------------------------------------- */

/** A request names a session of @p pool. */
void frames_session_named(struct ex_pool *pool, const char *id, uint32_t len);

/** Its worker has said yes. */
void frames_session_opened(struct ex_pool *pool, const struct ex_req *r);

/** Nobody waits for the answer to an open any more. */
void frames_session_dropped(struct ex_pool *pool, const struct ex_req *r);

/** A request that closes its session has its worker. */
void frames_session_closer(struct ex_pool *pool, const struct ex_req *r);

/** It has ended: what it has closed is told now, or never. */
void frames_session_closer_over(struct ex_pool *pool, const struct ex_req *r);

/** Whether a request that has closed it there has ended now. */
bool frames_session_closes(const struct ex_pool *pool, const char *id, uint32_t len,
			   uint64_t worker);

/** SESSION_CLOSE came to @p worker. */
void frames_session_closed(struct ex_pool *pool, const char *id, uint32_t len, uint64_t worker);

/** Lines about sessions that are bound otherwise than at the last look. */
void frames_sessions(struct ex_world *w);

#endif
