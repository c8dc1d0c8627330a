/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef X86INTRIN_H
#define X86INTRIN_H

/**
 * @file
 * What <x86intrin.h> is to whoever includes DPDK's headers. The compiler's own declares every
 * vector instruction there ever was, which takes more than all the rest of a file: 0.23 s of GCC's
 * time, 0.12 s of clang's, in each file with an mbuf. The packaged DPDK compiles its users with
 * -march=corei7 and needs no more of it than SSE4.2; our wider code includes <immintrin.h> itself,
 * in the few files that choose at run time.
 */

#ifdef __AVX__
#include_next <x86intrin.h>
#else
#include <smmintrin.h>
#endif

#endif
