/* SPDX-License-Identifier: BSD-3-Clause */
/* Timers, and notifications of lib/sched, as events. */
#include "message/job.h"
#include "sched/decision_log.h"
#include "sched/prompts.h"
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
	struct pool *p = arg;

	RTE_SET_USED(rank);
	assert(p->live.n_lost < kvr_flight_size(p->requests)); /* one booking per slot */
	p->lost[p->live.n_lost++] = slot;
}

static bool lost_of(struct lcore *lc, struct pool *p)
{
	uint32_t i = 0;

	for (; i < p->live.n_lost; i++) {
		struct kvr_flight *slot = kvr_flight_slot(p->requests, p->lost[i]);
		const struct request *r = request_of(slot);
		const bool counts = r != NULL && !r->rq.probe && !r->rq.leg[leg_of(slot)].released;

		if (!prompts_idle(p))
			break;
		if (slot_event(lc, p, slot, (struct kvr_rq_event){.kind = KVR_RQE_LOST}))
			pool_count(p, PC_LOST, counts);
	}
	p->live.n_lost -= i;
	if (unlikely(i > 0 && p->live.n_lost > 0))
		memmove(p->lost, p->lost + i, p->live.n_lost * sizeof(p->lost[0]));
	return p->live.n_lost == 0;
}

/* Both pools of a pair together: an event of a leg in one pool ends a leg in the other, whose slot
 * might belong to another request later. */
bool lost_poll(struct lcore *lc, struct pool *p)
{
	struct pool *other = p->other;

	if (unlikely(!orders_go_on(lc, p, PROMPTS_SLICE)))
		return false;
	return lost_of(lc, p) && (likely(other == p) || lost_of(lc, other));
}

void admit_one(struct lcore *lc, struct pool *p, const struct kvr_sched_decision *d)
{
	const struct kvr_rq_event e = {.kind = (uint8_t)kvr_request_decided(d, true), .d = d};

	pool_count(p, PC_ADMITTED, d->result == KVR_SCHED_ROUTED);
	slot_event(lc, p, kvr_flight_slot(p->requests, d->slot), e);
}

/* One by one: the consequences of an admission (a leg that is stopped at once, a question about the
 * next leg) come before the next decision. The rest is decided in the next turn. */
void admit_poll(struct lcore *lc, struct pool *p)
{
	const uint64_t most = prompts_walked(p) + PROMPTS_TURN, moves = kvr_sched_moves(p->sched);
	struct kvr_sched_decision d;

	for (uint32_t i = 0;
	     i + (kvr_sched_moves(p->sched) - moves) < ADMIT_TURN && likely(prompts_may_admit(p)) &&
	     prompts_walked(p) < most && decide_waiting(lc, p, &d, 1) == 1;
	     i++)
		admit_one(lc, p, &d);
}

/* ---- requests that no worker has, and those that their clients run ---- */

#define LOOK_TURN 64u  /* slots checked per turn: two cache lines each, not prefetched */
#define LOOK_MOST 128u /* per tick if no request waits */

/* Whether the client is silent about the prefill leg: from the first check on, its worker gets some
 * time to end it. */
static bool is_unwanted(const struct lcore *lc, struct request *r, struct kvr_rq_event *e)
{
	const uint32_t now_ms = (uint32_t)(lc->quiet.now_ns / 1000000) | 1;

	e->kind = KVR_RQE_UNWANTED;
	if (r->unwanted_ms == 0)
		r->unwanted_ms = now_ms;
	return (int32_t)(now_ms - r->unwanted_ms) > (int32_t)(KVR_FLIGHT_LINGER_NS / 1000000);
}

/* Whether the router retransmits the message without its client, and for how long. */
static bool is_repeated(const struct lcore *lc, const struct request *r)
{
	return leg_state(r, MAIN) == KVR_RQS_SENT && send_kept(r) &&
	       since_ns(lc->quiet.now_ns, r->rq.sent_ns[MAIN]) <= KVR_FLIGHT_LINGER_NS;
}

/* Whether the client is lost or its deadline has passed. A waiting request occupies the queue. A
 * sent request may be at its worker, so its client gets the full timeout. After a release, both
 * sides must have been silent for that time. */
static bool is_late(const struct lcore *lc, const struct request *r, struct kvr_rq_event *e)
{
	const uint64_t waits_ns = lc->rt->conf.opt.client_timeout_ms * UINT64_C(1000000);
	const bool at_worker = !r->rq.book && (leg_state(r, MAIN) == KVR_RQS_SENT ||
					       leg_state(r, MAIN) == KVR_RQS_RUNNING);
	const uint64_t gone_ns = at_worker ? RTE_MAX(waits_ns, KVR_FLIGHT_LINGER_NS) : waits_ns;
	const uint64_t deadline_ns = r->job != NULL ? r->job->deadline_ns : 0;

	e->kind = r->rq.book && leg_state(r, MAIN) == KVR_RQS_RUNNING ? KVR_RQE_LEASE_OVER
								      : KVR_RQE_CLIENT_GONE;
	if (since_ns(lc->quiet.now_ns, r->heard_ns) > gone_ns && !is_repeated(lc, r))
		return true;
	e->kind = KVR_RQE_DEADLINE;
	return deadline_ns != 0 && lc->now_ns >= deadline_ns &&
	       (leg_state(r, MAIN) == KVR_RQS_QUEUED || leg_state(r, PREFILL) == KVR_RQS_QUEUED);
}

