/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of a request, its parameters, its pin, and its eligible ranks (5.5, 5.6, 8.1). */
#include "sched_pvt.h"

static bool overrides_valid(const struct kvr_hints *h)
{
	if (h == NULL || h->overrides.given == 0)
		return true;
	for (uint32_t i = 0; i < KVR_OVERRIDES_END; i++)
		if ((h->overrides.given >> i & 1) != 0 &&
		    !kvr_override_ok(i, h->overrides.value[i]))
			return false;
	return true;
}

static bool hints_valid(const struct kvr_hints *h)
{
	if (h == NULL)
		return true;
	if (!isfinite(h->priority_jump))
		return false;
	for (uint32_t i = 0; i < h->n_preferred; i++)
		if (!isfinite(h->preferred[i].weight))
			return false;
	return true;
}

enum kvr_code kvr_sched_check(const struct kvr_sched *s, const struct kvr_sched_req *req)
{
	uint64_t most = (uint64_t)s->conf.max_prompt_blocks * s->conf.block_size;

	if (req->isl == 0)
		return KVR_E_EMPTY_PROMPT;
	if (req->isl > most || req->n > s->conf.max_prompt_blocks)
		return KVR_E_PROMPT_TOO_LONG;
	if (!overrides_valid(req->hints))
		return KVR_E_INVALID_OVERRIDE;
	if (!hints_valid(req->hints))
		return KVR_E_INVALID_WEIGHT;
	if (req->hints != NULL && req->hints->policy_class != KVR_SCHED_NO_CLASS &&
	    req->hints->policy_class >= s->n_cls)
		return KVR_E_UNKNOWN_POLICY_CLASS;
	return KVR_OK;
}

void kvr_sched__params(const struct kvr_sched *s, const struct kvr_sched_req *req, struct params *p)
{
	const struct kvr_hints *h = req->hints;
	double weight;

	p->credit = s->conf.overlap_score_credit;
	p->scale = s->conf.prefill_load_scale;
	p->shared = s->conf.shared_cache_multiplier;
	p->temperature = s->conf.temperature;
	p->reuse = s->conf.assume_kv_reuse;
	p->track_prefill = s->conf.track_prefill_tokens;
	if (h == NULL || h->overrides.given == 0)
		return;
	/* The deprecated alias, see kvr_pool_conf_set(). */
	weight = kvr_override(h, KVR_OVERRIDE_OVERLAP_SCORE_WEIGHT, p->scale);
	p->scale = weight;
	if (weight == 0 && (h->overrides.given >> KVR_OVERRIDE_OVERLAP_SCORE_WEIGHT & 1) != 0)
		p->credit = 0;
	p->credit = kvr_override(h, KVR_OVERRIDE_OVERLAP_SCORE_CREDIT, p->credit);
	p->scale = kvr_override(h, KVR_OVERRIDE_PREFILL_LOAD_SCALE, p->scale);
	p->shared = kvr_override(h, KVR_OVERRIDE_SHARED_CACHE_MULTIPLIER, p->shared);
	p->temperature = kvr_override(h, KVR_OVERRIDE_ROUTER_TEMPERATURE, p->temperature);
	p->reuse = kvr_override(h, KVR_OVERRIDE_ASSUME_KV_REUSE, p->reuse) != 0;
	p->track_prefill =
		kvr_override(h, KVR_OVERRIDE_TRACK_PREFILL_TOKENS, p->track_prefill) != 0;
}

/* ---- pins -------------------------------------------------------------------------------- */

struct pin {
	bool given, has_dp;
	uint64_t worker;
	uint32_t dp;
};

static struct pin pin_of(const struct kvr_sched_req *req)
{
	const struct kvr_hints *h = req->hints;
	uint64_t own;
	struct pin p = {0};

