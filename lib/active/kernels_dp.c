/* SPDX-License-Identifier: BSD-3-Clause */
/* The two loops over hashes and ranks, per instruction set; tested equal. */
#include "active_pvt.h"

#include <immintrin.h>
#include <string.h>

static uint32_t same_scalar(const uint64_t *a, const void *b, uint32_t n)
{
	const char *p = b;
	uint32_t i;

	for (i = 0; i < n; i++) {
		uint64_t h;

		memcpy(&h, p + 8 * (size_t)i, 8);
		if (a[i] != h)
			break;
	}
	return i;
}

static void spread_scalar(const uint64_t *set, uint32_t words, uint32_t value, uint32_t *out)
{
	for (uint32_t w = 0; w < words; w++)
		for (uint64_t bits = set[w]; bits != 0; bits &= bits - 1)
			out[w * 64 + (uint32_t)__builtin_ctzll(bits)] = value;
}

__attribute__((target("avx2"))) static uint32_t same_avx2(const uint64_t *a, const void *b,
							  uint32_t n)
{
	const char *p = b;
	uint32_t i;

	for (i = 0; i + 4 <= n; i += 4) {
		__m256i x = _mm256_loadu_si256((const __m256i *)(a + i));
		__m256i y = _mm256_loadu_si256((const __m256i *)(p + 8 * (size_t)i));
		uint32_t eq =
			(uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(x, y)));

		if (eq != 0xF)
			return i + (uint32_t)__builtin_ctz(~eq);
	}
	return i + same_scalar(a + i, p + 8 * (size_t)i, n - i);
}

#define FEW 8 /* bits of a word: one by one they take less than groups of eight lanes */

__attribute__((target("avx2"))) static void spread_avx2(const uint64_t *set, uint32_t words,
							uint32_t value, uint32_t *out)
{
	const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
	const __m256i v = _mm256_set1_epi32((int)value);

	for (uint32_t w = 0; w < words; w++) {
		uint64_t bits = set[w];

		if (__builtin_popcountll(bits) <= FEW) {
			spread_scalar(&bits, 1, value, out + w * 64);
			continue;
		}
		for (uint32_t i = 0; bits != 0; i += 8, bits >>= 8) {
			__m256i b = _mm256_set1_epi32((int)(bits & 0xFF));
			__m256i m = _mm256_cmpeq_epi32(_mm256_and_si256(b, lane), lane);
			__m256i *o = (__m256i *)(void *)(out + w * 64 + i);

			/* Nobody else writes there, and a masked store takes many steps. */
			_mm256_storeu_si256(o, _mm256_blendv_epi8(_mm256_loadu_si256(o), v, m));
		}
	}
}

__attribute__((target("avx512f"))) static uint32_t same_avx512(const uint64_t *a, const void *b,
							       uint32_t n)
{
	const char *p = b;

	for (uint32_t i = 0; i < n; i += 8) {
		__mmask8 m = (__mmask8)(n - i < 8 ? (1u << (n - i)) - 1 : 0xFF);
		__m512i x = _mm512_maskz_loadu_epi64(m, a + i);
		__m512i y = _mm512_maskz_loadu_epi64(m, p + 8 * (size_t)i);
		__mmask8 ne = _mm512_mask_cmpneq_epi64_mask(m, x, y);

		if (ne != 0)
			return i + (uint32_t)__builtin_ctz(ne);
	}
	return n;
}

__attribute__((target("avx512f"))) static void spread_avx512(const uint64_t *set, uint32_t words,
							     uint32_t value, uint32_t *out)
{
	const __m512i v = _mm512_set1_epi32((int)value);

	for (uint32_t w = 0; w < words; w++) {
		uint64_t bits = set[w];
		uint32_t *o = out + w * 64;

		if (bits == 0)
			continue;
		_mm512_mask_storeu_epi32(o, (__mmask16)bits, v);
		_mm512_mask_storeu_epi32(o + 16, (__mmask16)(bits >> 16), v);
		_mm512_mask_storeu_epi32(o + 32, (__mmask16)(bits >> 32), v);
		_mm512_mask_storeu_epi32(o + 48, (__mmask16)(bits >> 48), v);
	}
}

bool kvr_active__kernels(enum active_isa isa, active_same_fn *same, active_spread_fn *spread)
{
	__builtin_cpu_init();
	if (isa == ACTIVE_AVX512 && __builtin_cpu_supports("avx512f")) {
		*same = same_avx512;
		*spread = spread_avx512;
		return true;
	}
	if (isa == ACTIVE_AVX2 && __builtin_cpu_supports("avx2")) {
		*same = same_avx2;
		*spread = spread_avx2;
		return true;
	}
	*same = same_scalar;
	*spread = spread_scalar;
	return isa == ACTIVE_SCALAR;
}
