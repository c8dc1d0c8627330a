/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Overlap of a prompt with each rank in the form of lib/sched. It was looked up on arrival and may
 * have waited for the scheduler lcore since, while a worker restarted empty or its rank passed to
 * another worker.
 */
#include "message/job.h"
#include "sched/request.h"
#include "sched/sched.h"

void ranks_begin(struct pool *pool, const uint32_t rank[], uint32_t n, uint64_t view)
{
	uint64_t last = 0;

	for (uint32_t i = 0; i < n; i++)
		if (rank[i] < pool->max_ranks)
			pool->begun[rank[i]] = view;
	for (uint32_t r = 0; r < pool->max_ranks; r++)
		last = RTE_MAX(last, pool->begun[r]);
	pool->live.begun = last;
}

/* Clear the overlap of ranks whose owner changed since. */
static void forget_ranks(const struct pool *pool, struct kvr_overlap *o, uint64_t view)
{
	for (uint32_t r = 0; r < RTE_MIN(pool->max_ranks, o->stride); r++)
		for (uint32_t t = KVR_TIER_DEVICE; pool->begun[r] > view && t < KVR_TIERS; t++)
			o->count[(size_t)t * o->stride + r] = 0;
}

void sched_overlap(const struct pool *pool, struct kvr_overlap *o, uint64_t view,
		   struct kvr_sched_overlap *out)
{
	if (unlikely(view < pool->live.begun))
		forget_ranks(pool, o, view);
	overlap_view(o, out);
}

bool sched_refresh(void *arg, uint32_t slot, const struct kvr_sched_req *req,
		   struct kvr_sched_overlap *out)
{
	struct pool *pool = arg;
	const struct kvr_flight *s = kvr_flight_slot(pool->requests, slot);
	const struct job *job = request_of(s)->job;
	struct kvr_overlap *o = leg_of(s) == PREFILL ? job->pair->overlap : job->overlap;
	const struct kvr_prefix_query q = {req->sh, req->n, o};

	/* The scheduler lcore reads the table like an ingress lcore. */
	kvr_prefix_score_burst(pool->prefix, &q, 1);
	kvr_overlap_pad(o);
	sched_overlap(pool, o, pool->sched_lcore->view->number, out);
	return true;
}
