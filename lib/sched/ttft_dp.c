/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mode ttft: the cost of a rank is the expected time to first token of the request and of those
 * that it delays, in tokens of prefill:
 *
 *   cost(r) = Q(r) + u(r) / (1 - rho) + w * decode(r)
 *
 * Q is the number of tokens booked on r and not computed, with late binding also those that wait
 * for r (late_dp.c). The oldest request is worked off at the speed of the pool, down to a quarter
 * of its tokens until its end is seen; the others are not reduced. u is the prompt without the
 * blocks that r holds, or will hold when its requests in flight are computed. rho is the fraction
 * of the time of the pool that prefill takes, from the bookings of the last windows, at most
 * RHO_MOST: each computed token delays others by rho / (1 - rho). w is the cost of a token in
 * flight, which keeps decode spread; 0 in a prefill pool.
 *
 * The speed is learned from ends of prefills: the tokens of the second of two ends of a busy rank
 * per time between them. Before the first end nothing is worked off and rho is 0.
 *
 * Cost: O(ranks) per decision. Every instruction set uses the same operations in the same order.
 */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include "sched_pvt.h"

#include <immintrin.h>

#define WINDOW_NS  (30 * SECOND_NS)
#define RHO_KEEP   0.7	/* weight of the old rho per window */
#define RHO_MOST   0.95 /* bounds the cost of a token */
#define HEAD_MOST  0.75 /* part worked off before the end is seen */
#define SPEED_KEEP (1 - 1 / 256.0)
#define LATE_MOST                                                                                  \
	8.0 /* maximum ratio of a learned time to the expected time: limits the effect of an       \
	       outage */
#define LATE_LEAST 1024.0 /* tokens; minimum for the expected time */
#define FIRST_NS   125e3  /* expected time of a token before the first end */

/* ---- learned speeds ---------------------------------------------------------------------- */

/*
 * Update a rank after a change of its waiting tokens, and of its oldest request if `first`. The
 * oldest is worked off at the current speed until `until`.
 */
void kvr_sched__ttft_waits(struct kvr_sched *s, uint32_t rank, bool first)
{
	struct rank *r = &s->rank[rank];
	struct ttft *t = &s->ttft;

	if (first) {
		const bool any = r->pf_head != NIL; /* else the anchor is not valid */
		const double head = any ? (double)s->slot[r->pf_head].pf_tokens : 0;
		const double from = any ? (double)(int64_t)(r->anchor_at - s->origin) : 0;

		r->going = t->speed > 0 ? HEAD_MOST * head : 0;
		t->until[rank] = from + r->going * t->ns_token;
		r->seen = r->anchor_at;
	}
	t->rest[rank] = (double)r->pf_tokens - r->going;
	if (t->late != NULL)
		t->rest[rank] += t->late[rank];
}

/* The prefill of a slot has ended. */
void kvr_sched__ttft_ended(struct kvr_sched *s, uint32_t slot, uint64_t now)
{
	const struct slot *b = &s->slot[slot];
	struct rank *r = &s->rank[b->rank];
	struct ttft *t = &s->ttft;
	const bool known = t->speed > 0;
	double tokens = (double)b->pf_tokens, ns, most;

	ns = now > r->seen ? (double)(now - r->seen) : 0;
	most = LATE_MOST * (known ? t->ns_token : FIRST_NS) *
	       (tokens > LATE_LEAST ? tokens : LATE_LEAST);
	ns = ns < most ? ns : most;
	t->took_ns = t->took_ns * SPEED_KEEP + ns;
	t->did_tokens = t->did_tokens * SPEED_KEEP + tokens;
	t->ns_token = t->took_ns / t->did_tokens;
	t->speed = t->took_ns > 0 ? t->did_tokens / t->took_ns : 0;
	/* First known speed: apply it to prefills that began before. */
	for (uint32_t i = 0; !known && t->speed > 0 && i < s->n_ranks; i++)
		kvr_sched__ttft_waits(s, s->order[i], true);
	r->seen = now;
}

static void next_window(struct kvr_sched *s, uint64_t now)
{
	struct ttft *t = &s->ttft;
	const double ns = (double)(now - t->window);
	double keep = 1, busy = 0;
	uint32_t ranks = 0;

	for (uint32_t w = 0; w < s->words; w++)
		ranks += (uint32_t)__builtin_popcountll(s->open[w]);
	if (ranks > 0)
		busy = t->booked * t->ns_token / (ranks * ns);
	for (double left = ns; left >= (double)WINDOW_NS && keep > 1e-6; left -= (double)WINDOW_NS)
		keep *= RHO_KEEP;
	t->rho = keep * t->rho + (1 - keep) * busy;
	t->rho = t->rho < RHO_MOST ? t->rho : RHO_MOST;
	t->left_w = 1 / (1 - t->rho);
	t->window = now;
	t->booked = 0;
}

