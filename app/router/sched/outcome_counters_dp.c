/* SPDX-License-Identifier: BSD-3-Clause */
/* Outcome counters of requests, kept such that the counters of a pool add up: request.h. */
#include "sched/request.h"
#include "sched/request_stats.h"

void outcome_decided(const struct request_step *step, enum pool_counter how)
{
	if (step->req->decided)
		return;
	step->req->decided = true;
	step->pool->pair.n_prefilling--;
	pool_count(step->pool, how, 1);
}

static const struct kvr_rq_order *last_of(const struct kvr_rq_orders *out)
{
	static const struct kvr_rq_order none;

	return out->n > 0 ? &out->v[out->n - 1] : &none;
}

static bool is_asked_again(const struct kvr_rq_event *ev, const struct kvr_rq_orders *out)
{
	return last_of(out)->kind == KVR_RQO_DECIDE && last_of(out)->leg == ev->leg;
}

void outcome_not_admitted(const struct request_step *step, const struct kvr_rq_event *ev,
			  const struct kvr_rq_orders *out)
{
	if (is_asked_again(ev, out))
		step->req->asked |= (uint8_t)(1u << ev->leg);
	else
		pool_count(leg_pool(step, ev->leg), PC_ADMISSION_REJECTED, 1);
}

/* A leg that waited is decided again: count it as if it had not left the queue. */
static void asked_once_more(const struct request_step *step, const struct kvr_rq_event *ev)
{
	const enum kvr_sched_result result = ev->d->result;

	step->req->asked &= (uint8_t) ~(1u << ev->leg);
	pool_count(leg_pool(step, ev->leg), PC_ADMITTED, result == KVR_SCHED_ROUTED);
	pool_count(leg_pool(step, ev->leg), PC_ADMISSION_REJECTED, result == KVR_SCHED_ERROR);
}

void outcome_of_decision(const struct request_step *step, const struct kvr_rq_event *ev,
			 const struct kvr_rq_orders *out)
{
	const enum kvr_sched_result result = ev->d->result;
	struct request *req = step->req;

	if (req->rq.query || req->rq.probe)
		return;
	if (result == KVR_SCHED_ERROR && is_asked_again(ev, out))
		return; /* because of other hints */
	if (unlikely((req->asked >> ev->leg & 1) != 0)) {
		asked_once_more(step, ev);
	} else if (result == KVR_SCHED_ERROR) {
		if (ev->leg == PREFILL)
			pool_count(step->pool->prefill, PC_REJECTED, 1);
		else if (req->rq.paired || req->rq.tries != 0)
			outcome_decided(step, PC_LEG_REJECTED);
	} else if (ev->leg == PREFILL) {
		pool_count(step->pool->prefill, result == KVR_SCHED_ROUTED ? PC_ROUTED : PC_QUEUED,
			   1);
	} else if (req->rq.paired || req->rq.tries != 0) {
		outcome_decided(step, result == KVR_SCHED_ROUTED ? PC_LEG_ROUTED : PC_LEG_QUEUED);
	} else if (result == KVR_SCHED_ROUTED || last_of(out)->kind != KVR_RQO_HOLD) {
		pool_count(step->pool, result == KVR_SCHED_ROUTED ? PC_ROUTED : PC_QUEUED, 1);
		req->counted = true;
	}
}

void outcome_attempt(const struct request_step *step)
{
	if (likely(step->req->tries == step->req->rq.tries))
		return;
	outcome_decided(step, PC_LEG_ABANDONED);
	step->req->tries = step->req->rq.tries;
	step->req->decided = false;
	step->req->times.anew = true;
	step->pool->pair.n_prefilling++;
	pool_count(step->pool, PC_RETRIES, 1);
}

void outcome_once(const struct request_step *step, enum pool_counter c)
{
	if (step->req->counted)
		return;
	step->req->counted = true;
	request_count(step->pool, step->req, c, 1);
}
