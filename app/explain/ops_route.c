/* SPDX-License-Identifier: BSD-3-Clause */
/* route, admissions, and what they write. */
#include "out.h"
#include "request.h"

#include <stdlib.h>

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
static void predict(struct ex_world *w, const struct ex_req *r, uint32_t rank)
{
	const struct kvr_pool_conf *c = &r->pool->conf;
	double ttl = c->use_kv_events ? c->predicted_ttl_s : c->ttl_s;

	if (c->mode == KVR_MODE_KV && ttl > 0)
		ex_index_predict(r->pool->index, rank, r->req.sh, r->req.n, w->now, ttl);
}

bool ex_op_route(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	struct ex_req *r = ex_req_read(w, obj, p);
	struct kvr_sched_decision d = {.result = KVR_SCHED_ERROR, .err = KVR_SCHED_DUPLICATE};
	struct kvr_sched_overlap ov;
	bool stays;

	if (r == NULL)
		return false;
	if (r->pool->n_free == 0) {
		ex_req_free(r);
		return ex_bad(p, "more than %u requests at one time", 65536);
	}
	if (!ex_req_live(w, r->id)) {
		r->slot = r->pool->free_slot[r->pool->n_free - 1];
		ex_index_score(r->pool->index, r->sh, r->req.n, w->now, &ov);
		kvr_sched_route(r->pool->sched, r->slot, &r->req, &ov, w->now, &d);
	}
	stays = d.result == KVR_SCHED_ROUTED || d.result == KVR_SCHED_QUEUED;
	if (stays)
		ex_req_enter(w, r);
	else
		ex_req_ended(w, r->id);
	ex_out_line("route");
	ex_out_str("id", r->id);
	decision_fields(r->pool, &d);
	ex_out_end();
	if (d.result == KVR_SCHED_ROUTED)
		predict(w, r, d.rank);
	if (!stays)
		ex_req_free(r);
	return true;
}

static void admitted(struct ex_world *w, struct ex_pool *pool, const struct kvr_sched_decision *d)
{
	struct ex_req *r = pool->by_slot[d->slot];

	ex_out_line("admitted");
	ex_out_str("id", r->id);
	decision_fields(pool, d);
	if (d->waited_ns % 1000000 == 0)
		ex_out_u64("waited_ms", d->waited_ns / 1000000);
	else
		ex_out_f64("waited_ms", (double)d->waited_ns / 1e6);
	ex_out_end();
	if (d->result == KVR_SCHED_ROUTED)
		predict(w, r, d->rank);
	else
		ex_req_drop(w, r);
}

void ex_poll(struct ex_world *w)
{
	struct kvr_sched_decision d;

	for (uint32_t i = 0; i < w->n_pools; i++)
		while (kvr_sched_poll(w->pool[i].sched, w->now, &d, 1) == 1)
			admitted(w, &w->pool[i], &d);
	ex_settle(w);
}
