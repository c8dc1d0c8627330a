/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef REQUEST_PVT_H
#define REQUEST_PVT_H

/**
 * @file
 * Between the files of this library, low to high: use (orders, places, requests of the legs),
 * binding and session (enter, decided, succeeded, ended), legs (another try, ends), cancel (what
 * ends a request from outside), step (events). A file calls only those before it.
 */

#include "kvr_request.h"

#include <assert.h>

#define MAIN	KVR_LEG_MAIN
#define PREFILL KVR_LEG_PREFILL

/** One step under way. */
struct step {
	const struct kvr_rq_ctx *c;
	struct kvr_request *r;
	struct kvr_rq_orders *out;
	const struct kvr_rq_event *e; /* NULL: ARRIVED */
};

/** What a request has to do with a session, by leg: kvr_rq_session::part. */
enum part {
	PART_NONE,
	PART_OPENS,  /* held until its worker answers */
	PART_BINDS,  /* affinity, when it has succeeded */
	PART_INSIDE, /* affinity: counts in the binding `ref` */
};

/** Why a leg is pinned: kvr_rq_session::pin. */
enum pin { PIN_NONE, PIN_OPENED, PIN_AFFINITY };

/* kvr_session_binding::tag: epoch of the worker:32, what kind of binding:1, the caller's:31. */
#define TAG_AFFINITY	 KVR_RQ_TAG_AFFINITY
#define TAG_CALLER_SHIFT 33

/** The table of the life of a request (table.c): events by place, and the places that may follow.
 */
struct row {
	uint32_t go, late;
	uint16_t next; /* besides the place itself */
};

extern const struct row kvr_rq__table[KVR_RQ_STATES_N];

static inline enum kvr_rq_verdict may(uint32_t state, uint32_t event)
{
	const struct row *row = &kvr_rq__table[state];

	if ((row->go >> event & 1) != 0)
		return KVR_RQ_GO;
	return (row->late >> event & 1) != 0 ? KVR_RQ_LATE : KVR_RQ_NEVER;
}

static inline void count(const struct kvr_rq_pool *p, enum kvr_request_counter c)
{
	kvr_stats_inc(p->count, c);
}

static inline struct kvr_rq_order *order(const struct step *x, enum kvr_rq_order_kind kind,
					 uint32_t leg)
{
	struct kvr_rq_order *o = &x->out->v[x->out->n++];

	assert(x->out->n <= KVR_RQ_ORDERS_MAX);
	o->kind = (uint8_t)kind;
	o->leg = (uint8_t)leg;
	o->how = 0;
	return o;
}

/** The leg is in @p state from now on. */
static inline void place(const struct step *x, uint32_t leg, enum kvr_rq_state state)
{
	struct kvr_leg *l = &x->r->leg[leg];

	assert(kvr_request_may_follow(l->state, state));
	l->state = (uint8_t)state;
}

static inline bool leg_in(const struct kvr_request *r, uint32_t leg, uint32_t states)
{
	return (states >> r->leg[leg].state & 1) != 0;
}

/** What a worker says of a leg is no success. */
#define NOT_WELL (KVR_RQEF_ERROR | KVR_RQEF_FAILED | KVR_RQEF_REFUSED)

/** A worker refuses a leg so when it is leaving, or has no memory (PROTOCOL.md, section 18). */
#define NO_ROOM_NOW 503u

#define AT(name) (1u << KVR_RQS_##name)
#define AT_WORK	 (AT(HELD) | AT(SENT) | AT(RUNNING))
#define AT_OVER	 (AT(FREE) | AT(ENDED))

/** The decode leg is another one than that of a request without legs. */
static inline bool has_legs(const struct kvr_request *r)
{
	return r->way == KVR_WAY_BOOTSTRAP || r->way == KVR_WAY_SYNC;
}

/** The blocks of a prefill leg are on their way: only the decode worker can release them, and only
 * the router can tell it to. */
static inline bool transfers(const struct kvr_request *r)
{
	return has_legs(r) && !r->book;
}

/** A worker runs the leg for the router, and would go on without an ABORT. */
static inline bool at_worker(const struct kvr_request *r, uint32_t leg)
{
	return !r->book && leg_in(r, leg, AT(SENT) | AT(RUNNING));
}

/* ---- use_dp.c ---- */

struct kvr_rq_why kvr_rq__why(const struct kvr_request *r, enum kvr_code code, uint64_t detail);
/** The worker of @p leg ends it, and has said @p said. */
struct kvr_rq_why kvr_rq__why_at(const struct kvr_request *r, uint32_t leg, enum kvr_code code,
				 uint32_t said);
struct kvr_rq_why kvr_rq__why_of(const struct kvr_request *r, const struct kvr_sched_decision *d);

/** Tell the client; @p why is remembered. Nothing when it has been told its last already. */
void kvr_rq__reject(const struct step *x, const struct kvr_rq_why *why);

/** Tell the client where the request is, when that is news. */
void kvr_rq__accept(const struct step *x, enum kvr_rq_notified state);

/** Ask the pool of a leg. */
void kvr_rq__decide(const struct step *x, uint32_t leg);
void kvr_rq__ask(const struct step *x, enum kvr_rq_order_kind question);

/** What pools are asked: the class of the message, the prefill leg, the decode leg. */
void kvr_rq__message(const struct step *x);
void kvr_rq__prefill_request(const struct step *x);
void kvr_rq__decode_request(const struct step *x, const struct kvr_rq_worker *w);
/** Its hints have changed. */
void kvr_rq__decode_hints(const struct step *x);

/** Whether the main leg is pinned to a worker whose rank nobody can tell. */
bool kvr_rq__rank_missing(const struct step *x);

