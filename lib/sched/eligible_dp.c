/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of a request, its parameters, its pin, and the ranks it may go to (5.5, 5.6, 8.1). */
#include "sched_pvt.h"

static bool not_negative(double v)
{
	return isfinite(v) && v >= 0;
}

static bool override_valid(const struct kvr_sched_override *o)
{
	if (o == NULL)
		return true;
	if ((o->flags & KVR_SOVER_TEMPERATURE) && !not_negative(o->temperature))
		return false;
	if ((o->flags & KVR_SOVER_CREDIT) && !not_negative(o->overlap_score_credit))
		return false;
	if ((o->flags & KVR_SOVER_PREFILL_SCALE) && !not_negative(o->prefill_load_scale))
		return false;
	if ((o->flags & KVR_SOVER_SCORE_WEIGHT) && !not_negative(o->overlap_score_weight))
		return false;
	return !(o->flags & KVR_SOVER_SHARED_MULT) ||
	       (o->shared_cache_multiplier >= 0 && o->shared_cache_multiplier <= 1);
}

static bool hints_valid(const struct kvr_sched_hints *h)
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
	if (!override_valid(req->override))
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
	const struct kvr_sched_override *o = req->override;

	p->credit = s->conf.overlap_score_credit;
	p->scale = s->conf.prefill_load_scale;
	p->shared = s->conf.shared_cache_multiplier;
	p->temperature = s->conf.temperature;
	p->reuse = s->conf.assume_kv_reuse;
	p->track_prefill = s->conf.track_prefill_tokens;
	if (o == NULL)
		return;
	if (o->flags & KVR_SOVER_SCORE_WEIGHT) {
		p->scale = o->overlap_score_weight;
		if (o->overlap_score_weight == 0)
			p->credit = 0;
	}
	if (o->flags & KVR_SOVER_CREDIT)
		p->credit = o->overlap_score_credit;
	if (o->flags & KVR_SOVER_PREFILL_SCALE)
		p->scale = o->prefill_load_scale;
	if (o->flags & KVR_SOVER_SHARED_MULT)
		p->shared = o->shared_cache_multiplier;
	if (o->flags & KVR_SOVER_TEMPERATURE)
		p->temperature = o->temperature;
	if (o->flags & KVR_SOVER_KV_REUSE)
		p->reuse = o->assume_kv_reuse;
	if (o->flags & KVR_SOVER_TRACK_PREFILL)
		p->track_prefill = o->track_prefill_tokens;
}

/* ---- pins -------------------------------------------------------------------------------- */

struct pin {
	bool given, has_dp;
	uint64_t worker;
	uint32_t dp;
};

static struct pin pin_of(const struct kvr_sched_req *req)
{
	const struct kvr_sched_hints *h = req->hints;
	uint32_t own;
	struct pin p = {0};

	if (h == NULL)
		return p;
	own = req->phase == KVR_ROLE_PREFILL ? KVR_SHINT_PREFILL_ID : KVR_SHINT_DECODE_ID;
	p.given = (h->flags & (own | KVR_SHINT_BACKEND_ID)) != 0;
	if (!(h->flags & own))
		p.worker = h->backend_id;
	else
		p.worker = own == KVR_SHINT_PREFILL_ID ? h->prefill_id : h->decode_id;
	p.has_dp = (h->flags & KVR_SHINT_DP_RANK) != 0;
	p.dp = h->dp_rank;
	if (req->phase == KVR_ROLE_PREFILL && (h->flags & KVR_SHINT_PREFILL_DP_RANK)) {
		p.has_dp = true;
		p.dp = h->prefill_dp_rank;
	}
	return p;
}

static bool allowed(const struct kvr_sched_hints *h, uint64_t worker)
{
	if (h == NULL || !(h->flags & KVR_SHINT_ALLOWED))
		return true;
	for (uint32_t i = 0; i < h->n_allowed; i++)
		if (h->allowed[i] == worker)
			return true;
	return false;
}

/* In modes without cache knowledge a pin needs no rank: the least busy one of the worker serves. */
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
	if (!allowed(c->req->hints, p.worker))
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

static const uint64_t *taint_ranks(const struct kvr_sched *s, const struct kvr_sched_str *name)
{
	uint32_t t = kvr_sched__taint(s, name);

	return t == NIL ? NULL : s->taint_set + (size_t)t * (s->max_ranks / 64);
}

/* Every failure but overload is NoEndpoints. */
enum kvr_code kvr_sched__pin_check(const struct kvr_sched *s, struct choice *c)
{
	const struct kvr_sched_hints *h = c->req->hints;
	uint32_t rank = kvr_sched_rank_find(s, c->pin_worker, c->pin_dp);

