/* SPDX-License-Identifier: BSD-3-Clause */
/* Outcome counters of requests, kept such that the counters of a pool add up: request.h. */
#include "sched/measure.h"
#include "sched/request.h"

void tally_decided(const struct life *x, enum pool_counter how)
{
	if (x->r->decided)
		return;
	x->r->decided = true;
	x->p->pair.n_prefilling--;
	pool_count(x->p, how, 1);
}

static const struct kvr_rq_order *last_of(const struct kvr_rq_orders *out)
{
	static const struct kvr_rq_order none;

	return out->n > 0 ? &out->v[out->n - 1] : &none;
}

static bool is_asked_again(const struct kvr_rq_event *e, const struct kvr_rq_orders *out)
{
	return last_of(out)->kind == KVR_RQO_DECIDE && last_of(out)->leg == e->leg;
}

void tally_not_admitted(const struct life *x, const struct kvr_rq_event *e,
			const struct kvr_rq_orders *out)
{
	if (is_asked_again(e, out))
		x->r->asked |= (uint8_t)(1u << e->leg);
	else
		pool_count(leg_pool(x, e->leg), PC_ADMISSION_REJECTED, 1);
}

/* A leg that waited is decided again: count it as if it had not left the queue. */
static void asked_once_more(const struct life *x, const struct kvr_rq_event *e)
{
	const enum kvr_sched_result result = e->d->result;

	x->r->asked &= (uint8_t) ~(1u << e->leg);
	pool_count(leg_pool(x, e->leg), PC_ADMITTED, result == KVR_SCHED_ROUTED);
	pool_count(leg_pool(x, e->leg), PC_ADMISSION_REJECTED, result == KVR_SCHED_ERROR);
}

void tally_decision(const struct life *x, const struct kvr_rq_event *e,
		    const struct kvr_rq_orders *out)
{
	const enum kvr_sched_result result = e->d->result;
	struct request *r = x->r;

	if (r->rq.query || r->rq.probe)
		return;
	if (result == KVR_SCHED_ERROR && is_asked_again(e, out))
		return; /* because of other hints */
	if (unlikely((r->asked >> e->leg & 1) != 0)) {
		asked_once_more(x, e);
	} else if (result == KVR_SCHED_ERROR) {
		if (e->leg == PREFILL)
			pool_count(x->p->prefill, PC_REJECTED, 1);
		else if (r->rq.paired || r->rq.tries != 0)
			tally_decided(x, PC_LEG_REJECTED);
	} else if (e->leg == PREFILL) {
		pool_count(x->p->prefill, result == KVR_SCHED_ROUTED ? PC_ROUTED : PC_QUEUED, 1);
	} else if (r->rq.paired || r->rq.tries != 0) {
		tally_decided(x, result == KVR_SCHED_ROUTED ? PC_LEG_ROUTED : PC_LEG_QUEUED);
	} else if (result == KVR_SCHED_ROUTED || last_of(out)->kind != KVR_RQO_HOLD) {
		pool_count(x->p, result == KVR_SCHED_ROUTED ? PC_ROUTED : PC_QUEUED, 1);
		r->counted = true;
	}
}

void tally_try(const struct life *x)
{
	if (likely(x->r->tries == x->r->rq.tries))
		return;
	tally_decided(x, PC_LEG_ABANDONED);
	x->r->tries = x->r->rq.tries;
	x->r->decided = false;
	x->r->times.anew = true;
	x->p->pair.n_prefilling++;
	pool_count(x->p, PC_RETRIES, 1);
}

void tally_once(const struct life *x, enum pool_counter c)
{
	if (x->r->counted)
		return;
	x->r->counted = true;
	request_count(x->p, x->r, c, 1);
}