/** A booking: what is known of it. @return false: its worker is not there. */
bool kvr_rq__booked(const struct step *x, uint32_t leg, const struct kvr_sched_decision *d,
		    struct kvr_rq_worker *w);

/** A message about a leg has come from its worker: renew the booking. With BOOK the message is the
 * client's, and renews both bookings. */
void kvr_rq__keep(const struct step *x, uint32_t leg);

void kvr_rq__send(const struct step *x, uint32_t leg);

/* ---- binding_dp.c ---- */

static inline bool is_affinity(const struct kvr_session_binding *to)
{
	return (to->tag & TAG_AFFINITY) != 0;
}

/** An order about session @p key of @p p at @p to. */
struct kvr_rq_order *kvr_rq__about(const struct step *x, enum kvr_rq_order_kind kind,
				   const struct kvr_rq_pool *p, const struct kvr_session_key *key,
				   const struct kvr_session_binding *to,
				   enum kvr_rq_session_how how);
void kvr_rq__tell_close(const struct step *x, const struct kvr_rq_pool *p,
			const struct kvr_session_key *key, const struct kvr_session_binding *to,
			enum kvr_rq_session_how how);

/** The binding of a key, when there is one; one that turns out to be over is closed. */
bool kvr_rq__find(const struct step *x, const struct kvr_rq_pool *p,
		  const struct kvr_session_key *key, struct kvr_session_binding *to,
		  struct kvr_session_ref *ref);

/* ---- session_dp.c: the named points ---- */

/* All do nothing to a request that names none. */

/** Before a leg is decided: pin it to its binding, keep room for an open. */
enum kvr_code kvr_rq__session_enter(const struct step *x, uint32_t leg);

/** Its pool has refused it with @p err. @return true: an affinity had pinned it; decide again. */
bool kvr_rq__session_unpin(const struct step *x, uint32_t leg, enum kvr_code err);

/** Decided and booked. @return true: the main leg is held until its worker answers. */
bool kvr_rq__session_decided(const struct step *x, uint32_t leg);

/** Its worker has it, or has sent an item. Idempotent. */
void kvr_rq__session_succeeded(const struct step *x, uint32_t leg);

/** A booked leg ends. */
void kvr_rq__session_ended(const struct step *x, uint32_t leg, enum kvr_rq_how how);

/** The main leg has ended for good. */
void kvr_rq__session_over(const struct step *x);

/** A new try begins: its prefill leg is another one. */
void kvr_rq__session_anew(const struct step *x);

/** Whether its client, or a session that it has opened, names the worker of a leg. The message is
 * there. Also for a request that names no session. */
bool kvr_rq__pinned(const struct kvr_request *r, uint32_t leg);

/** The main leg goes to another worker than an affinity has pinned it to. */
void kvr_rq__session_move(const struct step *x);

void kvr_rq__session_opened(const struct step *x);
void kvr_rq__session_not_opened(const struct step *x, bool unanswered);

/* ---- legs_dp.c ---- */

/** A leg that is booked, or waits, is over; its slot goes. */
void kvr_rq__prefill_over(const struct step *x, enum kvr_rq_how how);

/** The main leg is over for good. */
void kvr_rq__main_over(const struct step *x, enum kvr_rq_how how);

/** The main leg is over, and its worker must stop. */
void kvr_rq__main_stop(const struct step *x, enum kvr_rq_how how);

/** The main leg has failed: its client is told. */
void kvr_rq__main_failed(const struct step *x, const struct kvr_rq_why *why, enum kvr_rq_how how);

/** The prefill leg has failed: another try, or the client is told. @p worker: it is to blame. */
void kvr_rq__prefill_failed(const struct step *x, const struct kvr_rq_why *why, enum kvr_rq_how how,
			    bool worker);

/** Its worker has not acknowledged a leg: another one gets it. @p copy: its message, where the
 * request has none. @return false: it stays where it is. */
bool kvr_rq__reroute_unacked(const struct step *x, uint32_t leg, struct kvr_rq_msg *copy);

/** Its pool has nobody for the leg but the worker that has not acknowledged it. @return true: that
 * one may have it again. */
bool kvr_rq__readmit(const struct step *x, uint32_t leg);

/** Another try goes on, after its slot is there. */
void kvr_rq__start_over(const struct step *x);

/** Both legs are to be decided: the prefill leg first, if there is to be one. */
void kvr_rq__start(const struct step *x);

/** Each has its worker. */
void kvr_rq__prefill_routed(const struct step *x, const struct kvr_sched_decision *d);
void kvr_rq__main_routed(const struct step *x, const struct kvr_sched_decision *d);

/** Send the main leg, which may have been held. */
void kvr_rq__main_go_on(const struct step *x);

/** Give back what is not needed any more. */
void kvr_rq__settle(const struct step *x);

/** The same at the end of every step; most have nothing to give. */
static inline void settle(const struct step *x)
{
	if (x->r->msg != NULL || leg_in(x->r, MAIN, AT(FREE)))
		kvr_rq__settle(x);
}

/* ---- cancel_dp.c ---- */

void kvr_rq__cancel(const struct step *x);
void kvr_rq__stop(const struct step *x, enum kvr_code code);
/** It has waited for too long, or nobody waits for it any more. @return false: not so. */
bool kvr_rq__late(const struct step *x, bool client_gone);
/** A booking whose client runs it and is gone. */
void kvr_rq__lease_over(const struct step *x);
/** A prefill leg for which nobody waits, and which does not end. @return false: not so. */
bool kvr_rq__unwanted(const struct step *x);
void kvr_rq__repeated(const struct step *x, const struct kvr_rq_event *e);
void kvr_rq__lingered(const struct step *x, uint32_t leg);
void kvr_rq__aborted(const struct step *x, uint32_t leg);

#endif