	if (h == NULL)
		return p;
	own = req->phase == KVR_ROLE_PREFILL ? KVR_HAS(KVR_HINT_PREFILL_WORKER)
					     : KVR_HAS(KVR_HINT_DECODE_WORKER);
	p.given = (h->present & (own | KVR_HAS(KVR_HINT_BACKEND))) != 0;
	if (!(h->present & own))
		p.worker = h->backend_worker;
	else
		p.worker = own == KVR_HAS(KVR_HINT_PREFILL_WORKER) ? h->prefill_worker
								   : h->decode_worker;
	p.has_dp = (h->present & KVR_HAS(KVR_HINT_DP_RANK)) != 0;
	p.dp = h->dp_rank;
	if (req->phase == KVR_ROLE_PREFILL && (h->present & KVR_HAS(KVR_HINT_PREFILL_DP_RANK))) {
		p.has_dp = true;
		p.dp = h->prefill_dp_rank;
	}
	return p;
}

/* In modes without cache knowledge a pin needs no rank: use the least busy rank of the worker. */
static uint32_t idle_rank(const struct kvr_sched *s, const struct worker *w)
{
	uint32_t best = s->order[w->at];

	for (uint32_t i = 1; i < w->dp_size; i++)
		if (s->requests[s->order[w->at + i]] < s->requests[best])
			best = s->order[w->at + i];
	return s->rank[best].dp_rank;
}

enum kvr_code kvr_sched__resolve(struct kvr_sched *s, struct choice *c)
{
	struct pin p = pin_of(c->req);
	uint32_t at;

	c->pinned = p.given;
	if (!p.given)
		return s->mode->needs_pin ? KVR_E_WORKER_ID_REQUIRED : KVR_OK;
	c->pin_worker = p.worker;
	c->pin_dp = p.dp;
	if (!kvr_hints_allows(c->req->hints, p.worker))
		return KVR_E_PINNED_NOT_ALLOWED;
	if (p.has_dp)
		return KVR_OK;
	at = kvr_sched__worker(s, p.worker);
	if (at != NIL && s->worker[at].dp_size == 1)
		c->pin_dp = s->worker[at].dp_start;
	else if (s->mode->needs_cache)
		return KVR_E_DP_RANK_REQUIRED;
	else if (at != NIL)
		c->pin_dp = idle_rank(s, &s->worker[at]);
	return KVR_OK;
}

static const uint64_t *taint_ranks(const struct kvr_sched *s, const struct kvr_str *name)
{
	uint32_t t = kvr_sched__taint(s, name);

	return t == NIL ? NULL : s->taint_set + (size_t)t * (s->max_ranks / 64);
}

/* Every failure except overload is NoEndpoints. */
enum kvr_code kvr_sched__pin_check(const struct kvr_sched *s, struct choice *c)
{
	const struct kvr_hints *h = c->req->hints;
	uint32_t rank = kvr_sched_rank_find(s, c->pin_worker, c->pin_dp);

	if (h != NULL && !kvr_hints_allows(h, c->pin_worker))
		return KVR_E_PINNED_NOT_ALLOWED;
	if (rank == KVR_SCHED_NO_RANK || !test_bit(s->open, rank))
		return KVR_E_NO_ENDPOINTS;
	for (uint32_t i = 0; h != NULL && i < h->n_required; i++) {
		const uint64_t *set = taint_ranks(s, &h->required[i]);

		if (set == NULL || !test_bit(set, rank))
			return KVR_E_NO_ENDPOINTS;
	}
	c->pin_rank = rank;
	return test_bit(s->over, rank) && !c->req->probe ? KVR_E_PINNED_OVERLOADED : KVR_OK;
}

/* ---- ranks of an unpinned request -------------------------------------------------------- */

/* All ranks of a worker. */
static void put_worker(const struct kvr_sched *s, uint64_t worker, bool on, uint64_t *set)
{
	uint32_t at = kvr_sched__worker(s, worker);

	for (uint32_t k = 0; at != NIL && k < s->worker[at].dp_size; k++)
		bit_put(set, s->order[s->worker[at].at + k], on);
}

static void allow_only(const struct kvr_sched *s, const struct kvr_hints *h, uint64_t *set)
{
	memset(set, 0, s->words * sizeof(*set));
	for (uint32_t i = 0; i < h->n_allowed; i++)
		put_worker(s, kvr_hints_allowed(h, i), true, set);
}

