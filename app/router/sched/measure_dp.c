/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics of requests, recorded as their orders are carried out. */
#include "sched/measure.h"

#include <string.h>

#include "event/event.h"
#include "sched/request.h"

/* Add a value to a histogram of the leg's policy class. */
static void measure(struct pool *p, uint32_t class, enum measure m, uint64_t v)
{
	kvr_buckets_add(&measure_buckets[m], &p->measures[class].v[m], v);
}

static void rank_count(struct pool *p, uint32_t rank, enum rank_counter c, uint64_t n)
{
	kvr_cell_add(&p->rank_counts[rank].v[c], n);
}

/* ---- decisions ---- */

void measure_arrived(struct request *r, uint64_t arrival_ns)
{
	r->times = (struct request_times){.arrival_ns = arrival_ns};
}

void measure_again(struct request *r)
{
	memset(r->times.sent_ns, 0, sizeof(r->times.sent_ns));
	r->times.prefill_end_ns = 0;
	r->times.anew = false;
}

/* Blocks in tokens: overlaps are blocks, and fractions of blocks if a tier has a weight. */
static uint64_t as_tokens(const struct pool *p, double blocks)
{
	return (uint64_t)(blocks * p->block_size);
}

void measure_decided(struct pool *p, struct request *r, uint32_t leg, uint32_t isl,
		     const struct kvr_sched_decision *d)
{
	if (r == NULL || r->rq.probe || d->result != KVR_SCHED_ROUTED)
		return;
	r->times.class[leg] = (uint8_t)d->policy_class;
	pool_count(p, PC_PROMPT_TOKENS, isl);
	pool_count(p, PC_HIT_TOKENS, as_tokens(p, d->effective_overlap));
	pool_count(p, PC_ACHIEVABLE_TOKENS,
		   as_tokens(p, d->better_rank != KVR_SCHED_NO_RANK ? d->better_overlap
								    : d->effective_overlap));
	if (unlikely(d->better_rank != KVR_SCHED_NO_RANK))
		measure(p, d->policy_class, MEASURE_LOST,
			(uint64_t)((d->better_overlap - d->effective_overlap) * LOST_PARTS));
	if (likely(d->waited_ns == 0))
		return;
	r->times.waited |= (uint8_t)(1u << leg);
	measure(p, d->policy_class, MEASURE_QUEUE, d->waited_ns);
}

/* ---- legs ---- */

void measure_sent(const struct life *x, uint32_t leg)
{
	const struct kvr_leg *l = &x->r->rq.leg[leg];
	struct request_times *t = &x->r->times;
	struct pool *p = leg_pool(x, leg);
	const uint32_t class = t->class[leg], isl = x->r->job->isl;

	if (unlikely(t->sent_ns[leg] != 0 || x->r->rq.probe))
		return; /* retransmitted by the client, or not recorded */
	t->sent_ns[leg] = now_ns(x->lc->rt);
	t->removed[leg] = (uint32_t)kvr_cell_get(&p->event_ranks[l->rank].v[ER_REMOVED]);
	rank_count(p, l->rank, RC_ROUTED, 1);
	rank_count(p, l->rank, RC_PROMPT, isl);
	rank_count(p, l->rank, RC_PREDICTED, l->cached_tokens);
	kvr_cell_set(&p->rank_counts[l->rank].v[RC_LAST_ISL], isl);
	measure(p, class, MEASURE_ISL, isl);
	measure(p, class, MEASURE_HIT, kvr_ratio_parts(l->cached_tokens, isl));
	/* The decode leg of a pair waits for its prefill leg. */
	if ((leg == PREFILL || !x->r->rq.paired) && t->waited == 0) {
		measure(p, class, MEASURE_DISPATCH, since_ns(t->sent_ns[leg], t->arrival_ns));
		measure(p, class, MEASURE_OVERHEAD, since_ns(t->sent_ns[leg], t->arrival_ns));
	}
}

static void rank_set(const struct life *x, enum rank_counter c, uint64_t v)
{
	kvr_cell_set(&x->p->rank_counts[x->r->rq.leg[MAIN].rank].v[c], v);
}

