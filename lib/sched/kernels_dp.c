/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loops over ranks except costs (equal, max, first, any_free, weights), and the set of loops of
 * each instruction set. As in cost_dp.c, all use the same operations in the same order, without
 * contraction to fused multiply-add, so results are bitwise identical.
 */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include "sched_pvt.h"

#include <immintrin.h>

#define T512 __attribute__((target("avx512f")))
#define T256 __attribute__((target("avx2")))

static uint32_t equal_scalar(const double *cost, double v, uint32_t words, uint64_t *out)
{
	uint32_t n = 0;

	for (uint32_t w = 0; w < words; w++) {
		out[w] = 0;
		for (uint32_t i = 0; i < 64; i++)
			out[w] |= (uint64_t)(cost[w * 64 + i] == v) << i;
		n += (uint32_t)__builtin_popcountll(out[w]);
	}
	return n;
}

static uint32_t max_scalar(const uint32_t *v, const uint64_t *mask, uint32_t words)
{
	uint32_t most = 0;

	for (uint32_t w = 0; w < words; w++)
		for (uint64_t bits = mask[w]; bits != 0; bits &= bits - 1) {
			uint32_t x = v[w * 64 + (uint32_t)__builtin_ctzll(bits)];

			most = x > most ? x : most;
		}
	return most;
}

static uint32_t first_scalar(const uint32_t *v, uint32_t want, const uint64_t *mask, uint32_t words,
			     const uint32_t *place)
{
	uint32_t first = NIL;

	for (uint32_t w = 0; w < words; w++)
		for (uint64_t bits = mask[w]; bits != 0; bits &= bits - 1) {
			uint32_t r = w * 64 + (uint32_t)__builtin_ctzll(bits);

			if (v[r] == want && place[r] < first)
				first = place[r];
		}
	return first;
}

static bool any_free_scalar(const double *tokens, const double *limit, const uint64_t *mask,
			    uint32_t words)
{
	for (uint32_t w = 0; w < words; w++)
		for (uint64_t bits = mask[w]; bits != 0; bits &= bits - 1) {
			uint32_t r = w * 64 + (uint32_t)__builtin_ctzll(bits);

			if (tokens[r] <= limit[r])
				return true;
		}
	return false;
}

/* ---- AVX-512 ----------------------------------------------------------------------------- */

T512 static uint32_t equal_avx512(const double *cost, double v, uint32_t words, uint64_t *out)
{
	const __m512d want = _mm512_set1_pd(v);
	uint32_t n = 0;

	for (uint32_t w = 0; w < words; w++) {
		uint64_t bits = 0;

		for (uint32_t i = 0; i < 64; i += 8)
			bits |= (uint64_t)_mm512_cmp_pd_mask(_mm512_loadu_pd(cost + w * 64 + i),
							     want, _CMP_EQ_OQ)
				<< i;
		out[w] = bits;
		n += (uint32_t)__builtin_popcountll(bits);
	}
	return n;
}

T512 static uint32_t max_avx512(const uint32_t *v, const uint64_t *mask, uint32_t words)
{
	__m512i most = _mm512_setzero_si512();

	for (uint32_t r = 0; r < words * 64; r += 16)
		most = _mm512_max_epu32(
			most, _mm512_maskz_loadu_epi32((__mmask16)(mask[r / 64] >> r % 64), v + r));
	return _mm512_reduce_max_epu32(most);
}

T512 static uint32_t first_avx512(const uint32_t *v, uint32_t want, const uint64_t *mask,
				  uint32_t words, const uint32_t *place)
{
	const __m512i x = _mm512_set1_epi32((int)want);
	__m512i first = _mm512_set1_epi32(-1);

	for (uint32_t r = 0; r < words * 64; r += 16) {
		__mmask16 m = (__mmask16)(mask[r / 64] >> r % 64);

		m = _mm512_mask_cmpeq_epi32_mask(m, _mm512_loadu_si512(v + r), x);
		first = _mm512_mask_min_epu32(first, m, first, _mm512_loadu_si512(place + r));
	}
	return _mm512_reduce_min_epu32(first);
}

