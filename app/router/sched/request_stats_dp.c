/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics of requests, recorded as their orders are carried out. */
#include "sched/request_stats.h"

#include <string.h>

#include "event/event.h"
#include "sched/request.h"

/* Add a value to a histogram of the leg's policy class. */
static void add_value(struct pool *pool, uint32_t class, enum measure m, uint64_t v)
{
	kvr_buckets_add(&stats_buckets[m], &pool->measures[class].v[m], v);
}

static void rank_count(struct pool *pool, uint32_t rank, enum rank_counter c, uint64_t n)
{
	kvr_cell_add(&pool->rank_counts[rank].v[c], n);
}

/* ---- decisions ---- */

void stats_arrived(struct request *req, uint64_t arrival_ns)
{
	req->times = (struct request_times){.arrival_ns = arrival_ns};
}

void stats_attempt(struct request *req)
{
	memset(req->times.sent_ns, 0, sizeof(req->times.sent_ns));
	req->times.prefill_end_ns = 0;
	req->times.anew = false;
}

/* Blocks in tokens: overlaps are blocks, and fractions of blocks if a tier has a weight. */
static uint64_t as_tokens(const struct pool *pool, double blocks)
{
	return (uint64_t)(blocks * pool->block_size);
}

void stats_decided(struct pool *pool, struct request *req, uint32_t leg, uint32_t isl,
		   const struct kvr_sched_decision *d)
{
	if (req == NULL || req->rq.probe || d->result != KVR_SCHED_ROUTED)
		return;
	req->times.class[leg] = (uint8_t)d->policy_class;
	pool_count(pool, PC_PROMPT_TOKENS, isl);
	pool_count(pool, PC_HIT_TOKENS, as_tokens(pool, d->effective_overlap));
	pool_count(pool, PC_ACHIEVABLE_TOKENS,
		   as_tokens(pool, d->better_rank != KVR_SCHED_NO_RANK ? d->better_overlap
								       : d->effective_overlap));
	if (unlikely(d->better_rank != KVR_SCHED_NO_RANK))
		add_value(pool, d->policy_class, MEASURE_LOST,
			  (uint64_t)((d->better_overlap - d->effective_overlap) * LOST_PARTS));
	if (likely(d->waited_ns == 0))
		return;
	req->times.waited |= (uint8_t)(1u << leg);
	add_value(pool, d->policy_class, MEASURE_QUEUE, d->waited_ns);
}

/* ---- legs ---- */

void stats_sent(const struct request_step *step, uint32_t leg)
{
	const struct kvr_leg *l = &step->req->rq.leg[leg];
	struct request_times *times = &step->req->times;
	struct pool *pool = leg_pool(step, leg);
	const uint32_t class = times->class[leg], isl = step->req->job->isl;

	if (unlikely(times->sent_ns[leg] != 0 || step->req->rq.probe))
		return; /* retransmitted by the client, or not recorded */
	times->sent_ns[leg] = now_ns(step->lc->rt);
	times->removed[leg] = (uint32_t)kvr_cell_get(&pool->event_ranks[l->rank].v[ER_REMOVED]);
	rank_count(pool, l->rank, RC_ROUTED, 1);
	rank_count(pool, l->rank, RC_PROMPT, isl);
	rank_count(pool, l->rank, RC_PREDICTED, l->cached_tokens);
	kvr_cell_set(&pool->rank_counts[l->rank].v[RC_LAST_ISL], isl);
	add_value(pool, class, MEASURE_ISL, isl);
	add_value(pool, class, MEASURE_HIT, kvr_ratio_parts(l->cached_tokens, isl));
	/* The decode leg of a pair waits for its prefill leg. */
	if ((leg == PREFILL || !step->req->rq.paired) && times->waited == 0) {
		add_value(pool, class, MEASURE_DISPATCH,
			  since_ns(times->sent_ns[leg], times->arrival_ns));
		add_value(pool, class, MEASURE_OVERHEAD,
			  since_ns(times->sent_ns[leg], times->arrival_ns));
	}
}

static void rank_set(const struct request_step *step, enum rank_counter c, uint64_t v)
{
	kvr_cell_set(&step->pool->rank_counts[step->req->rq.leg[MAIN].rank].v[c], v);
}

