/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FRAMES_H
#define FRAMES_H

/**
 * @file
 * The executor of scenarios that says them in frames (struct kvr_sc_executor):
 * each operation becomes what clients and agents send, and what the router sends back becomes the
 * lines. What it knows of a request is only what its client and its workers have been told.
 *
 *   peers, router   frames in and out, and what is read in the router; no type of a scenario
 *   talk            requests: frames about them, and the lines these make
 *   sessions        what sessions are bound to
 *   workers         agents, KV events, states
 *   main            pools, and what frames cannot say
 */

#include "kvr_scenario.h"
#include "peers.h"

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
uint32_t frames_pool(const struct kvr_sc_pool *pool);

/* ---- workers.c --------------------------------------------------------------------------- */

/** Who speaks from a port, or NULL. */
const struct peers_agent *frames_agent(uint16_t port);

/** Whether the worker has given an address for transfers. */
bool frames_bootstraps(uint64_t worker);

/** Answers to HELLO. */
void frames_hello_answered(const struct peers_got *g);

/* As in struct kvr_sc_executor; the prefix table is changed by KV events. */
int frames_worker(struct kvr_sc_pool *pool, const struct kvr_sched_worker *c, const json_t *obj);
void frames_joined(struct kvr_sc_worker *k);
void frames_gone(struct kvr_sc_worker *k);
void frames_drain(struct kvr_sc_worker *k, bool draining);
void frames_load(struct kvr_sc_worker *k, uint32_t dp_rank, uint64_t used_blocks);
void frames_blocks(struct kvr_sc_pool *pool, uint32_t rank, enum kvr_prefix_op op,
		   enum kvr_tier tier, const uint64_t *parent, const uint64_t *sh, uint32_t n);
void frames_clear(struct kvr_sc_pool *pool, uint32_t rank);
void frames_score(struct kvr_sc_pool *pool, const uint64_t *sh, uint32_t n,
		  struct kvr_sched_overlap *ov);

/** Lines about workers and pools that are in another state than at the last look. */
void frames_states(struct kvr_sc_world *w);

/* ---- talk.c ------------------------------------------------------------------------------ */

/** Turn the router, and answer what it sends, until nothing is said any more. */
void frames_settle(struct kvr_sc_world *w);

/** A worker's life is over: what it runs is over with it, and it says no more about that. */
void frames_forget(struct kvr_sc_world *w, uint64_t worker);

/* As in struct kvr_sc_executor. */
void frames_op_done(struct kvr_sc_world *w);
void frames_expire(struct kvr_sc_world *w);
uint64_t frames_timer(const struct kvr_sc_world *w);

/* ---- said.c: as in struct kvr_sc_executor ------------------------------------------------ */

void frames_arrive(struct kvr_sc_req *r);
void frames_event(struct kvr_sc_req *r, struct kvr_rq_event e);
enum kvr_code frames_release(struct kvr_sc_pool *pool, const char *id);
uint32_t frames_loads(struct kvr_sc_pool *pool, const struct kvr_sc_prompt *prompt,
		      struct kvr_sched_load v[], uint32_t cap, struct kvr_sched_pending *pending);

/* ---- sessions.c -------------------------------------------------------------------------- */

/** A request names a session of @p pool. */
void frames_session_named(struct kvr_sc_pool *pool, const char *id, uint32_t len);

/** Its worker has said yes. */
void frames_session_opened(struct kvr_sc_pool *pool, const struct kvr_sc_req *r);

/** Nobody waits for the answer to an open any more. */
void frames_session_dropped(struct kvr_sc_pool *pool, const struct kvr_sc_req *r);

/** A request that closes its session has its worker. */
void frames_session_closer(struct kvr_sc_pool *pool, const struct kvr_sc_req *r);

/** It has ended: what it has closed is told now, or never. */
void frames_session_closer_over(struct kvr_sc_pool *pool, const struct kvr_sc_req *r);

/** Whether a request that has closed it there has ended now. */
bool frames_session_closes(const struct kvr_sc_pool *pool, const char *id, uint32_t len,
			   uint64_t worker);

/** SESSION_CLOSE came to @p worker. */
void frames_session_closed(struct kvr_sc_pool *pool, const char *id, uint32_t len, uint64_t worker);

/** Lines about sessions that are bound otherwise than at the last look. */
void frames_sessions(struct kvr_sc_world *w);

#endif