void kvr_sched__ttft_booked(struct kvr_sched *s, uint64_t tokens, uint64_t now)
{
	s->ttft.booked += (double)tokens;
	if (now >= s->ttft.window + WINDOW_NS)
		next_window(s, now);
}

/* ---- the cost ---------------------------------------------------------------------------- */

void kvr_sched__ttft_fill(const struct kvr_sched *s, struct cost_in *in)
{
	const struct ttft *t = &s->ttft;

	/* A decode pool computes no first token. */
	in->ttft = s->mode->by_ttft && in->track;
	if (!in->ttft)
		return;
	in->rest = t->rest;
	in->until = t->until;
	in->at = (double)(int64_t)(t->now - s->origin);
	in->speed = t->speed;
	in->full = t->left_w * in->isl;
	in->per_block = t->left_w * in->block;
	in->per_hit = in->per_block * in->credit;
	in->decode_w = s->conf.role == KVR_ROLE_PREFILL ? 0 : s->conf.ttft_decode_weight * s->block;
}

/*
 * Eight ranks per step in vector types of the compiler, which uses the instruction set of the
 * caller. Comparisons give lanes of all ones or all zeros.
 */
#pragma GCC diagnostic ignored "-Wpsabi" /* no vector is returned: all functions are inlined */
typedef double v8 __attribute__((vector_size(64)));
typedef int64_t m8 __attribute__((vector_size(64)));
typedef int32_t i8 __attribute__((vector_size(32)));

#define LANES  8u
#define INLINE static inline __attribute__((always_inline))