T512 static bool any_free_avx512(const double *tokens, const double *limit, const uint64_t *mask,
				 uint32_t words)
{
	for (uint32_t r = 0; r < words * 64; r += 8) {
		__mmask8 m = (__mmask8)(mask[r / 64] >> r % 64);

		if (_mm512_mask_cmp_pd_mask(m, _mm512_loadu_pd(tokens + r),
					    _mm512_loadu_pd(limit + r), _CMP_LE_OQ))
			return true;
	}
	return false;
}

/* ---- AVX2 -------------------------------------------------------------------------------- */

T256 static uint32_t equal_avx2(const double *cost, double v, uint32_t words, uint64_t *out)
{
	const __m256d want = _mm256_set1_pd(v);
	uint32_t n = 0;

	for (uint32_t w = 0; w < words; w++) {
		uint64_t bits = 0;

		for (uint32_t i = 0; i < 64; i += 4) {
			__m256d c = _mm256_loadu_pd(cost + w * 64 + i);

			bits |= (uint64_t)_mm256_movemask_pd(_mm256_cmp_pd(c, want, _CMP_EQ_OQ))
				<< i;
		}
		out[w] = bits;
		n += (uint32_t)__builtin_popcountll(bits);
	}
	return n;
}

/* Set all bits of each of eight lanes whose mask bit is set. */
T256 static inline __attribute__((always_inline)) __m256i expand_mask8(const uint64_t *mask,
								       uint32_t r)
{
	const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
	__m256i b = _mm256_set1_epi32((int)(mask[r / 64] >> r % 64 & 0xFF));

	return _mm256_cmpeq_epi32(_mm256_and_si256(b, lane), lane);
}

T256 static inline __attribute__((always_inline)) __m256i load_mask8(const uint32_t *v)
{
	return _mm256_loadu_si256((const __m256i *)(const void *)v);
}

T256 static uint32_t max_avx2(const uint32_t *v, const uint64_t *mask, uint32_t words)
{
	__m256i most = _mm256_setzero_si256();
	uint32_t x[8], top = 0;

	for (uint32_t r = 0; r < words * 64; r += 8)
		most = _mm256_max_epu32(most,
					_mm256_and_si256(load_mask8(v + r), expand_mask8(mask, r)));
	_mm256_storeu_si256((__m256i *)(void *)x, most);
	for (uint32_t i = 0; i < 8; i++)
		top = x[i] > top ? x[i] : top;
	return top;
}

T256 static uint32_t first_avx2(const uint32_t *v, uint32_t want, const uint64_t *mask,
				uint32_t words, const uint32_t *place)
{
	const __m256i wanted = _mm256_set1_epi32((int)want), ones = _mm256_set1_epi32(-1);
	__m256i first = ones, m;
	uint32_t x[8], least = NIL;

	for (uint32_t r = 0; r < words * 64; r += 8) {
		m = _mm256_and_si256(_mm256_cmpeq_epi32(load_mask8(v + r), wanted),
				     expand_mask8(mask, r));
		/* The place in matching lanes, all ones in others. */
		m = _mm256_or_si256(load_mask8(place + r), _mm256_xor_si256(m, ones));
		first = _mm256_min_epu32(first, m);
	}
	_mm256_storeu_si256((__m256i *)(void *)x, first);
	for (uint32_t i = 0; i < 8; i++)
		least = x[i] < least ? x[i] : least;
	return least;
}

