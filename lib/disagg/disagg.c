/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_disagg.h"

#include <math.h>
#include <string.h>

static uint32_t state(const struct kvr_disagg *d)
{
	/* Pairs with nothing: who only asks may be told what was a moment ago. */
	return atomic_load_explicit(&d->state, memory_order_relaxed);
}

static bool active(uint32_t s)
{
	return s == KVR_DISAGG_ACTIVATED;
}

/* One writer. @return whether the side became (in)active. */
static bool change(struct kvr_disagg *d, uint32_t to)
{
	const uint32_t from = state(d);

	atomic_store_explicit(&d->state, to, memory_order_relaxed);
	return active(from) != active(to);
}

bool kvr_disagg_workers(struct kvr_disagg *d, uint32_t n_able)
{
	const uint32_t s = state(d) & ~KVR_DISAGG_DEACTIVATED;

	if (n_able > 0)
		return change(d, s | KVR_DISAGG_ACTIVATED);
	return change(d, (s & KVR_DISAGG_ACTIVATED) != 0 ? s | KVR_DISAGG_DEACTIVATED : s);
}

bool kvr_disagg_hold(struct kvr_disagg *d, bool hold)
{
	const uint32_t s = state(d) & ~KVR_DISAGG_HELD;

	return change(d, hold ? s | KVR_DISAGG_HELD : s);
}

bool kvr_disagg_active(const struct kvr_disagg *d)
{
	return active(state(d));
}

/* Where the request would go; false when nobody takes it. */
static bool ask(const struct kvr_disagg_side *side, uint64_t now, struct kvr_sched_decision *d,
		struct kvr_sched_rank_info *rank)
{
	struct kvr_sched_req req = *side->req;

	req.query_only = true;
	return kvr_sched_route(side->sched, 0, &req, side->overlap, now, d) == KVR_SCHED_QUERY &&
	       kvr_sched_rank_get(side->sched, d->rank, rank) == 0;
}

static bool little_left(const struct kvr_pool_conf *c, uint32_t isl, uint64_t cached)
{
	const uint64_t left = cached < isl ? isl - cached : 0;

	return left < c->disagg_isl_threshold && (double)left < c->disagg_isl_ratio * isl;
}

static bool prefill_busy(const struct kvr_pool_conf *c, const struct kvr_disagg_side *prefill,
			 uint64_t now)
{
	struct kvr_sched_decision d;
	struct kvr_sched_rank_info rank;
	uint64_t batch;

	if (!ask(prefill, now, &d, &rank))
		return false;
	batch = rank.max_num_batched_tokens != 0 ? rank.max_num_batched_tokens : 10000000;
	return (double)rank.active_prefill_tokens > c->disagg_prefill_busy * (double)batch;
}

bool kvr_disagg_bypass(const struct kvr_pool_conf *conf, const struct kvr_disagg_side *prefill,
		       const struct kvr_disagg_side *decode, uint64_t now)
{
	const struct kvr_sched_hints *h = prefill->req->hints;
	struct kvr_sched_decision d;
	struct kvr_sched_rank_info rank;
	bool isl, load;

	if (conf->disagg_policy == KVR_DISAGG_ALWAYS ||
	    (h != NULL && (h->flags & KVR_SHINT_PREFILL_ID) != 0) || !ask(decode, now, &d, &rank))
		return false;
	if (!isnan(conf->disagg_decode_busy) && rank.total_kv_blocks != 0 &&
	    d.potential_decode_blocks > conf->disagg_decode_busy * (double)rank.total_kv_blocks)
		return false;
	isl = conf->disagg_policy != KVR_DISAGG_PREFILL_LOAD &&
	      little_left(conf, decode->req->isl, d.cached_tokens);
	load = conf->disagg_policy != KVR_DISAGG_ISL_BOUNDING && !isl &&
	       prefill_busy(conf, prefill, now);
	return isl || load;
}

uint64_t kvr_disagg_room(struct kvr_rand *r, uint32_t rank_place, uint32_t dp_size)
{
	const uint64_t most = (UINT64_C(1) << 63) - 1;
	uint64_t x = kvr_rand_u64(r) & most;

	return x % ((most - rank_place) / dp_size + 1) * dp_size + rank_place;
}

void kvr_disagg_prefill_hints(const struct kvr_sched_hints *in, struct kvr_sched_hints *out)
{
	*out = *in;
	out->flags &= ~(KVR_SHINT_BACKEND_ID | KVR_SHINT_DECODE_ID | KVR_SHINT_EXPECTED_OUTPUT);
}

void kvr_disagg_decode_override(const struct kvr_sched_override *in, struct kvr_sched_override *out)
{
	*out = in != NULL ? *in : (struct kvr_sched_override){0};
	out->flags |= KVR_SOVER_CREDIT | KVR_SOVER_KV_REUSE | KVR_SOVER_TRACK_PREFILL;
	out->overlap_score_credit = 0;
	out->assume_kv_reuse = false;
	out->track_prefill_tokens = false;
}

static bool same(const struct kvr_sched_str *a, const struct kvr_sched_str *b)
{
	return a->len == b->len && memcmp(a->ptr, b->ptr, a->len) == 0;
}

void kvr_disagg_merge(const struct kvr_sched_hints *in, const struct kvr_disagg_transfer *t,
		      struct kvr_sched_str required[], struct kvr_sched_preferred preferred[],
		      struct kvr_sched_hints *out)
{
	uint32_t i;

	*out = *in;
	if (t->taint.len == 0)
		return;
	if (t->required) {
		for (i = 0; i < in->n_required; i++) {
			required[i] = in->required[i];
			if (same(&required[i], &t->taint))
				return;
		}
		required[i] = t->taint;
		out->required = required;
		out->n_required = i + 1;
		return;
	}
	for (i = 0; i < in->n_preferred; i++)
		preferred[i] = in->preferred[i];
	for (i = 0; i < in->n_preferred && !same(&preferred[i].taint, &t->taint); i++)
		;
	preferred[i] = (struct kvr_sched_preferred){t->taint, t->weight};
	out->preferred = preferred;
	out->n_preferred = i == in->n_preferred ? i + 1 : in->n_preferred;
}