INLINE v8 load_doubles(const double *p)
{
	v8 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Block counts are far below 2^31; AVX2 converts signed values only. */
INLINE i8 load_counts(const uint32_t *p)
{
	i8 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Lane by lane: GCC compiles this to one instruction, __builtin_convertvector() to several. */
INLINE v8 to_wide(const i8 *v)
{
	return (v8){(*v)[0], (*v)[1], (*v)[2], (*v)[3], (*v)[4], (*v)[5], (*v)[6], (*v)[7]};
}

INLINE v8 f64_counts(const uint32_t *p)
{
	const i8 v = load_counts(p);

	return to_wide(&v);
}

/* Macros, as a function with vector arguments depends on the ABI. Arguments are evaluated twice. */
#define EITHER(yes, a, b) ((v8)(((yes) & (m8)(a)) | (~(yes) & (m8)(b))))
#define LARGER(a, b)	  ((((a) > (b)) & (a)) | (~((a) > (b)) & (b)))

/* Q of the ranks from r on. */
INLINE v8 load_waiting(const struct cost_in *in, size_t r)
{
	const v8 going = (load_doubles(in->until + r) - in->at) * in->speed;

	return load_doubles(in->rest + r) + EITHER(going > 0, going, (v8){0});
}

/* Weighted number of prompt blocks that do not have to be computed. */
INLINE v8 count_hits(const struct cost_in *in, size_t r)
{
	const i8 device = load_counts(in->tier[0] + r), flying = load_counts(in->depth + r);
	v8 hit, fly;

	if (in->plain) {
		const i8 best = LARGER(device, flying);

		return in->credit * to_wide(&best);
	}
	fly = in->credit * to_wide(&flying);
	hit = in->credit * to_wide(&device) + in->host_w * f64_counts(in->tier[1] + r);
	hit = hit + in->disk_w * (f64_counts(in->tier[2] + r) + f64_counts(in->tier[3] + r));
	if (in->shared != NULL)
		hit = hit + in->shared_w * f64_counts(in->shared + r);
	return EITHER(hit > fly, hit, fly);
}

/* Q + u / (1 - rho) + w * decode. Plain: one tier, no preferred taints. */
INLINE v8 compute_costs(const struct cost_in *in, size_t r, bool plain)
{
	v8 c;

	if (plain) {
		const i8 device = load_counts(in->tier[0] + r), flying = load_counts(in->depth + r);
		const i8 best = LARGER(device, flying);

		c = in->full - in->per_hit * to_wide(&best);
	} else {
		c = in->full - in->per_block * count_hits(in, r);
	}
	c = in->scale * (load_waiting(in, r) + c) + in->decode_w * f64_counts(in->blocks + r);
	if (in->request_w != 0)
		c = c + in->request_w * in->block * f64_counts(in->requests + r);
	if (!plain && in->mult != NULL) {
		const v8 mult = load_doubles(in->mult + r);

		/* A credit above 1 can make it negative; a taint that repels must still repel. */
		c = EITHER(c < 0, c / mult, c * mult);
	}
	return c;
}

INLINE double run_loop(const struct cost_in *from, double *restrict cost, uint32_t *restrict top,
		       bool plain)
{
	const m8 lane = {1, 2, 4, 8, 16, 32, 64, 128};
	const i8 half = {1, 2, 4, 8, 16, 32, 64, 128};
	const v8 inf = INFINITY - (v8){0};
	const struct cost_in copy = *from, *in = &copy;
	v8 low = inf;
	i8 most = {0};
	double best = INFINITY;
	int32_t top_device = 0;

	for (size_t r = 0; r < (size_t)in->words * 64; r += LANES) {
		const int32_t bits = (int32_t)(in->mask[r / 64] >> r % 64 & 255);
		i8 device = load_counts(in->tier[0] + r);
		v8 c = compute_costs(in, r, plain);

		if (bits != 255) { /* usually all or, in the last group, none */
			c = EITHER((lane & bits) != 0, c, inf);
			device &= (half & bits) != 0;
		}
		memcpy(cost + r, &c, sizeof(c));
		low = EITHER(c < low, c, low);
		most = LARGER(device, most);
	}
	for (uint32_t i = 0; i < LANES; i++) {
		best = low[i] < best ? low[i] : best;
		top_device = most[i] > top_device ? most[i] : top_device;
	}
	*top = (uint32_t)top_device;
	return best;
}

static double cost_scalar(const struct cost_in *in, double *cost, uint32_t *top)
{
	return in->plain ? run_loop(in, cost, top, true) : run_loop(in, cost, top, false);
}

/* ---- the common case, by hand------------------------------------------------------------ */

/*
 * One tier, no preferred taints, no weight of requests. The vector types above compile to twice the
 * instructions. Local copies of the input keep constants in registers, as in cost_dp.c.
 */
INLINE bool is_lean(const struct cost_in *in)
{
	return in->plain && in->request_w == 0;
}

#define T256 __attribute__((target("avx2")))
#define I256 T256 static inline __attribute__((always_inline))

/* Costs of four ranks, as costs(); device gets their blocks. */
I256 __m256d cost_four(const struct cost_in *in, size_t r, __m128i *device)
{
	const __m128i flying = _mm_loadu_si128((const __m128i *)(in->depth + r));
	const __m128i blocks = _mm_loadu_si128((const __m128i *)(in->blocks + r));
	__m256d wait = _mm256_sub_pd(_mm256_loadu_pd(in->until + r), _mm256_set1_pd(in->at)), left;

	*device = _mm_loadu_si128((const __m128i *)(in->tier[0] + r));
	wait = _mm256_max_pd(_mm256_mul_pd(wait, _mm256_set1_pd(in->speed)), _mm256_setzero_pd());
	wait = _mm256_add_pd(_mm256_loadu_pd(in->rest + r), wait);
	left = _mm256_cvtepi32_pd(_mm_max_epi32(*device, flying));
	left = _mm256_mul_pd(_mm256_set1_pd(in->per_hit), left);
	wait = _mm256_add_pd(wait, _mm256_sub_pd(_mm256_set1_pd(in->full), left));
	wait = _mm256_mul_pd(_mm256_set1_pd(in->scale), wait);
	return _mm256_add_pd(
		wait, _mm256_mul_pd(_mm256_set1_pd(in->decode_w), _mm256_cvtepi32_pd(blocks)));
}

/* Ranks that are not eligible have cost +inf and no blocks. */
I256 __m256d mask_costs(uint64_t bits, __m256d c, __m128i *device)
{
	const __m256i lane = _mm256_setr_epi64x(1, 2, 4, 8);
	const __m128i half = _mm_setr_epi32(1, 2, 4, 8);
	const __m256i in = _mm256_and_si256(_mm256_set1_epi64x((int64_t)bits), lane);
	const __m128i may = _mm_and_si128(_mm_set1_epi32((int32_t)bits), half);

	*device = _mm_and_si128(*device, _mm_cmpeq_epi32(may, half));
	return _mm256_blendv_pd(_mm256_set1_pd(INFINITY), c,
				_mm256_castsi256_pd(_mm256_cmpeq_epi64(in, lane)));
}

T256 static double cost_lean256(const struct cost_in *from, double *restrict cost,
				uint32_t *restrict top)
{
	const struct cost_in copy = *from, *in = &copy;
	__m256d low = _mm256_set1_pd(INFINITY);
	__m128i most = _mm_setzero_si128(), device;
	__m128d two;

	for (size_t r = 0; r < (size_t)in->words * 64; r += 4) {
		const uint64_t bits = in->mask[r / 64] >> r % 64 & 15;
		__m256d c = cost_four(in, r, &device);

		if (bits != 15)
			c = mask_costs(bits, c, &device);
		_mm256_storeu_pd(cost + r, c);
		low = _mm256_min_pd(c, low);
		most = _mm_max_epi32(device, most);
	}
	most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4E));
	most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xB1));
	*top = (uint32_t)_mm_cvtsi128_si32(most);
	two = _mm_min_pd(_mm256_castpd256_pd128(low), _mm256_extractf128_pd(low, 1));
	return _mm_cvtsd_f64(_mm_min_sd(two, _mm_unpackhi_pd(two, two)));
}

