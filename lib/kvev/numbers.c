/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tokens: long lists of numbers of one, two, three or five bytes. The start of a number depends on
 * the length of the one before it, and this chain of dependencies limits the speed. With SSSE3, two
 * bit masks state for each of 64 bytes whether it can start a number of five or of three bytes.
 * Three consecutive numbers have one of eight shapes, which the bits behind the first number
 * determine, so that the chain has one link for three numbers:
 *
 *	bytes   ce 0 1 8 f  cd 2 7  ce 0 0 9 c
 *	five    1  . . . .  0  . .  1  . . . .     shape[five & 0x7ff] = 1 0 1, 13 bytes:
 *	                                           one shuffle
 *
 * The next link needs the length of the shape, which is stored beside it. Four links fit 64 bytes
 * in every case, so four are processed without a branch and validated afterwards. The version for
 * AVX-512 is in avx512.c.
 */
#include "kvev_pvt.h"

#ifdef __SSSE3__
#include <tmmintrin.h>

#define CHUNK  64
#define NEEDED 80 /* bytes: the last three numbers of a chunk are read by a 16-byte load */
#define BITS   11 /* the third number starts at byte 10 at the latest */
#define LINKS  4  /* per chunk: the last one starts at byte 45 at the latest */

/* Whether the first, second and third number has five bytes, from the bits of `five`. */
#define FIRST(m)  ((m)&1)
#define SECOND(m) ((m) >> (3 + 2 * FIRST(m)) & 1)
#define THIRD(m)  ((m) >> (6 + 2 * (FIRST(m) + SECOND(m))) & 1)
#define KIND(m)	  (FIRST(m) | SECOND(m) << 1 | THIRD(m) << 2)
#define LEN(m)	  (9 + 2 * (FIRST(m) + SECOND(m) + THIRD(m)))
#define SHAPE(m)  (KIND(m) | LEN(m) << 4)
#define S4(m)	  SHAPE(m), SHAPE((m) + 1), SHAPE((m) + 2), SHAPE((m) + 3)
#define S16(m)	  S4(m), S4((m) + 4), S4((m) + 8), S4((m) + 12)
#define S64(m)	  S16(m), S16((m) + 16), S16((m) + 32), S16((m) + 48)
#define S256(m)	  S64(m), S64((m) + 64), S64((m) + 128), S64((m) + 192)
#define S1024(m)  S256(m), S256((m) + 256), S256((m) + 512), S256((m) + 768)

static const uint8_t shape[1 << BITS] = {S1024(0), S1024(1024)};

/* Shuffle of each shape, and a mask of the places where its numbers start. */
#define SHORT_AT(i) (i) + 2, (i) + 1, -1, -1
#define LONG_AT(i)  (i) + 4, (i) + 3, (i) + 2, (i) + 1
#define NOTHING	    -1, -1, -1, -1
static const struct {
	_Alignas(16) int8_t shuffle[16];
	uint32_t starts;
} shapes[8] = {
	{{SHORT_AT(0), SHORT_AT(3), SHORT_AT(6), NOTHING}, 1 | 1 << 3 | 1 << 6},
	{{LONG_AT(0), SHORT_AT(5), SHORT_AT(8), NOTHING}, 1 | 1 << 5 | 1 << 8},
	{{SHORT_AT(0), LONG_AT(3), SHORT_AT(8), NOTHING}, 1 | 1 << 3 | 1 << 8},
	{{LONG_AT(0), LONG_AT(5), SHORT_AT(10), NOTHING}, 1 | 1 << 5 | 1 << 10},
	{{SHORT_AT(0), SHORT_AT(3), LONG_AT(6), NOTHING}, 1 | 1 << 3 | 1 << 6},
	{{LONG_AT(0), SHORT_AT(5), LONG_AT(8), NOTHING}, 1 | 1 << 5 | 1 << 8},
	{{SHORT_AT(0), LONG_AT(3), LONG_AT(8), NOTHING}, 1 | 1 << 3 | 1 << 8},
	{{LONG_AT(0), LONG_AT(5), LONG_AT(10), NOTHING}, 1 | 1 << 5 | 1 << 10},
};

/* Mask of the 64 bytes that equal @p byte. */
static inline uint64_t bytes_that_are(const uint8_t *p, uint8_t byte)
{
	const __m128i want = _mm_set1_epi8((char)byte);
	uint64_t m = 0;

	for (unsigned int i = 0; i < CHUNK; i += 16) {
		const __m128i v = _mm_loadu_si128((const void *)(p + i));

		m |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(v, want)) << i;
	}
	return m;
}

