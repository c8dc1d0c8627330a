/* SPDX-License-Identifier: BSD-3-Clause */
/* The two loops over hashes and ranks, for each instruction set. A test compares them. */
#include "active_pvt.h"

#include <immintrin.h>
#include <string.h>

static uint32_t same_scalar(const uint64_t *a, const void *b, uint32_t n, uint32_t room)
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

/*
 * If both arrays have 64 hashes, all pairs are compared before the first difference is searched.
 * Its position follows no pattern, so the end of a loop would be mispredicted, which takes longer
 * than the comparisons.
 */
#define BMI256	__attribute__((target("avx2,bmi")))
#define IBMI256 BMI256 static inline __attribute__((always_inline))

IBMI256 __m256i compare_4_pairs(const uint64_t *a, const char *p, uint32_t i)
{
	return _mm256_cmpeq_epi64(_mm256_loadu_si256((const __m256i *)(a + i)),
				  _mm256_loadu_si256((const __m256i *)(p + 8 * (size_t)i)));
}

/* Two bits for each of 32 pairs, set if they are equal. */
IBMI256 uint64_t compare_32_pairs(const uint64_t *a, const char *p)
{
	const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
	uint64_t eq = 0;

#pragma GCC unroll 2
	for (uint32_t i = 0; i < 32; i += 16) {
		__m256i x =
			_mm256_packs_epi32(compare_4_pairs(a, p, i), compare_4_pairs(a, p, i + 4));
		__m256i y = _mm256_packs_epi32(compare_4_pairs(a, p, i + 8),
					       compare_4_pairs(a, p, i + 12));

		x = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(x, y), order);
		eq |= (uint64_t)(uint32_t)_mm256_movemask_epi8(x) << 2 * i;
	}
	return eq;
}

BMI256 static uint32_t same_avx2(const uint64_t *a, const void *b, uint32_t n, uint32_t room)
{
	const char *p = b;
	uint32_t i;

	if (room >= KVR_ACTIVE_RUN) {
		uint32_t low = (uint32_t)_tzcnt_u64(~compare_32_pairs(a, p)) / 2; /* of 0: 64 */
		uint32_t high = (uint32_t)_tzcnt_u64(~compare_32_pairs(a + 32, p + 256)) / 2;

		i = low < 32 ? low : 32 + high;
		return i < n ? i : n;
	}
	for (i = 0; i + 4 <= n; i += 4) {
		__m256d x = _mm256_castsi256_pd(compare_4_pairs(a, p, i));
		uint32_t eq = (uint32_t)_mm256_movemask_pd(x);

		if (eq != 0xF)
			return i + (uint32_t)__builtin_ctz(~eq);
	}
	return i + same_scalar(a + i, p + 8 * (size_t)i, n - i, n - i);
}

#define FEW 8 /* up to this many bits of a word, single stores are faster than groups */

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

			/*
			 * Plain store: only this thread writes there, and a masked store is slow.
			 */
			_mm256_storeu_si256(o, _mm256_blendv_epi8(_mm256_loadu_si256(o), v, m));
		}
	}
}

#define BMI512 __attribute__((target("avx512f,bmi,bmi2")))

BMI512 static inline __attribute__((always_inline)) uint64_t
compare_8_pairs(const uint64_t *a, const char *p, uint32_t i, __mmask8 m)
{
	__m512i x = _mm512_maskz_loadu_epi64(m, a + i);
	__m512i y = _mm512_maskz_loadu_epi64(m, p + 8 * (size_t)i);

	return (uint64_t)_mm512_mask_cmpeq_epi64_mask(m, x, y) << i;
}

BMI512 static uint32_t same_avx512(const uint64_t *a, const void *b, uint32_t n, uint32_t room)
{
	uint64_t eq = 0;

	if (room >= KVR_ACTIVE_RUN) {
#pragma GCC unroll 8
		for (uint32_t i = 0; i < KVR_ACTIVE_RUN; i += 8)
			eq |= compare_8_pairs(a, b, i, 0xFF);
		eq = _tzcnt_u64(~eq);
		return eq < n ? (uint32_t)eq : n;
	}
	for (uint32_t i = 0; i < n; i += 8)
		eq |= compare_8_pairs(a, b, i, (__mmask8)_bzhi_u32(0xFF, n - i));
	return (uint32_t)_tzcnt_u64(~eq);
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
	bool bits;

	__builtin_cpu_init();
	bits = __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
	if (isa == ACTIVE_AVX512 && bits && __builtin_cpu_supports("avx512f")) {
		*same = same_avx512;
		*spread = spread_avx512;
		return true;
	}
	if (isa == ACTIVE_AVX2 && bits && __builtin_cpu_supports("avx2")) {
		*same = same_avx2;
		*spread = spread_avx2;
		return true;
	}
	*same = same_scalar;
	*spread = spread_scalar;
	return isa == ACTIVE_SCALAR;
}
