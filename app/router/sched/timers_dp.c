/* SPDX-License-Identifier: BSD-3-Clause */
/* Timers, and notifications of lib/sched, as events. */
#include "message/job.h"
#include "sched/decision_log.h"
#include "sched/long_prompt.h"
#include "sched/request.h"
#include "sched/sched.h"
#include "sched/send.h"
#include "sched/session.h"

#include <assert.h>
#include <string.h>

/* Decisions for waiting requests per turn, 1 to 5 us each; the last call may make twice as many. */
#define ADMIT_TURN 8u

/* ---- what the library tells ---- */

/* Called inside the library; handled after its return. */
void sched_dropped(void *arg, uint32_t slot, uint32_t rank)
{
	struct pool *pool = arg;

	RTE_SET_USED(rank);
	assert(pool->live.n_lost < kvr_flight_size(pool->requests)); /* one booking per slot */
	pool->lost[pool->live.n_lost++] = slot;
}

static bool lost_of(struct lcore *lc, struct pool *pool)
{
	uint32_t i = 0;

	for (; i < pool->live.n_lost; i++) {
		struct kvr_flight *slot = kvr_flight_slot(pool->requests, pool->lost[i]);
		const struct request *req = request_of(slot);
		const bool counts =
			req != NULL && !req->rq.probe && !req->rq.leg[leg_of(slot)].released;

		if (!long_prompt_idle(pool))
			break;
		if (slot_event(lc, pool, slot, (struct kvr_rq_event){.kind = KVR_RQE_LOST}))
			pool_count(pool, PC_LOST, counts);
	}
	pool->live.n_lost -= i;
	if (unlikely(i > 0 && pool->live.n_lost > 0))
		memmove(pool->lost, pool->lost + i, pool->live.n_lost * sizeof(pool->lost[0]));
	return pool->live.n_lost == 0;
}

/* Both pools of a pair together: an event of a leg in one pool ends a leg in the other, whose slot
 * might belong to another request later. */
bool lost_poll(struct lcore *lc, struct pool *pool)
{
	struct pool *other = pool->other;

	if (unlikely(!orders_go_on(lc, pool, LONG_PROMPT_SLICE)))
		return false;
	return lost_of(lc, pool) && (likely(other == pool) || lost_of(lc, other));
}

void admit_one(struct lcore *lc, struct pool *pool, const struct kvr_sched_decision *d)
{
	const struct kvr_rq_event ev = {.kind = (uint8_t)kvr_request_decided(d, true), .d = d};

	pool_count(pool, PC_ADMITTED, d->result == KVR_SCHED_ROUTED);
	slot_event(lc, pool, kvr_flight_slot(pool->requests, d->slot), ev);
}

/* One by one: the consequences of an admission (a leg that is stopped at once, a question about the
 * next leg) come before the next decision. The rest is decided in the next turn. */
void admit_poll(struct lcore *lc, struct pool *pool)
{
	const uint64_t most = long_prompt_walked(pool) + LONG_PROMPT_TURN,
		       moves = kvr_sched_moves(pool->sched);
	struct kvr_sched_decision d;

	for (uint32_t i = 0; i + (kvr_sched_moves(pool->sched) - moves) < ADMIT_TURN &&
			     likely(long_prompt_may_admit(pool)) &&
			     long_prompt_walked(pool) < most && decision_poll(lc, pool, &d, 1) == 1;
	     i++)
		admit_one(lc, pool, &d);
}

/* ---- requests that no worker has, and those that their clients run ---- */

#define LOOK_TURN 64u  /* slots checked per turn: two cache lines each, not prefetched */
#define LOOK_MOST 128u /* per tick if no request waits */

/* Whether the client is silent about the prefill leg: from the first check on, its worker gets some
 * time to end it. */
static bool is_unwanted(const struct lcore *lc, struct request *req, struct kvr_rq_event *ev)
{
	const uint32_t now_ms = (uint32_t)(lc->quiet.now_ns / 1000000) | 1;

	ev->kind = KVR_RQE_UNWANTED;
	if (req->unwanted_ms == 0)
		req->unwanted_ms = now_ms;
	return (int32_t)(now_ms - req->unwanted_ms) > (int32_t)(KVR_FLIGHT_LINGER_NS / 1000000);
}

/* Whether the router retransmits the message without its client, and for how long. */
static bool is_repeated(const struct lcore *lc, const struct request *req)
{
	return leg_state(req, MAIN) == KVR_RQS_SENT && send_kept(req) &&
	       since_ns(lc->quiet.now_ns, req->rq.sent_ns[MAIN]) <= KVR_FLIGHT_LINGER_NS;
}

/* Whether the client is lost or its deadline has passed. A waiting request occupies the queue. A
 * sent request may be at its worker, so its client gets the full timeout. After a release, both
 * sides must have been silent for that time. */
static bool is_late(const struct lcore *lc, const struct request *req, struct kvr_rq_event *ev)
{
	const uint64_t waits_ns = lc->rt->conf.opt.client_timeout_ms * UINT64_C(1000000);
	const bool at_worker = !req->rq.book && (leg_state(req, MAIN) == KVR_RQS_SENT ||
						 leg_state(req, MAIN) == KVR_RQS_RUNNING);
	const uint64_t gone_ns = at_worker ? RTE_MAX(waits_ns, KVR_FLIGHT_LINGER_NS) : waits_ns;
	const uint64_t deadline_ns = req->job != NULL ? req->job->deadline_ns : 0;

	ev->kind = req->rq.book && leg_state(req, MAIN) == KVR_RQS_RUNNING ? KVR_RQE_LEASE_OVER
									   : KVR_RQE_CLIENT_GONE;
	if (since_ns(lc->quiet.now_ns, req->client_seen_ns) > gone_ns && !is_repeated(lc, req))
		return true;
	ev->kind = KVR_RQE_DEADLINE;
	return deadline_ns != 0 && lc->now_ns >= deadline_ns &&
	       (leg_state(req, MAIN) == KVR_RQS_QUEUED ||
		leg_state(req, PREFILL) == KVR_RQS_QUEUED);
}

