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
static uint8_t wire_state(const struct request *req)
{
	switch (leg_state(req, MAIN)) {
	case KVR_RQS_SENT:
		return KVR_STATE_DISPATCHED;
	case KVR_RQS_RUNNING:
	case KVR_RQS_ENDED: /* the client lacks the last item */
		return KVR_STATE_RUNNING;
	default:
		return KVR_STATE_QUEUED;
	}
}

static void put_choice(const struct request *req, struct kvr_wire_accepted *a)
{
	const struct kvr_leg *l = &req->rq.leg[MAIN], *prefill = &req->rq.leg[PREFILL];

	a->worker = l->worker;
	a->dp_rank = l->dp_rank;
	a->overlap_blocks = l->overlap_blocks;
	a->required_blocks = l->required_blocks;
	a->cached_tokens = l->cached_tokens;
	a->path = req->rq.way;
	if (req->rq.way == KVR_WAY_BOOTSTRAP || req->rq.way == KVR_WAY_SYNC) {
		a->prefill_worker = prefill->worker;
		a->prefill_dp_rank = prefill->dp_rank;
		a->prefill_overlap_blocks = prefill->overlap_blocks;
	}
}

static void answer_query(const struct request_step *step)
{
	struct kvr_wire_accepted a = {.state = KVR_STATE_QUERY, .prefill_dp_rank = KVR_NONE32};
	const struct job *job = step->req->job;

	put_choice(step->req, &a);
	out_message(step->lc, &job->client, KVR_ACCEPTED, job->source, job->id, 0, &a, sizeof(a));
}

/* Hints with the address of a leg's worker, for a client that contacts the engine itself or sends
 * the body to the agent. A later incarnation of the worker is not the chosen one. */
static void put_addr(const struct request_step *step, uint32_t leg, struct kvr_hint_buf *b)
{
	static const uint16_t
		engine[] =
			{[MAIN] = KVR_HINT_ENGINE_ADDR, [PREFILL] = KVR_HINT_PREFILL_ENGINE_ADDR},
		body[] = {[MAIN] = KVR_HINT_BODY_ADDR, [PREFILL] = KVR_HINT_PREFILL_BODY_ADDR};
	const uint32_t there = 1u << KVR_RQS_SENT | 1u << KVR_RQS_RUNNING;
	const struct kvr_leg *l = &step->req->rq.leg[leg];
	const struct kvr_view_worker *worker;

	if ((there >> l->state & 1) == 0)
		return;
	worker = kvr_view_find(step->lc->view, l->worker);
	if (worker == NULL || worker->epoch != l->epoch)
		return;
	if (step->req->rq.book && worker->addr->engine[0] != '\0')
		kvr_hint_put_str(b, engine[leg], worker->addr->engine);
	if (step->req->away && worker->addr->body[0] != '\0')
		kvr_hint_put_str(b, body[leg], worker->addr->body);
}

static void say_accepted(const struct request_step *step, struct kvr_wire_accepted *a)
{
	const struct kvr_flight *slot = step->req->slot[MAIN];
	uint8_t body[KVR_WIRE_ASKING_LEAST];
	struct kvr_hint_buf b = {.p = body + sizeof(*a), .cap = sizeof(body) - sizeof(*a)};

	if (unlikely(step->req->rq.book || step->req->away)) {
		put_addr(step, MAIN, &b);
		put_addr(step, PREFILL, &b);
	}
	a->hints_len = (uint16_t)b.len;
	memcpy(body, a, sizeof(*a));
	out_message(step->lc, &slot->relay.client, KVR_ACCEPTED, slot->relay.source, slot->relay.id,
		    kvr_flight_handle(step->pool->requests, slot), body, sizeof(*a) + b.len);
}

void answer_accepted(const struct request_step *step)
{
	const struct request *req = step->req;
	struct kvr_wire_accepted a = {.prefill_dp_rank = KVR_NONE32};
	struct kvr_sched_pending waiting;

	if (unlikely(req->rq.query)) {
		answer_query(step);
		return;
	}
	a.state = wire_state(req);
	if (a.state != KVR_STATE_QUEUED) {
		put_choice(req, &a);
		a.flags = send_kept(req) && !send_unacked_long(step->lc, req) ? KVR_ACC_F_KEPT : 0;
	}
	kvr_sched_pending(step->pool->sched, &waiting);
	a.queue_len = waiting.count;
	a.pending_tokens = (uint32_t)RTE_MIN(waiting.isl_tokens, UINT32_MAX);
	say_accepted(step, &a);
}

/* ---- REJECTED ---- */

/* Time limit of the request in ms. */
static uint64_t limit_ms(const struct pool *pool, const struct job *job, uint64_t kind)
{
	if (kind == KVR_RQ_DEADLINE)
		return job != NULL ? since_ns(job->deadline_ns, job->arrival_ns) / 1000000 : 0;
	return kind == KVR_RQ_SILENT ? pool->rt->conf.opt.client_timeout_ms : 0;
}

