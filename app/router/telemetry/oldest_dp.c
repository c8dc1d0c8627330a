/* SPDX-License-Identifier: BSD-3-Clause */
/* The walk over slots for the oldest requests in flight. */
#include "telemetry/oldest.h"

#include "state/router.h"

#define TURN 32u

/* Insert in order, the oldest first; drops the youngest if full. */
static void keep_oldest(struct oldest *o, const struct oldest_one *one)
{
	uint32_t i;

	if (o->n == OLDEST_KEPT && one->arrival_ns >= o->v[OLDEST_KEPT - 1].arrival_ns)
		return;
	if (o->n < OLDEST_KEPT)
		o->n++;
	for (i = o->n - 1; i > 0 && o->v[i - 1].arrival_ns > one->arrival_ns; i--)
		o->v[i] = o->v[i - 1];
	o->v[i] = *one;
}

static void look_at_slot(struct oldest *o, const struct kvr_flight *slot)
{
	const struct request *req = slot->state == KVR_FLIGHT_LIVE ? slot->owner : NULL;
	const struct kvr_leg *l;

	if (req == NULL)
		return;
	o->live++;
	l = &req->rq.leg[slot->relay.leg];
	if (l->state == KVR_RQS_FREE || l->state == KVR_RQS_ENDED ||
	    (o->of_worker && (l->state < KVR_RQS_HELD || l->worker != o->worker)))
		return;
	keep_oldest(o, &(struct oldest_one){
			       .id = slot->relay.id,
			       .source = slot->relay.source,
			       .arrival_ns = req->times.arrival_ns,
			       .worker = l->worker,
			       .dp_rank = l->dp_rank,
			       .tokens = req->times.tokens,
			       .state = l->state,
			       .leg = (uint8_t)slot->relay.leg,
			       .has_worker = l->state >= KVR_RQS_HELD,
			       .booked = req->rq.book,
		       });
}

bool oldest_walk(struct lcore *lc, void *arg)
{
	struct oldest *o = arg;
	const uint32_t all = kvr_flight_size(o->p->requests);

	for (uint32_t i = 0; i < TURN && o->at < all; i++)
		look_at_slot(o, kvr_flight_slot(o->p->requests, o->at++));
	o->now_ns = lc->now_ns;
	return o->at == all || kvr_flight_count(o->p->requests) == 0;
}
