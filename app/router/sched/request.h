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
struct request_step {
	struct lcore *lc;
	struct pool *pool; /* of the main leg */
	struct request *req;
	struct asked asked;
};

static inline struct pool *request_pool(const struct request *req)
{
	return req->rq.pool->owner;
}

static inline struct pool *leg_pool(const struct request_step *step, uint32_t leg)
{
	return leg == MAIN ? step->pool : step->pool->prefill;
}

/** Address of its client. A prefill leg may outlast the slot of the main leg and the message. */
static inline const struct kvr_path *request_client(const struct request *req)
{
	const struct kvr_flight *slot =
		req->slot[MAIN] != NULL ? req->slot[MAIN] : req->slot[PREFILL];

	if (slot != NULL)
		return &slot->relay.client;
	return req->job != NULL ? &req->job->client : NULL;
}

/** The request of a slot; NULL: it has ended. */
static inline struct request *request_of(const struct kvr_flight *slot)
{
	return slot->owner;
}

/** Add to a counter of the pool unless the request is a health probe. */
static inline void request_count(struct pool *pool, const struct request *req, enum pool_counter c,
				 uint64_t n)
{
	pool_count(pool, c, req->rq.probe ? 0 : n);
}

/** Whether the slot belongs to a health probe. */
static inline bool slot_probes(const struct kvr_flight *slot)
{
	const struct request *req = request_of(slot);

	return req != NULL && req->rq.probe;
}

/** The leg of a slot, which has a request. */
static inline uint32_t leg_of(const struct kvr_flight *slot)
{
	return slot->relay.leg;
}

static inline uint32_t leg_state(const struct request *req, uint32_t leg)
{
	return req->rq.leg[leg].state;
}

/* ---- requests.c: start and stop ---- */

/** Largest number of requests in a pool: each has the slot of a leg, except the one being handled.
 */
#define REQUESTS_OF(slots, prefill_slots) ((slots) + (prefill_slots) + 2u)

/** Allocate the requests of @p pool, whose pair is complete. @return 0 or -ENOMEM. */
int requests_create(struct pool *pool);

/** Free everything that live requests hold, at the stop, while every pool still exists. */
void requests_drop(struct lcore *lc, struct pool *pool);
void requests_destroy(struct pool *pool);

/* ---- abort_dp.c ---- */

/** Send ABORT until the worker acknowledges it or the slot is released. */
void abort_start(struct lcore *lc, struct pool *pool, struct kvr_flight *slot, uint16_t code);
void abort_stop(struct pool *pool, struct kvr_flight *slot);

/** Retransmit a few that are due. */
void abort_poll(struct lcore *lc, struct pool *pool);

/* ---- slot_dp.c: requests and their slots ---- */

/** Allocate a request; there is one for every slot. */
struct request *request_get(struct pool *pool);
void request_put(struct pool *pool, struct request *req);

/** Take a slot for a leg that has none. @return false: all are in use. */
bool slot_take(const struct request_step *step, uint32_t leg);

/** Take another slot for the main leg; one is free. The old one is still being aborted and lingers;
 * messages of its worker do not reach the client any more. */
void slot_renew(const struct request_step *step);

/** Store the worker of the leg in the slot. Idempotent. */
void slot_bind(const struct request_step *step, uint32_t leg);

/** Before an event of a leg that may reroute the main leg: hold the items of the main leg's worker.
 * @return whether they are held; false also if an item has passed. */
bool slot_hold(const struct request *req, const struct kvr_rq_event *ev);

/** The leg has ended, and its slot lingers. */
void slot_linger(const struct request_step *step, uint32_t leg);

/** Release the slot of a leg, if it has one. */
void slot_drop(const struct request_step *step, uint32_t leg);

/* ---- leg_dp.c: messages to the workers of a pair ---- */

/** Fields of the DISPATCH of a leg, except its handle. */
void leg_fields(const struct pool *pool, const struct kvr_flight *slot, struct dispatch_fields *f);

/** The message of a leg for its worker; hints in lc->hints. */
void leg_message(struct lcore *lc, const struct pool *pool, const struct kvr_flight *slot,
		 struct dispatch_msg *d);

/** The prefill worker is chosen: store its address for the message. */
void leg_prefill_known(const struct request_step *step);

/** Take the last item of the prefill leg. */
void leg_result(struct lcore *lc, struct job *job, struct rte_mbuf *m);

/** The same of several frames, if they may wait; otherwise the caller keeps them. @return as
 * job_hold(). */
enum kvr_code leg_long_result(struct lcore *lc, struct job *job, struct frame_list *list);

/* ---- answer_dp.c: answers to clients ---- */

void answer_accepted(const struct request_step *step);
void answer_rejected(const struct request_step *step, const struct kvr_rq_why *why);
void answer_cancelled(const struct request_step *step);

