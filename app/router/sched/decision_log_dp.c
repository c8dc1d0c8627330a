/* SPDX-License-Identifier: BSD-3-Clause */
/* Writer of the decision log: one decrement per decision, more only if the decision is kept. */
#include "sched/decision_log.h"

#include <errno.h>
#include <string.h>

#include <rte_branch_prediction.h>

#include "sched/request.h"
#include "sched/request_stats.h"
#include "state/router.h"

#define FAILED_TERMS_NS UINT64_C(1000000) /* between terms of failed decisions */

void decision_log_sample(struct decision_log *log, uint64_t every)
{
	atomic_store_explicit(&log->every, every, memory_order_relaxed);
	log->left = every != 0 ? 1 : UINT64_MAX;
}

/* ---- what is kept ---- */

/* The cheapest ranks in ascending order; the chosen one is included whatever its cost. */
static uint32_t best_terms(const struct kvr_sched_terms *t, uint32_t chosen,
			   struct kvr_sched_term out[])
{
	const uint32_t all = RTE_MIN(t->n, t->cap);
	const struct kvr_sched_term *must = NULL;
	uint32_t n = 0;

	for (uint32_t i = 0; i < all; i++) {
		const struct kvr_sched_term *x = &t->v[i];
		uint32_t at = n;

		must = x->rank == chosen ? x : must;
		if (n == DECISION_TERMS && x->cost >= out[n - 1].cost)
			continue;
		at -= n == DECISION_TERMS;
		for (; at > 0 && x->cost < out[at - 1].cost; at--)
			out[at] = out[at - 1];
		out[at] = *x;
		n += n < DECISION_TERMS;
	}
	for (uint32_t i = 0; i < n && must != NULL; i++)
		must = out[i].rank == chosen ? NULL : must;
	if (must != NULL)
		out[n - 1] = *must;
	return n;
}

/* No rank was selected: the load that every rank would carry, as far as known. */
static void failed_terms(struct pool *pool, const struct kvr_sched_req *req,
			 const struct kvr_sched_overlap *ov, uint64_t now)
{
	struct decision_log *log = pool->log;

	log->terms.n = kvr_sched_loads(pool->sched, req, ov, now, log->load, log->terms.cap);
	for (uint32_t i = 0; i < log->terms.n; i++) {
		const struct kvr_sched_load *l = &log->load[i];

		log->terms.v[i] = (struct kvr_sched_term){
			.worker = l->worker,
			.dp_rank = l->dp_rank,
			.rank = l->rank,
			.cost = (double)l->potential_prefill_tokens / pool->block_size +
				l->potential_decode_blocks,
			.device = ov != NULL && ov->device != NULL ? ov->device[l->rank] : 0,
			.prefill_tokens = l->potential_prefill_tokens,
			.decode_blocks = l->potential_decode_blocks,
			.active_requests = l->active_requests,
		};
	}
}

static uint32_t rank_flags(const struct pool *pool, uint32_t rank)
{
	struct kvr_sched_rank_info r;

	if (kvr_sched_rank_get(pool->sched, rank, &r) != 0)
		return 0;
	return (r.available ? 0 : DECISION_UNAVAILABLE) | (r.draining ? DECISION_DRAINING : 0) |
	       (r.worker_overloaded ? DECISION_OVERLOADED : 0);
}

/* Takes log->terms. */
static void keep_decision(struct pool *pool, const struct decision *head)
{
	struct decision_log *log = pool->log;
	const uint64_t n = atomic_load_explicit(&log->written, memory_order_relaxed);
	struct decision_entry *e = &log->ring[n % DECISIONS_KEPT];
	struct decision *v = &e->v;

	rte_seqcount_write_begin(&e->seq);
	*v = *head;
	v->number = n;
	v->n_eligible = log->terms.n;
	v->n_terms = best_terms(&log->terms, head->d.rank, v->term);
	for (uint32_t i = 0; i < v->n_terms; i++)
		v->flags[i] = rank_flags(pool, v->term[i].rank);
	rte_seqcount_write_end(&e->seq);
	/* Pairs with the acquire load in decision_written(). */
	atomic_store_explicit(&log->written, n + 1, memory_order_release);
	log->terms.n = 0;
}

static void keep_failed(struct lcore *lc, struct pool *pool, const struct decision *head,
			const struct kvr_sched_req *req, const struct kvr_sched_overlap *ov)
{
	struct decision_log *log = pool->log;

	log->terms.n = 0;
	if (req != NULL && lc->now_ns >= log->terms_ns) {
		log->terms_ns = lc->now_ns + FAILED_TERMS_NS;
		failed_terms(pool, req, ov, lc->now_ns);
	}
	keep_decision(pool, head);
}

/* The sampled decision is made. If it waits, the next one is sampled instead. */
static void keep_sampled(struct pool *pool, const struct decision *head)
{
	struct decision_log *log = pool->log;

	kvr_sched_explain(pool->sched, NULL);
	if (head->d.result == KVR_SCHED_QUEUED)
		return;
	log->left = atomic_load_explicit(&log->every, memory_order_relaxed);
	if (head->d.result != KVR_SCHED_ERROR)
		keep_decision(pool, head);
}

