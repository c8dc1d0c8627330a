/* SPDX-License-Identifier: BSD-3-Clause */
/* What a decision was, as text: terms, legs, refusals, sessions. */
#include "lines.h"

#include "out.h"

static void term(const struct kvr_sched_term *t)
{
	ex_out("{ worker:U dp_rank:u cost:f", t->worker, t->dp_rank, t->cost);
	ex_out("overlap_blocks:{ device:u host:u disk:u shared:u }", t->device, t->host, t->disk,
	       t->shared);
	ex_out("prefill_tokens:U decode_blocks:u active_requests:u", t->prefill_tokens,
	       t->decode_blocks, t->active_requests);
	if (t->by_ttft)
		ex_out("wait_tokens:f left_tokens:f decode_weight:f rho:f us_token:f",
		       t->wait_tokens, t->left_tokens, t->decode_weight, t->rho, t->us_token);
	ex_out("}");
}

static const char *class_name(const struct ex_pool *pool, uint32_t k)
{
	return pool->conf.n_classes == 0  ? "default"
	       : k < pool->conf.n_classes ? pool->conf.classes[k].name
					  : pool->conf.classes[0].name;
}

static void begin(const struct ex_req *r, const char *result)
{
	ex_out("{ op:s id:s result:s", r->queued ? "admitted" : "route", r->id, result);
}

/* Whoever names a policy class is told which one it was; an unknown name is the first. */
static void class_field(const struct ex_req *r)
{
	if (r->msg.policy.len != 0)
		ex_out("policy_class:s", class_name(r->pool, r->msg.hints.policy_class));
}

static void end(const struct ex_req *r)
{
	const uint64_t ns = r->d.waited_ns;

	if (r->queued && ns % 1000000 == 0)
		ex_out("waited_ms:U }", ns / 1000000);
	else if (r->queued)
		ex_out("waited_ms:f }", (double)ns / 1e6);
	else
		ex_out("}");
}

static void routed_line(const struct ex_req *r, const char *result)
{
	const struct kvr_sched_decision *d = &r->d;
	const struct kvr_leg *p = &r->r.leg[KVR_LEG_PREFILL];
	const struct kvr_sched_terms *t = &r->pool->terms;

	begin(r, result);
	ex_out("worker:U dp_rank:u", d->worker, d->dp_rank);
	class_field(r);
	if (r->r.way == KVR_WAY_BOOTSTRAP || r->r.way == KVR_WAY_SYNC)
		ex_out("prefill_worker:U prefill_dp_rank:u prefill_overlap_blocks:u", p->worker,
		       p->dp_rank, p->overlap_blocks);
	if (kvr_pool_mode(r->pool->conf.mode)->needs_cache) {
		ex_out("overlap_blocks:u required_blocks:u cached_tokens:U costs:[",
		       d->overlap_blocks, d->required_blocks, d->cached_tokens);
		for (uint32_t i = 0; i < t->n && i < t->cap; i++)
			term(&t->v[i]);
		ex_out("]");
	}
	end(r);
}

void ex_line_accepted(struct ex_req *r)
{
	switch (r->r.leg[KVR_LEG_MAIN].state) {
	case KVR_RQS_FREE:
		routed_line(r, "query");
		return;
	case KVR_RQS_HELD:
	case KVR_RQS_SENT:
		if (!r->routed)
			routed_line(r, "routed");
		r->routed = true;
		return;
	case KVR_RQS_UNDECIDED:
		if (r->r.leg[KVR_LEG_PREFILL].state != KVR_RQS_QUEUED)
			return; /* its line comes with the end of the prefill leg */
				/* fall through */
	default:
		begin(r, "queued");
		class_field(r);
		ex_out("}");
		r->queued = true;
	}
}

/* ---- refusals ---------------------------------------------------------------------------- */

#define TEXT(code, counter, help) [KVR_E_##code] = help,

static const char *message(unsigned int why)
{
	static const char *const text[KVR_E_MAX] = {
		KVR_SCHED_ERR_LIST(TEXT)[KVR_E_NOT_ACTIVATED] = "the prefill pool is not active",
		[KVR_E_SESSION_LIMIT] = "too many sessions are bound or being opened",
		[KVR_E_SESSION_WORKER_GONE] = "the worker of the session has left",
		[KVR_E_SESSION_OPEN_FAILED] = "another request opens this session now",
	};

	return why < KVR_E_MAX && text[why] != NULL ? text[why] : kvr_code_name(why);
}

