/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Rules of disaggregated serving. Functions that depend on the pools query their schedulers with
 * query_only set, so that nothing is booked.
 */

#include "kvr_disagg.h"

#include <math.h>
#include <string.h>

static uint32_t load_state(const struct kvr_disagg *disagg)
{
	/* Pairs with nothing: a reader may see the previous state. */
	return atomic_load_explicit(&disagg->state, memory_order_relaxed);
}

static bool is_active(uint32_t s)
{
	return s == KVR_DISAGG_ACTIVATED;
}

/* One writer. @return true if the side became active or inactive. */
static bool set_state(struct kvr_disagg *disagg, uint32_t to)
{
	const uint32_t from = load_state(disagg);

	atomic_store_explicit(&disagg->state, to, memory_order_relaxed);
	return is_active(from) != is_active(to);
}

bool kvr_disagg_workers(struct kvr_disagg *disagg, uint32_t n_able)
{
	const uint32_t s = load_state(disagg) & ~KVR_DISAGG_DEACTIVATED;

	if (n_able > 0)
		return set_state(disagg, s | KVR_DISAGG_ACTIVATED);
	return set_state(disagg, (s & KVR_DISAGG_ACTIVATED) != 0 ? s | KVR_DISAGG_DEACTIVATED : s);
}

bool kvr_disagg_hold(struct kvr_disagg *disagg, bool hold)
{
	const uint32_t s = load_state(disagg) & ~KVR_DISAGG_HELD;

	return set_state(disagg, hold ? s | KVR_DISAGG_HELD : s);
}

bool kvr_disagg_active(const struct kvr_disagg *disagg)
{
	return is_active(load_state(disagg));
}

/* Decide without booking where the request would go. @return false if no worker can take it. */
static bool query_pool(const struct kvr_disagg_side *side, uint64_t now,
		       struct kvr_sched_decision *decision, struct kvr_sched_rank_info *rank)
{
	struct kvr_sched_req req = *side->req;

	req.query_only = true;
	return kvr_sched_route(side->sched, 0, &req, side->overlap, now, decision) ==
		       KVR_SCHED_QUERY &&
	       kvr_sched_rank_get(side->sched, decision->rank, rank) == 0;
}

static bool is_mostly_cached(const struct kvr_pool_conf *conf, uint32_t isl, uint64_t cached)
{
	const uint64_t left = cached < isl ? isl - cached : 0;

	return left < conf->disagg_isl_threshold && (double)left < conf->disagg_isl_ratio * isl;
}

static bool is_prefill_busy(const struct kvr_pool_conf *conf, const struct kvr_disagg_side *prefill,
			    uint64_t now)
{
	struct kvr_sched_decision decision;
	struct kvr_sched_rank_info rank;
	uint64_t batch;

	if (!query_pool(prefill, now, &decision, &rank))
		return false;
	batch = rank.max_num_batched_tokens != 0 ? rank.max_num_batched_tokens : 10000000;
	return (double)rank.active_prefill_tokens > conf->disagg_prefill_busy * (double)batch;
}

bool kvr_disagg_bypass(const struct kvr_pool_conf *conf, const struct kvr_disagg_side *prefill,
		       const struct kvr_disagg_side *decode, uint64_t now)
{
	const struct kvr_hints *hints = prefill->req->hints;
	struct kvr_sched_decision decision;
	struct kvr_sched_rank_info rank;
	bool isl, load;

	if (conf->disagg_policy == KVR_DISAGG_ALWAYS ||
	    (hints != NULL && (hints->present & KVR_HAS(KVR_HINT_PREFILL_WORKER)) != 0) ||
	    !query_pool(decode, now, &decision, &rank))
		return false;
	if (!isnan(conf->disagg_decode_busy) && rank.total_kv_blocks != 0 &&
	    decision.potential_decode_blocks >
		    conf->disagg_decode_busy * (double)rank.total_kv_blocks)
		return false;
	isl = conf->disagg_policy != KVR_DISAGG_PREFILL_LOAD &&
	      is_mostly_cached(conf, decode->req->isl, decision.cached_tokens);
	load = conf->disagg_policy != KVR_DISAGG_ISL_BOUNDING && !isl &&
	       is_prefill_busy(conf, prefill, now);
	return isl || load;
}

uint64_t kvr_disagg_room(struct kvr_rand *r, uint32_t rank_place, uint32_t dp_size)
{
	const uint64_t most = (UINT64_C(1) << 63) - 1;
	uint64_t x = kvr_rand_u64(r) & most;

	return x % ((most - rank_place) / dp_size + 1) * dp_size + rank_place;
}

void kvr_disagg_prefill_hints(const struct kvr_hints *in, struct kvr_hints *out)
{
	*out = *in;
	out->present &= ~(KVR_HAS(KVR_HINT_BACKEND) | KVR_HAS(KVR_HINT_DECODE_WORKER) |
			  KVR_HAS_EXPECTED_OUTPUT);
}

void kvr_disagg_decode_override(struct kvr_hints *hints)
{
	struct kvr_hint_overrides *o = &hints->overrides;

	o->given |= 1u << KVR_OVERRIDE_OVERLAP_SCORE_CREDIT | 1u << KVR_OVERRIDE_ASSUME_KV_REUSE |
		    1u << KVR_OVERRIDE_TRACK_PREFILL_TOKENS;
	o->value[KVR_OVERRIDE_OVERLAP_SCORE_CREDIT] = 0;
	o->value[KVR_OVERRIDE_ASSUME_KV_REUSE] = 0;
	o->value[KVR_OVERRIDE_TRACK_PREFILL_TOKENS] = 0;
}

static bool equals_str(const struct kvr_str *a, const struct kvr_str *b)
{
	return a->len == b->len && memcmp(a->p, b->p, a->len) == 0;
}

void kvr_disagg_merge(const struct kvr_hints *in, const struct kvr_disagg_transfer *transfer,
		      struct kvr_str required[], struct kvr_hint_preferred preferred[],
		      struct kvr_hints *out)
{
	uint32_t i;

	*out = *in;
	if (transfer->taint.len == 0)
		return;
	if (transfer->required) {
		for (i = 0; i < in->n_required; i++) {
			required[i] = in->required[i];
			if (equals_str(&required[i], &transfer->taint))
				return;
		}
		required[i] = transfer->taint;
		out->required = required;
		out->n_required = i + 1;
		return;
	}
	for (i = 0; i < in->n_preferred; i++)
		preferred[i] = in->preferred[i];
	for (i = 0; i < in->n_preferred && !equals_str(&preferred[i].taint, &transfer->taint); i++)
		;
	preferred[i] = (struct kvr_hint_preferred){transfer->taint, transfer->weight};
	out->preferred = preferred;
	out->n_preferred = i == in->n_preferred ? i + 1 : in->n_preferred;
}
