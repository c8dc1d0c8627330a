/* SPDX-License-Identifier: BSD-3-Clause */
/* Output lines: decisions with their terms, legs, rejections, sessions, states. */
#include "kvr_scenario.h"

static void add_term(struct kvr_sc_out *o, const struct kvr_sched_term *t)
{
	kvr_sc_out(o, "{ worker:U dp_rank:u cost:f", t->worker, t->dp_rank, t->cost);
	kvr_sc_out(o, "overlap_blocks:{ device:u host:u disk:u shared:u }", t->device, t->host,
		   t->disk, t->shared);
	kvr_sc_out(o, "prefill_tokens:U decode_blocks:u active_requests:u", t->prefill_tokens,
		   t->decode_blocks, t->active_requests);
	if (t->by_ttft)
		kvr_sc_out(o, "wait_tokens:f left_tokens:f decode_weight:f rho:f us_token:f",
			   t->wait_tokens, t->left_tokens, t->decode_weight, t->rho, t->us_token);
	kvr_sc_out(o, "}");
}

static const char *class_name(const struct kvr_sc_pool *pool, uint32_t k)
{
	return pool->conf.n_classes == 0  ? "default"
	       : k < pool->conf.n_classes ? pool->conf.classes[k].name
					  : pool->conf.classes[0].name;
}

static struct kvr_sc_out *out_of(const struct kvr_sc_req *r)
{
	return &r->pool->world->out;
}

static void begin_line(const struct kvr_sc_req *r, const char *result)
{
	kvr_sc_out(out_of(r), "{ op:s id:s result:s", r->queued ? "admitted" : "route", r->id,
		   result);
}

/* The policy class is written if the request names one. An unknown name selects the first class. */
static void class_field(const struct kvr_sc_req *r)
{
	if (r->msg.hints.policy.len != 0)
		kvr_sc_out(out_of(r), "policy_class:s",
			   class_name(r->pool, r->msg.hints.policy_class));
}

static void end_line(const struct kvr_sc_req *r)
{
	const uint64_t ns = r->d.waited_ns;

	if (r->queued && ns % 1000000 == 0)
		kvr_sc_out(out_of(r), "waited_ms:U }", ns / 1000000);
	else if (r->queued)
		kvr_sc_out(out_of(r), "waited_ms:f }", (double)ns / 1e6);
	else
		kvr_sc_out(out_of(r), "}");
}

static void routed_line(const struct kvr_sc_req *r, const char *result)
{
	const struct kvr_sched_decision *d = &r->d;
	const struct kvr_leg *p = &r->r.leg[KVR_LEG_PREFILL];
	const struct kvr_sched_terms *t = &r->pool->terms;

	begin_line(r, result);
	kvr_sc_out(out_of(r), "worker:U dp_rank:u", d->worker, d->dp_rank);
	class_field(r);
	if (r->r.way == KVR_WAY_BOOTSTRAP || r->r.way == KVR_WAY_SYNC)
		kvr_sc_out(out_of(r), "prefill_worker:U prefill_dp_rank:u prefill_overlap_blocks:u",
			   p->worker, p->dp_rank, p->overlap_blocks);
	if (kvr_pool_mode(r->pool->conf.mode)->needs_cache) {
		kvr_sc_out(out_of(r), "overlap_blocks:u required_blocks:u cached_tokens:U costs:[",
			   d->overlap_blocks, d->required_blocks, d->cached_tokens);
		for (uint32_t i = 0; i < t->n && i < t->cap; i++)
			add_term(out_of(r), &t->v[i]);
		kvr_sc_out(out_of(r), "]");
	}
	end_line(r);
}

void kvr_sc_line_accepted(struct kvr_sc_req *r)
{
	switch (r->r.leg[KVR_LEG_MAIN].state) {
	case KVR_RQS_FREE:
		routed_line(r, "query");
		return;
	case KVR_RQS_HELD:
	case KVR_RQS_SENT:
	case KVR_RQS_RUNNING: /* booked only: needs no worker's answer */
		if (!r->routed)
			routed_line(r, "routed");
		r->routed = true;
		return;
	case KVR_RQS_UNDECIDED:
		if (r->r.leg[KVR_LEG_PREFILL].state != KVR_RQS_QUEUED)
			return; /* the line follows at the end of the prefill leg */
				/* fall through */
	default:
		begin_line(r, "queued");
		class_field(r);
		kvr_sc_out(out_of(r), "}");
		r->queued = true;
	}
}

