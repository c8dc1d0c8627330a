/* SPDX-License-Identifier: BSD-3-Clause */
/* What a decision was, as text: terms, legs, refusals, sessions. */
#include "lines.h"

#include "out.h"

#include <string.h>

static void term_line(const struct kvr_sched_term *t)
{
	ex_out_open(NULL, '{');
	ex_out_u64("worker", t->worker);
	ex_out_u64("dp_rank", t->dp_rank);
	ex_out_f64("cost", t->cost);
	ex_out_open("overlap_blocks", '{');
	ex_out_u64("device", t->device);
	ex_out_u64("host", t->host);
	ex_out_u64("disk", t->disk);
	ex_out_u64("shared", t->shared);
	ex_out_close('}');
	ex_out_u64("prefill_tokens", t->prefill_tokens);
	ex_out_u64("decode_blocks", t->decode_blocks);
	ex_out_u64("active_requests", t->active_requests);
	if (t->by_ttft) {
		ex_out_f64("wait_tokens", t->wait_tokens);
		ex_out_f64("left_tokens", t->left_tokens);
		ex_out_f64("decode_weight", t->decode_weight);
		ex_out_f64("rho", t->rho);
		ex_out_f64("us_token", t->us_token);
	}
	ex_out_close('}');
}

static const char *class_name(const struct ex_pool *pool, uint32_t k)
{
	return pool->conf.n_classes == 0  ? "default"
	       : k < pool->conf.n_classes ? pool->conf.classes[k].name
					  : pool->conf.classes[0].name;
}

/* Whoever names a policy class is told which one it was; an unknown name is the first. */
static void class_field(const struct ex_req *r)
{
	if (r->msg.policy.len != 0)
		ex_out_str("policy_class", class_name(r->pool, r->msg.hints.policy_class));
}

static void begin(const struct ex_req *r, const char *result)
{
	ex_out_line(r->queued ? "admitted" : "route");
	ex_out_str("id", r->id);
	ex_out_str("result", result);
}

static void end(const struct ex_req *r)
{
	if (r->queued && r->d.waited_ns % 1000000 == 0)
		ex_out_u64("waited_ms", r->d.waited_ns / 1000000);
	else if (r->queued)
		ex_out_f64("waited_ms", (double)r->d.waited_ns / 1e6);
	ex_out_end();
}

static void routed_line(const struct ex_req *r, const char *result)
{
	const struct kvr_sched_decision *d = &r->d;
	const struct kvr_leg *p = &r->r.leg[KVR_LEG_PREFILL];
	const struct kvr_sched_terms *t = &r->pool->terms;

	begin(r, result);
	ex_out_u64("worker", d->worker);
	ex_out_u64("dp_rank", d->dp_rank);
	class_field(r);
	if (r->r.way == KVR_WAY_BOOTSTRAP || r->r.way == KVR_WAY_SYNC) {
		ex_out_u64("prefill_worker", p->worker);
		ex_out_u64("prefill_dp_rank", p->dp_rank);
		ex_out_u64("prefill_overlap_blocks", p->overlap_blocks);
	}
	if (kvr_pool_mode(r->pool->conf.mode)->needs_cache) {
		ex_out_u64("overlap_blocks", d->overlap_blocks);
		ex_out_u64("required_blocks", d->required_blocks);
		ex_out_u64("cached_tokens", d->cached_tokens);
		ex_out_open("costs", '[');
		for (uint32_t i = 0; i < t->n && i < t->cap; i++)
			term_line(&t->v[i]);
		ex_out_close(']');
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
		ex_out_end();
		r->queued = true;
	}
}

/* ---- refusals ---------------------------------------------------------------------------- */

static const char *message(unsigned int why)
{
	static const char *const text[KVR_E_MAX] = {
		[KVR_E_NO_ENDPOINTS] = "no worker fits the request",
		[KVR_E_ALL_OVERLOADED] = "every worker that fits is overloaded",
		[KVR_E_PINNED_NOT_ALLOWED] = "the pinned worker is not among the allowed ones",
		[KVR_E_PINNED_OVERLOADED] = "the pinned worker is overloaded",
		[KVR_E_QUEUE_REJECTED] = "a limit of the queue is reached",
		[KVR_E_NOT_ACTIVATED] = "the prefill pool is not active",
		[KVR_E_DP_RANK_REQUIRED] = "the pinned worker requires an explicit dp_rank",
		[KVR_E_WORKER_ID_REQUIRED] = "direct mode requires a worker id",
		[KVR_E_INVALID_OVERRIDE] = "a value of the override is out of range",
		[KVR_E_DUPLICATE_REQUEST] = "a request of this id is live or waiting",
		[KVR_E_EMPTY_PROMPT] = "the prompt has no tokens",
		[KVR_E_PROMPT_TOO_LONG] = "the prompt is longer than the limit",
		[KVR_E_INVALID_WEIGHT] = "a weight or priority is not a number",
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
	ex_out_str("error", kvr_code_name(why->code));
	ex_out_bool("retryable", why->retryable);
	ex_out_str("message", message(why->code));
	if (why->code == KVR_E_QUEUE_REJECTED) {
		ex_out_str("policy_class", class_name(r->decided_by, r->d.policy_class));
		ex_out_str("limit_kind", kind[why->detail[0]]);
		ex_out_u64("current", why->detail[1]);
		ex_out_u64("limit", why->detail[2]);
	}
	end(r);
}

/* ---- legs, sessions, bookings ------------------------------------------------------------ */

void ex_line_prefill(const struct ex_req *r)
{
	const struct kvr_leg *l = &r->r.leg[KVR_LEG_PREFILL];

	ex_out_line("prefill");
	ex_out_str("id", r->id);
	if (r->r.way != KVR_WAY_BYPASSED) {
		ex_out_u64("worker", l->worker);
		ex_out_u64("dp_rank", l->dp_rank);
		ex_out_u64("overlap_blocks", l->overlap_blocks);
	}
	ex_out_str("path", kvr_way_name(r->r.way));
	if (r->r.way == KVR_WAY_BOOTSTRAP)
		ex_out_u64("bootstrap_room", r->r.room);
	ex_out_end();
}

static void session_line(const char *id, size_t len, const char *event, uint64_t worker,
			 uint32_t dp_rank)
{
	ex_out_line("session");
	ex_out_strn("session_id", id, len);
	ex_out_str("event", event);
	ex_out_u64("worker", worker);
	ex_out_u64("dp_rank", dp_rank);
	ex_out_end();
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
	ex_out_line("expired");
	ex_out_str("id", r->id);
	ex_out_end();
}
