/* SPDX-License-Identifier: BSD-3-Clause */
/* Orders common to several rules, and the scheduler requests of the legs. */
#include "request_pvt.h"

#include <string.h>

/* ---- rejections -------------------------------------------------------------------------- */

struct kvr_rq_why kvr_rq__why(const struct kvr_request *r, enum kvr_code code, uint64_t detail)
{
	const struct kvr_rq_pool *pool = r->pool;
	struct kvr_rq_why why = {
		.code = (uint16_t)code, .retryable = kvr_code_retryable(code), .detail = {detail}};

	/* Workers from before a restart may return soon. */
	if (code == KVR_E_NO_ENDPOINTS)
		why.retryable =
			pool->expected || (pool->prefill != NULL && pool->prefill->expected);
	return why;
}

struct kvr_rq_why kvr_rq__why_at(const struct kvr_request *r, uint32_t leg, enum kvr_code code,
				 uint32_t said)
{
	struct kvr_rq_why why = kvr_rq__why(r, code, said);

	why.detail[1] = r->leg[leg].worker;
	why.detail[2] = r->leg[leg].dp_rank;
	return why;
}

struct kvr_rq_why kvr_rq__why_of(const struct kvr_request *r, const struct kvr_sched_decision *d)
{
	struct kvr_rq_why why = kvr_rq__why(r, d->err, 0);

	if (d->err == KVR_E_QUEUE_REJECTED) {
		why.detail[0] = (uint64_t)d->reject.kind + 1;
		why.detail[1] = d->reject.current;
		why.detail[2] = d->reject.limit;
		why.policy_class = (uint8_t)d->policy_class;
	}
	return why;
}

void kvr_rq__reject(const struct step *step, const struct kvr_rq_why *why)
{
	struct kvr_request *r = step->r;

	if (r->notified == KVR_RQ_OVER)
		return;
	add_order(step, KVR_RQO_REJECTED, MAIN)->why = *why;
	r->end = *why;
	r->notified = KVR_RQ_OVER;
}

void kvr_rq__accept(const struct step *step, enum kvr_rq_notified state)
{
	if (step->r->notified >= state)
		return;
	add_order(step, KVR_RQO_ACCEPTED, MAIN);
	step->r->notified = (uint8_t)state;
}

/* ---- questions --------------------------------------------------------------------------- */

void kvr_rq__decide(const struct step *step, uint32_t leg)
{
	struct kvr_request *r = step->r;
	struct kvr_rq_msg *m = r->msg;
	const struct kvr_sched_req *req = &m->req;

	if (leg == PREFILL)
		req = &m->pair->preq;
	else if (has_legs(r))
		req = &m->pair->dreq;
	move_leg(step, leg, KVR_RQS_DECIDING);
	r->asks = KVR_RQO_DECIDE;
	add_order(step, KVR_RQO_DECIDE, leg)->req = req;
}

void kvr_rq__ask(const struct step *step, enum kvr_rq_order_kind question)
{
	step->r->asks = (uint8_t)question;
	add_order(step, question, MAIN);
}

/* ---- scheduler requests ------------------------------------------------------------------ */

/* An unknown or missing name selects the first class. */
static uint32_t class_of(const struct kvr_rq_pool *pool, const struct kvr_str *name)
{
	const struct kvr_pool_conf *c = pool->conf;

	if (name->len == 0)
		return KVR_SCHED_NO_CLASS;
	for (uint32_t i = 0; i < c->n_classes; i++)
		if (strlen(c->classes[i].name) == name->len &&
		    memcmp(c->classes[i].name, name->p, name->len) == 0)
			return i;
	return KVR_SCHED_NO_CLASS;
}

void kvr_rq__message(const struct step *step)
{
	struct kvr_rq_msg *m = step->r->msg;

	m->req.hints = &m->hints;
	m->hints.policy_class = class_of(step->r->pool, &m->hints.policy);
	if (m->hints.policy.len != 0 && m->hints.policy_class == KVR_SCHED_NO_CLASS)
		count_event(step->r->pool, KVR_RQC_UNKNOWN_CLASS);
	if (m->pair != NULL) {
		m->pair->failed = KVR_OK;
		m->pair->exclude = m->pair->soft = false;
	}
}

/* Ignore the allowed ids for the prefill leg if they name decode workers only. */
static void prefill_allowed(const struct step *step, const struct kvr_rq_pool *pool,
			    struct kvr_hints *h)
{
	struct kvr_rq_worker w;

	for (uint32_t i = 0; i < h->n_allowed; i++)
		if (step->c->ops->worker(step->c->arg, pool, kvr_hints_allowed(h, i), &w))
			return;
	if (h->n_allowed > 0)
		h->present &= ~KVR_HAS(KVR_HINT_ALLOWED_WORKERS);
}

