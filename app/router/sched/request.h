/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_REQUEST_H
#define ROUTER_REQUEST_H

/**
 * @file
 * The scheduler stage as an executor of lib/request: what happens becomes an event, what must be
 * done comes back as orders, and these become frames, calls of lib/sched and entries in books. No
 * rule of a request's life stands here.
 *
 *   share, held, decision, leg, abort  <-  send  <-  slot, answer, session, ask, tally  <-  orders
 * <- session_note, alive  <-  request (frames as events)  <-  timers (time as events)  <-  sched
 * (the turn)
 *
 * Each file calls those before it only.
 *
 * Everything is the scheduler lcore's of the pool of the main leg, which is that of both pools of
 * a pair. Per event a step of the library, 15 ns, and its orders.
 */

#include "lcore/out.h"
#include "sched/send.h"
#include "state/router.h"

#define MAIN	KVR_LEG_MAIN
#define PREFILL KVR_LEG_PREFILL

/** What is answered, when something is: a frame of the request's client. */
struct asked {
	uint8_t kind;			/* KVR_ROUTE, KVR_PROBE or KVR_CANCEL */
	const struct kvr_wire_hdr *hdr; /* of PROBE and CANCEL */
};

/** One event on its way through its orders. */
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

/** Where its answers go. A prefill leg may outlive the slot of the main leg, and the message. */
static inline const struct kvr_path *request_client(const struct request *r)
{
	const struct kvr_flight *slot = r->slot[MAIN] != NULL ? r->slot[MAIN] : r->slot[PREFILL];

	if (slot != NULL)
		return &slot->relay.client;
	return r->job != NULL ? &r->job->client : NULL;
}

/** The request of a slot; NULL: it has none any more. */
static inline struct request *request_of(const struct kvr_flight *slot)
{
	return slot->owner;
}

/** A count of a request, which no metric has when it is a health probe. */
static inline void request_count(struct pool *p, const struct request *r, enum pool_counter c,
				 uint64_t n)
{
	pool_count(p, c, r->rq.probe ? 0 : n);
}

/** Whether a slot is a health probe's. */
static inline bool slot_probes(const struct kvr_flight *slot)
{
	const struct request *r = request_of(slot);

	return r != NULL && r->rq.probe;
}

/** Which leg a slot is. It has a request. */
static inline uint32_t leg_of(const struct kvr_flight *slot)
{
	return slot->relay.leg;
}

static inline uint32_t leg_state(const struct request *r, uint32_t leg)
{
	return r->rq.leg[leg].state;
}

/* ---- requests.c: start and stop ---- */

/** Requests of a pool at one time: each has a slot, of its main leg or its prefill leg, but for the
 * one that is handled. */
#define REQUESTS_OF(slots, prefill_slots) ((slots) + (prefill_slots) + 2u)

/** Memory for the requests of @p p, whose pair is complete. @return 0 or -ENOMEM. */
int requests_create(struct pool *p);

/** Give back all that requests in flight hold; at the stop, every pool is still there. */
void requests_drop(struct lcore *lc, struct pool *p);
void requests_destroy(struct pool *p);

/* ---- abort_dp.c ---- */

/** Send ABORT until its worker has heard it, or the slot is given back. */
void abort_start(struct lcore *lc, struct pool *p, struct kvr_flight *slot, uint16_t code);
void abort_stop(struct pool *p, struct kvr_flight *slot);

/** Repeat what is due, a few. */
void abort_poll(struct lcore *lc, struct pool *p);

/* ---- slot_dp.c: requests and their slots ---- */

/** One for a new request: there are as many as can be at one time. */
struct request *request_get(struct pool *p);
void request_put(struct pool *p, struct request *r);

/** A slot for a leg that has none. @return false: all are in use. */
bool slot_take(const struct life *x, uint32_t leg);

/** Another slot for the main leg; one is free. The old one is still being aborted: it lingers, and
 * what its worker says until then is not for the client. */
void slot_renew(const struct life *x);

/** The slot knows the worker of its leg from now on. Idempotent. */
void slot_bind(const struct life *x, uint32_t leg);

/** Before an event of a leg: when the main leg, at its worker, may go elsewhere with it, hold what
 * that worker says. @return whether it is held; false, too, when something has passed. */
bool slot_hold(const struct request *r, const struct kvr_rq_event *e);

/** The leg has ended, its slot lingers. */
void slot_linger(const struct life *x, uint32_t leg);

/** The slot of a leg, if it has one, is given back. */
void slot_drop(const struct life *x, uint32_t leg);

/* ---- leg_dp.c: what workers of a pair are sent ---- */

/** What the router fills into the DISPATCH of a leg, but for its handle. */
void leg_fields(const struct pool *p, const struct kvr_flight *slot, struct dispatch_fields *f);

/** The message of a leg as its worker gets it; hints in lc->hints. */
void leg_message(struct lcore *lc, const struct pool *p, const struct kvr_flight *slot,
		 struct dispatch_msg *d);

/** The prefill worker is known: keep its address for the message. */
void leg_prefill_known(const struct life *x);

/** The last item of the prefill leg, which it takes. */
void leg_result(struct lcore *lc, struct job *j, struct rte_mbuf *m);

