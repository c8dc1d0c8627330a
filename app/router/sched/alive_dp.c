/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports of live requests, and the effect of every message about a request besides its event. */
#include "sched/request.h"

#include "kvr_frame.h"

/* The request may have released the slot already. */
void worker_said(const struct lcore *lc, struct pool *p, const struct kvr_flight *slot)
{
	struct request *r = slot != NULL ? request_of(slot) : NULL;

	if (unlikely(kvr_sched_n_silent(p->sched) != 0) && slot != NULL && !slot->relay.booked)
		kvr_sched_heard(p->sched, slot->relay.worker);
	/* A request without a booking ends when both sides are silent. */
	if (r != NULL && unlikely(r->rq.book || r->rq.leg[MAIN].released))
		r->heard_ns = lc->quiet.now_ns;
}

/* Whether the sender, in this epoch, works on the leg of a slot. */
static bool has_leg(const struct kvr_flight *slot, const struct kvr_wire_hdr *h)
{
	const struct request *r = slot != NULL ? request_of(slot) : NULL;

	return r != NULL && slot->relay.worker == h->source && slot->relay.epoch == h->epoch &&
	       slot->relay.booked == 0 &&
	       kvr_request_may(leg_state(r, leg_of(slot)), KVR_RQE_TAKEN) == KVR_RQ_GO;
}

/* First the slots, then their requests and bookings. */
static void prefetch_alive(const struct pool *p, const uint64_t handle[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		kvr_flight_prefetch(p->requests, handle[i]);
	for (uint32_t i = 0; i < n; i++) {
		const struct kvr_flight *slot = kvr_flight_by_handle(p->requests, handle[i]);

		if (slot == NULL)
			continue;
		if (request_of(slot) != NULL)
			rte_prefetch0(&request_of(slot)->rq);
		kvr_sched_prefetch(p->sched, slot->slot, 0);
	}
}

/* A handle without request, of another worker or of an ended leg is counted and skipped: the
 * request may have ended while the report was on its way. */
void alive_on_note(struct lcore *lc, struct pool *p, const struct note *n)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(n->m, const struct kvr_wire_hdr *);
	const struct kvr_wire_alive *w = kvr_frame_body(h);
	const uint64_t *handle = (const uint64_t *)(w + 1);

	prefetch_alive(p, handle, w->n);
	for (uint32_t i = 0; i < w->n; i++) {
		struct kvr_flight *slot = kvr_flight_by_handle(p->requests, handle[i]);

		if (!has_leg(slot, h)) {
			pool_count(p, PC_ALIVE_UNKNOWN, 1);
			continue;
		}
		worker_said(lc, p, slot);
		slot_event(lc, p, slot, (struct kvr_rq_event){.kind = KVR_RQE_TAKEN});
	}
	pool_count(p, PC_ALIVE, w->n);
	rte_pktmbuf_free(n->m);
}
