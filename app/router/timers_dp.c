/* SPDX-License-Identifier: BSD-3-Clause */
/* Time, and what the scheduler library tells unasked, as events. */
#include "request.h"
#include "session.h"

#include <assert.h>

/* ---- what the library tells ---- */

/* From inside a call of the library: handed on after it. */
void sched_dropped(void *arg, uint32_t slot, uint32_t rank)
{
	struct pool *p = arg;

	RTE_SET_USED(rank);
	assert(p->n_lost < kvr_flight_size(p->requests)); /* one booking a slot */
	p->lost[p->n_lost++] = slot;
}

void lost_poll(struct lcore *lc, struct pool *p)
{
	for (uint32_t i = 0; i < p->n_lost; i++)
		if (slot_event(lc, p, kvr_flight_slot(p->requests, p->lost[i]),
			       (struct kvr_rq_event){.kind = KVR_RQE_LOST}))
			pool_count(p, PC_LOST, 1);
	p->n_lost = 0;
}

bool sched_refresh(void *arg, uint32_t slot, const struct kvr_sched_req *req,
		   struct kvr_sched_overlap *out)
{
	struct pool *p = arg;
	const struct kvr_flight *s = kvr_flight_slot(p->requests, slot);
	const struct job *j = request_of(s)->job;
	struct kvr_overlap *o = leg_of(s) == PREFILL ? j->pair->overlap : j->overlap;
	const struct kvr_prefix_query q = {req->sh, req->n, o};

	/* The scheduler lcore is a reader of the table like the ingress lcores. */
	kvr_prefix_score_burst(p->prefix, &q, 1);
	overlap_pad(o);
	overlap_view(o, out);
	return true;
}

void admit_one(struct lcore *lc, struct pool *p, const struct kvr_sched_decision *d)
{
	const struct kvr_rq_event e = {.kind = (uint8_t)kvr_request_decided(d, true), .d = d};

	pool_count(p, d->result == KVR_SCHED_ROUTED ? PC_ADMITTED : PC_QUEUE_FAILED, 1);
	slot_event(lc, p, kvr_flight_slot(p->requests, d->slot), e);
}

/* One by one: what follows from an admission (a leg that is stopped at once, say) comes before the
 * next one is decided. */
void admit_poll(struct lcore *lc, struct pool *p)
{
	struct kvr_sched_decision d;

	while (decide_waiting(lc, p, &d, 1) == 1)
		admit_one(lc, p, &d);
}

/* ---- waiting requests ---- */

/* Whether its client may have gone, or wanted its answer earlier. */
static bool is_late(const struct lcore *lc, const struct request *r, struct kvr_rq_event *e)
{
	const uint64_t gone_ns = lc->rt->conf.opt.client_timeout_ms * UINT64_C(1000000);
	const uint64_t deadline_ns = r->job != NULL ? r->job->deadline_ns : 0;

	e->kind = KVR_RQE_CLIENT_GONE;
	if (since_ns(lc->now_ns, r->heard_ns) > gone_ns)
		return true;
	e->kind = KVR_RQE_DEADLINE;
	return deadline_ns != 0 && lc->now_ns >= deadline_ns &&
	       (leg_state(r, MAIN) == KVR_RQS_QUEUED || leg_state(r, PREFILL) == KVR_RQS_QUEUED);
}

/*
 * Look at a part of the slots each tick (10 ms), all of them every 160 ms: waiting requests whose
 * client has said how long it wants to wait, or has not been heard for long. Clients that wait
 * send PROBE every 2 s at least.
 */
static void deadlines(struct lcore *lc, struct pool *p)
{
	const uint32_t n = kvr_flight_size(p->requests);

	if (kvr_sched_counters(p->sched)->waiting_now == 0 && p->n_prefilling == 0)
		return;
	for (uint32_t i = 0; i < n / 16 + 1; i++) {
		struct kvr_flight *slot = kvr_flight_slot(p->requests, p->sweep);
		struct kvr_rq_event e = {0};
		const struct request *r;

		p->sweep = p->sweep + 1 == n ? 0 : p->sweep + 1;
		if (slot->state != KVR_FLIGHT_LIVE || request_of(slot) == NULL ||
		    leg_of(slot) == PREFILL)
			continue;
		r = request_of(slot);
		if (leg_state(r, MAIN) > KVR_RQS_QUEUED || r->rq.told == KVR_RQ_OVER ||
		    !is_late(lc, r, &e))
			continue;
		if (slot_event(lc, p, slot, e))
			pool_count(p, PC_CLIENT_GONE, e.kind == KVR_RQE_CLIENT_GONE);
	}
}

bool sched_tick(struct lcore *lc, void *arg)
{
	struct pool *p = arg;
	uint32_t slot[BURST], got;

	lost_poll(lc, p);
	got = kvr_sched_expire(p->sched, lc->now_ns, slot, BURST);
	for (uint32_t i = 0; i < got; i++)
		if (slot_event(lc, p, kvr_flight_slot(p->requests, slot[i]),
			       (struct kvr_rq_event){.kind = KVR_RQE_EXPIRED}))
			pool_count(p, PC_EXPIRED, 1);
	if (got == BURST)
		return false;
	deadlines(lc, p);
	return true;
}

/* ---- what lingers, and what is repeated ---- */

static void linger_over(struct lcore *lc, struct pool *p, struct kvr_flight *slot)
{
	if (likely(request_of(slot) != NULL)) {
		slot_event(lc, p, slot, (struct kvr_rq_event){.kind = KVR_RQE_LINGERED});
		return;
	}
	abort_stop(p, slot);
	slot_release(p, slot);
}

bool linger_oldest(struct lcore *lc, struct pool *p)
{
	struct kvr_flight *slot = kvr_flight_oldest(p->requests);

	if (slot == NULL)
		return false;
	linger_over(lc, p, slot);
	return true;
}

void timers_poll(struct lcore *lc, struct pool *p)
{
	struct kvr_flight *slot;

	/* As many as can end in a turn, and a few of what has piled up. */
	for (uint32_t i = 0; i < 2 * BURST; i++) {
		slot = kvr_flight_lingered(p->requests, lc->now_ns);
		if (slot == NULL)
			break;
		linger_over(lc, p, slot);
	}
	abort_poll(lc, p);
	send_poll(lc, p);
	session_timers(lc, p);
}
