/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of numbers with AVX-512 VBMI, which permutes 64 bytes at once.
 *
 * Tokens: the start of a number depends on the one before it. For each place of a window, as if a
 * number started there, the code computes the place of the next number (n1), of the one after that
 * (n2 = n1 of n1), of the fourth, eighth and so on:
 *
 *	place    0   1   2   3   4   5   6   7 ...
 *	byte    cd  ..  ..  ce  ..  ..  ..  ..
 *	n1       3   4   5   8   7   8   9  10
 *	n2       8 ...
 *
 * The k-th number of the window is then found by one permutation for each bit of k, for all k at
 * once. One more gives the start of the next window. Windows depend on each other only by that
 * shift.
 */
#include "kvev_pvt.h"

#ifdef __x86_64__
#include <immintrin.h>

#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,bmi2,popcnt")))
#define W                                                                                          \
	59u /* places of a window where a number may start; it may end in the five behind, where   \
	       the next window begins */
#define BAD 0x80

bool kvr_kvev__has_avx512(void)
{
	return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("bmi2");
}

struct window {
	__m512i bytes;
	__m512i n1, n2, n4, n8, n16;
	__m512i kind;	/* of a number that starts there: 0 five bytes, 16 three bytes, BAD other */
	uint64_t exits; /* one byte for each of the first places: start in the next window, times
			   eight */
};

WIDE static inline void load_window(struct window *w, const uint8_t *p)
{
	static const uint8_t follow[64] = {3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
					   16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
					   29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41,
					   42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54,
					   55, 56, 57, 58, 59, 60, 61, 59, 60, 61, 62, 63};
	const __m512i base = _mm512_loadu_si512(follow);
	const __m512i v = _mm512_loadu_si512(p);
	const __mmask64 five = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8((char)0xce));
	const __mmask64 three = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8((char)0xcd));
	__m512i n20;

	w->bytes = v;
	w->n1 = _mm512_mask_add_epi8(base, five & ((UINT64_C(1) << W) - 1), base,
				     _mm512_set1_epi8(2));
	w->n2 = _mm512_permutexvar_epi8(w->n1, w->n1);
	w->n4 = _mm512_permutexvar_epi8(w->n2, w->n2);
	w->n8 = _mm512_permutexvar_epi8(w->n4, w->n4);
	w->n16 = _mm512_permutexvar_epi8(w->n8, w->n8);
	n20 = _mm512_permutexvar_epi8(w->n4, w->n16);
	w->exits = (uint64_t)_mm_cvtsi128_si64(
		_mm_slli_epi16(_mm_sub_epi8(_mm512_castsi512_si128(n20), _mm_set1_epi8(W)), 3));
	w->kind = _mm512_mask_mov_epi8(_mm512_set1_epi8((char)BAD), three, _mm512_set1_epi8(16));
	w->kind = _mm512_mask_mov_epi8(w->kind, five, _mm512_setzero_si512());
}

/* Places of the numbers 0..31 of a window whose first number starts at @p first. */
WIDE static inline __m512i find_starts(const struct window *w, uint32_t first)
{
	__m512i at = _mm512_set1_epi8((char)first);

	at = _mm512_mask_permutexvar_epi8(at, 0xaaaaaaaa, at, w->n1);
	at = _mm512_mask_permutexvar_epi8(at, 0xcccccccc, at, w->n2);
	at = _mm512_mask_permutexvar_epi8(at, 0xf0f0f0f0, at, w->n4);
	at = _mm512_mask_permutexvar_epi8(at, 0xff00ff00, at, w->n8);
	return _mm512_mask_permutexvar_epi8(at, 0xffff0000, at, w->n16);
}