/* Whether the engine may wait for data of a lost prefill worker. */
static bool is_in_vain(struct lcore *lc, struct pool *p, const struct request *r,
		       struct kvr_rq_event *e)
{
	const struct kvr_rq_ctx c = life_ctx(lc, p);

	e->kind = KVR_RQE_UNHEARD;
	return kvr_request_unheard(&c, &r->rq, MAIN);
}

static bool is_over(struct lcore *lc, struct pool *p, const struct kvr_flight *slot,
		    struct kvr_rq_event *e)
{
	struct request *r = request_of(slot);

	if (leg_of(slot) == PREFILL)
		return is_unwanted(lc, r, e);
	if (leg_state(r, MAIN) != KVR_RQS_RUNNING || r->rq.book)
		return is_late(lc, r, e);
	return (r->rq.leg[MAIN].released && is_late(lc, r, e)) || is_in_vain(lc, p, r, e);
}

/* The next slot with a main leg without a worker, of a booking, of a released booking or with
 * another worker's result, or with a prefill leg without a client; slots are visited in turn. */
static struct kvr_flight *look(struct pool *p)
{
	uint32_t states = 1u << KVR_RQS_UNDECIDED | 1u << KVR_RQS_QUEUED | 1u << KVR_RQS_SENT;
	struct kvr_flight *slot = kvr_flight_slot(p->requests, p->live.sweep);
	const struct request *r = slot->state == KVR_FLIGHT_LIVE ? request_of(slot) : NULL;

	p->live.sweep = p->live.sweep + 1 == kvr_flight_size(p->requests) ? 0 : p->live.sweep + 1;
	if (r != NULL && leg_of(slot) == PREFILL)
		return kvr_request_unwanted(&r->rq) ? slot : NULL;
	if (r != NULL && (r->rq.book || r->rq.way == KVR_WAY_SYNC || r->rq.leg[MAIN].released))
		states |= 1u << KVR_RQS_RUNNING;
	if (r == NULL || (states >> leg_state(r, MAIN) & 1) == 0 || r->rq.told == KVR_RQ_OVER)
		return NULL;
	return slot;
}

/* Slots to check in this tick. */
static uint32_t look_most(const struct pool *p)
{
	const uint32_t part = kvr_flight_size(p->requests) / 16 + 1;

	if (kvr_flight_count(p->requests) == kvr_flight_lingering(p->requests))
		return 0;
	if (kvr_sched_counters(p->sched)->waiting_now == 0 && p->pair.n_prefilling == 0)
		return RTE_MIN(part, LOOK_MOST);
	return part;
}

/* Check part of the slots each tick (10 ms), LOOK_TURN of them a turn, fewer if many end: for
 * requests with a deadline or a silent client. Waiting clients send PROBE at least every 2 s. While
 * requests wait, all slots are visited every 160 ms; otherwise at most LOOK_MOST per tick, which is
 * all 65,536 of a pool in 5 s. */
bool deadlines_poll(struct lcore *lc, struct pool *p)
{
	uint32_t ended = 0;

	if (p->live.look == 0)
		p->live.look = look_most(p);
	for (uint32_t i = 0; i < LOOK_TURN && p->live.look > 0 && ended < ENDS_TURN; i++) {
		struct kvr_flight *slot = look(p);
		struct kvr_rq_event e = {0};
		bool probe;

		p->live.look--;
		if (slot == NULL || !is_over(lc, p, slot, &e))
			continue;
		probe = slot_probes(slot);
		ended++;
		if (slot_event(lc, p, slot, e))
			pool_count(
				p, PC_CLIENT_GONE,
				(e.kind == KVR_RQE_CLIENT_GONE || e.kind == KVR_RQE_LEASE_OVER) &&
					!probe);
	}
	return p->live.look == 0;
}

/* ---- the rest of a turn ---- */

#define UNHEARD_TURN 4u /* requests rerouted per turn: two decisions each */

/* Reroute legs that their workers do not acknowledge. Those that must stay are retransmitted by
 * send_poll(). */
static void unheard_poll(struct lcore *lc, struct pool *p)
{
	struct kvr_flight *slot;

	for (uint32_t i = 0; i < UNHEARD_TURN && likely(prompts_idle(p)) &&
			     unlikely((slot = send_unheard(lc, p)) != NULL);
	     i++)
		if (!slot_event(lc, p, slot, (struct kvr_rq_event){.kind = KVR_RQE_UNHEARD}))
			break;
}

void timers_poll(struct lcore *lc, struct pool *p)
{
	struct kvr_flight *slot;

	/* As many as can end in a turn, and some of the backlog. */
	for (uint32_t i = 0; i < 2 * BURST; i++) {
		slot = kvr_flight_lingered(p->requests, lc->now_ns);
		if (slot == NULL)
			break;
		linger_over(lc, p, slot);
	}
	abort_poll(lc, p);
	unheard_poll(lc, p);
	send_poll(lc, p);
	session_timers(lc, p);
}
