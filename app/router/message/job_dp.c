/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of jobs and pairs, and access to the bytes of a message. All memory comes from mempools,
 * so any lcore may free what another allocated.
 */
#include "message/job.h"

#include <string.h>

#include "kvr_frame.h"
#include "message/frames.h"

/* Bytes that the router adds to the hints of a leg: PREFILL_WORKER, BOOTSTRAP, PREFILL_RESULT. */
#define LEG_HINTS (16u + 288u + KVR_WIRE_MAX_FRAME)

struct job *job_new(struct lcore *lc, struct pool *pool)
{
	struct job *job;

	if (KVR_SIM_FAULT(JOB) || rte_mempool_get(pool->jobs, (void **)&job) < 0)
		return NULL;
	job->pool = pool;
	job->frame = NULL;
	job->frames = NULL;
	job->hash_buf = NULL;
	job->hint_buf = NULL;
	job->pair = NULL;
	job->excess_of = 0;
	job->sending.on = false;
	job->sent = false;
	job->held = 0;
	job->moved = 0;
	job->arrival_ns = lc->now_ns;
	return job;
}

enum kvr_code pair_attach(struct job *job)
{
	struct pair *pair;

	if (job->tlvs_len > KVR_WIRE_MAX_HINTS - LEG_HINTS)
		return KVR_E_TOO_LARGE;
	if (KVR_SIM_FAULT(PAIR) || rte_mempool_get(job->pool->pairs, (void **)&pair) < 0)
		return KVR_E_NO_MEMORY;
	pair->rq.required = pair->required;
	pair->rq.preferred = pair->preferred;
	pair->result = NULL;
	pair->long_result = NULL;
	pair->said[0] = '\0';
	pair->sending[KVR_LEG_MAIN].on = pair->sending[KVR_LEG_PREFILL].on = false;
	pair->sending[KVR_LEG_MAIN].stops = pair->sending[KVR_LEG_PREFILL].stops = false;
	pair->over = false;
	job->pair = pair;
	return KVR_OK;
}

void pair_detach(struct job *job)
{
	rte_mempool_put(job->pool->pairs, job->pair);
	job->pair = NULL;
}

/* Uses mempools only, never a word of the scheduler. */
void job_drop(struct lcore *lc, struct job *job)
{
	rte_pktmbuf_free(job->frame);
	if (job->frames != NULL)
		frames_drop(lc, job->frames);
	if (job->pair != NULL)
		pair_detach(job);
	hashes_put(job->hash_buf);
	buf_put(job->hint_buf);
	rte_mempool_put(job->pool->jobs, job);
}

const struct kvr_wire_hdr *job_header(const struct job *job)
{
	return rte_pktmbuf_mtod(job->frames != NULL ? job->frames->m[0] : job->frame,
				const struct kvr_wire_hdr *);
}

void job_copy(const struct job *job, uint32_t off, uint32_t len, void *dst)
{
	frames_copy(job->frames != NULL ? job->frames->m : &job->frame, job_header(job)->frag_len,
		    off, len, dst);
}

void overlap_view(const struct kvr_overlap *o, struct kvr_sched_overlap *ov)
{
	*ov = (struct kvr_sched_overlap){
		.device = kvr_overlap_held(o, KVR_TIER_DEVICE),
		.host = kvr_overlap_held(o, KVR_TIER_HOST),
		.disk = kvr_overlap_held(o, KVR_TIER_DISK),
		.external = kvr_overlap_held(o, KVR_TIER_EXTERNAL),
	};
}