void kvr_rq__prefill_request(const struct step *step)
{
	const struct kvr_rq_session *s = step->r->session;
	const struct kvr_rq_pool *pool = step->r->pool->prefill;
	struct kvr_rq_msg *m = step->r->msg;
	struct kvr_rq_pair *pair = m->pair;
	struct kvr_hints *h = &pair->phints;
	struct kvr_hints client = m->hints;

	/* A pin by a session of the decode pool does not apply to this pool. */
	if (s != NULL && s->pin[MAIN] != PIN_NONE) {
		client.present = s->present_before[MAIN];
		client.dp_rank = s->rank_before[MAIN];
	}
	kvr_disagg_prefill_hints(&client, h);
	prefill_allowed(step, pool, h);
	h->policy_class = class_of(pool, &m->hints.policy);
	if (pair->exclude) {
		h->present |= KVR_HAS_EXCLUDE;
		h->exclude_worker = pair->exclude_worker;
	}
	pair->preq = m->req;
	pair->preq.phase = KVR_ROLE_PREFILL;
	pair->preq.hints = h;
}

void kvr_rq__decode_hints(const struct step *step)
{
	struct kvr_rq_pair *pair = step->r->msg->pair;
	struct kvr_disagg_transfer t = {.required = pair->transfer == 2, .weight = pair->weight};

	if (pair->transfer != 0)
		t.taint = (struct kvr_str){pair->taint, (uint32_t)strlen(pair->taint)};
	kvr_disagg_merge(&step->r->msg->hints, &t, pair->required, pair->preferred, &pair->dhints);
	kvr_disagg_decode_override(&pair->dhints);
}

void kvr_rq__decode_request(const struct step *step, const struct kvr_rq_worker *w)
{
	struct kvr_rq_msg *m = step->r->msg;
	struct kvr_rq_pair *pair = m->pair;
	const size_t len = w->transfer != 0 ? strnlen(w->taint, sizeof(pair->taint) - 1) : 0;

	pair->transfer = w->transfer;
	pair->weight = w->weight;
	if (len != 0)
		memcpy(pair->taint, w->taint, len);
	pair->taint[len] = '\0';
	pair->dreq = m->req;
	pair->dreq.phase = KVR_ROLE_DECODE;
	pair->dreq.hints = &pair->dhints;
	kvr_rq__decode_hints(step);
}

bool kvr_rq__rank_missing(const struct step *step)
{
	const struct kvr_hints *h = &step->r->msg->hints;
	struct kvr_rq_worker w;
	uint64_t id;

	if (!kvr_pool_mode(step->r->pool->conf->mode)->needs_cache ||
	    (h->present & KVR_HAS(KVR_HINT_DP_RANK)) != 0 ||
	    (h->present & (KVR_HAS(KVR_HINT_DECODE_WORKER) | KVR_HAS(KVR_HINT_BACKEND))) == 0)
		return false;
	id = (h->present & KVR_HAS(KVR_HINT_DECODE_WORKER)) != 0 ? h->decode_worker
								 : h->backend_worker;
	return !step->c->ops->worker(step->c->arg, step->r->pool, id, &w) || w.dp_size > 1;
}

/* ---- bookings ---------------------------------------------------------------------------- */

bool kvr_rq__booked(const struct step *step, uint32_t leg, const struct kvr_sched_decision *d,
		    struct kvr_rq_worker *w)
{
	struct kvr_leg *l = &step->r->leg[leg];

	l->booked = d->result == KVR_SCHED_ROUTED;
	l->released = false;
	l->trial = d->trial;
	l->rank = d->rank;
	l->worker = d->worker;
	l->dp_rank = d->dp_rank;
	l->overlap_blocks = d->overlap_blocks;
	l->required_blocks = d->required_blocks;
	l->cached_tokens = d->cached_tokens < UINT32_MAX ? (uint32_t)d->cached_tokens : UINT32_MAX;
	/* The scheduler may know a worker earlier than the executor. */
	if (!step->c->ops->worker(step->c->arg, kvr_request_pool(step->r, leg), d->worker, w))
		return false;
	l->epoch = w->epoch;
	return true;
}

void kvr_rq__keep(const struct step *step, uint32_t leg)
{
	for (uint32_t i = MAIN; i <= PREFILL; i++)
		if ((i == leg || step->r->book) && step->r->leg[i].booked &&
		    !step->r->leg[i].released)
			add_order(step, KVR_RQO_KEEP, i);
}

void kvr_rq__send(const struct step *step, uint32_t leg)
{
	move_leg(step, leg, KVR_RQS_SENT);
	step->r->sent = true;
	step->r->sent_ns[leg] = step->c->now;
	add_order(step, step->r->book ? KVR_RQO_BOOKED : KVR_RQO_SEND, leg);
	if (step->r->book) /* needs no acknowledgement */
		move_leg(step, leg, KVR_RQS_RUNNING);
}