__attribute__((target("avx2,tune=haswell"))) static double cost_avx2(const struct cost_in *in,
								     double *cost, uint32_t *top)
{
	return is_lean(in) ? cost_lean256(in, cost, top)
	       : in->plain ? run_loop(in, cost, top, true)
			   : run_loop(in, cost, top, false);
}

#define T512 __attribute__((target("avx512f")))
#define I512 T512 static inline __attribute__((always_inline))

/* lddqu, as generic tuning splits a plain unaligned load. */
I512 __m256i eight_counts(const uint32_t *p)
{
	return _mm256_lddqu_si256((const __m256i *)p);
}

/* Costs of eight ranks, as costs(). */
I512 __m512d cost_eight(const struct cost_in *in, size_t r, __m256i device)
{
	__m512d wait = _mm512_sub_pd(_mm512_loadu_pd(in->until + r), _mm512_set1_pd(in->at)), left;
	const __m512d blocks = _mm512_cvtepi32_pd(eight_counts(in->blocks + r));

	wait = _mm512_max_pd(_mm512_mul_pd(wait, _mm512_set1_pd(in->speed)), _mm512_setzero_pd());
	wait = _mm512_add_pd(_mm512_loadu_pd(in->rest + r), wait);
	left = _mm512_cvtepi32_pd(_mm256_max_epi32(device, eight_counts(in->depth + r)));
	left = _mm512_mul_pd(_mm512_set1_pd(in->per_hit), left);
	wait = _mm512_add_pd(wait, _mm512_sub_pd(_mm512_set1_pd(in->full), left));
	wait = _mm512_mul_pd(_mm512_set1_pd(in->scale), wait);
	return _mm512_add_pd(wait, _mm512_mul_pd(_mm512_set1_pd(in->decode_w), blocks));
}

T512 static double cost_lean512(const struct cost_in *from, double *restrict cost,
				uint32_t *restrict top)
{
	const struct cost_in copy = *from, *in = &copy;
	__m512d low = _mm512_set1_pd(INFINITY);
	__m512i most = _mm512_setzero_si512();

	for (size_t r = 0; r < (size_t)in->words * 64; r += 8) {
		const __mmask8 may = (__mmask8)(in->mask[r / 64] >> r % 64);
		const __m256i device = eight_counts(in->tier[0] + r);
		const __m512d c = _mm512_mask_mov_pd(_mm512_set1_pd(INFINITY), may,
						     cost_eight(in, r, device));

		_mm512_storeu_pd(cost + r, c);
		low = _mm512_min_pd(c, low);
		most = _mm512_mask_max_epi32(most, may, most, _mm512_castsi256_si512(device));
	}
	*top = (uint32_t)_mm512_reduce_max_epi32(most);
	return _mm512_reduce_min_pd(low);
}

__attribute__((target("avx512f,tune=haswell"))) static double
cost_avx512(const struct cost_in *in, double *cost, uint32_t *top)
{
	return is_lean(in) ? cost_lean512(in, cost, top)
	       : in->plain ? run_loop(in, cost, top, true)
			   : run_loop(in, cost, top, false);
}

kvr_sched__cost_fn kvr_sched__ttft_kernel(enum sched_isa isa)
{
	return isa == SCHED_AVX512 ? cost_avx512 : isa == SCHED_AVX2 ? cost_avx2 : cost_scalar;
}

/* ---- one rank ---------------------------------------------------------------------------- */

double kvr_sched__ttft_one(const struct cost_in *in, uint32_t r)
{
	return compute_costs(in, r & ~(LANES - 1), in->plain)[r % LANES];
}

/* Tokens of the prompt to compute on r; negative with a credit above 1. */
double kvr_sched__ttft_left(const struct cost_in *in, uint32_t r)
{
	return in->isl - count_hits(in, r & ~(LANES - 1))[r % LANES] * in->block;
}

void kvr_sched__ttft_term(const struct kvr_sched *s, const struct cost_in *in, uint32_t r,
			  struct kvr_sched_term *t)
{
	const uint32_t at = r & ~(LANES - 1), i = r % LANES;

	if (!in->ttft)
		return;
	t->by_ttft = true;
	t->wait_tokens = load_waiting(in, at)[i];
	t->left_tokens = kvr_sched__ttft_left(in, r);
	t->decode_weight = in->decode_w / in->block;
	t->rho = s->ttft.rho;
	t->us_token = s->ttft.ns_token / 1e3;
}
