/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_PREFETCH_H
#define KVR_PREFETCH_H

/**
 * @file
 * Prefetch of a cache line. The compiler's built-in function alone is not enough: GCC 12.2 (-O2 and
 * above) treats a function that only prefetches as free of side effects, and removes its calls
 * unless the function was inlined early.
 */

/** Load the line at @p p into the caches, for reading or writing. Any address is allowed. */
static inline void kvr_prefetch(const volatile void *p)
{
	__builtin_prefetch((const void *)p, 0, 3);
	__asm__ volatile(""); /* a side effect, so that callers are kept */
}

/**
 * Load the line into the second-level cache, which tracks more outstanding lines than the first:
 * for hundreds of lines.
 */
static inline void kvr_prefetch_far(const volatile void *p)
{
	__builtin_prefetch((const void *)p, 0, 2);
	__asm__ volatile("");
}

#endif