/** The same of several frames, if they may wait: else the caller keeps them. @return as job_hold().
 */
enum kvr_code leg_long_result(struct lcore *lc, struct job *j, struct frame_list *l);

/* ---- answer_dp.c: what clients are told ---- */

void answer_accepted(const struct life *x);
void answer_rejected(const struct life *x, const struct kvr_rq_why *why);
void answer_cancelled(const struct life *x);

/** Refuse a job that has become no request, or a repetition; takes it. */
void answer_job(struct lcore *lc, struct job *j, const struct refusal *why);

/** What has been said at last of a request that is gone. */
struct refusal answer_ended(const struct kvr_flight_end *end);

/** POTENTIAL_LOADS. */
void answer_loads(struct lcore *lc, struct pool *p, struct job *j);

/* ---- ask_dp.c: what the library asks ---- */

extern const struct kvr_rq_ops life_ops;

/* Publishes nothing: control looks every 10 ms. */
static inline void look_who_is_expected(struct pool *p)
{
	if (unlikely(p->live.rq.expected !=
		     atomic_load_explicit(&p->control.expected, memory_order_relaxed)))
		p->live.rq.expected = !p->live.rq.expected;
}

/** kvr_rq_ctx of this moment. Its time is that of sessions: they do not grow old while the router
 * stands still. */
static inline struct kvr_rq_ctx life_ctx(struct lcore *lc, struct pool *p)
{
	look_who_is_expected(p);
	if (p->prefill != NULL)
		look_who_is_expected(p->prefill);
	return (struct kvr_rq_ctx){&life_ops, lc, lc->quiet.now_ns, &p->pair.rand};
}

/* ---- tally_dp.c: what requests are counted as ---- */

/** The main leg of a request of a pair, or of another try, has had its turn, or will have none in
 * this try. */
void tally_decided(const struct life *x, enum pool_counter how);

/** A pool has answered with @p e; @p out is what follows. */
void tally_decision(const struct life *x, const struct kvr_rq_event *e,
		    const struct kvr_rq_orders *out);

/** A leg has waited in vain; @p out is what follows. */
void tally_not_admitted(const struct life *x, const struct kvr_rq_event *e,
			const struct kvr_rq_orders *out);

/** Another try of a request, when there is one: from then on its decisions are counted as those of
 * decode legs. */
void tally_try(const struct life *x);

/** What a new request is counted as that was not booked and does not wait. */
void tally_once(const struct life *x, enum pool_counter c);

/* ---- orders_dp.c ---- */

/** @p e has happened to the request: its orders are carried out, it may be gone afterwards. */
enum kvr_rq_verdict life_event(const struct life *x, const struct kvr_rq_event *e);

/** The same for a new one, whose job is there. */
void life_arrive(const struct life *x, struct kvr_rq_session *session);

/** An event of a leg, from its slot; counted when its state does not allow it. @p heard: the pool
 * that has heard of it. @return whether it was acted on. */
bool slot_event(struct lcore *lc, struct pool *heard, struct kvr_flight *slot,
		struct kvr_rq_event e);

/** A request of @p p, or of its other pool, asks for a decision about a long prompt: go on with
 * that, over at most @p runs runs, and with the request. @return false: it still asks; nothing else
 * may happen to the requests of either pool. */
bool orders_go_on(struct lcore *lc, struct pool *p, uint32_t runs);

/** Orders that name no request. */
void orders_beside(struct lcore *lc, struct pool *p, const struct kvr_rq_orders *out);

/** The message is not needed for the request; what is sent of it may still be. */
void message_over(const struct life *x);

/** The slot has lingered long enough, or its room is needed. */
void linger_over(struct lcore *lc, struct pool *p, struct kvr_flight *slot);

/* ---- alive_dp.c ---- */

/** A message about the request of a slot has come from its worker, or from its client if that runs
 * the request. @p slot NULL: the handle is unknown. */
void worker_said(const struct lcore *lc, struct pool *p, const struct kvr_flight *slot);

/** NOTE_ALIVE. */
void alive_on_note(struct lcore *lc, struct pool *p, const struct note *n);

/* ---- request_dp.c: frames as events ---- */

/** One note. */
void request_note(struct lcore *lc, struct pool *p, const struct note *n);

/* ---- timers_dp.c: time as events ---- */

/** Bookings of a pool, and of its other one, that went with their worker. Before anything else is
 * said about them. @return false: some are left, as a long prompt is under way; nothing is said of
 * either pool's requests until they are gone. */
bool lost_poll(struct lcore *lc, struct pool *p);

/** Waiting requests whose turn has come, or whose admission failed; a few. */
void admit_poll(struct lcore *lc, struct pool *p);

/** A decision about a request that has waited. */
void admit_one(struct lcore *lc, struct pool *p, const struct kvr_sched_decision *d);

/** Lingering slots, ABORT, DISPATCH, session messages. */
void timers_poll(struct lcore *lc, struct pool *p);

/** A part of the slots, in each tick: whose client has gone, or has waited as long as it wanted.
 * @return false: there is more of the part, for the next turn. */
bool deadlines_poll(struct lcore *lc, struct pool *p);

#endif