/* Add details that the code does not contain. */
static void add_details(const struct pool *pool, const struct job *job, struct rejection *why)
{
	uint32_t ranks, open;

	if (why->code == KVR_E_NO_ENDPOINTS) {
		kvr_sched_n_ranks(pool->sched, &ranks, &open);
		why->detail[0] = kvr_sched_n_workers(pool->sched);
		why->detail[1] = ranks;
		why->detail[2] = open;
	} else if (why->code == KVR_E_SOURCE_LIMIT && job != NULL && job->excess_of != 0) {
		why->detail[0] = job->excess_of;
		why->detail[1] = job->excess.held;
		why->detail[2] = job->excess.limit;
	} else if (why->code == KVR_E_EXPIRED) {
		why->detail[1] = limit_ms(pool, job, why->detail[0]);
	}
}

void answer_rejected(const struct request_step *step, const struct kvr_rq_why *why)
{
	struct request *req = step->req;
	const struct kvr_flight *slot = req->slot[MAIN];
	struct rejection say = {.code = (enum kvr_code)why->code,
				.retry = why->retryable ? RETRY_YES : RETRY_NO,
				.policy_class = why->policy_class,
				.handle = step->asked.hdr != NULL ? step->asked.hdr->handle : 0};
	char text[REASON_TEXT];

	memcpy(say.detail, why->detail, sizeof(say.detail));
	add_details(step->pool, req->job, &say);
	if (req->rq.end.code == why->code) /* PROBE gets the same answer */
		memcpy(req->rq.end.detail, say.detail, sizeof(req->rq.end.detail));
	say.text = reason_text(step->pool, req, &say, text);
	out_reject(step->lc, request_client(req), step->asked.kind,
		   slot != NULL ? slot->relay.source : req->job->source,
		   slot != NULL ? slot->relay.id : req->job->id, &say);
}

void answer_cancelled(const struct request_step *step)
{
	const struct kvr_flight *slot = step->req->slot[MAIN];

	out_message(step->lc, &slot->relay.client, KVR_CANCELLED, slot->relay.source,
		    slot->relay.id, kvr_flight_handle(step->pool->requests, slot), NULL, 0);
}

void answer_job(struct lcore *lc, struct job *job, const struct rejection *why)
{
	struct rejection say = *why;
	char text[REASON_TEXT];

	add_details(job->pool, job, &say);
	if (say.text == NULL)
		say.text = reason_text(job->pool, NULL, &say, text);
	out_reject(lc, &job->client, job->kind, job->source, job->id, &say);
	job_free(lc, job);
}

struct rejection answer_ended(const struct kvr_flight_end *end)
{
	struct rejection why = {.code = end->code != KVR_OK ? (enum kvr_code)end->code
							    : KVR_E_ENDED,
				.retry = (enum rejection_retry)end->retry,
				.policy_class = end->policy_class};

	memcpy(why.detail, end->detail, sizeof(why.detail));
	return why;
}

/* ---- LOADS ---- */

void answer_loads(struct lcore *lc, struct pool *pool, struct job *job)
{
	struct kvr_sched_overlap ov;
	struct kvr_sched_pending waiting;
	struct kvr_wire_loads head;
	struct kvr_wire_hdr h = *job_header(job);
	uint32_t ranks;

	/* Load of every rank with this request, draining ranks included; no rank is chosen. */
	sched_overlap(pool, job->overlap, job->view, &ov);
	kvr_sched_pending(pool->sched, &waiting);
	job->msg.req.hints = &job->msg.hints;
	job->msg.hints.policy_class = KVR_SCHED_NO_CLASS;
	ranks = kvr_sched_loads(pool->sched, &job->msg.req, &ov, lc->now_ns, pool->loads,
				pool->max_ranks);
	for (uint32_t i = 0; i < ranks; i++)
		pool->loads_wire[i] = (struct kvr_wire_rank_potential){
			.worker = pool->loads[i].worker,
			.dp_rank = pool->loads[i].dp_rank,
			.active_requests = pool->loads[i].active_requests,
			.prefill_tokens = pool->loads[i].potential_prefill_tokens,
			.decode_blocks = pool->loads[i].potential_decode_blocks,
			.overlap_blocks = pool->loads[i].overlap_blocks,
			.cached_tokens = pool->loads[i].cached_tokens,
		};
	head = (struct kvr_wire_loads){
		.n_ranks = ranks, .queue_len = waiting.count, .pending_tokens = waiting.isl_tokens};
	h.kind = KVR_LOADS;
	h.epoch = lc->rt->epoch;
	h.handle = 0;
	h.msg_len = (uint32_t)(sizeof(head) + ranks * sizeof(pool->loads_wire[0]));
	h.msg_seq =
		(uint32_t)kvr_stats_get(pool->count, PC_LOAD_QUERIES); /* makes answers differ */
	out_slices(lc, &h,
		   (const struct kvr_slice[]){
			   {&head, sizeof(head)},
			   {pool->loads_wire, ranks * (uint32_t)sizeof(pool->loads_wire[0])}},
		   2, &job->client);
	pool_count(pool, PC_LOAD_QUERIES, 1);
	job_free(lc, job);
}
