/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FRAMES_PEERS_H
#define FRAMES_PEERS_H

/**
 * @file
 * The router as a scenario meets it: all its stages on this thread and a clock that only
 * peers_clock() moves; one client and the agents of all workers, as frames that go in and frames
 * that come out. Between frames and scenario stands this header, with no type of either library.
 *
 * What no frame says is read where the router has it: terms of decisions (its decision log), states
 * of workers, what a session is bound to, scores of a prompt.
 */

#include "kvr_sched.h"
#include "kvr_wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PEERS_SOURCE 77u /* the client */
#define PEERS_TERMS  64u

/** Grows with every frame that goes in, and all else that may move something. */
extern uint32_t peers_said;

/* ---- the router -------------------------------------------------------------------------- */

/** Start it with pools from this text, sections as in the configuration file. Once. */
void peers_start(const char *pools);

/** It is @p ns of the scenario's time; never falls. */
void peers_clock(uint64_t ns);

/** Run every stage until nothing moves. */
void peers_turn(void);

/** When a booking, the queue or an open of a pool is due, on the scenario's clock; UINT64_MAX:
 * never. */
uint64_t peers_timer(uint32_t pool);

/** Number of the pool called @p name. */
uint32_t peers_pool(const char *name);

struct kvr_sched *peers_sched(uint32_t pool);

/** Whether a prefill pool takes part. */
bool peers_active(uint32_t pool);

/** enum kvr_wire_worker_state; GONE when it is not known. */
uint32_t peers_worker_state(uint64_t worker);

/** Operator: drain, or resume. */
void peers_drain(uint64_t worker, bool draining);

/** Leading blocks in the tables of a pool: `device`, ... by dense rank, valid until the next. */
void peers_scores(uint32_t pool, const uint64_t *sh, uint32_t n, struct kvr_sched_overlap *ov);

/** What the router knows of a request. */
struct peers_life {
	uint32_t way;	  /* enum kvr_way */
	uint32_t try;	  /* 0 the first */
	uint64_t handle;  /* of its main leg; another one when that was sent and begins anew */
	bool released[2]; /* by leg: its booking, after silence */
};

/** @return false: the router has no trace of it. */
bool peers_life(uint32_t pool, uint64_t id, struct peers_life *out);

/** Time in ns until the decode leg of a request starts over because its blocks were lost; 0 or
 * less: it is due; INT64_MAX: it does not start over. */
int64_t peers_reroute_left(uint32_t pool, uint64_t id);

/** Start it over. The router itself finds such legs in rounds, in the order of their slots; in a
 * scenario they start over at once, in the order in which they are due. */
void peers_reroute(uint32_t pool, uint64_t id);

/** Potential loads of a prompt without tokens, which POTENTIAL_LOADS refuses. */
uint32_t peers_loads_of_nothing(uint32_t pool, struct kvr_sched_load v[], uint32_t cap,
				struct kvr_sched_pending *pending);

struct peers_decision {
	uint64_t id;
	struct kvr_sched_decision d;
	uint32_t n_terms;
	struct kvr_sched_term term[PEERS_TERMS]; /* by (worker, dp_rank) */
};

/** The next decision of a pool; false: there is none. Exits when one was lost. */
bool peers_decision(uint32_t pool, struct peers_decision *out);

/** Sessions that a pool has bound; over, but not looked at yet, are among them. */
uint32_t peers_sessions(uint32_t pool);

/** Sessions of a pool that have ended because their time was over. */
uint64_t peers_sessions_over(uint32_t pool);

struct peers_binding {
	uint64_t worker, tag;
	uint32_t dp_rank;
	uint64_t left_ns;
};

/** Read the binding of a session without using it. @return false: none, or expired. */
bool peers_find_binding(uint32_t pool, const char *id, uint32_t len, struct peers_binding *out);

/* ---- agents ------------------------------------------------------------------------------ */

/** Who says what: a worker in one of its lives; its agent's UDP port. */
struct peers_agent {
	uint64_t worker;
	uint32_t epoch;
	uint16_t port;
};

