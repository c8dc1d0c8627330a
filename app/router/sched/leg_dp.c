/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages to the workers of a pair of pools: the parts that the client's ROUTE does not contain.
 */
#include "lcore/out.h"
#include "message/frames.h"
#include "message/job.h"
#include "sched/request.h"
#include "sched/sched.h"

#include <string.h>

#include "kvr_frame.h"
#include "kvr_message.h"

void leg_result(struct lcore *lc, struct job *job, struct rte_mbuf *m)
{
	result_free(lc, job); /* of an earlier attempt */
	job->pair->result = m;
}

enum kvr_code leg_long_result(struct lcore *lc, struct job *job, struct frame_list *list)
{
	result_free(lc, job);
	return result_hold(job, list);
}

void leg_prefill_known(const struct request_step *step)
{
	const struct kvr_view_worker *worker;
	struct pair *pair = step->req->job->pair;

	if (step->req->rq.way != KVR_WAY_BOOTSTRAP)
		return;
	worker = kvr_view_find(step->lc->view, step->req->rq.leg[PREFILL].worker);
	memcpy(pair->host, worker->transfer->host, sizeof(pair->host));
	pair->port = worker->transfer->port;
}

/* ---- messages ---- */

/* Data of the prefill agent about its prompt for the decode agent: see PROTOCOL.md 6.4. */
static void pass_on(struct kvr_hint_buf *b, const uint8_t *hints, uint32_t len)
{
	struct kvr_tlv_iter it = kvr_tlv_begin(hints, len);
	struct kvr_tlv t;

	while (kvr_tlv_next(&it, &t) > 0)
		if (t.type == KVR_HINT_PROMPT_DETAILS || t.type == KVR_HINT_TRACE_LINK)
			kvr_hint_put(b, t.type, t.value, t.len, NULL, 0);
}

/* The same for a result of several frames. */
static void pass_on_long(struct kvr_hint_buf *b, const struct frame_list *list)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(list->m[0], const void *);
	const struct kvr_wire_response *w = kvr_frame_body(hdr);
	uint8_t said[KVR_WIRE_SAID_MOST];

	if (w->hints_len == 0 || w->hints_len > sizeof(said))
		return;
	frames_copy(list->m, hdr->frag_len, hdr->msg_len - w->hints_len, w->hints_len, said);
	pass_on(b, said, w->hints_len);
}

/* The client's hints with those of the leg, in lc->hints. @return length. */
static uint32_t leg_hints(struct lcore *lc, const struct request *req, uint32_t leg)
{
	static const uint16_t ours[] = {KVR_HINT_PREFILL_WORKER};
	struct kvr_hint_buf b = {.p = lc->hints, .cap = KVR_WIRE_MAX_HINTS};
	const bool alone = req->rq.way == KVR_WAY_BYPASSED;
	const struct job *job = req->job;

	kvr_hints_rewrite(job->tlvs, job->tlvs_len, ours, alone ? 0 : 1, &b);
	if (alone)
		return b.len;
	kvr_hint_put_u64(&b, KVR_HINT_PREFILL_WORKER, req->rq.leg[PREFILL].worker);
	if (req->rq.way == KVR_WAY_BOOTSTRAP)
		kvr_hint_put_bootstrap(&b, req->rq.room, job->pair->port, job->pair->host);
	if (leg == MAIN && req->rq.way == KVR_WAY_SYNC && job->pair->result != NULL) {
		const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(job->pair->result, const void *);
		const struct kvr_wire_response *w = kvr_frame_body(hdr);

		kvr_hint_put(&b, KVR_HINT_PREFILL_RESULT, w + 1, w->data_len, NULL, 0);
		pass_on(&b, (const uint8_t *)(w + 1) + RTE_ALIGN_CEIL(w->data_len, 8u),
			w->hints_len);
	}
	if (leg == MAIN && req->rq.way == KVR_WAY_SYNC && job->pair->long_result != NULL)
		pass_on_long(&b, job->pair->long_result);
	return b.len; /* pair_attach() checked that it fits */
}

void leg_fields(const struct pool *pool, const struct kvr_flight *slot, struct dispatch_fields *f)
{
	const uint32_t leg = leg_of(slot);
	const struct kvr_leg *l = &request_of(slot)->rq.leg[leg];

	*f = (struct dispatch_fields){
		.handle = kvr_flight_handle(pool->requests, slot),
		.worker = l->worker,
		.dp_rank = l->dp_rank,
		.overlap_blocks = l->overlap_blocks,
		.cached_tokens = l->cached_tokens,
		.attempt = slot->attempt,
		.direct = leg == MAIN && slot->relay.direct != 0,
		.internal = leg == PREFILL,
		.trial = l->trial,
	};
}

/* Fields of the pair in the message of a leg. */
static void of_pair(const struct request *req, uint32_t leg, struct kvr_wire_request *q)
{
	if (leg == PREFILL) {
		q->phase = KVR_ROLE_PREFILL;
		q->flags |= KVR_REQ_F_PREFILL_LEG;
		q->max_tokens = 1;
	} else if (req->rq.way != KVR_WAY_BYPASSED) {
		q->phase = KVR_ROLE_DECODE;
		q->flags |= KVR_REQ_F_DECODE_LEG;
	}
	q->flags &= ~KVR_REQ_F_RESEND;
}

void leg_message(struct lcore *lc, const struct pool *pool, const struct kvr_flight *slot,
		 struct dispatch_msg *d)
{
	const struct request *req = request_of(slot);
	const uint32_t leg = leg_of(slot);
	const struct job *job = req->job;
	struct kvr_wire_request *q = &d->q;
	struct dispatch_fields f;

	leg_fields(pool, slot, &f);
	d->j = job;
	d->h = *job_header(job);
	d->hints_off = job->hints_off;
	d->body_off = job->body_off;
	d->hints = lc->hints;
	d->hints_len = leg_hints(lc, req, leg);
	job_copy(job, 0, sizeof(*q), q);
	q->pool = (uint16_t)pool->wire_id;
	q->hints_len = d->hints_len;
	of_pair(req, leg, q);
	out_dispatch_fields(lc, job, &f, &d->h, q);
	d->h.msg_len = d->h.msg_len - job->tlvs_len + d->hints_len;
	d->result = NULL;
	d->result_off = d->h.msg_len;
	if (leg == MAIN && req->rq.way == KVR_WAY_SYNC && job->pair->long_result != NULL) {
		const struct kvr_wire_hdr *hdr =
			rte_pktmbuf_mtod(job->pair->long_result->m[0], const void *);
		const struct kvr_wire_response *w = kvr_frame_body(hdr);

		d->result = job->pair->long_result;
		d->result_unit = hdr->frag_len;
		q->result_len = w->data_len;
		d->h.msg_len += RTE_ALIGN_CEIL(w->data_len, 8u);
	}
	/* Copies of a message may be combined; another attempt of the request is another message.
	 */
	d->h.msg_seq = (uint32_t)(f.handle >> 32);
}
