/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_WORLD_H
#define EX_WORLD_H

/**
 * @file
 * The world of one scenario: pools, workers, requests and virtual time. Each operation is one
 * function that checks everything before it changes anything, so that a refused line has no
 * effect. What is done with a request is decided by lib/request; run.h carries it out.
 *
 *   in, out, index  <-  world  <-  prompt, read, lines, worker, ops_index  <-  run
 *                                                        <-  pool, ops_time, ops_request  <- script
 * <-  main
 */

#include "in.h"
#include "index.h"
#include "kvr_request.h"

#define EX_MAX_RANKS 1024u
#define EX_MAX_POOLS 64u

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

enum ex_state { EX_JOINING, EX_SERVING, EX_DRAINING, EX_DRAINED, EX_GONE };

struct ex_worker {
	uint64_t id;
	struct ex_pool *pool;
	enum ex_state state;
	struct ex_worker *next;
	uint32_t epoch; /* this life of it */
	uint32_t dp_size;
	bool bootstrap;
	uint8_t transfer; /* as in struct kvr_rq_worker */
	double weight;
	char *taint;  /* or NULL */
	json_t *line; /* what it is, as its line says */
};

/** One request. Its main leg is in `pool`, a prefill leg in the peer. */
struct ex_req {
	struct kvr_request r;
	struct kvr_rq_msg msg;
	struct kvr_rq_pair pair;
	struct kvr_rq_session session; /* id_len 0: none */
	struct kvr_sched_override override;
	char *id;
	struct ex_pool *pool;
	json_t *line; /* what strings in the hints point into */
	uint64_t *sh;
	struct kvr_sched_range *shared;
	uint64_t *allowed;
	struct kvr_sched_str *required;	       /* room for one more */
	struct kvr_sched_preferred *preferred; /* the same */

	bool entered; /* live under its id */
	size_t at;    /* in world.live */
	bool has_slot[2];
	uint32_t slot[2];
	uint64_t generated;
	bool failed;		     /* what ends it is a failure */
	bool queued, routed;	     /* lines that were written */
	struct kvr_sched_decision d; /* the last one */
	struct ex_pool *decided_by;
	struct ex_req *next_dead;
	void *own; /* the executor's */
};

/** What will be said of a request next. */
struct ex_event {
	struct ex_req *r;
	struct kvr_rq_event e;
};

struct ex_world {
	struct ex_pool pool[EX_MAX_POOLS];
	uint32_t n_pools;
	struct ex_worker *workers; /* by id */
	uint32_t epochs;
	json_t *ids;	      /* id -> index of a live request, or null once it ended */
	struct ex_req **live; /* [index] */
	size_t n_live, cap_live;
	struct ex_event *todo; /* ring */
	size_t first_todo, n_todo, cap_todo;
	struct ex_req *dead;  /* over; freed between lines */
	struct kvr_rand rand; /* bootstrap rooms */
	uint64_t now;	      /* ns */
};

typedef bool ex_op_fn(struct ex_world *w, const json_t *obj, struct ex_problem *p);

ex_op_fn ex_op_pool, ex_op_worker, ex_op_worker_gone, ex_op_drain, ex_op_resume;
ex_op_fn ex_op_store, ex_op_remove, ex_op_clear, ex_op_scores, ex_op_hash;
ex_op_fn ex_op_route, ex_op_prefill_done, ex_op_output, ex_op_finish, ex_op_cancel, ex_op_fail;
ex_op_fn ex_op_load, ex_op_advance, ex_op_loads, ex_op_session_ack;

/* ---- world.c ----------------------------------------------------------------------------- */

/** Pool named by `pool`, or the first one. NULL with the problem noted. */
struct ex_pool *ex_pool_of(struct ex_world *w, const json_t *obj, struct ex_problem *p);

/** NULL when unknown. */
struct ex_worker *ex_worker_find(const struct ex_world *w, uint64_t id);

/** Worker named by `worker`; NULL with the problem noted. */
struct ex_worker *ex_worker_of(struct ex_world *w, const json_t *obj, struct ex_problem *p);

/** Dense rank of (worker, dp_rank); KVR_SCHED_NO_RANK with the problem noted. */
uint32_t ex_rank_of(const struct ex_worker *k, const json_t *obj, struct ex_problem *p);

void ex_state_change(struct ex_worker *k, enum ex_state to);

/** Draining workers without bookings become drained. */
void ex_settle(struct ex_world *w);

/** Find the request called `id`: 1 live, 0 ended before, -1 never seen (problem noted). */
int ex_req_find(struct ex_world *w, const json_t *obj, struct ex_req **r, struct ex_problem *p);

/** The live request of that id, or NULL. */
struct ex_req *ex_req_live(const struct ex_world *w, const char *id);

/** It has its id from now on; the id is remembered, and free for another one. */
void ex_req_enter(struct ex_world *w, struct ex_req *r);
void ex_req_leave(struct ex_world *w, struct ex_req *r);

/* ---- prompt.c, read.c -------------------------------------------------------------------- */

/** Blocks of a line: from `tokens` (hashed) or `sequence_hashes`. */
struct ex_prompt {
	uint64_t *sh;
	uint32_t n;
	uint32_t isl; /* tokens given, or blocks times the block size */
};

/**
 * Read the prompt of a line; @p lora and @p ns may be NULL. The caller frees prompt.sh.
 * Exactly one of the two fields must be there.
 */
bool ex_prompt_read(const json_t *obj, uint32_t block_size, const char *lora, const char *ns,
		    struct ex_prompt *out, struct ex_problem *p);

/** Read a route line; NULL with the problem noted. Not yet known by its id. */
struct ex_req *ex_req_read(struct ex_world *w, const json_t *obj, struct ex_problem *p);
void ex_req_free(struct ex_req *r);

#endif
