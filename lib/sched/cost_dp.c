/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of every rank (section 5.2), one loop per instruction set. All loops use the
 * same operations in the same order, without contraction to fused multiply-add. Costs are therefore
 * bitwise identical, and equal costs stay equal.
 */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include "sched_pvt.h"

#include <immintrin.h>

/* Cost of one rank: the operations of one vector lane. */
double kvr_sched__cost_one(const struct cost_in *in, uint32_t r)
{
	double dev = in->tier[0][r], host = 0, disk = 0, ext = 0, eff = dev, credit;
	double cached, raw, decay = 1, pre, dec;

	if (!in->plain) {
		host = in->tier[1][r];
		disk = in->tier[2][r];
		ext = in->tier[3][r];
		eff = ((dev + host * in->host_w) + disk * in->disk_w) + ext * in->disk_w;
		if (in->decay > 0 && in->track) {
			double x = (in->tokens[r] - in->min_tokens) / in->block;

			decay = 1 / (1 + in->decay * (x / in->request_blocks));
		}
	}
	cached = floor(eff * in->block + 0.5);
	raw = in->track ? in->tokens[r] + (cached > in->isl ? cached : in->isl) : 0;
	raw = in->pow2 ? raw * in->inv_block : raw / in->block;
	credit = in->credit * decay * dev;
	if (!in->plain) {
		credit = (credit + host * in->host_w) + (disk + ext) * in->disk_w;
		if (in->shared != NULL)
			credit = credit + in->shared_w * in->shared[r];
	}
	dec = (double)in->blocks[r] + (in->n - (double)in->depth[r]);
	if (in->cache_lowers_decode) {
		pre = dec - credit;
		dec = 0;
	} else {
		pre = raw - credit;
	}
	pre = pre > 0 ? pre : 0;
	if (!in->cache_lowers_decode)
		pre = in->scale * pre;
	dec = (pre + dec) + in->request_w * in->requests[r];
	return in->mult != NULL ? dec * in->mult[r] : dec;
}

static double cost_scalar(const struct cost_in *in, double *cost, uint32_t *top)
{
	double low = INFINITY;

	*top = 0;
	for (uint32_t r = 0; r < in->words * 64; r++) {
		cost[r] = test_bit(in->mask, r) ? kvr_sched__cost_one(in, r) : INFINITY;
		low = cost[r] < low ? cost[r] : low;
		if (test_bit(in->mask, r) && in->tier[0][r] > *top)
			*top = in->tier[0][r];
	}
	return low;
}

/* ---- AVX-512: 8 ranks per step------------------------------------------------------------ */

#define T512 __attribute__((target("avx512f")))
#define I512 T512 static inline __attribute__((always_inline))

I512 __m512d load_u32x8(const uint32_t *p)
{
	/* lddqu, as generic tuning splits a plain unaligned load. */
	return _mm512_cvtepu32_pd(_mm256_lddqu_si256((const __m256i *)p));
}

struct lanes512 {
	__m512d dev, host, disk, ext, decay, eff;
};

I512 void tier_sum512(const struct cost_in *in, uint32_t r, struct lanes512 *l)
{
	const __m512d one = _mm512_set1_pd(1), dw = _mm512_set1_pd(in->disk_w);
	__m512d x;

	l->host = load_u32x8(in->tier[1] + r);
	l->disk = load_u32x8(in->tier[2] + r);
	l->ext = load_u32x8(in->tier[3] + r);
	l->eff = _mm512_add_pd(l->dev, _mm512_mul_pd(l->host, _mm512_set1_pd(in->host_w)));
	l->eff = _mm512_add_pd(l->eff, _mm512_mul_pd(l->disk, dw));
	l->eff = _mm512_add_pd(l->eff, _mm512_mul_pd(l->ext, dw));
	if (!(in->decay > 0 && in->track))
		return;
	x = _mm512_sub_pd(_mm512_loadu_pd(in->tokens + r), _mm512_set1_pd(in->min_tokens));
	x = _mm512_div_pd(x, _mm512_set1_pd(in->block));
	x = _mm512_div_pd(x, _mm512_set1_pd(in->request_blocks));
	x = _mm512_add_pd(one, _mm512_mul_pd(_mm512_set1_pd(in->decay), x));
	l->decay = _mm512_div_pd(one, x);
}

