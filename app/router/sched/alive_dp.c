/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports of live requests, and the effect of every message about a request besides its event. */
#include "sched/request.h"

#include "kvr_frame.h"

/* The request may have released the slot already. */
void worker_active(const struct lcore *lc, struct pool *pool, const struct kvr_flight *slot)
{
	struct request *req = slot != NULL ? request_of(slot) : NULL;

	if (unlikely(kvr_sched_n_unresponsive(pool->sched) != 0) && slot != NULL &&
	    !slot->relay.booked)
		kvr_sched_responded(pool->sched, slot->relay.worker);
	/* A request without a booking ends when both sides are silent. */
	if (req != NULL && unlikely(req->rq.book || req->rq.leg[MAIN].released))
		req->client_seen_ns = lc->quiet.now_ns;
}

/* Whether the sender, in this epoch, works on the leg of a slot. */
static bool has_leg(const struct kvr_flight *slot, const struct kvr_wire_hdr *hdr)
{
	const struct request *req = slot != NULL ? request_of(slot) : NULL;

	return req != NULL && slot->relay.worker == hdr->source &&
	       slot->relay.epoch == hdr->epoch && slot->relay.booked == 0 &&
	       kvr_request_may(leg_state(req, leg_of(slot)), KVR_RQE_TAKEN) == KVR_RQ_GO;
}

/* First the slots, then their requests and bookings. */
static void prefetch_alive(const struct pool *pool, const uint64_t handle[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		kvr_flight_prefetch(pool->requests, handle[i]);
	for (uint32_t i = 0; i < n; i++) {
		const struct kvr_flight *slot = kvr_flight_by_handle(pool->requests, handle[i]);

		if (slot == NULL)
			continue;
		if (request_of(slot) != NULL)
			rte_prefetch0(&request_of(slot)->rq);
		kvr_sched_prefetch(pool->sched, slot->slot, 0);
	}
}

/* A handle without request, of another worker or of an ended leg is counted and skipped: the
 * request may have ended while the report was on its way. */
void alive_handle(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(msg->m, const struct kvr_wire_hdr *);
	const struct kvr_wire_alive *w = kvr_frame_body(hdr);
	const uint64_t *handle = (const uint64_t *)(w + 1);

	prefetch_alive(pool, handle, w->n);
	for (uint32_t i = 0; i < w->n; i++) {
		struct kvr_flight *slot = kvr_flight_by_handle(pool->requests, handle[i]);

		if (!has_leg(slot, hdr)) {
			pool_count(pool, PC_ALIVE_UNKNOWN, 1);
			continue;
		}
		worker_active(lc, pool, slot);
		slot_event(lc, pool, slot, (struct kvr_rq_event){.kind = KVR_RQE_TAKEN});
	}
	pool_count(pool, PC_ALIVE, w->n);
	rte_pktmbuf_free(msg->m);
}
