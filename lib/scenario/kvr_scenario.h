/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SCENARIO_H
#define KVR_SCENARIO_H

/**
 * @file
 * Scenarios: routing behaviour as text, one JSON object a line. Here is the language, what a
 * scenario has made so far (pools, workers, requests, virtual time), and how its output lines look.
 * An executor says what becomes of it: kvroute-explain is the one of lib/request in virtual time,
 * tests/conform has one that says the same in frames to the stages of the router. Nothing here
 * decides anything about a request.
 *
 * Data structure. The world lies in the executor's memory; what a line has made lies in the memory
 * of that line (kvr_sc_line.h). Each operation is one function that checks everything before it
 * changes anything, so that a refused line has no effect.
 *
 * Writers. The library: all but what is marked as the executor's. One thread, not for packet
 * lcores: it allocates, and aborts without memory.
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
#define KVR_SC_LOOK_NS	 UINT64_C(15000000000) /* so that no session is over for 30 s */

struct kvr_sc_executor;
struct kvr_sc_req;
struct kvr_sc_world;

struct kvr_sc_pool {
	struct kvr_sc_world *world;
	struct kvr_pool_conf conf;
	struct kvr_sc_pool *peer;     /* other half of a disaggregated model */
	struct kvr_sched *sched;      /* executor */
	struct kvr_sched_terms terms; /* executor: of the last decision */
	struct kvr_rq_pool rq;	      /* executor; the library has paired it */
	void *own;		      /* executor */
};

struct kvr_sc_worker {
	LIST_ENTRY(kvr_sc_worker) link;
	uint64_t id;
	struct kvr_sc_pool *pool;
	enum kvr_wire_worker_state state; /* executor: what the last line said */
	struct kvr_rq_worker rq;
	bool mute;		  /* it says nothing any more of what it is sent */
	struct kvr_sc_line *line; /* what it is, without its pool */
};

/** One request; it lies in the memory of its line. Its main leg is in `pool`, a prefill leg in the
 * peer. */
struct kvr_sc_req {
	struct kvr_request r; /* executor */
	TAILQ_ENTRY(kvr_sc_req) link;
	struct kvr_sc_line *line;
	const char *id;
	struct kvr_sc_pool *pool;
	struct kvr_rq_msg msg;
	struct kvr_rq_pair pair;
	struct kvr_rq_session session; /* id_len 0: none */
	struct kvr_sched_override override;

	bool live;	     /* under its id */
	bool failed;	     /* what ends it is a failure; executor too */
	bool queued, routed; /* lines that were written; executor: when it begins anew */
	uint64_t generated;
	struct kvr_sched_decision d;	/* executor: the last one */
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
	json_t *ids;		       /* id -> its live request as an integer; null: it ended */
	struct kvr_sc_reqs live, dead; /* dead: over; the executor frees their lines in poll() */
	uint64_t now;		       /* ns */
};

/** Blocks of a line: from `tokens` (hashed) or `sequence_hashes`, in the line's memory. */
struct kvr_sc_prompt {
	uint64_t *sh;
	uint32_t n;
	uint32_t isl; /* tokens given, or blocks times the block size */
};

/** What carries a scenario out. The library calls it with what has been read and is valid. */
struct kvr_sc_executor {
	/** A pool that was read. @return false with the problem noted: it does not start. */
	bool (*pool)(struct kvr_sc_pool *pool, struct kvr_sc_problem *p);

	/**
	 * A worker comes, or is another one from now on; @p obj is its line without the pool.
	 * @return 0; -EINVAL, -ENOSPC as kvr_sched_worker_set(); -ENOTSUP: it cannot be said here.
	 * Nothing has changed then.
	 */
	int (*worker)(struct kvr_sc_pool *pool, const struct kvr_sched_worker *c,
		      const json_t *obj);
	void (*joined)(struct kvr_sc_worker *k); /* it was a new one, and is known now */
	void (*gone)(struct kvr_sc_worker *k);	 /* it has left, and is forgotten after this */
	void (*drain)(struct kvr_sc_worker *k, bool draining);
	void (*load)(struct kvr_sc_worker *k, uint32_t dp_rank, uint64_t used_blocks);