I512 __m512d credit_step512(const struct cost_in *in, uint32_t r, const struct lanes512 *l,
			    bool plain)
{
	__m512d c = _mm512_mul_pd(_mm512_mul_pd(_mm512_set1_pd(in->credit), l->decay), l->dev);

	if (plain)
		return c;
	c = _mm512_add_pd(c, _mm512_mul_pd(l->host, _mm512_set1_pd(in->host_w)));
	c = _mm512_add_pd(
		c, _mm512_mul_pd(_mm512_add_pd(l->disk, l->ext), _mm512_set1_pd(in->disk_w)));
	if (in->shared != NULL)
		c = _mm512_add_pd(
			c, _mm512_mul_pd(_mm512_set1_pd(in->shared_w), load_u32x8(in->shared + r)));
	return c;
}

/*
 * The common case without operations that cannot change the result: whole blocks need no rounding,
 * block counts are added exactly as integers, a weight of 0 adds nothing.
 */
I512 __m512d cost_lean512(const struct cost_in *in, uint32_t r, __m512d dev, bool pow2)
{
	const __m256i n = _mm256_set1_epi32((int)(uint32_t)in->n);
	__m256i blocks = _mm256_lddqu_si256((const __m256i *)(in->blocks + r));
	__m256i depth = _mm256_lddqu_si256((const __m256i *)(in->depth + r));
	__m512d cached = _mm512_mul_pd(dev, _mm512_set1_pd(in->block)), raw, pre;

	raw = _mm512_add_pd(_mm512_loadu_pd(in->tokens + r),
			    _mm512_max_pd(cached, _mm512_set1_pd(in->isl)));
	raw = pow2 ? _mm512_mul_pd(raw, _mm512_set1_pd(in->inv_block))
		   : _mm512_div_pd(raw, _mm512_set1_pd(in->block));
	pre = _mm512_sub_pd(raw, _mm512_mul_pd(_mm512_set1_pd(in->credit), dev));
	pre = _mm512_mul_pd(_mm512_set1_pd(in->scale), _mm512_max_pd(pre, _mm512_setzero_pd()));
	blocks = _mm256_add_epi32(blocks, _mm256_sub_epi32(n, depth));
	return _mm512_add_pd(pre, _mm512_cvtepu32_pd(blocks));
}