void stats_output(const struct request_step *step, uint32_t tokens)
{
	struct request_times *times = &step->req->times;
	const uint32_t class = times->class[MAIN];
	const uint64_t now = step->lc->now_ns;

	if (times->first_ns == 0) {
		times->first_ns = now;
		times->tokens = tokens != 0 ? tokens : 1;
		add_value(step->pool, class, MEASURE_TTFT, since_ns(now, times->arrival_ns));
		rank_set(step, RC_LAST_TTFT, since_ns(now, times->arrival_ns));
		if (unlikely(times->prefill_end_ns != 0 && times->prefill_end_ns < now))
			add_value(step->pool, class, MEASURE_TRANSFER, now - times->prefill_end_ns);
	} else if (tokens > times->tokens) {
		const uint64_t passed = since_ns(now, times->last_ns);
		const uint32_t n = tokens - times->tokens;

		kvr_buckets_add_mean(&stats_buckets[MEASURE_ITL],
				     &step->pool->measures[class].v[MEASURE_ITL], passed, n);
		rank_set(step, RC_LAST_ITL, likely(n == 1) ? passed : passed / n);
		times->tokens = tokens;
	} else {
		return; /* not the first token */
	}
	times->last_ns = now;
}

void stats_freed(const struct request_step *step, uint32_t leg, uint32_t how)
{
	struct request_times *times = &step->req->times;
	struct pool *pool = leg_pool(step, leg);
	const uint64_t now = step->lc->now_ns, sent = times->sent_ns[leg];
	const bool cancelled =
		how == KVR_RQ_CANCELLED || how == KVR_RQ_STOPPED || how == KVR_RQ_CUT;

	if (unlikely(how == KVR_RQ_UNACKED))
		rank_count(pool, step->req->rq.leg[leg].rank, RC_UNACKNOWLEDGED, 1);
	if (unlikely(sent == 0))
		return; /* a booking, never dispatched */
	rank_count(pool, step->req->rq.leg[leg].rank,
		   how == KVR_RQ_FINISHED ? RC_FINISHED
		   : cancelled		  ? RC_CANCELLED
					  : RC_FAILED,
		   1);
	if (leg == MAIN && times->tokens != 0)
		add_value(pool, times->class[leg], MEASURE_OSL, times -> tokens);
	if (how != KVR_RQ_FINISHED)
		return;
	add_value(pool, times->class[leg], leg == MAIN ? MEASURE_DECODE : MEASURE_PREFILL,
		  since_ns(now, sent));
	if (leg == PREFILL && times->first_ns == 0)
		times->prefill_end_ns = now;
}

/* ---- predicted and found ---- */

/* The first reason that applies. */
static enum shortfall why_short(const struct pool *pool, const struct request *req, uint32_t leg,
				uint32_t rank, uint32_t actual)
{
	const struct event_rank *e = &pool->event_ranks[rank];

	if (!pool->events_used)
		return SHORT_ENGINE; /* the worker does not report removals */
	if (kvr_cell_get(&e->v[ER_AUTHORITATIVE]) == 0)
		return SHORT_MISSING;
	if ((uint32_t)kvr_cell_get(&e->v[ER_REMOVED]) != req->times.removed[leg])
		return SHORT_EVICTED;
	return actual == 0 ? SHORT_NOTHING : SHORT_ENGINE;
}

void stats_reported(struct pool *pool, const struct request *req, uint32_t leg, uint32_t rank,
		    uint32_t predicted, uint32_t actual)
{
	pool_count(pool, PC_PREDICTED_TOKENS, predicted);
	pool_count(pool, PC_ACTUAL_TOKENS, actual);
	rank_count(pool, rank, RC_REPORTED_PREDICTED, predicted);
	rank_count(pool, rank, RC_REPORTED_ACTUAL, actual);
	if (actual < predicted) {
		const enum shortfall why = why_short(pool, req, leg, rank, actual);

		pool_count(pool, (enum pool_counter)(PC_SHORT_MISSING + why), predicted - actual);
		rank_count(pool, rank, RC_SHORT, predicted - actual);
	} else if (actual > predicted) {
		pool_count(pool, PC_BEYOND_TOKENS, actual - predicted);
		rank_count(pool, rank, RC_BEYOND, actual - predicted);
	}
}

void stats_rank_added(void *pool, uint32_t rank, uint64_t worker, uint32_t dp_rank)
{
	struct pool *p = pool;

	RTE_SET_USED(worker);
	RTE_SET_USED(dp_rank);
	for (uint32_t i = 0; i < RANK_COUNTERS; i++)
		kvr_cell_set(&p->rank_counts[rank].v[i], 0);
}
