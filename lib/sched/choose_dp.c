/* SPDX-License-Identifier: BSD-3-Clause */
/* One choice: eligible ranks, load projection, costs, pick (sections 5.2 to 5.5). */
#include "sched_pvt.h"

static bool more_tiers(const struct kvr_sched_overlap *ov)
{
	return ov != NULL && (ov->host != NULL || ov->disk != NULL || ov->external != NULL);
}

static uint32_t read_tier(const uint32_t *v, uint32_t rank)
{
	return v == NULL ? 0 : v[rank];
}

double kvr_sched__effective(const struct kvr_sched *s, const struct kvr_sched_overlap *ov,
			    uint32_t rank)
{
	if (ov == NULL)
		return 0;
	return read_tier(ov->device, rank) +
	       read_tier(ov->host, rank) * s->conf.host_cache_hit_weight +
	       read_tier(ov->disk, rank) * s->conf.disk_cache_hit_weight +
	       read_tier(ov->external, rank) * s->conf.disk_cache_hit_weight;
}

/* Return the largest effective overlap over a set. */
double kvr_sched__best_effective(const struct kvr_sched *s, const struct kvr_sched_overlap *ov,
				 const uint64_t *mask)
{
	double best = 0;

	if (ov == NULL)
		return 0;
	if (!more_tiers(ov) && ov->device != NULL)
		return s->k.max(ov->device, mask, s->words);
	for (uint32_t w = 0; w < s->words; w++)
		for (uint64_t b = mask[w]; b != 0; b &= b - 1) {
			uint32_t r = w * 64 + (uint32_t)__builtin_ctzll(b);
			double e = kvr_sched__effective(s, ov, r);

			best = e > best ? e : best;
		}
	return best;
}

/* Return the eligible rank with that overlap; ties: lowest worker id, then lowest rank. */
static uint32_t who_has(const struct kvr_sched *s, const struct kvr_sched_overlap *ov, double best)
{
	uint32_t at = 0;

	if (!more_tiers(ov))
		at = s->k.first(ov->device, (uint32_t)best, s->elig, s->words, s->place);
	else
		while (!test_bit(s->elig, s->order[at]) ||
		       kvr_sched__effective(s, ov, s->order[at]) != best)
			at++;
	return s->order[at];
}

/* ---- inputs of the cost ------------------------------------------------------------------ */

/* exp(-tanh(sum of the weights of preferred taints present)), 5.2. */
static const double *taint_factors(struct kvr_sched *s, const struct kvr_hints *h)
{
	double last = 0, factor = 1;

	if (h == NULL || h->n_preferred == 0)
		return NULL;
	for (uint32_t r = 0; r < s->words * 64; r++)
		s->mult[r] = 0;
	for (uint32_t i = 0; i < h->n_preferred; i++) {
		uint32_t t = kvr_sched__taint(s, &h->preferred[i].taint);
		const uint64_t *set = s->taint_set + (size_t)t * (s->max_ranks / 64);

		for (uint32_t w = 0; t != NIL && w < s->words; w++)
			for (uint64_t b = set[w]; b != 0; b &= b - 1)
				s->mult[w * 64 + (uint32_t)__builtin_ctzll(b)] +=
					h->preferred[i].weight;
	}
	for (uint32_t r = 0; r < s->words * 64; r++) {
		if (s->mult[r] != last) {
			last = s->mult[r];
			factor = exp(-tanh(last));
		}
		s->mult[r] = factor;
	}
	return s->mult;
}

static uint32_t hits_beyond(const struct kvr_hints *h, uint32_t from)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < h->n_shared; i++) {
		const struct kvr_hint_range *x = &h->shared[i];
		uint32_t lo = x->start > from ? x->start : from;

		n += x->end > lo ? x->end - lo : 0;
	}
	return n;
}

static const uint32_t *shared_beyond(struct kvr_sched *s, const struct choice *c)
{
	const uint32_t *device = c->ov != NULL ? c->ov->device : NULL;
	const struct kvr_hints *h = c->req->hints;

	if (h == NULL || h->n_shared == 0)
		return NULL;
	for (uint32_t i = 0; i < s->n_ranks; i++)
		s->shared[s->order[i]] = hits_beyond(h, read_tier(device, s->order[i]));
	return s->shared;
}

static double least_tokens(const struct kvr_sched *s)
{
	double low = INFINITY;

	for (uint32_t w = 0; w < s->words; w++)
		for (uint64_t b = s->elig[w]; b != 0; b &= b - 1) {
			double t = s->tokens[w * 64 + (uint32_t)__builtin_ctzll(b)];

			low = t < low ? t : low;
		}
	return low;
}

static uint32_t request_blocks(const struct kvr_sched *s, uint32_t isl)
{
	return (uint32_t)(((uint64_t)isl + s->conf.block_size - 1) / s->conf.block_size);
}