/* ---- decisions ---- */

/* Keep and count a decision unless it waits. */
static void record_decision(struct lcore *lc, struct pool *pool, const struct job *job,
			    struct request *req, bool prefill, const struct kvr_sched_decision *d)
{
	const struct decision_about who = {job->source, job->id, prefill,
					   req != NULL ? req->rq.tries : 0};

	decision_ring_put(&pool->log->all, &who, lc->now_ns, d);
	stats_decided(pool, req, prefill ? PREFILL : MAIN, job->isl, d);
}

static struct decision head_of(const struct lcore *lc, const struct kvr_sched_decision *d,
			       const struct job *job, const struct kvr_sched_req *req)
{
	const bool named = job->msg.hints.policy.len != 0;

	return (struct decision){
		.at_ns = lc->now_ns,
		.source = job->source,
		.id = job->id,
		.d = *d,
		.class_unknown = named && req->hints->policy_class == KVR_SCHED_NO_CLASS,
	};
}

enum kvr_sched_result decision_make(struct lcore *lc, struct pool *pool, const struct job *job,
				    uint32_t slot, const struct kvr_sched_req *req,
				    const struct kvr_sched_overlap *ov,
				    struct kvr_sched_decision *d)
{
	struct decision_log *log = pool->log;
	const bool sample = log->left == 1;
	enum kvr_sched_result r;

	decision_ring_fetch(&log->all, job->id);
	if (unlikely(sample))
		kvr_sched_explain(pool->sched, &log->terms);
	else
		log->left--;
	r = kvr_sched_route(pool->sched, slot, req, ov, lc->now_ns, d);
	record_decision(lc, pool, job,
			req->query_only ? NULL : request_of(kvr_flight_slot(pool->requests, slot)),
			pool->decode != NULL, d);
	if (likely(!sample && r != KVR_SCHED_ERROR))
		return r;
	const struct decision head = head_of(lc, d, job, req);
	if (sample)
		keep_sampled(pool, &head);
	if (r == KVR_SCHED_ERROR)
		keep_failed(lc, pool, &head, req, ov);
	return r;
}

static void record_waited(struct lcore *lc, struct pool *pool, const struct kvr_sched_decision *d,
			  bool sample)
{
	const struct kvr_flight *slot = kvr_flight_slot(pool->requests, d->slot);
	const struct job *job = request_of(slot)->job; /* kept while it waits */
	const bool prefill = leg_of(slot) == PREFILL;

	record_decision(lc, pool, job, request_of(slot), prefill, d);
	if (likely(!sample && d->result != KVR_SCHED_ERROR))
		return;
	const struct decision head =
		head_of(lc, d, job, prefill ? &job->pair->rq.preq : &job->msg.req);

	if (sample)
		keep_sampled(pool, &head);
	if (d->result == KVR_SCHED_ERROR)
		keep_failed(lc, pool, &head, NULL, NULL);
}

uint32_t decision_poll(struct lcore *lc, struct pool *pool, struct kvr_sched_decision d[],
		       uint32_t n)
{
	struct decision_log *log = pool->log;
	uint32_t done = 0, want, got;

	do {
		const bool sample = log->left == 1;

		want = (uint32_t)RTE_MIN(n - done, sample ? 1 : log->left - 1);
		if (sample)
			kvr_sched_explain(pool->sched, &log->terms);
		got = kvr_sched_poll(pool->sched, lc->now_ns, &d[done], want);
		if (sample && got == 0)
			kvr_sched_explain(pool->sched, NULL);
		log->left -= sample ? 0 : got;
		for (uint32_t i = done; i < done + got; i++)
			record_waited(lc, pool, &d[i], sample);
		done += got;
	} while (got == want && done < n);
	return done;
}

void decision_sample(struct lcore *lc, void *arg)
{
	const struct decision_sample *s = arg;

	RTE_SET_USED(lc);
	decision_log_sample(s->pool->log, s->every);
}

/* ---- telemetry thread ---- */

uint64_t decision_every(const struct decision_log *log)
{
	return atomic_load_explicit(&log->every, memory_order_relaxed);
}

uint64_t decision_written(const struct decision_log *log)
{
	/* Pairs with the release store in keep_decision(). */
	return atomic_load_explicit(&log->written, memory_order_acquire);
}

int decision_read(const struct decision_log *log, uint64_t number, struct decision *out)
{
	const struct decision_entry *e = &log->ring[number % DECISIONS_KEPT];
	uint32_t seq;

	if (number >= decision_written(log))
		return -ENOENT;
	do {
		seq = rte_seqcount_read_begin(&e->seq);
		*out = e->v;
	} while (rte_seqcount_read_retry(&e->seq, seq));
	return out->number == number ? 0 : -ENOENT;
}
