/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef REQUEST_PVT_H
#define REQUEST_PVT_H

/**
 * @file
 * Private interface between the files of this library, from low to high: use (orders, states,
 * requests of the legs), binding and session (enter, decided, succeeded, ended), legs (attempts,
 * ends), cancel (ends from outside), step (events). A file calls only files before it.
 */

#include "kvr_request.h"

#include <assert.h>

#define MAIN	KVR_LEG_MAIN
#define PREFILL KVR_LEG_PREFILL

/** Arguments of one step. */
struct step {
	const struct kvr_rq_ctx *c;
	struct kvr_request *r;
	struct kvr_rq_orders *out;
	const struct kvr_rq_event *e; /* NULL: ARRIVED */
};

/** Relation of a leg to the session: kvr_rq_session::part. */
enum part {
	PART_NONE,
	PART_OPENS,  /* opens it; held until the worker answers */
	PART_BINDS,  /* affinity: binds it after success */
	PART_INSIDE, /* affinity: uses the binding `ref` */
};

/** Why a leg is pinned: kvr_rq_session::pin. */
enum pin { PIN_NONE, PIN_OPENED, PIN_AFFINITY };

/* kvr_session_binding::tag: epoch of the worker:32, TAG_AFFINITY:1, tag of the caller:31. */
#define TAG_AFFINITY	 KVR_RQ_TAG_AFFINITY
#define TAG_CALLER_SHIFT 33

/** Row of the state table (table.c): events that a state permits or counts as late, and successors.
 */
struct row {
	uint32_t go, late;
	uint16_t next; /* besides the state itself */
};

extern const struct row kvr_rq__table[KVR_RQ_STATES_N];

static inline enum kvr_rq_verdict look_up_verdict(uint32_t state, uint32_t event)
{
	const struct row *row = &kvr_rq__table[state];

	if ((row->go >> event & 1) != 0)
		return KVR_RQ_GO;
	return (row->late >> event & 1) != 0 ? KVR_RQ_LATE : KVR_RQ_NEVER;
}

static inline void count_event(const struct kvr_rq_pool *p, enum kvr_request_counter c)
{
	kvr_stats_inc(p->count, c);
}

static inline struct kvr_rq_order *add_order(const struct step *step, enum kvr_rq_order_kind kind,
					     uint32_t leg)
{
	struct kvr_rq_order *o = &step->out->v[step->out->n++];

	assert(step->out->n <= KVR_RQ_ORDERS_MAX);
	o->kind = (uint8_t)kind;
	o->leg = (uint8_t)leg;
	o->how = 0;
	return o;
}

/** Set the state of @p leg. */
static inline void move_leg(const struct step *step, uint32_t leg, enum kvr_rq_state state)
{
	struct kvr_leg *l = &step->r->leg[leg];

	assert(kvr_request_may_follow(l->state, state));
	l->state = (uint8_t)state;
}

static inline bool leg_in(const struct kvr_request *r, uint32_t leg, uint32_t states)
{
	return (states >> r->leg[leg].state & 1) != 0;
}

/** Flags of a FIN that is not a success. */
#define NOT_WELL (KVR_RQEF_ERROR | KVR_RQEF_FAILED | KVR_RQEF_REFUSED)

/** Status of a worker that drains or has no memory (PROTOCOL.md, section 18). */
#define NO_ROOM_NOW 503u

#define AT(name) (1u << KVR_RQS_##name)
#define AT_WORK	 (AT(HELD) | AT(SENT) | AT(RUNNING))
#define AT_OVER	 (AT(FREE) | AT(ENDED))

/** Return true if the decode leg differs from the leg of an aggregated request. */
static inline bool has_legs(const struct kvr_request *r)
{
	return r->way == KVR_WAY_BOOTSTRAP || r->way == KVR_WAY_SYNC;
}

/** Return true if blocks of the prefill leg may be in transfer. Only the decode worker can release
 * them, and only on behalf of the router. */