/* Assign each field: clearing the struct first costs more than the selection of 64 ranks. */
static void fill_cost_input(struct kvr_sched *s, const struct choice *c, struct cost_in *in)
{
	const struct kvr_sched_overlap *ov = c->ov;
	const struct params *p = &c->p;

	in->tier[0] = ov && ov->device ? ov->device : s->zeros;
	in->tier[1] = ov && ov->host ? ov->host : s->zeros;
	in->tier[2] = ov && ov->disk ? ov->disk : s->zeros;
	in->tier[3] = ov && ov->external ? ov->external : s->zeros;
	in->shared = shared_beyond(s, c);
	in->tokens = s->tokens;
	in->blocks = s->blocks;
	in->depth = s->depth;
	in->requests = s->requests;
	in->mult = c->pinned ? NULL : taint_factors(s, c->req->hints);
	in->mask = s->elig;
	in->words = s->words;
	in->pow2 = s->pow2;
	in->cache_lowers_decode =
		s->conf.role != KVR_ROLE_PREFILL && !p->track_prefill && p->credit > 0;
	in->track = p->track_prefill;
	in->isl = c->req->isl;
	in->block = s->block;
	in->inv_block = s->inv_block;
	in->n = c->n;
	in->credit = p->credit;
	in->scale = p->scale;
	in->host_w = s->conf.host_cache_hit_weight;
	in->disk_w = s->conf.disk_cache_hit_weight;
	in->shared_w = p->shared;
	in->request_w = s->conf.decode_active_request_weight;
	in->decay = s->conf.overlap_score_credit_decay;
	in->min_tokens = in->decay > 0 ? least_tokens(s) : 0;
	in->request_blocks = request_blocks(s, c->req->isl);
	in->plain = !more_tiers(ov) && in->mult == NULL && in->shared == NULL && in->decay == 0;
	kvr_sched__ttft_fill(s, in);
	if (in->ttft)
		kvr_sched__late_see(s, in);
}

/* ---- pick -------------------------------------------------------------------------------- */

/* Index of the k-th (from 0) bit of a set. */
static uint32_t nth_bit(const uint64_t *set, uint32_t k)
{
	for (uint32_t w = 0;; w++) {
		uint32_t n = (uint32_t)__builtin_popcountll(set[w]);
		uint64_t bits = set[w];

		if (k >= n) {
			k -= n;
			continue;
		}
		while (k-- > 0)
			bits &= bits - 1;
		return w * 64 + (uint32_t)__builtin_ctzll(bits);
	}
}

static uint32_t one_of(struct kvr_sched *s, const uint64_t *set, uint32_t n)
{
	return nth_bit(set, n == 1 ? 0 : kvr_rand_below(&s->rand, n));
}

static uint32_t pick_lowest(struct kvr_sched *s, double low)
{
	uint32_t n = s->k.equal(s->cost, low, s->words, s->ties);

	return one_of(s, s->ties, n);
}

/* Section 5.4: the probability falls with the cost, normalized by the range of costs. */
static uint32_t pick_softmax(struct kvr_sched *s, double low, double temperature)
{
	double high = low, big = 0, u, total, seen = 0;
	uint32_t last = NIL;

	for (uint32_t w = 0; w < s->words; w++)
		for (uint64_t b = s->elig[w]; b != 0; b &= b - 1) {
			double c = s->cost[w * 64 + (uint32_t)__builtin_ctzll(b)];

			high = c > high ? c : high;
			big = fabs(c) > big ? fabs(c) : big;
		}
	if (isinf(high - low)) {
		for (uint32_t r = 0; r < s->words * 64; r++)
			s->cost[r] /= big;
		low /= big;
		high /= big;
	}
	if (!((high - low) * temperature > 0))
		return pick_lowest(s, low);
	total = s->k.weights(s->cost, s->words, low, (high - low) * temperature, s->sums);
	u = kvr_rand_unit(&s->rand) * total;
	for (uint32_t w = 0; w < s->words; w++) {
		if (seen + s->sums[w] < u && w + 1 < s->words) {
			seen += s->sums[w];
			continue;
		}
		for (uint64_t b = s->elig[w]; b != 0; b &= b - 1) {
			last = w * 64 + (uint32_t)__builtin_ctzll(b);
			seen += s->cost[last];
			if (seen >= u)
				return last;
		}
	}
	return last != NIL ? last : nth_bit(s->elig, 0);
}

/* ---- results ----------------------------------------------------------------------------- */