/* Whether the engine may wait for data of a lost prefill worker. */
static bool is_orphaned(struct lcore *lc, struct pool *pool, const struct request *req,
			struct kvr_rq_event *ev)
{
	const struct kvr_rq_ctx c = request_ctx(lc, pool);

	ev->kind = KVR_RQE_UNACKED;
	return kvr_request_unacked(&c, &req->rq, MAIN);
}

static bool is_over(struct lcore *lc, struct pool *pool, const struct kvr_flight *slot,
		    struct kvr_rq_event *ev)
{
	struct request *req = request_of(slot);

	if (leg_of(slot) == PREFILL)
		return is_unwanted(lc, req, ev);
	if (leg_state(req, MAIN) != KVR_RQS_RUNNING || req->rq.book)
		return is_late(lc, req, ev);
	return (req->rq.leg[MAIN].released && is_late(lc, req, ev)) ||
	       is_orphaned(lc, pool, req, ev);
}

/* The next slot with a main leg without a worker, of a booking, of a released booking or with
 * another worker's result, or with a prefill leg without a client; slots are visited in turn. */
static struct kvr_flight *next_slot(struct pool *pool)
{
	uint32_t states = 1u << KVR_RQS_UNDECIDED | 1u << KVR_RQS_QUEUED | 1u << KVR_RQS_SENT;
	struct kvr_flight *slot = kvr_flight_slot(pool->requests, pool->live.sweep);
	const struct request *req = slot->state == KVR_FLIGHT_LIVE ? request_of(slot) : NULL;

	pool->live.sweep =
		pool->live.sweep + 1 == kvr_flight_size(pool->requests) ? 0 : pool->live.sweep + 1;
	if (req != NULL && leg_of(slot) == PREFILL)
		return kvr_request_unwanted(&req->rq) ? slot : NULL;
	if (req != NULL &&
	    (req->rq.book || req->rq.way == KVR_WAY_SYNC || req->rq.leg[MAIN].released))
		states |= 1u << KVR_RQS_RUNNING;
	if (req == NULL || (states >> leg_state(req, MAIN) & 1) == 0 ||
	    req->rq.notified == KVR_RQ_OVER)
		return NULL;
	return slot;
}

/* Slots to check in this tick. */
static uint32_t slots_per_tick(const struct pool *pool)
{
	const uint32_t part = kvr_flight_size(pool->requests) / 16 + 1;

	if (kvr_flight_count(pool->requests) == kvr_flight_lingering(pool->requests))
		return 0;
	if (kvr_sched_counters(pool->sched)->waiting_now == 0 && pool->pair.n_prefilling == 0)
		return RTE_MIN(part, LOOK_MOST);
	return part;
}

/* Check part of the slots each tick (10 ms), LOOK_TURN of them a turn, fewer if many end: for
 * requests with a deadline or a silent client. Waiting clients send PROBE at least every 2 s. While
 * requests wait, all slots are visited every 160 ms; otherwise at most LOOK_MOST per tick, which is
 * all 65,536 of a pool in 5 s. */
bool deadlines_poll(struct lcore *lc, struct pool *pool)
{
	uint32_t ended = 0;

	if (pool->live.look == 0)
		pool->live.look = slots_per_tick(pool);
	for (uint32_t i = 0; i < LOOK_TURN && pool->live.look > 0 && ended < ENDS_TURN; i++) {
		struct kvr_flight *slot = next_slot(pool);
		struct kvr_rq_event ev = {0};
		bool probe;

		pool->live.look--;
		if (slot == NULL || !is_over(lc, pool, slot, &ev))
			continue;
		probe = slot_probes(slot);
		ended++;
		if (slot_event(lc, pool, slot, ev))
			pool_count(
				pool, PC_CLIENT_GONE,
				(ev.kind == KVR_RQE_CLIENT_GONE || ev.kind == KVR_RQE_LEASE_OVER) &&
					!probe);
	}
	return pool->live.look == 0;
}

/* ---- the rest of a turn ---- */

#define REROUTE_TURN 4u /* requests rerouted per turn: two decisions each */

/* Reroute legs that their workers do not acknowledge. Those that must stay are retransmitted by
 * send_poll(). */
static void reroute_poll(struct lcore *lc, struct pool *pool)
{
	struct kvr_flight *slot;

	for (uint32_t i = 0; i < REROUTE_TURN && likely(long_prompt_idle(pool)) &&
			     unlikely((slot = send_reroutable(lc, pool)) != NULL);
	     i++)
		if (!slot_event(lc, pool, slot, (struct kvr_rq_event){.kind = KVR_RQE_UNACKED}))
			break;
}

void timers_poll(struct lcore *lc, struct pool *pool)
{
	struct kvr_flight *slot;

	/* As many as can end in a turn, and some of the backlog. */
	for (uint32_t i = 0; i < 2 * BURST; i++) {
		slot = kvr_flight_lingered(pool->requests, lc->now_ns);
		if (slot == NULL)
			break;
		linger_over(lc, pool, slot);
	}
	abort_poll(lc, pool);
	reroute_poll(lc, pool);
	send_poll(lc, pool);
	session_timers(lc, pool);
}
