/* SPDX-License-Identifier: BSD-3-Clause */
/* route, admissions, sessions: the legs of a request and what they write. */
#include "out.h"
#include "request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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
	ex_out_close('}');
}

static void reject_fields(const struct ex_pool *pool, const struct kvr_sched_decision *d)
{
	static const char *const kind[] = {"requests", "raw_isl_tokens", "cached_tokens"};
	uint32_t k = d->reject.policy_class;

	ex_out_str("policy_class",
		   pool->conf.n_classes > 0 ? pool->conf.classes[k].name : "default");
	ex_out_str("limit_kind", kind[d->reject.kind]);
	ex_out_u64("current", d->reject.current);
	ex_out_u64("limit", d->reject.limit);
}

static const char *message(enum kvr_sched_err e)
{
	static const char *const text[KVR_SCHED_ERRS] = {
		[KVR_SCHED_NO_ENDPOINTS] = "no worker fits the request",
		[KVR_SCHED_ALL_OVERLOADED] = "every worker that fits is overloaded",
		[KVR_SCHED_PIN_NOT_ALLOWED] = "the pinned worker is not among the allowed ones",
		[KVR_SCHED_PIN_OVERLOADED] = "the pinned worker is overloaded",
		[KVR_SCHED_QUEUE_REJECTED] = "a limit of the queue is reached",
		[KVR_SCHED_NOT_ACTIVATED] = "the prefill pool is not active",
		[KVR_SCHED_DP_RANK_REQUIRED] = "the pinned worker requires an explicit dp_rank",
		[KVR_SCHED_WORKER_ID_REQUIRED] = "direct mode requires a worker id",
		[KVR_SCHED_INVALID_OVERRIDE] = "a value of the override is out of range",
		[KVR_SCHED_DUPLICATE] = "a request of this id is live or waiting",
		[KVR_SCHED_EMPTY_PROMPT] = "the prompt has no tokens",
		[KVR_SCHED_PROMPT_TOO_LONG] = "the prompt is longer than the limit",
		[KVR_SCHED_INVALID_WEIGHT] = "a weight or priority is not a number",
	};

	return text[e] != NULL ? text[e] : kvr_sched_err_name(e);
}

/* The fields after `id` of a route or admitted line. */
static void decision_fields(const struct ex_pool *pool, const struct kvr_sched_decision *d)
{
	static const char *const result[] = {"routed", "queued", "query", "error"};

	ex_out_str("result", result[d->result]);
	if (d->result == KVR_SCHED_ERROR) {
		ex_out_str("error", kvr_sched_err_name(d->err));
		ex_out_bool("retryable", kvr_sched_err_retryable(d->err));
		ex_out_str("message", message(d->err));
		if (d->err == KVR_SCHED_QUEUE_REJECTED)
			reject_fields(pool, d);
		return;
	}
	if (d->result == KVR_SCHED_QUEUED)
		return;
	ex_out_u64("worker", d->worker);
	ex_out_u64("dp_rank", d->dp_rank);
	if (pool->conf.mode != KVR_MODE_KV)
		return;
	ex_out_u64("overlap_blocks", d->overlap_blocks);
	ex_out_u64("required_blocks", d->required_blocks);
	ex_out_u64("cached_tokens", d->cached_tokens);
	ex_out_open("costs", '[');
	for (uint32_t i = 0; i < pool->terms.n && i < pool->terms.cap; i++)
		term_line(&pool->terms.v[i]);
	ex_out_close(']');
}

/* Approximate mode and predict-on-route: the chosen rank will hold the prompt. */
static void predict(struct ex_world *w, const struct ex_req *r, const struct ex_pool *pool,
		    uint32_t rank)
{
	const struct kvr_pool_conf *c = &pool->conf;
	double ttl = c->use_kv_events ? c->predicted_ttl_s : c->ttl_s;

	if (c->mode == KVR_MODE_KV && ttl > 0)
		ex_index_predict(pool->index, rank, r->main.req.sh, r->main.req.n, w->now, ttl);
}

/* ---- main leg ---------------------------------------------------------------------------- */