/* Return the ranks of @p base that the hints allow: @p base itself, or scratch. */
static const uint64_t *find_fitting(struct kvr_sched *s, const struct kvr_hints *h,
				    const uint64_t *base)
{
	uint64_t *set = s->fit;

	if (h == NULL || (!(h->present & (KVR_HAS(KVR_HINT_ALLOWED_WORKERS) | KVR_HAS_EXCLUDE)) &&
			  h->n_required == 0))
		return base;
	if (h->present & KVR_HAS(KVR_HINT_ALLOWED_WORKERS))
		allow_only(s, h, set);
	else
		memset(set, 0xFF, s->words * sizeof(*set));
	if (h->present & KVR_HAS_EXCLUDE)
		put_worker(s, h->exclude_worker, false, set);
	for (uint32_t w = 0; w < s->words; w++)
		set[w] &= base[w];
	for (uint32_t i = 0; i < h->n_required; i++) {
		const uint64_t *tainted = taint_ranks(s, &h->required[i]);

		for (uint32_t w = 0; w < s->words; w++)
			set[w] &= tainted == NULL ? 0 : tainted[w];
	}
	return set;
}

/* Return @p base without @p worse, in scratch; @p base itself if no rank with capacity is left. */
static const uint64_t *prefer_ranks(const struct kvr_sched *s, const uint64_t *base,
				    const uint64_t *worse)
{
	uint64_t any = 0;

	for (uint32_t w = 0; w < s->words; w++)
		any |= base[w] & ~worse[w] & ~s->over[w];
	if (any == 0)
		return base;
	for (uint32_t w = 0; w < s->words; w++)
		s->fit[w] = base[w] & ~worse[w];
	return s->fit;
}

/* Return the ranks at which the request failed, in a scratch set that choices write later. */
static const uint64_t *failed_at(const struct kvr_sched *s, const struct kvr_hints *h)
{
	memset(s->elig, 0, s->words * sizeof(*s->elig));
	for (uint32_t i = 0; i < h->n_failed_at; i++) {
		const struct kvr_wire_rank *p = &h->failed_at[i];
		const uint32_t rank = kvr_sched_rank_find(s, p->worker, p->dp_rank);

		if (p->dp_rank == UINT32_MAX)
			put_worker(s, p->worker, true, s->elig);
		else if (rank != KVR_SCHED_NO_RANK)
			bit_put(s->elig, rank, true);
	}
	return s->elig;
}

/* Find the eligible ranks, ignoring overload: in use, available, allowed, with every required
 * taint. Prefer those that are likely to serve the request. */
void kvr_sched__open_set(struct kvr_sched *s, struct choice *c)
{
	const struct kvr_hints *h = c->req->hints;

	c->open = find_fitting(s, h, s->open);
	if (h != NULL && h->n_failed_at != 0)
		c->open = prefer_ranks(s, c->open, failed_at(s, h));
	if (s->n_failing != 0)
		c->open = prefer_ranks(s, c->open, s->failing);
	if (s->n_silent != 0)
		c->open = prefer_ranks(s, c->open, s->silent);
}

/* Return true if a worker with a new incarnation may become eligible. Its taints may change. */
bool kvr_sched__due(struct kvr_sched *s, const struct choice *c)
{
	struct kvr_hints h;

	if (!any_bit(s->due, s->words))
		return false;
	if (c->req->hints == NULL)
		return true;
	h = *c->req->hints;
	h.n_required = 0;
	return any_bit(find_fitting(s, &h, s->due), s->words);
}

/* The same for a pinned request; sets c->pin_rank. */
bool kvr_sched__pin_due(const struct kvr_sched *s, struct choice *c)
{
	const uint32_t rank = kvr_sched_rank_find(s, c->pin_worker, c->pin_dp);

	if (rank == KVR_SCHED_NO_RANK || !test_bit(s->due, rank))
		return false;
	c->pin_rank = rank;
	return true;
}