I512 __m512d cost_step512(const struct cost_in *in, uint32_t r, __m512d dev, bool plain, bool pow2)
{
	const __m512d zero = _mm512_setzero_pd();
	struct lanes512 l = {.dev = dev, .eff = dev, .decay = _mm512_set1_pd(1)};
	__m512d cached, raw = zero, credit, dec, pre;

	if (!plain)
		tier_sum512(in, r, &l);
	cached = _mm512_mul_pd(l.eff, _mm512_set1_pd(in->block));
	cached = _mm512_roundscale_pd(_mm512_add_pd(cached, _mm512_set1_pd(0.5)),
				      _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
	if (in->track)
		raw = _mm512_add_pd(_mm512_loadu_pd(in->tokens + r),
				    _mm512_max_pd(cached, _mm512_set1_pd(in->isl)));
	raw = pow2 ? _mm512_mul_pd(raw, _mm512_set1_pd(in->inv_block))
		   : _mm512_div_pd(raw, _mm512_set1_pd(in->block));
	credit = credit_step512(in, r, &l, plain);
	dec = _mm512_add_pd(load_u32x8(in->blocks + r),
			    _mm512_sub_pd(_mm512_set1_pd(in->n), load_u32x8(in->depth + r)));
	pre = _mm512_max_pd(_mm512_sub_pd(in->cache_lowers_decode ? dec : raw, credit), zero);
	if (in->cache_lowers_decode)
		dec = zero;
	else
		pre = _mm512_mul_pd(_mm512_set1_pd(in->scale), pre);
	dec = _mm512_add_pd(pre, dec);
	dec = _mm512_add_pd(
		dec, _mm512_mul_pd(_mm512_set1_pd(in->request_w), load_u32x8(in->requests + r)));
	if (!plain && in->mult != NULL)
		dec = _mm512_mul_pd(dec, _mm512_loadu_pd(in->mult + r));
	return dec;
}

/* A local copy of the input keeps constants in registers: stores to cost[] cannot alias it. */
I512 double cost_loop512(const struct cost_in *from, double *restrict cost, uint32_t *top,
			 bool lean, bool plain, bool pow2)
{
	const struct cost_in copy = *from, *in = &copy;
	__m512d low = _mm512_set1_pd(INFINITY), most = _mm512_setzero_pd();

	for (uint32_t r = 0; r < in->words * 64; r += 8) {
		__mmask8 m = (__mmask8)(in->mask[r / 64] >> r % 64);
		__m512d dev = load_u32x8(in->tier[0] + r);
		__m512d c = lean ? cost_lean512(in, r, dev, pow2)
				 : cost_step512(in, r, dev, plain, pow2);

		c = _mm512_mask_mov_pd(_mm512_set1_pd(INFINITY), m, c);
		_mm512_storeu_pd(cost + r, c);
		low = _mm512_min_pd(low, c);
		most = _mm512_mask_max_pd(most, m, most, dev);
	}
	*top = (uint32_t)_mm512_reduce_max_pd(most);
	return _mm512_reduce_min_pd(low);
}

T512 static double cost_avx512(const struct cost_in *in, double *cost, uint32_t *top)
{
	if (in->plain && in->track && !in->cache_lowers_decode && in->request_w == 0)
		return in->pow2 ? cost_loop512(in, cost, top, true, true, true)
				: cost_loop512(in, cost, top, true, true, false);
	if (in->plain)
		return in->pow2 ? cost_loop512(in, cost, top, false, true, true)
				: cost_loop512(in, cost, top, false, true, false);
	return in->pow2 ? cost_loop512(in, cost, top, false, false, true)
			: cost_loop512(in, cost, top, false, false, false);
}

/* ---- AVX2: 4 ranks per step--------------------------------------------------------------- */

#define T256 __attribute__((target("avx2")))
#define I256 T256 static inline __attribute__((always_inline))

/* AVX2 lacks an unsigned conversion; block counts are far below 2^31. */
I256 __m256d load_u32x4(const uint32_t *p)
{
	return _mm256_cvtepi32_pd(_mm_loadu_si128((const __m128i *)p));
}

struct lanes256 {
	__m256d dev, host, disk, ext, decay, eff;
};

I256 void tier_sum256(const struct cost_in *in, uint32_t r, struct lanes256 *l)
{
	const __m256d one = _mm256_set1_pd(1), dw = _mm256_set1_pd(in->disk_w);
	__m256d x;

	l->host = load_u32x4(in->tier[1] + r);
	l->disk = load_u32x4(in->tier[2] + r);
	l->ext = load_u32x4(in->tier[3] + r);
	l->eff = _mm256_add_pd(l->dev, _mm256_mul_pd(l->host, _mm256_set1_pd(in->host_w)));
	l->eff = _mm256_add_pd(l->eff, _mm256_mul_pd(l->disk, dw));
	l->eff = _mm256_add_pd(l->eff, _mm256_mul_pd(l->ext, dw));
	if (!(in->decay > 0 && in->track))
		return;
	x = _mm256_sub_pd(_mm256_loadu_pd(in->tokens + r), _mm256_set1_pd(in->min_tokens));
	x = _mm256_div_pd(x, _mm256_set1_pd(in->block));
	x = _mm256_div_pd(x, _mm256_set1_pd(in->request_blocks));
	x = _mm256_add_pd(one, _mm256_mul_pd(_mm256_set1_pd(in->decay), x));
	l->decay = _mm256_div_pd(one, x);
}

I256 __m256d credit_step256(const struct cost_in *in, uint32_t r, const struct lanes256 *l,
			    bool plain)
{
	__m256d c = _mm256_mul_pd(_mm256_mul_pd(_mm256_set1_pd(in->credit), l->decay), l->dev);

	if (plain)
		return c;
	c = _mm256_add_pd(c, _mm256_mul_pd(l->host, _mm256_set1_pd(in->host_w)));
	c = _mm256_add_pd(
		c, _mm256_mul_pd(_mm256_add_pd(l->disk, l->ext), _mm256_set1_pd(in->disk_w)));
	if (in->shared != NULL)
		c = _mm256_add_pd(
			c, _mm256_mul_pd(_mm256_set1_pd(in->shared_w), load_u32x4(in->shared + r)));
	return c;
}

/* As cost_lean512(). */
I256 __m256d cost_lean256(const struct cost_in *in, uint32_t r, __m256d dev, bool pow2)
{
	const __m128i n = _mm_set1_epi32((int)(uint32_t)in->n);
	__m128i blocks = _mm_loadu_si128((const __m128i *)(in->blocks + r));
	__m128i depth = _mm_loadu_si128((const __m128i *)(in->depth + r));
	__m256d cached = _mm256_mul_pd(dev, _mm256_set1_pd(in->block)), raw, pre;

	raw = _mm256_add_pd(_mm256_loadu_pd(in->tokens + r),
			    _mm256_max_pd(cached, _mm256_set1_pd(in->isl)));
	raw = pow2 ? _mm256_mul_pd(raw, _mm256_set1_pd(in->inv_block))
		   : _mm256_div_pd(raw, _mm256_set1_pd(in->block));
	pre = _mm256_sub_pd(raw, _mm256_mul_pd(_mm256_set1_pd(in->credit), dev));
	pre = _mm256_mul_pd(_mm256_set1_pd(in->scale), _mm256_max_pd(pre, _mm256_setzero_pd()));
	blocks = _mm_add_epi32(blocks, _mm_sub_epi32(n, depth));
	return _mm256_add_pd(pre, _mm256_cvtepi32_pd(blocks));
}

I256 __m256d cost_step256(const struct cost_in *in, uint32_t r, __m256d dev, bool plain, bool pow2)
{
	const __m256d zero = _mm256_setzero_pd();
	struct lanes256 l = {.dev = dev, .eff = dev, .decay = _mm256_set1_pd(1)};
	__m256d cached, raw = zero, credit, dec, pre;

	if (!plain)
		tier_sum256(in, r, &l);
	cached = _mm256_mul_pd(l.eff, _mm256_set1_pd(in->block));
	cached = _mm256_floor_pd(_mm256_add_pd(cached, _mm256_set1_pd(0.5)));
	if (in->track)
		raw = _mm256_add_pd(_mm256_loadu_pd(in->tokens + r),
				    _mm256_max_pd(cached, _mm256_set1_pd(in->isl)));
	raw = pow2 ? _mm256_mul_pd(raw, _mm256_set1_pd(in->inv_block))
		   : _mm256_div_pd(raw, _mm256_set1_pd(in->block));
	credit = credit_step256(in, r, &l, plain);
	dec = _mm256_add_pd(load_u32x4(in->blocks + r),
			    _mm256_sub_pd(_mm256_set1_pd(in->n), load_u32x4(in->depth + r)));
	pre = _mm256_max_pd(_mm256_sub_pd(in->cache_lowers_decode ? dec : raw, credit), zero);
	if (in->cache_lowers_decode)
		dec = zero;
	else
		pre = _mm256_mul_pd(_mm256_set1_pd(in->scale), pre);
	dec = _mm256_add_pd(pre, dec);
	dec = _mm256_add_pd(
		dec, _mm256_mul_pd(_mm256_set1_pd(in->request_w), load_u32x4(in->requests + r)));
	if (!plain && in->mult != NULL)
		dec = _mm256_mul_pd(dec, _mm256_loadu_pd(in->mult + r));
	return dec;
}

I256 double cost_loop256(const struct cost_in *from, double *restrict cost, uint32_t *top,
			 bool lean, bool plain, bool pow2)
{
	const struct cost_in copy = *from, *in = &copy;
	const __m256d inf = _mm256_set1_pd(INFINITY);
	const __m256i lane = _mm256_setr_epi64x(1, 2, 4, 8);
	__m256d low = inf, most = _mm256_setzero_pd();
	double v[4];

	for (uint32_t r = 0; r < in->words * 64; r += 4) {
		__m256i b = _mm256_set1_epi64x((long long)(in->mask[r / 64] >> r % 64 & 0xF));
		__m256i m = _mm256_cmpeq_epi64(_mm256_and_si256(b, lane), lane);
		__m256d dev = load_u32x4(in->tier[0] + r);
		__m256d c = lean ? cost_lean256(in, r, dev, pow2)
				 : cost_step256(in, r, dev, plain, pow2);

		c = _mm256_blendv_pd(inf, c, _mm256_castsi256_pd(m));
		_mm256_storeu_pd(cost + r, c);
		low = _mm256_min_pd(low, c);
		most = _mm256_max_pd(most, _mm256_and_pd(dev, _mm256_castsi256_pd(m)));
	}
	_mm256_storeu_pd(v, most);
	v[0] = v[1] > v[0] ? v[1] : v[0];
	v[2] = v[3] > v[2] ? v[3] : v[2];
	*top = (uint32_t)(v[2] > v[0] ? v[2] : v[0]);
	_mm256_storeu_pd(v, low);
	v[0] = v[1] < v[0] ? v[1] : v[0];
	v[2] = v[3] < v[2] ? v[3] : v[2];
	return v[2] < v[0] ? v[2] : v[0];
}

T256 static double cost_avx2(const struct cost_in *in, double *cost, uint32_t *top)
{
	if (in->plain && in->track && !in->cache_lowers_decode && in->request_w == 0)
		return in->pow2 ? cost_loop256(in, cost, top, true, true, true)
				: cost_loop256(in, cost, top, true, true, false);
	if (in->plain)
		return in->pow2 ? cost_loop256(in, cost, top, false, true, true)
				: cost_loop256(in, cost, top, false, true, false);
	return in->pow2 ? cost_loop256(in, cost, top, false, false, true)
			: cost_loop256(in, cost, top, false, false, false);
}

kvr_sched__cost_fn kvr_sched__cost_kernel(enum sched_isa isa)
{
	return isa == SCHED_AVX512 ? cost_avx512 : isa == SCHED_AVX2 ? cost_avx2 : cost_scalar;
}
