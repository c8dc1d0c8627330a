/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tokens: long lists of numbers of one, two, three or five bytes. Where a number starts is known
 * only when the one before it is, and that chain is what it takes. With SSSE3 64 bytes become a
 * bit each: does it start a number of five bytes, of three? Three numbers have one of eight
 * shapes, and the bits behind the first of them say which, so the chain has one link for three:
 *
 *	bytes   ce 0 1 8 f  cd 2 7  ce 0 0 9 c
 *	five    1  . . . .  0  . .  1  . . . .     shape[five & 0x7ff] = 1 0 1: 13 bytes, one
 *shuffle
 */
#include "kvev_pvt.h"

#ifdef __SSSE3__
#include <tmmintrin.h>

#define CHUNK  64
#define NEEDED 80 /* bytes: the last three of a chunk are read 16 at once */
#define BITS   11 /* the third number starts at byte 10 at the most */

/* Is the first, the second, the third number of five bytes, by the bits of `five`? */
#define FIRST(m)  ((m)&1)
#define SECOND(m) ((m) >> (3 + 2 * FIRST(m)) & 1)
#define THIRD(m)  ((m) >> (6 + 2 * (FIRST(m) + SECOND(m))) & 1)
#define SHAPE(m)  (FIRST(m) | SECOND(m) << 1 | THIRD(m) << 2)
#define S4(m)	  SHAPE(m), SHAPE((m) + 1), SHAPE((m) + 2), SHAPE((m) + 3)
#define S16(m)	  S4(m), S4((m) + 4), S4((m) + 8), S4((m) + 12)
#define S64(m)	  S16(m), S16((m) + 16), S16((m) + 32), S16((m) + 48)
#define S256(m)	  S64(m), S64((m) + 64), S64((m) + 128), S64((m) + 192)
#define S1024(m)  S256(m), S256((m) + 256), S256((m) + 512), S256((m) + 768)

static const uint8_t shape[1 << BITS] = {S1024(0), S1024(1024)};

/* Where the numbers of a shape start, bit by bit, what they take, and how their bytes go. */
#define SHORT_AT(i) (i) + 2, (i) + 1, -1, -1
#define LONG_AT(i)  (i) + 4, (i) + 3, (i) + 2, (i) + 1
#define NOTHING	    -1, -1, -1, -1
static const struct {
	int8_t shuffle[16];
	uint32_t starts, len;
} shapes[8] = {
	{{SHORT_AT(0), SHORT_AT(3), SHORT_AT(6), NOTHING}, 1 | 1 << 3 | 1 << 6, 9},
	{{LONG_AT(0), SHORT_AT(5), SHORT_AT(8), NOTHING}, 1 | 1 << 5 | 1 << 8, 11},
	{{SHORT_AT(0), LONG_AT(3), SHORT_AT(8), NOTHING}, 1 | 1 << 3 | 1 << 8, 11},
	{{LONG_AT(0), LONG_AT(5), SHORT_AT(10), NOTHING}, 1 | 1 << 5 | 1 << 10, 13},
	{{SHORT_AT(0), SHORT_AT(3), LONG_AT(6), NOTHING}, 1 | 1 << 3 | 1 << 6, 11},
	{{LONG_AT(0), SHORT_AT(5), LONG_AT(8), NOTHING}, 1 | 1 << 5 | 1 << 8, 13},
	{{SHORT_AT(0), LONG_AT(3), LONG_AT(8), NOTHING}, 1 | 1 << 3 | 1 << 8, 13},
	{{LONG_AT(0), LONG_AT(5), LONG_AT(10), NOTHING}, 1 | 1 << 5 | 1 << 10, 15},
};

/* A bit for each of 64 bytes that is @p byte. */
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

/* Numbers of three and five bytes, three at once; stops before the first that is something else,
 * and near the end. Writes up to one beyond what it returns, of n. */
static uint64_t threes(const uint8_t **at, const uint8_t *end, uint64_t n, uint32_t *out)
{
	const uint8_t *p = *at;
	uint64_t i = 0;
	bool plain = true;

	while (plain && end - p >= NEEDED && n - i >= 4) {
		const uint8_t *const stop = p + CHUNK - BITS;
		uint64_t five = bytes_that_are(p, 0xce), any = five | bytes_that_are(p, 0xcd);

		for (; p <= stop && n - i >= 4; i += 3) {
			const unsigned int k = shape[five & ((1 << BITS) - 1)];
			const __m128i v = _mm_loadu_si128((const void *)p);
			const __m128i how = _mm_loadu_si128((const void *)shapes[k].shuffle);

			if ((shapes[k].starts & ~any) != 0) {
				plain = false;
				break;
			}
			_mm_storeu_si128((void *)(out + i), _mm_shuffle_epi8(v, how));
			p += shapes[k].len;
			five >>= shapes[k].len;
			any >>= shapes[k].len;
		}
	}
	*at = p;
	return i;
}
#else
static uint64_t threes(const uint8_t **at, const uint8_t *end, uint64_t n, uint32_t *out)
{
	return 0;
}
#endif

uint64_t kvr_kvev__numbers(struct mp_in *in, uint64_t n, uint32_t *out)
{
	const uint8_t *p = in->p, *end = in->end;
	uint64_t i = 0;

	/* Most are of three or five bytes, and which of them is a guess that fails as often as not:
	 * no branch. The first byte of the next one is there in both cases before that is known. */
	while (i < n && end - p >= 16) {
		unsigned int b;

		i += threes(&p, end, n - i, out + i);
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
	/* The longest is five bytes: no need to look at the end before that. */
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
	for (; i < n; i++) {
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