void measure_output(const struct life *x, uint32_t tokens)
{
	struct request_times *t = &x->r->times;
	const uint32_t class = t->class[MAIN];
	const uint64_t now = x->lc->now_ns;

	if (t->first_ns == 0) {
		t->first_ns = now;
		t->tokens = tokens != 0 ? tokens : 1;
		measure(x->p, class, MEASURE_TTFT, since_ns(now, t->arrival_ns));
		rank_set(x, RC_LAST_TTFT, since_ns(now, t->arrival_ns));
		if (unlikely(t->prefill_end_ns != 0 && t->prefill_end_ns < now))
			measure(x->p, class, MEASURE_TRANSFER, now - t->prefill_end_ns);
	} else if (tokens > t->tokens) {
		const uint64_t passed = since_ns(now, t->last_ns);
		const uint32_t n = tokens - t->tokens;

		kvr_buckets_add_mean(&measure_buckets[MEASURE_ITL],
				     &x->p->measures[class].v[MEASURE_ITL], passed, n);
		rank_set(x, RC_LAST_ITL, likely(n == 1) ? passed : passed / n);
		t->tokens = tokens;
	} else {
		return; /* not the first token */
	}
	t->last_ns = now;
}

void measure_freed(const struct life *x, uint32_t leg, uint32_t how)
{
	struct request_times *t = &x->r->times;
	struct pool *p = leg_pool(x, leg);
	const uint64_t now = x->lc->now_ns, sent = t->sent_ns[leg];
	const bool cancelled =
		how == KVR_RQ_CANCELLED || how == KVR_RQ_STOPPED || how == KVR_RQ_CUT;

	if (unlikely(how == KVR_RQ_UNHEARD))
		rank_count(p, x->r->rq.leg[leg].rank, RC_UNACKNOWLEDGED, 1);
	if (unlikely(sent == 0))
		return; /* a booking, never dispatched */
	rank_count(p, x->r->rq.leg[leg].rank,
		   how == KVR_RQ_FINISHED ? RC_FINISHED
		   : cancelled		  ? RC_CANCELLED
					  : RC_FAILED,
		   1);
	if (leg == MAIN && t->tokens != 0)
		measure(p, t->class[leg], MEASURE_OSL, t -> tokens);
	if (how != KVR_RQ_FINISHED)
		return;
	measure(p, t->class[leg], leg == MAIN ? MEASURE_DECODE : MEASURE_PREFILL,
		since_ns(now, sent));
	if (leg == PREFILL && t->first_ns == 0)
		t->prefill_end_ns = now;
}

/* ---- predicted and found ---- */

/* The first reason that applies. */
static enum shortfall why_short(const struct pool *p, const struct request *r, uint32_t leg,
				uint32_t rank, uint32_t actual)
{
	const struct event_rank *e = &p->event_ranks[rank];

	if (!p->events_used)
		return SHORT_ENGINE; /* the worker does not report removals */
	if (kvr_cell_get(&e->v[ER_AUTHORITATIVE]) == 0)
		return SHORT_MISSING;
	if ((uint32_t)kvr_cell_get(&e->v[ER_REMOVED]) != r->times.removed[leg])
		return SHORT_EVICTED;
	return actual == 0 ? SHORT_NOTHING : SHORT_ENGINE;
}

void measure_told(struct pool *p, const struct request *r, uint32_t leg, uint32_t rank,
		  uint32_t predicted, uint32_t actual)
{
	pool_count(p, PC_PREDICTED_TOKENS, predicted);
	pool_count(p, PC_ACTUAL_TOKENS, actual);
	rank_count(p, rank, RC_REPORTED_PREDICTED, predicted);
	rank_count(p, rank, RC_REPORTED_ACTUAL, actual);
	if (actual < predicted) {
		const enum shortfall why = why_short(p, r, leg, rank, actual);

		pool_count(p, (enum pool_counter)(PC_SHORT_MISSING + why), predicted - actual);
		rank_count(p, rank, RC_SHORT, predicted - actual);
	} else if (actual > predicted) {
		pool_count(p, PC_BEYOND_TOKENS, actual - predicted);
		rank_count(p, rank, RC_BEYOND, actual - predicted);
	}
}

void measure_rank_added(void *pool, uint32_t rank, uint64_t worker, uint32_t dp_rank)
{
	struct pool *p = pool;

	RTE_SET_USED(worker);
	RTE_SET_USED(dp_rank);
	for (uint32_t i = 0; i < RANK_COUNTERS; i++)
		kvr_cell_set(&p->rank_counts[rank].v[i], 0);
}