struct peers_hello {
	const char *pool;
	uint8_t role;
	uint32_t block_size;
	uint32_t dp_start, dp_size;
	uint32_t max_num_batched_tokens;
	uint64_t total_kv_blocks;
	bool cpu;
	uint32_t n_taints, n_topology;
	const char *taint[16];
	const char *topology[8]; /* "key=value" */
	const char *host;	 /* bootstrap; or NULL */
	uint16_t bootstrap_port;
	const char *domain; /* of transfers; or NULL */
	bool required;
	double weight;
};

void peers_hello(const struct peers_agent *a, const struct peers_hello *h);
void peers_goodbye(const struct peers_agent *a);

/** The worker was heard of so long ago that its life is over. */
void peers_silent(uint64_t worker);

/** Events of a rank: @p n blocks in as many frames as it takes; KVR_KV_CLEARED has none.
 * @param parent of the first one, or NULL. @param next number of the next event; rises. */
void peers_events(const struct peers_agent *a, uint32_t dp_rank, uint8_t type, uint8_t tier,
		  const uint64_t *parent, const uint64_t *sh, uint32_t n, uint64_t *next);

/** @p next: as in peers_events(). */
void peers_load(const struct peers_agent *a, uint32_t dp_rank, uint64_t used, uint64_t next);

/** One leg of a request at an agent. */
struct peers_run {
	struct peers_agent at;
	uint64_t id, handle;
	uint32_t seq, reports; /* of the next item, PROGRESS */
};

void peers_taken(const struct peers_run *r);
void peers_first_token(struct peers_run *r, uint32_t tokens);
void peers_item(struct peers_run *r, uint16_t flags, uint32_t tokens, const char *data);
void peers_aborted(const struct peers_run *r);

/** Answer to SESSION_OPEN or SESSION_CLOSE number @p id. */
void peers_session(const struct peers_agent *a, uint8_t kind, uint64_t id, uint16_t code);

/* ---- the client -------------------------------------------------------------------------- */

struct peers_route {
	uint8_t kind; /* KVR_ROUTE, KVR_POTENTIAL_LOADS */
	uint64_t id;
	uint32_t pool; /* number */
	uint8_t phase;
	bool query, probe, book, resend;
	uint32_t isl, max_tokens;
	uint32_t n_hashes, n_tokens;
	const uint64_t *hashes;
	const uint32_t *tokens;
	const struct kvr_hints *hints; /* or NULL */
	const char *lora, *ns;	       /* or NULL */
	uint8_t action;		       /* of the session, enum kvr_wire_session_action */
	uint32_t timeout_s;
	const char *session; /* or NULL */
	uint32_t n_mm;
	const struct peers_mm *mm;
	const char *body; /* tells copies apart */
};

struct peers_mm {
	uint32_t block, n;
	uint64_t hash[64];
};

/** @return false: it cannot be written as a frame. */
bool peers_route(const struct peers_route *q);

/** The client runs it itself, and says how it goes. @p seq: of its reports, from 0. */
void peers_reported(uint64_t id, uint64_t handle, uint32_t seq, uint16_t flags, uint32_t tokens);

void peers_cancel(uint64_t id, uint64_t handle);

/** The session is not needed any more. */
void peers_release(uint32_t pool, const char *session);

/** Has the last item. */
void peers_fin_acked(uint64_t id, uint64_t handle, uint32_t seq);

/* ---- frames that came out ---------------------------------------------------------------- */

struct peers_got {
	uint8_t kind;  /* enum kvr_wire_kind */
	uint16_t port; /* of the agent, or PEER_CLIENT's */
	uint64_t source, id, handle;
	uint32_t epoch;
	uint16_t code; /* REJECTED, ABORT, KV_ACK, SESSION_RELEASED */
	/* REJECTED */
	uint8_t about; /* kind of the refused one */
	uint16_t policy_class;
	bool retryable;
	uint64_t detail[4];
	/* ACCEPTED */
	struct kvr_wire_accepted accepted;
	/* DISPATCH */
	bool prefill_leg;
	uint64_t room;
	/* RESPONSE */
	uint32_t seq;
	bool fin;
	/* SESSION_OPEN, SESSION_CLOSE: `id` is its number */
	uint32_t session_pool; /* number */
	uint32_t session_len;
	char session[257];
	/* LOADS */
	uint32_t n_loads;
	uint64_t waiting, waiting_tokens;
	struct kvr_sched_load load[40];
};

/** The next frame that came out; false: none. */
bool peers_next(struct peers_got *out);

#endif
