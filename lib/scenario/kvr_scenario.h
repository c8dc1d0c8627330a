/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SCENARIO_H
#define KVR_SCENARIO_H

/**
 * @file
 * Scenarios: routing behaviour as text, one JSON object per line. This library has the language,
 * the state of a scenario (pools, workers, requests, virtual time) and the format of its output
 * lines. An executor carries the operations out: kvroute-explain by lib/exec in virtual time,
 * tests/conform by frames to the stages of the router. No decision about a request is made here.
 *
 * Data structure. The world is in the executor's memory; objects made by a line are in the memory
 * of that line (kvr_sc_line.h). Each operation is one function that checks everything before it
 * changes anything, so that a rejected line has no effect.
 *
 * Writers. The library, except for fields marked "executor". One thread, not for packet lcores: it
 * allocates, and aborts without memory.
 *
 *   in, line, out  <-  world, prompt, lines  <-  pool, worker, ops, request  <-  language  <-
 * script
 */

#include "kvr_prefix.h"
#include "kvr_request.h"
#include "kvr_sc_line.h"
#include "kvr_sc_out.h"
#include "kvr_worker.h"

#include <stdio.h>
#include <sys/queue.h>

#define KVR_SC_MAX_RANKS 1024u /* of a pool */
#define KVR_SC_MAX_POOLS 64u
#define KVR_SC_LOOK_NS                                                                             \
	UINT64_C(15000000000) /* period of session checks: a session ends at most 30 s late */

struct kvr_sc_executor;
struct kvr_sc_req;
struct kvr_sc_world;

struct kvr_sc_pool {
	struct kvr_sc_world *world;
	struct kvr_pool_conf conf;
	struct kvr_sc_pool *peer;     /* other half of a disaggregated model */
	struct kvr_sched *sched;      /* executor */
	struct kvr_sched_terms terms; /* executor: of the last decision */
	struct kvr_rq_pool rq;	      /* executor; paired by the library */
	void *own;		      /* executor */
};

struct kvr_sc_worker {
	LIST_ENTRY(kvr_sc_worker) link;
	uint64_t id;
	struct kvr_sc_pool *pool;
	enum kvr_wire_worker_state state; /* executor: in the last line written */
	struct kvr_rq_worker rq;
	bool mute;		  /* does not answer any more */
	struct kvr_sc_line *line; /* its line, without the pool */
};

/** A request, in the memory of its line. The main leg is in `pool`, a prefill leg in the peer. */
struct kvr_sc_req {
	struct kvr_request r; /* executor */
	TAILQ_ENTRY(kvr_sc_req) link;
	struct kvr_sc_line *line;
	const char *id;
	struct kvr_sc_pool *pool;
	struct kvr_rq_msg msg;
	struct kvr_rq_pair pair;
	struct kvr_rq_session session; /* id_len 0: none */

	bool live;	     /* known by its id */
	bool failed;	     /* its end is a failure; also set by the executor */
	bool queued, routed; /* lines written; executor: cleared when the request is rerouted */
	uint64_t generated;
	struct kvr_sched_decision d;	/* executor: the last decision */
	struct kvr_sc_pool *decided_by; /* executor */
	void *own;			/* executor */
};

TAILQ_HEAD(kvr_sc_reqs, kvr_sc_req);

struct kvr_sc_world {
	const struct kvr_sc_executor *run;
	void *own; /* executor */
	struct kvr_sc_out out;
	struct kvr_sc_pool pool[KVR_SC_MAX_POOLS];
	uint32_t n_pools;
	LIST_HEAD(, kvr_sc_worker) workers;
	uint32_t epochs;
	json_t *ids;		       /* id -> live request as an integer; null: ended */
	struct kvr_sc_reqs live, dead; /* dead: done; the executor frees their lines in poll() */
	uint64_t now;		       /* ns */
};

/** Blocks of a line: from `tokens` (hashed) or `sequence_hashes`, in the line's memory. */
struct kvr_sc_prompt {
	uint64_t *sh;
	uint32_t n;
	uint32_t isl; /* number of tokens, or blocks times block size */
};

/** Operations of an executor. The library calls them with checked values. */
struct kvr_sc_executor {
	/** Start a pool. @return false with the problem noted: it does not start. */
	bool (*pool)(struct kvr_sc_pool *pool, struct kvr_sc_problem *p);

