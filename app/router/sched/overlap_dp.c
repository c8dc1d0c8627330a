/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a request's prompt shares with each rank, as lib/sched takes it. It was looked up when the
 * request arrived, and may have waited for the scheduler lcore since: longer than a worker takes to
 * come back with nothing, or another one to get its rank.
 */
#include "message/job.h"
#include "sched/request.h"
#include "sched/sched.h"

void ranks_begin(struct pool *p, const uint32_t rank[], uint32_t n, uint64_t view)
{
	uint64_t last = 0;

	for (uint32_t i = 0; i < n; i++)
		if (rank[i] < p->max_ranks)
			p->begun[rank[i]] = view;
	for (uint32_t r = 0; r < p->max_ranks; r++)
		last = RTE_MAX(last, p->begun[r]);
	p->live.begun = last;
}

/* Nothing at ranks that have begun since. */
static void forget(const struct pool *p, struct kvr_overlap *o, uint64_t view)
{
	for (uint32_t r = 0; r < RTE_MIN(p->max_ranks, o->stride); r++)
		for (uint32_t t = KVR_TIER_DEVICE; p->begun[r] > view && t < KVR_TIERS; t++)
			o->count[(size_t)t * o->stride + r] = 0;
}

void sched_overlap(const struct pool *p, struct kvr_overlap *o, uint64_t view,
		   struct kvr_sched_overlap *out)
{
	if (unlikely(view < p->live.begun))
		forget(p, o, view);
	overlap_view(o, out);
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
	kvr_overlap_pad(o);
	sched_overlap(p, o, p->sched_lcore->view->number, out);
	return true;
}
