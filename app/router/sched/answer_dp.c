/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers to the clients of requests: ACCEPTED, REJECTED, LOADS. */
#include "lcore/out.h"
#include "message/job.h"
#include "sched/reason.h"
#include "sched/request.h"
#include "sched/sched.h"
#include "sched/send.h"

#include <string.h>

/* ---- ACCEPTED ---- */

/* State of the main leg for its client. */
static uint8_t wire_state(const struct request *r)
{
	switch (leg_state(r, MAIN)) {
	case KVR_RQS_SENT:
		return KVR_STATE_DISPATCHED;
	case KVR_RQS_RUNNING:
	case KVR_RQS_ENDED: /* the client lacks the last item */
		return KVR_STATE_RUNNING;
	default:
		return KVR_STATE_QUEUED;
	}
}

static void chosen(const struct request *r, struct kvr_wire_accepted *a)
{
	const struct kvr_leg *l = &r->rq.leg[MAIN], *prefill = &r->rq.leg[PREFILL];

	a->worker = l->worker;
	a->dp_rank = l->dp_rank;
	a->overlap_blocks = l->overlap_blocks;
	a->required_blocks = l->required_blocks;
	a->cached_tokens = l->cached_tokens;
	a->path = r->rq.way;
	if (r->rq.way == KVR_WAY_BOOTSTRAP || r->rq.way == KVR_WAY_SYNC) {
		a->prefill_worker = prefill->worker;
		a->prefill_dp_rank = prefill->dp_rank;
		a->prefill_overlap_blocks = prefill->overlap_blocks;
	}
}

static void answer_query(const struct life *x)
{
	struct kvr_wire_accepted a = {.state = KVR_STATE_QUERY, .prefill_dp_rank = KVR_NONE32};
	const struct job *j = x->r->job;

	chosen(x->r, &a);
	out_message(x->lc, &j->client, KVR_ACCEPTED, j->source, j->id, 0, &a, sizeof(a));
}

/* Hints with the address of a leg's worker, for a client that contacts the engine itself or sends
 * the body to the agent. A later incarnation of the worker is not the chosen one. */
static void put_addr(const struct life *x, uint32_t leg, struct kvr_hint_buf *b)
{
	static const uint16_t
		engine[] =
			{[MAIN] = KVR_HINT_ENGINE_ADDR, [PREFILL] = KVR_HINT_PREFILL_ENGINE_ADDR},
		body[] = {[MAIN] = KVR_HINT_BODY_ADDR, [PREFILL] = KVR_HINT_PREFILL_BODY_ADDR};
	const uint32_t there = 1u << KVR_RQS_SENT | 1u << KVR_RQS_RUNNING;
	const struct kvr_leg *l = &x->r->rq.leg[leg];
	const struct kvr_view_worker *w;

	if ((there >> l->state & 1) == 0)
		return;
	w = kvr_view_find(x->lc->view, l->worker);
	if (w == NULL || w->epoch != l->epoch)
		return;
	if (x->r->rq.book && w->addr->engine[0] != '\0')
		kvr_hint_put_str(b, engine[leg], w->addr->engine);
	if (x->r->away && w->addr->body[0] != '\0')
		kvr_hint_put_str(b, body[leg], w->addr->body);
}

static void say_accepted(const struct life *x, struct kvr_wire_accepted *a)
{
	const struct kvr_flight *slot = x->r->slot[MAIN];
	uint8_t body[KVR_WIRE_ASKING_LEAST];
	struct kvr_hint_buf b = {.p = body + sizeof(*a), .cap = sizeof(body) - sizeof(*a)};

	if (unlikely(x->r->rq.book || x->r->away)) {
		put_addr(x, MAIN, &b);
		put_addr(x, PREFILL, &b);
	}
	a->hints_len = (uint16_t)b.len;
	memcpy(body, a, sizeof(*a));
	out_message(x->lc, &slot->relay.client, KVR_ACCEPTED, slot->relay.source, slot->relay.id,
		    kvr_flight_handle(x->p->requests, slot), body, sizeof(*a) + b.len);
}

void answer_accepted(const struct life *x)
{
	const struct request *r = x->r;
	struct kvr_wire_accepted a = {.prefill_dp_rank = KVR_NONE32};
	struct kvr_sched_pending waiting;

	if (unlikely(r->rq.query)) {
		answer_query(x);
		return;
	}
	a.state = wire_state(r);
	if (a.state != KVR_STATE_QUEUED) {
		chosen(r, &a);
		a.flags = send_kept(r) && !send_in_vain(x->lc, r) ? KVR_ACC_F_KEPT : 0;
	}
	kvr_sched_pending(x->p->sched, &waiting);
	a.queue_len = waiting.count;
	a.pending_tokens = (uint32_t)RTE_MIN(waiting.isl_tokens, UINT32_MAX);
	say_accepted(x, &a);
}

/* ---- REJECTED ---- */

/* Time limit of the request in ms. */
static uint64_t limit_ms(const struct pool *p, const struct job *j, uint64_t kind)
{
	if (kind == KVR_RQ_DEADLINE)
		return j != NULL ? since_ns(j->deadline_ns, j->arrival_ns) / 1000000 : 0;
	return kind == KVR_RQ_SILENT ? p->rt->conf.opt.client_timeout_ms : 0;
}