static void explain_choice(struct kvr_sched *s, const struct choice *c, const struct cost_in *in)
{
	struct kvr_sched_terms *t = s->terms;

	for (uint32_t i = 0; i < s->n_ranks; i++) {
		uint32_t r = s->order[i];
		uint64_t cached = round_up_half(kvr_sched__effective(s, c->ov, r) * s->block);
		uint64_t fresh = c->req->isl > cached ? c->req->isl - cached : 0;

		if (!test_bit(s->elig, r))
			continue;
		if (t->n++ >= t->cap)
			continue;
		t->v[t->n - 1] = (struct kvr_sched_term){
			.worker = s->worker[s->rank[r].worker].id,
			.dp_rank = s->rank[r].dp_rank,
			.rank = r,
			.cost = s->cost[r],
			.device = in->tier[0][r],
			.host = in->tier[1][r],
			.disk = in->tier[2][r] + in->tier[3][r],
			.shared = in->shared != NULL ? in->shared[r] : 0,
			.prefill_tokens = (uint64_t)s->tokens[r] + (in->track ? fresh : 0),
			.decode_blocks = s->blocks[r] + (c->n - s->depth[r]),
			.active_requests = s->requests[r],
		};
		kvr_sched__ttft_term(s, in, r, &t->v[t->n - 1]);
	}
}

static void describe_choice(const struct kvr_sched *s, const struct choice *c, uint32_t rank,
			    uint32_t blocks, struct kvr_sched_decision *d)
{
	double eff = kvr_sched__effective(s, c->ov, rank);

	d->rank = rank;
	d->worker = s->worker[s->rank[rank].worker].id;
	d->dp_rank = s->rank[rank].dp_rank;
	d->effective_overlap = eff;
	d->overlap_blocks = (uint32_t)round_up_half(eff);
	d->cached_tokens = round_up_half(eff * s->block);
	d->required_blocks = blocks;
	d->potential_decode_blocks =
		s->blocks[rank] + (c->n - s->depth[rank]) + (blocks > c->n ? blocks - c->n : 0);
	d->pinned = c->pinned;
}

enum kvr_code kvr_sched__eligible(struct kvr_sched *s, struct choice *c)
{
	if (c->pinned) {
		enum kvr_code e = kvr_sched__pin_check(s, c);

		/* A request that waited for this rank was admitted before the rank was overloaded.
		 */
		if (e == KVR_E_PINNED_OVERLOADED && c->pin_rank == c->keep)
			e = KVR_OK;
		if (e != KVR_OK)
			return e;
		memset(s->elig, 0, s->words * sizeof(*s->elig));
		bit_put(s->elig, c->pin_rank, true);
		return KVR_OK;
	}
	kvr_sched__open_set(s, c);
	for (uint32_t w = 0; w < s->words; w++)
		s->elig[w] = c->open[w] & ~s->over[w];
	if (c->keep != NIL && test_bit(c->open, c->keep))
		bit_put(s->elig, c->keep, true);
	if (any_bit(s->elig, s->words))
		return KVR_OK;
	return any_bit(c->open, s->words) ? KVR_E_ALL_OVERLOADED : KVR_E_NO_ENDPOINTS;
}

/* Compute the load of every rank at `now` and the part of the prompt that is active there. */
void kvr_sched__project(struct kvr_sched *s, const struct choice *c, uint64_t now)
{
	kvr_active_match(s->active, c->req->sh, c->p.reuse ? c->n : 0, s->depth);
	kvr_sched__prefill_now(s, now);
	s->ttft.now = now;
}

/* Select the eligible rank with the lowest cost, or a random one. Call after eligible and project.
 */
void kvr_sched__select(struct kvr_sched *s, const struct choice *c, struct kvr_sched_decision *d)
{
	struct cost_in in;
	uint32_t rank, top;
	double low;

	fill_cost_input(s, c, &in);
	low = (in.ttft ? s->k.ttft : s->k.cost)(&in, s->cost, &top);
	if (s->terms != NULL)
		explain_choice(s, c, &in);
	if (c->pinned)
		rank = c->pin_rank;
	else if (c->keep != NIL && test_bit(s->elig, c->keep))
		rank = c->keep;
	else if (c->p.temperature > 0)
		rank = pick_softmax(s, low, c->p.temperature);
	else
		rank = pick_lowest(s, low);
	d->cost = low;
	if (rank == c->keep || (c->p.temperature > 0 && !c->pinned))
		d->cost = in.ttft ? kvr_sched__ttft_one(&in, rank) : kvr_sched__cost_one(&in, rank);
	describe_choice(s, c, rank, (uint32_t)in.request_blocks, d);
	if (c->pinned)
		return;
	d->better_overlap = more_tiers(c->ov) ? kvr_sched__best_effective(s, c->ov, s->elig) : top;
	if (d->better_overlap > d->effective_overlap)
		d->better_rank = who_has(s, c->ov, d->better_overlap);
}

enum kvr_code kvr_sched__choose(struct kvr_sched *s, struct choice *c, uint64_t now,
				struct kvr_sched_decision *d)
{
	enum kvr_code e = kvr_sched__eligible(s, c);

	if (e != KVR_OK)
		return e;
	kvr_sched__project(s, c, now);
	kvr_sched__select(s, c, d);
	return KVR_OK;
}