T256 static bool any_free_avx2(const double *tokens, const double *limit, const uint64_t *mask,
			       uint32_t words)
{
	for (uint32_t r = 0; r < words * 64; r += 4) {
		__m256d le = _mm256_cmp_pd(_mm256_loadu_pd(tokens + r), _mm256_loadu_pd(limit + r),
					   _CMP_LE_OQ);

		if ((uint64_t)_mm256_movemask_pd(le) & mask[r / 64] >> r % 64)
			return true;
	}
	return false;
}

/* ---- softmax weights --------------------------------------------------------------------- */

/*
 * e^-x for x >= 0 to 1e-9, without branches or calls, so that the loop below vectorizes: 2^(k+f)
 * with |f| <= 1/2 by its power series; k is added to the exponent bits.
 */
static inline __attribute__((always_inline)) double exp_negative(double x)
{
	const double magic = 0x1.8p52; /* adding it leaves round(t) in the low bits */
	double t = x * -1.4426950408889634, y, f, p;
	uint64_t bits;

	t = t > -1000 ? t : -1000;
	y = t + magic;
	f = (t - (y - magic)) * 0.6931471805599453;
	p = 1 +
	    f * (1 +
		 f * (0.5 + f * (1 / 6. +
				 f * (1 / 24. +
				      f * (1 / 120. +
					   f * (1 / 720. + f * (1 / 5040. + f * (1 / 40320.))))))));
	memcpy(&bits, &y, 8);
	bits = (bits + 1023) << 52;
	memcpy(&y, &bits, 8);
	return p * y;
}

/* Eight partial sums per word in a fixed order, the same for every instruction set. */
static inline __attribute__((always_inline)) double
weights_body(double *cost, uint32_t words, double low, double width, double *sums)
{
	double total = 0;

	for (uint32_t w = 0; w < words; w++) {
		double acc[8] = {0}, *c = cost + w * 64;

		for (uint32_t i = 0; i < 64; i += 8)
			for (uint32_t j = 0; j < 8; j++) {
				double x = exp_negative((c[i + j] - low) / width);

				x = c[i + j] < INFINITY ? x : 0;
				c[i + j] = x;
				acc[j] += x;
			}
		sums[w] = ((acc[0] + acc[1]) + (acc[2] + acc[3])) +
			  ((acc[4] + acc[5]) + (acc[6] + acc[7]));
		total += sums[w];
	}
	return total;
}

static double weights_scalar(double *cost, uint32_t words, double low, double width, double *sums)
{
	return weights_body(cost, words, low, width, sums);
}

T256 static double weights_avx2(double *cost, uint32_t words, double low, double width,
				double *sums)
{
	return weights_body(cost, words, low, width, sums);
}

T512 static double weights_avx512(double *cost, uint32_t words, double low, double width,
				  double *sums)
{
	return weights_body(cost, words, low, width, sums);
}

bool kvr_sched__kernels(enum sched_isa isa, struct kernels *k)
{
	__builtin_cpu_init();
	*k = (struct kernels){kvr_sched__cost_kernel(SCHED_SCALAR),
			      equal_scalar,
			      max_scalar,
			      first_scalar,
			      any_free_scalar,
			      weights_scalar,
			      kvr_sched__ttft_kernel(SCHED_SCALAR)};
	if (isa == SCHED_AVX512 && __builtin_cpu_supports("avx512f")) {
		*k = (struct kernels){kvr_sched__cost_kernel(SCHED_AVX512),
				      equal_avx512,
				      max_avx512,
				      first_avx512,
				      any_free_avx512,
				      weights_avx512,
				      kvr_sched__ttft_kernel(SCHED_AVX512)};
		return true;
	}
	if (isa == SCHED_AVX2 && __builtin_cpu_supports("avx2")) {
		*k = (struct kernels){kvr_sched__cost_kernel(SCHED_AVX2),
				      equal_avx2,
				      max_avx2,
				      first_avx2,
				      any_free_avx2,
				      weights_avx2,
				      kvr_sched__ttft_kernel(SCHED_AVX2)};
		return true;
	}
	return isa == SCHED_SCALAR;
}
