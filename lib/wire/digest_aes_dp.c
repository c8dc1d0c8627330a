/* SPDX-License-Identifier: BSD-3-Clause */
/* The hash of digests for AVX2: the same values in a third of the instructions. */

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

#include "digest_pvt.h"

#include <string.h>

#include <immintrin.h>

#define XXH_INLINE_ALL
#define XXH_NO_STDLIB
#define XXH_VECTOR 2 /* XXH_AVX2 */
#include <xxhash.h>

uint64_t kvr_wire__hash_avx2(const void *p, size_t len)
{
	return XXH3_64bits(p, len);
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
