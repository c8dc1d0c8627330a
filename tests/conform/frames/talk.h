/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FRAMES_TALK_H
#define FRAMES_TALK_H

/**
 * @file
 * What is known of one request: what its client and its workers have been told, and the decisions
 * about it. One thread; everything here is the executor's.
 *
 *   talk     requests by number, decisions, settling: until nobody says anything any more
 *   client   what a client is told, and the lines that follow
 *   agents   what the workers are told, and what they answer at once
 *   said     what clients and workers say because a line of the scenario says so
 */

#include "frames.h"

#define MAIN	KVR_LEG_MAIN
#define PREFILL KVR_LEG_PREFILL

struct talk {
	struct kvr_sc_req *r; /* NULL: over, and nobody asks any more */
	uint64_t id;
	uint64_t handle; /* what the client was told last */
	struct peers_run run[2];
	struct peers_decision *d[2]; /* by leg; the last one */
	bool decided[2];	     /* and no line says so yet */
	bool failed[2];		     /* it was a refusal */
	bool arriving;		     /* the answer to its ROUTE is not there */
	bool again;		     /* its ROUTE was repeated with another body */
	uint32_t copy;		     /* of the body */
	uint32_t bypass_told;	     /* try of which a line says that it is, + 1 */
	bool released[2];	     /* a line says so */
	bool opening;		     /* SESSION_OPEN waits for an answer */
	bool renewed;		     /* another try's was seen, its ACCEPTED was not */
	uint64_t open_id;
	bool prefilled; /* the prefill leg of this try has its worker, or is done */
	struct peers_agent open_at;
	bool closed; /* it closes its session, and was decided */
};

/* ---- talk.c ------------------------------------------------------------------------------ */

/** A request that the scenario begins. */
struct talk *talk_new(struct kvr_sc_req *r);

/** NULL: not one of the scenario's. */
struct talk *talk_of(uint64_t id);

/** A worker has the leg, and has not ended it. */
bool talk_works(const struct talk *t, uint32_t leg);

void talk_leg_is(struct talk *t, uint32_t leg, enum kvr_rq_state state);

/** Whether a pool of a pair decides alone in this try, and no line says so yet. */
bool talk_bypassed(const struct talk *t);

/** Whether its main leg was sent and begins anew, and its client does not know it yet. */
bool talk_renewed(const struct talk *t);

/** Of the decode half of a pair. */
bool talk_is_half(const struct kvr_sc_req *r);

/* ---- client.c ---------------------------------------------------------------------------- */

/** The client has heard the last word. */
void client_heard_all(struct kvr_sc_world *w, struct talk *t);

/** A frame to the client. */
void client_told(struct kvr_sc_world *w, const struct peers_got *g);

/** ROUTE could not be written, or was refused. */
void client_rejected(struct kvr_sc_world *w, struct talk *t, const struct peers_got *g);

void client_prefill_line(struct talk *t, uint8_t way, const struct kvr_wire_accepted *a);

/** The pool of a pair decides alone; said once a try. */
void client_bypassed_line(struct talk *t);

void client_accepted_line(struct talk *t, enum kvr_rq_state state);
void client_released_lines(struct talk *t);

/** The answer to POTENTIAL_LOADS since client_loads_asked(), or NULL. */
const struct peers_got *client_loads(void);
void client_loads_asked(void);

/** The same for SESSION_RELEASE; exits when there is none. */
enum kvr_code client_release(void);
void client_release_asked(void);

/* ---- agents.c ---------------------------------------------------------------------------- */

/** A frame to the agent @p at. */
void agents_told(struct kvr_sc_world *w, const struct peers_agent *at, const struct peers_got *g);

/** What came to agents about sessions, when all else that came with it has been seen. */
void agents_sessions(struct kvr_sc_world *w);

/** The last item of a leg, and no more. */
void agents_fin(struct talk *t, uint32_t leg, uint16_t flags);

#endif