static void line_of(const char *op, const struct ex_req *r, const struct ex_pool *pool,
		    const struct kvr_sched_decision *d)
{
	ex_out_line(op);
	ex_out_str("id", r->id);
	decision_fields(pool, d);
	if (strcmp(op, "admitted") == 0) {
		if (d->waited_ns % 1000000 == 0)
			ex_out_u64("waited_ms", d->waited_ns / 1000000);
		else
			ex_out_f64("waited_ms", (double)d->waited_ns / 1e6);
	}
	ex_out_end();
}

static void decide(struct ex_world *w, struct ex_req *r, struct ex_pool *pool, struct ex_leg *leg,
		   struct kvr_sched_decision *d)
{
	struct kvr_sched_overlap ov;

	if (!ex_leg_take(pool, r, leg)) {
		*d = (struct kvr_sched_decision){.result = KVR_SCHED_ERROR,
						 .err = KVR_SCHED_BAD_SLOT};
		return;
	}
	do {
		ex_index_score(pool->index, leg->req.sh, leg->req.n, w->now, &ov);
		kvr_sched_route(pool->sched, leg->slot, &leg->req, &ov, w->now, d);
	} while (d->result == KVR_SCHED_ERROR && ex_session_unpin(w, r, pool, leg, d->err));
	if (d->result != KVR_SCHED_ROUTED && d->result != KVR_SCHED_QUEUED)
		ex_leg_release(w, pool, leg);
}

/* Decide the main leg and write its line; the request may be over (and freed) afterwards. */
static void main_leg(struct ex_world *w, struct ex_req *r, const char *op)
{
	struct kvr_sched_decision d;

	decide(w, r, r->pool, &r->main, &d);
	line_of(op, r, r->pool, &d);
	if (d.result != KVR_SCHED_ROUTED && d.result != KVR_SCHED_QUEUED) {
		ex_req_end(w, r, false);
		return;
	}
	if (!r->entered)
		ex_req_enter(w, r);
	if (d.result == KVR_SCHED_ROUTED) {
		predict(w, r, r->pool, d.rank);
		ex_session_routed(w, r, r->pool, &r->main, &d);
	}
}

/* ---- prefill leg ------------------------------------------------------------------------- */

/* The taint a decode worker should share with the prefill worker. */
static bool transfer_of(const struct ex_worker *k, struct ex_req *r, struct kvr_disagg_transfer *t)
{
	const json_t *policy = ex_get(k->line, "kv_transfer");
	const char *domain = ex_str_or(policy, "domain", NULL);
	const char *value =
		domain != NULL ? ex_str_or(ex_get(k->line, "topology"), domain, NULL) : NULL;

	*t = (struct kvr_disagg_transfer){.weight = 1};
	t->required = strcmp(ex_str_or(policy, "enforcement", "preferred"), "required") == 0;
	if (ex_get(policy, "weight") != NULL)
		t->weight = ex_real(ex_get(policy, "weight"));
	if (domain == NULL)
		return true;
	if (value == NULL)
		return !t->required; /* nowhere to transfer from: fail closed */
	if (asprintf(&r->transfer, "dynamo.topology/%s=%s", domain, value) < 0)
		abort();
	t->taint = (struct kvr_sched_str){r->transfer, (uint32_t)strlen(r->transfer)};
	return true;
}

/* What the decode leg asks for once the prefill worker is known; false = fail closed. */
static bool decode_request(struct ex_world *w, struct ex_req *r, uint64_t prefill_worker)
{
	const struct ex_worker *k = ex_worker_find(w, prefill_worker);
	struct kvr_sched_override over;
	struct kvr_sched_hints hints = r->main.hints;
	struct kvr_disagg_transfer t;

	kvr_disagg_decode_override(r->main.req.override, &over);
	r->main.override = over;
	r->main.req.override = &r->main.override;
	r->main.req.phase = KVR_SPHASE_DECODE;
	if (k == NULL || !transfer_of(k, r, &t))
		return false;
	kvr_disagg_merge(&hints, &t, r->required, r->preferred, &r->main.hints);
	return true;
}