/* ---- rejections --------------------------------------------------------------------------- */

#define TEXT(code, counter, help) [KVR_E_##code] = help,

static const char *add_message(unsigned int why)
{
	static const char *const text[KVR_E_MAX] = {
		KVR_SCHED_ERR_LIST(TEXT)[KVR_E_NOT_ACTIVATED] = "the prefill pool is not active",
		[KVR_E_SESSION_LIMIT] = "too many sessions are bound or being opened",
		[KVR_E_SESSION_WORKER_GONE] = "the worker of the session has left",
		[KVR_E_SESSION_OPEN_FAILED] = "another request opens this session now",
	};

	return why < KVR_E_MAX && text[why] != NULL ? text[why] : kvr_code_name(why);
}

void kvr_sc_line_rejected(struct kvr_sc_req *r, const struct kvr_rq_why *why)
{
	static const char *const kind[] = {"?", "requests", "raw_isl_tokens", "cached_tokens"};

	begin_line(r, "error");
	kvr_sc_out(out_of(r), "error:s retryable:b message:s", kvr_code_name(why->code),
		   why->retryable, add_message(why->code));
	if (why->code == KVR_E_QUEUE_REJECTED)
		kvr_sc_out(out_of(r), "policy_class:s limit_kind:s current:U limit:U",
			   class_name(r->decided_by, r->d.policy_class), kind[why->detail[0]],
			   why->detail[1], why->detail[2]);
	end_line(r);
}

/* ---- legs, sessions, bookings ------------------------------------------------------------ */

void kvr_sc_line_prefill(struct kvr_sc_req *r)
{
	const struct kvr_leg *l = &r->r.leg[KVR_LEG_PREFILL];

	kvr_sc_out(out_of(r), "{ op:s id:s", "prefill", r->id);
	if (r->r.way != KVR_WAY_BYPASSED)
		kvr_sc_out(out_of(r), "worker:U dp_rank:u overlap_blocks:u", l->worker, l->dp_rank,
			   l->overlap_blocks);
	kvr_sc_out(out_of(r), "path:s", kvr_way_name(r->r.way));
	if (r->r.way == KVR_WAY_BOOTSTRAP)
		kvr_sc_out(out_of(r), "bootstrap_room:U", r->r.room);
	kvr_sc_out(out_of(r), "}");
}

static void session_line(struct kvr_sc_world *w, const char *id, uint32_t len, const char *event,
			 uint64_t worker, uint32_t dp_rank)
{
	kvr_sc_out(&w->out, "{ op:s session_id:S event:s worker:U dp_rank:u }", "session", id, len,
		   event, worker, dp_rank);
}

void kvr_sc_line_session(struct kvr_sc_world *w, const struct kvr_sc_req *r,
			 const struct kvr_rq_order *o)
{
	static const char *const how[] = {"bound", "unbound", "expired", "open_failed", "unbound"};
	const char *event = o->kind == KVR_RQO_CLOSE ? "close_sent" : how[o->how];

	if (o->kind == KVR_RQO_OPEN) {
		session_line(w, r->session.id, r->session.id_len, "open_sent",
			     r->r.leg[KVR_LEG_MAIN].worker, r->r.leg[KVR_LEG_MAIN].dp_rank);
		return;
	}
	/* A CLOSE has a line only if the session was bound, and expired or was closed. */
	if (o->kind == KVR_RQO_CLOSE && o->how != KVR_RQ_SESSION_OVER &&
	    o->how != KVR_RQ_CLOSED_BY_CLIENT)
		return;
	session_line(w, o->session.id, o->session.id_len, event, o->session.to.worker,
		     o->session.to.dp_rank);
}

void kvr_sc_line_expired(struct kvr_sc_req *r)
{
	kvr_sc_out(out_of(r), "{ op:s id:s }", "expired", r->id);
}

/* ---- states ------------------------------------------------------------------------------ */

void kvr_sc_line_state(struct kvr_sc_worker *k, enum kvr_wire_worker_state to)
{
	kvr_sc_out(&k->pool->world->out, "{ op:s worker:U from:s to:s }", "state", k->id,
		   kvr_worker_state_name(k->state), kvr_worker_state_name(to));
	k->state = to;
}

void kvr_sc_line_active(struct kvr_sc_pool *pool, bool active)
{
	kvr_sc_out(&pool->world->out, "{ op:s pool:s from:s to:s }", "state", pool->conf.name,
		   active ? "inactive" : "active", active ? "active" : "inactive");
}