	/** Blocks that a rank stores (after @p parent, or NULL) or removes. */
	void (*blocks)(struct kvr_sc_pool *pool, uint32_t rank, enum kvr_prefix_op op,
		       enum kvr_tier tier, const uint64_t *parent, const uint64_t *sh, uint32_t n);
	/** The rank has nothing any more, predictions neither. */
	void (*clear)(struct kvr_sc_pool *pool, uint32_t rank);
	/** Overlap of a prompt now; the arrays stay valid until the next call. */
	void (*score)(struct kvr_sc_pool *pool, const uint64_t *sh, uint32_t n,
		      struct kvr_sched_overlap *ov);
	/** Potential loads and what waits. @return as kvr_sched_loads(). */
	uint32_t (*loads)(struct kvr_sc_pool *pool, const struct kvr_sc_prompt *prompt,
			  struct kvr_sched_load v[], uint32_t cap,
			  struct kvr_sched_pending *pending);

	/** A request that was read: it belongs to the executor from now on. */
	void (*arrive)(struct kvr_sc_req *r);
	/** @p e has happened to @p r, with all that follows. It may be over; freed later. */
	void (*event)(struct kvr_sc_req *r, struct kvr_rq_event e);
	/** A client ends a session. @return as kvr_request_session_release(). */
	enum kvr_code (*release)(struct kvr_sc_pool *pool, const char *id);

	/** Admit what waits, in every pool, settle draining workers, end sessions that are over,
	 * free what is dead. After every operation. */
	void (*poll)(struct kvr_sc_world *w);
	/** Bookings that are over now, and opens that nobody has answered for KVR_RQ_OPEN_NS. */
	void (*expire)(struct kvr_sc_world *w);
	/** When something is due: bookings, queues, opens, and sessions at every KVR_SC_LOOK_NS.
	 * UINT64_MAX: never. */
	uint64_t (*timer)(const struct kvr_sc_world *w);
};

/** An empty world (@p w zeroed) whose output goes to @p out. Once. */
void kvr_sc_world_init(struct kvr_sc_world *w, const struct kvr_sc_executor *run, FILE *out);

/** Run the lines of @p in in @p w. @return 0; 1: some were refused. */
int kvr_sc_script(struct kvr_sc_world *w, FILE *in);

/** Its pool lines alone, for an executor that must have all pools before it begins: run->pool() is
 * called for each that is valid, and nothing else is; nothing is written. */
void kvr_sc_pools(struct kvr_sc_world *w, FILE *in);

/** The worker of that id, or NULL. */
struct kvr_sc_worker *kvr_sc_worker_find(const struct kvr_sc_world *w, uint64_t id);

/** A request has its id from now on; it is over: the id is remembered, and free for another. */
void kvr_sc_req_enter(struct kvr_sc_req *r);
void kvr_sc_req_leave(struct kvr_sc_req *r);

/** Nothing is left of it: it is among the dead. */
void kvr_sc_req_over(struct kvr_sc_req *r);

/* ---- output lines ------------------------------------------------------------------------ */

/** ACCEPTED: where the request is, unless that was written before. */
void kvr_sc_line_accepted(struct kvr_sc_req *r);

/** REJECTED. */
void kvr_sc_line_rejected(struct kvr_sc_req *r, const struct kvr_rq_why *why);

/** PREFILL: the prefill leg has its worker, or there is none. */
void kvr_sc_line_prefill(struct kvr_sc_req *r);

/** OPEN, CLOSE, SESSION. @p r may be NULL but for OPEN. */
void kvr_sc_line_session(struct kvr_sc_world *w, const struct kvr_sc_req *r,
			 const struct kvr_rq_order *o);

void kvr_sc_line_expired(struct kvr_sc_req *r);

/** A worker is in another state now. */
void kvr_sc_line_state(struct kvr_sc_worker *k, enum kvr_wire_worker_state to);

/** A prefill pool takes part from now on, or does not. */
void kvr_sc_line_active(struct kvr_sc_pool *pool, bool active);

#endif
