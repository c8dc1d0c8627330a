/* SPDX-License-Identifier: BSD-3-Clause */

/* Scoring with AVX-512: sixteen ranks or eight SHs per operation. */

#include "prefix_pvt.h"

#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(                                                                      \
	__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi,bmi2,lzcnt,popcnt"))),  \
	apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi,bmi2,lzcnt,popcnt")
#endif

static inline void vec_spread(uint32_t *out, const uint64_t *bits, uint32_t lanes, uint32_t v,
			      bool fill)
{
	const __m512i value = _mm512_set1_epi32((int)v);

	for (uint32_t r = 0; r < lanes; r += 16) {
		__mmask16 m = (__mmask16)(bits[r / 64] >> (r % 64));

		if (fill)
			_mm512_storeu_si512(&out[r], _mm512_maskz_mov_epi32(m, value));
		else if (m != 0)
			_mm512_mask_storeu_epi32(&out[r], m, value);
	}
}

static inline void vec_max(uint32_t *to, const uint32_t *from, uint32_t lanes)
{
	for (uint32_t r = 0; r < lanes; r += 16)
		_mm512_storeu_si512(&to[r], _mm512_max_epu32(_mm512_loadu_si512(&to[r]),
							     _mm512_loadu_si512(&from[r])));
}

static inline uint32_t vec_same(const uint64_t *p, const void *q, uint32_t n)
{
	for (uint32_t i = 0; i < n; i += 8) {
		__mmask8 in = (__mmask8)(n - i < 8 ? (1u << (n - i)) - 1 : 0xff);
		__m512i a = _mm512_maskz_loadu_epi64(in, &p[i]);
		__m512i b = _mm512_maskz_loadu_epi64(in, (const char *)q + i * 8);
		uint32_t m = _mm512_mask_cmpneq_epi64_mask(in, a, b);

		if (m != 0)
			return i + (uint32_t)__builtin_ctz(m);
	}
	return n;
}

#define SCORE_BURST kvr_prefix__score_avx512
#include "score_pvt.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
