/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PRINT_PVT_H
#define PRINT_PVT_H

/*
 * Which hashes begin a run, nearly: a byte of each, its print, in sets of 15. A set without the
 * print says no for certain. Of equal prints in a set it does not matter which one goes. What finds
 * the set full is counted in the last byte, and while there is such a one every hash may be there;
 * a count that has reached 255 stays.
 *
 * One writer, any number of readers. Relaxed: a reader who does not see a new print does not see
 * what it stands for at all, as if that had come a moment earlier. A print does not move while it
 * stands for something, nor does the count reach 0 before those without a place are gone.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pfx_prints {
	_Atomic uint64_t w[2]; /* 0 is a free place */
};

/* The print: of the lowest bits, which do not choose the set. */
static inline uint64_t pfx_print(uint64_t mix)
{
	return (mix & 0xff) + ((mix & 0xff) == 0);
}

/* 0x80 in bytes of word `w` of a set that are `byte`: the lowest such bit is right. */
static inline uint64_t pfx_printed(uint64_t v, uint32_t w, uint64_t byte)
{
	const uint64_t ones = UINT64_C(0x0101010101010101);

	v ^= byte * ones;
	v |= w == 1 ? UINT64_C(0xff) << 56 : 0; /* the count is no print */
	return (v - ones) & ~v & ones << 7;
}

/* Reader. */
static inline bool pfx_prints_may(struct pfx_prints *s, uint64_t mix)
{
	const uint64_t print = pfx_print(mix);
	uint64_t a = atomic_load_explicit(&s->w[0], memory_order_relaxed);
	uint64_t b = atomic_load_explicit(&s->w[1], memory_order_relaxed);

	return (pfx_printed(a, 0, print) | pfx_printed(b, 1, print) | b >> 56) != 0;
}

/* One comes or goes. Writer. */
static inline void pfx_prints_put(struct pfx_prints *s, uint64_t mix, bool in)
{
	const uint64_t print = pfx_print(mix), one = UINT64_C(1) << 56;
	uint64_t v = 0, at;

	for (uint32_t w = 0; w < 2; w++) {
		v = atomic_load_explicit(&s->w[w], memory_order_relaxed);
		at = pfx_printed(v, w, in ? 0 : print);
		if (at == 0)
			continue;
		v ^= print << (__builtin_ctzll(at) - 7);
		atomic_store_explicit(&s->w[w], v, memory_order_relaxed);
		return;
	}
	if (v >> 56 < UINT8_MAX)
		atomic_store_explicit(&s->w[1], in ? v + one : v - one, memory_order_relaxed);
}

#endif