static inline bool has_transfer(const struct kvr_request *r)
{
	return has_legs(r) && !r->book;
}

/** Return true if a worker runs the leg for the router until its end or ABORT. */
static inline bool at_worker(const struct kvr_request *r, uint32_t leg)
{
	return !r->book && leg_in(r, leg, AT(SENT) | AT(RUNNING));
}

/* ---- use_dp.c ---- */

struct kvr_rq_why kvr_rq__why(const struct kvr_request *r, enum kvr_code code, uint64_t detail);
/** Reason of an end by the worker of @p leg, with status @p said. */
struct kvr_rq_why kvr_rq__why_at(const struct kvr_request *r, uint32_t leg, enum kvr_code code,
				 uint32_t said);
struct kvr_rq_why kvr_rq__why_of(const struct kvr_request *r, const struct kvr_sched_decision *d);

/** Reject the request and keep @p why for repetitions. No-op if the client has its last answer. */
void kvr_rq__reject(const struct step *step, const struct kvr_rq_why *why);

/** Send ACCEPTED if @p state is new to the client. */
void kvr_rq__accept(const struct step *step, enum kvr_rq_notified state);

/** Ask the scheduler of the pool of @p leg for a decision. */
void kvr_rq__decide(const struct step *step, uint32_t leg);
void kvr_rq__ask(const struct step *step, enum kvr_rq_order_kind question);

/** Fill in the scheduler requests: of the message, the prefill leg, the decode leg. */
void kvr_rq__message(const struct step *step);
void kvr_rq__prefill_request(const struct step *step);
void kvr_rq__decode_request(const struct step *step, const struct kvr_rq_worker *w);
/** Update the hints of the decode leg. */
void kvr_rq__decode_hints(const struct step *step);

/** Return true if the main leg is pinned to a worker and the rank is ambiguous. */
bool kvr_rq__rank_missing(const struct step *step);

/** Store decision @p d in @p leg. @return false: its worker is not known. */
bool kvr_rq__booked(const struct step *step, uint32_t leg, const struct kvr_sched_decision *d,
		    struct kvr_rq_worker *w);

/** Renew the booking of @p leg after a message about it. With book, the message comes from the
 * client and renews both bookings. */
void kvr_rq__keep(const struct step *step, uint32_t leg);

void kvr_rq__send(const struct step *step, uint32_t leg);

/* ---- binding_dp.c ---- */

static inline bool is_affinity(const struct kvr_session_binding *to)
{
	return (to->tag & TAG_AFFINITY) != 0;
}

/** An order about session @p key of @p p at @p to. */
struct kvr_rq_order *kvr_rq__about(const struct step *step, enum kvr_rq_order_kind kind,
				   const struct kvr_rq_pool *p, const struct kvr_session_key *key,
				   const struct kvr_session_binding *to,
				   enum kvr_rq_session_how how);
void kvr_rq__tell_close(const struct step *step, const struct kvr_rq_pool *p,
			const struct kvr_session_key *key, const struct kvr_session_binding *to,
			enum kvr_rq_session_how how);

/** Find the binding of @p key. An expired one is closed. */
bool kvr_rq__find(const struct step *step, const struct kvr_rq_pool *p,
		  const struct kvr_session_key *key, struct kvr_session_binding *to,
		  struct kvr_session_ref *ref);

/* ---- session_dp.c: hooks of a leg; no-ops for requests without session ---- */

/** Before a decision: pin the leg to its binding, reserve memory for an open. */
enum kvr_code kvr_rq__session_enter(const struct step *step, uint32_t leg);

/** After a rejection with @p err. @return true: remove the pin of an affinity, decide again. */
bool kvr_rq__session_unpin(const struct step *step, uint32_t leg, enum kvr_code err);

/** After decision and booking. @return true: the main leg is held until its worker answers. */
bool kvr_rq__session_decided(const struct step *step, uint32_t leg);