/** Reject a job that became no request, or a retransmission; takes it. */
void answer_job(struct lcore *lc, struct job *job, const struct rejection *why);

/** The last answer about a request that ended. */
struct rejection answer_ended(const struct kvr_flight_end *end);

/** POTENTIAL_LOADS. */
void answer_loads(struct lcore *lc, struct pool *pool, struct job *job);

/* ---- request_ops_dp.c: questions of lib/request ---- */

extern const struct kvr_rq_ops request_ops;

/* Guards no other data: control sets it every 10 ms. */
static inline void update_expected(struct pool *pool)
{
	if (unlikely(pool->live.rq.expected !=
		     atomic_load_explicit(&pool->control.expected, memory_order_relaxed)))
		pool->live.rq.expected = !pool->live.rq.expected;
}

/** kvr_rq_ctx of this moment. Its clock is that of sessions, which stands still while the router
 * stalls. */
static inline struct kvr_rq_ctx request_ctx(struct lcore *lc, struct pool *pool)
{
	update_expected(pool);
	if (pool->prefill != NULL)
		update_expected(pool->prefill);
	return (struct kvr_rq_ctx){&request_ops, lc, lc->quiet.now_ns, &pool->pair.rand};
}

/* ---- outcome_counters_dp.c: outcome counters ---- */

/** The main leg of a pair or of another attempt is decided, or will not be in this attempt. */
void outcome_decided(const struct request_step *step, enum pool_counter how);

/** A pool answered with @p ev, followed by @p out. */
void outcome_of_decision(const struct request_step *step, const struct kvr_rq_event *ev,
			 const struct kvr_rq_orders *out);

/** A leg was not admitted, followed by @p out. */
void outcome_not_admitted(const struct request_step *step, const struct kvr_rq_event *ev,
			  const struct kvr_rq_orders *out);

/** Another attempt begins: its decisions count as those of decode legs. */
void outcome_attempt(const struct request_step *step);

/** Count a new request that was neither booked nor queued. */
void outcome_once(const struct request_step *step, enum pool_counter c);

/* ---- orders_dp.c ---- */

/** Pass event @p ev to the request and carry out its orders; the request may have ended afterwards.
 */
enum kvr_rq_verdict step_event(const struct request_step *step, const struct kvr_rq_event *ev);

/** The same for a new request with its job. */
void step_arrive(const struct request_step *step, struct kvr_rq_session *session);

/** Pass an event of a leg to the request of its slot; counted if its state does not allow the
 * event. @p heard: the pool that received it. @return whether the event had an effect. */
bool slot_event(struct lcore *lc, struct pool *heard, struct kvr_flight *slot,
		struct kvr_rq_event ev);

/** Continue a decision about a long prompt, in @p pool or its other pool, over at most @pool runs
 * runs, and then its request. @return false: not decided yet; no other event may reach requests of
 * either pool. */
bool orders_go_on(struct lcore *lc, struct pool *pool, uint32_t runs);

/** Carry out orders that belong to no request. */
void orders_beside(struct lcore *lc, struct pool *pool, const struct kvr_rq_orders *out);

/** The request no longer needs its message, but sending may continue. */
void message_over(const struct request_step *step);

/** A slot has lingered long enough, or is needed. */
void linger_over(struct lcore *lc, struct pool *pool, struct kvr_flight *slot);

/* ---- alive_dp.c ---- */

/** Record a message about the request of a slot from its worker, or from a client that contacts the
 * engine itself. @pool slot NULL: unknown handle. */
void worker_active(const struct lcore *lc, struct pool *pool, const struct kvr_flight *slot);

/** MSG_ALIVE. */
void alive_handle(struct lcore *lc, struct pool *pool, const struct sched_msg *msg);

/* ---- request_dp.c: frames as events ---- */

/** Handle one message. */
void request_handle(struct lcore *lc, struct pool *pool, const struct sched_msg *msg);

/* ---- timers_dp.c: time as events ---- */

/** End the bookings that were lost with their worker, in both pools of a pair, before any other
 * event about them. @return false: a long prompt is in progress and some are left; no other event
 * may reach requests of either pool. */
bool lost_poll(struct lcore *lc, struct pool *pool);

/** Admit a few waiting requests, or end those whose admission failed. */
void admit_poll(struct lcore *lc, struct pool *pool);

/** Handle the decision about a waiting request. */
void admit_one(struct lcore *lc, struct pool *pool, const struct kvr_sched_decision *d);

/** Lingering slots, ABORT, DISPATCH, session messages. */
void timers_poll(struct lcore *lc, struct pool *pool);

/** Check part of the slots each tick for lost clients and passed deadlines. @return false: continue
 * in the next turn. */
bool deadlines_poll(struct lcore *lc, struct pool *pool);

#endif