static void prefill_line(struct ex_world *w, const struct ex_req *r,
			 const struct kvr_sched_decision *d, bool bootstrap)
{
	const struct ex_worker *k = ex_worker_find(w, d->worker);

	ex_out_line("prefill");
	ex_out_str("id", r->id);
	ex_out_u64("worker", d->worker);
	ex_out_u64("dp_rank", d->dp_rank);
	ex_out_str("path", bootstrap ? "bootstrap" : "sync");
	if (bootstrap) {
		uint32_t size = (uint32_t)ex_u64_or(k->line, "dp_size", 1);

		ex_out_u64("bootstrap_room", kvr_disagg_room(&w->rand, d->dp_rank % size, size));
	}
	ex_out_end();
}

static void refuse_line(struct ex_world *w, struct ex_req *r, enum kvr_sched_err e, const char *op)
{
	const struct kvr_sched_decision d = {.result = KVR_SCHED_ERROR, .err = e};

	line_of(op, r, r->pool, &d);
	ex_req_end(w, r, false);
}

/* The prefill leg has its worker: with an address go on to decode at once. */
static void prefill_chosen(struct ex_world *w, struct ex_req *r, const struct kvr_sched_decision *d,
			   const char *op)
{
	const struct ex_worker *k = ex_worker_find(w, d->worker);
	bool bootstrap = k != NULL && ex_get(k->line, "bootstrap") != NULL;
	bool query = d->result == KVR_SCHED_QUERY;

	prefill_line(w, r, d, bootstrap);
	if (!query) {
		predict(w, r, r->pool->peer, d->rank);
		ex_session_routed(w, r, r->pool->peer, &r->prefill, d);
		if (!r->entered)
			ex_req_enter(w, r);
	}
	if (!decode_request(w, r, d->worker)) {
		refuse_line(w, r, KVR_SCHED_NO_ENDPOINTS, op);
		return;
	}
	r->stage = bootstrap || query ? EX_BOTH : EX_PREFILL_RUNS;
	if (r->stage == EX_BOTH)
		main_leg(w, r, op);
}

void ex_prefill_over(struct ex_world *w, struct ex_req *r)
{
	bool decode = r->stage == EX_PREFILL_RUNS;

	ex_leg_end(w, r->pool->peer, &r->prefill, false);
	r->stage = EX_BOTH;
	if (decode)
		main_leg(w, r, "route");
}

static void prefill_request(const struct ex_world *w, struct ex_req *r)
{
	struct kvr_sched_hints *h = &r->prefill.hints;
	bool any = false;

	kvr_disagg_prefill_hints(&r->main.hints, h);
	/* Allowed ids that name decode workers only say nothing about prefill. */
	for (uint32_t i = 0; i < h->n_allowed; i++) {
		const struct ex_worker *k = ex_worker_find(w, h->allowed[i]);

		any = any || (k != NULL && k->pool == r->pool->peer);
	}
	if (!any && h->n_allowed > 0)
		h->flags &= ~KVR_SHINT_ALLOWED;
	if (h->policy_class != KVR_SCHED_NO_CLASS) {
		const char *name = ex_str_or(ex_get(r->line, "routing"), "policy_class", "");

		h->policy_class = kvr_sched_class_find(r->pool->peer->sched, name, strlen(name));
	}
	r->prefill.req = r->main.req;
	r->prefill.req.hints = h;
	r->prefill.req.phase = KVR_SPHASE_PREFILL;
}

static void bypassed(struct ex_world *w, struct ex_req *r)
{
	ex_out_line("prefill");
	ex_out_str("id", r->id);
	ex_out_str("path", "bypassed");
	ex_out_end();
	main_leg(w, r, "route");
}

/* Conditional disaggregation: is the decode pool alone better? */
static bool better_alone(struct ex_world *w, struct ex_req *r)
{
	struct kvr_sched_overlap pov, dov;
	const struct kvr_disagg_side prefill = {r->pool->peer->sched, &r->prefill.req, &pov};
	const struct kvr_disagg_side decode = {r->pool->sched, &r->main.req, &dov};

	if (r->pool->conf.disagg_policy == KVR_DISAGG_ALWAYS)
		return false;
	ex_index_score(r->pool->peer->index, r->main.req.sh, r->main.req.n, w->now, &pov);
	ex_index_score(r->pool->index, r->main.req.sh, r->main.req.n, w->now, &dov);
	return kvr_disagg_bypass(&r->pool->conf, &prefill, &decode, w->now);
}