/** After an acknowledgement or item of the worker. Idempotent. */
void kvr_rq__session_succeeded(const struct step *step, uint32_t leg);

/** At the end of a booked leg. */
void kvr_rq__session_ended(const struct step *step, uint32_t leg, enum kvr_rq_how how);

/** After the end of the main leg, if no attempt follows. */
void kvr_rq__session_over(const struct step *step);

/** Before a new attempt, which has a new prefill leg. */
void kvr_rq__session_anew(const struct step *step);

/** Return true if the client or an opened session pins the worker of @p leg. Requires the message.
 * Valid without a session too. */
bool kvr_rq__pinned(const struct kvr_request *r, uint32_t leg);

/** Remove the pin of an affinity from the main leg, which goes to another worker. */
void kvr_rq__session_move(const struct step *step);

void kvr_rq__session_opened(const struct step *step);
void kvr_rq__session_not_opened(const struct step *step, bool unanswered);

/* ---- legs_dp.c ---- */

/** End the prefill leg, booked or waiting, and free its slot. */
void kvr_rq__prefill_over(const struct step *step, enum kvr_rq_how how);

/** End the main leg; no attempt follows. */
void kvr_rq__main_over(const struct step *step, enum kvr_rq_how how);

/** End the main leg and abort it at its worker. */
void kvr_rq__main_stop(const struct step *step, enum kvr_rq_how how);

/** End the failed main leg and reject the request. */
void kvr_rq__main_failed(const struct step *step, const struct kvr_rq_why *why,
			 enum kvr_rq_how how);

/** End the failed prefill leg, then start a new attempt or reject the request. @p worker: the
 * worker is at fault. */
void kvr_rq__prefill_failed(const struct step *step, const struct kvr_rq_why *why,
			    enum kvr_rq_how how, bool worker);

/** Reroute a leg that its worker did not acknowledge. @p copy: the message, if the request has
 * none.
 * @return false: not rerouted. */
bool kvr_rq__reroute_unacked(const struct step *step, uint32_t leg, struct kvr_rq_msg *copy);

/** Permit the excluded worker if no other worker is eligible. @return true: decide again. */
bool kvr_rq__readmit(const struct step *step, uint32_t leg);

/** Continue a new attempt after its slot was allocated. */
void kvr_rq__start_over(const struct step *step);

/** Decide the first leg: the prefill leg if there is one. */
void kvr_rq__start(const struct step *step);

/** Handle the decision for a leg. */
void kvr_rq__prefill_routed(const struct step *step, const struct kvr_sched_decision *d);
void kvr_rq__main_routed(const struct step *step, const struct kvr_sched_decision *d);

/** Send the main leg, which may have been held. */
void kvr_rq__main_go_on(const struct step *step);

/** Free the message and the request if they are not needed any more. */
void kvr_rq__settle(const struct step *step);

/** Fast path of kvr_rq__settle() for every step. */
static inline void settle_request(const struct step *step)
{
	if (step->r->msg != NULL || leg_in(step->r, MAIN, AT(FREE)))
		kvr_rq__settle(step);
}

/* ---- cancel_dp.c ---- */

void kvr_rq__cancel(const struct step *step);
void kvr_rq__stop(const struct step *step, enum kvr_code code);
/** Expire a request after its deadline or silence of its client. @return false: does not apply. */
bool kvr_rq__late(const struct step *step, bool client_gone);
/** Expire a book-only request that its client did not renew. */
void kvr_rq__lease_over(const struct step *step);
/** Abort a prefill leg that did not end after the client was answered. @return false: does not
 * apply. */
bool kvr_rq__unwanted(const struct step *step);
void kvr_rq__repeated(const struct step *step, const struct kvr_rq_event *e);
void kvr_rq__lingered(const struct step *step, uint32_t leg);
void kvr_rq__aborted(const struct step *step, uint32_t leg);

#endif
