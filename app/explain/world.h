/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_WORLD_H
#define EX_WORLD_H

/**
 * @file
 * The world of one scenario: pools, workers, requests and virtual time. Each operation is one
 * function that checks everything before it changes anything, so that a refused line has no
 * effect.
 */

#include "in.h"
#include "index.h"
#include "kvr_disagg.h"
#include "kvr_sched.h"
#include "kvr_session.h"

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
	uint32_t n_workers;
	struct kvr_session *sessions; /* from the first request that names one */
};

enum ex_state { EX_JOINING, EX_SERVING, EX_DRAINING, EX_DRAINED, EX_GONE };

struct ex_worker {
	uint64_t id;
	struct ex_pool *pool;
	enum ex_state state;
	struct ex_worker *next;
	json_t *line; /* its configuration, as given */
};

/** Where a disaggregated request is. */
enum ex_stage {
	EX_ONE_LEG,	  /* not disaggregated */
	EX_PREFILL_WAITS, /* in the prefill pool's queue */
	EX_PREFILL_RUNS,  /* synchronous: decode follows */
	EX_BOTH		  /* decode was decided; the prefill leg may still be booked */
};

enum ex_session_action { EX_SESSION_USE, EX_SESSION_OPEN, EX_SESSION_CLOSE };

/** A booking or a place in a queue. */
struct ex_leg {
	bool on;
	uint32_t slot;
	struct kvr_sched_req req;
	struct kvr_sched_hints hints;
	struct kvr_sched_override override;
	uint32_t flags_before; /* of the hints, while an affinity pins the leg */
	bool sticks;	       /* pinned by an affinity */
	bool inside;	       /* counts in the affinity `ref` */
	bool failed;	       /* ends by a failure */
	struct kvr_session_ref ref;
	struct kvr_session_binding at; /* of `ref` */
};

/** One request; the main leg is in `pool`, a prefill leg in its peer. */
struct ex_req {
	char *id;
	struct ex_pool *pool;
	uint64_t generated;
	size_t at;    /* in world.live */
	bool entered; /* live under its id */
	json_t *line; /* what strings in the hints point into */
	struct ex_leg main, prefill;
	enum ex_stage stage;
	uint64_t *sh;
	struct kvr_sched_range *shared;
	uint64_t *allowed;
	struct kvr_sched_str *required;	       /* room for one more */
	struct kvr_sched_preferred *preferred; /* the same */
	char *transfer;			       /* taint of the KV transfer */

	const char *session; /* id, or NULL */
	enum ex_session_action action;
	uint64_t timeout_s;
	bool opening, closing, reserved;
	struct kvr_session_binding to; /* where it was routed */
};

struct ex_world {
	struct ex_pool pool[EX_MAX_POOLS];
	uint32_t n_pools;
	struct ex_worker *workers; /* by id */
	json_t *ids;		   /* id -> index of a live request, or null once it ended */
	struct ex_req **live;	   /* [index] */
	size_t n_live, cap_live;
	struct kvr_rand rand; /* bootstrap rooms */
	uint64_t now;	      /* ns */
};

typedef bool ex_op_fn(struct ex_world *w, const json_t *obj, struct ex_problem *p);

ex_op_fn ex_op_pool, ex_op_worker, ex_op_worker_gone, ex_op_drain, ex_op_resume;
ex_op_fn ex_op_store, ex_op_remove, ex_op_clear, ex_op_scores, ex_op_hash;
ex_op_fn ex_op_route, ex_op_prefill_done, ex_op_output, ex_op_finish, ex_op_cancel, ex_op_fail;
ex_op_fn ex_op_load, ex_op_advance, ex_op_loads, ex_op_session_ack;

/* ---- shared between the operations ------------------------------------------------------- */

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

/** Find the request called `id`: 1 live, 0 ended before, -1 never seen (problem noted). */
int ex_req_find(struct ex_world *w, const json_t *obj, struct ex_req **r, struct ex_problem *p);

/** Admit what waits, in every pool, and settle draining workers. After every operation. */
void ex_poll(struct ex_world *w);

/** Write `expired` lines of one pool due now. */
void ex_expire(struct ex_world *w, struct ex_pool *pool);

#endif
