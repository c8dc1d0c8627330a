/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_REQUEST_H
#define ROUTER_REQUEST_H

/**
 * @file
 * The scheduler stage as an executor of lib/request: incidents become events, and orders come back,
 * which become frames, calls of lib/sched and statistics. lib/request has all rules of a request.
 *
 *   quota, held, decision, leg, abort  <-  send  <-  slot, answer, session, ask, tally  <-  orders
 *   <-  session_note, alive  <-  request (frames as events)  <-  timers (time as events)  <-  sched
 *   (the turn)
 *
 * Each file calls only those before it.
 *
 * Writer: the scheduler lcore of the pool of the main leg, which serves both pools of a pair.
 * Budget per event: a step of the library, 15 ns, and its orders.
 */

#include "lcore/out.h"
#include "sched/send.h"
#include "state/router.h"

#define MAIN	KVR_LEG_MAIN
#define PREFILL KVR_LEG_PREFILL

/** The frame of the client that is answered, if an answer is due. */
struct asked {
	uint8_t kind;			/* KVR_ROUTE, KVR_PROBE or KVR_CANCEL */
	const struct kvr_wire_hdr *hdr; /* header of PROBE and CANCEL */
};

/** An event while its orders are carried out. */
struct life {
	struct lcore *lc;
	struct pool *p; /* of the main leg */
	struct request *r;
	struct asked asked;
};

static inline struct pool *request_pool(const struct request *r)
{
	return r->rq.pool->owner;
}

static inline struct pool *leg_pool(const struct life *x, uint32_t leg)
{
	return leg == MAIN ? x->p : x->p->prefill;
}

/** Address of its client. A prefill leg may outlast the slot of the main leg and the message. */
static inline const struct kvr_path *request_client(const struct request *r)
{
	const struct kvr_flight *slot = r->slot[MAIN] != NULL ? r->slot[MAIN] : r->slot[PREFILL];

	if (slot != NULL)
		return &slot->relay.client;
	return r->job != NULL ? &r->job->client : NULL;
}

/** The request of a slot; NULL: it has ended. */
static inline struct request *request_of(const struct kvr_flight *slot)
{
	return slot->owner;
}

/** Add to a counter of the pool unless the request is a health probe. */
static inline void request_count(struct pool *p, const struct request *r, enum pool_counter c,
				 uint64_t n)
{
	pool_count(p, c, r->rq.probe ? 0 : n);
}

/** Whether the slot belongs to a health probe. */
static inline bool slot_probes(const struct kvr_flight *slot)
{
	const struct request *r = request_of(slot);

	return r != NULL && r->rq.probe;
}

/** The leg of a slot, which has a request. */
static inline uint32_t leg_of(const struct kvr_flight *slot)
{
	return slot->relay.leg;
}

static inline uint32_t leg_state(const struct request *r, uint32_t leg)
{
	return r->rq.leg[leg].state;
}

/* ---- requests.c: start and stop ---- */

/** Largest number of requests in a pool: each has the slot of a leg, except the one being handled.
 */
#define REQUESTS_OF(slots, prefill_slots) ((slots) + (prefill_slots) + 2u)

/** Allocate the requests of @p p, whose pair is complete. @return 0 or -ENOMEM. */
int requests_create(struct pool *p);

/** Free everything that live requests hold, at the stop, while every pool still exists. */
void requests_drop(struct lcore *lc, struct pool *p);
void requests_destroy(struct pool *p);

/* ---- abort_dp.c ---- */

/** Send ABORT until the worker acknowledges it or the slot is released. */
void abort_start(struct lcore *lc, struct pool *p, struct kvr_flight *slot, uint16_t code);
void abort_stop(struct pool *p, struct kvr_flight *slot);

/** Retransmit a few that are due. */
void abort_poll(struct lcore *lc, struct pool *p);

/* ---- slot_dp.c: requests and their slots ---- */

/** Allocate a request; there is one for every slot. */
struct request *request_get(struct pool *p);
void request_put(struct pool *p, struct request *r);

/** Take a slot for a leg that has none. @return false: all are in use. */
bool slot_take(const struct life *x, uint32_t leg);

/** Take another slot for the main leg; one is free. The old one is still being aborted and lingers;
 * messages of its worker do not reach the client any more. */
void slot_renew(const struct life *x);

/** Store the worker of the leg in the slot. Idempotent. */
void slot_bind(const struct life *x, uint32_t leg);

/** Before an event of a leg that may reroute the main leg: hold the items of the main leg's worker.
 * @return whether they are held; false also if an item has passed. */
bool slot_hold(const struct request *r, const struct kvr_rq_event *e);

/** The leg has ended, and its slot lingers. */
void slot_linger(const struct life *x, uint32_t leg);

/** Release the slot of a leg, if it has one. */
void slot_drop(const struct life *x, uint32_t leg);

/* ---- leg_dp.c: messages to the workers of a pair ---- */

/** Fields of the DISPATCH of a leg, except its handle. */
void leg_fields(const struct pool *p, const struct kvr_flight *slot, struct dispatch_fields *f);

/** The message of a leg for its worker; hints in lc->hints. */
void leg_message(struct lcore *lc, const struct pool *p, const struct kvr_flight *slot,
		 struct dispatch_msg *d);

