/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_PREFETCH_H
#define KVR_PREFETCH_H

/**
 * @file
 * A cache line on its way while something else is done. The built-in function alone is not enough:
 * GCC takes a function that does nothing but prefetch for one without effect, and leaves out its
 * calls wherever it has not put it inline before it finds that out (12.2, from -O2 on).
 */

/** Begin to load the line of @p p, for reading or writing. Any address will do. */
static inline void kvr_prefetch(const volatile void *p)
{
	__builtin_prefetch((const void *)p, 0, 3);
	__asm__ volatile(""); /* an effect: so who calls this is not left out */
}

/** The same as far as the second cache, which waits for more lines at a time than the first: for
 * hundreds of them. */
static inline void kvr_prefetch_far(const volatile void *p)
{
	__builtin_prefetch((const void *)p, 0, 2);
	__asm__ volatile("");
}

#endif
