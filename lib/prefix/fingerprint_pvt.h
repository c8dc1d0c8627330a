/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FINGERPRINT_PVT_H
#define FINGERPRINT_PVT_H

/*
 * A filter of the hashes that begin a run: one byte per hash, its fingerprint, in sets of 15. A set
 * without the fingerprint proves that the hash is absent. Equal fingerprints in a set are
 * interchangeable on removal. The last byte counts fingerprints that found the set full; while it
 * is not 0, every hash may be present. A count that reached 255 is never decremented.
 *
 * One writer, any number of readers. Relaxed: a reader that does not see a new fingerprint does not
 * see its run either, as if the run had been stored a moment later. A fingerprint does not move,
 * and the count does not reach 0 before all fingerprints without a place are removed.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pfx_fingerprints {
	_Atomic uint64_t w[2]; /* a byte of 0 is a free place */
};

/* The fingerprint, made of the lowest bits, which do not select the set. */
static inline uint64_t pfx_fingerprint(uint64_t mix)
{
	return (mix & 0xff) + ((mix & 0xff) == 0);
}

/*
 * Sets 0x80 in the bytes of word `w` of a set that equal `byte`; only the lowest such bit is
 * reliable.
 */
static inline uint64_t pfx_fingerprint_bytes(uint64_t v, uint32_t w, uint64_t byte)
{
	const uint64_t ones = UINT64_C(0x0101010101010101);

	v ^= byte * ones;
	v |= w == 1 ? UINT64_C(0xff) << 56 : 0; /* exclude the count */
	return (v - ones) & ~v & ones << 7;
}

/* Return false if no run begins with the hash. Reader. */
static inline bool pfx_fingerprints_match(struct pfx_fingerprints *set, uint64_t mix)
{
	const uint64_t print = pfx_fingerprint(mix);
	uint64_t a = atomic_load_explicit(&set->w[0], memory_order_relaxed);
	uint64_t b = atomic_load_explicit(&set->w[1], memory_order_relaxed);

	return (pfx_fingerprint_bytes(a, 0, print) | pfx_fingerprint_bytes(b, 1, print) |
		b >> 56) != 0;
}

/* Add or remove a fingerprint. Writer. */
static inline void pfx_fingerprints_update(struct pfx_fingerprints *set, uint64_t mix, bool in)
{
	const uint64_t print = pfx_fingerprint(mix), one = UINT64_C(1) << 56;
	uint64_t v = 0, at;

	for (uint32_t w = 0; w < 2; w++) {
		v = atomic_load_explicit(&set->w[w], memory_order_relaxed);
		at = pfx_fingerprint_bytes(v, w, in ? 0 : print);
		if (at == 0)
			continue;
		v ^= print << (__builtin_ctzll(at) - 7);
		atomic_store_explicit(&set->w[w], v, memory_order_relaxed);
		return;
	}
	if (v >> 56 < UINT8_MAX)
		atomic_store_explicit(&set->w[1], in ? v + one : v - one, memory_order_relaxed);
}

#endif