/** The prefill worker is chosen: store its address for the message. */
void leg_prefill_known(const struct life *x);

/** Take the last item of the prefill leg. */
void leg_result(struct lcore *lc, struct job *j, struct rte_mbuf *m);

/** The same of several frames, if they may wait; otherwise the caller keeps them. @return as
 * job_hold(). */
enum kvr_code leg_long_result(struct lcore *lc, struct job *j, struct frame_list *l);

/* ---- answer_dp.c: answers to clients ---- */

void answer_accepted(const struct life *x);
void answer_rejected(const struct life *x, const struct kvr_rq_why *why);
void answer_cancelled(const struct life *x);

/** Reject a job that became no request, or a retransmission; takes it. */
void answer_job(struct lcore *lc, struct job *j, const struct refusal *why);

/** The last answer about a request that ended. */
struct refusal answer_ended(const struct kvr_flight_end *end);

/** POTENTIAL_LOADS. */
void answer_loads(struct lcore *lc, struct pool *p, struct job *j);

/* ---- ask_dp.c: questions of lib/request ---- */

extern const struct kvr_rq_ops life_ops;

/* Guards no other data: control sets it every 10 ms. */
static inline void look_who_is_expected(struct pool *p)
{
	if (unlikely(p->live.rq.expected !=
		     atomic_load_explicit(&p->control.expected, memory_order_relaxed)))
		p->live.rq.expected = !p->live.rq.expected;
}

/** kvr_rq_ctx of this moment. Its clock is that of sessions, which stands still while the router
 * stalls. */
static inline struct kvr_rq_ctx life_ctx(struct lcore *lc, struct pool *p)
{
	look_who_is_expected(p);
	if (p->prefill != NULL)
		look_who_is_expected(p->prefill);
	return (struct kvr_rq_ctx){&life_ops, lc, lc->quiet.now_ns, &p->pair.rand};
}

/* ---- tally_dp.c: outcome counters ---- */

/** The main leg of a pair or of another attempt is decided, or will not be in this attempt. */
void tally_decided(const struct life *x, enum pool_counter how);

/** A pool answered with @p e, followed by @p out. */
void tally_decision(const struct life *x, const struct kvr_rq_event *e,
		    const struct kvr_rq_orders *out);

/** A leg was not admitted, followed by @p out. */
void tally_not_admitted(const struct life *x, const struct kvr_rq_event *e,
			const struct kvr_rq_orders *out);

/** Another attempt begins: its decisions count as those of decode legs. */
void tally_try(const struct life *x);

/** Count a new request that was neither booked nor queued. */
void tally_once(const struct life *x, enum pool_counter c);

/* ---- orders_dp.c ---- */

/** Pass event @p e to the request and carry out its orders; the request may have ended afterwards.
 */
enum kvr_rq_verdict life_event(const struct life *x, const struct kvr_rq_event *e);

/** The same for a new request with its job. */
void life_arrive(const struct life *x, struct kvr_rq_session *session);

/** Pass an event of a leg to the request of its slot; counted if its state does not allow the
 * event. @p heard: the pool that received it. @return whether the event had an effect. */
bool slot_event(struct lcore *lc, struct pool *heard, struct kvr_flight *slot,
		struct kvr_rq_event e);

/** Continue a decision about a long prompt, in @p p or its other pool, over at most @p runs runs,
 * and then its request. @return false: not decided yet; no other event may reach requests of either
 * pool. */
bool orders_go_on(struct lcore *lc, struct pool *p, uint32_t runs);

/** Carry out orders that belong to no request. */
void orders_beside(struct lcore *lc, struct pool *p, const struct kvr_rq_orders *out);

/** The request no longer needs its message, but sending may continue. */
void message_over(const struct life *x);

/** A slot has lingered long enough, or is needed. */
void linger_over(struct lcore *lc, struct pool *p, struct kvr_flight *slot);

/* ---- alive_dp.c ---- */

/** Record a message about the request of a slot from its worker, or from a client that contacts the
 * engine itself. @p slot NULL: unknown handle. */
void worker_said(const struct lcore *lc, struct pool *p, const struct kvr_flight *slot);

/** NOTE_ALIVE. */
void alive_on_note(struct lcore *lc, struct pool *p, const struct note *n);

/* ---- request_dp.c: frames as events ---- */

/** Handle one message. */
void request_note(struct lcore *lc, struct pool *p, const struct note *n);

/* ---- timers_dp.c: time as events ---- */

/** End the bookings that were lost with their worker, in both pools of a pair, before any other
 * event about them. @return false: a long prompt is in progress and some are left; no other event
 * may reach requests of either pool. */
bool lost_poll(struct lcore *lc, struct pool *p);

/** Admit a few waiting requests, or end those whose admission failed. */
void admit_poll(struct lcore *lc, struct pool *p);

/** Handle the decision about a waiting request. */
void admit_one(struct lcore *lc, struct pool *p, const struct kvr_sched_decision *d);

/** Lingering slots, ABORT, DISPATCH, session messages. */
void timers_poll(struct lcore *lc, struct pool *p);

/** Check part of the slots each tick for lost clients and passed deadlines. @return false: continue
 * in the next turn. */
bool deadlines_poll(struct lcore *lc, struct pool *p);

#endif