	if (!allowed(h, c->pin_worker))
		return KVR_E_PINNED_NOT_ALLOWED;
	if (rank == KVR_SCHED_NO_RANK || !bit(s->open, rank))
		return KVR_E_NO_ENDPOINTS;
	for (uint32_t i = 0; h != NULL && i < h->n_required; i++) {
		const uint64_t *set = taint_ranks(s, &h->required[i]);

		if (set == NULL || !bit(set, rank))
			return KVR_E_NO_ENDPOINTS;
	}
	c->pin_rank = rank;
	return bit(s->over, rank) && !c->req->probe ? KVR_E_PINNED_OVERLOADED : KVR_OK;
}

/* ---- ranks of an unpinned request -------------------------------------------------------- */

/* All ranks of a worker. */
static void put_worker(const struct kvr_sched *s, uint64_t worker, bool on, uint64_t *set)
{
	uint32_t at = kvr_sched__worker(s, worker);

	for (uint32_t k = 0; at != NIL && k < s->worker[at].dp_size; k++)
		bit_put(set, s->order[s->worker[at].at + k], on);
}

static void allow_only(const struct kvr_sched *s, const struct kvr_sched_hints *h, uint64_t *set)
{
	memset(set, 0, s->words * sizeof(*set));
	for (uint32_t i = 0; i < h->n_allowed; i++)
		put_worker(s, h->allowed[i], true, set);
}

/* The ranks of @p base that the request's hints allow: @p base itself, or scratch. */
static const uint64_t *fitting(struct kvr_sched *s, const struct kvr_sched_hints *h,
			       const uint64_t *base)
{
	uint64_t *set = s->fit;

	if (h == NULL ||
	    (!(h->flags & (KVR_SHINT_ALLOWED | KVR_SHINT_EXCLUDE)) && h->n_required == 0))
		return base;
	if (h->flags & KVR_SHINT_ALLOWED)
		allow_only(s, h, set);
	else
		memset(set, 0xFF, s->words * sizeof(*set));
	if (h->flags & KVR_SHINT_EXCLUDE)
		put_worker(s, h->exclude_id, false, set);
	for (uint32_t w = 0; w < s->words; w++)
		set[w] &= base[w];
	for (uint32_t i = 0; i < h->n_required; i++) {
		const uint64_t *tainted = taint_ranks(s, &h->required[i]);

		for (uint32_t w = 0; w < s->words; w++)
			set[w] &= tainted == NULL ? 0 : tainted[w];
	}
	return set;
}

/* @p base without the ranks of @p worse, in scratch; @p base itself when none is left, or none that
 * has room. */
static const uint64_t *prefer(const struct kvr_sched *s, const uint64_t *base,
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

/* Ranks that the request has failed at. In the scratch set that choices write after this. */
static const uint64_t *failed_at(const struct kvr_sched *s, const struct kvr_sched_hints *h)
{
	memset(s->elig, 0, s->words * sizeof(*s->elig));
	for (uint32_t i = 0; i < h->n_failed_at; i++) {
		const struct kvr_sched_place *p = &h->failed_at[i];
		const uint32_t rank = kvr_sched_rank_find(s, p->worker, p->dp_rank);

		if (p->dp_rank == UINT32_MAX)
			put_worker(s, p->worker, true, s->elig);
		else if (rank != KVR_SCHED_NO_RANK)
			bit_put(s->elig, rank, true);
	}
	return s->elig;
}

/* Ranks that fit, overload ignored: in use, available, allowed, with every required taint. Of these
 * the ones that are likely to serve the request. */
void kvr_sched__open_set(struct kvr_sched *s, struct choice *c)
{
	const struct kvr_sched_hints *h = c->req->hints;

	c->open = fitting(s, h, s->open);
	if (h != NULL && h->n_failed_at != 0)
		c->open = prefer(s, c->open, failed_at(s, h));
	if (s->n_failing != 0)
		c->open = prefer(s, c->open, s->failing);
	if (s->n_silent != 0)
		c->open = prefer(s, c->open, s->silent);
}

/* Nobody fits now: whether somebody will who is between two lives. Taints may change with them. */
bool kvr_sched__due(struct kvr_sched *s, const struct choice *c)
{
	struct kvr_sched_hints h;

	if (!any_bit(s->due, s->words))
		return false;
	if (c->req->hints == NULL)
		return true;
	h = *c->req->hints;
	h.n_required = 0;
	return any_bit(fitting(s, &h, s->due), s->words);
}

/* The same for a pinned request; its rank is then c->pin_rank. */
bool kvr_sched__pin_due(const struct kvr_sched *s, struct choice *c)
{
	const uint32_t rank = kvr_sched_rank_find(s, c->pin_worker, c->pin_dp);

	if (rank == KVR_SCHED_NO_RANK || !bit(s->due, rank))
		return false;
	c->pin_rank = rank;
	return true;
}