/* Add details that the code does not contain. */
static void explain(const struct pool *p, const struct job *j, struct refusal *why)
{
	uint32_t ranks, open;

	if (why->code == KVR_E_NO_ENDPOINTS) {
		kvr_sched_n_ranks(p->sched, &ranks, &open);
		why->detail[0] = kvr_sched_n_workers(p->sched);
		why->detail[1] = ranks;
		why->detail[2] = open;
	} else if (why->code == KVR_E_SOURCE_LIMIT && j != NULL && j->excess_of != 0) {
		why->detail[0] = j->excess_of;
		why->detail[1] = j->excess.held;
		why->detail[2] = j->excess.limit;
	} else if (why->code == KVR_E_EXPIRED) {
		why->detail[1] = limit_ms(p, j, why->detail[0]);
	}
}

void answer_rejected(const struct life *x, const struct kvr_rq_why *why)
{
	struct request *r = x->r;
	const struct kvr_flight *slot = r->slot[MAIN];
	struct refusal say = {.code = (enum kvr_code)why->code,
			      .retry = why->retryable ? RETRY_YES : RETRY_NO,
			      .policy_class = why->policy_class,
			      .handle = x->asked.hdr != NULL ? x->asked.hdr->handle : 0};
	char text[REASON_TEXT];

	memcpy(say.detail, why->detail, sizeof(say.detail));
	explain(x->p, r->job, &say);
	if (r->rq.end.code == why->code) /* PROBE gets the same answer */
		memcpy(r->rq.end.detail, say.detail, sizeof(r->rq.end.detail));
	say.text = reason_text(x->p, r, &say, text);
	out_reject(x->lc, request_client(r), x->asked.kind,
		   slot != NULL ? slot->relay.source : r->job->source,
		   slot != NULL ? slot->relay.id : r->job->id, &say);
}

void answer_cancelled(const struct life *x)
{
	const struct kvr_flight *slot = x->r->slot[MAIN];

	out_message(x->lc, &slot->relay.client, KVR_CANCELLED, slot->relay.source, slot->relay.id,
		    kvr_flight_handle(x->p->requests, slot), NULL, 0);
}

void answer_job(struct lcore *lc, struct job *j, const struct refusal *why)
{
	struct refusal say = *why;
	char text[REASON_TEXT];

	explain(j->pool, j, &say);
	if (say.text == NULL)
		say.text = reason_text(j->pool, NULL, &say, text);
	out_reject(lc, &j->client, j->kind, j->source, j->id, &say);
	job_free(lc, j);
}

struct refusal answer_ended(const struct kvr_flight_end *end)
{
	struct refusal why = {.code = end->code != KVR_OK ? (enum kvr_code)end->code : KVR_E_ENDED,
			      .retry = (enum refusal_retry)end->retry,
			      .policy_class = end->policy_class};

	memcpy(why.detail, end->detail, sizeof(why.detail));
	return why;
}

/* ---- LOADS ---- */

void answer_loads(struct lcore *lc, struct pool *p, struct job *j)
{
	struct kvr_sched_overlap ov;
	struct kvr_sched_pending waiting;
	struct kvr_wire_loads head;
	struct kvr_wire_hdr h = *job_header(j);
	uint32_t ranks;

	/* Load of every rank with this request, draining ranks included; no rank is chosen. */
	sched_overlap(p, j->overlap, j->view, &ov);
	kvr_sched_pending(p->sched, &waiting);
	j->msg.req.hints = &j->msg.hints;
	j->msg.hints.policy_class = KVR_SCHED_NO_CLASS;
	ranks = kvr_sched_loads(p->sched, &j->msg.req, &ov, lc->now_ns, p->loads, p->max_ranks);
	for (uint32_t i = 0; i < ranks; i++)
		p->loads_wire[i] = (struct kvr_wire_rank_potential){
			.worker = p->loads[i].worker,
			.dp_rank = p->loads[i].dp_rank,
			.active_requests = p->loads[i].active_requests,
			.prefill_tokens = p->loads[i].potential_prefill_tokens,
			.decode_blocks = p->loads[i].potential_decode_blocks,
			.overlap_blocks = p->loads[i].overlap_blocks,
			.cached_tokens = p->loads[i].cached_tokens,
		};
	head = (struct kvr_wire_loads){
		.n_ranks = ranks, .queue_len = waiting.count, .pending_tokens = waiting.isl_tokens};
	h.kind = KVR_LOADS;
	h.epoch = lc->rt->epoch;
	h.handle = 0;
	h.msg_len = (uint32_t)(sizeof(head) + ranks * sizeof(p->loads_wire[0]));
	h.msg_seq = (uint32_t)kvr_stats_get(p->count, PC_LOAD_QUERIES); /* makes answers differ */
	out_slices(lc, &h,
		   (const struct kvr_slice[]){
			   {&head, sizeof(head)},
			   {p->loads_wire, ranks * (uint32_t)sizeof(p->loads_wire[0])}},
		   2, &j->client);
	pool_count(p, PC_LOAD_QUERIES, 1);
	job_free(lc, j);
}