/* A position in a chunk, with the masks from there on. */
struct chunk {
	const uint8_t *p;
	uint64_t five, any;
};

/* Read three numbers and advance. @return mask of numbers of another size; 0: none. */
static inline uint64_t read_three(struct chunk *c, uint32_t *out)
{
	const unsigned int k = shape[c->five & ((1 << BITS) - 1)], len = k >> 4;
	const __m128i how = _mm_load_si128((const void *)shapes[k & 7].shuffle);
	const __m128i v = _mm_loadu_si128((const void *)c->p);
	const uint64_t others = shapes[k & 7].starts & ~c->any;

	_mm_storeu_si128((void *)out, _mm_shuffle_epi8(v, how));
	c->p += len;
	c->five >>= len;
	c->any >>= len;
	return others;
}

/* Read numbers of three and five bytes in threes; stop before a number of another size, and near
 * the end. May write one value, below n, beyond those returned. */
static uint64_t read_threes(const uint8_t **at, const uint8_t *end, uint64_t n, uint32_t *out)
{
	uint64_t i = 0;

	while (end - *at >= NEEDED && n - i > 3ul * LINKS) {
		const uint64_t five = bytes_that_are(*at, 0xce);
		const struct chunk first = {*at, five, five | bytes_that_are(*at, 0xcd)};
		struct chunk c = first;
		uint64_t others = 0;

		kvr_prefetch(*at + 1024);
		for (unsigned int l = 0; l < LINKS; l++)
			others |= read_three(&c, out + i + 3ul * l);
		if (others != 0) {
			for (c = first; read_three(&c, out + i) == 0; i += 3)
				*at = c.p;
			return i;
		}
		*at = c.p;
		i += 3ul * LINKS;
	}
	return i;
}
#else
static uint64_t read_threes(const uint8_t **at, const uint8_t *end, uint64_t n, uint32_t *out)
{
	return 0;
}
#endif

/* Read the numbers at the end, and numbers in rare forms. */
static uint64_t one_by_one(struct mp_in *in, uint64_t n, uint32_t *out)
{
	uint64_t i;

	for (i = 0; i < n; i++) {
		struct mp_in here = *in;
		struct mp o;

		kvr_kvev__read(&here, &o);
		if (o.type != MP_UINT || o.u > UINT32_MAX)
			break;
		out[i] = (uint32_t)o.u;
		*in = here;
	}
	return i;
}

uint64_t kvr_kvev__numbers_by(struct mp_in *in, uint64_t n, uint32_t *out, bool wide)
{
	const uint8_t *p = in->p, *end = in->end;
	uint64_t i = 0;

	/* Most numbers have three or five bytes in unpredictable order, so there is no branch: the
	 * next type byte is loaded for both cases before the size is known. */
	while (i < n && end - p >= 16) {
		unsigned int b;

		if (wide)
			i += kvr_kvev__tokens_wide(&p, end, n - i, out + i);
		i += read_threes(&p, end, n - i, out + i);
		if (i == n || end - p < 16)
			break;
		b = *p;
		for (; i < n && end - p >= 16 && b - 0xcd <= 1; i++) {
			const unsigned int five = b - 0xcd;
			const unsigned int after3 = p[3], after5 = p[5];

			out[i] = mp_be32(p + 1) >> (16 - 16 * five);
			p += 3 + 2 * five;
			b = five != 0 ? after5 : after3;
		}
		if (i == n || end - p < 16 || b > 0xcc || (b >= 0x80 && b != 0xcc))
			break;
		out[i++] = b < 0x80 ? b : p[1];
		p += b < 0x80 ? 1 : 2;
	}
	/* The longest form has five bytes, so no further check is needed before that distance from
	 * the end. */
	for (; i < n && end - p >= 5; i++) {
		const uint8_t b = *p;

		if (b == 0xcd) {
			out[i] = mp_be16(p + 1);
			p += 3;
		} else if (b == 0xce) {
			out[i] = mp_be32(p + 1);
			p += 5;
		} else if (b < 0x80) {
			out[i] = b;
			p += 1;
		} else if (b == 0xcc) {
			out[i] = p[1];
			p += 2;
		} else {
			break;
		}
	}
	in->p = p;
	return i + one_by_one(in, n - i, out + i);
}

uint64_t kvr_kvev__numbers(struct mp_in *in, uint64_t n, uint32_t *out)
{
	return kvr_kvev__numbers_by(in, n, out, n >= KVEV_WIDE_LEAST && kvr_kvev__has_avx512());
}