void ex_line_rejected(const struct ex_req *r, const struct kvr_rq_why *why)
{
	static const char *const kind[] = {"?", "requests", "raw_isl_tokens", "cached_tokens"};

	begin(r, "error");
	ex_out("error:s retryable:b message:s", kvr_code_name(why->code), why->retryable,
	       message(why->code));
	if (why->code == KVR_E_QUEUE_REJECTED)
		ex_out("policy_class:s limit_kind:s current:U limit:U",
		       class_name(r->decided_by, r->d.policy_class), kind[why->detail[0]],
		       why->detail[1], why->detail[2]);
	end(r);
}

/* ---- legs, sessions, bookings ------------------------------------------------------------ */

void ex_line_prefill(const struct ex_req *r)
{
	const struct kvr_leg *l = &r->r.leg[KVR_LEG_PREFILL];

	ex_out("{ op:s id:s", "prefill", r->id);
	if (r->r.way != KVR_WAY_BYPASSED)
		ex_out("worker:U dp_rank:u overlap_blocks:u", l->worker, l->dp_rank,
		       l->overlap_blocks);
	ex_out("path:s", kvr_way_name(r->r.way));
	if (r->r.way == KVR_WAY_BOOTSTRAP)
		ex_out("bootstrap_room:U", r->r.room);
	ex_out("}");
}

static void session_line(const char *id, uint32_t len, const char *event, uint64_t worker,
			 uint32_t dp_rank)
{
	ex_out("{ op:s session_id:S event:s worker:U dp_rank:u }", "session", id, len, event,
	       worker, dp_rank);
}

void ex_line_session(const struct ex_req *r, const struct kvr_rq_order *o)
{
	static const char *const how[] = {"bound", "unbound", "expired", "open_failed", "unbound"};
	const char *event = o->kind == KVR_RQO_CLOSE ? "close_sent" : how[o->how];

	if (o->kind == KVR_RQO_OPEN) {
		session_line(r->session.id, r->session.id_len, "open_sent",
			     r->r.leg[KVR_LEG_MAIN].worker, r->r.leg[KVR_LEG_MAIN].dp_rank);
		return;
	}
	/* Lines of closes are for what was bound, and has expired or was closed. */
	if (o->kind == KVR_RQO_CLOSE && o->how != KVR_RQ_SESSION_OVER &&
	    o->how != KVR_RQ_CLOSED_BY_CLIENT)
		return;
	session_line(o->session.id, o->session.id_len, event, o->session.to.worker,
		     o->session.to.dp_rank);
}

void ex_line_expired(const struct ex_req *r)
{
	ex_out("{ op:s id:s }", "expired", r->id);
}

/* ---- orders ------------------------------------------------------------------------------ */

/* Nobody is told who is not there any more, or begins anew. */
static bool lives(const struct ex_world *w, const struct kvr_session_binding *at)
{
	const struct ex_worker *k = ex_worker_find(w, at->worker);

	return k != NULL && k->rq.epoch == (uint32_t)at->tag;
}

void ex_lines(const struct ex_world *w, struct ex_req *r, const struct kvr_rq_orders *out,
	      bool decision)
{
	for (uint32_t i = 0; i < out->n; i++) {
		const struct kvr_rq_order *o = &out->v[i];

		if (o->kind == KVR_RQO_PREFILL)
			ex_line_prefill(r);
		else if (o->kind == KVR_RQO_ACCEPTED)
			ex_line_accepted(r);
		else if (o->kind == KVR_RQO_REJECTED && decision)
			ex_line_rejected(r, &o->why);
	}
	for (uint32_t i = 0; i < out->n; i++) {
		const struct kvr_rq_order *o = &out->v[i];

		if (o->kind == KVR_RQO_OPEN || o->kind == KVR_RQO_SESSION ||
		    (o->kind == KVR_RQO_CLOSE && lives(w, &o->session.to)))
			ex_line_session(r, o);
	}
}
