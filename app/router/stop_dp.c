/* SPDX-License-Identifier: BSD-3-Clause */
#include "stop_dp.h"

#include "stages.h"

void stop_admission(struct lcore *lc, void *arg)
{
	struct kvr_sched_decision d[8];
	struct pool *p = arg;
	uint32_t got;

	p->closed = true;
	do {
		got = kvr_sched_close_queue(p->sched, d, RTE_DIM(d));
		for (uint32_t i = 0; i < got; i++)
			sched_not_admitted(lc, p, kvr_flight_slot(p->requests, d[i].slot), &d[i]);
	} while (got == RTE_DIM(d));
}

static void cut(struct lcore *lc, struct pool *p, struct kvr_flight *r)
{
	if (r->legs != NULL) {
		legs_stop(lc, p, r);
		return;
	}
	sched_fail(lc, p, r, KVR_E_SHUTDOWN, 0, PC_CANCELLED);
	sched_abort(lc, p, r);
}

bool stop_cut(struct lcore *lc, void *arg)
{
	struct stop_cut *s = arg;
	const uint32_t n = kvr_flight_size(s->pool->requests);
	const uint32_t end = RTE_MIN(s->from + STOP_SLICE, n);

	for (uint32_t i = s->from; i < end; i++) {
		struct kvr_flight *r = kvr_flight_slot(s->pool->requests, i);

		/* A prefill leg ends with its request, whose slot is the decode pool's. */
		if (r->state == KVR_RQ_FREE || r->state == KVR_RQ_ENDED ||
		    r->relay.leg == KVR_FLIGHT_PREFILL)
			continue;
		s->cut += r->end.code == KVR_OK; /* else its client has gone already */
		cut(lc, s->pool, r);
	}
	s->from = end;
	return end == n;
}