/* Read sixteen numbers from index @p from on. @return a mask of the numbers of another size. */
WIDE static inline uint32_t read_sixteen(const struct window *w, __m512i at, uint32_t from,
					 uint32_t *out)
{
	const __m512i four = _mm512_set_epi8(15, 15, 15, 15, 14, 14, 14, 14, 13, 13, 13, 13, 12, 12,
					     12, 12, 11, 11, 11, 11, 10, 10, 10, 10, 9, 9, 9, 9, 8,
					     8, 8, 8, 7, 7, 7, 7, 6, 6, 6, 6, 5, 5, 5, 5, 4, 4, 4,
					     4, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
	const __m512i which = _mm512_add_epi8(four, _mm512_set1_epi8((char)from));
	const __m512i start = _mm512_permutexvar_epi8(which, at);
	const __m512i order = _mm512_add_epi8(start, _mm512_set1_epi32(0x01020304));
	const __m512i kind =
		_mm512_maskz_permutexvar_epi8(UINT64_C(0x1111111111111111), start, w->kind);
	const __m512i v = _mm512_permutexvar_epi8(order, w->bytes);

	_mm512_storeu_si512(out, _mm512_srlv_epi32(v, kind));
	return _mm512_test_epi32_mask(kind, _mm512_set1_epi32(BAD));
}

WIDE uint64_t kvr_kvev__tokens_wide(const uint8_t **at, const uint8_t *end, uint64_t n,
				    uint32_t *out)
{
	const uint8_t *p = *at;
	uint32_t first = 0; /* place of the window's first number, times eight */
	uint64_t i = 0;

	while (end - p >= 64 && n - i >= KVEV_WIDE_LEAST) {
		uint32_t taken, other;
		struct window w;
		__m512i start;

		kvr_prefetch(p + 1024);
		load_window(&w, p);
		start = find_starts(&w, first / 8);
		taken = (uint32_t)__builtin_popcount(
			(uint32_t)_mm512_cmplt_epu8_mask(start, _mm512_set1_epi8(W)));
		other = read_sixteen(&w, start, 0, out + i);
		if (taken > 16)
			other |= read_sixteen(&w, start, 16, out + i + 16) << 16;
		other &= (1u << taken) - 1; /* at most 20: 59 bytes in threes */
		if (other != 0) {
			uint8_t place[64];

			_mm512_storeu_si512(place, start);
			taken = (uint32_t)__builtin_ctz(other);
			*at = p + place[taken];
			return i + taken;
		}
		i += taken;
		p += W;
		first = (uint32_t)(w.exits >> first) & 0xff;
	}
	*at = p + first / 8;
	return i;
}

/* Read names: eight bytes behind a type byte, seven names in 63 bytes. */
WIDE uint64_t kvr_kvev__names_wide(const uint8_t **at, const uint8_t *end, uint64_t n,
				   uint64_t *out)
{
	static const uint8_t turned[64] = {8,  7,  6,  5,  4,  3,  2,  1,  17, 16, 15, 14, 13, 12,
					   11, 10, 26, 25, 24, 23, 22, 21, 20, 19, 35, 34, 33, 32,
					   31, 30, 29, 28, 44, 43, 42, 41, 40, 39, 38, 37, 53, 52,
					   51, 50, 49, 48, 47, 46, 62, 61, 60, 59, 58, 57, 56, 55};
	const __m512i order = _mm512_loadu_si512(turned);
	const uint64_t starts = UINT64_C(0x0040201008040201);
	const uint8_t *p = *at;
	uint64_t i = 0;

	for (; end - p >= 64 && n - i >= 8; i += 7, p += 63) {
		const __m512i v = _mm512_loadu_si512(p);
		const __mmask64 are = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8((char)0xcf)) |
				      _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8((char)0xd3));

		if ((are & starts) != starts)
			break;
		_mm512_storeu_si512(out + i, _mm512_permutexvar_epi8(order, v));
	}
	*at = p;
	return i;
}
#else
bool kvr_kvev__has_avx512(void)
{
	return false;
}

uint64_t kvr_kvev__tokens_wide(const uint8_t **at, const uint8_t *end, uint64_t n, uint32_t *out)
{
	return 0;
}

uint64_t kvr_kvev__names_wide(const uint8_t **at, const uint8_t *end, uint64_t n, uint64_t *out)
{
	return 0;
}
#endif