	/**
	 * A worker joins or changes. @p obj is its line without the pool.
	 * @return 0; -EINVAL, -ENOSPC as kvr_sched_worker_set(); -ENOTSUP: not possible in this
	 * executor. Nothing has changed on an error.
	 */
	int (*worker)(struct kvr_sc_pool *pool, const struct kvr_sched_worker *c,
		      const json_t *obj);
	void (*joined)(struct kvr_sc_worker *k); /* a new worker is known now */
	void (*gone)(struct kvr_sc_worker *k);	 /* it has left; its record is freed afterwards */
	void (*drain)(struct kvr_sc_worker *k, bool draining);
	void (*load)(struct kvr_sc_worker *k, uint32_t dp_rank, uint64_t used_blocks);

	/** A rank stores blocks (after @p parent, or NULL), or removes them. */
	void (*blocks)(struct kvr_sc_pool *pool, uint32_t rank, enum kvr_prefix_op op,
		       enum kvr_tier tier, const uint64_t *parent, const uint64_t *sh, uint32_t n);
	/** Remove all blocks of a rank, predicted ones included. */
	void (*clear)(struct kvr_sc_pool *pool, uint32_t rank);
	/** Overlap of a prompt now. The arrays stay valid until the next call. */
	void (*score)(struct kvr_sc_pool *pool, const uint64_t *sh, uint32_t n,
		      struct kvr_sched_overlap *ov);
	/** Potential loads, and what waits. @return as kvr_sched_loads(). */
	uint32_t (*loads)(struct kvr_sc_pool *pool, const struct kvr_sc_prompt *prompt,
			  struct kvr_sched_load v[], uint32_t cap,
			  struct kvr_sched_pending *pending);

	/** A new request. The executor owns it from now on. */
	void (*arrive)(struct kvr_sc_req *r);
	/** Apply event @p e to @p r, with all consequences. Its line is freed later. */
	void (*event)(struct kvr_sc_req *r, struct kvr_rq_event e);
	/** A client ends a session. @return as kvr_request_session_release(). */
	enum kvr_code (*release)(struct kvr_sc_pool *pool, const char *id);

	/** After every operation: admit from the queues of all pools, settle draining workers,
	 * expire sessions, free the lines of dead requests. */
	void (*poll)(struct kvr_sc_world *w);
	/** Expire bookings, and opens without an answer for KVR_RQ_OPEN_NS. */
	void (*expire)(struct kvr_sc_world *w);
	/** Time of the next expiry: bookings, queues, opens, and sessions at every KVR_SC_LOOK_NS.
	 * UINT64_MAX: never. */
	uint64_t (*timer)(const struct kvr_sc_world *w);
};

/** Initialize a world (@p w zeroed) with output to @p out. Once. */
void kvr_sc_world_init(struct kvr_sc_world *w, const struct kvr_sc_executor *run, FILE *out);

/** Run the lines of @p in. @return 0; 1: some were rejected. */
int kvr_sc_script(struct kvr_sc_world *w, FILE *in);

/** Read the pool lines only, for an executor that needs all pools at its start: calls run->pool()
 * for each valid one, and writes nothing. */
void kvr_sc_pools(struct kvr_sc_world *w, FILE *in);

/** The worker of that id, or NULL. */
struct kvr_sc_worker *kvr_sc_worker_find(const struct kvr_sc_world *w, uint64_t id);

/** Enter a request under its id; remove it, so that the id is free. The id is remembered. */
void kvr_sc_req_enter(struct kvr_sc_req *r);
void kvr_sc_req_leave(struct kvr_sc_req *r);

/** The request is done: move it to the dead. */
void kvr_sc_req_over(struct kvr_sc_req *r);

/* ---- output lines ------------------------------------------------------------------------ */

/** ACCEPTED: the place of the request, unless that was written before. */
void kvr_sc_line_accepted(struct kvr_sc_req *r);

/** REJECTED. */
void kvr_sc_line_rejected(struct kvr_sc_req *r, const struct kvr_rq_why *why);

/** PREFILL: the prefill leg has a worker, or is bypassed. */
void kvr_sc_line_prefill(struct kvr_sc_req *r);

/** OPEN, CLOSE, SESSION. @p r may be NULL except for OPEN. */
void kvr_sc_line_session(struct kvr_sc_world *w, const struct kvr_sc_req *r,
			 const struct kvr_rq_order *o);

void kvr_sc_line_expired(struct kvr_sc_req *r);

/** Change the state of a worker. */
void kvr_sc_line_state(struct kvr_sc_worker *k, enum kvr_wire_worker_state to);

/** A prefill pool becomes active, or inactive. */
void kvr_sc_line_active(struct kvr_sc_pool *pool, bool active);

#endif
