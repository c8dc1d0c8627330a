/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_WORLD_H
#define EX_WORLD_H

/**
 * @file
 * The world of one scenario: pools, workers, requests and virtual time. Each operation is one
 * function that checks everything before it changes anything, so that a refused line has no
 * effect. What is done with a request is decided by lib/request; run.h carries it out.
 *
 *   in, out, index  <-  world, prompt, lines  <-  run  <-  pool, worker, ops, request  <-  line  <-
 * main
 */

#include "index.h"
#include "kvr_request.h"
#include "kvr_worker.h"
#include "line.h"

#include <sys/queue.h>

#define EX_MAX_RANKS 1024u
#define EX_MAX_POOLS 64u
#define EX_NO_SLOT   UINT32_MAX

struct ex_req;

struct ex_pool {
	struct kvr_pool_conf conf;
	struct kvr_sched *sched;
	struct ex_index *index;
	struct ex_req **by_slot;
	uint32_t *free_slot;
	uint32_t n_free;
	struct kvr_sched_terms terms;
	struct ex_pool *peer;	  /* other half of a disaggregated model */
	struct kvr_disagg disagg; /* prefill pools: whether the side is active */
	struct kvr_stats *stats;
	struct kvr_rq_pool rq; /* its sessions: from the first request that names one */
};

struct ex_worker {
	LIST_ENTRY(ex_worker) link;
	uint64_t id;
	struct ex_pool *pool;
	enum kvr_wire_worker_state state;
	uint32_t epoch; /* this life of it */
	struct kvr_rq_worker rq;
	struct ex_line *line; /* what it is, without its pool */
};

/** One request; it lies in the memory of its line. Its main leg is in `pool`, a prefill leg in the
 * peer. */
struct ex_req {
	struct kvr_request r;
	TAILQ_ENTRY(ex_req) link; /* world.live, world.dead */
	struct ex_line *line;
	const char *id;
	struct ex_pool *pool;
	struct kvr_rq_msg msg;
	struct kvr_rq_pair pair;
	struct kvr_rq_session session; /* id_len 0: none */
	struct kvr_sched_override override;

	bool live;	     /* under its id */
	bool failed;	     /* what ends it is a failure */
	bool queued, routed; /* lines that were written */
	uint32_t slot[2];    /* by leg, or EX_NO_SLOT */
	uint64_t generated;
	struct kvr_sched_decision d; /* the last one */
	struct ex_pool *decided_by;
	void *own; /* the executor's */
};

/** What will be said of a request next. */
struct ex_event {
	STAILQ_ENTRY(ex_event) link;
	struct ex_req *r;
	struct kvr_rq_event e;
};

TAILQ_HEAD(ex_reqs, ex_req);

struct ex_world {
	struct ex_pool pool[EX_MAX_POOLS];
	uint32_t n_pools;
	LIST_HEAD(, ex_worker) workers;
	uint32_t epochs;
	json_t *ids;		   /* id -> its live request as an integer; null: it ended */
	struct ex_reqs live, dead; /* dead: over; freed between lines */
	STAILQ_HEAD(, ex_event) todo;
	struct kvr_rand rand; /* bootstrap rooms */
	uint64_t now;	      /* ns */
};

/** An operation checks everything before it changes anything. */
typedef bool ex_op_fn(struct ex_world *w, struct ex_line *l, struct ex_problem *p);

ex_op_fn ex_op_pool, ex_op_worker, ex_op_worker_gone, ex_op_drain, ex_op_resume;
ex_op_fn ex_op_store, ex_op_remove, ex_op_clear, ex_op_scores, ex_op_hash;
ex_op_fn ex_op_route, ex_op_prefill_done, ex_op_output, ex_op_finish, ex_op_cancel, ex_op_fail;
ex_op_fn ex_op_load, ex_op_advance, ex_op_loads, ex_op_session_ack, ex_op_session_release;

/* ---- world.c ----------------------------------------------------------------------------- */

/** An empty world. Once. */
void ex_world_init(struct ex_world *w);

/** Pool named by a line, or the first one. NULL with the problem noted. */
struct ex_pool *ex_pool_of(struct ex_world *w, const json_t *obj, struct ex_problem *p);

/** NULL when unknown. */
struct ex_worker *ex_worker_find(const struct ex_world *w, uint64_t id);

/** Worker named by a line; NULL with the problem noted. */
struct ex_worker *ex_worker_of(struct ex_world *w, const json_t *obj, struct ex_problem *p);

/** Dense rank of (worker, dp_rank); KVR_SCHED_NO_RANK with the problem noted. */
uint32_t ex_rank_of(const struct ex_worker *k, const json_t *obj, struct ex_problem *p);

/** It is in another state now, and its pool perhaps too: lines. */
void ex_state_change(struct ex_worker *k, enum kvr_wire_worker_state to);

/** The session named by a line or its session_control; NULL with the problem noted. */
const char *ex_session_id(const json_t *obj, struct ex_problem *p);

/** Find the request of a line: 1 live, 0 ended before, -1 never seen (problem noted). */
int ex_req_find(struct ex_world *w, const json_t *obj, struct ex_req **r, struct ex_problem *p);

/** The live request of that id, or NULL. */
struct ex_req *ex_req_live(const struct ex_world *w, const char *id);

/** It has its id from now on; it is over: the id is remembered, and free for another one. */
void ex_req_enter(struct ex_world *w, struct ex_req *r);
void ex_req_leave(struct ex_world *w, struct ex_req *r);

/** Nothing is left of it; it is freed between lines. */
void ex_req_over(struct ex_world *w, struct ex_req *r);

/* ---- prompt.c ---------------------------------------------------------------------------- */

/** Blocks of a line: from `tokens` (hashed) or `sequence_hashes`, in the line's memory. */
struct ex_prompt {
	uint64_t *sh;
	uint32_t n;
	uint32_t isl; /* tokens given, or blocks times the block size */
};

/** Exactly one of the two fields must be there. @p adapter: the object that names LoRA adapter and
 * namespace, or NULL. */
bool ex_prompt_read(struct ex_line *l, const json_t *adapter, uint32_t block_size,
		    struct ex_prompt *out, struct ex_problem *p);

#endif
