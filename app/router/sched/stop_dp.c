/* SPDX-License-Identifier: BSD-3-Clause */
/* The orderly stop: functions for calls of control, a slice of slots per turn. */
#include "sched/stop.h"

#include "sched/request.h"

bool stop_admission(struct lcore *lc, void *arg)
{
	struct kvr_sched_decision d[STOP_SLICE];
	struct stop_part *s = arg;
	struct pool *pool = s->pool;
	uint32_t got;

	if (!lost_poll(lc, pool))
		return false;
	pool->live.rq.closed = true; /* every waiting request waits already */
	if (pool->decode != NULL)    /* its requests arrive there, on the same lcore */
		pool->decode->live.rq.closed = true;
	got = kvr_sched_close_queue(pool->sched, s->from, s->from + STOP_SLICE, d);
	for (uint32_t i = 0; i < got; i++)
		admit_one(lc, pool, &d[i]);
	s->n += got;
	s->from += STOP_SLICE;
	return s->from >= kvr_flight_size(pool->requests) ||
	       kvr_sched_counters(pool->sched)->waiting_now == 0;
}

bool stop_cut(struct lcore *lc, void *arg)
{
	struct stop_part *s = arg;
	const uint32_t n = kvr_flight_size(s->pool->requests);
	const uint32_t end = RTE_MIN(s->from + STOP_SLICE, n);

	if (!lost_poll(lc, s->pool))
		return false;
	for (uint32_t i = s->from; i < end; i++) {
		struct kvr_flight *slot = kvr_flight_slot(s->pool->requests, i);

		/* A prefill leg ends with its request, which has a slot in the decode pool. */
		if (slot->state != KVR_FLIGHT_LIVE || leg_of(slot) == PREFILL)
			continue;
		s->n += request_of(slot)->rq.notified !=
			KVR_RQ_OVER; /* otherwise its client has gone */
		slot_event(lc, s->pool, slot, (struct kvr_rq_event){.kind = KVR_RQE_STOP});
	}
	s->from = end;
	return end == n;
}

bool stop_worker(struct lcore *lc, void *arg)
{
	struct stop_part *s = arg;
	const uint32_t n = kvr_flight_size(s->pool->requests);
	const uint32_t end = RTE_MIN(s->from + STOP_LOOK, n);
	uint32_t left = STOP_SLICE;

	if (!lost_poll(lc, s->pool))
		return false;
	for (; s->from < end && left > 0; s->from++) {
		struct kvr_flight *slot = kvr_flight_slot(s->pool->requests, s->from);
		struct request *req;

		if (slot->state != KVR_FLIGHT_LIVE || !slot->bound ||
		    slot->relay.worker != s->worker)
			continue;
		/* A prefill leg ends its request, which belongs to the decode pool. */
		req = request_of(slot);
		left--;
		s->n++;
		slot_event(lc, s->pool, req->slot[MAIN],
			   (struct kvr_rq_event){.kind = KVR_RQE_STOP, .code = KVR_E_WORKER_LOST});
	}
	return s->from == n;
}
