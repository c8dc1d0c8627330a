/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DIGEST_PVT_H
#define DIGEST_PVT_H

#include <stddef.h>
#include <stdint.h>

/** XXH3_64bits(), on a CPU with AVX2. */
uint64_t kvr_wire__hash_avx2(const void *p, size_t len);

#endif
