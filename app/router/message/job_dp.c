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

struct job *job_new(struct lcore *lc, struct pool *p)
{
	struct job *j;

	if (KVR_SIM_FAULT(JOB) || rte_mempool_get(p->jobs, (void **)&j) < 0)
		return NULL;
	j->pool = p;
	j->frame = NULL;
	j->frames = NULL;
	j->hash_buf = NULL;
	j->hint_buf = NULL;
	j->pair = NULL;
	j->excess_of = 0;
	j->sending.on = false;
	j->sent = false;
	j->held = 0;
	j->moved = 0;
	j->arrival_ns = lc->now_ns;
	return j;
}

enum kvr_code pair_attach(struct job *j)
{
	struct pair *l;

	if (j->tlvs_len > KVR_WIRE_MAX_HINTS - LEG_HINTS)
		return KVR_E_TOO_LARGE;
	if (KVR_SIM_FAULT(PAIR) || rte_mempool_get(j->pool->pairs, (void **)&l) < 0)
		return KVR_E_NO_MEMORY;
	l->rq.required = l->required;
	l->rq.preferred = l->preferred;
	l->result = NULL;
	l->long_result = NULL;
	l->said[0] = '\0';
	l->sending[KVR_LEG_MAIN].on = l->sending[KVR_LEG_PREFILL].on = false;
	l->sending[KVR_LEG_MAIN].stops = l->sending[KVR_LEG_PREFILL].stops = false;
	l->over = false;
	j->pair = l;
	return KVR_OK;
}

void pair_detach(struct job *j)
{
	rte_mempool_put(j->pool->pairs, j->pair);
	j->pair = NULL;
}

/* Uses mempools only, never a word of the scheduler. */
void job_drop(struct lcore *lc, struct job *j)
{
	rte_pktmbuf_free(j->frame);
	if (j->frames != NULL)
		frames_drop(lc, j->frames);
	if (j->pair != NULL)
		pair_detach(j);
	hashes_put(j->hash_buf);
	buf_put(j->hint_buf);
	rte_mempool_put(j->pool->jobs, j);
}

const struct kvr_wire_hdr *job_header(const struct job *j)
{
	return rte_pktmbuf_mtod(j->frames != NULL ? j->frames->m[0] : j->frame,
				const struct kvr_wire_hdr *);
}

void job_part(const struct job *j, uint32_t off, uint32_t len, void *dst)
{
	frames_part(j->frames != NULL ? j->frames->m : &j->frame, job_header(j)->frag_len, off, len,
		    dst);
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