static void disaggregated(struct ex_world *w, struct ex_req *r)
{
	struct ex_pool *pool = r->pool->peer;
	struct kvr_sched_decision d;

	if (!kvr_disagg_active(&pool->disagg)) {
		if (r->pool->conf.enforce_disagg) {
			refuse_line(w, r, KVR_SCHED_NOT_ACTIVATED, "route");
			return;
		}
		bypassed(w, r);
		return;
	}
	prefill_request(w, r);
	if (better_alone(w, r)) {
		bypassed(w, r);
		return;
	}
	ex_session_enter_prefill(w, r);
	decide(w, r, pool, &r->prefill, &d);
	if (d.result == KVR_SCHED_ERROR) {
		line_of("route", r, pool, &d);
		ex_req_end(w, r, false);
	} else if (d.result == KVR_SCHED_QUEUED) {
		r->stage = EX_PREFILL_WAITS;
		line_of("route", r, pool, &d);
		ex_req_enter(w, r);
	} else {
		prefill_chosen(w, r, &d, "route");
	}
}

/* ---- sessions without room, or without worker --------------------------------------------- */

static void refused_line(struct ex_world *w, struct ex_req *r, enum ex_session_entry why)
{
	const bool full = why == EX_SESSION_FULL;

	ex_out_line("route");
	ex_out_str("id", r->id);
	ex_out_str("result", "error");
	ex_out_str("error", full ? "SessionLimit" : "SessionWorkerGone");
	ex_out_bool("retryable", full);
	ex_out_str("message", full ? "too many sessions are bound or being opened"
				   : "the worker of the session has left");
	ex_out_end();
	ex_req_end(w, r, false);
}

/* ---- the operation ----------------------------------------------------------------------- */

bool ex_op_route(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	struct ex_req *r = ex_req_read(w, obj, p);
	enum ex_session_entry entry;

	if (r == NULL)
		return false;
	if (ex_req_live(w, r->id)) {
		const struct kvr_sched_decision d = {.result = KVR_SCHED_ERROR,
						     .err = KVR_SCHED_DUPLICATE};

		line_of("route", r, r->pool, &d);
		ex_req_free(r);
		return true;
	}
	if (!ex_session_known(w, r, p)) {
		ex_req_free(r);
		return false;
	}
	entry = ex_session_enter(w, r);
	if (entry != EX_SESSION_FINE) {
		refused_line(w, r, entry);
		return true;
	}
	if (r->pool->peer != NULL && r->pool->conf.role == KVR_POOL_DECODE)
		disaggregated(w, r);
	else
		main_leg(w, r, "route");
	return true;
}

void ex_leg_dropped(struct ex_world *w, struct ex_pool *pool, uint32_t slot)
{
	struct ex_req *r = pool->by_slot[slot];
	struct ex_leg *leg = pool == r->pool ? &r->main : &r->prefill;

	leg->failed = true;
	ex_leg_release(w, pool, leg);
	if (!r->main.on)
		ex_req_end(w, r, false);
}

static void admitted(struct ex_world *w, struct ex_pool *pool, const struct kvr_sched_decision *d)
{
	struct ex_req *r = pool->by_slot[d->slot];
	bool main = pool == r->pool;

	if (d->result != KVR_SCHED_ROUTED) {
		ex_leg_release(w, pool, main ? &r->main : &r->prefill);
		line_of("admitted", r, pool, d);
		ex_req_end(w, r, false);
		return;
	}
	if (!main) {
		prefill_chosen(w, r, d, "admitted");
		return;
	}
	line_of("admitted", r, pool, d);
	predict(w, r, pool, d->rank);
	ex_session_routed(w, r, pool, &r->main, d);
}

void ex_poll(struct ex_world *w)
{
	struct kvr_sched_decision d;

	for (uint32_t i = 0; i < w->n_pools; i++)
		while (kvr_sched_poll(w->pool[i].sched, w->now, &d, 1) == 1)
			admitted(w, &w->pool[i], &d);
	ex_settle(w);
}
