/* SPDX-License-Identifier: BSD-3-Clause */

/* Scoring with AVX2: eight ranks or four SHs per operation. */

#include "prefix_pvt.h"

#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt"))),                \
			     apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2,lzcnt,popcnt")
#endif

static inline void vec_spread(uint32_t *out, const uint64_t *bits, uint32_t lanes, uint32_t v,
			      bool fill)
{
	const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
	const __m256i value = _mm256_set1_epi32((int)v);

	for (uint32_t r = 0; r < lanes; r += 8) {
		int b = (int)(bits[r / 64] >> (r % 64) & 0xff);
		__m256i m = _mm256_and_si256(_mm256_set1_epi32(b), lane);
		__m256i *o = (__m256i *)&out[r];

		m = _mm256_cmpeq_epi32(m, lane);
		if (fill)
			_mm256_storeu_si256(o, _mm256_and_si256(m, value));
		else if (b != 0) /* plain store: the memory belongs to this reader, and a masked
				    store is slow */
			_mm256_storeu_si256(o, _mm256_blendv_epi8(_mm256_loadu_si256(o), value, m));
	}
}

static inline void vec_max(uint32_t *to, const uint32_t *from, uint32_t lanes)
{
	for (uint32_t r = 0; r < lanes; r += 8) {
		__m256i a = _mm256_loadu_si256((const __m256i *)&to[r]);
		__m256i b = _mm256_loadu_si256((const __m256i *)&from[r]);

		_mm256_storeu_si256((__m256i *)&to[r], _mm256_max_epu32(a, b));
	}
}

static inline uint32_t vec_same(const uint64_t *p, const void *q, uint32_t n)
{
	uint32_t i = 0;

	for (; i + 4 <= n; i += 4) {
		__m256i a = _mm256_loadu_si256((const __m256i *)&p[i]);
		__m256i b = _mm256_loadu_si256((const __m256i *)((const char *)q + i * 8));
		uint32_t m =
			(uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(a, b)));

		if (m != 0xf)
			return i + (uint32_t)__builtin_ctz(~m);
	}
	while (i < n && pfx_rd(&p[i]) == pfx_ld64(q, i))
		i++;
	return i;
}

#define SCORE_BURST kvr_prefix__score_avx2
#include "score_pvt.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
